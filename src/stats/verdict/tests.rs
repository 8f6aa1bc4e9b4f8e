//! The verdict on threads whose times are made up.

use super::super::{Counts, ThreadSnapshot};
use super::*;
use std::time::Duration;
use uringload_sys::schedule::Scheduled;

type Spent<'a> = (Role, &'a [(Doing, u64)]);

fn snapshot(threads: &[Spent<'_>]) -> Snapshot {
    let thread = |&(role, times): &Spent<'_>| {
        let mut spent = [Duration::ZERO; Doing::ALL.len()];
        for &(doing, millis) in times {
            spent[doing as usize] = Duration::from_millis(millis);
        }
        ThreadSnapshot { role, spent, scheduled: None }
    };
    Snapshot {
        elapsed: Duration::from_secs(1),
        count: Counts { batches: 100, batches_ready: 99, bytes_delivered: 970, ..Counts::default() },
        threads: threads.iter().map(thread).collect(),
        ..Snapshot::default()
    }
}

const STARVING: Spent<'static> = (Role::Consumer, &[(Doing::WaitBatch, 950), (Doing::Step, 50)]);

#[test]
fn trainer_when_the_consumer_works() {
    let all = [
        (Role::Consumer, &[(Doing::WaitBatch, 10), (Doing::Step, 990)][..]),
        (Role::Reactor, &[(Doing::WaitConsumer, 1)]),
    ];
    let verdict = snapshot(&all).verdict(None);
    assert_eq!(verdict.bottleneck, Bottleneck::Trainer);
    assert!((verdict.share - 0.99).abs() < 1e-9 && verdict.advice.contains("99 % of the batches lay ready"));
}

#[test]
fn decode_when_the_stage_threads_work() {
    let stage = (Role::Stage, &[(Doing::Decode, 900), (Doing::WaitInput, 100)][..]);
    let reactor = (Role::Reactor, &[(Doing::WaitConsumer, 1000)][..]);
    let verdict = snapshot(&[STARVING, stage, stage, reactor]).verdict(None);
    assert_eq!(verdict.bottleneck, Bottleneck::Decode);
    assert!(verdict.advice.starts_with("decoding took 90 % of the time of 2 threads"), "{}", verdict.advice);
    let waited = (Role::Reactor, &[(Doing::WaitStage, 700), (Doing::WaitStorage, 300)][..]);
    let verdict = snapshot(&[STARVING, waited]).verdict(None);
    assert_eq!((verdict.bottleneck, verdict.share), (Bottleneck::Decode, 0.7), "few threads of many are at work");
    let idle = (Role::Stage, &[(Doing::Decode, 100), (Doing::WaitInput, 900)][..]);
    let reactor = (Role::Reactor, &[(Doing::WaitStorage, 1000)][..]);
    assert!(snapshot(&[STARVING, idle, reactor]).verdict(None).bottleneck.is_storage(), "it is busier");
}

