//! The thread between the reactor and the consumer of a device's batches: it starts copies as soon as blocks are read,
//! makes columns when batches are complete, and hands them over in order before the device has finished them.

use super::batch::{DeviceBatch, device_error};
use super::host;
use super::lane::Lane;
use super::transforms::Transforms;
use crate::batch::Batch;
use crate::pool::Pool;
use crate::queue::{Bell, Missing, Parker, Receiver, Sender, Starvation};
use crate::reactor::{self, EarlyBlock};
use crate::stats::{Clock, Doing};
use crate::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use uringload_sys::cuda::Pinned;

/// The longest sleep: wake-ups end it, this only bounds what a lost one could cost.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// While the device is at work nobody rings: it is looked at again after this time, and then after twice that, up to
/// `DEVICE_WAIT_MAX`.
const DEVICE_WAIT: Duration = Duration::from_micros(30);
const DEVICE_WAIT_MAX: Duration = Duration::from_millis(1);

/// How often a feeder that ends with an error looks whether the queue has room for it.
const FAIL_WAIT: Duration = Duration::from_millis(5);

/// Where batches go.
pub(super) enum Place {
    /// To these devices, in turn.
    Lanes { lanes: Vec<Lane>, staging: Pool },
    /// Nowhere: columns are made on the host.
    Host,
}

/// What is asked of the thread.
pub(crate) struct Feeder {
    pub(super) place: Place,
    pub(super) transforms: Transforms,
    /// What the devices' memory for batches that were dropped, room in the queue and staging memory ring.
    pub(super) bell: Arc<Bell>,
    pub(super) clock: Clock,
    pub(super) starvation: Starvation,
    /// Behind the lanes, so that it is dropped when no copy is under way.
    pub(super) pinned: Vec<Pinned>,
}

/// Why nothing goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blocked {
    Input,
    Consumer,
    Memory,
}

/// The thread at work.
struct Running<'a> {
    feeder: &'a mut Feeder,
    batches: Receiver<Result<Batch>>,
    early: Receiver<EarlyBlock>,
    out: Sender<Result<DeviceBatch>>,
    parker: Parker,
    /// Number of the batch that comes next.
    number: u64,
    /// It, where it waits for something.
    held: Option<Result<Batch>>,
    closed: bool,
    wait: Duration,
}

impl Feeder {
    /// What wakes the thread.
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Keeps memory registered for as long as copies may read it.
    pub(crate) fn keep(&mut self, pinned: Option<Pinned>) {
        self.pinned.extend(pinned);
    }

