//! Who is the bottleneck. Every thread's clock charges exactly one activity at a time, so this is arithmetic: start at
//! the consumer and walk upstream past whoever mostly waits for input; the first that does not is the answer. How long
//! copies to a GPU took is told by the GPU itself.

use super::{Doing, Role, Snapshot};
use std::fmt;

/// What limits the loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bottleneck {
    /// Your own work between two batches.
    Trainer,
    /// The user's own transform and collate function, which run behind the loader.
    Transform,
    /// The threads that decode samples.
    Decode,
    /// Memory: there are reads to start but no memory to read into, or no room for batches on their device.
    Memory,
    /// The storage: the reactor waits for reads in flight.
    Storage,
    /// The path to the GPU: its copy engine and PCIe.
    Bus,
    /// The loader's own CPU work.
    Loader,
    /// Not enough was measured to tell.
    Unknown,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Bottleneck::Trainer => "trainer",
            Bottleneck::Transform => "transform",
            Bottleneck::Decode => "decode",
            Bottleneck::Memory => "memory",
            Bottleneck::Storage => "storage",
            Bottleneck::Bus => "bus",
            Bottleneck::Loader => "loader",
            Bottleneck::Unknown => "unknown",
        })
    }
}

/// What limits the loader, how clearly, and one thing to try. `Display` is one line.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Verdict {
    /// What limits.
    pub bottleneck: Bottleneck,
    /// Share of the time, 0 to 1, that the limiting part was busy or was waited for.
    pub share: f64,
    /// What that means and one thing to try, as a sentence.
    pub advice: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:.0} %): {}", self.bottleneck, self.share * 100.0, self.advice)
    }
}

/// Threads that share the interpreter's lock have this much of one processor between them; and up to so much more.
const ONE_PROCESSOR: std::ops::Range<f64> = 0.7..1.3;

/// Who waits for input for less than this share of the time is busy: the walk upstream ends there.
const MOSTLY: f64 = 0.5;
/// From this share of a raw read's rate on, the storage gives what it has.
const NEAR_RAW: f64 = 0.9;
/// From this share of the time on, copies to a device are what all others wait for. More than mostly: where the disk
/// gives half of what the bus takes, the device is at copies for half of the time and waits for the disk for the rest.
const NEAR_BUS: f64 = 0.8;

pub(super) fn judge(snapshot: &Snapshot, raw: Option<f64>) -> Verdict {
    let Some(waited) = snapshot.share(Role::Consumer, Doing::WaitBatch) else {
        return unknown("no batch was asked for");
    };
    if snapshot.count.batches == 0 {
        return unknown("no batch was delivered");
    }
    if waited < MOSTLY {
        return trainer(snapshot, 1.0 - waited);
    }
    if let Some(idle) = snapshot.share(Role::Transform, Doing::WaitInput)
        && idle < MOSTLY
    {
        let advice = transform_advice(snapshot);
        return Verdict { bottleneck: Bottleneck::Transform, share: 1.0 - idle, advice };
    }
    if let Some(verdict) = device(snapshot) {
        return verdict;
    }
    if let Some(idle) = snapshot.share(Role::Stage, Doing::WaitInput)
        && idle < MOSTLY
    {
        let advice = decode_advice(snapshot, 1.0 - idle);
        return Verdict { bottleneck: Bottleneck::Decode, share: 1.0 - idle, advice };
    }
    reactor(snapshot, raw)
}

