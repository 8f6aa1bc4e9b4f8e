//! The bounded queue between the reactor and the consumer: a lock-free ring, with wake-ups that are never lost.
//!
//! The ring is `crossbeam_queue::ArrayQueue`. Two [`Bell`]s surround it: the receiver listens for items, the sender for
//! room. While neither sleeps, sending and receiving take no lock and make no system call.

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
use std::time::{Duration, Instant};
use uringload_sys::EventFd;

pub use bell::Bell;
pub(crate) use starvation::Starvation;

/// Creates a queue of at most `capacity` items. The sender sleeps on the bell `room` when the queue is full; other
/// things may ring it as well.
///
/// # Panics
/// If `capacity` is 0.
pub fn bounded<T>(capacity: usize, room: Arc<Bell>) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        items: ArrayQueue::new(capacity),
        sender_gone: AtomicBool::new(false),
        receiver_gone: AtomicBool::new(false),
        cancelled: std::sync::atomic::AtomicBool::new(false),
        asked: std::sync::atomic::AtomicBool::new(false),
        room,
        ready: Bell::new(),
        ready_fd: OnceLock::new(),
        has_errands: OnceLock::new(),
    });
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared, parker: Parker::default() })
}

/// The sending side. Dropping it closes the queue; items already in it can still be received.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Sender<T> {
    /// Sends an item and wakes the receiver if it waits.
    ///
    /// # Errors
    /// Returns the item if the queue is full or the receiver is gone.
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

    /// Number of items waiting to be received.
    pub fn len(&self) -> usize {
        self.shared.items.len()
    }

    /// Whether no item waits to be received.
    pub fn is_empty(&self) -> bool {
        self.shared.items.is_empty()
    }

    /// Maximum number of items.
    pub fn capacity(&self) -> usize {
        self.shared.items.capacity()
    }

    /// Whether the receiver is gone, so that nothing more can be sent.
    pub fn is_closed(&self) -> bool {
        self.shared.receiver_gone.load(Ordering::Acquire) || self.shared.is_cancelled()
    }

    /// Whether the receiver has asked for an item and got none since, however it waits: asleep, as a task, on the
    /// descriptor, or by asking again. This is a hint, and may change at any moment.
    pub fn receiver_waits(&self) -> bool {
        self.shared.asked.load(Ordering::Relaxed)
    }

    /// Lets the receiving side work for the sender while it waits: `has_errands` returns whether there is work. Call
    /// the returned function whenever there is new work. At most once.
    pub fn give_errands(&self, has_errands: impl Fn() -> bool + Send + Sync + 'static) -> Call
    where
        T: Send + 'static,
    {
        let _ = self.shared.has_errands.set(Box::new(has_errands));
        let shared = Arc::clone(&self.shared);
        Arc::new(move || shared.announce())
    }

    /// Declares that the sending side is about to sleep for room (true) or is awake (false). After `true`, it must
    /// check `is_full` and `is_closed` once more before sleeping.
    #[cfg(test)]
    pub fn want_room(&self, wanted: bool) {
        if wanted {
            self.shared.room.listen();
        } else {
            self.shared.room.silence();
        }
    }

    /// Sets the waker of the sending side. Call it before `want_room(true)`, and again when the sender sleeps in
    /// something else.
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

/// The receiving side. Dropping it drops the items left in the queue and informs the sender.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// Where `recv` sleeps. Kept so that waiting allocates nothing.
    parker: Parker,
}

/// Wakes the receiving side: see [`Sender::give_errands`].
pub type Call = Arc<dyn Fn() + Send + Sync>;

/// Does one piece of the sender's work on the receiving side, if there is any, and returns whether there was.
pub type Errand<'a> = dyn FnMut() -> bool + 'a;

/// Why there is no item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoItem {
    /// There is none yet.
    Empty,
    /// There will be none: the sender is gone, and everything it sent was received.
    Closed,
}

impl<T> Receiver<T> {
    /// Takes an item if there is one. Never waits.
    ///
    /// # Errors
    /// [`NoItem`] says whether an item may still come.
    pub fn try_recv(&mut self) -> Result<T, NoItem> {
        self.try_recv_with(&mut || false)
    }

