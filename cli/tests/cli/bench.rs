//! `bench`: what it says, for people and for programs.

use super::*;

/// Three files whose sizes make figures that are easy to check. Sparse: the simulated disk makes its bytes up.
fn simulated() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("data")).unwrap();
    for (name, len) in [("a", 1_000_000), ("b", 2_000_000), ("c", 3_000_000), ("d", 4_000_000)] {
        fs::File::create(folder.path().join("data").join(name)).unwrap().set_len(len).unwrap();
    }
    folder
}

#[test]
fn the_table_of_a_simulated_disk() {
    let folder = simulated();
    let mut command = uringload("bench data --engine sim --batch-size 2 --epochs 3 --memory-limit 64MiB");
    let (out, err) = expect(command.current_dir(folder.path()), 0);
    assert_eq!(err, "");
    assert_eq!(out, include_str!("table.txt"));
}

#[test]
fn the_json_of_a_simulated_disk() {
    let folder = simulated();
    let mut command = uringload("bench data --engine sim --batch-size 2 --epochs 3 --memory-limit 64MiB --json -");
    let (out, _) = expect(command.current_dir(folder.path()), 0);
    assert_eq!(out, include_str!("bench.json").replace("VERSION", env!("CARGO_PKG_VERSION")));
}

/// The keys that programs rely on (docs/bench-json.md).
#[test]
fn json_has_every_promised_key() {
    let folder = folder(&[("a/1", 100_000), ("a/2", 30_000), ("b/3", 70_000)]);
    let file = folder.path().join("result.json");
    let arguments = format!(
        "bench {0}/a {0}/b --batch-size 2 --epochs 2 --rounds 2 --json {1}",
        folder.path().display(),
        file.display()
    );
    let (out, _) = expect(&mut uringload(&arguments), 0);
    assert!(
        out.contains("throughput") && out.contains("of a raw read") && out.contains("the median of 2 rounds"),
        "{out}"
    );
    let result = json(&fs::read_to_string(&file).unwrap());
    for key in [
        "version",
        "dataset/format",
        "dataset/samples",
        "dataset/bytes",
        "samples_per_s",
        "bytes_per_s",
        "wall_s",
        "cpu_s",
        "cpu_s_per_gb",
        "peak_rss_bytes",
        "memory_taken_s",
        "first_batch_ms",
        "batch_wait_ms/p50",
        "batch_wait_ms/p99",
        "read_latency_us/p50",
        "read_latency_us/p99",
        "read_latency_us/p999",
        "read_amplification",
        "raw_read_bytes_per_s",
        "share_of_raw",
        "au_percent",
        "route/engine",
        "route/direct_io",
        "route/fallbacks",
        "verdict/bottleneck",
        "verdict/share",
        "verdict/advice",
        "verdict/gain",
        "verdict/remedies",
        "verdict/without",
        "processors/used_s",
        "comparisons",
    ] {
        assert!(result.pointer(&format!("/{key}")).is_some(), "{key} is missing in {result:#}");
    }
    assert_eq!((&result["version"], &result["samples"], &result["batches"]), (&3.into(), &6.into(), &4.into()));
    assert_eq!(result["bytes"], 2 * 200_000);
    assert!(result["au_percent"].is_null() && result["cold"] == false);
    assert_eq!(result["rounds"].as_array().unwrap().len(), 2);
    // Files so small say little, and a share that cannot be is not told.
    let raw = &result["raw_read"];
    let share = result["share_of_raw"].as_f64();
    assert!(share.map_or(raw["disturbed"] == true, |share| share > 0.0 && share <= 1.05), "{result:#}");
    assert!(raw["count"].as_u64().unwrap() >= 3 && raw["spread"].as_f64().unwrap() >= 0.0, "{result:#}");
    for positive in ["samples_per_s", "bytes_per_s", "wall_s", "first_batch_ms", "raw_read_bytes_per_s"] {
        assert!(result[positive].as_f64().unwrap() > 0.0, "{positive} in {result:#}");
    }
    assert!(result["read_amplification"].as_f64().unwrap() >= 1.0);
}

