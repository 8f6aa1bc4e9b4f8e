//! Changes one variable of the environment while other threads run.
//!
//! `setenv(3)` is not sound there: if the list of variables has grown before, glibc older than 2.41 moves it with
//! `realloc`, while another thread's `getenv(3)`, in C or through `std::env`, may be walking it. So the list is not
//! changed in place. A copy with the variable in it replaces it in one store, and neither the copy nor the list before
//! it is ever freed: whoever walks either list walks valid memory to its end. Removing the variable works the same way.
//!
//! That leaves a thread that *changes* the environment at the same moment. It must not do so while other threads use
//! it, by the contract of `setenv(3)` and of `std::env::set_var`, and this module uses it for a few microseconds.

use super::abi::environ;
use super::configuration::VARIABLE;
use std::ffi::{CStr, CString, c_char};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Copies to make before giving up on an environment that keeps changing.
const COPIES_TRIED: usize = 16;

/// The variable as it was before [`put`], to put it back.
pub(super) struct Before(Option<*mut c_char>);

// SAFETY: the pointer is to a string of the environment, which belongs to the process and not to a thread.
unsafe impl Send for Before {}

/// Puts "NAME=value" into the environment, in place of a variable of that name ([`VARIABLE`]).
///
/// # Errors
/// `WouldBlock` if others keep changing the environment.
pub(super) fn put(variable: CString) -> io::Result<Before> {
    exchange(Some(variable.into_raw())).map(Before)
}

/// Restores the variable.
pub(super) fn put_back(before: &Before) {
    // If others keep changing the environment, the variable stays. It then names a file that is gone, which cuFile
    // treats as no configuration.
    let _ = exchange(before.0);
}

/// Removes the variable and adds another, if one is given. The memory of the list is never freed.
fn exchange(added: Option<*mut c_char>) -> io::Result<Option<*mut c_char>> {
    // SAFETY: every program that links a C library has this variable, and here it is only used as an atomic.
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

/// The pointers of a list, without the null pointer at its end.
fn entries(list: *mut *mut c_char) -> Vec<*mut c_char> {
    let mut entries = Vec::new();
    if list.is_null() {
        return entries;
    }
    loop {
        // SAFETY: the list ends with a null pointer, and the loop with it, so this place is inside the list.
        let place = unsafe { list.add(entries.len()) };
        // SAFETY: as above. The list is the C library's, or a copy that `exchange` leaked.
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

    /// How often the environment is read while it changes.
    const READS: usize = 2000;

    /// What `getenv(3)` finds.
    fn get() -> Option<Vec<u8>> {
        std::env::vars_os().find(|(name, _)| name == VARIABLE).map(|(_, value)| value.into_encoded_bytes())
    }

    /// The only test of this crate that touches the environment, so no other one changes it meanwhile.
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
                // Each round leaks its lists, so let a reader that does not get to run go first.
                std::thread::yield_now();
            }
        });
        assert_eq!(std::env::vars_os().collect::<Vec<_>>(), before);
    }
}
