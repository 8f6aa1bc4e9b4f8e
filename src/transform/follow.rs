//! Columns that follow the images of another one: masks, boxes, and labels of boxes. They use the same random numbers,
//! and move with the pixels.

use super::map::{Map, MapOutput};
use super::refused;
use crate::dataset::inspect::npy_array_of;
use crate::dataset::{DType, Field, Index, Role};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::borrow::Cow;
use std::str::FromStr;
use std::sync::Arc;
use uringload_images::{Chain, Color, Decoding, Plan, Rectangle, Scratch, decode_with, dimensions};

/// Numbers of a box.
const EDGES: usize = 4;

/// A column that follows the images of another one through its [`transform`](crate::Builder::transform): see
/// [`Builder::follow`](crate::Builder::follow). As a string: `mask(image, fill=255, dtype=i64)`,
/// `boxes(image, format=xywh)`, `labels(boxes)`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Follow {
    /// Masks: for segmentation.
    Mask(Mask),
    /// Boxes: for detection.
    Boxes(Boxes),
    /// One element for each box, for the boxes that are left.
    Labels {
        /// The column of the boxes.
        boxes: String,
    },
}

/// Masks of images: encoded images of one channel (a palette or gray, such as PNG), of the size of their images. Pixels
/// are looked up and never blended: each becomes the nearest one, as in Pillow and torch's `nearest-exact`. The column
/// becomes a tensor of shape `[samples, height, width]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Mask {
    of: String,
    fill: u8,
    dtype: DType,
}

/// Boxes of objects: values of four numbers a box, `f32`, `f64`, `i32`, `i64`, `u16` or `u8`. They move with the
/// pixels, are cut at the edges of the visible part, and are dropped if less than `min_size` pixels of a side are left.
/// A rotated box becomes the upright one around it. The column becomes ragged `f32`, four numbers a box.
#[derive(Clone, Debug, PartialEq)]
pub struct Boxes {
    of: String,
    format: BoxFormat,
    normalized: bool,
    min_size: f32,
    most: u64,
}

/// The meaning of the four numbers of a box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BoxFormat {
    /// Left, top, right and bottom edge (Pascal VOC).
    #[default]
    Xyxy,
    /// Left and top edge, width and height (COCO).
    Xywh,
    /// The middle, width and height (YOLO, with [`Boxes::normalized`]).
    Cxcywh,
}

impl Mask {
    /// Masks of the images of the column `images`.
    pub fn of(images: impl Into<String>) -> Mask {
        Mask { of: images.into(), fill: 0, dtype: DType::U8 }
    }

    /// The value where the image is padded; losses often ignore 255. Default: 0.
    #[must_use]
    pub fn fill(mut self, fill: u8) -> Mask {
        self.fill = fill;
        self
    }

    /// The element type: `U8` (the default), `I32` or `I64`.
    #[must_use]
    pub fn dtype(mut self, dtype: DType) -> Mask {
        self.dtype = dtype;
        self
    }
}

impl Boxes {
    /// Boxes in the images of the column `images`.
    pub fn of(images: impl Into<String>) -> Boxes {
        Boxes { of: images.into(), format: BoxFormat::Xyxy, normalized: false, min_size: 1.0, most: 256 }
    }

    /// The meaning of the four numbers, in the dataset and in the batch. Default: [`BoxFormat::Xyxy`].
    #[must_use]
    pub fn format(mut self, format: BoxFormat) -> Boxes {
        self.format = format;
        self
    }

    /// Whether numbers are shares of the image's width and height instead of pixels, in the dataset and in the batch.
    /// Default: false.
    #[must_use]
    pub fn normalized(mut self, normalized: bool) -> Boxes {
        self.normalized = normalized;
        self
    }

    /// Drops boxes with a side of fewer pixels. Default: 1, as in torchvision's `SanitizeBoundingBoxes`.
    #[must_use]
    pub fn min_size(mut self, pixels: f32) -> Boxes {
        self.min_size = pixels;
        self
    }

    /// Most boxes of a sample, for which memory is reserved. A sample with more of them fails. Default: 256.
    #[must_use]
    pub fn most(mut self, boxes: u64) -> Boxes {
        self.most = boxes;
        self
    }
}

