//! Encoded images and closures in the loader's threads: the tensors equal those of decoding and running the plan by
//! hand, whatever the format, the threads and the ranks; and how values fail.

use crate::common::archive::Archive;
use crate::common::content::put;
use crate::common::{HANG, child, within};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload::batch::{Batch, Column, Data};
use uringload::config::{Collate, MaxFailures, OnError, Packing};
use uringload::dataset::{self, DType, Dataset, Options};
use uringload::stats::Bottleneck;
use uringload::stats::{Doing, Role};
use uringload::transform::{Chain, Input, MapOutput};
use uringload::{Builder, Error, ErrorKind, Loader, Result, State};
use uringload_images::{Decoding, Scratch, decode};

/// Small images of every kind.
const IMAGES: [(&str, &[u8]); 8] = [
    ("jpg", include_bytes!("../../images/tests/data/420.jpg")),
    ("png", include_bytes!("../../images/tests/data/coffee.png")),
    ("jpg", include_bytes!("../../images/tests/data/progressive.jpg")),
    ("jpg", include_bytes!("../../images/tests/data/photo.jpg")),
    ("webp", include_bytes!("../../images/tests/data/lossy.webp")),
    ("jpg", include_bytes!("../../images/tests/data/exif6.jpg")),
    ("bmp", include_bytes!("../../images/tests/data/rgb.bmp")),
    ("jpg", include_bytes!("../../images/tests/data/cmyk.jpg")),
];

const CHAIN: &str = "random_resized_crop(24), hflip, color_jitter(0.4, 0.4, 0.4), normalize(imagenet)";
const SEED: u64 = 42;
const TENSOR_BYTES: usize = 3 * 24 * 24 * 4;

fn chain() -> Chain {
    CHAIN.parse().expect("a chain")
}

fn image(number: usize) -> &'static [u8] {
    IMAGES[number % IMAGES.len()].1
}

/// A folder of `count` images.
fn folder(count: usize) -> (TempDir, Arc<dyn Dataset>) {
    let root = tempfile::tempdir().expect("a folder");
    for number in 0..count {
        // The extension of the first for all: the content tells.
        put(&root.path().join(format!("{number:04}.jpg")), image(number)).expect("a file");
    }
    let dataset = open(root.path());
    (root, dataset)
}

fn open(path: &Path) -> Arc<dyn Dataset> {
    dataset::open(&[path], &Options::new()).expect("a dataset")
}

/// What decoding and running the plan by hand make of a file.
fn by_hand(file: &[u8], chain: &Chain, epoch: u64, id: u64) -> Vec<u8> {
    let image = decode(file, &Decoding::default()).expect("an image");
    let plan = chain.draw(SEED, epoch, id, image.height(), image.width()).expect("a plan");
    let mut tensor = vec![0; plan.output(3).bytes()];
    plan.run(&image, &mut tensor, &mut Scratch::default()).expect("a tensor");
    tensor
}

/// The tensors of a batch by sample.
fn tensors(batch: &Batch, column: &str) -> Vec<(u64, Vec<u8>)> {
    let column: &Column = batch.column(column).expect("the column");
    let Data::Dense { shape, bytes } = &column.data else { panic!("{:?}", column.data) };
    assert_eq!((column.dtype, &shape[..], bytes.as_ptr().addr() % 64), (DType::F32, &[3, 24, 24][..], 0));
    assert_eq!(bytes.len(), batch.len() * TENSOR_BYTES);
    let each = |(index, id): (usize, &dataset::SampleId)| (id.0, column.bytes_of(index).expect("a value").to_vec());
    batch.ids.iter().enumerate().map(each).collect()
}

fn all(loader: Loader, column: &str) -> BTreeMap<(u64, u64), Vec<u8>> {
    let mut seen = BTreeMap::new();
    for batch in loader {
        let batch = batch.expect("a batch");
        for (id, tensor) in tensors(&batch, column) {
            assert!(seen.insert((batch.cursor.epoch, id), tensor).is_none(), "sample {id} comes once");
        }
    }
    seen
}

fn builder(dataset: &Arc<dyn Dataset>, column: &str) -> Builder {
    Loader::builder(Arc::clone(dataset)).seed(SEED).shuffle(true).batch_size(5).transform(column, chain())
}

