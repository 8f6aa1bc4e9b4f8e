//! Chooses which decoded images are kept: it measures the size of some samples, and computes the share that fits. The
//! choice is a function of the dataset, the chain and the bytes.

use super::room::Room;
use super::stretches::Notes;
use crate::config::{Batching, Config, ImageCache};
use crate::dataset::{Dataset, SampleId, Value};
use crate::guard;
use crate::patience::Patience;
use crate::prepared::{Origin, Prepared, Tally, bytes_of, bytes_on_disk};
use crate::sampler::{Order, hash};
use crate::samples::Samples;
use crate::segments::Segments;
use crate::state::content_hashes;
use crate::transform::Map;
use crate::{Error, ErrorKind, Result};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload_images::{Decoding, JpegDecoder, Op, dimensions};

/// Samples to measure: their mean is then known to some per cent.
const SAMPLES_SEEN: u64 = 256;

/// Consecutive samples among them if samples are cut from units, so that few units are decoded.
const ROW_SAMPLES: u64 = 32;

/// Maximum number of samples whose lengths are counted. Beyond it, one in several is.
const SAMPLES_COUNTED: u64 = 1 << 20;

/// Columns, by name, and what threads turn them into.
type Maps = [(String, Map)];

/// Chooses the samples to keep prepared, if any.
///
/// # Errors
/// `InvalidArgument` if there is nothing to keep, the system's error if a folder cannot be written to, and the error of
/// the last sample if none can be read.
pub(super) fn choose(config: &Config, order: &Order, maps: &Maps, notes: &mut Notes) -> Result<Option<Arc<Prepared>>> {
    let Some(cache) = &config.cache_images else { return Ok(None) };
    let chains: Vec<&Map> = maps.iter().map(|(_, map)| map).filter(|map| map.fixed().is_some()).collect();
    let refused = |what: &'static str, remedy: &'static str| {
        Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy))
    };
    if chains.is_empty() {
        return refused("decoded images are to be kept, and no column is decoded", "give images a transform");
    }
    if maps.iter().any(|(_, map)| !map.beside().is_empty()) {
        return refused("decoded images are to be kept, and masks or boxes follow how they are stored", "keep none");
    }
    if config.fast_images {
        return refused(
            "images that are kept are exact, and those that are not kept would differ",
            "leave out fast_images",
        );
    }
    if matches!(config.batching, Batching::Packed(_)) {
        return refused("rows of pieces of samples cannot be kept decoded", "batch by samples");
    }
    Room::now().check("cache_images", (cache.memory_bytes() > 0).then_some(cache.memory_bytes()))?;
    let dataset = order.dataset();
    // If all images have the same size, those with more stored bytes cost more but take the same memory.
    let resizes =
        |map: &&Map| map.fixed().is_some_and(|fixed| fixed.ops().iter().any(|op| matches!(op, Op::Resize { .. })));
    let by_length = chains.iter().all(resizes) && dataset.units().is_none();
    let mut tally = Tally::new(by_length);
    let is_on_disk = cache.folder.is_some();
    look(dataset, maps, is_on_disk, &Patience::of(config).whole(), &mut tally)?;
    count(&**dataset, &mut tally);
    let room = if is_on_disk { Segments::room_in(cache.bytes) } else { cache.bytes };
    let Some((members, share, all)) = tally.members(room) else { return Ok(None) };
    let fields = dataset.schema().fields.len();
    let prepared = match &cache.folder {
        None => Prepared::in_memory(members, cache.bytes, fields),
        Some(folder) => {
            let patience = Patience::of(config);
            let (whole, of_cache) = (patience.whole(), patience.of_cache());
            let origin = origin(dataset, maps, config.orient, &whole);
            let (asked, bytes) = (folder.clone(), cache.bytes);
            let open = move || Prepared::on_disk((&asked, origin.clone(), of_cache), members, bytes, fields);
            whole.ask_one(open).unwrap_or_else(|| Err(whole.over(folder)))?
        }
    };
    notes.locality.push(words(cache, share, all).into());
    Ok(Some(Arc::new(prepared)))
}

/// The JPEG decoder, for the route.
pub(super) fn decoder(exact: bool) -> String {
    let JpegDecoder { name, version, path, why_not, .. } = uringload_images::decoder();
    let built_in = if path.is_none() && why_not.is_none() { " (built in)" } else { "" };
    format!("JPEGs by {name} {version}{built_in}{}", if exact { "" } else { ", not exact" })
}

fn words(cache: &ImageCache, share: f64, all: u64) -> String {
    let place = match &cache.folder {
        None => "memory".to_owned(),
        Some(folder) => folder.display().to_string(),
    };
    let mib = all.div_ceil(1 << 20);
    format!("decoded images of {:.1} % of the samples kept in {place} (all take some {mib} MiB)", 100.0 * share)
}

