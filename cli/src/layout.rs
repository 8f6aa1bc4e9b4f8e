//! How a dataset's samples are laid out on disk, and what it costs to read them in any order.

use std::fmt;
use uringload::dataset::{Dataset, SampleId, Span, UnitId};
use uringload_measure::facts;

/// Samples to look at: enough for three digits, few enough to avoid a wait.
const SAMPLES: u64 = 200_000;
/// Read alignment if the filesystem does not report one: a page.
const ALIGNMENT: u64 = 4096;

/// See the module documentation.
pub struct Layout {
    /// Every value that is read on its own begins at a multiple of this many bytes, in the samples that were checked;
    /// at most 4096.
    pub payload_alignment: Option<u64>,
    /// Alignment of reads past the page cache; of objects 1.
    pub read_alignment: u64,
    /// Bytes read per byte wanted, if samples are read one by one.
    pub amplification: f64,
    /// The same if each unit is read once for all of its samples; `None` if there are no units.
    pub amplification_in_blocks: Option<f64>,
}

impl Layout {
    /// Computed from samples spread evenly over the dataset.
    pub fn of(dataset: &dyn Dataset) -> Layout {
        let direct = facts::place(dataset).and_then(|place| place.alignment);
        let of_files = direct.map_or(ALIGNMENT, |alignment| u64::from(alignment.offset));
        // Ranges of objects begin at any byte.
        let read_alignment = if dataset.files().has_objects() { 1 } else { of_files };
        let (mut offsets, mut has_spans) = (ALIGNMENT, false);
        let (mut wanted, mut read, mut read_for_units) = (0, 0, 0_u64);
        let (mut spans, mut units): (Vec<Span>, Vec<UnitId>) = (Vec::new(), Vec::new());
        let looked_at = SAMPLES.min(dataset.len());
        for number in 0..looked_at {
            let id = SampleId((u128::from(number) * u128::from(dataset.len()) / u128::from(looked_at)) as u64);
            wanted += wanted_bytes(dataset, id);
            spans.clear();
            dataset.spans(id, &mut spans);
            spans.retain(|span| span.len > 0);
            has_spans |= !spans.is_empty();
            // Bits that are set in any offset.
            spans.iter().for_each(|span| offsets |= span.offset);
            read += read_bytes(&mut spans, read_alignment);
            if let Some(known) = dataset.units() {
                units.clear();
                known.of(id, &mut units);
                spans.clear();
                units.iter().for_each(|&unit| known.stored(unit, &mut spans));
                read_for_units = read_bytes(&mut spans, read_alignment).saturating_add(read_for_units);
            }
        }
        let amplification = |read: f64| if wanted == 0 { 1.0 } else { read / wanted as f64 };
        // The fraction of all units' samples that was looked at.
        let share = looked_at as f64 / dataset.len() as f64;
        let in_blocks = |all: Chunks| amplification(read as f64 + share * all.stored as f64);
        Layout {
            payload_alignment: has_spans.then(|| 1 << offsets.trailing_zeros()),
            read_alignment,
            amplification: amplification(read as f64 + read_for_units as f64),
            amplification_in_blocks: Chunks::of(dataset).map(in_blocks),
        }
    }
}

/// The units of a dataset: chunks that are decoded as a whole.
pub struct Chunks {
    /// Their number.
    pub count: u32,
    /// Stored bytes of all units.
    pub stored: u64,
    /// Decoded bytes of all units.
    pub decoded: u64,
    /// Stored bytes of the largest unit.
    pub largest_stored: u64,
    /// Decoded bytes of the largest unit: what it takes of the memory limit while it is in use.
    pub largest_decoded: u64,
}

impl Chunks {
    /// `None` if all samples are read on their own.
    pub fn of(dataset: &dyn Dataset) -> Option<Chunks> {
        let units = dataset.units()?;
        let (mut stored, mut decoded, mut spans) = (0_u64, 0_u64, Vec::new());
        for unit in (0..units.count()).map(UnitId) {
            spans.clear();
            units.stored(unit, &mut spans);
            stored = spans.iter().fold(stored, |sum, span| sum.saturating_add(span.len));
            decoded = decoded.saturating_add(units.decoded_bytes(unit));
        }
        let (largest_stored, largest_decoded) = (units.largest_stored(), units.largest_decoded());
        Some(Chunks { count: units.count(), stored, decoded, largest_stored, largest_decoded })
    }
}

/// The bytes of a sample that are wanted.
pub fn wanted_bytes(dataset: &dyn Dataset, id: SampleId) -> u64 {
    let mut spans = Vec::new();
    dataset.spans(id, &mut spans);
    let of_spans = spans.iter().map(|span| span.len).sum::<u64>();
    // A span may include gaps between values; a field for which no byte is read has a length, too.
    let fields = dataset.schema().fields.iter().enumerate();
    let lengths = fields.map(|(field, known)| Some(dataset.length(id, field)? * known.dtype.size()));
    let of_fields = lengths.sum::<Option<u64>>();
    let mut units = Vec::new();
    if let Some(known) = dataset.units() {
        known.of(id, &mut units);
    }
    match (units.is_empty(), of_fields) {
        (true, of_fields) => of_fields.map_or(of_spans, |of_fields| of_fields.min(of_spans)),
        (false, Some(of_fields)) => of_fields,
        // Its length is only known once its units are decoded: assume the average.
        (false, None) => dataset.bytes() / dataset.len().max(1),
    }
}

/// Bytes that a sample's spans take when rounded out to the alignment; adjacent ones are read as one.
fn read_bytes(spans: &mut [Span], alignment: u64) -> u64 {
    spans.sort_unstable_by_key(|span| (span.file, span.offset));
    let (mut sum, mut last) = (0, None);
    for span in spans {
        let (start, end) = (span.offset / alignment * alignment, (span.offset + span.len).next_multiple_of(alignment));
        let start = match last {
            Some((file, before)) if file == span.file => start.max(before),
            _ => start,
        };
        sum += end.saturating_sub(start);
        last = Some((span.file, end));
    }
    sum
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Layout { payload_alignment, read_alignment, amplification, amplification_in_blocks } = self;
        if let Some(payload_alignment) = payload_alignment {
            write!(f, "values at multiples of {payload_alignment} bytes; ")?;
        }
        write!(f, "in random order {amplification:.3} bytes are read for each")?;
        if *read_alignment > 1 {
            write!(f, " (in multiples of {read_alignment})")?;
        }
        amplification_in_blocks
            .map_or(Ok(()), |amplification| write!(f, ", {amplification:.3} where each unit is decoded once"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uringload::dataset::FileId;

    #[test]
    fn spans_that_meet_are_read_once() {
        let span = |offset, len| Span { file: FileId(0), offset, len };
        assert_eq!(read_bytes(&mut [span(512, 10)], 4096), 4096);
        assert_eq!(read_bytes(&mut [span(4000, 200)], 4096), 8192);
        assert_eq!(read_bytes(&mut [span(2048, 1), span(512, 10), span(8191, 2)], 4096), 12288);
        assert_eq!(read_bytes(&mut [span(0, 1), Span { file: FileId(1), offset: 0, len: 1 }], 512), 1024);
    }
}
