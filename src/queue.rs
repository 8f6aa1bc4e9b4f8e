//! The bounded hand-over between the reactor and the consumer: a lock-free ring, and wake-ups that are never lost.
//!
//! The ring is `crossbeam_queue::ArrayQueue`. Around it stand two [`Bell`]s: the receiver listens for items, the sender
//! for room. While neither sleeps, sending and receiving take no lock and make no system call.

mod bell;
mod parker;
mod primitives;
mod starvation;

pub(crate) use parker::Parker;
use primitives::{ArrayQueue, AtomicBool, Ordering, fence};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
#[cfg(test)]
use std::time::{Duration, Instant};
use uringload_sys::EventFd;

pub use bell::Bell;
pub(crate) use starvation::Starvation;

/// A queue of at most `capacity` items. `room` is the bell on which the sending side sleeps when the queue is full; it
/// may be one that other things ring as well.
///
/// # Panics
/// If `capacity` is 0.
pub fn bounded<T>(capacity: usize, room: Arc<Bell>) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        items: ArrayQueue::new(capacity),
        sender_gone: AtomicBool::new(false),
        receiver_gone: AtomicBool::new(false),
        asked: std::sync::atomic::AtomicBool::new(false),
        room,
        ready: Bell::new(),
        ready_fd: OnceLock::new(),
    });
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared, parker: Parker::default() })
}

/// The side that puts items in. Dropping it closes the queue: what lies in it is still received.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Sender<T> {
    /// Puts an item in and wakes the receiver if it waits.
    ///
    /// # Errors
    /// Gives the item back if the queue is full or the receiver is gone.
    pub fn try_send(&self, item: T) -> Result<(), T> {
        if self.is_closed() {
            return Err(item);
        }
        self.shared.items.push(item)?;
        self.shared.announce();
        Ok(())
    }

    /// Whether there is no room.
    pub fn is_full(&self) -> bool {
        self.shared.items.is_full()
    }

    /// Items that wait to be received.
    pub fn len(&self) -> usize {
        self.shared.items.len()
    }

    /// Whether no item waits to be received.
    pub fn is_empty(&self) -> bool {
        self.shared.items.is_empty()
    }

    /// Items that the queue holds at most.
    pub fn capacity(&self) -> usize {
        self.shared.items.capacity()
    }

    /// Whether the receiver is gone, so that nothing more can be sent.
    pub fn is_closed(&self) -> bool {
        self.shared.receiver_gone.load(Ordering::Acquire)
    }

    /// Whether the receiver has asked for an item and got none since, however it waits: asleep, as a task, on the
    /// descriptor, or by asking again. A hint: it may change at any moment.
    pub fn receiver_waits(&self) -> bool {
        self.shared.asked.load(Ordering::Relaxed)
    }

    /// Declares that the sending side is about to sleep for room (true), or that it is awake (false). After `true` it
    /// must look at `is_full` and `is_closed` once more before it sleeps.
    #[cfg(test)]
    pub fn want_room(&self, wanted: bool) {
        if wanted {
            self.shared.room.listen();
        } else {
            self.shared.room.silence();
        }
    }

    /// How to wake the sending side. Set it before `want_room(true)`, and again when the thing it sleeps in is
    /// replaced.
    #[cfg(test)]
    pub fn set_waker(&self, waker: &Waker) {
        self.shared.room.set_waker(waker);
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.shared.sender_gone.store(true, Ordering::Release);
        self.shared.announce();
    }
}

/// The side that takes items out. Dropping it gives the items left back to their owners (drops them) and tells the
/// sender.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// Where `recv` sleeps; kept, so that waiting allocates nothing.
    parker: Parker,
}

/// Why there is no item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// None is there yet.
    Empty,
    /// None will ever come: the sender is gone and all it sent was received.
    Closed,
}

impl<T> Receiver<T> {
    /// Takes an item if there is one; never waits.
    ///
    /// # Errors
    /// [`Missing`] says whether one may still come.
    pub fn try_recv(&mut self) -> Result<T, Missing> {
        let item = self.shared.take();
        self.shared.settle_ready_fd();
        item
    }

    /// Takes an item, waiting for one. `None`: the sender is gone and all it sent was received.
    pub fn recv(&mut self) -> Option<T> {
        loop {
            match self.try_recv() {
                Ok(item) => return Some(item),
                Err(Missing::Closed) => return None,
                Err(Missing::Empty) => {}
            }
            let waker = self.parker.waker();
            match self.poll(&waker) {
                Poll::Ready(item) => return item,
                Poll::Pending => self.parker.park(),
            }
        }
    }

