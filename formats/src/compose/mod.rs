//! Datasets made of others, or of none: end to end, a choice of samples, columns that are known, labels, numbers.

mod concat;
mod known;
mod labels;
mod matching;
mod ranges;
mod view;

pub use concat::Concat;
pub use known::{KnownColumn, WithColumns};
pub use labels::Labels;
pub(crate) use matching::Names;
pub use matching::Unlabelled;
pub use ranges::{Numbers, Ranges};
pub use view::View;
