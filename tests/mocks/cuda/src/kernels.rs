//! The kernels by name. Parameters are read as their definitions in `sys/kernels` have them, every range that they name
//! must be within existing memory, and the host twins compute.

use crate::abi::{Code, ILLEGAL_ADDRESS, INVALID_VALUE, MISALIGNED_ADDRESS, Parameters};
use crate::memory::Memory;
use crate::order::Actor;
use uringload::dataset::DType;
use uringload::inspect::twin;
use uringload::inspect::twin::{IMAGE_RECORD_BYTES, ImageLayout, ImageParams, PASS_RECORD_BYTES, PassParams};

/// Bytes of `struct Piece` and `struct Row`.
const PIECE_BYTES: usize = 24;
const ROW_BYTES: usize = 16;

/// The kernel that a function handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    Gather,
    Fill,
    Pad,
    TokensU16,
    TokensU32,
    Images(DType),
    Resample,
    Burn,
}

/// A kernel and its arguments.
#[derive(Clone, Copy, Debug)]
pub enum Launch {
    Gather { to: u64, bytes: u64, table: u64, rows: u32 },
    Fill { to: u64, bytes: u64, pattern: u64, size: u32 },
    Pad { to: u64, table: u64, rows: u32, row_bytes: u64, pattern: u64, size: u32 },
    Tokens { ids: u64, labels: u64, table: u64, rows: u32, seq_len: u64, pad_id: i64, ignore: i64, token_bytes: u64 },
    Images { to: u64, table: u64, rows: u32, layout: ImageLayout },
    Resample { to: u64, bytes: u64, table: u64, rows: u32 },
    Burn { floats: u64, count: u64, rounds: u32 },
}

/// A kernel's writes: address and bytes.
type Writes = Vec<(u64, Vec<u8>)>;

/// The computation that remains after all input was read.
pub type Compute = Box<dyn FnOnce() -> Writes + Send>;

impl Kernel {
    /// The kernel with this name.
    pub fn named(name: &str) -> Option<Kernel> {
        Some(match name {
            "ur_gather" => Kernel::Gather,
            "ur_fill" => Kernel::Fill,
            "ur_pad" => Kernel::Pad,
            "ur_tokens_u16" => Kernel::TokensU16,
            "ur_tokens_u32" => Kernel::TokensU32,
            "ur_images_u8" => Kernel::Images(DType::U8),
            "ur_images_f32" => Kernel::Images(DType::F32),
            "ur_images_f16" => Kernel::Images(DType::F16),
            "ur_images_bf16" => Kernel::Images(DType::BF16),
            "ur_resample" => Kernel::Resample,
            "ur_burn" => Kernel::Burn,
            _ => return None,
        })
    }

    /// Reads the parameters of a launch.
    pub fn launch(self, from: &Parameters) -> Result<Launch, Code> {
        let launch = match self {
            Kernel::Gather => {
                Launch::Gather { to: from.get(0)?, bytes: from.get(1)?, table: from.get(2)?, rows: from.get(3)? }
            }
            Kernel::Fill => {
                Launch::Fill { to: from.get(0)?, bytes: from.get(1)?, pattern: from.get(2)?, size: from.get(3)? }
            }
            Kernel::Pad => Launch::Pad {
                to: from.get(0)?,
                table: from.get(1)?,
                rows: from.get(2)?,
                row_bytes: from.get(3)?,
                pattern: from.get(4)?,
                size: from.get(5)?,
            },
            Kernel::TokensU16 | Kernel::TokensU32 => Launch::Tokens {
                ids: from.get(0)?,
                labels: from.get(1)?,
                table: from.get(2)?,
                rows: from.get(3)?,
                seq_len: from.get(4)?,
                pad_id: from.get(5)?,
                ignore: from.get(6)?,
                token_bytes: if self == Kernel::TokensU16 { 2 } else { 4 },
            },
            Kernel::Images(dtype) => {
                let four = |first: usize| {
                    let [a, b, c, d] = [0, 1, 2, 3].map(|channel| from.get::<f32>(first + channel));
                    Ok::<[f32; 4], Code>([a?, b?, c?, d?])
                };
                let channels_last = from.get::<u32>(6)? != 0;
                let (mean, high, low) = (four(7)?, four(11)?, four(15)?);
                // To 48 bits, which tell the number of 24 that it is the inverse of.
                let std = [0, 1, 2, 3].map(|of| (1.0 / (f64::from(high[of]) + f64::from(low[of]))) as f32);
                let (channels, height, width) = (from.get(3)?, from.get(4)?, from.get(5)?);
                let layout = ImageLayout { dtype, channels, height, width, channels_last, mean, std };
                Launch::Images { to: from.get(0)?, table: from.get(1)?, rows: from.get(2)?, layout }
            }
            Kernel::Resample => {
                Launch::Resample { to: from.get(0)?, bytes: from.get(1)?, table: from.get(2)?, rows: from.get(3)? }
            }
            Kernel::Burn => Launch::Burn { floats: from.get(0)?, count: from.get(1)?, rounds: from.get(2)? },
        };
        // No definition says what a kernel does with other values.
        match launch {
            Launch::Fill { size, .. } | Launch::Pad { size, .. } if !matches!(size, 1 | 2 | 4 | 8) => {
                Err(INVALID_VALUE)
            }
            Launch::Images { layout, .. } if !(1..=twin::CHANNELS_MAX).contains(&layout.channels) => Err(INVALID_VALUE),
            launch => Ok(launch),
        }
    }
}

