//! Several processes in one folder, some of them killed, some of them on a full disk.

use super::*;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// The environment of a process of these tests: its folder, its budget, and the first number of its entries.
const FOLDER: &str = "SEGMENTS_FOLDER";
const BUDGET: &str = "SEGMENTS_BUDGET";
const FIRST: &str = "SEGMENTS_FIRST";

/// Lengths of entries: 256 KiB to 4 MiB.
fn len_of(number: u64) -> usize {
    (256 << 10) + (hash(number) % (15 << 18)) as usize
}

/// The work of a process of the tests below: it fills the folder until nothing fits. By itself it does nothing.
#[test]
fn filler() {
    let told = |name: &str| std::env::var(name).expect("a variable");
    if std::env::var_os(FOLDER).is_none() {
        return;
    }
    let number = |name: &str| told(name).parse::<u64>().expect("a number");
    let segments = open(Path::new(&told(FOLDER)), number(BUDGET));
    for number in number(FIRST).. {
        let len = len_of(number);
        match segments.put(key(number), &[&bytes_of(number, len)]) {
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Starts a filler, behind `shell`.
fn start(folder: &Path, budget: u64, first: u64, shell: &str) -> Child {
    let own = std::env::current_exe().expect("this program");
    let command = format!("{shell} exec \"$0\" --exact segments::tests::processes::filler --nocapture");
    let mut command_line = Command::new("sh");
    command_line.args(["-c", &command]).arg(own).env(FOLDER, folder);
    command_line.env(BUDGET, budget.to_string()).env(FIRST, first.to_string());
    command_line.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process")
}

/// All that is found is what was written. Returns the number of entries and their bytes.
fn check(folder: &Path, budget: u64) -> (usize, u64) {
    let segments = open(folder, budget);
    let found = news(&segments);
    for (key, place) in &found {
        let bytes = whole(&segments, *place);
        assert!(place.is_sure && place.is_of(&bytes), "{key:?}");
        assert!(bytes == bytes_of(key.name, len_of(key.name)), "{key:?}");
    }
    let taken = taken(segments.folder());
    assert!(taken <= budget, "{taken} of {budget}");
    (found.len(), found.values().map(|place| u64::from(place.bytes)).sum())
}

#[test]
fn processes_fill_a_folder_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let budget = 2 * SEGMENT_BYTES;
    let fillers: Vec<Child> = (0..4).map(|process| start(folder.path(), budget, process << 32, "")).collect();
    for filler in fillers {
        let output = filler.wait_with_output().expect("an end");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let (entries, bytes) = check(folder.path(), budget);
    println!("{entries} entries of {bytes} bytes in {budget}");
    assert!(bytes as f64 >= 0.95 * budget as f64, "{bytes} of {budget}");
}

#[test]
fn killed_processes_leave_whole_entries() {
    kill(50);
}

#[test]
#[ignore = "slow: a thousand kills"]
fn a_thousand_killed_processes_leave_whole_entries() {
    kill(1000);
}

/// Kills fillers at random times: what they leave is whole, and the next one goes on.
fn kill(kills: u64) {
    let budget = 3 * SEGMENT_BYTES / 2;
    let (mut folder, mut kept, mut filled) = (tempfile::tempdir().expect("a folder"), 0, 0);
    for kill in 0..kills {
        let mut filler = start(folder.path(), budget, kill << 32, "");
        let started = Instant::now();
        // Some before the first entry, some after tens of them.
        std::thread::sleep(Duration::from_micros(hash(kill) % 120_000));
        filler.kill().expect("killed");
        filler.wait().expect("an end");
        // All entries of a long row of kills would be checked too often.
        let (entries, bytes) = check(folder.path(), budget);
        assert!(entries >= kept, "{entries} of {kept} after {:?}", started.elapsed());
        kept = entries;
        if bytes > budget * 8 / 10 {
            (folder, kept, filled) = (tempfile::tempdir().expect("a folder"), 0, filled + 1);
        }
    }
    println!("{kills} kills, {filled} folders filled and {kept} entries in one more");
    assert!(kept + filled > 0, "nothing was written");
}

/// A disk that is full, or a limit on files: an error, nothing of the segment is left, and readers go on.
#[test]
fn a_full_disk_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let segments = open(folder.path(), MIB);
    let place = put(&segments, 1, 1000).expect("there is room");
    // 100 MiB, in units of 512 bytes.
    let filler = start(folder.path(), SEGMENT_BYTES + 2 * MIB, 2, "trap '' XFSZ; ulimit -f 204800;");
    let output = filler.wait_with_output().expect("an end");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("File too large"), "{told}");
    assert!(!segments.folder().join("new").exists());
    assert_eq!(whole(&segments, place), bytes_of(1, 1000));
    assert!(news(&segments).contains_key(&key(1)));
}
