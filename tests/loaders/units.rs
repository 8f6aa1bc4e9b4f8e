//! Samples that are cut from units, through a whole loader: a dataset of this test's own, each file of which is one
//! frame of zstd with some samples.

use crate::common::check::ways_to;
use crate::common::frames::{Frames, SAMPLES_IN_UNIT, sample_bytes};
use crate::common::{HANG, within};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use uringload::batch::Batch;
use uringload::config::{Collate, OnError, Padding, Shuffle};
use uringload::dataset::{Concat, Dataset, FileId, SampleId, Units, View};
use uringload::stats::{Bottleneck, Snapshot};
use uringload::stats::{Doing, Role};
use uringload::{Builder, Loader};
use uringload::{ErrorKind, Result};

fn builder(dataset: &Arc<dyn Dataset>) -> Builder {
    Loader::builder(Arc::clone(dataset)).batch_size(7).epochs(1)
}

/// The ids of a batch, whose bytes are what they should be.
fn checked(batch: &Batch, id_of: impl Fn(SampleId) -> u64) -> Vec<u64> {
    for (index, &id) in batch.ids.iter().enumerate() {
        assert!(batch.columns[0].bytes_of(index).expect("bytes") == sample_bytes(id_of(id)), "sample {id:?}");
    }
    batch.ids.iter().map(|id| id.0).collect()
}

fn all(loader: Loader) -> Vec<u64> {
    loader.flat_map(|batch| checked(&batch.expect("a batch"), |id| id.0)).collect()
}

#[test]
fn every_way_number_of_threads_and_order_gives_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let dataset: Arc<dyn Dataset> = Arc::new(Frames::write(&folder, 30));
    let orders = [Shuffle::Off, Shuffle::Auto, Shuffle::Full, Shuffle::Window(60), Shuffle::Shards { mixed: 3 }];
    for (engine, io) in ways_to(&dataset) {
        for shuffle in orders {
            let mut seen: Vec<Vec<u64>> = Vec::new();
            for threads in [0, 1, 3] {
                let loader = builder(&dataset).engine(engine).io(io).shuffle(shuffle).num_threads(threads);
                seen.push(all(loader.build().expect("a loader")));
            }
            assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "threads change no order");
            let mut ids = seen.swap_remove(0);
            assert_eq!(ids.is_sorted(), shuffle == Shuffle::Off);
            ids.sort_unstable();
            assert!(ids.into_iter().eq(0..dataset.len()), "{shuffle:?}");
        }
    }
}

#[test]
fn a_unit_is_decoded_once_where_memory_holds_those_that_are_mixed() {
    let folder = tempfile::tempdir().expect("a folder");
    let frames = Frames::write(&folder, 40);
    let decoded = Arc::clone(&frames.decoded);
    let unit = frames.largest_decoded();
    let dataset: Arc<dyn Dataset> = Arc::new(frames);
    // What reading takes of it leaves some ten units.
    let tight = builder(&dataset).memory_limit(2 * unit + 14 * unit);
    for shuffle in [Shuffle::Off, Shuffle::Auto] {
        decoded.store(0, Ordering::Relaxed);
        let loader = tight.clone().shuffle(shuffle).build().expect("a loader");
        assert!(loader.memory_limit() <= 16 * unit);
        assert_eq!(all(loader).len() as u64, dataset.len());
        assert_eq!(decoded.load(Ordering::Relaxed), 40, "{shuffle:?}");
    }
    decoded.store(0, Ordering::Relaxed);
    all(tight.shuffle(Shuffle::Full).build().expect("a loader"));
    assert!(decoded.load(Ordering::Relaxed) > 400, "a full shuffle over few units has its price");
}

#[test]
fn memory_for_too_few_units_is_refused_with_the_arithmetic() {
    let folder = tempfile::tempdir().expect("a folder");
    let dataset: Arc<dyn Dataset> = Arc::new(Frames::write(&folder, 40));
    let loader = builder(&dataset).batch_size(64).shuffle(Shuffle::Full).memory_limit(700_000);
    let error = loader.clone().build().expect_err("64 samples of about 30 units");
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::MemoryLimit);
    assert!(text.contains("units of 28672 bytes") && text.contains("memory limit is 700000"), "{text}");
    let (_, after) = text.split_once("raise memory_limit to ").expect("a remedy");
    let enough: u64 = after.split_once(' ').expect("a number").0.parse().expect("a number");
    assert!(loader.clone().memory_limit(enough - 1).build().is_err());
    assert_eq!(all(loader.memory_limit(enough).build().expect("as it said")).len() as u64, dataset.len());
}

