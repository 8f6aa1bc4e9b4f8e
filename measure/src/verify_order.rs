//! Replays the batches of all ranks and proves that no sample is lost or duplicated, and that another number of ranks,
//! from the start or from the middle, has the same order. Reads no sample.

use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use uringload::config::Config;
use uringload::dataset::{Dataset, SampleId};
use uringload::inspect::Walk;
use uringload::sampler::{Cursor, Digest, Order, Sampler, Selection, epoch_digest};
use uringload::{Error, ErrorKind, Result};

/// Most ranks to replay: each walks the order on its own.
const RANKS_MAX: u64 = 1 << 16;

/// A set of equal ranks.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// How many.
    pub ranks: u64,
    /// Rows in a batch.
    pub batch_size: u64,
    /// Whether what does not fill a batch on each is dropped.
    pub drop_last: bool,
}

/// What to prove, and for which epoch.
pub struct Play {
    /// The dataset.
    pub dataset: Arc<dyn Dataset>,
    /// Its order.
    pub sampler: Arc<dyn Sampler>,
    /// Whether samples may repeat: the datasets of a mixture start over if it ends later than they do.
    pub repeats: bool,
    /// The epoch, from 0.
    pub epoch: u64,
    /// The ranks whose batches are replayed.
    pub first: World,
    /// Those that must see the same order, from the start and from the middle.
    pub second: World,
}

/// The result.
#[derive(Debug, PartialEq, Eq)]
pub struct Proof {
    /// What the first ranks received.
    pub first: Passed,
    /// What the second ranks received.
    pub second: Passed,
    /// Where the first ranks stopped and the others resumed, if there is more than one batch.
    pub stop: Option<Cursor>,
}

/// What a set of ranks received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Digest over all ranks, without padding.
    pub digest: Digest,
    /// Samples that only fill up batches.
    pub padding: u64,
    /// Samples of the epoch that no rank received.
    pub left_out: u64,
    /// Positions whose sample occurred before.
    pub again: u64,
}

/// A sample of a rank's batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    rank: u64,
    position: u64,
    id: SampleId,
    padding: bool,
}

impl Play {
    /// Replays everything.
    ///
    /// # Errors
    /// `InvalidArgument` for too many ranks; `Internal` for the first problem of the order.
    pub fn prove(&self) -> Result<Proof> {
        let start = Cursor::new(self.epoch, 0);
        let order = self.order(self.first, 0)?;
        let len = self.sampler.len_of(self.epoch);
        let batches = order.strided().batches(len);
        let stop = (batches > 1).then(|| order.strided().cursor_after(start, len, batches / 2 - 1));
        let mut followers = vec![Follower::new(self.second, start, Turns::new(self, self.second, start)?)];
        if let Some(stop) = stop {
            followers.push(Follower::new(self.second, stop, Turns::new(self, self.second, stop)?));
        }
        let first = self.walk(Turns::new(self, self.first, start)?, &mut followers)?;
        let Follower { position, digest, padding, .. } = followers[0];
        let second = self.passed(self.second, position, digest, padding)?;
        Ok(Proof { first, second, stop })
    }

    /// The order of one rank in the replayed epoch.
    fn order(&self, world: World, rank: u64) -> Result<Order> {
        let World { ranks, batch_size, drop_last } = world;
        if ranks > RANKS_MAX {
            return Err(refused(format!("{ranks} ranks are more than can be played ({RANKS_MAX})")));
        }
        let start = Cursor::new(self.epoch, 0);
        let config = Config { rank, world_size: ranks, batch_size, drop_last, start, ..Config::default() };
        Order::new(&config, Arc::clone(&self.dataset), Arc::clone(&self.sampler))
    }

