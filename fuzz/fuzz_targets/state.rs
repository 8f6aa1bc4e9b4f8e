//! A saved state.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uringload::State;
use uringload_fuzz::check;

fuzz_target!(|data: &[u8]| {
    match std::str::from_utf8(data).map(State::from_json) {
        Ok(Ok(state)) => assert_eq!(State::from_json(&state.to_json()).expect("what it wrote itself"), state),
        Ok(Err(error)) => check(&error),
        Err(_) => {}
    }
});
