//! Cancelling one operation while the others go on.

use super::*;

/// The read end of a pipe without data, and what keeps it open.
fn empty_pipe() -> (Target, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    (Target::File(Arc::new(reader.into())), writer)
}

#[test]
fn one_read_is_cancelled_by_its_tag() {
    let Some(mut ring) = ring(&small()) else { return };
    for force_async in [false, true] {
        let (_arena, mut memory) = Arena::reserve(1 << 20).unwrap();
        let (silent, _open) = empty_pipe();
        let (speaking, mut writer) = empty_pipe();
        ring.read(&silent, 0, memory.split_to(100), 7, force_async);
        ring.read(&speaking, 0, memory.split_to(100), 8, force_async);
        let mut done = Vec::new();
        ring.turn(Some(Duration::from_millis(20)), 1, &mut done).unwrap();
        assert!(done.is_empty(), "{done:?}");

        ring.cancel(7);
        ring.cancel(99);
        let end = Instant::now() + HANG;
        while done.is_empty() {
            assert!(Instant::now() < end, "the read is not cancelled");
            ring.turn(Some(Duration::from_millis(100)), 1, &mut done).unwrap();
        }
        let [cancelled] = &done[..] else { panic!("{done:?}") };
        assert_eq!((cancelled.tag, cancelled.kind), (7, Operation::Read));
        assert!(matches!(errno(&cancelled.result), Some(libc::ECANCELED | libc::EINTR)), "{cancelled:?}");
        assert_eq!(cancelled.part.as_ref().map(Part::len), Some(100), "its memory is back");

        writer.write_all(b"abc").unwrap();
        let done = finish(&mut ring);
        assert_eq!((done[0].tag, *done[0].result.as_ref().unwrap()), (8, 3), "the other one was left alone");
    }
}

/// A FIFO without a writer holds up its open, and the linked read has not begun.
#[test]
fn an_open_that_waits_is_cancelled_with_its_read() {
    let Some(mut ring) = ring(&small()) else { return };
    let (folder, handle) = folder();
    let path = std::ffi::CString::new(folder.path().join("fifo").to_str().unwrap()).unwrap();
    // SAFETY: the path is a string that ends in NUL and lives until the call returns.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    let (_arena, mut memory) = Arena::reserve(1).unwrap();
    // By a worker: the submitting thread would first open it with O_NONBLOCK, which does not wait.
    ring.open_and_read(open_of(0, &handle, b"fifo"), 0, memory.split_to(100), 5, true);
    let mut done = Vec::new();
    ring.turn(Some(Duration::from_millis(20)), 1, &mut done).unwrap();
    assert!(done.is_empty(), "{done:?}");
    ring.cancel(5);
    let done = finish(&mut ring);
    assert_eq!(done.len(), 2);
    assert!(done.iter().all(|done| done.tag == 5 && done.result.is_err()), "{done:?}");
    assert!(done.iter().any(|done| done.part.as_ref().is_some_and(|part| part.len() == 100)));
    assert_eq!(ring.room(), ring.capacity());
}

/// A cancellation that comes before the worker waits in its open, or between the open and its read, is not lost.
#[test]
fn an_operation_is_cancelled_at_any_moment() {
    let Some(mut ring) = ring(&small()) else { return };
    let (folder, handle) = folder();
    let path = std::ffi::CString::new(folder.path().join("fifo").to_str().unwrap()).unwrap();
    // SAFETY: the path is a string that ends in NUL and lives until the call returns.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    let (_arena, mut memory) = Arena::reserve(1 << 20).unwrap();
    let mut done = Vec::new();
    for round in 0..200_u64 {
        // With a silent writer the open ends, and the read waits.
        let path = folder.path().join("fifo");
        let writer = (round % 2 == 1).then(|| File::options().read(true).write(true).open(path).unwrap());
        ring.open_and_read(open_of(0, &handle, b"fifo"), 0, memory.split_to(100), round, true);
        let end = Instant::now() + HANG;
        let begin = Instant::now();
        while done.is_empty() && (writer.is_some() || begin.elapsed() < Duration::from_micros(round)) {
            ring.turn(None, 1, &mut done).unwrap();
        }
        ring.cancel(round);
        while done.len() < 2 {
            assert!(Instant::now() < end, "round {round}: {done:?}");
            ring.turn(Some(HANG), 1, &mut done).unwrap();
        }
        assert!(done.iter().all(|done| done.tag == round), "{done:?}");
        assert!(done.iter().any(|done| done.part.is_some() && done.result.is_err()), "{done:?}");
        done.clear();
        drop(writer);
    }
}

/// An operation that ends by itself takes its pending cancellation with it.
#[test]
fn a_cancellation_does_not_meet_what_comes_later() {
    let Some(mut ring) = ring(&small()) else { return };
    let (folder, _) = folder();
    let file = Target::File(write_file(folder.path(), "a", 1, 10_000));
    let (_arena, mut memory) = Arena::reserve(8 << 20).unwrap();
    for round in 0..200_u64 {
        for tag in 0..4 {
            ring.read(&file, 0, memory.split_to(5000), tag, false);
        }
        (0..4).for_each(|tag| ring.cancel(tag));
        let done = finish(&mut ring);
        assert_eq!(done.len(), 4, "round {round}");
        let whole = |done: &Completion| matches!(done.result, Ok(5000));
        assert!(done.iter().all(|done| whole(done) || errno(&done.result) == Some(libc::ECANCELED)), "{done:?}");
        ring.read(&file, 0, memory.split_to(5000), 9, false);
        assert!(whole(&finish(&mut ring)[0]), "round {round}: this one was not to be cancelled");
    }
}