    /// Passes batches on until there are no more, the consumer is gone, or a device fails. The reactor sets `read_well`
    /// when it ends as it should, and this thread `ended_well`.
    pub(crate) fn run(
        mut self,
        batches: Receiver<Result<Batch>>,
        early: Receiver<EarlyBlock>,
        out: Sender<Result<DeviceBatch>>,
        (read_well, ended_well): (&AtomicBool, &AtomicBool),
    ) {
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
        match running.run() {
            Ok(()) if running.closed && !read_well.load(Ordering::Acquire) => {
                running.fail(reactor::thread_ended(reactor::THREAD));
            }
            Ok(()) => {}
            Err(error) => running.fail(error),
        }
        // Before the queue is closed, which is when the consumer looks.
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

    /// Waits for what the devices are at, so that all of it is booked when the consumer sees the end.
    fn settle(&mut self) -> Result<()> {
        if let Place::Lanes { lanes, .. } = &mut self.feeder.place {
            self.feeder.clock.switch(Doing::WaitDevice);
            for lane in lanes {
                lane.settle().map_err(|error| device_error("the device failed", error))?;
            }
        }
        Ok(())
    }

    /// Takes what has come, and books what is done.
    fn look(&mut self) -> Result<bool> {
        let mut changed = false;
        while let Ok(block) = self.early.try_recv() {
            self.take_early(block);
            changed = true;
        }
        if let Place::Lanes { lanes, staging } = &mut self.feeder.place {
            changed |= staging.collect();
            for lane in lanes {
                changed |= lane.turn().map_err(|error| device_error("the device failed", error))?;
            }
        }
        if self.held.is_none() && !self.closed {
            match self.batches.try_recv() {
                Ok(item) => self.held = Some(item),
                Err(Missing::Empty) => {}
                Err(Missing::Closed) => self.closed = true,
            }
        }
        Ok(changed)
    }

    fn take_early(&mut self, block: EarlyBlock) {
        // One that comes behind its batch was copied with it.
        if let Place::Lanes { lanes, .. } = &mut self.feeder.place
            && block.batch >= self.number
        {
            let lane = (block.batch % lanes.len() as u64) as usize;
            lanes[lane].take_early(block);
        }
    }

    /// Passes the next batch on, if there is one; else says why not.
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
                // What the device did not do once it will not do again.
                Err(error) if error.kind() == ErrorKind::Device => return Err(error),
                Err(error) => {
                    self.skip();
                    Err(error)
                }
            },
        };
        // Refused only if the consumer is gone, which is seen next: there was room.
        let _ = self.out.try_send(made);
        Ok(None)
    }

    fn make(&mut self, batch: &mut Batch) -> Result<Option<DeviceBatch>> {
        // What was told before the batch was: the batch may know nothing but echoes of it.
        while let Ok(block) = self.early.try_recv() {
            self.take_early(block);
        }
        let Feeder { place, transforms, clock, .. } = &mut *self.feeder;
        match place {
            Place::Host => {
                clock.switch(Doing::Copy);
                host::make(batch, transforms).map(Some)
            }
            Place::Lanes { lanes, staging } => {
                let lane = (self.number % lanes.len() as u64) as usize;
                lanes[lane].put(self.number, batch, transforms, staging)
            }
        }
    }

    /// The next batch is an error.
    fn skip(&mut self) {
        if let Place::Lanes { lanes, .. } = &mut self.feeder.place {
            let lane = (self.number % lanes.len() as u64) as usize;
            lanes[lane].skip(self.number);
        }
        self.number += 1;
    }

    /// Sleeps until something rings, or the device is to be looked at again.
    fn sleep(&mut self, blocked: Blocked) {
        let (mut is_busy, mut is_copying) = (false, false);
        if let Place::Lanes { lanes, .. } = &self.feeder.place {
            is_busy = lanes.iter().any(Lane::is_busy);
            is_copying = lanes.iter().any(Lane::is_copying);
        }
        let mut longest = if is_busy { self.wait } else { LONGEST_WAIT };
        self.wait = (self.wait * 2).min(DEVICE_WAIT_MAX);
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

    /// The second look that listening asks for: what changed before rang for nobody.
    fn has_changed(&mut self, blocked: Blocked) -> bool {
        let waker = self.parker.waker();
        let mut context = Context::from_waker(&waker);
        let mut changed = self.out.is_closed() || (blocked == Blocked::Consumer && !self.out.is_full());
        if let Place::Lanes { lanes, .. } = &self.feeder.place {
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

    /// Bounds the wait of a consumer that waits for memory which it holds itself. Returns how long to wait until then.
    fn starving(&mut self, now: Instant) -> Duration {
        let waits = self.out.is_empty() && self.out.receiver_waits();
        self.feeder.starvation.look(waits, now).unwrap_or_else(|| {
            let _ = self.out.try_send(Err(self.starved()));
            Duration::ZERO
        })
    }

    fn starved(&self) -> Error {
        let (mut all, mut free) = (0, 0);
        if let Place::Lanes { lanes, .. } = &self.feeder.place {
            all = lanes.iter().map(Lane::memory_bytes).sum();
            free = lanes.iter().map(Lane::free_bytes).sum();
        }
        let held = all - free as u64;
        let wait = self.feeder.starvation.after();
        Error::new(
            ErrorKind::Starved,
            format!(
                "no memory of the device for the next batch after {wait:?}: batches that were not dropped, or whose \
                 work is not done, hold {held} of {all} bytes"
            ),
        )
        .beside_batches()
        .with_remedy("drop batches sooner, copy out what is kept, or raise the device's memory limit")
    }

    /// Ends the stream with an error: waits for room in the queue, or until the consumer is gone.
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