impl Launch {
    /// A name for people.
    pub fn name(&self) -> &'static str {
        match self {
            Launch::Gather { .. } => "ur_gather",
            Launch::Fill { .. } => "ur_fill",
            Launch::Pad { .. } => "ur_pad",
            Launch::Tokens { .. } => "ur_tokens",
            Launch::Images { .. } => "ur_images",
            Launch::Resample { .. } => "ur_resample",
            Launch::Burn { .. } => "ur_burn",
        }
    }

    /// Reads everything that the kernel reads.
    pub fn prepare(&self, memory: &mut Memory, device: usize, actor: &Actor) -> Result<Compute, Code> {
        let mut reader = Reader { memory, device, actor };
        match *self {
            Launch::Gather { to, bytes, table, rows } => {
                let mut writes = Vec::new();
                for piece in reader.table(table, rows, PIECE_BYTES)?.chunks_exact(PIECE_BYTES) {
                    let (source, target, len) = (word(piece, 0), word(piece, 1), word(piece, 2));
                    // Like the kernel, leaves out a piece that does not fit.
                    if target.checked_add(len).is_some_and(|end| end <= bytes) {
                        writes.push((to + target, reader.read(source, len)?));
                    }
                }
                Ok(Box::new(move || writes))
            }
            Launch::Fill { to, bytes, pattern, size } => {
                Ok(one(to, bytes, 1, move |out| twin::fill(out, pattern, size))?)
            }
            Launch::Pad { to, table, rows, row_bytes, pattern, size } => {
                let sources = reader.rows(table, rows)?;
                let pad = move |out: &mut [u8]| {
                    twin::pad(out, sources.iter().map(Vec::as_slice), row_bytes as usize, pattern, size);
                };
                Ok(one(to, row_bytes, rows, pad)?)
            }
            Launch::Tokens { ids, labels, table, rows, .. } => {
                aligned(ids, 8)?;
                aligned(labels, 8)?;
                let sources = reader.rows(table, rows)?;
                self.tokens(sources)
            }
            Launch::Images { to, table, rows, layout } => {
                aligned(to, layout.dtype.size())?;
                let mut images = Vec::new();
                let records = reader.table(table, rows, IMAGE_RECORD_BYTES)?;
                for record in records.as_chunks::<IMAGE_RECORD_BYTES>().0 {
                    let (source, params) = ImageParams::from_record(record);
                    let pixels = u64::from(params.height).checked_mul(params.width.into()).ok_or(ILLEGAL_ADDRESS)?;
                    let bytes = pixels.checked_mul(layout.channels.into()).ok_or(ILLEGAL_ADDRESS)?;
                    images.push((params, reader.read(source, bytes)?));
                }
                let make = move |out: &mut [u8]| {
                    twin::images(out, images.iter().map(|(params, pixels)| (*params, pixels.as_slice())), &layout);
                };
                Ok(one(to, layout.bytes() as u64, rows, make)?)
            }
            Launch::Resample { to, bytes, table, rows } => {
                let mut passes = Vec::new();
                for record in reader.table(table, rows, PASS_RECORD_BYTES)?.as_chunks::<PASS_RECORD_BYTES>().0 {
                    let ([source, target, taps], pass) = PassParams::from_record(record);
                    // Like the kernel, leaves out a pass that does not fit.
                    let end = target.checked_add(pass.bytes() as u64);
                    if end.is_some_and(|end| end <= bytes) {
                        passes.push((to + target, reader.pass(source, taps, pass)?));
                    }
                }
                Ok(Box::new(move || passes.into_iter().map(|(to, run)| (to, run())).collect()))
            }
            Launch::Burn { floats, count, rounds } => {
                aligned(floats, 4)?;
                let mut numbers = reader.read(floats, count.checked_mul(4).ok_or(ILLEGAL_ADDRESS)?)?;
                Ok(Box::new(move || {
                    twin::burn(&mut numbers, rounds);
                    vec![(floats, numbers)]
                }))
            }
        }
    }

    fn tokens(&self, sources: Vec<Vec<u8>>) -> Result<Compute, Code> {
        let &Launch::Tokens { ids, labels, rows, seq_len, pad_id, ignore, token_bytes, .. } = self else {
            return Err(INVALID_VALUE);
        };
        let row_bytes = seq_len.checked_mul(8).ok_or(ILLEGAL_ADDRESS)?;
        let len = total(row_bytes, rows)?;
        Ok(Box::new(move || {
            let mut id_bytes = vec![0; len];
            let mut label_bytes = (labels != 0).then(|| vec![0; len]);
            let rows = sources.iter().map(Vec::as_slice);
            let outputs = (&mut id_bytes, label_bytes.as_deref_mut(), rows, seq_len as usize, pad_id, ignore);
            let (id_rows, label_rows, rows, seq_len, pad_id, ignore) = outputs;
            if token_bytes == 2 {
                twin::tokens_u16(id_rows, label_rows, rows, seq_len, pad_id, ignore);
            } else {
                twin::tokens_u32(id_rows, label_rows, rows, seq_len, pad_id, ignore);
            }
            let mut writes = vec![(ids, id_bytes)];
            writes.extend(label_bytes.map(|bytes| (labels, bytes)));
            writes
        }))
    }
}

