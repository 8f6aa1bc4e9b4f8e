//! Plans one batch on its way to a device: which bytes go where, and how they are processed there. Only address
//! arithmetic; the lane does the copies and launches.

use super::batch::DeviceForm;
use super::transforms::{Transforms, image_shape};
use crate::batch::{Batch, Column, Data, Deferred, Pieces};
use crate::collate::Pad;
use crate::dataset::DType;
use crate::pool::{BLOCK_ALIGNMENT, Pool};
use crate::resident::Resident;
use crate::transform::twin::ImageLayout;
use bytes::Bytes;
use std::ops::Range;
use uringload_sys::Part;
use uringload_sys::cuda::{CudaError, Fill, Images, Kernels, Piece, Row, Span, Stream, Tokens, Uploaded};

/// Where a block of host memory is on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    /// Host address of its first byte.
    pub(super) host: usize,
    /// Length in bytes.
    pub(super) len: usize,
    /// Device address of its first byte.
    pub(super) device: u64,
}

/// The placed blocks, to look up the location of a piece.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<Placed>);

impl Places {
    pub(super) fn new(mut placed: Vec<Placed>) -> Places {
        placed.sort_unstable_by_key(|placed| placed.host);
        Places(placed)
    }

    /// The device address of the bytes, or `None` if they are in none of the blocks.
    pub(super) fn find(&self, bytes: &Bytes) -> Option<u64> {
        let start = bytes.as_ptr().addr();
        let index = self.0.partition_point(|placed| placed.host <= start).checked_sub(1)?;
        let Placed { host, len, device } = self.0[index];
        (start + bytes.len() <= host + len).then(|| device + (start - host) as u64)
    }
}

/// The work for one column.
#[derive(Debug)]
pub(super) enum Work {
    /// It stays on the host.
    Stay,
    /// Its integers are among the staged bytes and need no work.
    Integers(Range<usize>),
    /// Its values are together on the host, and are copied as they are.
    Whole(Bytes),
    /// Its pieces are copied from the host straight to their places.
    Straight { len: usize },
    /// Its pieces are copied to their places, after filling the gaps they leave.
    Gather { table: Range<usize>, len: usize, fill: Option<Fill> },
    /// Its rows are padded to one length.
    Pad { table: Range<usize>, len: usize, row_bytes: u64, fill: Fill },
    /// Its images become a tensor.
    Images { table: Range<usize>, len: usize, images: Images, layout: ImageLayout },
    /// Its tokens become ids and, under another name, labels.
    Tokens { table: Range<usize>, len: usize, tokens: Tokens, labels: Option<String> },
}

impl Work {
    /// Length in bytes of each column that it makes.
    pub(super) fn lengths(&self) -> impl Iterator<Item = usize> {
        let (first, second) = match self {
            Work::Stay => (None, None),
            Work::Integers(range) => (Some(range.len()), None),
            Work::Whole(bytes) => (Some(bytes.len()), None),
            Work::Straight { len } => (Some(*len), None),
            Work::Gather { len, .. } | Work::Pad { len, .. } | Work::Images { len, .. } => (Some(*len), None),
            Work::Tokens { len, labels, .. } => (Some(*len), labels.as_ref().map(|_| *len)),
        };
        first.into_iter().chain(second)
    }

    /// Whether its pieces go straight from the host.
    pub(super) fn is_straight(&self) -> bool {
        matches!(self, Work::Straight { .. })
    }

    /// Starts the kernels that make the columns `to` from the data in `from`.
    pub(super) fn launch(
        &self,
        kernels: &Kernels,
        stream: &Stream,
        table: &Uploaded,
        from: &Span,
        to: &[Span],
    ) -> Result<(), CudaError> {
        match (self, to) {
            (Work::Gather { table: rows, fill, .. }, [to]) => {
                if let Some(fill) = fill {
                    kernels.fill(stream, to, *fill)?;
                }
                kernels.gather(stream, (table, rows.clone()), from, to)
            }
            (Work::Pad { table: rows, row_bytes, fill, .. }, [to]) => {
                kernels.pad(stream, (table, rows.clone()), from, to, (*row_bytes, *fill))
            }
            (Work::Images { table: rows, images, .. }, [to]) => {
                kernels.images(stream, (table, rows.clone()), from, to, images)
            }
            (Work::Tokens { table: rows, tokens, .. }, [ids, labels @ ..]) => {
                kernels.tokens(stream, (table, rows.clone()), from, (ids, labels.first()), *tokens)
            }
            _ => Ok(()),
        }
    }

