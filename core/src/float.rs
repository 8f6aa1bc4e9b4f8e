//! Rounds single precision to the two 16-bit floats, to nearest even.
//!
//! Ten lines of our own rather than a crate, because the kernels have the same ones: devices of compute capability 7.0
//! have no instruction for bf16.

/// Bits of the half-precision number (IEEE 754 binary16) nearest to `value`, the even one if two are equally near;
/// numbers that are too large become infinite. NaN stays NaN.
#[inline]
pub fn f16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    let half = match magnitude {
        0x7f80_0001.. => 0x7fff,
        // From the middle of the largest number and the next one up.
        0x477f_f000.. => 0x7c00,
        // Normal: the exponent's bias changes from 127 to 15, and 13 bits of the mantissa are dropped.
        0x3880_0000.. => ((magnitude - 0x3800_0000 + 0x0fff + (magnitude >> 13 & 1)) >> 13) as u16,
        // Denormal, in units of 2^-24. Adding 0.5, whose last bit is one such unit, rounds to it.
        _ => ((f32::from_bits(magnitude) + 0.5).to_bits() - 0.5_f32.to_bits()) as u16,
    };
    sign | half
}

/// Bits of the bf16 number (the upper half of a single-precision one) nearest to `value`, the even one if two are
/// equally near; numbers that are too large become infinite. NaN stays NaN.
#[inline]
pub fn bf16_bits(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x0040;
    }
    // The largest number rounds up into the pattern of infinity, and infinity has no bit to lose.
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a pattern of `exponent` and `mantissa` bits.
    fn value_of(bits: u16, exponent: u32, mantissa: u32) -> f64 {
        let bias = (1 << (exponent - 1)) - 1;
        let high = i32::from(bits >> mantissa);
        let low = f64::from(bits & ((1 << mantissa) - 1)) / f64::from(1 << mantissa);
        let (lead, power) = if high == 0 { (0.0, 1 - bias) } else { (1.0, high - bias) };
        (lead + low) * f64::from(power).exp2()
    }

    /// Every pattern comes back, and between two neighbours the nearer one is taken, the even one in the middle.
    fn check(name: &str, convert: impl Fn(f32) -> u16, exponent: u32, mantissa: u32) {
        let infinite = ((1 << exponent) - 1) << mantissa;
        for bits in 0..infinite {
            let (low, high) = (value_of(bits, exponent, mantissa), value_of(bits + 1, exponent, mantissa));
            // Exact: the middle has one bit more than a pattern.
            let middle = ((low + high) / 2.0) as f32;
            let even = bits + (bits & 1);
            let near = [(low as f32, bits), (middle.next_down(), bits), (middle, even), (middle.next_up(), bits + 1)];
            for (value, expected) in near {
                assert_eq!(convert(value), expected, "{name}: {value:e}");
                assert_eq!(convert(-value), expected | 0x8000, "{name}: {:e}", -value);
            }
        }
        assert_eq!(convert(f32::INFINITY), infinite, "{name}");
        assert_eq!(convert(f32::NEG_INFINITY), infinite | 0x8000, "{name}");
        assert_eq!(convert(f32::MAX), infinite, "{name}");
        assert!(convert(f32::NAN) & 0x7fff > infinite, "{name}");
    }

    #[test]
    fn every_half_and_its_middles_round_to_nearest_even() {
        check("f16", f16_bits, 5, 10);
    }

    #[test]
    fn every_bf16_and_its_middles_round_to_nearest_even() {
        check("bf16", bf16_bits, 8, 7);
    }
}
