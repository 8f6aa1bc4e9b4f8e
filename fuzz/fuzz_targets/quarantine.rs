//! A quarantine file: a list of samples that failed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::dataset::{self, Options};
use uringload::quarantine;
use uringload_fuzz::{check, files};

fuzz_target!(|data: &[u8]| {
    let folder = files(&[("a.bin", &[7; 1000]), ("list.jsonl", data)]);
    let options = Options::new().format("records").set("record_bytes", 10);
    let records = dataset::open(&[folder.join("a.bin")], &options).expect("100 records");
    match quarantine::read(&folder.join("list.jsonl"), &*records) {
        Ok(ids) => assert!(ids.iter().all(|id| id.0 < 100)),
        Err(error) => check(&error),
    }
});
