//! A loader's batches by epoch.

use super::{Delivered, Loader};
use crate::{Error, Result};

/// The rest of one epoch of a loader: see [`Loader::next_epoch`].
#[derive(Debug)]
pub struct Epoch<'a, T: Delivered = crate::batch::Batch> {
    loader: &'a mut Loader<T>,
    number: u64,
}

impl<T: Delivered> Loader<T> {
    /// The remaining batches of the current epoch or, after its last batch, those of the next epoch. `None` if no epoch
    /// is left.
    ///
    /// Reading does not stop between epochs, and leaving one early loses nothing: the next call continues it.
    ///
    /// ```
    /// # let folder = tempfile::tempdir().unwrap();
    /// # (0..4).for_each(|n| std::fs::write(folder.path().join(format!("{n}.dat")), [n; 100]).unwrap());
    /// # let dataset = uringload::dataset::open(&[folder.path()], &uringload::dataset::Options::new())?;
    /// let mut loader = uringload::Loader::builder(dataset).batch_size(2).shuffle(true).epochs(3).build()?;
    /// while let Some(mut epoch) = loader.next_epoch() {
    ///     let number = epoch.number();
    ///     for batch in &mut epoch {
    ///         println!("epoch {number}: {:?}", batch?.ids);
    ///     }
    ///     println!("validate, and save {}", epoch.loader().state().to_json());
    /// }
    /// # Ok::<(), uringload::Error>(())
    /// ```
    pub fn next_epoch(&mut self) -> Option<Epoch<'_, T>> {
        let number = if self.finished { None } else { self.book.next_epoch() };
        number.map(|number| Epoch { loader: self, number })
    }
}

impl<T: Delivered> Epoch<'_, T> {
    /// Number of the epoch, from 0.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The loader, for its state and its statistics.
    pub fn loader(&self) -> &Loader<T> {
        self.loader
    }
}

impl<T: Delivered> Iterator for Epoch<'_, T> {
    type Item = std::result::Result<T, Error>;

    fn next(&mut self) -> Option<Result<T>> {
        if self.loader.finished || self.loader.book.next_epoch() != Some(self.number) {
            return None;
        }
        self.loader.next()
    }
}
