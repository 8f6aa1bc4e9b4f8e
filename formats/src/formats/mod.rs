//! The formats, each a file with its folder, and what several of them share: `columnar` by Arrow and Parquet, `shards`
//! by MDS and LitData, `endian` by all whose numbers may be big endian.

pub(crate) mod array_record;
pub(crate) mod arrays;
#[cfg(feature = "parquet")]
pub(crate) mod arrow;
pub(crate) mod beton;
#[cfg(feature = "parquet")]
pub(crate) mod columnar;
#[cfg(not(feature = "parquet"))]
pub(crate) mod columnar_absent;
pub(crate) mod endian;
pub(crate) mod folder;
pub(crate) mod hdf5;
pub(crate) mod idx;
pub(crate) mod lines;
pub(crate) mod litdata;
pub(crate) mod mds;
#[cfg(feature = "parquet")]
pub(crate) mod parquet;
pub(crate) mod records;
pub(crate) mod shards;
pub(crate) mod tar;
pub(crate) mod tfrecord;
pub(crate) mod tokens;
pub(crate) mod zip;
