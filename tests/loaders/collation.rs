//! The columns of a batch, from real files, over every way to read: each form holds the bytes of its samples and
//! nothing else, whatever was read beside them and whatever could not be read.

use crate::common::check::{WAYS, checked, drain, order};
use crate::common::content::{content, key_of, name_of};
use crate::common::fixture::made;
use crate::common::{skip, within};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::batch::{Batch, Column, Data};
use uringload::config::Config;
use uringload::config::{Collate, EngineChoice, IoChoice, OnError, PadValue, Padding};
use uringload::dataset::{DType, Dataset, Field, Index, Options, Sample, SampleId, Schema, Shape, Span, Value};
use uringload::inspect::Shuffled;
use uringload::{Error, ErrorKind, Loader, Result};

const BOUND: Duration = Duration::from_secs(60);
const FILES: u64 = 60;
const SEED: u64 = 11;
/// Without a gap values are moved together where they were read; with one they are gathered elsewhere.
const GAPS: [u64; 2] = [0, 20_000];

/// Files of whole elements of 8 bytes in two class folders, some of them empty.
fn folder(labels: bool, dtype: DType) -> (TempDir, Arc<dyn Dataset>) {
    let class = |number| if number < FILES / 2 { "cat" } else { "dog" };
    let file = |number| (format!("{}/{number:03}", class(number)), number % 7 * (number * 56 + 8));
    made((0..FILES).map(file), &Options::new().format("folder").set("labels", labels).set("dtype", dtype))
}

fn records(bytes: u64, options: &Options) -> (TempDir, Arc<dyn Dataset>) {
    made([("records", bytes)], options)
}

fn config(collate: Collate) -> Config {
    Config { batch_size: 8, shuffle: true.into(), seed: SEED, collate, ..Config::default() }
}

fn padded(value: PadValue, max_length: Option<u64>, multiple_of: u64) -> Collate {
    Collate::Padded(Padding::default().value(value).max_length(max_length).multiple_of(multiple_of))
}

/// A loader for each way and each gap; says aloud which ways are not available here.
fn each_way(dataset: &Arc<dyn Dataset>, config: &Config, mut check: impl FnMut(Loader)) {
    for (engine, io) in WAYS {
        for coalesce_gap in GAPS {
            let config = Config { engine, io, coalesce_gap: Some(coalesce_gap), ..config.clone() };
            match Loader::builder(Arc::clone(dataset)).config(config).build() {
                Ok(loader) => check(loader),
                Err(error) if error.kind() == ErrorKind::Unavailable => skip(format!("{engine:?} {io:?}: {error}")),
                Err(error) => panic!("{engine:?} {io:?}: {error}"),
            }
        }
    }
}

fn column<'a>(batch: &'a Batch, name: &str) -> &'a Column {
    batch.column(name).unwrap_or_else(|| panic!("no column {name:?}"))
}

/// Every value of 8 samples, in the batch's order, end to end.
fn joined(column: &Column, samples: usize) -> Vec<u8> {
    (0..samples).flat_map(|index| column.bytes_of(index).expect("a value")).collect()
}

#[test]
fn ragged_files_of_any_type() {
    within(BOUND, || {
        for dtype in [DType::U8, DType::I16, DType::BF16, DType::F32, DType::I64] {
            let (_root, dataset) = folder(false, dtype);
            each_way(&dataset, &config(Collate::Ragged), |loader| {
                let mut came = Vec::new();
                for batch in loader {
                    let batch = batch.expect("no error");
                    came.extend(checked(&*dataset, &batch));
                    let Data::Ragged { values, offsets } = &batch.columns[0].data else { panic!("not ragged") };
                    assert_eq!(*values, joined(&batch.columns[0], batch.len()));
                    for (index, &id) in batch.ids.iter().enumerate() {
                        assert_eq!(Some(offsets[index + 1] - offsets[index]), dataset.length(id, 0));
                    }
                    let elements = values.as_ptr().addr() % dtype.size() as usize;
                    assert!(values.is_empty() || elements == 0, "elements are aligned");
                }
                assert_eq!(came, order(&Shuffled::new(FILES, SEED), 1));
            });
        }
    });
}

