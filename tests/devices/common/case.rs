//! Compares a loader to a device with one to the host: the same batches and bytes, whatever the consumer does.

use super::Mock;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use uringload::batch::{Batch, Column, Data, Packed};
use uringload::config::Config;
use uringload::config::{Collate, Device, Gds};
use uringload::dataset::{DType, Dataset, Shape};
use uringload::device::{DeviceBatch, DeviceForm};
use uringload::inspect::GdsSearch;
use uringload::inspect::{images_on_host, tokens_on_host};
use uringload::transform::OnDevice;
use uringload::{DeviceBuilder, DeviceLoader};
use uringload::{Error, ErrorKind, Loader};
use uringload_content::first_difference;
use uringload_sys::cuda::{Context, Stream, StreamRef};

/// What to load, and how.
#[derive(Clone)]
pub struct Case {
    pub dataset: Arc<dyn Dataset>,
    pub config: Config,
    pub transforms: Vec<(String, OnDevice)>,
    pub devices: u32,
    /// The memory limit of each device.
    pub memory_limit: Option<u64>,
    /// Whether files are read straight into device memory, and where cuFile is.
    pub gds: (Gds, GdsSearch),
}

/// What the consumer does with batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumer {
    /// Copies them to the host.
    Look,
    /// Reads them in a stream of its own for `time`, and drops them once it has more than `held`, while the stream may
    /// still read them.
    Train { time: Duration, held: usize },
    /// Drops them.
    Drop,
}

impl Case {
    pub fn new(dataset: &Arc<dyn Dataset>, config: Config) -> Case {
        let gds = (Gds::Off, GdsSearch::default());
        Case { dataset: Arc::clone(dataset), config, transforms: Vec::new(), devices: 1, memory_limit: None, gds }
    }

    /// The loader to the mock's devices.
    pub fn builder(&self, mock: &Mock) -> DeviceBuilder {
        let device = |index| {
            let device = Device::cuda(index).library(mock.path()).gds(self.gds.0).gds_search(self.gds.1.clone());
            self.memory_limit.iter().fold(device, |device, &bytes| device.memory_limit(bytes))
        };
        let builder = Loader::builder(Arc::clone(&self.dataset)).config(self.config.clone());
        let builder = builder.devices((0..self.devices).map(device));
        self.transforms.iter().fold(builder, |builder, (name, what)| builder.on_device(name.clone(), what.clone()))
    }

    pub fn build(&self, mock: &Mock) -> DeviceLoader {
        self.builder(mock).build().expect("a loader")
    }

    /// The same on the host, without transforms. Columns of one kind stay together, as on a device.
    pub fn host(&self) -> Loader {
        let mut config = self.config.clone();
        if config.collate == Collate::Auto {
            config.collate = Collate::Ragged;
        }
        for (name, _) in &self.transforms {
            config.collate_columns.push((name.clone(), Collate::Views));
        }
        Loader::builder(Arc::clone(&self.dataset)).config(config).build().expect("a loader to the host")
    }

    /// Compares every item of the loader with the host's, up to `count`. Returns how many there were.
    ///
    /// # Panics
    /// On any difference.
    pub fn check(&self, mock: &Mock, consumer: Consumer, count: usize) -> usize {
        let mut loader = self.build(mock);
        let came = self.check_loader(mock, consumer, count, &mut loader, &mut self.host());
        if came < count {
            assert!(loader.next().is_none(), "it goes on after its end");
        }
        came
    }

    /// Like `check`, from the position of both loaders.
    pub fn check_loader(
        &self,
        mock: &Mock,
        consumer: Consumer,
        count: usize,
        loader: &mut DeviceLoader,
        host: &mut Loader,
    ) -> usize {
        let mut trainer = Trainer::new(mock, self);
        let mut came = 0;
        while came < count {
            let item = loader.next();
            let wanted = host.next();
            match (item, wanted) {
                (None, None) => break,
                (Some(Ok(batch)), Some(Ok(wanted))) => {
                    assert_eq!(batch.device(), Some(came as u32 % self.devices), "in turn");
                    self.check_host_part(&batch, &wanted);
                    match consumer {
                        Consumer::Look => check_columns(&self.wanted(&wanted), &forms(&batch), |index| {
                            batch.columns[index].memory.to_host().expect("no error")
                        }),
                        Consumer::Train { time, held } => trainer.train(batch, &wanted, time, held),
                        Consumer::Drop => {}
                    }
                }
                (Some(Err(error)), Some(Err(wanted))) => assert_eq!(error.to_string(), wanted.to_string()),
                (item, wanted) => panic!("item {came}: {item:?} and not {wanted:?}"),
            }
            came += 1;
        }
        trainer.finish();
        came
    }