#[test]
fn other_ways_read_the_same_samples() {
    let files: Vec<String> = (0..40).map(|n| format!("{n}")).collect();
    let files: Vec<(&str, usize)> = files.iter().map(|name| (name.as_str(), 20_000)).collect();
    let folder = folder(&files);
    let ways = "--io buffered --shuffle --compare buffered,mmap --json -";
    let result = json(&expect(&mut uringload(&format!("bench {} {ways}", folder.path().display())), 0).0);
    let comparisons = result["comparisons"].as_array().unwrap();
    let names: Vec<&str> = comparisons.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["buffered", "mmap"]);
    for one in comparisons {
        assert_eq!(one["samples"], 40);
        assert!([2, 4, 8, 16].map(serde_json::Value::from).contains(&one["threads"]), "{one}");
        let ratio = result["bytes_per_s"].as_f64().unwrap() / one["bytes_per_s"].as_f64().unwrap();
        assert!((one["rate_ratio"].as_f64().unwrap() - ratio).abs() < 1e-9, "{one}");
    }
    let records =
        format!("bench {} --record-bytes 1000 --io buffered --compare buffered,mmap", folder.path().display());
    let (table, _) = expect(&mut uringload(&records), 0);
    assert!(table.contains("compared with") && table.contains("mmap"), "{table}");
}

#[test]
fn an_emulated_step_gives_a_utilization() {
    let names: Vec<String> = (0..20).map(|n| format!("{n}")).collect();
    let files: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 5000)).collect();
    let folder = folder(&files);
    let arguments = format!("bench {} --batch-size 2 --emulate-step 5 --epochs 2 --json -", folder.path().display());
    let result = json(&expect(&mut uringload(&arguments), 0).0);
    let au = result["au_percent"].as_f64().unwrap();
    // How much of the time it is depends on how busy this machine is.
    assert!(au > 0.0 && au <= 100.0, "{au}");
    assert_eq!(result["step_ms"], 5.0);
    assert!(result["wall_s"].as_f64().unwrap() >= 20.0 * 0.005);
}

#[test]
fn a_duration_ends_what_would_go_on() {
    let folder = folder(&[("a", 5000)]);
    let arguments = format!("bench {} --duration 300ms --no-raw --json -", folder.path().display());
    let result = json(&expect(&mut uringload(&arguments), 0).0);
    assert_eq!(result["ended"], "duration");
    let wall = result["wall_s"].as_f64().unwrap();
    assert!((0.1..5.0).contains(&wall), "{wall}");
    assert!(result["raw_read_bytes_per_s"].is_null());
}

/// Less time than two raw reads take, each of which would be too short to say something.
#[test]
fn a_raw_read_that_there_was_no_time_for_is_told() {
    let folder = folder(&[("a", 5000)]);
    let path = folder.path().display();
    let told = |arguments: &str| expect(&mut uringload(&format!("bench {path} {arguments}")), 0).0;
    let row = "no raw read came to its end: a longer --duration";
    assert!(told("--duration 300ms").contains(row));
    assert!(!told("--duration 300ms --no-raw").contains(row));
    assert!(!told("--duration 60 --epochs 1").contains(row));
}

#[test]
fn without_permission_only_the_files_leave_the_cache() {
    let folder = folder(&[("a", 50_000), ("b", 50_000)]);
    let arguments = format!("bench {} --cold --json -", folder.path().display());
    let Some(mut command) = as_nobody(&arguments, "cold without permission") else { return };
    let result = json(&expect(&mut command, 0).0);
    assert_eq!(result["cold"], true);
}

#[test]
fn without_a_folder_a_dataset_is_made_and_deleted() {
    let temporary = tempfile::tempdir().unwrap();
    let mut command = uringload("bench --epochs 1 --json -");
    let (out, err) = expect(command.env("TMPDIR", temporary.path()), 0);
    let result = json(&out);
    assert_eq!(result["dataset"]["samples"], 1024);
    assert!(err.contains("making 1 024 files"), "{err}");
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0, "left behind");
}

