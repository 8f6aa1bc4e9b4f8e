//! Masks, boxes and labels that follow the images of another column: by the same random numbers, whatever the threads;
//! and the errors of those that do not fit.

use crate::common::archive::Archive;
use crate::common::within;
use bytes::Bytes;
use std::fs;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::batch::{Batch, Data};
use uringload::config::{ImageCache, OnError};
use uringload::dataset::{
    self, DType, Dataset, Field, FileId, FileTable, Index, Options, Sample, SampleId, Schema, Shape, Span, Value,
};
use uringload::transform::{BoxFormat, Boxes, Chain, Follow, Mask};
use uringload::{Builder, ErrorKind, Loader, Result};
use uringload_images::{Image, Scratch, encode_bmp};

const SEED: u64 = 7;
const SIDE: u32 = 24;
const CHAIN: &str = "random_resized_crop(24), hflip, vflip, normalize(imagenet)";
const SAMPLES: u64 = 20;
const MASK: usize = 1;
const BOXES: usize = 2;
const CLASSES: usize = 3;

/// An image, its mask, its boxes and their classes.
type Scene = [Vec<u8>; 4];

/// Scenes in one file, end to end.
struct Scenes {
    index: Index,
    ends: Vec<[u64; 4]>,
}

impl Scenes {
    fn write(scenes: &[Scene]) -> (TempDir, Arc<dyn Dataset>) {
        let root = tempfile::tempdir().expect("a folder");
        let bytes: Vec<u8> = scenes.iter().flatten().flatten().copied().collect();
        fs::write(root.path().join("scenes"), &bytes).expect("a file");
        let mut end = 0;
        let mut next = |part: &Vec<u8>| {
            end += part.len() as u64;
            end
        };
        let ends = scenes.iter().map(|scene| std::array::from_fn(|part| next(&scene[part]))).collect();
        let mut files = FileTable::new();
        files.push_root(root.path());
        files.push(b"scenes", bytes.len() as u64).expect("room for one");
        let field = |name: &str, dtype| Field { name: name.into(), dtype, shape: Shape::Ragged };
        let fields = vec![
            field("image", DType::U8),
            field("mask", DType::U8),
            field("boxes", DType::F32),
            field("classes", DType::I64),
        ];
        let index = Index::new("scenes", files, Schema { fields }, scenes.len() as u64);
        (root, Arc::new(Scenes { index, ends }))
    }
}

impl Dataset for Scenes {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let mut offset = id.0.checked_sub(1).map_or(0, |before| self.ends[before as usize][3]);
        for end in self.ends[id.0 as usize] {
            out.push(Span { file: FileId(0), offset, len: end - offset });
            offset = end;
        }
    }

    fn parse(&self, _id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        out.values.extend(raw.iter().cloned().map(Value::Bytes));
        Ok(())
    }

    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        out.extend(format!("scene {}", id.0).bytes());
    }
}

fn sides(number: u64) -> (u32, u32) {
    (40 + number as u32, 60 - number as u32)
}

fn mask(number: u64) -> Image {
    let (height, width) = sides(number);
    let level = |place: u32| (place / width / 4 + place % width / 5 + number as u32) as u8 % 21;
    Image::new(height, width, 1, (0..height * width).map(level).collect()).unwrap()
}

fn photo(number: u64) -> Image {
    let pixels = mask(number).pixels().iter().flat_map(|&level| [level * 9, 255 - level, level]).collect();
    let (height, width) = sides(number);
    Image::new(height, width, 3, pixels).unwrap()
}

/// A BMP of 8 bits, whose palette is gray.
fn gray_bmp(image: &Image) -> Vec<u8> {
    let (height, width) = (image.height(), image.width());
    let row_bytes = width.next_multiple_of(4);
    let (start, bytes) = (54 + 1024, row_bytes * height);
    let mut file = b"BM".to_vec();
    for word in [start + bytes, 0, start, 40, width, height, 1 | 8 << 16, 0, bytes, 0, 0, 256, 0] {
        file.extend(u32::to_le_bytes(word));
    }
    (0..=255_u8).for_each(|level| file.extend([level, level, level, 0]));
    for row in image.pixels().chunks(width as usize).rev() {
        file.extend(row);
        file.resize(file.len() + (row_bytes - width) as usize, 0);
    }
    file
}

