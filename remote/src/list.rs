//! Lists a store page by page. What a server says of the next page is checked, so that no listing goes on for ever.

mod ranges;

use crate::exchange::Head;
use crate::listing::{RawPage, parse};
use crate::middle::Looks;
use crate::store::Store;
use crate::url::{Scheme, encode_query};
use std::ops::ControlFlow;
use std::time::Duration;
use uringload_core::Cause;
use uringload_core::store::{Class, Failure, Interrupt, ListOptions, Listed, Object, Page, again};

/// Longest page, in bytes: 1000 keys of 1 KiB, each letter encoded, are 3 MiB; Azure gives 5000.
const PAGE_BYTES_MAX: usize = 32 << 20;
/// Pages that are listed one after another before several are asked for at once: what is short costs no request more.
const PAGES_ALONE: u64 = 4;
/// Of so many names one is looked at.
const NOTED_EVERY: usize = 8;
/// How long a page is asked for that a server throttles, or that does not come: nothing above asks for one again.
const THROTTLED_FOR: Duration = Duration::from_secs(120);
const UNREACHED_FOR: Duration = Duration::from_secs(5);

impl Store {
    /// Lists the objects whose keys begin with `prefix`, and gives each page to `take` until that breaks. A page that
    /// a server throttles is asked for for two minutes, one that does not come for 5 s.
    ///
    /// Behind the first few pages, where the store can begin a listing anywhere, ranges of keys are listed at once and
    /// joined in order ([`ranges`]). Threads for them end before this returns.
    ///
    /// # Errors
    ///
    /// [`Class::Unavailable`] of HTTP, which has no listings; [`Class::Corrupt`] with the number of the page if it is
    /// cut off, repeats the place of the page before, or its keys do not ascend.
    pub(crate) fn pages(
        &self,
        prefix: &[u8],
        options: &ListOptions,
        interrupt: &Interrupt,
        take: &mut dyn FnMut(Page) -> ControlFlow<()>,
    ) -> Result<Listed, Failure> {
        if matches!(self.url().scheme(), Scheme::Http | Scheme::Https) {
            let failure = Failure::new(Class::Unavailable, "a server of HTTP has no listing");
            return Err(failure.with_remedy("name the objects one by one, or give a dataset with an index"));
        }
        // Azure has no beginning but the first key, and what is folded may come again behind a beginning.
        let is_azure = self.url().scheme() == Scheme::Azure;
        let mut is_split = !is_azure && !options.folders;
        let mut course = Course::new(options.after.clone());
        loop {
            if is_split && course.listed.pages >= PAGES_ALONE && course.order.is_by_bytes {
                is_split = false;
                if ranges::list(self, prefix, &mut course, interrupt, take)?.is_break() {
                    return Ok(course.listed);
                }
            }
            course.listed.pages += 1;
            let number = course.listed.pages;
            let after = course.after.as_deref().filter(|_| course.place.is_none());
            let query = self.list_query(prefix, options.folders, after, course.place.as_deref());
            let asked = self.page(&query, interrupt).and_then(|(page, _)| {
                let mut page = self.judged(page, prefix, course.place.as_deref())?;
                if is_azure {
                    page.objects.retain(|object| options.after.as_ref().is_none_or(|after| object.key > *after));
                    page.folders_after(options.after.as_deref());
                } else {
                    course.order.check(&page)?;
                }
                Ok(page)
            });
            let page = asked.map_err(|failure| numbered(failure, number))?;
            if is_split {
                course.note(&page.objects, prefix);
            }
            course.listed.objects += page.objects.len() as u64;
            course.listed.markers += page.markers.len() as u64;
            course.place = page.next;
            let given = take(Page { number, objects: page.objects, folders: page.prefixes });
            if given.is_break() || course.place.is_none() {
                return Ok(course.listed);
            }
        }
    }

    /// A page that says nothing against the question.
    fn judged(&self, page: RawPage, prefix: &[u8], place: Option<&str>) -> Result<RawPage, Failure> {
        if page.next.is_some() && page.next.as_deref() == place {
            return Err(corrupt("says that the next page is this one"));
        }
        if page.has_weak_etag {
            self.note(Cause::WeakEtag);
        }
        if page.objects.iter().any(|object| !object.key.starts_with(prefix)) {
            return Err(corrupt("has a key that was not asked for"));
        }
        Ok(page)
    }

    /// The query of a page: its names in ascending order, as a signature wants them.
    fn list_query(&self, prefix: &[u8], folders: bool, after: Option<&[u8]>, place: Option<&str>) -> String {
        let place = place.map(str::as_bytes);
        let delimiter = folders.then_some(&b"/"[..]);
        let pairs: [(&str, Option<&[u8]>); 6] = match self.url().scheme() {
            Scheme::Azure => [
                ("comp", Some(b"list")),
                ("delimiter", delimiter),
                ("marker", place),
                ("maxresults", Some(b"5000")),
                ("prefix", Some(prefix)),
                ("restype", Some(b"container")),
            ],
            _ => [
                ("continuation-token", place),
                ("delimiter", delimiter),
                ("encoding-type", Some(b"url")),
                ("list-type", Some(b"2")),
                ("prefix", Some(prefix)),
                ("start-after", after),
            ],
        };
        let mut query = String::new();
        for (name, value) in pairs.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            query.push_str(if query.is_empty() { "" } else { "&" });
            query.push_str(name);
            query.push('=');
            encode_query(value, &mut query);
        }
        query
    }

    /// Asks for a page until it comes; also whether a server asked for fewer requests meanwhile.
    fn page(&self, query: &str, interrupt: &Interrupt) -> Result<(RawPage, bool), Failure> {
        let mut is_throttled = false;
        let limit = |class| match class {
            Class::Throttled => Some(THROTTLED_FOR),
            Class::Storage | Class::Foreign => Some(UNREACHED_FOR),
            _ => None,
        };
        let ask = || {
            let mut page = None;
            self.endpoint.note_list();
            let asked = self.ask(None, query, None, false, interrupt, &mut |answer| {
                not_encoded(&answer.head)?;
                page = Some(parse(&answer.collect(PAGE_BYTES_MAX)?)?);
                Ok(())
            });
            let failure = match (asked, page) {
                (Ok(None), Some(page)) => return Ok(page),
                (Ok(refusal), _) => refusal.map_or_else(|| corrupt("is empty"), |refusal| refusal.failure),
                (Err(failure), _) => failure,
            };
            interrupt.watch(None)?;
            is_throttled |= failure.class() == Class::Throttled;
            Err(failure)
        };
        let page = again(limit, || interrupt.check(), ask)?;
        Ok((page, is_throttled))
    }
}

