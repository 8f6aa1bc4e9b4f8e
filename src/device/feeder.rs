//! The thread between the reactor and the consumer of a device's batches. It starts copies as soon as blocks are read,
//! makes columns when batches are complete, and hands batches over in order before the device has finished them.

use super::batch::{DeviceBatch, device_error};
use super::host;
use super::lane::Lane;
use super::transforms::Transforms;
use crate::batch::Batch;
use crate::guard;
use crate::pool::Pool;
use crate::queue::{Bell, NoItem, Parker, Receiver, Sender, Starvation};
use crate::reactor::{self, EarlyBlock};
use crate::stats::{Clock, Doing};
use crate::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use uringload_sys::cuda::Pinned;
use uringload_sys::numa::Near;

/// Name of the thread.
pub(crate) const THREAD: &str = "uringload-device";

/// Longest sleep. Wake-ups end a sleep; this only bounds the cost of a lost one.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Nothing rings while the device works. It is checked again after this time, and then after twice that, up to
/// `DEVICE_WAIT_MAX`: sooner while copies are in progress, since their end lets the next batch be read.
const DEVICE_WAIT: Duration = Duration::from_micros(30);
const COPY_WAIT_MAX: Duration = Duration::from_micros(100);
const DEVICE_WAIT_MAX: Duration = Duration::from_millis(1);

/// How often a feeder that ends with an error checks whether the queue has room for it.
const FAIL_WAIT: Duration = Duration::from_millis(5);

/// Where batches go.
pub(super) enum Destination {
    /// These devices, in turn.
    Lanes { lanes: Vec<Lane>, staging: Pool },
    /// No device: columns are made on the host.
    Host,
}

/// Everything that the thread works with.
pub(crate) struct Feeder {
    pub(super) place: Destination,
    pub(super) transforms: Transforms,
    /// Rung when a dropped batch returns device memory, when the queue has room, and when staging memory is returned.
    pub(super) bell: Arc<Bell>,
    pub(super) clock: Clock,
    pub(super) starvation: Starvation,
    /// The memory node nearest to the devices, where the thread stays.
    pub(super) near: Option<Near>,
    /// Declared after the lanes, so that it is dropped when no copy is in progress.
    pub(super) pinned: Vec<Arc<Pinned>>,
}

/// What the thread is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocked {
    Input,
    Consumer,
    Memory,
}

/// The running thread.
struct Running<'a> {
    feeder: &'a mut Feeder,
    batches: Receiver<Result<Batch>>,
    early: Receiver<EarlyBlock>,
    out: Sender<Result<DeviceBatch>>,
    parker: Parker,
    /// Number of the next batch.
    number: u64,
    /// The next batch, if it has to wait for something.
    held: Option<Result<Batch>>,
    closed: bool,
    wait: Duration,
}

impl Feeder {
    /// The bell that wakes the thread.
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Whether it can use blocks before their batch is complete.
    pub(crate) fn takes_early(&self) -> bool {
        matches!(&self.place, Destination::Lanes { lanes, .. } if lanes.iter().all(Lane::takes_early))
    }

    /// Keeps memory registered while copies may read it.
    pub(crate) fn keep(&mut self, pinned: Option<Arc<Pinned>>) {
        self.pinned.extend(pinned);
    }

    /// Passes batches on until there are no more, the consumer is gone, or a device fails. The reactor sets `read_well`
    /// when it ends normally, and this thread sets `ended_well`.
    pub(crate) fn run(
        mut self,
        batches: Receiver<Result<Batch>>,
        early: Receiver<EarlyBlock>,
        out: Sender<Result<DeviceBatch>>,
        (read_well, ended_well): (&AtomicBool, &AtomicBool),
    ) {
        // It reads and writes the memory that the devices copy from. If it may not choose its processors, it runs
        // anyway.
        let _ = self.near.as_ref().map(Near::stay);
        let context = match &self.place {
            Destination::Lanes { lanes, .. } => lanes.first().map(|lane| lane.context().clone()),
            Destination::Host => None,
        };
        // Saves a call on each use of the device. An error here also occurs at the first use.
        let _current = context.as_ref().map(uringload_sys::cuda::Context::adopt);
        let mut running = Running {
            feeder: &mut self,
            batches,
            early,
            out,
            parker: Parker::default(),
            number: 0,
            held: None,
            closed: false,
            wait: DEVICE_WAIT,
        };
        match guard::thread(THREAD, || running.run()) {
            Ok(()) if running.closed && !read_well.load(Ordering::Acquire) => {
                running.fail(reactor::thread_ended(reactor::THREAD));
            }
            Ok(()) => {}
            Err(error) => running.fail(error),
        }
        // Must come before the queue closes, since the consumer checks it then.
        ended_well.store(true, Ordering::Release);
    }
}

