//! What the servers of a loader's stores were asked and gave, each server once.

use std::sync::Arc;
use uringload_core::store::{Counts, Store};

/// The stores of a loader, with what they had counted before it.
#[derive(Debug)]
pub(super) struct Endpoints(Vec<(Arc<dyn Store>, Counts)>);

impl Endpoints {
    /// Each store counts once, however many roots it has.
    pub(super) fn new<'a>(stores: impl Iterator<Item = &'a Arc<dyn Store>>) -> Endpoints {
        let mut found: Vec<(Arc<dyn Store>, Counts)> = Vec::new();
        for store in stores {
            if !found.iter().any(|(known, _)| Arc::ptr_eq(known, store)) {
                found.push((Arc::clone(store), store.counts().unwrap_or_default()));
            }
        }
        Endpoints(found)
    }

    /// The counts since then, by server.
    pub(super) fn now(&self) -> Vec<Counts> {
        let counts = self.0.iter().filter_map(|(store, before)| Some(store.counts()?.since(before)));
        counts.fold(Vec::new(), |mut all: Vec<Counts>, one| {
            match all.iter_mut().find(|other| other.endpoint == one.endpoint) {
                Some(other) => *other = other.and(&one),
                None => all.push(one),
            }
            all
        })
    }
}

/// What came after `earlier`.
pub(super) fn since(now: &[Counts], earlier: &[Counts]) -> Vec<Counts> {
    let before = |one: &Counts| earlier.iter().find(|other| other.endpoint == one.endpoint);
    now.iter().map(|one| before(one).map_or_else(|| one.clone(), |before| one.since(before))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::ControlFlow;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU64, Ordering};
    use uringload_core::store::{Failure, Interrupt, ListOptions, Listed, Page, Read, Version};

    /// A store that was asked that often.
    #[derive(Debug)]
    struct Asked(AtomicU64, &'static str);

    impl Store for Asked {
        fn shown(&self, _: &[u8]) -> PathBuf {
            PathBuf::new()
        }

        fn read(&self, _: &[u8], _: u64, _: &mut [u8], _: Option<Version>, _: &Interrupt) -> Result<Read, Failure> {
            unreachable!()
        }

        fn lists(&self) -> bool {
            false
        }

        fn list(
            &self,
            _: &[u8],
            _: &ListOptions,
            _: &Interrupt,
            _: &mut dyn FnMut(Page) -> ControlFlow<()>,
        ) -> Result<Listed, Failure> {
            unreachable!()
        }

        fn counts(&self) -> Option<Counts> {
            let requests = self.0.load(Ordering::Relaxed);
            (!self.1.is_empty()).then(|| Counts { endpoint: self.1.to_owned(), requests, ..Counts::default() })
        }
    }

    #[test]
    fn servers_are_counted_once_and_from_the_beginning() {
        let stores = [("a", 5), ("a", 7), ("b", 100), ("", 3)];
        let stores = stores.map(|(name, requests)| Arc::new(Asked(AtomicU64::new(requests), name)));
        let all: Vec<Arc<dyn Store>> = stores.iter().map(|store| Arc::clone(store) as Arc<dyn Store>).collect();
        let endpoints = Endpoints::new(all.iter().chain(&all));
        for store in &stores {
            store.0.fetch_add(10, Ordering::Relaxed);
        }
        let now = endpoints.now();
        let told = |counts: &[Counts]| -> Vec<(String, u64)> {
            counts.iter().map(|one| (one.endpoint.clone(), one.requests)).collect()
        };
        assert_eq!(told(&now), [("a".to_owned(), 20), ("b".to_owned(), 10)]);
        stores[2].0.fetch_add(1, Ordering::Relaxed);
        assert_eq!(told(&since(&endpoints.now(), &now)), [("a".to_owned(), 0), ("b".to_owned(), 1)]);
    }
}
