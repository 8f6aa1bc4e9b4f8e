//! What devices and consumers can do to a loader: calls that fail, devices that fall off, drops at any moment, forks.
//! Each gives an error, never a hang, a wrong byte, or a leak.

use crate::common::case::{Case, is_device, reference};
use crate::common::{Mock, Random, dataset, within};
use std::time::{Duration, Instant};
use uringload::DeviceLoader;
use uringload::config::Config;
use uringload::inspect::DeviceKind;
use uringload::{ErrorKind, Loader};
use uringload_sys::cuda::{Driver, Stream};

const BOUND: Duration = Duration::from_secs(100);
/// Longer than any step of any test.
const STEP: Duration = Duration::from_secs(60);
const BATCHES: usize = 20;

fn config() -> Config {
    Config { batch_size: 5, shuffle: true.into(), seed: 3, memory_limit: Some(2 << 20), ..Config::default() }
}

fn mixed(seed: u64) -> dataset::Made {
    dataset::mixed(BATCHES * 5, false, &mut Random::new(seed))
}

/// Takes and checks every batch until there are no more. A device's error is the last item.
fn drain(case: &Case, loader: &mut DeviceLoader) -> (usize, Option<uringload::Error>) {
    let (mut came, mut last) = (0, None);
    let mut host = case.host();
    for item in loader.by_ref() {
        assert!(last.is_none(), "something comes after {last:?}: {item:?}");
        match item {
            Ok(batch) => {
                let wanted = host.next().expect("a batch").expect("no error");
                assert_eq!(batch.host.ids, wanted.ids);
                let label = batch.column("label").expect("a column");
                let uringload::batch::Data::I64(labels) = &wanted.column("label").expect("a column").data else {
                    panic!("labels are integers")
                };
                match label.memory.to_host() {
                    Ok(bytes) => assert!(
                        bytes.iter().eq(labels.iter().flat_map(|label| label.to_le_bytes()).collect::<Vec<_>>().iter())
                    ),
                    Err(error) => assert!(is_device(&error), "{error}"),
                }
                came += 1;
            }
            Err(error) => {
                assert!(is_device(&error) && error.remedy().is_some(), "{error}");
                last = Some(error);
            }
        }
    }
    assert!(loader.next().is_none());
    (came, last)
}

/// Checks what is alive on a failed device: only memory that a copy may still use because it could not be waited for.
fn assert_only_pinned_memory_is_kept(mock: &Mock) {
    for name in ["streams", "events", "modules", "allocations"] {
        assert_eq!(mock.count(name), 0, "{name}");
    }
    assert_eq!(mock.violations(), Vec::<String>::new());
}

#[test]
fn a_device_that_falls_off_ends_the_loader_with_an_error() {
    within(BOUND, || {
        let made = mixed(1);
        for (after, settings) in [(0, ""), (3, "copy_us=100"), (40, "kernel_us=300"), (150, "copy_us=30,jitter_us=300")]
        {
            let mock = Mock::new(settings);
            let case = Case::new(&made.dataset, config());
            let mut loader = case.build(&mock);
            mock.configure(&format!("lose=0@{after}:46"));
            let start = Instant::now();
            let (came, error) = drain(&case, &mut loader);
            assert!(came < BATCHES, "{came} batches in spite of it");
            let error = error.expect("an error");
            assert!(
                error.to_string().contains("device") && error.remedy().is_some_and(|text| text.contains("nvidia-smi"))
            );
            drop(loader);
            assert!(start.elapsed() < STEP, "{:?}", start.elapsed());
            assert_only_pinned_memory_is_kept(&mock);
        }
    });
}

#[test]
fn a_kernel_that_fails_ends_the_loader_with_an_error() {
    within(BOUND, || {
        let made = mixed(2);
        for number in [1, 2, 5, 17, 60] {
            for devices in [1, 2] {
                let mock = Mock::new("devices=2,copy_us=20");
                let case = Case { devices, ..Case::new(&made.dataset, config()) };
                let mut loader = case.build(&mock);
                mock.configure(&format!("fault={number}:719"));
                let start = Instant::now();
                let (_, error) = drain(&case, &mut loader);
                assert!(error.is_some(), "work {number}");
                drop(loader);
                assert!(start.elapsed() < STEP, "{:?}", start.elapsed());
                assert_only_pinned_memory_is_kept(&mock);
            }
        }
    });
}

