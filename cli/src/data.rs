//! Turns arguments into a dataset: what the user names, or a small real one generated on the spot.

use crate::arguments::{Chosen, Source};
use crate::failure::{Failure, told};
use crate::interrupt::{Interrupt, eprintln_quietly};
use crate::progress::IndexBar;
use crate::scratch::Scratch;
use crate::units;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload::config::Config;
use uringload::dataset::{self, Concat, Dataset, Options, View};
use uringload::quarantine;
use uringload::sampler::{Mixed, Sampler, for_dataset};
use uringload::{Error, ErrorKind};
use uringload_sys::file::evict;

/// A dataset, and its components if it is a mixture.
pub struct Data {
    /// The dataset.
    pub dataset: Arc<dyn Dataset>,
    mixture: Option<Arc<Concat>>,
}

impl Data {
    /// Opens what a command reads as training does.
    ///
    /// # Errors
    /// As [`choose`](Data::choose).
    pub fn of(source: &Source) -> Result<Data, Failure> {
        Data::choose(&source.paths, &source.format.under(&source.failing), &source.chosen)
    }

    /// Opens what the user named, without the excluded samples. With weights, each path is a dataset of its own.
    pub fn choose(paths: &[PathBuf], options: &Options, chosen: &Chosen) -> Result<Data, Failure> {
        if chosen.weights.is_empty() {
            let mut dataset = open(paths, options)?;
            if let Some(only) = &chosen.only {
                let ids = quarantine::read_all(&[only], &*dataset)?;
                dataset = Arc::new(View::of(dataset, ids)?);
            }
            let excluded = quarantine::read_all(&chosen.exclude, &*dataset)?;
            if !excluded.is_empty() {
                dataset = Arc::new(View::without(dataset, excluded)?);
            }
            return Ok(Data { dataset, mixture: None });
        }
        if chosen.weights.len() != paths.len() {
            let (weights, paths) = (chosen.weights.len(), paths.len());
            let what = format!("{weights} weights are given for {paths} datasets");
            let error = Error::new(ErrorKind::InvalidArgument, what);
            return Err(error.with_remedy("give one number for each DIR").into());
        }
        let parts = paths.iter().map(|path| open(std::slice::from_ref(path), options));
        let concat = Arc::new(Concat::new(parts.collect::<Result<_, _>>()?)?);
        Ok(Data { dataset: Arc::clone(&concat) as Arc<dyn Dataset>, mixture: Some(concat) })
    }

    /// The requested order.
    pub fn sampler(&self, config: &Config, chosen: &Chosen) -> Result<Arc<dyn Sampler>, Failure> {
        let Config { shuffle, seed, .. } = *config;
        match &self.mixture {
            Some(concat) => Ok(Arc::new(Mixed::of(concat, shuffle, &chosen.weights, chosen.stopping, seed)?)),
            None => Ok(for_dataset(&*self.dataset, shuffle, seed)?),
        }
    }
}

/// Opens what the user named. Reports deviations from the request on stderr.
pub fn open(paths: &[PathBuf], options: &Options) -> Result<Arc<dyn Dataset>, Failure> {
    let opened = open_quietly(paths, options)?;
    let index = opened.index();
    index.fallbacks.iter().for_each(|fallback| eprintln_quietly(&format!("uringload: {fallback}")));
    if let Some(written) = index.report.as_ref().map(|report| report.written).filter(|&written| written > 0) {
        let noun = if written == 1 { "index" } else { "indexes" };
        let what = format!("uringload: wrote {} {noun} (FILE.uidx) for later starts", units::count(written));
        eprintln_quietly(&format!("{what}; --no-write-index writes none"));
    }
    for error in &index.damage {
        eprintln_quietly(&format!("uringload: left out from there on: {}", told(error)));
    }
    Ok(opened)
}

/// Opens what the user named and says nothing but how far it has come.
pub fn open_quietly(paths: &[PathBuf], options: &Options) -> Result<Arc<dyn Dataset>, Error> {
    let bar = IndexBar::new();
    dataset::open(paths, &options.clone().progress(bar.progress()))
}

/// A dataset in a temporary folder, deleted on drop, and where a signal ends the process.
pub struct Made {
    /// `None` only while this is being dropped.
    folder: Option<Scratch>,
    path: PathBuf,
    interrupt: Interrupt,
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
    pub fn new(interrupt: &Interrupt) -> Result<Option<Made>, Failure> {
        let place = std::env::temp_dir();
        let folder = Scratch::new_in(&place, "uringload-bench-")
            .map_err(|source| failed("cannot make a temporary folder", source, &place))?;
        interrupt.set_folder(folder.path().to_path_buf());
        let path = folder.path().to_path_buf();
        let made = Made { folder: Some(folder), path, interrupt: interrupt.clone() };
        let note = format!(
            "no DIR given: making {} files of around 110 KB in {} (deleted at the end)",
            units::count(MADE_FILES.into()),
            made.path().display()
        );
        eprintln_quietly(&note);
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
            if self.interrupt.is_set() {
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
        self.interrupt.set_cleaner(None);
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

fn failed(what: &'static str, source: io::Error, path: &Path) -> Failure {
    Failure::Loader(Error::io(what, source).with_path(path).with_remedy("name a folder of samples, or set TMPDIR"))
}
