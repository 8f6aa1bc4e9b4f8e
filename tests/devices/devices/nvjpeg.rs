//! JPEGs that the GPU decodes beside the loader's threads: the same tensors from either, and the processor has the last
//! word about a file.

use crate::common::nvjpeg::Nvjpeg;
use crate::common::{Mock, within};
use mock_nvjpeg::Knob;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uringload::batch::Data;
use uringload::config::{Cause, Device, OnError};
use uringload::dataset::{self, Dataset, Options};
use uringload::device::DeviceBatch;
use uringload::transform::Images;
use uringload::{Builder, DeviceLoader, ErrorKind, Loader};
use uringload_images::{Chain, Decoding, Draw, Scratch, decode};
use uringload_sys::cuda::Taps;
use uringload_sys::nvjpeg::{Decoder, Library, Request, Resampling};

pub const BOUND: Duration = Duration::from_secs(100);
pub const CHAIN: &str = "random_resized_crop(48), hflip, normalize(imagenet)";
/// One that ends in pixels, which a kernel makes the column of.
pub const PIXELS: &str = "random_resized_crop(48), hflip, to_tensor(u8, hwc)";

/// Photographs: most are what nvJPEG knows, one of them turned by EXIF; the others are for the processor alone.
pub const PHOTOS: [&str; 8] =
    ["420.jpg", "444.jpg", "420.jpg", "exif6.jpg", "progressive.jpg", "gray.jpg", "cmyk.jpg", "coffee.png"];

pub fn photograph(name: &str) -> Vec<u8> {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../images/tests/data");
    fs::read(data.join(name)).expect("a photograph")
}

/// Images in a folder: the photographs by turns; those in `broken` are cut, or none. Bytes after the end of a JPEG are
/// nothing to decoders, and make files of different lengths.
pub fn photos(count: usize, broken: &[usize]) -> (TempDir, Arc<dyn Dataset>) {
    photos_of(&PHOTOS, count, broken)
}

pub fn photos_of(names: &[&str], count: usize, broken: &[usize]) -> (TempDir, Arc<dyn Dataset>) {
    let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    for number in 0..count {
        let mut file = photograph(names[number % names.len()]);
        match broken.iter().position(|&other| other == number) {
            Some(0) => file = b"no image".to_vec(),
            Some(_) => file.truncate(file.len() / 2),
            None => file.resize(file.len() + number, 0),
        }
        fs::write(root.path().join(format!("{number:03}.jpg")), file).expect("a file");
    }
    let dataset = dataset::open(&[root.path()], &Options::new()).expect("a dataset");
    (root, dataset)
}

/// With `num_threads(0)` a GPU's threads are the only ones.
fn builder(dataset: &Arc<dyn Dataset>) -> Builder {
    builder_of(dataset, CHAIN)
}

pub fn builder_of(dataset: &Arc<dyn Dataset>, chain: &str) -> Builder {
    let builder = Loader::builder(Arc::clone(dataset)).batch_size(6).shuffle(true).seed(5).epochs(2);
    builder.num_threads(2).transform("data", chain.parse().expect("a chain"))
}

pub fn device(mock: &Mock, nvjpeg: &Nvjpeg, share: f64) -> Device {
    Device::cuda(0).library(mock.path()).nvjpeg(share).nvjpeg_library(nvjpeg.path())
}

/// Holds each batch against that of a loader without a GPU. Returns the number of samples.
fn same(builder: &Builder, loader: &mut DeviceLoader) -> usize {
    let mut samples = 0;
    for wanted in builder.clone().build().expect("a loader to the host") {
        let (wanted, batch) = (wanted.expect("a batch"), loader.next().expect("as many").expect("a batch"));
        assert_eq!(batch.host.ids, wanted.ids);
        let Data::Dense { bytes, .. } = &wanted.columns[0].data else { panic!("dense") };
        assert!(batch.columns[0].memory.to_host().expect("bytes") == *bytes, "batch of {:?}", wanted.ids);
        samples += wanted.ids.len();
    }
    assert!(loader.next().is_none(), "it goes on after its end");
    samples
}

