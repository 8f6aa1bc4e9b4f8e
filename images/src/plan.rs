//! What happens to one image, drawn: views, and between them the steps that views cannot express.

use crate::auto::Drawn;
use crate::decode::JpegBuffers;
use crate::op::Erasing;
use crate::passes::Passes;
use crate::random::Random;
use crate::resample::Patch;
use crate::tensor::{Elements, Output, Writer, write_element};
use crate::view::{Frame, View, ViewBuffers};
use crate::warp::Matrix;
use crate::{Filter, Image, Region, blur, color, refused};
use std::borrow::Cow;
use uringload_core::{DType, Result};

/// What a [`Chain`](crate::Chain) does with one image: every random number is drawn, and what can be done at once is
/// one step. The image's masks and boxes use the same plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    source: (u32, u32),
    steps: Vec<Step>,
    /// After the steps.
    last: View,
    elements: Elements,
    erased: Vec<Erased>,
}

/// Memory of a thread that runs one plan after the other.
#[derive(Debug, Default)]
pub struct Scratch {
    view: ViewBuffers,
    pub(crate) jpeg: JpegBuffers,
}

impl Scratch {
    /// Takes back the memory of an image that is no longer used, for the next JPEG.
    pub fn reuse(&mut self, image: Image) {
        self.jpeg.give(image);
    }

    /// The memory of an image that is no longer used, for another decoder; empty if there is none.
    #[must_use]
    pub fn spare(&mut self) -> Vec<u8> {
        self.jpeg.take()
    }

    /// Keeps at most this much of an image's memory for the next JPEG, in bytes.
    pub fn shrink_to(&mut self, bytes: u64) {
        self.jpeg.shrink_to(bytes);
    }
}

/// A rectangle of an object: left, top, right and bottom edge, in pixels.
pub type Rectangle = [f32; 4];

/// What happens before the last view.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    View(View),
    Warp { matrix: Matrix, filter: Filter, fill: u8 },
    Paint(Paint),
}

