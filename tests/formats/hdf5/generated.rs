//! Files that h5py writes while the test runs, where it is there: other versions of its library, and random datasets.

use super::*;
use crate::common::skip;
use std::process::Command;

/// Seeds of random datasets; forty of them in each of three forms.
const SEEDS: std::ops::Range<u32> = 0..3;

#[test]
fn what_h5py_writes_here() {
    let python = std::env::var_os("PYTHON").unwrap_or("python3".into());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/make_hdf5.py");
    let probe = Command::new(&python).args(["-c", "import h5py, hdf5plugin"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        return skip(format!("what_h5py_writes_here: {python:?} has no h5py and hdf5plugin (set PYTHON)"));
    }
    for seed in SEEDS {
        let folder = tempfile::tempdir().unwrap();
        let output = Command::new(&python).arg(&script).arg(folder.path()).arg(seed.to_string()).output().unwrap();
        assert!(output.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&output.stderr));
        for form in ["earliest", "latest", "newest"] {
            let file = folder.path().join(format!("anything-{form}.h5"));
            // Some have their length in common; each is opened by itself.
            let names = names(&file);
            assert_eq!(names.len(), 40);
            for name in names {
                let what = format!("seed {seed}, {form}: {name}");
                let dataset = open(&file, &[&name]).unwrap_or_else(|error| panic!("{what}: {error}"));
                // As the name says it: a number, the type, and the shape.
                let mut parts = name.split('_').skip(1);
                let dtype = parts.next().unwrap();
                let shape: Vec<u64> = parts.map(|part| part.parse().unwrap()).collect();
                let field = &dataset.schema().fields[0];
                let bytes: u64 = dtype[1..].parse().unwrap();
                assert_eq!((field.dtype.size(), &field.shape), (bytes, &Shape::Fixed(shape[1..].to_vec())), "{what}");
                assert!(field.dtype.name().starts_with(&dtype[..1]) && dataset.len() == shape[0], "{what}");
                assert_elements(&*dataset, &what);
            }
        }
        for name in ["layouts-earliest", "layouts-latest", "indices-newest", "groups-latest", "types-latest"] {
            assert_elements(&*open(folder.path().join(format!("{name}.h5")), &[]).unwrap(), name);
        }
    }
}

/// The names of the datasets, which the script lists beside the file.
fn names(file: &Path) -> Vec<String> {
    let listing = file.with_extension("names");
    fs::read_to_string(listing).expect("the script lists them").lines().map(str::to_owned).collect()
}