/// The steps down that have to do with nvJPEG, as text.
pub fn steps(loader: &DeviceLoader) -> Vec<String> {
    let steps = loader.route().fallbacks.into_iter().filter(|step| step.cause == Cause::Nvjpeg);
    steps.map(|step| step.to_string()).collect()
}

#[test]
fn images_decoded_by_the_gpu_are_those_of_the_host() {
    within(BOUND, || {
        let (_root, dataset) = photos(80, &[]);
        let (mut batches, mut images) = (0, 0);
        for (hardware, delay, share, others) in [(0, 0, 1.0, 2), (1, 300, 0.75, 1), (1, 0, 0.5, 0), (0, 2000, 0.3, 2)] {
            let mock = Mock::new("copy_us=20,jitter_us=40,seed=2");
            let nvjpeg = Nvjpeg::new(&mock);
            nvjpeg.set(Knob::Hardware, hardware);
            nvjpeg.set(Knob::DelayMicros, delay);
            let builder = builder(&dataset).num_threads(others);
            let mut loader = builder.clone().device(device(&mock, &nvjpeg, share)).build().expect("a loader");
            assert_eq!(same(&builder, &mut loader), 160);
            assert_eq!(steps(&loader), [""; 0]);
            let count = loader.stats().snapshot().count;
            assert_eq!(count.samples_decoded, 160);
            assert_eq!(count.samples_decoded_on_device as i64, nvjpeg.get(Knob::Images));
            let by_device = count.samples_decoded_on_device;
            // Five of eight photographs are what nvJPEG knows, and the hardware knows four of them.
            let known = if hardware == 0 { 100.0 } else { 80.0 };
            assert!((by_device as f64 - share * known).abs() <= 10.0, "{share}: {count:?}");
            images += by_device;
            drop(loader);
            batches += nvjpeg.get(Knob::Batches);
            nvjpeg.assert_clean();
            mock.assert_clean();
        }
        assert!(batches > 0 && images > 0, "{images} images, {batches} batches");
    });
}

/// Chains, and whether the GPU makes what they begin with: it does not where that is no cut, resize or mirror, and
/// where it shows what is beside the image. An erasing leaves the elements to the host, so that no kernel makes them.
pub const CHAINS: [(&str, bool); 6] = [
    ("random_resized_crop(48), hflip, normalize(imagenet)", true),
    ("resize(64x50, bicubic), random_crop(40), hflip, vflip, to_tensor(u8, hwc)", true),
    ("center_crop(20), color_jitter(0.4, 0.4, 0.4, 0.1), rotate(20), random_erasing, to_tensor(f16)", true),
    ("resize(200x300, lanczos), hflip", true),
    ("rotate(10), resize(48x48), random_erasing", false),
    ("random_crop(60, 80), random_erasing", false),
];

#[test]
fn the_gpu_cuts_and_resizes_what_it_has_decoded() {
    within(BOUND, || {
        let (_root, dataset) = photos(40, &[]);
        for (chain, resamples) in CHAINS {
            let mock = Mock::new("kernel_us=30,jitter_us=50,seed=3");
            let nvjpeg = Nvjpeg::new(&mock);
            let builder = Loader::builder(Arc::clone(&dataset)).batch_size(6).shuffle(true).seed(5).num_threads(0);
            let builder = builder.transform("data", chain.parse().expect("a chain"));
            let mut loader = builder.clone().device(device(&mock, &nvjpeg, 1.0)).build().expect("a loader");
            assert_eq!(same(&builder, &mut loader), 40, "{chain}");
            let images = nvjpeg.get(Knob::Images);
            assert!(images > 0 && loader.stats().snapshot().count.samples_decoded_on_device as i64 == images);
            assert_eq!(mock.count("kernels") > 0, resamples, "{chain}: nothing else has a kernel launched");
            drop(loader);
            nvjpeg.assert_clean();
            mock.assert_clean();
        }
    });
}

