//! `state`, `--resume` and `--save-state`.

use super::*;

#[test]
fn a_listing_goes_on_where_another_one_was_stopped() {
    let (_folder, dir) = files(20);
    let state = format!("{dir}/.states/state.json");
    let list = |arguments: &str| indices(&expect(&mut uringload(&format!("list {dir} {arguments}")), 0).0);
    let whole = list(&format!("--shuffle --seed 9 --batch-size 3 --save-state {state}"));
    let (shown, _) = expect(&mut uringload(&format!("state show {state} {dir}")), 0);
    for told in ["epoch 1, position 0 of 20", "shuffled, seed 9", "20          ", "it is of this dataset"] {
        assert!(shown.contains(told), "{told:?} is not in {shown}");
    }
    let (out, err) = expect(&mut uringload(&format!("state seek {state} --epoch 0 --position 7 --out {state}")), 0);
    assert!(out.is_empty() && err.contains("has no digest") && err.contains("position 7 of 20"), "{out}{err}");
    // Two ranks, in turn, are what was left.
    let rank =
        |rank| list(&format!("--shuffle --seed 9 --resume {state} --rank {rank} --world-size 2 --batch-size 50"));
    let (even, odd) = (rank(0), rank(1));
    let turns: Vec<u64> = even.iter().zip(&odd).flat_map(|(even, odd)| [*even, *odd]).take(13).collect();
    assert_eq!(turns, whole[7..]);
}

#[test]
fn a_state_that_does_not_belong_is_refused() {
    let (_folder, dir) = files(20);
    let (_more, other) = files(21);
    let state = format!("{dir}/.states/state.json");
    expect(&mut uringload(&format!("bench {dir} --shuffle --no-raw --save-state {state}")), 0);
    fs::write(format!("{dir}/.states/half"), &fs::read(&state).unwrap()[..100]).unwrap();
    for (arguments, told) in [
        (format!("list {other} --shuffle --resume {state}"), "20 samples in the state, 21 here"),
        (format!("bench {other} --shuffle --resume {state}"), "20 files in the state, 21 here"),
        (format!("state show {state} {other}"), "20 samples in the state, 21 here"),
        (format!("list {dir} --shuffle --seed 1 --resume {state}"), "\"shuffled, seed 0\" in the state"),
        (format!("list {dir} --shuffle --seed 1 --resume {state}"), "(seed 0 in the state, 1 here)"),
        (format!("list {dir} --resume {state}"), "\"in the order of the dataset\" here"),
        (format!("list {dir} --resume {dir}/.states/half"), "cut off"),
        (format!("list {dir} --resume {dir}/.states/missing"), "missing"),
        (format!("state show {dir}/000"), "the state"),
        (format!("list {dir} --save-state {dir}/missing/state"), "cannot write the state"),
    ] {
        let (_, err) = expect(&mut uringload(&arguments), 1);
        assert!(err.contains(told), "{arguments}: {told:?} is not in {err}");
        assert!(err.lines().skip(1).all(|line| line.starts_with("  help: ")), "{arguments}: {err}");
    }
}

#[test]
fn a_state_is_shown_in_words() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden");
    let rows = "packed, first fit, rows of 2048, windows of 8192, seed 42, 12 rows into a window";
    let (shown, _) = expect(&mut uringload(&format!("state show {golden}/state-v2-rows.json")), 0);
    for told in ["order         shuffled, seed 42\n", &format!("rows          {rows}\n")] {
        assert!(shown.contains(told), "{told:?} is not in {shown}");
    }
}