    /// Walks through the samples of the first ranks. Each must be the next one and must not have occurred before; the
    /// followers must have the same samples.
    fn walk<I: Iterator<Item = Result<Step>>>(&self, first: I, followers: &mut [Follower<I>]) -> Result<Passed> {
        let mut seen = Seen::new(self.dataset.len());
        // One digest per rank, as each loader would have.
        let mut digests = vec![Digest::default(); self.first.ranks as usize];
        let (mut end, mut padding, mut again) = (0, 0, 0);
        for step in first {
            let step = step?;
            if step.padding {
                padding += 1;
                seen.again(&step)?;
                continue;
            }
            if step.position != end {
                let (ranks, rank, position) = (self.first.ranks, step.rank, step.position);
                let what = if position > end { "is lost" } else { "comes again" };
                let at = end.min(position);
                return Err(broken(format!(
                    "position {at} {what}: of {ranks} ranks, {rank} has {position} instead of {end}"
                )));
            }
            end += 1;
            if self.repeats && seen.has(&step)? {
                again += 1
            } else {
                seen.first_time(&step)?
            }
            digests[step.rank as usize].add(step.position, step.id, 0);
            for follower in &mut *followers {
                follower.follow(&step, self.first)?;
            }
        }
        let mut sum = Digest::default();
        digests.iter().for_each(|&digest| sum += digest);
        let epoch = epoch_digest(&*self.sampler, self.epoch, 0..end);
        if sum != epoch {
            return Err(broken(format!(
                "the digests of {} ranks add up to {sum:?}, not to {epoch:?}",
                self.first.ranks
            )));
        }
        for follower in followers {
            self.finish(follower, end, epoch)?;
        }
        Ok(Passed { again, ..self.passed(self.first, end, sum, padding)? })
    }

    /// What a follower has after the end of the first ranks, and whether its digest adds up.
    fn finish<I: Iterator<Item = Result<Step>>>(
        &self,
        follower: &mut Follower<I>,
        end: u64,
        epoch: Digest,
    ) -> Result<()> {
        let place = |position| Cursor::new(self.epoch, position);
        while let Some(step) = follower.next()? {
            let wanted =
                Step { position: follower.position - 1, id: self.sampler.at(place(follower.position - 1)), ..step };
            if step != wanted {
                return Err(follower.differs(&wanted, Some(&step), "the order"));
            }
        }
        self.passed(follower.world, follower.position, follower.digest, follower.padding)?;
        // If one drops more samples at the end than the other, they differ by those between their ends.
        let (low, high) = (end.min(follower.position), end.max(follower.position));
        let between = epoch_digest(&*self.sampler, self.epoch, low..high);
        let mut wanted = epoch - follower.before;
        if follower.position > end {
            wanted += between
        } else {
            wanted = wanted - between
        }
        if follower.digest != wanted {
            let (ranks, sum) = (follower.world.ranks, follower.digest);
            return Err(broken(format!("the digests of {ranks} ranks add up to {sum:?}, not to {wanted:?}")));
        }
        Ok(())
    }

    /// Checks ranks that received the samples up to `end`: only what was requested to be dropped may be missing.
    fn passed(&self, world: World, end: u64, digest: Digest, padding: u64) -> Result<Passed> {
        let World { ranks, batch_size, drop_last } = world;
        let left_out = self.sampler.len_of(self.epoch).saturating_sub(end);
        if left_out > 0 && (!drop_last || left_out >= ranks * batch_size) {
            return Err(broken(format!("{ranks} ranks lose the {left_out} samples from position {end} on")));
        }
        Ok(Passed { digest, padding, left_out, again: 0 })
    }
}

/// The samples seen so far, one bit each.
struct Seen {
    samples: u64,
    bits: Vec<u64>,
}

impl Seen {
    fn new(samples: u64) -> Seen {
        Seen { samples, bits: vec![0; samples.div_ceil(64) as usize] }
    }

    fn word(&mut self, step: &Step) -> Result<(&mut u64, u64)> {
        let id = step.id.0;
        match self.bits.get_mut((id / 64) as usize) {
            Some(word) if id < self.samples => Ok((word, 1 << (id % 64))),
            _ => Err(broken(format!("position {} has sample {id} of {}", step.position, self.samples))),
        }
    }

