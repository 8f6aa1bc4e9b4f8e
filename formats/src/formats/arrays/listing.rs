//! The arrays in a file.

use crate::dataset::DType;

/// Longest shape: NumPy's own limit.
pub(super) const DIMENSIONS_MAX: usize = 64;
/// Most names in an error.
pub(super) const NAMES_TOLD: usize = 8;

/// An array in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    pub(crate) dtype: DType,
    /// Every product of its lengths fits into 63 bits, see [`array_bytes`].
    pub(crate) shape: Vec<u64>,
    /// First byte of the elements in the file, or in what the array is deflated to.
    pub(crate) offset: u64,
    /// Where it is deflated, if it is.
    pub(crate) deflated: Option<Deflated>,
    /// Whether its elements are in Fortran order, and are more than one in more than one dimension.
    pub(crate) is_fortran: bool,
    /// Whether its elements are big endian, and of several bytes.
    pub(crate) is_big_endian: bool,
}

/// Bytes of a file that inflate to an array with its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deflated {
    /// First of the bytes in the file.
    pub(crate) start: u64,
    /// Their number.
    pub(crate) stored: u64,
    /// Number of the bytes that they inflate to, which the header of the array agrees with.
    pub(crate) bytes: u64,
    /// CRC-32 of these.
    pub(crate) crc: u32,
}

/// An array with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) array: Array,
}

/// The arrays of a file.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Those that are wanted, in the order of the file.
    pub(crate) found: Vec<Found>,
    /// Names of some others, for messages.
    pub(crate) others: Vec<String>,
}

impl Listing {
    /// Whether an array is wanted; notes the name if it is not.
    pub(crate) fn takes(&mut self, name: &str, wanted: &[String]) -> bool {
        let is_wanted = wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
        if !is_wanted && self.others.len() < NAMES_TOLD {
            self.others.push(name.to_owned());
        }
        is_wanted
    }
}

/// Bytes of an array; `None` if a product of its lengths other than 0 does not fit into what a file can have, so that
/// the product of any of them may be taken where this is `Some`.
pub(crate) fn array_bytes(dtype: DType, shape: &[u64]) -> Option<u64> {
    let lengths = || shape.iter().copied();
    let bytes = lengths().filter(|&len| len > 0).try_fold(dtype.size(), u64::checked_mul)?;
    if bytes > i64::MAX as u64 {
        return None;
    }
    Some(if lengths().any(|len| len == 0) { 0 } else { bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_hostile_shapes() {
        assert_eq!(array_bytes(DType::F32, &[3, 4]), Some(48));
        assert_eq!(array_bytes(DType::F64, &[]), Some(8));
        assert_eq!(array_bytes(DType::U8, &[0, 5]), Some(0));
        assert_eq!(array_bytes(DType::U8, &[1 << 62]), Some(1 << 62));
        for shape in [&[1 << 63][..], &[1 << 32, 1 << 32], &[0, 1 << 62, 1 << 62], &[u64::MAX], &[1 << 61, 1, 4]] {
            assert_eq!(array_bytes(DType::U8, shape), None, "{shape:?}");
        }
        assert_eq!(array_bytes(DType::U64, &[1 << 60]), None);
    }
}
