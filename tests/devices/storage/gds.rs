//! Files read straight into device memory, on both mocks: every sample byte for byte, whatever cuFile does.

use crate::common::case::{Case, Consumer};
use crate::common::cufile::{self, Cufile};
use crate::common::{Mock, Random, dataset};
use mock_cufile::Knob;
use std::time::Duration;
use uringload::DeviceLoader;
use uringload::config::Batching;
use uringload::config::Config;
use uringload::config::GdsCause;
use uringload::config::{
    Cause, Collate, EngineKind, Fallback, Gds, IoChoice, OnError, PackMethod, Packing, PadValue, Padding, Route,
    Shuffle,
};

const BOUND: Duration = Duration::from_secs(100);
const TRAIN: Consumer = Consumer::Train { time: Duration::from_micros(300), held: 1 };

fn config() -> Config {
    Config { batch_size: 5, shuffle: true.into(), seed: 3, memory_limit: Some(48 << 20), ..Config::default() }
}

/// The causes of a loader's fallbacks.
fn causes(loader: &DeviceLoader) -> Vec<Cause> {
    loader.route().fallbacks.iter().map(|step| step.cause).collect()
}

/// Compares all of a case's batches with the host's, through the GDS engine.
fn check(case: &Case, mock: &Mock, consumer: Consumer) -> Vec<Cause> {
    let mut loader = case.build(mock);
    let route = loader.route();
    assert_eq!(route.engine, EngineKind::Gds, "{route}: {:?}", route.fallbacks);
    assert!(route.devices[0].gds.is_some() && route.direct_io && route.alignment >= 4096, "{route}");
    let came = case.check_loader(mock, consumer, usize::MAX, &mut loader, &mut case.host());
    assert!(came > 3 && loader.next().is_none(), "{came}");
    let said = causes(&loader);
    drop(loader);
    said
}

#[test]
fn every_sample_is_there_in_every_order_and_form() {
    cufile::on_direct(BOUND, || {
        let (mock, cufile, mut random) = (Mock::new("copy_us=50"), Cufile::new(), Random::new(11));
        // Reads that are compared are not told from others.
        let gds = (Gds::On, cufile.search().check_every(3));
        let records = cufile::records(40, 300_001, &mut random);
        let files = cufile::files(40, &mut random);
        let arrays = cufile::arrays(40, &mut random);
        let pad = |max_length| {
            Collate::Padded(Padding::default().value(PadValue::Bits(7)).max_length(max_length).multiple_of(64))
        };
        let packing = Packing::new(200_000).method(PackMethod::Concat).window(16).pad(PadValue::Bits(1));
        let packed = Config { batching: Batching::Packed(packing), batch_size: 1, ..config() };
        let mut cases = vec![
            Case::new(&files.dataset, Config { collate: Collate::Ragged, ..config() }),
            Case::new(&files.dataset, Config { collate: pad(None), index: true, ..config() }),
            Case::new(&files.dataset, Config { collate: pad(Some(100_000)), ..config() }),
            Case::new(&files.dataset, Config { key: true, ..config() }),
            Case::new(&files.dataset, Config { memory_limit: Some(160 << 20), ..packed }),
            Case::new(&arrays.dataset, Config { collate: Collate::Dense, ..config() }),
            Case::new(&arrays.dataset, Config { read_size: Some(16 << 20), batch_size: 9, ..config() }),
            Case::new(&records.dataset, Config { coalesce_gap: Some(400_000), epochs: Some(2), ..config() }),
            Case::new(&records.dataset, Config { rank: 1, world_size: 3, drop_last: true, batch_size: 2, ..config() }),
        ];
        let shuffles = [Shuffle::Off, Shuffle::Full, Shuffle::Window(10), Shuffle::Shards { mixed: 1 }];
        cases.extend(shuffles.map(|shuffle| Case::new(&records.dataset, Config { shuffle, ..config() })));
        for case in cases {
            let case = Case { gds: gds.clone(), ..case };
            for consumer in [Consumer::Look, TRAIN] {
                let before = cufile.get(Knob::Reads);
                let said = check(&case, &mock, consumer);
                assert!(said.iter().all(|cause| !is_gds(*cause)), "{said:?}");
                assert!(cufile.get(Knob::Reads) > before + 3, "{:?}", case.config);
                mock.assert_clean();
                cufile.assert_closed();
            }
        }
    });
}

fn is_gds(cause: Cause) -> bool {
    format!("{cause:?}").starts_with("Gds")
}

