//! A simulated disk. Its bytes are a function of file and offset, so that any recipient can check them. It lies like
//! real disks do: short reads, interrupted reads, errors, reordering, delays, files that shrank. A seed determines all
//! of it.

#[cfg(test)]
pub mod service;

use super::{ABANDONED_MAX, Done, Engine, Read};
use crate::dataset::{Dataset, FileId};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};
use uringload_core::store::{Class, Failure};

/// How often the disk lies. Each number is a chance in 256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A read ends early, at any byte.
    pub short: u8,
    /// A read fails with EINTR or EAGAIN.
    pub momentary: u8,
    /// A read fails with EIO, once or for good.
    pub device: u8,
    /// Of the reads that fail with EIO, how many fail on every attempt.
    pub lasting: u8,
    /// A read is delayed to a later turn.
    pub delay: u8,
    /// A file is shorter than its index says.
    pub shrunk: u8,
    /// A read does not end until it is cancelled.
    pub stuck: u8,
    /// Of the reads that do not end, how many also ignore cancellation and end much later, if ever.
    pub deaf: u8,
    /// Whether reads complete in random order.
    pub reorder: bool,
    /// A server puts a read off, and names a time or none.
    pub throttled: u8,
    /// An outage that fails every read for a time.
    pub outage: Option<Outage>,
}

/// A time in which every read fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The errno of the reads. `ENOENT`: no name leads to a file.
    pub errno: i32,
    /// When it begins, from the start of the disk.
    pub after: Duration,
    /// How long it lasts.
    pub lasting: Duration,
    /// Whether half of the reads succeed, if the machine has no room.
    pub is_partial: bool,
}

/// How much later than the failed read other names are checked.
pub(crate) const ASKED_LATER: Duration = Duration::from_millis(2);

/// Simulated duration of a turn.
const TURN: Duration = Duration::from_micros(100);

/// Longest delay of a read that ignores cancellation but does end.
const DEAF_SECONDS: u64 = 300;

/// The simulated disk.
pub struct Sim {
    dataset: Arc<dyn Dataset>,
    faults: Faults,
    seed: u64,
    random: Xoshiro256PlusPlus,
    queue: Vec<Read>,
    stuck: Vec<Stuck>,
    /// Tags of reads in `stuck` that no caller waits for.
    abandoned: Vec<u64>,
    start: Instant,
    now: Instant,
    /// Reads that the outage failed.
    #[cfg(test)]
    pub failed_by_outage: u64,
    /// Bundles: those that came back whole, and those that did not.
    #[cfg(test)]
    pub bundles: [u64; 2],
    depth: usize,
    alignment: u64,
    /// How long reads take, and the reads in progress: when they began and when they end.
    #[cfg(test)]
    service: Option<service::Service>,
    #[cfg(test)]
    due: Vec<(Instant, Instant, Read)>,
    /// Reads that failed with EIO once and will then succeed.
    failed_once: HashSet<(FileId, u64)>,
}

/// A read that does not end by itself, or not soon.
struct Stuck {
    read: Read,
    /// Whether it ignores cancellation.
    deaf: bool,
    cancelled: bool,
    /// When it ends anyway.
    until: Option<Instant>,
}

impl Sim {
    /// Creates a disk that holds the files of `dataset`, accepts `depth` reads at once, and requires `alignment`.
    pub fn new(dataset: Arc<dyn Dataset>, depth: usize, alignment: u64, seed: u64, faults: Faults) -> Sim {
        let now = Instant::now();
        Sim {
            dataset,
            faults,
            seed,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            queue: Vec::with_capacity(depth),
            stuck: Vec::new(),
            abandoned: Vec::new(),
            start: now,
            now,
            #[cfg(test)]
            failed_by_outage: 0,
            #[cfg(test)]
            bundles: [0; 2],
            depth,
            alignment,
            #[cfg(test)]
            service: None,
            #[cfg(test)]
            due: Vec::new(),
            failed_once: HashSet::new(),
        }
    }

    /// Lets reads take as long as a device with these limits needs.
    #[cfg(test)]
    #[must_use]
    pub fn with_service(mut self, limits: service::Limits) -> Sim {
        self.service = Some(service::Service::new(limits, self.seed, self.now));
        self
    }

    /// Ends the reads that are due, and waits for the next one if none is.
    #[cfg(test)]
    fn serve(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) {
        let next = self.due.iter().map(|&(_, end, _)| end).min();
        if let Some(wait) = wait {
            let latest = self.now + wait;
            self.now = next.map_or(latest, |next| next.clamp(self.now, latest));
        }
        let now = self.now;
        let ended: Vec<_> = self.due.extract_if(.., |(_, end, _)| *end <= now).collect();
        for (began, _, mut read) in ended {
            let result = self.answer(&mut read);
            done.push(Done { tag: read.tag, part: read.part, result, latency: now - began, pieces: read.pieces });
        }
    }