/// A step that changes levels and no places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Paint {
    Grayscale,
    Brightness(f32),
    Contrast(f32),
    Saturation(f32),
    Hue(f32),
    Sharpness(f32),
    Posterize(u32),
    Solarize(f32),
    AutoContrast,
    Equalize,
    Invert,
    Blur { kernel: u32, sigma: f32 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Erased {
    region: Region,
    value: Erasing,
    /// The arguments of random values.
    key: u64,
}

impl Plan {
    pub(crate) fn new(height: u32, width: u32, elements: Elements) -> Plan {
        let last = View::whole(height, width);
        Plan { source: (height, width), steps: Vec::new(), last, elements, erased: Vec::new() }
    }

    /// Rows and columns of the output.
    #[must_use]
    pub fn size(&self) -> (u32, u32) {
        self.last.output()
    }

    /// The tensor of an image with that many channels.
    #[must_use]
    pub fn output(&self, channels: u32) -> Output {
        let (height, width) = self.size();
        let Elements { dtype, channels_last, .. } = self.elements;
        Output { dtype, channels, height, width, channels_last }
    }

    /// Whether nothing is left to do: the tensor is the image's pixels, as they are.
    #[must_use]
    pub fn is_pixels(&self) -> bool {
        let is_drawn = self.steps.is_empty() && self.last.is_identity() && self.erased.is_empty();
        is_drawn && self.elements.dtype == DType::U8 && self.elements.channels_last
    }

    /// Writes the tensor of `image` to `out`, which has [`bytes`](Output::bytes) bytes of [`output`](Plan::output).
    ///
    /// # Errors
    /// `InvalidArgument` for an image of another size than the plan was drawn for, for an `out` of another length, for
    /// means of another number of channels and for an image that is too small for a blur. `MemoryLimit` if there is no
    /// memory.
    pub fn run(&self, image: &Image, out: &mut [u8], scratch: &mut Scratch) -> Result<()> {
        self.check(image)?;
        self.run_part(Patch::whole(image), out, scratch)
    }

    /// The same for the decoded part of an image: at least what is [`used`](View::used).
    pub(crate) fn run_part(&self, part: Patch<'_>, out: &mut [u8], scratch: &mut Scratch) -> Result<()> {
        let channels = part.image.channels();
        self.elements.check(channels)?;
        let output = self.output(channels);
        if out.len() != output.bytes() {
            let what = format!("{} bytes are no {:?} of {}", out.len(), output.shape(), output.dtype);
            return Err(refused(what, format!("give {} bytes", output.bytes())));
        }
        let mut writer = Writer::new(out, output, &self.elements);
        match self.stepped(part, scratch)? {
            Some(image) if self.last.is_identity() => writer.image(&image),
            Some(image) => self.last.render(Patch::whole(&image), &mut scratch.view, |y, row| writer.row(y, row)),
            None => self.last.render(part, &mut scratch.view, |y, row| writer.row(y, row)),
        }
        for erased in &self.erased {
            erased.write(out, output);
        }
        Ok(())
    }

    /// The output as an image of 8 bits, before normalization and erasing.
    ///
    /// # Errors
    /// As [`run`](Plan::run).
    pub fn image(&self, image: &Image, scratch: &mut Scratch) -> Result<Image> {
        self.check(image)?;
        match self.stepped(Patch::whole(image), scratch)? {
            Some(image) if self.last.is_identity() => Ok(image),
            Some(image) => self.last.image(Patch::whole(&image), &mut scratch.view),
            None => self.last.image(Patch::whole(image), &mut scratch.view),
        }
    }

    /// A mask of the image, such as the class of each pixel, after the same geometry: each pixel is the nearest one,
    /// colours stay, and padding becomes `fill`.
    ///
    /// # Errors
    /// As [`run`](Plan::run).
    pub fn mask(&self, mask: &Image, fill: u8, scratch: &mut Scratch) -> Result<Image> {
        self.check(mask)?;
        let mut mask = Cow::Borrowed(mask);
        for step in &self.steps {
            match step {
                Step::View(view) => {
                    mask = Cow::Owned(view.for_mask(fill).image(Patch::whole(&mask), &mut scratch.view)?)
                }
                Step::Warp { matrix, .. } => mask = Cow::Owned(matrix.apply(&mask, Filter::Nearest, fill)?),
                Step::Paint(_) => {}
            }
        }
        self.last.for_mask(fill).image(Patch::whole(&mask), &mut scratch.view)
    }

    /// The plan as its first passes over the pixels, and the plan for their result: both in a row are this one, to the
    /// bit. `None` if it does not begin with a cut, a resize or a mirror, and if it shows more than the image, as
    /// [`Op::Pad`](crate::Op::Pad) does.
    ///
    /// ```
    /// use uringload_images::Chain;
    ///
    /// # fn main() -> uringload_core::Result<()> {
    /// let chain: Chain = "resize(256x256), random_crop(224), hflip, normalize(imagenet)".parse()?;
    /// let (passes, rest) = chain.draw(42, 0, 7, 375, 500)?.split().expect("it begins with a resize");
    /// assert_eq!((passes.rows.first.len(), passes.columns.first.len()), (224, 224));
    /// assert_eq!(rest.size(), (224, 224));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn split(&self) -> Option<(Passes, Plan)> {
        let view = self.first_view()?;
        let passes = view.passes()?;
        let (height, width) = view.output();
        Some((passes, self.behind_first(height, width)))
    }
    /// The place of a rectangle of the image in the output, cut to what is seen; `None` if nothing of it is. A
    /// rectangle that is turned becomes the one around it.
    #[must_use]
    pub fn rectangle(&self, rectangle: Rectangle) -> Option<Rectangle> {
        let mut rectangle = rectangle;
        let views = self.steps.iter().chain([&Step::View(self.last)]).copied().collect::<Vec<_>>();
        for step in views {
            rectangle = match step {
                Step::View(view) => {
                    let (height, width) = view.output();
                    cut(around(rectangle, |point| view.point(point)), height, width)?
                }
                Step::Warp { matrix, .. } => around(rectangle, |point| matrix.forward(point)),
                Step::Paint(_) => rectangle,
            };
        }
        let (height, width) = self.size();
        cut(rectangle, height, width)
    }

    pub(crate) fn cut(&mut self, frame: Frame, fill: u8) {
        self.last = self.last.cut(frame, fill).unwrap_or_else(|| {
            let (height, width) = self.flush();
            let whole = View::whole(height, width);
            // A new view shows everything, so that it can be cut.
            whole.cut(frame, fill).unwrap_or(whole)
        });
    }

    pub(crate) fn resize(&mut self, size: (u32, u32), filter: Filter) {
        self.last = self.last.resize(size, filter).unwrap_or_else(|| {
            let (height, width) = self.flush();
            let whole = View::whole(height, width);
            whole.resize(size, filter).unwrap_or(whole)
        });
    }

    pub(crate) fn flip(&mut self, vertically: bool) {
        self.last = self.last.flip(vertically);
    }

    pub(crate) fn warp(&mut self, matrix: Matrix, filter: Filter, fill: u8) {
        self.flush();
        self.steps.push(Step::Warp { matrix, filter, fill });
    }

    pub(crate) fn paint(&mut self, paint: Paint) {
        self.flush();
        self.steps.push(Step::Paint(paint));
    }

    pub(crate) fn augment(&mut self, drawn: &[Drawn]) {
        for &drawn in drawn {
            let paint = match drawn {
                Drawn::Warp(matrix) => {
                    self.warp(matrix, Filter::Nearest, 0);
                    continue;
                }
                Drawn::Brightness(factor) => Paint::Brightness(factor),
                Drawn::Saturation(factor) => Paint::Saturation(factor),
                Drawn::Contrast(factor) => Paint::Contrast(factor),
                Drawn::Sharpness(factor) => Paint::Sharpness(factor),
                Drawn::Posterize(bits) => Paint::Posterize(bits),
                Drawn::Solarize(threshold) => Paint::Solarize(threshold),
                Drawn::AutoContrast => Paint::AutoContrast,
                Drawn::Equalize => Paint::Equalize,
                Drawn::Invert => Paint::Invert,
            };
            self.paint(paint);
        }
    }

    pub(crate) fn erase(&mut self, region: Region, value: Erasing, key: u64) {
        self.erased.push(Erased { region, value, key });
    }

    /// Makes the last view a step, and returns the size of its result.
    fn flush(&mut self) -> (u32, u32) {
        let (height, width) = self.last.output();
        if !self.last.is_identity() {
            self.steps.push(Step::View(self.last));
            self.last = View::whole(height, width);
        }
        (height, width)
    }

    fn check(&self, image: &Image) -> Result<()> {
        if (image.height(), image.width()) == self.source {
            return Ok(());
        }
        let (height, width) = self.source;
        let what = format!("the plan is for {height} x {width} pixels, not {} x {}", image.height(), image.width());
        Err(refused(what, "draw a plan for each image, of its size"))
    }

    /// Rows and columns of the images that the plan is for.
    pub(crate) fn source(&self) -> (u32, u32) {
        self.source
    }

    /// The view of the source itself. `None` if a step before it sees all of the source.
    pub(crate) fn first_view(&self) -> Option<&View> {
        match self.steps.first() {
            Some(Step::View(view)) => Some(view),
            Some(_) => None,
            None => Some(&self.last),
        }
    }

    /// The rest of the plan after its first view, whose result has that many rows and columns.
    fn behind_first(&self, height: u32, width: u32) -> Plan {
        let mut rest = self.clone();
        rest.source = (height, width);
        if rest.steps.is_empty() {
            rest.last = View::whole(height, width);
        } else {
            rest.steps.remove(0);
        }
        rest
    }

    /// The image after all steps but the last view; `None` if that is the source.
    fn stepped(&self, source: Patch<'_>, scratch: &mut Scratch) -> Result<Option<Image>> {
        let mut made: Option<Image> = None;
        for step in &self.steps {
            let before = made.take();
            let part = before.as_ref().map_or(source, Patch::whole);
            made = Some(match *step {
                Step::View(view) => view.image(part, &mut scratch.view)?,
                Step::Warp { matrix, filter, fill } => matrix.apply(part.image, filter, fill)?,
                Step::Paint(paint) => {
                    let mut image = before.unwrap_or_else(|| source.image.clone());
                    paint.apply(&mut image)?;
                    image
                }
            });
        }
        Ok(made)
    }
}