#[test]
fn transform_when_its_threads_work_and_what_more_threads_would_do() {
    let at_work = (Role::Transform, &[(Doing::Transform, 900), (Doing::Collate, 50), (Doing::WaitInput, 50)][..]);
    let reactor = (Role::Reactor, &[(Doing::WaitConsumer, 1000)][..]);
    let of = |threads: &[Spent<'_>], cpu_millis: u64| {
        let mut seen = snapshot(threads);
        (seen.count.samples_transformed, seen.count.transform_cpu_nanos) = (90, cpu_millis * 1_000_000);
        seen.verdict(None)
    };
    let verdict = of(&[STARVING, at_work, at_work, at_work, at_work, reactor], 1000);
    assert_eq!((verdict.bottleneck, verdict.to_string().lines().count()), (Bottleneck::Transform, 1));
    assert!((verdict.share - 0.95).abs() < 1e-9, "{}", verdict.share);
    assert!(verdict.advice.starts_with("your transform: 40.000 ms a sample x 4 threads"), "{}", verdict.advice);
    assert!(verdict.advice.contains("Python's lock"), "{}", verdict.advice);
    assert!(of(&[STARVING, at_work, at_work, reactor], 20).advice.contains("mostly waits"));
    assert!(of(&[STARVING, at_work, at_work, reactor], 1800).advice.contains("raise num_threads if"));
    // Two threads that share a lock each get half of the time, and a little more if one has nothing to do.
    let locked = of(&[STARVING, at_work, at_work, reactor], 1000);
    assert!(locked.advice.contains("Python's lock"), "{}", locked.advice);
    assert!(locked.remedies.iter().any(|remedy| remedy.what.contains("(at least: ")), "{:?}", locked.remedies);
    // Threads that share a processor wait for that, which the scheduler reports.
    let mut queued = snapshot(&[STARVING, at_work, at_work, reactor]);
    (queued.count.samples_transformed, queued.count.transform_cpu_nanos) = (90, 1_000_000_000);
    for thread in &mut queued.threads[1..3] {
        thread.scheduled =
            Some(Scheduled { used: Duration::from_millis(500), queued: Some(Duration::from_millis(450)) });
    }
    assert_eq!(transform_kind(&queued), Transforming::Working);
    let collating = (Role::Transform, &[(Doing::Transform, 100), (Doing::Collate, 900)][..]);
    assert!(of(&[STARVING, collating, reactor], 900).advice.starts_with("your collate function: 10.000 ms a"));
    // It is fast: what it waits for is the answer. If the trainer is slow, that does not matter.
    let idle = (Role::Transform, &[(Doing::Transform, 100), (Doing::WaitInput, 900)][..]);
    let storage = (Role::Reactor, &[(Doing::WaitStorage, 1000)][..]);
    assert!(of(&[STARVING, idle, storage], 100).bottleneck.is_storage());
    let training = (Role::Consumer, &[(Doing::WaitBatch, 10), (Doing::Step, 990)][..]);
    assert_eq!(of(&[training, at_work, reactor], 900).bottleneck, Bottleneck::Trainer);
}

#[test]
fn storage_against_a_raw_read() {
    let reactor = (Role::Reactor, &[(Doing::WaitStorage, 960), (Doing::Submit, 40)][..]);
    let seen = snapshot(&[STARVING, reactor]);
    let near = seen.verdict(Some(1000.0));
    assert_eq!(near.bottleneck, Bottleneck::Bandwidth);
    assert!((0.96..=0.97).contains(&near.share), "{near}");
    assert!(near.advice.contains("97 % of what it gave in a raw read"), "{}", near.advice);
    assert!(seen.verdict(Some(1940.0)).advice.contains("gave 50 % of what"));
    let alone = seen.verdict(None);
    assert!(!alone.advice.contains("raw") && alone.advice.contains("no other depth"), "{alone}");
    assert_eq!(near.to_string().lines().count(), 1);
}

/// Reads of this many bytes that took this long, with the fastest one as given.
fn reading(read_bytes: u64, micros: u64, fastest_micros: u64, in_flight: u64) -> Snapshot {
    let reactor = (Role::Reactor, &[(Doing::WaitStorage, 960), (Doing::Submit, 40)][..]);
    let mut seen = snapshot(&[STARVING, reactor]);
    let latency = crate::stats::Histogram::default();
    latency.record(Duration::from_micros(fastest_micros));
    (0..200).for_each(|_| latency.record(Duration::from_micros(micros)));
    seen.read_latency = latency.snapshot();
    seen.fastest_read = seen.read_latency.percentile(0.0);
    seen.in_flight_area = in_flight * 1_000_000_000;
    seen.count.reads = 200;
    seen.count.bytes_read = 200 * read_bytes;
    (seen.count.bytes_wanted, seen.count.bytes_delivered) = (seen.count.bytes_read, seen.count.bytes_read);
    seen.count.samples = 200;
    seen.count.depth_area = 960_000_000 * 64;
    seen
}