    /// Name, type and form of each column that it makes from `column`, whose form is `form`.
    pub(super) fn outputs(&self, column: &Column, form: DeviceForm) -> Vec<(String, DType, DeviceForm)> {
        let name = column.name.clone();
        match self {
            Work::Images { layout, .. } => {
                vec![(name, layout.dtype, DeviceForm::Dense { shape: image_shape(layout) })]
            }
            Work::Tokens { tokens, labels, .. } => {
                let names = std::iter::once(name).chain(labels.clone());
                let form = || DeviceForm::Dense { shape: vec![tokens.seq_len] };
                names.map(|name| (name, DType::I64, form())).collect()
            }
            _ => vec![(name, column.dtype, form)],
        }
    }
}

/// Bytes that go to the device besides the blocks: tables, integers, and values that are in no block.
#[derive(Debug)]
pub(super) struct Staged {
    memory: Memory,
    end: usize,
    /// The part, once it became too small.
    outgrown: Option<Part>,
}

/// Where staged bytes are put together.
#[derive(Debug)]
enum Memory {
    /// Pinned memory.
    Part(Part),
    /// Memory of any length.
    Heap(Vec<u8>),
}

/// Alignment within the staged bytes, for vector loads.
const STAGED_ALIGNMENT: usize = 16;

impl Staged {
    /// Starts empty, with room in `part`. If that is not enough, everything moves to the heap.
    pub(super) fn new(part: Part) -> Staged {
        Staged { memory: Memory::Part(part), end: 0, outgrown: None }
    }

    /// Aligns the end and returns it: the next bytes begin there.
    pub(super) fn align(&mut self) -> usize {
        let aligned = self.end.next_multiple_of(STAGED_ALIGNMENT);
        self.append(&[0; STAGED_ALIGNMENT][..aligned - self.end]);
        aligned
    }

    /// Where the last bytes end.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        let end = self.end + bytes.len();
        match &mut self.memory {
            Memory::Part(part) if end <= part.len() => part.as_mut()[self.end..end].copy_from_slice(bytes),
            Memory::Part(part) => {
                // Longer than expected: a replacement sample, or a decoded value.
                let heap = [&part.as_ref()[..self.end], bytes].concat();
                if let Memory::Part(part) = std::mem::replace(&mut self.memory, Memory::Heap(heap)) {
                    self.outgrown = Some(part);
                }
            }
            Memory::Heap(heap) => heap.extend_from_slice(bytes),
        }
        self.end = end;
    }

    /// Returns all staged bytes, and gives the unused memory of the part back.
    pub(super) fn finish(self, pool: &mut Pool) -> Bytes {
        self.outgrown.into_iter().for_each(|part| pool.give(part));
        match self.memory {
            Memory::Part(mut part) => {
                pool.give(part.split_off(self.end.next_multiple_of(BLOCK_ALIGNMENT).min(part.len())));
                pool.lease(part).slice(..self.end)
            }
            Memory::Heap(heap) => Bytes::from(heap),
        }
    }

    fn push(&mut self, bytes: &[u8]) -> usize {
        let at = self.align();
        self.append(bytes);
        at
    }
}

/// The pieces of a column, each with its device address.
pub(super) struct Addressed<'a> {
    pub(super) pieces: &'a Pieces,
    pub(super) addresses: Vec<u64>,
}

