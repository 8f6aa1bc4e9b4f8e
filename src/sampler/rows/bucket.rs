//! Groups samples of similar length into batches.

use super::{Piece, RowPiece, Rows};
use crate::config::Buckets;
use crate::{Error, ErrorKind, Result};
use rand_xoshiro::rand_core::Rng;

/// Groups the samples of a window by length; a row is a batch. Its memory is reused from window to window.
#[derive(Clone, Debug)]
pub struct Bucketer {
    boundaries: Vec<u64>,
    batch_sizes: Vec<u64>,
    /// The samples by bucket, in each bucket in the order of the window.
    grouped: Vec<u32>,
    /// Bucket of each sample, then its row.
    bucket_of: Vec<u32>,
    /// Where each bucket ends in `grouped`.
    ends: Vec<usize>,
    pieces: Vec<RowPiece>,
}

impl Bucketer {
    /// For these buckets.
    ///
    /// # Errors
    /// `InvalidArgument` if boundaries do not ascend from at least 1, if there is not exactly one more batch size than
    /// boundaries, or if one is 0.
    pub fn new(buckets: &Buckets) -> Result<Bucketer> {
        let Buckets { boundaries, batch_sizes, .. } = buckets;
        let refuse =
            |what: String, remedy: &'static str| Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy));
        if let Some(pair) = boundaries.windows(2).find(|pair| pair[0] >= pair[1]) {
            let what = format!("bucket boundaries do not ascend: {} is followed by {}", pair[0], pair[1]);
            return refuse(what, "give each length once, from short to long");
        }
        if boundaries.first() == Some(&0) {
            return refuse("a bucket boundary is 0".into(), "no sample is shorter than that: leave it out");
        }
        if batch_sizes.len() != boundaries.len() + 1 {
            let (sizes, count) = (batch_sizes.len(), boundaries.len());
            let what = format!("{sizes} batch sizes are given for {count} bucket boundaries");
            return refuse(what, "give one batch size more than boundaries: the last is of all that are longer");
        }
        if let Some(bucket) = batch_sizes.iter().position(|&size| size == 0) {
            return refuse(format!("the batch size of bucket {bucket} is 0"), "give at least one sample a batch");
        }
        Ok(Bucketer {
            boundaries: boundaries.clone(),
            batch_sizes: batch_sizes.clone(),
            grouped: Vec::new(),
            bucket_of: Vec::new(),
            ends: Vec::new(),
            pieces: Vec::new(),
        })
    }

    /// Ascending lengths: each bucket's samples are shorter than its own; the last bucket has none.
    pub fn boundaries(&self) -> &[u64] {
        &self.boundaries
    }

    /// Samples in a batch of each bucket.
    pub fn batch_sizes(&self) -> &[u64] {
        &self.batch_sizes
    }

    /// Groups the samples of these `lengths`, in elements, into `rows`, replacing its content: each row is a batch of
    /// whole samples. Returns whether the last one is not full.
    ///
    /// The rest of a bucket goes to the next longer one, before its samples, so that at most one batch is not full: it
    /// has the longest of the remaining samples, and comes last. The others come in the order of their first samples
    /// or, with `random`, in a random one.
    pub fn bucket(&mut self, lengths: &[u64], random: Option<&mut dyn Rng>, rows: &mut Rows) -> bool {
        self.group(lengths);
        self.pieces.clear();
        let piece = |(index, &len): (usize, &u64)| RowPiece { index: index as u32, piece: Piece { start: 0, len } };
        self.pieces.extend(lengths.iter().enumerate().map(piece));
        // The rest of a bucket is right before the next one, so a batch is a run of samples.
        let (mut start, mut row) = (0, 0);
        let row_of = &mut self.bucket_of;
        for (&end, &size) in self.ends.iter().zip(&self.batch_sizes) {
            while (end - start) as u64 >= size {
                // Not more than there are samples.
                let batch = &self.grouped[start..start + size as usize];
                batch.iter().for_each(|&index| row_of[index as usize] = row);
                start += batch.len();
                row += 1;
            }
        }
        let rest = &self.grouped[start..];
        rest.iter().for_each(|&index| row_of[index as usize] = row);
        let last = (!rest.is_empty()).then_some(row);
        let count = row as usize + usize::from(last.is_some());
        rows.arrange(&self.pieces, row_of, count, last, random);
        last.is_some()
    }

    /// Sorts the samples by bucket.
    fn group(&mut self, lengths: &[u64]) {
        self.ends.clear();
        self.ends.resize(self.batch_sizes.len(), 0);
        self.bucket_of.clear();
        for &length in lengths {
            let bucket = self.boundaries.partition_point(|&boundary| boundary <= length);
            self.bucket_of.push(bucket as u32);
            self.ends[bucket] += 1;
        }
        let mut start = 0;
        for end in &mut self.ends {
            start += std::mem::replace(end, start);
        }
        self.grouped.resize(lengths.len(), 0);
        for (index, &bucket) in self.bucket_of.iter().enumerate() {
            let at = &mut self.ends[bucket as usize];
            self.grouped[*at] = index as u32;
            *at += 1;
        }
    }
}
