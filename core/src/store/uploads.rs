//! What a store can do that takes objects.

use super::{Failure, Interrupt};

/// Writes objects, each whole or not at all. Nothing is tried again: whoever asks says whether, by the class of the
/// failure. All may be asked twice, since an answer can be lost.
pub trait Uploads {
    /// Puts an object in one request. `is_first` wants that there is none with this key.
    ///
    /// # Errors
    /// [`Class::Changed`](super::Class::Changed) if it `is_first` and there is one.
    fn put(&self, key: &[u8], bytes: &[u8], is_first: bool, interrupt: &Interrupt) -> Result<(), Failure>;

    /// Begins an object of several parts, which no one sees before it is complete: what the store calls the upload.
    ///
    /// # Errors
    /// Why it cannot.
    fn begin(&self, key: &[u8], interrupt: &Interrupt) -> Result<String, Failure>;

    /// Sends part `number`, counted from 1: what the store calls it. A part of that number before counts no more.
    ///
    /// # Errors
    /// Why it cannot.
    fn part(
        &self,
        key: &[u8],
        upload: &str,
        number: u32,
        bytes: &[u8],
        interrupt: &Interrupt,
    ) -> Result<String, Failure>;

    /// Makes the object of its parts, in order, and lets it appear.
    ///
    /// # Errors
    /// [`Class::Missing`](super::Class::Missing) for an upload that is not there, perhaps as it was completed.
    fn complete(&self, key: &[u8], upload: &str, parts: &[String], interrupt: &Interrupt) -> Result<(), Failure>;

    /// Gives an upload up, and frees what the store has of it.
    ///
    /// # Errors
    /// Why it cannot.
    fn abort(&self, key: &[u8], upload: &str, interrupt: &Interrupt) -> Result<(), Failure>;
}
