//! The work on columns in the loader's threads: images, what follows them, mixed batches and closures.

use super::Builder;
use crate::collate::{Collation, longest_value};
use crate::dataset::{Dataset, Field, Index, Shape};
use crate::prepared::Prepared;
use crate::stage::Maps;
use crate::transform::{
    Array, Chain, DecodeMemory, Follow, Input, Map, MapOutput, Mix, Mixer, Numbers, is_integer, resolve,
};
use crate::{Error, ErrorKind, Result};
use std::sync::Arc;

impl Builder {
    /// Decodes the images of a column and makes tensors of them, in the loader's threads: the column becomes dense, of
    /// the type and layout that the chain ends with. JPEG, PNG, WebP, BMP, GIF and TIFF are told by their content.
    ///
    /// Random numbers depend on the seed, the epoch and the sample alone. An image that cannot be decoded fails as a
    /// sample that cannot be read: see [`on_error`](Builder::on_error).
    ///
    /// ```no_run
    /// use uringload::{Loader, dataset};
    ///
    /// # fn main() -> uringload::Result<()> {
    /// let photos = dataset::open(&["/data/photos"], &dataset::Options::new())?;
    /// let chain = "random_resized_crop(224), hflip, normalize(imagenet)".parse()?;
    /// for batch in Loader::builder(photos).shuffle(true).transform("data", chain).build()? {
    ///     // [64, 3, 224, 224] of f32.
    ///     println!("{:?}", batch?.column("data").map(|column| &column.data));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn transform(mut self, column: impl Into<String>, chain: Chain) -> Builder {
        match Map::images(chain) {
            Ok(map) => self.maps.push((column.into(), map)),
            Err(error) => self.wrong = self.wrong.or(Some(error)),
        }
        self
    }

    /// Has a column follow the images of another one, which has a [`transform`](Builder::transform): masks and boxes go
    /// where the pixels go, by the same random numbers, and labels stay with their boxes.
    ///
    /// ```no_run
    /// use uringload::dataset::DType;
    /// use uringload::transform::{BoxFormat, Boxes, Follow, Mask};
    /// use uringload::{Loader, dataset};
    ///
    /// # fn main() -> uringload::Result<()> {
    /// let scenes = dataset::open(&["/data/scenes.tar"], &dataset::Options::new())?;
    /// let loader = Loader::builder(scenes)
    ///     .transform("jpg", "random_resized_crop(512), hflip, normalize(imagenet)".parse()?)
    ///     .follow("png", Mask::of("jpg").fill(255).dtype(DType::I64))
    ///     .follow("boxes.npy", Boxes::of("jpg").format(BoxFormat::Xywh))
    ///     .follow("classes.npy", Follow::Labels { boxes: "boxes.npy".into() })
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn follow(mut self, column: impl Into<String>, follow: impl Into<Follow>) -> Builder {
        self.follows.push((column.into(), follow.into()));
        self
    }

    /// Mixes the images of each batch, and their labels, by Mixup or CutMix. How is a function of the seed, the epoch
    /// and the samples of the batch: the same on any number of threads and after a resume with the same batch size.
    /// The column of the labels becomes `f32` of shape `[samples, classes]`, which torch's cross entropy takes.
    ///
    /// ```no_run
    /// use uringload::transform::Mix;
    /// use uringload::{Loader, dataset};
    ///
    /// # fn main() -> uringload::Result<()> {
    /// let photos = dataset::open(&["/data/photos"], &dataset::Options::new())?;
    /// let loader = Loader::builder(photos)
    ///     .transform("data", "random_resized_crop(224), hflip, normalize(imagenet)".parse()?)
    ///     .mix(Mix::new("data", "label", 1000).mixup(0.2).cutmix(1.0))
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn mix(mut self, mix: Mix) -> Builder {
        self.mix = Some(mix);
        self
    }

    /// Takes parts of the arrays of a column, turns them around, and makes numbers of another type of theirs, in the
    /// loader's threads. The column becomes dense. Where that leaves out much, only the rows that are needed are read,
    /// and the [`route`](crate::Loader::route) says so.
    ///
    /// ```no_run
    /// use uringload::dataset::{self, DType, Options};
    /// use uringload::Loader;
    /// use uringload::transform::Array;
    ///
    /// # fn main() -> uringload::Result<()> {
    /// let scans = dataset::open(&["/data/scans"], &Options::new().format("npy"))?;
    /// let steps = Array::default().random_crop([128, 128, 128]).random_flip(0, 0.5).cast(DType::BF16);
    /// for batch in Loader::builder(scans).shuffle(true).batch_size(2).array("data", steps).build()? {
    ///     // [2, 128, 128, 128] of bf16.
    ///     println!("{:?}", batch?.column("data").map(|column| &column.data));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn array(mut self, column: impl Into<String>, steps: Array) -> Builder {
        self.arrays.push((column.into(), steps));
        self
    }

    /// What a string says of a column: a chain of operations on images ([`transform`](Builder::transform)),
    /// `mask(image, fill=255)`, `boxes(image)`, `labels(boxes)` ([`follow`](Builder::follow)), `array(random_crop(8x8),
    /// cast(bf16))` ([`array`](Builder::array)), numbers of messages (`json(bbox, f32, 4)`, `msgpack(objects.*.score,
    /// f32, most=64)`), or, for the column of the labels, `mix(image, classes=1000, cutmix=1)`
    /// ([`mix`](Builder::mix)).
    ///
    /// # Errors
    /// `InvalidArgument` for what cannot be read, with what may be written.
    pub fn transform_by(self, column: &str, text: &str) -> Result<Builder> {
        let name = text.split('(').next().unwrap_or_default().trim();
        Ok(match name {
            "mix" => {
                let mix = Mix::parse(column, text)?;
                self.mix(mix)
            }
            "mask" | "boxes" | "labels" => self.follow(column, text.parse::<Follow>()?),
            "array" => self.array(column, text.parse::<Array>()?),
            "json" | "msgpack" => {
                let numbers: Numbers = text.parse()?;
                self.map(column, numbers.output(), move |message, out| numbers.run(message.bytes, out))
            }
            _ => self.transform(column, text.parse()?),
        })
    }

    /// Decodes the images of a column, and keeps their heights and widths only: `[samples, 2]` of `i64`.
    #[doc(hidden)]
    pub fn decode(mut self, column: impl Into<String>) -> Builder {
        self.maps.push((column.into(), Map::decode()));
        self
    }

    /// Each column of the dataset as it comes out of the loader's threads, with the bytes of its longest value.
    pub(super) fn columns_made(&self) -> Result<Vec<(Field, u64)>> {
        let schema = self.dataset.schema();
        let maps = resolved(self.maps.clone(), &self.follows, &self.arrays, self.dataset.index())?;
        let made = |(index, field): (usize, &Field)| match maps.iter().find(|(name, _)| *name == field.name) {
            Some((name, map)) => (map.output().field(name), map.output().bytes()),
            None => (field.clone(), longest_value(&*self.dataset, index)),
        };
        Ok(schema.fields.iter().enumerate().map(made).collect())
    }

    /// The column of the labels that are mixed with the images of a column, and the first that follows these.
    #[doc(hidden)]
    pub fn belonging(&self, images: &str) -> (Option<&str>, Option<&str>) {
        let mixed = self.mix.as_ref().filter(|mix| mix.images() == images).map(Mix::labels);
        let follows = self.follows.iter().find(|(_, follow)| follow.images() == Some(images));
        (mixed, follows.map(|(column, _)| column.as_str()))
    }

    /// Makes of columns what `other` makes of them.
    pub(crate) fn maps_of(mut self, other: &Builder) -> Builder {
        self.maps.clone_from(&other.maps);
        self.follows.clone_from(&other.follows);
        self.arrays.clone_from(&other.arrays);
        self.mix.clone_from(&other.mix);
        self.wrong.clone_from(&other.wrong);
        self
    }

    /// Makes of each value of a column what `closure` makes of it, in the loader's threads: audio that is decoded, a
    /// message that is parsed, features. The closure writes the elements to the slice, which has room for what `output`
    /// declares, and returns how many bytes it wrote.
    ///
    /// An error or a panic of the closure fails the sample: see [`on_error`](Builder::on_error). For random numbers use
    /// [`Input::seed`](crate::transform::Input::seed), which depends on the seed, the epoch and the sample alone.
    ///
    /// ```
    /// use uringload::dataset::DType;
    /// use uringload::transform::MapOutput;
    /// use uringload::{Loader, dataset};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # (0..4).for_each(|n| std::fs::write(folder.path().join(format!("{n}.dat")), vec![n; 9]).unwrap());
    /// let dataset = dataset::open(&[folder.path()], &dataset::Options::new())?;
    /// let mean = |value: &uringload::transform::Input<'_>, out: &mut [u8]| {
    ///     let sum: u64 = value.bytes.iter().map(|&byte| u64::from(byte)).sum();
    ///     out.copy_from_slice(&(sum as f32 / value.bytes.len() as f32).to_le_bytes());
    ///     Ok(out.len())
    /// };
    /// for batch in Loader::builder(dataset).map("data", MapOutput::fixed(DType::F32, []), mean).build()? {
    ///     println!("{:?}", batch?.column("data").map(|column| &column.data));
    /// }
    /// # Ok::<(), uringload::Error>(())
    /// ```
    pub fn map(
        mut self,
        column: impl Into<String>,
        output: MapOutput,
        closure: impl Fn(&Input<'_>, &mut [u8]) -> Result<usize> + Send + Sync + 'static,
    ) -> Builder {
        match Map::closure(output, closure) {
            Ok(map) => self.maps.push((column.into(), map)),
            Err(error) => self.wrong = self.wrong.or(Some(error)),
        }
        self
    }
}

