//! Turns parsed samples into columns. Values that must lie end to end but do not are copied once, into the block that
//! the plan reserved. If values are assembled elsewhere, nothing is copied here.

use super::{Column, Data, Deferred, Made, Packed, Segment, range};
use crate::collate::{COLUMN_ALIGNMENT, Collation, Form, INDEX_COLUMN, KEY_COLUMN, Pad, Padded};
use crate::dataset::{DType, Dataset, Field, SampleId, Schema, Shape, Value};
use crate::guard;
use crate::pool::Pool;
use crate::resident::Resident;
use bytes::Bytes;
use std::ops::Range;
use uringload_sys::{Part, copy};

/// The samples of one batch.
pub(crate) struct Samples<'a> {
    pub(crate) schema: &'a Schema,
    /// One value per schema field for each planned sample, in order.
    pub(crate) values: &'a mut [Value],
    /// Indices of the planned samples that are in the batch, ascending.
    pub(crate) good: &'a [u32],
    /// End of each row's planned samples. Empty if nothing is packed.
    pub(crate) row_ends: &'a [u32],
    /// The memory that values may be in.
    pub(crate) blocks: &'a [Bytes],
    /// The results of the loader's threads for some columns, at the beginning of the memory for gathered values.
    pub(crate) made: &'a mut Made,
}

