//! `verify` as a library: all checks that a format declares are done, through views too, and progress is reported.

use bytes::Bytes;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use uringload::dataset::{self, Check, Concat, Dataset, FileId, Index, Options, Sample, SampleId, Span, View};
use uringload::verify::{Finding, Progress, Stage, Summary, Watch};
use uringload::{Error, ErrorKind, Loader, Result};

/// Keeps what it is told, and ends after so much progress.
struct Told {
    findings: Mutex<Vec<Finding>>,
    checked_bytes: AtomicU64,
    progress_left: AtomicU64,
}

impl Watch for Told {
    fn found(&self, finding: &Finding) {
        self.findings.lock().unwrap().push(finding.clone());
    }

    fn progress(&self, progress: Progress) {
        let left = |left: u64| left.checked_sub(1);
        let _ = self.progress_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        if progress.stage == Stage::Checks {
            self.checked_bytes.fetch_max(progress.done, Ordering::Relaxed);
            assert!(progress.done <= progress.total);
        }
    }

    fn is_over(&self) -> bool {
        self.progress_left.load(Ordering::Relaxed) == 0
    }
}

fn told(dataset: &Arc<dyn Dataset>, progress: u64) -> (Summary, Vec<Finding>, u64) {
    let told = Told { findings: Mutex::default(), checked_bytes: AtomicU64::new(0), progress_left: progress.into() };
    let summary = Loader::builder(Arc::clone(dataset)).verify(&told).unwrap();
    let findings = told.findings.into_inner().unwrap();
    assert_eq!(summary.findings, findings.len() as u64);
    (summary, findings, told.checked_bytes.into_inner())
}

/// Files whose format keeps what `declared` says of each.
struct Declaring {
    folder: Arc<dyn Dataset>,
    declared: Vec<(u64, u64, &'static str, &'static str)>,
}

impl Dataset for Declaring {
    fn index(&self) -> &Index {
        self.folder.index()
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        self.folder.spans(id, out);
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        match &*raw[0] {
            b"bad" => Err(Error::new(ErrorKind::Corrupt, "it is bad")),
            _ => self.folder.parse(id, raw, out),
        }
    }

    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        self.folder.key(id, out);
    }

    fn checks(&self, file: FileId, out: &mut Vec<Check>) -> Result<()> {
        out.extend(self.declared.iter().map(|&(offset, len, algorithm, expected)| Check {
            span: Span { file, offset, len },
            what: "the part".into(),
            algorithm: algorithm.into(),
            expected: expected.into(),
        }));
        Ok(())
    }

    fn faults(&self) -> Vec<Error> {
        vec![Error::new(ErrorKind::Corrupt, "a fault of").with_path("index")]
    }
}

fn declaring(
    files: &[(&str, &[u8])],
    declared: &[(u64, u64, &'static str, &'static str)],
) -> (tempfile::TempDir, Arc<dyn Dataset>) {
    let root = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, bytes)| fs::write(root.path().join(name), bytes).unwrap());
    let folder = dataset::open(&[root.path()], &Options::new().format("folder")).unwrap();
    (root, Arc::new(Declaring { folder, declared: declared.to_vec() }))
}

#[test]
fn what_is_declared_is_done() {
    let declared = [
        (1, 9, "crc32", "cbf43926"),
        (1, 9, "crc32c", "E3069283"),
        (0, 9, "crc32", "cbf43926"),
        (1, 9, "crc64", "0"),
        (1, u64::MAX, "crc32", "0"),
        (3, 8, "crc32", "0"),
    ];
    let (root, dataset) = declaring(&[("a", b"x123456789")], &declared);
    let (summary, findings, checked_bytes) = told(&dataset, u64::MAX);
    let found: Vec<_> = findings.iter().map(|finding| (finding.error.kind(), finding.error.offset())).collect();
    let wanted = [
        (ErrorKind::Corrupt, None),
        (ErrorKind::Corrupt, Some(0)),
        (ErrorKind::Truncated, Some(10)),
        (ErrorKind::Truncated, Some(10)),
    ];
    assert_eq!(found, wanted, "{findings:?}");
    assert_eq!((summary.samples, summary.checks, summary.check_bytes), (1, 3, 18), "bytes of two are read once");
    assert_eq!((summary.not_checked.len(), summary.not_checked[0].algorithm.as_str()), (1, "crc64"));
    assert!(summary.is_complete && checked_bytes >= 10);
    fs::remove_file(root.path().join("a")).unwrap();
    let (summary, findings, _) = told(&dataset, u64::MAX);
    assert_eq!((summary.samples, summary.samples_lost), (0, 1));
    assert!(findings.iter().any(|finding| finding.error.kind() == ErrorKind::NotFound), "{findings:?}");
}

#[test]
fn samples_that_fail_alike_are_one_finding() {
    let files: Vec<String> = (0..300).map(|number| format!("{number:03}")).collect();
    let files: Vec<(&str, &[u8])> =
        files.iter().map(|name| (name.as_str(), if &**name < "100" { b"bad" } else { &b"good"[..] })).collect();
    let (_root, dataset) = declaring(&files, &[(0, 3, "crc32", "3d6ad5cf")]);
    let (summary, findings, _) = told(&dataset, u64::MAX);
    assert_eq!((summary.samples, summary.samples_lost), (200, 100));
    let samples: Vec<_> = findings.iter().filter_map(|finding| Some((finding, finding.samples.clone()?))).collect();
    assert_eq!((samples.len(), samples[0].1.count, &samples[0].1.key[..]), (1, 100, &b"000"[..]));
    assert!(samples[0].0.error.path().is_some_and(|file| file.ends_with("000")), "{:?}", samples[0]);
    // One that has enough at once.
    let (summary, findings, _) = told(&dataset, 0);
    assert!(!summary.is_complete && summary.samples == 0 && findings.len() == 1, "the fault: {findings:?}");
}

#[test]
fn views_have_the_checks_and_faults_of_what_they_show() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/arrays/stored.npz");
    let root = tempfile::tempdir().unwrap();
    let bad = root.path().join("bad.npz");
    let mut bytes = fs::read(&data).unwrap();
    let value = bytes.windows(6).position(|bytes| bytes == b"\x93NUMPY").unwrap() + 130;
    bytes[value] ^= 1;
    fs::write(&bad, bytes).unwrap();
    let open = |path: &PathBuf| -> Arc<dyn Dataset> { dataset::open(&[path], &Options::new().format("npz")).unwrap() };
    let both: Arc<dyn Dataset> = Arc::new(Concat::new(vec![open(&data), open(&bad), open(&data)]).unwrap());
    let chosen: Arc<dyn Dataset> = Arc::new(View::of(Arc::clone(&both), vec![0]).unwrap());
    for (dataset, samples) in [(both, 3), (chosen, 1)] {
        let (summary, findings, _) = told(&dataset, u64::MAX);
        assert_eq!((summary.samples, summary.checks, findings.len()), (samples, 6, 1), "{findings:?}");
        assert_eq!(findings[0].error.path(), Some(&*bad));
    }
    let (_root, one) = declaring(&[("a", b"1")], &[]);
    let both: Arc<dyn Dataset> = Arc::new(Concat::new(vec![Arc::clone(&one), one]).unwrap());
    assert_eq!(both.faults().len(), 2);
}
