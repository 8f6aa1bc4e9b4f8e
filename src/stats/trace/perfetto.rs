//! Perfetto's protobuf: a `Trace` is packets end to end, and so may end anywhere. Field numbers are those of
//! `protos/perfetto/trace`.

use super::{Event, Form, KERNELS, Lane, What};
use crate::stats::Doing;
use std::io::Write as _;

/// `Trace.packet`.
const PACKET: u32 = 1;

/// Fields of `TracePacket`.
mod packet {
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE: u32 = 10;
    pub(super) const EVENT: u32 = 11;
    pub(super) const INTERNED: u32 = 12;
    pub(super) const FLAGS: u32 = 13;
    pub(super) const DESCRIPTOR: u32 = 60;
}

/// `SEQ_INCREMENTAL_STATE_CLEARED`, and `SEQ_NEEDS_INCREMENTAL_STATE`.
const CLEARED: u64 = 1;
const NEEDS: u64 = 2;

/// Fields of `TrackEvent`.
mod event {
    pub(super) const TYPE: u32 = 9;
    pub(super) const NAME_IID: u32 = 10;
    pub(super) const TRACK: u32 = 11;
    pub(super) const NAME: u32 = 23;
    pub(super) const COUNTER: u32 = 30;
}

/// Values of `TrackEvent.Type`.
const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;
const COUNT: u64 = 4;

/// The only writer of the trace.
const SEQUENCE: u64 = 1;
/// Tracks of the process, of its reads in flight and of batches that lie ready; those of lanes come after them.
const PROCESS: u64 = 1;
const IN_FLIGHT: u64 = 2;
const READY: u64 = 3;
const LANES: u64 = 3;

/// The number of the name of an activity; that of kernels comes after them.
fn name_of(doing: Doing) -> u64 {
    doing as u64 + 1
}
const KERNELS_NAME: u64 = Doing::ALL.len() as u64 + 1;

/// The form.
pub(super) struct Perfetto {
    boot: u64,
    has_begun: bool,
    /// By lane, whether a slice is open.
    open: Vec<bool>,
}

impl Perfetto {
    /// The trace begins so many nanoseconds after the machine did.
    pub(super) fn new(boot: u64) -> Perfetto {
        Perfetto { boot, has_begun: false, open: Vec::new() }
    }

    /// The names of activities, and the tracks that no thread has.
    fn begin(&mut self, out: &mut Vec<u8>) {
        let mut names = Vec::new();
        let all = Doing::ALL.map(|doing| (name_of(doing), doing.name()));
        for (place, text) in all.into_iter().chain([(KERNELS_NAME, KERNELS)]) {
            let mut name = Vec::new();
            number(&mut name, 1, place);
            bytes(&mut name, 2, text.as_bytes());
            bytes(&mut names, 2, &name);
        }
        let mut packet = Vec::new();
        number(&mut packet, packet::SEQUENCE, SEQUENCE);
        number(&mut packet, packet::FLAGS, CLEARED);
        bytes(&mut packet, packet::INTERNED, &names);
        bytes(out, PACKET, &packet);
        let mut process = Vec::new();
        number(&mut process, 1, u64::from(std::process::id()));
        bytes(&mut process, 6, b"uringload");
        let mut track = Vec::new();
        number(&mut track, 1, PROCESS);
        bytes(&mut track, 3, &process);
        self::track(&track, out);
        for (place, name) in [(IN_FLIGHT, "reads in flight"), (READY, "batches ready")] {
            let mut track = Vec::new();
            number(&mut track, 1, place);
            number(&mut track, 5, PROCESS);
            bytes(&mut track, 2, name.as_bytes());
            bytes(&mut track, 8, &[]);
            self::track(&track, out);
        }
    }

    /// A packet with an event, of which `fields` writes the fields: in place, because memory for each event took
    /// longer than all the rest of it.
    fn put(&self, at: u64, out: &mut Vec<u8>, fields: impl FnOnce(&mut Vec<u8>)) {
        within(out, PACKET, |out| {
            number(out, packet::TIMESTAMP, self.boot.saturating_add(at));
            number(out, packet::SEQUENCE, SEQUENCE);
            number(out, packet::FLAGS, NEEDS);
            within(out, packet::EVENT, fields);
        });
    }

