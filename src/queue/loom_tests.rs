//! Tests every interleaving of a small hand-over. A lost wake-up is a deadlock, which loom reports.

use super::*;
use loom::thread;

#[test]
fn queue_receiver_parks_and_gets_everything_in_order() {
    model(|| {
        let (sender, mut receiver) = bounded(1, Arc::new(Bell::new()));
        let producer = thread::spawn(move || {
            sender.try_send(1).unwrap();
        });
        assert_eq!(receiver.recv(), Some(1));
        assert_eq!(receiver.recv(), None, "closed by drop");
        producer.join().unwrap();
    });
}

#[test]
fn queue_sender_sleeps_for_room_and_is_woken_by_the_next_pop() {
    model(|| {
        let (sender, mut receiver) = bounded(1, Arc::new(Bell::new()));
        let producer = thread::spawn(move || {
            let parker = Parker::default();
            sender.set_waker(&parker.waker());
            for item in 0..2 {
                let mut item = Some(item);
                while let Some(back) = item.take().and_then(|it| sender.try_send(it).err()) {
                    item = Some(back);
                    sender.want_room(true);
                    if sender.is_full() {
                        parker.park();
                    }
                    sender.want_room(false);
                }
            }
        });
        assert_eq!(receiver.recv(), Some(0));
        assert_eq!(receiver.recv(), Some(1));
        assert_eq!(receiver.recv(), None);
        producer.join().unwrap();
    });
}

#[test]
fn queue_sender_that_sleeps_learns_that_the_receiver_is_gone() {
    model(|| {
        let (sender, receiver) = bounded(1, Arc::new(Bell::new()));
        let producer = thread::spawn(move || {
            let parker = Parker::default();
            sender.set_waker(&parker.waker());
            sender.try_send(1).ok();
            while !sender.is_closed() {
                sender.want_room(true);
                if !sender.is_closed() {
                    parker.park();
                }
            }
            assert_eq!(sender.try_send(2), Err(2));
        });
        drop(receiver);
        producer.join().unwrap();
    });
}

#[test]
fn queue_task_is_woken_for_an_item_and_for_the_end() {
    model(|| {
        let (sender, mut receiver) = bounded(2, Arc::new(Bell::new()));
        let producer = thread::spawn(move || {
            sender.try_send(1).unwrap();
        });
        assert_eq!(block_on(&mut receiver), Some(1));
        assert_eq!(block_on(&mut receiver), None);
        producer.join().unwrap();
    });
}

/// Tests every interleaving with at most three preemptions, the bound at which bugs are found according to loom's
/// authors. Without a bound, a run takes hours.
pub(super) fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

/// A minimal executor that sleeps in a parker of its own.
fn block_on(receiver: &mut Receiver<i32>) -> Option<i32> {
    let parker = Parker::default();
    loop {
        match receiver.poll_recv(&mut Context::from_waker(&parker.waker())) {
            Poll::Ready(item) => return item,
            Poll::Pending => parker.park(),
        }
    }
}
