//! Window after window: which rows of the global order one rank takes, batch by batch.

use super::{Bucketer, Packer, Piece, Rows};
use crate::config::{Batching, Config, Shuffle};
use crate::dataset::{Dataset, SampleId, Shape};
use crate::sampler::random::window_rng;
use crate::sampler::{Cursor, Position, Sampler, Strided};
use crate::{Error, ErrorKind, Result};
use rand_xoshiro::rand_core::Rng;
use std::sync::Arc;

/// Most samples in a window: going on in the middle of one means to make it again.
pub const WINDOW_MAX: u64 = 1 << 24;

/// A window ends before it has this many pieces for each of its samples: so making it takes about as long whatever the
/// samples' lengths are.
const PIECES_EACH: u64 = 8;

/// Most pieces that one sample may be cut into. A window has at least one sample, however long it is.
const SAMPLE_PIECES_MAX: u64 = 1 << 20;

/// Epochs in a row without a batch (because what does not fill one on every rank is dropped) after which the loader
/// ends. Epochs differ in their number of rows, so one may have a batch where another has none.
const EMPTY_EPOCHS_MAX: u32 = 16;

/// The rows of one batch of one rank.
#[derive(Clone, Debug, Default)]
pub struct RowBatch {
    /// Place of the first row of all ranks' batches.
    pub cursor: Cursor,
    /// Place behind the last one.
    pub next: Cursor,
    /// One for each piece, row by row.
    pub positions: Vec<Position>,
    /// The samples.
    pub ids: Vec<SampleId>,
    /// Which part of each; empty for buckets, whose samples are whole.
    pub pieces: Vec<Piece>,
    /// Where each row's pieces end, as indices behind the last; empty for buckets, whose batch is one row.
    pub row_ends: Vec<u32>,
}

impl RowBatch {
    fn clear(&mut self) {
        self.positions.clear();
        self.ids.clear();
        self.pieces.clear();
        self.row_ends.clear();
    }
}

/// What makes rows of a window's lengths.
#[derive(Clone, Debug)]
enum Maker {
    Pack(Packer),
    Bucket(Bucketer),
}

/// Walks through the windows of epoch after epoch.
///
/// A window is the next so many positions behind the cursor: fewer at the end of an epoch, and where samples are so
/// long that they would be cut into more than eight pieces on average. The rows of an epoch's windows are one sequence,
/// which depends neither on the ranks nor on the batch size: row `k` behind the cursor belongs to rank
/// `k % world_size`, and the batches of all ranks together are runs of it. So a cursor means the same for another world
/// size or batch size.
///
/// The last run of an epoch, if it is not full, is left out on all ranks with `drop_last`. Else each rank has the same
/// number of its rows: where there is none left, one from the beginning of that run once more, marked as padding.
pub struct Windows {
    dataset: Arc<dyn Dataset>,
    sampler: Arc<dyn Sampler>,
    maker: Maker,
    /// The field whose elements count.
    field: usize,
    /// Samples in a window.
    samples: u64,
    /// What the order of a window's rows derives from, if it is random.
    seed: Option<u64>,
    strided: Strided,
    /// Rows in a batch of one rank.
    batch_rows: u64,
    last_epoch: Option<u64>,
    /// Where the next batch begins.
    at: Cursor,
    window: Window,
    /// The next batch, if `is_ready`.
    batch: RowBatch,
    is_ready: bool,
    is_ended: bool,
}

/// The window that was made last.
#[derive(Default)]
struct Window {
    /// Epoch and first position; `None` where nothing was made yet.
    start: Option<(u64, u64)>,
    ids: Vec<SampleId>,
    lengths: Vec<u64>,
    rows: Rows,
}

impl Window {
    /// Position behind its last sample.
    fn end(&self) -> u64 {
        self.start.map_or(0, |(_, position)| position + self.ids.len() as u64)
    }
}