impl Running<'_> {
    fn run(&mut self) -> Result<()> {
        let waker = self.parker.waker();
        self.feeder.bell.set_waker(&waker);
        loop {
            if self.out.is_closed() {
                return Ok(());
            }
            self.feeder.clock.switch(Doing::Submit);
            let mut changed = self.look()?;
            let blocked = match self.pass_on()? {
                Some(blocked) => blocked,
                None => {
                    changed = true;
                    Blocked::Input
                }
            };
            if self.closed && self.held.is_none() {
                return self.settle();
            }
            if changed {
                self.wait = DEVICE_WAIT;
                self.feeder.starvation.end();
            } else {
                self.sleep(blocked);
            }
        }
    }

    /// Waits for the devices' remaining work, so that all of it is accounted for when the consumer sees the end.
    fn settle(&mut self) -> Result<()> {
        if let Destination::Lanes { lanes, .. } = &mut self.feeder.place {
            self.feeder.clock.switch(Doing::WaitDevice);
            for lane in lanes {
                lane.settle().map_err(|error| device_error("the device failed", error))?;
            }
        }
        Ok(())
    }

    /// Takes what has arrived and processes what has finished.
    fn look(&mut self) -> Result<bool> {
        let mut changed = false;
        while let Ok(block) = self.early.try_recv() {
            self.take_early(block);
            changed = true;
        }
        if let Destination::Lanes { lanes, staging } = &mut self.feeder.place {
            changed |= staging.collect();
            for lane in lanes {
                changed |= lane.turn().map_err(|error| device_error("the device failed", error))?;
            }
        }
        if self.held.is_none() && !self.closed {
            match self.batches.try_recv() {
                Ok(item) => self.held = Some(item),
                Err(NoItem::Empty) => {}
                Err(NoItem::Closed) => self.closed = true,
            }
        }
        Ok(changed)
    }

    fn take_early(&mut self, block: EarlyBlock) {
        // A block that arrives after its batch was copied with the batch.
        if let Destination::Lanes { lanes, .. } = &mut self.feeder.place
            && block.batch >= self.number
        {
            let lane = (block.batch % lanes.len() as u64) as usize;
            lanes[lane].take_early(block);
        }
    }

    /// Passes the next batch on. Returns what blocks it, if anything does.
    fn pass_on(&mut self) -> Result<Option<Blocked>> {
        let Some(item) = self.held.take() else { return Ok(Some(Blocked::Input)) };
        if self.out.is_full() {
            self.held = Some(item);
            return Ok(Some(Blocked::Consumer));
        }
        let made = match item {
            Err(error) if error.is_beside_batches() => Err(error),
            Err(error) => {
                self.skip();
                Err(error)
            }
            Ok(mut batch) => match self.make(&mut batch) {
                Ok(Some(made)) => {
                    self.number += 1;
                    Ok(made)
                }
                Ok(None) => {
                    self.held = Some(Ok(batch));
                    return Ok(Some(Blocked::Memory));
                }
                // A device that has failed will fail again.
                Err(error) if error.kind() == ErrorKind::Device => return Err(error),
                Err(error) => {
                    self.skip();
                    Err(error)
                }
            },
        };
        // The queue had room, so a refusal means that the consumer is gone. That is checked next.
        let _ = self.out.try_send(made);
        Ok(None)
    }

    fn make(&mut self, batch: &mut Batch) -> Result<Option<DeviceBatch>> {
        // First take the blocks announced before the batch: the batch may know them only by their echoes.
        while let Ok(block) = self.early.try_recv() {
            self.take_early(block);
        }
        let Feeder { place, transforms, clock, .. } = &mut *self.feeder;
        match place {
            Destination::Host => {
                clock.switch(Doing::Copy);
                host::make(batch, transforms).map(Some)
            }
            Destination::Lanes { lanes, staging } => {
                let lane = (self.number % lanes.len() as u64) as usize;
                lanes[lane].put(self.number, batch, transforms, staging)
            }
        }
    }

    /// Notes that the next batch is an error.
    fn skip(&mut self) {
        if let Destination::Lanes { lanes, .. } = &mut self.feeder.place {
            let lane = (self.number % lanes.len() as u64) as usize;
            lanes[lane].skip(self.number);
        }
        self.number += 1;
    }

    /// Sleeps until something rings, or until the device must be checked again.
    fn sleep(&mut self, blocked: Blocked) {
        let (mut is_busy, mut is_copying) = (false, false);
        if let Destination::Lanes { lanes, .. } = &self.feeder.place {
            is_busy = lanes.iter().any(Lane::is_busy);
            is_copying = lanes.iter().any(Lane::is_copying);
        }
        let mut longest = if is_busy { self.wait } else { LONGEST_WAIT };
        self.wait = (self.wait * 2).min(if is_copying { COPY_WAIT_MAX } else { DEVICE_WAIT_MAX });
        let now = self.feeder.clock.switch(match blocked {
            Blocked::Consumer => Doing::WaitConsumer,
            _ if is_copying => Doing::WaitDevice,
            Blocked::Memory => Doing::WaitMemory,
            Blocked::Input => Doing::WaitInput,
        });
        if blocked == Blocked::Memory {
            longest = longest.min(self.starving(now));
        }
        self.feeder.bell.listen();
        if !self.has_changed(blocked) {
            self.parker.park_timeout(longest);
        }
        self.feeder.bell.silence();
    }

    /// The second check that listening requires: an earlier change woke no thread.
    fn has_changed(&mut self, blocked: Blocked) -> bool {
        let waker = self.parker.waker();
        let mut context = Context::from_waker(&waker);
        let mut changed = self.out.is_closed() || (blocked == Blocked::Consumer && !self.out.is_full());
        if let Destination::Lanes { lanes, .. } = &self.feeder.place {
            changed |= lanes.iter().any(Lane::has_returned);
        }
        if let Poll::Ready(Some(block)) = self.early.poll_recv(&mut context) {
            self.take_early(block);
            changed = true;
        }
        if self.held.is_none() && !self.closed {
            match self.batches.poll_recv(&mut context) {
                Poll::Ready(Some(item)) => self.held = Some(item),
                Poll::Ready(None) => self.closed = true,
                Poll::Pending => return changed,
            }
            changed = true;
        }
        changed
    }

    /// Bounds the wait of a consumer that itself holds the memory it waits for. Returns the time left until the error.
    fn starving(&mut self, now: Instant) -> Duration {
        let waits = self.out.is_empty() && self.out.receiver_waits();
        self.feeder.starvation.look(waits, now).unwrap_or_else(|| {
            let _ = self.out.try_send(Err(self.starved()));
            Duration::ZERO
        })
    }

    fn starved(&self) -> Error {
        let (mut all, mut free, mut captured) = (0, 0, 0);
        if let Destination::Lanes { lanes, .. } = &self.feeder.place {
            all = lanes.iter().map(Lane::memory_bytes).sum();
            free = lanes.iter().map(Lane::free_bytes).sum();
            captured = lanes.iter().map(Lane::captured_bytes).sum();
        }
        let held = all - free as u64;
        let wait = self.feeder.starvation.after();
        let mut what = format!(
            "no memory of the device for the next batch after {wait:?}: batches that were not dropped, or whose work \
             is not done, hold {held} of {all} bytes"
        );
        let mut remedy = "drop batches sooner, copy out what is kept, or raise the device's memory limit";
        if captured > 0 {
            what +=
                &format!("; {captured} of these were dropped and wait for a stream's capture (a CUDA graph) to end");
            remedy = "end the capture, or take no more batches in it than the device's memory limit has room for";
        }
        Error::new(ErrorKind::Starved, what).beside_batches().with_remedy(remedy)
    }

    /// Ends the stream with an error. Waits until the queue has room or the consumer is gone.
    fn fail(&mut self, error: Error) {
        self.feeder.clock.switch(Doing::WaitConsumer);
        let mut item = Err(error);
        while !self.out.is_closed() {
            match self.out.try_send(item) {
                Ok(()) => return,
                Err(back) => item = back,
            }
            std::thread::sleep(FAIL_WAIT);
        }
    }
}
