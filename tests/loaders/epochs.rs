//! Batches by epoch.

use crate::common::fixture::files;
use crate::common::within;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::config::Packing;
use uringload::dataset::Dataset;
use uringload::{Builder, Loader};

const BOUND: Duration = Duration::from_secs(60);
const FILES: u64 = 10;

fn folder() -> (TempDir, Arc<dyn Dataset>) {
    files((0..FILES).map(|number| (format!("{number}"), 1000 + number)))
}

/// Of each epoch that is handed out: its number, and how many batches and errors it had.
fn epochs(mut loader: Loader) -> Vec<(u64, usize, usize)> {
    let mut all = Vec::new();
    while let Some(mut epoch) = loader.next_epoch() {
        let number = epoch.number();
        let (mut batches, mut errors) = (0, 0);
        for batch in &mut epoch {
            match batch {
                Ok(batch) => {
                    assert_eq!(batch.cursor.epoch, number);
                    batches += 1;
                }
                Err(_) => errors += 1,
            }
        }
        all.push((number, batches, errors));
    }
    assert!(loader.next().is_none() && loader.next_epoch().is_none());
    all
}

fn run(builder: Builder) -> Vec<(u64, usize, usize)> {
    epochs(builder.build().expect("a loader"))
}

#[test]
fn each_epoch_has_its_batches() {
    within(BOUND, || {
        let (_root, dataset) = folder();
        let builder = Loader::builder(dataset).shuffle(true).seed(1).epochs(3);
        assert_eq!(run(builder.clone().batch_size(4)), [(0, 3, 0), (1, 3, 0), (2, 3, 0)]);
        assert_eq!(run(builder.clone().batch_size(4).drop_last(true)), [(0, 2, 0), (1, 2, 0), (2, 2, 0)]);
        assert_eq!(run(builder.clone().batch_size(5)), [(0, 2, 0), (1, 2, 0), (2, 2, 0)]);
        // Fewer samples than a batch: no epoch has one.
        assert_eq!(run(builder.clone().batch_size(20).drop_last(true)), []);
        assert_eq!(run(builder.clone().batch_size(4).epochs(0)), []);
        for drop_last in [false, true] {
            let packed = builder.clone().batching(Packing::new(4096).window(3)).batch_size(2).drop_last(drop_last);
            let of =
                |epoch| packed.clone().order().expect("an order").batches().filter(|b| b.cursor.epoch == epoch).count();
            let wanted: Vec<_> = (0..3).map(|epoch| (epoch, of(epoch), 0)).collect();
            assert!(wanted.iter().all(|(_, batches, _)| *batches > 0));
            assert_eq!(run(packed), wanted);
        }
    });
}

#[test]
fn what_is_left_of_an_epoch_comes_first() {
    within(BOUND, || {
        let (_root, dataset) = folder();
        let builder = Loader::builder(dataset).batch_size(4).shuffle(true).seed(1).epochs(3);
        let mut loader = builder.clone().build().expect("a loader");
        // Broken off behind two of three batches.
        let states: Vec<_> = (0..5)
            .map(|_| {
                loader.next_epoch().and_then(|mut epoch| epoch.next()).expect("a batch").expect("no error");
                loader.state()
            })
            .collect();
        assert_eq!(epochs(loader), [(1, 1, 0), (2, 3, 0)]);
        assert_eq!(run(builder.clone().resume(&states[0])), [(0, 2, 0), (1, 3, 0), (2, 3, 0)]);
        // Behind the last batch of an epoch.
        assert_eq!(run(builder.resume(&states[2])), [(1, 3, 0), (2, 3, 0)]);
    });
}

/// An error in the place of the last batch of an epoch ends the epoch as the batch would have.
#[test]
fn errors_take_the_place_of_batches() {
    within(BOUND, || {
        let (root, dataset) = folder();
        let builder = Loader::builder(dataset).batch_size(4).epochs(2);
        std::fs::remove_file(root.path().join("9")).expect("the last file");
        assert_eq!(run(builder.clone()), [(0, 2, 1), (1, 2, 1)]);
        std::fs::remove_file(root.path().join("4")).expect("a file");
        assert_eq!(run(builder), [(0, 1, 2), (1, 1, 2)]);
    });
}
