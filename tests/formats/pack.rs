//! Packing: what goes in comes out, its place in the shards, and what is refused.

mod dense;
mod images;
mod parts;
mod place;
mod proof;
mod readers;

use crate::common::archive::Archive;
use crate::common::content::write_file;
use crate::common::direct;
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use uringload::config::{Collate, OnError};
use uringload::dataset::{self, Concat, DType, Dataset, Options, SampleId};
use uringload::pack::{Keys, PackOptions, PackReport};
use uringload::{Error, ErrorKind, Loader};

/// A sample by its key: what each field is.
type Samples = BTreeMap<String, BTreeMap<String, Vec<u8>>>;

fn options() -> PackOptions {
    PackOptions::default().threads(2)
}

/// Packs, and proves it where the folder has no other shards.
fn pack(dataset: Arc<dyn Dataset>, to: &Path, options: PackOptions) -> Result<PackReport, Error> {
    let report = packed(Arc::clone(&dataset), to, options.clone())?;
    let pack = Loader::builder(dataset).pack(to, options.overwrite(false))?;
    if pack.shards().len() as u64 == report.shards {
        let proved = pack.finish()?;
        assert_eq!((proved.samples, proved.lacking), (report.samples, report.lacking));
    }
    Ok(report)
}

fn packed(dataset: Arc<dyn Dataset>, to: &Path, options: PackOptions) -> Result<PackReport, Error> {
    Loader::builder(dataset).pack(to, options)?.run(&|_| ControlFlow::Continue(()))
}

fn open(shards: &Path) -> Arc<dyn Dataset> {
    let options = Options::new().format("tar").set("missing", "empty");
    let tar = dataset::open(&[shards], &options).unwrap();
    assert_eq!(tar.index().report.as_ref().unwrap().scanned, 0, "an index lies beside each shard");
    assert!(tar.index().left_out.is_empty(), "{:?}", tar.index().left_out);
    tar
}

/// All that a loader gives of the shards; fields that a sample lacks are left out.
fn samples(shards: &Path) -> Samples {
    let tar = open(shards);
    let loader = Loader::builder(tar.clone()).key(true).collate(Collate::Views);
    let mut samples = Samples::new();
    for batch in loader.build().unwrap() {
        let batch = batch.unwrap();
        for (row, &id) in batch.ids.iter().enumerate() {
            let bytes = |column: &str| batch.column(column).unwrap().bytes_of(row).unwrap();
            let fields = tar.schema().fields.iter().enumerate().filter(|(field, _)| tar.has_field(id, *field));
            let fields = fields.map(|(_, field)| (field.name.clone(), bytes(&field.name).to_vec())).collect();
            let key = String::from_utf8(bytes("key").to_vec()).unwrap();
            assert!(samples.insert(key, fields).is_none(), "a key comes once");
        }
    }
    samples
}

/// Of all fields of one name: where each value begins and how long it is, as the index says.
fn places(shards: &Path) -> Vec<(String, u64, u64)> {
    let all = open(shards);
    let mut places = Vec::new();
    for field in &all.schema().fields {
        let options = Options::new().format("tar").set("fields", [&*field.name]).set("missing", "empty");
        let tar = dataset::open(&[shards], &options);
        let tar = tar.unwrap();
        let mut spans = Vec::new();
        (0..tar.len()).for_each(|id| tar.spans(SampleId(id), &mut spans));
        places.extend(spans.iter().map(|span| (field.name.clone(), span.offset, span.len)));
    }
    places
}

fn check_places(shards: &Path) {
    let places = places(shards);
    assert!(places.iter().any(|(.., len)| *len >= 4096), "there is something to look at");
    for (field, offset, len) in places {
        match len {
            4096.. => assert_eq!(offset % 4096, 0, "{field} of {len} bytes at {offset}"),
            _ => assert!(offset % 4096 + len <= 4096, "{field} of {len} bytes at {offset} lies across a boundary"),
        }
    }
}

/// Class folders with images, a file beside one of them, one without an ending, and one with a long name.
fn class_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let long = format!("cat/{}/{}.jpg", "f".repeat(90), "g".repeat(140));
    for (name, size) in [
        ("cat/1.jpg", 20_000),
        ("cat/1.json", 700),
        ("cat/2.JPG", 4096),
        ("cat/3.seg.png", 4095),
        (&long, 9000),
        ("dog/1.jpg", 0),
        ("dog/2", 5000),
        ("dog/3.jpg", 100_001),
        ("dog/4.cls", 3),
        ("dog/4.jpg", 6000),
    ] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_file(&path, size).unwrap();
    }
    folder
}

fn folder_at(path: &Path) -> Arc<dyn Dataset> {
    dataset::open(&[path], &Options::new().format("folder")).unwrap()
}

