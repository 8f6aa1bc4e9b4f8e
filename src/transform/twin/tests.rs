//! Compares the twins with their comments, written down again as plainly as possible.

use super::*;
use crate::dataset::DType;
use proptest::prelude::*;

fn numbers(bytes: &[u8]) -> Vec<i64> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty());
    numbers.iter().map(|number| i64::from_le_bytes(*number)).collect()
}

#[test]
fn pieces_come_to_their_places_and_nothing_else_changes() {
    let mut to = [9; 10];
    gather(&mut to, [(6, &[1, 2, 3][..]), (0, &[]), (1, &[4, 5])]);
    assert_eq!(to, [9, 4, 5, 9, 9, 9, 1, 2, 3, 9]);
}

#[test]
fn elements_fill_at_their_multiples() {
    let mut to = [0; 6];
    fill(&mut to, 0xaabb_ccdd_eeff_1122, 2);
    assert_eq!(to, [0x22, 0x11, 0x22, 0x11, 0x22, 0x11]);
    let mut to = [0; 16];
    fill(&mut to, (-100_i64) as u64, 8);
    assert_eq!(numbers(&to), [-100, -100]);
    let mut rows = [0; 15];
    pad(&mut rows, [&[1, 2, 3][..], &[], &[1, 2, 3, 4, 5, 6]], 5, 0x0807, 2);
    assert_eq!(rows, [1, 2, 3, 8, 7, 7, 8, 7, 8, 7, 1, 2, 3, 4, 5]);
}

#[test]
fn labels_are_the_tokens_one_further() {
    let tokens: Vec<u8> = [7_u16, 8, 0xffff].iter().flat_map(|token| token.to_le_bytes()).collect();
    let with = |rows: &[&[u8]], seq_len: usize| {
        let bytes = rows.len() * seq_len * 8;
        let (mut ids, mut labels) = (vec![0xcc; bytes], vec![0xcc; bytes]);
        tokens_u16(&mut ids, Some(&mut labels), rows.iter().copied(), seq_len, -1, -100);
        (numbers(&ids), numbers(&labels))
    };
    assert_eq!(with(&[&tokens], 3), (vec![7, 8, 0xffff], vec![8, 0xffff, -100]));
    // One token more than there is room for is the last label.
    assert_eq!(with(&[&tokens], 2), (vec![7, 8], vec![8, 0xffff]));
    assert_eq!(with(&[&tokens], 1), (vec![7], vec![8]));
    let (ids, labels) = with(&[&tokens[..5], &[], &tokens[..2]], 3);
    assert_eq!(ids, [7, 8, -1, -1, -1, -1, 7, -1, -1]);
    assert_eq!(labels, [8, -100, -100, -100, -100, -100, -100, -100, -100]);

    let (mut ids, row) = ([0; 16], [0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0]);
    tokens_u32(&mut ids, None, [&row[..]], 2, 0, 0);
    assert_eq!(numbers(&ids), [0xffff_ffff, 1]);
}

#[test]
fn a_pass_weighs_what_lies_along_it() {
    const ONE: i32 = 1 << 22;
    // Two rows of three pixels, with a byte between the rows.
    let source = [10, 20, 30, 11, 21, 31, 255, 255, 0, 9, 110, 120, 130, 111, 121, 131, 0, 1, 0];
    let columns = PassParams { height: 2, width: 2, row_bytes: 10, is_vertical: false };
    // The last column, sharpened; and the mean of the first two, whose half is rounded up.
    let (taps, weights) = ([[1, 2], [0, 4]], [-ONE, 2 * ONE, ONE / 2, ONE / 2]);
    let mut made = [9; 12];
    resample(&mut made, &source, columns, &taps, &weights);
    assert_eq!(made, [255, 255, 0, 11, 21, 31, 0, 0, 0, 111, 121, 131]);
    assert_eq!((columns.bytes(), columns.taps(), columns.source_bytes(&taps)), (12, 2, 19));

    let rows = PassParams { height: 1, width: 3, row_bytes: 10, is_vertical: true };
    let mut made = [9; 9];
    resample(&mut made, &source, rows, &[[0, 2]], &[ONE / 4, 3 * ONE / 4]);
    assert_eq!(made, [85, 95, 105, 86, 96, 106, 64, 65, 0]);
    assert_eq!((rows.taps(), rows.source_bytes(&[[0, 2]]), rows.source_bytes(&[[1, 0]])), (1, 19, 9));

    let record = rows.to_record(1 << 60, 5, 77);
    assert_eq!(PassParams::from_record(&record), ([1 << 60, 5, 77], rows));
}