#[test]
fn tensors_are_those_made_by_hand_in_every_epoch() {
    let (_root, dataset) = folder(23);
    let seen =
        within(Duration::from_secs(60), move || all(builder(&dataset, "data").epochs(2).build().unwrap(), "data"));
    assert_eq!(seen.len(), 46);
    for ((epoch, id), tensor) in &seen {
        assert!(*tensor == by_hand(image(*id as usize), &chain(), *epoch, *id), "sample {id} in epoch {epoch}");
    }
    let same = (0..23).filter(|&id| seen[&(0, id)] == seen[&(1, id)]).count();
    assert_eq!(same, 0, "each epoch has boxes of its own");
}

#[test]
fn neither_threads_nor_ranks_nor_a_resume_change_a_byte() {
    let (_root, dataset) = folder(40);
    let one = all(builder(&dataset, "data").num_threads(1).build().unwrap(), "data");
    assert_eq!(one.len(), 40);
    for threads in [0, 2, 3] {
        assert!(all(builder(&dataset, "data").num_threads(threads).build().unwrap(), "data") == one, "{threads}");
    }
    let mut ranks = all(builder(&dataset, "data").rank(0, 2).build().unwrap(), "data");
    ranks.extend(all(builder(&dataset, "data").rank(1, 2).build().unwrap(), "data"));
    assert!(ranks == one, "two ranks see what one sees");
    // In the middle of an epoch, from JSON.
    let mut loader = builder(&dataset, "data").num_threads(2).build().unwrap();
    let mut both = BTreeMap::new();
    for _ in 0..3 {
        let batch = loader.next().unwrap().unwrap();
        both.extend(tensors(&batch, "data").into_iter().map(|(id, tensor)| ((batch.cursor.epoch, id), tensor)));
    }
    let state = State::from_json(&loader.state().to_json()).unwrap();
    drop(loader);
    let rest = all(builder(&dataset, "data").batch_size(7).resume(&state).build().unwrap(), "data");
    assert_eq!((both.len(), rest.len()), (15, 25));
    both.extend(rest);
    assert!(both == one);
}

/// What is not exact differs a little, and the route says what decodes.
#[test]
fn the_fast_way_is_near_and_told() {
    let root = tempfile::tempdir().expect("a folder");
    put(&root.path().join("0.jpg"), IMAGES[3].1).expect("a file");
    let dataset = open(root.path());
    let made = |exact: bool| {
        let chain = "resize(32), center_crop(24), to_tensor(u8)".parse().expect("a chain");
        let builder = Loader::builder(Arc::clone(&dataset)).transform("data", chain).fast_images(!exact);
        let mut loader = builder.build().expect("a loader");
        let route = loader.route().to_string();
        let batch = loader.next().expect("one").expect("a batch");
        (batch.column("data").and_then(|column| column.bytes_of(0)).expect("a tensor").to_vec(), route)
    };
    let ((exact, told), (fast, told_fast)) = (made(true), made(false));
    assert_eq!(exact.len(), 3 * 24 * 24);
    let difference: u64 = exact.iter().zip(&fast).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    assert!(difference <= 4 * exact.len() as u64, "{difference}");
    let decoder = uringload_images::decoder();
    assert_eq!(difference > 0, decoder.name == "libjpeg-turbo", "the embedded decoder knows no parts");
    assert!(told.contains(&format!("JPEGs by {} {}", decoder.name, decoder.version)), "{told}");
    assert!(told_fast.contains("not exact") && !told.contains("not exact"), "{told_fast}");
}

