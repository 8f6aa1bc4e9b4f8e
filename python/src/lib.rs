//! The extension module of the Python package: datasets, loaders and tensors, as thin as possible. The public interface
//! is written in Python, in `lib/uringload`.

// In layer order: a module uses only modules above it (a test enforces it).
mod errors;
mod numbers;
mod clock;
mod dlpack;
mod outside;
mod wait;
mod order;
mod stats;
mod said;
mod tensor;
mod exchange;
mod allocator;
mod options;
mod formats;
mod batch;
mod dataset;
mod loader;
mod reader;
mod into;
mod samples;
mod own;
mod pack;
mod show;
mod measure;
mod command;

/// The native part of `uringload`. Not for direct use: names and arguments may change in any version.
#[pyo3::pymodule]
mod _uringload {
    #[pymodule_export]
    use super::allocator::Allocator;
    #[pymodule_export]
    use super::batch::Meta;
    #[pymodule_export]
    use super::clock::Clock;
    #[pymodule_export]
    use super::command::{command, rank_variables};
    #[pymodule_export]
    use super::dataset::Dataset;
    #[pymodule_export]
    use super::exchange::Exchange;
    #[pymodule_export]
    use super::formats::{format_options, names};
    #[pymodule_export]
    use super::into::read_into;
    #[pymodule_export]
    use super::loader::{Loader, batches, check_chain, replacement};
    #[pymodule_export]
    use super::measure::{bench, tune};
    #[pymodule_export]
    use super::options::{check_settings, profile, settings, size};
    #[pymodule_export]
    use super::outside::{begun, ending};
    #[pymodule_export]
    use super::own::{concat, labelled, numbers, ranges, with_columns};
    #[pymodule_export]
    use super::pack::pack;
    #[pymodule_export]
    use super::reader::Reader;
    #[pymodule_export]
    use super::samples::Samples;
    #[pymodule_export]
    use super::show::thumbnail;
    #[pymodule_export]
    use super::tensor::Tensor;

    /// The version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
