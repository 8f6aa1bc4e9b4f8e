//! Happens-before: vector clocks, and checks of memory accesses against them.
//!
//! Work in a stream comes after the earlier work in that stream, after the events that the stream waits for, and after
//! whatever the host knew to be done when it started the work. Two accesses to the same bytes, one of which writes,
//! must be ordered in this way. Whichever of the two runs later finds the other one, so the result of the check does
//! not depend on timing.

use std::collections::BTreeMap;
use std::ops::Range;

/// How far each stream has come, as the number of its latest work.
#[derive(Clone, Debug, Default)]
pub struct Clock(BTreeMap<usize, u64>);

impl Clock {
    /// Takes in `other`: from now on this clock is after everything that `other` is after.
    pub fn join(&mut self, other: &Clock) {
        for (&stream, &number) in &other.0 {
            let own = self.0.entry(stream).or_default();
            *own = (*own).max(number);
        }
    }

    /// Numbers the next work of a stream.
    pub fn step(&mut self, stream: usize) -> u64 {
        let own = self.0.entry(stream).or_default();
        *own += 1;
        *own
    }

    fn is_behind(&self, stream: usize, number: u64) -> bool {
        self.0.get(&stream).is_some_and(|&own| own >= number)
    }
}

/// The work that accesses memory.
#[derive(Clone, Debug)]
pub struct Actor {
    /// The stream that the work is in.
    pub stream: usize,
    /// The work's number in its stream.
    pub number: u64,
    /// The work that comes before it.
    pub clock: Clock,
    /// A name for people.
    pub what: &'static str,
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
}

/// The accesses to one range of memory that later accesses must come after.
#[derive(Debug, Default)]
pub struct Accesses(Vec<Access>);

#[derive(Debug)]
struct Access {
    range: Range<u64>,
    kind: Kind,
    stream: usize,
    number: u64,
    what: &'static str,
}

impl Accesses {
    /// Records an access. Returns a description of the first conflicting access that it is not ordered after.
    pub fn note(&mut self, range: &Range<u64>, kind: Kind, actor: &Actor) -> Option<String> {
        let overlaps = |access: &&Access| access.range.start < range.end && range.start < access.range.end;
        let conflicts = |access: &&Access| kind == Kind::Write || access.kind == Kind::Write;
        let mut met = self.0.iter().filter(overlaps).filter(conflicts);
        let found = met.find(|access| !actor.clock.is_behind(access.stream, access.number)).map(|access| {
            let place = |kind, range: &Range<u64>| {
                let does = if kind == Kind::Write { "writes" } else { "reads" };
                format!("{does} device memory {:#x}..{:#x}", range.start, range.end)
            };
            let (own, other) = (place(kind, range), place(access.kind, &access.range));
            let (stream, other_stream) = (actor.stream, access.stream);
            format!(
                "{} in stream {stream:#x} {own} unordered: {} in {other_stream:#x} {other}",
                actor.what, access.what
            )
        });
        self.forget_covered(range, kind, actor);
        let (stream, number, what) = (actor.stream, actor.number, actor.what);
        self.0.push(Access { range: range.clone(), kind, stream, number, what });
        found
    }

    /// Drops accesses that a new one covers: to come after a write is to come after all that the write comes after, and
    /// likewise for the reads of one stream.
    fn forget_covered(&mut self, range: &Range<u64>, kind: Kind, actor: &Actor) {
        let mut rests = Vec::new();
        self.0.retain_mut(|access| {
            let is_covered = match kind {
                Kind::Write => actor.clock.is_behind(access.stream, access.number),
                Kind::Read => access.kind == Kind::Read && access.stream == actor.stream,
            };
            if !is_covered || access.range.end <= range.start || range.end <= access.range.start {
                return true;
            }
            let (kind, stream, number, what) = (access.kind, access.stream, access.number, access.what);
            let sides = [access.range.start..range.start, range.end..access.range.end];
            let kept = sides.into_iter().filter(|side| side.start < side.end);
            rests.extend(kept.map(|range| Access { range, kind, stream, number, what }));
            false
        });
        self.0.append(&mut rests);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actor(stream: usize, clock: &mut Clock) -> Actor {
        let number = clock.step(stream);
        Actor { stream, number, clock: clock.clone(), what: "a copy" }
    }

    #[test]
    fn unordered_accesses_are_found_and_ordered_ones_are_not() {
        let (mut first, mut second) = (Clock::default(), Clock::default());
        let mut accesses = Accesses::default();
        assert_eq!(accesses.note(&(0..100), Kind::Write, &actor(1, &mut first)), None);
        // Elsewhere, and in the same stream.
        assert_eq!(accesses.note(&(100..200), Kind::Write, &actor(2, &mut second)), None);
        assert_eq!(accesses.note(&(50..60), Kind::Read, &actor(1, &mut first)), None);
        // A reader that did not wait, then one that did.
        let found = accesses.note(&(99..101), Kind::Read, &actor(2, &mut second));
        assert!(found.is_some_and(|text| text.contains("unordered")));
        second.join(&first);
        assert_eq!(accesses.note(&(10..20), Kind::Read, &actor(2, &mut second)), None);
        // A writer that did not wait for the reader, then one that did.
        assert!(accesses.note(&(0..30), Kind::Write, &actor(1, &mut first)).is_some());
        first.join(&second);
        assert_eq!(accesses.note(&(0..200), Kind::Write, &actor(1, &mut first)), None);
        assert_eq!(accesses.0.len(), 1);
    }

    #[test]
    fn what_is_not_covered_is_remembered() {
        let (mut first, mut second) = (Clock::default(), Clock::default());
        let mut accesses = Accesses::default();
        accesses.note(&(0..100), Kind::Read, &actor(1, &mut first));
        second.join(&first);
        assert_eq!(accesses.note(&(40..60), Kind::Write, &actor(2, &mut second)), None);
        let mut third = Clock::default();
        for (range, is_found) in [(0..40, true), (60..100, true)] {
            assert_eq!(accesses.note(&range, Kind::Write, &actor(3, &mut third)).is_some(), is_found, "{range:?}");
        }
        // Readers do not conflict with each other.
        assert_eq!(accesses.note(&(200..300), Kind::Read, &actor(1, &mut first)), None);
        assert_eq!(accesses.note(&(200..300), Kind::Read, &actor(3, &mut third)), None);
    }
}
