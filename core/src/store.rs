//! What a store of objects can do: read a range of an object into memory that the caller has, and list objects. A
//! client of S3 is one, and so is a map in memory.

mod again;
mod failure;
mod interrupt;
mod uploads;
mod version;

pub use again::again;
pub use failure::{Class, Failure};
pub use interrupt::Interrupt;
pub use uploads::Uploads;
pub use version::{Known, Version};

use crate::Fallback;
use std::fmt::{self, Debug};
use std::ops::ControlFlow;
use std::path::PathBuf;

/// A store of objects, each with a key of any bytes. Many threads ask it at once, and each waits for its answer.
pub trait Store: Debug + Send + Sync + 'static {
    /// What messages call the object with this key, such as `s3://bucket/key`. It has no secrets, and two stores with
    /// other objects give other names.
    fn shown(&self, key: &[u8]) -> PathBuf;

    /// Reads the object from `offset` on into `into`. Nothing else is read or asked for, and no failure is tried again.
    ///
    /// Fewer bytes than `into` has mean that the object ends ([`Read::total`] says it), or that the answer broke off:
    /// the caller reads on from there. From behind the end, 0 bytes are read.
    ///
    /// # Errors
    /// [`Class::Changed`] if the object is surely not `expected`; all others as they are named.
    fn read(
        &self,
        key: &[u8],
        offset: u64,
        into: &mut [u8],
        expected: Option<Version>,
        interrupt: &Interrupt,
    ) -> Result<Read, Failure>;

    /// Whether it has a listing. HTTP alone has none.
    fn lists(&self) -> bool;

    /// Lists the objects whose keys begin with `prefix`, and gives each page to `take` until that breaks.
    ///
    /// # Errors
    /// [`Class::Unavailable`] if there is no listing; [`Class::Corrupt`] if it contradicts itself.
    fn list(
        &self,
        prefix: &[u8],
        options: &ListOptions,
        interrupt: &Interrupt,
        take: &mut dyn FnMut(Page) -> ControlFlow<()>,
    ) -> Result<Listed, Failure>;

    /// What writes objects, if it takes any. By default it takes none.
    fn uploads(&self) -> Option<&dyn Uploads> {
        None
    }

    /// Whom requests go to and by whose right, in a line for people: it names no secret. May ask for credentials.
    fn told(&self) -> Option<String> {
        None
    }

    /// What was found otherwise than it should be, each once.
    fn notes(&self) -> Vec<Fallback> {
        Vec::new()
    }

    /// What its server was asked and gave, since the store was opened; nothing if there is no server.
    fn counts(&self) -> Option<Counts> {
        None
    }
}

/// What a server was asked and gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Its host, and its port if that is not the usual one.
    pub endpoint: String,
    /// Requests that were sent: second attempts too, and those that were answered by nothing.
    pub requests: u64,
    /// Those of them that were for a page of a listing.
    pub lists: u64,
    /// Second attempts, which were made because nothing came.
    pub hedges: u64,
    /// Those of them that brought the next byte.
    pub hedges_won: u64,
    /// Answers that ask for fewer requests: 408, 429, 500, 502, 503, 504.
    pub throttled: u64,
    /// Connections that were made.
    pub connections: u64,
    /// Bytes of bodies that were received.
    pub bytes: u64,
}

impl Counts {
    /// What came after `earlier`, counts of the same server.
    #[must_use]
    pub fn since(&self, earlier: &Counts) -> Counts {
        self.with(earlier, u64::saturating_sub)
    }

    /// What two stores of one server gave.
    #[must_use]
    pub fn and(&self, other: &Counts) -> Counts {
        self.with(other, u64::saturating_add)
    }

    fn with(&self, other: &Counts, of: impl Fn(u64, u64) -> u64) -> Counts {
        Counts {
            endpoint: self.endpoint.clone(),
            requests: of(self.requests, other.requests),
            lists: of(self.lists, other.lists),
            hedges: of(self.hedges, other.hedges),
            hedges_won: of(self.hedges_won, other.hedges_won),
            throttled: of(self.throttled, other.throttled),
            connections: of(self.connections, other.connections),
            bytes: of(self.bytes, other.bytes),
        }
    }
}

impl fmt::Display for Counts {
    /// In one line: `1200 requests, 12 made twice (10 won), 32 connections, 132.0 MB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests", self.requests)?;
        if self.lists > 0 {
            write!(f, " ({} for listings)", self.lists)?;
        }
        if self.hedges > 0 {
            write!(f, ", {} made twice ({} won)", self.hedges, self.hedges_won)?;
        }
        if self.throttled > 0 {
            write!(f, ", {} refused for now", self.throttled)?;
        }
        write!(f, ", {} connections, {:.1} MB", self.connections, self.bytes as f64 / 1e6)
    }
}

/// What a read gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Bytes that were read.
    pub bytes: usize,
    /// The version of the object, if the answer says it.
    pub version: Option<Version>,
    /// Bytes of the object, if the answer says it.
    pub total: Option<u64>,
}

/// What is listed.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// Only keys behind this one.
    pub after: Option<Vec<u8>>,
    /// Keys that have a `/` behind the prefix are folded to what they begin with, up to that.
    pub folders: bool,
}

/// A page of a listing.
#[derive(Debug, Default)]
pub struct Page {
    /// Counted from 1.
    pub number: u64,
    /// In ascending order of their keys; of Azure in the server's.
    pub objects: Vec<Object>,
    /// Of folded keys: what they begin with.
    pub folders: Vec<Vec<u8>>,
}

/// An object, as a listing has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its whole key.
    pub key: Vec<u8>,
    /// Bytes of it.
    pub size: u64,
    /// Which content it has, if the listing says it.
    pub version: Option<Version>,
}

/// What a listing gave in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// Pages that were asked for.
    pub pages: u64,
    /// Objects that were given.
    pub objects: u64,
    /// Objects of 0 bytes with a `/` at the end, which stand for folders: left out.
    pub markers: u64,
}
