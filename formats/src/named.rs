//! What a user names: paths of a file system, and URLs of objects.

#[cfg(feature = "remote")]
mod remote;

use crate::find::names::elsewhere;
use crate::options::{FormatOptions, Namer, Options, options};
use crate::place::listed::{self, Broken, Listed};
use crate::place::{Place, Tree};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use uringload_core::store::Store;
use uringload_core::{Error, ErrorKind, Result};

options! {
    /// How the stores of URLs are reached.
    pub(crate) struct StoreOptions {
        /// For URLs of stores: the server to ask instead of the cloud's own, as http(s)://HOST:PORT.
        endpoint: Option<String>,
        /// For s3 URLs: the region.
        region: Option<String>,
        /// For URLs of stores: do not sign requests.
        anonymous: bool,
        /// For https and stores: a file of certificates (PEM) that are good beside the system's.
        ca_file: Option<PathBuf>,
        /// For URLs of stores: send signed requests to other machines without TLS too.
        allow_http: bool,
        /// For s3 URLs: pay for what is read, where the bucket says so.
        requester_pays: bool,
    }
}

/// The store that a URL is in.
struct Found {
    store: Arc<dyn Store>,
    key: Vec<u8>,
    /// Whether the store is for this URL alone.
    is_own: bool,
}

/// The places that these paths and URLs name, and the options that know what else is in their stores.
///
/// # Errors
/// `InvalidArgument` for a URL that no store has, and for options of stores that cannot be used.
pub(crate) fn places<P: AsRef<Path>>(named: &[P], options: &Options) -> Result<(Vec<Place>, Options)> {
    let names = Mutex::new(Names { asked: options.typed()?, ..Names::default() });
    let namer = Namer::new(move |named| names.lock().unwrap_or_else(PoisonError::into_inner).place(named));
    let places = named.iter().map(|named| namer.place(named.as_ref())).collect::<Result<_>>()?;
    Ok((places, options.clone().with_namer(namer)))
}

/// A store, and a key in it.
pub type StoreAt = (Arc<dyn Store>, Vec<u8>);

/// The store that a URL is in, and its key there without a slash at the end; nothing for a path.
///
/// # Errors
/// `InvalidArgument` for a URL that no store has, and for options of stores that cannot be used.
pub fn store_at(url: &Path, options: &Options) -> Result<Option<StoreAt>> {
    if elsewhere(url).is_none() {
        return Ok(None);
    }
    let (places, _) = places(&[url], options)?;
    Ok(places[0].as_far().map(|far| (Arc::clone(far.tree.store()), far.key.clone())))
}

/// Of these options, how stores are reached.
#[must_use]
pub fn store_options(options: &Options) -> Options {
    options.only(|name| StoreOptions::SPECS.iter().any(|spec| spec.name == name))
}

#[derive(Default)]
struct Names {
    asked: StoreOptions,
    /// Stores by what messages call them: what was listed of one is known to all its places.
    trees: BTreeMap<PathBuf, Arc<Tree>>,
    #[cfg(feature = "remote")]
    opener: Option<remote::Opener>,
}

impl Names {
    fn place(&mut self, named: &Path) -> Result<Place> {
        let place = Place::new(named);
        let Some(remedy) = elsewhere(named).filter(|_| !place.is_taken()) else {
            let is_listing = place.has_extension(listed::EXTENSION) && place.stat().is_ok_and(|stat| stat.is_file);
            return if is_listing { self.listed(&place) } else { Ok(place) };
        };
        let Found { store, key, is_own } = self.find(named, remedy)?;
        let key = key.strip_suffix(b"/").unwrap_or(&key).to_vec();
        let tree = || Arc::new(Tree::new(Arc::clone(&store)));
        let tree = if is_own { tree() } else { Arc::clone(self.trees.entry(store.shown(b"")).or_insert_with(tree)) };
        Ok(Place::far(tree, key))
    }