#[test]
fn padded_files_are_filled_up_and_cut_aloud() {
    within(BOUND, || {
        let (_root, dataset) = folder(false, DType::I32);
        let length = |id: u64| dataset.length(SampleId(id), 0).expect("known");
        for (max_length, multiple_of) in [(None, 1), (None, 64), (Some(1000), 1), (Some(1000), 128)] {
            let most = max_length.unwrap_or(u64::MAX);
            each_way(&dataset, &config(padded(PadValue::Int(-7), max_length, multiple_of)), |mut loader| {
                let stats = loader.stats();
                let mut came = 0;
                for batch in loader.by_ref() {
                    let batch = batch.expect("no error");
                    let Data::Padded { length: row, values, lengths } = &batch.columns[0].data else {
                        panic!("not padded");
                    };
                    let wanted: Vec<u64> = batch.ids.iter().map(|id| length(id.0).min(most)).collect();
                    assert_eq!(*lengths, wanted);
                    assert_eq!(*row, wanted.iter().max().expect("a sample").next_multiple_of(multiple_of));
                    assert_eq!(values.as_ptr().addr() % 64, 0, "a line of the cache");
                    for (index, values) in values.chunks((row * 4) as usize).enumerate() {
                        let (kept, filled) = values.split_at((lengths[index] * 4) as usize);
                        assert_eq!(batch.columns[0].bytes_of(index).expect("a value"), kept);
                        let path = dataset.files().path(uringload::dataset::FileId(batch.ids[index].0 as u32));
                        let key = key_of(name_of(&path));
                        assert_eq!(kept, content(key, 0, kept.len()), "{path:?}");
                        assert!(filled.chunks(4).all(|element| element == (-7_i32).to_le_bytes()));
                    }
                    came += batch.len() as u64;
                }
                assert_eq!(came, FILES);
                let cut = (0..FILES).filter(|&id| length(id) > most).count() as u64;
                assert_eq!(stats.snapshot().count.samples_truncated, cut, "cut, and said so");
                assert!(cut > 0 || max_length.is_none(), "a test that cuts nothing tests nothing");
            });
        }
    });
}

/// Tensors in a record file, behind a header that no sector ends at.
#[test]
fn records_are_tensors_of_their_type_and_shape() {
    within(BOUND, || {
        let shape = vec![3, 8, 8];
        let options = Options::new()
            .format("records")
            .set("record_bytes", 768)
            .set("header_bytes", 24)
            .set("dtype", DType::F32)
            .set("shape", shape);
        let (_root, dataset) = records(24 + 100 * 768, &options);
        let key = key_of(b"records");
        for shuffle in [true, false] {
            let config = Config { batch_size: 7, shuffle: shuffle.into(), ..config(Collate::Dense) };
            each_way(&dataset, &config, |loader| {
                let mut came = 0;
                for batch in loader {
                    let batch = batch.expect("no error");
                    let Data::Dense { shape, bytes } = &batch.columns[0].data else { panic!("not dense") };
                    assert_eq!((&shape[..], batch.columns[0].dtype), (&[3, 8, 8][..], DType::F32));
                    // In order they may stay where they are read; what is moved begins a block.
                    let alignment = if shuffle { 64 } else { 4 };
                    assert_eq!(bytes.as_ptr().addr() % alignment, 0, "elements are aligned");
                    let of = |id: &SampleId| content(key, 24 + id.0 * 768, 768);
                    assert_eq!(*bytes, batch.ids.iter().flat_map(of).collect::<Vec<u8>>());
                    assert_eq!(
                        batch.columns[0].bytes_of(batch.len() - 1).expect("a value"),
                        bytes[bytes.len() - 768..]
                    );
                    came += checked(&*dataset, &batch).len();
                }
                assert_eq!(came, 100);
            });
        }
    });
}

/// What is missing in one column is missing in all: values, labels, keys and numbers stay those of one sample.
#[test]
fn columns_stay_together_where_samples_are_skipped() {
    within(BOUND, || {
        for collate in [Collate::Ragged, padded(PadValue::Int(1), None, 16), Collate::Auto] {
            let (root, dataset) = folder(true, DType::U16);
            for (number, class) in [(8, "cat"), (20, "cat"), (41, "dog")] {
                std::fs::remove_file(root.path().join(format!("{class}/{number:03}"))).expect("removed");
            }
            let config = Config { on_error: OnError::Skip, key: true, index: true, ..config(collate) };
            each_way(&dataset, &config, |loader| {
                let (mut came, mut failed) = (Vec::new(), 0);
                for batch in loader {
                    let batch = batch.expect("errors cost samples, not batches");
                    failed += batch.failed.len();
                    let names: Vec<&str> = batch.columns.iter().map(|column| column.name.as_str()).collect();
                    assert_eq!(names, ["data", "label", "key", "index"]);
                    let (Data::I64(labels), Data::I64(numbers)) =
                        (&column(&batch, "label").data, &column(&batch, "index").data)
                    else {
                        panic!("not integers");
                    };
                    for (index, id) in batch.ids.iter().enumerate() {
                        let class = ["cat", "dog"][labels[index] as usize];
                        let key = column(&batch, "key").bytes_of(index).expect("a key");
                        assert_eq!(key, format!("{class}/{:03}", id.0).into_bytes());
                        assert_eq!(numbers[index], id.0 as i64);
                    }
                    came.extend(checked(&*dataset, &batch));
                }
                let mut wanted = order(&Shuffled::new(FILES, SEED), 1);
                wanted.retain(|id| ![8, 20, 41].contains(&id.0));
                assert_eq!((came, failed), (wanted, 3));
            });
        }
    });
}