#[test]
fn every_key_is_documented() {
    documented(&json(include_str!("bench.json")), 60);
}

/// Fails where docs/bench-json.md lacks one of the keys, or has too few of them.
pub fn documented(told: &serde_json::Value, at_least: usize) {
    fn keys(value: &serde_json::Value, out: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => {
                for (key, value) in map {
                    out.push(key.clone());
                    // Below `shares` the keys are activities.
                    if key != "shares" {
                        keys(value, out);
                    }
                }
            }
            serde_json::Value::Array(values) => values.iter().for_each(|value| keys(value, out)),
            _ => {}
        }
    }
    let documented = include_str!("../../../docs/bench-json.md");
    let mut found = Vec::new();
    keys(told, &mut found);
    assert!(found.len() > at_least, "{found:?}");
    for key in found {
        assert!(documented.contains(&format!("`{key}`")), "docs/bench-json.md does not know {key}");
    }
}

#[test]
fn two_results_are_compared_and_a_page_tells_of_one() {
    let folder = folder(&[("a", 200_000), ("b", 100_000), ("c", 300_000)]);
    let out = tempfile::tempdir().unwrap();
    let at = |name: &str| out.path().join(name).display().to_string();
    for name in ["a", "b"] {
        let (json, html) = (at(&format!("{name}.json")), at(&format!("{name}.html")));
        let bench = format!(
            "bench {} --io buffered --batch-size 2 --rounds 3 --json {json} --html {html}",
            folder.path().display()
        );
        let (table, _) = expect(&mut uringload(&bench), 0);
        assert!(table.contains("rounds") && table.contains("samples/s, from"), "{table}");
    }
    let page = fs::read_to_string(at("a.html")).unwrap();
    for said in [
        "Bottleneck: ",
        "Roofline",
        "Latency",
        "Dearest samples",
        "Threads over time",
        "Memory for samples",
        "Route and machine",
    ] {
        assert!(page.contains(said), "{said} is missing in {page}");
    }
    assert!(!page.contains("src=") && !page.contains("NaN"), "these are no images: {page}");
    let result = json(&fs::read_to_string(at("a.json")).unwrap());
    assert!(result["machine"]["kernel"].is_string() && result["run"]["time"].as_str().unwrap().ends_with('Z'));
    assert_eq!(result["rounds"][0]["epochs"][0]["samples"], 3);
    documented(&result, 100);
    let dearest = result["dearest_samples"].as_array().unwrap();
    let mut keys: Vec<&str> = dearest.iter().map(|one| one["key"].as_str().unwrap()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b", "c"]);
    assert!(dearest.iter().all(|one| one["read_ms"].as_f64().unwrap() > 0.0), "{dearest:?}");
    let by_size = result["read_latency_by_size"].as_array().unwrap();
    let reads = |of: &serde_json::Value| of["reads"].as_u64().unwrap();
    assert_eq!(by_size.iter().map(reads).sum::<u64>(), reads(&result), "{by_size:?}");
    let ceilings = result["ceilings"].as_array().unwrap();
    assert!(ceilings.iter().any(|one| one["part"] == "loader"), "{ceilings:?}");
    assert_eq!(result["rounds"][2]["series"].as_array().unwrap().last().unwrap()["samples"], 3);
    let compare = format!("compare {} {}", at("a.json"), at("b.json"));
    let (text, _) = expect(&mut uringload(&format!("{compare} --fail-below 100%")), 0);
    assert!(text.contains("samples_per_s") && text.contains("% samples/s"), "{text}");
    for form in ["markdown", "csv", "json"] {
        let (text, told) = expect(&mut uringload(&format!("{compare} --output {form}")), 0);
        assert!(text.contains("cpu_s_per_gb") && told.is_empty(), "{text}{told}");
    }
    // A tenth of the rate, on another machine; both steady, as a machine that is busy with tests is not.
    let with_rate = |name: &str, rate: f64, host: &str| {
        let mut other = result.clone();
        for (round, number) in other["rounds"].as_array_mut().unwrap().iter_mut().zip(0..) {
            round["samples_per_s"] = (rate * (1.0 + 0.01 * f64::from(number))).into();
        }
        other["machine"]["host"] = host.into();
        fs::write(at(name), other.to_string()).unwrap();
    };
    with_rate("steady.json", 10_000.0, result["machine"]["host"].as_str().unwrap());
    with_rate("slower.json", 1_000.0, "elsewhere");
    let slower = format!("compare {} {}", at("steady.json"), at("slower.json"));
    let (text, told) = expect(&mut uringload(&format!("{slower} --fail-below 5%")), 1);
    assert!(text.contains("more than the 5.0 % that are allowed") && told.contains("machine host"), "{text}{told}");
    for (name, wrong) in [("v1", "{\"version\": 1, \"uringload\": \"0.0.9\"}"), ("none", "{}"), ("text", "no JSON")] {
        fs::write(at(name), wrong).unwrap();
        let (_, told) = expect(&mut uringload(&format!("compare {} {}", at("a.json"), at(name))), 2);
        assert!(told.contains(name) && told.contains("help:"), "{told}");
    }
}

#[test]
fn a_workload_brings_its_batches_and_steps() {
    let (folder, path) = files(50);
    let (table, _) = expect(&mut uringload(&format!("bench {path} --mlperf retinanet:b200 --epochs 2 --no-raw")), 0);
    assert!(table.contains("batches of 24") && table.contains("the bar of 85 %"), "{table}");
    // Four that take batches in turn, and compute at once.
    let four = format!("bench {path} --mlperf retinanet:b200 --accelerators 4 --epochs 40 --no-raw --json -");
    let told = json(&expect(&mut uringload(&four), 0).0);
    assert_eq!((&told["mlperf"]["accelerators"], &told["mlperf"]["bar_percent"]), (&4.into(), &85.0.into()));
    let wall = told["wall_s"].as_f64().unwrap();
    // 80 batches with steps of 47.55 ms on four at once.
    assert!((0.9..3.4).contains(&wall), "{wall} s");
    let (_, told) = expect(&mut uringload(&format!("bench {path} --mlperf retinanet:b300")), 2);
    assert!(told.contains("unet3d:h100"), "{told}");
    drop(folder);
}

/// A program that is killed leaves a trace that opens: whole lines, and one that ends in the middle at most.
#[test]
fn the_trace_of_a_killed_run_opens() {
    let folder = folder(&[("a.bin", 1 << 20)]);
    let trace = folder.path().join("run.json");
    let line = format!(
        "bench {}/a.bin --format records --record-bytes 1024 --duration 60s --no-raw --trace {}",
        folder.path().display(),
        trace.display()
    );
    let mut child = uringload(&line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = std::time::Instant::now();
    while fs::metadata(&trace).map_or(0, |trace| trace.len()) < 200_000 {
        assert!(begun.elapsed() < common::HANG && child.try_wait().unwrap().is_none(), "it writes no trace");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let text = fs::read_to_string(&trace).unwrap();
    let end = text.rfind(",\n").unwrap();
    let events = json(&(text[..end].to_owned() + "]"));
    assert!(events.as_array().unwrap().len() > 1000);
}

/// A trace that its disk has no room for: the figures are printed, and the command fails with a word.
#[test]
fn a_trace_that_cannot_be_written_is_told() {
    let folder = folder(&[("a", 50_000), ("b", 50_000)]);
    let bench = format!("bench {} --no-raw --trace /dev/full", folder.path().display());
    let (out, err) = expect(&mut uringload(&bench), 1);
    assert!(out.contains("samples") && err.contains("/dev/full") && err.contains("No space left"), "{out}{err}");
}
