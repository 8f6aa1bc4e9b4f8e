//! Shared by the small worlds of other tests: a disk that lies, a consumer that takes batches when it likes, and the
//! end.

use super::{Batch, Engine, Error, ErrorKind, Faults, Reactor, Receiver, Result, Sim, Turn};

/// The faults of the disk, if it lies. Reads that never end must be given up, or the run would not end either.
pub fn faults(mut pick: impl FnMut(u64) -> u64, lies: bool, gives_up: bool) -> Faults {
    let mut chance = |most: u64| if lies { pick(most) as u8 } else { 0 };
    Faults {
        short: chance(60),
        momentary: chance(40),
        device: chance(20),
        lasting: chance(60),
        delay: chance(100),
        shrunk: chance(20),
        stuck: if gives_up { chance(12) } else { 0 },
        deaf: chance(256),
        reorder: lies,
        throttled: chance(60),
        outage: None,
    }
}

/// Runs the reactor until everything has come, beside a consumer that keeps the results of `take` for a while. `take`
/// also returns whether that was the last. Returns how often the consumer was told that it holds memory; `None` if an
/// expected error ended the run.
///
/// # Panics
/// For any other error, and after too many turns.
pub fn drive(
    (reactor, sim): (&mut Reactor, &mut Sim),
    receiver: &mut Receiver<Result<Batch>>,
    (mut chance, turns): (impl FnMut(u64) -> bool, usize),
    mut take: impl FnMut(Result<Batch>, &Sim) -> (Option<Batch>, bool),
    is_expected: impl Fn(&Error, &Reactor) -> bool,
) -> Option<u64> {
    let (mut held, mut starved, mut finished, mut has_all) = (Vec::new(), 0, false, false);
    for _ in 0..turns {
        if !finished {
            match reactor.turn(sim) {
                Ok(Turn::Epoch { epoch, .. }) => reactor.start_epoch(epoch),
                Ok(Turn::Finished) => finished = true,
                Ok(Turn::Running) => {}
                Ok(Turn::Abandoned) => panic!("the consumer has not left"),
                Err(error) => {
                    assert!(is_expected(&error, reactor), "{error}");
                    return None;
                }
            }
        }
        if chance(60) {
            held.clear();
        }
        if finished || chance(50) {
            match receiver.try_recv() {
                Err(_) => {}
                Ok(Err(error)) if error.kind() == ErrorKind::Starved => {
                    assert!(reactor.has_abandoned() || !held.is_empty());
                    starved += 1;
                    sim.release();
                }
                Ok(batch) => {
                    let (batch, is_last) = take(batch, sim);
                    held.extend(batch);
                    has_all = is_last;
                }
            }
        }
        if finished && has_all {
            return Some(starved);
        }
    }
    panic!("it hangs: {turns} turns");
}

/// Ends the disk's remaining reads, and checks that all memory comes back.
pub fn comes_home(reactor: &mut Reactor, sim: &mut Sim) {
    sim.release();
    sim.turn(None, &mut reactor.spare.done).unwrap();
    reactor.settle(sim).unwrap();
    reactor.pool.collect();
    assert!(reactor.pool.is_whole(), "memory is lost");
}