    /// Takes an item, waiting for one for at most `wait`.
    ///
    /// # Errors
    /// `Missing::Empty` if the time has passed, `Missing::Closed` as in `try_recv`.
    #[cfg(test)]
    pub fn recv_timeout(&mut self, wait: Duration) -> Result<T, Missing> {
        let start = Instant::now();
        loop {
            match self.try_recv() {
                Err(Missing::Empty) => {}
                done => return done,
            }
            let left = wait.saturating_sub(start.elapsed());
            if left.is_zero() {
                self.shared.ready.silence();
                return Err(Missing::Empty);
            }
            let waker = self.parker.waker();
            match self.poll(&waker) {
                Poll::Ready(item) => return item.ok_or(Missing::Closed),
                Poll::Pending => self.parker.park_timeout(left),
            }
        }
    }

    /// Takes an item, or has the task of `context` woken when one is there (or the queue is closed).
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        match self.try_recv() {
            Ok(item) => Poll::Ready(Some(item)),
            Err(Missing::Closed) => Poll::Ready(None),
            Err(Missing::Empty) => self.poll(context.waker()),
        }
    }

    /// A descriptor that is readable whenever an item is there or the queue is closed, for `poll(2)` and its kin. It
    /// may be readable once too often: call `try_recv` until it is `Empty`. Made on the first call; from then on each
    /// item costs a system call.
    ///
    /// # Errors
    /// `EMFILE` or `ENFILE` where no descriptor is left.
    pub fn ready_fd(&self) -> io::Result<BorrowedFd<'_>> {
        if self.shared.ready_fd.get().is_none() {
            // Only this side sets it, through a `&Receiver` that other threads may share: the first one stays.
            let _ = self.shared.ready_fd.set(EventFd::new()?);
            self.shared.settle_ready_fd();
        }
        match self.shared.ready_fd.get() {
            Some(event) => Ok(event.as_fd()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Items that are ready.
    pub fn len(&self) -> usize {
        self.shared.items.len()
    }

    /// Whether no item is ready.
    pub fn is_empty(&self) -> bool {
        self.shared.items.is_empty()
    }

    /// Listens with `waker`, then looks once more.
    fn poll(&mut self, waker: &Waker) -> Poll<Option<T>> {
        self.shared.ready.set_waker(waker);
        self.shared.ready.listen();
        let item = match self.try_recv() {
            Ok(item) => Some(item),
            Err(Missing::Closed) => None,
            Err(Missing::Empty) => return Poll::Pending,
        };
        self.shared.ready.silence();
        Poll::Ready(item)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.receiver_gone.store(true, Ordering::Release);
        // An item sent at this very moment stays in the ring until the sender is dropped too.
        while self.shared.items.pop().is_some() {}
        self.shared.room.ring();
    }
}

struct Shared<T> {
    items: ArrayQueue<T>,
    sender_gone: AtomicBool,
    receiver_gone: AtomicBool,
    /// The receiver's last look found nothing. Nobody waits for a change of it, so that loom need not look at it.
    asked: std::sync::atomic::AtomicBool,
    /// The sender listens.
    room: Arc<Bell>,
    /// The receiver listens.
    ready: Bell,
    ready_fd: OnceLock<EventFd>,
}

impl<T> Shared<T> {
    /// Tells the receiver that an item is there, or that no more will come.
    fn announce(&self) {
        self.ready.ring();
        // `ring` begins with a fence: either the descriptor that the receiver made is seen here, or what was sent is
        // seen by the look that the receiver takes after making it.
        if let Some(event) = self.ready_fd.get() {
            event.signal();
        }
    }

    fn take(&self) -> Result<T, Missing> {
        let mut item = self.items.pop();
        if item.is_none() {
            if !self.sender_gone.load(Ordering::Acquire) {
                self.asked.store(true, Ordering::Relaxed);
                return Err(Missing::Empty);
            }
            // What was sent before the sender went is visible now.
            item = self.items.pop();
        }
        let item = item.ok_or(Missing::Closed)?;
        self.asked.store(false, Ordering::Relaxed);
        self.room.ring();
        Ok(item)
    }

    /// Makes the descriptor, if there is one, readable exactly if the queue has an item or is closed.
    fn settle_ready_fd(&self) {
        let Some(event) = self.ready_fd.get() else { return };
        let settled = || !self.items.is_empty() || self.sender_gone.load(Ordering::Acquire);
        if !settled() {
            event.drain();
        }
        // An item sent before the drain may have lost its signal to it, so the last look comes after.
        fence(Ordering::SeqCst);
        if settled() {
            event.signal();
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("len", &self.len()).field("capacity", &self.capacity()).finish()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