impl Samples<'_> {
    /// Builds the columns, and counts the truncated values. `target` is the memory reserved for gathered values.
    /// Whatever does not fit there is gathered on the heap: a replacement sample may be longer than the planned one.
    /// Values that should lie end to end in `blocks` are gathered on the heap as well if a failed sample between them
    /// left a hole.
    pub(crate) fn into_columns(
        mut self,
        collation: &Collation,
        target: Option<Part>,
        pool: &Pool,
    ) -> (Vec<Column>, u64) {
        let end = self.made.end();
        let mut target = Target { part: target, end, taken: Vec::new(), deferred: None };
        let (columns, cut) = self.collate(collation, &mut target);
        (target.lease(pool, columns), cut)
    }

    /// Builds the columns without their values. Also returns the pieces of each column with the memory that they are
    /// slices of, and the number of truncated values. The results of the loader's threads are in `target`.
    pub(crate) fn into_pieces(
        mut self,
        collation: &Collation,
        target: Option<Part>,
        pool: &Pool,
    ) -> (Vec<Column>, Deferred, u64) {
        let none = self.schema.fields.iter().map(|_| None).collect();
        let mut blocks = self.blocks.to_vec();
        let mut target = Target { part: target, end: 0, taken: Vec::new(), deferred: Some(none) };
        let (columns, cut) = self.collate(collation, &mut target);
        let end = self.made.end();
        let block = target.part.take().map(|part| pool.lease(part).slice(..end));
        let mut pieces = target.deferred.take().unwrap_or_default();
        for (index, range) in std::mem::take(&mut target.taken) {
            let whole = block.as_ref().map_or_else(Bytes::new, |block| block.slice(range));
            let residents = self.made.take_residents(mapped(index, collation), self.good);
            pieces[index] = Some(Pieces { residents, ..Pieces::made(whole, &columns[index], self.good.len()) });
        }
        blocks.extend(block);
        (columns, Deferred { blocks, columns: pieces, in_use: None }, cut)
    }

    fn collate(&mut self, collation: &Collation, target: &mut Target) -> (Vec<Column>, u64) {
        let mut columns = Vec::with_capacity(self.schema.fields.len() + 2);
        let mut cut = 0;
        for (index, (field, &form)) in self.schema.fields.iter().zip(collation.forms()).enumerate() {
            let is_made = matches!(form, Form::Mapped { .. });
            let data = if !is_made && self.is_integers(index) {
                Data::I64(self.numbers(index))
            } else {
                match form {
                    Form::Views => Data::Views(self.take_views(index)),
                    Form::Dense { .. } => self.dense(index, field, target),
                    Form::Ragged { element_bytes } => self.ragged(index, field, element_bytes, target),
                    Form::Padded(padded) => self.padded(index, padded, target, &mut cut),
                    Form::Packed { seq_len, pad } => self.packed(index, seq_len, pad, target, &mut cut),
                    Form::Mapped { .. } => self.made(index, collation, target),
                }
            };
            let dtype = collation.made_of(index, field).dtype;
            columns.push(Column { name: field.name.clone(), dtype, data });
        }
        (columns, cut)
    }

    fn value(&self, sample: u32, field: usize) -> &Value {
        &self.values[sample as usize * self.schema.fields.len() + field]
    }

    /// The bytes of each good sample's value.
    fn slices(&self, field: usize) -> impl ExactSizeIterator<Item = &Bytes> + Clone {
        self.good.iter().map(move |&sample| bytes_in(self.value(sample, field)))
    }

    /// Whether a column's values come from the index. If there are none, goes by the schema.
    fn is_integers(&self, field: usize) -> bool {
        let Field { dtype, shape, .. } = &self.schema.fields[field];
        match self.good.first() {
            Some(&sample) => matches!(self.value(sample, field), Value::I64(_)),
            None => *dtype == DType::I64 && matches!(shape, Shape::Fixed(shape) if shape.is_empty()),
        }
    }

    fn numbers(&self, field: usize) -> Vec<i64> {
        let number = |&sample| match self.value(sample, field) {
            Value::I64(number) => *number,
            // All values of a column are of one kind. Parsing has checked that.
            Value::Bytes(_) => 0,
        };
        self.good.iter().map(number).collect()
    }

    fn take_views(&mut self, field: usize) -> Vec<Bytes> {
        let width = self.schema.fields.len();
        let take = |&sample: &u32| match &mut self.values[sample as usize * width + field] {
            Value::Bytes(bytes) => std::mem::take(bytes),
            Value::I64(_) => Bytes::new(),
        };
        self.good.iter().map(take).collect()
    }

    fn dense(&self, index: usize, field: &Field, target: &mut Target) -> Data {
        let shape = match &field.shape {
            Shape::Fixed(shape) => shape.clone(),
            Shape::Ragged => Vec::new(),
        };
        Data::Dense { shape, bytes: self.end_to_end(index, field, target) }
    }

    /// The results of the loader's threads for a column.
    fn made(&self, index: usize, collation: &Collation, target: &mut Target) -> Data {
        let column = mapped(index, collation);
        let field = &collation.mapped_fields()[column].1;
        let (range, ends) = match &mut target.part {
            Some(part) => self.made.compact(column, part.as_mut(), self.good),
            None => (0..0, vec![0; self.good.len()]),
        };
        target.taken.push((index, range));
        match &field.shape {
            Shape::Fixed(shape) => Data::Dense { shape: shape.clone(), bytes: Bytes::new() },
            Shape::Ragged => {
                let ends = ends.iter().map(|end| end / field.dtype.size());
                Data::Ragged { values: Bytes::new(), offsets: std::iter::once(0).chain(ends).collect() }
            }
        }
    }

    fn ragged(&self, index: usize, field: &Field, element_bytes: u64, target: &mut Target) -> Data {
        let mut offsets = Vec::with_capacity(self.good.len() + 1);
        let mut end = 0;
        offsets.push(end);
        for slice in self.slices(index) {
            end += slice.len() as u64 / element_bytes;
            offsets.push(end);
        }
        Data::Ragged { values: self.end_to_end(index, field, target), offsets }
    }

    /// All values of a column, made adjacent. Copies nothing if they already are.
    fn end_to_end(&self, index: usize, field: &Field, target: &mut Target) -> Bytes {
        if target.deferred.is_none()
            && let Some(bytes) = end_to_end(self.slices(index), self.blocks)
            && bytes.as_ptr().addr().is_multiple_of(field.dtype.size() as usize)
        {
            return bytes;
        }
        let len = self.slices(index).map(Bytes::len).sum();
        let mut end = 0;
        let pieces = self.slices(index).map(move |slice| {
            end += slice.len();
            (end - slice.len(), slice, slice.len())
        });
        target.gather(index, len, pieces, None)
    }

    fn padded(&self, index: usize, padded: Padded, target: &mut Target, cut: &mut u64) -> Data {
        let size = padded.pad.size();
        let mut lengths = Vec::with_capacity(self.good.len());
        for slice in self.slices(index) {
            let length = slice.len() as u64 / size;
            *cut += u64::from(length > padded.max_length);
            lengths.push(length.min(padded.max_length));
        }
        let length = padded.length(lengths.iter().copied().max().unwrap_or(0));
        let row_bytes = (length * size) as usize;
        let rows = self.slices(index).zip(&lengths).enumerate();
        let pieces = rows.map(|(row, (slice, &length))| (row * row_bytes, slice, (length * size) as usize));
        let values = target.gather(index, self.good.len() * row_bytes, pieces, Some(padded.pad));
        Data::Padded { length, values, lengths }
    }

    fn packed(&self, index: usize, seq_len: u64, pad: Pad, target: &mut Target, cut: &mut u64) -> Data {
        let size = pad.size();
        let rows = self.row_ends.len();
        let mut segments: Vec<Segment> = Vec::with_capacity(self.good.len());
        let (mut row, mut filled) = (0, 0);
        for (sample, (&planned, slice)) in self.good.iter().zip(self.slices(index)).enumerate() {
            while self.row_ends.get(row).is_some_and(|&end| end <= planned) {
                (row, filled) = (row + 1, 0);
            }
            let length = slice.len() as u64 / size;
            // A replacement for a shorter sample may not fit entirely.
            let len = if row < rows { length.min(seq_len - filled) } else { 0 };
            *cut += u64::from(len < length);
            segments.push(Segment { row: row as u64, start: filled, len, sample });
            filled += len;
        }
        let place = |segment: &Segment| range((segment.row * seq_len + segment.start) * size, segment.len * size);
        let pieces = segments.iter().zip(self.slices(index)).map(|(segment, slice)| {
            let place = place(segment);
            (place.start, slice, place.len())
        });
        let values = target.gather(index, rows * (seq_len * size) as usize, pieces, Some(pad));
        Data::Packed(Packed { rows: rows as u64, seq_len, values, segments })
    }
}