/// A format whose samples have three columns of bytes: two that differ in length, and one that does not. Some samples
/// are found to be bad when they are parsed.
struct Triples {
    records: Arc<dyn Dataset>,
    index: Index,
}

const TRIPLE_BYTES: u64 = 900;

impl Triples {
    fn of(records: Arc<dyn Dataset>) -> Arc<dyn Dataset> {
        let field = |name: &str, shape| Field { name: name.into(), dtype: DType::U8, shape };
        let fields =
            vec![field("head", Shape::Ragged), field("middle", Shape::Fixed(vec![2, 5])), field("tail", Shape::Ragged)];
        let mut index = records.index().clone();
        (index.format, index.schema, index.plain_field) = ("triples", Schema { fields }, None);
        index.parse_reads_bytes = true;
        Arc::new(Triples { records, index })
    }

    fn is_bad(id: SampleId) -> bool {
        id.0 % 13 == 5
    }

    /// The three values of a record.
    fn cut(record: &Bytes) -> [Bytes; 3] {
        let head = usize::from(record[0]) * 3;
        [record.slice(..head), record.slice(head..head + 10), record.slice(head + 10..)]
    }
}

impl Dataset for Triples {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        self.records.spans(id, out);
    }
    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        if Triples::is_bad(id) {
            return Err(Error::new(ErrorKind::Corrupt, "a bad sample, on purpose"));
        }
        out.values.extend(Triples::cut(&raw[0]).map(Value::Bytes));
        Ok(())
    }
}

#[test]
fn values_that_are_parsed_out_of_records_are_gathered() {
    within(BOUND, || {
        let options = Options::new().format("records").set("record_bytes", TRIPLE_BYTES);
        let (_root, records) = records(120 * TRIPLE_BYTES, &options);
        let dataset = Triples::of(records);
        let record =
            |id: SampleId| Bytes::from(content(key_of(b"records"), id.0 * TRIPLE_BYTES, TRIPLE_BYTES as usize));
        let pad = padded(PadValue::Bits(0xab), Some(500), 32);
        let config = Config {
            collate_columns: vec![("tail".into(), pad), ("middle".into(), Collate::Dense)],
            on_error: OnError::Skip,
            memory_limit: Some(256 << 10),
            epochs: Some(3),
            ..config(Collate::Ragged)
        };
        each_way(&dataset, &config, |loader| {
            let (mut came, mut failed) = (0, 0);
            for batch in loader {
                let batch = batch.expect("errors cost samples, not batches");
                let wanted: Vec<[Bytes; 3]> = batch.ids.iter().map(|&id| Triples::cut(&record(id))).collect();
                let all = |column: usize| wanted.iter().flat_map(|values| values[column].to_vec()).collect::<Vec<u8>>();
                let Data::Ragged { values, .. } = &batch.columns[0].data else { panic!("not ragged") };
                assert_eq!(*values, all(0));
                let Data::Dense { shape, bytes } = &batch.columns[1].data else { panic!("not dense") };
                assert_eq!((&shape[..], bytes), (&[2, 5][..], &Bytes::from(all(1))));
                let Data::Padded { length, values, .. } = &batch.columns[2].data else { panic!("not padded") };
                for (row, wanted) in values.chunks(*length as usize).zip(&wanted) {
                    let kept = &wanted[2][..wanted[2].len().min(500)];
                    assert_eq!(&row[..kept.len()], kept);
                    assert!(row[kept.len()..].iter().all(|&byte| byte == 0xab));
                }
                came += batch.len();
                failed += batch.failed.len();
            }
            let bad = (0..120).filter(|&id| Triples::is_bad(SampleId(id))).count();
            assert_eq!((came, failed), (3 * (120 - bad), 3 * bad));
        });
    });
}

/// Records some of which are found to be bad when they are parsed.
struct Picky(Arc<dyn Dataset>);

