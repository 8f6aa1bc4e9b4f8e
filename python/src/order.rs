//! An order that Python made: the samples of one epoch, one behind the other.

use uringload::dataset::SampleId;
use uringload::sampler::{Cursor, Sampler};

/// The list of an epoch's samples, over all ranks.
pub(crate) struct Listed {
    ids: Vec<u64>,
    name: String,
}

impl Listed {
    /// The samples `ids`, each below the dataset's length.
    pub(crate) fn new(ids: Vec<u64>, name: String) -> Listed {
        Listed { ids, name }
    }
}

impl Sampler for Listed {
    fn len(&self) -> u64 {
        self.ids.len() as u64
    }

    fn at(&self, cursor: Cursor) -> SampleId {
        // Positions are below `len`, which is the length of a Vec.
        SampleId(self.ids[cursor.position as usize])
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}
