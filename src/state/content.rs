//! Hashes some bytes of a dataset for its state: the index of a folder or of records has only names and sizes, which
//! other files may have too.

use super::json::corrupt;
use super::mismatch;
use crate::dataset::inspect::{
    CONTENT_FILES_MAX, CONTENT_GROUPS, content_files, content_group, content_of_file, content_of_group,
};
use crate::dataset::{Dataset, FileId, FileTable};
use crate::patience::Patience;
use crate::sampler::hash;
use crate::{Error, Result};
use std::fmt::{self, Write};
use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Approximate number of hexadecimal digits of all hashes together, and digits of each. A state stays small, and a file
/// that differs can be named.
const DIGITS: usize = 256;
const DIGITS_LEAST: usize = 4;
const DIGITS_MOST: usize = 16;

/// Hexadecimal digits of the hash of a group.
const GROUP_DIGITS: usize = 4;

/// How long to wait for the next answer, on a disk that a loader keeps busy.
const ANSWERS: Duration = Duration::from_secs(5);

/// The files may be on a disk that answers several questions at a time.
const THREADS: usize = 8;

/// The same of a store of objects, where each question takes some tens of milliseconds.
const FAR_THREADS: usize = 64;

/// How long hashing groups may take in the background: a disk with heads takes seconds.
const GROUPS_PATIENCE: Duration = Duration::from_secs(3);

/// How long a state waits for the hashes. They take some milliseconds, unless the storage does not answer: then the
/// state must come anyway.
const PATIENCE: Duration = Duration::from_secs(1);

/// Hashes of a few blocks of some files: without names and times, so that every copy of a dataset has the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// A hash of the files' sizes. Shards that were compressed since have the same samples in different files, which
    /// cannot be compared.
    sizes: u64,
    /// By examined file; `None` for one that could not be read.
    hashes: Vec<Option<u64>>,
    /// By group of neighbouring files, with one block of each file; `None` for a group that could not be read, or not
    /// in time. Empty if there are few files, and in states of earlier versions.
    groups: Vec<Option<u64>>,
}

impl Content {
    /// Hashes the files that are examined one by one. `None` if none of them can be read, or answers.
    pub(crate) fn of(dataset: &Arc<dyn Dataset>, patience: &Patience) -> Option<Content> {
        let files = dataset.files();
        let sizes = content_files(files).into_iter().fold(0, |sum, file| hash(sum ^ files.size(file)));
        let hashes = content_hashes(dataset, patience);
        let digits = digits(hashes.len());
        let shortened = |hash: u64| (hash >> (4 * (DIGITS_MOST - digits))).max(1);
        let hashes: Vec<Option<u64>> = hashes.into_iter().map(|hash| hash.map(shortened)).collect();
        hashes.iter().any(Option::is_some).then_some(Content { sizes, hashes, groups: Vec::new() })
    }

    /// Also hashes groups of files, if there are more files than are examined one by one, within [`GROUPS_PATIENCE`].
    /// Not of objects: thousands of requests take longer, and each costs money.
    fn with_groups(mut self, dataset: &Arc<dyn Dataset>, patience: &Patience) -> Content {
        if dataset.files().len() <= CONTENT_FILES_MAX || dataset.files().has_objects() {
            return self;
        }
        let shortened = |hash: u64| (hash >> (4 * (DIGITS_MOST - GROUP_DIGITS))).max(1);
        let (asked, deadline) = (Arc::clone(dataset), Instant::now() + GROUPS_PATIENCE);
        let groups = move |group: usize| content_of_group(asked.files(), group, deadline);
        let groups = patience.at_least(GROUPS_PATIENCE).ask(CONTENT_GROUPS, THREADS, groups);
        self.groups = groups.into_iter().map(|hash| hash.flatten().map(shortened)).collect();
        if self.groups.iter().all(Option::is_none) {
            self.groups.clear();
        }
        self
    }

    /// The hashes of groups as hexadecimal digits, end to end; only zeros for an unknown group. `None` if there are
    /// none.
    pub(super) fn groups(&self) -> Option<String> {
        let digits = |hash: &Option<u64>| format!("{:0GROUP_DIGITS$x}", hash.unwrap_or(0));
        (!self.groups.is_empty()).then(|| self.groups.iter().map(digits).collect())
    }

