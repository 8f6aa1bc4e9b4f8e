//! How close kernels come to the device's memory bandwidth: the bytes that each must read and write, over its time by
//! the device's clock, against a copy within the device's memory.

use crate::Setting;
use crate::machine::{Gpu, Limits, Outcome, median, part, rate};
use crate::report::{Report, gb};
use bytes::Bytes;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde_json::{Map, json};
use std::ops::Range;
use uringload_sys::cuda::{
    Copies, CudaError, Fill, Image, Images, Piece, PixelType, Row, Span, TokenType, Tokens, Uploaded,
};

const ROUNDS: usize = 9;
/// Side of the source images, and of the crops.
const SOURCE: u32 = 256;
const OUTPUT: u32 = 224;
const RECORD_BYTES: usize = 150_528;

/// A kernel to time, and the bytes that it must move.
struct Candidate<'a> {
    name: &'static str,
    bytes: u64,
    launch: Box<dyn Fn() -> Result<(), CudaError> + 'a>,
    rates: Vec<f64>,
}

/// Memory that all kernels use, with room for tables.
struct Memory {
    from: Span,
    to: Span,
    tables: Span,
    taken: usize,
    copies: Copies,
}

/// A table on the device, and its byte range.
type Table = (Uploaded, Range<usize>);

impl Memory {
    fn new(gpu: &Gpu, is_tiny: bool) -> Outcome<Memory> {
        let free = gpu.context.memory()?.0 as usize;
        // Several times what any cache holds.
        let side = if is_tiny { 8 << 20 } else { (2 << 30).min(free / 8) };
        let (from, to) = (gpu.random_memory(side)?, gpu.memory(side)?);
        Ok(Memory { from, to, tables: gpu.memory(32 << 20)?, taken: 0, copies: Copies::new(&gpu.context)? })
    }

    fn table<const BYTES: usize>(&mut self, rows: impl Iterator<Item = [u8; BYTES]>) -> Outcome<Table> {
        let rows: Vec<u8> = rows.flatten().collect();
        let len = rows.len();
        let uploaded = self.copies.start(Bytes::from(rows), &part(&self.tables, self.taken, len)?)?;
        self.copies.stream().synchronize()?;
        self.taken = (self.taken + len).next_multiple_of(256);
        Ok((uploaded, 0..len))
    }
}

pub fn run(gpu: &Gpu, setting: &Setting, limits: &Limits, report: &mut Report) -> Outcome<()> {
    let mut memory = Memory::new(gpu, setting.is_tiny)?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let tables = Tables::new(&mut memory, &mut random)?;
    let mut candidates = images(gpu, &memory, &tables);
    candidates.extend(others(gpu, &memory, &tables)?);
    let mut copies = Copies::new(&gpu.context)?;
    let mut copied = Vec::new();
    for round in 0.. {
        if !limits.goes_on(round, 2, ROUNDS + 1) {
            break;
        }
        let took = gpu.timed_copies(&mut copies, None, |copies| Ok(copies.within(&memory.from, &memory.to)?))?;
        let mut rates = vec![rate(2 * memory.from.len() as u64, took)];
        for candidate in &candidates {
            let took = gpu.timed(&gpu.stream, || Ok((candidate.launch)()?))?;
            rates.push(rate(candidate.bytes, took));
        }
        // The first round is a warm-up.
        if round > 0 {
            copied.push(rates[0]);
            candidates.iter_mut().zip(&rates[1..]).for_each(|(candidate, &rate)| candidate.rates.push(rate));
        }
    }
    let copy = median(&copied);
    let mut numbers = Map::new();
    report.tell("copy within the device, read and written", gb(copy));
    for Candidate { name, rates, bytes, .. } in &candidates {
        let reached = median(rates);
        let share = reached / copy;
        numbers.insert((*name).into(), json!({"bytes": bytes, "bytes_per_s": reached, "of_copy": share}));
        let measured = format!("{} = {share:.2}", gb(reached));
        if *name == "images cut, u8 to bf16" {
            report.judge("fused u8 to bf16, cut, mirrored, normalized, of the copy", measured, ">= 0.80", share >= 0.8);
        } else {
            report.tell(format!("kernel, of the copy: {name}"), measured);
        }
    }
    report.put("kernels", json!({"copy_bytes_per_s": copy, "rounds": copied.len(), "kernels": numbers}));
    Ok(())
}