/// The hardware knows baseline files of one scan, and refuses a whole batch for one that it does not know.
#[test]
fn a_file_of_another_kind_leaves_the_others_to_the_hardware() {
    within(BOUND, || {
        let mock = Mock::new("");
        let nvjpeg = Nvjpeg::new(&mock);
        nvjpeg.set(Knob::Hardware, 1);
        let (context, library) = (mock.context(), Library::at(&nvjpeg.path()).expect("a library"));
        let mut decoder = library.decoder(&context, 8 << 20).expect("a decoder");
        assert_eq!(decoder.hardware().map(|found| (found.engines, found.cores)), Ok((7, 1)));
        let images = |names: &[&str]| -> Vec<(Vec<u8>, uringload_images::Image)> {
            let image = |name: &&str| {
                let file = photograph(name);
                let image = decode(&file, &Decoding::default()).expect("an image");
                (file, image)
            };
            names.iter().map(image).collect()
        };
        const COUNT: usize = 6;
        for place in 0..COUNT {
            for others in [&["progressive.jpg"][..], &["progressive.jpg", "progressive.jpg"]] {
                let mut names = vec!["420.jpg", "444.jpg", "420.jpg", "420.jpg", "444.jpg", "420.jpg"];
                (0..others.len()).for_each(|index| names[(place + index) % COUNT] = others[index]);
                let (images, before) = (images(&names), nvjpeg.get(Knob::HardwareImages));
                let asked: Vec<_> =
                    images.iter().map(|(file, image)| (&file[..], (image.height(), image.width()))).collect();
                let decoded = decoder.decode(&asked).expect("no error");
                for ((decoded, (_, image)), &name) in decoded.iter().zip(&images).zip(&names) {
                    match decoded {
                        Ok(decoded) => assert!(decoded.bytes == image.pixels() && name != "progressive.jpg"),
                        Err(error) => assert!(error.is_of_image() && name == "progressive.jpg", "{name}: {error}"),
                    }
                }
                let by_hardware = nvjpeg.get(Knob::HardwareImages) - before;
                assert_eq!((by_hardware, nvjpeg.get(Knob::Refused)), ((COUNT - others.len()) as i64, 0), "{names:?}");
            }
        }
        drop((decoder, context));
        nvjpeg.assert_clean();
        mock.assert_clean();
    });
}

/// The library asks for memory anew where a batch has another number of images, and the driver is asked only where that
/// is more than ever before: what it asks for waits for the trainer's kernels.
/// A loader that is dropped while the GPU decodes: the files are pinned until it has read them.
#[test]
fn files_are_pinned_as_long_as_they_are_read() {
    within(BOUND, || {
        let (_root, dataset) = photos_of(&["444.jpg"], 40, &[]);
        for batches in 0..12 {
            let mock = Mock::new("");
            let nvjpeg = Nvjpeg::new(&mock);
            nvjpeg.set(Knob::DelayMicros, 3000);
            let builder = builder_of(&dataset, [CHAIN, PIXELS][batches % 2]).epochs(None).num_threads(batches % 3);
            let mut loader = builder.device(device(&mock, &nvjpeg, 1.0)).build().expect("a loader");
            loader.by_ref().take(batches / 2).for_each(|batch| drop(batch.expect("a batch")));
            drop(loader);
            nvjpeg.assert_clean();
            mock.assert_clean();
        }
    });
}

/// A decoder with room for 8 MiB, a photograph and its pixels. Nothing may be left behind.
fn with_decoder(work: impl FnOnce(&Mock, &mut Decoder, (&[u8], (u32, u32)), &[u8]) + Send + 'static) {
    within(BOUND, || {
        let (mock, file) = (Mock::new(""), photograph("420.jpg"));
        let nvjpeg = Nvjpeg::new(&mock);
        let (context, library) = (mock.context(), Library::at(&nvjpeg.path()).expect("a library"));
        let image = decode(&file, &Decoding::default()).expect("an image");
        let mut decoder = library.decoder(&context, 8 << 20).expect("a decoder");
        work(&mock, &mut decoder, (&file, (image.height(), image.width())), image.pixels());
        drop((decoder, context));
        nvjpeg.assert_clean();
        mock.assert_clean();
    });
}

