//! IDX: images with their labels, numbers of every width, and headers that lie.

use bytes::Bytes;
use std::path::Path;
use uringload::dataset::{self, DType, Dataset, Options, Sample, SampleId, Shape, Value};
use uringload::{Error, ErrorKind};

/// An IDX file: its magic, its dimensions and its numbers.
fn write(path: &Path, dtype: u8, shape: &[u32], numbers: &[u8]) {
    let mut bytes = vec![0, 0, dtype, shape.len() as u8];
    shape.iter().for_each(|dimension| bytes.extend(dimension.to_be_bytes()));
    std::fs::write(path, [&bytes, numbers].concat()).unwrap();
}

/// The value of each column, as the loader would have them.
fn sample(dataset: &dyn Dataset, id: u64) -> Vec<Value> {
    let (mut spans, mut sample) = (Vec::new(), Sample::default());
    dataset.spans(SampleId(id), &mut spans);
    let file = std::fs::read(dataset.files().path(spans[0].file)).unwrap();
    let (start, len) = (spans[0].offset as usize, spans[0].len as usize);
    dataset.parse(SampleId(id), &[Bytes::from(file).slice(start..start + len)], &mut sample).unwrap();
    sample.values
}

fn error(folder: &Path) -> Error {
    dataset::open(&[folder], &Options::new().format("idx")).expect_err("it is refused")
}

#[test]
fn images_come_with_their_labels() {
    let folder = tempfile::tempdir().unwrap();
    for (part, count) in [("t10k", 2_u8), ("train", 3)] {
        let pixels: Vec<u8> = (0..count * 6).map(|pixel| pixel + 100).collect();
        write(&folder.path().join(format!("{part}-images-idx3-ubyte")), 8, &[count.into(), 2, 3], &pixels);
        let labels: Vec<u8> = (0..count).map(|label| 9 - label).collect();
        write(&folder.path().join(format!("{part}-labels-idx1-ubyte")), 8, &[count.into()], &labels);
    }
    let all = Options::new().set("split", "all");
    assert!(error(folder.path()).to_string().contains("there are several splits"));
    let both = dataset::open(&[folder.path()], &all).unwrap();
    assert_eq!(both.format(), "idx");
    assert_eq!((both.len(), &both.index().shards[..], both.index().bytes), (5, &[2, 5][..], 30));
    assert_eq!(both.schema().fields[0].shape, Shape::Fixed(vec![2, 3]));
    assert_eq!(both.index().plain_field, Some(0), "a part of an image can be read alone");
    let second = Bytes::from_static(&[106, 107, 108, 109, 110, 111]);
    assert_eq!(sample(&*both, 3), [Value::Bytes(second.clone()), Value::I64(8)]);

    let train = dataset::open(&[folder.path().join("train-*")], &Options::new()).unwrap();
    assert_eq!(sample(&*train, 1), [Value::Bytes(second), Value::I64(8)]);
    assert_ne!(train.fingerprint(), both.fingerprint());
    std::fs::remove_file(folder.path().join("t10k-labels-idx1-ubyte")).unwrap();
    let error = dataset::open(&[folder.path()], &all).unwrap_err();
    assert!(error.to_string().contains("only some files have labels"), "{error}");
}

#[test]
fn numbers_are_turned_to_little_endian() {
    let folder = tempfile::tempdir().unwrap();
    let numbers: Vec<u8> = [1.5_f32, -2.0, 0.25, 1e9].iter().flat_map(|number| number.to_be_bytes()).collect();
    write(&folder.path().join("a-idx2-float"), 13, &[2, 2], &numbers);
    let dataset = dataset::open(&[folder.path()], &Options::new()).unwrap();
    let wanted: Vec<u8> = [0.25_f32, 1e9].iter().flat_map(|number| number.to_le_bytes()).collect();
    assert_eq!(sample(&*dataset, 1), [Value::Bytes(wanted.into())]);
    assert_eq!((dataset.schema().fields[0].dtype, dataset.index().plain_field), (DType::F32, None));
}

#[test]
fn headers_that_lie_are_refused() {
    let lies: [(&[u8], ErrorKind, u64); 7] = [
        (&[0, 0, 8], ErrorKind::Truncated, 3),
        (&[0, 1, 8, 1, 0, 0, 0, 0], ErrorKind::Corrupt, 0),
        (&[0, 0, 8, 9, 0, 0, 0, 0], ErrorKind::Corrupt, 3),
        (&[0, 0, 8, 1, 0, 0, 0, 2, 7], ErrorKind::Truncated, 9),
        (&[0, 0, 14, 2, 255, 255, 255, 255, 255, 255, 255, 255, 1], ErrorKind::Truncated, 13),
        (&[0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 0], ErrorKind::Corrupt, 4),
        (&[0, 0, 8, 1, 0, 0, 0, 1, 7, 8], ErrorKind::Corrupt, 9),
    ];
    for (bytes, kind, offset) in lies {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a-idx1-ubyte");
        std::fs::write(&path, bytes).unwrap();
        let error = error(folder.path());
        assert_eq!((error.kind(), error.offset()), (kind, Some(offset)), "{error}");
        assert_eq!(error.path(), Some(&*path));
    }
}

#[test]
fn files_must_belong_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write(&path("a-images-idx3-ubyte"), 8, &[2, 1, 1], &[1, 2]);
    write(&path("a-labels-idx1-ubyte"), 8, &[3], &[1, 2, 3]);
    assert!(error(folder.path()).to_string().contains("another number of them"));
    write(&path("a-labels-idx1-ubyte"), 12, &[1], &[0, 0, 0, 3]);
    assert!(error(folder.path()).to_string().contains("labels are u8"));
    std::fs::remove_file(path("a-labels-idx1-ubyte")).unwrap();
    write(&path("b-images-idx3-ubyte"), 8, &[1, 1, 2], &[1, 2]);
    assert!(error(folder.path()).to_string().contains("another type or shape"));
    std::fs::remove_file(path("b-images-idx3-ubyte")).unwrap();
    write(&path("a-images-idx3-ubyte"), 8, &[0, 1, 1], &[]);
    assert_eq!(error(folder.path()).kind(), ErrorKind::Empty);
}
