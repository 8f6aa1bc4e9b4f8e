//! A signal ends each command soon, whatever it does and however slow the storage is, and nothing stays behind.

use super::common::faulty::{Fault, Faulty, Spec};
use super::common::{skip, within};
use super::uringload;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const BOUND: Duration = Duration::from_secs(300);

/// How long a command may take to end.
const END: Duration = Duration::from_secs(2);

/// A disk of 60 reads a second.
const TURN: Duration = Duration::from_micros(16_667);

/// When the signal comes: while the command opens, reads and measures.
const PHASES: [u64; 5] = [100, 500, 1500, 4000, 8000];

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name != "pack.json" && !name.starts_with("shard-")).collect()
}

#[test]
fn every_command_ends_soon_after_a_signal() {
    let file = |number| Spec { name: format!("{number:04}.dat"), size: 300_000, fault: Fault::Turns(TURN) };
    let Ok(faulty) = Faulty::mount((0..2000).map(file).collect()).map_err(skip) else { return };
    let data = faulty.path().display();
    let commands = [
        format!("bench {data} --shuffle"),
        format!("bench {data} --shuffle --cold --compare threads --json -"),
        format!("tune {data} --shuffle --cold --limit 120s"),
        format!("list {data}"),
        format!("verify {data}"),
        format!("pack --shard-samples 40 {data}"),
        "bench".into(),
    ];
    let end_of = |command: &str, phase: u64| {
        let place = tempfile::tempdir().unwrap();
        let (out, scratch) = (place.path().join("out"), place.path().join("scratch"));
        [&out, &scratch].into_iter().for_each(|folder| fs::create_dir(folder).unwrap());
        let mut child = uringload(command);
        if command.starts_with("pack") {
            child.arg(&out);
        }
        let child = child.env("TMPDIR", &scratch).current_dir(&out).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(phase));
        if let Some(status) = child.try_wait().unwrap() {
            return assert!(status.success(), "{command}, {phase} ms: it ended before");
        }
        let sent = Instant::now();
        assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let (took, code) = (sent.elapsed(), output.status.code());
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(took < END, "{command}, {phase} ms: {took:?}: {err}");
        // Before its handler stands, the signal itself ends it.
        assert!(code == Some(130) || phase == PHASES[0], "{command}, {phase} ms: {:?}: {err}", output.status);
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
        drop(faulty);
    });
}
