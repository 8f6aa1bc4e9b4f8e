//! The header of a `.npy` file, version 1.0, as `numpy.save` writes it.
//!
//! Source: numpy `lib/_format_impl.py`.

use crate::dataset::DType;
use std::io::Write;

/// The data after a header begins at a multiple of this many bytes of the file.
const ALIGNMENT: usize = 64;
/// Magic, version, and the length of the text.
const PREFIX_BYTES: usize = 10;

/// The header of an array of this type and shape, in C order.
///
/// NumPy has no bfloat16 and no 8-bit floats: their bits are stored as integers, and [`suffix`] has the type.
pub(super) fn header(dtype: DType, shape: &[u64]) -> Vec<u8> {
    let mut header = b"\x93NUMPY\x01\x00\0\0".to_vec();
    let lens: Vec<String> = shape.iter().map(u64::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    let (descr, lens) = (dtype.numpy(), lens.join(", "));
    let written = write!(header, "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({lens}{comma}), }}");
    written.expect("a Vec takes everything");
    let end = (header.len() + 1).next_multiple_of(ALIGNMENT);
    header.resize(end - 1, b' ');
    header.push(b'\n');
    // Fits: a column has some tens of dimensions at most.
    let text = (end - PREFIX_BYTES) as u16;
    header[8..PREFIX_BYTES].copy_from_slice(&text.to_le_bytes());
    header
}

/// The ending of a field's name if values are arrays: ".npy", preceded by the type if NumPy lacks it.
pub(super) fn suffix(dtype: DType) -> String {
    match dtype {
        DType::BF16 | DType::F8E4M3 | DType::F8E5M2 => format!(".{dtype}.npy"),
        _ => ".npy".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `numpy.lib.format.write_array_header_1_0` of NumPy 1.26, for float32 of (3, 4) and int64 of (); newer ones leave
    /// more blanks.
    #[test]
    fn headers_are_numpys() {
        let text = |header: &[u8]| String::from_utf8(header[10..].to_vec()).unwrap();
        let header_of = header(DType::F32, &[3, 4]);
        assert_eq!(header_of.len(), 128);
        assert_eq!(&header_of[..10], b"\x93NUMPY\x01\x00\x76\x00");
        assert_eq!(text(&header_of).trim_end(), "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }");
        let scalar = text(&header(DType::I64, &[]));
        assert_eq!(scalar.trim_end(), "{'descr': '<i8', 'fortran_order': False, 'shape': (), }");
        assert!(text(&header(DType::U8, &[7])).contains("'shape': (7,), }"));
        for dims in 0..40 {
            let header = header(DType::BF16, &vec![u64::MAX; dims]);
            assert!(header.len().is_multiple_of(64) && header.ends_with(b"\n"), "{dims}");
            assert_eq!(usize::from(u16::from_le_bytes([header[8], header[9]])) + 10, header.len(), "{dims}");
        }
        assert_eq!((suffix(DType::BF16), suffix(DType::F16)), (".bf16.npy".into(), ".npy".into()));
    }
}