    /// As [`try_recv`](Receiver::try_recv), but does work until there is an item.
    ///
    /// # Errors
    /// As `try_recv`.
    pub fn try_recv_with(&mut self, errand: &mut Errand<'_>) -> Result<T, NoItem> {
        loop {
            let item = self.shared.take();
            if !matches!(item, Err(NoItem::Empty)) || !errand() {
                self.shared.settle_ready_fd();
                return item;
            }
        }
    }

    /// Takes an item, waiting for one if necessary. Returns `None` if the sender is gone and everything it sent was
    /// received.
    pub fn recv(&mut self) -> Option<T> {
        self.recv_with(&mut || false)
    }

    /// Takes an item. While there is none, does work, and waits if there is none either. Returns `None` if the sender
    /// is gone and everything it sent was received.
    pub fn recv_with(&mut self, errand: &mut Errand<'_>) -> Option<T> {
        loop {
            match self.try_recv_with(errand) {
                Ok(item) => return Some(item),
                Err(NoItem::Closed) => return None,
                Err(NoItem::Empty) => {}
            }
            let waker = self.parker.waker();
            match self.poll(&waker, errand) {
                Poll::Ready(item) => return item,
                Poll::Pending => self.parker.park(),
            }
        }
    }

    /// Takes an item, waiting for one for at most `wait`.
    ///
    /// # Errors
    /// `NoItem::Empty` if the time is up, `NoItem::Closed` as in `try_recv`.
    pub fn recv_timeout(&mut self, wait: Duration) -> Result<T, NoItem> {
        self.recv_timeout_with(wait, &mut || false)
    }

    /// Takes an item, waiting for one for at most `wait`. Work may begin during that time.
    ///
    /// # Errors
    /// `NoItem::Empty` if the time is up, `NoItem::Closed` as in `try_recv`.
    pub fn recv_timeout_with(&mut self, wait: Duration, errand: &mut Errand<'_>) -> Result<T, NoItem> {
        let start = Instant::now();
        let errand: &mut Errand<'_> = &mut || start.elapsed() < wait && errand();
        loop {
            match self.try_recv_with(errand) {
                Err(NoItem::Empty) => {}
                done => return done,
            }
            let left = wait.saturating_sub(start.elapsed());
            if left.is_zero() {
                self.shared.ready.silence();
                return Err(NoItem::Empty);
            }
            let waker = self.parker.waker();
            match self.poll(&waker, errand) {
                Poll::Ready(item) => return item.ok_or(NoItem::Closed),
                Poll::Pending => self.parker.park_timeout(left),
            }
        }
    }