/// The pieces of a column's values, to be assembled elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Pieces {
    /// Bytes of the column.
    pub(crate) len: usize,
    /// Start of each piece in the column, ascending, and the piece. Pieces do not overlap.
    pub(crate) pieces: Vec<(usize, Bytes)>,
    /// Fills the gaps between pieces. If there is none, the pieces cover everything.
    pub(crate) pad: Option<Pad>,
    /// The final column, if the loader's threads made it.
    pub(crate) whole: Option<Bytes>,
    /// Pieces by number, ascending, that are on a GPU: their bytes here are meaningless.
    pub(crate) residents: Vec<(usize, Resident)>,
}

impl Pieces {
    /// The values of a column that is in `whole`.
    fn made(whole: Bytes, column: &Column, samples: usize) -> Pieces {
        let size = column.dtype.size() as usize;
        let ends: Vec<usize> = match &column.data {
            Data::Ragged { offsets, .. } => offsets.iter().skip(1).map(|&end| end as usize * size).collect(),
            _ => (1..=samples).map(|count| whole.len() / samples * count).collect(),
        };
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let places = starts.zip(ends.iter().copied()).filter(|(start, end)| start < end);
        let pieces = places.map(|(start, end)| (start, whole.slice(start..end))).collect();
        Pieces { len: whole.len(), pieces, pad: None, whole: Some(whole), residents: Vec::new() }
    }

    /// Assembles the values, on the heap unless they are together.
    pub(crate) fn collect(&self) -> Bytes {
        if let Some(whole) = &self.whole {
            return whole.clone();
        }
        let mut to = vec![0; self.len];
        write(&mut to, self.pieces.iter().map(|(at, piece)| (*at, piece, piece.len())), self.pad);
        Bytes::from(to)
    }
}

/// The block that columns are gathered into, one after another.
struct Target {
    part: Option<Part>,
    /// Bytes used so far.
    end: usize,
    /// The used range of each column.
    taken: Vec<(usize, Range<usize>)>,
    /// The pieces by column, if nothing is gathered here.
    deferred: Option<Vec<Option<Pieces>>>,
}

impl Target {
    /// Gathers `len` bytes: each piece's first bytes at its place, and `pad` everywhere else. They go into the block,
    /// and `lease` assigns them to the column; if the block has no room, they go to the heap.
    fn gather<'a>(
        &mut self,
        column: usize,
        len: usize,
        pieces: impl Iterator<Item = (usize, &'a Bytes, usize)> + Clone,
        pad: Option<Pad>,
    ) -> Bytes {
        if let Some(deferred) = &mut self.deferred {
            let pieces = pieces.filter(|&(_, _, len)| len > 0).map(|(at, piece, len)| (at, piece.slice(..len)));
            deferred[column] = Some(Pieces { len, pieces: pieces.collect(), pad, whole: None, residents: Vec::new() });
            return Bytes::new();
        }
        if len == 0 {
            return Bytes::new();
        }
        let start = self.end.next_multiple_of(COLUMN_ALIGNMENT as usize);
        let room = self.part.as_mut().and_then(|part| part.as_mut().get_mut(start..start + len));
        if let Some(to) = room {
            write(to, pieces, pad);
            self.end = start + len;
            self.taken.push((column, start..self.end));
            return Bytes::new();
        }
        let mut buffer = vec![0; len];
        write(&mut buffer, pieces, pad);
        Bytes::from(buffer)
    }

