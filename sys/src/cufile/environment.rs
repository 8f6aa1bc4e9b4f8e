//! One variable in the environment of a process that has other threads.
//!
//! `setenv(3)` is not sound there: where the list of variables has grown before, glibc before 2.41 moves it with
//! `realloc` while another thread's `getenv(3)`, in C or through `std::env`, may be walking along it. So the list is
//! not changed in place. A copy with the variable in it takes its place in one store, and neither the copy nor the list
//! before it is ever freed: whoever walks along one of them walks along valid memory to its end. Taking the variable
//! away again is the same thing once more.
//!
//! What is left is a thread that *changes* the environment at the same moment. It must not do so while other threads
//! use it, which is the contract of `setenv(3)` and of `std::env::set_var`; this module uses it for some microseconds.

use super::abi::environ;
use super::configuration::VARIABLE;
use std::ffi::{CStr, CString, c_char};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Copies made before it is given up that the environment holds still.
const COPIES_TRIED: usize = 16;

/// The variable as it stood in the environment before [`put`]; for putting it back.
pub(super) struct Before(Option<*mut c_char>);

// SAFETY: the pointer is to a string of the environment, which is the process's and no thread's.
unsafe impl Send for Before {}

/// Puts "NAME=value" into the environment, in place of a variable of that name ([`VARIABLE`]).
///
/// # Errors
/// `WouldBlock` where others change the environment all the time.
pub(super) fn put(variable: CString) -> io::Result<Before> {
    exchange(Some(variable.into_raw())).map(Before)
}

/// Makes the variable what it was.
pub(super) fn put_back(before: &Before) {
    // Where others change the environment all the time the variable stays: it then names a file that is gone, which
    // cuFile takes as having no configuration.
    let _ = exchange(before.0);
}

/// Takes the variable out and puts another in, if there is one. Costs the memory of the list, for good.
fn exchange(added: Option<*mut c_char>) -> io::Result<Option<*mut c_char>> {
    // SAFETY: every program that is linked against a C library has this one, and it is only used as an atomic here.
    let list: &'static AtomicPtr<*mut c_char> = unsafe { &environ };
    for _ in 0..COPIES_TRIED {
        let before = list.load(Ordering::Acquire);
        let mut copy = entries(before);
        let place = copy.iter().position(|&entry| is_variable(entry));
        let taken = place.map(|place| copy.remove(place));
        copy.extend(added);
        copy.push(ptr::null_mut());
        let copy = Box::leak(copy.into_boxed_slice()).as_mut_ptr();
        if list.compare_exchange(before, copy, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return Ok(taken);
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// The pointers of a list, without the null one at its end.
fn entries(list: *mut *mut c_char) -> Vec<*mut c_char> {
    let mut entries = Vec::new();
    if list.is_null() {
        return entries;
    }
    loop {
        // SAFETY: the list ends with a null pointer, at which the loop ends, so this place is in the list.
        let place = unsafe { list.add(entries.len()) };
        // SAFETY: as above; the list is the C library's or one that `set` leaked.
        let entry = unsafe { place.read() };
        if entry.is_null() {
            return entries;
        }
        entries.push(entry);
    }
}

fn is_variable(entry: *mut c_char) -> bool {
    // SAFETY: the entries of the environment are strings that end with a zero byte.
    let entry = unsafe { CStr::from_ptr(entry) };
    entry.to_bytes().strip_prefix(VARIABLE.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often the environment is read while it is changed.
    const READS: usize = 2000;

    /// What `getenv(3)` finds.
    fn get() -> Option<Vec<u8>> {
        std::env::vars_os().find(|(name, _)| name == VARIABLE).map(|(_, value)| value.into_encoded_bytes())
    }

    /// The only test of this crate that touches the environment, so nobody else changes it meanwhile.
    #[test]
    fn readers_beside_it_always_find_a_whole_environment() {
        let before: Vec<_> = std::env::vars_os().collect();
        assert!(!before.is_empty() && get().is_none());
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                for _ in 0..READS {
                    let found: Vec<_> = std::env::vars_os().filter(|(name, _)| name != VARIABLE).collect();
                    assert_eq!(found, before);
                }
            });
            for round in 0.. {
                let none = put(CString::new(format!("{VARIABLE}=/first/{round}")).unwrap()).unwrap();
                let first = put(CString::new(format!("{VARIABLE}=/second/{round}")).unwrap()).unwrap();
                assert_eq!(get(), Some(format!("/second/{round}").into_bytes()));
                put_back(&first);
                assert_eq!(get(), Some(format!("/first/{round}").into_bytes()));
                put_back(&none);
                assert_eq!(get(), None);
                if reader.is_finished() {
                    break;
                }
                // Each round leaves its lists behind, so that a reader who does not get to run is let go first.
                std::thread::yield_now();
            }
        });
        assert_eq!(std::env::vars_os().collect::<Vec<_>>(), before);
    }
}
