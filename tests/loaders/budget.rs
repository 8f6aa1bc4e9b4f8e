//! Loaders that share a budget of memory.

use crate::common::check::checked;
use crate::common::fixture::files;
use crate::common::within;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::batch::Batch;
use uringload::config::MemoryBudget;
use uringload::dataset::Dataset;
use uringload::{Builder, ErrorKind, Loader};

const BOUND: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;

/// Files of these sizes.
fn folder(sizes: &[u64]) -> (TempDir, Arc<dyn Dataset>) {
    files(sizes.iter().enumerate().map(|(number, &size)| (format!("{number:03}"), size)))
}

fn builder(dataset: &Arc<dyn Dataset>, budget: &MemoryBudget) -> Builder {
    Loader::builder(Arc::clone(dataset)).batch_size(4).shuffle(true).seed(1).epochs(2).memory_budget(budget)
}

/// All loaders in turn, each holding its last batch while it waits for the next, as Python does.
fn read_all(dataset: &dyn Dataset, budget: &MemoryBudget, loaders: Vec<Loader>) {
    let mut loaders: Vec<(Loader, Option<Batch>, u64)> = loaders.into_iter().map(|loader| (loader, None, 0)).collect();
    let mut is_any = true;
    while is_any {
        is_any = false;
        for (loader, held, samples) in &mut loaders {
            let Some(batch) = loader.next() else { continue };
            let batch = batch.expect("no error");
            *samples += checked(dataset, &batch).len() as u64;
            *held = Some(batch);
            is_any = true;
            assert!(budget.used() <= budget.bytes(), "{} bytes", budget.used());
        }
    }
    assert!(loaders.iter().all(|(_, _, samples)| *samples == 2 * dataset.len()));
}

#[test]
fn loaders_go_on_with_what_there_is() {
    within(BOUND, || {
        // Short samples, some in blocks of their own, and long ones, whose memory is carried from one to the next.
        for (sizes, loaders, bytes) in [
            (vec![30_000; 40], 20, 80 * MIB),
            ((0..24).map(|n| 300_000 + n * 11_000).collect(), 8, 140 * MIB),
            ((1..5).map(|n| n * 3 * MIB).collect(), 2, 500 * MIB),
        ] {
            let (_root, dataset) = folder(&sizes);
            for bytes in [bytes, 16 * bytes] {
                let budget = MemoryBudget::new(bytes);
                let all = (0..loaders).map(|_| builder(&dataset, &budget).build().expect("a loader")).collect();
                read_all(&*dataset, &budget, all);
                assert_eq!(budget.used(), 0);
            }
        }
    });
}

#[test]
fn what_is_taken_goes_back_with_the_last_batch() {
    within(BOUND, || {
        let (_root, dataset) = folder(&[30_000; 40]);
        let budget = MemoryBudget::new(2 * MIB);
        let mut loader = builder(&dataset, &budget).build().expect("a loader");
        let refused = |what: &str| {
            let error = builder(&dataset, &budget).build().map(drop).expect_err(what);
            assert_eq!(error.kind(), ErrorKind::MemoryLimit, "{error}");
            assert!(error.to_string().contains("1 others have taken 2097152"), "{error}");
            assert!(error.remedy().is_some_and(|remedy| remedy.contains("budget")), "{error}");
        };
        refused("the other one has all of it");
        let batch = loader.next().expect("a batch").expect("no error");
        drop(loader);
        refused("a batch holds the memory");
        drop(batch);
        assert_eq!(budget.used(), 0);
        let small = builder(&dataset, &MemoryBudget::new(1000)).build().map(drop).expect_err("less than a batch");
        assert!(small.to_string().contains("of a memory budget of 1000"), "{small}");
        read_all(&*dataset, &budget, vec![builder(&dataset, &budget).build().expect("a loader")]);
    });
}
