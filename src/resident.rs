//! Memory of a device, given out in ranges.

mod ranges;

pub(crate) use ranges::{RANGE_ALIGNMENT, Ranges};
