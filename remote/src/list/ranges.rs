//! Lists ranges of keys at once. A thread lists one range; where there are few threads, the range with the most to come
//! is halved. Pages are handed on in the order of their keys, by the thread that asked.

use super::{Course, Order, note, numbered};
use crate::listing::RawPage;
use crate::middle::Looks;
use crate::store::Store;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope, scope};
use std::time::Duration;
use uringload_core::store::{Failure, Interrupt, Object, Page, Version};

/// Most ranges that are listed at once.
const RANGES_MAX: u64 = 32;
/// So many pages let one range more be listed at once, so that a short listing costs few requests more.
const PAGES_PER_RANGE: u64 = 4;
/// Requests that may find nothing: these, and one for so many pages.
const EMPTY_MAX: u64 = 2;
const PAGES_PER_EMPTY: u64 = 8;
/// A range with fewer objects to come than so many pages is not halved: each half costs a page that is not full.
const PAGES_LEAST: f64 = 8.0;
/// Bytes of pages that wait for those in front of them. Above that only the first range goes on.
const WAITING_BYTES_MAX: usize = 256 << 20;
/// How soon a cancelled listing is noticed.
const STEP: Duration = Duration::from_millis(50);
/// A page in text and the objects in it take some of it; the default of 2 MiB a thread is not needed.
const STACK_BYTES: usize = 512 << 10;

/// Lists what is behind the course's place. `Continue` if the server's order is not that of bytes: then the course
/// says behind which key the listing goes on, one page after another.
pub(super) fn list(
    store: &Store,
    prefix: &[u8],
    course: &mut Course,
    interrupt: &Interrupt,
    take: &mut dyn FnMut(Page) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Failure> {
    let (Some(first), Some(last)) = (course.first.take(), course.order.last.clone()) else {
        return Ok(ControlFlow::Continue(()));
    };
    let mut state = State {
        looks: std::mem::take(&mut course.looks),
        pages: course.listed.pages,
        most: RANGES_MAX,
        page_objects: course.listed.objects as f64 / course.listed.pages as f64,
        ..State::default()
    };
    let mut range = Range::new(0, first, last, None);
    (range.objects, range.has_begun) = (course.listed.objects, true);
    state.ranges.push_back(range);
    let work = Work {
        store,
        prefix,
        // The clouds say so; what else speaks their protocol may keep a tree of folders.
        is_by_bytes: store.is_of_cloud(),
        state: Mutex::new(state),
        changed: Condvar::new(),
    };
    let place = course.place.take();
    let listed = scope(|scope| {
        let _end = End(&work);
        work.deliver(scope, place, course, interrupt, take)
    });
    let state = work.lock();
    course.listed.pages = state.pages;
    course.after = course.order.last.clone();
    listed
}

/// Lets all threads end, also where whoever takes the pages panics.
struct End<'a, 'b>(&'a Work<'b>);

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// What the threads share.
struct Work<'a> {
    store: &'a Store,
    prefix: &'a [u8],
    is_by_bytes: bool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// In the order of their keys. Those that were handed on are not here any more.
    ranges: VecDeque<Range>,
    looks: Looks,
    next: u64,
    /// Pages that were asked for, and those of them that had nothing.
    pages: u64,
    empty: u64,
    /// Objects of a full page.
    page_objects: f64,
    /// Most ranges at once, since a server asked for fewer requests; and when that was.
    most: u64,
    throttled: u64,
    waiting_bytes: usize,
    failed: Option<Failure>,
    /// Whether keys may be in another order than that of bytes.
    is_unsure: bool,
    has_ended: bool,
}

/// The objects behind one key, up to and with another.
struct Range {
    number: u64,
    start: Vec<u8>,
    last: Vec<u8>,
    end: Option<Vec<u8>>,
    pages: VecDeque<Packed>,
    markers: u64,
    objects: u64,
    /// Whether it gave an object.
    has_begun: bool,
    is_whole: bool,
    interrupt: Interrupt,
}

impl Range {
    fn new(number: u64, start: Vec<u8>, last: Vec<u8>, end: Option<Vec<u8>>) -> Range {
        let (pages, interrupt) = (VecDeque::new(), Interrupt::new());
        Range { number, start, last, end, pages, markers: 0, objects: 0, has_begun: false, is_whole: false, interrupt }
    }
}