    /// Shares the block among the columns in it. If there are none, the block returns to the pool.
    fn lease(self, pool: &Pool, mut columns: Vec<Column>) -> Vec<Column> {
        let Some(part) = self.part else { return columns };
        let block = pool.lease(part);
        for (column, range) in self.taken {
            match &mut columns[column].data {
                Data::Dense { bytes, .. } => *bytes = block.slice(range),
                Data::Ragged { values, .. } | Data::Padded { values, .. } => *values = block.slice(range),
                Data::Packed(packed) => packed.values = block.slice(range),
                Data::Views(_) | Data::I64(_) => {}
            }
        }
        columns
    }
}

/// Copies each piece to its place and pads the gaps.
fn write<'a>(to: &mut [u8], pieces: impl Iterator<Item = (usize, &'a Bytes, usize)> + Clone, pad: Option<Pad>) {
    copy::gather(to, pieces.clone().map(|(at, piece, len)| (at, &piece[..len])));
    let Some(pad) = pad else { return };
    let mut end = 0;
    for (at, _, len) in pieces {
        pad.fill(&mut to[end..at]);
        end = at + len;
    }
    pad.fill(&mut to[end..]);
}

/// The only column of a batch, whose values lie end to end in `bytes`.
pub(crate) fn whole_column(schema: &Schema, bytes: Bytes) -> Column {
    let Field { name, dtype, shape } = &schema.fields[0];
    let shape = match shape {
        Shape::Fixed(shape) => shape.clone(),
        Shape::Ragged => Vec::new(),
    };
    Column { name: name.clone(), dtype: *dtype, data: Data::Dense { shape, bytes } }
}

/// The keys of the samples, as views of one buffer.
pub(crate) fn key_column(dataset: &dyn Dataset, ids: &[SampleId]) -> Column {
    let mut keys = Vec::new();
    let mut ends = Vec::with_capacity(ids.len());
    for &id in ids {
        guard::named(dataset, "key", || dataset.key(id, &mut keys));
        if ends.is_empty() {
            // The keys of a dataset have similar lengths.
            keys.reserve(keys.len() * ids.len());
        }
        ends.push(keys.len());
    }
    let keys = Bytes::from(keys);
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let views = starts.zip(&ends).map(|(start, &end)| keys.slice(start..end)).collect();
    Column { name: KEY_COLUMN.into(), dtype: DType::U8, data: Data::Views(views) }
}

/// The indices of the samples in their dataset.
pub(crate) fn index_column(ids: &[SampleId]) -> Column {
    // `build` refuses this column if the dataset has more samples than an `i64` can number.
    let numbers = ids.iter().map(|id| id.0 as i64).collect();
    Column { name: INDEX_COLUMN.into(), dtype: DType::I64, data: Data::I64(numbers) }
}

/// The index of the field at `index` among the columns that threads make.
fn mapped(index: usize, collation: &Collation) -> usize {
    collation.mapped_fields().iter().position(|(field, _)| *field == index).unwrap_or_default()
}

static NOTHING: Bytes = Bytes::new();

fn bytes_in(value: &Value) -> &Bytes {
    match value {
        Value::Bytes(bytes) => bytes,
        Value::I64(_) => &NOTHING,
    }
}

/// The single slice that `slices` cover, in order and without gaps. Empty slices may be anywhere.
fn end_to_end<'a>(slices: impl Iterator<Item = &'a Bytes>, blocks: &[Bytes]) -> Option<Bytes> {
    let mut slices = slices.filter(|slice| !slice.is_empty());
    let Some(first) = slices.next() else { return Some(Bytes::new()) };
    let start = first.as_ptr().addr();
    let mut end = start + first.len();
    for slice in slices {
        if slice.as_ptr().addr() != end {
            return None;
        }
        end += slice.len();
    }
    let holds = |block: &&Bytes| block.as_ptr().addr() <= start && end <= block.as_ptr().addr() + block.len();
    let block = blocks.iter().find(holds)?;
    let offset = start - block.as_ptr().addr();
    Some(block.slice(offset..offset + (end - start)))
}
