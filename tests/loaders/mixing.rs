//! Loaders of mixtures and of shuffled windows and shards: every byte of every sample, on all ranks, before and after
//! a change of weights.

use crate::common::check::{WAYS, checked, conforms, drain};
use crate::common::content::write_file;
use crate::common::fixture::made;
use crate::common::within;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::ErrorKind;
use uringload::Loader;
use uringload::config::Shuffle;
use uringload::dataset::{self, Concat, Dataset, Options, SampleId, View};
use uringload::sampler::{Cursor, Mixed, Sampler, Stopping, for_dataset};

const BOUND: Duration = Duration::from_secs(120);
const WEIGHTS: [f64; 3] = [0.5, 0.2, 0.3];

/// Three folders of 40, 25 and 60 files of 0 to 9 kB. Names differ, so that no file can pass for another one.
fn folders(root: &TempDir) -> Arc<Concat> {
    let part = |(number, files): (usize, u64)| {
        let folder = root.path().join(format!("{number}"));
        std::fs::create_dir(&folder).expect("a folder");
        for file in 0..files {
            write_file(&folder.join(format!("{number}_{file:02}")), (file * 367 + number as u64) % 9001)
                .expect("a file");
        }
        dataset::open(&[folder], &Options::new().format("folder")).expect("a folder") as Arc<dyn Dataset>
    };
    Arc::new(Concat::new([40, 25, 60].into_iter().enumerate().map(part).collect()).expect("datasets that fit"))
}

fn mixed(concat: &Concat, weights: &[f64], stopping: Stopping) -> Arc<Mixed> {
    Arc::new(Mixed::of(concat, Shuffle::Full, weights, stopping, 21).expect("a mixture"))
}

#[test]
fn every_byte_of_a_mixture_is_right() {
    within(BOUND, || {
        let root = TempDir::new().expect("a folder");
        let concat = folders(&root);
        for stopping in [
            Stopping::FirstExhausted,
            Stopping::AllExhausted,
            Stopping::AllExhaustedWithoutReplacement,
            Stopping::After(33),
        ] {
            for way in WAYS {
                conforms(Arc::clone(&concat) as _, mixed(&concat, &WEIGHTS, stopping), way, |builder| builder);
            }
        }
    });
}

/// What all ranks give, batch after batch, in the global order; the cursor after it.
fn ranks(dataset: &Arc<Concat>, sampler: &Arc<dyn Sampler>, start: Cursor, rounds: usize) -> (Vec<SampleId>, Cursor) {
    const WORLD_SIZE: u64 = 3;
    let build = |rank| {
        let builder = Loader::builder(Arc::clone(dataset) as _).sampler(Arc::clone(sampler)).start(start);
        builder.rank(rank, WORLD_SIZE).batch_size(4).epochs(2 - start.epoch).build().expect("a loader")
    };
    let mut loaders: Vec<Loader> = (0..WORLD_SIZE).map(build).collect();
    let (mut all, mut cursor) = (Vec::new(), start);
    for _ in 0..rounds {
        let lens: Vec<_> = loaders.iter().map(Loader::remaining).collect();
        assert!(lens.iter().all(|&len| len == lens[0]), "as many batches on each rank: {lens:?}");
        let batches: Vec<_> =
            loaders.iter_mut().filter_map(Iterator::next).map(|batch| batch.expect("no error")).collect();
        if batches.is_empty() {
            assert_eq!(lens[0], Some(0));
            break;
        }
        assert_eq!(batches.len() as u64, WORLD_SIZE, "all ranks end together");
        let ids: Vec<_> = batches.iter().map(|batch| checked(&**dataset, batch)).collect();
        for place in 0..ids[0].len() {
            let real = |rank: &usize| !batches[*rank].padding.as_ref().is_some_and(|padding| padding[place]);
            all.extend((0..ids.len()).filter(real).map(|rank| ids[rank][place]));
        }
        cursor = batches[0].next;
    }
    (all, cursor)
}