impl Paint {
    fn apply(self, image: &mut Image) -> Result<()> {
        match self {
            Paint::Grayscale => color::grayscale(image),
            Paint::Brightness(factor) => color::brightness(image, factor),
            Paint::Contrast(factor) => color::contrast(image, factor),
            Paint::Saturation(factor) => color::saturation(image, factor),
            Paint::Hue(turn) => color::hue(image, turn),
            Paint::Sharpness(factor) => color::sharpness(image, factor),
            Paint::Posterize(bits) => color::posterize(image, bits),
            Paint::Solarize(threshold) => color::solarize(image, threshold),
            Paint::AutoContrast => color::autocontrast(image),
            Paint::Equalize => color::equalize(image),
            Paint::Invert => color::invert(image),
            Paint::Blur { kernel, sigma } => blur::gaussian_blur(image, kernel, sigma)?,
        }
        Ok(())
    }
}

impl Erased {
    fn write(&self, out: &mut [u8], shape: Output) {
        let [top, left, bottom, right] =
            [self.region.y, self.region.x, self.region.y + self.region.h, self.region.x + self.region.w]
                .map(|edge| edge as usize);
        let mut random = Random::of_sample(self.key, 0, 0);
        let size = shape.dtype.size() as usize;
        let (channels, height, width) = (shape.channels as usize, shape.height as usize, shape.width as usize);
        for channel in 0..channels {
            for y in top..bottom {
                for x in left..right {
                    let element = if shape.channels_last {
                        (y * width + x) * channels + channel
                    } else {
                        (channel * height + y) * width + x
                    };
                    let value = match self.value {
                        Erasing::Value(value) => value,
                        // Levels have no negative numbers: their whole range represents four deviations.
                        Erasing::Random if shape.dtype == DType::U8 => 128.0 + 64.0 * random.normal(),
                        Erasing::Random => random.normal(),
                    };
                    write_element(&mut out[element * size..], shape.dtype, value);
                }
            }
        }
    }
}

/// The rectangle around the four corners of another one, after a map of points.
fn around([left, top, right, bottom]: Rectangle, map: impl Fn((f32, f32)) -> (f32, f32)) -> Rectangle {
    let corners = [(left, top), (right, top), (left, bottom), (right, bottom)].map(map);
    let start = [f32::INFINITY, f32::INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY];
    corners
        .into_iter()
        .fold(start, |[left, top, right, bottom], (x, y)| [left.min(x), top.min(y), right.max(x), bottom.max(y)])
}

fn cut([left, top, right, bottom]: Rectangle, height: u32, width: u32) -> Option<Rectangle> {
    let (height, width) = (height as f32, width as f32);
    let cut = [left.clamp(0.0, width), top.clamp(0.0, height), right.clamp(0.0, width), bottom.clamp(0.0, height)];
    (cut[0] < cut[2] && cut[1] < cut[3]).then_some(cut)
}
