//! What a test calls beside the driver's functions: settings, counters, violations, and a trainer that reads.

use crate::abi::{Code, HostPointer, INVALID_VALUE, NOT_FOUND, Out, OutText, Text, exports};
use crate::state::{hold, wait};
use crate::work::Work;
use std::ffi::c_int;
use std::time::Duration;

/// Needs no driver that is started.
fn always(_name: &str) -> Result<(), Code> {
    Ok(())
}

exports! {
    always;
    /// Takes over settings: see `settings`.
    fn mock_cuda_configure(text: Text) {
        hold().configure(text.get().ok_or(INVALID_VALUE)?).ok_or(INVALID_VALUE)
    }

    /// Settings, counters and devices as they were in the beginning; what is alive stays.
    fn mock_cuda_reset() {
        hold().reset();
        Ok(())
    }

    /// A counter: `contexts`, `streams`, `events`, `modules`, `allocations`, `allocated_bytes`, `registrations`,
    /// `registered_bytes` that are alive; `calls`, `copies`, `copied_bytes`, `pageable_copies`, `kernels`, `words`,
    /// `reads`, `works`, `illegal`, `violations` since the reset.
    fn mock_cuda_count(name: Text, count: Out<u64>) {
        let found = hold().count(name.get().ok_or(INVALID_VALUE)?);
        count.set(found.ok_or(NOT_FOUND)?)
    }

    /// The text of a violation, from 0; not found behind the last one.
    fn mock_cuda_violation(index: usize, text: OutText, len: c_int) {
        let held = hold();
        text.set(held.violation(index).ok_or(NOT_FOUND)?, len)
    }

    /// Stands for a trainer's kernel: reads `len` bytes at `address` in `stream`, for `micros` microseconds. What it
    /// has read is to be had under the number in `answer`.
    fn mock_cuda_consume(stream: usize, address: u64, len: usize, micros: u64, answer: Out<usize>) {
        let mut held = hold();
        let (stream, _) = held.own_stream(stream)?;
        let number = held.next_handle();
        let time = Duration::from_micros(micros);
        held.submit(stream, Work::Read { from: address, len: len as u64, answer: number, time })?;
        answer.set(number)
    }

    /// Waits for what was read under the number in `stream`, and copies it to `to`, which is as long.
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
