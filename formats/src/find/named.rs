//! What a user names: paths of a file system, and URLs of objects.

use crate::place::{Place, Tree};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload_core::store::Store;
use uringload_core::{Error, ErrorKind, Result};

/// Schemes of what is not on a file system, and how to bring it there.
const REMOTE: [(&str, &str); 9] = [
    ("s3", "copy it (aws s3 sync, s5cmd) or mount it (mount-s3)"),
    ("gs", "copy it (gcloud storage rsync) or mount it (gcsfuse)"),
    ("az", "copy it (azcopy) or mount it (blobfuse2)"),
    ("abfs", "copy it (azcopy) or mount it (blobfuse2)"),
    ("abfss", "copy it (azcopy) or mount it (blobfuse2)"),
    ("hf", "download it: hf download NAME --repo-type dataset --local-dir DIR"),
    ("hdfs", "copy it: hdfs dfs -get"),
    ("http", "download it"),
    ("https", "download it"),
];

/// Where URLs lead.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stores {
    /// What the URLs of a store's objects begin with, and the store.
    pub(crate) given: Vec<(String, Arc<dyn Store>)>,
}

/// The places that these paths and URLs name.
///
/// # Errors
/// `InvalidArgument` for a URL that no store has.
pub(crate) fn places<P: AsRef<Path>>(named: &[P], stores: &Stores) -> Result<Vec<Place>> {
    let mut trees = BTreeMap::new();
    named.iter().map(|named| place(named.as_ref(), stores, &mut trees)).collect()
}

/// `trees` has the stores of this call by what messages call them: what was listed of one is known to all its places.
fn place(named: &Path, stores: &Stores, trees: &mut BTreeMap<PathBuf, Arc<Tree>>) -> Result<Place> {
    let place = Place::new(named);
    let Some(remedy) = elsewhere(named).filter(|_| !place.is_taken()) else { return Ok(place) };
    let (store, key) = store_of(named.as_os_str().as_bytes(), stores, remedy)?;
    let tree = trees.entry(store.shown(b"")).or_insert_with(|| Arc::new(Tree::new(store)));
    Ok(Place::far(Arc::clone(tree), key))
}

/// What to do about a URL that cannot be read; `None` for what is none.
pub(super) fn elsewhere(named: &Path) -> Option<&'static str> {
    let (scheme, _) = named.to_str()?.split_once("://")?;
    REMOTE.iter().find(|(known, _)| scheme.eq_ignore_ascii_case(known)).map(|(_, remedy)| *remedy)
}

/// The store of a URL, and the key that it names there, without a slash at its end.
fn store_of(url: &[u8], stores: &Stores, remedy: &'static str) -> Result<(Arc<dyn Store>, Vec<u8>)> {
    let given = stores.given.iter().rev().find(|(start, _)| url.starts_with(start.as_bytes()));
    if let Some((start, store)) = given {
        let key = &url[start.len()..];
        return Ok((Arc::clone(store), key.strip_suffix(b"/").unwrap_or(key).to_vec()));
    }
    let what = "this is not on a file system, and only files of one are read";
    let error = Error::new(ErrorKind::InvalidArgument, what).with_path(String::from_utf8_lossy(url).as_ref());
    Err(error.with_remedy(format!("{remedy}, and name the folder")))
}
