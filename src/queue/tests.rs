//! The queue between real threads, tasks and poll loops.

use super::*;
use std::sync::atomic::AtomicUsize;
use std::task::Wake;
use std::thread;
use uringload_sys::event::wait_readable;

/// Counts its wakes.
#[derive(Default)]
pub(super) struct Count(AtomicUsize);

impl Count {
    pub(super) fn waker() -> (Arc<Count>, Waker) {
        let count = Arc::new(Count::default());
        (Arc::clone(&count), Waker::from(count))
    }
    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn queue<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    bounded(capacity, Arc::new(Bell::new()))
}

/// Sends, sleeping for room like a reactor.
fn send<T>(sender: &Sender<T>, mut item: T) -> Result<(), T> {
    let parker = Parker::default();
    sender.set_waker(&parker.waker());
    loop {
        match sender.try_send(item) {
            Err(back) if !sender.is_closed() => item = back,
            done => return done,
        }
        sender.want_room(true);
        if sender.is_full() && !sender.is_closed() {
            parker.park();
        }
        sender.want_room(false);
    }
}

#[test]
fn keeps_order_and_bound() {
    let (sender, mut receiver) = queue(2);
    assert_eq!(receiver.try_recv(), Err(NoItem::Empty));
    sender.try_send(1).unwrap();
    sender.try_send(2).unwrap();
    assert_eq!((sender.try_send(3), sender.is_full(), receiver.len()), (Err(3), true, 2));
    assert_eq!(receiver.try_recv(), Ok(1));
    sender.try_send(3).unwrap();
    drop(sender);
    assert_eq!((receiver.recv(), receiver.recv(), receiver.recv()), (Some(2), Some(3), None));
    assert_eq!(receiver.try_recv(), Err(NoItem::Closed));
}

#[test]
fn a_million_items_pass_between_sleeping_threads() {
    const ITEMS: u64 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    let (sender, mut receiver) = queue(3);
    let producer = thread::spawn(move || (0..ITEMS).for_each(|item| send(&sender, item).unwrap()));
    for item in 0..ITEMS {
        let got = if item % 2 == 0 { receiver.recv().unwrap() } else { receiver.recv_timeout(Duration::MAX).unwrap() };
        assert_eq!(got, item);
    }
    assert_eq!(receiver.recv(), None);
    producer.join().unwrap();
}

#[test]
fn recv_timeout_ends_in_time_and_leaves_no_waker_armed() {
    let (sender, mut receiver) = queue::<u8>(1);
    let start = Instant::now();
    assert_eq!(receiver.recv_timeout(Duration::from_millis(20)), Err(NoItem::Empty));
    assert!(start.elapsed() >= Duration::from_millis(20));
    drop(sender);
    assert_eq!(receiver.recv_timeout(Duration::MAX), Err(NoItem::Closed));
}

#[test]
fn dropping_the_receiver_drops_items_and_wakes_the_sender() {
    let (sender, receiver) = queue(1);
    let item = Arc::new(());
    sender.try_send(Arc::clone(&item)).unwrap();
    let held = Arc::clone(&item);
    let producer = thread::spawn(move || send(&sender, held));
    drop(receiver);
    assert!(producer.join().unwrap().is_err());
    assert_eq!(Arc::strong_count(&item), 1);
}

#[test]
fn without_a_listener_nobody_is_woken() {
    let (count, waker) = Count::waker();
    let (sender, mut receiver) = queue(1);
    sender.set_waker(&waker);
    sender.try_send(1).unwrap();
    receiver.try_recv().unwrap();
    assert_eq!(count.get(), 0);
    sender.try_send(2).unwrap();
    sender.want_room(true);
    receiver.try_recv().unwrap();
    assert_eq!(count.get(), 1);
}