impl Work<'_> {
    /// Hands pages on, and starts a thread for each range. `Continue` if no thread starts, or keys are in
    /// another order.
    fn deliver<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        place: Option<String>,
        course: &mut Course,
        interrupt: &Interrupt,
        take: &mut dyn FnMut(Page) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Failure> {
        if !self.start(scope, 0, place) {
            return Ok(ControlFlow::Continue(()));
        }
        let mut number = course.listed.pages;
        loop {
            let mut state = self.lock();
            if let Some(failure) = state.failed.take() {
                return Err(failure);
            }
            while let Some(range) = state.ranges.front_mut() {
                let Some(packed) = range.pages.pop_front() else {
                    if !range.is_whole {
                        break;
                    }
                    course.listed.markers += range.markers;
                    state.ranges.pop_front();
                    continue;
                };
                state.waiting_bytes -= packed.bytes();
                drop(state);
                let objects = packed.objects(self.prefix);
                course.listed.objects += objects.len() as u64;
                course.order.last = objects.last().map(|object| object.key.clone()).or(course.order.last.take());
                number += 1;
                if take(Page { number, objects, folders: Vec::new() }).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                state = self.lock();
            }
            if state.ranges.is_empty() {
                return Ok(ControlFlow::Break(()));
            }
            if state.is_unsure {
                return Ok(ControlFlow::Continue(()));
            }
            while let Some(number) = state.halve(self.prefix) {
                drop(state);
                if !self.start(scope, number, None) {
                    return Ok(ControlFlow::Continue(()));
                }
                state = self.lock();
            }
            drop(self.changed.wait_timeout(state, STEP).unwrap_or_else(PoisonError::into_inner));
            interrupt.check()?;
        }
    }

    fn start<'scope, 'env>(&'env self, scope: &'scope Scope<'scope, 'env>, number: u64, place: Option<String>) -> bool {
        let thread = Builder::new().name("uringload-list".into()).stack_size(STACK_BYTES);
        thread.spawn_scoped(scope, move || self.range(number, place)).is_ok()
    }

    /// Lists a range, page by page.
    fn range(&self, number: u64, mut place: Option<String>) {
        let Some((mut order, interrupt)) =
            self.lock().find(number).map(|range| (Order::new(Some(range.last.clone())), range.interrupt.clone()))
        else {
            return;
        };
        loop {
            let mut state = self.lock();
            while state.waiting_bytes > WAITING_BYTES_MAX && !state.is_first(number) && !state.has_ended {
                state = self.changed.wait_timeout(state, STEP).unwrap_or_else(PoisonError::into_inner).0;
            }
            if state.has_ended {
                return;
            }
            drop(state);
            let after = order.last.as_deref().filter(|_| place.is_none());
            let query = self.store.list_query(self.prefix, false, after, place.as_deref());
            let asked = self.store.page(&query, &interrupt).and_then(|(page, is_throttled)| {
                let page = self.store.judged(page, self.prefix, place.as_deref())?;
                order.check(&page)?;
                Ok((page, is_throttled))
            });
            let mut state = self.lock();
            state.pages += 1;
            let pages = state.pages;
            let goes_on = match asked {
                Ok((page, is_throttled)) => {
                    if is_throttled {
                        state.slow_down();
                    }
                    let is_sure = self.is_by_bytes || order.is_by_bytes != order.is_by_folders;
                    state.is_unsure |= !order.is_by_bytes || !is_sure && state.is_between_orders(number, &page);
                    place.clone_from(&page.next);
                    state.push(number, page, self.prefix);
                    !state.is_unsure && state.find(number).is_some_and(|range| !range.is_whole)
                }
                Err(failure) => {
                    state.failed.get_or_insert(numbered(failure, pages));
                    false
                }
            };
            drop(state);
            self.changed.notify_all();
            if !goes_on {
                return;
            }
        }
    }

    fn end(&self) {
        let mut state = self.lock();
        state.has_ended = true;
        state.ranges.iter().for_each(|range| range.interrupt.stop());
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&mut self, number: u64) -> Option<&mut Range> {
        self.ranges.iter_mut().find(|range| range.number == number)
    }

    /// Adds what of a page is in the range.
    fn push(&mut self, number: u64, mut page: RawPage, prefix: &[u8]) {
        if self.is_unsure {
            return;
        }
        self.page_objects = self.page_objects.max(page.objects.len() as f64);
        let Some(range) = self.ranges.iter_mut().find(|range| range.number == number) else { return };
        let is_in = |key: &[u8]| range.end.as_ref().is_none_or(|end| key <= end.as_slice());
        let all = page.objects.len();
        page.objects.truncate(page.objects.partition_point(|object| is_in(&object.key)));
        range.markers += page.markers.iter().filter(|key| is_in(key)).count() as u64;
        range.is_whole = page.next.is_none() || page.objects.len() < all || !page.markers.iter().all(|key| is_in(key));
        if let Some(object) = page.objects.last() {
            range.has_begun = true;
            range.last.clone_from(&object.key);
            range.objects += page.objects.len() as u64;
            let packed = Packed::new(&page.objects, prefix);
            self.waiting_bytes += packed.bytes();
            range.pages.push_back(packed);
            note(&mut self.looks, &page.objects, prefix);
        } else if range.is_whole && !range.has_begun {
            self.empty += 1;
        }
    }

    /// Whether a key of the page is in front of the range's end in one of two orders, and behind it in the other.
    fn is_between_orders(&mut self, number: u64, page: &RawPage) -> bool {
        let Some(end) = self.find(number).and_then(|range| range.end.as_ref()) else { return false };
        page.objects.iter().any(|object| {
            let differs = object.key.iter().zip(end).find(|(one, other)| one != other);
            differs.is_some_and(|(&one, &other)| one == b'/' && other < b'/' || other == b'/' && one < b'/')
        })
    }

    /// A server asked for fewer requests: so many at once, once for all that were under way.
    fn slow_down(&mut self) {
        let open = self.open();
        if self.pages >= self.throttled {
            self.most = (open / 2).max(1);
            self.throttled = self.pages + open;
        }
    }

    fn is_first(&self, number: u64) -> bool {
        self.ranges.front().is_some_and(|range| range.number == number)
    }

    fn open(&self) -> u64 {
        self.ranges.iter().filter(|range| !range.is_whole).count() as u64
    }

    /// Halves the range with the most objects to come, if one more may be listed. The number of the new range.
    fn halve(&mut self, prefix: &[u8]) -> Option<u64> {
        let (open, pages) = (self.open(), self.pages);
        let quiet = pages.saturating_sub(self.throttled) / PAGES_PER_RANGE;
        let most = if self.throttled > 0 { (self.most + quiet).min(RANGES_MAX) } else { self.most };
        let pending = self.ranges.iter().filter(|range| !range.has_begun && !range.is_whole).count() as u64;
        if open > (pages / PAGES_PER_RANGE).min(most - 1)
            || self.empty + pending >= EMPTY_MAX + pages / PAGES_PER_EMPTY
            || self.waiting_bytes > WAITING_BYTES_MAX
        {
            return None;
        }
        let least = PAGES_LEAST * self.page_objects;
        let open = self.ranges.iter().enumerate().filter(|(_, range)| range.has_begun && !range.is_whole);
        let mut rests: Vec<(f64, usize)> =
            open.map(|(at, range)| (self.rest(range, prefix), at)).filter(|&(rest, _)| rest >= least).collect();
        rests.sort_by(|one, other| other.0.total_cmp(&one.0));
        for (_, at) in rests {
            let range = &self.ranges[at];
            let end = range.end.as_ref().map(|end| &end[prefix.len()..]);
            let Some(name) = self.looks.middle(&range.last[prefix.len()..], end) else { continue };
            let middle = [prefix, &name].concat();
            self.next += 1;
            let end = self.ranges[at].end.replace(middle.clone());
            self.ranges.insert(at + 1, Range::new(self.next, middle.clone(), middle, end));
            return Some(self.next);
        }
        None
    }

    /// Objects that are to come.
    fn rest(&self, range: &Range, prefix: &[u8]) -> f64 {
        // Nothing is known of what is behind the last key: it may be all.
        let Some(end) = &range.end else { return f64::MAX };
        let [start, last, end] = [&range.start, &range.last, end].map(|key| &key[prefix.len()..]);
        match self.looks.rest(start, last, Some(end)) {
            Some(rest) => range.objects as f64 * rest,
            None => 0.0,
        }
    }
}

/// A page that waits for those in front of it: 20 bytes an object in addition to its name.
struct Packed {
    names: Vec<u8>,
    objects: Vec<(u32, u64, u64)>,
}

impl Packed {
    fn new(objects: &[Object], prefix: &[u8]) -> Packed {
        let mut packed = Packed {
            names: Vec::with_capacity(objects.iter().map(|object| object.key.len() - prefix.len()).sum()),
            objects: Vec::with_capacity(objects.len()),
        };
        for object in objects {
            packed.names.extend_from_slice(&object.key[prefix.len()..]);
            // Fits: a page has 32 MiB at most.
            let place = packed.names.len() as u32;
            packed.objects.push((place, object.size, object.version.map_or(0, Version::to_bits)));
        }
        packed
    }

    fn bytes(&self) -> usize {
        self.names.len() + size_of_val(&self.objects[..])
    }

    fn objects(&self, prefix: &[u8]) -> Vec<Object> {
        let mut start = 0;
        let object = |&(end, size, version): &(u32, u64, u64)| {
            let key = [prefix, &self.names[start..end as usize]].concat();
            start = end as usize;
            Object { key, size, version: Version::from_bits(version) }
        };
        self.objects.iter().map(object).collect()
    }
}