#[test]
fn short_reads_are_read_on() {
    cufile::on_direct(BOUND, || {
        let (mock, cufile, mut random) = (Mock::new(""), Cufile::new(), Random::new(12));
        let made = cufile::records(30, 300_001, &mut random);
        let case = Case { gds: cufile.choice(Gds::On), ..Case::new(&made.dataset, config()) };
        for bytes in [4096, 65536] {
            cufile.set(Knob::ShortRead, bytes);
            assert_eq!(check(&case, &mock, Consumer::Look), []);
        }
        mock.assert_clean();
        cufile.assert_closed();
    });
}

#[test]
fn memory_that_cannot_be_registered_is_reached_by_way_of_the_host() {
    cufile::on_direct(BOUND, || {
        let (mock, cufile, mut random) = (Mock::new(""), Cufile::new(), Random::new(13));
        let made = cufile::records(60, 300_001, &mut random);
        let case = Case { gds: cufile.choice(Gds::On), ..Case::new(&made.dataset, config()) };
        cufile.set(Knob::BarBytes, 3 << 20);
        let loader = case.build(&mock);
        let gds = loader.route().devices[0].gds.clone().expect("it is in use");
        assert_eq!((gds.registered_bytes, gds.memory_bytes), (2 << 20, 48 << 20));
        assert!(gds.to_string().contains("2 MiB of them registered"), "{gds}");
        drop(loader);
        // Hold many batches, so that memory beyond the registered part is used.
        let hoard = Consumer::Train { time: Duration::from_millis(3), held: 1 };
        assert_eq!(check(&case, &mock, hoard), [Cause::Gds(GdsCause::Memory)]);
        // No registered memory at all: requested by name it fails, else the pinned path serves.
        cufile.set(Knob::BarBytes, 1 << 20);
        let error = case.builder(&mock).build().map(drop).unwrap_err().to_string();
        assert!(error.contains("gds was asked for") && error.contains("5036"), "{error}");
        let auto = Case { gds: cufile.choice(Gds::Auto), ..case };
        let config = Config { io: IoChoice::Direct, ..auto.config.clone() };
        let auto = Case { config, ..auto };
        let loader = auto.build(&mock);
        assert!(causes(&loader).contains(&Cause::Gds(GdsCause::Memory)) && loader.route().engine != EngineKind::Gds);
        drop(loader);
        auto.check(&mock, Consumer::Look, usize::MAX);
        mock.assert_clean();
        cufile.assert_closed();
    });
}

/// What a route says of the trial of both ways.
struct Told {
    is_gds: bool,
    text: String,
}

impl Told {
    fn of(route: &Route) -> Told {
        let Some(gds) = &route.devices[0].gds else {
            let slower = |step: &&Fallback| step.cause == Cause::Gds(GdsCause::Slower);
            let step = route.fallbacks.iter().find(slower).expect("it is said");
            return Told { is_gds: false, text: step.to_string() };
        };
        assert_eq!(route.engine, EngineKind::Gds);
        let [gds, pinned] = gds.trial.expect("a trial");
        assert!(gds.bytes > 0 && pinned.bytes > 0 && gds.rate() > pinned.rate() * 0.98, "{gds} {pinned}");
        Told { is_gds: true, text: route.to_string() }
    }
}

#[test]
#[ignore = "slow: measures time"]
fn auto_tries_both_ways_and_tells_both_figures() {
    /// A trial measures: on a busy machine, one may come out either way.
    const ATTEMPTS: u32 = 5;
    cufile::on_direct(BOUND, || {
        let (mock, cufile, mut random) = (Mock::new("copy_us=20"), Cufile::new(), Random::new(14));
        let made = cufile::records(40, 300_001, &mut random);
        let config = Config { io: IoChoice::Direct, ..config() };
        let case = Case { gds: cufile.choice(Gds::Auto), ..Case::new(&made.dataset, config) };
        for (copy_us, read_ms) in [(20_000, 0), (0, 30)] {
            mock.configure(&format!("copy_us={copy_us}"));
            cufile.set(Knob::ReadHangs, read_ms);
            let chosen = |told: &Told| told.is_gds == (copy_us > 0);
            let told = (0..ATTEMPTS).map(|_| Told::of(&case.build(&mock).route())).find(chosen);
            let told = told.unwrap_or_else(|| panic!("copies of {copy_us} us, reads of {read_ms} ms: the slower way"));
            assert_eq!(told.text.matches("s of CPU a GB").count(), 2, "{}", told.text);
        }
        cufile.set(Knob::ReadHangs, 0);
        case.check(&mock, Consumer::Look, usize::MAX);
        mock.assert_clean();
        cufile.assert_closed();
    });
}

