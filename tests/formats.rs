//! Datasets of every format: what a sample is, which bytes it has, and what bad files get.

mod common;

mod formats {
    mod array_record;
    mod arrays;
    mod arrays_hostile;
    #[cfg(feature = "parquet")]
    mod columnar;
    mod dataset;
    mod denied;
    mod hdf5;
    mod identity;
    mod idx;
    mod indexes;
    mod limits;
    mod lines;
    mod listings;
    mod mapped;
    mod memory;
    mod objects;
    mod own;
    mod pack;
    mod same;
    mod shards;
    mod tar;
    mod tfrecord;
    mod tokens;
    mod views;
    mod zip;
    mod zoo;
}