fn boxes(number: u64) -> Vec<[f32; 4]> {
    let at = number as f32;
    (0..number % 5).map(|one| [at + one as f32 * 7.0, 2.0 * one as f32, 12.5, 9.0 + at]).collect()
}

fn scene(number: u64) -> Scene {
    let classes = (0..boxes(number).len() as i64).flat_map(|one| (one + 100 * number as i64).to_le_bytes()).collect();
    let edges = boxes(number).into_iter().flatten().flat_map(f32::to_le_bytes).collect();
    [encode_bmp(&photo(number)).unwrap(), gray_bmp(&mask(number)), edges, classes]
}

fn builder(dataset: &Arc<dyn Dataset>) -> Builder {
    Loader::builder(Arc::clone(dataset))
        .seed(SEED)
        .batch_size(6)
        .shuffle(true)
        .follow("classes", Follow::Labels { boxes: "boxes".into() })
        .follow("mask", Mask::of("image").fill(255).dtype(DType::I64))
        .follow("boxes", Boxes::of("image").format(BoxFormat::Xywh))
        .transform("image", CHAIN.parse::<Chain>().unwrap())
}

/// What is seen of a sample: its mask, its boxes and their classes.
type Seen = (Vec<i64>, Vec<f32>, Vec<i64>);

fn seen(batch: &Batch, index: usize) -> Seen {
    let words = |name: &str, size: usize| -> Vec<Vec<u8>> {
        let bytes = batch.column(name).expect("the column").bytes_of(index).expect("a value");
        bytes.chunks(size).map(<[u8]>::to_vec).collect()
    };
    let integers = |name| words(name, 8).iter().map(|word| i64::from_le_bytes(word[..].try_into().unwrap())).collect();
    let edges = words("boxes", 4).iter().map(|word| f32::from_le_bytes(word[..].try_into().unwrap())).collect();
    (integers("mask"), edges, integers("classes"))
}

/// What running the plan by hand makes.
fn by_hand(number: u64, epoch: u64) -> Seen {
    let (height, width) = sides(number);
    let plan = CHAIN.parse::<Chain>().unwrap().draw(SEED, epoch, number, height, width).unwrap();
    let mask = plan.mask(&mask(number), 255, &mut Scratch::default()).unwrap();
    let kept = boxes(number).into_iter().enumerate().filter_map(|(index, [left, top, w, h])| {
        let edges = plan.rectangle([left, top, left + w, top + h])?;
        let [left, top, right, bottom] = edges;
        (right - left >= 1.0 && bottom - top >= 1.0).then_some((index, [left, top, right - left, bottom - top]))
    });
    let kept: Vec<_> = kept.collect();
    (
        mask.pixels().iter().map(|&level| level.into()).collect(),
        kept.iter().flat_map(|(_, edges)| *edges).collect(),
        kept.iter().map(|(index, _)| *index as i64 + 100 * number as i64).collect(),
    )
}

#[test]
fn masks_boxes_and_labels_go_where_the_pixels_go() {
    let scenes: Vec<Scene> = (0..SAMPLES).map(scene).collect();
    let (_root, dataset) = Scenes::write(&scenes);
    within(Duration::from_secs(120), move || {
        let (mut all, mut left_out) = (0, 0);
        for threads in [0, 1, 3] {
            for batch in builder(&dataset).num_threads(threads).epochs(2).build().unwrap() {
                let batch = batch.unwrap();
                let Data::Dense { shape, .. } = &batch.column("mask").unwrap().data else { panic!("no tensor") };
                assert_eq!((&shape[..], batch.column("mask").unwrap().dtype), (&[24, 24][..], DType::I64));
                for (index, id) in batch.ids.iter().enumerate() {
                    let wanted = by_hand(id.0, batch.cursor.epoch);
                    assert!(wanted.0.len() == (SIDE * SIDE) as usize);
                    assert_eq!(seen(&batch, index), wanted, "sample {} with {threads} threads", id.0);
                    all += wanted.2.len();
                    left_out += boxes(id.0).len() - wanted.2.len();
                }
            }
        }
        assert!(all > 50 && left_out > 10, "{all} boxes, {left_out} left out");
    });
}