    /// Compares the parts of a batch that the host knows.
    fn check_host_part(&self, batch: &DeviceBatch, wanted: &Batch) {
        let host = &batch.host;
        assert_eq!((&host.ids, host.cursor, host.next), (&wanted.ids, wanted.cursor, wanted.next));
        assert_eq!((&host.padding, host.digest, host.lost), (&wanted.padding, wanted.digest, wanted.lost));
        let failed = |batch: &Batch| batch.failed.iter().map(|failed| (failed.id, failed.position)).collect::<Vec<_>>();
        assert_eq!(failed(host), failed(wanted));
        let views = |column: &&Column| matches!(column.data, Data::Views(_)) && !self.has_transform(&column.name);
        let wanted: Vec<&Column> = wanted.columns.iter().filter(views).collect();
        assert_eq!(host.columns.len(), wanted.len());
        for (column, wanted) in host.columns.iter().zip(wanted) {
            let (Data::Views(came), Data::Views(views)) = (&column.data, &wanted.data) else { panic!("no views") };
            assert_eq!((&column.name, came), (&wanted.name, views));
        }
    }

    fn has_transform(&self, name: &str) -> bool {
        self.transforms.iter().any(|(other, _)| other == name)
    }

    /// The columns that a batch should have on a device. The bytes are copies: the host loader's own are its memory.
    fn wanted(&self, batch: &Batch) -> Vec<(Form, Bytes)> {
        let columns = batch.columns.iter().flat_map(|column| self.expected(batch, column));
        columns.map(|(form, bytes)| (form, Bytes::copy_from_slice(&bytes))).collect()
    }

    /// What a column of the host becomes on a device.
    fn expected(&self, batch: &Batch, column: &Column) -> Vec<(Form, Bytes)> {
        let form = |name: &str, dtype, text: String| Form { name: name.to_owned(), dtype, text };
        if let Some((_, transform)) = self.transforms.iter().find(|(name, _)| *name == column.name) {
            return self.transformed(batch, column, transform);
        }
        let (text, bytes) = match &column.data {
            Data::Views(_) => return Vec::new(),
            Data::I64(values) => {
                let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                (dense(&[]), bytes)
            }
            Data::Dense { shape, bytes } => (dense(shape), bytes.clone()),
            Data::Ragged { values, offsets } => (format!("ragged {offsets:?}"), values.clone()),
            Data::Padded { length, values, lengths } => (format!("padded {length} {lengths:?}"), values.clone()),
            Data::Packed(rows) => (packed(rows), rows.values.clone()),
            other => panic!("{other:?} is not known here"),
        };
        vec![(form(&column.name, column.dtype, text), bytes)]
    }

    fn transformed(&self, batch: &Batch, column: &Column, transform: &OnDevice) -> Vec<(Form, Bytes)> {
        let form = |name: &str, dtype, shape: &[u64]| Form { name: name.to_owned(), dtype, text: dense(shape) };
        let field = self.dataset.schema().fields.iter().find(|field| field.name == column.name).expect("a field");
        let Data::Views(views) = &column.data else { panic!("values one by one") };
        let samples: Vec<&[u8]> = views.iter().map(|view| &view[..]).collect();
        match transform {
            OnDevice::Images(images) => {
                let Shape::Fixed(shape) = &field.shape else { panic!("images of one size") };
                let (height, width) = (shape[0] as u32, shape[1] as u32);
                let (layout, epoch) = (images.layout(field).expect("images"), batch.cursor.epoch);
                let params: Vec<_> =
                    batch.ids.iter().map(|&id| images.params(self.config.seed, epoch, id, height, width)).collect();
                let bytes = images_on_host(&layout, &params, &samples).expect("images");
                let [height, width, channels] = [layout.height, layout.width, layout.channels].map(u64::from);
                let shape = if layout.channels_last { [height, width, channels] } else { [channels, height, width] };
                vec![(form(&column.name, layout.dtype, &shape), Bytes::from(bytes))]
            }
            OnDevice::Tokens(tokens) => {
                let (ids, labels) = tokens_on_host(tokens, field.dtype, &samples).expect("tokens");
                let longest = samples.iter().map(|sample| sample.len() as u64 / field.dtype.size()).max();
                let shape = [tokens.row_elements(longest.unwrap_or(0))];
                let mut made = vec![(form(&column.name, DType::I64, &shape), Bytes::from(ids))];
                made.extend(labels.map(|labels| (form("labels", DType::I64, &shape), Bytes::from(labels))));
                made
            }
            other => panic!("{other:?} is not known here"),
        }
    }
}

