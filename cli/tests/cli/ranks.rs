//! Ranks that launchers say.

use super::*;

#[test]
fn ranks_are_those_that_the_launcher_says() {
    let (_folder, dir) = files(10);
    let list = |variables: &[(&str, &str)], arguments: &str| {
        let mut command = uringload(&format!("list {dir} {arguments}"));
        let (out, err) = expect(command.envs(variables.iter().copied()), 0);
        (indices(&out), err)
    };
    let torch = [("RANK", "1"), ("WORLD_SIZE", "5")];
    assert_eq!(list(&torch, ""), (vec![1, 6], "uringload: rank 1 of 5 (from RANK and WORLD_SIZE)\n".into()));
    assert_eq!(list(&torch, "--rank 0 --world-size 10"), (vec![0], String::new()));
    let slurm = [("SLURM_PROCID", "2"), ("SLURM_NTASKS", "5")];
    assert_eq!(list(&slurm, "").0, [2, 7]);
    assert_eq!(list(&[slurm[0], slurm[1], torch[0], torch[1]], "").0, [1, 6]);
    let mpi = [("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "5")];
    assert_eq!(list(&mpi, "").0, [3, 8]);
    assert_eq!(list(&[("RANK", "0"), ("WORLD_SIZE", "1")], "").1, "", "one process says nothing");
    for (variables, told) in [
        (vec![("RANK", "1")], "WORLD_SIZE is not"),
        (vec![("SLURM_NTASKS", "4")], "SLURM_PROCID is not"),
        (vec![("RANK", "a"), ("WORLD_SIZE", "2")], "RANK is \"a\""),
        (vec![("RANK", "2"), ("WORLD_SIZE", "2")], "from RANK and WORLD_SIZE"),
    ] {
        for command in ["list", "bench"] {
            let mut command = uringload(&format!("{command} {dir}"));
            let (out, err) = expect(command.envs(variables.iter().copied()), 2);
            assert!(out.is_empty() && err.contains(told) && err.lines().count() == 2, "{told:?} is not in {err}");
        }
    }
    let mut bench = uringload(&format!("bench {dir} --no-raw --json -"));
    let told = json(&expect(bench.envs(torch), 0).0);
    let config = &told["config"];
    assert_eq!((&config["rank"], &config["world_size"]), (&1.into(), &5.into()));
    assert_eq!(config["ranks_from"], "RANK and WORLD_SIZE");
    let mut bench = uringload(&format!("bench {dir} --no-raw"));
    let (table, _) = expect(bench.envs(torch), 0);
    assert!(table.contains("rank 1 of 5 (from RANK and WORLD_SIZE)"), "{table}");
}