/// Stops behind each round of batches, changes the weights and goes on: each part gives each of its samples once in a
/// pass, in its order, and the epoch behind is an epoch of the new weights.
#[test]
fn weights_change_behind_any_batch() {
    within(BOUND, || {
        let root = TempDir::new().expect("a folder");
        let concat = folders(&root);
        let stopping = Stopping::AllExhausted;
        let first: Arc<dyn Sampler> = mixed(&concat, &WEIGHTS, stopping);
        let changed = mixed(&concat, &[0.1, 0.6, 0.3], stopping);
        let alone: Vec<Vec<SampleId>> = (0..3)
            .map(|part| {
                let mut weights = [0.0; 3];
                weights[part] = 1.0;
                let alone = mixed(&concat, &weights, Stopping::After(500));
                (0..500).map(|position| alone.at(Cursor::new(0, position))).collect()
            })
            .collect();
        for rounds in [1, 2, 5, 9] {
            let (mut all, cursor) = ranks(&concat, &first, Cursor::default(), rounds);
            assert_eq!(cursor, Cursor::new(0, rounds as u64 * 12));
            let mixer = first.mixer(cursor).expect("a mixture");
            let second = changed.resumed(&mixer, cursor).expect("its state").expect("a mixture");
            let rest = second.len_of(0) - cursor.position;
            assert_ne!(second.len_of(0), second.len_of(1));
            let (behind, end) = ranks(&concat, &second, cursor, usize::MAX);
            assert_eq!(end, Cursor::new(2, 0));
            let (in_first_epoch, in_second) = behind.split_at(rest as usize);
            all.extend(in_first_epoch);
            let mut given = BTreeMap::new();
            for id in all {
                let (part, _) = concat.locate(id);
                let count = given.entry(part).or_insert(0);
                assert_eq!(id, alone[part][*count], "sample {count} of part {part}, changed after {rounds}");
                *count += 1;
            }
            let usual: Vec<_> = (0..changed.len()).map(|position| changed.at(Cursor::new(1, position))).collect();
            assert_eq!(in_second, usual);
        }
    });
}

#[test]
fn windows_shards_and_subsets_are_read_like_any_order() {
    within(BOUND, || {
        let options = Options::new().format("records").set("record_bytes", 997).set("header_bytes", 5);
        let records = [("0", 20), ("1", 0), ("2", 31), ("3", 4), ("4", 17)];
        let (_root, all) = made(records.map(|(name, records)| (name, 5 + 997 * records)), &options);
        let some: Arc<dyn Dataset> = Arc::new(View::without(Arc::clone(&all), vec![3, 20, 50]).expect("a subset"));
        for dataset in [all, some] {
            for shuffle in [Shuffle::Window(10), Shuffle::Shards { mixed: 2 }] {
                let order = for_dataset(&*dataset, shuffle, 4).expect("an order");
                for way in WAYS {
                    conforms(Arc::clone(&dataset), Arc::clone(&order), way, |builder| builder);
                }
                // The builder makes the same order from the words for it.
                let builder = Loader::builder(Arc::clone(&dataset)).shuffle(shuffle).seed(4).batch_size(8);
                let (ids, errors) = drain(&*dataset, &mut builder.build().expect("a loader"));
                assert!(errors.is_empty());
                let wanted: Vec<_> = (0..dataset.len()).map(|position| order.at(Cursor::new(0, position))).collect();
                assert_eq!(ids, wanted, "{shuffle:?}");
            }
        }
    });
}

#[test]
fn orders_that_cannot_be_are_refused_at_build() {
    let root = TempDir::new().expect("a folder");
    let concat = folders(&root);
    for shuffle in [Shuffle::Window(0), Shuffle::Shards { mixed: 0 }] {
        let Err(error) = Loader::builder(Arc::clone(&concat) as _).shuffle(shuffle).build() else {
            panic!("{shuffle:?} is taken")
        };
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.remedy().is_some(), "{error}");
    }
}
