//! What a pack is asked for.

use super::UNIT_BYTES;
use super::images::PackImages;
use super::names::Keys;
use crate::config::Part;
use crate::dataset::Options;
use crate::dataset::inspect::store_options;
use std::path::PathBuf;

/// Default size of shards.
const SHARD_BYTES: u64 = 1_000_000_000;

/// How to pack a dataset: see [`Builder::pack`](crate::Builder::pack).
#[derive(Clone, Debug)]
pub struct PackOptions {
    /// Prefix of the names of shards: `PREFIX-000000.tar`.
    pub(crate) prefix: String,
    /// Values of this many bytes and more begin at a multiple of it: 4096, or 512 for archives without padding.
    pub(crate) align: u64,
    /// Maximum bytes of a shard, unless it has a single sample. An estimate if lengths are known only by reading.
    pub(crate) shard_bytes: u64,
    /// Maximum number of samples in a shard.
    pub(crate) shard_samples: Option<u64>,
    /// The keys of samples.
    pub(crate) keys: Keys,
    /// Shards that are written at once; `None`: twice the number of processors, at most 4, or one for each processor if
    /// images are made.
    pub(crate) threads: Option<usize>,
    /// Which of the shards are written, for jobs that pack a source together, at once or one after the other. All of
    /// them get the same source, folder and options.
    pub(crate) part: Part,
    /// Whether to replace shards that another pack has put there. Not allowed for parts, because each would replace
    /// those of the others.
    pub(crate) overwrite: bool,
    /// How images are converted.
    pub(crate) images: Option<PackImages>,
    /// The format of shards.
    pub(crate) layout: PackLayout,
    /// How the store is reached that shards go to.
    pub(crate) stores: Options,
    /// Where shards for a store are made.
    pub(crate) staging: Option<PathBuf>,
}

/// The format of shards: see [`PackOptions::layout`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PackLayout {
    /// [`Mds`](PackLayout::Mds) if archives would take more than 1.3 times the bytes of the samples, and 1 MiB more,
    /// and MDS can hold them; otherwise [`Tar`](PackLayout::Tar). Samples that consist of several files, and images
    /// that are converted, go to archives.
    #[default]
    Auto,
    /// Archives, as webdataset writes them: a header of 512 bytes for each value, which begins at a multiple of 512.
    Tar,
    /// Shards of mosaicml-streaming (MDS, version 2) and an `index.json`: samples follow each other after a table of
    /// offsets, each with 4 bytes there and 4 for each column of varying length. They begin at a multiple of 4096. A
    /// column has the name that it has in the source. Names of the source become a column `__key__`.
    Mds,
}

impl Default for PackOptions {
    fn default() -> PackOptions {
        PackOptions {
            prefix: "shard".into(),
            align: UNIT_BYTES,
            shard_bytes: SHARD_BYTES,
            shard_samples: None,
            keys: Keys::default(),
            threads: None,
            part: Part::WHOLE,
            overwrite: false,
            images: None,
            layout: PackLayout::default(),
            stores: Options::new(),
            staging: None,
        }
    }
}

impl PackOptions {
    /// Prefix of the names of shards: `PREFIX-000000.tar`. Default: "shard".
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> PackOptions {
        self.prefix = prefix.into();
        self
    }

    /// Values of at least this many bytes begin at a multiple of it: 4096 (the default), or 512 for archives without
    /// padding.
    #[must_use]
    pub fn align(mut self, bytes: u64) -> PackOptions {
        self.align = bytes;
        self
    }

    /// The size of a shard, in bytes: a shard is larger only if it has a single sample. If lengths of values are known
    /// only by reading (columns of several lengths, compressed chunks), it is an estimate. Default: 10^9.
    #[must_use]
    pub fn shard_bytes(mut self, bytes: u64) -> PackOptions {
        self.shard_bytes = bytes;
        self
    }

    /// The most samples in a shard. Default: any number.
    #[must_use]
    pub fn shard_samples(mut self, samples: impl Into<Option<u64>>) -> PackOptions {
        self.shard_samples = samples.into();
        self
    }

    /// The format of shards. Default: archives, or MDS if samples are so short that an archive would be mostly headers.
    #[must_use]
    pub fn layout(mut self, layout: PackLayout) -> PackOptions {
        self.layout = layout;
        self
    }

    /// The keys of samples. Default: as in the source.
    #[must_use]
    pub fn keys(mut self, keys: Keys) -> PackOptions {
        self.keys = keys;
        self
    }

    /// Shards that are written at once. `None`, the default: the library chooses (twice the number of processors, at
    /// most 4; one for each processor if images are made).
    #[must_use]
    pub fn threads(mut self, threads: impl Into<Option<usize>>) -> PackOptions {
        self.threads = threads.into();
        self
    }

    /// Which of the shards to write, for jobs that pack a source together, at once or one after the other. Give all of
    /// them the same source, folder and options. Default: all shards.
    #[must_use]
    pub fn part(mut self, part: Part) -> PackOptions {
        self.part = part;
        self
    }

    /// How the store is reached, if shards go to a URL: endpoint, region, credentials and the like, as they are given
    /// to [`dataset::open`](crate::dataset::open). What these options say of formats does not count. Default: nothing.
    #[must_use]
    pub fn stores(mut self, options: &Options) -> PackOptions {
        self.stores = store_options(options);
        self
    }

    /// The folder in which shards for a store are made before they are sent: room for `threads` of them. What is left
    /// in it by a process that was killed is removed by the next run. Default: none, which is refused for a store.
    #[must_use]
    pub fn staging(mut self, folder: impl Into<Option<PathBuf>>) -> PackOptions {
        self.staging = folder.into();
        self
    }

    /// Whether to replace the shards that another pack has put into the folder. Parts cannot: each would replace the
    /// shards of the others. Default: false.
    #[must_use]
    pub fn overwrite(mut self, overwrite: bool) -> PackOptions {
        self.overwrite = overwrite;
        self
    }
}
