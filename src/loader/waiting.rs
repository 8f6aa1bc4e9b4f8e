//! Ways to wait for a batch besides the iterator, and to end a wait from another thread.

use super::{Delivered, Loader, run_errand};
use crate::queue::{Canceller, NoItem, Receiver};
use crate::{Error, Result};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The batches of a loader as a [`futures_core::Stream`]: see [`Loader::stream`].
#[derive(Debug)]
pub struct Batches<'a, T: Delivered = crate::batch::Batch>(&'a mut Loader<T>);

/// Ends a loader from another thread: see [`Loader::cancel_handle`].
#[derive(Clone)]
pub struct CancelHandle(Canceller);

impl CancelHandle {
    /// Ends the loader: a waiting caller gets the end at once, as do later callers, and nothing more is read. Batches
    /// that were delivered stay valid, and so does the loader's [state](Loader::state).
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether the loader was ended this way.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

impl fmt::Debug for CancelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelHandle").field("is_cancelled", &self.is_cancelled()).finish()
    }
}

impl<T: Delivered> Loader<T> {
    /// The batches as a stream, to be awaited by any runtime: the loader reads on its own thread and wakes the task.
    /// Giving up a wait, as `select!` does, loses no batch, and neither does dropping the stream.
    ///
    /// ```
    /// # use futures_util::StreamExt;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # (0..4).for_each(|n| std::fs::write(folder.path().join(format!("{n}.dat")), [n; 100]).unwrap());
    /// # let dataset = uringload::dataset::open(&[folder.path()], &uringload::dataset::Options::new())?;
    /// # let mut loader = uringload::Loader::builder(dataset).batch_size(2).build()?;
    /// # let batches = async {
    /// let mut batches = loader.stream();
    /// while let Some(batch) = batches.next().await {
    ///     println!("{} samples", batch?.len());
    /// }
    /// # uringload::Result::Ok(())
    /// # };
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(batches)?;
    /// # Ok::<(), uringload::Error>(())
    /// ```
    pub fn stream(&mut self) -> Batches<'_, T> {
        Batches(self)
    }

    /// The next batch, waiting at most `wait` for it. `Ok(None)` if none came in that time, or none is left (see
    /// [`is_empty`](Loader::is_empty)).
    ///
    /// # Errors
    /// The error that takes the place of the batch.
    pub fn next_timeout(&mut self, wait: Duration) -> Result<Option<T>> {
        if self.finished {
            return Ok(None);
        }
        if let Some(error) = self.forked() {
            return Err(error);
        }
        if self.batches.as_ref().is_some_and(Receiver::is_empty) {
            self.begin_wait();
        }
        let Some(batches) = self.batches.as_mut() else { return Ok(None) };
        let (errands, clock) = (&mut self.errands, &mut self.clock);
        match batches.recv_timeout_with(wait, &mut || run_errand(errands, clock)) {
            Ok(received) => self.hand_out(Some(received)).transpose(),
            Err(NoItem::Closed) => self.hand_out(None).transpose(),
            // It still waits, for the statistics.
            Err(NoItem::Empty) => Ok(None),
        }
    }

    /// Ends the loader as dropping it does, and completes when its threads have ended: for tasks, which must not block.
    /// Dropping waits for the reads in flight. Batches stay valid.
    pub async fn close(self) {
        let closed = Arc::new(Mutex::new((false, None::<Waker>)));
        let lock = |closed: &Mutex<(bool, Option<Waker>)>| {
            let mut closed = closed.lock().unwrap_or_else(PoisonError::into_inner);
            closed.0 = true;
            closed.1.take()
        };
        let told = Arc::clone(&closed);
        let close = move || {
            drop(self);
            if let Some(waker) = lock(&told) {
                waker.wake();
            }
        };
        // If the thread could not start, the loader was dropped here.
        if std::thread::Builder::new().name("uringload-close".into()).spawn(close).is_err() {
            return;
        }
        poll_fn(|context| {
            let mut closed = closed.lock().unwrap_or_else(PoisonError::into_inner);
            if closed.0 {
                return Poll::Ready(());
            }
            closed.1 = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// A handle that ends the loader from any thread, even while another one waits in `next`.
    ///
    /// # Errors
    /// `InvalidArgument` in a forked child.
    pub fn cancel_handle(&self) -> Result<CancelHandle> {
        match &self.batches {
            Some(batches) if !self.is_forked() => Ok(CancelHandle(batches.canceller())),
            _ => Err(Error::new(crate::ErrorKind::InvalidArgument, "this loader belongs to another process")
                .with_remedy("build a loader in the child")),
        }
    }
}

impl<T: Delivered> futures_core::Stream for Batches<'_, T> {
    type Item = Result<T>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        let loader = &mut *self.get_mut().0;
        if loader.finished {
            return Poll::Ready(None);
        }
        if let Some(error) = loader.forked() {
            return Poll::Ready(Some(Err(error)));
        }
        let polled = match &mut loader.batches {
            Some(batches) => {
                let (errands, clock) = (&mut loader.errands, &mut loader.clock);
                batches.poll_recv_with(context, &mut || run_errand(errands, clock))
            }
            None => Poll::Ready(None),
        };
        match polled {
            Poll::Pending => {
                loader.begin_wait();
                Poll::Pending
            }
            Poll::Ready(received) => Poll::Ready(loader.hand_out(received)),
        }
    }
}

impl<T: Delivered> fmt::Debug for Loader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader")
            .field("dataset", &self.book.dataset())
            .field("cursor", &self.book.cursor())
            .field("remaining", &self.remaining)
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}