/// The thread that feeds devices, where there is one; `None` where it waits for what comes before it.
fn device(snapshot: &Snapshot) -> Option<Verdict> {
    let share = |doing| snapshot.share(Role::Device, doing).unwrap_or(0.0);
    // As with the reactor: while it is ahead of the consumer it limits nobody.
    let rest = 1.0 - share(Doing::WaitConsumer) - share(Doing::Idle);
    if rest <= 0.0 || snapshot.threads.iter().all(|thread| thread.role != Role::Device) {
        return None;
    }
    let (input, memory) = (share(Doing::WaitInput) / rest, share(Doing::WaitMemory) / rest);
    // Out of memory that is not pinned, the driver copies while the copy is being started.
    let copying = (share(Doing::WaitDevice) + share(Doing::Submit)) / rest;
    let elapsed = snapshot.elapsed.as_nanos() as f64;
    let copies = if elapsed > 0.0 { (snapshot.count.copy_nanos as f64 / elapsed).min(1.0) } else { 0.0 };
    // Blocks that wait for their copy hold the memory that the next reads wait for.
    let held = snapshot.share(Role::Reactor, Doing::WaitMemory).unwrap_or(0.0);
    if copying >= MOSTLY && (copies >= NEAR_BUS || (copies >= MOSTLY && held >= MOSTLY)) {
        let advice = format!("copies to the GPU took {} of the time: PCIe is the limit", percent(copies));
        return Some(Verdict { bottleneck: Bottleneck::Bus, share: copies, advice });
    }
    if memory >= MOSTLY {
        let advice = "batches waited for the GPU's memory, which those before them hold until their work there is \
                      done: the trainer is behind, or keeps batches; else raise the device's memory limit";
        return Some(Verdict { bottleneck: Bottleneck::Memory, share: memory, advice: advice.into() });
    }
    // While copies are under way it is not said whether it waits for them or for the next block.
    let busy = 1.0 - input - memory - share(Doing::WaitDevice) / rest;
    if busy >= MOSTLY {
        let advice = if share(Doing::Copy) >= share(Doing::Submit) {
            "making columns on the host took most of the CPU of the thread that does it: put batches on a GPU, or take \
             views"
        } else {
            "starting copies took most of the CPU of the thread that feeds the device: use larger batches, and pinned \
             memory where the route says that it is not"
        };
        return Some(Verdict { bottleneck: Bottleneck::Loader, share: busy, advice: advice.into() });
    }
    None
}

/// What the user's own code took, and whether more threads could do more of it.
fn transform_advice(snapshot: &Snapshot) -> String {
    let threads = snapshot.threads.iter().filter(|thread| thread.role == Role::Transform);
    let threads =
        threads.filter(|thread| !thread.on(Doing::Transform).is_zero() || !thread.on(Doing::Collate).is_zero());
    let threads = threads.count();
    let (transform, collate) =
        (snapshot.time(Role::Transform, Doing::Transform), snapshot.time(Role::Transform, Doing::Collate));
    let samples = snapshot.count.samples_transformed.max(1) as f64;
    let millis = |spent: std::time::Duration| spent.as_secs_f64() * 1e3 / samples;
    let cpu = snapshot.count.transform_cpu_nanos as f64 / 1e9;
    let (busy, elapsed) = ((transform + collate).as_secs_f64(), snapshot.elapsed.as_secs_f64());
    let what = if collate > transform { "collate function" } else { "transform" };
    let took = format!("your {what}: {:.3} ms a sample x {threads} threads", millis(transform.max(collate)));
    let hint = if threads > 1 && cpu < MOSTLY * busy && ONE_PROCESSOR.contains(&(cpu / elapsed)) {
        "they had one processor between them, so it holds Python's lock and more threads do not help: call what \
         releases it (NumPy, torch, Pillow), or take the built-in transforms"
    } else if cpu < MOSTLY * busy {
        "it mostly waits: raise num_threads, or read what it waits for with the loader"
    } else {
        "raise num_threads if there are more processors, or take the built-in transforms"
    };
    format!("{took}; {hint}")
}

fn decode_advice(snapshot: &Snapshot, busy: f64) -> String {
    let threads = snapshot.threads.iter().filter(|thread| thread.role == Role::Stage).count();
    format!(
        "decoding took {} of the time of {threads} threads: raise num_threads if there are more processors",
        percent(busy)
    )
}

fn trainer(snapshot: &Snapshot, share: f64) -> Verdict {
    let count = &snapshot.count;
    let ready = count.batches_ready as f64 / count.batches as f64;
    let advice =
        format!("{} of the batches lay ready when they were asked for: a faster loader would not help", percent(ready));
    Verdict { bottleneck: Bottleneck::Trainer, share, advice }
}