#[test]
fn what_of_the_storage_it_is() {
    let long = reading(512 << 10, 40_000, 600, 64);
    let verdict = long.verdict(None);
    assert_eq!(verdict.bottleneck, Bottleneck::Bandwidth);
    assert!(verdict.remedies.iter().any(|remedy| remedy.gain.is_none()), "something was not tried: {verdict:?}");
    assert!(!verdict.remedies[0].what.starts_with("faster"), "{verdict:?}");
    // Depth and size were tried: only the storage is left.
    let tried = |of: &Snapshot, depth: f64, size: f64| {
        let rate = of.stored_bytes_per_second();
        let trial = |tried, gain: f64| Trial { tried, bytes_per_second: rate * gain };
        let trials = vec![trial(Tried::Depth(256), depth), trial(Tried::LongReads, size)];
        Evidence { raw: Some(rate), trials, ..Evidence::default() }
    };
    let verdict = long.verdict_with(&tried(&long, 1.0, 1.02));
    assert!(
        verdict.bottleneck == Bottleneck::Bandwidth && verdict.remedies[1].what.starts_with("faster"),
        "{verdict:?}"
    );
    let verdict = long.verdict_with(&tried(&long, 2.0, 1.0));
    assert_eq!((verdict.bottleneck, verdict.remedies[0].what.as_str()), (Bottleneck::Latency, "queue_depth = 256"));
    assert!((verdict.remedies[0].gain.unwrap() - 2.0).abs() < 0.01, "{verdict:?}");
    let short = reading(4096, 40_000, 600, 64);
    assert_eq!(short.verdict(None).bottleneck, Bottleneck::Operations);
    assert_eq!(short.verdict_with(&tried(&short, 1.0, 1.0)).bottleneck, Bottleneck::Bandwidth);
    // The price is known: long reads no longer have few bytes, and their gain is reported without a trial.
    let mut dear = reading(112 << 10, 40_000, 600, 64);
    dear.operation_bytes = 800_000;
    let verdict = dear.verdict(None);
    assert_eq!(verdict.bottleneck, Bottleneck::Operations);
    let together = verdict.remedies.iter().find(|one| one.what.contains("pieces (shuffle = auto")).expect("a remedy");
    assert!(together.gain.unwrap_or(0.0) > 5.0, "{verdict:?}");
    dear.operation_bytes = 100_000;
    assert_ne!(dear.verdict(None).bottleneck, Bottleneck::Operations);
    let mut amplified = reading(512 << 10, 40_000, 600, 64);
    amplified.count.bytes_wanted /= 3;
    let verdict = amplified.verdict(None);
    assert_eq!(verdict.bottleneck, Bottleneck::Amplification);
    assert!(verdict.remedies.iter().any(|one| (one.gain.unwrap_or(0.0) - 3.0).abs() < 0.1), "{verdict:?}");
}

#[test]
fn reads_that_do_not_queue_want_company() {
    let slow = reading(512 << 10, 20_000, 19_000, 4);
    let verdict = slow.verdict(None);
    assert_eq!(verdict.bottleneck, Bottleneck::Latency, "{verdict}");
    assert_eq!(verdict.remedies[0].what, "queue_depth = 16");
    assert!((verdict.remedies[0].gain.unwrap() - 4.0).abs() < 0.1, "{verdict:?}");
    // The same, because memory allows no more of them.
    let mut held = slow.clone();
    held.count.memory_bound_nanos = 900_000_000;
    let verdict = held.verdict(None);
    assert_eq!(verdict.bottleneck, Bottleneck::Memory, "{verdict}");
    assert!(verdict.remedies[0].what.contains("memory_limit") && verdict.remedies[0].gain.unwrap() > 10.0);
    // A raw read was faster: these wait behind another program's reads.
    let raw = Some(2.0 * slow.stored_bytes_per_second());
    let latency = slow.verdict_with(&Evidence { raw, ..Evidence::default() });
    assert_eq!(latency.bottleneck, Bottleneck::Latency, "{latency}");
    let fastest_read = Some(Duration::from_millis(2));
    let shared = slow.verdict_with(&Evidence { raw, fastest_read, ..Evidence::default() });
    assert_eq!(shared.bottleneck, Bottleneck::Bandwidth, "{shared}");
    assert!(shared.remedies[0].what.contains("other load"), "{shared:?}");
}

#[test]
fn threads_that_get_no_processor_are_not_at_work() {
    let reactor = (Role::Reactor, &[(Doing::Assemble, 900), (Doing::WaitStorage, 100)][..]);
    let mut seen = snapshot(&[STARVING, reactor]);
    let millis = Duration::from_millis;
    seen.threads[1].scheduled = Some(Scheduled { used: millis(200), queued: Some(millis(700)) });
    (seen.processors.available, seen.processors.used) = (2, millis(250));
    let others = seen.verdict(None);
    assert_eq!(others.bottleneck, Bottleneck::Processors, "{others}");
    assert!(others.advice.contains("other programs") && (others.share - 0.7).abs() < 1e-9, "{others}");
    assert!((others.gain.unwrap() - 5.0).abs() < 0.1, "{others:?}");
    (seen.processors.quota, seen.processors.throttled) = (Some(millis(250)), Some(millis(740)));
    let quota = seen.verdict(None);
    assert_eq!(quota.bottleneck, Bottleneck::Processors);
    assert!(quota.advice.contains("allows 0.25 processors") && quota.advice.contains("74 %"), "{quota}");
    assert!(quota.remedies[0].what.contains("cpu.max"), "{quota:?}");
    // It has all of them itself.
    (seen.processors.quota, seen.processors.used) = (None, millis(1900));
    assert!(seen.verdict(None).advice.contains("filled 2 processors"));
    // What could not be read is reported, and the verdict does without it.
    seen.threads[1].scheduled = None;
    seen.processors = crate::stats::Processors { available: 2, ..Default::default() };
    let blind = seen.verdict(None);
    assert_eq!((blind.bottleneck, blind.without.len()), (Bottleneck::Loader, 3), "{blind:?}");
}

