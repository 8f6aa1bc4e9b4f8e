//! The identities of orders and batchings in the JSON of a state.

use super::json::{Fields, Hex};
use crate::Result;
use crate::sampler::{BatchingId, Field, Identified, KnownOrder, METHODS, OrderId, Parts, Stopping, method_name};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// The kinds of orders, for messages.
const ORDERS: [&str; 8] =
    ["sequential", "shuffled", "windows", "shards", "pieces", "mixed", "torch_distributed", "custom"];

/// The kinds of batchings, for messages.
const BATCHINGS: [&str; 3] = ["samples", "packed", "buckets"];

const STOPPINGS: [&str; 4] = ["first_exhausted", "all_exhausted", "all_exhausted_without_replacement", "after:N"];

pub(super) struct WrittenId<'a, Id>(pub(super) &'a Id);

impl<Id: Identified> Serialize for WrittenId<'_, Id> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", self.0.kind())?;
        for (name, field) in self.0.fields() {
            match field {
                Field::Number(number) => map.serialize_entry(name, &number)?,
                Field::Digest(digest) => map.serialize_entry(name, &Hex(digest))?,
                Field::Text(text) => map.serialize_entry(name, &text)?,
            }
        }
        map.end()
    }
}

/// Reads the order of a state.
pub(super) fn order(fields: &Fields<'_>) -> Result<OrderId> {
    let seed = || fields.number("seed");
    let version = || fields.number("version");
    let order = match fields.text("kind")? {
        "sequential" => KnownOrder::Sequential,
        "shuffled" => KnownOrder::Shuffled { seed: seed()?, version: version()? },
        "windows" => KnownOrder::Windows { samples: fields.number("samples")?, seed: seed()?, version: version()? },
        "shards" => KnownOrder::Shards {
            shards: fields.number("shards")?,
            ends: fields.hex("ends")?,
            mixed: fields.number("mixed")?,
            seed: seed()?,
            version: version()?,
        },
        "pieces" => KnownOrder::Pieces {
            samples: fields.number("samples")?,
            mixed: fields.number("mixed")?,
            seed: seed()?,
            version: version()?,
        },
        "mixed" => KnownOrder::Mixed {
            parts: Parts::stored(fields.number("parts")?, fields.hex("orders")?),
            stopping: stopping(fields)?,
            seed: seed()?,
            version: version()?,
        },
        "torch_distributed" => KnownOrder::TorchDistributed {
            ranks: fields.number("ranks")?,
            seed: optional_seed(fields)?,
            version: version()?,
        },
        "custom" => KnownOrder::Custom {
            name: fields.text("name")?.to_owned(),
            digest: fields.hex("digest")?,
            version: version()?,
        },
        other => return Err(fields.unknown("kind", other, &ORDERS)),
    };
    Ok(order.into())
}

/// Reads the batching of a state.
pub(super) fn batching(fields: &Fields<'_>) -> Result<BatchingId> {
    Ok(match fields.text("kind")? {
        "samples" => BatchingId::Samples,
        "packed" => {
            let name = fields.text("method")?;
            let Some(&method) = METHODS.iter().find(|&&method| method_name(method) == name) else {
                return Err(fields.unknown("method", name, &METHODS.map(method_name)));
            };
            BatchingId::Packed {
                method,
                seq_len: fields.number("seq_len")?,
                window: fields.number("window")?,
                seed: optional_seed(fields)?,
                version: fields.number("version")?,
            }
        }
        "buckets" => BatchingId::Buckets {
            buckets: fields.number("buckets")?,
            digest: fields.hex("digest")?,
            window: fields.number("window")?,
            seed: optional_seed(fields)?,
            version: fields.number("version")?,
        },
        other => return Err(fields.unknown("kind", other, &BATCHINGS)),
    })
}

fn optional_seed(fields: &Fields<'_>) -> Result<Option<u64>> {
    fields.optional("seed").map(|_| fields.number("seed")).transpose()
}

fn stopping(fields: &Fields<'_>) -> Result<Stopping> {
    let name = fields.text("stopping")?;
    name.parse().map_err(|_| fields.unknown("stopping", name, &STOPPINGS))
}
