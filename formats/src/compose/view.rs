//! Some of a dataset's samples, or all of them several times, as a dataset.

use crate::dataset::{
    Check, Dataset, FileId, Fingerprint, Index, Origin, Sample, SampleId, Span, UnitId, Units, bytes_of_each, sizes,
};
use bytes::Bytes;
use std::ffi::OsStr;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use uringload_core::{Error, ErrorKind, Result};

/// Some samples of a dataset, or all of them several times.
///
/// ```
/// use uringload_formats::{Dataset, Options, View, open};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("ten.bin"), [0; 10])?;
/// let ten = open(&[folder.path()], &Options::new().format("records").set("record_bytes", 1))?;
/// let (train, test) = (View::range(ten.clone(), 0..8)?, View::range(ten.clone(), 8..10)?);
/// assert_eq!((train.len(), test.len()), (8, 2));
/// assert_eq!(View::without(ten.clone(), vec![3, 5])?.len(), 8);
/// assert_eq!(View::repeat(ten, 3)?.len(), 30);
/// # Ok(())
/// # }
/// ```
///
/// A view keeps the shards of its dataset, without the samples that are left out; a list that does not ascend has no
/// shards. Repeated samples differ by their numbers, not by their keys or origins, and a full shuffle mixes the rounds.
pub struct View {
    dataset: Arc<dyn Dataset>,
    chosen: Chosen,
    index: Index,
    bytes: OnceLock<u64>,
    fingerprint: OnceLock<u64>,
}

/// Which samples.
enum Chosen {
    /// These, in this order.
    List(Vec<u64>),
    /// Neighbours.
    Range(Range<u64>),
    /// All but some: how many samples are kept before each that is left out. That never descends, and with its place in
    /// the list added it is the number of the sample that is left out.
    Without(Vec<u64>),
    /// All, this many times.
    Times(u64),
}

/// Shards of a repeated dataset at most; where there were more, it has none: their table is not worth its memory.
const REPEATED_SHARDS_MAX: u64 = 1 << 20;

impl View {
    /// The samples `ids`, in this order. A sample may come several times. Takes 8 bytes a sample.
    ///
    /// # Errors
    /// `InvalidArgument` for a sample that the dataset does not have; `Empty` for an empty list.
    pub fn of(dataset: Arc<dyn Dataset>, ids: Vec<u64>) -> Result<View> {
        check(&*dataset, &ids)?;
        View::new(dataset, Chosen::List(ids))
    }

    /// The samples of a range. Takes 8 bytes for each shard in it.
    ///
    /// # Errors
    /// `InvalidArgument` for a range that ends beyond the dataset; `Empty` for an empty range.
    pub fn range(dataset: Arc<dyn Dataset>, range: Range<u64>) -> Result<View> {
        if range.end > dataset.len() && !range.is_empty() {
            return Err(outside(&*dataset, range.end - 1));
        }
        View::new(dataset, Chosen::Range(range))
    }

    /// All samples except `excluded`, in the order of the dataset. `excluded` may be in any order and hold duplicates.
    /// Takes 8 bytes for each excluded sample.
    ///
    /// # Errors
    /// `InvalidArgument` for a sample that the dataset does not have; `Empty` where none is left.
    pub fn without(dataset: Arc<dyn Dataset>, mut excluded: Vec<u64>) -> Result<View> {
        check(&*dataset, &excluded)?;
        excluded.sort_unstable();
        excluded.dedup();
        // Each is at least its place in the list, because all differ.
        excluded.iter_mut().zip(0..).for_each(|(id, place)| *id -= place);
        excluded.shrink_to_fit();
        View::new(dataset, Chosen::Without(excluded))
    }