    fn has(&mut self, step: &Step) -> Result<bool> {
        let (word, bit) = self.word(step)?;
        Ok(*word & bit != 0)
    }

    fn first_time(&mut self, step: &Step) -> Result<()> {
        let (word, bit) = self.word(step)?;
        if *word & bit != 0 {
            return Err(broken(format!("sample {} comes a second time, at position {}", step.id.0, step.position)));
        }
        *word |= bit;
        Ok(())
    }

    /// For padding, which repeats samples.
    fn again(&mut self, step: &Step) -> Result<()> {
        let (word, bit) = self.word(step)?;
        if *word & bit == 0 {
            return Err(broken(format!("sample {} comes as padding only", step.id.0)));
        }
        Ok(())
    }
}

/// Other ranks that must have the same samples from a position on.
struct Follower<I> {
    world: World,
    from: u64,
    steps: I,
    /// The position after the last sample.
    position: u64,
    ended: bool,
    digest: Digest,
    /// Digest of what the first ranks had up to `from`.
    before: Digest,
    padding: u64,
}

impl<I: Iterator<Item = Result<Step>>> Follower<I> {
    fn new(world: World, from: Cursor, steps: I) -> Follower<I> {
        let (from, digest) = (from.position, Digest::default());
        Follower { world, from, steps, position: from, ended: false, digest, before: digest, padding: 0 }
    }

    /// The next sample that is not padding.
    fn next(&mut self) -> Result<Option<Step>> {
        for step in self.steps.by_ref() {
            let step = step?;
            if step.padding {
                self.padding += 1;
                continue;
            }
            self.digest.add(step.position, step.id, 0);
            self.position += 1;
            return Ok(Some(step));
        }
        self.ended = true;
        Ok(None)
    }

    /// Follows a sample of `first`. The follower may end earlier, if it drops more samples at the end.
    fn follow(&mut self, first: &Step, world: World) -> Result<()> {
        if first.position < self.from {
            self.before.add(first.position, first.id, 0);
            return Ok(());
        }
        if self.ended {
            return Ok(());
        }
        let next = self.next()?;
        match next {
            Some(step) if (step.position, step.id) == (first.position, first.id) => Ok(()),
            None if self.world.drop_last => Ok(()),
            next => Err(self.differs(first, next.as_ref(), &format!("{} ranks", world.ranks))),
        }
    }

    fn differs(&self, wanted: &Step, got: Option<&Step>, who: &str) -> Error {
        let ranks = self.world.ranks;
        let from = if self.from > 0 { format!(" that went on from position {}", self.from) } else { String::new() };
        let place = |step: &Step| format!("sample {} at position {}", step.id.0, step.position);
        let got = got.map_or_else(|| "nothing more".to_owned(), place);
        broken(format!("the orders differ: {who} have {}, {ranks} ranks{from} have {got}", place(wanted)))
    }
}

/// The samples of all ranks in turn, which is their global order.
struct Turns {
    walks: Vec<Walk>,
    batches: Vec<Selection>,
    /// The next sample, as an index in each rank's batch, and its rank.
    place: usize,
    rank: usize,
}

impl Turns {
    fn new(play: &Play, world: World, start: Cursor) -> Result<Turns> {
        // Reports invalid arguments before allocating memory for that many ranks.
        let _ = play.order(world, 0)?;
        let walk = |rank| Ok(play.order(world, rank)?.at(start).walk());
        let walks = (0..world.ranks).map(walk).collect::<Result<Vec<_>>>()?;
        let batches = walks.iter().map(|_| Selection::default()).collect();
        Ok(Turns { walks, batches, place: 0, rank: 0 })
    }