    /// Length of the file on the disk. May be less than its index says.
    pub fn size(&self, file: FileId) -> u64 {
        let size = self.dataset.files().size(file);
        let draw = mix(self.seed ^ u64::from(file.0));
        if (draw as u8) < self.faults.shrunk { (draw >> 8) % (size + 1) } else { size }
    }

    /// The error of a read during the current outage, if there is one.
    fn outage(&mut self) -> Option<i32> {
        let outage = self.outage_at(self.now)?;
        (!outage.is_partial || self.chance(128)).then_some(outage.errno)
    }

    fn outage_at(&self, time: Instant) -> Option<Outage> {
        let age = time.saturating_duration_since(self.start);
        self.faults.outage.filter(|outage| outage.after <= age && age < outage.after + outage.lasting)
    }

    /// Whether every read of these bytes fails, however often it is retried.
    pub fn is_bad(&self, file: FileId, offset: u64) -> bool {
        let draw = mix(self.seed ^ (u64::from(file.0) << 40) ^ (offset >> 12).rotate_left(17) ^ 0xbad);
        (draw as u8) < self.faults.device && ((draw >> 8) as u8) < self.faults.lasting
    }

    /// Whether every read of every file fails, which looks just like an outage.
    #[cfg(test)]
    pub fn is_all_bad(&self) -> bool {
        let files = self.dataset.files();
        let pages = |file| (0..self.size(file).div_ceil(4096)).map(move |page| (file, page * 4096));
        (0..files.len() as u32).map(FileId).flat_map(pages).all(|(file, offset)| self.is_bad(file, offset))
    }

    /// Whether a read of this file failed that would have succeeded the next time, and may never have been repeated:
    /// the probe that decides may never end.
    #[cfg(test)]
    pub fn may_be_held_up(&self, file: FileId) -> bool {
        self.faults.stuck > 0 && self.failed_once.iter().any(|(of, _)| *of == file)
    }

    /// Ends all stuck reads, whether or not anyone waits for them.
    #[cfg(test)]
    pub fn release(&mut self) {
        self.stuck.iter_mut().for_each(|stuck| stuck.until = Some(self.now));
    }

    /// Keeps the read if it does not end; otherwise returns it.
    fn keep(&mut self, read: Read) -> Option<Read> {
        if !self.chance(self.faults.stuck) {
            return Some(read);
        }
        let deaf = self.chance(self.faults.deaf);
        let seconds = 1 + self.random.next_u64() % DEAF_SECONDS;
        let until = (deaf && self.chance(128)).then(|| self.now + Duration::from_secs(seconds));
        self.stuck.push(Stuck { read, deaf, cancelled: false, until });
        None
    }

    /// Returns the reads that are no longer stuck.
    fn unstick(&mut self, done: &mut Vec<Done>) {
        let now = self.now;
        let ends = |stuck: &mut Stuck| stuck.cancelled || stuck.until.is_some_and(|until| until <= now);
        let ended: Vec<Stuck> = self.stuck.extract_if(.., ends).collect();
        for Stuck { mut read, cancelled, .. } in ended {
            self.abandoned.retain(|&tag| tag != read.tag);
            let result = if cancelled { Err(io::Error::from_raw_os_error(ECANCELED)) } else { self.answer(&mut read) };
            done.push(Done { tag: read.tag, part: read.part, result, latency: TURN, pieces: read.pieces });
        }
    }

    fn chance(&mut self, of_256: u8) -> bool {
        (self.random.next_u32() as u8) < of_256
    }

    fn answer(&mut self, read: &mut Read) -> io::Result<usize> {
        let (file, offset, place) = (read.file, read.offset, read.part.offset());
        if read.pieces.is_empty() {
            return self.answer_one(file, offset, (place, read.part.as_mut()));
        }
        let mut good = 0;
        for piece in &read.pieces {
            let memory = &mut read.part.as_mut()[good..good + piece.len];
            match self.answer_one(piece.file, piece.offset, (place + good, memory)) {
                Ok(bytes) if bytes >= piece.need => good += piece.len,
                _ => break,
            }
        }
        #[cfg(test)]
        {
            self.bundles[usize::from(good < read.part.len())] += 1;
        }
        Ok(good)
    }

