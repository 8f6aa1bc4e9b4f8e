//! What lies in a store. Each question is answered from what was listed before, where that covers it.

use super::Stat;
use super::again::again;
use super::listing::Listing;
use crate::watched::asking;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use uringload_core::store::{Class, Failure, Interrupt, ListOptions, Object, Page, Store, Version};

/// Objects of one page after which another may follow: no server has shorter ones.
const PAGE_LEAST: usize = 100;

/// Keys that are asked for one by one: more are listed together.
const ASKED_ONE_BY_ONE: usize = 16;

/// For how long a store that could not answer is not asked again: the client has asked several times, and who opens a
/// dataset asks for several keys.
const REST: Duration = Duration::from_secs(5);

/// A store, and what is known of its objects.
pub(crate) struct Tree {
    store: Arc<dyn Store>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    listings: Vec<Arc<Listing>>,
    /// What was asked for one by one.
    asked: HashMap<Vec<u8>, Option<Found>>,
    /// Why it did not answer, and when.
    failed: Option<(Instant, Failure)>,
}

/// What is there, and which content it has.
type Found = (Stat, Option<Version>);

impl Tree {
    pub(crate) fn new(store: Arc<dyn Store>) -> Tree {
        Tree { store, known: Mutex::default() }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// What messages call an object.
    pub(crate) fn shown(&self, key: &[u8]) -> PathBuf {
        self.store.shown(key)
    }

    /// What has this key: an object, or a folder, which is what some keys begin with and a slash. An object with bytes
    /// hides a folder of its name.
    ///
    /// # Errors
    /// `NotFound`; what the store says.
    pub(crate) fn stat(&self, key: &[u8]) -> io::Result<Found> {
        let listing = self.covering(key);
        let found = match listing {
            Some(listing) => of_listing(&listing, key),
            None => {
                let asked = self.known().asked.get(key).copied();
                match asked {
                    Some(found) => found,
                    None => {
                        let found = self.ask(key).map_err(|failure| self.failed(failure, key))?;
                        self.known().asked.insert(key.to_vec(), found);
                        found
                    }
                }
            }
        };
        // ENOENT, as a file system says it: who asks knows it by that.
        found.ok_or_else(|| io::Error::from_raw_os_error(rustix::io::Errno::NOENT.raw_os_error()))
    }

    /// All objects whose keys begin with `prefix`.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) fn all(&self, prefix: &[u8]) -> io::Result<Arc<Listing>> {
        if let Some(listing) = self.known().listings.iter().find(|listing| listing.prefix() == prefix) {
            return Ok(Arc::clone(listing));
        }
        let mut listing = Listing::new(prefix);
        let take = &mut |page: Page| {
            page.objects.iter().for_each(|object| listing.push(object));
            ControlFlow::Continue(())
        };
        self.list(prefix, false, take).map_err(|failure| self.failed(failure, prefix))?;
        let listing = Arc::new(listing.sorted());
        self.known().listings.push(Arc::clone(&listing));
        Ok(listing)
    }

    /// Answers from this listing of a folder from now on.
    pub(crate) fn know(&self, listing: Listing) {
        let mut known = self.known();
        // Its keys do not tell whether an object has the folder's own name.
        let key = listing.prefix().strip_suffix(b"/").unwrap_or(listing.prefix()).to_vec();
        known.asked.insert(key, Some(FOLDER));
        known.listings.insert(0, Arc::new(listing));
    }

