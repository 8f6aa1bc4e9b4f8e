//! Copies large values straight to their places in the columns: each is a separate copy, of any length to any address.
//! The data as it was read is then never on the device, so a batch takes half the memory there, and no kernel needs to
//! make its values adjacent.
//!
//! Small values go with their blocks instead: a copy engine needs some microseconds for each copy.

use super::transforms::Transforms;
use super::{BatchBytes, lane};
use crate::batch::{Batch, Data, Deferred};
use crate::collate::{Collation, Form};
use crate::dataset::Dataset;
use bytes::Bytes;

/// Samples of this many bytes on average are copied one by one. Below some 28 KiB an H100's copy engine is slow; at 64
/// KiB it is near its peak.
pub(crate) const STRAIGHT_BYTES: u64 = 128 << 10;

/// Bytes that one call copies. Their blocks are free again once that many have arrived.
const GROUP_BYTES: usize = 32 << 20;

/// Whether values go straight to their columns, in a loader whose host memory has `host_bytes`.
///
/// Values are slices of what was read, with exceptions that no format knows beforehand (numbers parsed from text, bytes
/// of another order); these are copied too, but their memory is not pinned.
///
/// A value's place is known once its whole batch has been read. So the host needs memory for a second batch, which is
/// read meanwhile.
pub(super) fn is_possible(
    dataset: &dyn Dataset,
    collation: &Collation,
    transforms: &Transforms,
    (batch, host_bytes): (BatchBytes, u64),
) -> bool {
    let is_plain = |(index, form): (usize, &Form)| {
        transforms.kernel(index).is_none() && matches!(form, Form::Dense { .. } | Form::Ragged { .. })
    };
    // Kept memory is not pinned: labels may be kept, but not whole samples.
    dataset.units().is_none()
        && batch.kept <= batch.payload / 2
        && dataset.bytes() / dataset.len().max(1) >= STRAIGHT_BYTES
        && batch.read.saturating_mul(2) <= host_bytes
        && collation.forms().iter().enumerate().all(is_plain)
}

/// Bytes of a batch's columns on the device.
pub(super) fn column_bytes(batch: &Batch, deferred: &Deferred) -> u64 {
    let pieces = deferred.columns.iter().flatten().map(|pieces| pieces.len);
    let integers = batch.columns.iter().filter_map(|column| match &column.data {
        Data::I64(values) => Some(values.len() * 8),
        _ => None,
    });
    pieces.chain(integers).map(|bytes| lane::padded(bytes) as u64).sum()
}

/// Pieces of columns in groups that are copied by one call each. `starts` are the offsets of the columns in the
/// device's memory. Pieces outside all blocks are not pinned, and form a group of their own.
pub(super) fn groups(deferred: &Deferred, starts: &[Option<usize>]) -> Vec<Vec<(Bytes, usize)>> {
    let is_in_block = |piece: &Bytes| {
        let at = piece.as_ptr().addr();
        deferred.blocks.iter().any(|block| (block.as_ptr().addr()..=block.as_ptr().addr() + block.len()).contains(&at))
    };
    let (mut groups, mut group, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (pieces, start) in deferred.columns.iter().zip(starts) {
        let (Some(pieces), Some(start)) = (pieces, start) else { continue };
        for (at, piece) in &pieces.pieces {
            let place = start + at;
            if !is_in_block(piece) {
                groups.push(vec![(piece.clone(), place)]);
                continue;
            }
            bytes += piece.len();
            group.push((piece.clone(), place));
            if bytes >= GROUP_BYTES {
                groups.push(std::mem::take(&mut group));
                bytes = 0;
            }
        }
    }
    if !group.is_empty() {
        groups.push(group);
    }
    groups
}