/// Pixels that come back lie where those of a batch before did, if that is over.
#[test]
fn pixels_need_no_new_memory() {
    with_decoder(|_, decoder, jpeg, wanted| {
        let mut places = Vec::new();
        for images in [5, 3, 5] {
            let decoded = decoder.decode(&vec![jpeg; images]).expect("no error");
            let decoded: Vec<_> = decoded.into_iter().map(|pixels| pixels.expect("pixels").bytes).collect();
            for pixels in decoded {
                assert!(pixels == wanted);
                places.push(pixels.as_ptr());
                decoder.reuse(pixels);
            }
        }
        assert!(places[5..].iter().all(|place| places[..5].contains(place)), "{places:?}");
    });
}

#[test]
fn batches_of_other_sizes_take_no_more_memory_from_the_driver() {
    with_decoder(|mock, decoder, jpeg, _| {
        let mut decode = |images: usize| {
            let decoded = decoder.decode(&vec![jpeg; images]).expect("no error");
            assert!(decoded.len() == images && decoded.iter().all(Result::is_ok));
            mock.count("allocations_made")
        };
        let pinned = mock.count("registrations");
        let most = decode(6);
        assert_eq!([1, 5, 2, 6, 3, 4, 1, 6].map(&mut decode), [most; 8]);
        assert_eq!([7, 2, 7].map(&mut decode), [most + 1; 3]);
        // Two blocks of the host's, of less than 2 MiB together.
        assert_eq!(mock.count("registrations"), pinned + 1);
    });
}

/// A GPU that has no memory for a batch gives an error, and the processor decodes.
#[test]
fn a_batch_that_there_is_no_memory_for_is_the_processors() {
    within(BOUND, || {
        let (_root, dataset) = photos(40, &[]);
        let mock = Mock::new("");
        let nvjpeg = Nvjpeg::new(&mock);
        let builder = builder(&dataset).num_threads(0);
        let mut loader = builder.clone().device(device(&mock, &nvjpeg, 1.0)).build().expect("a loader");
        mock.configure("fail=cuMemAlloc_v2@1+:2");
        assert_eq!(same(&builder, &mut loader), 80);
        let steps = steps(&loader);
        assert!(steps.len() == 1 && steps[0].contains("ALLOCATOR_FAILURE"), "{steps:?}");
        drop(loader);
        nvjpeg.assert_clean();
        mock.assert_clean();
    });
}

/// Who decodes is told, and what hinders the engine, with what helps.
#[test]
fn the_route_tells_who_decodes() {
    within(BOUND, || {
        let (_root, dataset) = photos(8, &[]);
        let mock = Mock::new("");
        let nvjpeg = Nvjpeg::new(&mock);
        let told = |error: i64| {
            nvjpeg.set(Knob::HardwareError, error);
            let loader = builder(&dataset).device(device(&mock, &nvjpeg, 0.5)).build().expect("a loader");
            let step = loader.route().fallbacks.into_iter().find(|step| step.cause == Cause::NvjpegEngine);
            (loader.route().devices[0].to_string(), step.map(|step| step.to_string()))
        };
        let (route, step) = told(6);
        assert!(route.ends_with("50 % of the JPEGs by nvJPEG 12.4.4, by its multiprocessors"), "{route}");
        let step = step.expect("a step");
        let words = ["EXECUTION_FAILED (6)", "libnvcuvid.so.1", "NVIDIA_DRIVER_CAPABILITIES"];
        assert!(words.iter().all(|word| step.contains(word)), "{step}");
        let step = told(0).1.expect("a step");
        assert!(step.contains("ARCH_MISMATCH (7)") && step.contains("harmless where the GPU has none"), "{step}");
        nvjpeg.set(Knob::Hardware, 1);
        let (route, step) = told(0);
        assert!(route.ends_with("nvJPEG 12.4.4, by 7 engines of 1 cores") && step.is_none(), "{route}: {step:?}");
        nvjpeg.assert_clean();
        mock.assert_clean();
    });
}

