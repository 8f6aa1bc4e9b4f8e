//! The loops over pixels: AVX2 where the processor has it, by the safe functions of `pulp`, else plain loops. Both make
//! the same bytes.
//!
//! Columns: a weight has 22 bits or more, but the fast product multiplies 16-bit numbers. So a weight is split into its
//! upper bits and its lower twelve. Both products are exact, and so is their sum.

use crate::Image;
use crate::weights::{HALF, Weights, clip};

/// Bits of a weight's low part.
#[cfg(target_arch = "x86_64")]
const LOW_BITS: i32 = 12;

/// Rows that the first pass makes at a time: their sums fill two registers, which are packed into one.
pub const ROWS: usize = 4;

/// Weights of four pixels, in the order of multiplication: the high parts of the first two for each of four channels,
/// of the other two, and then the low parts in the same order.
#[cfg(target_arch = "x86_64")]
type Taps = [[i16; 16]; 2];

/// Memory of a thread that makes columns of one image after the other.
#[derive(Debug, Default)]
pub struct Lanes {
    /// Taps for each pixel of the output.
    #[cfg(target_arch = "x86_64")]
    taps: Vec<Taps>,
    /// For each pixel of the output, the first byte of the row that it is made of.
    #[cfg(target_arch = "x86_64")]
    places: Vec<u32>,
    /// The last rows of an image, with bytes after them that may be read.
    #[cfg(target_arch = "x86_64")]
    tail: Vec<u8>,
}

impl Lanes {
    /// The first pass: makes the first `count` rows of `to`, which are `stride` bytes apart, from rows of `image` from
    /// row `top` on, with other columns. Column 0 of the weights is at `left`. The rows of `to` are a multiple of
    /// [`ROWS`]; those after `count` may become anything.
    pub fn columns(
        &mut self,
        image: &Image,
        (top, left): (usize, i64),
        weights: &Weights,
        is_mirrored: bool,
        to: &mut [u8],
        (stride, count): (usize, usize),
    ) {
        let channels = image.channels() as usize;
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V3::try_new() {
            let steps = self.fill(weights, left, channels);
            if is_mirrored {
                self.places.reverse();
                self.taps.reverse();
                self.taps.chunks_exact_mut(steps).for_each(<[Taps]>::reverse);
            }
            let Lanes { taps, places, tail } = self;
            let work = x86::Work { image, top, count, taps, steps, places, stride };
            return match channels {
                1 => simd.vectorize(x86::Columns::<1> { simd, work, to, tail }),
                2 => simd.vectorize(x86::Columns::<2> { simd, work, to, tail }),
                3 => simd.vectorize(x86::Columns::<3> { simd, work, to, tail }),
                _ => simd.vectorize(x86::Columns::<4> { simd, work, to, tail }),
            };
        }
        plain(image, (top, left), weights, is_mirrored, &mut to[..count * stride], stride, channels);
    }

    /// Returns how many taps each pixel has.
    #[cfg(target_arch = "x86_64")]
    fn fill(&mut self, weights: &Weights, left: i64, channels: usize) -> usize {
        self.taps.clear();
        self.places.clear();
        let pixels = weights.first.len();
        let steps = (0..pixels).map(|index| weights.of(index).1.len().div_ceil(4)).max().unwrap_or(1).max(1);
        for index in 0..pixels {
            let (first, all) = weights.of(index);
            // It may be before the part that was decoded: the pixels that are used are within it.
            self.places.push((first as i64 + left) as u32 * channels as u32);
            for step in 0..steps {
                let four = &all[(step * 4).min(all.len())..(step * 4 + 4).min(all.len())];
                let high = |at: usize| four.get(at).map_or(0, |weight| (weight >> LOW_BITS) as i16);
                let low = |at: usize| four.get(at).map_or(0, |weight| (weight & ((1 << LOW_BITS) - 1)) as i16);
                let parts = |part: &dyn Fn(usize) -> i16| -> [i16; 16] {
                    let [a, b, c, d] = [part(0), part(1), part(2), part(3)];
                    [a, b, a, b, a, b, a, b, c, d, c, d, c, d, c, d]
                };
                self.taps.push([parts(&high), parts(&low)]);
            }
        }
        steps
    }
}