    /// The names whose keys are `inside` and they, and whether each is a folder: `inside` ends in a slash or is empty.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) fn children(&self, inside: &[u8]) -> io::Result<Vec<(Vec<u8>, bool)>> {
        let mut children: Vec<(Vec<u8>, bool)> = Vec::new();
        if let Some(listing) = self.covering(inside) {
            let start = &inside[listing.prefix().len()..];
            let mut walk = listing.from(inside);
            while let Some(name) =
                Some(walk.name()).filter(|_| walk.is_at_one()).and_then(|name| name.strip_prefix(start))
            {
                let (child, is_folder) = match name.iter().position(|&byte| byte == b'/') {
                    Some(slash) => (&name[..slash], true),
                    None => (name, false),
                };
                if children.last().is_none_or(|(last, was_folder)| (&last[..], *was_folder) != (child, is_folder)) {
                    children.push((child.to_vec(), is_folder));
                }
                walk.next();
            }
            return Ok(children);
        }
        let take = &mut |page: Page| {
            let folders = page.folders.iter().map(|key| (key.strip_suffix(b"/").unwrap_or(key), true));
            let objects = page.objects.iter().map(|object| (&object.key[..], false));
            children.extend(folders.chain(objects).map(|(key, is_folder)| (key[inside.len()..].to_vec(), is_folder)));
            ControlFlow::Continue(())
        };
        self.list(inside, true, take).map_err(|failure| self.failed(failure, inside))?;
        Ok(children)
    }

    /// Lists what the keys of a folder have in common, if that takes fewer requests than to ask for each. Folders are
    /// listed each by itself: what they have in common may be a whole bucket.
    ///
    /// # Errors
    /// What the store says.
    pub(crate) fn expect(&self, keys: &[&[u8]]) -> io::Result<()> {
        let mut folders: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
        for &key in keys.iter().filter(|key| self.covering(key).is_none()) {
            let name = key.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
            folders.entry(&key[..name]).or_default().push(key);
        }
        for unknown in folders.values().filter(|keys| keys.len() > ASKED_ONE_BY_ONE && self.store.lists()) {
            let first = unknown[0];
            let common = unknown.iter().fold(first.len(), |common, key| {
                first[..common].iter().zip(*key).take_while(|(one, other)| one == other).count()
            });
            self.all(&first[..common])?;
        }
        Ok(())
    }

    /// Asks anew from now on.
    pub(crate) fn forget(&self) {
        *self.known() = Known::default();
    }

    fn covering(&self, start: &[u8]) -> Option<Arc<Listing>> {
        self.known().listings.iter().find(|listing| listing.covers(start)).cloned()
    }

    /// Asks the store what has this key, in a request or two.
    fn ask(&self, key: &[u8]) -> Result<Option<Found>, Failure> {
        if !self.store.lists() {
            return self.ask_for_object(key);
        }
        let inside = if key.is_empty() { Vec::new() } else { [key, b"/"].concat() };
        let (mut object, mut is_folder, mut is_full) = (None, false, false);
        // The key itself is the first of all that begin with it.
        let alike = self.list(key, true, &mut |page: Page| {
            is_folder = page.folders.contains(&inside) || key.is_empty();
            is_full = page.objects.len() + page.folders.len() >= PAGE_LEAST;
            object = page.objects.into_iter().find(|object| object.key == key);
            ControlFlow::Break(())
        });
        // A right may be of what lies in the folder alone, and not of all that begins like its name.
        let refused = alike.err();
        if let Some(failure) = refused.as_ref().filter(|failure| failure.class() != Class::Refused) {
            return Err(failure.clone());
        }
        if !is_folder && (is_full || refused.is_some()) {
            let inside = self.list(&inside, true, &mut |page: Page| {
                is_folder = !page.objects.is_empty() || !page.folders.is_empty();
                ControlFlow::Break(())
            });
            inside.map_err(|failure| refused.unwrap_or(failure))?;
        }
        Ok(object.filter(|object| object.size > 0 || !is_folder).map(of_object).or(is_folder.then_some(FOLDER)))
    }

    /// Asks for the first byte: a store without a listing has no folders.
    fn ask_for_object(&self, key: &[u8]) -> Result<Option<Found>, Failure> {
        let ask = || {
            let _asking = asking(&self.shown(key));
            self.store.read(key, 0, &mut [0], None, &Interrupt::new())
        };
        match self.rested(|| again(ask)) {
            Ok(read) => {
                let (bytes, version) = (read.total.unwrap_or(read.bytes as u64), read.version);
                Ok(Some((Stat { is_folder: false, is_file: true, bytes }, version)))
            }
            Err(failure) if failure.class() == Class::Missing => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn list(&self, prefix: &[u8], folders: bool, take: &mut dyn FnMut(Page) -> ControlFlow<()>) -> Result<(), Failure> {
        let asking = asking(&self.shown(prefix));
        let options = ListOptions { folders, ..ListOptions::default() };
        let mut take = |page| {
            asking.again();
            take(page)
        };
        self.rested(|| self.store.list(prefix, &options, &Interrupt::new(), &mut take)).map(drop)
    }

    /// What `ask` is answered, or why the last one was not if that was a moment ago.
    fn rested<T>(&self, ask: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        let last = self.known().failed.clone();
        if let Some((_, failure)) = last.filter(|(when, _)| when.elapsed() < REST) {
            return Err(failure);
        }
        ask().inspect_err(|failure| {
            if matches!(failure.class(), Class::Storage | Class::Foreign | Class::Throttled) {
                self.known().failed = Some((Instant::now(), failure.clone()));
            }
        })
    }

    fn failed(&self, failure: Failure, key: &[u8]) -> io::Error {
        io::Error::other(failure.into_error(&self.shown(key)))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const FOLDER: Found = (Stat { is_folder: true, is_file: false, bytes: 0 }, None);

fn of_object(object: Object) -> Found {
    (Stat { is_folder: false, is_file: true, bytes: object.size }, object.version)
}

fn of_listing(listing: &Listing, key: &[u8]) -> Option<Found> {
    let inside = if key.is_empty() { Vec::new() } else { [key, b"/"].concat() };
    // A store is a folder though it is empty.
    let is_folder = key.is_empty() || listing.covers(&inside) && listing.has_inside(&inside);
    let object = listing.find(key).filter(|&(bytes, _)| bytes > 0 || !is_folder);
    let object = object.map(|(bytes, version)| (Stat { is_folder: false, is_file: true, bytes }, version));
    object.or(is_folder.then_some(FOLDER))
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tree({})", self.shown(b"").display())
    }
}