impl Windows {
    /// What `config` asks for, or `None` where a row is a sample. `strided` is made of the same configuration.
    ///
    /// # Errors
    /// `InvalidArgument` for a window, row length, boundary or batch size that cannot be, for a dataset without a field
    /// that has a length known from the index, and for a cursor that is in no window.
    pub fn new(
        config: &Config,
        dataset: &Arc<dyn Dataset>,
        sampler: &Arc<dyn Sampler>,
        strided: Strided,
        start: Cursor,
    ) -> Result<Option<Windows>> {
        let (maker, samples) = match &config.batching {
            Batching::Samples => return Ok(None),
            Batching::Packed(packing) => (Maker::Pack(Packer::new(packing)?), packing.window),
            Batching::Buckets(buckets) => (Maker::Bucket(Bucketer::new(buckets)?), buckets.window),
        };
        if samples == 0 || samples > WINDOW_MAX {
            let doing = format!("a window of {samples} samples cannot be");
            let remedy = format!("give a window from 1 to {WINDOW_MAX} samples");
            return Err(Error::new(ErrorKind::InvalidArgument, doing).with_remedy(remedy));
        }
        let field = known_field(&**dataset)?;
        if let Maker::Pack(packer) = &maker {
            refuse_longer(&**dataset, field, packer.seq_len())?;
        }
        let mut windows = Windows {
            dataset: Arc::clone(dataset),
            sampler: Arc::clone(sampler),
            batch_rows: if matches!(maker, Maker::Pack(_)) { strided.batch_size() } else { 1 },
            maker,
            field,
            samples,
            seed: (config.shuffle != Shuffle::Off).then_some(config.seed),
            strided,
            last_epoch: config.epochs.map(|epochs| start.epoch.saturating_add(epochs)),
            at: start,
            window: Window::default(),
            batch: RowBatch::default(),
            is_ready: false,
            is_ended: false,
        };
        windows.check_start()?;
        Ok(Some(windows))
    }

    /// The field that rows are made of, by its number in the schema.
    pub fn field(&self) -> usize {
        self.field
    }

    /// The epoch that the next batch belongs to, or `None` at the end.
    pub fn epoch(&mut self) -> Option<u64> {
        let mut empty_epochs = 0;
        while !self.is_ready && !self.is_ended {
            if self.last_epoch.is_some_and(|last| self.at.epoch >= last) || empty_epochs > EMPTY_EPOCHS_MAX {
                self.is_ended = true;
            } else if self.fill() {
                self.is_ready = true;
            } else {
                empty_epochs += 1;
                self.at = Cursor::new(self.at.epoch.saturating_add(1), 0);
            }
        }
        self.is_ready.then_some(self.batch.cursor.epoch)
    }

    /// Puts the next batch of this rank into `batch`, whatever that held; false at the end.
    pub fn next(&mut self, batch: &mut RowBatch) -> bool {
        if self.epoch().is_none() {
            return false;
        }
        std::mem::swap(batch, &mut self.batch);
        self.at = batch.next;
        self.is_ready = false;
        // Rows at the end of an epoch that will be dropped are passed with the batch before them, so that what is saved
        // behind an epoch's last batch begins with the next epoch.
        if self.strided.drop_last() && batch.next.epoch == batch.cursor.epoch {
            self.is_ready = self.fill();
            if !self.is_ready {
                self.at = Cursor::new(batch.cursor.epoch.saturating_add(1), 0);
                batch.next = self.at;
            }
        }
        true
    }

