//! Listings of stores as files: they stand for the URL, and say what is wrong with them.

use crate::common::bucket::Bucket;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use uringload::dataset::SampleId;
use uringload::dataset::{self, Dataset, Options, list_objects, update_listing};
use uringload::inspect::Samples;
use uringload::{Error, ErrorKind};

/// A bucket with photos in two folders of classes, and a folder for listings.
fn bucket() -> (tempfile::TempDir, Arc<Bucket>, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    for (number, name) in ["cat", "dog"].iter().cycle().take(60).enumerate() {
        let path = root.path().join(format!("store/train/{name}/{number:03}.jpg"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("photo {number}").repeat(number + 1)).unwrap();
    }
    fs::write(root.path().join("store/other.txt"), "not of the folder").unwrap();
    let bucket = Bucket::of(&root.path().join("store"));
    let file = root.path().join("train.uls");
    (root, bucket, file)
}

fn options(bucket: &Arc<Bucket>) -> Options {
    Options::new().store("s3://bucket/", Arc::clone(bucket) as Arc<dyn uringload::store::Store>)
}

fn opened(named: impl AsRef<Path>, bucket: &Arc<Bucket>) -> uringload::Result<Arc<dyn Dataset>> {
    dataset::open(&[named], &options(bucket))
}

fn bytes(dataset: Arc<dyn Dataset>, id: u64) -> uringload::Result<Vec<u8>> {
    let sample = Samples::new(dataset)?.read(SampleId(id))?;
    Ok(format!("{:?}", sample.values).into_bytes())
}

#[test]
fn a_listing_stands_for_its_url() {
    let (_root, bucket, file) = bucket();
    let listed = list_objects("s3://bucket/train", &file, &options(&bucket)).unwrap();
    let sizes: u64 = (0..60u64).map(|number| (number + 1) * format!("photo {number}").len() as u64).sum();
    assert_eq!((listed.objects, listed.bytes), (60, sizes));
    assert_eq!(listed.file_bytes, fs::metadata(&file).unwrap().len());
    let by_url = opened("s3://bucket/train", &bucket).unwrap();
    let before = bucket.lists.load(Ordering::Relaxed);
    let by_file = opened(&file, &bucket).unwrap();
    assert_eq!(bucket.lists.load(Ordering::Relaxed), before, "no listing is asked for");
    assert_eq!((by_file.len(), by_file.fingerprint()), (by_url.len(), by_url.fingerprint()));
    assert_eq!(by_file.index().classes, ["cat", "dog"]);
    let last = by_file.len() - 1;
    assert_eq!(bytes(by_file, last).unwrap(), bytes(by_url, last).unwrap());
    // Beside a URL of the same store.
    let both = dataset::open(&[file.as_path(), Path::new("s3://bucket/other.txt")], &options(&bucket).format("folder"));
    assert_eq!(both.unwrap().len(), 61);
}

#[test]
fn what_was_replaced_since_is_told() {
    let (root, bucket, file) = bucket();
    list_objects("s3://bucket/train/", &file, &options(&bucket)).unwrap();
    let at = |name: &str| root.path().join("store/train").join(name);
    fs::write(at("cat/000.jpg"), "another photo").unwrap();
    fs::remove_file(at("dog/001.jpg")).unwrap();
    fs::write(at("dog/999.jpg"), "a new one").unwrap();
    let old = opened(&file, &bucket).unwrap();
    assert_eq!(old.len(), 60);
    assert_eq!(bytes(Arc::clone(&old), 0).unwrap_err().kind(), ErrorKind::Changed);
    let changes = update_listing(&file, &options(&bucket)).unwrap();
    assert_eq!(changes.now.objects, 60);
    for (told, name) in
        [(changes.added, "dog/999.jpg"), (changes.removed, "dog/001.jpg"), (changes.replaced, "cat/000.jpg")]
    {
        assert_eq!((told.count, told.first), (1, vec![PathBuf::from(format!("s3://bucket/train/{name}"))]));
    }
    assert!(bytes(opened(&file, &bucket).unwrap(), 0).is_ok());
    let again = update_listing(&file, &options(&bucket)).unwrap();
    assert_eq!((again.added.count, again.removed.count, again.replaced.count), (0, 0, 0));
}

#[test]
fn bad_listings_are_told_with_their_place() {
    let (root, bucket, file) = bucket();
    list_objects("s3://bucket/train", &file, &options(&bucket)).unwrap();
    let good = fs::read(&file).unwrap();
    let error = |bytes: &[u8]| -> Error {
        fs::write(&file, bytes).unwrap();
        let error = opened(&file, &bucket).expect_err("a bad listing");
        assert_eq!(error.path(), Some(&*file), "{error}");
        assert!(
            error.offset().is_some() && error.remedy().is_some_and(|help| help.contains("list-objects")),
            "{error}"
        );
        error
    };
    assert_eq!(error(&good[..good.len() - 1]).kind(), ErrorKind::Truncated);
    assert_eq!(error(&good[..30]).kind(), ErrorKind::Truncated);
    assert_eq!(error(b"").kind(), ErrorKind::Corrupt);
    assert_eq!(error(b"a text that has nothing to do with it").kind(), ErrorKind::Corrupt);
    let mut other = good.clone();
    other[7] = 9;
    assert_eq!(error(&other).kind(), ErrorKind::Unavailable);
    for at in (0..good.len()).filter(|&at| at != 7) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        let kind = error(&bad).kind();
        assert!(matches!(kind, ErrorKind::Corrupt | ErrorKind::Truncated), "byte {at}: {kind:?}");
    }
    fs::write(&file, &good).unwrap();
    // What the store is called counts, and not how its URLs were given.
    let other = Options::new().store("s3://buck", Bucket::of(root.path()));
    assert!(dataset::open(&[&file], &other).is_ok());
}

