//! The suite of tests/loaders/conformance.rs on every filesystem that this machine can mount. Root only, `skipped:`
//! otherwise.

use crate::common::check::{WAYS, conforms};
use crate::common::mounts::{Kind, Mounted};
use crate::common::{fixture, skip, within};
use std::sync::Arc;
use std::time::Duration;
use uringload::Loader;
use uringload::config::{EngineChoice, IoChoice};
use uringload::dataset::{self, Dataset, Options};
use uringload::inspect::Shuffled;

const BOUND: Duration = Duration::from_secs(180);

fn conforms_on(kind: Kind) {
    let mounted = match Mounted::new(kind) {
        Ok(mounted) => mounted,
        Err(reason) => return skip(reason),
    };
    within(BOUND, move || {
        fixture::write_folder(mounted.path());
        let dataset: Arc<dyn Dataset> =
            dataset::open(&[mounted.path()], &Options::new().format("folder")).expect("a folder");
        for way in WAYS {
            let sampler = Arc::new(Shuffled::new(dataset.len(), 5));
            let had = conforms(Arc::clone(&dataset), sampler, way, |builder| builder);
            let must = way == (EngineChoice::Threads, IoChoice::Buffered)
                || way == (EngineChoice::Threads, IoChoice::Direct) && kind.has_direct();
            assert!(had || !must, "{kind:?} allows {way:?}");
        }
        auto_says_what_it_does(kind, dataset);
    });
}

/// `auto` takes O_DIRECT where the filesystem names an alignment, and says so where it does not. What lies in the page
/// cache, as all of tmpfs does, is read from there.
fn auto_says_what_it_does(kind: Kind, dataset: Arc<dyn Dataset>) {
    let loader = Loader::builder(dataset).build().expect("a loader");
    let route = loader.route();
    if !route.direct_io {
        let step = route.fallbacks.iter().find(|step| step.wanted.contains("O_DIRECT"));
        assert!(step.is_some_and(|step| !step.remedy.is_empty()), "{kind:?}: silently buffered: {route:?}");
    }
    assert!(route.direct_io || !kind.has_direct() || route.fallbacks[0].reason.contains("page cache"), "{route:?}");
    assert!(!(route.direct_io && kind == Kind::Ext4DataJournal), "direct in name only: {route:?}");
}

#[test]
fn ext4() {
    conforms_on(Kind::Ext4);
}

#[test]
fn ext4_with_sectors_of_4096_bytes() {
    conforms_on(Kind::Ext4Sectors4096);
}

#[test]
fn ext4_with_data_journal() {
    conforms_on(Kind::Ext4DataJournal);
}

#[test]
fn xfs() {
    conforms_on(Kind::Xfs);
}

#[test]
fn btrfs() {
    conforms_on(Kind::Btrfs);
}

#[test]
fn tmpfs() {
    conforms_on(Kind::Tmpfs);
}
