//! Compares a device's batches with those of an ordinary loader, and makes datasets to load.

use super::content::write_file;
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use uringload::batch::{Batch, Data};
use uringload::dataset::{self, DType, Dataset, Options};
use uringload::device::{DeviceBatch, DeviceForm};

/// 50 files in two classes below `root`, of different lengths, some empty.
pub fn folder(root: &Path, dtype: DType) -> Arc<dyn Dataset> {
    for number in 0..50u64 {
        let class = root.join(if number < 20 { "cat" } else { "dog" });
        std::fs::create_dir_all(&class).expect("a class folder");
        write_file(&class.join(format!("{number:03}")), number % 7 * (number * 56 + 8)).expect("a file");
    }
    let options = Options::new().format("folder").set("labels", true).set("dtype", dtype);
    dataset::open(&[root], &options).expect("a folder")
}

/// A file of 41 records of this shape in `root`.
pub fn records(root: &Path, dtype: DType, shape: &[u64]) -> Arc<dyn Dataset> {
    let record_bytes = shape.iter().product::<u64>() * dtype.size();
    write_file(&root.join("records"), 41 * record_bytes).expect("a file");
    let options = Options::new()
        .format("records")
        .set("record_bytes", record_bytes)
        .set("dtype", dtype)
        .set("shape", shape.to_vec());
    dataset::open(&[root], &options).expect("records")
}

/// The bytes of a column's elements.
pub fn values(data: &Data) -> Bytes {
    match data {
        Data::Dense { bytes, .. } => bytes.clone(),
        Data::Ragged { values, .. } | Data::Padded { values, .. } => values.clone(),
        Data::Packed(packed) => packed.values.clone(),
        Data::I64(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        _ => panic!("no tensor: {data:?}"),
    }
}

/// Checks that both have the same samples, and the same values in each column.
pub fn same(host: &Batch, device: &DeviceBatch) {
    assert_eq!((host.cursor, host.next, &host.ids), (device.host.cursor, device.host.next, &device.host.ids));
    assert_eq!((host.digest, host.bytes()), (device.host.digest, device.bytes()));
    assert_eq!(host.columns.len(), device.columns.len() + device.host.columns.len());
    for column in &device.columns {
        let expected = host.column(&column.name).expect("a column");
        assert_eq!(column.dtype, expected.dtype);
        // Not `assert_eq`, which would print both columns.
        let is_same = column.memory.to_host().expect("bytes") == values(&expected.data);
        assert!(is_same, "column {} of batch {:?}", column.name, host.cursor);
        match (&column.form, &expected.data) {
            (DeviceForm::Dense { shape: a }, Data::Dense { shape: b, .. }) => assert_eq!(a, b),
            (DeviceForm::Dense { shape }, Data::I64(_)) => assert!(shape.is_empty()),
            (DeviceForm::Ragged { offsets: a }, Data::Ragged { offsets: b, .. }) => assert_eq!(a, b),
            (DeviceForm::Padded { length, lengths }, Data::Padded { length: b, lengths: c, .. }) => {
                assert_eq!((length, lengths), (b, c));
            }
            (DeviceForm::Packed(a), Data::Packed(b)) => {
                assert_eq!((a.rows, a.seq_len, &a.segments), (b.rows, b.seq_len, &b.segments));
            }
            (form, data) => panic!("{form:?} for {data:?}"),
        }
        assert_eq!(column.shape().iter().product::<u64>() * column.dtype.size(), column.memory.len() as u64);
    }
}