    /// Also reads what [`groups`](Content::groups) wrote.
    pub(super) fn with_groups_of(mut self, text: &str) -> Result<Content> {
        let len = CONTENT_GROUPS * GROUP_DIGITS;
        if text.len() != len || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let what = format!("\"dataset.content_groups\" of the state is not {len} hexadecimal digits");
            return Err(corrupt(what));
        }
        let hash = |at: usize| u64::from_str_radix(&text[at..at + GROUP_DIGITS], 16).ok().filter(|&hash| hash != 0);
        self.groups = (0..len).step_by(GROUP_DIGITS).map(hash).collect();
        Ok(self)
    }

    /// Reads what `Display` wrote, for a dataset of `files` files.
    pub(super) fn parse(text: &str, files: u64) -> Result<Content> {
        let count = files.min(CONTENT_FILES_MAX as u64) as usize;
        let digits = digits(count);
        let len = DIGITS_MOST + count * digits;
        if text.len() != len || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let what = format!("\"dataset.content\" of the state is not {len} hexadecimal digits");
            return Err(corrupt(what));
        }
        let number = |at: usize, digits: usize| u64::from_str_radix(&text[at..at + digits], 16).unwrap_or(0);
        let hash = |at: usize| Some(number(at, digits)).filter(|&hash| hash != 0);
        let hashes = (DIGITS_MOST..len).step_by(digits).map(hash).collect();
        Ok(Content { sizes: number(0, DIGITS_MOST), hashes, groups: Vec::new() })
    }

    /// Checks that the files have the same content as when the state was saved. A file that could not be read then or
    /// now is not compared.
    pub(super) fn check(&self, dataset: &Arc<dyn Dataset>, patience: &Patience) -> Result<()> {
        let files = dataset.files();
        let Some(here) = Content::of(dataset, patience).filter(|here| here.sizes == self.sizes) else { return Ok(()) };
        let others = others(&self.hashes, &here.hashes);
        if let Some(&first) = others.first() {
            return Err(self.changed(&content_files(files).get(first).map(|&file| files.path(file)), others.len()));
        }
        if self.groups.is_empty() {
            return Ok(());
        }
        let here = here.with_groups(dataset, patience);
        let others = self::others(&self.groups, &here.groups);
        others.first().map_or(Ok(()), |&first| Err(group_changed(files, content_group(files, first), others.len())))
    }

    fn changed(&self, first: &Option<std::path::PathBuf>, others: usize) -> Error {
        let looked_at = self.hashes.len();
        let what = format!(
            "the state is of a dataset with other content: {others} of the {looked_at} files that were compared have \
             the same sizes, but not the bytes that they had when it was saved"
        );
        let error = mismatch(what).with_remedy(REMEDY);
        match first {
            Some(path) => error.with_path(path),
            None => error,
        }
    }
}

/// A hash of each of [`content_files`], in their order. `None` for a file that cannot be read, is no longer the one
/// that was found, or does not answer.
pub(crate) fn content_hashes(dataset: &Arc<dyn Dataset>, patience: &Patience) -> Vec<Option<u64>> {
    let (asked, chosen) = (Arc::clone(dataset), content_files(dataset.files()));
    let of_file = move |number: usize| content_of_file(asked.files(), chosen[number]);
    let threads = if dataset.files().has_objects() { FAR_THREADS } else { THREADS };
    patience.ask(content_files(dataset.files()).len(), threads, of_file).into_iter().map(Option::flatten).collect()
}

/// The positions where both are known and differ.
fn others(then: &[Option<u64>], now: &[Option<u64>]) -> Vec<usize> {
    let is_other = |(then, now): (&Option<u64>, &Option<u64>)| then.is_some() && now.is_some() && then != now;
    then.iter().zip(now).enumerate().filter(|(_, pair)| is_other(*pair)).map(|(at, _)| at).collect()
}

fn group_changed(files: &FileTable, group: Range<u64>, others: usize) -> Error {
    // Fits: a table has fewer than 2^32 files.
    let path = |file: u64| files.path(FileId(file as u32));
    let what = format!(
        "the state is of a dataset with other content: in {others} of {CONTENT_GROUPS} groups of files one has the \
         same size, but not the bytes that it had when it was saved; the first group ends with {:?}",
        path(group.end - 1)
    );
    mismatch(what).with_path(path(group.start)).with_remedy(REMEDY)
}

