//! `bench --device` and `doctor` on machines without a GPU, and on a mock of the driver where that is built
//! (`cargo test --workspace` builds it).

use super::bench::documented;
use super::*;
use std::path::PathBuf;

const ABSENT: &str = "--cuda-library /nonexistent/libcuda.so.1";

/// Files, and their folder as an argument.
fn data() -> (tempfile::TempDir, String) {
    let names: Vec<String> = (0..20).map(|n| format!("{n:02}")).collect();
    let files: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 30_000)).collect();
    let folder = folder(&files);
    let dir = folder.path().display().to_string();
    (folder, dir)
}

fn result(arguments: &str) -> serde_json::Value {
    json(&expect(&mut uringload(&format!("{arguments} --json -")), 0).0)
}

#[test]
fn a_gpu_that_is_asked_for_is_had_or_the_bench_fails() {
    let (_folder, dir) = data();
    let (out, err) = expect(&mut uringload(&format!("bench {dir} --device cuda:0 {ABSENT}")), 1);
    assert!(out.is_empty() && err.lines().count() == 2, "{err}");
    for words in ["cuda:0 is not available", "no CUDA driver", "nonexistent", "install the NVIDIA driver", "auto"] {
        assert!(err.contains(words), "{words} in {err}");
    }
    let (_, err) = expect(&mut uringload(&format!("bench {dir} --device cuda:0 --cuda-library libc.so.6")), 1);
    assert!(err.contains("has no cuInit") && err.contains("12.0"), "{err}");
}

#[test]
fn without_a_gpu_auto_goes_on_and_says_so() {
    let (_folder, dir) = data();
    let plain = result(&format!("bench {dir} --batch-size 4"));
    let auto = result(&format!("bench {dir} --batch-size 4 --device auto {ABSENT}"));
    assert!(auto["device"].is_null() && auto["route"]["devices"].as_array().unwrap().is_empty());
    assert_eq!((&auto["digest"], &auto["bytes"]), (&plain["digest"], &plain["bytes"]));
    assert_eq!((&auto["config"]["devices"], &plain["config"]["devices"]), (&["auto"].into(), &Vec::<u8>::new().into()));
    let steps = auto["route"]["fallbacks"].as_array().unwrap();
    let step = steps.iter().find(|step| step["wanted"] == "a GPU").expect("a fallback");
    assert_eq!(step["got"], "batches on the host");
    assert!(step["reason"].as_str().unwrap().contains("no CUDA driver"), "{step}");
    assert!(step["remedy"].as_str().unwrap().contains("--gpus all"), "{step}");
    let (table, _) = expect(&mut uringload(&format!("bench {dir} --device auto {ABSENT}")), 0);
    assert!(table.contains("batches on the host instead of a GPU: no CUDA driver"), "{table}");
}

#[test]
fn the_host_is_a_device_for_which_no_driver_is_looked_for() {
    let (_folder, dir) = data();
    let host = result(&format!("bench {dir} --batch-size 4 --device host {ABSENT} --emulate-step 2"));
    assert_eq!((&host["batches"], &host["samples"]), (&5.into(), &20.into()));
    let steps = host["route"]["fallbacks"].as_array().unwrap();
    assert!(host["device"].is_null() && steps.iter().all(|step| step["wanted"] != "a GPU"), "{host:#}");
    assert!(host["au_percent"].as_f64().is_some_and(|au| au > 1.0 && au <= 100.0), "{host:#}");
    let roles: Vec<&str> = host["threads"].as_array().unwrap().iter().filter_map(|one| one["role"].as_str()).collect();
    assert!(roles.contains(&"device"), "{roles:?}");
}

#[test]
fn devices_that_cannot_be_end_with_2() {
    let (_folder, dir) = data();
    for arguments in [
        "--device gpu",
        "--device cuda:",
        "--device cuda:x",
        "--device",
        "--device host,cuda:0",
        "--device host,host",
        "--device-memory 1GiB",
        "--device host --device-memory lots",
        "--cuda-library libcuda.so.1",
        "--device host --compare mmap",
    ] {
        let (out, err) = expect(&mut uringload(&format!("bench {dir} {arguments}")), 2);
        assert!(out.is_empty() && !err.is_empty(), "{arguments}: {out}");
    }
    let (_, err) = expect(&mut uringload(&format!("bench {dir} --device gpu")), 2);
    assert!(err.contains("auto, host, cuda or cuda:N"), "{err}");
}

