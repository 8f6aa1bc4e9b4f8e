//! The transform of each column, resolved once against the dataset.

use super::batch::{DeviceBytes, DeviceColumn, DeviceForm};
use super::layout::{Addressed, Staged, Work};
use crate::batch::{Batch, Column, Data, Pieces};
use crate::config::{Collate, Config};
use crate::dataset::{DType, Field, SampleId, Shape};
use crate::transform::images::images_on_host;
use crate::transform::tokens::tokens_on_host;
use crate::transform::twin::{ImageLayout, ImageParams};
use crate::transform::{Images, Map, OnDevice, Tokens};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use uringload_sys::cuda::{self, Image, Kernel, PixelType, TokenType};

/// Name of the labels column, unless the dataset already has a column of that name.
const LABELS: &str = "labels";

/// The transform of each column that has one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transforms {
    /// By field of the schema.
    of: Vec<Option<Resolved>>,
    seed: u64,
}

#[derive(Clone, Debug)]
enum Resolved {
    Images {
        images: Images,
        layout: ImageLayout,
        /// Height and width of the source, in pixels.
        source: (u32, u32),
    },
    Tokens {
        tokens: Tokens,
        stored: DType,
        /// Name of the labels column, if labels are wanted.
        labels: Option<String>,
        /// Maximum number of elements in a row.
        longest: u64,
    },
}

impl Resolved {
    fn images(images: Images, field: &Field) -> Result<Resolved> {
        let layout = images.layout(field)?;
        let side = |at: usize| match &field.shape {
            Shape::Fixed(shape) => shape.get(at).and_then(|&side| u32::try_from(side).ok()).unwrap_or(0),
            Shape::Ragged => 0,
        };
        Ok(Resolved::Images { images, layout, source: (side(0), side(1)) })
    }
}

impl Transforms {
    /// Resolves the requested transforms, by column. `columns` has each with the bytes of its longest value. Sets the
    /// form of each of these columns in `config` to what its transform needs.
    ///
    /// # Errors
    /// `InvalidArgument` for a column that does not exist, is named twice, was given a form of its own, or cannot have
    /// such a transform.
    pub(crate) fn new(
        asked: &[(String, OnDevice)],
        config: &mut Config,
        columns: &[(Field, u64)],
    ) -> Result<Transforms> {
        let fields = || columns.iter().map(|(field, _)| field);
        let mut of: Vec<Option<Resolved>> = vec![None; columns.len()];
        for (name, transform) in asked {
            let Some(index) = fields().position(|field| field.name == *name) else {
                let names: Vec<&str> = fields().map(|field| field.name.as_str()).collect();
                let remedy = format!("choose from the columns {}", names.join(", "));
                return Err(refused(format!("a transform is given for {name:?}, which is no column"), remedy));
            };
            if of[index].is_some() {
                return Err(refused(format!("column {name:?} is given two transforms"), "name it once".into()));
            }
            if config.collate_columns.iter().any(|(other, _)| other == name) {
                let what = format!("column {name:?} is given a form and a transform, which has its own form");
                return Err(refused(what, "give it one of the two".into()));
            }
            let (field, longest) = &columns[index];
            transform.check(field)?;
            of[index] = Some(match transform {
                OnDevice::Images(images) => Resolved::images(images.clone(), field)?,
                OnDevice::Tokens(tokens) => {
                    let is_taken = fields().any(|field| field.name == LABELS);
                    let labels = if is_taken { format!("{name}_{LABELS}") } else { LABELS.to_owned() };
                    let longest = tokens.row_elements(longest / field.dtype.size());
                    let labels = tokens.labels.then_some(labels);
                    Resolved::Tokens { tokens: tokens.clone(), stored: field.dtype, labels, longest }
                }
            });
            let form = if field.shape == Shape::Ragged { Collate::Ragged } else { Collate::Dense };
            config.collate_columns.push((name.clone(), form));
        }
        Ok(Transforms { of, seed: config.seed })
    }