#[test]
fn what_does_not_fit_is_an_error_of_its_sample() {
    let mut scenes: Vec<Scene> = (0..SAMPLES).map(scene).collect();
    scenes[3][MASK] = gray_bmp(&mask(4));
    scenes[4][BOXES].truncate(60);
    scenes[7][CLASSES].clear();
    scenes[8][BOXES][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    scenes[9][BOXES] = vec![0; 16 * 300];
    scenes[11][MASK] = encode_bmp(&photo(11)).unwrap();
    let (_root, dataset) = Scenes::write(&scenes);
    let mut failed = Vec::new();
    for batch in builder(&dataset).shuffle(false).on_error(OnError::Skip).build().unwrap() {
        let batch = batch.unwrap();
        for (index, id) in batch.ids.iter().enumerate() {
            assert_eq!(seen(&batch, index), by_hand(id.0, 0));
        }
        failed.extend(batch.failed.iter().map(|failed| (failed.id.0, failed.error.to_string())));
    }
    let wanted = [
        (3, "the mask has 44 x 56 pixels, and its image 43 x 57"),
        (4, "60 bytes are no boxes of four f32"),
        (7, "0 elements belong to 2 boxes"),
        (8, "box 0 is [NaN"),
        (9, "has 300 boxes, and memory is for 256"),
        (11, "mask"),
    ];
    assert_eq!(failed.len(), wanted.len(), "{failed:#?}");
    for ((id, error), (wanted_id, wanted)) in failed.iter().zip(wanted) {
        assert!(*id == wanted_id && error.contains(wanted), "{id}: {error}");
    }
    // A sample that stands in is made as all others.
    for batch in builder(&dataset).on_error(OnError::Replace).build().unwrap() {
        let batch = batch.unwrap();
        for (index, id) in batch.ids.iter().enumerate() {
            assert_eq!(seen(&batch, index), by_hand(id.0, 0), "sample {}", id.0);
        }
    }
}

#[test]
fn what_cannot_follow_is_refused() {
    let (_root, dataset) = Scenes::write(&[scene(1), scene(2)]);
    let plain = || Loader::builder(Arc::clone(&dataset));
    let images = || plain().transform("image", CHAIN.parse::<Chain>().unwrap());
    let refused = |builder: Builder, what: &str| {
        let error = builder.build().expect_err(what);
        assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains(what), "{error}");
        assert!(error.remedy().is_some(), "{error}");
    };
    refused(plain().follow("mask", Mask::of("image")), "has no transform of images");
    refused(images().follow("mask", Mask::of("imag")), "no column \"imag\"");
    refused(images().follow("musk", Mask::of("image")), "\"musk\"");
    refused(images().follow("mask", Mask::of("image").dtype(DType::F32)), "f32");
    refused(images().follow("classes", Follow::Labels { boxes: "boxes".into() }), "has no boxes that follow");
    refused(images().follow("boxes", Boxes::of("image").min_size(f32::NAN)), "min_size");
    refused(images().follow("mask", Mask::of("image")).follow("mask", Mask::of("image")), "two transforms");
    refused(images().follow("mask", Mask::of("image")).cache_images(ImageCache::memory(1 << 20)), "masks or boxes");
}

/// A file of NumPy.
fn npy(descr: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    text.extend(std::iter::repeat_n(' ', 117 - text.len()));
    [b"\x93NUMPY\x01\x00\x76\x00", text.as_bytes(), b"\n", elements].concat()
}

