//! Arrays of numbers: parts of them, mirrored at random, cast to another type. For any steps, each element is copied
//! once.

mod cast;
mod part;

use super::{Map, MapOutput, refused};
use crate::dataset::{DType, Field, SampleId, Shape};
use crate::sampler::sample_rng;
use crate::{Error, ErrorKind, Result};
use rand_xoshiro::rand_core::Rng;
use std::ops::Range;
use std::str::FromStr;

/// The forms of the text.
const FORMS: &str = "write array(random_crop(128x128x128), random_flip(0), cast(bf16)), or center_crop(64x64) and \
                     slice(0:16, :, -32:) as steps";

/// The steps for the arrays of a column, of numbers of any number of dimensions: medical volumes, spectrograms,
/// latents, fields of a simulation. The steps are those of NumPy with random numbers that depend on (seed, epoch,
/// sample).
///
/// A column whose arrays differ in shape becomes dense by a crop of all of its dimensions.
///
/// ```
/// use uringload::dataset::DType;
/// use uringload::transform::Array;
///
/// let steps = Array::default().random_crop([128, 128, 128]).random_flip(0, 0.5).cast(DType::BF16);
/// assert_eq!("array(random_crop(128x128x128), random_flip(0), cast(bf16))".parse::<Array>()?, steps);
/// # Ok::<(), uringload::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Array {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// By axis, from the first one on. Negative numbers count from the end.
    Slice(Vec<(Option<i64>, Option<i64>)>),
    /// Of the last axes.
    Crop {
        sides: Vec<u64>,
        is_random: bool,
    },
    Flip {
        axis: usize,
        probability: f64,
    },
    Cast(DType),
}

impl Array {
    /// Takes a part of this many elements along each of the last axes, at a random place. An array that is shorter is
    /// an error of its sample.
    #[must_use]
    pub fn random_crop(self, sides: impl Into<Vec<u64>>) -> Array {
        self.then(Step::Crop { sides: sides.into(), is_random: true })
    }

    /// Takes the part in the middle of the last axes; if two are equally near, the first.
    #[must_use]
    pub fn center_crop(self, sides: impl Into<Vec<u64>>) -> Array {
        self.then(Step::Crop { sides: sides.into(), is_random: false })
    }

    /// Takes a range of each of the first axes, like NumPy's `array[a:b, c:d]`: negative numbers count from the end,
    /// and indices beyond an end are clipped.
    #[must_use]
    pub fn slice(self, ranges: impl IntoIterator<Item = (Option<i64>, Option<i64>)>) -> Array {
        self.then(Step::Slice(ranges.into_iter().collect()))
    }

    /// Reverses an axis, with this probability.
    #[must_use]
    pub fn random_flip(self, axis: usize, probability: f64) -> Array {
        self.then(Step::Flip { axis, probability })
    }

    /// Casts to another type, to the nearest number. Casts of floats to integers truncate towards zero and saturate at
    /// the bounds of the type, with not-a-number as 0; casts between integers drop the upper bits.
    #[must_use]
    pub fn cast(self, dtype: DType) -> Array {
        self.then(Step::Cast(dtype))
    }

    fn then(mut self, step: Step) -> Array {
        self.steps.push(step);
        self
    }

    /// The map for a column.
    pub(crate) fn map(&self, field: &Field) -> Result<Map> {
        let said = |what: String| format!("column {:?}: {what}", field.name);
        let mut shape = match &field.shape {
            Shape::Fixed(shape) => Some(shape.clone()),
            Shape::Ragged => None,
        };
        let mut dtype = field.dtype;
        for step in &self.steps {
            match step {
                Step::Cast(to) => {
                    if let Some(not) = [dtype, *to].into_iter().find(|&dtype| !cast::is_known(dtype)) {
                        return Err(refused(said(format!("{not} is not cast")), "store f16, bf16 or f32"));
                    }
                    dtype = *to;
                }
                Step::Crop { sides, .. } if shape.is_none() => shape = Some(sides.clone()),
                _ => {
                    let Some(known) = &mut shape else {
                        let what = said("its arrays differ in shape, or have none that the index knows".into());
                        return Err(refused(what, "begin with a crop of all of its dimensions"));
                    };
                    let mut view = View::of(known.clone());
                    view.take(step, &mut || 0).map_err(|what| refused(said(what), "check the dataset's schema"))?;
                    *known = view.shape;
                }
            }
        }
        let Some(shape) = shape else {
            let what = said("its arrays differ in shape".into());
            return Err(refused(what, "add random_crop or center_crop, of all of its dimensions"));
        };
        let output = MapOutput::fixed(dtype, shape);
        if output.bytes() == 0 || output.bytes() == u64::MAX {
            return Err(refused(said(format!("{:?} has no elements, or too many", output.shape)), "take another part"));
        }
        Ok(Map::array(output, Arrays { steps: self.clone(), stored: field.dtype }))
    }
}