#[test]
fn a_context_that_somebody_destroyed_ends_the_loader_with_an_error() {
    within(BOUND, || {
        let made = mixed(3);
        for taken in [0, 1, 5] {
            let mock = Mock::new("copy_us=200");
            let case = Case::new(&made.dataset, config());
            let mut loader = case.build(&mock);
            let mut held = Vec::new();
            for _ in 0..taken {
                held.push(loader.next().expect("a batch").expect("no error"));
            }
            mock.configure("destroy=0");
            for batch in &held {
                let error = batch.columns[0].memory.to_host().unwrap_err();
                assert!(is_device(&error), "{error}");
            }
            drop(held);
            let last = loader.by_ref().last().expect("an item").unwrap_err();
            assert!(is_device(&last) && last.remedy().is_some_and(|text| text.contains("reset")), "{last}");
            drop(loader);
            mock.assert_clean();
        }
    });
}

#[test]
fn a_call_that_fails_while_the_loader_is_built_leaves_nothing() {
    within(BOUND, || {
        let made = mixed(4);
        let case = Case::new(&made.dataset, config());
        let mock = Mock::new("");
        drop(case.build(&mock));
        mock.reset();
        let (mut built, mut refused) = (0, 0);
        let functions = [
            "cuInit",
            "cuDriverGetVersion",
            "cuDeviceGetCount",
            "cuDeviceGet",
            "cuDeviceGetName",
            "cuDeviceTotalMem_v2",
            "cuDeviceGetPCIBusId",
            "cuDeviceGetAttribute",
            "cuDevicePrimaryCtxRetain",
            "cuCtxPushCurrent_v2",
            "cuMemAlloc_v2",
            "cuMemHostRegister_v2",
            "cuMemHostGetDevicePointer_v2",
            "cuStreamCreateWithPriority",
            "cuCtxGetStreamPriorityRange",
            "cuModuleLoadData",
            "cuModuleGetFunction",
            "cuEventCreate",
        ];
        for function in functions {
            for number in 1..=4 {
                mock.configure(&format!("fail={function}@{number}:2"));
                match case.builder(&mock).build() {
                    Ok(loader) => {
                        built += 1;
                        drop(loader);
                    }
                    Err(error) => {
                        refused += 1;
                        let kinds = [ErrorKind::Device, ErrorKind::Unavailable, ErrorKind::MemoryLimit];
                        assert!(kinds.contains(&error.kind()) && error.remedy().is_some(), "{function}: {error}");
                    }
                }
                // If the context cannot be made current, nothing in it can be released.
                if function != "cuCtxPushCurrent_v2" {
                    mock.assert_clean();
                }
                mock.reset();
            }
        }
        assert!(built > 5 && refused > 10, "{built} built, {refused} refused");
    });
}

#[test]
fn a_call_that_fails_later_is_an_error_in_its_place() {
    within(BOUND, || {
        let made = mixed(5);
        let case = Case::new(&made.dataset, config());
        let functions = [
            "cuMemcpyHtoDAsync_v2",
            "cuLaunchKernel",
            "cuEventRecord",
            "cuEventCreate",
            "cuEventQuery",
            "cuStreamWaitEvent",
            "cuStreamWriteValue32_v2",
            "cuEventElapsedTime",
            "cuMemcpyDtoHAsync_v2",
        ];
        let mut failed = 0;
        for function in functions {
            for number in [1, 2, 3, 10, 31] {
                let mock = Mock::new("copy_us=30");
                let mut loader = case.build(&mock);
                mock.configure(&format!("fail={function}@{number}:999"));
                let (_, error) = drain(&case, &mut loader);
                failed += usize::from(error.is_some());
                drop(loader);
                mock.assert_clean();
            }
        }
        assert!(failed > 20, "{failed} failed");
    });
}

