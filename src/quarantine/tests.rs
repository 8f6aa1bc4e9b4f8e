//! Lists that are read back: which lines belong to a dataset, and what is wrong with the others.

use super::*;
use crate::dataset::{self, Dataset, FileTable, Options};
use std::sync::Arc;

fn dataset(files: u64) -> Arc<dyn Dataset> {
    let mut table = FileTable::new();
    table.push_root("/data");
    for index in 0..files {
        table.push(format!("file_{index}").as_bytes(), 100).unwrap();
    }
    dataset::inspect::of_files(table, &Options::new().set("labels", false)).unwrap()
}

/// Writes `list` to a file and reads it for a dataset of ten samples.
fn read_text(list: &[u8]) -> Result<Vec<SampleId>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list");
    std::fs::write(&path, list).unwrap();
    read(&path, &*dataset(10))
}

fn line(dataset: &dyn Dataset, id: u64) -> String {
    format!("{{\"id\":{id},\"dataset\":\"{:016x}\",\"unknown\":[1]}}\n", dataset.fingerprint())
}

fn failed(id: u64) -> FailedSample {
    let error = Error::new(ErrorKind::Truncated, "cut").with_path(format!("/data/file_{id}")).with_offset(50);
    FailedSample { id: SampleId(id), position: 3, error, replaced_by: None }
}

#[test]
fn samples_come_sorted_and_once() {
    let (own, other) = (dataset(10), dataset(11));
    let list = [line(&*own, 7), line(&*other, 10), line(&*own, 2), "\n".into(), line(&*own, 7)].concat();
    assert_eq!(read_text(list.as_bytes()).unwrap(), [SampleId(2), SampleId(7)]);
    assert_eq!(read_text(b"# mine\n9\n\n 3 # broken\n3").unwrap(), [SampleId(3), SampleId(9)]);
    assert_eq!(read_text(b"").unwrap(), []);
    assert_eq!(read_text(format!("4\n{}", line(&*own, 1)).as_bytes()).unwrap(), [SampleId(1), SampleId(4)]);
}

#[test]
fn what_is_wrong_with_a_line_is_said_with_its_number() {
    let own = dataset(10);
    let good = line(&*own, 1);
    let cut = &good.as_bytes()[..good.len() - 5];
    let at = good.len() as u64;
    let cases: [(&[u8], ErrorKind, &str); 6] = [
        (b"{\"id\":}\n", ErrorKind::Corrupt, "line 2 names no sample"),
        (b"{\"id\":3}\n", ErrorKind::Corrupt, "dataset"),
        (b"three\n", ErrorKind::Corrupt, "line 2 names no sample"),
        (b"\xff\n", ErrorKind::Corrupt, "line 2 names no sample"),
        (cut, ErrorKind::Corrupt, "line 2, the last, was cut off"),
        (b"10\n", ErrorKind::InvalidArgument, "line 2 names sample 10, and the dataset has 10 samples"),
    ];
    for (bad, kind, words) in cases {
        let error = read_text(&[good.as_bytes(), bad].concat()).unwrap_err();
        assert_eq!((error.kind(), error.offset()), (kind, Some(at)), "{error}");
        assert!(error.to_string().contains(words) && error.path().is_some() && error.remedy().is_some(), "{error}");
    }
    let error = read(Path::new("/nowhere/list"), &*own).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn a_list_of_other_datasets_says_whose_it_is() {
    let other = dataset(11);
    let error = read_text(line(&*other, 3).as_bytes()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    for fingerprint in [other.fingerprint(), dataset(10).fingerprint()] {
        assert!(error.to_string().contains(&format!("{fingerprint:016x}")), "{error}");
    }
}

#[test]
fn a_sample_has_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list");
    let own = dataset(10);
    for _ in 0..2 {
        let mut quarantine = Quarantine::open(&path).unwrap();
        for id in [5, 3, 5] {
            quarantine.add(&*own, 1, &failed(id)).unwrap();
        }
    }
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 4, "one for each sample and writer: {text}");
    assert_eq!(read(&path, &*own).unwrap(), [SampleId(3), SampleId(5)]);
}

#[test]
fn a_full_disk_is_told_once() {
    if !Path::new("/dev/full").exists() {
        return eprintln!("skipped: there is no /dev/full");
    }
    let mut quarantine = Quarantine::open(Path::new("/dev/full")).unwrap();
    let error = quarantine.add(&*dataset(10), 0, &failed(1)).unwrap_err();
    assert!(error.to_string().contains("/dev/full") && error.remedy().is_some(), "{error}");
    quarantine.add(&*dataset(10), 0, &failed(2)).unwrap();
    assert!(quarantine.written.is_empty(), "they are tried again");
}

/// After a line that a full disk cut off, the next one starts on a new line.
#[test]
fn a_torn_line_spoils_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list");
    std::fs::write(&path, "{\"datas").unwrap();
    let mut quarantine = Quarantine::open(&path).unwrap();
    quarantine.torn = true;
    quarantine.add(&*dataset(10), 0, &failed(1)).unwrap();
    let error = read(&path, &*dataset(10)).unwrap_err();
    assert!(error.to_string().contains("line 1 names no sample"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
}

/// Does not wait for the other end of a FIFO, which may have a name that another user chose.
#[test]
fn a_fifo_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("list");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let written = Quarantine::open(&path).map(drop).map_err(|error| error.kind());
        let read = read(&path, &*dataset(10)).map_err(|error| error.kind());
        sender.send((written, read.map(drop))).unwrap();
    });
    let refused = receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("it does not wait");
    assert_eq!(refused, (Err(ErrorKind::Io), Err(ErrorKind::WrongFileType)));
}