/// No more comes to the host than was asked for, if there is room on the device for that.
#[test]
fn what_there_is_no_room_to_resize_comes_whole() {
    within(BOUND, || {
        let (mock, file) = (Mock::new(""), photograph("420.jpg"));
        let nvjpeg = Nvjpeg::new(&mock);
        let (context, library) = (mock.context(), Library::at(&nvjpeg.path()).expect("a library"));
        let image = decode(&file, &Decoding::default()).expect("an image");
        let (size, chain) = ((image.height(), image.width()), "resize(20x30), hflip(1)".parse::<Chain>().unwrap());
        let draw = Draw { seed: 0, epoch: 0, sample: 0 };
        let plan = chain.draw(0, 0, 0, size.0, size.1).expect("a plan");
        let wanted = plan.image(&image, &mut Scratch::default()).expect("an image");
        let (passes, _) = chain.split_plan(&file, &Decoding::default(), draw).expect("two passes");
        let taps = |taps: uringload_images::Taps| Taps { first: taps.first, end: taps.end, weights: taps.weights };
        let resampling = Resampling { columns: taps(passes.columns), rows: taps(passes.rows) };
        let whole = Decoder::bytes_of(size);
        let some = Request { file: &file, size, resampling: Some(&resampling), to: None };
        let all = Request { resampling: None, ..some };
        for (bytes, resampled) in [(1 << 20, [true, true]), (whole * 18 / 16, [false, false])] {
            let mut decoder = library.decoder(&context, bytes).expect("a decoder");
            let made = decoder.decode_resampled(&[some, all, some]).expect("no error");
            for (made, resampled) in [0, 2].into_iter().zip(resampled).map(|(index, is)| (&made[index], is)) {
                let Ok(made) = made else { continue };
                assert_eq!(made.is_resampled, resampled);
                let wanted = if resampled { &wanted } else { &image };
                assert_eq!((made.height, made.width), (wanted.height(), wanted.width()));
                assert!(made.bytes == wanted.pixels());
            }
            assert!(made[0].is_ok() && made[1..].iter().all(|made| made.is_ok() == resampled[0]), "{bytes}");
            if let Ok(made) = &made[1] {
                assert!(!made.is_resampled && made.bytes == image.pixels());
            }
        }
        // What looks beside an image is not done with it.
        let mut beside = resampling.clone();
        beside.rows.first[19] += size.0;
        let mut decoder = library.decoder(&context, 1 << 20).expect("a decoder");
        let made = decoder.decode_resampled(&[Request { resampling: Some(&beside), ..some }]).expect("no error");
        assert!(matches!(&made[..], [Ok(made)] if !made.is_resampled && made.bytes == image.pixels()));
        drop((decoder, context));
        nvjpeg.assert_clean();
        mock.assert_clean();
    });
}

#[test]
fn what_the_gpu_does_not_decode_the_processor_does() {
    within(BOUND, || {
        let (_root, dataset) = photos(80, &[]);
        // Bad files, kinds that it does not know, some that only the engine does not know, another size than ours.
        for (knob, value, code) in [
            (Knob::FailEvery, 3, 3),
            (Knob::FailEvery, 2, 4),
            (Knob::FailEvery, 1, 10),
            (Knob::HardwareFailEvery, 2, 0),
            (Knob::ExtraRows, 1, 0),
        ] {
            let mock = Mock::new("");
            let nvjpeg = Nvjpeg::new(&mock);
            nvjpeg.set(Knob::Hardware, 1);
            nvjpeg.set(Knob::FailCode, code);
            nvjpeg.set(knob, value);
            let builder = builder(&dataset).num_threads(0);
            let mut loader = builder.clone().device(device(&mock, &nvjpeg, 1.0)).build().expect("a loader");
            assert_eq!(same(&builder, &mut loader), 160);
            assert_eq!(steps(&loader), [""; 0], "{knob:?}: files are no reason to leave the GPU");
            let by_device = loader.stats().snapshot().count.samples_decoded_on_device;
            // What the engine refuses in a batch leaves the others to it.
            let decodes = match knob {
                Knob::HardwareFailEvery => by_device > 0,
                _ => (code != 10 && knob != Knob::ExtraRows) || by_device == 0,
            };
            assert!(decodes, "{knob:?} {code}: {by_device}");
            drop(loader);
            nvjpeg.assert_clean();
            mock.assert_clean();
        }
    });
}