    fn end(&mut self, lane: &Lane, at: u64, out: &mut Vec<u8>) {
        if let Some(open) = self.open.get_mut(lane.number as usize).filter(|open| **open) {
            *open = false;
            self.put(at, out, |out| {
                number(out, event::TYPE, END);
                number(out, event::TRACK, LANES + u64::from(lane.number));
            });
        }
    }
}

impl Form for Perfetto {
    fn lane(&mut self, lane: &Lane, out: &mut Vec<u8>) {
        if !self.has_begun {
            self.has_begun = true;
            self.begin(out);
        }
        self.open.resize(lane.number as usize + 1, false);
        let mut track = Vec::new();
        number(&mut track, 1, LANES + u64::from(lane.number));
        number(&mut track, 5, PROCESS);
        if let Some(id) = lane.thread {
            let mut thread = Vec::new();
            number(&mut thread, 1, u64::from(std::process::id()));
            number(&mut thread, 2, u64::from(id));
            bytes(&mut thread, 5, lane.name.as_bytes());
            bytes(&mut track, 4, &thread);
        } else {
            bytes(&mut track, 2, lane.name.as_bytes());
        }
        self::track(&track, out);
    }

    fn event(&mut self, lane: &Lane, Event { at, what }: Event, out: &mut Vec<u8>) {
        let track = LANES + u64::from(lane.number);
        if what == What::Ended {
            return self.end(lane, at, out);
        }
        if let What::Doing(_) | What::Kernels = what {
            self.end(lane, at, out);
            self.open[lane.number as usize] = true;
        }
        let begin = |out: &mut Vec<u8>, name: u64| {
            number(out, event::TYPE, BEGIN);
            number(out, event::NAME_IID, name);
            number(out, event::TRACK, track);
        };
        let count = |out: &mut Vec<u8>, track: u64, count: u32| {
            number(out, event::TYPE, COUNT);
            number(out, event::TRACK, track);
            number(out, event::COUNTER, u64::from(count));
        };
        self.put(at, out, |out| match what {
            What::Ended => {}
            What::Doing(doing) => begin(out, name_of(doing)),
            What::Kernels => begin(out, KERNELS_NAME),
            What::InFlight(reads) => count(out, IN_FLIGHT, reads),
            What::Ready(batches) => count(out, READY, batches),
            What::Batch(batch) => {
                number(out, event::TYPE, INSTANT);
                number(out, event::TRACK, track);
                within(out, event::NAME, |out| {
                    // Writing to memory cannot fail.
                    let _ = write!(out, "batch {batch}");
                });
            }
        });
    }

    fn lost(&mut self, lane: &Lane, count: u64, out: &mut Vec<u8>) {
        self.put(lane.start.elapsed().as_nanos() as u64, out, |out| {
            number(out, event::TYPE, INSTANT);
            number(out, event::TRACK, LANES + u64::from(lane.number));
            bytes(out, event::NAME, format!("{count} events were lost").as_bytes());
        });
    }
}

/// A packet with a `TrackDescriptor`.
fn track(descriptor: &[u8], out: &mut Vec<u8>) {
    let mut packet = Vec::new();
    number(&mut packet, packet::SEQUENCE, SEQUENCE);
    bytes(&mut packet, packet::DESCRIPTOR, descriptor);
    bytes(out, PACKET, &packet);
}

/// A field of a varint.
fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    varint(out, u64::from(field) << 3);
    varint(out, value);
}

/// A field of another message that `fields` writes, which is shorter than 128 bytes: its length is one byte.
fn within(out: &mut Vec<u8>, field: u32, fields: impl FnOnce(&mut Vec<u8>)) {
    varint(out, u64::from(field) << 3 | 2);
    out.push(0);
    let begin = out.len();
    fields(out);
    let length = out.len() - begin;
    debug_assert!(length < 0x80, "{length} bytes have a length of one");
    out[begin - 1] = length as u8;
}

/// A field of bytes, of text or of another message.
fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    varint(out, u64::from(field) << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