    /// Lets the device make the elements of images whose pixels the loader's threads make, a quarter of the bytes or a
    /// half: the same elements, to the bit. `maps` then make pixels. Skips columns that have a form of their own, and
    /// those where pixels are requested unless `stays` says that they stay on the device.
    pub(crate) fn take_elements(
        &mut self,
        maps: &mut [(String, Map)],
        config: &mut Config,
        columns: &[(Field, u64)],
        stays: bool,
    ) {
        if !matches!(config.collate, Collate::Dense | Collate::Ragged) {
            return;
        }
        for (name, map) in maps {
            let Some(index) = columns.iter().position(|(field, _)| field.name == *name) else { continue };
            let has_form = config.collate_columns.iter().any(|(other, _)| other == name);
            let Some((pixels, images)) = map.split_elements().filter(|_| self.of[index].is_none() && !has_form) else {
                continue;
            };
            let field = pixels.output().field(name);
            let is_made = (map.output() != pixels.output() || stays) && images.is_exact();
            if let (true, Ok(resolved)) = (is_made, Resolved::images(images, &field)) {
                (*map, self.of[index]) = (pixels, Some(resolved));
                config.collate_columns.push((name.clone(), Collate::Dense));
            }
        }
    }

    /// Upper bound of the bytes of the columns that a field's transform makes from `samples` samples, if it has one.
    pub(super) fn bytes(&self, field: usize, samples: u64) -> Option<u64> {
        let each = match self.resolved(field)? {
            Resolved::Images { layout, .. } => layout.bytes() as u64,
            Resolved::Tokens { labels, longest, .. } => {
                let columns = if labels.is_some() { 2 } else { 1 };
                longest.saturating_mul(8 * columns)
            }
        };
        Some(samples.saturating_mul(each))
    }

    /// Whether a field's transform makes its images from pixels.
    pub(crate) fn takes_pixels(&self, field: usize) -> bool {
        matches!(self.resolved(field), Some(Resolved::Images { .. }))
    }

    /// The kernel of a field's transform, if it has one.
    pub(super) fn kernel(&self, field: usize) -> Option<Kernel> {
        Some(match self.resolved(field)? {
            Resolved::Images { layout, .. } => match layout.dtype {
                DType::F32 => Kernel::ImagesF32,
                DType::F16 => Kernel::ImagesF16,
                DType::BF16 => Kernel::ImagesBF16,
                _ => Kernel::ImagesU8,
            },
            Resolved::Tokens { stored: DType::U16, .. } => Kernel::TokensU16,
            Resolved::Tokens { .. } => Kernel::TokensU32,
        })
    }

    /// The work for a column, if it has a transform.
    pub(super) fn work(
        &self,
        field: usize,
        batch: &Batch,
        addressed: &Addressed<'_>,
        staged: &mut Staged,
    ) -> Option<Work> {
        let lengths = value_lengths(batch.columns.get(field)?, batch.len());
        let start = staged.align();
        Some(match self.resolved(field)? {
            Resolved::Images { images, layout, source } => {
                let rows = addressed.values(lengths.into_iter());
                for (row, params) in rows.zip(self.params(images, *source, batch)) {
                    let ImageParams { height, width, x, y, w, h, flip } = params;
                    staged.append(&Image { source: row.source, height, width, crop: [x, y, w, h], flip }.encode());
                }
                let (table, images) = (start..staged.end(), on_device(layout));
                Work::Images { table, len: batch.len() * layout.bytes(), images, layout: *layout }
            }
            Resolved::Tokens { tokens, stored, labels, .. } => {
                let longest = lengths.iter().copied().max().unwrap_or(0) as u64 / stored.size();
                let seq_len = tokens.row_elements(longest);
                addressed.values(lengths.into_iter()).for_each(|row| staged.append(&row.encode()));
                let stored = if *stored == DType::U16 { TokenType::U16 } else { TokenType::U32 };
                let tokens = cuda::Tokens::new(stored, seq_len).pad_id(tokens.pad_id).ignore(tokens.ignore_index);
                let len = batch.len() * seq_len as usize * 8;
                Work::Tokens { table: start..staged.end(), len, tokens, labels: labels.clone() }
            }
        })
    }

