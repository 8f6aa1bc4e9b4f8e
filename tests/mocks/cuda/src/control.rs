//! Functions for tests beside the driver's: settings, counters, violations, and a trainer that reads.

use crate::abi::{Code, HostPointer, INVALID_VALUE, NOT_FOUND, Out, OutText, Text, exports};
use crate::state::{hold, wait};
use crate::work::Work;
use std::ffi::c_int;
use std::time::Duration;

/// Works before `cuInit`.
fn always(_name: &str) -> Result<(), Code> {
    Ok(())
}

exports! {
    always;
    /// Applies settings: see `settings`.
    fn mock_cuda_configure(text: Text) {
        hold().configure(text.get().ok_or(INVALID_VALUE)?).ok_or(INVALID_VALUE)
    }

    /// Returns settings, counters and devices to their initial state; live objects stay.
    fn mock_cuda_reset() {
        hold().reset();
        Ok(())
    }

    /// A counter. Of live objects: `contexts`, `streams`, `events`, `modules`, `allocations`, `allocated_bytes`,
    /// `registrations`, `registered_bytes`. Since the reset: `calls`, `copies`, `copied_bytes`, `pageable_copies`,
    /// `kernels`, `words`, `reads` (copies to the host), `read_bytes`, `works`, `lists` (copies of several pieces),
    /// `overlapping` (those that prefer to overlap with kernels), `events_made`, `allocations_made`, `on_default`
    /// (copies and kernels in the legacy default stream, but for `mock_cuda_consume`'s), `cubins` (modules of machine
    /// code), `looks` (queries among the calls), `refused` (by a capture), `captured`, `illegal`, `violations`.
    fn mock_cuda_count(name: Text, count: Out<u64>) {
        let found = hold().count(name.get().ok_or(INVALID_VALUE)?);
        count.set(found.ok_or(NOT_FOUND)?)
    }

    /// The text of a violation, from 0; "not found" after the last one.
    fn mock_cuda_violation(index: usize, text: OutText, len: c_int) {
        let held = hold();
        text.set(held.violation(index).ok_or(NOT_FOUND)?, len)
    }

    /// Stands in for a trainer's kernel: reads `len` bytes at `address` in `stream`, for `micros` microseconds. The
    /// result can be fetched under the number in `answer`.
    fn mock_cuda_consume(stream: usize, address: u64, len: usize, micros: u64, answer: Out<usize>) {
        let mut held = hold();
        let (stream, _) = held.own_stream(stream)?;
        let number = held.next_handle();
        let time = Duration::from_micros(micros);
        held.submit(stream, Work::Read { from: address, len: len as u64, answer: number, time })?;
        answer.set(number)
    }

    /// Waits for the read with this number in `stream`, and copies its result to `to`, which has the same length.
    fn mock_cuda_consumed(stream: usize, answer: usize, to: HostPointer, len: usize) {
        let mut held = hold();
        let (_, device) = held.own_stream(stream)?;
        loop {
            if let Some(bytes) = held.answers.remove(&answer) {
                if bytes.len() != len {
                    return Err(INVALID_VALUE);
                }
                to.write(&bytes);
                return Ok(());
            }
            held.check(device)?;
            held = wait(held);
        }
    }
}
