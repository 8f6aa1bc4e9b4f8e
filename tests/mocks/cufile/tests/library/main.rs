//! `uringload_sys::cufile` and the guards against the mock library: what it answers, where it fails, where it hangs.

mod faults;
mod reads;
mod support;