/// Everything that becomes of columns of a dataset.
///
/// # Errors
/// `InvalidArgument` for a column that does not exist or cannot become that.
pub(super) fn resolved(
    maps: Vec<(String, Map)>,
    follows: &[(String, Follow)],
    arrays: &[(String, Array)],
    index: &Index,
) -> Result<Vec<(String, Map)>> {
    let schema = &index.schema;
    let mut maps = resolve(maps, follows, index)?;
    for (name, array) in arrays {
        let field = schema.fields.iter().find(|field| field.name == *name).ok_or_else(|| {
            let names: Vec<&str> = schema.fields.iter().map(|field| field.name.as_str()).collect();
            let what = format!("steps are given for the arrays of {name:?}, which is no column");
            Error::new(ErrorKind::InvalidArgument, what).with_remedy(format!("choose from {}", names.join(", ")))
        })?;
        maps.push((name.clone(), array.map(field)?));
    }
    Ok(maps)
}

/// The work on columns, in the order of the schema.
pub(super) fn maps_of(
    mut maps: Vec<(String, Map)>,
    collation: &Collation,
    seed: u64,
    (memory, prepared, mixer): (DecodeMemory, Option<Arc<Prepared>>, Option<Mixer>),
) -> Option<Arc<Maps>> {
    let fields = collation.mapped_fields();
    maps.sort_by_key(|(name, _)| fields.iter().position(|(_, field)| field.name == *name));
    (!maps.is_empty()).then(|| Arc::new(Maps { columns: maps, seed, memory, prepared, mixer: mixer.map(Arc::new) }))
}

/// Refuses labels that are no classes.
pub(super) fn check_labels(mixer: &Mixer, dataset: &dyn Dataset, maps: &[(String, Map)]) -> Result<()> {
    let (name, _) = mixer.labels();
    let fields = &dataset.schema().fields;
    let field = fields.iter().find(|field| field.name == name);
    let scalar = |field: &&Field| matches!(&field.shape, Shape::Fixed(shape) if shape.is_empty());
    let is_made = maps.iter().any(|(other, _)| other == name);
    if field.filter(scalar).is_some_and(|field| is_integer(field.dtype) && !is_made) {
        return Ok(());
    }
    let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
    let what = format!("column {name:?} has no labels to mix: one integer for each sample, as it is stored");
    Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(format!("name one of {}", names.join(", "))))
}
