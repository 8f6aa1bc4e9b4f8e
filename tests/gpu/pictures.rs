//! Kernels of images against their twin: every type, number of channels and layout, and boxes of each kind; and JPEGs
//! that the GPU decodes.

use crate::bench::{Bench, UNTOUCHED};
use crate::common::passes::RandomPass;
use crate::common::random::Random;
use crate::common::skip;
use crate::machine::{cases, folder, gpu, is_watched, seed};
use std::path::PathBuf;
use uringload::Loader;
use uringload::batch::Data;
use uringload::config::Device;
use uringload::dataset::{self, DType, Options};
use uringload::inspect::twin;
use uringload::inspect::twin::{ImageLayout, ImageParams};
use uringload_sys::cuda::{Images, PixelType};

const TYPES: [(PixelType, DType); 4] = [
    (PixelType::U8, DType::U8),
    (PixelType::F32, DType::F32),
    (PixelType::F16, DType::F16),
    (PixelType::BF16, DType::BF16),
];

/// A box that lies in its image: as large as the output, or to be resized; at whole pixels, or anywhere.
fn params(random: &mut Random, layout: &ImageLayout, most: u64) -> ImageParams {
    let (mut height, mut width) = (1 + random.below(most) as u32, 1 + random.below(most) as u32);
    let flip = random.below(2) == 0;
    let kind = random.below(4);
    let (w, h) = match kind {
        0 => {
            (height, width) = (height.max(layout.height), width.max(layout.width));
            (layout.width as f32, layout.height as f32)
        }
        1 => (width as f32, height as f32),
        2 => (1.0 + random.below(width.into()) as f32, 1.0 + random.below(height.into()) as f32),
        _ => {
            let mut part = |side: u32| (side as f32 * random.below(1000) as f32 / 1000.0).max(0.25);
            (part(width), part(height))
        }
    };
    let mut start = |side: u32, extent: f32| {
        let room = side as f32 - extent;
        match kind {
            0..=2 => random.below(room as u64 + 1) as f32,
            _ => room * random.below(1000) as f32 / 1001.0,
        }
    };
    let (x, y) = (start(width, w), start(height, h));
    ImageParams { height, width, x, y, w, h, flip }
}

fn check(bench: &mut Bench, random: &mut Random, layout: &ImageLayout, params: &[ImageParams], about: &str) {
    let pixel = TYPES.iter().find(|(_, dtype)| *dtype == layout.dtype).expect("a type of pixels").0;
    let mut case = bench.case();
    let mut places = Vec::new();
    for one in params {
        let off = if random.below(3) == 0 { 0 } else { random.below(64) as usize };
        let pixels = random.bytes((one.height * one.width * layout.channels) as usize);
        places.push(case.place(off, &pixels));
    }
    let records: Vec<_> = params.iter().zip(&places).map(|(one, place)| one.to_record(case.address(place))).collect();
    let table = case.table(records);
    let off = random.one_of(&[0, 0, 16, layout.dtype.size() as usize]);
    let to = case.target(off, layout.bytes() * params.len());
    let sources = case.bytes.clone();
    let expected = |bytes: &mut [u8]| {
        let images = params.iter().copied().zip(places.iter().map(|place| &sources[place.clone()]));
        twin::images(&mut bytes[to.clone()], images, layout);
    };
    let images = Images::new(pixel, layout.channels, (layout.height, layout.width))
        .channels_last(layout.channels_last)
        .normalized(layout.mean, layout.std);
    bench.check(format!("{about}: {layout:?} {params:?}"), case, expected, |launch| {
        let (table, to) = ((launch.table, table.clone()), launch.span(&to));
        launch.kernels.images(launch.stream, table, launch.all, &to, &images)
    });
}

#[test]
fn images_become_tensors() {
    let Some(context) = gpu("images_become_tensors") else { return };
    let (seed, mut bench) = (seed("images_become_tensors"), Bench::new(&context, 16 << 20));
    for number in 0..cases(800) {
        let seed = seed.wrapping_add(number);
        let mut random = Random::new(seed);
        let layout = ImageLayout {
            dtype: random.one_of(&TYPES).1,
            channels: 1 + random.below(4) as u32,
            height: 1 + random.below(40) as u32,
            width: random.one_of(&[1, 3, 8, 16, 32, 48, 37, 224]),
            channels_last: random.below(2) == 0,
            mean: [0.0, 0.485, -2.117_904, 1.0e-6].map(|mean| mean * random.below(2) as f32),
            std: [1.0, 0.229, 300.0, 0.017_507].map(|std| std * (1 + random.below(1 << 20)) as f32 / 1e4),
        };
        let params: Vec<_> = (0..random.below(6)).map(|_| params(&mut random, &layout, 70)).collect();
        check(&mut bench, &mut random, &layout, &params, &format!("seed {seed}"));
    }
}