/// A tar archive of images with a class beside each, plain and compressed, so that samples are cut from units.
#[test]
fn archives_of_images_with_classes() {
    let mut archive = Archive::new();
    for number in 0..12 {
        archive = archive.file(&format!("{number:03}.jpg"), image(number));
        archive = archive.file(&format!("{number:03}.cls"), number.to_string().as_bytes());
    }
    let tar = archive.end().0;
    let packed = zstd::encode_all(&tar[..], 1).unwrap();
    for (name, bytes) in [("train.tar", &tar), ("train.tar.zst", &packed)] {
        let root = tempfile::tempdir().unwrap();
        put(&root.path().join(name), bytes).unwrap();
        let dataset = open(root.path());
        for threads in [0, 2] {
            let builder = Loader::builder(Arc::clone(&dataset)).seed(SEED).batch_size(5).num_threads(threads);
            let mut samples = 0;
            for batch in builder.transform("jpg", chain()).build().unwrap() {
                let batch = batch.unwrap();
                let classes = batch.column("cls").unwrap();
                for (index, (id, tensor)) in tensors(&batch, "jpg").into_iter().enumerate() {
                    assert!(tensor == by_hand(image(id as usize), &chain(), 0, id), "{name}: sample {id}");
                    assert_eq!(classes.bytes_of(index).unwrap(), id.to_string().as_bytes(), "{name}");
                    samples += 1;
                }
            }
            assert_eq!(samples, 12, "{name}");
        }
    }
}

/// 20 images, of which those numbered 3, 4 and 11 are broken, each in its way.
fn broken() -> (TempDir, Arc<dyn Dataset>) {
    let (root, _) = folder(20);
    let half = &image(3)[..image(3).len() / 2];
    for (number, bytes) in [(3, half), (4, &b"this is no image"[..]), (11, &[])] {
        put(&root.path().join(format!("{number:04}.jpg")), bytes).unwrap();
    }
    let dataset = open(root.path());
    (root, dataset)
}

#[test]
fn broken_images_fail_as_samples_that_cannot_be_read() {
    let (root, dataset) = broken();
    let in_order = |on_error| {
        Loader::builder(Arc::clone(&dataset)).seed(SEED).batch_size(5).on_error(on_error).transform("data", chain())
    };
    // Raised: in the place of their batches, and the others come.
    let results: Vec<Result<Batch>> = in_order(OnError::Raise).build().unwrap().collect();
    assert_eq!(results.iter().map(|batch| batch.is_ok()).collect::<Vec<_>>(), [false, true, false, true]);
    let error = results[0].as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Truncated, "the first of the batch: {error}");
    assert!(error.to_string().contains("column \"data\" of sample 3 (0003.jpg)"), "{error}");
    assert_eq!(error.path(), Some(&*root.path().join("0003.jpg")));
    assert_eq!(error.offset(), Some(image(3).len() as u64 / 2), "where the file ends");
    // Left out, and told, and listed.
    let list = root.path().join("bad.jsonl");
    let told = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&told);
    let warning = in_order(OnError::Warn).quarantine(&list).on_failed(move |failed| {
        counted.fetch_add(1 << (8 * (failed.id.0 % 7)), Ordering::Relaxed);
    });
    let mut loader = warning.build().unwrap();
    let batches: Vec<Batch> = (&mut loader).map(|batch| batch.unwrap()).collect();
    assert_eq!(batches.iter().map(|batch| batch.len()).collect::<Vec<_>>(), [3, 5, 4, 5]);
    for (id, tensor) in batches.iter().flat_map(|batch| tensors(batch, "data")) {
        assert!(tensor == by_hand(image(id as usize), &chain(), 0, id), "sample {id} is in its place");
    }
    assert_eq!(told.load(Ordering::Relaxed), 1 << 24 | 2 << 32, "3, 4 and 11");
    assert_eq!(loader.stats().snapshot().count.samples_skipped, 3);
    assert_eq!(loader.stats().snapshot().count.samples_decoded, 17);
    drop(loader);
    let lines = fs::read_to_string(&list).unwrap();
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(lines.contains("0011.jpg"), "{lines}");
    // Too many.
    let few = in_order(OnError::Skip).max_failures(MaxFailures::Count(2)).build().unwrap();
    let last = few.last().unwrap();
    assert_eq!(last.unwrap_err().kind(), ErrorKind::TooManyFailures);
}

