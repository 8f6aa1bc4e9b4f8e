//! Chooses the columns that are read in part, because a crop or a slice keeps only those parts.

use super::stretches::Notes;
use crate::config::{Batching, Config};
use crate::dataset::SampleId;
use crate::plan::{Grid, Keep, Rows};
use crate::sampler::Order;
use crate::transform::Map;
use std::sync::Arc;

/// Samples to examine: how much of them is read.
const SAMPLES_SEEN: u64 = 64;

/// The columns that are read in part, if that skips much. Not if reads are kept, or if samples are cut from units,
/// which are read whole.
pub(super) fn choose(
    config: &Config,
    order: &Order,
    maps: &[(String, Map)],
    stretches: Option<&(Grid, Keep)>,
    notes: &mut Notes,
) -> Option<Arc<Rows>> {
    let dataset = &**order.dataset();
    let reads_whole = stretches.is_some_and(|(_, keep)| !matches!(keep, Keep::Small(_)));
    let is_kept = config.cache_images.is_some() || matches!(config.batching, Batching::Packed(_));
    if reads_whole || is_kept || dataset.units().is_some() {
        return None;
    }
    let fields = &dataset.schema().fields;
    let is_beside = |field: usize| maps.iter().any(|(_, map)| map.beside().contains(&field));
    let column = |(name, map): &(String, Map)| {
        let field = fields.iter().position(|field| field.name == *name)?;
        Some((field, Arc::clone(map.arrays().filter(|_| !is_beside(field))?)))
    };
    let columns: Vec<_> = maps.iter().filter_map(column).collect();
    if columns.is_empty() {
        return None;
    }
    let names: Vec<&str> = columns.iter().map(|(field, _)| &*fields[*field].name).collect();
    let least = config.operation_bytes.unwrap_or(0).max(config.coalesce_gap.unwrap_or(0));
    let rows = Rows::new(columns, config.seed, least);
    let (epoch, len) = (order.start().epoch, dataset.len());
    let (mut whole, mut read) = (0_u64, 0_u64);
    let places = SAMPLES_SEEN.min(len);
    for place in 0..places {
        let id = SampleId((u128::from(len) * u128::from(place) / u128::from(places)) as u64);
        // If the dataset reports invalid values for a sample, it is an error when its turn comes.
        let (all, part) = rows.share(dataset, epoch, id).unwrap_or_default();
        (whole, read) = (whole.saturating_add(all), read.saturating_add(part));
    }
    if read == whole {
        return None;
    }
    let percent = 100.0 * read as f64 / whole as f64;
    let names = names.join(", ");
    let told = format!("of {names} only the rows that are used are read ({percent:.0} % of the bytes)");
    notes.locality.push(told.into());
    Some(Arc::new(rows))
}
