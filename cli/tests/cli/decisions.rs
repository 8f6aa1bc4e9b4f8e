//! The log of what the loader changed by itself, as `--json` has it.

use super::common::faulty::{Fault, Faulty, Spec};
use super::common::{skip, within};
use super::{expect, json, uringload};
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(120);

/// Storage of 10 ms a read, as many at once as are asked for: the loader finds out that more in flight give more.
#[test]
#[ignore = "slow: measures time"]
fn each_change_of_a_knob_is_in_the_json_with_its_figures() {
    within(BOUND, || {
        let fault = Fault::Slow(Duration::from_millis(10));
        let file = Spec { name: "records".into(), size: 400 << 20, fault };
        let Ok(faulty) = Faulty::mount(vec![file]).map_err(skip) else { return };
        let path = faulty.path().join("records");
        let options = "--format records --record-bytes 4096 --shuffle=full --duration 3s --no-raw --json -";
        let told = json(&expect(&mut uringload(&format!("bench {} {options}", path.display())), 0).0);
        let decisions = told["decisions"].as_array().expect("a log");
        let of_depth: Vec<_> = decisions.iter().filter(|one| one["knob"] == "queue_depth").collect();
        assert!(!of_depth.is_empty(), "{told}");
        assert!(of_depth.iter().any(|one| one["to"].as_u64() > one["from"].as_u64()), "{decisions:#?}");
        let mut before = 0.0;
        for one in decisions {
            let after = one["after_s"].as_f64().expect("a time");
            assert!(after >= before, "they stand in the order of their times: {decisions:#?}");
            before = after;
            assert!(one["why"].as_str().is_some_and(|why| !why.is_empty()), "{one}");
        }
        // A read takes 10 ms, and what was in flight then gave this many: both were measured.
        let first = of_depth[0];
        assert!(first["mean_latency_us"].as_u64() >= Some(10_000), "{first}");
        assert!(first["reads_per_s"].as_u64() > Some(0) && first["bytes_per_s"].as_u64() > Some(0), "{first}");
        let last = of_depth.last().and_then(|one| one["to"].as_u64());
        assert_eq!(told["depth"].as_u64(), last, "the depth is what was decided last: {decisions:#?}");
    });
}
