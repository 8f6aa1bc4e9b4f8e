//! `uringload show`: the first batch as a picture, each image before and after its transform.

use crate::Done;
use crate::arguments::{Sheet, ordered};
use crate::data::Data;
use crate::failure::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::{self, eprintln_quietly};
use serde_json::json;
use std::fmt::Write as _;
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::Arc;
use uringload::dataset::{Dataset, SampleId, Value};
use uringload::inspect::Samples;
use uringload::inspect::replace;
use uringload::transform::Chain;
use uringload::{Error, ErrorKind, Loader, Result};
use uringload_images::{Decoding, Filter, Image, Region, Scratch, decode, resize};

/// Rows and columns of an image on the sheet, at most.
const BOX: u32 = 224;
/// Pixels between images, and twice as many between samples.
const GAP: u32 = 4;
/// Samples in a row of the sheet.
const ACROSS: usize = 4;
/// Samples on a sheet at most.
const SAMPLES_MAX: usize = 256;
/// The level around images.
const PAPER: u8 = 255;

/// Writes the picture, and prints which sample is where.
pub fn run(options: &Sheet) -> Done {
    if !options.images.transform_column.is_empty() {
        let what = "the sheet shows what --transform makes, but not what --transform-column makes";
        return Err(Error::new(ErrorKind::InvalidArgument, what)
            .with_remedy("give --transform, and --image-column")
            .into());
    }
    Interrupt::end_at_once();
    let data = Data::of(&options.source)?;
    let config = ordered(&options.source.order);
    let sampler = data.sampler(&config, &options.source.chosen)?;
    let order = Loader::builder(Arc::clone(&data.dataset)).config(config.clone()).sampler(sampler).order()?;
    let batch = order.batches().next();
    let ids: Vec<SampleId> = batch.into_iter().flat_map(|batch| batch.ids).take(SAMPLES_MAX).collect();
    let shown = Shown {
        reader: Samples::new(Arc::clone(&data.dataset))?,
        field: field(&*data.dataset, &options.images.column(&data.dataset)?)?,
        chain: options.images.chain()?,
        seed: config.seed,
    };
    let (mut sheet, mut text) = (Paper::new(ids.len(), shown.chain.is_some()), String::new());
    let (mut is_bad, mut samples) = (false, Vec::new());
    for (place, &id) in ids.iter().enumerate() {
        let mut key = Vec::new();
        data.dataset.key(id, &mut key);
        let key = String::from_utf8_lossy(&key);
        let (row, column) = (place / ACROSS + 1, place % ACROSS + 1);
        match shown.sample(id) {
            Ok((before, after)) => {
                let size = format!("{} x {}", before.height(), before.width());
                // Writing to a String cannot fail.
                let _ = writeln!(text, "row {row}, column {column}: sample {} {key}, {size}", id.0);
                sheet.draw(place, &before, after.as_ref())?;
                let (height, width) = (before.height(), before.width());
                samples.push(json!({ "row": row, "column": column, "index": id.0, "key": key, "height": height,
                    "width": width }));
            }
            Err(error) => {
                samples.push(json!({ "row": row, "column": column, "index": id.0, "key": key, "error": error }));
                is_bad = true;
                eprintln_quietly(&format!("uringload: sample {} {key} is left white: {}", id.0, error.headline()));
            }
        }
    }
    sheet.write(&options.out)?;
    if options.json {
        text = format!("{:#}\n", json!({ "version": 1, "out": options.out.to_string_lossy(), "samples": samples }));
    }
    output::print(&text)?;
    Ok(if is_bad { Exit::Degraded } else { Exit::Done })
}

fn field(dataset: &dyn Dataset, column: &str) -> Result<usize> {
    let place = dataset.schema().fields.iter().position(|field| field.name == column);
    place.ok_or_else(|| Error::new(ErrorKind::InvalidArgument, format!("there is no column {column:?}")))
}

/// What is shown of samples.
struct Shown {
    reader: Samples,
    field: usize,
    chain: Option<Chain>,
    seed: u64,
}

impl Shown {
    /// The image of a sample, and what the chain makes of it in the first epoch.
    fn sample(&self, id: SampleId) -> Result<(Image, Option<Image>)> {
        let sample = self.reader.read(id)?;
        let Some(Value::Bytes(bytes)) = sample.values.get(self.field) else {
            return Err(Error::new(ErrorKind::InvalidArgument, "its value is an integer and no image"));
        };
        let before = decode(bytes, &Decoding::default())?;
        let Some(chain) = &self.chain else { return Ok((before, None)) };
        let plan = chain.draw(self.seed, 0, id.0, before.height(), before.width())?;
        let after = plan.image(&before, &mut Scratch::default())?;
        Ok((before, Some(after)))
    }
}

/// The picture.
struct Paper {
    width: u32,
    height: u32,
    /// For a sample, with its frame.
    cell: u32,
    pixels: Vec<u8>,
}

impl Paper {
    fn new(samples: usize, has_after: bool) -> Paper {
        let cell = if has_after { 2 * (BOX + GAP) } else { BOX + GAP } + GAP;
        let (width, height) = (ACROSS as u32 * cell, samples.div_ceil(ACROSS).max(1) as u32 * (BOX + 2 * GAP));
        Paper { width, height, cell, pixels: vec![PAPER; (width * height * 3) as usize] }
    }

    /// Draws a sample at its place.
    fn draw(&mut self, place: usize, before: &Image, after: Option<&Image>) -> Result<()> {
        let (y, x) = ((place / ACROSS) as u32 * (BOX + 2 * GAP), (place % ACROSS) as u32 * self.cell);
        self.put(y, x, before)?;
        after.map_or(Ok(()), |after| self.put(y, x + BOX + GAP, after))
    }

    /// Draws an image that is made to fit into a box.
    fn put(&mut self, y: u32, x: u32, image: &Image) -> Result<()> {
        let (height, width) = (image.height(), image.width());
        let longest = height.max(width).max(1);
        let fit = |side: u32| (u64::from(side) * u64::from(BOX) / u64::from(longest)).clamp(1, BOX.into()) as u32;
        let small = resize(image, Region::whole(height, width), (fit(height), fit(width)), Filter::Bilinear)?;
        let (row_bytes, channels) = ((small.width() * 3) as usize, small.channels() as usize);
        for (row, from) in small.pixels().chunks_exact(small.width() as usize * channels).enumerate() {
            let start = (((y + row as u32) * self.width + x) * 3) as usize;
            let to = &mut self.pixels[start..start + row_bytes];
            for (to, from) in to.chunks_exact_mut(3).zip(from.chunks_exact(channels)) {
                // Gray is repeated.
                to.iter_mut().zip(from.iter().cycle()).for_each(|(to, &from)| *to = from);
            }
        }
        Ok(())
    }

    fn write(&self, path: &Path) -> std::result::Result<(), Failure> {
        let failed = |source: io::Error| Failure::Loader(Error::io("cannot write the picture", source).with_path(path));
        let written = replace(path, |file| {
            let mut encoder = png::Encoder::new(BufWriter::new(file), self.width, self.height);
            encoder.set_color(png::ColorType::Rgb);
            let mut writer = encoder.write_header()?;
            writer.write_image_data(&self.pixels)?;
            Ok(writer.finish()?)
        });
        written.map_err(failed)
    }
}