/// A container that hides schedstat: only pressure is known, and it counts only for parts that compute.
#[test]
fn pressure_takes_the_place_of_what_threads_do_not_tell() {
    let millis = Duration::from_millis;
    let works = (Role::Reactor, &[(Doing::Assemble, 900), (Doing::WaitStorage, 100)][..]);
    let reads = (Role::Reactor, &[(Doing::WaitStorage, 960), (Doing::Submit, 40)][..]);
    let of = |reactor: Spent<'_>, pressure: u64, used: u64| {
        let mut seen = snapshot(&[STARVING, reactor]);
        (seen.processors.available, seen.processors.used) = (2, millis(used));
        seen.processors.processor_pressure = Some(millis(pressure));
        seen.verdict(None)
    };
    let pressed = of(works, 800, 300);
    assert_eq!((pressed.bottleneck, pressed.share), (Bottleneck::Processors, 0.8), "{pressed}");
    assert!(pressed.advice.contains("something on this machine") && pressed.without.len() == 2, "{pressed:?}");
    assert!((pressed.gain.unwrap() - 1.0 / 0.18).abs() < 0.1, "a fifth of its work remains: {pressed:?}");
    assert_eq!(of(works, 300, 300).bottleneck, Bottleneck::Loader, "others wait now and then on any machine");
    assert_eq!(of(works, 800, 1900).bottleneck, Bottleneck::Loader, "it is what takes them");
    assert!(of(reads, 800, 300).bottleneck.is_storage(), "who waits for the storage needs no processor");
    // If threads have counts, they decide.
    let mut told = snapshot(&[STARVING, works]);
    told.threads[1].scheduled = Some(Scheduled { used: millis(890), queued: Some(millis(10)) });
    (told.processors.available, told.processors.processor_pressure) = (2, Some(millis(900)));
    assert_eq!(told.verdict(None).bottleneck, Bottleneck::Loader);
}

#[test]
fn a_machine_without_memory_is_told() {
    let reactor = (Role::Reactor, &[(Doing::TakeMemory, 700), (Doing::Submit, 100), (Doing::WaitStorage, 200)][..]);
    let mut seen = snapshot(&[STARVING, reactor]);
    seen.processors.memory_pressure = Some(Duration::from_millis(20));
    assert!(!seen.verdict(None).advice.contains("short of memory"));
    seen.processors.memory_pressure = Some(Duration::from_millis(400));
    let verdict = seen.verdict(None);
    assert!(verdict.advice.ends_with("something waited for it for 40 %"), "{verdict}");
    assert!(verdict.remedies.len() <= 3 && verdict.remedies.iter().any(|one| one.what.contains("lower memory_limit")));
}

