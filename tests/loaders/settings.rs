//! The table of settings, and the faces that repeat its names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use uringload::config::{Kind, Setting, Value};
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
            Kind::Room => ("/nvme/cache:1GiB".into(), "1GiB".into()),
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

/// A face: its name, its text, what a setting looks like there, and those that it does otherwise, each with the reason.
type Face = (&'static str, &'static str, fn(&Setting) -> String, &'static [(&'static str, &'static str)]);

/// The command line's own test holds its flags to the table; C's options are made of it.
const FACES: [Face; 3] = [
    (
        "Rust's Builder",
        include_str!("../api/uringload.txt"),
        |setting| format!("fn uringload::Builder::{}(", setting.name),
        &[("world_size", "rank takes both")],
    ),
    (
        "Python's DataLoader",
        include_str!("../../python/lib/uringload/_loader.py"),
        |setting| format!("\n        {}: ", setting.name),
        &[("epochs", "a pass is an epoch")],
    ),
    ("docs/settings.md", include_str!("../../docs/settings.md"), row, &[]),
];

/// A line of the table in the documentation.
fn row(setting: &Setting) -> String {
    let takes = match setting.kind {
        Kind::Flag => "true, false",
        Kind::Whole => "number",
        Kind::Count => "number from 1",
        Kind::Bytes => "bytes",
        Kind::Seconds => "seconds",
        Kind::Word => "word",
        Kind::Path => "path",
        Kind::Room => "folder:bytes",
        Kind::Failures => "number, share",
        other => panic!("{other:?} has no words here"),
    };
    let default = match setting.default() {
        Value::Null => "none".to_owned(),
        Value::Text(word) => word,
        other => other.to_string(),
    };
    format!("| `{}` | {takes} | {default} | {} |\n", setting.name, setting.help.trim())
}

#[test]
fn every_face_has_every_setting() {
    let lacks = FACES.iter().flat_map(|(face, text, shows, otherwise)| {
        let all = Builder::settings().iter();
        let wanted = all.filter(|setting| !otherwise.iter().any(|(name, _)| *name == setting.name));
        let lacking = wanted.map(shows).filter(|shown| !text.contains(shown));
        lacking.map(move |shown| format!("{face} lacks {}", shown.trim()))
    });
    let lacks: Vec<String> = lacks.collect();
    assert!(lacks.is_empty(), "{}", lacks.join("\n"));
}