/// With no thread, all of it runs where the loader is iterated, however that waits, and the bytes are the same.
#[test]
fn without_threads_the_consumer_computes() {
    let (_root, dataset) = folder(20);
    let threads = Arc::new(Mutex::new(HashSet::new()));
    let seen = Arc::clone(&threads);
    let note = move |value: &Input<'_>, out: &mut [u8]| {
        seen.lock().unwrap().insert(std::thread::current().id());
        sums(value, out)
    };
    let output = MapOutput::fixed(DType::U64, [2]);
    let with = |threads: usize| Loader::builder(Arc::clone(&dataset)).batch_size(3).num_threads(threads);
    let closures = || with(0).map("data", output.clone(), note.clone()).build().unwrap();
    let of = |batch: &Batch| batch.column("data").unwrap().clone();
    let wanted: Vec<Column> =
        with(2).map("data", output.clone(), sums).build().unwrap().map(|batch| of(&batch.unwrap())).collect();
    assert_eq!(wanted.len(), 7);
    let here = closures().map(|batch| of(&batch.unwrap())).collect::<Vec<_>>();
    let mut polled = Vec::new();
    let mut loader = closures();
    while !loader.is_empty() {
        polled.extend(loader.try_next().unwrap().map(|batch| of(&batch)));
    }
    let mut timed = Vec::new();
    let mut loader = closures();
    while !loader.is_empty() {
        timed.extend(loader.next_timeout(Duration::from_millis(5)).unwrap().map(|batch| of(&batch)));
    }
    let mut loader = closures();
    let streamed = futures_util::StreamExt::map(loader.stream(), |batch| of(&batch.unwrap()));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let streamed: Vec<Column> = runtime.block_on(futures_util::StreamExt::collect(streamed));
    for (got, way) in [(here, "next"), (polled, "try_next"), (timed, "next_timeout"), (streamed, "stream")] {
        assert!(got.iter().zip(&wanted).all(|(got, wanted)| same_bytes(got, wanted)) && got.len() == 7, "{way}");
    }
    assert_eq!(*threads.lock().unwrap(), HashSet::from([std::thread::current().id()]));
    // What it computes is told as decoding, and it is dropped at any time.
    let mut loader = with(0).transform("data", chain()).build().unwrap();
    assert!(loader.next().unwrap().is_ok());
    let snapshot = loader.stats().snapshot();
    assert!(!snapshot.time(Role::Consumer, Doing::Decode).is_zero());
    drop(loader);
}

fn same_bytes(one: &Column, other: &Column) -> bool {
    let (Data::Dense { bytes: one, .. }, Data::Dense { bytes: other, .. }) = (&one.data, &other.data) else {
        return false;
    };
    one == other
}

#[test]
fn a_replacement_gets_the_numbers_of_its_own_sample() {
    let (_root, dataset) = broken();
    for threads in [0, 2] {
        let replacing = Loader::builder(Arc::clone(&dataset)).seed(SEED).batch_size(5).on_error(OnError::Replace);
        let mut replaced = 0;
        for batch in replacing.num_threads(threads).transform("data", chain()).build().unwrap() {
            let batch = batch.unwrap();
            assert_eq!(batch.len(), 5);
            replaced += batch.failed.iter().filter(|failed| failed.replaced_by.is_some()).count();
            for (id, tensor) in tensors(&batch, "data") {
                assert!(![3, 4, 11].contains(&id));
                assert!(tensor == by_hand(image(id as usize), &chain(), 0, id), "sample {id}");
            }
        }
        assert_eq!(replaced, 3);
    }
}

/// Sum of the bytes and their number, as little-endian words.
fn sums(value: &Input<'_>, out: &mut [u8]) -> Result<usize> {
    let sum: u64 = value.bytes.iter().map(|&byte| u64::from(byte)).sum();
    out[..8].copy_from_slice(&sum.to_le_bytes());
    out[8..].copy_from_slice(&(value.bytes.len() as u64).to_le_bytes());
    Ok(16)
}

