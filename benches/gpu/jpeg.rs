//! JPEGs decoded by the GPU (nvJPEG), as the loader's threads use it: batches out of pinned memory, several threads,
//! pixels on the host; the same with a random crop of each, resized on the GPU; and such crops that stay there, which
//! is the rate of the engine itself. Beside it the processor's decoder, on all cores; and how much the pixels of both
//! differ, also for the repository's own pictures.

use crate::Setting;
use crate::machine::{Gpu, Limits, Outcome, median};
use crate::report::Report;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uringload_images::{Chain, Decoding, Draw, Filter, Region, decode, encode_jpeg, resize};
use uringload_sys::Arena;
use uringload_sys::cuda::{DeviceMemory, Pinned, Span, Taps};
use uringload_sys::nvjpeg::{Decoder, Library, Request, Resampling};

/// Rows and columns, as of ImageNet's usual photograph.
const SIZE: (u32, u32) = (375, 500);
/// Images of a batch.
const BATCH: usize = 64;
/// Different files.
const FILES: usize = 16;
const THREADS: [usize; 3] = [1, 2, 4];
/// What is done to each on the GPU.
const CHAIN: &str = "random_resized_crop(224), hflip";
const ROUNDS: usize = 5;
const BYTES: usize = 64 << 20;
/// Of the repository, whose root this is run in.
const PICTURES: &str = "images/tests/data";

pub fn run(gpu: &Gpu, setting: &Setting, limits: &Limits, report: &mut Report) -> Outcome<()> {
    let libraries: Vec<_> = setting.nvjpeg.iter().cloned().collect();
    let library = match Library::open(&libraries) {
        Ok(library) => library,
        Err(error) => {
            report.tell("nvJPEG", format!("not available: {error}"));
            report.put("jpeg", json!({"skipped": error.to_string()}));
            return Ok(());
        }
    };
    let (_pinned, files) = files(gpu)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let crops = crops(&files)?;
    let places = places(gpu, &crops)?;
    let ways: [(&[Resampling], &[Vec<Span>]); 3] = [(&[], &[]), (&crops, &[]), (&crops, &places)];
    let each = limits.all() / ((ways.len() * THREADS.len() + 1) * ROUNDS) as u32;
    let limit = if setting.is_tiny { Duration::from_millis(50) } else { each.max(Duration::from_millis(100)) };
    let (mut rates, mut processor) = (vec![vec![Vec::new(); THREADS.len()]; ways.len()], Vec::new());
    // Made once: a decoder takes memory of the device, and its first batch more.
    let made = (0..THREADS[THREADS.len() - 1]).map(|_| library.decoder(&gpu.context, BYTES));
    let mut decoders: Vec<Decoder> = made.collect::<Result<_, _>>()?;
    let has_hardware = decoders.iter().any(|decoder| decoder.hardware().is_ok());
    for round in 0.. {
        if !limits.goes_on(round, 1, ROUNDS) {
            break;
        }
        for (index, &threads) in THREADS.iter().enumerate() {
            for (rates, (crops, places)) in rates.iter_mut().zip(ways) {
                rates[index].push(by_device(&mut decoders[..threads], (&files, crops, places), limit)?);
            }
        }
        processor.push(by_processor(threads, &files, limit)?);
    }
    let of_files = files.iter().map(|file| apart(&mut decoders[0], file)).collect::<Outcome<Vec<_>>>()?;
    let mean = of_files.iter().map(|(mean, _)| mean).sum::<f64>() / FILES as f64;
    let most = of_files.iter().map(|&(_, most)| most).max().unwrap_or(0);
    let medians: Vec<Vec<f64>> = rates.iter().map(|rates| rates.iter().map(|rates| median(rates)).collect()).collect();
    let [whole, of_crops, that_stay] = &medians[..] else { return Err("there are three ways".into()) };
    let told = |medians: &[f64]| medians.iter().map(|rate| format!("{rate:.0}")).collect::<Vec<_>>().join(", ");
    let engine = if has_hardware { "by its engine" } else { "without an engine" };
    let of_processor = median(&processor);
    report.tell(
        format!("nvJPEG {}, {engine}: images/s of 500 x 375 with 1, 2, 4 threads", library.version()),
        format!("{}; the processor's decoder, {threads} threads: {of_processor:.0}", told(whole)),
    );
    report.tell("nvJPEG, each cut and resized to 224 x 224 on the GPU: images/s", told(of_crops));
    report.tell("nvJPEG, such crops that stay on the GPU: images/s", told(that_stay));
    report.tell("nvJPEG: levels apart from the processor's decoder, mean and most", format!("{mean:.3}; {most}"));
    let of_pictures = pictures(&mut decoders[0], report);
    let best = that_stay.iter().copied().fold(0.0, f64::max);
    report.judge("nvJPEG: images/s of 500 x 375 into crops that stay", format!("{best:.0}"), ">= 5000", best >= 5000.0);
    report.put(
        "jpeg",
        json!({
            "version": library.version(), "has_hardware": has_hardware, "threads": THREADS, "images_per_s": whole,
            "resized_per_s": of_crops, "resident_per_s": that_stay,
            "processor_threads": threads, "processor_images_per_s": of_processor, "rounds": processor.len(),
            "levels_apart_mean": mean, "levels_apart_most": most, "levels_apart_of": of_pictures,
        }),
    );
    Ok(())
}

