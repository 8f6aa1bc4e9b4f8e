//! Defaults from the environment.

use super::*;

const MEMORY: (&str, &str) = ("URINGLOAD_MEMORY_LIMIT", "64MiB");
const THREADS: (&str, &str) = ("URINGLOAD_NUM_THREADS", "3");

#[test]
fn what_is_given_comes_before_a_variable_and_that_before_a_profile() {
    let (_folder, dir) = files(10);
    let profiles = tempfile::tempdir().unwrap();
    let profile = profiles.path().join("profile.toml");
    fs::write(&profile, "version = 1\nmemory_limit = 134217728\nnum_threads = 2\n").unwrap();
    let named = ("URINGLOAD_PROFILE", profile.to_str().unwrap());
    for (variables, arguments, memory) in [
        (vec![MEMORY, THREADS], "", 64 << 20),
        (vec![MEMORY, named], "", 64 << 20),
        (vec![named], "", 128 << 20),
        (vec![MEMORY, named], "--memory-limit 96MiB", 96 << 20),
    ] {
        let mut command = uringload(&format!("bench {dir} --no-raw --json - {arguments}"));
        let told = json(&expect(command.envs(variables.iter().copied()), 0).0);
        assert_eq!(told["pool_bytes"], memory, "{variables:?} {arguments}");
    }
}

#[test]
fn a_bad_variable_is_named() {
    let (_folder, dir) = files(10);
    for (name, value) in [
        ("URINGLOAD_NUM_THREADS", "-1"),
        ("URINGLOAD_NUM_THREADS", "two"),
        ("URINGLOAD_MEMORY_LIMIT", "lots"),
        ("URINGLOAD_PROFILE", "/no/such/profile.toml"),
    ] {
        for command in ["list", "bench", "verify"] {
            let (out, err) = expect(uringload(&format!("{command} {dir}")).env(name, value), 2);
            assert!(out.is_empty() && err.contains(&format!("the variable {name} is {value:?}")), "{err}");
            assert!(err.contains("help: "), "{err}");
        }
        let (text, _) = expect(uringload("doctor").env(name, value), 1);
        assert!(text.contains(&format!("!! variables      {name}={value}")), "{text}");
    }
}

#[test]
fn doctor_shows_what_is_set() {
    let mut doctor = uringload("doctor --json");
    let told = json(&stdout(&run(doctor.envs([MEMORY, THREADS, ("URINGLOAD_LOG", "info")]))));
    let findings = told["findings"].as_array().unwrap();
    let finding = findings.iter().find(|finding| finding["what"] == "variables").unwrap();
    assert_eq!(finding["found"], "URINGLOAD_NUM_THREADS=3, URINGLOAD_MEMORY_LIMIT=64MiB, URINGLOAD_LOG=info");
    assert_eq!(finding["state"], "info");
    assert!(!stdout(&run(&mut uringload("doctor"))).contains("variables"));
}
