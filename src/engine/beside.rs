//! Reads objects of stores with a cache on a local disk: what is there is read by the engine of local files, from the
//! files of the cache, and the rest by threads that ask the store and keep what belongs there.

use super::cached::Cached;
use super::remote::Remote;
use super::threads::Threads;
use super::{Done, Engine, Read};
use crate::config::Fallback;
use crate::dataset::{Dataset, FileId};
use crate::plan::Stretch;
use crate::segments::PAGE_BYTES;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};
use uringload_sys::Arena;

/// Two engines, and what lies where.
pub(super) struct Beside {
    near: Box<dyn Engine>,
    far: Threads<Remote>,
    cached: Arc<Cached>,
    dataset: Arc<dyn Dataset>,
    /// The reads that `near` has, by their tags.
    hits: HashMap<u64, Hit>,
    /// Reads that the disk has failed, for the store.
    again: Vec<Read>,
    /// What `near` has returned.
    returned: Vec<Done>,
}

/// A read of what is in the cache, as the caller knows it.
struct Hit {
    file: FileId,
    offset: u64,
    /// Bytes of the object in it: what lies behind is padding.
    wanted: usize,
    stretch: Stretch,
}

impl Beside {
    pub(super) fn new(
        near: Box<dyn Engine>,
        far: Threads<Remote>,
        cached: Arc<Cached>,
        dataset: Arc<dyn Dataset>,
    ) -> Beside {
        let far = far.ringing(near.waker());
        let (hits, again, returned) = (HashMap::new(), Vec::new(), Vec::new());
        Beside { near, far, cached, dataset, hits, again, returned }
    }

    /// The place of a read in the files of the cache.
    fn hit(&self, read: &Read) -> Option<(Hit, FileId, u64)> {
        let left = self.dataset.files().size(read.file).checked_sub(read.offset)?;
        let wanted = (read.part.len() as u64).min(left);
        let stretch = self.cached.stretch(read.file, read.offset, wanted)?;
        let place = self.cached.hit(&stretch, wanted)?;
        let offset = u64::from(place.page) * PAGE_BYTES + (read.offset - stretch.span.offset);
        let hit = Hit { file: read.file, offset: read.offset, wanted: wanted as usize, stretch };
        Some((hit, FileId(place.segment), offset))
    }

    /// Hands out what `near` has returned. What it could not read is asked of the store.
    fn take(&mut self, done: &mut Vec<Done>) {
        for returned in self.returned.drain(..) {
            let Some(hit) = self.hits.remove(&returned.tag) else {
                done.push(returned);
                continue;
            };
            match &returned.result {
                Ok(bytes) if *bytes >= hit.wanted => {
                    done.push(Done { result: Ok(self.cached.count(hit.wanted)), ..returned });
                }
                Err(error) if error.raw_os_error() == Some(ECANCELED) => done.push(returned),
                result => {
                    self.cached.give_up(&hit.stretch, result.as_ref().err());
                    let Done { tag, part, pieces, .. } = returned;
                    self.again.push(Read { tag, file: hit.file, offset: hit.offset, part, pieces });
                }
            }
        }
        while self.far.room() > 0
            && let Some(read) = self.again.pop()
        {
            self.far.start(read);
        }
    }
}

const ECANCELED: i32 = 125;

impl Engine for Beside {
    fn room(&self) -> usize {
        self.near.room().min(self.far.room()).saturating_sub(self.again.len())
    }

    fn in_flight(&self) -> usize {
        self.near.in_flight() + self.far.in_flight() + self.again.len() + self.returned.len()
    }

    fn start(&mut self, read: Read) {
        match self.hit(&read) {
            Some((hit, file, offset)) => {
                self.hits.insert(read.tag, hit);
                self.near.start(Read { file, offset, ..read });
            }
            None => self.far.start(read),
        }
    }

    fn widen(&mut self, reads: usize) -> usize {
        self.near.widen(reads).max(self.far.widen(reads))
    }

    fn turn(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        let is_idle = self.again.is_empty() && self.returned.is_empty();
        let wait = wait.filter(|_| is_idle && self.far.may_sleep_elsewhere());
        let turned = self.near.turn(wait, &mut self.returned);
        self.take(done);
        turned.and(self.far.turn(None, done))
    }

    fn waker(&self) -> Waker {
        self.near.waker()
    }

    fn cancel(&mut self, tag: u64) -> bool {
        if let Some(at) = self.again.iter().position(|read| read.tag == tag) {
            let Read { tag, part, pieces, .. } = self.again.swap_remove(at);
            let result = Err(io::Error::from_raw_os_error(ECANCELED));
            self.returned.push(Done { tag, part, result, latency: Duration::ZERO, pieces });
            return true;
        }
        if self.hits.contains_key(&tag) { self.near.cancel(tag) } else { self.far.cancel(tag) }
    }

    fn abandon(&mut self, tag: u64) {
        match self.hits.remove(&tag) {
            Some(_) => self.near.abandon(tag),
            None => self.far.abandon(tag),
        }
    }

    fn stage(&self, tag: u64) -> &'static str {
        if self.hits.contains_key(&tag) { self.near.stage(tag) } else { self.far.stage(tag) }
    }

    fn now(&self) -> Instant {
        self.near.now()
    }

    fn register(&mut self, arena: &Arena, range: Range<usize>) -> io::Result<bool> {
        self.near.register(arena, range)
    }

    fn lost(&self, file: FileId) -> Option<String> {
        self.far.lost(file)
    }

    fn renew(&mut self, file: FileId) {
        self.far.renew(file);
    }

    fn denied(&self) -> Option<(Duration, io::Error)> {
        self.near.denied()
    }

    fn said(&mut self) -> Option<Fallback> {
        self.near.said().or_else(|| self.far.said())
    }
}