/// Where the URL of a listing leads to another store than the one that was listed, nothing is read of it.
#[test]
fn a_listing_of_another_bucket_is_refused() {
    let (root, bucket, file) = bucket();
    list_objects("s3://bucket/train", &file, &options(&bucket)).unwrap();
    let other = Bucket::called("other", &root.path().join("store"));
    let error = opened(&file, &other).expect_err("it is of another bucket");
    assert_eq!((error.kind(), error.path()), (ErrorKind::InvalidArgument, Some(&*file)), "{error}");
    assert!(error.to_string().contains("the listing is of s3://bucket/, which is s3://other/ here"), "{error}");
    assert!(error.remedy().is_some_and(|help| help.contains("list the objects again")), "{error}");
    let asked = [&other.lists, &other.reads].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(asked, [0, 0]);
    assert_eq!(update_listing(&file, &options(&other)).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn an_empty_bucket_is_no_folder() {
    let root = tempfile::tempdir().unwrap();
    let (bucket, file) = (Bucket::of(root.path()), root.path().with_extension("uls"));
    let told = |error: Error| (error.kind(), error.to_string());
    let empty = (ErrorKind::Empty, "s3://bucket/: the bucket has no object".to_owned());
    for format in ["folder", "tar", "jsonl", "npy"] {
        let error = dataset::open(&["s3://bucket/"], &options(&bucket).format(format)).expect_err("it is empty");
        assert_eq!(told(error), empty, "{format}");
    }
    assert_eq!(told(opened("s3://bucket/", &bucket).expect_err("it is empty")), empty);
    assert_eq!(told(list_objects("s3://bucket/", &file, &options(&bucket)).expect_err("it is empty")), empty);
    let error = dataset::open(&["s3://bucket/"], &options(&bucket).format("mds")).expect_err("it is empty");
    assert!(error.to_string().starts_with("s3://bucket/: there is no index.json"), "{error}");
}

#[test]
fn what_cannot_be_listed_is_refused() {
    let (root, bucket, file) = bucket();
    for (url, file, kind, words) in [
        ("s3://bucket/train", root.path().join("train.txt"), ErrorKind::InvalidArgument, "ends in .uls"),
        ("s3://bucket/train?versionId=1", file.clone(), ErrorKind::InvalidArgument, "without a query"),
        ("s3://bucket/nothing", file.clone(), ErrorKind::NotFound, "no such object"),
        ("/tmp", file.clone(), ErrorKind::InvalidArgument, "no store with listings"),
        ("s3://bucket/train", root.path().join("none/x.uls"), ErrorKind::NotFound, "cannot write"),
    ] {
        let error = list_objects(url, &file, &options(&bucket)).expect_err(words);
        assert!(error.kind() == kind && error.to_string().contains(words), "{error}");
        assert!(!file.exists());
    }
    // A folder that happens to be called so is a folder.
    let folder = root.path().join("set.uls");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a"), "a").unwrap();
    assert_eq!(dataset::open(&[&folder], &Options::new()).unwrap().len(), 1);
}