/// In a tar, boxes and labels are files of NumPy: their numbers follow, and not their bytes.
#[test]
fn boxes_and_labels_of_numpy_files_follow() {
    type Make = fn(&[[f32; 4]]) -> (&'static str, Vec<u8>);
    let kinds: [Make; 3] = [
        |boxes| ("<f4", boxes.iter().flatten().flat_map(|edge| edge.to_le_bytes()).collect()),
        |boxes| ("<f8", boxes.iter().flatten().flat_map(|&edge| f64::from(edge).to_le_bytes()).collect()),
        |boxes| ("<i4", boxes.iter().flatten().flat_map(|&edge| (edge as i32).to_le_bytes()).collect()),
    ];
    let mut archive = Archive::new();
    for number in 0..SAMPLES {
        let (boxes, name) = (boxes(number), format!("{number:03}"));
        let (descr, elements) = kinds[number as usize % 2](&boxes);
        let classes: Vec<u8> =
            (0..boxes.len() as i32).flat_map(|one| (one + 100 * number as i32).to_le_bytes()).collect();
        archive = archive
            .file(&format!("{name}.bmp"), &encode_bmp(&photo(number)).unwrap())
            .file(&format!("{name}.boxes.npy"), &npy(descr, &format!("({}, 4)", boxes.len()), &elements))
            .file(&format!("{name}.classes.npy"), &npy("<i4", &format!("({},)", boxes.len()), &classes));
    }
    let root = tempfile::tempdir().expect("a folder");
    fs::write(root.path().join("scenes.tar"), archive.end().0).expect("an archive");
    let dataset = dataset::open(&[root.path()], &Options::new()).expect("a dataset");
    let followed = |follow: &str| {
        Loader::builder(Arc::clone(&dataset))
            .seed(SEED)
            .batch_size(6)
            .shuffle(true)
            .transform("bmp", CHAIN.parse::<Chain>().unwrap())
            .transform_by("boxes.npy", follow)
            .and_then(|builder| builder.transform_by("classes.npy", "labels(boxes.npy)"))
    };
    let mut count = 0;
    for batch in followed("boxes(bmp, format=xywh)").unwrap().build().expect("a loader") {
        let batch = batch.expect("a batch");
        for (index, id) in batch.ids.iter().enumerate() {
            let bytes = |name: &str| batch.column(name).expect("the column").bytes_of(index).expect("a value").to_vec();
            let (_, edges, classes) = by_hand(id.0, batch.cursor.epoch);
            assert_eq!(
                bytes("boxes.npy"),
                edges.iter().flat_map(|edge| edge.to_le_bytes()).collect::<Vec<_>>(),
                "{id:?}"
            );
            assert_eq!(bytes("classes.npy"), classes.iter().flat_map(|class| class.to_le_bytes()).collect::<Vec<_>>());
            count += 1;
        }
    }
    assert_eq!(count, SAMPLES);
    // What breaks off, has another shape, or another type, is an error of its sample.
    for (file, words) in [
        (npy("<f4", "(2, 3)", &[0; 24]), "shape [2, 3]"),
        (npy("<f4", "(2, 4)", &[0; 24]), "end before the .npy array"),
        (npy("<u4", "(1, 4)", &[0; 16]), "u32"),
        (npy(">f4", "(1, 4)", &[0; 16]), "big endian"),
        (vec![1, 2, 3, 4], "no .npy array"),
    ] {
        let archive = Archive::new().file("0.bmp", &encode_bmp(&photo(0)).unwrap()).file("0.boxes.npy", &file);
        fs::write(root.path().join("one.tar"), archive.end().0).expect("an archive");
        let one = dataset::open(&[root.path().join("one.tar")], &Options::new()).expect("a dataset");
        let builder = Loader::builder(one).transform("bmp", CHAIN.parse::<Chain>().unwrap());
        let mut loader = builder.follow("boxes.npy", Boxes::of("bmp")).build().expect("a loader");
        let error = loader.next().expect("a batch").unwrap_err();
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
    // A file that is something else is not taken for numbers of 8 bits.
    for name in ["json", "bin", "txt"] {
        let archive =
            Archive::new().file("0.bmp", &encode_bmp(&photo(0)).unwrap()).file(&format!("0.{name}"), b"[1, 2]");
        fs::write(root.path().join("one.tar"), archive.end().0).expect("an archive");
        let one = dataset::open(&[root.path().join("one.tar")], &Options::new()).expect("a dataset");
        let builder = Loader::builder(one).transform("bmp", CHAIN.parse::<Chain>().unwrap());
        let Err(error) = builder.follow(name, Boxes::of("bmp")).build() else { panic!("{name}") };
        assert!(error.to_string().contains("has files, and no numbers"), "{error}");
    }
}