/// Remedies that are already in use, or impossible, are not proposed.
#[test]
fn remedies_know_what_is_read() {
    use crate::stats::{Facts, Keeping, Neighbours};
    let gb = 1_000_000_000;
    let mut slow = reading(512 << 10, 40_000, 600, 64);
    let of = |seen: &mut Snapshot, keeping| {
        seen.facts.keeping = keeping;
        seen.verdict(None).remedies
    };
    let told = |remedies: &[Remedy]| remedies.iter().find(|one| one.what.starts_with("cache = memory")).cloned();
    let all = told(&of(&mut slow, Keeping::Room { all: 2 * gb, fits: 2 * gb, limit: Some(5 * gb) })).expect("it fits");
    assert!(all.what.contains("memory_limit = 5000000000: all 2.0 GB fit"), "{all}");
    let part = told(&of(&mut slow, Keeping::Room { all: 8 * gb, fits: 4 * gb, limit: None })).expect("half fits");
    assert!(part.what.contains("4.0 GB of its 8.0 GB fit"), "{part}");
    assert!((part.gain.unwrap() - 1.0 / 0.48).abs() < 0.05, "half is read: {part}");
    assert!(all.gain > part.gain);
    for none in [Keeping::Room { all: 900 * gb, fits: 4 * gb, limit: None }, Keeping::No] {
        let remedies = of(&mut slow, none);
        assert!(told(&remedies).is_none() && !remedies.is_empty(), "{remedies:?}");
    }
    let mut short = reading(4096, 40_000, 600, 64);
    for (samples, order, words) in [
        (1000, Neighbours::Far, "shuffle = auto): neighbours"),
        (1, Neighbours::Far, "or pack"),
        (1000, Neighbours::Near, "the route says"),
        (1000, Neighbours::Stored, "coalesce_gap"),
        (1, Neighbours::Stored, "pack into shards"),
    ] {
        short.facts = Facts { samples, files: 1, keeping: Keeping::No, order, ..Facts::default() };
        let verdict = short.verdict(None);
        assert_eq!(verdict.bottleneck, Bottleneck::Operations);
        assert!(verdict.remedies[0].what.contains(words), "{order:?}: {verdict:?}");
        assert!(samples == 1 || !verdict.remedies.iter().any(|one| one.what.contains("pack")), "{verdict:?}");
    }
    let reactor = (Role::Reactor, &[(Doing::Submit, 900), (Doing::WaitStorage, 100)][..]);
    let mut busy = snapshot(&[STARVING, reactor]);
    let keeping = Keeping::No;
    busy.facts = Facts { samples: 1000, files: 1, keeping, order: Neighbours::Far, ..Facts::default() };
    let verdict = busy.verdict(None);
    assert!(!verdict.to_string().contains("pack") && !verdict.remedies[0].what.contains("pack"), "{verdict:?}");
}

/// A control group's limit is named with the line that sets it, after what costs nothing.
#[test]
fn a_limit_of_the_control_group_is_named() {
    use crate::stats::Keeping;
    use uringload_sys::throttle::{ReadLimit, ReadLimits};
    let limit = |most| Some(ReadLimit { most, line: format!("254:0 riops={most}"), file: "/group/io.max".into() });
    let line = "`254:0 riops=160` in /group/io.max";
    let mut seen = reading(512 << 10, 40_000, 600, 64);
    seen.count.reads = 150;
    seen.count.bytes_read = seen.count.reads * (512 << 10);
    let tried = [Tried::Depth(256), Tried::LongReads];
    let trials = tried.map(|tried| Trial { tried, bytes_per_second: 1.0 }).to_vec();
    let evidence = Evidence { trials, ..Evidence::default() };
    seen.facts.keeping = Keeping::Room { all: 1 << 30, fits: 1 << 30, limit: None };
    let free = seen.verdict_with(&evidence);
    let places = |verdict: &Verdict| {
        let at = |what: &str| verdict.remedies.iter().position(|remedy| remedy.what.starts_with(what));
        [at("cache = memory"), at("faster or more storage (supposing"), at("raise the limit `254:0")]
    };
    assert_eq!((free.bottleneck, places(&free)), (Bottleneck::Bandwidth, [Some(0), Some(1), None]), "{free:?}");
    seen.facts.allowed = ReadLimits { operations: limit(160), bytes: None };
    let told = seen.verdict_with(&evidence);
    assert_eq!(places(&told), [Some(0), None, Some(1)], "{told:?}");
    assert!(told.advice.contains(line) && told.remedies[1].what.contains(line), "{told:?}");
    // So far above what was read that it is not what limits.
    seen.facts.allowed = ReadLimits { operations: limit(16_000), bytes: None };
    let other = seen.verdict_with(&evidence);
    assert_eq!((places(&other), other.advice.contains("io.max")), (places(&free), false), "{other:?}");
}

