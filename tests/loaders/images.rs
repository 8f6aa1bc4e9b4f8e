//! Images on the host against values that NumPy and OpenCV computed (tests/data/make_images.py).

use serde_json::Value;
use uringload::dataset::{DType, Field, Shape};
use uringload::inspect::images_on_host;
use uringload::inspect::twin::{ImageParams, bf16_bits, f16_bits};
use uringload::transform::{Crop, Images};

/// How far an element may be off, in pixels from 0 to 255: what is not resampled by the rounding of one multiplication,
/// what is by that of a centre, at most a few units of 2^-20, times the step to the next pixel.
const EXACT: f64 = 1e-4;
const RESAMPLED: f64 = 2e-3;

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|number| number.as_f64().expect("a number")).collect()
}

fn of_f16(bits: u16) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023) / 1024.0);
    let magnitude =
        if exponent == 0 { mantissa * 2_f64.powi(-14) } else { (1.0 + mantissa) * 2_f64.powi(exponent - 15) };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

#[test]
fn images_are_what_numpy_and_opencv_make_of_them() {
    let text = include_str!("../data/images/cases.json");
    let cases: Vec<Value> = serde_json::from_str(text).expect("it is JSON");
    assert!(cases.len() > 10);
    for (number, case) in cases.iter().enumerate() {
        let [shape, bounds, size] = ["shape", "box", "size"].map(|name| numbers(&case[name]));
        let floats = |name: &str| numbers(&case[name]).iter().map(|&number| number as f32).collect::<Vec<f32>>();
        let pixels: Vec<u8> = numbers(&case["pixels"]).iter().map(|&pixel| pixel as u8).collect();
        let expected = numbers(&case["expected"]);
        let field = Field {
            name: "image".into(),
            dtype: DType::U8,
            shape: Shape::Fixed(shape.iter().map(|&side| side as u64).collect()),
        };
        let [y, x, h, w] = [0, 1, 2, 3].map(|index| bounds[index] as f32);
        let flip = case["flip"] == true;
        let params = ImageParams { height: shape[0] as u32, width: shape[1] as u32, x, y, w, h, flip };
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let images = Images::default()
                .size((size[0] as u32, size[1] as u32))
                .crop(Crop::None)
                .mean(floats("mean"))
                .std(floats("std"))
                .channels_last(case["channels_last"] == true)
                .dtype(dtype);
            let layout = images.layout(&field).expect("it can be done");
            let bytes = images_on_host(&layout, &[params], &[&pixels]).expect("it can be done");
            assert_eq!(bytes.len() as u64, expected.len() as u64 * dtype.size(), "case {number}");
            let least = if (h, w) == (size[0] as f32, size[1] as f32) { EXACT } else { RESAMPLED };
            let slack = least / 255.0 / floats("std").iter().copied().fold(1.0, f32::min) as f64;
            for (at, &expected) in expected.iter().enumerate() {
                let element = &bytes[at * dtype.size() as usize..][..dtype.size() as usize];
                let (got, rounding) = match dtype {
                    DType::F32 => (f64::from(f32::from_le_bytes(element.try_into().unwrap())), 0.0),
                    DType::F16 => (of_f16(u16::from_le_bytes(element.try_into().unwrap())), 2_f64.powi(-11)),
                    _ => (f64::from(f32::from_le_bytes([0, 0, element[0], element[1]])), 2_f64.powi(-8)),
                };
                let allowed = slack + expected.abs() * rounding;
                assert!((got - expected).abs() <= allowed, "case {number}, {dtype}, {at}: {got} and not {expected}");
            }
        }
    }
}

/// Patterns that `numpy.array(...).astype(numpy.float16)` has, and truncated rounding of bf16 by hand.
#[test]
fn halves_are_those_of_numpy() {
    let halves = [(1.0, 0x3c00), (0.1, 0x2e66), (65504.0, 0x7bff), (65519.99, 0x7bff), (65520.0, 0x7c00)];
    let small = [(5.960_464_5e-8, 1), (2.980_232_2e-8, 0), (3.0e-8, 1), (6.1e-5, 0x03ff), (-2.5, 0xc100)];
    for (value, bits) in halves.into_iter().chain(small) {
        assert_eq!(f16_bits(value), bits, "{value}");
    }
    for (value, bits) in [(1.0, 0x3f80), (3.140_625, 0x4049), (-0.1, 0xbdcd), (1.003_906_2, 0x3f80)] {
        assert_eq!(bf16_bits(value), bits, "{value}");
    }
}
