//! How a dataset's samples lie on the disk, and what reading them in any order costs there.

use super::facts;
use std::fmt;
use uringload::dataset::{Dataset, SampleId, Span};

/// Samples that are looked at: enough for three digits, few enough for no wait.
const SAMPLES: u64 = 200_000;
/// What reads are aligned to where the filesystem does not say: a page.
const ALIGNMENT: u64 = 4096;

/// See the module.
pub struct Layout {
    /// Every value begins at a multiple of so many bytes, as far as was looked; at most 4096.
    pub payload_alignment: u64,
    /// What reads past the page cache are aligned to.
    pub read_alignment: u64,
    /// Bytes that are read for each byte that is wanted, where samples are read one by one.
    pub amplification: f64,
}

impl Layout {
    /// Of samples spread evenly over the dataset.
    pub fn of(dataset: &dyn Dataset) -> Layout {
        let direct = facts::place(dataset).and_then(|place| place.alignment);
        let read_alignment = direct.map_or(ALIGNMENT, |alignment| u64::from(alignment.offset));
        let (mut offsets, mut wanted, mut read) = (ALIGNMENT, 0, 0);
        let mut spans: Vec<Span> = Vec::new();
        let looked_at = SAMPLES.min(dataset.len());
        for number in 0..looked_at {
            spans.clear();
            let id = (u128::from(number) * u128::from(dataset.len()) / u128::from(looked_at)) as u64;
            dataset.spans(SampleId(id), &mut spans);
            spans.retain(|span| span.len > 0);
            // A bit that is set in any offset.
            spans.iter().for_each(|span| offsets |= span.offset);
            // A span may reach over what lies between values; a field that no byte is read for has a length as well.
            let fields = dataset.schema().fields.iter().enumerate();
            let lengths = fields.map(|(field, known)| Some(dataset.length(SampleId(id), field)? * known.dtype.size()));
            let of_spans = spans.iter().map(|span| span.len).sum::<u64>();
            wanted += lengths.sum::<Option<u64>>().map_or(of_spans, |of_fields| of_fields.min(of_spans));
            read += read_bytes(&mut spans, read_alignment);
        }
        let amplification = if wanted == 0 { 1.0 } else { read as f64 / wanted as f64 };
        Layout { payload_alignment: 1 << offsets.trailing_zeros(), read_alignment, amplification }
    }
}

/// Bytes that one sample's spans take when they are rounded out; those that meet are read as one.
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
        let Layout { payload_alignment, read_alignment, amplification } = self;
        write!(f, "values at multiples of {payload_alignment} bytes; in random order ")?;
        write!(f, "{amplification:.3} bytes are read for each (in units of {read_alignment})")
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
