//! Mixup and CutMix: each sample is mixed with the one before it, in pixels and labels, in the same way on any number
//! of threads and after a resume.

use crate::common::content::put;
use crate::common::within;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::batch::{Batch, Data};
use uringload::config::OnError;
use uringload::dataset::{self, DType, Dataset, Options};
use uringload::transform::{Chain, Mix};
use uringload::{Builder, ErrorKind, Loader, State};

const CHAIN: &str = "resize(12x10), hflip, normalize(half)";
const CLASSES: u64 = 5;
const PHOTOS: [&[u8]; 3] = [
    include_bytes!("../../images/tests/data/420.jpg"),
    include_bytes!("../../images/tests/data/coffee.png"),
    include_bytes!("../../images/tests/data/rgb.bmp"),
];

/// Images of `CLASSES` classes, by folder; those in `broken` are none.
fn folder(count: usize, broken: &[usize]) -> (TempDir, Arc<dyn Dataset>) {
    let root = tempfile::tempdir().expect("a folder");
    for number in 0..count {
        let file = if broken.contains(&number) { &b"no image"[..] } else { PHOTOS[number % PHOTOS.len()] };
        let path = root.path().join(format!("class{}/{number:03}.jpg", number as u64 % CLASSES));
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        put(&path, file).expect("a file");
    }
    let dataset = open(root.path());
    (root, dataset)
}

fn open(path: &Path) -> Arc<dyn Dataset> {
    dataset::open(&[path], &Options::new()).expect("a dataset")
}

fn plain(dataset: &Arc<dyn Dataset>, chain: &str) -> Builder {
    let chain: Chain = chain.parse().unwrap();
    Loader::builder(Arc::clone(dataset)).seed(9).batch_size(6).shuffle(true).transform("data", chain)
}

fn mix() -> Mix {
    Mix::new("data", "label", CLASSES)
}