/// The consumer decides which is dropped first, and when.
#[test]
fn drops_at_any_moment_give_everything_back() {
    within(BOUND, || {
        let made = mixed(6);
        let mock = Mock::new("devices=2");
        let mut random = Random::new(60);
        for round in 0..40 {
            mock.configure(&format!("copy_us={},kernel_us={},seed={round}", random.below(600), random.below(300)));
            let devices = 1 + random.below(2) as u32;
            let case = Case { devices, ..Case::new(&made.dataset, config()) };
            let mut loader = case.build(&mock);
            std::thread::sleep(Duration::from_micros(random.below(3000) as u64));
            let mut held = Vec::new();
            let mut streams = Vec::new();
            for _ in 0..random.below(8) {
                let batch = loader.next().expect("a batch").expect("no error");
                if random.chance(2) {
                    let context = batch.context().expect("on a device").clone();
                    let stream = Stream::new(&context).expect("a stream");
                    batch.wait_on(reference(&stream)).expect("no error");
                    for column in &batch.columns {
                        let memory = &column.memory;
                        mock.consume_bytes(
                            &context,
                            reference(&stream),
                            memory.address(),
                            memory.len(),
                            Duration::from_millis(1),
                        );
                    }
                    streams.push(stream);
                }
                held.push(batch);
                if random.chance(3) {
                    held.remove(random.below(held.len()));
                }
            }
            let start = Instant::now();
            let mut loader = Some(loader);
            while loader.is_some() || !held.is_empty() {
                if held.is_empty() || random.chance(3) {
                    loader = None;
                } else {
                    held.remove(random.below(held.len()));
                }
            }
            assert!(start.elapsed() < STEP, "round {round}: {:?}", start.elapsed());
            drop(streams);
            mock.assert_clean();
        }
    });
}

