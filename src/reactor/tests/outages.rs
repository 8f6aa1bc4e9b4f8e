//! Storage that is unavailable for a time.

use super::*;

/// Storage that returns nothing for a time, and a machine that has no room for a time, cost no sample: each comes in
/// order, once. In every other world nothing else goes wrong, so any failure there comes from the outage.
#[test]
fn an_outage_costs_no_sample() {
    const ERRNOS: [i32; 9] = [EIO, ESTALE, ETIMEDOUT, ENOTCONN, ENOENT, EMFILE, ENFILE, ENOMEM, EAGAIN];
    let (mut seen, mut hit) = (Seen::default(), 0);
    let seeds = each_seed(SEEDS, |seed| {
        let mut world = World::new(seed);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(!seed);
        let mut pick = |below: u64| random.next_u64() % below;
        let errno = ERRNOS[pick(9) as usize];
        let outage = sim::Outage {
            errno,
            after: Duration::from_micros([0, pick(500), pick(5_000)][pick(3) as usize]),
            lasting: Duration::from_millis([1 + pick(100), 1 + pick(5_000), pick(600_000)][pick(3) as usize]),
            is_partial: ERRNOS[5..].contains(&errno) && pick(2) == 0,
        };
        let others = if seed % 2 == 0 {
            Faults { delay: world.faults.delay, reorder: true, ..Faults::default() }
        } else {
            Faults { stuck: 0, ..world.faults }
        };
        world.faults = Faults { outage: Some(outage), ..others };
        hit += u64::from(world.run(&mut seen) > 0);
    });
    println!("{hit} of {seeds} worlds had an outage");
    assert!(hit > seeds / 2, "{hit} of {seeds} worlds had an outage");
}

/// A server that puts off every other attempt costs no sample: each comes in order, once.
#[test]
fn a_server_that_asks_for_fewer_requests_costs_no_sample() {
    let put_off = |seed| {
        let mut world = World::new(seed);
        world.rules.timeout = None;
        world.faults = Faults {
            throttled: 128,
            delay: world.faults.delay,
            short: world.faults.short,
            reorder: true,
            ..Faults::default()
        };
        world.run(&mut Seen::default());
    };
    each_seed(100, put_off);
}

/// A folder that is back when other names are checked, after one was missing, costs no sample either.
#[test]
fn an_outage_that_ends_before_it_is_looked_for_costs_no_sample() {
    let mut hit = 0;
    for seed in 0..60 {
        let mut world = World::new(seed);
        let after = Duration::from_micros(seed * 50);
        let outage = sim::Outage { errno: ENOENT, after, lasting: sim::ASKED_LATER, is_partial: false };
        world.faults = Faults { delay: world.faults.delay, reorder: true, outage: Some(outage), ..Faults::default() };
        hit += u64::from(world.run(&mut Seen::default()) > 0);
    }
    assert!(hit > 10, "{hit} of 60 worlds had an outage");
}

/// A machine without room for a moment, after the storage was away for nearly as long as it may be, ends nothing.
#[test]
fn want_of_room_does_not_last_from_the_first_failure_of_the_storage() {
    for seed in 0..60 {
        let mut world = World::new(seed);
        world.rules.timeout = None;
        let lasting = OUTAGE_TIMEOUT - Duration::from_millis(100);
        let outage = sim::Outage { errno: EIO, after: Duration::ZERO, lasting, is_partial: false };
        world.faults = Faults { momentary: 128, outage: Some(outage), ..Faults::default() };
        world.run(&mut Seen::default());
    }
}

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOTCONN: i32 = 107;
const ETIMEDOUT: i32 = 110;
const ESTALE: i32 = 116;

/// An outage that lasts too long ends the loader with an error that says what to do, and loses no sample.
#[test]
fn an_outage_that_does_not_end_is_an_error() {
    for errno in [EIO, ESTALE, ENOENT, EMFILE] {
        let mut world = (0..)
            .map(World::new)
            .find(|world| world.dataset.bytes() > 0 && world.order.remaining() != Some(0))
            .unwrap();
        let outage = sim::Outage { errno, after: Duration::ZERO, lasting: Duration::MAX / 2, is_partial: false };
        world.faults = Faults { outage: Some(outage), ..Faults::default() };
        world.ends_by = Some(errno);
        assert!(world.run(&mut Seen::default()) > 0);
    }
}
