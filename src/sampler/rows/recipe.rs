//! Makes rows from the samples of a window: checked once, then shared by all walks over the order.

use super::{Bucketer, Packer, Rows};
use crate::config::{Batching, Config, Cursor, Shuffle};
use crate::dataset::{Dataset, SampleId, Shape};
use crate::guard;
use crate::sampler::Sampler;
use crate::sampler::random::window_rng;
use crate::{Error, ErrorKind, Result};
use rand_xoshiro::rand_core::Rng;
use std::sync::{Mutex, PoisonError};

/// Most samples in a window: resuming inside a window means making all of it again.
const WINDOW_MAX: u64 = 1 << 24;

/// A window ends before it has this many pieces for each of its samples, so making it takes about the same time for any
/// lengths.
const PIECES_EACH: u64 = 8;

/// Most pieces that one sample may be cut into. A window has at least one sample, however long it is.
const SAMPLE_PIECES_MAX: u64 = 1 << 20;

/// How windows of samples become rows.
pub(crate) struct Recipe {
    /// Copied for each window, before it allocates memory.
    maker: Maker,
    /// The field whose elements count.
    field: usize,
    /// Samples in a window.
    samples: u64,
    /// Rows in a batch of one rank.
    batch_rows: u64,
    /// The seed of the order of rows, if it is random.
    seed: Option<u64>,
    drop_last: bool,
    /// The window that the start was checked against, kept until a walk takes it: making it again may take seconds.
    checked: Mutex<Option<Window>>,
}

/// Makes rows from a window's lengths.
#[derive(Clone)]
enum Maker {
    Pack(Packer),
    Bucket(Bucketer),
}

impl Recipe {
    /// The recipe for `config`; `None` if a row is a sample.
    ///
    /// # Errors
    /// `InvalidArgument` for an impossible window, row length, boundary or batch size, and for a dataset without a
    /// field whose lengths are in the index.
    pub(crate) fn new(config: &Config, dataset: &dyn Dataset) -> Result<Option<Recipe>> {
        let (maker, samples) = match &config.batching {
            Batching::Samples => return Ok(None),
            Batching::Packed(packing) => (Maker::Pack(Packer::new(packing)?), packing.window),
            Batching::Buckets(buckets) => (Maker::Bucket(Bucketer::new(buckets)?), buckets.window),
        };
        if samples == 0 || samples > WINDOW_MAX {
            let what = format!("a window cannot have {samples} samples");
            let remedy = format!("give a window from 1 to {WINDOW_MAX} samples");
            return Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy));
        }
        let field = known_field(dataset)?;
        if let Maker::Pack(packer) = &maker {
            refuse_longer(dataset, field, packer.seq_len())?;
        }
        Ok(Some(Recipe {
            batch_rows: if matches!(maker, Maker::Pack(_)) { config.batch_size } else { 1 },
            maker,
            field,
            samples,
            seed: (config.shuffle != Shuffle::Off).then_some(config.seed),
            drop_last: config.drop_last,
            checked: Mutex::new(None),
        }))
    }

    /// The field that rows are made of, by its number in the schema.
    pub(crate) fn field(&self) -> usize {
        self.field
    }

    /// Rows in a batch of one rank.
    pub(crate) fn batch_rows(&self) -> u64 {
        self.batch_rows
    }

    /// Whether rows are packed, so that each lists the pieces in it.
    pub(crate) fn is_packed(&self) -> bool {
        matches!(self.maker, Maker::Pack(_))
    }

    /// Refuses a start after the last row of its window.
    pub(crate) fn check_start(&self, start: Cursor, dataset: &dyn Dataset, sampler: &dyn Sampler) -> Result<()> {
        if start.rows == 0 {
            return Ok(());
        }
        let mut window = self.window();
        if start.position < sampler.len_of(start.epoch) {
            window.make(self, start, dataset, sampler);
        }
        let rows = window.rows().len();
        if start.rows > rows as u64 {
            let Cursor { position, rows: passed, .. } = start;
            let what = format!("cannot start after row {passed} of the window at position {position}: it has {rows}");
            return Err(Error::new(ErrorKind::InvalidArgument, what)
                .with_remedy("check that the cursor belongs to this dataset, order, window and way of packing"));
        }
        *self.checked.lock().unwrap_or_else(PoisonError::into_inner) = Some(window);
        Ok(())
    }

    /// A window to walk with: the one that was made to check the start, if no walk has it yet.
    pub(crate) fn window(&self) -> Window {
        let checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner).take();
        let new = || Window {
            maker: self.maker.clone(),
            start: None,
            ids: Vec::new(),
            lengths: Vec::new(),
            rows: Rows::default(),
        };
        checked.unwrap_or_else(new)
    }

    /// Most samples in a batch, counting each piece, and most bytes that are read for them.
    pub(crate) fn largest_batch(&self, dataset: &dyn Dataset) -> (u64, u64) {
        let is_plain = dataset.index().plain_field == Some(self.field);
        let element_bytes = dataset.schema().fields[self.field].dtype.size();
        match &self.maker {
            Maker::Pack(packer) => {
                let pieces = self.batch_rows.saturating_mul(packer.pieces_max());
                let bytes = if is_plain {
                    self.batch_rows.saturating_mul(packer.seq_len()).saturating_mul(element_bytes)
                } else {
                    // A sample is read whole for each of its pieces. Pieces that are a whole sample, or the rest of a
                    // cut one, are of different samples; others fill a row or, with `Concat`, begin or end it.
                    let cut = dataset.largest(1).saturating_mul(self.batch_rows.saturating_mul(2));
                    dataset.largest(pieces).saturating_add(cut)
                };
                (pieces, bytes)
            }
            Maker::Bucket(bucketer) => {
                let sizes = bucketer.batch_sizes();
                let samples = sizes.iter().copied().max().unwrap_or(0);
                if !is_plain {
                    return (samples, dataset.largest(samples));
                }
                let last = dataset.largest(sizes.last().copied().unwrap_or(0));
                let of_bucket =
                    |(&size, &boundary): (&u64, &u64)| size.saturating_mul(boundary - 1).saturating_mul(element_bytes);
                let others = sizes.iter().zip(bucketer.boundaries()).map(of_bucket).max().unwrap_or(0);
                // If no batch of a bucket can be full, the whole dataset is the bound.
                (samples, last.max(others.min(dataset.bytes())))
            }
        }
    }
}