/// Tensors and shares of a batch, by sample.
fn seen(batch: &Batch) -> Vec<(u64, Vec<u8>, Vec<f32>)> {
    let Data::Dense { shape, .. } = &batch.column("label").unwrap().data else { panic!("no shares") };
    assert_eq!((&shape[..], batch.column("label").unwrap().dtype), (&[CLASSES][..], DType::F32));
    let value = |name: &str, index| batch.column(name).unwrap().bytes_of(index).unwrap();
    let each = |(index, id): (usize, &dataset::SampleId)| {
        (id.0, value("data", index).to_vec(), floats(&value("label", index)))
    };
    batch.ids.iter().enumerate().map(each).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// The tensors and the classes of all samples in an epoch, not mixed.
fn unmixed(dataset: &Arc<dyn Dataset>, chain: &str) -> BTreeMap<u64, (Vec<u8>, usize)> {
    let mut all = BTreeMap::new();
    for batch in plain(dataset, chain).on_error(OnError::Skip).build().unwrap() {
        let batch = batch.unwrap();
        let Data::I64(labels) = &batch.column("label").unwrap().data else { panic!("no labels") };
        for (index, id) in batch.ids.iter().enumerate() {
            let tensor = batch.column("data").unwrap().bytes_of(index).unwrap().to_vec();
            all.insert(id.0, (tensor, labels[index] as usize));
        }
    }
    all
}

/// Checks that a batch is mixed by one share, which its labels tell, and returns that.
fn check_mixup(batch: &Batch, of: &BTreeMap<u64, (Vec<u8>, usize)>) -> f32 {
    let seen = seen(batch);
    let before = |index: usize| &of[&seen[index.checked_sub(1).unwrap_or(seen.len() - 1)].0];
    let shares = (0..seen.len()).filter(|&index| of[&seen[index].0].1 != before(index).1);
    let share = shares.map(|index| seen[index].2[of[&seen[index].0].1]).next().expect("two classes");
    for (index, (id, tensor, shares)) in seen.iter().enumerate() {
        let ((own, class), (other, other_class)) = (&of[id], before(index));
        let mut wanted = vec![0.0; CLASSES as usize];
        wanted[*class] += share;
        wanted[*other_class] += 1.0 - share;
        assert!(shares.iter().zip(&wanted).all(|(share, wanted)| (share - wanted).abs() < 1e-6), "sample {id}");
        let mixed = floats(own).into_iter().zip(floats(other)).map(|(own, other)| own * share + other * (1.0 - share));
        assert!(floats(tensor).into_iter().eq(mixed), "sample {id} with a share of {share}");
    }
    share
}

#[test]
fn mixup_is_the_same_everywhere() {
    within(Duration::from_secs(120), || {
        let (_root, dataset) = folder(32, &[]);
        let of = unmixed(&dataset, CHAIN);
        let mixing = |threads: usize| plain(&dataset, CHAIN).mix(mix().mixup(0.4)).num_threads(threads);
        let batches: Vec<Batch> = mixing(1).build().unwrap().map(Result::unwrap).collect();
        let mut shares: Vec<f32> = batches.iter().map(|batch| check_mixup(batch, &of)).collect();
        shares.dedup();
        assert!(shares.len() == batches.len(), "each batch has a share of its own: {shares:?}");
        let one: Vec<_> = batches.iter().map(seen).collect();
        for threads in [0, 2, 3] {
            let other: Vec<_> = mixing(threads).build().unwrap().map(|batch| seen(&batch.unwrap())).collect();
            assert!(other == one, "{threads} threads");
        }
        let mut loader = mixing(2).build().unwrap();
        (0..2).for_each(|_| drop(loader.next().unwrap().unwrap()));
        let state = State::from_json(&loader.state().to_json()).unwrap();
        let rest: Vec<_> = mixing(2).resume(&state).build().unwrap().map(|batch| seen(&batch.unwrap())).collect();
        assert!(rest == one[2..], "after a resume");
        // Another epoch mixes in another way.
        let both: Vec<Batch> = mixing(2).epochs(2).build().unwrap().map(Result::unwrap).collect();
        assert_eq!(both.len(), 12);
    });
}

#[test]
fn cutmix_moves_rectangles_of_any_type_and_layout() {
    let (_root, dataset) = folder(24, &[]);
    for chain in ["resize(12x10), to_tensor(u8, hwc)", "resize(12x10), to_tensor(u8)", "resize(12x10), to_tensor(bf16)"]
    {
        let of = unmixed(&dataset, chain);
        for batch in plain(&dataset, chain).mix(mix().cutmix(1.0)).build().unwrap() {
            let batch = batch.unwrap();
            let seen = seen(&batch);
            for (index, (id, tensor, shares)) in seen.iter().enumerate() {
                let ((own, class), before) = (&of[id], &seen[index.checked_sub(1).unwrap_or(seen.len() - 1)].0);
                let (other, other_class) = &of[before];
                assert!(tensor.iter().zip(own).zip(other).all(|((byte, own), other)| byte == own || byte == other));
                let moved = tensor.iter().zip(own).filter(|(byte, own)| byte != own).count();
                let share = 1.0 - shares[*class];
                if class != other_class {
                    // Some bytes are the same in both.
                    assert!(moved as f32 <= share * own.len() as f32 + 0.5, "{chain}: {moved} for {share}");
                    assert!((shares.iter().sum::<f32>() - 1.0).abs() < 1e-6);
                }
            }
        }
    }
}

/// A sample that fails leaves its neighbours to each other, and one that stands in is mixed as all others.
#[test]
fn samples_that_fail_are_not_mixed_in() {
    let (_root, dataset) = folder(30, &[4, 11, 12, 25]);
    let of = unmixed(&dataset, CHAIN);
    for (policy, count) in [(OnError::Skip, 26), (OnError::Replace, 30)] {
        for threads in [0, 2] {
            let loader = plain(&dataset, CHAIN).mix(mix().mixup(1.0)).on_error(policy).num_threads(threads);
            let batches: Vec<Batch> = loader.build().unwrap().map(Result::unwrap).collect();
            // What stands in for others has numbers of its own, as it has when it is not mixed.
            for batch in &batches {
                check_mixup(batch, &of);
            }
            assert_eq!(batches.iter().map(Batch::len).sum::<usize>(), count, "{policy:?}");
        }
    }
    let raising = plain(&dataset, CHAIN).mix(mix().mixup(1.0)).build().unwrap();
    let errors = raising.filter(|batch| batch.is_err()).count();
    assert!((1..=4).contains(&errors), "{errors}");
}

#[test]
fn what_cannot_be_mixed_is_refused_or_an_error_of_its_batch() {
    let (_root, dataset) = folder(12, &[]);
    let refused = |builder: Builder, what: &str| {
        let error = builder.build().expect_err(what);
        assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains(what), "{error}");
        assert!(error.remedy().is_some(), "{error}");
    };
    let builder = || plain(&dataset, CHAIN);
    refused(builder().mix(Mix::new("data", "class", 5).mixup(1.0)), "\"class\"");
    refused(builder().mix(Mix::new("data", "data", 5).mixup(1.0)), "\"data\" has no labels");
    refused(builder().mix(Mix::new("label", "label", 5).mixup(1.0)), "no transform of images");
    refused(plain(&dataset, "resize(9x9), to_tensor(u8)").mix(mix().mixup(1.0)), "u8");
    // Classes from 0 to 2 only.
    let few = builder().mix(Mix::new("data", "label", 3).mixup(1.0)).build().unwrap();
    let batches: Vec<_> = few.collect();
    assert!(batches.iter().all(|batch| match batch {
        Ok(_) => false,
        Err(error) => error.to_string().contains("is none of 3 classes") && error.remedy().is_some(),
    }));
    // Without a chance, labels have the same form, and pixels stay.
    let of = unmixed(&dataset, CHAIN);
    for batch in builder().transform_by("label", "mix(data, classes=5, mixup=1, p=0)").unwrap().build().unwrap() {
        for (id, tensor, shares) in seen(&batch.unwrap()) {
            assert!(tensor == of[&id].0 && shares[of[&id].1] == 1.0);
        }
    }
}
