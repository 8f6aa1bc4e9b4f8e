//! `uringload inspect`: describes a dataset.

use crate::Done;
use crate::arguments::Inspect;
use crate::data;
use crate::failure::Exit;
use crate::interrupt::Interrupt;
use crate::layout::{Chunks, Layout, wanted_bytes};
use crate::output::{self, Table};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use uringload::dataset::{Dataset, SampleId, Shape, Span};
use uringload_measure::facts;
use uringload_measure::text;

/// Opens the dataset and describes it; reads no sample.
pub fn run(options: &Inspect) -> Done {
    let start = Instant::now();
    Interrupt::end_at_once();
    let dataset = data::open(&options.paths, &options.format.0)?;
    let dataset = &*dataset;
    let opening = start.elapsed();
    let text = if options.json { format!("{:#}\n", as_json(dataset)) } else { as_text(dataset, opening) };
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

fn as_text(dataset: &dyn Dataset, opening: Duration) -> String {
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
        table.row("column", format!("{}: {} {}{stored}{lacking}", field.name, field.dtype, shape(&field.shape)));
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
    table.row("fingerprint", format!("{:016x}", dataset.fingerprint()));
    table.row("opened in", text::time(opening));
    table.text
}

fn as_json(dataset: &dyn Dataset) -> Value {
    let (index, sizes) = (dataset.index(), Sizes::of(dataset));
    let column = |(number, field): (usize, &uringload::dataset::Field)| {
        let shape = match &field.shape {
            Shape::Fixed(shape) => json!(shape),
            Shape::Ragged => Value::Null,
        };
        let encoding = index.encodings.get(number).map(|encoding| &encoding.words);
        json!({ "name": field.name, "dtype": field.dtype.name(), "shape": shape, "encoding": encoding })
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
        "fingerprint": format!("{:016x}", dataset.fingerprint()),
    })
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
