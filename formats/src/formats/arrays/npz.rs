//! NumPy's `.npz`: members of a zip archive, each a `.npy` array, found without reading their data. In deflated
//! members, only the beginning is inflated, where their headers are.

use super::listing::{Array, Deflated, Found, Listing};
use super::npy::{self, Holder};
use crate::formats::zip::directory::{self, Inflated, Member};
use crate::index::headers::Source;
use std::io;
use uringload_core::{Error, Result};

/// What `numpy.savez` adds to the name of an array.
pub(super) const SUFFIX: &str = ".npy";

/// The arrays of an archive that are `wanted` (all, where none is named), in the order of its directory.
///
/// # Errors
/// `Corrupt` and `Truncated` where archive or array break their format; `Unavailable` for what is sound and cannot be
/// read: encrypted members and those compressed otherwise than by deflate, members that are no arrays, arrays that
/// [`npy::read_from`] refuses.
pub(super) fn find(source: &Source, wanted: &[String]) -> Result<Listing> {
    let mut listing = Listing::default();
    for member in directory::members(source)? {
        let name = member.name.strip_suffix(SUFFIX);
        if !listing.takes(name.unwrap_or(&member.name), wanted) {
            continue;
        }
        let Some(name) = name else {
            let what = format!("member {:?} is no array (its name does not end in {SUFFIX})", member.name);
            return Err(source.unavailable(member.header, what).with_remedy("name the arrays to read"));
        };
        if member.is_encrypted() {
            let what = format!("member {:?} is encrypted", member.name);
            return Err(source.unavailable(member.header, what).with_remedy("write the archive without a password"));
        }
        let array = match member.method {
            directory::STORED => npy::read(source, directory::content(source, &member)?)?,
            directory::DEFLATED => deflated(source, &member)?,
            _ => {
                let what = format!("member {:?} is compressed with {}", member.name, member.method_name());
                let remedy = "write it with numpy.savez, or with numpy.savez_compressed, which deflates";
                return Err(source.unavailable(member.header, what).with_remedy(remedy));
            }
        };
        listing.found.push(Found { name: name.to_owned(), array });
    }
    Ok(listing)
}

/// The array of a deflated member.
fn deflated(source: &Source, member: &Member) -> Result<Array> {
    let place = directory::content(source, member)?;
    let deflated =
        Deflated { start: place.start, stored: place.end - place.start, bytes: member.bytes, crc: member.crc };
    let inflated = Inflated::new(source, place).map_err(|error| undecodable(source, member, error))?;
    let array = npy::read_from(&mut Beginning { source, member, inflated })?;
    Ok(Array { deflated: Some(deflated), ..array })
}

fn undecodable(source: &Source, member: &Member, error: io::Error) -> Error {
    // An error of the file and not of what it holds has come through the decoder.
    error.downcast::<Error>().unwrap_or_else(|error| {
        let what = format!("deflated member {:?} cannot be inflated", member.name);
        source.corrupt(member.header, what).with_source(error)
    })
}

/// The beginning of a deflated member.
struct Beginning<'a> {
    source: &'a Source,
    member: &'a Member,
    inflated: Inflated<'a>,
}

impl Beginning<'_> {
    /// Places within the member are places of no file.
    fn place(&self, at: u64, what: &str) -> String {
        format!("byte {at} of deflated member {:?}: {what}", self.member.name)
    }
}

impl Holder for Beginning<'_> {
    fn len(&self) -> u64 {
        self.member.bytes
    }

    fn bytes(&mut self, at: u64, len: usize) -> Result<Vec<u8>> {
        let bytes = self.inflated.bytes(at, len);
        let bytes = bytes.map_err(|error| undecodable(self.source, self.member, error))?;
        if bytes.len() < len { Err(self.ends_early()) } else { Ok(bytes) }
    }

    fn corrupt(&self, at: u64, what: String) -> Error {
        self.source.corrupt(self.member.header, self.place(at, &what))
    }

    fn unavailable(&self, at: u64, what: String) -> Error {
        self.source.unavailable(self.member.header, self.place(at, &what))
    }

    fn ends_early(&self) -> Error {
        let what = "the array is longer than the archive's member that holds it";
        self.source.corrupt(self.member.header, self.place(self.member.bytes, what))
    }
}