/// The steps, resolved for the arrays of a column.
#[derive(Clone, Debug)]
pub(crate) struct Arrays {
    steps: Array,
    stored: DType,
}

impl Arrays {
    /// Writes the result for an array to `out`, which has its length. `bytes` are the whole array, or from the first
    /// [needed](Arrays::needed) byte of it to the last.
    pub(crate) fn run(
        &self,
        (bytes, shape): (&[u8], Option<&[u64]>),
        of: (u64, u64, SampleId),
        (out, dtype): (&mut [u8], DType),
    ) -> Result<usize> {
        let corrupt =
            |what: String| Error::new(ErrorKind::Corrupt, what).with_remedy("compare the array with its neighbours");
        let Some(shape) = shape else {
            let what = "the index does not know the shape of this array";
            return Err(refused(what, "store arrays of one shape, or in npy, npz or safetensors files"));
        };
        let view = self.view(shape, of).map_err(corrupt)?;
        let (size, len) = (self.stored.size(), bytes.len() as u64);
        let whole = bytes_of(shape, size);
        let first = match whole.and_then(|whole| view.range(size, whole)) {
            _ if whole == Some(len) => 0,
            Some(part) if part.end - part.start == len => part.start,
            _ => return Err(corrupt(format!("an array of shape {shape:?} of {} has {len} bytes", self.stored))),
        };
        let made = bytes_of(&view.shape, dtype.size());
        if made != Some(out.len() as u64) {
            let what = format!("an array of shape {shape:?} becomes one of {:?}", view.shape);
            return Err(corrupt(format!("{what}, which is not that of its column")));
        }
        view.copy((bytes, first as usize, self.stored), (out, dtype));
        Ok(out.len())
    }

    /// The ranges of bytes that are needed of an array of `whole` bytes, ascending, if skipping the rest pays: at least
    /// a quarter of the array, and at least `least` bytes in each place.
    pub(crate) fn needed(
        &self,
        (whole, shape): (u64, &[u64]),
        of: (u64, u64, SampleId),
        least: u64,
    ) -> Vec<Range<u64>> {
        let size = self.stored.size();
        // An impossible part becomes an error after the read.
        let view = self.view(shape, of).ok().filter(|_| bytes_of(shape, size) == Some(whole));
        let parts = view.map(|view| view.parts((size, whole), least)).unwrap_or_default();
        let needed: u64 = parts.iter().map(|part| part.end - part.start).sum();
        let left_out = whole - needed;
        if left_out < least || left_out < whole / LEFT_OUT_PART { Vec::new() } else { parts }
    }

    /// The part of an array of this shape, or why it is impossible.
    fn view(&self, shape: &[u64], (seed, epoch, id): (u64, u64, SampleId)) -> std::result::Result<View, String> {
        let mut view = View::of(shape.to_vec());
        let mut rng = sample_rng(seed, epoch, id);
        let mut draw = || rng.next_u64();
        self.steps.steps.iter().try_for_each(|step| view.take(step, &mut draw))?;
        Ok(view)
    }
}

/// An array is read in part if that skips at least one in this many of its bytes.
const LEFT_OUT_PART: u64 = 4;

fn bytes_of(shape: &[u64], size: u64) -> Option<u64> {
    shape.iter().try_fold(size, |bytes, &side| bytes.checked_mul(side))
}

/// A part of an array: the range of each axis, and whether it is reversed.
struct View {
    source: Vec<u64>,
    start: Vec<u64>,
    shape: Vec<u64>,
    flipped: Vec<bool>,
}

impl View {
    fn of(source: Vec<u64>) -> View {
        let axes = source.len();
        View { start: vec![0; axes], shape: source.clone(), flipped: vec![false; axes], source }
    }

    /// Applies a step, or says why that is impossible.
    fn take(&mut self, step: &Step, draw: &mut dyn FnMut() -> u64) -> std::result::Result<(), String> {
        let axes = self.shape.len();
        match step {
            Step::Cast(_) => {}
            Step::Flip { axis, .. } if *axis >= axes => {
                return Err(format!("axis {axis} of an array of {axes} dimensions is to be turned around"));
            }
            Step::Flip { axis, probability } => {
                // As many bits as a double has.
                let is_flipped = (draw() >> 11) as f64 / (1_u64 << 53) as f64;
                self.flipped[*axis] ^= is_flipped < *probability;
            }
            Step::Crop { sides, .. } if sides.len() > axes => {
                return Err(format!("an array of shape {:?} has fewer dimensions than the crop {sides:?}", self.shape));
            }
            Step::Crop { sides, is_random } => {
                let first = axes - sides.len();
                if let Some(axis) = (0..sides.len()).find(|&axis| sides[axis] > self.shape[first + axis]) {
                    let at = first + axis;
                    return Err(format!("the crop {sides:?} is larger than {:?} along axis {at}", self.shape));
                }
                for (axis, &side) in (first..).zip(sides) {
                    let room = self.shape[axis] - side;
                    let at = if *is_random { below(draw(), room + 1) } else { room / 2 };
                    self.part(axis, at..at + side);
                }
            }
            Step::Slice(ranges) if ranges.len() > axes => {
                return Err(format!("an array of shape {:?} has fewer dimensions than the slice", self.shape));
            }
            Step::Slice(ranges) => {
                for (axis, &(start, end)) in ranges.iter().enumerate() {
                    let len = self.shape[axis];
                    let (start, end) = (start.map_or(0, |at| place(at, len)), end.map_or(len, |at| place(at, len)));
                    self.part(axis, start..end.max(start));
                }
            }
        }
        Ok(())
    }

