//! A low limit on open descriptors shortens the file table, and the ring says so.

use uringload_sys::ring::Step;
use uringload_sys::system::{open_files_limit, set_open_files_limit};
use uringload_sys::{Ring, RingOptions};

#[test]
fn the_file_table_is_as_long_as_the_limit_allows() {
    let before = open_files_limit();
    set_open_files_limit(Some(64)).unwrap();
    let opened = Ring::open(&RingOptions { files: 200, ..RingOptions::default() });
    set_open_files_limit(before.soft).unwrap();
    let (ring, steps) = match opened {
        Ok(opened) => opened,
        Err(error) => return eprintln!("skipped: io_uring is not to be had here: {error}"),
    };
    assert_eq!(ring.files(), 50, "halved until it fits");
    let shorter = Step { what: "file table of the wanted length", errno: libc::EMFILE };
    assert!(steps.contains(&shorter), "{steps:?}");
}
