//! How commands end: the documented exit codes, with one line of explanation, whatever the input.

use super::*;
use std::time::{Duration, Instant};

#[test]
fn help_documents_the_exit_codes() {
    for arguments in ["--help", "-h", "help"] {
        let (out, _) = expect(&mut uringload(arguments), 0);
        for code in ["0  ", "1  ", "2  ", "130", "141"] {
            assert!(out.contains(&format!("\n  {code}")), "{out}");
        }
    }
    for command in [
        "bench",
        "cache",
        "cache stat",
        "cache verify",
        "cache clear",
        "doctor",
        "index",
        "inspect",
        "list",
        "state",
        "state show",
        "state seek",
        "verify",
        "verify-order",
        "completions",
        "man",
        "licenses",
    ] {
        let (out, _) = expect(&mut uringload(&format!("{command} --help")), 0);
        assert!(out.contains("Usage: uringload"), "{out}");
        assert!(!out.contains("sim"), "the simulated engine is for tests: {out}");
    }
    assert!(expect(&mut uringload("--version"), 0).0.starts_with("uringload "));
}

#[test]
fn arguments_that_cannot_work_end_with_2() {
    let folder = folder(&[("a", 10), ("b", 20)]);
    let dir = folder.path().display();
    for arguments in [
        String::new(),
        "fly".into(),
        format!("bench {dir} --fly"),
        format!("bench {dir} --batch-size 0"),
        format!("bench {dir} --batch-size -1"),
        format!("bench {dir} --rank 2 --world-size 2"),
        format!("bench {dir} --world-size 0"),
        format!("bench {dir} --epochs 0"),
        format!("bench {dir} --rounds 0"),
        format!("bench {dir} --duration 0"),
        format!("bench {dir} --duration forever"),
        format!("bench {dir} --queue-depth 0"),
        format!("bench {dir} --read-size 0"),
        format!("bench {dir} --memory-limit 1.5"),
        format!("bench {dir} --emulate-step -5"),
        format!("bench {dir} --emulate-step 5 --compare mmap"),
        format!("bench {dir} --compare tar"),
        format!("bench {dir} --engine sim --compare mmap"),
        format!("bench {dir} --format records"),
        format!("bench {dir} --format folder --record-bytes 5"),
        format!("bench {dir} --record-bytes 0"),
        format!("bench {dir} --header-bytes 5"),
        format!("list {dir} --digest md5"),
        format!("bench {dir} --resume x --compare mmap"),
        format!("verify-order {dir} --vs 0"),
        format!("verify-order {dir} --rank 1"),
        format!("verify-order {dir} --world-size 99999999"),
        "state".into(),
        "state seek x".into(),
        "state seek x --samples +1 --position 2".into(),
        "state seek x --position -2".into(),
        "verify-order".into(),
        "list".into(),
        "inspect".into(),
        "completions fishes".into(),
    ] {
        let (out, err) = expect(&mut uringload(&arguments), 2);
        assert!(out.is_empty() && !err.is_empty(), "{arguments}: {out}{err}");
        let said = err.lines().filter(|line| line.starts_with("uringload: ")).count();
        assert!(said <= 1, "said once: {err}");
    }
}

#[test]
fn data_that_is_not_there_ends_with_1_and_a_line_that_names_it() {
    let folder = folder(&[("a", 10)]);
    fs::create_dir(folder.path().join("empty")).unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    for (arguments, named) in [
        (at("missing"), "missing"),
        (at("empty"), "empty"),
        (at("*.tar"), "*.tar"),
        ("/dev/null".into(), "/dev/null"),
        (format!("{} --record-bytes 3", at("a")), "/a"),
        (format!("{} --record-bytes 10 --header-bytes 20", at("a")), "/a"),
        (format!("{} --memory-limit 1KiB", at("a")), "memory"),
    ] {
        for command in ["bench", "list"] {
            let (out, err) = expect(&mut uringload(&format!("{command} {arguments}")), 1);
            assert!(err.starts_with("uringload: ") && err.contains(named), "{command} {arguments}: {err}");
            // A line, and one for the remedy, where there is one.
            let is_help = |line: &str| line.starts_with("  help: ");
            assert!(out.is_empty() && err.lines().skip(1).all(is_help) && err.lines().count() <= 2, "{err}");
        }
    }
}

