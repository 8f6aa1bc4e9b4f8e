//! What is refused, the random numbers of an image, and the host's path compared with the twins.

use super::images::{SIDE_MAX, images_on_host};
use super::tokens::tokens_on_host;
use super::*;
use crate::dataset::SampleId;
use crate::dataset::{DType, Field, Shape};
use proptest::prelude::*;
use std::collections::HashSet;
use twin::{ImageParams, normalizer};

fn field(dtype: DType, shape: &[u64]) -> Field {
    Field { name: "x".into(), dtype, shape: Shape::Fixed(shape.to_vec()) }
}

fn photo() -> Field {
    field(DType::U8, &[32, 40, 3])
}

fn resized() -> Crop {
    Crop::RandomResized { scale: (0.08, 1.0), ratio: (3.0 / 4.0, 4.0 / 3.0) }
}

#[track_caller]
fn is_refused<T: std::fmt::Debug>(result: Result<T>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("\"x\"") && error.remedy().is_some(), "{error}");
}

#[test]
fn outputs_have_the_shape_that_is_asked_for() {
    let of = |images: Images| OnDevice::from(images).check(&photo()).unwrap();
    let output = |dtype, shape: &[u64]| Output { dtype, shape: Shape::Fixed(shape.to_vec()) };
    assert_eq!(of(Images::default()), output(DType::F32, &[3, 32, 40]));
    let small = Images { size: Some((8, 9)), crop: Crop::Random, dtype: DType::BF16, ..Images::default() };
    assert_eq!(of(small.clone()), output(DType::BF16, &[3, 8, 9]));
    assert_eq!(of(Images { channels_last: true, ..small }), output(DType::BF16, &[8, 9, 3]));
    let gray = Images::default().check(&field(DType::U8, &[5, 6])).unwrap();
    assert_eq!(gray.shape, Shape::Fixed(vec![1, 5, 6]));

    let ragged = Field { name: "x".into(), dtype: DType::U32, shape: Shape::Ragged };
    let of = |tokens: Tokens, field: &Field| OnDevice::from(tokens).check(field).unwrap();
    assert_eq!(of(Tokens::default(), &ragged), Output { dtype: DType::I64, shape: Shape::Ragged });
    assert_eq!(of(Tokens::default(), &field(DType::U16, &[9])), output(DType::I64, &[9]));
    assert_eq!(of(Tokens { seq_len: Some(8), ..Tokens::default() }, &ragged), output(DType::I64, &[8]));
}

#[test]
fn columns_without_images_or_tokens_are_refused() {
    let side = u64::from(SIDE_MAX) + 1;
    for shape in [&[][..], &[3], &[3, 4, 0], &[3, 4, 5], &[0, 4, 3], &[4, 0, 3], &[1, 2, 3, 4], &[side, 1], &[1, side]]
    {
        is_refused(Images::default().check(&field(DType::U8, shape)));
    }
    is_refused(Images::default().check(&field(DType::F32, &[32, 40, 3])));
    is_refused(Images::default().check(&Field { shape: Shape::Ragged, ..photo() }));
    for (dtype, shape) in [(DType::I64, &[4][..]), (DType::U16, &[]), (DType::U16, &[2, 2]), (DType::U16, &[0])] {
        is_refused(Tokens::default().check(&field(dtype, shape)));
    }
    for seq_len in [0, crate::sampler::SEQ_LEN_MAX + 1, u64::MAX] {
        is_refused(Tokens { seq_len: Some(seq_len), ..Tokens::default() }.check(&field(DType::U16, &[4])));
    }
}

#[test]
fn numbers_of_no_sense_are_refused() {
    let base = Images { size: Some((8, 8)), ..Images::default() };
    base.check(&photo()).unwrap();
    let crop = |scale, ratio| Images { crop: Crop::RandomResized { scale, ratio }, ..base.clone() };
    crop((0.1, 1.0), (0.5, 2.0)).check(&photo()).unwrap();
    let wrong = [
        Images { size: Some((0, 8)), ..base.clone() },
        Images { size: Some((8, SIDE_MAX + 1)), ..base.clone() },
        Images { size: None, crop: Crop::Center, ..base.clone() },
        Images { size: None, crop: resized(), ..base.clone() },
        Images { size: Some((33, 8)), crop: Crop::Random, ..base.clone() },
        Images { size: Some((8, 41)), crop: Crop::Center, ..base.clone() },
        crop((0.0, 1.0), (0.5, 2.0)),
        crop((1.0, 0.5), (0.5, 2.0)),
        crop((0.1, f32::INFINITY), (0.5, 2.0)),
        crop((0.1, 1.0), (-0.5, 2.0)),
        crop((0.1, 1.0), (f32::NAN, 2.0)),
        Images { flip: 1.5, ..base.clone() },
        Images { flip: f32::NAN, ..base.clone() },
        Images { dtype: DType::F64, ..base.clone() },
        Images { mean: vec![0.5; 2], ..base.clone() },
        Images { mean: vec![f32::NAN], ..base.clone() },
        Images { std: vec![0.5, 0.0, 0.5], ..base.clone() },
        Images { std: vec![-1.0], ..base.clone() },
        Images { std: vec![1e-45], ..base.clone() },
        Images { std: vec![0.5; 4], ..base.clone() },
        Images { dtype: DType::U8, std: vec![0.5], ..base.clone() },
    ];
    for images in wrong {
        is_refused(images.check(&photo()));
    }
}

