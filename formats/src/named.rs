//! What a user names: paths of a file system, and URLs of objects.

#[cfg(feature = "remote")]
mod remote;

use crate::find::names::elsewhere;
use crate::options::{Namer, Options, options};
use crate::place::{Place, Tree};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
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
        let Some(remedy) = elsewhere(named).filter(|_| !place.is_taken()) else { return Ok(place) };
        let Found { store, key, is_own } = self.find(named, remedy)?;
        let key = key.strip_suffix(b"/").unwrap_or(&key).to_vec();
        let tree = || Arc::new(Tree::new(Arc::clone(&store)));
        let tree = if is_own { tree() } else { Arc::clone(self.trees.entry(store.shown(b"")).or_insert_with(tree)) };
        Ok(Place::far(tree, key))
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