impl From<Mask> for Follow {
    fn from(mask: Mask) -> Follow {
        Follow::Mask(mask)
    }
}

impl From<Boxes> for Follow {
    fn from(boxes: Boxes) -> Follow {
        Follow::Boxes(boxes)
    }
}

impl Follow {
    /// The column of the images; `None` for a column that follows boxes.
    pub(crate) fn images(&self) -> Option<&str> {
        match self {
            Follow::Mask(mask) => Some(&mask.of),
            Follow::Boxes(boxes) => Some(&boxes.of),
            Follow::Labels { .. } => None,
        }
    }
}

impl FromStr for Follow {
    type Err = Error;

    /// # Errors
    /// `InvalidArgument`, with the valid forms.
    fn from_str(text: &str) -> Result<Follow> {
        let wrong = |what: String| {
            let remedy = "write mask(image, fill=255, dtype=i64), boxes(image, format=xyxy, normalized=false, \
                          min_size=1, most=256) or labels(boxes), with the names of your columns";
            Err(refused(what, remedy))
        };
        let Some((name, inside)) = text.trim().strip_suffix(')').and_then(|text| text.split_once('(')) else {
            return wrong(format!("{text:?} says of no column that it follows images"));
        };
        let mut arguments = inside.split(',').map(str::trim);
        let of = arguments.next().filter(|of| !of.is_empty()).unwrap_or_default().to_owned();
        if of.is_empty() || of.contains('=') {
            return wrong(format!("{text:?} does not begin with the column that is followed"));
        }
        let mut made = match name.trim() {
            "mask" => Follow::Mask(Mask::of(of)),
            "boxes" => Follow::Boxes(Boxes::of(of)),
            "labels" => Follow::Labels { boxes: of },
            other => return wrong(format!("{other:?} follows no images")),
        };
        for argument in arguments {
            let (key, value) =
                argument.split_once('=').map_or((argument, ""), |(key, value)| (key.trim(), value.trim()));
            if made.set(key, value).is_none() {
                return wrong(format!("{argument:?} is no argument of {}", name.trim()));
            }
        }
        Ok(made)
    }
}

impl Follow {
    /// Sets an argument by its name.
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match (self, key) {
            (Follow::Mask(mask), "fill") => mask.fill = value.parse().ok()?,
            (Follow::Mask(mask), "dtype") => mask.dtype = DType::named(value)?,
            (Follow::Boxes(boxes), "format") => {
                boxes.format = match value {
                    "xyxy" => BoxFormat::Xyxy,
                    "xywh" => BoxFormat::Xywh,
                    "cxcywh" => BoxFormat::Cxcywh,
                    _ => return None,
                }
            }
            (Follow::Boxes(boxes), "normalized") => boxes.normalized = value.parse().ok()?,
            (Follow::Boxes(boxes), "min_size") => boxes.min_size = value.parse().ok()?,
            (Follow::Boxes(boxes), "most") => boxes.most = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }
}

/// How a value that follows is made. The values of the columns that it needs are beside it: for a mask and for boxes
/// the image, for labels the boxes and the image.
#[derive(Clone, Debug)]
pub(crate) enum Followed {
    Mask { mask: Mask, chain: Arc<Chain>, size: (u32, u32) },
    Boxes { boxes: Boxes, chain: Arc<Chain>, stored: Stored },
    Labels { boxes: Boxes, chain: Arc<Chain>, stored: Stored, labels: Stored },
}

/// How a column stores numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stored {
    /// As elements of this type, end to end.
    Elements(DType),
    /// As a NumPy file, which has the type.
    Npy,
}

impl Stored {
    /// The form that a column declares. A file that holds something other than numbers does not count as 8-bit numbers.
    fn of(index: &Index, place: usize) -> Result<Stored> {
        let field = &index.schema.fields[place];
        let role = index.encodings.get(place).map(|encoding| &encoding.role);
        let is_file = ["tar", "folder"].contains(&index.format);
        match role {
            Some(Role::Encoded(name)) if name == "npy" => Ok(Stored::Npy),
            Some(Role::Encoded(_) | Role::Text) => Err(of_files(field)),
            _ if is_file && field.dtype == DType::U8 => Err(of_files(field)),
            _ => Ok(Stored::Elements(field.dtype)),
        }
    }