#[test]
fn a_folder_keeps_its_paths_and_gets_its_labels() {
    let (source, to) = (class_folder(), tempfile::tempdir().unwrap());
    let report = pack(folder_at(source.path()), to.path(), options()).unwrap();
    assert_eq!((report.samples, report.members_written, report.shards, report.lacking), (8, 17, 1, 0));
    let found = samples(to.path());
    let mut files = 0;
    for (key, fields) in &found {
        let label = if key.starts_with("cat") { &b"0"[..] } else { b"1" };
        for (field, bytes) in fields {
            let name = match (key.as_str(), field.as_str()) {
                ("dog/2", "bin") => "dog/2".into(),
                ("cat/2", "jpg") => "cat/2.JPG".into(),
                _ => format!("{key}.{field}"),
            };
            match fs::read(source.path().join(&name)) {
                Ok(content) => {
                    assert!(content == *bytes, "{name}");
                    files += 1;
                }
                Err(_) => assert_eq!((field.as_str(), &bytes[..]), ("cls", label), "{key}"),
            }
        }
        assert!(fields.contains_key("cls"), "{key} has a label");
    }
    assert_eq!(files, 10, "every file came");
    assert_eq!(found["cat/1"].keys().collect::<Vec<_>>(), ["cls", "jpg", "json"]);
    assert_eq!(found["dog/4"]["cls"].len(), 3, "the label that lies in a file is the sample's");
    check_places(to.path());
}

#[test]
fn samples_may_be_called_by_number() {
    let (source, to) = (class_folder(), tempfile::tempdir().unwrap());
    let dataset = folder_at(source.path());
    pack(Arc::clone(&dataset), to.path(), options().keys(Keys::Numbers)).unwrap();
    let found = samples(to.path());
    assert_eq!(found.len(), 10, "each file is a sample");
    for (id, wanted) in (0..).zip(direct::samples(&*dataset)) {
        let fields = &found[&format!("{id:09}")];
        let (_, value) = fields.iter().find(|(name, _)| *name != "cls").unwrap_or(fields.first_key_value().unwrap());
        assert_eq!(value, &wanted.unwrap()["data"], "{id}");
    }
    // Of a name with several dots the last ending stays.
    assert_eq!(found["000000003"].keys().collect::<Vec<_>>(), ["cls", "png"]);
}

#[test]
fn records_are_members_of_bytes_or_arrays() {
    let source = tempfile::tempdir().unwrap();
    write_file(&source.path().join("a.bin"), 50 * 5000).unwrap();
    for dtype in [DType::U8, DType::F32, DType::BF16] {
        let records = Options::new().format("records").set("record_bytes", 5000).set("dtype", dtype);
        let records = dataset::open(&[source.path()], &records).unwrap();
        let to = tempfile::tempdir().unwrap();
        let options = options().shard_samples(7);
        let report = pack(records, to.path(), options).unwrap();
        assert_eq!((report.samples, report.shards), (50, 8));
        check_places(to.path());
        let all = fs::read(source.path().join("a.bin")).unwrap();
        for (id, (key, fields)) in samples(to.path()).into_iter().enumerate() {
            assert_eq!(key, format!("{id:09}"));
            let (field, bytes) = fields.first_key_value().unwrap();
            let wanted = &all[id * 5000..][..5000];
            match dtype {
                DType::U8 => assert!(field == "data" && bytes == wanted),
                DType::F32 => {
                    assert!(field == "data.npy" && bytes.ends_with(wanted));
                    assert_eq!(array(bytes), (DType::F32, vec![1250]));
                }
                _ => {
                    assert!(field == "data.bf16.npy" && bytes.ends_with(wanted));
                    assert_eq!(array(bytes), (DType::U16, vec![2500]));
                }
            }
        }
    }
}

/// Type and shape of a `.npy` file, as our own reader has it.
fn array(bytes: &[u8]) -> (DType, Vec<u64>) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.npy"), bytes).unwrap();
    let arrays = dataset::open(&[folder.path()], &Options::new().format("npy")).unwrap();
    let field = &arrays.schema().fields[0];
    match &field.shape {
        uringload::dataset::Shape::Fixed(shape) => (field.dtype, shape.clone()),
        uringload::dataset::Shape::Ragged => panic!("an array has a shape"),
    }
}

