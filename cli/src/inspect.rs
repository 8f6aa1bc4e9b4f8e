//! `uringload inspect`: describes a dataset.

use crate::Done;
use crate::arguments::Inspect;
use crate::data;
use crate::failure::Exit;
use crate::interrupt::Interrupt;
use crate::layout::{Chunks, Layout, wanted_bytes};
use crate::output::{self, Table};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uringload::dataset::{Dataset, Field, FileId, SampleId, Shape, Span};
use uringload::inspect::{Content, Media, Samples};
use uringload_measure::facts;
use uringload_measure::text;

/// Opens the dataset and describes it; reads a sample or a few, to see what the bytes of its columns are.
pub fn run(options: &Inspect) -> Done {
    let start = Instant::now();
    Interrupt::end_at_once();
    let dataset = data::open(&options.paths, &options.format.0)?;
    let opening = start.elapsed();
    let seen = seen(&dataset);
    let dataset = &*dataset;
    let text = if options.json {
        format!("{:#}\n", as_json(dataset, seen.as_deref()))
    } else {
        as_text(dataset, seen.as_deref(), opening)
    };
    if options.json {
        output::print(&text)?
    } else {
        output::print_table(&text, output::NAMES)?
    }
    Ok(Exit::Done)
}

/// Sizes of samples in bytes.
struct Sizes {
    least: u64,
    median: u64,
    p99: u64,
    most: u64,
}

impl Sizes {
    fn of(dataset: &dyn Dataset) -> Sizes {
        let mut spans: Vec<Span> = Vec::new();
        let size = |id| {
            let id = SampleId(id);
            if dataset.units().is_some() {
                return wanted_bytes(dataset, id);
            }
            spans.clear();
            dataset.spans(id, &mut spans);
            spans.iter().map(|span| span.len).sum::<u64>()
        };
        // Samples of fixed shape have one size: there is no need to look at a few billion records one by one.
        let fixed = dataset.schema().fields.iter().all(|field| matches!(field.shape, Shape::Fixed(_)));
        let mut sizes: Vec<u64> = (0..if fixed { 1 } else { dataset.len() }).map(size).collect();
        sizes.sort_unstable();
        let at = |share: f64| sizes.get(((sizes.len() - 1) as f64 * share).round() as usize).copied().unwrap_or(0);
        Sizes { least: at(0.0), median: at(0.5), p99: at(0.99), most: at(1.0) }
    }
}

/// Samples that are looked at: the first may be broken.
const SAMPLES_SEEN: u64 = 8;

/// A sample that takes more bytes to read is not looked at.
const SEEN_BYTES: u64 = 1 << 30;

/// What the bytes of each column are in the first sample that can be read, and whether a name says otherwise. `None`:
/// reading takes too much.
fn seen(dataset: &Arc<dyn Dataset>) -> Option<Vec<Option<String>>> {
    let index = dataset.index();
    let first = || (0..dataset.len().min(SAMPLES_SEEN)).map(SampleId);
    let decoded = dataset.units().map_or(0, |units| units.largest_decoded());
    let is_long = |id| decoded.max(wanted_bytes(&**dataset, id)) > SEEN_BYTES;
    if index.plain_field.is_none() && first().any(is_long) {
        return None;
    }
    let samples = Samples::new(Arc::clone(dataset)).ok();
    let contents = samples.and_then(|samples| first().find_map(|id| Some((id, samples.contents(id).ok()?))));
    let (id, contents) = contents.unwrap_or((SampleId(0), Vec::new()));
    let ending = |field: &Field| match index.format {
        "tar" => Some(field.name.clone()),
        "folder" | "zip" => {
            let mut key = Vec::new();
            dataset.key(id, &mut key);
            Some(String::from_utf8_lossy(&key).into_owned())
        }
        _ => None,
    };
    let fields = index.schema.fields.iter().zip(contents);
    Some(fields.map(|(field, content)| in_words(content?, ending(field).as_deref().unwrap_or_default())).collect())
}

