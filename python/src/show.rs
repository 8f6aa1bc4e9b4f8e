//! Small pictures of images, for people to look at.

use crate::errors::raised;
use crate::outside::outside;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use uringload::Result;
use uringload_images::{Decoding, Filter, Image, Region, decode, resize};

/// Channels of a picture.
const RGB: usize = 3;

/// Rows and columns of the image, and those of its picture with the pixels.
type Thumbnail<'py> = ((u32, u32), (u32, u32), Bound<'py, PyBytes>);

/// Makes an image fit into `side` rows and columns, as RGB. `data` is the image as it is stored, or pixels of this
/// shape: rows, columns, channels; a channel beyond the third is left out.
#[pyfunction]
#[pyo3(signature = (data, shape, side))]
pub(crate) fn thumbnail<'py>(
    py: Python<'py>,
    data: &[u8],
    shape: Option<(u32, u32, u32)>,
    side: u32,
) -> PyResult<Thumbnail<'py>> {
    let (of, small) = outside(py, || made(data, shape, side)).map_err(|error| raised(py, &error))?;
    let channels = small.channels() as usize;
    let mut pixels = Vec::with_capacity(small.pixels().len() / channels * RGB);
    for pixel in small.pixels().chunks_exact(channels) {
        // Gray is repeated.
        pixels.extend((0..RGB).map(|channel| pixel[if channels < RGB { 0 } else { channel }]));
    }
    Ok((of, (small.height(), small.width()), PyBytes::new(py, &pixels)))
}

fn made(data: &[u8], shape: Option<(u32, u32, u32)>, side: u32) -> Result<((u32, u32), Image)> {
    let image = match shape {
        None => decode(data, &Decoding::default())?,
        Some((height, width, channels)) => Image::new(height, width, channels, data.to_vec())?,
    };
    let (height, width) = (image.height(), image.width());
    let longest = height.max(width).max(1);
    let fit =
        |length: u32| (u64::from(length) * u64::from(side) / u64::from(longest)).clamp(1, side.max(1).into()) as u32;
    let small = resize(&image, Region::whole(height, width), (fit(height), fit(width)), Filter::Bilinear)?;
    Ok(((height, width), small))
}