/// The same photograph in different qualities, files of different lengths, in pinned memory, as the loader reads them.
fn files(gpu: &Gpu) -> Outcome<(Pinned, Vec<Bytes>)> {
    let photograph = decode(include_bytes!("../../images/tests/data/photo.jpg"), &Decoding::default())?;
    let whole = Region::whole(photograph.height(), photograph.width());
    let image = resize(&photograph, whole, SIZE, Filter::Bilinear)?;
    let encoded = (0..FILES).map(|index| encode_jpeg(&image, 80 + index as u8)).collect::<Result<Vec<_>, _>>()?;
    let together = encoded.concat();
    let (arena, mut all) = Arena::reserve(together.len())?;
    all.as_mut()[..together.len()].copy_from_slice(&together);
    let (pinned, mut all) = (Pinned::new(&gpu.context, &arena)?, Bytes::from_owner(all));
    Ok((pinned, encoded.iter().map(|file| all.split_to(file.len())).collect()))
}

/// A crop of each image of a batch.
fn crops(files: &[Bytes]) -> Outcome<Vec<Resampling>> {
    let chain: Chain = CHAIN.parse()?;
    let taps = |taps: uringload_images::Taps| Taps { first: taps.first, end: taps.end, weights: taps.weights };
    let mut crops = Vec::new();
    for sample in 0..BATCH {
        let draw = Draw { seed: 0, epoch: 0, sample: sample as u64 };
        let split = chain.split_plan(&files[sample % files.len()], &Decoding::default(), draw);
        let (passes, _) = split.ok_or("a crop of a photograph is two passes")?;
        crops.push(Resampling { columns: taps(passes.columns), rows: taps(passes.rows) });
    }
    Ok(crops)
}

/// A place on the device for each crop, for each thread.
fn places(gpu: &Gpu, crops: &[Resampling]) -> Outcome<Vec<Vec<Span>>> {
    let bytes = |crop: &Resampling| crop.size().0 as usize * crop.size().1 as usize * 3;
    let mut places = Vec::new();
    for _ in 0..THREADS[THREADS.len() - 1] {
        let (memory, mut at) = (DeviceMemory::new(&gpu.context, crops.iter().map(bytes).sum())?, 0);
        let place = |crop: &Resampling| {
            let start = at;
            at += bytes(crop);
            Span::new(&memory, start..at).ok_or("a place is outside")
        };
        places.push(crops.iter().map(place).collect::<Result<_, _>>()?);
    }
    Ok(places)
}

