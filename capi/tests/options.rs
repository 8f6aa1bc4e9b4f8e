//! Options that change what batches hold: rows of packed sequences, buckets, images, what follows them; and which
//! samples there are.
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
    batches_of(&[folder], dataset, options)
}

fn batches_of(paths: &[&Path], dataset: &CStr, options: &CStr) -> Result<Vec<Vec<Told>>, String> {
    let texts: Vec<CString> =
        paths.iter().map(|path| CString::new(path.to_str().expect("UTF-8")).expect("text")).collect();
    let paths: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
    let (mut data, mut loader, mut batch, mut error) = (null_mut(), null_mut(), null_mut(), null_mut());
    let mut all = Vec::new();
    // SAFETY: every pointer is a living text, a handle that a line before made, or the address of a variable; each
    // handle is freed once. Structs of zeros are null pointers and numbers.
    unsafe {
        if ul_dataset_open(paths.as_ptr(), paths.len(), dataset.as_ptr(), &mut data, &mut error) != UL_OK {
            return Err(freed(error));
        }
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

/// No list of C's own stands before the table: each name is set by it, and so it refuses what no setting can be.
#[test]
fn every_setting_of_the_table_is_an_option() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a.bin"), [0; 64]).expect("written");
    for uringload::config::Setting { name, .. } in uringload::Builder::settings() {
        let beside = match *name {
            "rank" => ", \"world_size\": 1",
            "world_size" => ", \"rank\": 0",
            "fast_images" => ", \"transform\": \"hflip\"",
            _ => "",
        };
        let options = CString::new(format!("{{\"{name}\": []{beside}}}")).expect("text");
        let refused = batches(folder.path(), c"{\"format\": \"folder\"}", &options).expect_err(name);
        assert!(refused.contains(&format!("{name} cannot be []")), "C lacks {name}: {refused}");
    }
}

#[test]
fn sequences_are_packed_into_rows() {
    let folder = lengths();
    let options = c"{\"packing\": \"first-fit\", \"seq_len\": 8, \"batch_size\": 2, \"pad_value\": 9}";
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
        std::fs::write(folder.path().join(format!("{n}.bmp")), uringload::inspect::example_bmp()).expect("a file");
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

/// The only byte of each sample of these folders, in the order in which they come.
fn samples(folders: &[&Path], dataset: &str, options: &CStr) -> Result<Vec<u8>, String> {
    let all = batches_of(folders, &CString::new(dataset).expect("text"), options)?;
    Ok(all.iter().flat_map(|columns| columns[0].bytes.clone()).collect())
}

/// A file of a byte for each record.
fn bytes_of(name: &str, bytes: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join(name), bytes).expect("a file");
    folder
}

#[test]
fn samples_are_kept_and_left_out() {
    let folder = bytes_of("records.bin", &[10, 11, 12, 13, 14, 15]);
    let lists = tempfile::tempdir().expect("a folder");
    let (first, second) = (lists.path().join("first"), lists.path().join("second"));
    std::fs::write(&first, "4\n1\n").expect("a file");
    std::fs::write(&second, "0\n1\n").expect("a file");
    let of = |choice: &str| {
        let json = format!("{{\"record_bytes\": 1, {choice}}}");
        samples(&[folder.path()], &json, c"{\"batch_size\": 4}")
    };
    let good = |choice: &str| of(choice).expect("samples");
    assert_eq!(good(&format!("\"only\": {first:?}")), [11, 14], "a list is ascending");
    assert_eq!(good("\"only\": [4, 1, 4]"), [14, 11, 14], "numbers are an order");
    assert_eq!(good(&format!("\"exclude\": {first:?}")), [10, 12, 13, 15]);
    assert_eq!(good(&format!("\"exclude\": [{first:?}, {second:?}]")), [12, 13, 15]);
    assert_eq!(good(&format!("\"only\": [5, 3, 1], \"exclude\": {second:?}")), [11], "of what is kept");
    assert_eq!(good("\"only\": null, \"exclude\": null, \"weights\": null"), [10, 11, 12, 13, 14, 15]);

    let refused = |choice: &str, what: &str| {
        let error = of(choice).expect_err("is refused");
        assert!(error.contains(what) && error.contains("help: "), "{error}");
    };
    refused("\"only\": [6]", "6");
    refused("\"only\": 6", "only cannot be 6");
    refused("\"only\": [1, \"list\"]", "only cannot be");
    refused("\"exclude\": [1]", "exclude cannot be [1]");
    refused("\"exclude\": \"/nowhere/list\"", "/nowhere/list");
    refused("\"stopping\": \"all_exhausted\"", "give weights too");
    refused("\"weights\": [1], \"only\": [1]", "leave out weights");
}

#[test]
fn datasets_are_mixed_by_weight() {
    let (ones, twos) = (bytes_of("ones", &[1; 3000]), bytes_of("twos", &[2; 500]));
    let folders = [ones.path(), twos.path()];
    let of = |choice: &str, options: &CStr| samples(&folders, &format!("{{\"record_bytes\": 1, {choice}}}"), options);
    let good = |choice: &str| of(choice, c"{\"shuffle\": true, \"seed\": 3}").expect("samples");
    let counts = |all: &[u8]| [1, 2].map(|part| all.iter().filter(|&&byte| byte == part).count());
    // The second dataset is over when four fifths of its weight have come of the first.
    let [of_one, of_two] = counts(&good("\"weights\": [0.8, 0.2]"));
    assert!(of_two == 500 && (1950..2050).contains(&of_one), "{of_one} and {of_two}");
    let [of_one, of_two] = counts(&good("\"weights\": [1, 1], \"stopping\": \"after:200\""));
    assert!(of_one + of_two == 200 && (90..110).contains(&of_one), "{of_one} and {of_two}");
    let all = good("\"weights\": [1, 1], \"stopping\": \"all_exhausted_without_replacement\"");
    assert_eq!(counts(&all), [3000, 500]);
    // The seed decides the order, and nothing else does.
    let seeded = |options| of("\"weights\": [1, 1]", options).expect("samples");
    let seven = seeded(c"{\"seed\": 7}");
    assert!(seven == seeded(c"{\"seed\": 7}") && seven != seeded(c"{\"seed\": 8}"));

    let refused = |choice: &str, what: &str| {
        let error = of(choice, c"").expect_err("is refused");
        assert!(error.contains(what) && error.contains("help: "), "{error}");
    };
    refused("\"weights\": [1]", "1 weights are given for 2 datasets");
    refused("\"weights\": [1, -1]", "-1");
    refused("\"weights\": [0, 0]", "weight");
    refused("\"weights\": 1", "weights cannot be 1");
    refused("\"weights\": [1, 1], \"stopping\": \"soon\"", "soon");
}

#[test]
fn a_shuffle_of_a_mixture_is_that_of_the_loader() {
    let numbers: Vec<u8> = (0..200).collect();
    let (one, two) = (bytes_of("one", &numbers[..100]), bytes_of("two", &numbers[100..]));
    let of = |options| {
        let json = "{\"record_bytes\": 1, \"weights\": [1, 1]}";
        let mut all = samples(&[one.path(), two.path()], json, options).expect("samples");
        all.retain(|&byte| byte < 100);
        all
    };
    assert!(of(c"{}").is_sorted(), "each dataset in its own order");
    let shuffled = of(c"{\"shuffle\": true, \"seed\": 1}");
    assert!(!shuffled.is_sorted() && shuffled != of(c"{\"shuffle\": true, \"seed\": 2}"), "{shuffled:?}");
}
