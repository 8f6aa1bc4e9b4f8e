//! [uringload] as the `DataLoader` of burn, and its batches as burn's tensors.
//!
//! ```
//! use burn_core::data::dataloader::DataLoader;
//! use burn_core::tensor::{Device, Tensor};
//! use uringload::config::Collate;
//! use uringload::{Loader, dataset};
//! use uringload_burn::{BurnLoader, tensor_data};
//!
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("digits.bin");
//! # std::fs::write(&path, [7; 65 * 4])?;
//! let options = dataset::Options::new().format("records").set("record_fields", "label:u8, image:u8[8,8]");
//! let dataset = dataset::open(&[path], &options)?;
//! let builder = Loader::builder(dataset).batch_size(2).collate(Collate::Ragged).shuffle(true).seed(1);
//! let loader = BurnLoader::new(builder, |batch: uringload::batch::Batch, device: &Device| {
//!     tensor_data(batch.column("image").expect("images"))
//! })?;
//! assert_eq!(loader.num_items(), 4);
//! // Each call is an epoch, in an order of its own.
//! for images in loader.iter() {
//!     assert_eq!(images?.shape().as_slice(), [2, 8, 8]);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`tensor_data`] copies nothing: the data holds the memory of the batch, and what is dropped is read into again. What
//! a backend of burn does with it (a GPU's copies it to the device) is its own.
#![forbid(unsafe_code)]

mod data;
mod loader;

pub use data::{dtype, tensor_data, tensor_data_in};
pub use loader::BurnLoader;

/// The program of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests;