#[test]
fn closures_make_fixed_and_varying_values() {
    let (_root, dataset) = folder(17);
    let fixed = Loader::builder(Arc::clone(&dataset)).batch_size(4);
    for batch in fixed.map("data", MapOutput::fixed(DType::I64, [2]), sums).build().unwrap() {
        let batch = batch.unwrap();
        let column = batch.column("data").unwrap();
        let Data::Dense { shape, .. } = &column.data else { panic!("{:?}", column.data) };
        assert_eq!((column.dtype, &shape[..]), (DType::I64, &[2][..]));
        for (index, id) in batch.ids.iter().enumerate() {
            let value = column.bytes_of(index).unwrap();
            let sum: u64 = image(id.0 as usize).iter().map(|&byte| u64::from(byte)).sum();
            assert_eq!(
                (&value[..8], &value[8..]),
                (&sum.to_le_bytes()[..], &(image(id.0 as usize).len() as u64).to_le_bytes()[..])
            );
        }
    }
    // As many words as the sample's number says: the numbers of its stream.
    let varying = Loader::builder(Arc::clone(&dataset)).batch_size(4).seed(SEED);
    let words = |value: &Input<'_>, out: &mut [u8]| {
        let len = 2 * value.id.0 as usize;
        out[..len].chunks_exact_mut(2).for_each(|word| word.copy_from_slice(&value.seed.to_le_bytes()[..2]));
        Ok(len)
    };
    let mut seeds = Vec::new();
    for batch in varying.map("data", MapOutput::varying(DType::U16, 16), words).build().unwrap() {
        let batch = batch.unwrap();
        let Data::Ragged { offsets, .. } = &batch.column("data").unwrap().data else { panic!("no ragged column") };
        for (index, id) in batch.ids.iter().enumerate() {
            assert_eq!(offsets[index + 1] - offsets[index], id.0);
            let value = batch.column("data").unwrap().bytes_of(index).unwrap();
            assert!(value.chunks(2).all(|word| word == &value[..2]));
            seeds.extend(value.get(..2).map(<[u8]>::to_vec));
        }
    }
    assert_eq!(seeds.len(), 16);
    seeds.sort_unstable();
    seeds.dedup();
    assert!(seeds.len() > 14, "each sample has numbers of its own");
}

#[test]
fn closures_that_panic_or_fail_or_lie_fail_their_samples() {
    let (_root, dataset) = folder(12);
    let odd = |value: &Input<'_>, out: &mut [u8]| {
        assert_ne!(value.id.0, 2, "the second");
        match value.id.0 {
            5 => Err(Error::new(ErrorKind::Corrupt, "the fifth")),
            7 => Ok(out.len() - 1),
            8 => Ok(out.len() + 1),
            _ => sums(value, out),
        }
    };
    for threads in [0, 2] {
        let builder = Loader::builder(Arc::clone(&dataset)).batch_size(4).num_threads(threads).on_error(OnError::Skip);
        let builder = builder.map("data", MapOutput::fixed(DType::I64, [2]), odd);
        let failed: Vec<_> = builder.build().unwrap().flat_map(|batch| batch.unwrap().failed).collect();
        let told: Vec<(u64, ErrorKind)> = failed.iter().map(|one| (one.id.0, one.error.kind())).collect();
        let (broken, lied) = (ErrorKind::Corrupt, ErrorKind::InvalidArgument);
        assert_eq!(told, [(2, ErrorKind::Internal), (5, broken), (7, lied), (8, lied)]);
        assert!(failed[0].error.to_string().contains("the second"), "{}", failed[0].error);
        assert!(failed[2].error.to_string().contains("15 bytes"), "{}", failed[2].error);
    }
}

