//! Windows that are read whole on trial, and go to a device.

use crate::common::{Mock, skip, within};
use crate::content;
use crate::faulty::{Fault, Faulty, Spec};
use std::time::{Duration, Instant};
use uringload::Loader;
use uringload::config::{Device, Shuffle};
use uringload::dataset::{self, Options};
use uringload::stats::Knob;

const BOUND: Duration = Duration::from_secs(120);
const RECORD_BYTES: u64 = 16 << 10;
const RECORDS: u64 = 25_000;

/// A server of 200 operations a second, which is not reported. Before, during and after the trial the same samples
/// come in the same order, with their bytes.
#[test]
#[ignore = "slow: measures time"]
fn windows_are_read_whole_for_a_device_where_that_gains() {
    within(BOUND, || {
        let fault = Fault::Turns(Duration::from_millis(5));
        let file = Spec { name: "records".into(), size: RECORDS * RECORD_BYTES, fault };
        let Ok(faulty) = Faulty::mount(vec![file]).map_err(skip) else { return };
        let mock = Mock::new("copy_us=5");
        let options = Options::new().format("records").set("record_bytes", RECORD_BYTES);
        let dataset = dataset::open(&[faulty.path().join("records")], &options).expect("records");
        let builder = || {
            let builder = Loader::builder(dataset.clone()).batch_size(64).epochs(None);
            builder.shuffle(Shuffle::Window(1024)).seed(3)
        };
        let mut loader = builder().device(Device::cuda(0).library(mock.path())).build().expect("a loader");
        let told = loader.route().to_string();
        assert!(told.contains("windows read whole if that gains"), "{told}");
        // What the user has set is for batches: two of them, with all that the smallest loader needs.
        let limited = Device::cuda(0).library(mock.path()).memory_limit(2 * 64 * 2 * RECORD_BYTES);
        let told = builder().device(limited).build().expect("a loader").route().to_string();
        assert!(!told.contains("read whole"), "{told}");
        let (stats, mut order) = (loader.stats(), builder().order().expect("an order").batches());
        let (key, mut wanted) = (content::key_of(b"records"), vec![0; RECORD_BYTES as usize]);
        let kept = || stats.decisions().into_iter().any(|one| one.knob == Knob::Whole && one.from == one.to);
        let (start, mut left) = (Instant::now(), 32);
        // Two windows more, of which the second was begun with the first.
        while left > 0 && start.elapsed() < BOUND {
            let batch = loader.next().expect("no end").expect("a batch");
            assert_eq!(batch.host.ids, order.next().expect("no end").ids, "in the order, whatever is read whole");
            let bytes = batch.columns[0].memory.to_host().expect("no error");
            for (record, id) in bytes.chunks(RECORD_BYTES as usize).zip(&batch.host.ids) {
                content::fill(key, id.0 * RECORD_BYTES, &mut wanted);
                assert!(record == wanted, "sample {id:?}");
            }
            left -= usize::from(kept());
        }
        assert!(kept(), "{:#?}", stats.decisions());
        drop(loader);
        mock.assert_clean();
    });
}
