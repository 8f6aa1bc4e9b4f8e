//! What an index notes about its shard.

use crate::index::headers::Source;
use crate::index::object::OBJECT_DEVICE;
use std::time::{SystemTime, UNIX_EPOCH};
use uringload_sys::file::Identity;

/// The shard that an index belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    /// The format that the shard was read as.
    pub(crate) format: &'static str,
    /// Its file name without folders, since a dataset may move.
    pub(crate) name: Vec<u8>,
    /// Size in bytes.
    pub(crate) size: u64,
    /// Modification time: seconds since 1970 and nanoseconds. Objects have none: `NO_TIME`.
    pub(crate) modified: (i64, u32),
    /// What no copy of it shares: device, inode, and time of change.
    pub(crate) own: Own,
    /// When it was opened, in seconds since 1970.
    pub(crate) seen: i64,
}

/// What distinguishes a file from its copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Own {
    pub(super) device: (u32, u32),
    pub(super) inode: u64,
    pub(super) changed: (i64, u32),
}

impl Own {
    /// Whether it is the version of an object.
    pub(super) fn is_of_object(&self) -> bool {
        self.device == OBJECT_DEVICE
    }
}

impl Shard {
    /// Describes an open file that is read as this format.
    pub(crate) fn new(format: &'static str, source: &Source) -> Shard {
        let name = source.place().name().to_vec();
        let Identity { device, inode, size, modified, changed } = *source.content().identity();
        let seen = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        Shard { format, name, size, modified, own: Own { device, inode, changed }, seen }
    }
}
