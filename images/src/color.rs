//! Operations on colours alone, as Pillow's `ImageEnhance`, `ImageOps` and torchvision do them on Pillow's images. An
//! image of one channel is its own luminance, and has neither hue nor saturation.

use crate::Image;

/// Makes all three channels the luminance.
pub fn grayscale(image: &mut Image) {
    for_rgb(image, |rgb| [luma(rgb); 3]);
}

/// Black for a factor of 0, the image itself for 1, brighter beyond.
pub fn brightness(image: &mut Image, factor: f32) {
    let table = table(|level| blend(0, level, factor));
    look_up(image, &table);
}

/// The mean luminance everywhere for a factor of 0, the image itself for 1.
pub fn contrast(image: &mut Image, factor: f32) {
    let counts = luma_counts(image);
    let pixels: u64 = counts.iter().sum();
    let sum: u64 = counts.iter().zip(0..).map(|(&count, level): (&u64, u64)| count * level).sum();
    let mean = (sum as f64 / pixels.max(1) as f64 + 0.5) as u8;
    let table = table(|level| blend(mean, level, factor));
    look_up(image, &table);
}

/// Gray for a factor of 0, the image itself for 1.
pub fn saturation(image: &mut Image, factor: f32) {
    for_rgb(image, |rgb| {
        let gray = luma(rgb);
        rgb.map(|level| blend(gray, level, factor))
    });
}

/// Turns the colour circle by `turn`, -0.5 to 0.5.
pub fn hue(image: &mut Image, turn: f32) {
    // 8 bits that wrap, as torchvision's.
    let turn = (f64::from(turn) * 255.0) as i32 as u8;
    for_rgb(image, |rgb| {
        let [hue, saturation, value] = hsv(rgb);
        from_hsv([hue.wrapping_add(turn), saturation, value])
    });
}

/// 255 minus each level.
pub fn invert(image: &mut Image) {
    image.pixels_mut().iter_mut().for_each(|level| *level = 255 - *level);
}

/// Inverts levels from `threshold` on.
pub fn solarize(image: &mut Image, threshold: f32) {
    let table = table(|level| if f32::from(level) < threshold { level } else { 255 - level });
    look_up(image, &table);
}

/// Keeps the upper `bits` bits, 0 to 8.
pub fn posterize(image: &mut Image, bits: u32) {
    let mask = !(255_u16 >> bits.min(8)) as u8;
    image.pixels_mut().iter_mut().for_each(|level| *level &= mask);
}

/// Spreads the levels of each channel to 0..=255.
pub fn autocontrast(image: &mut Image) {
    for channel in 0..image.channels() as usize {
        let counts = counts(image, channel);
        let used = |index: &usize| counts[*index] > 0;
        let (Some(low), Some(high)) = ((0..256).find(used), (0..256).rev().find(used)) else { continue };
        if high <= low {
            continue;
        }
        let scale = 255.0 / (high - low) as f64;
        let offset = -(low as f64) * scale;
        let table = table(|level| (f64::from(level) * scale + offset).clamp(0.0, 255.0) as u8);
        look_up_in(image, channel, &table);
    }
}

/// Makes all levels of each channel as equally frequent as possible.
pub fn equalize(image: &mut Image) {
    for channel in 0..image.channels() as usize {
        let counts = counts(image, channel);
        let used: Vec<u64> = counts.iter().copied().filter(|&count| count > 0).collect();
        let Some((_, others)) = used.split_last() else { continue };
        let step = others.iter().sum::<u64>() / 255;
        if others.is_empty() || step == 0 {
            continue;
        }
        let mut sum = step / 2;
        let mut table = [0; 256];
        for (entry, count) in table.iter_mut().zip(counts) {
            *entry = (sum / step).min(255) as u8;
            sum += count;
        }
        look_up_in(image, channel, &table);
    }
}

