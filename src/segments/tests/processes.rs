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

/// The work of a process of the test of `clear`. By itself it does nothing.
#[test]
fn clearer() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        clear(Path::new(&folder), &Clear::Stale).expect("cleared");
    }
}

/// Starts a filler, behind `shell`.
fn start(folder: &Path, budget: u64, first: u64, shell: &str) -> Child {
    start_as("filler", (folder, budget, first), shell)
}

fn start_as(name: &str, (folder, budget, first): (&Path, u64, u64), shell: &str) -> Child {
    let own = std::env::current_exe().expect("this program");
    let command = format!("{shell} exec \"$0\" --exact segments::tests::processes::{name} --nocapture");
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
    let (mut folder, mut kept, mut filled, mut idle) = (tempfile::tempdir().expect("a folder"), 0, 0, 0);
    for kill in 0..kills {
        let mut filler = start(folder.path(), budget, kill << 32, "");
        let started = Instant::now();
        // Some before the first entry, some after tens of them. On a busy machine, processes take longer to begin.
        std::thread::sleep(Duration::from_micros(hash(kill) % (120_000 << idle)));
        filler.kill().expect("killed");
        filler.wait().expect("an end");
        // All entries of a long row of kills would be checked too often.
        let (entries, bytes) = check(folder.path(), budget);
        assert!(entries >= kept, "{entries} of {kept} after {:?}", started.elapsed());
        idle = if entries > kept { 0 } else { 6.min(idle + 1) };
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

/// Kills processes that remove stale entries at random times: all others stay, and the next one goes on.
#[test]
fn what_is_not_stale_survives_killed_clears() {
    let folder = tempfile::tempdir().expect("a folder");
    let len = 400_000;
    // Each budget adds a segment, so there are twelve.
    for step in 1..=12 {
        let segments = open(folder.path(), step * 3 * MIB);
        (0..).map_while(|number| put(&segments, step * 100 + number, len)).count();
    }
    let segments = open(folder.path(), 48 * MIB);
    let all = news(&segments);
    std::thread::sleep(Duration::from_millis(2));
    // Every third has a newer version.
    for key in all.keys().filter(|key| key.name % 3 == 0) {
        segments.put(Key { stamp: key.stamp ^ 1, ..*key }, &[&bytes_of(key.name, len)]).expect("written");
    }
    drop(segments);
    let live: Vec<Key> = all.keys().filter(|key| key.name % 3 != 0).copied().collect();
    let mut ended = 0;
    for kill in 0..12 {
        let mut clearer = start_as("clearer", (folder.path(), 0, 0), "");
        std::thread::sleep(Duration::from_micros(2_000 + hash(kill) % 60_000));
        clearer.kill().expect("killed");
        ended += usize::from(clearer.wait().expect("an end").success());
        let segments = open(folder.path(), 48 * MIB);
        let found = news(&segments);
        for key in &live {
            assert!(whole(&segments, found[key]) == bytes_of(key.name, len), "{key:?} after {kill} kills");
        }
    }
    println!("{ended} of 12 were not killed");
    clear(folder.path(), &Clear::Stale).expect("cleared");
    let segments = open(folder.path(), 48 * MIB);
    assert_eq!(news(&segments).len(), all.len());
    assert!(stat(folder.path()).expect("a cache").datasets.iter().all(|cached| cached.dead_entries == 0));
}