    /// The type and the elements of a value, which has rows of `row` elements.
    fn elements(self, value: &[u8], row: usize) -> Result<(DType, &[u8])> {
        match self {
            Stored::Elements(dtype) => Ok((dtype, value)),
            Stored::Npy => {
                let (dtype, shape, elements) = npy_array_of(value)?;
                let is_list = match shape[..] {
                    [] => row == 1,
                    [_] => true,
                    [_, columns] => columns == row as u64,
                    _ => false,
                };
                if !is_list {
                    let what = format!("the array has the shape {shape:?}");
                    let remedy =
                        if row == 1 { "store one number for each box" } else { "store four numbers in each row" };
                    return Err(Error::new(ErrorKind::Corrupt, what).with_remedy(remedy));
                }
                Ok((dtype, elements))
            }
        }
    }
}

fn of_files(field: &Field) -> Error {
    let what = format!("column {:?} has files, and no numbers", field.name);
    refused(what, "store boxes and labels as .npy, or take numbers from messages: json(bbox, f32, most=1024)")
}

/// Adds the maps of columns that follow others to `maps`.
///
/// # Errors
/// `InvalidArgument` for a column that follows nothing, or something that it cannot, and for invalid numbers.
pub(crate) fn resolve(
    mut maps: Vec<(String, Map)>,
    follows: &[(String, Follow)],
    index: &Index,
) -> Result<Vec<(String, Map)>> {
    let schema = &index.schema;
    let place = |name: &str| schema.fields.iter().position(|field| field.name == name);
    let field = |name: &str| {
        let names: Vec<&str> = schema.fields.iter().map(|field| field.name.as_str()).collect();
        let missing = || refused(format!("there is no column {name:?} to follow"), format!("choose from {names:?}"));
        place(name).map(|place| (place, &schema.fields[place])).ok_or_else(missing)
    };
    let chain_of = |maps: &[(String, Map)], of: &str| -> Result<(usize, Arc<Chain>)> {
        let (place, _) = field(of)?;
        let chain = maps.iter().find(|(name, _)| name == of).and_then(|(_, map)| map.chain());
        let chain = chain.ok_or_else(|| {
            refused(format!("column {of:?}, which is followed, has no transform of images"), "give it one")
        })?;
        Ok((place, Arc::new(chain.clone())))
    };
    for (name, follow) in follows {
        let map = match follow {
            Follow::Mask(mask) => {
                let (place, chain) = chain_of(&maps, &mask.of)?;
                mask_map(mask, chain, place)?
            }
            Follow::Boxes(boxes) => {
                let (place, chain) = chain_of(&maps, &boxes.of)?;
                boxes_map(boxes, chain, check_boxes(boxes, index, field(name)?.0)?, place)?
            }
            Follow::Labels { boxes: of } => {
                let (boxes_place, _) = field(of)?;
                let boxes = follows.iter().find_map(|(other, follow)| match follow {
                    Follow::Boxes(boxes) if other == of => Some(boxes),
                    _ => None,
                });
                let Some(boxes) = boxes else {
                    let what = format!("column {name:?} follows {of:?}, which has no boxes that follow images");
                    return Err(refused(what, format!("follow {of:?} by boxes(image)")));
                };
                let (place, chain) = chain_of(&maps, &boxes.of)?;
                let stored = check_boxes(boxes, index, boxes_place)?;
                let labels = Stored::of(index, field(name)?.0)?;
                let dtype = match labels {
                    Stored::Elements(dtype) => dtype,
                    // Files of a column may have different types.
                    Stored::Npy => DType::I64,
                };
                let made = Followed::Labels { boxes: boxes.clone(), chain, stored, labels };
                Map::followed(MapOutput::varying(dtype, boxes.most), made, vec![boxes_place, place])
            }
        };
        maps.push((name.clone(), map));
    }
    Ok(maps)
}

fn mask_map(mask: &Mask, chain: Arc<Chain>, place: usize) -> Result<Map> {
    if !matches!(mask.dtype, DType::U8 | DType::I32 | DType::I64) {
        return Err(refused(format!("masks cannot become {}", mask.dtype), "ask for u8, i32 or i64"));
    }
    let Some(size) = chain.size() else {
        return Err(refused("the images that masks follow have no one size", "resize or crop them to one"));
    };
    let output = MapOutput::fixed(mask.dtype, [u64::from(size.0), u64::from(size.1)]);
    Ok(Map::followed(output, Followed::Mask { mask: mask.clone(), chain, size }, vec![place]))
}