/// The first 64 batches lie in a unit each, and later ones in two.
#[test]
fn memory_for_the_units_of_later_batches_is_asked_for_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let frames: Arc<dyn Dataset> = Arc::new(Frames::write(&folder, 80));
    let left_out = 70 * SAMPLES_IN_UNIT + 3;
    let dataset: Arc<dyn Dataset> = Arc::new(View::without(frames, vec![left_out]).expect("a view"));
    let frame_id = |id: SampleId| id.0 + u64::from(id.0 >= left_out);
    let loader = builder(&dataset).batch_size(SAMPLES_IN_UNIT).shuffle(Shuffle::Off);
    let error = loader.clone().memory_limit(1).build().expect_err("nothing fits");
    let text = error.to_string();
    let (_, after) = text.split_once("raise memory_limit to ").expect("a remedy");
    let enough: u64 = after.split_once(' ').expect("a number").0.parse().expect("a number");
    assert!(loader.clone().memory_limit(enough - 1).build().is_err());
    for limit in (enough..enough + 200_000).step_by(50_001) {
        let loader = loader.clone().memory_limit(limit).build().expect("as it said");
        let samples = loader.map(|batch| checked(&batch.expect("a batch"), frame_id).len() as u64);
        assert_eq!(samples.sum::<u64>(), dataset.len(), "{limit}");
    }
}

#[test]
fn what_does_not_decode_is_the_error_of_its_samples() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut frames = Frames::write(&folder, 12);
    frames.panics = Some(3);
    fs::write(folder.path().join("007.zst"), vec![7; frames.files().size(FileId(7)) as usize]).expect("a file");
    let dataset: Arc<dyn Dataset> = Arc::new(frames);
    let skipping = builder(&dataset).on_error(OnError::Skip);
    for threads in [0, 2] {
        let (mut good, mut failed) = (Vec::new(), Vec::new());
        for batch in skipping.clone().num_threads(threads).build().expect("a loader") {
            let batch = batch.expect("a batch");
            good.extend(checked(&batch, |id| id.0));
            failed.extend(batch.failed.iter().map(|failed| (failed.id.0, failed.error.to_string())));
        }
        assert_eq!((good.len(), failed.len()), (10 * 25, 2 * 25));
        for (id, error) in failed {
            match id / SAMPLES_IN_UNIT {
                3 => assert!(error.contains("this decoder panics"), "{error}"),
                7 => assert!(error.contains("cannot decode") && error.contains("007.zst"), "{error}"),
                _ => panic!("sample {id}: {error}"),
            }
        }
    }
    let error = builder(&dataset).build().expect("a loader").find_map(Result::err).expect("unit 3");
    assert!(error.to_string().contains("panics"), "{error}");
    let error = builder(&dataset).on_error(OnError::Replace).build().expect_err("nothing can stand in");
    assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("on_error to skip"), "{error}");
}

#[test]
fn columns_are_gathered_from_units() {
    let folder = tempfile::tempdir().expect("a folder");
    let dataset: Arc<dyn Dataset> = Arc::new(Frames::write(&folder, 6));
    let padded = Collate::Padded(Padding::default());
    for collate in [Collate::Auto, Collate::Views, Collate::Dense, Collate::Ragged, padded] {
        for shuffle in [false, true] {
            let loader = builder(&dataset).collate(collate).shuffle(shuffle).build().expect("a loader");
            assert_eq!(all(loader).len() as u64, dataset.len(), "{collate:?}");
        }
    }
}