/// How far a listing has come.
struct Course {
    listed: Listed,
    /// Where the next page begins: at the server's mark, or else behind this key.
    place: Option<String>,
    after: Option<Vec<u8>>,
    order: Order,
    /// The first key, and what the names behind the prefix look like.
    first: Option<Vec<u8>>,
    looks: Looks,
}

impl Course {
    fn new(after: Option<Vec<u8>>) -> Course {
        let (order, looks) = (Order::new(after.clone()), Looks::default());
        Course { listed: Listed::default(), place: None, after, order, first: None, looks }
    }

    fn note(&mut self, objects: &[Object], prefix: &[u8]) {
        if let Some(object) = objects.first() {
            self.first.get_or_insert_with(|| object.key.clone());
        }
        note(&mut self.looks, objects, prefix);
    }
}

/// Notes what some of the names look like, and the last.
fn note(looks: &mut Looks, objects: &[Object], prefix: &[u8]) {
    let some = objects.iter().step_by(NOTED_EVERY).chain(objects.last());
    some.for_each(|object| looks.note(&object.key[prefix.len()..]));
}

/// The order of a listing, which shows that no key comes twice and that it ends.
struct Order {
    last: Option<Vec<u8>>,
    /// Byte by byte, as S3 and GCS list.
    is_by_bytes: bool,
    /// With `/` before every other byte, as servers that keep a tree of folders list (SeaweedFS).
    is_by_folders: bool,
}

impl Order {
    fn new(after: Option<Vec<u8>>) -> Order {
        Order { last: after, is_by_bytes: true, is_by_folders: true }
    }

    fn check(&mut self, page: &RawPage) -> Result<(), Failure> {
        if page.objects.iter().all(|object| self.goes_on(&object.key)) {
            return Ok(());
        }
        Err(corrupt("has a key that is not behind the one before it"))
    }

    /// Whether `key` is behind all before it, in one and the same order.
    fn goes_on(&mut self, key: &[u8]) -> bool {
        if let Some(last) = &self.last {
            let differs = last.iter().zip(key).find(|(one, other)| one != other);
            let (by_bytes, by_folders) = match differs {
                // A slash is before every other, and nothing before a slash.
                Some((&one, &other)) => (one < other, other != b'/' && (one == b'/' || one < other)),
                None => (last.len() < key.len(), last.len() < key.len()),
            };
            self.is_by_bytes &= by_bytes;
            self.is_by_folders &= by_folders;
        }
        match &mut self.last {
            Some(last) => key.clone_into(last),
            None => self.last = Some(key.to_vec()),
        }
        self.is_by_bytes || self.is_by_folders
    }
}

impl RawPage {
    fn folders_after(&mut self, after: Option<&[u8]>) {
        self.prefixes.retain(|folder| after.is_none_or(|after| folder.as_slice() > after));
    }
}

fn not_encoded(head: &Head) -> Result<(), Failure> {
    match &head.encoding {
        Some(encoding) => Err(corrupt(&format!("is sent as Content-Encoding: {encoding}"))),
        None => Ok(()),
    }
}

fn corrupt(what: &str) -> Failure {
    Failure::new(Class::Corrupt, format!("the listing {what}"))
}

/// The same failure with the number of the page.
fn numbered(failure: Failure, number: u64) -> Failure {
    failure.within(&format!("page {number} of the listing"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;

    fn goes_on(keys: &[Vec<u8>]) -> bool {
        let mut order = Order::new(None);
        keys.iter().all(|key| order.goes_on(key))
    }

    #[test]
    fn both_orders_go_on_and_no_key_comes_twice() {
        let mut draws = Draws::new(31);
        for _ in 0..500 {
            let mut keys: Vec<Vec<u8>> = (0..20).map(|_| draws.text(1..=6).into_bytes()).collect();
            keys.sort();
            keys.dedup();
            assert!(goes_on(&keys));
            keys.sort_by_key(|key| key.iter().map(|&byte| if byte == b'/' { 0 } else { byte }).collect::<Vec<_>>());
            assert!(goes_on(&keys));
            let again = draws.below(0..=keys.len() - 1);
            keys.push(keys[again].clone());
            assert!(!goes_on(&keys));
        }
    }

    #[test]
    fn orders_are_not_mixed() {
        let keys = |text: &str| text.split(' ').map(|key| key.as_bytes().to_vec()).collect::<Vec<_>>();
        assert!(goes_on(&keys("a a-b a/b")) && goes_on(&keys("a a/b a-b")));
        assert!(!goes_on(&keys("a a-b a/b b/c b-c")));
    }
}