    /// Takes the next batch of each rank. All have the same number of samples, at the same position. False at the end.
    fn step(&mut self) -> Result<bool> {
        let taken = self.walks.iter_mut().zip(&mut self.batches).map(|(walk, batch)| walk.next(batch));
        let taken = taken.filter(|&is_there| is_there).count();
        if taken != 0 && taken != self.batches.len() {
            return Err(broken(format!("{taken} of {} ranks have a batch more", self.batches.len())));
        }
        let first = &self.batches[0];
        for (rank, batch) in self.batches.iter().enumerate() {
            if (batch.cursor, batch.next, batch.ids.len()) != (first.cursor, first.next, first.ids.len()) {
                let (here, there) = (batch.ids.len(), first.ids.len());
                let at = (batch.cursor.position, first.cursor.position);
                return Err(broken(format!("rank {rank} has {here} samples in its batch, rank 0 {there}, at {at:?}")));
            }
        }
        (self.place, self.rank) = (0, 0);
        Ok(taken != 0)
    }
}

impl Iterator for Turns {
    type Item = Result<Step>;

    fn next(&mut self) -> Option<Result<Step>> {
        if self.rank == self.batches.len() {
            (self.place, self.rank) = (self.place + 1, 0);
        }
        while self.place >= self.batches[0].ids.len() {
            match self.step() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        let (batch, rank) = (&self.batches[self.rank], self.rank as u64);
        self.rank += 1;
        let position = batch.positions[self.place];
        Some(Ok(Step { rank, position: position.position, id: batch.ids[self.place], padding: position.padding }))
    }
}

impl Play {
    /// What was proved, for programs.
    pub fn report(&self, proof: &Proof, elapsed: Duration) -> Value {
        let world = |world: World, passed: Passed| {
            json!({
                "ranks": world.ranks, "batch_size": world.batch_size, "drop_last": world.drop_last,
                "samples": passed.digest.samples, "digest": format!("{:016x}", passed.digest.sum),
                "padding": passed.padding, "left_out": passed.left_out, "repeated": passed.again,
            })
        };
        json!({
            "version": 1,
            "order": self.sampler.describe().to_string(),
            "epoch": self.epoch,
            "samples": self.sampler.len_of(self.epoch),
            "first": world(self.first, proof.first),
            "second": world(self.second, proof.second),
            "resumed_at": proof.stop.map(|stop| stop.position),
            "is_same": true,
            "took_s": elapsed.as_secs_f64(),
        })
    }
}

fn broken(what: String) -> Error {
    let error = Error::new(ErrorKind::Internal, format!("the order is broken: {what}"));
    error.with_remedy("this is a bug of uringload: please report it")
}

fn refused(what: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use uringload::dataset::{self, FileTable, Options};
    use uringload::sampler::OrderId;

    const LEN: u64 = 1000;

    fn play(sampler: Arc<dyn Sampler>, first: World, second: World) -> Play {
        let mut files = FileTable::new();
        files.push_root("/anywhere");
        files.push(b"records", LEN).unwrap();
        let options = Options::new().format("records").set("record_bytes", 1);
        let dataset = dataset::inspect::of_files(files, &options).unwrap();
        Play { dataset, sampler, repeats: false, epoch: 2, first, second }
    }

    fn world(ranks: u64, batch_size: u64) -> World {
        World { ranks, batch_size, drop_last: false }
    }

    /// The error for an order that is a function of the position and of the number of calls so far.
    fn said_of(at: impl Fn(u64, u64) -> u64 + Send + Sync + 'static) -> String {
        struct Broken<F>(F, AtomicU64);
        impl<F: Fn(u64, u64) -> u64 + Send + Sync + 'static> Sampler for Broken<F> {
            fn len(&self) -> u64 {
                LEN
            }
            fn at(&self, cursor: Cursor) -> SampleId {
                SampleId(self.0(cursor.position, self.1.fetch_add(1, Ordering::Relaxed)))
            }
            fn id(&self) -> OrderId {
                OrderId::custom("broken", 1, &[])
            }
        }
        match play(Arc::new(Broken(at, AtomicU64::new(0))), world(8, 16), world(3, 16)).prove() {
            Err(error) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn broken_orders_are_named() {
        let said = said_of(|position, _| position / 2);
        assert!(said.contains("sample 0 comes a second time, at position 1"), "{said}");
        let said = said_of(|position, _| if position == 77 { LEN } else { position });
        assert!(said.contains("position 77 has sample 1000 of 1000"), "{said}");
        // A different sample each time it is asked.
        let said = said_of(|position, calls| (position + calls / LEN) % LEN);
        assert!(said.contains("comes a second time") || said.contains("the orders differ"), "{said}");
        let said = said_of(|position, calls| if calls > 3 * LEN { position ^ 1 } else { position });
        assert!(said.contains("the orders differ") || said.contains("add up"), "{said}");
    }

    #[test]
    fn every_shape_of_world_is_proved() {
        let order: Arc<dyn Sampler> = Arc::new(uringload::inspect::Shuffled::new(LEN, 5));
        for (ranks, batch) in [(1, 1), (2, 7), (3, 1000), (8, 64), (7, 3), (1000, 2), (999, 1)] {
            for drop_last in [false, true] {
                let first = World { drop_last, ..world(ranks, batch) };
                let second = World { drop_last, ..world(3, 5) };
                let proof = play(Arc::clone(&order), first, second).prove().unwrap();
                let kept = if drop_last { LEN / (ranks * batch) * (ranks * batch) } else { LEN };
                assert_eq!((proof.first.left_out, proof.first.digest.samples), (LEN - kept, kept));
                assert_eq!(proof.first.padding, if drop_last { 0 } else { LEN.next_multiple_of(ranks) - LEN });
                assert_eq!(proof.first.digest, epoch_digest(&*order, 2, 0..kept));
            }
        }
    }

    /// The error for ranks that have these positions in turn, next to others that have them all.
    fn said_of_turns(change: impl Fn(&mut Vec<Step>), of_follower: bool) -> String {
        let sampler = Arc::new(uringload::inspect::Sequential::new(20));
        let play = Play {
            dataset: play(sampler.clone(), world(2, 5), world(3, 5)).dataset,
            ..play(sampler, world(2, 5), world(3, 5))
        };
        let step = |position| Step { rank: position % 2, position, id: SampleId(position), padding: false };
        let whole: Vec<Step> = (0..20).map(step).collect();
        let mut other = whole.clone();
        change(&mut other);
        let (first, second) = if of_follower { (whole, other) } else { (other, whole) };
        let steps = |steps: Vec<Step>| steps.into_iter().map(Ok).collect::<Vec<_>>().into_iter();
        let mut followers = [Follower::new(world(3, 5), Cursor::new(2, 0), steps(second))];
        match play.walk(steps(first), &mut followers) {
            Err(error) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ranks_that_lose_double_or_misplace_are_named() {
        for (of_follower, told) in [
            (
                false,
                [
                    "position 7 is lost",
                    "position 7 comes again",
                    "position 7 is lost",
                    "lose the 1 samples from position 19",
                ],
            ),
            (true, ["sample 8 at position 8", "sample 7 at position 7", "sample 8 at position 8", "have nothing more"]),
        ] {
            let said = [
                said_of_turns(|steps| steps.retain(|step| step.position != 7), of_follower),
                said_of_turns(|steps| steps.insert(8, steps[7]), of_follower),
                said_of_turns(|steps| steps.swap(7, 8), of_follower),
                said_of_turns(|steps| steps.truncate(19), of_follower),
            ];
            for (said, told) in said.iter().zip(told) {
                assert!(said.contains(told), "{told:?} is not in {said}");
            }
        }
        let said = said_of_turns(|steps| steps[9].id = SampleId(10), false);
        assert!(said.contains("the orders differ"), "{said}");
        let lone = Step { rank: 0, position: 0, id: SampleId(999), padding: true };
        let said = said_of_turns(|steps| steps.push(lone), false);
        assert!(said.contains("sample 999 comes as padding only"), "{said}");
    }
}