#[test]
fn views_and_mixtures_have_the_units_of_their_datasets() {
    let (one, two) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let first: Arc<dyn Dataset> = Arc::new(Frames::write(&one, 4));
    let second: Arc<dyn Dataset> = Arc::new(Frames::write(&two, 7));
    let odd = View::of(Arc::clone(&second), (0..second.len()).filter(|id| id % 2 == 1).collect()).expect("a subset");
    let odd: Arc<dyn Dataset> = Arc::new(View::repeat(Arc::new(odd), 2).expect("twice"));
    let border = first.len();
    let half = odd.len() / 2;
    let both: Arc<dyn Dataset> = Arc::new(Concat::new(vec![first, odd]).expect("a mixture"));
    let id_of = |id: SampleId| if id.0 < border { id.0 } else { (id.0 - border) % half * 2 + 1 };
    for shuffle in [Shuffle::Off, Shuffle::Full] {
        let loader = builder(&both).shuffle(shuffle).epochs(2).build().expect("a loader");
        let mut ids: Vec<u64> = loader.flat_map(|batch| checked(&batch.expect("a batch"), id_of)).collect();
        ids.sort_unstable();
        assert!(ids.into_iter().eq((0..both.len()).flat_map(|id| [id, id])));
    }
}

#[test]
fn an_epoch_goes_on_in_the_middle_of_a_unit() {
    let folder = tempfile::tempdir().expect("a folder");
    let dataset: Arc<dyn Dataset> = Arc::new(Frames::write(&folder, 9));
    let loader = || builder(&dataset).shuffle(true).seed(5);
    let whole = all(loader().build().expect("a loader"));
    for stop in 0..dataset.len() / 7 {
        let mut first = loader().build().expect("a loader");
        let mut ids: Vec<u64> =
            first.by_ref().take(stop as usize).flat_map(|batch| checked(&batch.expect("a batch"), |id| id.0)).collect();
        let state = first.state();
        drop(first);
        let rest = loader().resume(&state).batch_size(4).num_threads(2).build().expect("a loader");
        ids.extend(all(rest));
        assert_eq!(ids, whole, "stopped at batch {stop}");
    }
}

#[test]
fn who_decodes_is_charged_and_units_are_counted() {
    decoded(Duration::from_millis(1)).iter().for_each(|(_, stats)| {
        assert_eq!((stats.count.units_decoded, stats.count.bytes_decoded), (20, 500_000));
    });
}

#[test]
#[ignore = "slow: measures time"]
fn the_verdict_knows_who_decodes() {
    // So much that a machine that is busy with other tests does not keep it from a processor for most of the time.
    for (threads, stats) in decoded(Duration::from_millis(25)) {
        let verdict = stats.verdict(None);
        match threads {
            0 => {
                assert!(
                    verdict.bottleneck == Bottleneck::Decode && verdict.advice.contains("num_threads"),
                    "{verdict}"
                );
            }
            _ => assert_eq!(verdict.bottleneck, Bottleneck::Decode, "{verdict}"),
        }
    }
}

/// All of 20 units that take `slow` each, without threads to decode and with one.
fn decoded(slow: Duration) -> [(usize, Snapshot); 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let mut frames = Frames::write(&folder, 20);
    frames.slow = slow;
    let dataset: Arc<dyn Dataset> = Arc::new(frames);
    [0, 1].map(|threads| {
        let mut loader = builder(&dataset).num_threads(threads).build().expect("a loader");
        assert_eq!(loader.by_ref().map(|batch| batch.expect("a batch").len()).sum::<usize>(), 500);
        let stats = loader.stats().snapshot();
        let decoder = if threads == 0 { Role::Consumer } else { Role::Stage };
        assert!(stats.time(decoder, Doing::Decode) >= 3 * slow, "{threads}");
        (threads, stats)
    })
}

#[test]
fn a_loader_that_is_dropped_in_the_middle_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut frames = Frames::write(&folder, 20);
    frames.slow = Duration::from_millis(2);
    let dataset: Arc<dyn Dataset> = Arc::new(frames);
    for taken in [0, 1, 9] {
        let mut loader = builder(&dataset).num_threads(2).build().expect("a loader");
        let kept: Vec<Batch> = loader.by_ref().take(taken).map(|batch| batch.expect("a batch")).collect();
        within(HANG, move || drop(loader));
        kept.iter().for_each(|batch| assert_eq!(checked(batch, |id| id.0).len(), 7, "what is held stays"));
    }
}
