//! Takes batches from a loader so that neither a deadline nor Ctrl-C waits for a slow disk.

use super::interrupt::Interrupt;
use futures_core::Stream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;
use uringload::Loader;
use uringload::batch::Batch;
use uringload::internal::Delivered;
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

/// A consumer of batches; belongs to the thread that installed the interrupt.
pub struct Consumer<'a> {
    interrupt: &'a Interrupt,
    deadline: Option<Instant>,
    waker: Waker,
}

impl<'a> Consumer<'a> {
    /// Creates a consumer that waits until `deadline` at most.
    pub fn new(interrupt: &'a Interrupt, deadline: Option<Instant>) -> Consumer<'a> {
        Consumer { interrupt, deadline, waker: Waker::from(Arc::new(Unpark(thread::current()))) }
    }

    /// Waits for the next batch.
    pub fn next<T: Delivered>(&self, loader: &mut Loader<T>) -> Next<T> {
        loop {
            if self.interrupt.is_set() {
                return Next::Interrupted;
            }
            let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Next::Late;
            }
            match Pin::new(&mut *loader).poll_next(&mut Context::from_waker(&self.waker)) {
                Poll::Ready(Some(batch)) => return Next::Batch(Box::new(batch)),
                Poll::Ready(None) => return Next::End,
                // Woken by the loader, by the signal handler, or spuriously.
                Poll::Pending => left.map_or_else(thread::park, thread::park_timeout),
            }
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