    /// Makes the columns of a transform on the host. Returns `None` if the column has no transform.
    ///
    /// # Errors
    /// `MemoryLimit` if there is no memory.
    pub(super) fn on_host(
        &self,
        field: usize,
        column: &Column,
        batch: &Batch,
        pieces: &Pieces,
    ) -> Result<Option<Vec<DeviceColumn>>> {
        let Some(resolved) = self.resolved(field) else { return Ok(None) };
        let mut rest = pieces.pieces.iter();
        let value = |len: usize| if len == 0 { None } else { rest.next() };
        let samples: Vec<&[u8]> = value_lengths(column, batch.len())
            .into_iter()
            .map(value)
            .map(|piece| piece.map_or(&[][..], |(_, piece)| piece))
            .collect();
        let made = |name: &str, dtype, shape, bytes| DeviceColumn {
            name: name.to_owned(),
            dtype,
            form: DeviceForm::Dense { shape },
            memory: DeviceBytes::on_host(Bytes::from(bytes)),
        };
        Ok(Some(match resolved {
            Resolved::Images { images, layout, source } => {
                let params: Vec<ImageParams> = self.params(images, *source, batch).collect();
                let bytes = images_on_host(layout, &params, &samples)?;
                vec![made(&column.name, layout.dtype, image_shape(layout), bytes)]
            }
            Resolved::Tokens { tokens, stored, labels, .. } => {
                let (ids, next) = tokens_on_host(tokens, *stored, &samples)?;
                let longest = samples.iter().map(|sample| sample.len() as u64 / stored.size()).max().unwrap_or(0);
                let shape = || vec![tokens.row_elements(longest)];
                let mut columns = vec![made(&column.name, DType::I64, shape(), ids)];
                if let (Some(name), Some(next)) = (labels, next) {
                    columns.push(made(name, DType::I64, shape(), next));
                }
                columns
            }
        }))
    }

    fn resolved(&self, field: usize) -> Option<&Resolved> {
        self.of.get(field)?.as_ref()
    }

    fn params(&self, images: &Images, (height, width): (u32, u32), batch: &Batch) -> impl Iterator<Item = ImageParams> {
        let epoch = batch.cursor.epoch;
        batch.ids.iter().map(move |&id: &SampleId| images.params(self.seed, epoch, id, height, width))
    }
}

/// Byte length of each sample's value, in a column that a transform accepts.
fn value_lengths(column: &Column, samples: usize) -> Vec<usize> {
    let size = column.dtype.size() as usize;
    match &column.data {
        Data::Ragged { offsets, .. } => offsets.windows(2).map(|pair| (pair[1] - pair[0]) as usize * size).collect(),
        Data::Dense { shape, .. } => vec![shape.iter().product::<u64>() as usize * size; samples],
        _ => Vec::new(),
    }
}

/// Shape of one image.
pub(super) fn image_shape(layout: &ImageLayout) -> Vec<u64> {
    let ImageLayout { channels, height, width, channels_last, .. } = *layout;
    let shape = if channels_last { [height, width, channels] } else { [channels, height, width] };
    shape.map(u64::from).to_vec()
}

fn on_device(layout: &ImageLayout) -> cuda::Images {
    let ImageLayout { dtype, channels, height, width, channels_last, mean, std } = *layout;
    let pixel = match dtype {
        DType::F32 => PixelType::F32,
        DType::F16 => PixelType::F16,
        DType::BF16 => PixelType::BF16,
        _ => PixelType::U8,
    };
    cuda::Images::new(pixel, channels, (height, width)).channels_last(channels_last).normalized(mean, std)
}

fn refused(what: String, remedy: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy)
}
