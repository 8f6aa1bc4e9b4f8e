//! An order created in Python: the samples of one epoch as a list.

use pyo3::prelude::*;
use uringload::dataset::SampleId;
use uringload::inspect::KnownOrder;
use uringload::sampler::{Cursor, OrderId, Sampler};

/// What determines the order, as a Python dictionary.
#[derive(Debug, FromPyObject)]
pub(crate) enum Identity {
    /// The order of torch's DistributedSampler.
    Distributed {
        #[pyo3(item)]
        ranks: u64,
        #[pyo3(item)]
        seed: Option<u64>,
        #[pyo3(item)]
        version: u64,
    },
    /// Any other order.
    Custom {
        #[pyo3(item)]
        name: String,
        #[pyo3(item)]
        digest: u64,
        #[pyo3(item)]
        version: u64,
    },
}

impl From<Identity> for OrderId {
    fn from(identity: Identity) -> OrderId {
        match identity {
            Identity::Distributed { ranks, seed, version } => {
                KnownOrder::TorchDistributed { ranks, seed, version }.into()
            }
            Identity::Custom { name, digest, version } => KnownOrder::Custom { name, digest, version }.into(),
        }
    }
}

/// The list of an epoch's samples, over all ranks.
pub(crate) struct Listed {
    ids: Vec<u64>,
    id: OrderId,
}

impl Listed {
    /// The samples `ids`, each below the dataset's length.
    pub(crate) fn new(ids: Vec<u64>, identity: Identity) -> Listed {
        Listed { ids, id: identity.into() }
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

    fn id(&self) -> OrderId {
        self.id.clone()
    }
}
