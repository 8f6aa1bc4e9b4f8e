//! Panics of the library and of the crates that it uses, also those that are caught: where a program is built with
//! `panic = "abort"`, each of them ends it.

use std::panic::{self, PanicHookInfo};
use std::sync::{Mutex, Once, PoisonError};

/// Where the first panic outside of the tests was, and what it said.
static FIRST: Mutex<Option<String>> = Mutex::new(None);

/// Fails if anything but a test has panicked since the first call.
pub fn assert_none() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            note(info);
            before(info);
        }));
    });
    let first = FIRST.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!(first.is_none(), "a decoder panicked: {}", first.unwrap_or_default());
}

/// A panic of a test is a failure of its own, and says more than this would.
fn note(info: &PanicHookInfo<'_>) {
    let is_test = info.location().is_some_and(|location| location.file().starts_with("tests/"));
    if !is_test {
        FIRST.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| info.to_string());
    }
}