/// The last in line. What it waits for most says who limits; if it hardly waits, it limits itself.
fn reactor(snapshot: &Snapshot, raw: Option<f64>) -> Verdict {
    let share = |doing| snapshot.share(Role::Reactor, doing).unwrap_or(0.0);
    let storage = share(Doing::WaitStorage);
    let memory = share(Doing::WaitMemory);
    let stage = share(Doing::WaitStage);
    // While it waits for the consumer it is ahead of it, and the consumer's own waiting says who it is ahead of: that
    // time is nobody's limit, so the others' shares are of the rest.
    let rest = 1.0 - share(Doing::WaitConsumer) - share(Doing::Idle);
    if rest <= 0.0 || snapshot.threads.iter().all(|thread| thread.role != Role::Reactor) {
        return unknown("the reactor was not seen at work");
    }
    let busy = rest - storage - memory - stage;
    if stage > storage && stage > memory && stage > busy {
        let advice = decode_advice(snapshot, stage / rest);
        return Verdict { bottleneck: Bottleneck::Decode, share: stage / rest, advice };
    }
    if storage >= memory && storage >= busy {
        storage_verdict(snapshot, raw, storage / rest)
    } else if memory >= busy {
        let advice = "reads waited for memory that batches hold; raise the memory limit, or keep fewer batches".into();
        Verdict { bottleneck: Bottleneck::Memory, share: memory / rest, advice }
    } else {
        Verdict { bottleneck: Bottleneck::Loader, share: busy / rest, advice: loader_advice(snapshot) }
    }
}

fn storage_verdict(snapshot: &Snapshot, raw: Option<f64>, share: f64) -> Verdict {
    let advice = match raw.filter(|&raw| raw > 0.0).map(|raw| snapshot.stored_bytes_per_second() / raw) {
        Some(of_raw) if of_raw >= NEAR_RAW => format!(
            "it gave {} of what it gave in a raw read of the same files: only faster or more storage helps",
            percent(of_raw)
        ),
        Some(of_raw) => format!(
            "yet it gave only {} of what it gave in a raw read of the same files: try a greater queue depth, or look \
             for other load on the device",
            percent(of_raw)
        ),
        None => "the loader mostly waited for reads: only faster or more storage helps".into(),
    };
    Verdict { bottleneck: Bottleneck::Storage, share, advice }
}

fn loader_advice(snapshot: &Snapshot) -> String {
    let share = |doing| snapshot.share(Role::Reactor, doing).unwrap_or(0.0);
    let works = [
        (
            Doing::Submit,
            "starting reads took most of the CPU: pack small files into shards, or coalesce neighbouring records",
        ),
        (Doing::Decode, "decoding took most of the CPU of the thread that reads: raise num_threads"),
        (Doing::Copy, "copying took most of the CPU: take views instead of dense columns"),
        (Doing::Assemble, "making batches took most of the CPU: use larger samples or smaller batches"),
        (Doing::Plan, "planning took most of the CPU: use larger samples"),
    ];
    let most = works.into_iter().max_by(|(a, _), (b, _)| share(*a).total_cmp(&share(*b)));
    most.map_or_else(String::new, |(_, advice)| advice.to_owned())
}

