//! AutoAugment, RandAugment and TrivialAugment: the tables of the papers, as torchvision has them.

use crate::random::Random;
use crate::warp::Matrix;

/// The dataset for which the pairs of AutoAugment were found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// ImageNet.
    #[default]
    ImageNet,
    /// CIFAR-10.
    Cifar10,
    /// SVHN.
    Svhn,
}

/// An operation with its magnitude drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Drawn {
    Warp(Matrix),
    Brightness(f32),
    Saturation(f32),
    Contrast(f32),
    Sharpness(f32),
    Posterize(u32),
    Solarize(f32),
    AutoContrast,
    Equalize,
    Invert,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Invert,
}

use Kind::{
    AutoContrast, Brightness, Color, Contrast, Equalize, Identity, Invert, Posterize, Rotate, Sharpness, ShearX,
    ShearY, Solarize, TranslateX, TranslateY,
};

impl Kind {
    /// Whether the magnitude may be negated.
    fn is_signed(self) -> bool {
        matches!(self, ShearX | ShearY | TranslateX | TranslateY | Rotate | Brightness | Color | Contrast | Sharpness)
    }

    /// The operation of that magnitude on an image of `height` rows and `width` columns.
    fn with(self, magnitude: f64, (height, width): (u32, u32)) -> Option<Drawn> {
        // Sheared and moved about the upper left corner.
        let affine = |move_by, shear| Some(Drawn::Warp(Matrix::affine((0.0, 0.0), 0.0, move_by, 1.0, shear)));
        let middle = |move_by| {
            let center = (f64::from(width) * 0.5, f64::from(height) * 0.5);
            Some(Drawn::Warp(Matrix::affine(center, 0.0, move_by, 1.0, (0.0, 0.0))))
        };
        let factor = (1.0 + magnitude) as f32;
        match self {
            Identity => None,
            ShearX => affine((0.0, 0.0), (magnitude.atan().to_degrees(), 0.0)),
            ShearY => affine((0.0, 0.0), (0.0, magnitude.atan().to_degrees())),
            TranslateX => middle((magnitude.trunc(), 0.0)),
            TranslateY => middle((0.0, magnitude.trunc())),
            Rotate => Some(Drawn::Warp(Matrix::rotation(magnitude, (height, width)))),
            Brightness => Some(Drawn::Brightness(factor)),
            Color => Some(Drawn::Saturation(factor)),
            Contrast => Some(Drawn::Contrast(factor)),
            Sharpness => Some(Drawn::Sharpness(factor)),
            Posterize => Some(Drawn::Posterize(magnitude as u32)),
            Solarize => Some(Drawn::Solarize(magnitude as f32)),
            AutoContrast => Some(Drawn::AutoContrast),
            Equalize => Some(Drawn::Equalize),
            Invert => Some(Drawn::Invert),
        }
    }
}

/// Magnitude number `bin` of `bins`, evenly spaced from `low` to `high`.
fn linear(low: f64, high: f64, bin: u32, bins: u32) -> f64 {
    low + (high - low) * f64::from(bin) / f64::from(bins.max(2) - 1)
}

/// Magnitude number `bin` of `bins`, for AutoAugment and RandAugment.
fn magnitude(kind: Kind, bin: u32, bins: u32, (height, width): (u32, u32)) -> f64 {
    let to = |high| linear(0.0, high, bin, bins);
    match kind {
        ShearX | ShearY => to(0.3),
        TranslateX => to(150.0 / 331.0 * f64::from(width)),
        TranslateY => to(150.0 / 331.0 * f64::from(height)),
        Rotate => to(30.0),
        Brightness | Color | Contrast | Sharpness => to(0.9),
        Posterize => 8.0 - (f64::from(bin) / (f64::from(bins - 1) / 4.0)).round_ties_even(),
        Solarize => linear(255.0, 0.0, bin, bins),
        Identity | AutoContrast | Equalize | Invert => 0.0,
    }
}