/// Memory as one kernel sees it.
struct Reader<'a> {
    memory: &'a mut Memory,
    device: usize,
    actor: &'a Actor,
}

impl Reader<'_> {
    fn read(&mut self, address: u64, len: u64) -> Result<Vec<u8>, Code> {
        self.memory.read(self.device, address, len, self.actor)
    }

    fn table(&mut self, address: u64, rows: u32, row_bytes: usize) -> Result<Vec<u8>, Code> {
        aligned(address, 8)?;
        self.read(address, u64::from(rows) * row_bytes as u64)
    }

    /// What one pass makes, once everything that it reads was read.
    fn pass(&mut self, source: u64, taps: u64, pass: PassParams) -> Result<impl FnOnce() -> Vec<u8> + use<>, Code> {
        aligned(taps, 8)?;
        let tap_bytes = pass.taps() as u64 * 8;
        let half = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
        let pairs = self.read(taps, tap_bytes)?;
        let pairs: Vec<[u32; 2]> =
            pairs.as_chunks::<4>().0.as_chunks::<2>().0.iter().map(|[first, end]| [half(first), half(end)]).collect();
        let weights = self.read(taps + tap_bytes, pairs.last().map_or(0, |pair| u64::from(pair[1]) * 4))?;
        let weights: Vec<i32> = weights.as_chunks::<4>().0.iter().map(|word| i32::from_le_bytes(*word)).collect();
        let source = self.read(source, pass.source_bytes(&pairs))?;
        Ok(move || {
            let mut out = vec![0; pass.bytes()];
            twin::resample(&mut out, &source, pass, &pairs, &weights);
            out
        })
    }

    /// The ranges that the rows of a table of `struct Row` name.
    fn rows(&mut self, table: u64, rows: u32) -> Result<Vec<Vec<u8>>, Code> {
        let table = self.table(table, rows, ROW_BYTES)?;
        table.chunks_exact(ROW_BYTES).map(|row| self.read(word(row, 0), word(row, 1))).collect()
    }
}

/// The computation of a kernel that writes all of `rows` rows of `row_bytes` bytes at `to`.
fn one(to: u64, row_bytes: u64, rows: u32, compute: impl FnOnce(&mut [u8]) + Send + 'static) -> Result<Compute, Code> {
    let len = total(row_bytes, rows)?;
    Ok(Box::new(move || {
        let mut out = vec![0; len];
        compute(&mut out);
        vec![(to, out)]
    }))
}

/// Bytes of an output, bounded by more than any device has.
fn total(row_bytes: u64, rows: u32) -> Result<usize, Code> {
    const BYTES_MAX: u64 = 1 << 40;
    let bytes = row_bytes.checked_mul(rows.into()).filter(|&bytes| bytes <= BYTES_MAX).ok_or(ILLEGAL_ADDRESS)?;
    Ok(bytes as usize)
}

fn aligned(address: u64, to: u64) -> Result<(), Code> {
    if address.is_multiple_of(to) { Ok(()) } else { Err(MISALIGNED_ADDRESS) }
}

/// Word `index` of a row.
fn word(row: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(row.as_chunks::<8>().0[index])
}
