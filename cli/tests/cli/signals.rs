//! A signal ends each command soon, whatever it does and however slow the storage is, and nothing stays behind.

use super::common::faulty::{Fault, Faulty, Spec};
use super::common::{skip, within};
use super::uringload;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const BOUND: Duration = Duration::from_secs(300);

/// How long a command may take to end.
const END: Duration = Duration::from_secs(2);

/// Held by the tests that load both processors for half a minute: each would leave the other no time.
static ALONE: Mutex<()> = Mutex::new(());

/// A disk of 60 reads a second.
const TURN: Duration = Duration::from_micros(16_667);

/// What a command takes at most to end that is already at its end.
const MOMENT: Duration = Duration::from_millis(100);

/// When the signal comes: while the command opens, reads and measures.
const PHASES: [u64; 5] = [100, 500, 1500, 4000, 8000];

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let is_result = |name: &str| name == "pack.json" || name.starts_with("shard-") || name.ends_with(".uidx");
    names.filter(|name| !is_result(name)).collect()
}

#[test]
fn every_command_ends_soon_after_a_signal() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let file = |number| Spec { name: format!("{number:04}.dat"), size: 300_000, fault: Fault::Turns(TURN) };
    let Ok(faulty) = Faulty::mount((0..2000).map(file).collect()).map_err(skip) else { return };
    let data = faulty.path().display();
    let file = |number| Spec { name: format!("{number:04}.txt"), size: 300_000, fault: Fault::Turns(TURN) };
    let Ok(text) = Faulty::mount((0..500).map(file).collect()).map_err(skip) else { return };
    let lines = text.path().display();
    let commands = [
        format!("bench {data} --shuffle"),
        format!("bench {data} --shuffle --cold --compare threads --json -"),
        format!("tune {data} --shuffle --cold --limit 120s"),
        format!("list {data}"),
        format!("verify {data}"),
        format!("pack --shard-samples 40 {data}"),
        "bench".into(),
        format!("index --format text {lines}"),
        format!("verify-order {data}"),
        format!("inspect {data}"),
        format!("doctor {data}"),
    ];
    let end_of = |command: &str, phase: u64| {
        let place = tempfile::tempdir().unwrap();
        let (out, scratch) = (place.path().join("out"), place.path().join("scratch"));
        [&out, &scratch].into_iter().for_each(|folder| fs::create_dir(folder).unwrap());
        let mut child = uringload(command);
        if command.starts_with("pack") {
            child.arg(&out);
        }
        if command.starts_with("index") {
            child.arg("--index-cache").arg(&scratch);
        }
        let child = child.env("TMPDIR", &scratch).current_dir(&out).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(phase));
        if let Some(status) = child.try_wait().unwrap() {
            // What doctor finds may be worse than it could be.
            let is_done = status.success() || command.starts_with("doctor");
            return assert!(is_done, "{command}, {phase} ms: it ended before: {}", left_of(child));
        }
        let sent = Instant::now();
        assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let (took, code) = (sent.elapsed(), output.status.code());
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(took < END, "{command}, {phase} ms: {took:?}: {err}");
        // Before its handler stands, the signal itself ends it. Or it was at its end when the signal came.
        let is_over = output.status.success() && took < MOMENT;
        assert!(
            code == Some(130) || phase == PHASES[0] || is_over,
            "{command}, {phase} ms: {:?}: {err}",
            output.status
        );
        let left = [names(&out), names(&scratch)].concat();
        assert!(left.is_empty(), "{command}, {phase} ms: {left:?}: {err}");
    };
    within(BOUND, move || {
        let end_of = &end_of;
        // Each waits for its disk, and they do not wait for each other.
        std::thread::scope(|scope| {
            for command in &commands {
                scope.spawn(move || PHASES.iter().for_each(|&phase| end_of(command, phase)));
            }
        });
        drop((faulty, text));
    });
}

/// What a child that has ended said.
fn left_of(child: std::process::Child) -> String {
    String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr).into_owned()
}

/// A disk of 150 reads a second, with many files.
fn slow_and_many() -> Option<Faulty> {
    let turn = Duration::from_micros(6_667);
    let file = |number| Spec { name: format!("{number:05}.dat"), size: 16_384, fault: Fault::Turns(turn) };
    Faulty::mount((0..20_000).map(file).collect()).map_err(skip).ok()
}

/// Opening, emptying the page cache, raw reads with their search, the run, what else is tried: twice the duration at
/// most. What it does is said meanwhile.
#[test]
fn a_duration_bounds_all_that_a_bench_does() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(disk) = slow_and_many() else { return };
    within(BOUND, move || {
        let (mut took, mut said, mut duration) = (Vec::new(), String::new(), 8);
        // Other tests take the machine meanwhile, and may leave a run no time.
        for _ in 0..6 {
            let command = format!("bench {} --cold --duration {duration} --batch-size 16", disk.path().display());
            let begun = Instant::now();
            let output = uringload(&command).output().unwrap();
            took.push(begun.elapsed());
            let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            said += &err;
            if output.status.code() == Some(1) && err.contains("give a longer ") {
                duration += 4;
                continue;
            }
            assert!(output.status.success() && out.contains("throughput"), "{out}{err}");
            assert!(err.contains("uringload: reading, ") && err.contains(" s left at most"), "{err}");
            if took.last() <= Some(&Duration::from_secs(2 * duration)) {
                return drop(disk);
            }
        }
        panic!("{took:?}: {said}");
    });
}

#[test]
fn an_end_before_there_is_a_figure_is_one_sentence() {
    // The kernel waits for a read that a file system was asked for, so none takes for ever.
    let slow = Fault::Slow(Duration::from_secs(4));
    let file = |number| Spec { name: format!("{number}.dat"), size: 300_000, fault: slow };
    let Ok(disk) = Faulty::mount((0..8).map(file).collect()).map_err(skip) else { return };
    let data = disk.path().display().to_string();
    within(BOUND, move || {
        for command in [format!("bench {data} --no-raw"), format!("bench {data} --json -"), format!("tune {data}")] {
            let mut child = uringload(&command);
            let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(1500));
            super::signal(&child, "-INT");
            let output = child.wait_with_output().unwrap();
            let err = String::from_utf8_lossy(&output.stderr);
            let said: Vec<&str> = err.lines().filter(|line| line.contains("stopped")).collect();
            assert!(output.status.code() == Some(130) && output.stdout.is_empty(), "{command}: {err}");
            assert_eq!(said.len(), 1, "{command}: {err}");
        }
        drop(disk);
    });
}
