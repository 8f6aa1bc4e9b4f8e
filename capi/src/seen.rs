//! Batches and their columns, wherever their values are: on the host, or on a device.

use bytes::Bytes;
use std::ffi::c_void;
use std::ptr;
use uringload::batch::{Batch, Column, Data, Packed};
use uringload::dataset::DType;
use uringload::device::{DeviceBatch, DeviceColumn, DeviceForm};
use uringload::sys::dlpack::Tensor;
use uringload::sys::{StreamRef, bytes_of};
use uringload::{Error, ErrorKind, Result};

/// A batch of either kind of loader.
pub(crate) enum Whole {
    Host(Batch),
    Device(DeviceBatch),
}

/// One of its columns: those on the device come first, then those that stay on the host, such as keys.
pub(crate) struct Seen<'a> {
    pub(crate) name: &'a str,
    pub(crate) dtype: DType,
    pub(crate) form: Form<'a>,
    /// The elements; null if there are none, or if each value is separate.
    pub(crate) values: *const c_void,
    /// Their number.
    pub(crate) elements: u64,
    /// The number of the GPU that they are on; `None` on the host.
    pub(crate) device: Option<u32>,
}

/// The form of values.
pub(crate) enum Form<'a> {
    /// One shape each.
    Dense(&'a [u64]),
    /// End to end, with offsets.
    Ragged(&'a [u64]),
    /// In rows of one length, with the number of the sample's elements in each.
    Padded { length: u64, lengths: &'a [u64] },
    /// Pieces of samples in rows of one length.
    Packed(&'a Packed),
    /// Each one separate.
    Views(&'a [Bytes]),
}

impl Whole {
    /// The place in the order, the samples, and those that failed.
    pub(crate) fn host(&self) -> &Batch {
        match self {
            Whole::Host(batch) => batch,
            Whole::Device(batch) => &batch.host,
        }
    }

    fn on_device(&self) -> &[DeviceColumn] {
        match self {
            Whole::Host(_) => &[],
            Whole::Device(batch) => &batch.columns,
        }
    }

    pub(crate) fn columns(&self) -> impl Iterator<Item = Seen<'_>> {
        let on_device = self.on_device().iter().map(Seen::on_device);
        on_device.chain(self.host().columns.iter().map(Seen::on_host))
    }

    pub(crate) fn column(&self, index: usize) -> Option<Seen<'_>> {
        let on_device = self.on_device();
        match on_device.get(index) {
            Some(column) => Some(Seen::on_device(column)),
            None => self.host().columns.get(index - on_device.len()).map(Seen::on_host),
        }
    }

    /// The column as a tensor; `None` if each value is separate. On a device it is ready for the streams that the batch
    /// was made ready for.
    ///
    /// # Errors
    /// `Internal` for a column that does not have the length of its shape, which no loader makes.
    pub(crate) fn tensor(&self, index: usize) -> Result<Option<Tensor>> {
        let on_device = self.on_device();
        let Some(column) = on_device.get(index) else {
            let column = self.host().columns.get(index - on_device.len());
            return Ok(column.and_then(Column::to_dlpack));
        };
        let made = Tensor::new(column.lend(None)?, uringload::inspect::element_type(column.dtype), &column.shape());
        let wrong = || Error::new(ErrorKind::Internal, "a column is not as long as its shape says");
        made.map(Some).ok_or_else(wrong)
    }

    /// Makes work put into `stream` from now on wait for the columns.
    ///
    /// # Errors
    /// `InvalidArgument` for a stream of another device, `Device` for errors of the driver.
    pub(crate) fn wait_on(&self, stream: StreamRef) -> Result<()> {
        match self {
            Whole::Host(_) => Ok(()),
            Whole::Device(batch) => batch.wait_on(stream),
        }
    }

    /// Waits here until the columns are filled.
    ///
    /// # Errors
    /// `Device` for errors of the driver.
    pub(crate) fn wait(&self) -> Result<()> {
        match self {
            Whole::Host(_) => Ok(()),
            Whole::Device(batch) => batch.wait(),
        }
    }
}

impl<'a> Seen<'a> {
    fn on_host(column: &'a Column) -> Seen<'a> {
        let (form, values): (Form<'a>, &[u8]) = match &column.data {
            Data::Dense { shape, bytes } => (Form::Dense(shape), bytes),
            Data::Ragged { values, offsets } => (Form::Ragged(offsets), values),
            Data::Padded { length, values, lengths } => (Form::Padded { length: *length, lengths }, values),
            Data::Packed(packed) => (Form::Packed(packed), &packed.values),
            Data::I64(values) => (Form::Dense(&[]), bytes_of(values)),
            Data::Views(views) => (Form::Views(views), &[]),
            _ => (Form::Views(&[]), &[]),
        };
        let (dtype, address) = (column.dtype, values.as_ptr().cast());
        Seen::new((&column.name, dtype), form, (address, values.len()), None)
    }

    fn on_device(column: &'a DeviceColumn) -> Seen<'a> {
        let form = match &column.form {
            DeviceForm::Dense { shape } => Form::Dense(shape),
            DeviceForm::Ragged { offsets } => Form::Ragged(offsets),
            DeviceForm::Padded { length, lengths } => Form::Padded { length: *length, lengths },
            DeviceForm::Packed(packed) => Form::Packed(packed),
            _ => Form::Views(&[]),
        };
        // An address of the device, or of this process.
        let address = ptr::without_provenance(column.memory.address() as usize);
        let address = column.memory.as_host().map_or(address, |bytes| bytes.as_ptr().cast());
        Seen::new((&column.name, column.dtype), form, (address, column.memory.len()), column.memory.device())
    }

    fn new(
        (name, dtype): (&'a str, DType),
        form: Form<'a>,
        (address, bytes): (*const c_void, usize),
        device: Option<u32>,
    ) -> Seen<'a> {
        let values = if bytes == 0 { ptr::null() } else { address };
        Seen { name, dtype, form, values, elements: bytes as u64 / dtype.size(), device }
    }

    /// The shape of all elements as one tensor, without dimensions if there is none.
    pub(crate) fn shape(&self) -> Vec<u64> {
        match &self.form {
            Form::Dense(shape) => {
                let each = shape.iter().product::<u64>();
                [&[self.elements.checked_div(each).unwrap_or(0)][..], shape].concat()
            }
            Form::Ragged(_) => vec![self.elements],
            Form::Padded { length, lengths } => vec![lengths.len() as u64, *length],
            Form::Packed(packed) => vec![packed.rows, packed.seq_len],
            Form::Views(_) => Vec::new(),
        }
    }
}