    /// The folder that a listing is of, and what it has.
    fn listed(&mut self, place: &Place) -> Result<Place> {
        let Listed { store: url, listing } = read_listing(place)?;
        let url = PathBuf::from(OsString::from_vec(url));
        let found = self.find(&url, elsewhere(&url).unwrap_or("list the objects again"));
        let Found { store, .. } = found.map_err(|error| within(error, place))?;
        if store.shown(b"") != url {
            let what = format!("the listing is of {}, which is {} here", url.display(), store.shown(b"").display());
            let error = Error::new(ErrorKind::InvalidArgument, what).with_path(place);
            return Err(error.with_remedy("give the options of the store that was listed, or list the objects again"));
        }
        let tree = self.trees.entry(url).or_insert_with(|| Arc::new(Tree::new(store)));
        let key = listing.prefix().strip_suffix(b"/").unwrap_or(listing.prefix()).to_vec();
        tree.know(listing);
        Ok(Place::far(Arc::clone(tree), key))
    }

    fn find(&mut self, named: &Path, remedy: &'static str) -> Result<Found> {
        let url = named.as_os_str().as_bytes();
        if let Some((start, store)) =
            self.asked.common.stores.iter().rev().find(|(start, _)| url.starts_with(start.as_bytes()))
        {
            return Ok(Found { store: Arc::clone(store), key: url[start.len()..].to_vec(), is_own: false });
        }
        self.open(url, remedy)
    }

    #[cfg(feature = "remote")]
    fn open(&mut self, url: &[u8], remedy: &'static str) -> Result<Found> {
        if !uringload_remote::Url::is_remote(url) {
            return Err(not_read(url, remedy));
        }
        let opener = match self.opener.take() {
            Some(opener) => opener,
            None => remote::Opener::new(&self.asked)?,
        };
        self.opener.insert(opener).open(url)
    }

    #[cfg(not(feature = "remote"))]
    #[expect(clippy::unused_self, reason = "with the feature it is used")]
    fn open(&mut self, url: &[u8], remedy: &'static str) -> Result<Found> {
        if ["hf:", "hdfs:"].iter().any(|scheme| url.starts_with(scheme.as_bytes())) {
            return Err(not_read(url, remedy));
        }
        let error = uringload_core::not_built_in("object stores and HTTP", "remote");
        let or = format!("{}; or {remedy}", error.remedy().unwrap_or_default());
        Err(error.with_path(shown(url)).with_remedy(or))
    }
}

/// The listing in a file, and the URL of its store.
///
/// # Errors
/// `Truncated` for one that is cut off, `Corrupt` for what is none or was damaged, with the place; `Unavailable` for
/// one of another version; what the system says.
pub(crate) fn read_listing(place: &Place) -> Result<Listed> {
    let image = place.contents().map_err(|error| Error::io("cannot read", error).with_path(place))?;
    listed::decode(image).map_err(|Broken { offset, what, is_short, is_other }| {
        let kind = match (is_short, is_other) {
            (true, _) => ErrorKind::Truncated,
            (_, true) => ErrorKind::Unavailable,
            _ => ErrorKind::Corrupt,
        };
        let error = Error::new(kind, what).with_path(place).with_offset(offset);
        error.with_remedy("list the objects again: uringload list-objects URL -o FILE.uls")
    })
}

/// The error of the store of a listing, which says which listing.
fn within(error: Error, place: &Place) -> Error {
    let remedy = error.remedy().unwrap_or_default().to_owned();
    let what = format!("the store of the listing {} cannot be opened", place.path().display());
    Error::new(error.kind(), what).with_source(error).with_remedy(remedy)
}

fn not_read(url: &[u8], remedy: &str) -> Error {
    let what = "this is not on a file system, and not in a store that is read";
    Error::new(ErrorKind::InvalidArgument, what)
        .with_path(shown(url))
        .with_remedy(format!("{remedy}, and name the folder"))
}

/// A URL without its query, which may be a signature.
fn shown(url: &[u8]) -> String {
    String::from_utf8_lossy(url).split('?').next().unwrap_or_default().to_owned()
}