/// What a value is that is called as its `name` ends.
fn in_words(content: Content, name: &str) -> Option<String> {
    let (media, words) = match content {
        Content::Image(format) => (None, format!("{format} image")),
        Content::Media(media) => (Some(media), format!("{media}, not decoded")),
        _ => (None, "neither sound nor film by its first bytes".to_owned()),
    };
    let ending = name.rsplit('.').next().unwrap_or_default();
    match (Media::fits(media, ending), content) {
        (Some(false), _) => Some(format!("{words}, though called .{ending}")),
        (_, Content::Image(_) | Content::Media(_)) => Some(words),
        _ => None,
    }
}

fn as_text(dataset: &dyn Dataset, seen: Option<&[Option<String>]>, opening: Duration) -> String {
    let (index, sizes) = (dataset.index(), Sizes::of(dataset));
    let of = |bytes: u64| text::bytes(bytes as f64);
    let mut table = Table::new(output::NAMES);
    table.row("format", dataset.format().into());
    table.row(
        "samples",
        format!("{} in {} files", text::count(dataset.len()), text::count(dataset.files().len() as u64)),
    );
    table.row("bytes", format!("{} ({})", of(dataset.bytes()), text::count(dataset.bytes())));
    let Sizes { least, median, p99, most } = sizes;
    table.row("sample size", format!("least {}, median {}, p99 {}, most {}", of(least), of(median), of(p99), of(most)));
    for (number, field) in index.schema.fields.iter().enumerate() {
        let stored = index.encodings.get(number).map_or_else(String::new, |stored| format!(" ({})", stored.words));
        let lacking = match index.lacking.get(number).copied().unwrap_or(0) {
            0 => String::new(),
            lacking => format!(", lacking in {} samples", text::count(lacking)),
        };
        let seen = seen.and_then(|seen| seen.get(number)?.as_ref());
        let seen = seen.map_or_else(String::new, |seen| format!(", {seen}"));
        table.row("column", format!("{}: {} {}{stored}{seen}{lacking}", field.name, field.dtype, shape(&field.shape)));
    }
    if seen.is_none() {
        table.row("contents", format!("not looked at: a sample takes more than {} to read", of(SEEN_BYTES)));
    }
    if let Some((least, most)) = shard_sizes(dataset) {
        let shards = text::count(dataset.shards().len() as u64);
        table.row("shards", format!("{shards} of {} to {} samples", text::count(least), text::count(most)));
    }
    if let Some(Chunks { count, stored, decoded, largest_stored, largest_decoded }) = Chunks::of(dataset) {
        let (count, stored, decoded) = (text::count(count.into()), of(stored), of(decoded));
        table.row("units", format!("{count}, each decoded as a whole: {stored} stored, {decoded} decoded"));
        table.row("largest unit", format!("{} stored, {} decoded", of(largest_stored), of(largest_decoded)));
    }
    let layout = Layout::of(dataset);
    table.row("layout", layout.to_string());
    if !index.classes.is_empty() {
        table.row("classes", text::count(index.classes.len() as u64));
    }
    for root in dataset.files().roots() {
        table.row("root", root.display().to_string());
    }
    for skipped in &index.left_out {
        let first = skipped.first.display();
        table.row("left out", format!("{} {}, the first {first}", text::count(skipped.count), skipped.what));
    }
    if index.dropped_elements > 0 {
        table.row("in no window", format!("{} tokens", text::count(index.dropped_elements)));
    }
    if let Some(place) = facts::place(dataset) {
        table.row("filesystem", place.to_string());
    }
    let store = (!dataset.files().is_empty()).then(|| dataset.files().far(FileId(0))).flatten();
    if let Some(told) = store.and_then(|far| far.store.told()) {
        table.row("store", told);
    }
    if let Some(Requests { in_order, in_any_order }) = Requests::of(dataset) {
        let (in_order, in_any_order) = (text::count(in_order), text::count(in_any_order));
        table.row("an epoch", format!("{in_order} GETs in order, at most about {in_any_order} in any other"));
    }
    table.row("fingerprint", format!("{:016x}", dataset.fingerprint()));
    table.row("opened in", text::time(opening));
    table.text
}