/// Data in memory is not read: it takes no memory, and starts no read.
#[test]
fn what_is_kept_spares_the_work_of_reading_it() {
    use crate::stats::Keeping;
    let reactor = [(Doing::WaitStorage, 600), (Doing::TakeMemory, 150), (Doing::Submit, 150), (Doing::Assemble, 100)];
    let mut seen = reading(512 << 10, 40_000, 600, 64);
    seen.threads = snapshot(&[STARVING, (Role::Reactor, &reactor)]).threads;
    let gain = |seen: &mut Snapshot, fits| {
        seen.facts.keeping = Keeping::Room { all: 100 << 20, fits, limit: None };
        let remedies = seen.verdict(None).remedies;
        let kept = remedies.iter().find(|one| one.what.starts_with("cache = memory")).expect("it fits");
        kept.gain.expect("a gain")
    };
    let all = gain(&mut seen, 100 << 20);
    assert!((all - 10.0).abs() < 1e-6, "making batches is left, a tenth of the time: {all}");
    let half = gain(&mut seen, 50 << 20);
    assert!((half - 1.0 / 0.3).abs() < 1e-6, "half of the storage's time is more than half of the work: {half}");
}

#[test]
fn the_loaders_own_work_frees_its_processors() {
    let millis = Duration::from_millis;
    let reactor = (Role::Reactor, &[(Doing::Submit, 300), (Doing::WaitStorage, 700)][..]);
    let reading = (Role::Io, &[(Doing::Read, 950), (Doing::WaitInput, 50)][..]);
    let mut seen = snapshot(&[STARVING, reactor, reading]);
    seen.threads[1].scheduled = Some(Scheduled { used: millis(400), queued: Some(millis(0)) });
    // Reading is copying from the page cache.
    seen.threads[2].scheduled = Some(Scheduled { used: millis(950), queued: Some(millis(0)) });
    (seen.processors.available, seen.processors.used) = (2, millis(1900));
    (seen.count.reads, seen.count.bytes_read) = (1000, 300_000);
    let verdict = seen.verdict(None);
    assert_eq!(verdict.bottleneck, Bottleneck::Loader, "{verdict}");
    assert!(verdict.gain.is_some_and(|gain| gain > 3.0), "{verdict:?}");
    assert!(verdict.remedies[0].what.starts_with("pack"), "{verdict:?}");
}

#[test]
fn memory_that_is_taken_is_not_work() {
    let reactor = (Role::Reactor, &[(Doing::TakeMemory, 700), (Doing::Submit, 100), (Doing::WaitStorage, 200)][..]);
    let verdict = snapshot(&[STARVING, reactor]).verdict(None);
    assert_eq!((verdict.bottleneck, verdict.share), (Bottleneck::MemoryTaking, 0.7));
    assert!((verdict.gain.unwrap() - 5.0).abs() < 1e-6, "the storage is next: {verdict:?}");
}

#[test]
fn a_trainer_that_waits_is_not_the_bottleneck() {
    let waits = (Role::Consumer, &[(Doing::WaitBatch, 400), (Doing::Step, 600)][..]);
    let reactor = (Role::Reactor, &[(Doing::WaitStorage, 980), (Doing::Submit, 20)][..]);
    let verdict = snapshot(&[waits, reactor]).verdict(None);
    assert!(verdict.bottleneck.is_storage(), "{verdict}");
    assert!((verdict.gain.unwrap() - 1.0 / 0.6).abs() < 1e-6, "then the trainer is: {verdict:?}");
    // Its wait for the very first batch says nothing about later ones.
    let mut first = snapshot(&[waits, reactor]);
    first.count.first_wait_nanos = 390_000_000;
    assert_eq!(first.verdict(None).bottleneck, Bottleneck::Trainer);
}

#[test]
fn memory_when_the_reactor_waits_for_it() {
    let reactor = (Role::Reactor, &[(Doing::WaitMemory, 700), (Doing::WaitStorage, 200), (Doing::Submit, 100)][..]);
    let verdict = snapshot(&[STARVING, reactor]).verdict(None);
    assert_eq!((verdict.bottleneck, verdict.share), (Bottleneck::Memory, 0.7));
}

#[test]
fn loader_names_the_work_that_took_most() {
    let reactor = (Role::Reactor, &[(Doing::Copy, 600), (Doing::Submit, 200), (Doing::WaitStorage, 200)][..]);
    let verdict = snapshot(&[STARVING, reactor]).verdict(None);
    assert_eq!((verdict.bottleneck, verdict.share), (Bottleneck::Loader, 0.8));
    assert!(verdict.advice.contains("views"), "{}", verdict.advice);
    let gains: Vec<_> = verdict.remedies.iter().map(|remedy| remedy.gain.expect("a gain")).collect();
    assert!(gains.len() == 2 && gains[0] > gains[1], "each kind of work has a remedy: {verdict:?}");
}

