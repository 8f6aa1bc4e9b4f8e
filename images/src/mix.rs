//! Mixup and CutMix: each sample of a batch is mixed with the one before it, in pixels and labels, as in torchvision's
//! `MixUp` and `CutMix`.
//!
//! ```
//! use uringload_images::mix::Mixing;
//!
//! # fn main() -> uringload_core::Result<()> {
//! // Two samples of shape [1, 2, 2], and their classes as one of two.
//! let mut images = [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0];
//! let mut labels = [1.0, 0.0, 0.0, 1.0];
//! let mixing = Mixing::mixup(42, 0, 0, 1.0)?;
//! mixing.images(&mut images, [2, 1, 2, 2])?;
//! mixing.labels(&mut labels, 2)?;
//! assert!((images[0] + labels[0] - 1.0).abs() < 1e-6);
//! # Ok(())
//! # }
//! ```

use crate::random::Random;
use crate::{Region, refused};
use uringload_core::Result;

/// How the samples of one batch are mixed: a function of the seed, the epoch and the number of the batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixing {
    /// The share of a sample that is its own.
    own: f32,
    /// The rectangle of the other sample, for CutMix.
    region: Option<Region>,
}

impl Mixing {
    /// Mixup: levels are `own * sample + (1 - own) * other`, with a share of the beta distribution (`alpha`, `alpha`).
    ///
    /// # Errors
    /// `InvalidArgument` for an `alpha` that is not above 0.
    pub fn mixup(seed: u64, epoch: u64, batch: u64, alpha: f32) -> Result<Mixing> {
        let own = beta(&mut Random::of_sample(seed, epoch, batch), alpha)?;
        Ok(Mixing { own, region: None })
    }

    /// CutMix: a rectangle of the other sample, whose share is of the beta distribution (`alpha`, `alpha`), cut at the
    /// edges, for images of `height` rows and `width` columns.
    ///
    /// # Errors
    /// `InvalidArgument` for an `alpha` that is not above 0, and for images without pixels.
    pub fn cutmix(seed: u64, epoch: u64, batch: u64, alpha: f32, (height, width): (u32, u32)) -> Result<Mixing> {
        if height == 0 || width == 0 {
            return Err(refused("images without pixels cannot be mixed", "give their rows and columns"));
        }
        let mut random = Random::of_sample(seed, epoch, batch);
        let share = f64::from(beta(&mut random, alpha)?);
        let half = 0.5 * (1.0 - share).sqrt();
        let mut side = |all: u32| {
            let (middle, half) = (random.up_to(all - 1), (half * f64::from(all)) as u32);
            (middle.saturating_sub(half), (middle + half).min(all))
        };
        let ((left, right), (top, bottom)) = (side(width), side(height));
        let region = Region { y: top, x: left, h: bottom - top, w: right - left };
        let area = f64::from(region.h) * f64::from(region.w) / (f64::from(height) * f64::from(width));
        Ok(Mixing { own: (1.0 - area) as f32, region: Some(region) })
    }

    /// The share that each sample keeps.
    #[must_use]
    pub fn own(&self) -> f32 {
        self.own
    }

    /// The rectangle of the other sample, for CutMix.
    #[must_use]
    pub fn region(&self) -> Option<Region> {
        self.region
    }

    /// Mixes a batch of shape `[samples, channels, height, width]`.
    ///
    /// # Errors
    /// `InvalidArgument` for a batch of another shape, or with images that do not contain the rectangle.
    pub fn images(&self, batch: &mut [f32], [samples, channels, height, width]: [usize; 4]) -> Result<()> {
        let sample = [channels, height, width].iter().try_fold(1_usize, |all, &side| all.checked_mul(side));
        let Some(sample) = sample.filter(|sample| sample.checked_mul(samples) == Some(batch.len())) else {
            let what = format!("{} numbers are no [{samples}, {channels}, {height}, {width}]", batch.len());
            return Err(refused(what, "give the shape of the batch"));
        };
        let Some(region) = self.region else { return blend(batch, sample, self.own) };
        let [y, x, h, w] = [region.y, region.x, region.h, region.w].map(|side| side as usize);
        if y + h > height || x + w > width {
            let what = format!("a rectangle up to row {} and column {} is mixed into {height} x {width}", y + h, x + w);
            return Err(refused(what, "draw it for images of that size"));
        }
        if samples == 0 || sample == 0 {
            return Ok(());
        }
        let last = batch[batch.len() - sample..].to_vec();
        for index in (0..samples).rev() {
            let (before, own) = batch.split_at_mut(index * sample);
            let other = before.len().checked_sub(sample).map_or(&last[..], |at| &before[at..]);
            for row in (0..channels).flat_map(|channel| (y..y + h).map(move |y| channel * height + y)) {
                let place = row * width + x..row * width + x + w;
                own[place.clone()].copy_from_slice(&other[place]);
            }
        }
        Ok(())
    }

    /// Mixes the labels of a batch, which have a number for every class: `labels.len() / samples` for each sample.
    ///
    /// # Errors
    /// `InvalidArgument` if samples have different numbers of labels.
    pub fn labels(&self, labels: &mut [f32], samples: usize) -> Result<()> {
        if samples == 0 || !labels.len().is_multiple_of(samples) {
            let what = format!("{} numbers are no labels of {samples} samples", labels.len());
            return Err(refused(what, "give a number for each class of each sample"));
        }
        blend(labels, labels.len() / samples, self.own)
    }
}