    /// Reads one range to memory at `place`.
    fn answer_one(&mut self, file: FileId, offset: u64, (place, memory): (usize, &mut [u8])) -> io::Result<usize> {
        let wanted = memory.len() as u64;
        let misaligned = [offset, wanted, place as u64].iter().any(|n| n % self.alignment != 0);
        if misaligned {
            return Err(io::Error::from_raw_os_error(22));
        }
        if let Some(errno) = self.outage() {
            #[cfg(test)]
            {
                self.failed_by_outage += 1;
            }
            return Err(io::Error::from_raw_os_error(errno));
        }
        if self.chance(self.faults.throttled) {
            let after = [None, Some(0), Some(1), Some(3)][self.random.next_u64() as usize % 4].map(Duration::from_secs);
            return Err(io::Error::other(Failure::new(Class::Throttled, "slow down").with_after(after)));
        }
        if self.chance(self.faults.momentary) {
            return Err(io::Error::from_raw_os_error(if self.chance(128) { 4 } else { 11 }));
        }
        if self.is_bad(file, offset) {
            return Err(io::Error::from_raw_os_error(5));
        }
        if self.chance(self.faults.device / 4) && self.failed_once.insert((file, offset)) {
            return Err(io::Error::from_raw_os_error(5));
        }
        let left = self.size(file).saturating_sub(offset).min(wanted);
        let bytes = if left > 1 && self.chance(self.faults.short) {
            // At least one aligned unit: a disk that twice returns less than that is at the end of the file.
            let least = self.alignment.min(left);
            least + self.random.next_u64() % (left - least + 1)
        } else {
            left
        };
        fill(file, offset, &mut memory[..bytes as usize]);
        Ok(bytes as usize)
    }
}

impl Engine for Sim {
    fn room(&self) -> usize {
        self.depth.saturating_sub(self.in_flight() + self.abandoned.len().saturating_sub(ABANDONED_MAX))
    }

    fn in_flight(&self) -> usize {
        #[cfg(test)]
        let due = self.due.len();
        #[cfg(not(test))]
        let due = 0;
        due + self.queue.len() + self.stuck.len() - self.abandoned.len()
    }

    fn start(&mut self, read: Read) {
        assert!(self.room() > 0, "start without room");
        let Some(read) = self.keep(read) else { return };
        #[cfg(test)]
        if let Some(service) = &mut self.service {
            let end = service.end(read.part.len() as u64, self.now);
            return self.due.push((self.now, end, read));
        }
        self.queue.push(read);
    }

    fn turn(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        self.now += TURN;
        let before = done.len();
        self.unstick(done);
        #[cfg(test)]
        if self.service.is_some() {
            self.serve(wait, done);
            return Ok(());
        }
        let mut later = Vec::with_capacity(self.depth);
        let mut queue = std::mem::take(&mut self.queue);
        if self.faults.reorder {
            for last in (1..queue.len()).rev() {
                queue.swap(last, self.random.next_u64() as usize % (last + 1));
            }
        }
        for mut read in queue {
            if self.chance(self.faults.delay) {
                later.push(read);
                continue;
            }
            let result = self.answer(&mut read);
            let latency = Duration::from_micros(100);
            done.push(Done { tag: read.tag, part: read.part, result, latency, pieces: read.pieces });
        }
        self.queue = later;
        if let Some(wait) = wait
            && done.len() == before
            && self.queue.is_empty()
        {
            self.now += wait;
        }
        Ok(())
    }

    fn cancel(&mut self, tag: u64) -> bool {
        // A read that is merely slow may be waiting for others.
        if let Some(index) = self.queue.iter().position(|read| read.tag == tag)
            && self.chance(128)
        {
            let read = self.queue.swap_remove(index);
            self.stuck.push(Stuck { read, deaf: false, cancelled: true, until: None });
            return true;
        }
        let hears = |stuck: &&mut Stuck| stuck.read.tag == tag && !stuck.deaf;
        self.stuck.iter_mut().filter(hears).for_each(|stuck| stuck.cancelled = true);
        false
    }

    fn abandon(&mut self, tag: u64) {
        if self.stuck.iter().any(|stuck| stuck.read.tag == tag) {
            self.abandoned.push(tag);
        }
    }

    fn now(&self) -> Instant {
        self.now
    }

    fn lost(&self, _file: FileId) -> Option<String> {
        // The caller checks later: the mount may be back by then.
        self.outage_at(self.now + ASKED_LATER).map(|_| "the simulated mount is gone".into())
    }

    fn waker(&self) -> Waker {
        // A simulated turn never sleeps.
        struct Nobody;
        impl Wake for Nobody {
            fn wake(self: Arc<Self>) {}
        }
        Arc::new(Nobody).into()
    }
}

const ECANCELED: i32 = 125;

/// Fills `out` with the disk's content from `offset` on.
pub fn fill(file: FileId, offset: u64, out: &mut [u8]) {
    let head = ((8 - offset % 8) % 8).min(out.len() as u64) as usize;
    let (head, rest) = out.split_at_mut(head);
    for (byte, position) in head.iter_mut().zip(offset..) {
        *byte = byte_at(file, position);
    }
    for (chunk, word) in rest.chunks_mut(8).zip(offset.div_ceil(8)..) {
        chunk.copy_from_slice(&word_at(file, word).to_le_bytes()[..chunk.len()]);
    }
}

/// The disk's byte at `offset`.
pub fn byte_at(file: FileId, offset: u64) -> u8 {
    word_at(file, offset / 8).to_le_bytes()[(offset % 8) as usize]
}

fn word_at(file: FileId, word: u64) -> u64 {
    mix((u64::from(file.0) << 40) ^ word)
}

/// SplitMix64's finaliser (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
