//! Copies to the device by block size: from pinned memory, with completion signalled by flags and by events, and from
//! pageable memory; and blocks copied as a loader does, against the fastest of the plain copies.

use crate::Setting;
use crate::machine::{Gpu, Limits, Outcome, median, part, pinned, random, rate};
use crate::report::{Report, gb};
use bytes::Bytes;
use serde_json::json;
use uringload_sys::cuda::{Copies, Event, Notice, Span, Timing};

/// Bytes on each side of a copy.
const SIDE_BYTES: usize = 512 << 20;
/// Bytes copied per measurement; fewer of small blocks.
const COPIED_BYTES: usize = 512 << 20;
const COPIES_MOST: usize = 1024;
/// The largest block of a loader.
const BLOCK_BYTES: usize = 32 << 20;
/// A file of a photograph that is small, and how many are copied by one call.
const PIECE_BYTES: usize = 28 << 10;
const PIECES: usize = 256;
const ROUNDS: usize = 5;

/// A way to copy, and its rates for each block size.
struct Way {
    name: &'static str,
    copies: Copies,
    from: Bytes,
    rates: Vec<Vec<f64>>,
}

pub fn run(gpu: &Gpu, setting: &Setting, limits: &Limits, report: &mut Report) -> Outcome<()> {
    let side = if setting.is_tiny { 64 << 20 } else { SIDE_BYTES };
    let sizes: Vec<usize> = (16..=26).map(|bits| 1 << bits).filter(|&size| size <= side).collect();
    let (_pinned, bytes) = pinned(&gpu.context, side)?;
    let to = gpu.memory(side)?;
    let pageable = Bytes::from(random(side, 2));
    let way = |name, copies, from: &Bytes| Way { name, copies, from: from.clone(), rates: vec![vec![]; sizes.len()] };
    let flagged = Copies::new(&gpu.context)?;
    let notice = flagged.notice();
    let mut ways = vec![
        way("events", Copies::with_events(&gpu.context)?, &bytes),
        way("pageable", Copies::new(&gpu.context)?, &pageable),
    ];
    if notice == Notice::Flag {
        ways.insert(0, way("flags", flagged, &bytes));
    }
    let mut plain = Copies::with_events(&gpu.context)?;
    let mut slots = Copies::new(&gpu.context)?;
    let (mut peaks, mut through, mut pieces) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0.. {
        if !limits.goes_on(round, 1, ROUNDS) {
            break;
        }
        peaks.push(one_copy(gpu, &mut plain, &bytes, &to)?);
        through.push(as_loaders_do(gpu, &mut slots, &bytes, &to)?);
        pieces.push(in_pieces(gpu, &mut plain, &bytes, &to)?);
        for way in &mut ways {
            for (index, &size) in sizes.iter().enumerate() {
                let rate = blocks(gpu, &mut way.copies, &way.from, &to, size)?;
                way.rates[index].push(rate);
            }
        }
    }
    let medians = |way: &Way| way.rates.iter().map(|rates| median(rates)).collect::<Vec<_>>();
    let pinned_ways = ways.iter().filter(|way| way.name != "pageable");
    let peak = pinned_ways.flat_map(medians).chain([median(&peaks)]).fold(0.0, f64::max);
    report.h2d_peak = Some(peak);
    let sweep: Vec<_> = ways.iter().map(|way| json!({"way": way.name, "bytes_per_s": medians(way)})).collect();
    report.put(
        "h2d",
        json!({
            "block_bytes": sizes, "sweep": sweep, "peak_bytes_per_s": peak, "one_copy_bytes_per_s": median(&peaks),
            "slots_bytes_per_s": median(&through), "pieces_bytes_per_s": median(&pieces),
            "rounds": peaks.len(), "copied_bytes": COPIED_BYTES.min(side),
        }),
    );
    for way in &ways {
        let of =
            |size: usize| sizes.iter().position(|&other| other == size).map_or(0.0, |index| median(&way.rates[index]));
        let told = format!("{}, {}, {}, {}", gb(of(1 << 16)), gb(of(1 << 20)), gb(of(16 << 20)), gb(of(64 << 20)));
        report.tell(format!("H2D, {}: 64 KiB, 1, 16, 64 MiB", way.name), told);
    }
    report.tell("H2D peak, plain and pinned", gb(peak));
    let share = median(&through) / peak;
    let measured = format!("{} = {share:.3}", gb(median(&through)));
    report.judge("H2D of 32 MiB slots with notices and times, of the peak", measured, ">= 0.98", share >= 0.98);
    let share = median(&pieces) / peak;
    let measured = format!("{} = {share:.3}", gb(median(&pieces)));
    report.judge("H2D of pieces of 28 KiB, 256 by one call, of the peak", measured, ">= 0.90", share >= 0.9);
    Ok(())
}

/// Copies everything in one call.
fn one_copy(gpu: &Gpu, copies: &mut Copies, from: &Bytes, to: &Span) -> Outcome<f64> {
    let took = gpu.timed_copies(copies, Some((from, to)), |copies| Ok(copies.start(from.clone(), to).map(drop)?))?;
    Ok(rate(from.len() as u64, took))
}

/// Copies blocks of one size, one after the other.
fn blocks(gpu: &Gpu, copies: &mut Copies, from: &Bytes, to: &Span, size: usize) -> Outcome<f64> {
    let all = from.len() / size;
    let count = (COPIED_BYTES.min(from.len()) / size).clamp(1, COPIES_MOST);
    let took = gpu.timed_copies(copies, Some((from, to)), |copies| {
        for index in 0..count {
            // Not neighbours, so that no copy finds data that an earlier one brought into a cache.
            let start = index * 17 % all * size;
            copies.start(from.slice(start..start + size), &part(to, start, size)?)?;
            copies.finished()?;
        }
        Ok(())
    })?;
    Ok(rate((count * size) as u64, took))
}

/// Copies pieces that are no neighbours, many by one call where the driver can.
fn in_pieces(gpu: &Gpu, copies: &mut Copies, from: &Bytes, to: &Span) -> Outcome<f64> {
    let all = from.len() / PIECE_BYTES;
    let calls = (all / PIECES).max(1);
    let piece = |index: usize| {
        let start = index * 17 % all * PIECE_BYTES;
        (from.slice(start..start + PIECE_BYTES), start)
    };
    let took = gpu.timed_copies(copies, Some((from, to)), |copies| {
        for call in 0..calls {
            copies.scatter(to, (call * PIECES..(call + 1) * PIECES).map(piece).collect())?;
            copies.finished()?;
        }
        Ok(())
    })?;
    Ok(rate((calls * PIECES * PIECE_BYTES) as u64, took))
}

/// Copies the largest blocks as a loader does: two events time each one, and a few are in flight.
fn as_loaders_do(gpu: &Gpu, copies: &mut Copies, from: &Bytes, to: &Span) -> Outcome<f64> {
    let block = BLOCK_BYTES.min(from.len() / 2);
    let count = from.len() / block;
    let took = gpu.timed_copies(copies, Some((from, to)), |copies| {
        for start in (0..count * block).step_by(block) {
            let (begin, end) = (Event::new(&gpu.context, Timing::On)?, Event::new(&gpu.context, Timing::On)?);
            begin.record(copies.stream())?;
            copies.start(from.slice(start..start + block), &part(to, start, block)?)?;
            end.record(copies.stream())?;
            while copies.under_way() > 4 {
                copies.finished()?;
                std::thread::sleep(std::time::Duration::from_micros(30));
            }
        }
        Ok(())
    })?;
    Ok(rate((count * block) as u64, took))
}