#[test]
fn reading_out_of_the_page_cache_is_work_that_fewer_reads_lessen() {
    let millis = Duration::from_millis;
    let reactor = (Role::Reactor, &[(Doing::WaitStorage, 800), (Doing::Assemble, 150), (Doing::Submit, 50)][..]);
    let mut seen = snapshot(&[STARVING, reactor, (Role::Io, &[(Doing::Read, 1000)])]);
    seen.threads[2].scheduled = Some(Scheduled { used: millis(1000), queued: Some(millis(0)) });
    (seen.count.reads, seen.count.bytes_read) = (1000, 300_000);
    let verdict = seen.verdict(None);
    assert_eq!(verdict.bottleneck, Bottleneck::Loader, "{verdict}");
    assert!(verdict.advice.contains("page cache"), "{verdict}");
    let pack = &verdict.remedies[0];
    assert!(pack.what.starts_with("pack") && pack.gain.is_some_and(|gain| gain > 5.0), "{verdict:?}");
    // Long reads: their bytes are copied, and packing would not reduce that.
    seen.count.bytes_read = 1000 << 20;
    let verdict = seen.verdict(None);
    assert!(verdict.advice.starts_with("copying out of the page cache"), "{verdict}");
    assert!(verdict.remedies.iter().all(|remedy| remedy.gain.is_none_or(|gain| gain < 1.2)), "{verdict:?}");
}

/// The verdict on a loader with this device thread, and copies for this many milliseconds of its second, if its reactor
/// would blame the storage.
fn with_device(times: &[(Doing, u64)], copy_millis: u64) -> Verdict {
    let reactor = (Role::Reactor, &[(Doing::WaitStorage, 600), (Doing::WaitConsumer, 400)][..]);
    let mut seen = snapshot(&[STARVING, (Role::Device, times), reactor]);
    seen.count.copy_nanos = copy_millis * 1_000_000;
    seen.verdict(None)
}

#[test]
fn bus_when_copies_take_the_time() {
    let verdict = with_device(&[(Doing::WaitDevice, 900), (Doing::WaitInput, 100)], 960);
    assert_eq!((verdict.bottleneck, verdict.share), (Bottleneck::Copies, 0.96));
    assert_eq!(verdict.advice, "copies to the GPU took 96 % of the time: PCIe is the limit");
    // Two devices: the sum is no share.
    assert_eq!(with_device(&[(Doing::WaitDevice, 900)], 1900).share, 1.0);
    let pageable = with_device(&[(Doing::Submit, 900), (Doing::WaitInput, 100)], 900);
    assert_eq!(pageable.bottleneck, Bottleneck::Copies, "copied while it is started");
    let reactor = (Role::Reactor, &[(Doing::WaitMemory, 900), (Doing::WaitStorage, 100)][..]);
    let mut held = snapshot(&[STARVING, (Role::Device, &[(Doing::WaitDevice, 900)]), reactor]);
    held.count.copy_nanos = 600_000_000;
    assert_eq!(held.verdict(None).bottleneck, Bottleneck::Copies, "memory is held by what is to be copied");
    let ahead = with_device(&[(Doing::WaitConsumer, 700), (Doing::WaitDevice, 200), (Doing::WaitInput, 100)], 900);
    assert_eq!(ahead.bottleneck, Bottleneck::Copies);
}

#[test]
fn the_device_thread_is_passed_when_it_waits_for_blocks() {
    assert!(with_device(&[(Doing::WaitInput, 900), (Doing::Submit, 100)], 0).bottleneck.is_storage());
    // A copy is in progress most of the time, and yet the engine is idle for a third of it.
    let half = with_device(&[(Doing::WaitDevice, 700), (Doing::WaitInput, 300)], 650);
    assert!(half.bottleneck.is_storage());
    assert!(with_device(&[(Doing::WaitConsumer, 1000)], 900).bottleneck.is_storage());
}

#[test]
fn memory_of_the_device_and_work_of_its_thread() {
    let memory = with_device(&[(Doing::WaitMemory, 800), (Doing::WaitInput, 200)], 100);
    assert_eq!((memory.bottleneck, memory.share), (Bottleneck::Memory, 0.8));
    assert!(memory.advice.contains("GPU's memory"), "{}", memory.advice);
    let on_host = with_device(&[(Doing::Copy, 900), (Doing::WaitInput, 100)], 0);
    assert_eq!(on_host.bottleneck, Bottleneck::Loader);
    assert!(on_host.advice.contains("on the host"), "{}", on_host.advice);
    let starts = with_device(&[(Doing::Submit, 900), (Doing::WaitInput, 100)], 300);
    assert!(starts.bottleneck == Bottleneck::Loader && starts.advice.starts_with("starting copies"), "{starts}");
}

