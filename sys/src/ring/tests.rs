//! The ring against the real kernel. Tests say so and skip if io_uring is denied.

mod cancel;
mod carried;
mod mixed;

use super::*;
use std::fs::File;
use std::io::Write;
use std::path::Path;

const PAGE: usize = 4096;

/// A ring, or none and the reason on stderr if this system denies one.
fn ring(options: &RingOptions) -> Option<Ring> {
    Some(ring_and_steps(options)?.0)
}

fn ring_and_steps(options: &RingOptions) -> Option<(Ring, Vec<Step>)> {
    match Ring::open(options) {
        Ok(opened) => Some(opened),
        // ENOMEM: this user's locked memory is used up, maybe by tests running at the same time.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS | libc::ENOMEM)) => {
            eprintln!("skipped: io_uring is not available here: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn small() -> RingOptions {
    RingOptions { entries: 64, files: 16, ..RingOptions::default() }
}

/// The byte at `offset` of file `seed`.
fn byte(seed: u64, offset: u64) -> u8 {
    let mixed = (offset ^ (seed << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

fn content(seed: u64, offset: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| byte(seed, offset + at)).collect()
}

fn write_file(folder: &Path, name: &str, seed: u64, len: usize) -> Arc<OwnedFd> {
    let path = folder.join(name);
    File::create(&path).unwrap().write_all(&content(seed, 0, len)).unwrap();
    Arc::new(File::open(&path).unwrap().into())
}

fn folder() -> (tempfile::TempDir, Arc<OwnedFd>) {
    let folder = tempfile::tempdir().unwrap();
    let handle = Arc::new(File::open(folder.path()).unwrap().into());
    (folder, handle)
}

/// Registers memory. Returns false, with the reason on stderr, if the limit on locked memory is too low.
fn registered(ring: &mut Ring, arena: &Arena, range: Range<usize>) -> bool {
    match ring.register(arena, range) {
        Ok(()) => true,
        Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
            eprintln!("skipped: no memory can be locked: {error}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// Only a hang takes as long.
const HANG: Duration = Duration::from_secs(60);

/// Turns until nothing is in flight.
fn finish(ring: &mut Ring) -> Vec<Completion> {
    let mut done = Vec::new();
    let end = Instant::now() + HANG;
    while ring.in_flight() > 0 {
        assert!(Instant::now() < end, "{} operations do not end", ring.in_flight());
        ring.turn(Some(Duration::from_secs(1)), 1, &mut done).unwrap();
    }
    done
}

fn errno<T>(result: &io::Result<T>) -> Option<i32> {
    result.as_ref().err().and_then(io::Error::raw_os_error)
}

fn open_of<'a>(slot: u32, folder: &'a Arc<OwnedFd>, path: &'a [u8]) -> Open<'a> {
    Open { slot, folder, path, flags: OpenFlags::default() }
}

#[test]
fn reads_of_a_descriptor_give_the_bytes_and_end_short_at_the_end() {
    let Some(mut ring) = ring(&small()) else { return };
    let (folder, _) = folder();
    let file = Target::File(write_file(folder.path(), "a", 1, 10_000));
    let (_arena, mut memory) = Arena::reserve(1 << 20).unwrap();
    for (tag, offset) in [(0, 0), (1, 5000), (2, 9000), (3, 10_000), (4, 1 << 40)] {
        ring.read(&file, offset, memory.split_to(5000), tag, tag % 2 == 1);
    }
    ring.read(&file, 0, memory.split_to(0), 5, false);
    let mut done = finish(&mut ring);
    done.sort_by_key(|done| done.tag);
    let lengths: Vec<u32> = done.iter().map(|done| *done.result.as_ref().unwrap()).collect();
    assert_eq!(lengths, [5000, 5000, 1000, 0, 0, 0]);
    for (done, offset) in done.iter().zip([0, 5000, 9000]) {
        let len = *done.result.as_ref().unwrap() as usize;
        assert_eq!(&done.part.as_ref().unwrap().as_ref()[..len], content(1, offset, len));
        assert_eq!(done.kind, Operation::Read);
        assert!(done.latency > Duration::ZERO && done.latency < HANG);
    }
}

#[test]
fn direct_reads_into_registered_memory() {
    let Some(mut ring) = ring(&small()) else { return };
    let (folder, handle) = folder();
    write_file(folder.path(), "a", 2, 3 * PAGE + 7);
    let (arena, mut memory) = Arena::reserve(2 << 20).unwrap();
    arena.populate(0..arena.len()).unwrap();
    if !registered(&mut ring, &arena, 0..arena.len()) {
        return;
    }
    assert_eq!(ring.pieces(), 1);
    let flags = OpenFlags { direct: true, noatime: true, nonblock: false };
    let open = Open { slot: 3, folder: &handle, path: b"a", flags };
    ring.open_and_read(open, PAGE as u64, memory.split_to(4 * PAGE), 9, false);
    let done = finish(&mut ring);
    if errno(&done[0].result) == Some(libc::EINVAL) {
        return eprintln!("skipped: no O_DIRECT in {}", folder.path().display());
    }
    assert_eq!((done[0].kind, done[0].tag, done[0].part.is_none()), (Operation::Open, 9, true));
    assert_eq!((done[1].kind, done[1].tag), (Operation::Read, 9));
    let len = *done[1].result.as_ref().unwrap() as usize;
    assert_eq!(len, 2 * PAGE + 7);
    assert_eq!(&done[1].part.as_ref().unwrap().as_ref()[..len], content(2, PAGE as u64, len));

    ring.read(&Target::Slot(3), 1, memory.split_to(PAGE), 10, false);
    let done = finish(&mut ring);
    assert!(done[0].result.is_ok() || errno(&done[0].result) == Some(libc::EINVAL), "misaligned: {done:?}");
}

#[test]
fn a_failed_open_cancels_its_read_and_empties_the_slot() {
    let Some(mut ring) = ring(&small()) else { return };
    let (folder, handle) = folder();
    write_file(folder.path(), "there", 3, 100);
    let (_arena, mut memory) = Arena::reserve(1).unwrap();
    for force_async in [false, true] {
        ring.open_and_read(open_of(0, &handle, b"there"), 0, memory.split_to(100), 1, force_async);
        assert!(finish(&mut ring).iter().all(|done| done.result.is_ok()));
        ring.open_and_read(open_of(0, &handle, b"missing"), 0, memory.split_to(100), 2, force_async);
        let done = finish(&mut ring);
        assert_eq!((done[0].kind, errno(&done[0].result)), (Operation::Open, Some(libc::ENOENT)));
        assert_eq!((done[1].kind, errno(&done[1].result)), (Operation::Read, Some(libc::ECANCELED)));
        let part = done[1].part.as_ref().unwrap();
        assert!(part.as_ref().iter().all(|&byte| byte == 0), "nothing was read from the file before");
        // The kernel still has the first file in the slot; a read must not get its bytes.
        ring.read(&Target::Slot(0), 0, memory.split_to(100), 3, force_async);
        assert_eq!(errno(&finish(&mut ring)[0].result), Some(libc::EBADF));
    }
}

#[test]
fn what_cannot_be_done_is_refused_in_a_completion() {
    let Some(mut ring) = ring(&small()) else { return };
    let (folder, handle) = folder();
    let file = write_file(folder.path(), "a", 4, 100);
    let (_arena, mut memory) = Arena::reserve(1).unwrap();
    ring.read(&Target::Slot(1), 0, memory.split_to(10), 1, false);
    ring.read(&Target::Slot(1 << 20), 0, memory.split_to(10), 2, false);
    ring.read(&Target::File(file), u64::MAX, memory.split_to(10), 3, false);
    ring.open_file(open_of(1, &handle, b"a\0b"), 4, false);
    ring.open_file(open_of(16, &handle, b"a"), 5, false);
    ring.open_and_read(open_of(2, &handle, b"a"), 0, memory.split_to(10), 6, false);
    ring.open_file(open_of(2, &handle, b"a"), 7, false);
    assert_eq!((ring.in_flight(), ring.room()), (8, 64 - 8));
    let mut done = finish(&mut ring);
    done.sort_by_key(|done| done.tag);
    let errors: Vec<_> = done.iter().map(|done| errno(&done.result)).collect();
    let (bad, invalid, busy) = (Some(libc::EBADF), Some(libc::EINVAL), Some(libc::EBUSY));
    assert_eq!(errors, [bad, bad, invalid, invalid, bad, None, None, busy]);
    assert_eq!(done.iter().filter(|done| done.part.is_some()).count(), 4, "every part came back");
    assert_eq!((ring.in_flight(), ring.room()), (0, 64));
}

#[test]
fn a_read_across_two_registered_ranges_is_a_plain_read() {
    let Some(mut ring) = ring(&small()) else { return };
    let (folder, _) = folder();
    let file = Target::File(write_file(folder.path(), "a", 5, 3 * PAGE));
    let (arena, memory) = Arena::reserve(6 << 20).unwrap();
    arena.populate(0..arena.len()).unwrap();
    for start in [0, 2 << 20] {
        if !registered(&mut ring, &arena, start..start + (2 << 20)) {
            return;
        }
    }
    let ranges =
        [((2 << 20) - PAGE, 2 * PAGE, None), (0, PAGE, Some(0)), (2 << 20, PAGE, Some(1)), (4 << 20, PAGE, None)];
    let mut rest = memory;
    for (tag, (start, len, buffer)) in ranges.into_iter().enumerate() {
        let mut part = rest.split_off(start);
        let behind = part.split_off(len);
        assert_eq!(ring.buffers.place_of(&part).map(|(index, _)| index), buffer, "{part:?}");
        ring.read(&file, 100, part, tag as u64, false);
        for done in finish(&mut ring) {
            assert_eq!(done.result.unwrap() as usize, len);
            let part = done.part.unwrap();
            assert_eq!(part.as_ref(), content(5, 100, len));
            rest.unsplit(part).unwrap();
        }
        rest.unsplit(behind).unwrap();
    }
    assert_eq!(rest.len(), arena.len());
}

#[test]
fn registration_takes_adjacent_ranges_of_one_arena() {
    let Some(mut ring) = ring(&small()) else { return };
    let (arena, mut memory) = Arena::reserve(8 << 20).unwrap();
    let (other, _other_memory) = Arena::reserve(1).unwrap();
    arena.populate(0..arena.len()).unwrap();
    let refused = |result: io::Result<()>| result.is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput);
    assert!(refused(ring.register(&arena, 0..0)));
    assert!(refused(ring.register(&arena, 0..arena.len() + 1)));
    if !registered(&mut ring, &arena, 2 << 20..4 << 20) {
        return;
    }
    assert!(refused(ring.register(&arena, 6 << 20..8 << 20)), "a gap");
    assert!(refused(ring.register(&arena, 0..2 << 20)), "backwards");
    assert!(refused(ring.register(&other, 0..other.len())), "another arena");
    if !registered(&mut ring, &arena, 4 << 20..8 << 20) {
        return;
    }
    assert_eq!(ring.buffers.place_of(&memory.split_to(PAGE)), None, "before the first range");
    drop(ring);
    drop(arena);
    assert!(memory.as_ref().iter().all(|&byte| byte == 0), "the part keeps the memory");
}

#[test]
fn a_wake_from_another_thread_ends_a_long_turn() {
    let Some(mut ring) = ring(&small()) else { return };
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let (_arena, memory) = Arena::reserve(1).unwrap();
    ring.read(&Target::File(Arc::new(reader)), 0, memory, 1, false);
    for want in [1, 5] {
        let waker = ring.waker();
        let start = Instant::now();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            waker.wake();
        });
        let mut done = Vec::new();
        ring.turn(Some(10 * HANG), want, &mut done).unwrap();
        assert!(done.is_empty());
        assert!((Duration::from_millis(40)..HANG).contains(&start.elapsed()), "{:?}", start.elapsed());
        thread.join().unwrap();
    }
}

#[test]
fn no_wake_is_lost() {
    let Some(mut ring) = ring(&small()) else { return };
    const WAKES: u64 = 20_000;
    let sent = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (waker, counter) = (ring.waker(), Arc::clone(&sent));
    let thread = std::thread::spawn(move || {
        for _ in 0..WAKES {
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            waker.wake_by_ref();
        }
    });
    let mut done = Vec::new();
    while sent.load(std::sync::atomic::Ordering::Relaxed) < WAKES {
        let start = Instant::now();
        ring.turn(Some(10 * HANG), 1, &mut done).unwrap();
        assert!(start.elapsed() < HANG, "a wake was lost");
    }
    thread.join().unwrap();
}

#[test]
fn no_turn_is_too_short() {
    turns_take(&mut |_, _| true);
}

#[test]
#[ignore = "slow: measures time"]
fn turns_keep_their_time() {
    // The machine may be busy: most are not too long.
    turns_take(&mut |took, bound| took < bound);
}

/// Turns that wait for nothing, for no time and for some: none is too short, and one of ten is as `is_well` says.
fn turns_take(is_well: &mut dyn FnMut(Duration, Duration) -> bool) {
    let Some(mut ring) = ring(&small()) else { return };
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let (_arena, memory) = Arena::reserve(1).unwrap();
    let mut done = Vec::new();
    ring.turn(None, 1, &mut done).unwrap();
    ring.read(&Target::File(Arc::new(reader)), 0, memory, 1, false);
    for (wait, bound) in [(None, 50), (Some(0), 50), (Some(30), 1000)] {
        let mut took = std::iter::repeat_with(|| {
            let start = Instant::now();
            ring.turn(wait.map(Duration::from_millis), 1, &mut done).unwrap();
            start.elapsed()
        });
        let mut tried = took.by_ref().take(10).inspect(|took| assert!(took.as_millis() >= wait.unwrap_or(0).into()));
        assert!(tried.any(|took| is_well(took, Duration::from_millis(bound))), "{wait:?}");
    }
    assert!(done.is_empty());
}

#[test]
fn completions_come_without_waiting_for_them() {
    let Some(mut ring) = ring(&small()) else { return };
    let (folder, _) = folder();
    let file = Target::File(write_file(folder.path(), "a", 6, PAGE));
    let (_arena, memory) = Arena::reserve(1).unwrap();
    // Forced onto a worker, so that its completion is deferred work of this thread.
    ring.read(&file, 0, memory, 1, true);
    let mut done = Vec::new();
    let end = Instant::now() + HANG;
    while done.is_empty() {
        assert!(Instant::now() < end, "a turn that does not wait must run deferred work");
        ring.turn(None, 1, &mut done).unwrap();
    }
    assert_eq!(*done[0].result.as_ref().unwrap(), PAGE as u32);
}

#[test]
fn cancellation_gives_everything_back() {
    let Some(mut ring) = ring(&small()) else { return };
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let reader = Target::File(Arc::new(reader));
    let (_arena, mut memory) = Arena::reserve(1).unwrap();
    let mut done = Vec::new();
    for round in 0..3 {
        for tag in 0..8 {
            ring.read(&reader, 0, memory.split_to(PAGE), tag, false);
        }
        if round > 0 {
            ring.turn(None, 1, &mut done).unwrap();
        }
        ring.cancel_all();
        ring.cancel_all();
        done.extend(finish(&mut ring));
        assert!(done.iter().all(|done| errno(&done.result) == Some(libc::ECANCELED)));
        assert_eq!(done.drain(..).filter(|done| done.part.is_some()).count(), 8);
    }
    // The wake-up was cancelled with the rest, and works again.
    ring.waker().wake();
    let start = Instant::now();
    ring.turn(Some(10 * HANG), 1, &mut done).unwrap();
    assert!(start.elapsed() < HANG);
}

#[test]
fn dropping_a_ring_cancels_and_waits() {
    let Some(mut ring) = ring(&small()) else { return };
    let (folder, handle) = folder();
    write_file(folder.path(), "a", 7, 1 << 20);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let reader = Arc::new(reader);
    let (arena, mut memory) = Arena::reserve(8 << 20).unwrap();
    arena.populate(0..arena.len()).unwrap();
    if !registered(&mut ring, &arena, 0..arena.len()) {
        return;
    }
    for tag in 0..10 {
        ring.read(&Target::File(Arc::clone(&reader)), 0, memory.split_to(PAGE), tag, tag % 2 == 0);
        ring.open_and_read(open_of(tag as u32, &handle, b"a"), 0, memory.split_to(1 << 16), tag, tag % 3 == 0);
        if tag == 5 {
            ring.turn(None, 1, &mut Vec::new()).unwrap();
        }
    }
    // Had it not been able to, it would have kept them past its bound.
    drop(ring);
    assert_eq!(Arc::strong_count(&reader), 1, "the ring let go of the pipe");
    assert_eq!(Arc::strong_count(&handle), 1, "the ring let go of the folder");
    // Nothing reads from the pipe any more: what is written now stays in it.
    rustix::io::write(&writer, b"x").unwrap();
    assert_eq!(rustix::io::read(&*reader, &mut [0_u8; 4]).unwrap(), 1);
}

#[test]
fn what_does_not_drain_in_time_is_kept() {
    let Some(mut ring) = ring(&small()) else { return };
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let (_arena, memory) = Arena::reserve(1).unwrap();
    ring.read(&Target::File(Arc::new(reader)), 0, memory, 1, false);
    ring.turn(None, 1, &mut Vec::new()).unwrap();
    assert!(!ring.drain(Duration::ZERO));
    assert_eq!(ring.in_flight(), 1, "its record still owns the part");
    assert!(ring.drain(HANG));
}

#[test]
fn memory_that_the_kernel_may_write_to_outlives_the_ring() {
    let Some(ring) = ring(&small()) else { return };
    let mut ring = ManuallyDrop::new(ring);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let (arena, memory) = Arena::reserve(1).unwrap();
    if !registered(&mut ring, &arena, 0..arena.len()) {
        return;
    }
    let address = memory.as_ptr() as usize;
    ring.read(&Target::File(Arc::new(reader)), 0, memory, 1, false);
    ring.turn(None, 1, &mut Vec::new()).unwrap();
    drop(arena);
    ring.close(Duration::ZERO);
    assert!(is_mapped(address), "the ring was the last owner, and its read was in flight");
    // If the kernel has not cancelled the read yet, this lands in the leaked memory; otherwise it is an error. Both are
    // fine.
    let _ = rustix::io::write(&writer, b"x");
}

fn is_mapped(address: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().any(|line| {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        (number(start)..number(end)).contains(&address)
    })
}

#[test]
fn a_turn_that_wants_much_is_content_with_any_after_a_while() {
    let Some(mut ring) = ring(&small()) else { return };
    let (folder, _) = folder();
    let file = Target::File(write_file(folder.path(), "a", 8, PAGE));
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let (_arena, mut memory) = Arena::reserve(1).unwrap();
    ring.read(&Target::File(Arc::new(reader)), 0, memory.split_to(PAGE), 1, false);
    ring.read(&file, 0, memory, 2, false);
    let mut done = Vec::new();
    let start = Instant::now();
    ring.turn(Some(10 * HANG), 2, &mut done).unwrap();
    assert!(start.elapsed() < HANG, "{:?}", start.elapsed());
    assert_eq!(done.iter().map(|done| done.tag).collect::<Vec<_>>(), [2]);
}

#[test]
fn rings_come_and_go_on_one_thread() {
    // A thread has 16 places for registered ring descriptors, and dropping a ring must free its place.
    for _ in 0..40 {
        let Some((mut ring, steps)) = ring_and_steps(&small()) else { return };
        assert!(steps.iter().all(|step| step.feature != Feature::RingFd), "{steps:?}");
        ring.turn(None, 1, &mut Vec::new()).unwrap();
    }
}

#[test]
#[should_panic(expected = "no room")]
fn a_full_ring_takes_no_more() {
    let options = RingOptions { entries: 3, files: 1, ..RingOptions::default() };
    let Some(mut ring) = ring(&options) else { panic!("no room: skipped") };
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let reader = Target::File(Arc::new(reader));
    let (_arena, mut memory) = Arena::reserve(1).unwrap();
    for tag in 0..4 {
        assert_eq!(ring.room(), 3 - tag);
        ring.read(&reader, 0, memory.split_to(1), tag as u64, false);
        ring.turn(None, 1, &mut Vec::new()).unwrap();
    }
}

#[test]
fn options_are_bounded() {
    let most = RingOptions { entries: u32::MAX, files: 0, ..RingOptions::default() };
    let Some(mut ring) = ring(&most) else { return };
    assert_eq!((ring.room(), ring.capacity(), ring.files()), (32766, 32766, 0));
    ring.turn(None, usize::MAX, &mut Vec::new()).unwrap();
    let least = RingOptions { entries: 0, files: 0, ..RingOptions::default() };
    assert!(self::ring(&least).is_none_or(|ring| ring.room() == 1));
}
