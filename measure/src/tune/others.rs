//! What would change the order of the samples, or how they are stored: measured and told, never chosen for the user.

use super::trial::{Bed, Seen};
use super::turns;
use crate::scratch::Scratch;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload::Loader;
use uringload::config::Config;
use uringload::config::{IoChoice, Shuffle};
use uringload::dataset::{self, Dataset, FileId, Options, View};
use uringload::inspect::SHARD_SAMPLES;
use uringload::pack::{PackLayout, PackOptions};
use uringload::stats::Bottleneck;

/// What was measured beside.
pub struct Other {
    /// What to do.
    pub what: String,
    /// Samples a second.
    pub rate: f64,
    /// How many times as fast that is.
    pub gain: f64,
}

/// A sample of the dataset that is packed: bytes and samples at most, and the time to write it.
const SAMPLE_BYTES: u64 = 64 << 20;
const SAMPLES: u64 = 20_000;
const WRITING: Duration = Duration::from_secs(4);

/// Larger samples are read as fast as they lie.
const LARGE: u64 = 1 << 20;

/// Pairs of runs for each.
const PAIRS: usize = 3;

/// Other orders, and packed shards, by turns with the best way to read.
pub fn beside(bed: &Bed<'_>, best: &Config, now: &Seen, bottleneck: Bottleneck) -> Vec<Other> {
    let mut others = orders(bed, best, bottleneck);
    others.extend(packed(bed, best, now));
    others
}

/// Orders in which neighbours can be read together, where the order mixes all samples.
fn orders(bed: &Bed<'_>, best: &Config, bottleneck: Bottleneck) -> Vec<Other> {
    let mixes_all = match best.shuffle {
        Shuffle::Full => true,
        Shuffle::Auto => {
            let sampler = uringload::sampler::for_dataset(&*bed.subject().dataset, Shuffle::Auto, best.seed);
            sampler.is_ok_and(|sampler| sampler.id().mixes_all())
        }
        _ => false,
    };
    let helps = bottleneck.is_storage() || matches!(bottleneck, Bottleneck::Loader | Bottleneck::Processors);
    let decodes = best.shuffle == Shuffle::Full && bed.subject().dataset.units().is_some();
    if !(mixes_all && helps || decodes) {
        return Vec::new();
    }
    let window = SHARD_SAMPLES.min(bed.subject().dataset.len().div_ceil(4)).max(1);
    let mut found = Vec::new();
    for (name, shuffle) in [
        (format!("--shuffle=window:{window}"), Shuffle::Window(window)),
        ("--shuffle=shards:4".to_owned(), Shuffle::Shards { mixed: 4 }),
    ] {
        if !bed.has_time(4) {
            break;
        }
        let other = Config { shuffle, ..best.clone() };
        // An order that this dataset cannot have is left out.
        let pairs = turns::pairs(bed, || bed.run(best), || bed.run(&other), |gains| gains.len() >= PAIRS);
        found.extend(pairs.ok().and_then(|pairs| Other::of(name, &pairs)));
    }
    found
}

impl Other {
    fn of(what: String, pairs: &[[f64; 2]]) -> Option<Other> {
        let rates: Vec<f64> = pairs.iter().map(|pair| pair[1]).collect();
        Some(Other { what, rate: turns::median(&rates)?, gain: turns::median(&turns::gains(pairs))? })
    }
}

/// Packed shards: a sample of the dataset as it is, and packed, on the same device. Says on stderr why there are none.
fn packed(bed: &Bed<'_>, best: &Config, now: &Seen) -> Option<Other> {
    let dataset = &bed.subject().dataset;
    let mean = dataset.bytes() / dataset.len().max(1);
    let is_packed = ["tar", "mds"].contains(&dataset.format()) && dataset.units().is_none();
    if is_packed || mean > LARGE || bed.subject().is_prepared || !bed.has_time(8) {
        return None;
    }
    match sample(bed, best, now, mean) {
        Ok(other) => Some(other),
        Err(why) => {
            bed.caller.say(&format!("pack was not tried: {why}"));
            None
        }
    }
}

fn sample(bed: &Bed<'_>, best: &Config, seen: &Seen, mean: u64) -> Result<Other, String> {
    let dataset = &bed.subject().dataset;
    let count = (SAMPLE_BYTES / mean.max(1)).clamp(1, SAMPLES).min(dataset.len());
    let scratch = scratch(bed, &**dataset)?;
    // A folder of the pack's own, because the lock of the one around it is held.
    let folder = scratch.path().join("shards");
    bed.caller.set_folder(scratch.path().to_path_buf());
    let told = |error: uringload::Error| error.headline().to_string();
    let result = (|| {
        let some: Arc<dyn Dataset> = Arc::new(View::range(Arc::clone(dataset), 0..count).map_err(told)?);
        let pack = Loader::builder(Arc::clone(&some)).pack(&folder, PackOptions::default()).map_err(told)?;
        let end = (Instant::now() + WRITING).min(bed.deadline);
        let report = pack.run(&|_| {
            let is_over = bed.caller.is_set() || Instant::now() > end;
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        if report.map_err(told)?.is_interrupted {
            return Err(format!("a sample of it could not be written within {WRITING:?}"));
        }
        let format = if pack.layout() == PackLayout::Mds { "mds" } else { "tar" };
        let shards = dataset::open(&[&folder], &Options::new().format(format)).map_err(told)?;
        // What was just written lies in the page cache, where the rest of it would not be.
        let io = if seen.route.direct_io { IoChoice::Direct } else { best.io };
        let run = |dataset: &Arc<dyn Dataset>| {
            let config = Config { io, start: Default::default(), ..best.clone() };
            let sampler = uringload::sampler::for_dataset(&**dataset, config.shuffle, config.seed)?;
            bed.run_of(dataset, sampler, &config, &|builder, _| Ok(builder))
        };
        let pairs = turns::pairs(bed, || run(&some), || run(&shards), |gains| gains.len() >= PAIRS).map_err(told)?;
        let what = format!("uringload pack (a sample of {count} samples)");
        let other = Other::of(what, &pairs).ok_or("there was no time left")?;
        // What a sample gains, of the rate that all of it has.
        Ok(Other { rate: seen.rate * other.gain, ..other })
    })();
    // A signal may end the process meanwhile, and then finds what is left.
    drop(scratch);
    bed.caller.set_cleaner(None);
    result
}

/// A folder on the dataset's device, beside its files and not among them.
fn scratch(bed: &Bed<'_>, dataset: &dyn Dataset) -> Result<Scratch, String> {
    let file = dataset.files().path(FileId(0));
    let device = fs::metadata(&file).map_err(|error| error.to_string())?.dev();
    let beside = bed.tune.paths.iter().filter_map(|path| path.canonicalize().ok()?.parent().map(Path::to_path_buf));
    let places: Vec<PathBuf> = bed.tune.scratch.clone().map_or_else(|| beside.collect(), |folder| vec![folder]);
    for place in places {
        if fs::metadata(&place).is_ok_and(|about| about.dev() == device)
            && let Ok(folder) = Scratch::new_in(&place, ".uringload-tune-")
        {
            return Ok(folder);
        }
    }
    Err("no folder beside the dataset, on its device, can be written to; name one by scratch (--scratch)".to_owned())
}