fn as_json(dataset: &dyn Dataset, seen: Option<&[Option<String>]>) -> Value {
    let (index, sizes) = (dataset.index(), Sizes::of(dataset));
    let column = |(number, field): (usize, &uringload::dataset::Field)| {
        let shape = match &field.shape {
            Shape::Fixed(shape) => json!(shape),
            Shape::Ragged => Value::Null,
        };
        let encoding = index.encodings.get(number).map(|encoding| &encoding.words);
        let content = seen.and_then(|seen| seen.get(number)?.as_ref());
        json!({
            "name": field.name,
            "dtype": field.dtype.name(),
            "shape": shape,
            "encoding": encoding,
            "content": content,
        })
    };
    let layout = Layout::of(dataset);
    let chunks = Chunks::of(dataset).map(|chunks| {
        json!({
            "count": chunks.count,
            "stored_bytes": chunks.stored,
            "decoded_bytes": chunks.decoded,
            "largest_stored_bytes": chunks.largest_stored,
            "largest_decoded_bytes": chunks.largest_decoded,
            "read_amplification": layout.amplification_in_blocks,
        })
    });
    let skipped = |skipped: &uringload::dataset::Skipped| {
        json!({
            "reason": skipped.what,
            "count": skipped.count,
            "first": skipped.first.to_string_lossy(),
        })
    };
    json!({
        "version": 1,
        "format": dataset.format(),
        "samples": dataset.len(),
        "files": dataset.files().len(),
        "bytes": dataset.bytes(),
        "sample_bytes": { "least": sizes.least, "median": sizes.median, "p99": sizes.p99, "most": sizes.most },
        "columns": dataset.schema().fields.iter().enumerate().map(column).collect::<Vec<_>>(),
        "shards": dataset.shards().len(),
        "units": chunks,
        "payload_alignment": layout.payload_alignment,
        "read_alignment": layout.read_alignment,
        "read_amplification": layout.amplification,
        "classes": index.classes.len(),
        "roots": dataset.files().roots().iter().map(|root| root.to_string_lossy()).collect::<Vec<_>>(),
        "left_out": index.left_out.iter().map(skipped).collect::<Vec<_>>(),
        "dropped_tokens": index.dropped_elements,
        "epoch_requests": Requests::of(dataset)
            .map(|requests| json!({ "in_order": requests.in_order, "in_any_order": requests.in_any_order })),
        "fingerprint": format!("{:016x}", dataset.fingerprint()),
    })
}

/// The longest range of an object that is asked for at once.
const FAR_READ_BYTES: u64 = 8 << 20;

/// How many GETs an epoch takes, without second attempts: where objects are read from their beginning to their end, and
/// at most, where each sample or unit is asked for by itself. Joining and what is kept in memory make them fewer.
struct Requests {
    in_order: u64,
    in_any_order: u64,
}

impl Requests {
    /// Nothing without objects.
    fn of(dataset: &dyn Dataset) -> Option<Requests> {
        let files = dataset.files();
        if !files.has_objects() {
            return None;
        }
        let far = (0..files.len() as u32).map(FileId).filter(|&file| files.store_of(files.root_of(file)).is_some());
        let in_order = far.map(|file| files.size(file).div_ceil(FAR_READ_BYTES)).sum();
        let parts = Chunks::of(dataset).map_or(dataset.len(), |chunks| chunks.count.into());
        Some(Requests { in_order, in_any_order: parts.max(in_order) })
    }
}

/// Number of samples in the smallest and the largest shard, if there are shards.
fn shard_sizes(dataset: &dyn Dataset) -> Option<(u64, u64)> {
    let starts = std::iter::once(0).chain(dataset.shards().iter().copied());
    let sizes: Vec<u64> = starts.zip(dataset.shards()).map(|(start, end)| end - start).collect();
    Some((*sizes.iter().min()?, *sizes.iter().max()?))
}

fn shape(shape: &Shape) -> String {
    match shape {
        Shape::Fixed(shape) if shape.is_empty() => "scalar".into(),
        Shape::Fixed(shape) => format!("{shape:?}"),
        Shape::Ragged => "of any length".into(),
    }
}