impl Dataset for Picky {
    fn index(&self) -> &Index {
        self.0.index()
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        self.0.spans(id, out);
    }
    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        match id.0 % 9 {
            4 => Err(Error::new(ErrorKind::Corrupt, "a bad sample, on purpose")),
            5 => {
                // A value that is shorter than the schema says.
                out.values.push(Value::Bytes(raw[0].slice(1..)));
                Ok(())
            }
            _ => self.0.parse(id, raw, out),
        }
    }
}

/// Bad samples that are found after values were moved together leave holes; the column is dense nevertheless.
#[test]
fn a_tensor_has_no_holes_where_samples_were_bad() {
    within(BOUND, || {
        let (_root, records) = records(90_000, &Options::new().format("records").set("record_bytes", 1000));
        let dataset: Arc<dyn Dataset> = Arc::new(Picky(records));
        let config = Config { on_error: OnError::Skip, ..config(Collate::Dense) };
        each_way(&dataset, &config, |loader| {
            let (mut came, mut failed) = (0, Vec::new());
            for batch in loader {
                let batch = batch.expect("errors cost samples, not batches");
                assert!(matches!(batch.columns[0].data, Data::Dense { .. }));
                came += checked(&*dataset, &batch).len();
                failed.extend(batch.failed.into_iter().map(|failed| failed.error.kind()));
            }
            assert_eq!((came, failed), (70, vec![ErrorKind::Corrupt; 20]));
        });
    });
}

/// The limit that the error names is the least one that is taken, what is gathered included, and a loader at that limit
/// reads everything.
#[test]
fn the_memory_of_what_is_gathered_is_counted() {
    within(BOUND, || {
        let (_root, dataset) = folder(false, DType::U8);
        for collate in [padded(PadValue::Int(0), None, 100), padded(PadValue::Int(0), Some(64), 1), Collate::Ragged] {
            let narrow = Config { memory_limit: Some(10_000), coalesce_gap: Some(100), ..config(collate) };
            let build = |limit| {
                let config = Config { memory_limit: Some(limit), ..narrow.clone() };
                Loader::builder(Arc::clone(&dataset)).config(config).build()
            };
            let error = build(10_000).expect_err("too little");
            assert_eq!(error.kind(), ErrorKind::MemoryLimit);
            assert!(error.to_string().contains("to gather them"), "{error}");
            let remedy = error.remedy().expect("a remedy");
            let is_padded = matches!(collate, Collate::Padded(_));
            let has_bound = format!("{collate:?}").contains("max_length: Some");
            let without_bound = is_padded && !has_bound;
            assert_eq!(remedy.contains("max_length"), without_bound, "{remedy}");
            let least = remedy.split_whitespace().find_map(|word| word.parse::<u64>().ok()).expect("a number");
            assert_eq!(build(least - 1).expect_err("too little").kind(), ErrorKind::MemoryLimit);
            for (engine, io) in [(EngineChoice::Auto, IoChoice::Auto), (EngineChoice::Threads, IoChoice::Buffered)] {
                let config = Config { memory_limit: Some(least), epochs: Some(2), engine, io, ..narrow.clone() };
                let mut loader = Loader::builder(Arc::clone(&dataset)).config(config).build().expect("enough");
                if is_padded && has_bound {
                    assert_eq!(
                        loader.by_ref().map(|batch| batch.expect("no error").len() as u64).sum::<u64>(),
                        2 * FILES
                    );
                } else {
                    let (ids, errors) = drain(&*dataset, &mut loader);
                    assert_eq!((ids.len() as u64, errors.len()), (2 * FILES, 0), "{errors:?}");
                }
            }
        }
    });
}

#[test]
fn a_form_that_cannot_be_is_refused_by_build() {
    let (_root, dataset) = folder(false, DType::F16);
    let builder = || Loader::builder(Arc::clone(&dataset));
    for (builder, words) in [
        (builder().collate_column("labels", Collate::Ragged), "\"labels\", which is no column"),
        (builder().collate_column("data", Collate::Dense), "have one length"),
        (builder().collate_column("data", padded(PadValue::Int(3), None, 1)), "Int(3) is no f16"),
        (builder().collate_column("data", padded(PadValue::Int(0), None, 0)), "multiple"),
    ] {
        let error = builder.build().expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(words) && error.remedy().is_some(), "{error}");
    }
    let both = builder().key(true).index(true).collate_column("data", Collate::Ragged).build();
    assert_eq!(both.expect("a loader").next().expect("a batch").expect("no error").columns.len(), 3);
}