/// Measures some samples: their size when kept.
fn look(
    dataset: &Arc<dyn Dataset>,
    maps: &Maps,
    is_on_disk: bool,
    patience: &Patience,
    tally: &mut Tally,
) -> Result<()> {
    let samples = Samples::new(Arc::clone(dataset))?;
    let row = if dataset.units().is_some() { ROW_SAMPLES } else { 1 };
    let (rows, len) = (SAMPLES_SEEN / row, dataset.len());
    let first = |number: u64| (u128::from(len) * u128::from(number) / u128::from(rows)) as u64;
    let ids = (0..rows).flat_map(|number| first(number)..first(number + 1).min(first(number) + row));
    let ids: Vec<SampleId> = ids.map(SampleId).collect();
    let (count, asked, columns) = (ids.len(), Arc::clone(dataset), maps.to_vec());
    let answers = patience.ask(count, 1, move |number| taken((&samples, &*asked), &columns, is_on_disk, ids[number]));
    let mut seen = Err(Error::new(ErrorKind::Empty, "no sample was looked at"));
    let (mut any, place) = (false, dataset.files().roots().first().map_or(Path::new(""), PathBuf::as_path));
    for answer in answers {
        let answer = answer.unwrap_or_else(|| Err(patience.over(place)));
        seen = answer.map(|(stored, bytes)| tally.see(stored, bytes));
        any |= seen.is_ok();
    }
    // A sample that fails here fails again when its turn comes.
    if any { Ok(()) } else { seen }
}

/// The number of bytes read for a sample, and its size when kept.
fn taken(
    (samples, dataset): (&Samples, &dyn Dataset),
    maps: &Maps,
    is_on_disk: bool,
    id: SampleId,
) -> Result<(u64, u64)> {
    let sample = samples.read(id)?;
    let fields = dataset.schema().fields.iter().zip(&sample.values);
    let bytes = fields.map(|(field, value)| {
        let Value::Bytes(bytes) = value else { return Ok(0) };
        let fixed = maps.iter().find(|(name, _)| *name == field.name).and_then(|(_, map)| map.fixed());
        let Some(fixed) = fixed else { return Ok(bytes.len() as u64) };
        let (height, width) = dimensions(bytes, &Decoding::default())?;
        let plan = fixed.draw(0, 0, 0, height, width)?;
        let (height, width) = plan.size();
        Ok(u64::from(height) * u64::from(width) * u64::from(Decoding::default().color.channels()))
    });
    let bytes: Vec<u64> = bytes.collect::<Result<_>>()?;
    let bytes = if is_on_disk { bytes_on_disk(bytes.into_iter()) } else { bytes_of(bytes.into_iter()) };
    Ok((stored_bytes(dataset, id, &mut Vec::new()), bytes))
}

/// Counts the samples by the number of bytes read.
fn count(dataset: &dyn Dataset, tally: &mut Tally) {
    let len = dataset.len();
    if !tally.is_by_length() {
        tally.count(0, len);
        return;
    }
    let step = len.div_ceil(SAMPLES_COUNTED).max(1);
    let mut spans = Vec::new();
    for id in (0..len).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        tally.count(stored_bytes(dataset, SampleId(id), &mut spans), step.min(len - id));
    }
}

fn stored_bytes(dataset: &dyn Dataset, id: SampleId, spans: &mut Vec<crate::dataset::Span>) -> u64 {
    spans.clear();
    // If the dataset reports invalid spans, nothing of the sample is read.
    let _ = guard::spans(dataset, id, u64::MAX, spans);
    spans.iter().map(|span| span.len).sum()
}

/// Identifies everything that determines the kept pixels: the dataset, its files' stamps and some of their bytes, the
/// operations on images, and the decoder. If another shard of the same name and size replaces one, its stamp differs.
/// Where the dataset is, and the operations, are its root: of each root, the newest origin is the one that is used.
fn origin(dataset: &Arc<dyn Dataset>, maps: &Maps, orient: bool, patience: &Patience) -> Origin {
    let mut words = String::new();
    let kind = |map: &Map| map.fixed().map(|fixed| format!("{:?}", fixed.ops()));
    let mut of_columns: Vec<_> = maps.iter().map(|(name, map)| (name.as_str(), kind(map))).collect();
    of_columns.sort_unstable();
    write!(words, "{of_columns:?}, {orient}").expect("a String takes everything");
    let roots = dataset.files().roots();
    let in_root = words.bytes().chain(roots.iter().flat_map(|root| root.as_os_str().as_bytes().iter().copied()));
    let root = in_root.fold(0, |sum, byte| hash(sum ^ u64::from(byte)));
    write!(words, "{}: {:?}", env!("CARGO_PKG_VERSION"), uringload_images::decoder()).expect("a String takes all");
    let of_dataset = [dataset.fingerprint(), dataset.len(), dataset.files().stamps()];
    let hashes = content_hashes(dataset, patience).into_iter().map(|hash| hash.unwrap_or(0));
    let numbers = words.bytes().map(u64::from).chain(of_dataset).chain(hashes);
    let place = roots.first().map_or_else(|| "objects of a program".into(), |root| root.display().to_string());
    Origin { root, stamp: numbers.fold(root, |sum, number| hash(sum ^ number)), shown: place }
}
