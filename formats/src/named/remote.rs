//! Opens the stores of URLs: S3, GCS, Azure, HTTP.

use super::StoreOptions;
use std::env::vars_os;
use std::sync::Arc;
use uringload_core::Result;
use uringload_core::store::Store;
use uringload_remote::{Access, AccessOptions, Url};

/// What opens stores. They share connections and credentials.
pub(super) struct Opener(Access);

impl Opener {
    /// # Errors
    /// `InvalidArgument` for a proxy or a file of certificates that is none.
    pub(super) fn new(asked: &StoreOptions) -> Result<Opener> {
        let StoreOptions { endpoint, region, anonymous, ca_file, allow_http, requester_pays, common } = asked.clone();
        let options = AccessOptions {
            endpoint,
            region,
            anonymous,
            ca_file,
            allow_http,
            requester_pays,
            ..AccessOptions::default()
        };
        let access =
            if common.environment { Access::from_environment(options, vars_os()) } else { Access::new(options) };
        access.map(Opener)
    }

    /// The store of a URL, and the key that it names there. A query is a signature or a version of this URL alone, so
    /// its store is for no other: then `is_own`.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no URL of a store, `Unavailable` for one that is not read.
    pub(super) fn open(&self, url: &[u8]) -> Result<super::Found> {
        let url = Url::parse(url)?;
        let store: Arc<dyn Store> = Arc::new(uringload_remote::Store::open(&url, &self.0)?);
        Ok(super::Found { store, key: url.key().to_vec(), is_own: url.has_query() })
    }
}