#[test]
fn states_of_other_places() {
    let (_folder, dir) = files(20);
    let state = format!("{dir}/.states/state.json");
    expect(&mut uringload(&format!("list {dir} --save-state {state}")), 0);
    for (arguments, epoch, position) in [
        ("--position 20", 1, 20),
        ("--epoch 5", 5, 0),
        ("--epoch 5 --position 3", 5, 3),
        ("--samples +3", 1, 3),
        ("--samples 45", 3, 5),
        ("--samples -1", 0, 19),
        ("--samples=-20", 0, 0),
    ] {
        let (out, err) = expect(&mut uringload(&format!("state seek {state} {arguments}")), 0);
        let told = json(&out);
        assert_eq!((&told["epoch"], &told["position"]), (&epoch.into(), &position.into()), "{arguments}: {err}");
        assert!(told["delivered"].is_null());
    }
    for (arguments, told) in [
        ("--position 21", "no position 21 in an epoch of 20"),
        ("--samples -21", "-21 samples from here"),
        ("--samples -9223372036854775808", "samples from here"),
    ] {
        let (out, err) = expect(&mut uringload(&format!("state seek {state} {arguments}")), 2);
        assert!(out.is_empty() && err.contains(told), "{arguments}: {told:?} is not in {err}");
    }
    let told = json(&expect(&mut uringload(&format!("state seek {state} --epoch 3 --position 2 --json")), 0).0);
    assert_eq!((&told["epoch"], &told["position"], &told["out"]), (&3.into(), &2.into(), &serde_json::Value::Null));
    assert!(told["state"].is_object(), "{told}");
    let last = format!("state seek {state} --epoch 18446744073709551615 --out {state}");
    expect(&mut uringload(&last), 0);
    expect(&mut uringload(&format!("state seek {state} --samples +20")), 2);
    // From stdin to stdout.
    let mut command = uringload("state seek - --epoch 2");
    let (out, _) = expect(command.stdin(fs::File::open(&state).unwrap()), 0);
    assert_eq!(json(&out)["epoch"], 2);
}

#[test]
fn a_bench_tells_its_digest_and_goes_on() {
    let (_folder, dir) = files(20);
    let state = format!("{dir}/.states/state.json");
    let bench = |arguments: &str| {
        let arguments = format!("bench {dir} --shuffle --batch-size 4 --no-raw --json - {arguments}");
        json(&expect(&mut uringload(&arguments), 0).0)
    };
    let whole = bench(&format!("--save-state {state}"));
    assert_eq!((&whole["digest"]["samples"], &whole["config"]["resumed"]), (&20.into(), &serde_json::Value::Null));
    let (proof, _) = expect(&mut uringload(&format!("verify-order {dir} --shuffle")), 0);
    let sum = whole["digest"]["sum"].as_str().unwrap();
    assert!(proof.contains(sum), "the loader's digest {sum} is that of the order: {proof}");
    assert_eq!(json(&fs::read_to_string(&state).unwrap())["delivered"]["sum"], sum);

    expect(&mut uringload(&format!("state seek {state} --epoch 0 --position 8 --out {state}")), 0);
    let rest = bench(&format!("--resume {state}"));
    assert_eq!((&rest["samples"], &rest["digest"]["since"]), (&12.into(), &8.into()));
    assert_eq!((&rest["config"]["resumed"]["epoch"], &rest["config"]["resumed"]["position"]), (&0.into(), &8.into()));
    let (table, _) = expect(&mut uringload(&format!("bench {dir} --shuffle --no-raw --resume {state}")), 0);
    assert!(table.contains("from epoch 0, position 8") && table.contains("12 samples of epoch 0 since position 8"));
}

#[test]
fn an_interrupted_bench_saves_where_it_stands() {
    let (folder, dir) = files(20);
    let state = folder.path().join(".states/state.json");
    let pages = tempfile::tempdir().unwrap();
    let share = format!("--share-stats={}", pages.path().display());
    let mut command = uringload(&format!("bench {dir} --emulate-step 20 --batch-size 1 --no-raw {share}"));
    command.args(["--epochs", "100000", "--json", "-", "--save-state"]).arg(&state).stdout(Stdio::piped());
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    wait_for_batches(pages.path(), 3);
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let (told, saved) = (json(&stdout(&output)), json(&fs::read_to_string(state).unwrap()));
    let position = saved["epoch"].as_u64().unwrap() * 20 + saved["position"].as_u64().unwrap();
    assert_eq!(told["samples"], position, "of the batch that was held, not of what was read ahead");
}
