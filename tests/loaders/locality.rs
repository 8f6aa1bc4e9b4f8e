//! Storage on which an operation costs as much as many bytes: the same samples in the same order, in a fraction of the
//! reads, with memory and amplification bounded, and said in the route.

use crate::common::check::{drain, ways_to};
use crate::common::fixture::made;
use crate::common::within;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::Loader;
use uringload::config::Config;
use uringload::config::{Cause, Collate, Shuffle};
use uringload::dataset::{self, Dataset, Options};

const BOUND: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// What a disk with heads takes for an operation.
const PRICE: u64 = 800_000;

/// Samples of 20 000 bytes and 1200 apart, as members of an archive are.
fn ranges() -> (TempDir, Arc<dyn Dataset>) {
    records(4, 200, 21_200)
}

fn records(files: u64, count: u64, record_bytes: u64) -> (TempDir, Arc<dyn Dataset>) {
    let options = Options::new().format("records").set("record_bytes", record_bytes);
    made((0..files).map(|file| (format!("{file}.bin"), count * record_bytes)), &options)
}

fn config(shuffle: Shuffle, price: u64) -> Config {
    Config { batch_size: 16, shuffle, seed: 5, epochs: Some(2), operation_bytes: Some(price), ..Config::default() }
}

fn build(dataset: &Arc<dyn Dataset>, config: Config) -> Loader {
    Loader::builder(Arc::clone(dataset)).config(config).build().expect("a loader")
}

/// The samples, checked, with reads, bytes read and the final state.
fn read(dataset: &Arc<dyn Dataset>, config: Config) -> (Vec<u64>, u64, u64, String) {
    let mut loader = build(dataset, config);
    let (ids, errors) = drain(&**dataset, &mut loader);
    assert!(errors.is_empty(), "{errors:?}");
    let count = loader.stats().snapshot().count;
    let state = loader.state().to_json();
    (ids.into_iter().map(|id| id.0).collect(), count.reads, count.bytes_read, state)
}

#[test]
fn windows_and_shards_are_read_whole_whatever_their_samples_length() {
    // Forms take turns.
    are_read_whole(|turn, form| form == turn % 2);
}

#[test]
#[ignore = "slow: every form by every way"]
fn windows_and_shards_are_read_whole_in_every_form() {
    are_read_whole(|_, _| true);
}

fn are_read_whole(has_turn: fn(usize, usize) -> bool) {
    within(BOUND, move || {
        let mut turn = 0;
        let (_root, dataset) = ranges();
        let bytes = dataset.bytes() * 2;
        for shuffle in [Shuffle::Window(300), Shuffle::Shards { mixed: 2 }] {
            for (engine, io) in ways_to(&dataset) {
                turn += 1;
                let forms = [Collate::Auto, Collate::Views].into_iter().enumerate();
                for (_, collate) in forms.filter(|(form, _)| has_turn(turn, *form)) {
                    let with = |price| Config { engine, io, collate, ..config(shuffle, price) };
                    let (ids, reads, _, state) = read(&dataset, with(0));
                    let (same, fewer, bytes_read, same_state) = read(&dataset, with(PRICE));
                    assert_eq!((ids, state), (same, same_state), "{shuffle:?} {engine:?} {io:?}");
                    assert!(fewer * 8 < reads, "{fewer} of {reads} reads for {shuffle:?}");
                    assert!(bytes_read < bytes * 12 / 10, "{bytes_read} of {bytes} bytes for {shuffle:?}");
                    let said = build(&dataset, with(PRICE)).route().to_string();
                    assert!(said.contains("read whole (up to "), "{said}");
                }
            }
        }
    });
}

#[test]
fn what_does_not_fit_is_said_and_read_one_by_one() {
    within(BOUND, || {
        let (_root, dataset) = ranges();
        let small = Config { memory_limit: Some(10 * MIB), ..config(Shuffle::Shards { mixed: 2 }, PRICE) };
        let loader = build(&dataset, small.clone());
        let route = loader.route();
        let step = route.fallbacks.iter().find(|step| step.cause == Cause::Locality).expect("it is said");
        assert!(step.reason.contains("shards whole") && step.remedy.contains("raise memory_limit to"), "{step}");
        let wanted = step.remedy.split(&[' ', ','][..]).find_map(|word| word.parse().ok()).expect("a number");
        let enough = Config { memory_limit: Some(wanted), ..small.clone() };
        let loader = build(&dataset, enough.clone());
        assert!(loader.memory_limit() <= wanted && loader.route().to_string().contains("read whole"));
        let ((ids, reads, ..), (same, fewer, ..)) = (read(&dataset, small), read(&dataset, enough));
        assert_eq!(ids, same);
        assert!(fewer * 8 < reads, "{fewer} of {reads} reads");
    });
}

#[test]
fn neighbours_in_order_are_joined_and_the_route_says_so() {
    within(BOUND, || {
        // Longer than two pages, which tmpfs aligns reads to: else neighbours touch.
        let (_root, dataset) = records(1, 400, 12_000);
        // Every other one, so that there are gaps.
        let even = (0..dataset.len()).step_by(2).collect();
        let dataset: Arc<dyn Dataset> = Arc::new(dataset::View::of(dataset, even).expect("a view"));
        for (engine, io) in ways_to(&dataset) {
            for collate in [Collate::Auto, Collate::Views, Collate::Ragged] {
                let with = |price| Config { engine, io, collate, ..config(Shuffle::Off, price) };
                let (ids, reads, ..) = read(&dataset, with(0));
                let (same, fewer, ..) = read(&dataset, with(PRICE));
                assert_eq!(ids, same, "{engine:?} {io:?} {collate:?}");
                assert!(reads >= 400 && fewer < 40, "{fewer} of {reads} reads");
                let asked = Config { coalesce_gap: Some(0), ..with(PRICE) };
                assert_eq!(read(&dataset, asked).1, reads, "0 by name joins nothing");
            }
        }
        let route = build(&dataset, config(Shuffle::Off, PRICE)).route();
        assert!(route.to_string().contains("gaps of <= 64 KiB read along"), "{route}");
        assert!(build(&dataset, config(Shuffle::Off, 0)).route().locality.is_empty());
    });
}

/// A batch that just fits without gaps is read without them, and that is said.
#[test]
fn gaps_are_no_reason_to_refuse_a_batch() {
    let (_root, dataset) = records(1, 100, 3000);
    let with = |limit, price| Config { memory_limit: Some(limit), ..config(Shuffle::Off, price) };
    let fits = |limit: &u64| Loader::builder(Arc::clone(&dataset)).config(with(*limit, 0)).build().is_ok();
    let least = (10_000..1_000_000).step_by(1000).find(fits).expect("a limit");
    for more in [0, 1000, 10_000, 50_000, 100_000, 500_000, 5_000_000] {
        let mut loader = build(&dataset, with(least + more, PRICE));
        let route = loader.route();
        assert_eq!(route.locality.is_empty(), route.fallbacks.iter().any(|step| step.cause == Cause::Locality));
        let (ids, errors) = drain(&*dataset, &mut loader);
        assert_eq!((ids.len() as u64, errors.len()), (2 * dataset.len(), 0), "{more} more");
    }
}