    /// Most samples that a batch can have (pieces count each), and most bytes of them that are read.
    pub fn largest_batch(&self) -> (u64, u64) {
        let is_plain = self.dataset.plain_field() == Some(self.field);
        let element_bytes = self.dataset.schema().fields[self.field].dtype.size();
        match &self.maker {
            Maker::Pack(packer) => {
                let pieces = self.batch_rows.saturating_mul(packer.pieces_max());
                let bytes = if is_plain {
                    self.batch_rows.saturating_mul(packer.seq_len()).saturating_mul(element_bytes)
                } else {
                    // A sample is read whole for each of its pieces. Those that are the rest of a cut sample, or all
                    // of it, are of different samples; others fill a row or, with `Concat`, begin or end it.
                    let cut = self.dataset.largest(1).saturating_mul(self.batch_rows.saturating_mul(2));
                    self.dataset.largest(pieces).saturating_add(cut)
                };
                (pieces, bytes)
            }
            Maker::Bucket(bucketer) => {
                let sizes = bucketer.batch_sizes();
                let samples = sizes.iter().copied().max().unwrap_or(0);
                if !is_plain {
                    return (samples, self.dataset.largest(samples));
                }
                let last = self.dataset.largest(sizes.last().copied().unwrap_or(0));
                let of_bucket =
                    |(&size, &boundary): (&u64, &u64)| size.saturating_mul(boundary - 1).saturating_mul(element_bytes);
                let others = sizes.iter().zip(bucketer.boundaries()).map(of_bucket).max().unwrap_or(0);
                // Where no batch of a bucket can be full, the whole dataset is the bound.
                (samples, last.max(others.min(self.dataset.bytes())))
            }
        }
    }

    /// Refuses a cursor that lies behind the rows of its window.
    fn check_start(&mut self) -> Result<()> {
        if self.at.rows == 0 {
            return Ok(());
        }
        if self.at.position < self.sampler.len_of(self.at.epoch) {
            self.make(self.at.epoch, self.at.position);
        }
        let rows = self.window.rows.len();
        if self.at.rows > rows as u64 {
            let Cursor { position, rows: passed, .. } = self.at;
            let doing = format!("cannot start behind row {passed} of the window at position {position}: it has {rows}");
            return Err(Error::new(ErrorKind::InvalidArgument, doing)
                .with_remedy("the cursor belongs to another dataset, order, window or way of packing"));
        }
        Ok(())
    }

    /// Makes the next batch of the epoch ready; false where the epoch has none any more.
    fn fill(&mut self) -> bool {
        let (rank, world_size) = (self.strided.rank(), self.strided.world_size());
        let start = self.at;
        let len = self.sampler.len_of(start.epoch);
        // `Strided` has seen that it fits.
        let global_rows = self.batch_rows * world_size;
        let mut at = start;
        let mut passed = 0;
        self.batch.clear();
        while passed < global_rows && at.position < len {
            self.make(at.epoch, at.position);
            let rows = self.window.rows.len() as u64;
            let taken = rows.saturating_sub(at.rows).min(global_rows - passed);
            // The first of them whose number in the batch is this rank's.
            let turn = passed % world_size;
            let mut row = if rank >= turn { rank - turn } else { world_size - (turn - rank) };
            while row < taken {
                self.push(at.rows + row, false);
                row = row.saturating_add(world_size);
            }
            passed += taken;
            at.rows += taken;
            if at.rows >= rows {
                at = Cursor::new(at.epoch, self.window.end());
            }
        }
        if passed == 0 || (passed < global_rows && self.strided.drop_last()) {
            return false;
        }
        // Of the last turn this rank may have no row.
        let place = (passed.div_ceil(world_size) - 1).saturating_mul(world_size).saturating_add(rank);
        if place >= passed {
            self.push_again(start, (place - passed) % passed);
        }
        self.batch.cursor = start;
        self.batch.next = if at.position < len { at } else { Cursor::new(at.epoch.saturating_add(1), 0) };
        true
    }

    /// Adds row `row`, counted from `start` on, as padding.
    fn push_again(&mut self, start: Cursor, row: u64) {
        let mut at = start;
        let mut left = row;
        loop {
            self.make(at.epoch, at.position);
            let rows = (self.window.rows.len() as u64).saturating_sub(at.rows);
            if left < rows {
                return self.push(at.rows + left, true);
            }
            left -= rows;
            at = Cursor::new(at.epoch, self.window.end());
        }
    }