    /// Takes an item, or arranges for the task of `context` to be woken when there is one (or the queue is closed).
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.poll_recv_with(context, &mut || false)
    }

    /// Takes an item, or arranges for the task of `context` to be woken when there is one, when the queue is closed, or
    /// when there is work. Work that is already there is done first.
    pub fn poll_recv_with(&mut self, context: &mut Context<'_>, errand: &mut Errand<'_>) -> Poll<Option<T>> {
        match self.try_recv_with(errand) {
            Ok(item) => Poll::Ready(Some(item)),
            Err(NoItem::Closed) => Poll::Ready(None),
            Err(NoItem::Empty) => self.poll(context.waker(), errand),
        }
    }

    /// A descriptor that is readable whenever there is an item or work, or the queue is closed, for `poll(2)` and
    /// similar. It may be readable without reason: call `try_recv` until it returns `Empty`. Created on the first call;
    /// from then on each item costs a system call.
    ///
    /// # Errors
    /// `EMFILE` or `ENFILE` if no descriptor is left.
    pub fn ready_fd(&self) -> io::Result<BorrowedFd<'_>> {
        if self.shared.ready_fd.get().is_none() {
            // Only this side sets it, but through a `&Receiver` that other threads may share. The first one stays.
            let _ = self.shared.ready_fd.set(EventFd::new()?);
            self.shared.settle_ready_fd();
        }
        match self.shared.ready_fd.get() {
            Some(event) => Ok(event.as_fd()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// A handle that ends both sides from anywhere.
    pub fn canceller(&self) -> Canceller
    where
        T: Send + 'static,
    {
        let (set, seen) = (Arc::clone(&self.shared), Arc::clone(&self.shared));
        Canceller { cancel: Arc::new(move || set.cancel()), is_cancelled: Arc::new(move || seen.is_cancelled()) }
    }

    /// Whether both sides were ended by a canceller.
    pub fn is_cancelled(&self) -> bool {
        self.shared.is_cancelled()
    }

    /// Items that are ready.
    pub fn len(&self) -> usize {
        self.shared.items.len()
    }

    /// Whether no item is ready.
    pub fn is_empty(&self) -> bool {
        self.shared.items.is_empty()
    }

    /// Listens with `waker`, then checks once more.
    fn poll(&mut self, waker: &Waker, errand: &mut Errand<'_>) -> Poll<Option<T>> {
        self.shared.ready.set_waker(waker);
        self.shared.ready.listen();
        let item = match self.try_recv_with(errand) {
            Ok(item) => Some(item),
            Err(NoItem::Closed) => None,
            Err(NoItem::Empty) => return Poll::Pending,
        };
        self.shared.ready.silence();
        Poll::Ready(item)
    }
}

/// Ends both sides of a queue: see [`Receiver::canceller`].
#[derive(Clone)]
pub struct Canceller {
    cancel: Arc<dyn Fn() + Send + Sync>,
    is_cancelled: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Canceller {
    /// Ends them: nothing more is received or sent.
    pub fn cancel(&self) {
        (self.cancel)();
    }

    /// Whether they were ended this way.
    pub fn is_cancelled(&self) -> bool {
        (self.is_cancelled)()
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
    /// A canceller ended both sides. It rings both bells after setting this, and their fences make it visible.
    cancelled: std::sync::atomic::AtomicBool,
    /// The receiver's last check found nothing. No thread waits for this flag to change, so loom need not model it.
    asked: std::sync::atomic::AtomicBool,
    /// The sender listens on it.
    room: Arc<Bell>,
    /// The receiver listens on it.
    ready: Bell,
    ready_fd: OnceLock<EventFd>,
    /// Whether the receiving side has work.
    has_errands: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl<T> Shared<T> {
    fn has_errands(&self) -> bool {
        self.has_errands.get().is_some_and(|has_errands| has_errands())
    }

    fn cancel(&self) {
        self.cancelled.store(true, std::sync::atomic::Ordering::Release);
        self.announce();
        self.room.ring();
    }

    /// Announces to the receiver that there is an item, or that no more will come.
    fn announce(&self) {
        self.ready.ring();
        // `ring` begins with a fence. So either this sees the descriptor that the receiver created, or the receiver's
        // check after creating it sees what was sent.
        if let Some(event) = self.ready_fd.get() {
            event.signal();
        }
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(std::sync::atomic::Ordering::Acquire)
    }

    fn take(&self) -> Result<T, NoItem> {
        if self.is_cancelled() {
            return Err(NoItem::Closed);
        }
        let mut item = self.items.pop();
        if item.is_none() {
            if !self.sender_gone.load(Ordering::Acquire) {
                self.asked.store(true, Ordering::Relaxed);
                return Err(NoItem::Empty);
            }
            // Everything sent before the sender left is visible now.
            item = self.items.pop();
        }
        let item = item.ok_or(NoItem::Closed)?;
        self.asked.store(false, Ordering::Relaxed);
        self.room.ring();
        Ok(item)
    }

    /// Makes the descriptor, if there is one, readable exactly if the queue has an item, is closed, or there is work.
    fn settle_ready_fd(&self) {
        let Some(event) = self.ready_fd.get() else { return };
        let is_closed = || self.sender_gone.load(Ordering::Acquire) || self.is_cancelled();
        let settled = || !self.items.is_empty() || is_closed() || self.has_errands();
        if !settled() {
            event.drain();
        }
        // The drain may have consumed the signal of an item sent just before it, so check again afterwards.
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
