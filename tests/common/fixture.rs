//! Folders of files: of any names and sizes, and of those that tend to break programs.

use super::content::write_file;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use uringload::dataset::{self, Dataset, Options};

const KIB: u64 = 1024;

/// A dataset of files of these names and sizes, and the folder that has them until it is dropped. It is where the build
/// is: more likely on a disk than the folder for what is temporary.
pub fn made<N: AsRef<Path>>(
    files: impl IntoIterator<Item = (N, u64)>,
    options: &Options,
) -> (TempDir, Arc<dyn Dataset>) {
    let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    for (name, size) in files {
        let name = name.as_ref();
        write(&root.path().join(name.parent().expect("a name")), name.file_name().expect("a name"), size);
    }
    let dataset = dataset::open(&[root.path()], options).expect("a dataset");
    (root, dataset)
}

/// Files that are a sample each.
pub fn files<N: AsRef<Path>>(files: impl IntoIterator<Item = (N, u64)>) -> (TempDir, Arc<dyn Dataset>) {
    made(files, &Options::new().format("folder"))
}

/// Sizes around the units that reads are cut and aligned to: bytes, sectors, pages, reads of 512 KiB.
pub const SIZES: [u64; 26] = [
    0,
    1,
    2,
    511,
    512,
    513,
    1023,
    1024,
    4095,
    4096,
    4097,
    8191,
    8192,
    12 * KIB + 1,
    110_000,
    150_528,
    256 * KIB,
    512 * KIB - 1,
    512 * KIB,
    512 * KIB + 1,
    512 * KIB + 4096,
    1024 * KIB - 1,
    1024 * KIB,
    1024 * KIB + 1,
    1536 * KIB + 513,
    3 * 1024 * KIB + 777,
];

/// Names that break a careless program.
pub fn odd_names() -> Vec<OsString> {
    vec![
        OsString::from_vec(b"not \xff\xfe utf-8".to_vec()),
        "line\nbreak".into(),
        "quote'\"back\\slash".into(),
        "-dash".into(),
        "*".into(),
        "a{1,2}[b]?".into(),
        "n".repeat(255).into(),
        "\u{1f980} crab".into(),
        " blank ".into(),
    ]
}

/// Writes files of all these sizes and names in three class folders, and some hundred small files: about 15 MB.
pub fn write_folder(root: &Path) {
    for (number, size) in SIZES.iter().enumerate() {
        write(&root.join(format!("class_{}", number % 3)), OsStr::new(&format!("size_{size}")), *size);
    }
    for (number, name) in odd_names().iter().enumerate() {
        write(&root.join("odd"), name, 1000 + 4099 * number as u64);
    }
    for number in 0..150_u64 {
        write(&root.join("small/deep/er"), OsStr::new(&format!("{number:03}")), number * number % 20_011);
    }
    // A class folder with an odd name of its own.
    write(&root.join(OsStr::from_bytes(b"cl\xffass\n")), OsStr::new("one"), 5000);
}

/// Writes files of records after a header, one file without a record. 997 bytes divide no sector.
pub fn write_records(root: &Path) {
    for (number, records) in [100_u64, 0, 1, 2000].iter().enumerate() {
        write(root, OsStr::new(&format!("part_{number}")), HEADER_BYTES + records * RECORD_BYTES);
    }
}

/// Size of the records of [`write_records`].
pub const RECORD_BYTES: u64 = 997;
/// Size of the header of each file of [`write_records`].
pub const HEADER_BYTES: u64 = 24;

fn write(folder: &Path, name: &OsStr, size: u64) {
    fs::create_dir_all(folder).unwrap_or_else(|error| panic!("cannot create {folder:?}: {error}"));
    let path = folder.join(name);
    write_file(&path, size).unwrap_or_else(|error| panic!("cannot write {path:?}: {error}"));
}