/// The arguments of each kernel.
struct Tables {
    cut: (Table, u64),
    whole: (Table, u64),
    resized: (Table, u64, u64),
    pieces: (Table, u64),
    odd_pieces: (Table, u64),
    rows: (Table, u64, u64),
    tokens: (Table, u64),
}

/// Tokens per row.
const SEQ_LEN: u64 = 4096;

impl Tables {
    fn new(memory: &mut Memory, random: &mut Xoshiro256PlusPlus) -> Outcome<Tables> {
        let (base, side) = (memory.from.address(), memory.from.len());
        let mut below = |bound: u32| (random.next_u64() % u64::from(bound)) as u32;
        let source_bytes = (SOURCE * SOURCE * 3) as usize;
        // Bytes of a crop in the widest type.
        let output_bytes = (OUTPUT * OUTPUT * 3 * 4) as usize;
        let count = (side / source_bytes).min(side / output_bytes);
        let place = |index: usize| base + (index * source_bytes) as u64;
        let image = |index: usize, side: u32, crop: [f32; 4], flip: bool| {
            Image { source: place(index), height: side, width: side, crop, flip }.encode()
        };
        let size = OUTPUT as f32;
        let cut: Vec<_> = (0..count)
            .map(|index| {
                let [x, y] = [below(SOURCE - OUTPUT + 1), below(SOURCE - OUTPUT + 1)];
                image(index, SOURCE, [x as f32, y as f32, size, size], below(2) == 0)
            })
            .collect();
        let whole: Vec<_> = (0..count).map(|index| image(index, OUTPUT, [0.0, 0.0, size, size], false)).collect();
        let mut pixels = 0;
        let resized: Vec<_> = (0..count)
            .map(|index| {
                let [w, h] = [128 + below(SOURCE - 127), 128 + below(SOURCE - 127)];
                let [x, y] = [below(SOURCE - w + 1), below(SOURCE - h + 1)];
                pixels += u64::from(w * h);
                image(index, SOURCE, [x, y, w, h].map(|number| number as f32), below(2) == 0)
            })
            .collect();
        let records = side / (RECORD_BYTES + 1024);
        let mut pieces = |off: u32| -> Vec<_> {
            let piece = |index: usize| {
                let source = base + (index * (RECORD_BYTES + 1024)) as u64 + u64::from(below(512) / off * off);
                let target = (index * RECORD_BYTES) as u64;
                Piece { source, target, len: RECORD_BYTES as u64 }.encode()
            };
            (0..records).map(piece).collect()
        };
        let (aligned, odd) = (pieces(16), pieces(1));
        let row_bytes = 32 << 10;
        let mut kept = 0;
        let rows: Vec<_> = (0..side / row_bytes)
            .map(|index| {
                let len = u64::from(below(row_bytes as u32 / 2)) * 2;
                kept += len;
                Row { source: base + (index * row_bytes) as u64, len }.encode()
            })
            .collect();
        let token_rows = (side as u64 / (SEQ_LEN * 16)).max(1);
        let row = |index: u64| Row { source: base + index * SEQ_LEN * 2, len: SEQ_LEN * 2 }.encode();
        Ok(Tables {
            cut: (memory.table(cut.into_iter())?, count as u64),
            whole: (memory.table(whole.into_iter())?, count as u64),
            resized: (memory.table(resized.into_iter())?, count as u64, pixels),
            pieces: (memory.table(aligned.into_iter())?, records as u64),
            odd_pieces: (memory.table(odd.into_iter())?, records as u64),
            rows: (memory.table(rows.into_iter())?, kept, (side / row_bytes * row_bytes) as u64),
            tokens: (memory.table((0..token_rows).map(row))?, token_rows),
        })
    }
}