    /// The dataset `times` times over.
    ///
    /// # Errors
    /// `Empty` if `times` is 0; `InvalidArgument` for 2^64 samples or more.
    pub fn repeat(dataset: Arc<dyn Dataset>, times: u64) -> Result<View> {
        if times == 0 {
            let error = Error::new(ErrorKind::Empty, "a dataset repeated 0 times, or without samples, has no samples");
            return Err(error.with_remedy("repeat a dataset with samples at least once"));
        }
        let len = dataset.len();
        if len.checked_mul(times).is_none() {
            let what = format!("{len} samples repeated {times} times are more than 2^64");
            return Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy("repeat the dataset less often"));
        }
        View::new(dataset, Chosen::Times(times))
    }

    fn new(dataset: Arc<dyn Dataset>, chosen: Chosen) -> Result<View> {
        let of = dataset.index();
        let samples = chosen.count(of.samples);
        if samples == 0 {
            let error = Error::new(ErrorKind::Empty, "the view has no samples");
            return Err(error.with_remedy("choose at least one sample of the dataset"));
        }
        let index = Index { samples, shards: chosen.shards(of), ..of.clone() };
        let (bytes, fingerprint) = Default::default();
        Ok(View { dataset, chosen, index, bytes, fingerprint })
    }

    fn inner_id(&self, id: SampleId) -> SampleId {
        SampleId(match &self.chosen {
            Chosen::List(ids) => ids[id.0 as usize],
            Chosen::Range(range) => range.start + id.0,
            Chosen::Without(kept) => id.0 + kept.partition_point(|&kept| kept <= id.0) as u64,
            Chosen::Times(_) => id.0 % self.dataset.len(),
        })
    }

    fn inner_units(&self) -> &dyn Units {
        self.dataset.units().expect("`units` gives a view as units only where its dataset has some")
    }
}

impl Chosen {
    /// How many, out of how many.
    fn count(&self, all: u64) -> u64 {
        match self {
            Chosen::List(ids) => ids.len() as u64,
            Chosen::Range(range) => range.end.saturating_sub(range.start),
            Chosen::Without(kept) => all - kept.len() as u64,
            Chosen::Times(times) => all * times,
        }
    }

    /// The ends of the dataset's shards here, without shards of which no sample is left.
    fn shards(&self, of: &Index) -> Vec<u64> {
        let ends = of.shards.iter();
        let mut ends: Vec<u64> = match self {
            Chosen::List(ids) if !ids.is_sorted() => Vec::new(),
            Chosen::List(ids) => ends.map(|&end| ids.partition_point(|&id| id < end) as u64).collect(),
            Chosen::Range(range) => ends.map(|&end| end.clamp(range.start, range.end) - range.start).collect(),
            Chosen::Without(kept) => ends.map(|&end| end - excluded_below(kept, end)).collect(),
            Chosen::Times(times) => {
                let fits = (ends.len() as u64).checked_mul(*times).is_some_and(|shards| shards <= REPEATED_SHARDS_MAX);
                let rounds = if fits && ends.len() > 0 { 0..*times } else { 0..0 };
                rounds.flat_map(|round| ends.clone().map(move |end| round * of.samples + end)).collect()
            }
        };
        ends.dedup();
        if ends.first() == Some(&0) {
            ends.remove(0);
        }
        ends.shrink_to_fit();
        ends
    }
}

/// The samples left out, ascending, given how many are kept before each.
fn excluded(kept: &[u64]) -> impl Iterator<Item = u64> {
    kept.iter().zip(0..).map(|(kept, place)| kept + place)
}

/// Samples left out below `end`, given how many are kept before each.
fn excluded_below(kept: &[u64], end: u64) -> u64 {
    // A binary search over the samples themselves, which are not stored.
    let (mut low, mut high) = (0, kept.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if kept[middle] + (middle as u64) < end { low = middle + 1 } else { high = middle }
    }
    low as u64
}

/// Whether the dataset has all of `ids`.
fn check(dataset: &dyn Dataset, ids: &[u64]) -> Result<()> {
    match ids.iter().find(|&&id| id >= dataset.len()) {
        Some(&id) => Err(outside(dataset, id)),
        None => Ok(()),
    }
}

fn outside(dataset: &dyn Dataset, id: u64) -> Error {
    let what = format!("sample {id} is named, and the dataset has {} samples", dataset.len());
    Error::new(ErrorKind::InvalidArgument, what)
        .with_remedy("samples count from 0; check that the list belongs to this dataset")
}

