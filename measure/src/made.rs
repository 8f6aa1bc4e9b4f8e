//! A small real dataset, made on the spot.

use crate::Caller;
use crate::scratch::Scratch;
use crate::text;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use uringload::{Error, Result};
use uringload_sys::file::evict;

/// A dataset in a temporary folder, deleted on drop, and where a signal ends the process.
pub struct Made {
    /// `None` only while this is being dropped.
    folder: Option<Scratch>,
    path: PathBuf,
    caller: Caller,
}

/// Number of generated files: enough for some hundred milliseconds of a fast disk, few enough to write while the user
/// waits.
const MADE_FILES: u32 = 1024;
const MADE_CLASSES: u32 = 8;
/// The natural logarithms of file sizes are normally distributed with this mean and deviation: photos of around 110 KB.
const MADE_LOG_MEAN: f64 = 11.5;
const MADE_LOG_DEVIATION: f64 = 0.45;
/// Sizes are clamped to this range, so that no draw makes a file of surprising size.
const MADE_BYTES_MIN: f64 = 4e3;
const MADE_BYTES_MAX: f64 = 1e6;

impl Made {
    /// Writes the files and syncs them to disk. `None` if interrupted.
    pub fn new(caller: &Caller) -> Result<Option<Made>> {
        let place = std::env::temp_dir();
        let folder = Scratch::new_in(&place, "uringload-bench-")
            .map_err(|source| failed("cannot make a temporary folder", source, &place))?;
        caller.set_folder(folder.path().to_path_buf());
        let path = folder.path().to_path_buf();
        let made = Made { folder: Some(folder), path, caller: caller.clone() };
        let note = format!(
            "no DIR given: making {} files of around 110 KB in {} (deleted at the end)",
            text::count(MADE_FILES.into()),
            made.path().display()
        );
        caller.say(&note);
        match made.write() {
            Ok(true) => Ok(Some(made)),
            Ok(false) => Ok(None),
            Err(source) => Err(failed("cannot write a dataset", source, made.path())),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write(&self) -> io::Result<bool> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(0);
        let mut bytes = Vec::new();
        let mut files = Vec::with_capacity(MADE_FILES as usize);
        for class in 0..MADE_CLASSES {
            fs::create_dir(self.path().join(format!("class-{class}")))?;
        }
        for index in 0..MADE_FILES {
            if self.caller.is_set() {
                return Ok(false);
            }
            let size = (MADE_LOG_MEAN + MADE_LOG_DEVIATION * normal(&mut random)).exp();
            bytes.resize(size.clamp(MADE_BYTES_MIN, MADE_BYTES_MAX) as usize, 0);
            // Random bytes: compressible ones would flatter a device or filesystem that compresses.
            random.fill_bytes(&mut bytes);
            let path = self.path().join(format!("class-{}/{index:04}.dat", index % MADE_CLASSES));
            let mut file = File::create(path)?;
            file.write_all(&bytes)?;
            // Sixty-four at a time stay open and are synced together, so that one journal commit serves them all.
            files.push(file);
            if files.len() == 64 {
                sync(&mut files)?;
            }
        }
        sync(&mut files)?;
        Ok(true)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // A signal may end the process meanwhile, and then finds what is left.
        drop(self.folder.take());
        self.caller.set_cleaner(None);
    }
}

/// Syncs the files to disk and evicts them from memory, so that the first bench measures the disk.
fn sync(files: &mut Vec<File>) -> io::Result<()> {
    files.drain(..).try_for_each(|file| {
        file.sync_all()?;
        evict(file.as_fd())
    })
}

/// A draw from the standard normal distribution, as a sum of twelve uniform ones: close enough for file sizes.
fn normal(random: &mut impl Rng) -> f64 {
    (0..12).map(|_| f64::from(random.next_u32()) / f64::from(u32::MAX)).sum::<f64>() - 6.0
}

fn failed(what: &'static str, source: io::Error, path: &Path) -> Error {
    Error::io(what, source).with_path(path).with_remedy("name a folder of samples, or set TMPDIR")
}