#[test]
fn archives_keep_keys_fields_and_what_is_missing() {
    let source = tempfile::tempdir().unwrap();
    let archive = Archive::new()
        .file("x/0.jpg", &[1; 5000])
        .file("x/0.cls", b"1")
        .file("x/1.jpg", &[2; 8192])
        .file("x/2.txt", b"")
        .file("x/2.jpg", &[3; 10])
        .end();
    fs::write(source.path().join("a.tar"), &archive.0).unwrap();
    let to = tempfile::tempdir().unwrap();
    let tar = Options::new().format("tar").set("missing", "empty").sidecars(false);
    let tar = dataset::open(&[source.path()], &tar).unwrap();
    let both = Concat::new(vec![tar.clone()]).unwrap();
    pack(Arc::new(both), to.path(), options()).unwrap();
    let of = |fields: &[(&str, &[u8])]| fields.iter().map(|(name, bytes)| ((*name).into(), bytes.to_vec())).collect();
    let wanted = Samples::from([
        ("x/0".into(), of(&[("jpg", &[1; 5000]), ("cls", b"1")])),
        ("x/1".into(), of(&[("jpg", &[2; 8192])])),
        ("x/2".into(), of(&[("txt", b""), ("jpg", &[3; 10])])),
    ]);
    assert_eq!(samples(to.path()), wanted);
    check_places(to.path());
    // What was packed is packed again to the same bytes.
    let again = tempfile::tempdir().unwrap();
    pack(open(to.path()), again.path(), options()).unwrap();
    let shard = |folder: &TempDir| fs::read(folder.path().join("shard-000000.tar")).unwrap();
    assert!(shard(&to) == shard(&again));
}

#[test]
fn columns_of_mds_lose_nothing() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/mds");
    let mds = dataset::open(&[source], &Options::new().format("mds")).unwrap();
    let to = tempfile::tempdir().unwrap();
    // Where only reading tells how long values are, shards are about as large as was asked.
    let report = pack(Arc::clone(&mds) as Arc<dyn Dataset>, to.path(), options().shard_bytes(60_000));
    assert!(report.unwrap().shards > 1);
    let found = samples(to.path());
    assert_eq!(found.len() as u64, mds.len());
    for (id, wanted) in (0..).zip(direct::samples(&*mds)) {
        let fields = &found[&format!("{id:09}")];
        let wanted = wanted.unwrap();
        for field in &mds.schema().fields {
            let (name, wanted) = (field.name.to_lowercase(), &wanted[&field.name]);
            let arrays = [format!("{name}.npy"), format!("{name}.bf16.npy")];
            match (fields.get(&name), arrays.iter().find_map(|name| fields.get(name))) {
                (Some(raw), None) => assert!(field.dtype == DType::U8 && raw == wanted, "{id} {name}"),
                (None, Some(npy)) => {
                    assert!(npy.ends_with(wanted), "{id} {name}");
                    let (dtype, shape) = array(npy);
                    assert_eq!(dtype, field.dtype, "{id} {name}");
                    assert_eq!(shape.iter().product::<u64>() * dtype.size(), wanted.len() as u64, "{id} {name}");
                }
                other => panic!("{id} {name}: {other:?} of {:?}", fields.keys()),
            }
        }
    }
}

#[test]
fn names_that_no_reader_would_take_are_refused() {
    let refused = |files: &[&str], words: &str| {
        let folder = tempfile::tempdir().unwrap();
        for name in files {
            let path = folder.path().join("s").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            write_file(&path, 10).unwrap();
        }
        let dataset = folder_at(&folder.path().join("s"));
        let to = folder.path().join("to");
        let error = Loader::builder(Arc::clone(&dataset)).pack(&to, options()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("--keys numbers")), "{error}");
        let by_number = pack(dataset, &to, options().keys(Keys::Numbers)).unwrap();
        assert_eq!(by_number.samples, files.len() as u64);
    };
    refused(&["__meta__/x.jpg"], "readers take");
    refused(&["a.jpg", "a.JPG"], "one field of one sample");
    refused(&["a", "a.bin"], "one field of one sample");
    // The folder `k.d` lies between two files of one key.
    refused(&["k.a", "k.d/x.jpg", "k.z"], "has the key \"k\", which shard 0 has already");
    let many: Vec<String> = (0..1100).map(|number| format!("k.{number}.jpg")).collect();
    refused(&many.iter().map(String::as_str).collect::<Vec<_>>(), "different fields");
    // Two roots with files of one name.
    let folder = class_folder();
    let roots = [folder.path().join("cat"), folder.path().join("dog")];
    let dataset = dataset::open(&roots, &Options::new().format("folder")).unwrap();
    let error = Loader::builder(dataset).pack("/nowhere", options()).unwrap_err();
    assert!(error.to_string().contains("which shard 0 has already"), "{error}");
}

/// An archive may call its samples what it likes; what is packed unpacks to nowhere else.
#[test]
fn no_member_leads_out_of_its_folder() {
    for name in ["../a.jpg", "/etc/a.jpg", "x/../../a.jpg"] {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(from.path().join("a.tar"), Archive::new().file(name, b"x").end().0).unwrap();
        let dataset = || dataset::open(&[from.path()], &Options::new().format("tar").sidecars(false)).unwrap();
        let error = Loader::builder(dataset()).pack(to.path(), options()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{name}: {error}");
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("--keys numbers")), "{error}");
        let packed = pack(dataset(), to.path(), options().keys(Keys::Numbers)).unwrap();
        assert_eq!(packed.samples, 1);
        let mut key = Vec::new();
        open(to.path()).key(SampleId(0), &mut key);
        assert_eq!(key, b"000000000");
    }
}

