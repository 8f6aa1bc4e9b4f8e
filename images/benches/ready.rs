//! CPU time from an image's bytes to a tensor on one thread, next to a bare loop of full decodes by the same decoder:
//! libjpeg-turbo where it is installed, and the embedded decoder.
//!
//! usage: cargo bench -p uringload-images --bench ready -- [FOLDER [PASSES]]
//!
//! FOLDER has the JPEGs; without one, the photograph of the tests is used. The least of all passes counts, because
//! other work on the machine can only add.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use uringload_core::Result;
use uringload_images::{
    Chain, Decoding, Draw, Filter, Image, Jpeg, Region, Scratch, decode, decode_with, decoder, resize,
};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/photo.jpg");
    let files = arguments.next().map_or_else(|| vec![own], |folder| jpegs(Path::new(&folder)));
    let passes = arguments.next().and_then(|passes| passes.parse().ok()).unwrap_or(12);
    let files: Vec<Vec<u8>> = files.iter().map(|path| std::fs::read(path).expect("a readable JPEG")).collect();
    let how = Decoding::default();
    let images = files.iter().map(|file| decode(file, &how)).collect::<Result<Vec<Image>>>()?;
    let pixels: u64 = images.iter().map(|image| u64::from(image.height()) * u64::from(image.width())).sum();
    let bytes: usize = files.iter().map(Vec::len).sum();
    let count = files.len();
    println!(
        "{count} images, on average {} pixels and {} bytes; least of {passes} passes, one thread",
        pixels / count as u64,
        bytes / count
    );

    let mut scratch = Scratch::default();
    let mut run = |chain: &Chain, epoch: u64, index: usize, image: &Image| -> Result<()> {
        let plan = chain.draw(1, epoch, index as u64, image.height(), image.width())?;
        let mut out = vec![0; plan.output(3).bytes()];
        plan.run(image, &mut out, &mut scratch)?;
        black_box(out);
        Ok(())
    };
    let ready: Chain = "random_resized_crop(224), hflip, normalize(imagenet)".parse()?;
    let levels: Chain = "random_resized_crop(224), hflip, to_tensor(u8, hwc)".parse()?;
    let tested: Chain = "resize(256), center_crop(224), normalize(imagenet)".parse()?;
    let painted: Chain =
        "random_resized_crop(224), hflip, color_jitter(0.4, 0.4, 0.4, 0.1), normalize(imagenet)".parse()?;

    println!("{:?}", decoder());
    let mut memory = Scratch::default();
    let mut pass = |how: &Decoding| {
        least(passes, count, |_, index| {
            let image = decode_with(&files[index], how, &mut memory)?;
            black_box(image.pixels());
            memory.reuse(image);
            Ok(())
        })
    };
    let bare = pass(&how)?;
    row("full decode, bare loop", bare, bare);
    let embedded = Decoding { jpeg: Jpeg::Embedded, ..how.clone() };
    row("full decode, embedded", pass(&embedded)?, bare);
    let mut tensor = vec![0; 3 * 224 * 224 * 4];
    let mut memory = Scratch::default();
    let exact = Decoding { exact: true, ..how.clone() };
    for (name, how) in [("fast", &how), ("exact", &exact), ("embedded", &embedded)] {
        let cost = least(passes, count, |epoch, index| {
            let draw = Draw { seed: 1, epoch, sample: index as u64 };
            ready.ready(&files[index], how, draw, &mut tensor, &mut memory)?;
            black_box(&tensor);
            Ok(())
        })?;
        row(&format!("file to RRC 224, flip, normalize: {name}"), cost, bare);
    }
    let whole = least(passes, count, |epoch, index| {
        let image = decode_with(&files[index], &how, &mut memory)?;
        let plan = ready.draw(1, epoch, index as u64, image.height(), image.width())?;
        plan.run(&image, &mut tensor, &mut memory)?;
        memory.reuse(image);
        Ok(())
    })?;
    row("the same of a full decode", whole, bare);
    for (name, chain) in [
        ("RRC 224, flip, normalize, f32 CHW", &ready),
        ("RRC 224, flip, u8 HWC", &levels),
        ("resize 256, center crop 224, normalize", &tested),
        ("RRC 224, flip, colour jitter, normalize", &painted),
    ] {
        row(name, least(passes, count, |epoch, index| run(chain, epoch, index, &images[index]))?, bare);
    }
    for filter in Filter::ALL {
        let cost = least(passes, count, |_, index| {
            let image = &images[index];
            let whole = Region::whole(image.height(), image.width());
            resize(image, whole, (224, 224), filter).map(|image| drop(black_box(image)))
        })?;
        row(&format!("whole to 224 x 224, {}", filter.name()), cost, bare);
    }
    Ok(())
}

fn row(name: &str, milliseconds: f64, bare: f64) {
    println!("{name:42} {milliseconds:8.3} ms {:9.0}/s {:6.2} of bare", 1e3 / milliseconds, bare / milliseconds);
}

/// Milliseconds of CPU time an image, in the cheapest of the passes.
fn least(passes: u64, count: usize, mut one: impl FnMut(u64, usize) -> Result<()>) -> Result<f64> {
    let mut least = f64::INFINITY;
    for pass in 0..passes {
        let start = cpu_nanoseconds();
        for index in 0..count {
            one(pass, index)?;
        }
        least = least.min((cpu_nanoseconds() - start) as f64 / 1e6 / count as f64);
    }
    Ok(least)
}

/// Time that this thread has been on a processor, which the scheduler counts.
fn cpu_nanoseconds() -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel with schedstat");
    told.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

fn jpegs(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|kind| kind == "jpg")).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no *.jpg in {}", folder.display());
    paths
}