#[test]
fn time_ahead_of_the_consumer_is_nobodys_limit() {
    let reactor = (Role::Reactor, &[(Doing::WaitConsumer, 800), (Doing::WaitStorage, 150), (Doing::Submit, 50)][..]);
    let verdict = snapshot(&[STARVING, reactor]).verdict(None);
    assert!(verdict.bottleneck.is_storage());
    assert!((verdict.share - 0.75).abs() < 1e-9);
}

#[test]
fn unknown_without_a_batch_or_a_thread() {
    assert_eq!(Snapshot::default().verdict(None).bottleneck, Bottleneck::Unknown);
    assert_eq!(
        snapshot(&[STARVING, (Role::Reactor, &[(Doing::Idle, 9)])]).verdict(None).bottleneck,
        Bottleneck::Unknown
    );
    assert_eq!(snapshot(&[STARVING]).verdict(None).bottleneck, Bottleneck::Unknown);
    // Before the first batch, it reports its current activity.
    let mut early = snapshot(&[STARVING, (Role::Reactor, &[(Doing::Plan, 1), (Doing::WaitStorage, 99)])]);
    early.count = Counts::default();
    assert!(early.verdict(None).advice.contains("this to do: wait for storage; run longer"), "{early:?}");
    early.outage = Some(crate::stats::Outage { path: None, lasting: Duration::from_secs(3), cause: "EMFILE".into() });
    assert!(early.verdict(None).advice.contains("waiting for descriptors or memory for 3 s: EMFILE; run"), "{early:?}");
}

#[test]
fn a_store_is_named_by_its_server() {
    let reactor = (Role::Reactor, &[(Doing::WaitStorage, 1000)][..]);
    let mut seen = snapshot(&[STARVING, reactor]);
    seen.facts.has_objects = true;
    let server = |endpoint: &str, requests, throttled| uringload_core::store::Counts {
        endpoint: endpoint.to_owned(),
        requests,
        throttled,
        ..Default::default()
    };
    seen.endpoints = vec![server("s3.eu-central-1.amazonaws.com", 1000, 0), server("idle.example", 0, 0)];
    let verdict = seen.verdict(None);
    let told = "; the storage is the endpoint s3.eu-central-1.amazonaws.com";
    assert!(verdict.bottleneck.is_storage() && verdict.advice.contains(told), "{}", verdict.advice);
    assert!(!verdict.advice.contains("idle.example"), "{}", verdict.advice);
    seen.endpoints[0].throttled = 30;
    let advice = seen.verdict(None).advice;
    assert!(advice.contains(&format!("{told}, which refused 30 of 1000 requests")), "{advice}");
    assert!(verdict.remedies.iter().any(|remedy| remedy.what.contains("nearer to the store")), "{verdict:?}");
}

#[test]
fn what_helps_against_a_store() {
    let mut slow = reading(512 << 10, 20_000, 19_000, 4);
    slow.facts.has_objects = true;
    let server =
        |requests, throttled| vec![uringload_core::store::Counts { requests, throttled, ..Default::default() }];
    let told = |seen: &Snapshot| {
        let verdict = seen.verdict(None);
        assert_eq!(verdict.bottleneck, Bottleneck::Latency, "{verdict}");
        let has = |words| verdict.remedies.iter().any(|remedy| remedy.what.contains(words));
        (has("queue_depth"), has("cache_disk"), has("refuses more"), verdict.advice.contains("takes no more"))
    };
    slow.endpoints = server(100_000, 1);
    assert_eq!(told(&slow), (true, true, false, false), "one refusal is no bound");
    // The depth follows what the server grants.
    slow.endpoints = server(1000, 30);
    assert_eq!(told(&slow), (false, true, true, true));
    // Only what is not done already is proposed.
    slow.facts.keeps_objects = true;
    assert_eq!(told(&slow), (false, false, true, true));
    slow.facts = Default::default();
    slow.endpoints = Vec::new();
    assert_eq!(told(&slow), (true, false, false, false), "files have no server");
}