/// The remedy for changed content.
const REMEDY: &str =
    "bring back the files that it was saved with; a program can also start at the cursor alone, which is not checked";

/// All hashes as hexadecimal digits, end to end; only zeros for a file that could not be read.
impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = digits(self.hashes.len());
        let mut text = format!("{:016x}", self.sizes);
        self.hashes.iter().try_for_each(|hash| write!(text, "{:0digits$x}", hash.unwrap_or(0)))?;
        f.write_str(&text)
    }
}

fn digits(files: usize) -> usize {
    (DIGITS / files.max(1)).clamp(DIGITS_LEAST, DIGITS_MOST)
}

/// The content of a loader's dataset: hashed once, at the first state, by a separate thread. Loaders that save nothing
/// read nothing.
#[derive(Default)]
pub(crate) struct Look(Mutex<Looking>);

#[derive(Default)]
enum Looking {
    #[default]
    NotYet,
    /// A thread is running, with its last result: first single files, then with groups. It ends by itself, whether or
    /// not a state waits.
    UnderWay(Receiver<Option<Content>>, Option<Content>),
    Done(Option<Content>),
}

impl Look {
    /// The content that is known now, or soon. `None` if files cannot be read, do not answer, or no thread can be
    /// started: the state is then compared by names and sizes.
    pub(crate) fn content(&self, dataset: &Arc<dyn Dataset>) -> Option<Content> {
        let mut looking = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Looking::NotYet = *looking {
            let (tell, told) = channel();
            let dataset = Arc::clone(dataset);
            let look = move || {
                // The caller waits up to a second. A later answer is for the next state.
                let patience = Patience::new(ANSWERS);
                let content = Content::of(&dataset, &patience);
                let _ = tell.send(content.clone());
                if let Some(content) = content.filter(|_| dataset.files().len() > CONTENT_FILES_MAX) {
                    let _ = tell.send(Some(content.with_groups(&dataset, &patience)));
                }
            };
            let thread = std::thread::Builder::new().name("uringload-content".into()).spawn(look);
            // Without a thread the next state tries again.
            thread.ok()?;
            *looking = Looking::UnderWay(told, None);
            looking.hear(PATIENCE);
        } else {
            looking.hear(Duration::ZERO);
        }
        match &*looking {
            Looking::UnderWay(_, content) | Looking::Done(content) => content.clone(),
            Looking::NotYet => None,
        }
    }
}

impl Looking {
    /// Takes the thread's results within this time.
    fn hear(&mut self, patience: Duration) {
        let Looking::UnderWay(told, last) = self else { return };
        let deadline = Instant::now() + patience;
        loop {
            match told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(content) => *last = content,
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        *self = Looking::Done(last.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (files, digits) in [(1, 16), (16, 16), (20, 12), (64, 4), (1000, 4)] {
            let count = files.min(CONTENT_FILES_MAX);
            let hash = |at: usize| (at % 5 != 1).then_some(0xfedc >> (at % 3));
            let content = Content { sizes: 0x12, hashes: (0..count).map(hash).collect(), groups: Vec::new() };
            let text = content.to_string();
            assert_eq!(text.len(), 16 + count * digits, "{files}");
            assert_eq!(Content::parse(&text, files as u64).unwrap(), content);
            for wrong in [&text[1..], "", &text.replace('0', "g")] {
                let error = Content::parse(wrong, files as u64).unwrap_err();
                assert!(error.what().contains("dataset.content"), "{error}");
            }
        }
    }

    #[test]
    fn groups_that_are_written_are_read() {
        let content = Content { sizes: 1, hashes: vec![Some(2)], groups: Vec::new() };
        assert_eq!(content.groups(), None);
        let groups = (0..CONTENT_GROUPS).map(|at| (at % 3 != 1).then_some(0xfed >> (at % 2))).collect();
        let content = Content { groups, ..content };
        let text = content.groups().unwrap();
        assert_eq!(text.len(), 64);
        let bare = Content { groups: Vec::new(), ..content.clone() };
        assert_eq!(bare.clone().with_groups_of(&text).unwrap(), content);
        for wrong in [&text[1..], "", &text.replace('0', "g")] {
            let error = bare.clone().with_groups_of(wrong).unwrap_err();
            assert!(error.what().contains("dataset.content_groups"), "{error}");
        }
    }
}
