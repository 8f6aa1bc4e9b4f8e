//! Turns labels into shares of classes, for batches that are mixed.

use super::{Batch, Data};
use crate::dataset::DType;
use crate::transform::{Mixer, is_integer, shares};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;

impl Batch {
    /// Turns labels into shares of classes, matching how the images of the batch were mixed.
    ///
    /// # Errors
    /// `InvalidArgument` for a label that is not one of the classes, and for labels that are not integers.
    pub(crate) fn soften(&mut self, mixer: &Mixer) -> Result<()> {
        let (name, classes) = mixer.labels();
        self.gather(name);
        let labels = self.labels(name)?;
        let mixing = mixer.draw(self.cursor.epoch, self.ids.iter().copied())?;
        let bytes = shares(&labels, classes, mixing.as_ref()).map_err(|index| {
            let what = format!("label {} of sample {} is none of {classes} classes", labels[index], self.ids[index].0);
            Error::new(ErrorKind::InvalidArgument, what).with_remedy("give the number of classes, counted from 0")
        })?;
        if let Some(column) = self.columns.iter_mut().find(|column| column.name == name) {
            column.dtype = DType::F32;
            column.data = Data::Dense { shape: vec![classes], bytes: Bytes::from(bytes) };
        }
        Ok(())
    }

    /// Gathers the values of a column here, if that was deferred.
    fn gather(&mut self, name: &str) {
        let Some(index) = self.columns.iter().position(|column| column.name == name) else { return };
        let pieces = self.deferred.as_mut().and_then(|deferred| deferred.columns.get_mut(index)?.take());
        if let (Some(pieces), Data::Dense { bytes, .. }) = (pieces, &mut self.columns[index].data) {
            *bytes = pieces.collect();
        }
    }

    /// The integers of a column; a negative one becomes greater than any class.
    fn labels(&self, name: &str) -> Result<Vec<u64>> {
        let wrong = || {
            let what = format!("the labels in column {name:?} are no integers, one for each sample");
            Error::new(ErrorKind::InvalidArgument, what).with_remedy("mix by a column of integers")
        };
        let column = self.column(name).ok_or_else(wrong)?;
        if let Data::I64(labels) = &column.data {
            return Ok(labels.iter().map(|&label| label as u64).collect());
        }
        let size = column.dtype.size() as usize;
        let signed = matches!(column.dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
        let one = |index: usize| {
            let bytes = column.bytes_of(index).filter(|bytes| bytes.len() == size && is_integer(column.dtype))?;
            // The sign is in the last byte.
            let negative = signed && bytes.last().is_some_and(|byte| byte & 0x80 != 0);
            let mut word = [if negative { 0xff } else { 0 }; 8];
            word[..size].copy_from_slice(&bytes);
            Some(u64::from_le_bytes(word))
        };
        (0..self.ids.len()).map(|index| one(index).ok_or_else(wrong)).collect()
    }
}