/// Magnitude number `bin` of 31, for TrivialAugment, which goes further.
fn wide_magnitude(kind: Kind, bin: u32) -> f64 {
    let to = |high| linear(0.0, high, bin, 31);
    match kind {
        ShearX | ShearY | Brightness | Color | Contrast | Sharpness => to(0.99),
        TranslateX | TranslateY => to(32.0),
        Rotate => to(135.0),
        Posterize => 8.0 - (f64::from(bin) / 5.0).round_ties_even(),
        Solarize => linear(255.0, 0.0, bin, 31),
        Identity | AutoContrast | Equalize | Invert => 0.0,
    }
}

/// What RandAugment and TrivialAugment draw from.
const SPACE: [Kind; 14] = [
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
];

fn signed(kind: Kind, magnitude: f64, random: &mut Random) -> f64 {
    // Always drawn, so that later numbers do not depend on the kind.
    let is_negated = random.up_to(1) == 1;
    if kind.is_signed() && is_negated { -magnitude } else { magnitude }
}

/// `ops` operations of magnitude number `bin` of 31.
pub fn rand_augment(random: &mut Random, ops: u32, bin: u32, size: (u32, u32)) -> Vec<Drawn> {
    let one = |_| {
        let kind = SPACE[random.up_to(SPACE.len() as u32 - 1) as usize];
        kind.with(signed(kind, magnitude(kind, bin, 31, size), random), size)
    };
    (0..ops).filter_map(one).collect()
}

/// One operation.
pub fn trivial_augment(random: &mut Random, size: (u32, u32)) -> Option<Drawn> {
    let kind = SPACE[random.up_to(SPACE.len() as u32 - 1) as usize];
    let bin = random.up_to(30);
    kind.with(signed(kind, wide_magnitude(kind, bin), random), size)
}

/// One pair of the policy, each with its probability.
pub fn auto_augment(random: &mut Random, policy: Policy, size: (u32, u32)) -> Vec<Drawn> {
    let pairs: &[Pair] = match policy {
        Policy::ImageNet => &IMAGENET,
        Policy::Cifar10 => &CIFAR10,
        Policy::Svhn => &SVHN,
    };
    let pair = pairs[random.up_to(pairs.len() as u32 - 1) as usize];
    let one = |(kind, tenths, bin): Entry| {
        let happens = random.happens(f32::from(tenths) / 10.0);
        let magnitude = signed(kind, magnitude(kind, bin, 10, size), random);
        if happens { kind.with(magnitude, size) } else { None }
    };
    pair.into_iter().filter_map(one).collect()
}

/// An operation, its probability in tenths and the number of its magnitude, of 10.
type Entry = (Kind, u8, u32);
type Pair = [Entry; 2];

const IMAGENET: [Pair; 25] = [
    [(Posterize, 4, 8), (Rotate, 6, 9)],
    [(Solarize, 6, 5), (AutoContrast, 6, 0)],
    [(Equalize, 8, 0), (Equalize, 6, 0)],
    [(Posterize, 6, 7), (Posterize, 6, 6)],
    [(Equalize, 4, 0), (Solarize, 2, 4)],
    [(Equalize, 4, 0), (Rotate, 8, 8)],
    [(Solarize, 6, 3), (Equalize, 6, 0)],
    [(Posterize, 8, 5), (Equalize, 10, 0)],
    [(Rotate, 2, 3), (Solarize, 6, 8)],
    [(Equalize, 6, 0), (Posterize, 4, 6)],
    [(Rotate, 8, 8), (Color, 4, 0)],
    [(Rotate, 4, 9), (Equalize, 6, 0)],
    [(Equalize, 0, 0), (Equalize, 8, 0)],
    [(Invert, 6, 0), (Equalize, 10, 0)],
    [(Color, 6, 4), (Contrast, 10, 8)],
    [(Rotate, 8, 8), (Color, 10, 2)],
    [(Color, 8, 8), (Solarize, 8, 7)],
    [(Sharpness, 4, 7), (Invert, 6, 0)],
    [(ShearX, 6, 5), (Equalize, 10, 0)],
    [(Color, 4, 0), (Equalize, 6, 0)],
    [(Equalize, 4, 0), (Solarize, 2, 4)],
    [(Solarize, 6, 5), (AutoContrast, 6, 0)],
    [(Invert, 6, 0), (Equalize, 10, 0)],
    [(Color, 6, 4), (Contrast, 10, 8)],
    [(Equalize, 8, 0), (Equalize, 6, 0)],
];