#[test]
fn a_fifo_is_refused_at_once() {
    let (source, to) = (class_folder(), tempfile::tempdir().unwrap());
    for name in ["pack.json", ".shard-000000.tar.tmp"] {
        let path = to.path().join(name);
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        let (dataset, place) = (folder_at(source.path()), to.path().to_path_buf());
        let packed =
            crate::common::within(std::time::Duration::from_secs(20), move || pack(dataset, &place, options()));
        assert!(packed.is_err(), "{name}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_sample_that_cannot_be_had_is_named_or_left_out() {
    let (source, to) = (class_folder(), tempfile::tempdir().unwrap());
    let dataset = folder_at(source.path());
    // Half of a sample of two files.
    fs::write(source.path().join("cat/1.json"), b"short").unwrap();
    let error = pack(Arc::clone(&dataset), to.path(), options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Truncated);
    assert!(error.to_string().contains("sample 1 (\"cat/1\")") && error.to_string().contains("1.json"), "{error}");
    let names: Vec<_> = fs::read_dir(to.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["pack.json"], "no half shard stays");
    let skipping = Loader::builder(dataset).on_error(OnError::Skip).pack(to.path(), options()).unwrap();
    let report = skipping.run(&|_| ControlFlow::Continue(())).unwrap();
    assert_eq!((report.samples, report.lacking, report.failed, report.errors.len()), (7, 1, 1, 1));
    let found = samples(to.path());
    assert!(!found.contains_key("cat/1") && found.len() == 7);
}

#[test]
fn shards_hang_on_nothing_but_source_and_options() {
    let source = tempfile::tempdir().unwrap();
    for number in 0..300_u64 {
        write_file(&source.path().join(format!("{number:03}.bin")), number * number % 30_011).unwrap();
    }
    let mut made = Vec::new();
    for threads in [1, 3] {
        let to = tempfile::tempdir().unwrap();
        let options = options().threads(threads).shard_bytes(400_000);
        let plan = Loader::builder(folder_at(source.path())).pack(to.path(), options.clone()).unwrap();
        let report = pack(folder_at(source.path()), to.path(), options).unwrap();
        assert_eq!((report.shards, report.samples), (plan.shards().len() as u64, 300));
        assert!(report.shards > 8);
        let shards: Vec<Vec<u8>> = (0..report.shards).map(|shard| fs::read(plan.path(shard)).unwrap()).collect();
        for (number, shard) in shards.iter().enumerate() {
            assert!(shard.len() <= 400_000 && shard.len() % 4096 == 0, "{}", shard.len());
            let is_full = number + 1 == shards.len() || shard.len() > 400_000 - 2 * 35_000;
            assert!(is_full, "shard {number} has {} bytes", shard.len());
        }
        assert_eq!(report.bytes_written, shards.iter().map(|shard| shard.len() as u64).sum::<u64>());
        check_places(to.path());
        made.push(shards);
    }
    assert!(made[0] == made[1], "the number of threads changes nothing");
    let to = tempfile::tempdir().unwrap();
    let report = pack(folder_at(source.path()), to.path(), options().align(512)).unwrap();
    assert_eq!((report.padding_bytes, report.shards), (0, 1));
}

/// Each sample of a folder is one image, whatever its ending: the shards have one column of images.
#[test]
fn images_of_several_endings_are_one_column() {
    let fields = |files: &[&str]| {
        let (source, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        files.iter().for_each(|name| write_file(&source.path().join(name), 100).unwrap());
        let report = pack(folder_at(source.path()), to.path(), options()).unwrap();
        let tar = dataset::open(&[to.path()], &Options::new()).unwrap();
        let mut batches = Loader::builder(Arc::clone(&tar)).batch_size(100).build().unwrap();
        let whole = batches.next().unwrap().is_ok_and(|batch| batch.len() as u64 == report.samples);
        (tar.schema().fields.iter().map(|field| field.name.clone()).collect::<Vec<_>>(), whole)
    };
    assert_eq!(fields(&["a.jpg", "b.JPEG", "c.png", "d.JPG"]), (vec!["jpg".to_owned()], true));
    assert!(fields(&["a.png", "a.json", "b.JPEG", "b.json", "c.png", "c.json"]).1);
    // Of two images in a sample each keeps its ending.
    assert_eq!(fields(&["a.jpg", "a.png", "b.jpg"]).0, ["jpg", "png"]);
}
