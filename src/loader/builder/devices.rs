//! A builder for batches that go to devices.

use super::{Builder, TELLS};
use crate::collate::Collation;
use crate::config::{Collate, Device};
use crate::dataset::DType;
use crate::device::{self, Transforms};
use crate::guard;
use crate::loader::DeviceLoader;
use crate::loader::run::{self, Feeding, Job};
use crate::stage::{OnGpus, Staying};
use crate::transform::{Map, OnDevice};
use crate::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Sets up a [`DeviceLoader`]; made by [`Builder::device`]. It has only what a device does: all other settings are
/// those of the [`Builder`], before `device` is called.
#[derive(Clone)]
#[must_use = "call build"]
pub struct DeviceBuilder {
    pub(super) builder: Builder,
    pub(super) devices: Vec<Device>,
    pub(super) transforms: Vec<(String, OnDevice)>,
}

impl DeviceBuilder {
    /// Has the device make something of a column: tensors of pixels ([`Images`](crate::transform::Images)), or ids of
    /// tokens ([`Tokens`](crate::transform::Tokens)). Once per column at most. If the loader's threads make something
    /// of the column before ([`Builder::transform`]), it applies to that: decode on the host, crop and scale on the
    /// device.
    pub fn on_device(mut self, column: impl Into<String>, made: impl Into<OnDevice>) -> DeviceBuilder {
        self.transforms.push((column.into(), made.into()));
        self
    }

    /// Checks all settings, opens the devices and the engine, and starts to read.
    ///
    /// # Errors
    /// As [`Builder::build`]. Also `Unavailable` if a GPU that was chosen by number, or
    /// [`Gds::On`](crate::config::Gds::On), is not available; `MemoryLimit` if a batch does not fit into the GPU's
    /// memory; `InvalidArgument` for a transform that does not fit its column; `Device` for errors of the driver.
    pub fn build(self) -> Result<DeviceLoader> {
        let dataset = Arc::clone(&self.builder.dataset);
        guard::whole(&*dataset, TELLS, || self.build_here())
    }

    fn build_here(self) -> Result<DeviceLoader> {
        let DeviceBuilder { mut builder, devices, transforms } = self;
        if builder.pin.is_some() {
            let what = "pin is for batches that stay on the host, and these go to a device";
            return Err(Error::new(ErrorKind::InvalidArgument, what)
                .with_remedy("leave pin out: the memory that a device copies from is pinned anyway"));
        }
        if devices.is_empty() {
            let what = "no device is given";
            return Err(Error::new(ErrorKind::InvalidArgument, what)
                .with_remedy("name a device, or build a loader for the host"));
        }
        if builder.config.collate == Collate::Auto {
            // Where it takes no copy of the host's, a tensor is better than slices that cannot be followed there.
            builder.config.collate = Collate::Ragged;
        }
        builder.config.nvjpeg_share = device::nvjpeg_share(&devices)?;
        builder.config.nvjpeg_threads =
            if builder.config.nvjpeg_share > 0.0 { devices.len() * device::NVJPEG_THREADS } else { 0 };
        let columns = builder.columns_made()?;
        let mut transforms = Transforms::new(&transforms, &mut builder.config, &columns)?;
        let mut opened = device::open(&devices)?;
        // What is mixed are tensors, on the host.
        if opened.context().is_some() && builder.mix.is_none() {
            let stays = builder.config.nvjpeg_share > 0.0;
            transforms.take_elements(&mut builder.maps, &mut builder.config, &columns, stays);
        }
        let on_failed = builder.on_failed.clone();
        let mut job = builder.check(Collation::deferred)?;
        let host_bytes = (job.limits.pool_bytes - job.limits.reserve_bytes) as u64;
        job.nvjpeg = on_gpus(&job, &mut opened, &devices, &transforms)?;
        job.gds = choose_gds(&job, &mut opened, &devices)?;
        if job.gds.is_some() {
            job.keep_nothing();
        }
        if devices.iter().any(|device| device.memory_limit.is_some()) {
            job.try_nothing();
        }
        let (mut batch, starved_after) = (job.limits.batch, job.config.starved_after);
        if let Some(mixer) = job.maps.as_ref().and_then(|maps| maps.mixer.as_ref()) {
            batch.labels = batch.samples.saturating_mul(mixer.labels().1).saturating_mul(DType::F32.size());
        }
        let prepare = |opened: &mut device::Opened, gds: Option<&device::Loading>| {
            let wanted = (&**job.order.dataset(), &*job.collation, transforms.clone());
            device::prepare(opened, &devices, wanted, (batch, host_bytes, gds), starved_after, &job.stats)
        };
        let (feeder, routes, queue_capacity) = match prepare(&mut opened, job.gds.as_ref()) {
            Err(error) if job.gds.is_some() => {
                device::give_up(&mut opened, &devices, error)?;
                job.gds = None;
                prepare(&mut opened, None)?
            }
            prepared => prepared?,
        };
        (job.context, job.near) = (opened.context().cloned(), opened.near().cloned());
        let fallbacks = std::mem::take(&mut opened.fallbacks);
        let feeding = Feeding { feeder, routes, queue_capacity, fallbacks };
        let mut loader = run::start_on_devices(job, feeding)?;
        loader.on_failed = on_failed;
        Ok(loader)
    }
}

/// What decodes on the devices, where that was asked for.
fn on_gpus(
    job: &Job,
    opened: &mut device::Opened,
    devices: &[Device],
    transforms: &Transforms,
) -> Result<Option<OnGpus>> {
    let share = job.config.nvjpeg_share;
    if share == 0.0 {
        return Ok(None);
    }
    let maps = job.maps.as_ref().filter(|maps| maps.columns.iter().any(|(_, map)| map.chain().is_some()));
    let Some(maps) = maps else {
        let what = "nvJPEG is to decode images, and no column of images is decoded";
        return Err(Error::new(ErrorKind::InvalidArgument, what)
            .with_remedy("give the images a chain such as \"random_resized_crop(224)\", or leave nvjpeg out"));
    };
    let decoders = device::decoders(opened, devices, maps.memory.share());
    let made = job.collation.mapped_fields().iter().zip(&maps.columns);
    let pixels =
        |field: usize, map: &Map| if transforms.takes_pixels(field) { map.output().bytes() as usize } else { 0 };
    let columns: Vec<usize> = made.map(|((field, _), (_, map))| pixels(*field, map)).collect();
    // Images that are mixed are mixed on the host.
    let stays = !decoders.is_empty() && maps.mixer.is_none() && columns.iter().any(|&bytes| bytes > 0);
    let sample = Staying::sample_bytes(&columns) as u64;
    let room = if stays { device::room_for_pixels(opened, sample, job.limits.batch.samples) } else { None };
    let staying = room.map(|room| Staying { room, columns });
    Ok(Some(OnGpus { decoders, share, staying }))
}

/// Looks whether files are to be read straight into the device's memory.
fn choose_gds(job: &Job, opened: &mut device::Opened, devices: &[Device]) -> Result<Option<device::Loading>> {
    let asked = device::Asked {
        config: &job.config,
        order: &job.order,
        collation: &job.collation,
        batch: job.limits.batch,
        pool_bytes: job.limits.pool_bytes,
    };
    device::choose(opened, devices, &asked)
}