fn unknown(why: &str) -> Verdict {
    Verdict { bottleneck: Bottleneck::Unknown, share: 0.0, advice: format!("{why}; run longer") }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::{Counts, ThreadSnapshot};
    use super::*;
    use std::time::Duration;

    type Spent<'a> = (Role, &'a [(Doing, u64)]);

    fn snapshot(threads: &[Spent<'_>]) -> Snapshot {
        let thread = |&(role, times): &Spent<'_>| {
            let mut spent = [Duration::ZERO; Doing::ALL.len()];
            for &(doing, millis) in times {
                spent[doing as usize] = Duration::from_millis(millis);
            }
            ThreadSnapshot { role, spent }
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
        assert!((verdict.share - 0.99).abs() < 1e-9 && verdict.advice.starts_with("99 % of the batches lay ready"));
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
        assert_eq!(snapshot(&[STARVING, idle, reactor]).verdict(None).bottleneck, Bottleneck::Storage, "walks past");
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
        let collating = (Role::Transform, &[(Doing::Transform, 100), (Doing::Collate, 900)][..]);
        assert!(of(&[STARVING, collating, reactor], 900).advice.starts_with("your collate function: 10.000 ms a"));
        // It is fast: who keeps it waiting is the answer. And where the trainer is slow, it does not matter.
        let idle = (Role::Transform, &[(Doing::Transform, 100), (Doing::WaitInput, 900)][..]);
        let storage = (Role::Reactor, &[(Doing::WaitStorage, 1000)][..]);
        assert_eq!(of(&[STARVING, idle, storage], 100).bottleneck, Bottleneck::Storage);
        let training = (Role::Consumer, &[(Doing::WaitBatch, 10), (Doing::Step, 990)][..]);
        assert_eq!(of(&[training, at_work, reactor], 900).bottleneck, Bottleneck::Trainer);
    }

    #[test]
    fn storage_against_a_raw_read() {
        let reactor = (Role::Reactor, &[(Doing::WaitStorage, 960), (Doing::Submit, 40)][..]);
        let seen = snapshot(&[STARVING, reactor]);
        let near = seen.verdict(Some(1000.0));
        assert_eq!((near.bottleneck, near.share), (Bottleneck::Storage, 0.96));
        assert!(near.advice.contains("97 % of what it gave in a raw read"), "{}", near.advice);
        assert!(seen.verdict(Some(1940.0)).advice.contains("only 50 %"));
        assert!(!seen.verdict(None).advice.contains("raw"));
        assert_eq!(near.to_string().lines().count(), 1);
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
    }

    /// What a loader with this device thread, and copies for so many milliseconds of its second, is limited by, where
    /// its reactor would say that it is the storage.
    fn with_device(times: &[(Doing, u64)], copy_millis: u64) -> Verdict {
        let reactor = (Role::Reactor, &[(Doing::WaitStorage, 1000)][..]);
        let mut seen = snapshot(&[STARVING, (Role::Device, times), reactor]);
        seen.count.copy_nanos = copy_millis * 1_000_000;
        seen.verdict(None)
    }

    #[test]
    fn bus_when_copies_take_the_time() {
        let verdict = with_device(&[(Doing::WaitDevice, 900), (Doing::WaitInput, 100)], 960);
        assert_eq!((verdict.bottleneck, verdict.share), (Bottleneck::Bus, 0.96));
        assert_eq!(verdict.advice, "copies to the GPU took 96 % of the time: PCIe is the limit");
        // Two devices: the sum is no share.
        assert_eq!(with_device(&[(Doing::WaitDevice, 900)], 1900).share, 1.0);
        let pageable = with_device(&[(Doing::Submit, 900), (Doing::WaitInput, 100)], 900);
        assert_eq!(pageable.bottleneck, Bottleneck::Bus, "copied while it is started");
        let reactor = (Role::Reactor, &[(Doing::WaitMemory, 900), (Doing::WaitStorage, 100)][..]);
        let mut held = snapshot(&[STARVING, (Role::Device, &[(Doing::WaitDevice, 900)]), reactor]);
        held.count.copy_nanos = 600_000_000;
        assert_eq!(held.verdict(None).bottleneck, Bottleneck::Bus, "memory is held by what is to be copied");
        let ahead = with_device(&[(Doing::WaitConsumer, 700), (Doing::WaitDevice, 200), (Doing::WaitInput, 100)], 900);
        assert_eq!(ahead.bottleneck, Bottleneck::Bus);
    }

    #[test]
    fn the_device_thread_is_passed_when_it_waits_for_blocks() {
        assert_eq!(with_device(&[(Doing::WaitInput, 900), (Doing::Submit, 100)], 0).bottleneck, Bottleneck::Storage);
        // A copy is under way most of the time, and yet the engine has nothing to do for a third of it.
        let half = with_device(&[(Doing::WaitDevice, 700), (Doing::WaitInput, 300)], 650);
        assert_eq!(half.bottleneck, Bottleneck::Storage);
        assert_eq!(with_device(&[(Doing::WaitConsumer, 1000)], 900).bottleneck, Bottleneck::Storage);
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
        let reactor =
            (Role::Reactor, &[(Doing::WaitConsumer, 800), (Doing::WaitStorage, 150), (Doing::Submit, 50)][..]);
        let verdict = snapshot(&[STARVING, reactor]).verdict(None);
        assert_eq!(verdict.bottleneck, Bottleneck::Storage);
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
    }
}