/// Images a second that the decoders make in `limit`, each in a thread of its own: whole images, or these crops, which
/// come to the host or to these places.
fn by_device(
    decoders: &mut [Decoder],
    (files, crops, places): (&[Bytes], &[Resampling], &[Vec<Span>]),
    limit: Duration,
) -> Outcome<f64> {
    let request = |thread: usize, index: usize| Request {
        file: &files[index % files.len()],
        size: SIZE,
        resampling: crops.get(index),
        to: places.get(thread).map(|places| &places[index]),
    };
    let (images, begin) = (AtomicU64::new(0), Instant::now());
    let failed = std::thread::scope(|scope| {
        let begun = decoders.iter_mut().enumerate().map(|(thread, decoder)| {
            let batch: Vec<Request<'_>> = (0..BATCH).map(|index| request(thread, index)).collect();
            let images = &images;
            scope.spawn(move || -> Result<(), String> {
                while begin.elapsed() < limit {
                    let decoded = decoder.decode_resampled(&batch).map_err(|error| error.to_string())?;
                    for image in decoded {
                        let image = image.map_err(|error| error.to_string())?;
                        if image.is_resampled == crops.is_empty() || image.is_resident == places.is_empty() {
                            return Err("an image came as it was decoded: there was no room".into());
                        }
                        images.fetch_add(1, Ordering::Relaxed);
                        decoder.reuse(image.bytes);
                    }
                }
                Ok(())
            })
        });
        let threads: Vec<_> = begun.collect();
        threads.into_iter().find_map(|thread| thread.join().unwrap_or_else(|_| Err("a panic".into())).err())
    });
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(images.into_inner() as f64 / begin.elapsed().as_secs_f64()),
    }
}

fn by_processor(threads: usize, files: &[Bytes], limit: Duration) -> Outcome<f64> {
    let (images, begin) = (AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let images = &images;
            scope.spawn(move || {
                for file in files.iter().cycle().skip(thread) {
                    if begin.elapsed() >= limit || decode(file, &Decoding::default()).is_err() {
                        break;
                    }
                    images.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    Ok(images.into_inner() as f64 / begin.elapsed().as_secs_f64())
}

/// The mean and the greatest difference of a level.
fn apart(decoder: &mut Decoder, file: &[u8]) -> Outcome<(f64, u8)> {
    // The GPU does not turn what it decodes.
    let ours = decode(file, &Decoding { orient: false, ..Decoding::default() })?;
    let theirs = decoder.decode(&[(file, (ours.height(), ours.width()))])?.remove(0)?.bytes;
    if theirs.is_empty() || theirs.len() != ours.pixels().len() {
        return Err(format!("{} bytes of pixels came, not {}", theirs.len(), ours.pixels().len()).into());
    }
    let levels = || ours.pixels().iter().zip(&theirs).map(|(a, b)| a.abs_diff(*b));
    let sum: u64 = levels().map(u64::from).sum();
    Ok((sum as f64 / theirs.len() as f64, levels().max().unwrap_or(0)))
}

/// The same of the repository's pictures, which are of several subsamplings, by their names; or why one is refused.
fn pictures(decoder: &mut Decoder, report: &mut Report) -> Map<String, Value> {
    let (mut all, mut taken) = (Map::new(), Vec::new());
    // The repository need not be there.
    for entry in std::fs::read_dir(PICTURES).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.ends_with(".jpg") {
            continue;
        }
        let of_file = std::fs::read(entry.path()).map_err(Into::into).and_then(|file| apart(decoder, &file));
        let told = match of_file {
            Ok((mean, most)) => {
                taken.push((mean, most, name.clone()));
                json!({"mean": mean, "most": most})
            }
            Err(error) => json!({"refused": error.to_string()}),
        };
        all.insert(name, told);
    }
    let worst = taken.iter().max_by(|a, b| a.0.total_cmp(&b.0));
    let worst = worst.map_or_else(|| "none".into(), |(mean, most, name)| format!("{mean:.3}; {most} ({name})"));
    let what = format!("nvJPEG: levels apart of {} files of several subsamplings, the worst", taken.len());
    report.tell(what, format!("{worst}; {} refused", all.len() - taken.len()));
    all
}