/// Compares the columns of a batch; `read` returns their bytes.
fn check_columns(wanted: &[(Form, Bytes)], forms: &[Form], mut read: impl FnMut(usize) -> Bytes) {
    let names: Vec<&Form> = wanted.iter().map(|(form, _)| form).collect();
    assert_eq!(forms.iter().collect::<Vec<_>>(), names);
    for (index, (form, bytes)) in wanted.iter().enumerate() {
        let came = read(index);
        let at = first_difference(&came, bytes);
        assert!(at.is_none(), "wrong at byte {at:?}: {form:?}");
    }
}

/// A column of a batch, without its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    name: String,
    dtype: DType,
    text: String,
}

fn dense(shape: &[u64]) -> String {
    format!("dense {shape:?}")
}

fn packed(rows: &Packed) -> String {
    let Packed { rows, seq_len, segments, .. } = rows;
    format!("packed {rows} {seq_len} {segments:?}")
}

fn forms(batch: &DeviceBatch) -> Vec<Form> {
    let form = |column: &uringload::device::DeviceColumn| {
        let text = match &column.form {
            DeviceForm::Dense { shape } => dense(shape),
            DeviceForm::Ragged { offsets } => format!("ragged {offsets:?}"),
            DeviceForm::Padded { length, lengths } => format!("padded {length} {lengths:?}"),
            DeviceForm::Packed(rows) => packed(rows),
            other => panic!("{other:?} is not known here"),
        };
        let elements = column.shape().iter().product::<u64>();
        assert!(elements * column.dtype.size() == column.memory.len() as u64 || column.memory.is_empty());
        Form { name: column.name.clone(), dtype: column.dtype, text }
    };
    batch.columns.iter().map(form).collect()
}

/// A trainer: a stream on each device, and the reads in it.
struct Trainer<'a> {
    mock: &'a Mock,
    case: &'a Case,
    streams: HashMap<u32, (Context, Stream)>,
    held: VecDeque<DeviceBatch>,
    reads: VecDeque<Read>,
}

/// A batch that is being read.
struct Read {
    wanted: Vec<(Form, Bytes)>,
    forms: Vec<Form>,
    device: u32,
    answers: Vec<super::Answer>,
}

/// Most batches that are read but not compared yet.
const READS_MAX: usize = 8;

impl<'a> Trainer<'a> {
    fn new(mock: &'a Mock, case: &'a Case) -> Trainer<'a> {
        Trainer { mock, case, streams: HashMap::new(), held: VecDeque::new(), reads: VecDeque::new() }
    }

    fn train(&mut self, batch: DeviceBatch, wanted: &Batch, time: Duration, held: usize) {
        let device = batch.device().expect("on a device");
        let (context, stream) = self.streams.entry(device).or_insert_with(|| {
            let context = batch.context().expect("on a device").clone();
            let stream = Stream::new(&context).expect("a stream");
            (context, stream)
        });
        let stream = reference(stream);
        batch.wait_on(stream).expect("no error");
        let read = |column: &uringload::device::DeviceColumn| {
            let memory = &column.memory;
            self.mock.consume_bytes(context, stream, memory.address(), memory.len(), time)
        };
        let answers = batch.columns.iter().map(read).collect();
        let wanted = self.case.wanted(wanted);
        self.reads.push_back(Read { wanted, forms: forms(&batch), device, answers });
        self.held.push_back(batch);
        while self.held.len() > held {
            self.held.pop_front();
        }
        if self.reads.len() > READS_MAX {
            self.look();
        }
    }

    /// Compares the oldest read.
    fn look(&mut self) {
        let Some(read) = self.reads.pop_front() else { return };
        let (context, _) = &self.streams[&read.device];
        let bytes = |index: usize| {
            let bytes = self.mock.consumed(context, &read.answers[index]);
            Bytes::from(bytes.expect("what the trainer has read"))
        };
        check_columns(&read.wanted, &read.forms, bytes);
    }

    fn finish(&mut self) {
        while !self.reads.is_empty() {
            self.look();
        }
        self.held.clear();
    }
}

pub fn reference(stream: &Stream) -> StreamRef {
    // SAFETY: whatever gets the reference is dropped before the stream, or the stream is kept to the end of the test.
    unsafe { stream.stream_ref() }
}

/// Whether an error says that the device failed.
pub fn is_device(error: &Error) -> bool {
    error.kind() == ErrorKind::Device
}
