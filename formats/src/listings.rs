//! Writes what a store has below a URL into a file, which is then opened in the URL's place.

use crate::find::objects::absent;
use crate::index::sidecar::write_whole;
use crate::named::{places, read_listing};
use crate::options::Options;
use crate::place::{Listing, Place, Walk, listed};
use crate::watched::watched;
use std::cmp::Ordering;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload_core::{Error, ErrorKind, Result};

/// What a listing has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedObjects {
    /// Objects in it.
    pub objects: u64,
    /// Bytes of them all.
    pub bytes: u64,
    /// Bytes of its file.
    pub file_bytes: u64,
}

/// What has changed since a listing was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListingChanges {
    /// What the listing has now.
    pub now: ListedObjects,
    /// Objects that were not there.
    pub added: ChangedObjects,
    /// Objects that are not there any more.
    pub removed: ChangedObjects,
    /// Objects with another size or version.
    pub replaced: ChangedObjects,
}

/// Some objects: how many, and what the first of them are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangedObjects {
    /// How many.
    pub count: u64,
    /// The first of them, at most five.
    pub first: Vec<PathBuf>,
}

/// Names of changed objects that are told.
const NAMED: usize = 5;

/// Lists the objects below `url` and writes their names, sizes and versions to `file`: 20 to 40 bytes an object. Where
/// a URL may stand, `file` may too, if its name ends in `.uls`: it opens without a listing, and reads compare the
/// versions that it has. It has the URL, and neither secrets nor options: those are given when it is opened.
///
/// # Errors
/// `InvalidArgument` for what is no URL of a store with listings, for a URL with a query and a `file` with another
/// ending; `NotFound` if there is no object; what the store says of its listing and the system of the file.
pub fn list_objects(url: impl AsRef<Path>, file: impl AsRef<Path>, options: &Options) -> Result<ListedObjects> {
    let (url, file, options) = (url.as_ref().to_path_buf(), file.as_ref().to_path_buf(), options.clone());
    watched(options.common().timeout, move || {
        if Path::new(&file).extension().is_none_or(|ending| ending != listed::EXTENSION) {
            let error =
                Error::new(ErrorKind::InvalidArgument, "a listing has a name that ends in .uls").with_path(file);
            return Err(error.with_remedy("that is how it is known where it stands for a URL"));
        }
        if url.as_os_str().as_bytes().contains(&b'?') {
            let error = Error::new(ErrorKind::InvalidArgument, "a listing is of a folder, without a query");
            return Err(error.with_remedy("leave out what is behind the question mark"));
        }
        let (places, _) = places(&[&url], &options)?;
        let listing = list(&places[0])?;
        write(&places[0], &listing, &file)
    })
}

/// Lists the objects of a listing's file again, writes them there, and says what has changed.
///
/// # Errors
/// As [`list_objects`]; `Corrupt`, `Truncated` and `Unavailable` for a file that is no listing of this version.
pub fn update_listing(file: impl AsRef<Path>, options: &Options) -> Result<ListingChanges> {
    let (file, options) = (file.as_ref().to_path_buf(), options.clone());
    watched(options.common().timeout, move || {
        let before = read_listing(&Place::new(&file))?.listing;
        let (places, _) = places(&[&file], &options)?;
        if let Some(far) = places[0].as_far() {
            far.tree.forget();
        }
        let after = list(&places[0])?;
        let mut changes = compared(&places[0], &before, &after);
        changes.now = write(&places[0], &after, &file)?;
        Ok(changes)
    })
}

fn list(place: &Place) -> Result<Arc<Listing>> {
    let Some(far) = place.as_far().filter(|far| far.tree.store().lists()) else {
        let error = Error::new(ErrorKind::InvalidArgument, "this is in no store with listings").with_path(place);
        return Err(error.with_remedy("name a folder of a bucket, such as s3://BUCKET/FOLDER"));
    };
    let listing = far.tree.all(&far.inside()).map_err(|error| Error::io("cannot list", error).with_path(place))?;
    if listing.len() == 0 {
        return Err(absent(place));
    }
    Ok(listing)
}

fn write(place: &Place, listing: &Listing, file: &Path) -> Result<ListedObjects> {
    let store = place.as_far().map(|far| far.tree.shown(b"")).unwrap_or_default();
    let image = listed::encode(store.as_os_str().as_bytes(), listing);
    write_whole(file, &image).map_err(|error| Error::io("cannot write", error).with_path(file))?;
    let (mut walk, mut bytes) = (listing.walk(), 0_u64);
    while walk.next() {
        bytes = bytes.saturating_add(walk.size());
    }
    Ok(ListedObjects { objects: listing.len() as u64, bytes, file_bytes: image.len() as u64 })
}

fn compared(place: &Place, before: &Listing, after: &Listing) -> ListingChanges {
    let mut changes = ListingChanges::default();
    let (mut old, mut new) = (before.walk(), after.walk());
    let (mut is_old, mut is_new) = (old.next(), new.next());
    while is_old || is_new {
        let order = match (is_old, is_new) {
            (true, true) => old.name().cmp(new.name()),
            (true, false) => Ordering::Less,
            (false, _) => Ordering::Greater,
        };
        let of = |walk: &Walk<'_>| place.join(OsStr::from_bytes(walk.name())).path().into();
        match order {
            Ordering::Less => changes.removed.add(|| of(&old)),
            Ordering::Greater => changes.added.add(|| of(&new)),
            Ordering::Equal if (old.size(), old.version()) != (new.size(), new.version()) => {
                changes.replaced.add(|| of(&new));
            }
            Ordering::Equal => {}
        }
        if order.is_le() {
            is_old = old.next();
        }
        if order.is_ge() {
            is_new = new.next();
        }
    }
    changes
}

impl ChangedObjects {
    fn add(&mut self, name: impl FnOnce() -> PathBuf) {
        self.count += 1;
        if self.first.len() < NAMED {
            self.first.push(name());
        }
    }
}