fn boxes_map(boxes: &Boxes, chain: Arc<Chain>, stored: Stored, place: usize) -> Result<Map> {
    let output = MapOutput::varying(DType::F32, boxes.most.saturating_mul(EDGES as u64));
    Ok(Map::followed(output, Followed::Boxes { boxes: boxes.clone(), chain, stored }, vec![place]))
}

/// How the numbers are stored, if boxes can have that type.
fn check_boxes(boxes: &Boxes, index: &Index, place: usize) -> Result<Stored> {
    let field = &index.schema.fields[place];
    let (name, stored) = (&field.name, Stored::of(index, place)?);
    if let Stored::Elements(dtype) = stored {
        check_type(dtype).map_err(|error| refused(format!("column {name:?} has no boxes: {}", error.what()), TYPES))?;
    }
    let is_least = boxes.min_size >= 0.0 && boxes.min_size.is_finite();
    if !is_least || !(1..=1 << 20).contains(&boxes.most) {
        let what = format!("boxes of {name:?} cannot have min_size {} and most {}", boxes.min_size, boxes.most);
        return Err(refused(what, "give a finite min_size from 0 on, and most from 1 to 1048576"));
    }
    Ok(stored)
}

/// Refuses types that boxes cannot have.
fn check_type(dtype: DType) -> Result<()> {
    if matches!(dtype, DType::F32 | DType::F64 | DType::I32 | DType::I64 | DType::U16 | DType::U8) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Corrupt, format!("its values are {dtype}")).with_remedy(TYPES))
}

const TYPES: &str = "store boxes as f32, f64, i32, i64, u16 or u8, four numbers each";

impl Followed {
    /// Whether it decodes images.
    pub(crate) fn decodes(&self) -> bool {
        matches!(self, Followed::Mask { .. })
    }

    /// Writes the result for `bytes` to `out`, and returns its length. `draw` makes the plan of an image from its rows
    /// and columns.
    pub(crate) fn run(
        &self,
        (bytes, beside): (&[u8], &[Bytes]),
        draw: impl Fn(&Chain, (u32, u32)) -> Result<Plan>,
        out: &mut [u8],
        (how, scratch): (Decoding, &mut Scratch),
    ) -> Result<usize> {
        let image =
            beside.last().ok_or_else(|| Error::new(ErrorKind::Internal, "what follows has nothing to follow"))?;
        let (height, width) = dimensions(image, &how)?;
        match self {
            Followed::Mask { mask, chain, size } => {
                let decoded = decode_with(bytes, &Decoding { color: Color::Index, ..how }, scratch)?;
                if (decoded.height(), decoded.width()) != (height, width) {
                    let (rows, columns) = (decoded.height(), decoded.width());
                    let what = format!("the mask has {rows} x {columns} pixels, and its image {height} x {width}");
                    return Err(Error::new(ErrorKind::Corrupt, what)
                        .with_remedy("store masks in the size of their images, as EXIF turns them"));
                }
                let made = draw(chain, (height, width))?.mask(&decoded, mask.fill, scratch)?;
                debug_assert_eq!((made.height(), made.width()), *size);
                let bytes = mask.dtype.size() as usize;
                for (to, &level) in out.chunks_exact_mut(bytes).zip(made.pixels()) {
                    // Little endian, and never negative.
                    to.fill(0);
                    to[0] = level;
                }
                scratch.reuse(made);
                Ok(out.len())
            }
            Followed::Boxes { boxes, chain, stored } => {
                let plan = draw(chain, (height, width))?;
                let mut end = 0;
                boxes.each(bytes, *stored, &plan, (height, width), |_, kept| {
                    for number in kept {
                        out[end..end + 4].copy_from_slice(&number.to_le_bytes());
                        end += 4;
                    }
                })?;
                Ok(end)
            }
            Followed::Labels { boxes, chain, stored, labels } => {
                let plan = draw(chain, (height, width))?;
                let of = beside.first().map_or(&[][..], |boxes| boxes);
                let (dtype, elements) = labels.elements(bytes, 1)?;
                let elements = match labels {
                    Stored::Elements(_) => Cow::Borrowed(elements),
                    Stored::Npy => Cow::Owned(whole_numbers(elements, dtype)?),
                };
                let size = if matches!(labels, Stored::Npy) { 8 } else { dtype.size() as usize };
                let (of_dtype, of_elements) = stored.elements(of, EDGES)?;
                let count = of_elements.len() / (EDGES * of_dtype.size() as usize);
                if elements.len() != count * size {
                    let what = format!("{} elements belong to {count} boxes", elements.len() / size);
                    return Err(Error::new(ErrorKind::Corrupt, what).with_remedy("store one element for each box"));
                }
                let mut end = 0;
                boxes.each(of, *stored, &plan, (height, width), |index, _| {
                    out[end..end + size].copy_from_slice(&elements[index * size..][..size]);
                    end += size;
                })?;
                Ok(end)
            }
        }
    }
}