/// The second pass: makes one row of the output from rows of `from` that are `stride` bytes apart.
pub fn row(from: &[u8], stride: usize, weights: &[i32], to: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    let made = match pulp::x86::V3::try_new() {
        Some(simd) => simd.vectorize(x86::Rows { simd, from, stride, weights, to }),
        None => 0,
    };
    #[cfg(not(target_arch = "x86_64"))]
    let made = 0;
    for at in made..to.len() {
        let taps = weights.iter().enumerate();
        to[at] = clip(HALF + taps.map(|(row, &weight)| i32::from(from[row * stride + at]) * weight).sum::<i32>());
    }
}

/// One pixel after the other.
fn plain(
    image: &Image,
    (top, left): (usize, i64),
    weights: &Weights,
    is_mirrored: bool,
    to: &mut [u8],
    stride: usize,
    channels: usize,
) {
    let count = weights.first.len();
    for (y, to) in to.chunks_mut(stride).enumerate() {
        let row = image.row((top + y) as u32);
        for index in 0..count {
            let (first, taps) = weights.of(index);
            let at = (first as i64 + left) as usize * channels;
            let place = if is_mirrored { count - 1 - index } else { index } * channels;
            for channel in 0..channels {
                let taps = taps.iter().enumerate();
                let sum =
                    taps.map(|(tap, &weight)| i32::from(row[at + tap * channels + channel]) * weight).sum::<i32>();
                to[place + channel] = clip(HALF + sum);
            }
        }
    }
}

/// `(level / 255 - mean) / std` of three channels, by products: a quotient by a constant is the product with its
/// reciprocal, corrected by the remainder (Markstein). For all 256 levels of each channel, it is checked to be the same
/// number, to the bit.
#[derive(Clone, Copy, Debug)]
pub struct Normalization {
    #[cfg(target_arch = "x86_64")]
    simd: pulp::x86::V3,
    /// Mean, deviation, and its reciprocal.
    #[cfg(target_arch = "x86_64")]
    channels: [[f32; 3]; 3],
}

#[cfg(not(target_arch = "x86_64"))]
impl Normalization {
    /// None: numbers are looked up.
    pub fn new(_numbers: [(f32, f32); 3], _words: &[[u32; 256]]) -> Option<Normalization> {
        None
    }

    /// Writes nothing, and is never called.
    pub fn planes(&self, _levels: &[u8], _to: [&mut [u8]; 3]) {}
}

#[cfg(target_arch = "x86_64")]
impl Normalization {
    /// Uses the mean and the deviation of each channel. `None` if the processor cannot, or if a number would differ
    /// from `words`.
    pub fn new(numbers: [(f32, f32); 3], words: &[[u32; 256]]) -> Option<Normalization> {
        let simd = pulp::x86::V3::try_new()?;
        let channels = numbers.map(|(mean, std)| [mean, std, 1.0 / std]);
        let is_same = simd.vectorize(x86::Same { channels: &channels, words });
        is_same.then_some(Normalization { simd, channels })
    }

