//! A low limit on open descriptors shortens the file table, and the ring says so.

use uringload_sys::ring::{Feature, Step};
use uringload_sys::system::{open_files_limit, set_open_files_limit};
use uringload_sys::{Ring, RingOptions};

#[test]
fn the_file_table_is_as_long_as_the_limit_allows() {
    let before = open_files_limit();
    set_open_files_limit(Some(64)).unwrap();
    let opened = Ring::open(&RingOptions::default().files(200));
    set_open_files_limit(before.soft).unwrap();
    let (ring, steps) = match opened {
        Ok(opened) => opened,
        Err(error) => return eprintln!("skipped: io_uring is not available here: {error}"),
    };
    assert_eq!(ring.files(), 50, "halved until it fits");
    let is_shorter = |step: &Step| step.feature == Feature::FullFileTable && step.errno == libc::EMFILE;
    assert!(steps.iter().any(is_shorter), "{steps:?}");
}