    /// Adds a row of the window to the batch.
    fn push(&mut self, row: u64, padding: bool) {
        let Window { start, ids, rows, .. } = &self.window;
        let first = start.map_or(0, |(_, position)| position);
        let is_packed = matches!(self.maker, Maker::Pack(_));
        for piece in rows.row(row as usize) {
            self.batch.positions.push(Position { position: first + u64::from(piece.index), padding });
            self.batch.ids.push(ids[piece.index as usize]);
            if is_packed {
                self.batch.pieces.push(piece.piece);
            }
        }
        if is_packed {
            self.batch.row_ends.push(self.batch.ids.len() as u32);
        }
    }

    /// Makes the window that begins at `position`, which is before the epoch's end, unless it is there already.
    fn make(&mut self, epoch: u64, position: u64) {
        if self.window.start == Some((epoch, position)) {
            return;
        }
        let Window { start, ids, lengths, rows } = &mut self.window;
        *start = Some((epoch, position));
        let end = self.sampler.len_of(epoch).min(position.saturating_add(self.samples));
        ids.clear();
        ids.extend((position..end).map(|position| self.sampler.at(Cursor::new(epoch, position))));
        lengths.clear();
        // That the index tells all lengths is the dataset's promise, which was tried at `new`.
        lengths.extend(ids.iter().map(|&id| self.dataset.length(id, self.field).unwrap_or(0)));
        let mut random = self.seed.map(|seed| window_rng(seed, epoch, position));
        let random = random.as_mut().map(|random| random as &mut dyn Rng);
        match &mut self.maker {
            Maker::Pack(packer) => {
                let pieces_max = self.samples * PIECES_EACH;
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
                // It comes last, so the rows before it are the same whether it is there or not.
                if has_rest && self.strided.drop_last() {
                    rows.pop();
                }
            }
        }
    }
}

/// The field that rows are made of, by its number in the schema: the first whose values differ in length, else the
/// one that can be read in parts. `None` where there is neither.
pub fn row_field(dataset: &dyn Dataset) -> Option<usize> {
    let ragged = dataset.schema().fields.iter().position(|field| field.shape == Shape::Ragged);
    ragged.or(dataset.plain_field())
}

/// The field that rows are made of, whose lengths the index tells.
fn known_field(dataset: &dyn Dataset) -> Result<usize> {
    let Some(field) = row_field(dataset) else {
        let doing = "there is nothing to pack or to put into buckets: no column has values of different lengths";
        return Err(Error::new(ErrorKind::InvalidArgument, doing).with_remedy("batch samples"));
    };
    let ends = [SampleId(0), SampleId(dataset.len().saturating_sub(1))];
    if !dataset.is_empty() && ends.iter().any(|&id| dataset.length(id, field).is_none()) {
        let name = &dataset.schema().fields[field].name;
        let doing = format!(
            "samples cannot be packed or put into buckets by column {name:?}: only reading tells how long its values \
             are"
        );
        let remedy = "batch samples, or store the dataset in a format whose index tells lengths";
        return Err(Error::new(ErrorKind::InvalidArgument, doing).with_remedy(remedy));
    }
    Ok(field)
}

/// Refuses samples that would be cut into so many pieces that one of them alone is too much for a window.
fn refuse_longer(dataset: &dyn Dataset, field: usize, seq_len: u64) -> Result<()> {
    let element_bytes = dataset.schema().fields[field].dtype.size();
    let is_too_many = |bytes: u64| bytes / element_bytes / seq_len > SAMPLE_PIECES_MAX;
    // Where all samples together are not too long none is, and finding the longest can take a look at each.
    if is_too_many(dataset.bytes()) && is_too_many(dataset.largest(1)) {
        let elements = dataset.largest(1) / element_bytes;
        let doing = format!(
            "a sample has up to {elements} elements, which are more than {SAMPLE_PIECES_MAX} rows of {seq_len}"
        );
        let remedy = "give a longer seq_len, or store it as several samples";
        return Err(Error::new(ErrorKind::InvalidArgument, doing).with_remedy(remedy));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