const CIFAR10: [Pair; 25] = [
    [(Invert, 1, 0), (Contrast, 2, 6)],
    [(Rotate, 7, 2), (TranslateX, 3, 9)],
    [(Sharpness, 8, 1), (Sharpness, 9, 3)],
    [(ShearY, 5, 8), (TranslateY, 7, 9)],
    [(AutoContrast, 5, 0), (Equalize, 9, 0)],
    [(ShearY, 2, 7), (Posterize, 3, 7)],
    [(Color, 4, 3), (Brightness, 6, 7)],
    [(Sharpness, 3, 9), (Brightness, 7, 9)],
    [(Equalize, 6, 0), (Equalize, 5, 0)],
    [(Contrast, 6, 7), (Sharpness, 6, 5)],
    [(Color, 7, 7), (TranslateX, 5, 8)],
    [(Equalize, 3, 0), (AutoContrast, 4, 0)],
    [(TranslateY, 4, 3), (Sharpness, 2, 6)],
    [(Brightness, 9, 6), (Color, 2, 8)],
    [(Solarize, 5, 2), (Invert, 0, 0)],
    [(Equalize, 2, 0), (AutoContrast, 6, 0)],
    [(Equalize, 2, 0), (Equalize, 6, 0)],
    [(Color, 9, 9), (Equalize, 6, 0)],
    [(AutoContrast, 8, 0), (Solarize, 2, 8)],
    [(Brightness, 1, 3), (Color, 7, 0)],
    [(Solarize, 4, 5), (AutoContrast, 9, 0)],
    [(TranslateY, 9, 9), (TranslateY, 7, 9)],
    [(AutoContrast, 9, 0), (Solarize, 8, 3)],
    [(Equalize, 8, 0), (Invert, 1, 0)],
    [(TranslateY, 7, 9), (AutoContrast, 9, 0)],
];

const SVHN: [Pair; 25] = [
    [(ShearX, 9, 4), (Invert, 2, 0)],
    [(ShearY, 9, 8), (Invert, 7, 0)],
    [(Equalize, 6, 0), (Solarize, 6, 6)],
    [(Invert, 9, 0), (Equalize, 6, 0)],
    [(Equalize, 6, 0), (Rotate, 9, 3)],
    [(ShearX, 9, 4), (AutoContrast, 8, 0)],
    [(ShearY, 9, 8), (Invert, 4, 0)],
    [(ShearY, 9, 5), (Solarize, 2, 6)],
    [(Invert, 9, 0), (AutoContrast, 8, 0)],
    [(Equalize, 6, 0), (Rotate, 9, 3)],
    [(ShearX, 9, 4), (Solarize, 3, 3)],
    [(ShearY, 8, 8), (Invert, 7, 0)],
    [(Equalize, 9, 0), (TranslateY, 6, 6)],
    [(Invert, 9, 0), (Equalize, 6, 0)],
    [(Contrast, 3, 3), (Rotate, 8, 4)],
    [(Invert, 8, 0), (TranslateY, 0, 2)],
    [(ShearY, 7, 6), (Solarize, 4, 8)],
    [(Invert, 6, 0), (Rotate, 8, 4)],
    [(ShearY, 3, 7), (TranslateX, 9, 3)],
    [(ShearX, 1, 6), (Invert, 6, 0)],
    [(Solarize, 7, 2), (TranslateY, 6, 7)],
    [(ShearY, 8, 4), (Invert, 8, 0)],
    [(ShearX, 7, 9), (TranslateY, 8, 3)],
    [(ShearY, 8, 5), (AutoContrast, 7, 0)],
    [(ShearX, 7, 2), (Invert, 1, 0)],
];