/// The first value of the first batch is not done before all values of the second batch are: with a barrier between
/// batches it would wait for ever.
#[test]
fn no_batch_waits_for_the_one_before_it_to_be_done() {
    let (_root, dataset) = folder(16);
    let done = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&done);
    let closure = move |value: &Input<'_>, out: &mut [u8]| {
        let begin = Instant::now();
        while value.id.0 == 0 && seen.load(Ordering::Relaxed) < 7 {
            if begin.elapsed() > HANG {
                return Err(Error::new(ErrorKind::Timeout, "the next batch does not begin"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        seen.fetch_add(1, Ordering::Relaxed);
        sums(value, out)
    };
    let builder = Loader::builder(dataset).batch_size(4).num_threads(2);
    let loader = builder.map("data", MapOutput::fixed(DType::I64, [2]), closure).build().unwrap();
    let ids: Vec<u64> = loader.flat_map(|batch| batch.unwrap().ids).map(|id| id.0).collect();
    assert_eq!(ids, (0..16).collect::<Vec<_>>(), "and they come in order");
    assert_eq!(done.load(Ordering::Relaxed), 16);
}

#[test]
#[ignore = "slow: measures time"]
fn slow_threads_are_what_limits() {
    let (_root, dataset) = folder(16);
    let slow = |value: &Input<'_>, out: &mut [u8]| {
        // So much that a machine that is busy with other tests does not keep it from a processor for most of the time.
        std::thread::sleep(Duration::from_millis(50));
        sums(value, out)
    };
    let builder = Loader::builder(dataset).batch_size(4).num_threads(2);
    let builder = builder.map("data", MapOutput::fixed(DType::I64, [2]), slow);
    // Where others take the processors, the verdict rightly names those.
    let verdicts = (0..8).map(|_| {
        let mut loader = builder.clone().build().unwrap();
        assert_eq!((&mut loader).map(|batch| batch.unwrap().len()).sum::<usize>(), 16);
        loader.stats().snapshot().verdict(None)
    });
    let others = verdicts.take_while(|verdict| verdict.bottleneck != Bottleneck::Decode);
    let others: Vec<String> = others.map(|verdict| verdict.to_string()).collect();
    assert!(others.len() < 8, "{others:?}");
}

#[test]
fn what_cannot_work_is_refused_when_it_is_built() {
    let (_root, dataset) = folder(4);
    let refused = |builder: Builder, words: &str| {
        let error = builder.build().expect_err(words);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(words) && error.remedy().is_some(), "{error}");
    };
    let new = || Loader::builder(Arc::clone(&dataset));
    refused(new().transform("data", "hflip".parse().unwrap()), "different sizes");
    refused(new().transform("picture", chain()), "\"picture\", which is no column");
    refused(builder(&dataset, "data").transform("data", chain()), "two transforms");
    refused(builder(&dataset, "data").collate_column("data", Collate::Views), "cannot have another form");
    refused(builder(&dataset, "data").batching(Packing::new(8)), "packed");
    refused(new().map("data", MapOutput::fixed(DType::F32, [0]), sums), "cannot be made");
    let large = new().transform("data", "center_crop(4000)".parse().unwrap()).memory_limit(64 << 20);
    let error = large.build().expect_err("too large");
    assert_eq!(error.kind(), ErrorKind::MemoryLimit);
    assert!(error.to_string().contains("33554432 to decode with"), "{error}");
}

/// A BMP of one colour, of 3 bytes a pixel.
fn large_bmp(side: u32) -> Vec<u8> {
    let mut file = b"BM".to_vec();
    let bytes = side * side * 3;
    for word in [54 + bytes, 0, 54, 40, side, side, 1 | 24 << 16, 0, bytes, 0, 0, 0, 0] {
        file.extend(word.to_le_bytes());
    }
    file.resize(54 + bytes as usize, 100);
    file
}

const LIMIT: u64 = 256 << 20;
const CHILD: &str = "loaders::decode::child_decodes_large_images";

/// Images of 2400 x 2400 pixels, one of which takes a half of what there is to decode with, on four threads.
#[test]
fn the_memory_limit_holds_with_large_images() {
    let root = tempfile::tempdir().unwrap();
    let file = large_bmp(2400);
    (0..12).for_each(|number| put(&root.path().join(format!("{number:02}.bmp")), &file).unwrap());
    let out = child::run(CHILD, root.path().to_str().unwrap());
    assert!(out.contains("12 images"), "{out}");
}

#[test]
#[ignore = "a child of the test above"]
fn child_decodes_large_images() {
    let Some(path) = child::task() else { return };
    let loader = Loader::builder(open(Path::new(&path))).batch_size(2).memory_limit(LIMIT).num_threads(4);
    let loader = loader.transform("data", "resize(256), center_crop(224)".parse().unwrap()).build().unwrap();
    assert!(loader.memory_limit() <= LIMIT);
    let images: usize = loader.map(|batch| batch.unwrap().len()).sum();
    let most = child::most_resident();
    assert!(most < LIMIT + (48 << 20), "{most} bytes were resident");
    println!("{images} images");
}