#[test]
fn poll_recv_wakes_the_last_task_only() {
    let (first_count, first) = Count::waker();
    let (count, second) = Count::waker();
    let (sender, mut receiver) = queue(2);
    assert!(receiver.poll_recv(&mut Context::from_waker(&first)).is_pending());
    assert!(receiver.poll_recv(&mut Context::from_waker(&second)).is_pending());
    sender.try_send(1).unwrap();
    assert_eq!((first_count.get(), count.get()), (0, 1));
    assert_eq!(receiver.poll_recv(&mut Context::from_waker(&second)), Poll::Ready(Some(1)));
    assert!(receiver.poll_recv(&mut Context::from_waker(&second)).is_pending());
    drop(sender);
    assert_eq!(count.get(), 2);
    assert_eq!(receiver.poll_recv(&mut Context::from_waker(&second)), Poll::Ready(None));
}

fn readable<T>(receiver: &Receiver<T>, wait: Duration) -> bool {
    wait_readable(receiver.ready_fd().unwrap(), wait).unwrap()
}

#[test]
fn ready_fd_is_readable_while_an_item_waits_and_after_the_end() {
    const NOW: Duration = Duration::ZERO;
    let (sender, mut receiver) = queue(2);
    sender.try_send(1).unwrap();
    assert!(readable(&receiver, NOW), "made after the item was sent");
    sender.try_send(2).unwrap();
    receiver.try_recv().unwrap();
    assert!(readable(&receiver, NOW), "one item left");
    receiver.try_recv().unwrap();
    assert!(!readable(&receiver, NOW));
    drop(sender);
    assert!(readable(&receiver, NOW));
    assert_eq!(receiver.try_recv(), Err(NoItem::Closed));
    assert!(readable(&receiver, NOW), "stays readable: the end is no event to miss");
}

#[test]
fn a_poll_loop_gets_everything() {
    const ITEMS: u32 = 20_000;
    let (sender, mut receiver) = queue(2);
    let producer = thread::spawn(move || (0..ITEMS).for_each(|item| send(&sender, item).unwrap()));
    let mut next = 0;
    loop {
        assert!(readable(&receiver, Duration::from_secs(60)), "lost at {next}");
        match receiver.try_recv() {
            Ok(item) => assert_eq!(item, next),
            Err(NoItem::Closed) => break,
            Err(NoItem::Empty) => continue,
        }
        next += 1;
    }
    assert_eq!(next, ITEMS);
    producer.join().unwrap();
}

/// Work from the sender wakes the waiting receiver, which does it, in each way to wait.
#[test]
fn errands_are_done_by_who_waits() {
    let (sender, mut receiver) = queue(4);
    let (left, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let waiting = Arc::clone(&left);
    let call = sender.give_errands(move || waiting.load(Ordering::SeqCst) > 0);
    let event = receiver.ready_fd().unwrap().try_clone_to_owned().unwrap();
    let is_ready = || wait_readable(event.as_fd(), Duration::ZERO).unwrap();
    assert!(!is_ready());
    left.fetch_add(2, Ordering::SeqCst);
    call();
    assert!(is_ready(), "there is something to do");
    let mut errand = || {
        let took = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        done.fetch_add(took.into(), Ordering::SeqCst);
        took
    };
    assert_eq!(receiver.recv_timeout_with(Duration::ZERO, &mut errand), Err(NoItem::Empty));
    assert_eq!(done.load(Ordering::SeqCst), 0, "none is begun after the time");
    assert_eq!(receiver.try_recv_with(&mut errand), Err(NoItem::Empty));
    assert_eq!((done.load(Ordering::SeqCst), is_ready()), (2, false));
    let (count, waker) = Count::waker();
    assert!(receiver.poll_recv_with(&mut Context::from_waker(&waker), &mut errand).is_pending());
    left.fetch_add(1, Ordering::SeqCst);
    call();
    assert_eq!(count.get(), 1);
    // An item comes once the work is done, which only the receiver does.
    thread::scope(|scope| {
        scope.spawn(|| {
            while done.load(Ordering::SeqCst) < 10 {
                if left.load(Ordering::SeqCst) == 0 {
                    left.fetch_add(1, Ordering::SeqCst);
                    call();
                }
                thread::yield_now();
            }
            sender.try_send(7).unwrap();
        });
        assert_eq!(receiver.recv_with(&mut errand), Some(7));
    });
    assert!(done.load(Ordering::SeqCst) >= 10);
}