#[test]
fn doctor_needs_no_driver() {
    let (_folder, dir) = data();
    let told = |library: &str| {
        let output = run(&mut uringload(&format!("doctor {dir} --json {library}")));
        let told = json(&stdout(&output));
        assert_eq!(output.status.code(), Some(i32::from(told["degraded"].as_bool().unwrap())), "{told:#}");
        finding(&told, "GPU")
    };
    let absent = told(ABSENT);
    assert!(absent["found"].as_str().unwrap().contains("no CUDA driver"), "{absent}");
    assert!(absent["remedy"].as_str().unwrap().contains("install the NVIDIA driver"), "{absent}");
    let other = told("--cuda-library libc.so.6");
    assert!(other["found"].as_str().unwrap().contains("cuInit"), "{other}");
    if Path::new("/proc/driver/nvidia/gpus").exists() {
        return eprintln!("skipped: doctor without a GPU: there is one");
    }
    assert_eq!((&absent["state"], &other["state"]), (&"info".into(), &"info".into()));
}

fn finding(told: &serde_json::Value, what: &str) -> serde_json::Value {
    let findings = told["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["what"] == what).unwrap_or_else(|| panic!("{what} in {told:#}")).clone()
}

/// A driver that is none, as `libcuda.so.1` in a folder of its own.
struct Mock(tempfile::TempDir);

impl Mock {
    /// `None`, said aloud, where it is not built.
    fn new(test: &str) -> Option<Mock> {
        let own = std::env::current_exe().unwrap();
        let built: Vec<PathBuf> =
            own.ancestors().skip(1).take(2).map(|folder| folder.join("liburingload_mock_cuda.so")).collect();
        let Some(library) = built.iter().find(|path| path.exists()) else {
            eprintln!("skipped: {test}: the mock of the CUDA driver is not built (cargo test --workspace builds it)");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        fs::copy(library, folder.path().join("libcuda.so.1")).unwrap();
        Some(Mock(folder))
    }

    /// The binary, which finds this driver where the system would, with these settings.
    fn uringload(&self, arguments: &str, settings: &str) -> Command {
        let mut command = uringload(arguments);
        let report = self.0.path().join("violations").display().to_string();
        command.env("LD_LIBRARY_PATH", self.0.path());
        command.env("URINGLOAD_MOCK_CUDA", format!("{settings},report={report}"));
        command
    }

    fn result(&self, arguments: &str, settings: &str) -> serde_json::Value {
        let told = json(&expect(&mut self.uringload(&format!("{arguments} --json -"), settings), 0).0);
        let violations = fs::read_to_string(self.0.path().join("violations")).unwrap_or_default();
        assert_eq!(violations, "", "memory was used too early");
        told
    }
}

#[test]
fn a_bench_on_a_gpu_is_held_against_disk_and_bus() {
    let Some(mock) = Mock::new("bench on a GPU") else { return };
    let (_folder, dir) = data();
    let plain = result(&format!("bench {dir} --batch-size 4 --epochs 2 --shuffle"));
    for (device, gpus) in [("auto", 1), ("cuda:0", 1), ("cuda:1,cuda:0", 2)] {
        let arguments = format!("bench {dir} --batch-size 4 --epochs 2 --shuffle --device {device}");
        let told = mock.result(&arguments, "devices=2,mib_us=5");
        documented(&told, 90);
        assert_eq!((&told["digest"], &told["bytes"]), (&plain["digest"], &plain["bytes"]), "{device}");
        let routes = told["route"]["devices"].as_array().unwrap();
        assert_eq!(routes.len(), gpus);
        assert!(routes.iter().all(|one| one["pinned"] == true && one["flags"] == true), "{routes:?}");
        let device = &told["device"];
        for positive in ["h2d_bytes_per_s", "pageable_bytes_per_s", "share_of_h2d", "copy_busy"] {
            assert!(device[positive].as_f64().is_some_and(|figure| figure > 0.0), "{positive} in {device:#}");
        }
        // Where other programs disturbed the raw read, the limit is unknown.
        let share = device["share_of_limit"].as_f64();
        assert!(share.map_or(told["raw_read"]["disturbed"] == true, |share| share > 0.0), "{told:#}");
        assert!(device["bytes_copied"].as_u64() >= told["bytes"].as_u64(), "{device:#}");
        assert!(device["nvml_error"].is_string() && device["steps"].is_null(), "{device:#}");
    }
    let (table, _) = expect(&mut mock.uringload(&format!("bench {dir} --device cuda:0"), ""), 0);
    for row in ["of the bus", "of pageable", "copy busy", "kernel busy", "consumer", "-> cuda:0"] {
        assert!(table.contains(row), "{row} in {table}");
    }
    assert!(table.contains("of the limit") || table.contains("the raw read was disturbed"), "{table}");
    let memory = mock.result(&format!("bench {dir} --device cuda:0 --device-memory 64MiB --no-raw"), "");
    assert_eq!(memory["route"]["devices"][0]["memory_bytes"], 64 << 20);
    assert!(memory["device"]["share_of_limit"].is_null());
}

#[test]
fn steps_are_kernels_and_gaps_say_what_they_waited_for() {
    let Some(mock) = Mock::new("steps on a GPU") else { return };
    let (_folder, dir) = data();
    // Copies that take longer than anything else.
    let arguments = format!("bench {dir} --batch-size 4 --epochs 2 --device cuda:0 --emulate-step 2 --no-raw");
    let told = mock.result(&arguments, "copy_us=60000");
    let steps = &told["device"]["steps"];
    assert_eq!((&steps["count"], &told["batches"]), (&10.into(), &10.into()), "{told:#}");
    let figure = |value: &serde_json::Value| value.as_f64().unwrap_or_else(|| panic!("a figure in {told:#}"));
    let busy = figure(&steps["gpu_busy"]);
    assert!(busy > 0.0 && busy < 0.9 && figure(&steps["mean_ms"]) > 0.0, "{steps:#}");
    let gap = |what: &str| figure(&steps["gap_ms"][what]);
    assert!(gap("copy") > gap("loader") + gap("nothing"), "{steps:#}");
    assert!(gap("longest") >= gap("copy") / 10.0);
    let au = figure(&told["au_percent"]);
    assert!(au > 0.0 && au < 90.0, "{au}");
    let table = expect(&mut mock.uringload(&arguments, ""), 0).0;
    assert!(table.contains("GPU busy") && table.contains("gaps waited") && table.contains("NVML"), "{table}");
}

#[test]
fn doctor_tells_of_each_gpu_and_how_copies_go_there() {
    let Some(mock) = Mock::new("doctor with a GPU") else { return };
    let (_folder, dir) = data();
    let told = |settings: &str| {
        let output = run(&mut mock.uringload(&format!("doctor {dir} --json"), settings));
        json(&stdout(&output))
    };
    let good = told("devices=2");
    assert!(finding(&good, "GPU")["found"].as_str().unwrap().contains("2 devices, a driver for CUDA 12.4"));
    assert!(finding(&good, "cuda:1")["found"].as_str().unwrap().contains("Mock GPU 1, compute 8.0"));
    for what in ["pinned memory", "copies", "kernels"] {
        assert_eq!(finding(&good, what)["state"], "good", "{good:#}");
    }
    let refused = finding(&told("pinnable=1000"), "pinned memory");
    assert!(refused["state"] == "degraded" && refused["remedy"].as_str().unwrap().contains("memlock"), "{refused}");
    for (settings, words) in [("init=34", "stub"), ("driver=11040", "CUDA 11.4"), ("init=999", "does not start")] {
        let gpu = finding(&told(settings), "GPU");
        assert!(gpu["found"].as_str().unwrap().contains(words) && gpu["remedy"].is_string(), "{gpu}");
    }
}