    /// Keeps a range of an axis, as it is oriented now.
    fn part(&mut self, axis: usize, range: Range<u64>) {
        let len = range.end - range.start;
        let ahead = if self.flipped[axis] { self.shape[axis] - range.end } else { range.start };
        self.start[axis] += ahead;
        self.shape[axis] = len;
    }

    /// Copies the part to `out`. `bytes` begin with byte `first` of the array.
    fn copy(&self, (bytes, first, stored): (&[u8], usize, DType), (out, dtype): (&mut [u8], DType)) {
        let (from, to) = (stored.size() as usize, dtype.size() as usize);
        let Some((&columns, rows)) = self.shape.split_last() else {
            return cast::convert((bytes, stored), (out, dtype), false);
        };
        let last = rows.len();
        let (columns, is_flipped) = (columns as usize, self.flipped[last]);
        let mut at = vec![0_u64; last];
        for row in out.chunks_exact_mut(columns * to) {
            // The element that the row begins with in the file, whichever end that is.
            let index = |axis: usize| {
                let ahead = if self.flipped[axis] { self.shape[axis] - 1 - at[axis] } else { at[axis] };
                self.start[axis] + ahead
            };
            let place = (0..last).fold(0, |place, axis| place * self.source[axis] + index(axis));
            let start = (place * self.source[last] + self.start[last]) as usize * from - first;
            let elements = &bytes[start..start + columns * from];
            if stored == dtype && !is_flipped {
                row.copy_from_slice(elements);
            } else {
                cast::convert((elements, stored), (row, dtype), is_flipped);
            }
            for axis in (0..last).rev() {
                at[axis] += 1;
                if at[axis] < self.shape[axis] {
                    break;
                }
                at[axis] = 0;
            }
        }
    }
}

/// A number below `end`, each equally likely except for one part in 2^64 / `end`.
fn below(random: u64, end: u64) -> u64 {
    ((u128::from(random) * u128::from(end)) >> 64) as u64
}

/// The position of an index on an axis of `len` elements.
fn place(at: i64, len: u64) -> u64 {
    if at < 0 { len.saturating_sub(at.unsigned_abs()) } else { (at as u64).min(len) }
}

impl FromStr for Array {
    type Err = Error;

    fn from_str(text: &str) -> Result<Array> {
        let wrong = || refused(format!("{text:?} does not say what to do with arrays"), FORMS);
        let (name, steps) = call(text).filter(|(name, _)| *name == "array").ok_or_else(wrong)?;
        debug_assert_eq!(name, "array");
        let mut array = Array::default();
        for step in apart(steps) {
            array = array.then(parse(step).ok_or_else(|| refused(format!("{step:?} is no step of array(..)"), FORMS))?);
        }
        if array.steps.is_empty() {
            return Err(wrong());
        }
        Ok(array)
    }
}

fn parse(step: &str) -> Option<Step> {
    let (name, given) = call(step)?;
    let side = |text: &str| text.trim().parse::<u64>().ok().filter(|&side| side > 0);
    let sides = || given.split('x').map(side).collect::<Option<Vec<u64>>>();
    Some(match name {
        "random_crop" => Step::Crop { sides: sides()?, is_random: true },
        "center_crop" => Step::Crop { sides: sides()?, is_random: false },
        "cast" => Step::Cast(DType::named(given.trim())?),
        "slice" => {
            let number = |text: &str| match text.trim() {
                "" => Some(None),
                text => text.parse().ok().map(Some),
            };
            let range = |text: &str| {
                let (start, end) = text.split_once(':')?;
                Some((number(start)?, number(end)?))
            };
            Step::Slice(given.split(',').map(range).collect::<Option<_>>()?)
        }
        "random_flip" => {
            let (axis, probability) = match given.split_once(',') {
                Some((axis, given)) => {
                    let probability = given.trim().strip_prefix("p").unwrap_or(given).trim().trim_start_matches('=');
                    (axis, probability.trim().parse().ok().filter(|p| (0.0..=1.0).contains(p))?)
                }
                None => (given, 0.5),
            };
            Step::Flip { axis: axis.trim().parse().ok()?, probability }
        }
        _ => return None,
    })
}

/// The name and the text between its parentheses.
fn call(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.trim().split_once('(')?;
    Some((name.trim(), rest.strip_suffix(')')?))
}

/// The parts of a text between commas outside parentheses.
fn apart(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |letter| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        letter == ',' && depth == 0
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests;
