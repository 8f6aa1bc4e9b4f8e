use super::{DTYPE, array, field, record_batch};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt8Type, UInt16Type};
use arrow_array::{Array, ffi};
use arrow_schema::DataType;
use bytes::Bytes;
use uringload::batch::{Batch, Column, Data};
use uringload::config::Collate;
use uringload::dataset::{DType, Options, SampleId};
use uringload::{Loader, dataset};

fn column(dtype: DType, data: Data) -> Column {
    Column::new("x", dtype, data)
}

/// A loader's batches of records with fields: nothing is copied, and the memory is the array's until it is dropped.
#[test]
fn values_of_a_loader_are_those_of_its_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.bin");
    std::fs::write(&path, (0..650_u32).map(|n| n as u8).collect::<Vec<u8>>()).expect("a file");
    let options = Options::new().format("records").set("record_fields", "label:u8, image:u8[8,8]");
    let dataset = dataset::open(&[path], &options).expect("records");
    let mut loader =
        Loader::builder(dataset).batch_size(5).epochs(1).collate(Collate::Dense).build().expect("a loader");
    let batch = loader.next().expect("a batch").expect("no error");
    let rows = record_batch(&batch).expect("rows");
    let Data::Dense { bytes, .. } = &batch.column("image").expect("images").data else { panic!("not dense") };
    let images = rows["image"].as_fixed_size_list();
    let pixels = images.values().as_primitive::<UInt8Type>();
    assert_eq!(pixels.values().as_ptr(), bytes.as_ptr());
    let schema = rows.schema();
    let field = schema.field_with_name("image").expect("a field");
    assert_eq!(field.metadata()["ARROW:extension:metadata"], "{\"shape\":[8,8]}");
    // Through the C interface too.
    let (exported, _) = ffi::to_ffi(&pixels.to_data()).expect("exported");
    assert_eq!(exported.buffer(1), bytes.as_ptr());
    // And it outlives its batch and the loader.
    let labels = rows["label"].clone();
    drop((batch, loader, rows));
    assert_eq!(labels.as_primitive::<UInt8Type>().values()[..], [0, 65, 130, 195, 4]);
}

#[test]
fn ragged_values_and_views_are_not_copied() {
    let values = Bytes::from([1.0_f32, 2.0, 3.0, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
    let ragged = column(DType::F32, Data::Ragged { values: values.clone(), offsets: vec![0, 3, 3, 4] });
    let lists = array(&ragged).expect("lists");
    let lists = lists.as_list::<i64>();
    assert_eq!(lists.values().as_primitive::<Float32Type>().values().as_ptr().cast(), values.as_ptr());
    assert_eq!(lists.value(0).as_primitive::<Float32Type>().values()[..], [1.0, 2.0, 3.0]);
    assert_eq!((lists.value(1).len(), lists.value(2).len()), (0, 1));

    let views = [Bytes::from_static(b"short"), Bytes::from_static(b"longer than a view"), Bytes::new()];
    let binary = array(&column(DType::U8, Data::Views(views.to_vec()))).expect("binary");
    let binary = binary.as_binary_view();
    assert_eq!([binary.value(0), binary.value(1), binary.value(2)], [&views[0][..], &views[1], &views[2]]);
    assert_eq!(binary.value(1).as_ptr(), views[1].as_ptr());
}

#[test]
fn types_that_arrow_lacks_are_named() {
    let shape = vec![];
    let of = |dtype| column(dtype, Data::Dense { shape: shape.clone(), bytes: Bytes::from(vec![0_u8, 1, 2, 3]) });
    let halves = array(&of(DType::BF16)).expect("numbers");
    assert_eq!(halves.as_primitive::<UInt16Type>().values()[..], [0x100, 0x302]);
    assert_eq!(field(&of(DType::BF16)).expect("a field").metadata()[DTYPE], "bf16");
    assert!(field(&of(DType::F16)).expect("a field").metadata().is_empty());
    for dtype in DType::ALL {
        // A column made by hand may lie anywhere; Rust's allocator aligns what is used here.
        let bytes = Bytes::from([0_u64; 2].iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
        let array = array(&column(dtype, Data::Dense { shape: vec![], bytes })).expect("an array");
        assert_eq!(array.len() as u64, 16 / dtype.size(), "{dtype:?}");
    }
}

#[test]
fn what_arrow_cannot_say_is_refused_by_name() {
    let dense = |shape, bytes| Data::Dense { shape, bytes: Bytes::from_static(bytes) };
    for (dtype, data, why) in [
        (DType::F32, Data::Views(vec![]), "Collate::Ragged"),
        (DType::U8, dense(vec![0], b""), "no elements"),
        (DType::U8, dense(vec![1 << 31], b""), "2^31"),
        (DType::U16, dense(vec![], b"abc"), "within an element"),
        (DType::U8, Data::Ragged { values: Bytes::new(), offsets: vec![] }, "ascend"),
        (DType::U8, Data::Ragged { values: Bytes::from_static(b"ab"), offsets: vec![0, 2, 1] }, "ascend"),
    ] {
        let error = array(&column(dtype, data)).expect_err(why).to_string();
        assert!(error.contains(why) && error.contains("\"x\""), "{error}");
    }
    let bytes = Bytes::from_static(&[0; 9]).slice(1..);
    let odd = if bytes.as_ptr().addr().is_multiple_of(8) { bytes.slice(..0) } else { bytes };
    if !odd.is_empty() {
        assert!(array(&column(DType::F64, Data::Dense { shape: vec![], bytes: odd })).is_err());
    }
    // Offsets past the values are an error of Arrow's own check.
    let past = Data::Ragged { values: Bytes::from_static(b"ab"), offsets: vec![0, 3] };
    assert!(array(&column(DType::U8, past)).is_err());
}

/// Rows of packed columns are not samples.
#[test]
fn packed_rows_are_lists_and_no_record_batch() {
    let folder = tempfile::tempdir().expect("a folder");
    for n in 1..6 {
        std::fs::write(folder.path().join(format!("{n}.bin")), vec![n as u8; n]).expect("a file");
    }
    let dataset = dataset::open(&[folder.path()], &Options::new().format("folder")).expect("files");
    let builder = Loader::builder(dataset.clone()).batch_size(5).epochs(1);
    let batch = builder.collate(Collate::Ragged).build().expect("a loader").next().expect("one").expect("no error");
    assert_eq!(record_batch(&batch).expect("rows").num_rows(), 5);
    let schema = record_batch(&batch).expect("rows").schema();
    assert!(matches!(schema.field(0).data_type(), DataType::LargeList(_)));

    let packing = uringload::config::Packing::new(8);
    let builder = Loader::builder(dataset).batch_size(2).epochs(1).batching(packing);
    let batch: Batch = builder.build().expect("a loader").next().expect("one").expect("no error");
    let packed = array(&batch.columns[0]).expect("lists");
    assert_eq!(packed.as_fixed_size_list().value_length(), 8);
    assert!(record_batch(&batch).is_err_and(|error| error.to_string().contains("not samples")));
    assert!(record_batch(&Batch::new(vec![SampleId(0)], vec![])).is_err(), "no columns, so no number of rows");
}