/// The last window. Its memory is reused from window to window.
pub(crate) struct Window {
    maker: Maker,
    /// Epoch and first position; `None` before the first one is made.
    start: Option<(u64, u64)>,
    ids: Vec<SampleId>,
    lengths: Vec<u64>,
    rows: Rows,
}

impl Window {
    /// Position of its first sample.
    pub(crate) fn start(&self) -> u64 {
        self.start.map_or(0, |(_, position)| position)
    }

    /// Position after its last sample.
    pub(crate) fn end(&self) -> u64 {
        self.start() + self.ids.len() as u64
    }

    /// Its samples, in the order of their positions.
    pub(crate) fn ids(&self) -> &[SampleId] {
        &self.ids
    }

    /// Its rows.
    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Makes the window that begins at `at`, which is before the end of its epoch, unless it is this one already.
    pub(crate) fn make(&mut self, recipe: &Recipe, at: Cursor, dataset: &dyn Dataset, sampler: &dyn Sampler) {
        let Cursor { epoch, position, .. } = at;
        if self.start == Some((epoch, position)) {
            return;
        }
        let Window { maker, start, ids, lengths, rows } = self;
        *start = Some((epoch, position));
        let end = sampler.len_of(epoch).min(position.saturating_add(recipe.samples));
        ids.clear();
        ids.extend((position..end).map(|position| sampler.at(Cursor::new(epoch, position))));
        lengths.clear();
        // The dataset promises that its index has all lengths; `known_field` tried it.
        let length = |&id: &SampleId| dataset.length(id, recipe.field).unwrap_or(0);
        guard::named(dataset, "length", || lengths.extend(ids.iter().map(length)));
        let mut random = recipe.seed.map(|seed| window_rng(seed, epoch, position));
        let random = random.as_mut().map(|random| random as &mut dyn Rng);
        match maker {
            Maker::Pack(packer) => {
                let pieces_max = recipe.samples * PIECES_EACH;
                let mut pieces = 0_u64;
                let fits = |length: &&u64| {
                    pieces = pieces.saturating_add(packer.pieces_of(**length));
                    pieces <= pieces_max
                };
                let count = lengths.iter().take_while(fits).count().max(1);
                ids.truncate(count);
                lengths.truncate(count);
                packer.pack(lengths, random, rows);
            }
            Maker::Bucket(bucketer) => {
                let has_rest = bucketer.bucket(lengths, random, rows);
                // It comes last, so the rows before it are the same with or without it.
                if has_rest && recipe.drop_last {
                    rows.pop();
                }
            }
        }
    }
}

/// The field that rows are made of, by its number in the schema: the first one with values of different lengths,
/// otherwise the one that can be read in parts. `None` if there is neither.
pub(crate) fn row_field(dataset: &dyn Dataset) -> Option<usize> {
    let ragged = dataset.schema().fields.iter().position(|field| field.shape == Shape::Ragged);
    ragged.or(dataset.index().plain_field)
}

/// The field that rows are made of, whose lengths are in the index.
fn known_field(dataset: &dyn Dataset) -> Result<usize> {
    let Some(field) = row_field(dataset) else {
        let what = "no column can be packed or put into buckets: all columns have one shape";
        return Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy("batch samples"));
    };
    let ends = [SampleId(0), SampleId(dataset.len().saturating_sub(1))];
    if !dataset.is_empty() && ends.iter().any(|&id| dataset.length(id, field).is_none()) {
        let name = &dataset.schema().fields[field].name;
        let what = format!(
            "samples cannot be packed or put into buckets by column {name:?}: the index does not know the lengths of \
             its values"
        );
        return Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(with_lengths(dataset.format(), name)));
    }
    Ok(field)
}

/// How the column of a format gets lengths: by itself in MDS.
fn with_lengths(format: &str, name: &str) -> String {
    let option = match format {
        "parquet" | "arrow" | "jsonl" | "csv" => "columns",
        "tfrecord" => "fields",
        "hdf5" => "tensors",
        _ => return "batch samples, or write that column by itself, in a format whose index has lengths".into(),
    };
    format!(
        "batch samples, or write the column once with its lengths, and open that: \
         uringload pack SRC DST --layout mds --{option} {name}"
    )
}

/// Refuses samples that would be cut into so many pieces that one of them is too much for a window.
fn refuse_longer(dataset: &dyn Dataset, field: usize, seq_len: u64) -> Result<()> {
    let element_bytes = dataset.schema().fields[field].dtype.size();
    let is_too_many = |bytes: u64| bytes / element_bytes / seq_len > SAMPLE_PIECES_MAX;
    // If all samples together are not too long, none is; finding the longest may mean looking at each.
    if is_too_many(dataset.bytes()) && is_too_many(dataset.largest(1)) {
        let elements = dataset.largest(1) / element_bytes;
        let what = format!(
            "a sample has up to {elements} elements, which are more than {SAMPLE_PIECES_MAX} rows of {seq_len}"
        );
        let remedy = "give a longer seq_len, or store it as several samples";
        return Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy));
    }
    Ok(())
}
