//! Long lists of sample numbers: Python may hand them over in one piece.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Sample numbers: packed, 8 bytes each in the machine's order (what `array.array("Q")` holds), or a list of ints. Ten
/// million ints take half a second to convert one by one.
#[derive(FromPyObject)]
pub(crate) enum Numbers<'py> {
    #[pyo3(transparent)]
    Packed(Bound<'py, PyBytes>),
    #[pyo3(transparent)]
    Listed(Vec<u64>),
}

impl From<Numbers<'_>> for Vec<u64> {
    fn from(numbers: Numbers<'_>) -> Vec<u64> {
        match numbers {
            // A rest of fewer than 8 bytes is not a number: `array.tobytes` leaves none.
            Numbers::Packed(bytes) => {
                bytes.as_bytes().as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect()
            }
            Numbers::Listed(numbers) => numbers,
        }
    }
}
