//! Takes batches from a loader so that neither a deadline nor Ctrl-C waits for a slow disk.

use crate::Caller;
use futures_core::Stream;
use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use uringload::batch::Batch;
use uringload::{Delivered, Loader};
use uringload::{Error, Result};

/// The outcome of waiting for a batch.
pub enum Next<T = Batch> {
    /// A batch, or the error in its place.
    Batch(Box<Result<T, Error>>),
    /// The loader has ended.
    End,
    /// The deadline has passed.
    Late,
    /// The user requested to stop.
    Interrupted,
}

/// How long an outage lasts before stderr reports it. It is reported again each time it has lasted twice as long.
const OUTAGE_TOLD: Duration = Duration::from_secs(5);

/// How often to look for an outage while waiting.
const LOOK: Duration = Duration::from_secs(1);

/// A consumer of batches; belongs to the thread that installed the caller.
pub struct Consumer<'a> {
    caller: &'a Caller,
    deadline: Option<Instant>,
    waker: Waker,
    /// The length at which an outage is reported next.
    tell_from: Cell<Duration>,
}

impl<'a> Consumer<'a> {
    /// Creates a consumer that waits until `deadline` at most.
    pub fn new(caller: &'a Caller, deadline: Option<Instant>) -> Consumer<'a> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        Consumer { caller, deadline, waker, tell_from: Cell::new(OUTAGE_TOLD) }
    }

    /// Drops the loader. Reads in flight may take long to end: if the user wants to stop, they are left to the
    /// process's end, and so is the loader.
    pub fn leave<T: Delivered>(&self, loader: Loader<T>) {
        if self.caller.is_set() { loader.leave() } else { drop(loader) }
    }

    /// Waits for the next batch.
    pub fn next<T: Delivered>(&self, loader: &mut Loader<T>) -> Next<T> {
        loop {
            if self.caller.is_set() {
                return Next::Interrupted;
            }
            let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Next::Late;
            }
            match Pin::new(&mut loader.stream()).poll_next(&mut Context::from_waker(&self.waker)) {
                Poll::Ready(Some(batch)) => return Next::Batch(Box::new(batch)),
                Poll::Ready(None) => return Next::End,
                // Woken by the loader, by the signal handler, or spuriously.
                Poll::Pending => thread::park_timeout(left.map_or(LOOK, |left| left.min(LOOK))),
            }
            self.tell(loader);
        }
    }

    /// Reports the outages that the loader waits for.
    fn tell<T: Delivered>(&self, loader: &Loader<T>) {
        match loader.stats().outage() {
            None => self.tell_from.set(OUTAGE_TOLD),
            Some(outage) if outage.lasting >= self.tell_from.get() => {
                self.tell_from.set(outage.lasting * 2);
                self.caller.say(&outage.to_string());
            }
            Some(_) => {}
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
