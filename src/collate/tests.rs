//! Which form a column gets, what is refused, and how much memory it takes.

use super::*;
use crate::config::{PackMethod, PadValue};
use crate::dataset::{self, DType, Dataset, FileTable, Index, Options, Sample, Schema};
use bytes::Bytes;
use std::sync::Arc;

/// A dataset with these columns and one sample.
struct Fields {
    index: Index,
}

fn fields(columns: &[(&str, DType, Option<&[u64]>)], plain: Option<usize>) -> Fields {
    let field = |&(name, dtype, shape): &(&str, DType, Option<&[u64]>)| Field {
        name: name.into(),
        dtype,
        shape: shape.map_or(Shape::Ragged, |shape| Shape::Fixed(shape.to_vec())),
    };
    let schema = Schema { fields: columns.iter().map(field).collect() };
    let mut index = Index::new("fields", FileTable::new(), schema, 1);
    index.plain_field = plain;
    Fields { index }
}

impl Dataset for Fields {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, _id: SampleId, _out: &mut Vec<Span>) {}
    fn parse(&self, _id: SampleId, _raw: &[Bytes], _out: &mut Sample) -> Result<()> {
        Ok(())
    }
}

fn padding(max_length: Option<u64>, multiple_of: u64) -> Collate {
    Collate::Padded(Padding { value: PadValue::Int(0), max_length, multiple_of })
}

fn packed(seq_len: u64) -> Batching {
    Batching::Packed(Packing { method: PackMethod::FirstFit, seq_len, window: 100, pad: PadValue::Int(0) })
}

fn columns(columns: &[(&str, Collate)]) -> Vec<(String, Collate)> {
    columns.iter().map(|(name, collate)| ((*name).into(), *collate)).collect()
}

const IMAGE: (&str, DType, Option<&[u64]>) = ("image", DType::F32, Some(&[3, 4]));
const TOKENS: (&str, DType, Option<&[u64]>) = ("tokens", DType::U16, None);

#[test]
fn each_column_gets_the_form_that_fits_it() {
    let dense = Form::Dense { value_bytes: 48 };
    let ragged = Form::Ragged { element_bytes: 2 };
    let both = fields(&[IMAGE, TOKENS], None);
    let forms = |collate, named: &[(&str, Collate)]| {
        let config = Config { collate, collate_columns: columns(named), ..Config::default() };
        Collation::new(&config, &both).unwrap().forms
    };
    assert_eq!(forms(Collate::Auto, &[]), [dense, Form::Views], "as their shapes are");
    assert_eq!(forms(Collate::Ragged, &[]), [dense, ragged]);
    assert_eq!(forms(Collate::Views, &[("image", Collate::Dense)]), [dense, Form::Views]);
    assert_eq!(forms(Collate::Dense, &[("tokens", Collate::Ragged)]), [dense, ragged]);
    let [first, Form::Padded(padded)] = forms(padding(Some(100), 8), &[])[..] else { panic!("not padded") };
    assert_eq!(first, dense, "what has one shape needs no padding");
    assert_eq!([0, 1, 8, 9, 99, 100, 1000].map(|longest| padded.length(longest)), [0, 8, 8, 16, 104, 104, 104]);
    let config = Config { batching: packed(64), collate: Collate::Dense, ..Config::default() };
    let collation = Collation::new(&config, &both).unwrap();
    assert!(matches!(collation.forms[..], [Form::Dense { .. }, Form::Packed { seq_len: 64, .. }]));
    assert_eq!(collation.packed_field(), Some(1));
}

