//! `ur_resample`: one pass over an image, with weights that the host has computed.

/// Bytes of a pixel: red, green and blue.
const PIXEL_BYTES: usize = 3;

/// Bytes of `struct Pass` of the kernels.
pub const PASS_RECORD_BYTES: usize = 40;

/// Fractional bits of a weight.
const WEIGHT_BITS: u32 = 22;

/// One pass: along the rows of an image, which changes its columns, or along its columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassParams {
    /// Rows of the output.
    pub height: u32,
    /// Columns of the output.
    pub width: u32,
    /// Bytes from row to row of the source.
    pub row_bytes: u32,
    /// Whether it combines rows into rows rather than columns into columns.
    pub is_vertical: bool,
}

impl PassParams {
    /// `struct Pass` of the kernels, for a source and weights at these device addresses, and a place in the
    /// destination.
    pub fn to_record(self, source: u64, target: u64, taps: u64) -> [u8; PASS_RECORD_BYTES] {
        let words = [self.height, self.width, self.row_bytes, u32::from(self.is_vertical)].map(u32::to_le_bytes);
        let [height, width, row_bytes, is_vertical] = words;
        let mut record = [0; PASS_RECORD_BYTES];
        let [source, target, taps] = [source, target, taps].map(u64::to_le_bytes);
        let parts: [&[u8]; 7] = [&source, &target, &taps, &height, &width, &row_bytes, &is_vertical];
        let bytes = parts.into_iter().flatten();
        record.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
        record
    }

    /// The address of the source, the place, the address of the weights, and the parameters of a `struct Pass`.
    pub fn from_record(record: &[u8; PASS_RECORD_BYTES]) -> ([u64; 3], PassParams) {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| record[at * 8 + byte]));
        let halves = |at: usize| (word(at) as u32, (word(at) >> 32) as u32);
        let ((height, width), (row_bytes, is_vertical)) = (halves(3), halves(4));
        ([0, 1, 2].map(word), PassParams { height, width, row_bytes, is_vertical: is_vertical != 0 })
    }

    /// Bytes of the output.
    pub fn bytes(self) -> usize {
        self.height as usize * self.width as usize * PIXEL_BYTES
    }

    /// Number of output pixels that have weights.
    pub fn taps(self) -> usize {
        if self.is_vertical { self.height as usize } else { self.width as usize }
    }

    /// Bytes of the source that are read with these taps: the first pixel and the end of the weights of each.
    pub fn source_bytes(self, taps: &[[u32; 2]]) -> u64 {
        let before = [0].into_iter().chain(taps.iter().map(|tap| tap[1]));
        let reach = taps.iter().zip(before).map(|(&[first, end], before)| u64::from(first) + u64::from(end - before));
        let reach = reach.max().unwrap_or(0);
        let (rows, last) = if self.is_vertical { (reach, self.width.into()) } else { (self.height.into(), reach) };
        rows.checked_sub(1).map_or(0, |rows| rows * u64::from(self.row_bytes) + last * PIXEL_BYTES as u64)
    }
}

/// `ur_resample` for one pass: `to` becomes rows of RGB pixels. Each level is the sum of levels of `source` times
/// weights, where 2^22 is one, rounded (half a level is added, and the fraction is cut off) and clamped to 0 and 255,
/// in signed 32 bits, which wrap. `taps` are the first pixel and the end of the weights of each column, or row if the
/// pass is vertical; the weights of one start where those before end.
///
/// # Panics
/// If `to`, `source` or `weights` is too short, and for a wrong number of taps.
pub fn resample(to: &mut [u8], source: &[u8], pass: PassParams, taps: &[[u32; 2]], weights: &[i32]) {
    assert_eq!(taps.len(), pass.taps(), "a pass has taps for each pixel along it");
    let row_bytes = pass.row_bytes as usize;
    let step = if pass.is_vertical { row_bytes } else { PIXEL_BYTES };
    let mut pixels = to.as_chunks_mut::<PIXEL_BYTES>().0.iter_mut();
    for row in 0..pass.height as usize {
        for column in 0..pass.width as usize {
            let place = if pass.is_vertical { row } else { column };
            let ([first, end], start) = (taps[place], if place == 0 { 0 } else { taps[place - 1][1] });
            let (first_row, first_column) =
                if pass.is_vertical { (first as usize, column) } else { (row, first as usize) };
            let from = first_row * row_bytes + first_column * PIXEL_BYTES;
            let mut sums = [1_i32 << (WEIGHT_BITS - 1); PIXEL_BYTES];
            for (index, &weight) in weights[start as usize..end as usize].iter().enumerate() {
                let pixel = &source[from + index * step..][..PIXEL_BYTES];
                for (sum, &level) in sums.iter_mut().zip(pixel) {
                    *sum = sum.wrapping_add(i32::from(level).wrapping_mul(weight));
                }
            }
            let Some(pixel) = pixels.next() else { panic!("the destination ends in row {row}") };
            *pixel = sums.map(|sum| (sum >> WEIGHT_BITS).clamp(0, 255) as u8);
        }
    }
}
