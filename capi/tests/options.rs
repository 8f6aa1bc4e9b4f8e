//! Options that change what batches hold: rows of packed sequences, buckets, images, what follows them.
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "calls of C stand in a row, under one promise")]

use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr::{null, null_mut};
use uringload_capi::*;

/// The error's message; it is freed.
fn freed(error: *mut ul_error) -> String {
    if error.is_null() {
        return String::new();
    }
    // SAFETY: zeros are null pointers and numbers; the error is living, and its texts live as long as it.
    unsafe {
        let mut info: ul_error_info = std::mem::zeroed();
        info.size = size_of::<ul_error_info>();
        assert_eq!(ul_error_get(error, &raw mut info), UL_OK);
        let message = CStr::from_ptr(info.message).to_string_lossy().into_owned();
        ul_error_free(error);
        message
    }
}

/// What a column of a batch came to.
#[derive(Debug, PartialEq)]
struct Told {
    name: String,
    dtype: String,
    form: u64,
    shape: Vec<i64>,
    places: Vec<u64>,
    bytes: Vec<u8>,
}

/// All columns of all batches.
fn batches(folder: &Path, dataset: &CStr, options: &CStr) -> Result<Vec<Vec<Told>>, String> {
    let path = CString::new(folder.to_str().expect("UTF-8")).expect("text");
    let (mut data, mut loader, mut batch, mut error) = (null_mut(), null_mut(), null_mut(), null_mut());
    let mut all = Vec::new();
    // SAFETY: every pointer is a living text, a handle that a line before made, or the address of a variable; each
    // handle is freed once. Structs of zeros are null pointers and numbers.
    unsafe {
        assert_eq!(ul_dataset_open(&path.as_ptr(), 1, dataset.as_ptr(), &mut data, &mut error), UL_OK);
        let status = ul_loader_new(data, options.as_ptr(), null(), &mut loader, &mut error);
        ul_dataset_free(data);
        if status != UL_OK {
            return Err(freed(error));
        }
        loop {
            match ul_loader_next(loader, 20_000, &mut batch, &mut error) {
                UL_OK => {}
                UL_END => break,
                status => return Err(format!("status {status}: {}", freed(error))),
            }
            let mut info: ul_batch_info = std::mem::zeroed();
            info.size = size_of::<ul_batch_info>();
            assert_eq!(ul_batch_get(batch, &mut info, null_mut()), UL_OK);
            all.push((0..info.columns).map(|index| column(batch, index)).collect());
            ul_batch_free(batch);
        }
        ul_loader_free(loader);
    }
    Ok(all)
}

/// # Safety
/// `batch` is living, and has so many columns.
unsafe fn column(batch: *mut ul_batch, index: u64) -> Told {
    // SAFETY: zeros are null pointers and numbers; the batch is living, and keeps what the column points to.
    unsafe {
        let mut column: ul_column = std::mem::zeroed();
        column.size = size_of::<ul_column>();
        assert_eq!(ul_batch_column(batch, index, &mut column, null_mut()), UL_OK);
        let text = |text| CStr::from_ptr(text).to_str().expect("UTF-8").to_owned();
        let count = column.place_count as usize;
        let places = if count == 0 { &[][..] } else { std::slice::from_raw_parts(column.places, count) };
        let shape = std::slice::from_raw_parts(column.values.shape, column.values.ndim as usize).to_vec();
        let bytes = shape.iter().product::<i64>() as usize * usize::from(column.values.bits / 8);
        let data = column.values.data.cast::<u8>();
        Told {
            name: text(column.name),
            dtype: text(column.dtype),
            form: column.form,
            places: places.to_vec(),
            bytes: if data.is_null() { Vec::new() } else { std::slice::from_raw_parts(data, bytes).to_vec() },
            shape,
        }
    }
}

/// Five files of 1 to 5 bytes, each its own length.
fn lengths() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for n in 1..6_u8 {
        std::fs::write(folder.path().join(format!("{n}.bin")), vec![n; n.into()]).expect("a file");
    }
    folder
}

#[test]
fn sequences_are_packed_into_rows() {
    let folder = lengths();
    let options = c"{\"pack\": \"first-fit\", \"seq_len\": 8, \"batch_size\": 2, \"pad_value\": 9}";
    let all = batches(folder.path(), c"{\"format\": \"folder\"}", options).expect("rows");
    let data = &all[0][0];
    assert_eq!((data.form, &data.shape[..], &*data.dtype), (UL_PACKED, &[2, 8][..], "u8"));
    assert_eq!(data.bytes, [1, 2, 2, 3, 3, 3, 9, 9, 4, 4, 4, 4, 9, 9, 9, 9], "{data:?}");
    // Each piece: its row, where it begins there, its length, its sample.
    assert_eq!(data.places, [0, 0, 1, 0, 0, 1, 2, 1, 0, 3, 3, 2, 1, 0, 4, 3]);
}

#[test]
fn samples_of_about_one_length_come_together() {
    let folder = lengths();
    let options = c"{\"bucket_boundaries\": [3], \"bucket_batch_sizes\": [2, 3], \"collate\": \"padded\"}";
    let all = batches(folder.path(), c"{\"format\": \"folder\"}", options).expect("batches");
    let mut shapes: Vec<&[i64]> = all.iter().map(|columns| &columns[0].shape[..]).collect();
    shapes.sort_unstable();
    assert_eq!(shapes, [&[2, 2][..], &[3, 5]], "{all:?}");
}

#[test]
fn images_become_tensors() {
    let folder = tempfile::tempdir().expect("a folder");
    for n in 0..4 {
        std::fs::write(folder.path().join(format!("{n}.bmp")), uringload::internal::example_bmp()).expect("a file");
    }
    let of = |options: &CStr| batches(folder.path(), c"{\"format\": \"folder\"}", options);
    let shape = |options| of(options).map(|all| (all[0][0].dtype.clone(), all[0][0].shape.clone()));
    let chain = c"{\"transform\": \"resize(16), center_crop(8)\", \"image_dtype\": \"u8\", \"image_layout\": \"nhwc\"}";
    assert_eq!(shape(chain), Ok(("u8".into(), vec![4, 8, 8, 3])));
    let column = c"{\"transform_column\": {\"data\": \"resize(16), center_crop(8), normalize(imagenet)\"}}";
    assert_eq!(shape(column), Ok(("f32".into(), vec![4, 3, 8, 8])));
    assert_eq!(shape(c"{\"decode\": true}"), Ok(("i64".into(), vec![4, 2])));
    // On the host as if it were a device.
    let host = c"{\"transform\": \"resize(16), center_crop(8)\", \"cache_images\": \"1MiB\", \"device\": \"host\"}";
    assert_eq!(shape(host), Ok(("f32".into(), vec![4, 3, 8, 8])));
}

#[test]
fn a_profile_is_read() {
    let folder = lengths();
    let profile = folder.path().with_extension("toml");
    std::fs::write(&profile, "version = 1\nqueue_depth = 3\nnonsense = 4\n").expect("a file");
    let options = CString::new(format!("{{\"profile\": {:?}}}", profile.to_str().expect("UTF-8"))).expect("text");
    let error = batches(folder.path(), c"{\"format\": \"folder\"}", &options).expect_err("an unknown key");
    assert!(error.contains("nonsense"), "{error}");
    std::fs::write(&profile, "version = 1\nqueue_depth = 3\nengine = \"threads\"\n").expect("a file");
    assert!(batches(folder.path(), c"{\"format\": \"folder\"}", &options).is_ok());
    std::fs::remove_file(profile).expect("a file");
}
