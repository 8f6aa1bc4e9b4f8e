//! Random numbers that belong to a sample and not to a thread.
//!
//! `uringload::transform::Images`, whose boxes the kernels of a GPU take, draws from it too. The rule stays, so that a
//! saved run goes on with the boxes that it would have had.

use crate::Region;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

/// How often a random box is drawn before another rule decides, as in torchvision.
const BOX_TRIES: u32 = 10;

/// The numbers of one sample in one epoch.
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Seed and epoch go through a mixer one after the other, so that neighbours are independent.
    pub fn of_sample(seed: u64, epoch: u64, sample: u64) -> Random {
        let mix = |number: u64| SplitMix64::seed_from_u64(number).next_u64();
        let mut stream = SplitMix64::seed_from_u64(mix(mix(seed).wrapping_add(epoch)));
        // The first numbers of the stream are the keys of a shuffle; one more mixing sets these apart from them.
        let epoch_key = mix(!stream.next_u64());
        Random(Xoshiro256PlusPlus::seed_from_u64(epoch_key.wrapping_add(sample)))
    }

    /// From `low` up to but not including `high`, of 53 random bits.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        let unit = (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        low + (high - low) * unit
    }

    /// A number of that range. It is drawn even where the range is one number, so that later numbers do not change with
    /// it.
    pub fn within(&mut self, (low, high): (f32, f32)) -> f64 {
        self.uniform(low.into(), high.into())
    }

    /// Whether something of that probability happens.
    pub fn happens(&mut self, probability: f32) -> bool {
        self.uniform(0.0, 1.0) < f64::from(probability)
    }

    /// A whole number from 0 to `last`.
    pub fn up_to(&mut self, last: u32) -> u32 {
        ((u128::from(self.0.next_u64()) * (u128::from(last) + 1)) >> 64) as u32
    }

    /// A region of that size anywhere in the image.
    pub fn place(&mut self, h: u32, w: u32, height: u32, width: u32) -> Region {
        Region { y: self.up_to(height - h), x: self.up_to(width - w), h, w }
    }

    /// The numbers from 0 to `N - 1` in any order.
    pub fn order<const N: usize>(&mut self) -> [usize; N] {
        let mut order = std::array::from_fn(|index| index);
        for last in (1..N).rev() {
            order.swap(last, self.up_to(last as u32) as usize);
        }
        order
    }

    /// A number of the normal distribution (Box and Muller).
    pub fn normal(&mut self) -> f32 {
        let (radius, angle) = (1.0 - self.uniform(0.0, 1.0), self.uniform(0.0, std::f64::consts::TAU));
        ((-2.0 * radius.ln()).sqrt() * angle.cos()) as f32
    }

    /// A region of a random size, as torchvision's `RandomResizedCrop.get_params` draws it.
    pub fn resized_crop(&mut self, scale: (f32, f32), ratio: (f32, f32), height: u32, width: u32) -> Region {
        let (narrow, wide) = (f64::from(ratio.0), f64::from(ratio.1));
        let pixels = |side: f64| side.round_ties_even() as u32;
        for _ in 0..BOX_TRIES {
            let area = f64::from(height) * f64::from(width) * self.within(scale);
            let aspect = self.uniform(narrow.ln(), wide.ln()).exp();
            let (h, w) = (pixels((area / aspect).sqrt()), pixels((area * aspect).sqrt()));
            if (1..=height).contains(&h) && (1..=width).contains(&w) {
                return self.place(h, w, height, width);
            }
        }
        // The largest one in the middle.
        let aspect = f64::from(width) / f64::from(height);
        let (h, w) = if aspect < narrow {
            (pixels(f64::from(width) / narrow).clamp(1, height), width)
        } else if aspect > wide {
            (height, pixels(f64::from(height) * wide).clamp(1, width))
        } else {
            (height, width)
        };
        Region { y: (height - h) / 2, x: (width - w) / 2, h, w }
    }

    /// The rectangle that torchvision's `RandomErasing` blanks; none if no drawn one is smaller than the image.
    pub fn erased(&mut self, scale: (f32, f32), ratio: (f32, f32), height: u32, width: u32) -> Option<Region> {
        let (narrow, wide) = (f64::from(ratio.0), f64::from(ratio.1));
        for _ in 0..BOX_TRIES {
            let area = f64::from(height) * f64::from(width) * self.within(scale);
            let aspect = self.uniform(narrow.ln(), wide.ln()).exp();
            let side = |side: f64| side.round_ties_even() as u32;
            let (h, w) = (side((area * aspect).sqrt()), side((area / aspect).sqrt()));
            if h < height && w < width {
                return Some(self.place(h, w, height, width));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that were always drawn.
    #[test]
    fn boxes_stay_what_they_are() {
        let of = |sample: u64| {
            let mut random = Random::of_sample(42, 1, sample);
            let flip = random.happens(0.5);
            let region = random.resized_crop((0.08, 1.0), (3.0 / 4.0, 4.0 / 3.0), 480, 640);
            (region.y, region.x, region.h, region.w, flip)
        };
        let drawn = [of(0), of(1), of(2)];
        assert_eq!(drawn, [(0, 103, 404, 462, false), (259, 43, 156, 204, false), (13, 83, 447, 487, false)]);
    }

    #[test]
    fn orders_are_orders_and_each_comes_as_often() {
        let mut counts = std::collections::HashMap::new();
        for sample in 0..6000 {
            *counts.entry(Random::of_sample(1, 2, sample).order::<3>()).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|&count: &i32| (count - 1000).abs() < 200), "{counts:?}");
    }
}