/// A smoothed image for a factor of 0, the image itself for 1, sharper beyond.
pub fn sharpness(image: &mut Image, factor: f32) {
    let (bytes, channels) = (image.row_bytes(), image.channels() as usize);
    let source = image.pixels().to_vec();
    if image.height() < 3 || image.width() < 3 {
        return;
    }
    let inner = channels..bytes - channels;
    for (y, row) in image.pixels_mut().chunks_exact_mut(bytes).enumerate() {
        let is_edge = y == 0 || (y + 1) * bytes == source.len();
        for (x, to) in row.iter_mut().enumerate() {
            // The outermost pixels have no neighbours and stay.
            if is_edge || !inner.contains(&x) {
                continue;
            }
            let at = y * bytes + x;
            let above = &source[at - bytes - channels..];
            let (here, below) = (&source[at - channels..], &source[at + bytes - channels..]);
            let line = |row: &[u8]| f32::from(row[0]) + f32::from(row[channels]) + f32::from(row[2 * channels]);
            // The kernel has 5 in the middle and 1 around it, and is divided by 13.
            let sum = (line(above) + line(here) + line(below) + 4.0 * f32::from(*to)) / 13.0;
            *to = blend((sum + 0.5) as u8, *to, factor);
        }
    }
}

/// `from` for a factor of 0, `to` for 1, in single precision and cut off, as Pillow blends.
fn blend(from: u8, to: u8, factor: f32) -> u8 {
    let level = f32::from(from) + factor * (f32::from(to) - f32::from(from));
    // As from a float to an unsigned byte: 0 to 255, without a fraction.
    level as u8
}

fn table(level: impl Fn(u8) -> u8) -> [u8; 256] {
    std::array::from_fn(|index| level(index as u8))
}

fn look_up(image: &mut Image, table: &[u8; 256]) {
    image.pixels_mut().iter_mut().for_each(|level| *level = table[usize::from(*level)]);
}

fn look_up_in(image: &mut Image, channel: usize, table: &[u8; 256]) {
    let channels = image.channels() as usize;
    let levels = image.pixels_mut().iter_mut().skip(channel).step_by(channels);
    levels.for_each(|level| *level = table[usize::from(*level)]);
}

/// How often each level occurs.
fn counts(image: &Image, channel: usize) -> [u64; 256] {
    let mut counts = [0; 256];
    let levels = image.pixels().iter().skip(channel).step_by(image.channels() as usize);
    levels.for_each(|&level| counts[usize::from(level)] += 1);
    counts
}

/// Pillow's `L`: rounded, of 16 bits of weight.
pub(crate) fn luma([r, g, b]: [u8; 3]) -> u8 {
    ((u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16) as u8
}

fn luma_counts(image: &Image) -> [u64; 256] {
    if image.channels() != 3 {
        return counts(image, 0);
    }
    let mut counts = [0; 256];
    image.pixels().as_chunks::<3>().0.iter().for_each(|&rgb| counts[usize::from(luma(rgb))] += 1);
    counts
}

fn for_rgb(image: &mut Image, change: impl Fn([u8; 3]) -> [u8; 3]) {
    if image.channels() == 3 {
        image.pixels_mut().as_chunks_mut::<3>().0.iter_mut().for_each(|rgb| *rgb = change(*rgb));
    }
}

/// Hue, saturation and value, 8 bits each, as Pillow's `convert("HSV")`.
fn hsv([r, g, b]: [u8; 3]) -> [u8; 3] {
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    if most == least {
        return [0, 0, most];
    }
    let spread = f32::from(most - least);
    let saturation = spread / f32::from(most);
    let of = |level: u8| f32::from(most - level) / spread;
    let (rc, gc, bc) = (of(r), of(g), of(b));
    let hue = if r == most {
        bc - gc
    } else if g == most {
        (2.0 + f64::from(rc) - f64::from(bc)) as f32
    } else {
        (4.0 + f64::from(gc) - f64::from(rc)) as f32
    };
    let hue = (f64::from(hue) / 6.0 + 1.0).rem_euclid(1.0) as f32;
    [(f64::from(hue) * 255.0) as u8, (f64::from(saturation) * 255.0) as u8, most]
}

/// Back, as Pillow's `convert("RGB")`.
fn from_hsv([hue, saturation, value]: [u8; 3]) -> [u8; 3] {
    if saturation == 0 {
        return [value; 3];
    }
    let hue = f32::from(hue) * 6.0 / 255.0;
    let saturation = f32::from(saturation) / 255.0;
    let sector = hue.floor();
    let part = hue - sector;
    let of = |share: f32| (f64::from(value) * (1.0 - f64::from(share))).round() as u8;
    let (p, q, t) =
        (of(saturation), of(saturation * part), of((f64::from(saturation) * (1.0 - f64::from(part))) as f32));
    match sector as u8 % 6 {
        0 => [value, t, p],
        1 => [q, value, p],
        2 => [p, value, t],
        3 => [p, q, value],
        4 => [t, p, value],
        _ => [value, p, q],
    }
}
