//! NumPy's `.npz`: stored members of a zip archive, each a `.npy` array, found without reading what they hold.

use super::arrays::{Found, Listing};
use super::headers::Source;
use super::{npy, zip};
use crate::error::Result;

/// What `numpy.savez` adds to the name of an array.
const SUFFIX: &str = ".npy";

/// The arrays of an archive that are `wanted` (all, where none is named), in the order of its directory.
///
/// # Errors
/// `Corrupt` and `Truncated` where archive or array break their format; `Unavailable` for what is sound and cannot be
/// read in place: deflated and encrypted members, members that are no arrays, arrays that [`npy::read`] refuses.
pub(super) fn find(source: &Source, wanted: &[String]) -> Result<Listing> {
    let mut listing = Listing::default();
    for member in zip::members(source)? {
        let name = member.name.strip_suffix(SUFFIX);
        if !listing.takes(name.unwrap_or(&member.name), wanted) {
            continue;
        }
        let Some(name) = name else {
            let doing = format!("member {:?} is not an array (its name does not end in {SUFFIX}) of", member.name);
            return Err(source.unavailable(member.header, doing).with_remedy("name the arrays that are wanted"));
        };
        if member.is_encrypted() {
            let doing = format!("member {:?} is encrypted in", member.name);
            return Err(source.unavailable(member.header, doing).with_remedy("write the archive without a password"));
        }
        if member.method != zip::STORED {
            let doing = format!("member {:?} is compressed (zip method {}) in", member.name, member.method);
            let remedy = "write it by numpy.savez instead of numpy.savez_compressed, so that it can be read in place";
            return Err(source.unavailable(member.header, doing).with_remedy(remedy));
        }
        let array = npy::read(source, zip::content(source, &member)?)?;
        listing.found.push(Found { name: name.to_owned(), array });
    }
    Ok(listing)
}
