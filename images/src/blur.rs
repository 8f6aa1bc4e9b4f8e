//! The Gaussian blur of torchvision: the image mirrored at its edges, the kernel cut off, sums in single precision,
//! rounded once.

use crate::Image;
use crate::image::memory;
use uringload_core::{Error, ErrorKind, Result};

/// Blurs by a kernel of `kernel` pixels, an odd number, and a standard deviation of `sigma` pixels.
///
/// # Errors
/// `InvalidArgument` for an image that is too small to be mirrored by half the kernel, as torch refuses it.
pub fn gaussian_blur(image: &mut Image, kernel: u32, sigma: f32) -> Result<()> {
    let half = kernel / 2;
    if half >= image.height() || half >= image.width() {
        let what = format!("{} x {} pixels cannot be blurred by a kernel of {kernel}", image.height(), image.width());
        return Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy("give a smaller kernel, or resize before"));
    }
    let weights = weights(kernel, sigma);
    let (height, width, channels) = (image.height() as usize, image.width() as usize, image.channels() as usize);
    let bytes = width * channels;
    let mut padded = memory(1, width as u32 + 2 * half, channels as u32, 0)?;
    let half = half as usize;
    // Rows blurred along x, in single precision: as many as the kernel has.
    let mut rows = vec![0.0_f32; bytes * weights.len()];
    let mut blurred = memory(image.height(), image.width(), image.channels(), 0)?;
    // Puts the row at `at`, which may be beyond an edge, in its place in the ring.
    let mut add = |rows: &mut [f32], at: usize| {
        let y = mirrored(at as isize - half as isize, height);
        let source = image.row(y as u32);
        for (x, to) in padded.chunks_exact_mut(channels).enumerate() {
            to.copy_from_slice(&source[mirrored(x as isize - half as isize, width) * channels..][..channels]);
        }
        let to = &mut rows[at % weights.len() * bytes..][..bytes];
        to.fill(0.0);
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || {
                for (tap, &weight) in weights.iter().enumerate() {
                    let from = &padded[tap * channels..][..bytes];
                    to.iter_mut().zip(from).for_each(|(sum, &level)| *sum += f32::from(level) * weight);
                }
            },
        );
    };
    (0..weights.len() - 1).for_each(|at| add(&mut rows, at));
    let mut sums = vec![0.0_f32; bytes];
    for (y, to) in blurred.chunks_exact_mut(bytes).enumerate() {
        add(&mut rows, y + weights.len() - 1);
        sums.fill(0.0);
        for (tap, &weight) in weights.iter().enumerate() {
            let from = &rows[(y + tap) % weights.len() * bytes..][..bytes];
            sums.iter_mut().zip(from).for_each(|(sum, &level)| *sum += level * weight);
        }
        to.iter_mut().zip(&sums).for_each(|(to, &sum)| *to = sum.round_ties_even() as u8);
    }
    image.pixels_mut().copy_from_slice(&blurred);
    Ok(())
}

fn weights(kernel: u32, sigma: f32) -> Vec<f32> {
    let half = f64::from(kernel - 1) / 2.0;
    let at = (0..kernel).map(|index| (f64::from(index) - half) / f64::from(sigma));
    let weights: Vec<f64> = at.map(|at| (-0.5 * at * at).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| (weight / sum) as f32).collect()
}

/// The place of a pixel that may be beyond an edge, which is not repeated.
fn mirrored(at: isize, len: usize) -> usize {
    let last = len as isize - 1;
    let at = at.abs();
    (if at > last { 2 * last - at } else { at }) as usize
}