#[test]
fn a_compute_step_is_so_many_multiplications() {
    let mut floats = [2.0_f32.to_le_bytes(), 1.0_f32.to_le_bytes()].concat();
    floats.push(7);
    burn(&mut floats, 0);
    assert_eq!(floats[..4], 2.0_f32.to_le_bytes());
    burn(&mut floats, 3);
    let once = |x: f32| (f64::from(x) * f64::from(0.999_f32) + f64::from(0.001_f32)) as f32;
    assert_eq!(floats[..4], once(once(once(2.0))).to_le_bytes());
    assert_eq!(floats[8], 7);
}

#[test]
fn a_record_is_what_the_kernels_read() {
    let params = ImageParams { height: 3, width: 5, x: 1.0, y: 2.0, w: 3.5, h: 1.0, flip: true };
    let record = params.to_record(0x0102_0304_0506_0708);
    assert_eq!(record[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!((record[8], record[12], record[32]), (3, 5, 1));
    assert_eq!(record[16..20], 1.0_f32.to_le_bytes());
    assert_eq!(record[24..28], 3.5_f32.to_le_bytes());
    assert_eq!(ImageParams::from_record(&record), (0x0102_0304_0506_0708, params));
}

/// One channel, in single precision from 0 to 1.
fn gray(height: u32, width: u32) -> ImageLayout {
    ImageLayout { dtype: DType::F32, channels: 1, height, width, channels_last: false, mean: [0.0; 4], std: [1.0; 4] }
}

fn floats(params: ImageParams, pixels: &[u8], layout: &ImageLayout) -> Vec<f32> {
    let mut to = vec![0xff; layout.bytes()];
    images(&mut to, [(params, pixels)], layout);
    to.as_chunks::<4>().0.iter().map(|float| f32::from_le_bytes(*float)).collect()
}

/// Elements of these levels.
fn of_levels(levels: &[f32]) -> Vec<f32> {
    levels.iter().map(|level| level / 255.0).collect()
}

#[test]
fn edges_of_a_box_are_clamped_and_columns_mirrored() {
    let pixels = [0, 10, 20, 30, 40, 50, 60, 70];
    let params = ImageParams { height: 2, width: 4, x: 1.0, y: 0.0, w: 2.0, h: 1.0, flip: false };
    // Centres of four output pixels in a box of two: -0.25, 0.25, 0.75 and 1.25.
    assert_eq!(floats(params, &pixels, &gray(1, 4)), of_levels(&[10.0, 12.5, 17.5, 20.0]));
    let mirrored = ImageParams { flip: true, ..params };
    assert_eq!(floats(mirrored, &pixels, &gray(1, 4)), of_levels(&[20.0, 17.5, 12.5, 10.0]));
    // Beyond the image, its edge continues.
    let outside = ImageParams { x: -1.0, y: 1.0, w: 6.0, h: 2.0, ..params };
    assert_eq!(floats(outside, &pixels, &gray(2, 6)), of_levels(&[40.0, 40.0, 50.0, 60.0, 70.0, 70.0].repeat(2)));
    let nothing = ImageParams::default();
    assert_eq!(floats(nothing, &[], &gray(1, 2)), [0.0, 0.0]);
}

#[test]
fn bytes_round_to_nearest_even() {
    // Each pixel is the middle between two.
    let params = ImageParams { height: 1, width: 6, x: 0.0, y: 0.0, w: 6.0, h: 1.0, flip: false };
    let mut to = [0; 3];
    images(&mut to, [(params, &[1, 2, 2, 3, 255, 255][..])], &ImageLayout { dtype: DType::U8, ..gray(1, 3) });
    assert_eq!(to, [2, 2, 255]);
}

proptest! {
    /// Whole boxes that need no resampling, as an index formula.
    #[test]
    fn what_is_not_resampled_is_the_pixel_itself(
        (height, width) in (1_u32..20, 1_u32..20),
        (channels, channels_last, flip) in (1_u32..=4, any::<bool>(), any::<bool>()),
        (dtype, cut) in (0_usize..4, any::<[u32; 4]>()),
        seed in any::<u64>(),
    ) {
        let (out_h, out_w) = (1 + cut[0] % height, 1 + cut[1] % width);
        let (y, x) = (cut[2] % (height - out_h + 1), cut[3] % (width - out_w + 1));
        let pixels: Vec<u8> = (0..u64::from(height * width * channels))
            .map(|at| (seed.wrapping_mul(2 * at + 1) >> 37) as u8)
            .collect();
        let dtype = [DType::U8, DType::F32, DType::F16, DType::BF16][dtype];
        let layout = ImageLayout {
            dtype, channels, height: out_h, width: out_w, channels_last,
            mean: [0.485, 0.0, 3.0, -0.5], std: [0.229, 0.5, 0.25, 1.0],
        };
        let params = ImageParams {
            height, width, x: x as f32, y: y as f32, w: out_w as f32, h: out_h as f32, flip,
        };
        let mut to = vec![0; layout.bytes()];
        images(&mut to, [(params, &pixels[..])], &layout);
        for (i, j, c) in (0..out_h).flat_map(|i| (0..out_w).flat_map(move |j| (0..channels).map(move |c| (i, j, c)))) {
            let from = if flip { out_w - 1 - j } else { j };
            let pixel = pixels[(((y + i) * width + x + from) * channels + c) as usize];
            // Rounding each operation twice is the same as once: double precision has more than twice the bits and two.
            let (mean, std) = (f64::from(layout.mean[c as usize]), f64::from(layout.std[c as usize]));
            let part = (f64::from(pixel) / 255.0) as f32;
            let value = (f64::from((f64::from(part) - mean) as f32) / std) as f32;
            let expected = match dtype {
                DType::U8 => vec![pixel],
                DType::F32 => value.to_le_bytes().to_vec(),
                DType::F16 => f16_bits(value).to_le_bytes().to_vec(),
                _ => bf16_bits(value).to_le_bytes().to_vec(),
            };
            let pixel = if channels_last { (i * out_w + j) * channels + c } else { (c * out_h + i) * out_w + j };
            let at = pixel as usize * expected.len();
            prop_assert_eq!(&to[at..][..expected.len()], &expected[..], "{} {} {}", i, j, c);
        }
    }

    /// In double precision, to within an error of single precision's.
    #[test]
    fn resampling_is_bilinear(
        (height, width, out_h, out_w) in (1_u32..12, 1_u32..12, 1_u32..20, 1_u32..20),
        cut in any::<[u32; 4]>(),
        pixels in proptest::collection::vec(any::<u8>(), 144),
    ) {
        let (h, w) = (1 + cut[0] % height, 1 + cut[1] % width);
        let (y, x) = (cut[2] % (height - h + 1), cut[3] % (width - w + 1));
        let params = ImageParams {
            height, width, x: x as f32, y: y as f32, w: w as f32, h: h as f32, flip: false,
        };
        let got = floats(params, &pixels, &gray(out_h, out_w));
        let place = |index: u32, count: u32, len: u32| {
            let centre = (f64::from(index) + 0.5) * f64::from(len) / f64::from(count) - 0.5;
            let centre = centre.clamp(0.0, f64::from(len - 1));
            (centre.floor() as u32, (centre.floor() as u32 + 1).min(len - 1), centre.fract())
        };
        for (at, got) in got.iter().enumerate() {
            let (top, bottom, down) = place(at as u32 / out_w, out_h, h);
            let (left, right, along) = place(at as u32 % out_w, out_w, w);
            let pixel = |row: u32, column: u32| f64::from(pixels[((y + row) * width + x + column) as usize]);
            let upper = pixel(top, left) * (1.0 - along) + pixel(top, right) * along;
            let lower = pixel(bottom, left) * (1.0 - along) + pixel(bottom, right) * along;
            let expected = upper * (1.0 - down) + lower * down;
            // The centre is off by a few units of 2^-20, times the steps to the pixels beside.
            let got = f64::from(*got) * 255.0;
            prop_assert!((got - expected).abs() < 2e-3, "{} instead of {} at {}", got, expected, at);
        }
    }
}