#[test]
fn forms_that_cannot_be_are_refused() {
    let both = fields(&[IMAGE, TOKENS, ("half", DType::BF16, None), ("key", DType::U8, None)], None);
    let one_shape = fields(&[IMAGE], None);
    let huge = fields(&[("huge", DType::U16, Some(&[u64::MAX, 1]))], None);
    let named = |named: &[(&str, Collate)]| Config { collate_columns: columns(named), ..Config::default() };
    let ones = Collate::Padded(Padding { value: PadValue::Int(1), ..Padding::default() });
    let packing = |batching, batch_size| Config { batching, batch_size, ..Config::default() };
    for (dataset, config, words) in [
        (&fields(&[IMAGE, IMAGE], None), named(&[]), "two columns \"image\""),
        (&both, named(&[("label", Collate::Dense)]), "\"label\", which is no column"),
        (&both, named(&[("image", Collate::Dense), ("image", Collate::Views)]), "two forms"),
        (&both, named(&[("tokens", Collate::Dense)]), "have one length"),
        (&both, Config { collate: Collate::Dense, ..Config::default() }, "have one length"),
        (&both, named(&[("image", Collate::Ragged)]), "one shape"),
        (&both, named(&[("image", padding(None, 1))]), "one shape"),
        (&both, named(&[("tokens", padding(None, 0))]), "0"),
        (&both, named(&[("tokens", padding(Some(0), 1))]), "0"),
        (&both, named(&[("half", ones)]), "bf16"),
        (&both, Config { key: true, ..Config::default() }, "\"key\""),
        (&huge, Config { collate: Collate::Dense, ..Config::default() }, "more than 2^64"),
        (&one_shape, packing(packed(8), 4), "no column of sequences"),
        (&both, packing(packed(0), 4), "4 rows of 0"),
        (&both, packing(packed(1 << 20), 1 << 11), "2048 rows of 1048576"),
        (&both, Config { batching: packed(8), ..named(&[("tokens", Collate::Views)]) }, "packed"),
    ] {
        let error = Collation::new(&config, dataset).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(words) && error.remedy().is_some(), "{words:?} in {error}");
    }
    let index = Collation::new(&Config { index: true, ..Config::default() }, &both).unwrap();
    assert!(index.has_index() && !index.has_key());
}

#[test]
fn values_are_gathered_where_that_costs_least() {
    let gather = |dataset: &Fields, collate, gap| {
        Collation::new(&Config { collate, ..Config::default() }, dataset).unwrap().gather(gap)
    };
    let label = ("label", DType::I64, Some(&[][..]));
    let plain = fields(&[TOKENS, label], Some(0));
    assert_eq!(gather(&plain, Collate::Views, 9), Gather::Nowhere);
    assert_eq!(gather(&plain, Collate::Auto, 9), Gather::Nowhere);
    assert_eq!(gather(&plain, Collate::Ragged, 0), Gather::InPlace);
    assert_eq!(gather(&plain, Collate::Ragged, 9), Gather::Target, "memory has the order of the disk");
    assert_eq!(gather(&plain, padding(None, 1), 0), Gather::Target);
    let parsed = fields(&[IMAGE, TOKENS], None);
    assert_eq!(gather(&parsed, Collate::Views, 0), Gather::Nowhere);
    assert_eq!(gather(&parsed, Collate::Auto, 0), Gather::Target);
    assert_eq!(gather(&parsed, Collate::Ragged, 0), Gather::Target);
    assert_eq!(Collation::default().gather(0), Gather::Nowhere);
}

/// A batch's memory is the sum of its columns, and never more than was reserved at the start.
#[test]
fn memory_is_the_sum_of_the_columns() {
    let mut files = FileTable::new();
    files.push_root("/nowhere");
    for size in [100, 0, 36, 1000] {
        files.push(b"x", size).unwrap();
    }
    let folder: Arc<dyn Dataset> = dataset::inspect::of_files(files, &Options::new().set("labels", false)).unwrap();
    let bytes = |collate, ids: &[u64], gap| {
        let collation = Collation::new(&Config { collate, ..Config::default() }, &*folder).unwrap();
        let ids: Vec<SampleId> = ids.iter().copied().map(SampleId).collect();
        let (mut spans, mut ends) = (Vec::new(), Vec::new());
        for &id in &ids {
            folder.spans(id, &mut spans);
            ends.push(spans.len() as u32);
        }
        let bound = collation.target_bound(&*folder, gap, ids.len() as u64, 0);
        let bytes = collation.target_bytes(&*folder, &ids, &spans, &ends, 0);
        assert!(bytes <= bound || bound == 0, "{bytes} of {bound}");
        (bytes, bound)
    };
    assert_eq!(bytes(Collate::Views, &[0, 1, 2, 3], 9), (0, 0));
    assert_eq!(bytes(Collate::Ragged, &[0, 1, 2], 9), (192, 1152), "136 and 1136 bytes in lines of 64");
    assert_eq!(bytes(Collate::Ragged, &[0, 1, 2], 0).1, 0, "moved together in place");
    assert_eq!(bytes(padding(None, 1), &[0, 1, 2], 0), (320, 3008), "3 x 100, 3 x 1000");
    assert_eq!(bytes(padding(Some(50), 16), &[0, 2, 3], 0), (192, 192), "3 x 64");
    assert_eq!(bytes(padding(None, u64::MAX), &[0, 2], 0).1, u64::MAX, "no overflow");
}