#[test]
fn corrupt_images_follow_on_error() {
    within(BOUND, || {
        let (_root, dataset) = photos(80, &[4, 8, 17, 40]);
        for (on_error, samples) in [(OnError::Skip, 152), (OnError::Replace, 160)] {
            let mock = Mock::new("");
            let nvjpeg = Nvjpeg::new(&mock);
            let builder = builder(&dataset).num_threads(0).on_error(on_error);
            let mut loader = builder.clone().device(device(&mock, &nvjpeg, 1.0)).build().expect("a loader");
            assert_eq!(same(&builder, &mut loader), samples);
            assert!(nvjpeg.get(Knob::Images) > 0);
            drop(loader);
            nvjpeg.assert_clean();
        }
        let mock = Mock::new("");
        let nvjpeg = Nvjpeg::new(&mock);
        let mut raised = builder(&dataset).device(device(&mock, &nvjpeg, 1.0)).build().expect("a loader");
        let error = raised.find_map(Result::err).expect("an error");
        assert!(error.to_string().contains("column \"data\" of sample"), "{error}");
    });
}

#[test]
fn a_gpu_that_fails_is_left_and_nothing_is_lost() {
    within(BOUND, || {
        let (_root, dataset) = photos(80, &[]);
        let mock = Mock::new("");
        let nvjpeg = Nvjpeg::new(&mock);
        for threads in [0, 2] {
            nvjpeg.set(Knob::LostFrom, nvjpeg.get(Knob::Images) + 2);
            let builder = builder(&dataset).num_threads(threads);
            let mut loader = builder.clone().device(device(&mock, &nvjpeg, 0.75)).build().expect("a loader");
            assert_eq!(same(&builder, &mut loader), 160);
            // Both threads may have been at an image.
            assert!(nvjpeg.get(Knob::Images) <= nvjpeg.get(Knob::LostFrom));
            let steps = steps(&loader);
            assert_eq!(steps.len(), 1, "{steps:?}");
            assert!(steps[0].contains("from now on") && steps[0].contains("EXECUTION_FAILED"), "{steps:?}");
            drop(loader);
            nvjpeg.assert_clean();
            mock.assert_clean();
        }
    });
}

/// nvJPEG rounds otherwise than the processor, and two runs are to have the same pixels, whoever had time.
#[test]
fn who_decodes_is_a_matter_of_the_sample_and_its_file() {
    within(BOUND, || {
        let (_root, dataset) = photos(96, &[]);
        let to = |chain: &str, threads: usize, device: Device| {
            let builder = builder_of(&dataset, chain).num_threads(threads).device(device);
            // Pixels that come back, and such that stay.
            let builder = if chain == PIXELS { builder.on_device("data", Images::default()) } else { builder };
            builder.build().expect("a loader")
        };
        let bytes = |loader: &mut DeviceLoader| -> Vec<Vec<u8>> {
            let bytes = |batch: DeviceBatch| batch.columns[0].memory.to_host().expect("bytes").to_vec();
            loader.map(|batch| bytes(batch.expect("a batch"))).collect()
        };
        let mut seen: [Option<(Vec<Vec<u8>>, u64)>; 2] = [None, None];
        let host = [CHAIN, PIXELS].map(|chain| bytes(&mut to(chain, 2, Device::host())));
        let loads = [(0, 1), (3000, 2), (100, 3), (0, 0)];
        for ((delay, threads), which) in loads.iter().flat_map(|&load| [(load, 0), (load, 1)]) {
            let mock = Mock::new("copy_us=20,jitter_us=40,seed=2");
            let nvjpeg = Nvjpeg::new(&mock);
            nvjpeg.set(Knob::Hardware, 1);
            nvjpeg.set(Knob::Brighter, 3);
            nvjpeg.set(Knob::DelayMicros, delay);
            // One broken file sends back the others of its batch, whichever these are.
            nvjpeg.set(Knob::HardwareFailEvery, 17);
            let mut loader = to([CHAIN, PIXELS][which], threads, device(&mock, &nvjpeg, 0.6));
            let batches = bytes(&mut loader);
            let by_device = loader.stats().snapshot().count.samples_decoded_on_device;
            assert!(by_device > 0 && batches != host[which], "the mock rounds as the processor does");
            let found = (batches, by_device);
            let seen = seen[which].get_or_insert_with(|| found.clone());
            assert!(*seen == found, "{} and {by_device} images by the GPU", seen.1);
            drop(loader);
            nvjpeg.assert_clean();
            mock.assert_clean();
        }
    });
}

