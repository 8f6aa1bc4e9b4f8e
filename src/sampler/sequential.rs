//! The order of the dataset itself.

use super::{Cursor, KnownOrder, OrderId, Sampler};
use crate::dataset::SampleId;

/// Samples in the order of the dataset.
#[derive(Clone, Copy, Debug)]
pub struct Sequential {
    len: u64,
}

impl Sequential {
    /// Over `len` samples.
    pub fn new(len: u64) -> Sequential {
        Sequential { len }
    }
}

impl Sampler for Sequential {
    fn len(&self) -> u64 {
        self.len
    }

    fn at(&self, cursor: Cursor) -> SampleId {
        SampleId(cursor.position)
    }

    fn id(&self) -> OrderId {
        OrderId(KnownOrder::Sequential)
    }
}