#[test]
fn what_cannot_be_done_so_is_said_and_done_otherwise() {
    cufile::on_direct(BOUND, || {
        let (mock, cufile, mut random) = (Mock::new("devices=2"), Cufile::new(), Random::new(15));
        let records = cufile::records(20, 300_001, &mut random);
        let files = cufile::files(20, &mut random);
        let mixed = dataset::mixed(30, false, &mut random);
        let engine = uringload::config::EngineChoice::Threads;
        let cases = [
            (Case::new(&mixed.dataset, config()), Cause::Gds(GdsCause::Work)),
            (
                Case::new(&records.dataset, Config { on_error: OnError::Replace, ..config() }),
                Cause::Gds(GdsCause::Work),
            ),
            (Case::new(&records.dataset, Config { collate: Collate::Views, ..config() }), Cause::Gds(GdsCause::Work)),
            (Case::new(&records.dataset, Config { engine, ..config() }), Cause::Gds(GdsCause::Work)),
            (Case { devices: 2, ..Case::new(&records.dataset, config()) }, Cause::Gds(GdsCause::Work)),
            (Case::new(&files.dataset, Config { io: IoChoice::Buffered, ..config() }), Cause::Gds(GdsCause::Files)),
            (
                Case { memory_limit: Some(7_600_000), ..Case::new(&files.dataset, config()) },
                Cause::Gds(GdsCause::Memory),
            ),
        ];
        for (case, cause) in cases {
            let by_name = Case { gds: cufile.choice(Gds::On), ..case.clone() };
            let Err(error) = by_name.builder(&mock).build() else { panic!("{cause:?} was overlooked") };
            assert!(error.to_string().contains("gds was asked for, but "), "{error}");
            let direct = if case.config.io == IoChoice::Buffered { IoChoice::Buffered } else { IoChoice::Direct };
            let config = Config { io: direct, ..case.config.clone() };
            let auto = Case { gds: cufile.choice(Gds::Auto), config, ..case };
            let said = causes(&auto.build(&mock));
            assert_eq!(said.iter().filter(|&&said| said == cause).count(), 1, "{said:?} and not {cause:?}");
            if auto.config.collate != Collate::Views {
                auto.check(&mock, Consumer::Look, usize::MAX);
            }
        }
        mock.assert_clean();
        cufile.assert_closed();
    });
}

/// Without nvidia-fs, without the library, in compatibility mode: reported at once, and nothing is lost.
#[test]
fn absence_is_told_and_loses_nothing() {
    absence(Duration::MAX);
}

#[test]
#[ignore = "slow: measures time"]
fn absence_costs_less_than_a_second() {
    absence(Duration::from_secs(1));
}

/// Building a loader may take so much longer than it does without GDS.
fn absence(more: Duration) {
    cufile::on_direct(BOUND, move || {
        let (mock, cufile, mut random) = (Mock::new(""), Cufile::new(), Random::new(16));
        let made = cufile::records(20, 300_001, &mut random);
        let config = Config { io: IoChoice::Direct, ..config() };
        let case = Case { gds: cufile.choice(Gds::Auto), ..Case::new(&made.dataset, config) };
        let off = Case { gds: cufile.choice(Gds::Off), ..case.clone() };
        let expect = |case: &Case, cause: Cause| {
            let start = std::time::Instant::now();
            off.build(&mock);
            let without = start.elapsed();
            let start = std::time::Instant::now();
            let loader = case.build(&mock);
            let with = start.elapsed();
            assert!(with.saturating_sub(without) < more, "{with:?}, {without:?} without");
            let said: Vec<_> = causes(&loader).into_iter().filter(|cause| is_gds(*cause)).collect();
            assert_eq!(said, [cause]);
            drop(loader);
            case.check(&mock, Consumer::Look, usize::MAX);
        };
        cufile.set(Knob::NvidiaFs, 0);
        expect(&case, Cause::Gds(GdsCause::Compat));
        let search = cufile.search().library(cufile.root().join("libnone.so"));
        expect(&Case { gds: (Gds::Auto, search), ..case.clone() }, Cause::Gds(GdsCause::Library));
        std::fs::remove_dir_all(cufile.root().join("run")).unwrap();
        expect(&case, Cause::Gds(GdsCause::Udev));
        std::fs::remove_dir_all(cufile.root().join("proc/driver")).unwrap();
        std::fs::write(cufile.root().join("proc/modules"), "nvme 1 0 - Live 0x0\n").unwrap();
        expect(&case, Cause::Gds(GdsCause::Path));
        assert_eq!(cufile.get(Knob::Reads), 0);
        mock.assert_clean();
        cufile.assert_closed();
    });
}
