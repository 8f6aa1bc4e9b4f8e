//! Packing images: decoded once, made smaller, and read back.

use super::{folder_at, options, pack, samples};
use crate::common::archive::Archive;
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use uringload::config::OnError;
use uringload::dataset::{self, Dataset, Options};
use uringload::pack::PackImages;
use uringload::transform::Chain;
use uringload::{ErrorKind, Loader};
use uringload_images::{Decoding, Image, Scratch, decode, encode_jpeg};

/// A large JPEG, a small one with its orientation in EXIF, an image of another format, and another small JPEG.
const FILES: [(&str, &[u8]); 4] = [
    ("a/large.jpg", include_bytes!("../../../images/tests/data/photo.jpg")),
    ("a/turned.jpg", include_bytes!("../../../images/tests/data/exif6.jpg")),
    ("b/drawing.png", include_bytes!("../../../images/tests/data/coffee.png")),
    ("b/small.jpg", include_bytes!("../../../images/tests/data/420.jpg")),
];

fn source() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, bytes) in FILES {
        fs::create_dir_all(root.path().join(name).parent().unwrap()).unwrap();
        fs::write(root.path().join(name), bytes).unwrap();
    }
    root
}

fn image(bytes: &[u8]) -> Image {
    decode(bytes, &Decoding::default()).unwrap()
}

/// What `chain` makes of a file.
fn made(bytes: &[u8], chain: &str) -> Image {
    let (image, chain) = (image(bytes), chain.parse::<Chain>().unwrap());
    let plan = chain.draw(0, 0, 0, image.height(), image.width()).unwrap();
    plan.image(&image, &mut Scratch::default()).unwrap()
}

/// The value that each file became, by its name without its ending.
fn packed(shards: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for (key, fields) in samples(shards) {
        let mut fields = fields.into_iter().filter(|(name, _)| name != "cls");
        let (name, value) = fields.next().unwrap();
        assert!(fields.next().is_none());
        // All have the ending that most have.
        assert_eq!(name, "jpg");
        found.insert(key, value);
    }
    found
}

fn stem(name: &str) -> &str {
    name.rsplit_once('.').unwrap().0
}

#[test]
fn larger_images_become_smaller_jpegs() {
    let (source, shards) = (source(), tempfile::tempdir().unwrap());
    let side = image(FILES[3].1).height().min(image(FILES[3].1).width());
    let asked = options().images(PackImages::resize(side).quality(80));
    let report = pack(folder_at(source.path()), shards.path(), asked).unwrap();
    let found = packed(shards.path());
    assert_eq!(found.len(), 4);
    for (name, bytes) in [FILES[0], FILES[2]] {
        let wanted = made(bytes, &format!("resize({side})"));
        assert_eq!(wanted.height().min(wanted.width()), side);
        assert!(found[stem(name)] == encode_jpeg(&wanted, 80).unwrap(), "{name}");
    }
    for (name, bytes) in [FILES[1], FILES[3]] {
        assert!(found[stem(name)] == bytes, "{name}: no larger, so byte for byte");
    }
    let images = report.images.unwrap();
    assert_eq!(images.images, 4);
    assert_eq!(images.bytes_before, FILES.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>());
    assert_eq!(images.bytes_after, found.values().map(|value| value.len() as u64).sum::<u64>());
    assert!(images.bytes_after < images.bytes_before);
}

#[test]
fn pixels_are_those_that_the_chain_makes() {
    let (source, shards) = (source(), tempfile::tempdir().unwrap());
    let chain = "resize(40), center_crop(32)";
    let asked = options().images(PackImages::transform(chain.parse().unwrap()).unwrap().pixels());
    pack(folder_at(source.path()), shards.path(), asked).unwrap();
    let found = packed(shards.path());
    for (name, bytes) in FILES {
        let pixels = image(&found[stem(name)]);
        assert!(pixels == made(bytes, chain) && (pixels.height(), pixels.width()) == (32, 32), "{name}");
    }
    // A loader goes on from there: the same tensors as from the source by the whole chain.
    let tensors = |dataset: Arc<dyn Dataset>, chain: &str| {
        let column = dataset.schema().fields[0].name.clone();
        let loader = Loader::builder(dataset).batch_size(4).transform(&column, chain.parse().unwrap());
        let batch = loader.build().unwrap().next().unwrap().unwrap();
        (0..batch.len()).map(|row| batch.column(&column).unwrap().bytes_of(row).unwrap().to_vec()).collect::<Vec<_>>()
    };
    let (jpgs, shards) = (source.path().join("a"), tempfile::tempdir().unwrap());
    let asked = options().images(PackImages::transform(chain.parse().unwrap()).unwrap().pixels());
    pack(folder_at(&jpgs), shards.path(), asked).unwrap();
    let (whole, rest) = (format!("{chain}, normalize(imagenet)"), "center_crop(32), normalize(imagenet)");
    let shards = dataset::open(&[shards.path()], &Options::new()).unwrap();
    assert!(tensors(shards, rest) == tensors(folder_at(&jpgs), &whole));
}