#[test]
fn a_file_is_a_dataset_of_one_sample() {
    let folder = folder(&[("a", 10)]);
    let (out, _) = expect(&mut uringload(&format!("list {}", folder.path().join("a").display())), 0);
    assert_eq!(out.lines().count(), 1);
}

#[test]
fn closed_stdout_ends_quietly_with_141() {
    let names: Vec<String> = (0..2000).map(|n| format!("file-{n:04}")).collect();
    let files: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let folder = folder(&files);
    let dir = folder.path().display();
    for arguments in [
        format!("list {dir}"),
        format!("inspect {dir}"),
        format!("doctor {dir}"),
        format!("verify {dir}"),
        format!("bench {dir} --engine sim"),
        format!("bench {dir} --engine sim --json -"),
        "man".into(),
        "completions zsh".into(),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = uringload(&arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(141), ""), "{arguments}");
    }
}

#[test]
fn a_full_disk_is_said() {
    let folder = folder(&[("a", 10)]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = uringload(&format!("list {}", folder.path().display()));
    let output = command.stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot write the output"), "{}", stderr(&output));
}

/// Starts a bench that would take ten minutes, sends it a signal when `wait` is over, which gets the temporary folder
/// and the one of its statistics, and expects it to end in order.
fn interrupted(name: &str, wait: impl FnOnce(&Path, &Path)) -> Output {
    let (temporary, pages) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = uringload(&format!("bench --duration 600s --share-stats={}", pages.path().display()));
    command.env("TMPDIR", temporary.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait(temporary.path(), pages.path());
    signal(&child, name);
    let sent = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(sent.elapsed() < common::HANG, "took {:?} to end", sent.elapsed());
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0, "left behind");
    assert_eq!(output.status.code(), Some(130), "{}{}", stdout(&output), stderr(&output));
    output
}

/// Files below the folder.
fn count(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let below = |entry: fs::DirEntry| if entry.path().is_dir() { count(&entry.path()) } else { 1 };
    entries.filter_map(Result::ok).map(below).sum()
}

#[test]
fn an_interrupted_bench_prints_what_it_has_and_cleans_up() {
    let output = interrupted("-INT", |_, pages| wait_for_batches(pages, 1));
    let out = stdout(&output);
    assert!(out.contains("throughput") && out.contains("samples/s"), "{out}{}", stderr(&output));
    assert!(stderr(&output).contains("before the end came early"), "{}", stderr(&output));
}

#[test]
fn a_bench_that_is_ended_while_it_makes_its_data_cleans_up() {
    let output = interrupted("-TERM", |temporary, _| {
        let start = Instant::now();
        while count(temporary) == 0 {
            assert!(start.elapsed() < common::HANG, "the dataset does not get ready");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    assert_eq!(stdout(&output).lines().count().min(1), usize::from(!output.stdout.is_empty()));
}

#[test]
fn json_that_cannot_be_written_does_not_cost_the_table() {
    let folder = folder(&[("a", 10)]);
    let arguments = format!("bench {} --engine sim --json /dev/full", folder.path().display());
    let (out, err) = expect(&mut uringload(&arguments), 1);
    assert!(out.contains("throughput") && err.contains("/dev/full"), "{out}{err}");
}

#[test]
fn what_cannot_be_written_is_said_before_anything_is_measured() {
    let folder = folder(&[("a", 10)]);
    for option in ["--json", "--html"] {
        let arguments = format!("bench {} --engine sim {option} /nonexistent/file", folder.path().display());
        let (out, err) = expect(&mut uringload(&arguments), 1);
        assert!(out.is_empty() && err.contains("/nonexistent/file") && err.contains("help: "), "{out}{err}");
    }
}

/// The main thread's stack is as small as the user's limit says: the command takes one of its own.
#[test]
fn a_small_stack_is_enough() {
    let folder = folder(&[("a", 50_000), ("b", 50_000)]);
    let bench = format!("ulimit -s 64; exec \"$0\" bench {} --no-raw --json -", folder.path().display());
    let mut command = Command::new("sh");
    command.args(["-c", &bench, env!("CARGO_BIN_EXE_uringload")]);
    assert_eq!(json(&expect(&mut command, 0).0)["samples"], 2);
}