#[test]
fn without_nvjpeg_the_processor_decodes_and_the_route_says_so() {
    within(BOUND, || {
        let (_root, dataset) = photos(16, &[]);
        let mock = Mock::new("");
        let nvjpeg = Nvjpeg::new(&mock);
        let builder = builder(&dataset);
        let said = |device: Device| {
            let mut loader = builder.clone().device(device).build().expect("a loader");
            assert_eq!(same(&builder, &mut loader), 32);
            assert_eq!(loader.stats().snapshot().count.samples_decoded_on_device, 0);
            let steps = steps(&loader);
            assert_eq!(steps.len(), 1, "{steps:?}");
            assert!(steps[0].starts_with("images decoded by the processor instead of "), "{steps:?}");
            steps[0].clone()
        };
        let plain = || Device::cuda(0).library(mock.path()).nvjpeg(1.0);
        let absent = said(plain().nvjpeg_library("/nowhere/libnvjpeg.so.12"));
        assert!(absent.contains("/nowhere") && absent.contains("pip install"), "{absent}");
        let less = said(plain().nvjpeg_library(nvjpeg.without("nvjpegDecodeBatchedInitialize")));
        assert!(less.contains("has no nvjpegDecodeBatchedInitialize"), "{less}");
        for (knob, value, words) in [
            (Knob::Version, 11, "11.4.4, and 12 is the first"),
            (Knob::CreateError, 7, "NVJPEG_STATUS_ARCH_MISMATCH"),
            (Knob::StateError, 5, "nvjpegJpegStateCreate: NVJPEG_STATUS_ALLOCATOR_FAILURE"),
        ] {
            nvjpeg.set(knob, value);
            let text = said(device(&mock, &nvjpeg, 1.0));
            assert!(text.contains(words), "{text}");
            nvjpeg.set(knob, 0);
        }
        nvjpeg.assert_clean();
        mock.assert_clean();
        // In a folder it is found by its name.
        let mut found = builder.clone().num_threads(0).device(plain().nvjpeg_places([nvjpeg.folder().to_path_buf()]));
        if uringload_sys::nvjpeg::Library::open(&[]).is_err() {
            let mut loader = found.build().expect("a loader");
            assert_eq!((same(&builder, &mut loader), steps(&loader).len()), (32, 0));
            assert!(nvjpeg.get(Knob::Images) > 0);
        }
        // What cannot be is refused.
        found = Loader::builder(Arc::clone(&dataset)).device(plain());
        let error = found.build().expect_err("an error");
        assert!(error.kind() == ErrorKind::InvalidArgument && error.to_string().contains("nvJPEG"), "{error}");
        for share in [-0.1, 1.5, 3.0, f64::NAN] {
            let error = builder.clone().device(plain().nvjpeg(share)).build().expect_err("an error");
            assert!(error.to_string().contains(&format!("nvjpeg cannot be {share}")), "{error}");
        }
    });
}