    /// Writes a row of pixels to a row of each plane.
    pub fn planes(&self, levels: &[u8], to: [&mut [u8]; 3]) {
        self.simd.vectorize(x86::Planes { simd: self.simd, levels, channels: &self.channels, to });
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn normalized(level: f32, [mean, std, reciprocal]: &[f32; 3]) -> f32 {
    divided(divided(level, 255.0, 1.0 / 255.0) - mean, *std, *reciprocal)
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn divided(number: f32, by: f32, reciprocal: f32) -> f32 {
    let near = number * reciprocal;
    (-near).mul_add(by, number).mul_add(reciprocal, near)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{HALF, LOW_BITS, ROWS, Taps, normalized};
    use crate::Image;
    use crate::weights::WEIGHT_BITS;
    use core::arch::x86_64::{__m128i, __m256i};
    use pulp::bytemuck::cast;
    use pulp::x86::V3;

    /// Bytes that are read at once.
    const READ: usize = 16;

    #[derive(Clone, Copy)]
    pub struct Work<'a> {
        pub image: &'a Image,
        /// Its first row, and how many are used.
        pub top: usize,
        pub count: usize,
        /// `steps` of them for each pixel of the output.
        pub taps: &'a [Taps],
        pub steps: usize,
        pub places: &'a [u32],
        /// Bytes from a row of the output to the next.
        pub stride: usize,
    }

    pub struct Columns<'a, const N: usize> {
        pub simd: V3,
        pub work: Work<'a>,
        pub to: &'a mut [u8],
        pub tail: &'a mut Vec<u8>,
    }

    impl<const N: usize> pulp::NullaryFnOnce for Columns<'_, N> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            let Columns { simd, work, to, tail } = self;
            let shuffle: __m256i = cast(const { pairs(N) });
            let pixels = work.image.pixels();
            let row_bytes = work.image.width() as usize * N;
            // Taps with a weight of 0 may be past the end of the row.
            let read_bytes = row_bytes + 4 * work.steps * N + READ;
            for (four, to) in to.chunks_exact_mut(work.stride * ROWS).enumerate() {
                // At the end the last row is made more than once.
                let first = four * ROWS;
                let last = (first + ROWS - 1).min(work.count - 1);
                let (begin, end) = ((work.top + first) * row_bytes, (work.top + last) * row_bytes);
                let is_end = end + read_bytes > pixels.len();
                if is_end {
                    tail.clear();
                    tail.extend_from_slice(&pixels[begin..end + row_bytes]);
                    tail.resize(end - begin + read_bytes, 0);
                }
                let (source, begin) = if is_end { (&tail[..], 0) } else { (pixels, begin) };
                // All four have the same length, so one comparison shows that a read is within each of them.
                let row = |row: usize| &source[begin + row.min(last - first) * row_bytes..][..read_bytes];
                let from = [row(0), row(1), row(2), row(3)];
                let (one, rest) = to.split_at_mut(work.stride);
                let (two, rest) = rest.split_at_mut(work.stride);
                let (three, four) = rest.split_at_mut(work.stride);
                let four = &mut four[..work.stride];
                rows::<N>(simd, (from, [one, two, three, four]), (work.places, work.taps, work.steps), shuffle);
            }
        }
    }

    /// Makes four rows of the output. No closure: the compiler uses the processor's instructions only for code that
    /// becomes a part of this function.
    #[inline(always)]
    fn rows<const N: usize>(
        simd: V3,
        (from, to): ([&[u8]; ROWS], [&mut [u8]; ROWS]),
        (places, taps, steps): (&[u32], &[Taps], usize),
        shuffle: __m256i,
    ) {
        let zero: __m256i = cast([0_u8; 32]);
        let [to0, to1, to2, to3] = to;
        let mut out = 0;
        for (&place, taps) in places.iter().zip(taps.chunks_exact(steps)) {
            let (mut high, mut low) = ([zero; ROWS], [zero; ROWS]);
            let mut at = place as usize;
            for [high_part, low_part] in taps {
                let (high_part, low_part): (__m256i, __m256i) = (cast(*high_part), cast(*low_part));
                for row in 0..ROWS {
                    let both = simd.avx2._mm256_broadcastsi128_si256(cast(sixteen(from[row], at)));
                    let levels = simd.avx2._mm256_shuffle_epi8(both, shuffle);
                    high[row] = simd.avx2._mm256_add_epi32(high[row], simd.avx2._mm256_madd_epi16(levels, high_part));
                    low[row] = simd.avx2._mm256_add_epi32(low[row], simd.avx2._mm256_madd_epi16(levels, low_part));
                }
                at += 4 * N;
            }
            let mut sums = [zero; ROWS];
            for row in 0..ROWS {
                sums[row] = simd.avx2._mm256_add_epi32(simd.avx2._mm256_slli_epi32::<LOW_BITS>(high[row]), low[row]);
            }
            let words = simd.avx2._mm256_packs_epi32(two(simd, sums[0], sums[1]), two(simd, sums[2], sums[3]));
            let bytes: [[u8; 4]; 8] = cast(simd.avx2._mm256_packus_epi16(words, words));
            // From left to right, because each write of three bytes writes four.
            to0[out..out + 4].copy_from_slice(&bytes[0]);
            to1[out..out + 4].copy_from_slice(&bytes[4]);
            to2[out..out + 4].copy_from_slice(&bytes[1]);
            to3[out..out + 4].copy_from_slice(&bytes[5]);
            out += N;
        }
    }

    /// The sums of both pairs of pixels, of two rows, as levels.
    #[inline(always)]
    fn two(simd: V3, one: __m256i, other: __m256i) -> __m256i {
        let half: __m256i = cast([HALF; 8]);
        let first = simd.avx2._mm256_permute2x128_si256::<0x20>(one, other);
        let second = simd.avx2._mm256_permute2x128_si256::<0x31>(one, other);
        let sum = simd.avx2._mm256_add_epi32(simd.avx2._mm256_add_epi32(first, second), half);
        simd.avx2._mm256_srai_epi32::<{ WEIGHT_BITS as i32 }>(sum)
    }

    /// Sixteen bytes from there on; the caller has checked that they are there.
    #[inline(always)]
    fn sixteen(row: &[u8], at: usize) -> [u8; READ] {
        let mut bytes = [0; READ];
        bytes.copy_from_slice(&row[at..at + READ]);
        bytes
    }

    #[inline(always)]
    fn thirty_two(bytes: &[u8], at: usize) -> [u8; BYTES] {
        match bytes[at..].first_chunk() {
            Some(bytes) => *bytes,
            // Not reached: a step is within the row.
            None => [0; BYTES],
        }
    }

    /// Bytes of a row that are made at a time: their sums fill four registers.
    const BYTES: usize = 32;

    /// A row of the output, from rows that are `stride` bytes apart.
    pub struct Rows<'a> {
        pub simd: V3,
        pub from: &'a [u8],
        pub stride: usize,
        pub weights: &'a [i32],
        pub to: &'a mut [u8],
    }

    impl pulp::NullaryFnOnce for Rows<'_> {
        type Output = usize;

        /// Returns how many bytes were made; the rest is less than a step.
        #[inline(always)]
        fn call(self) -> usize {
            let Rows { simd, from, stride, weights, to } = self;
            let half: __m256i = cast([HALF; 8]);
            let order: __m256i = cast([0_i32, 4, 1, 5, 2, 6, 3, 7]);
            let chunks = to.as_chunks_mut::<BYTES>().0;
            let made = chunks.len() * BYTES;
            for (at, to) in chunks.iter_mut().enumerate() {
                let mut sums = [half; 4];
                for (row, &weight) in weights.iter().enumerate() {
                    let weight = simd.avx._mm256_set1_epi32(weight);
                    let start = row * stride + at * BYTES;
                    let [front, back]: [__m128i; 2] = cast(thirty_two(from, start));
                    let quarters =
                        [front, simd.sse2._mm_bsrli_si128::<8>(front), back, simd.sse2._mm_bsrli_si128::<8>(back)];
                    for quarter in 0..4 {
                        let levels = simd.avx2._mm256_cvtepu8_epi32(quarters[quarter]);
                        let product = simd.avx2._mm256_mullo_epi32(levels, weight);
                        sums[quarter] = simd.avx2._mm256_add_epi32(sums[quarter], product);
                    }
                }
                for sum in &mut sums {
                    *sum = simd.avx2._mm256_srai_epi32::<{ WEIGHT_BITS as i32 }>(*sum);
                }
                let first = simd.avx2._mm256_packs_epi32(sums[0], sums[1]);
                let second = simd.avx2._mm256_packs_epi32(sums[2], sums[3]);
                let bytes = simd.avx2._mm256_packus_epi16(first, second);
                *to = cast(simd.avx2._mm256_permutevar8x32_epi32(bytes, order));
            }
            made
        }
    }

    /// Whether each of the 256 levels of each channel gives the number in the table.
    pub struct Same<'a> {
        pub channels: &'a [[f32; 3]; 3],
        pub words: &'a [[u32; 256]],
    }

    impl pulp::NullaryFnOnce for Same<'_> {
        type Output = bool;

        #[inline(always)]
        fn call(self) -> bool {
            let mut differences = 0;
            for (numbers, words) in self.channels.iter().zip(self.words) {
                for (level, word) in words.iter().enumerate() {
                    differences |= normalized(level as f32, numbers).to_bits() ^ word;
                }
            }
            differences == 0
        }
    }

    /// A row of pixels, to a row of each plane.
    pub struct Planes<'a> {
        pub simd: V3,
        pub levels: &'a [u8],
        pub channels: &'a [[f32; 3]; 3],
        pub to: [&'a mut [u8]; 3],
    }

    impl pulp::NullaryFnOnce for Planes<'_> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            let Planes { simd, levels, channels, to } = self;
            let chunks = levels.as_chunks::<48>().0;
            for (channel, to) in to.into_iter().enumerate() {
                let numbers = &channels[channel];
                let (first, second, third): (__m128i, __m128i, __m128i) =
                    (cast(PLANAR[channel][0]), cast(PLANAR[channel][1]), cast(PLANAR[channel][2]));
                let (to, to_rest) = to.split_at_mut(chunks.len() * 64);
                for (from, to) in chunks.iter().zip(to.as_chunks_mut::<64>().0) {
                    let from: [[u8; 16]; 3] = cast(*from);
                    let (a, b, c) = (cast(from[0]), cast(from[1]), cast(from[2]));
                    let a = simd.ssse3._mm_shuffle_epi8(a, first);
                    let b = simd.ssse3._mm_shuffle_epi8(b, second);
                    let c = simd.ssse3._mm_shuffle_epi8(c, third);
                    let plane: [u8; 16] = cast(simd.sse2._mm_or_si128(simd.sse2._mm_or_si128(a, b), c));
                    let mut made = [0_f32; 16];
                    for lane in 0..16 {
                        made[lane] = normalized(f32::from(plane[lane]), numbers);
                    }
                    *to = cast(made);
                }
                let mut at = chunks.len() * 48 + channel;
                for to in to_rest.as_chunks_mut::<4>().0 {
                    *to = normalized(f32::from(levels[at]), numbers).to_le_bytes();
                    at += 3;
                }
            }
        }
    }

    /// For each channel, and each third of 48 bytes, which of its bytes are where in the plane's 16.
    const PLANAR: [[[u8; 16]; 3]; 3] = {
        let mut shuffles = [[[0x80; 16]; 3]; 3];
        let mut at = 0;
        while at < 48 {
            shuffles[at % 3][at / 16][at / 3] = (at % 16) as u8;
            at += 1;
        }
        shuffles
    };

    /// For each channel, the order of the bytes of four pixels of that many channels: the bytes of two neighbouring
    /// pixels as 16 bits.
    const fn pairs(channels: usize) -> [u8; 32] {
        let mut shuffle = [0x80; 32];
        let mut to = 0;
        while to < 32 {
            let (pair, channel, pixel) = (to / 16, to % 16 / 4, to % 4 / 2);
            if to % 2 == 0 && channel < channels {
                shuffle[to] = ((pair * 2 + pixel) * channels + channel) as u8;
            }
            to += 1;
        }
        shuffle
    }
}
