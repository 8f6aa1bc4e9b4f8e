//! Datasets made of others, or of none: end to end, a choice of samples, columns that are known, labels, numbers.

pub(crate) mod concat;
pub(crate) mod known;
pub(crate) mod labels;
pub(crate) mod ranges;
pub(crate) mod view;