/// Each sample becomes `own` of itself and the rest of the one before it; the first one takes the last one's.
fn blend(batch: &mut [f32], sample: usize, own: f32) -> Result<()> {
    if sample == 0 || batch.is_empty() {
        return Ok(());
    }
    let last = batch[batch.len() - sample..].to_vec();
    for index in (0..batch.len() / sample).rev() {
        let (before, rest) = batch.split_at_mut(index * sample);
        let other = before.len().checked_sub(sample).map_or(&last[..], |at| &before[at..]);
        for (number, &other) in rest[..sample].iter_mut().zip(other) {
            *number = own * *number + (1.0 - own) * other;
        }
    }
    Ok(())
}

/// A number of the beta distribution (`alpha`, `alpha`): the share of one of two numbers of the gamma distribution.
fn beta(random: &mut Random, alpha: f32) -> Result<f32> {
    if !(alpha > 0.0 && alpha.is_finite()) {
        return Err(refused(format!("alpha is {alpha}"), "give a finite number above 0"));
    }
    let (one, other) = (gamma(random, alpha.into()), gamma(random, alpha.into()));
    // Both numbers are too small for a float: one of them is all, each with the same probability.
    let share = if one + other > 0.0 { one / (one + other) } else { f64::from(random.up_to(1)) };
    Ok(share as f32)
}

/// A number of the gamma distribution, by Marsaglia and Tsang (2000).
fn gamma(random: &mut Random, alpha: f64) -> f64 {
    if alpha < 1.0 {
        let unit = 1.0 - random.uniform(0.0, 1.0);
        return gamma(random, alpha + 1.0) * unit.powf(1.0 / alpha);
    }
    let d = alpha - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = f64::from(random.normal());
        let v = (1.0 + c * x).powi(3);
        let unit = 1.0 - random.uniform(0.0, 1.0);
        if v > 0.0 && unit.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixup_is_a_share_of_each() {
        let mixing = Mixing::mixup(1, 2, 3, 0.4).unwrap();
        let mut batch = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        mixing.images(&mut batch, [3, 1, 1, 2]).unwrap();
        let own = mixing.own();
        let mixed = |one: f32, other: f32| own * one + (1.0 - own) * other;
        assert_eq!(
            batch,
            [mixed(1.0, 5.0), mixed(2.0, 6.0), mixed(3.0, 1.0), mixed(4.0, 2.0), mixed(5.0, 3.0), mixed(6.0, 4.0)]
        );
        assert_eq!(mixing, Mixing::mixup(1, 2, 3, 0.4).unwrap());
        assert_ne!(mixing, Mixing::mixup(1, 2, 4, 0.4).unwrap());
    }

    #[test]
    fn cutmix_moves_a_rectangle_of_its_share() {
        for number in 0..50 {
            let mixing = Mixing::cutmix(7, 0, number, 1.0, (10, 20)).unwrap();
            let mut batch: Vec<f32> = (0..2).flat_map(|sample| [sample as f32; 600]).collect();
            mixing.images(&mut batch, [2, 3, 10, 20]).unwrap();
            let moved = batch[..600].iter().filter(|&&level| level == 1.0).count();
            let back = batch[600..].iter().filter(|&&level| level == 0.0).count();
            assert_eq!(moved, back);
            assert!((1.0 - moved as f32 / 600.0 - mixing.own()).abs() < 1e-6, "{moved} of 600, {mixing:?}");
            let mut labels = [1.0, 0.0, 0.0, 1.0];
            mixing.labels(&mut labels, 2).unwrap();
            assert_eq!(labels, [mixing.own(), 1.0 - mixing.own(), 1.0 - mixing.own(), mixing.own()]);
        }
    }

    /// Mean 1/2 and variance 1 / (4 (2 alpha + 1)).
    #[test]
    fn shares_are_of_the_beta_distribution() {
        for alpha in [0.2_f32, 1.0, 4.0] {
            let draws = 20_000;
            let shares: Vec<f64> =
                (0..draws).map(|batch| f64::from(Mixing::mixup(3, 0, batch, alpha).unwrap().own())).collect();
            let mean = shares.iter().sum::<f64>() / draws as f64;
            let variance = shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / draws as f64;
            let wanted = 0.25 / (2.0 * f64::from(alpha) + 1.0);
            assert!((mean - 0.5).abs() < 0.015, "{alpha}: {mean}");
            assert!((variance / wanted - 1.0).abs() < 0.06, "{alpha}: {variance} for {wanted}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mixing = Mixing::cutmix(1, 0, 0, 1.0, (8, 8)).unwrap();
        assert!(mixing.images(&mut [0.0; 7], [1, 1, 2, 4]).is_err());
        assert!(Mixing { own: 0.5, region: Some(Region::whole(8, 8)) }.images(&mut [0.0; 8], [1, 1, 2, 4]).is_err());
        assert!(mixing.labels(&mut [0.0; 7], 2).is_err());
        assert!(Mixing::mixup(0, 0, 0, 0.0).is_err());
        assert!(Mixing::mixup(0, 0, 0, f32::NAN).is_err());
        assert!(Mixing::cutmix(0, 0, 0, 1.0, (0, 1)).is_err());
    }
}
