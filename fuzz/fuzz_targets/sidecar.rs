//! The index beside a file. Its checksums are correct, but what it says may be false and must never be trusted blindly.
//! The first byte of the input chooses the file: a plain archive, a compressed one, TFRecord or lines.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fs;
use uringload::dataset::{self, Options};
use uringload_fuzz::{adopt, files, gzip, walk};

const ARCHIVE: &[u8] = include_bytes!("../corpus/tar/two.tar");
const RECORDS: &[u8] = include_bytes!("../../tests/data/tfrecord/bytes/raw.tfrecord");
const LINES: &[u8] = b"one\ntwo\n\nthree\n";

fuzz_target!(|data: &[u8]| {
    let Some((which, data)) = data.split_first() else { return };
    let zip;
    let (name, content) = match which % 4 {
        0 => ("a.tar", ARCHIVE),
        1 => {
            zip = gzip(ARCHIVE);
            ("a.tar.gz", &zip[..])
        }
        2 => ("a.tfrecord", RECORDS),
        _ => ("a.txt", LINES),
    };
    let folder = files(&[(name, content)]);
    let path = folder.join(name);
    let mut sidecar = data.to_vec();
    adopt(&mut sidecar, &path);
    fs::write(folder.join(format!("{name}.uidx")), &sidecar).expect("a file");
    let options = Options::new().sidecars(false).threads(1);
    walk(match which % 4 {
        0 | 1 => dataset::open(&[path], &options.format("tar").set("missing", "empty")),
        2 => dataset::open(&[path], &options.format("tfrecord").set("whole_records", true)),
        _ => dataset::open(&[path], &options.format("text")),
    });
});