fn images<'a>(gpu: &'a Gpu, memory: &'a Memory, tables: &'a Tables) -> Vec<Candidate<'a>> {
    let pixels = u64::from(OUTPUT * OUTPUT * 3);
    let candidate = |name, table: &'a Table, read: u64, written: u64, (pixel, channels_last)| {
        let (mean, std) = ([0.485, 0.456, 0.406, 0.0], [0.229, 0.224, 0.225, 1.0]);
        let images = Images::new(pixel, 3, (OUTPUT, OUTPUT)).channels_last(channels_last).normalized(mean, std);
        let launch =
            move || gpu.kernels.images(&gpu.stream, (&table.0, table.1.clone()), &memory.from, &memory.to, &images);
        Candidate { name, bytes: read + written, launch: Box::new(launch), rates: Vec::new() }
    };
    let Tables { cut, whole, resized, .. } = tables;
    let of = |count: u64, size: u64| count * pixels * size;
    vec![
        candidate("images cut, u8 to bf16", &cut.0, of(cut.1, 1), of(cut.1, 2), (PixelType::BF16, false)),
        candidate("images cut, u8 to f16", &cut.0, of(cut.1, 1), of(cut.1, 2), (PixelType::F16, false)),
        candidate("images cut, u8 to f32", &cut.0, of(cut.1, 1), of(cut.1, 4), (PixelType::F32, false)),
        candidate("images cut, u8 to u8", &cut.0, of(cut.1, 1), of(cut.1, 1), (PixelType::U8, false)),
        candidate("images cut, u8 to bf16 NHWC", &cut.0, of(cut.1, 1), of(cut.1, 2), (PixelType::BF16, true)),
        candidate("images whole, u8 to bf16", &whole.0, of(whole.1, 1), of(whole.1, 2), (PixelType::BF16, false)),
        candidate("images resized, u8 to bf16", &resized.0, resized.2 * 3, of(resized.1, 2), (PixelType::BF16, false)),
    ]
}

fn others<'a>(gpu: &'a Gpu, memory: &'a Memory, tables: &'a Tables) -> Outcome<Vec<Candidate<'a>>> {
    let Memory { from, to, .. } = memory;
    let record = RECORD_BYTES as u64;
    let gather = |name, (table, count): &'a (Table, u64)| Candidate {
        name,
        bytes: 2 * count * record,
        launch: Box::new(move || gpu.kernels.gather(&gpu.stream, (&table.0, table.1.clone()), from, to)),
        rates: Vec::new(),
    };
    let fill = Fill { pattern: 0x0123_4567_89ab_cdef, size: 8 };
    let (rows, kept, padded) = &tables.rows;
    let pad = move || {
        let row = (32 << 10, Fill { pattern: 0, size: 2 });
        gpu.kernels.pad(&gpu.stream, (&rows.0, rows.1.clone()), from, to, row)
    };
    let (table, count) = &tables.tokens;
    let wanted = Tokens::new(TokenType::U16, SEQ_LEN);
    let half = (count * SEQ_LEN * 8) as usize;
    let (ids, labels) = (part(to, 0, half)?, part(to, half, half)?);
    let tokens =
        move || gpu.kernels.tokens(&gpu.stream, (&table.0, table.1.clone()), from, (&ids, Some(&labels)), wanted);
    let candidate = |name, bytes, launch| Candidate { name, bytes, launch, rates: Vec::new() };
    Ok(vec![
        gather("gather of records", &tables.pieces),
        gather("gather of records at odd addresses", &tables.odd_pieces),
        candidate("fill", to.len() as u64, Box::new(move || gpu.kernels.fill(&gpu.stream, to, fill))),
        candidate("pad", kept + padded, Box::new(pad)),
        candidate("tokens, u16 to ids and labels", count * SEQ_LEN * 18, Box::new(tokens)),
    ])
}