impl Boxes {
    /// Calls `kept` with the number of each remaining box, and with its result.
    fn each(
        &self,
        bytes: &[u8],
        stored: Stored,
        plan: &Plan,
        (height, width): (u32, u32),
        mut kept: impl FnMut(usize, [f32; EDGES]),
    ) -> Result<()> {
        let (stored, bytes) = stored.elements(bytes, EDGES)?;
        check_type(stored)?;
        let one = EDGES * stored.size() as usize;
        let count = bytes.len() / one;
        if !bytes.len().is_multiple_of(one) {
            let what = format!("{} bytes are no boxes of four {stored}", bytes.len());
            return Err(Error::new(ErrorKind::Corrupt, what).with_remedy("store four numbers for each box"));
        }
        if count as u64 > self.most {
            let what = format!("the sample has {count} boxes, and memory is for {}", self.most);
            return Err(refused(what, "raise `most` of the boxes"));
        }
        let (before, after) = ((width as f32, height as f32), plan.size());
        let after = (after.1 as f32, after.0 as f32);
        for (index, given) in bytes.chunks_exact(one).enumerate() {
            let numbers = numbers(given, stored);
            if !numbers.iter().all(|number| number.is_finite()) {
                let what = format!("box {index} is {numbers:?}");
                return Err(Error::new(ErrorKind::Corrupt, what).with_remedy("store finite numbers"));
            }
            let made = plan.rectangle(self.edges(numbers, before));
            let large =
                |edges: &Rectangle| edges[2] - edges[0] >= self.min_size && edges[3] - edges[1] >= self.min_size;
            if let Some(edges) = made.filter(large) {
                kept(index, self.numbers(edges, after));
            }
        }
        Ok(())
    }

    /// The edges in pixels, for an image of this width and height.
    fn edges(&self, numbers: [f32; EDGES], (width, height): (f32, f32)) -> Rectangle {
        let [a, b, c, d] = numbers;
        let [left, top, right, bottom] = match self.format {
            BoxFormat::Xyxy => numbers,
            BoxFormat::Xywh => [a, b, a + c, b + d],
            BoxFormat::Cxcywh => [a - c / 2.0, b - d / 2.0, a + c / 2.0, b + d / 2.0],
        };
        if self.normalized {
            [left * width, top * height, right * width, bottom * height]
        } else {
            [left, top, right, bottom]
        }
    }

    /// The numbers for edges in pixels.
    fn numbers(&self, [left, top, right, bottom]: Rectangle, (width, height): (f32, f32)) -> [f32; EDGES] {
        let [left, top, right, bottom] = if self.normalized {
            [left / width, top / height, right / width, bottom / height]
        } else {
            [left, top, right, bottom]
        };
        match self.format {
            BoxFormat::Xyxy => [left, top, right, bottom],
            BoxFormat::Xywh => [left, top, right - left, bottom - top],
            BoxFormat::Cxcywh => [(left + right) / 2.0, (top + bottom) / 2.0, right - left, bottom - top],
        }
    }
}

