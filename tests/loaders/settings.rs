//! The table of settings, and the faces that repeat its names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use uringload::config::{Kind, Value};
use uringload::dataset::{self, Options};
use uringload::{Builder, ErrorKind, Loader};

fn builder() -> (tempfile::TempDir, Builder) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.bin"), [0; 4096]).unwrap();
    let dataset = dataset::open(&[folder.path()], &Options::new().format("folder")).unwrap();
    (folder, Loader::builder(dataset))
}

#[test]
fn each_setting_takes_values_of_its_kind_and_refuses_others() {
    let (_folder, builder) = builder();
    for setting in Builder::settings() {
        let (good, bad): (Value, Value) = match setting.kind {
            Kind::Flag => ((setting.name != "orient").into(), 1.into()),
            Kind::Whole => (2.into(), (-1).into()),
            Kind::Count => (2.into(), 0.into()),
            Kind::Bytes => ("4GiB".into(), "4 fathoms".into()),
            Kind::Seconds => (0.5.into(), (-1).into()),
            Kind::Word if setting.name == "cache" => ("memory".into(), "disk".into()),
            Kind::Word if setting.name == "on_error" => ("skip".into(), "hope".into()),
            Kind::Word => ("auto".into(), "hope".into()),
            Kind::Path => (Path::new(OsStr::from_bytes(b"/tmp/\xff")).into(), 1.into()),
            Kind::Failures => (0.01.into(), "many".into()),
            other => panic!("{other:?} has no values here"),
        };
        let before = format!("{builder:?}");
        let after = format!("{:?}", builder.clone().set(setting.name, good.clone()).unwrap());
        // What is the default already changes nothing.
        assert!(before != after || good == "auto".into(), "{}", setting.name);
        let error = builder.clone().set(setting.name, bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(setting.name) && error.remedy().is_some(), "{error}");
        let again = builder.clone().set(setting.name, setting.default()).unwrap();
        assert_eq!(format!("{again:?}"), before, "{}", setting.name);
        assert!(!setting.help.trim().is_empty(), "{}", setting.name);
    }
    let error = builder.set("batchsize", 1).unwrap_err();
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("batch_size")), "{error}");
}

#[test]
fn a_value_by_name_is_the_value_of_the_setter() {
    let (_folder, builder) = builder();
    let by_name = builder.clone().set("batch_size", 7).and_then(|builder| builder.set("read_size", "1MiB"));
    let by_name =
        by_name.and_then(|builder| builder.set("timeout", 1.5)).and_then(|builder| builder.set("io", "direct"));
    let timeout = std::time::Duration::from_millis(1500);
    let same = builder.batch_size(7).read_size(1 << 20).timeout(timeout).io("direct".parse().unwrap());
    assert_eq!(format!("{:?}", by_name.unwrap()), format!("{same:?}"));
}

/// Every setter has the name that the table has. A rank comes with the number of ranks.
#[test]
fn setters_are_called_as_the_table_calls_them() {
    let surface = include_str!("../api/uringload.txt");
    for setting in Builder::settings().iter().filter(|setting| setting.name != "world_size") {
        assert!(surface.contains(&format!("fn uringload::Builder::{}(", setting.name)), "{}", setting.name);
    }
}

/// Python's keywords, but for epochs: each pass is one.
#[test]
fn keywords_of_python_are_called_as_the_table_calls_them() {
    const OTHERWISE: [&str; 1] = ["epochs"];
    let source = include_str!("../../python/lib/uringload/_loader.py");
    for setting in Builder::settings().iter().filter(|setting| !OTHERWISE.contains(&setting.name)) {
        assert!(source.contains(&format!("\n        {}: ", setting.name)), "{}", setting.name);
    }
}
