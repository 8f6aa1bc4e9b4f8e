//! Any calls of the C interface in any order, on handles that live: each is a status, nothing hangs, and what was given
//! away is dropped. `capi/tests/orders.rs` draws the same worlds from seeds.
#![no_main]

#[path = "../../capi/tests/calls/mod.rs"]
mod calls;

use libfuzzer_sys::fuzz_target;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

fuzz_target!(|data: &[u8]| {
    let folder = uringload_fuzz::files(&[("numbers", &[7; 800])]);
    let path = CString::new(folder.join("numbers").as_os_str().as_bytes()).expect("a path");
    calls::world(&mut calls::Random::of(data), &path);
});