impl Dataset for View {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        self.dataset.spans(self.inner_id(id), out);
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        self.dataset.parse(self.inner_id(id), raw, out)
    }

    fn units(&self) -> Option<&dyn Units> {
        self.dataset.units().map(|_| self as &dyn Units)
    }

    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        self.dataset.key(self.inner_id(id), out);
    }

    /// Unless all samples of the dataset have as many, it takes a look at each that is chosen (or left out) when it is
    /// first asked for. Of samples that are cut from units, the dataset's mean.
    fn bytes(&self) -> u64 {
        let sum = |ids: &mut dyn Iterator<Item = u64>| {
            sizes::sum(sizes::bytes_of(|id, out| self.dataset.spans(id, out), ids))
        };
        let all = self.dataset.bytes();
        *self.bytes.get_or_init(|| match (&self.chosen, bytes_of_each(&*self.dataset)) {
            (Chosen::Times(times), _) => all.saturating_mul(*times),
            _ if self.dataset.units().is_some() => {
                let bytes = u128::from(all) * u128::from(self.len()) / u128::from(self.dataset.len());
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
            (_, Some(each)) => each.saturating_mul(self.len()),
            (Chosen::List(ids), None) => sum(&mut ids.iter().copied()),
            (Chosen::Range(range), None) => sum(&mut range.clone()),
            (Chosen::Without(kept), None) => all.saturating_sub(sum(&mut excluded(kept))),
        })
    }

    /// Of a list, exact; of rounds, the largest samples each as often as there are rounds; else what the dataset says,
    /// but no more than all of the view's samples have.
    fn largest(&self, count: u64) -> u64 {
        let count = count.min(self.len());
        match (&self.chosen, bytes_of_each(&*self.dataset)) {
            (Chosen::Times(times), _) => {
                let each_once = self.dataset.largest(count.div_ceil(*times)).saturating_mul(*times);
                each_once.min(self.dataset.largest(1).saturating_mul(count))
            }
            (_, Some(each)) => each.saturating_mul(count),
            // The list may have the largest sample several times.
            (Chosen::List(ids), None) => {
                let spans_of = |id, out: &mut Vec<Span>| self.dataset.spans(id, out);
                sizes::sum_of_largest(sizes::bytes_of(spans_of, ids.iter().copied()), count)
            }
            _ => self.dataset.largest(count).min(self.bytes()),
        }
    }

    /// FNV-1a over "subset list", "subset range", "subset without" or "repeat", the dataset's fingerprint, and the
    /// samples of the list, the first sample and the end of the range, the samples that are left out, ascending, or the
    /// number of rounds.
    fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let of = |name: &str, ids: &mut dyn Iterator<Item = u64>| {
                let mut fingerprint = Fingerprint::new(name);
                fingerprint.number(self.dataset.fingerprint());
                ids.for_each(|id| fingerprint.number(id));
                fingerprint.finish()
            };
            match &self.chosen {
                Chosen::List(ids) => of("subset list", &mut ids.iter().copied()),
                Chosen::Range(range) => of("subset range", &mut [range.start, range.end].into_iter()),
                Chosen::Without(kept) => of("subset without", &mut excluded(kept)),
                Chosen::Times(times) => of("repeat", &mut [*times].into_iter()),
            }
        })
    }

    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        self.dataset.length(self.inner_id(id), field)
    }

    fn shape(&self, id: SampleId, field: usize) -> Option<&[u64]> {
        self.dataset.shape(self.inner_id(id), field)
    }

    fn span_of(&self, id: SampleId, field: usize) -> Option<usize> {
        self.dataset.span_of(self.inner_id(id), field)
    }

    fn widening(&self, field: usize) -> u64 {
        self.dataset.widening(field)
    }

    fn is_plain(&self) -> bool {
        self.dataset.is_plain()
    }

    fn has_field(&self, id: SampleId, field: usize) -> bool {
        self.dataset.has_field(self.inner_id(id), field)
    }

    fn label(&self, id: SampleId) -> Option<(i64, &OsStr)> {
        self.dataset.label(self.inner_id(id))
    }

    fn checks(&self, file: FileId, out: &mut Vec<Check>) -> Result<()> {
        self.dataset.checks(file, out)
    }

    fn faults(&self) -> Vec<Error> {
        self.dataset.faults()
    }

    fn origin(&self, id: SampleId) -> Origin {
        self.dataset.origin(self.inner_id(id))
    }
}

/// The units of a view are those of the underlying dataset.
impl Units for View {
    fn count(&self) -> u32 {
        self.inner_units().count()
    }

    fn of(&self, id: SampleId, out: &mut Vec<UnitId>) {
        self.inner_units().of(self.inner_id(id), out);
    }

    fn stored(&self, unit: UnitId, out: &mut Vec<Span>) {
        self.inner_units().stored(unit, out);
    }

    fn decoded_bytes(&self, unit: UnitId) -> u64 {
        self.inner_units().decoded_bytes(unit)
    }

    fn largest_decoded(&self) -> u64 {
        self.inner_units().largest_decoded()
    }

    fn largest_stored(&self) -> u64 {
        self.inner_units().largest_stored()
    }

    fn largest_scratch(&self) -> u64 {
        self.inner_units().largest_scratch()
    }

    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        self.inner_units().decode(unit, stored, out)
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("format", &self.format()).field("len", &self.len()).finish_non_exhaustive()
    }
}