#[test]
fn a_forked_child_is_refused_and_drops_its_copies_at_once() {
    let made = mixed(7);
    let mock = Mock::new("copy_us=300");
    let case = Case::new(&made.dataset, config());
    let mut loader = case.build(&mock);
    let batch = loader.next().expect("a batch").expect("no error");
    let start = Instant::now();
    // SAFETY: the child asks, drops its copies and calls `_exit`; glibc keeps its allocator usable after a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = matches!(loader.next(), Some(Err(error)) if error.kind() == ErrorKind::InvalidArgument);
        let ends = loader.next().is_none() && loader.is_empty();
        let unreadable = batch.columns[0].memory.to_host().is_err();
        drop(batch);
        drop(loader);
        // SAFETY: ends the child at once, without the parent's destructors.
        unsafe { libc::_exit(if refused && ends && unreadable { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the place fits an int, and the child is this process's own.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 7));
    assert!(start.elapsed() < STEP, "{:?}", start.elapsed());
    drop(batch);
    let (came, error) = (loader.by_ref().filter(Result::is_ok).count(), loader.next());
    assert!(came == BATCHES - 1 && error.is_none());
    drop(loader);
    mock.assert_clean();
}

/// A program finds the driver through the system's loader, with settings from the environment.
#[test]
fn a_program_finds_the_driver_by_its_name() {
    const CHILD: &str = "URINGLOAD_TEST_DRIVER";
    let (_crate, module) = module_path!().split_once("::").expect("a module");
    let name = format!("{module}::a_program_finds_the_driver_by_its_name");
    if std::env::var_os(CHILD).is_some() {
        let driver = Driver::open(None).expect("a driver");
        assert_eq!((driver.devices(), driver.version()), (5, 12080));
        let made = mixed(8);
        let builder = Loader::builder(made.dataset.clone()).config(config()).device(uringload::config::Device::auto());
        let loader = builder.build().expect("a loader");
        assert_eq!(loader.route().devices.len(), 1);
        assert_eq!(loader.filter(Result::is_ok).count(), BATCHES);
        return;
    }
    let mock = Mock::new("");
    let program = std::env::current_exe().expect("a path");
    let run = |folder: Option<&std::path::Path>| {
        let mut command = std::process::Command::new(&program);
        command.args(["--exact", &name, "--nocapture"]).env(CHILD, "1");
        command.env("URINGLOAD_MOCK_CUDA", "devices=5,driver=12080,copy_us=10");
        folder.map(|folder| command.env("LD_LIBRARY_PATH", folder));
        command.output().expect("it runs")
    };
    let output = run(Some(mock.folder()));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !said.contains("violation"), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{name} did not run in the child");
}

#[test]
fn without_a_driver_batches_stay_on_the_host_and_the_route_says_so() {
    within(BOUND, || {
        let made = mixed(9);
        let nowhere = std::path::Path::new("/nonexistent/libcuda.so.1");
        let device = |device: uringload::config::Device| device.library(nowhere);
        let builder = || Loader::builder(made.dataset.clone()).config(config());
        let loader = builder().device(device(uringload::config::Device::auto())).build().expect("a loader");
        let route = loader.route();
        let told = route.fallbacks.iter().any(|step| step.cause == uringload::config::Cause::Device);
        assert!(told && route.devices.is_empty(), "{route:?}");
        let mut came = 0;
        for batch in loader {
            let batch = batch.expect("no error");
            assert!(batch.device().is_none() && batch.columns.iter().all(|column| column.memory.as_host().is_some()));
            came += 1;
        }
        assert_eq!(came, BATCHES);
        let asked = device(uringload::config::Device::cuda(0));
        assert_eq!(asked.kind(), DeviceKind::Cuda(0));
        let error = builder().device(asked).build().map(drop).unwrap_err();
        assert!(error.kind() == ErrorKind::Unavailable && error.remedy().is_some(), "{error}");
    });
}

#[test]
fn a_stub_or_an_old_driver_is_a_step_down_with_a_remedy() {
    within(BOUND, || {
        let made = mixed(10);
        for (settings, word) in
            [("init=34", "stub"), ("driver=11040", "11.4"), ("devices=0", "no device"), ("init=803", "803")]
        {
            let mock = Mock::new(settings);
            let auto = uringload::config::Device::auto().library(mock.path());
            let loader = Loader::builder(made.dataset.clone()).config(config()).device(auto).build().expect("a loader");
            let steps = loader.route().fallbacks;
            let step = steps.iter().find(|step| step.cause == uringload::config::Cause::Device).expect("a step");
            assert!(step.to_string().contains(word), "{step}");
            assert_eq!(loader.filter(Result::is_ok).count(), BATCHES);
            let error = Case::new(&made.dataset, config()).builder(&mock).build().map(drop).unwrap_err();
            assert!(error.kind() == ErrorKind::Unavailable && error.remedy().is_some(), "{error}");
        }
    });
}

/// What a user can do something about has a name and says what, while the loader is built and while it works.
#[test]
fn errors_have_names_and_remedies() {
    within(BOUND, || {
        let made = mixed(11);
        let case = Case::new(&made.dataset, config());
        let mock = Mock::new("init=802");
        let error = case.builder(&mock).build().map(drop).unwrap_err();
        let remedy = error.remedy().unwrap_or_default();
        assert!(
            error.to_string().contains("SYSTEM_NOT_READY") && remedy.contains("fabricmanager"),
            "{error}: {remedy}"
        );
        let graph = "a CUDA graph was being captured";
        let captures = (900..=908).map(|code| (code, "CAPTURE", graph));
        let others = [(2, "OUT_OF_MEMORY", "memory"), (709, "DESTROYED", "reset"), (700, "ILLEGAL", "nvidia-smi")];
        for (code, name, word) in captures.chain(others) {
            let mock = Mock::new("");
            let mut loader = case.build(&mock);
            mock.configure(&format!("fail=cuMemcpyHtoDAsync_v2@1:{code}"));
            let error = drain(&case, &mut loader).1.expect("an error");
            let (text, remedy) = (error.to_string(), error.remedy().unwrap_or_default());
            assert!(text.contains(name) && text.contains(&code.to_string()), "{code}: {text}");
            assert!(remedy.contains(word), "{code}: {remedy}");
        }
    });
}