#[test]
fn numbers_of_all_channels_are_those_of_each() {
    let images = Images { mean: vec![0.5, 0.25, 0.0], std: vec![0.5], ..Images::default() };
    let layout = images.layout(&photo()).unwrap();
    assert_eq!((layout.mean, layout.std), ([0.5, 0.25, 0.0, 0.0], [0.5; 4]));
    let layout = Images::default().layout(&photo()).unwrap();
    assert_eq!((layout.mean, layout.std), ([0.0; 4], [1.0; 4]));
}

/// The last bit of a division, of 10 million quotients; and levels by 255, whole or not.
#[test]
fn kernels_divide_as_division_does() {
    let mut state = 1_u64;
    let mut number = |least: f32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        least * (1.0 + (state >> 41) as f32 / 8_388_608.0)
    };
    let mut others = 0;
    for round in 0..2_500_000 {
        let (level, mean, std) = (number([1.0, 32.0, 128.0][round % 3]), number(0.4), number([0.2, 1.0][round % 2]));
        assert_eq!(normalizer(0.0, 1.0)(level), level / 255.0, "{level}");
        others += u32::from(normalizer(mean, std)(level) != (level / 255.0 - mean) / std);
    }
    assert!(others <= 1, "{others}");
    assert!(Images::default().mean([0.485, 0.456, 0.406]).std([0.229, 0.224, 0.225]).is_exact());
    assert!((0..2000).filter(|_| !Images::default().mean([number(0.4)]).std([number(0.1)]).is_exact()).count() <= 1);
}

#[test]
fn boxes_of_the_middle_and_of_everything_are_not_drawn() {
    let of = |images: &Images, height, width| images.params(1, 2, SampleId(3), height, width);
    let images = Images { size: Some((4, 4)), ..Images::default() };
    let whole = ImageParams { height: 9, width: 8, x: 0.0, y: 0.0, w: 8.0, h: 9.0, flip: false };
    assert_eq!(of(&images, 9, 8), whole);
    let center = Images { crop: Crop::Center, flip: 1.0, ..images };
    // Half a pixel goes to the even one: 2.5 to 2, 3.5 to 4.
    assert_eq!(of(&center, 9, 8), ImageParams { x: 2.0, y: 2.0, w: 4.0, h: 4.0, flip: true, ..whole });
    assert_eq!(of(&center, 11, 8).y, 4.0);
    // None of what could be cut is there.
    for crop in [Crop::Center, Crop::Random, resized()] {
        let params = of(&Images { crop, ..center.clone() }, 0, 0);
        assert_eq!((params.w, params.h), (0.0, 0.0), "{crop:?}");
    }
}

#[test]
fn the_fallback_is_the_largest_box_in_the_middle() {
    let of = |ratio, height, width| {
        // Ten times the area never fits.
        let crop = Crop::RandomResized { scale: (10.0, 10.0), ratio };
        let params = Images { size: Some((4, 4)), crop, ..Images::default() }.params(0, 0, SampleId(0), height, width);
        (params.y, params.x, params.h, params.w)
    };
    assert_eq!(of((0.5, 2.0), 20, 30), (0.0, 0.0, 20.0, 30.0));
    assert_eq!(of((0.5, 2.0), 100, 30), (20.0, 0.0, 60.0, 30.0));
    assert_eq!(of((0.5, 2.0), 20, 101), (0.0, 30.0, 20.0, 40.0));
}

/// A resumed run continues with the same boxes: these numbers must not change. Another program computed them too, from
/// SplitMix64 and xoshiro256++ up.
#[test]
fn boxes_stay_what_they_are() {
    let of = |crop, id| {
        let images = Images { size: Some((24, 24)), crop, flip: 0.5, ..Images::default() };
        let params = images.params(42, 1, SampleId(id), 480, 640);
        (params.y, params.x, params.h, params.w, params.flip)
    };
    let resized: Vec<_> = (0..3).map(|id| of(resized(), id)).collect();
    let random: Vec<_> = (0..2).map(|id| of(Crop::Random, id)).collect();
    let first = [(0.0, 103.0, 404.0, 462.0, false), (259.0, 43.0, 156.0, 204.0, false)];
    assert_eq!(resized[..2], first);
    assert_eq!(resized[2], (13.0, 83.0, 447.0, 487.0, false));
    assert_eq!(random, [(450.0, 308.0, 24.0, 24.0, false), (11.0, 596.0, 24.0, 24.0, false)]);
    let flips: Vec<_> = (0..8).map(|id| of(Crop::Center, id).4).collect();
    assert_eq!(flips, [false, false, false, false, true, false, false, true]);
}