impl<'a> Addressed<'a> {
    /// Finds each piece, or stages it. `base` is where the staged bytes will begin on the device.
    pub(super) fn new(pieces: &'a Pieces, places: &Places, staged: &mut Staged, base: u64) -> Addressed<'a> {
        let find = |(_, bytes): &(usize, Bytes)| places.find(bytes).unwrap_or_else(|| base + staged.push(bytes) as u64);
        let addresses = pieces.pieces.iter().map(find).collect();
        Addressed { pieces, addresses }
    }

    /// The values as rows with the given byte lengths. A row without bytes has no piece.
    pub(super) fn values(&self, lengths: impl Iterator<Item = usize>) -> impl Iterator<Item = Row> {
        let mut pieces = self.pieces.pieces.iter().zip(&self.addresses);
        lengths.map(move |len| {
            let piece = if len == 0 { None } else { pieces.next() };
            piece.map_or(Row { source: 0, len: 0 }, |((_, bytes), &source)| Row { source, len: bytes.len() as u64 })
        })
    }
}

/// The work for one column whose pieces have known addresses.
pub(super) fn plain(column: &Column, addressed: &Addressed<'_>, staged: &mut Staged) -> Work {
    let Pieces { len, pad, .. } = *addressed.pieces;
    if let (Data::Padded { length, lengths, .. }, Some(pad)) = (&column.data, pad) {
        let row_bytes = length * pad.size();
        let start = staged.align();
        let lengths = lengths.iter().map(|&length| (length * pad.size()) as usize);
        addressed.values(lengths).for_each(|row| staged.append(&row.encode()));
        return Work::Pad { table: start..staged.end(), len, row_bytes, fill: fill(pad) };
    }
    let start = staged.align();
    let mut covered = 0;
    for ((target, bytes), &source) in addressed.pieces.pieces.iter().zip(&addressed.addresses) {
        let (target, len) = (*target as u64, bytes.len() as u64);
        staged.append(&Piece { source, target, len }.encode());
        covered += bytes.len();
    }
    let fill = pad.filter(|_| covered < len).map(fill);
    Work::Gather { table: start..staged.end(), len, fill }
}

/// Stages the integers of a column.
pub(super) fn integers(values: &[i64], staged: &mut Staged) -> Work {
    let start = staged.align();
    values.iter().for_each(|value| staged.append(&value.to_le_bytes()));
    Work::Integers(start..staged.end())
}

fn fill(pad: Pad) -> Fill {
    Fill { pattern: pad.bits(), size: pad.size() as u32 }
}

/// The values of a block that kernels need.
pub(super) struct Parts {
    /// Those that are on the device, each with its offset in the block.
    pub(super) residents: Vec<(Resident, usize)>,
    /// The others, those that lie together as one piece.
    pub(super) others: Vec<(Bytes, usize)>,
}

/// The values of `block` that kernels need.
pub(super) fn parts(block: &Bytes, deferred: &Deferred, transforms: &Transforms) -> Parts {
    let (start, mut parts) = (block.as_ptr().addr(), Parts { residents: Vec::new(), others: Vec::new() });
    for (index, pieces) in deferred.columns.iter().enumerate() {
        let Some(pieces) = pieces.as_ref().filter(|_| transforms.kernel(index).is_some()) else { continue };
        let mut residents = pieces.residents.iter().peekable();
        let mut open: Option<Range<usize>> = None;
        for (number, (_, bytes)) in pieces.pieces.iter().enumerate() {
            let Some(at) = bytes.as_ptr().addr().checked_sub(start).filter(|at| at + bytes.len() <= block.len()) else {
                continue;
            };
            if let Some((_, resident)) = residents.next_if(|(resident, _)| *resident == number) {
                parts.residents.push((resident.clone(), at));
                continue;
            }
            open = Some(match open {
                Some(open) if open.end == at => open.start..at + bytes.len(),
                before => {
                    parts.others.extend(before.map(|open| (block.slice(open.clone()), open.start)));
                    at..at + bytes.len()
                }
            });
        }
        parts.others.extend(open.map(|open| (block.slice(open.clone()), open.start)));
    }
    parts
}

/// The blocks of the batch that contain a piece of a column that kernels bring together.
pub(super) fn blocks_in_use(batch: &Batch, deferred: &Deferred, transforms: &Transforms) -> Vec<Bytes> {
    let places = |(index, block): (usize, &Bytes)| Placed {
        host: block.as_ptr().addr(),
        len: block.len(),
        device: index as u64,
    };
    let mut sorted: Vec<Placed> = deferred.blocks.iter().enumerate().map(places).collect();
    sorted.sort_unstable_by_key(|placed| placed.host);
    let mut used = vec![false; deferred.blocks.len()];
    debug_assert!(deferred.columns.len() <= batch.columns.len());
    let by_kernel = |(index, pieces): (usize, &'_ Option<Pieces>)| {
        pieces.as_ref().is_some_and(|pieces| pieces.whole.is_none() || transforms.kernel(index).is_some())
    };
    let columns = deferred.columns.iter().enumerate().filter(|&column| by_kernel(column));
    for (_, bytes) in columns.filter_map(|(_, pieces)| pieces.as_ref()).flat_map(|pieces| &pieces.pieces) {
        let start = bytes.as_ptr().addr();
        let index = sorted.partition_point(|placed| placed.host <= start).checked_sub(1);
        if let Some(placed) = index.map(|index| sorted[index]).filter(|placed| start < placed.host + placed.len) {
            used[placed.device as usize] = true;
        }
    }
    deferred.blocks.iter().zip(used).filter(|&(_, used)| used).map(|(block, _)| block.clone()).collect()
}