/// What training takes: boxes of photographs, all types; large ones too, and more than a grid has in y.
#[test]
fn images_of_any_size_and_number_become_tensors() {
    let Some(context) = gpu("images_of_any_size_and_number_become_tensors") else { return };
    if is_watched("images_of_any_size_and_number_become_tensors") {
        return;
    }
    let seed = seed("images_of_any_size_and_number_become_tensors");
    let (mut bench, mut random) = (Bench::new(&context, 96 << 20), Random::new(seed));
    let mut layout = ImageLayout {
        dtype: DType::BF16,
        channels: 3,
        height: 224,
        width: 224,
        channels_last: false,
        mean: [0.485, 0.456, 0.406, 0.0],
        std: [0.229, 0.224, 0.225, 1.0],
    };
    let about = format!("seed {seed}");
    for (_, dtype) in TYPES {
        layout.dtype = dtype;
        layout.channels_last = !layout.channels_last;
        let params: Vec<_> = (0..8).map(|_| params(&mut random, &layout, 500)).collect();
        check(&mut bench, &mut random, &layout, &params, &about);
    }
    (layout.dtype, layout.height, layout.width) = (DType::F16, 1111, 1500);
    let whole = ImageParams { height: 1999, width: 3001, x: 0.0, y: 0.0, w: 3001.0, h: 1999.0, flip: true };
    check(&mut bench, &mut random, &layout, &[whole], &about);
    (layout.dtype, layout.channels, layout.height, layout.width) = (DType::U8, 1, 2, 3);
    let params: Vec<_> = (0..66_000).map(|_| params(&mut random, &layout, 4)).collect();
    check(&mut bench, &mut random, &layout, &params, &about);
}

#[test]
fn images_are_resampled() {
    let Some(context) = gpu("images_are_resampled") else { return };
    let (seed, mut bench) = (seed("images_are_resampled"), Bench::new(&context, 16 << 20));
    for number in 0..cases(400) {
        let seed = seed.wrapping_add(number);
        let mut random = Random::new(seed);
        let (mut case, mut records, mut made) = (bench.case(), Vec::new(), Vec::new());
        for _ in 0..random.below(6) {
            let pass = RandomPass::new(&mut random, 60);
            let source = case.place(random.below(64) as usize, &pass.source);
            let taps = case.place(0, &pass.encoded());
            made.resize(made.len() + random.below(20) as usize, UNTOUCHED);
            records.push(pass.params.to_record(case.address(&source), made.len() as u64, case.address(&taps)));
            made.extend(pass.made());
        }
        let table = case.table(records);
        let to = case.target(random.below(64) as usize, made.len());
        let expected = |bytes: &mut [u8]| bytes[to.clone()].copy_from_slice(&made);
        bench.check(format!("seed {seed}"), case, expected, |launch| {
            launch.kernels.resample(launch.stream, (launch.table, table.clone()), launch.all, &launch.span(&to))
        });
    }
}

/// JPEGs that nvJPEG decodes make nearly the tensors that the processor makes: it rounds otherwise, and no more.
#[test]
fn jpegs_decoded_by_the_gpu_are_nearly_those_of_the_processor() {
    const TEST: &str = "jpegs_decoded_by_the_gpu_are_nearly_those_of_the_processor";
    if gpu(TEST).is_none() || is_watched(TEST) {
        return;
    }
    // Beside the kit, where Python's packages are.
    let places: Vec<PathBuf> = std::env::var_os("URINGLOAD_GPU_NVJPEG").map(PathBuf::from).into_iter().collect();
    if let Err(error) = uringload_sys::nvjpeg::Library::open(&places) {
        return skip(format!("{TEST}: {error}"));
    }
    let folder = folder();
    let photo = include_bytes!("../../images/tests/data/photo.jpg");
    for number in 0..200 {
        let mut file = photo.to_vec();
        // Behind its end are bytes that decoders do not look at.
        file.resize(file.len() + number, 0);
        std::fs::write(folder.path().join(format!("{number:03}.jpg")), file).expect("a file");
    }
    let dataset = dataset::open(&[folder.path()], &Options::new()).expect("a dataset");
    let chain = "random_resized_crop(128), hflip, to_tensor(u8, hwc)";
    let builder = Loader::builder(dataset).batch_size(32).shuffle(true).num_threads(1);
    let builder = builder.transform("data", chain.parse().expect("a chain"));
    let device = Device::cuda(0).nvjpeg(1.0).nvjpeg_places(places);
    let mut loader = builder.clone().device(device).build().expect("a loader");
    let (mut sum, mut count) = (0_u64, 0_u64);
    for wanted in builder.build().expect("a loader to the host") {
        let (wanted, batch) = (wanted.expect("a batch"), loader.next().expect("as many").expect("a batch"));
        let Data::Dense { bytes, .. } = &wanted.columns[0].data else { panic!("dense") };
        let there = batch.columns[0].memory.to_host().expect("bytes");
        sum += bytes.iter().zip(&there[..]).map(|(a, b)| u64::from(a.abs_diff(*b))).sum::<u64>();
        count += bytes.len() as u64;
    }
    let by_gpu = loader.stats().snapshot().count.samples_decoded_on_device;
    let mean = sum as f64 / count as f64;
    eprintln!("{TEST}: {by_gpu} of 200 by the GPU, {mean:.3} levels apart; {:?}", loader.route().fallbacks);
    assert!(by_gpu > 0 && mean < 2.0, "{by_gpu} images, {mean} levels apart");
}