/// Stored integers, converted to 64 bits.
fn whole_numbers(bytes: &[u8], stored: DType) -> Result<Vec<u8>> {
    let number = |element: &[u8]| -> Option<i64> {
        let mut word = [0; 8];
        word[..element.len()].copy_from_slice(element);
        let word = u64::from_le_bytes(word);
        match stored {
            DType::I8 => Some(i64::from(word as u8 as i8)),
            DType::I16 => Some(i64::from(word as u16 as i16)),
            DType::I32 => Some(i64::from(word as u32 as i32)),
            DType::I64 => Some(word as i64),
            DType::Bool | DType::U8 | DType::U16 | DType::U32 => Some(word as i64),
            DType::U64 => i64::try_from(word).ok(),
            _ => None,
        }
    };
    let numbers = bytes.chunks_exact(stored.size() as usize).map(|element| number(element).map(i64::to_le_bytes));
    numbers.collect::<Option<Vec<_>>>().map(|numbers| numbers.concat()).ok_or_else(|| {
        let what = format!("labels in an .npy file are {stored}, and not all of them whole numbers of 64 bits");
        Error::new(ErrorKind::Corrupt, what).with_remedy("store integers")
    })
}

/// Four stored numbers.
fn numbers(bytes: &[u8], stored: DType) -> [f32; EDGES] {
    let size = stored.size() as usize;
    std::array::from_fn(|index| {
        let number = &bytes[index * size..][..size];
        let mut word = [0; 8];
        word[..size].copy_from_slice(number);
        let word = u64::from_le_bytes(word);
        match stored {
            DType::F32 => f32::from_bits(word as u32),
            DType::F64 => f64::from_bits(word) as f32,
            DType::I32 => word as u32 as i32 as f32,
            DType::I64 => word as i64 as f32,
            _ => word as f32,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_say_the_same_as_calls() {
        let parsed = |text: &str| text.parse::<Follow>();
        assert_eq!(parsed("mask(image)").unwrap(), Mask::of("image").into());
        let mask = Mask::of("a b").fill(255).dtype(DType::I64);
        assert_eq!(parsed(" mask( a b , fill=255, dtype = i64 ) ").unwrap(), mask.into());
        let boxes = Boxes::of("jpg").format(BoxFormat::Cxcywh).normalized(true).min_size(2.5).most(9);
        let text = "boxes(jpg, format=cxcywh, normalized=true, min_size=2.5, most=9)";
        assert_eq!(parsed(text).unwrap(), boxes.into());
        assert_eq!(parsed("labels(boxes)").unwrap(), Follow::Labels { boxes: "boxes".into() });
        for wrong in
            ["", "mask", "mask()", "masks(a)", "mask(fill=3)", "mask(a, fill=256)", "mask(a, 3)", "boxes(a, format=xy)"]
        {
            let error = parsed(wrong).unwrap_err();
            assert!(error.remedy().is_some_and(|remedy| remedy.contains("mask(image")), "{wrong}: {error}");
        }
    }

    #[test]
    fn each_format_goes_there_and_back() {
        for format in [BoxFormat::Xyxy, BoxFormat::Xywh, BoxFormat::Cxcywh] {
            for normalized in [false, true] {
                let boxes = Boxes::of("image").format(format).normalized(normalized);
                let edges = [8.0, 16.0, 24.0, 64.0];
                assert_eq!(boxes.edges(boxes.numbers(edges, (128.0, 256.0)), (128.0, 256.0)), edges, "{boxes:?}");
            }
        }
    }

    #[test]
    fn stored_numbers_of_every_type_are_read() {
        assert_eq!(numbers(&[1, 2, 3, 255], DType::U8), [1.0, 2.0, 3.0, 255.0]);
        let words = |number: fn(i32) -> Vec<u8>| [1, -2, 300, 4].map(number).concat();
        let wanted = [1.0, -2.0, 300.0, 4.0];
        assert_eq!(numbers(&words(|number| number.to_le_bytes().to_vec()), DType::I32), wanted);
        assert_eq!(numbers(&words(|number| i64::from(number).to_le_bytes().to_vec()), DType::I64), wanted);
        assert_eq!(numbers(&words(|number| (number as f32).to_le_bytes().to_vec()), DType::F32), wanted);
        assert_eq!(numbers(&words(|number| f64::from(number).to_le_bytes().to_vec()), DType::F64), wanted);
    }
}
