//! Makes columns on the host if there is no device: the same bytes.

use super::batch::{DeviceBatch, DeviceBytes, DeviceColumn, form_of};
use super::transforms::Transforms;
use crate::batch::{Batch, Data, Pieces};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;

/// Makes the columns of a batch.
///
/// # Errors
/// `Internal` for a batch that was not prepared for this; `MemoryLimit` if there is no memory.
pub(super) fn make(batch: &mut Batch, transforms: &Transforms) -> Result<DeviceBatch> {
    let Some(deferred) = batch.deferred.take() else {
        return Err(Error::new(ErrorKind::Internal, "a batch was not prepared: this is a bug of uringload"));
    };
    let mut host = Vec::new();
    let mut columns = Vec::new();
    for (index, column) in std::mem::take(&mut batch.columns).into_iter().enumerate() {
        let pieces = deferred.columns.get(index).and_then(Option::as_ref);
        let made = match pieces {
            Some(pieces) => transforms.on_host(index, &column, batch, pieces)?,
            None => None,
        };
        match (made, form_of(&column)) {
            (Some(made), _) => columns.extend(made),
            (None, Some(form)) => {
                let memory = DeviceBytes::on_host(values(&column.data, pieces));
                columns.push(DeviceColumn { name: column.name, dtype: column.dtype, form, memory });
            }
            (None, None) => host.push(column),
        }
    }
    batch.columns = host;
    Ok(DeviceBatch::on_host(batch.clone(), columns))
}

fn values(data: &Data, pieces: Option<&Pieces>) -> Bytes {
    match (data, pieces) {
        (Data::I64(values), _) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        (_, Some(pieces)) => pieces.collect(),
        // Processed values are already together.
        (Data::Dense { bytes, .. }, None) => bytes.clone(),
        (_, None) => Bytes::new(),
    }
}