/// Shards and manifest: indexes tell the time of their shard.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
    named.filter(|(name, _)| !name.ends_with(".uidx")).collect()
}

#[test]
fn shards_are_the_same_however_many_write_them_and_belong_to_their_options() {
    let source = source();
    let asked = |quality| options().shard_samples(1).images(PackImages::resize(24).quality(quality));
    let to = |threads: usize, quality| {
        let shards = tempfile::tempdir().unwrap();
        pack(folder_at(source.path()), shards.path(), asked(quality).threads(threads)).unwrap();
        shards
    };
    let (one, three, other) = (to(1, 85), to(3, 85), to(2, 40));
    assert!(files(one.path()) == files(three.path()));
    assert!(files(one.path()) != files(other.path()));
    // Whole shards stay, and those of other options are not gone on with.
    let again = pack(folder_at(source.path()), one.path(), asked(85)).unwrap();
    assert_eq!((again.shards, again.images.unwrap().images), (4, 0));
    for asked in [asked(84), options().shard_samples(1)] {
        let error = pack(folder_at(source.path()), one.path(), asked).unwrap_err();
        assert!(error.to_string().contains("other settings: images"), "{error}");
    }
}

#[test]
fn what_cannot_be_made_is_an_error_of_its_sample() {
    let source = source();
    fs::write(source.path().join("b/broken.jpg"), &FILES[0].1[..2000]).unwrap();
    let with = |on_error| {
        let shards = tempfile::tempdir().unwrap();
        let builder = Loader::builder(folder_at(source.path())).on_error(on_error);
        let pack = builder.pack(shards.path(), options().images(PackImages::resize(24))).unwrap();
        let report = pack.run(&|_| ControlFlow::Continue(()));
        (report, shards)
    };
    let (raised, _) = with(OnError::Raise);
    let error = raised.unwrap_err();
    assert!(error.kind() == ErrorKind::Truncated && error.to_string().contains("b/broken"), "{error}");
    let (skipped, shards) = with(OnError::Skip);
    let skipped = skipped.unwrap();
    assert_eq!((skipped.samples, skipped.failed, skipped.lacking), (4, 1, 1));
    assert_eq!(packed(shards.path()).len(), 4);
}

#[test]
fn what_makes_no_sense_is_refused() {
    for chain in ["random_resized_crop(32)", "resize(32), hflip", "resize(32), normalize(imagenet)", "to_tensor(u8)"] {
        let error = PackImages::transform(chain.parse().unwrap()).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidArgument && error.remedy().is_some(), "{chain}: {error}");
    }
    let source = source();
    let planned = |images: PackImages| {
        Loader::builder(folder_at(source.path())).pack(source.path().join("../to"), options().images(images))
    };
    for (images, told) in [
        (PackImages::resize(0), "cannot be resized"),
        (PackImages::resize(32).quality(0), "quality 0"),
        (PackImages::resize(32).quality(101), "quality 101"),
        (PackImages::resize(32).column("jpeg"), "no column \"jpeg\""),
    ] {
        let error = planned(images).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains(told), "{error}");
    }
    // Two columns of images: which is a mask is unknown.
    let root = tempfile::tempdir().unwrap();
    let tar = Archive::new().file("0.jpg", FILES[0].1).file("0.png", FILES[2].1);
    fs::write(root.path().join("a.tar"), tar.end().0).unwrap();
    let two = || Loader::builder(dataset::open(&[root.path()], &Options::new()).unwrap());
    let to = root.path().join("to");
    let error = two().pack(&to, options().images(PackImages::resize(24))).unwrap_err();
    assert!(error.to_string().contains("jpg, png have images"), "{error}");
    let only = two().pack(&to, options().images(PackImages::resize(24).column("jpg"))).unwrap();
    only.run(&|_| ControlFlow::Continue(())).unwrap();
    let found = samples(&to);
    assert!(found["0"]["png"] == FILES[2].1 && found["0"]["jpg"] != FILES[0].1);
}

#[test]
fn what_is_won_is_told_beforehand() {
    let (source, shards) = (source(), tempfile::tempdir().unwrap());
    let planned = |options| Loader::builder(folder_at(source.path())).pack(shards.path(), options).unwrap();
    assert_eq!(planned(options()).predict().unwrap(), None);
    let predicted = planned(options().images(PackImages::resize(24))).predict().unwrap().unwrap();
    assert_eq!(predicted.images, 4);
    assert!(predicted.bytes_after < predicted.bytes_before && predicted.processors > 0);
    let (before, after) = predicted.images_per_second().unwrap();
    assert!(before > 0.0 && after > before, "{before} images a second become {after}");
    assert_eq!(fs::read_dir(shards.path()).unwrap().count(), 0, "nothing was written");
}
