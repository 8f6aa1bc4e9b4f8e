//! The extension module of the Python package: datasets, loaders and tensors, as thin as possible. The public interface
//! is written in Python, in `lib/uringload`.

mod allocator;
mod batch;
mod clock;
mod command;
mod dataset;
mod dlpack;
mod errors;
mod exchange;
mod formats;
mod into;
mod loader;
mod numbers;
mod options;
mod order;
mod outside;
mod own;
mod pack;
mod reader;
mod samples;
mod show;
mod stats;
mod tensor;
mod wait;

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
    use super::options::profile;
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