/// Every place equally often, within the ranges, and as many mirrored as requested.
#[test]
fn what_is_drawn_is_spread_as_it_should_be() {
    let draws = 20_000;
    let images = Images { size: Some((4, 6)), crop: Crop::Random, flip: 0.25, ..Images::default() };
    let (mut places, mut flips) = ([0_u32; 12], 0);
    for id in 0..draws {
        let params = images.params(7, 0, SampleId(id), 6, 9);
        places[params.y as usize * 4 + params.x as usize] += 1;
        flips += u32::from(params.flip);
    }
    // Six standard deviations.
    let near = |count: u32, share: f64| {
        let (mean, spread) = (draws as f64 * share, (draws as f64 * share * (1.0 - share)).sqrt());
        assert!((f64::from(count) - mean).abs() < 6.0 * spread, "{count} of {draws}, and not {mean}");
    };
    places.iter().for_each(|&count| near(count, 1.0 / 12.0));
    near(flips, 0.25);

    let images = Images { size: Some((4, 4)), crop: resized(), ..Images::default() };
    let (mut small, mut wide, mut seen) = (0, 0, HashSet::new());
    for id in 0..draws {
        let params = images.params(7, 0, SampleId(id), 1000, 1000);
        let (area, aspect) = (params.w * params.h / 1e6, params.w / params.h);
        assert!((0.079..1.001).contains(&area) && (0.745..1.342).contains(&aspect), "{params:?}");
        assert!(params.x + params.w <= 1000.0 && params.y + params.h <= 1000.0, "{params:?}");
        small += u32::from(area < 0.3);
        wide += u32::from(aspect > 1.0);
        seen.insert(params.to_record(0));
    }
    near(wide, 0.5);
    // More than their share of the range, because large ones fit less often.
    assert!(f64::from(small) > draws as f64 * 0.22 / 0.92, "{small}");
    assert!(seen.len() as u64 > draws * 99 / 100, "{}", seen.len());
}

#[test]
fn the_host_refuses_what_does_not_fit_together() {
    let images = Images::default();
    let layout = images.layout(&photo()).unwrap();
    let params = images.params(0, 0, SampleId(0), 32, 40);
    let pixels = vec![255; 32 * 40 * 3];
    let bytes = images_on_host(&layout, &[params], &[&pixels]).unwrap();
    assert_eq!(bytes, 1.0_f32.to_le_bytes().repeat(32 * 40 * 3));
    let kinds = [
        images_on_host(&layout, &[], &[&pixels]),
        images_on_host(&layout, &[params], &[&pixels[1..]]),
        images_on_host(&layout, &[ImageParams { height: u32::MAX, width: u32::MAX, ..params }], &[&pixels]),
        tokens_on_host(&Tokens::default(), DType::I64, &[&[0; 8]]).map(|(ids, _)| ids),
    ]
    .map(|result| result.unwrap_err().kind());
    assert_eq!(kinds, [ErrorKind::InvalidArgument; 4]);
    let endless = Tokens { seq_len: Some(u64::MAX), ..Tokens::default() };
    assert_eq!(tokens_on_host(&endless, DType::U16, &[&[0; 8]]).unwrap_err().kind(), ErrorKind::MemoryLimit);
}

proptest! {
    #[test]
    fn rows_are_as_long_as_the_longest_or_as_asked_for(
        lengths in proptest::collection::vec(0_usize..9, 0..5),
        seq_len in proptest::option::of(1_u64..9),
        labels in any::<bool>(),
    ) {
        let samples: Vec<Vec<u8>> = lengths.iter().map(|&length| (0..2 * length as u8).collect()).collect();
        let slices: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
        let tokens = Tokens { labels, seq_len, pad_id: -7, ..Tokens::default() };
        let (ids, got) = tokens_on_host(&tokens, DType::U16, &slices).unwrap();
        let elements = seq_len.map_or(lengths.iter().copied().max().unwrap_or(0), |length| length as usize);
        prop_assert_eq!(got.is_some(), labels);
        prop_assert_eq!(ids.len(), 8 * elements * samples.len());
        for (row, sample) in samples.iter().enumerate() {
            let token = |at: usize| {
                let bytes = sample.get(2 * at..2 * at + 2)?;
                Some(i64::from(bytes[0]) + 256 * i64::from(bytes[1]))
            };
            for at in 0..elements {
                let place = 8 * (row * elements + at)..8 * (row * elements + at + 1);
                prop_assert_eq!(&ids[place.clone()], &token(at).unwrap_or(-7).to_le_bytes());
                if let Some(labels) = &got {
                    prop_assert_eq!(&labels[place], &token(at + 1).unwrap_or(-100).to_le_bytes());
                }
            }
        }
    }
}
