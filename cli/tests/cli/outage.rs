//! Storage that is away for a while: stderr reports it, and nothing is lost.

use super::{content, folder, uringload, write};
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longest wait for a word, which comes after five seconds.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn an_outage_is_told_on_stderr_and_waited_out() {
    const FILES: usize = 400;
    let home = folder(&[]);
    let (root, away) = (home.path().join("data"), home.path().join("away"));
    for number in 0..FILES {
        write(&root.join(format!("files/{number:03}")), &content("outage", 20_000));
    }
    // The outage begins in mid-epoch: 1 MiB is an eighth of it.
    let pages = tempfile::tempdir().unwrap();
    let options = "--shuffle --batch-size 4 --emulate-step 20 --epochs 1 --memory-limit 1MiB --on-error raise --no-raw";
    let share = format!("--share-stats={}", pages.path().display());
    let mut command = uringload(&format!("bench {} {options} {share}", root.display()));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    super::wait_for_batches(pages.path(), 1);
    // As a whole: to move files one by one would look like writing to them.
    std::fs::rename(root.join("files"), &away).unwrap();
    let (tell, told) = channel();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        for line in stderr.lines().map_while(Result::ok) {
            let _ = tell.send(line.clone());
            all.push(line);
        }
        all
    });
    let said = std::iter::from_fn(|| told.recv_timeout(PATIENCE).ok()).find(|line| line.contains("waiting for"));
    std::fs::rename(&away, root.join("files")).unwrap();
    let output = child.wait_with_output().unwrap();
    let all = reader.join().unwrap();
    let said = said.unwrap_or_else(|| panic!("the outage is not reported: {all:?}"));
    assert!(said.starts_with(&format!("uringload: waiting for {root:?} for ")) && said.contains(" s: "), "{said}");
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{out}{all:?}");
}

/// A call into the storage that does not end: its sample fails, the others are listed, and the command comes to its
/// end. The process ends when the kernel lets go of the call.
#[test]
fn a_file_that_hangs_costs_its_sample_alone() {
    use crate::common::faulty::{Call, Fault, Faulty, Spec};
    let file = |number| Spec { name: format!("{number:03}.dat"), size: 20_000, fault: Fault::None };
    for call in [Call::Open, Call::Read] {
        let Ok(faulty) = Faulty::mount((0..120).map(file).collect()).map_err(crate::common::skip) else { return };
        faulty.hang(call, 7);
        let arguments = format!("list {} --timeout 2s --on-error skip", faulty.path().display());
        let mut child = uringload(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (told, start) = (lines_of(child.stdout.take().unwrap()), Instant::now());
        let lines: Vec<String> = (0..120).map_while(|_| told.recv_timeout(2 * LIMIT).ok()).collect();
        let took = start.elapsed();
        faulty.release();
        let failed = lines.iter().filter(|line| line.contains("\"error\"") && line.contains("was given up")).count();
        assert_eq!((lines.len(), failed), (120, 1), "{call:?}: {lines:?}");
        assert!(took < 2 * LIMIT, "{call:?}: {took:?}");
        assert_eq!(child.wait().unwrap().code(), Some(1));
    }
}

/// The same while the dataset is opened: an error in time, with the path that was asked for.
#[test]
fn a_file_that_hangs_ends_the_opening() {
    use crate::common::faulty::{Call, Fault, Faulty, Spec};
    let file = |number| Spec { name: format!("{number:03}.dat"), size: 20_000, fault: Fault::None };
    for call in [Call::Lookup, Call::Readdir] {
        let Ok(faulty) = Faulty::mount((0..120).map(file).collect()).map_err(crate::common::skip) else { return };
        faulty.hang(call, 7);
        let arguments = format!("list {} --timeout 2s --on-error skip", faulty.path().display());
        let start = Instant::now();
        let mut child = uringload(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let told = lines_of(child.stderr.take().unwrap());
        // What it does comes first.
        let says = || told.recv_timeout(2 * LIMIT).unwrap_or_default();
        let said = std::iter::repeat_with(says).find(|line| !line.contains(": opening ")).unwrap_or_default();
        let took = start.elapsed();
        faulty.release();
        assert!(said.contains("did not answer within 2s"), "{call:?}: {said}");
        assert!(said.contains("007.dat") || call == Call::Readdir, "{said}");
        assert!(took < 2 * LIMIT, "{call:?}: {took:?}");
        assert_eq!(child.wait().unwrap().code(), Some(1));
    }
}

/// What a command says, line by line, for who does not wait for ever.
fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (tell, told) = channel();
    let lines = BufReader::new(pipe).lines().map_while(Result::ok);
    std::thread::spawn(move || lines.for_each(|line| drop(tell.send(line))));
    told
}

/// How long a read may take.
const LIMIT: Duration = Duration::from_secs(2);
