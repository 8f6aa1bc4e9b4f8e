//! What a state knows of the bytes of its dataset: the index of a folder or of records is names and sizes, which other
//! files may have too.

use super::json::corrupt;
use super::mismatch;
use crate::dataset::internal::{CONTENT_FILES_MAX, content, content_files};
use crate::dataset::{Dataset, FileTable};
use crate::sampler::hash;
use crate::{Error, Result};
use std::fmt::{self, Write};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Hexadecimal digits of all hashes together, about, and of each. A state stays small, and what differs can be named.
const DIGITS: usize = 256;
const DIGITS_LEAST: usize = 4;
const DIGITS_MOST: usize = 16;

/// How long a state waits for a look at the files. It takes some milliseconds, unless the storage does not answer: then
/// the state must come all the same.
const PATIENCE: Duration = Duration::from_secs(1);

/// Hashes of a few blocks of some files: no names and no times, so every copy of a dataset has the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// A hash of the files' sizes. Shards that were compressed since are the same samples in other files, which cannot
    /// be compared.
    sizes: u64,
    /// By the files that are looked at; `None` for one that could not be read.
    hashes: Vec<Option<u64>>,
}

impl Content {
    /// Looks at the files. `None` if none of them can be read.
    pub(crate) fn of(files: &FileTable) -> Option<Content> {
        let sizes = content_files(files).into_iter().fold(0, |sum, file| hash(sum ^ files.size(file)));
        let hashes = content(files);
        let digits = digits(hashes.len());
        let shortened = |hash: u64| (hash >> (4 * (DIGITS_MOST - digits))).max(1);
        let hashes: Vec<Option<u64>> = hashes.into_iter().map(|hash| hash.map(shortened)).collect();
        hashes.iter().any(Option::is_some).then_some(Content { sizes, hashes })
    }

    /// Reads what `Display` wrote, of a dataset of so many files.
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
        Ok(Content { sizes: number(0, DIGITS_MOST), hashes })
    }

    /// Checks that the files hold what they held when the state was saved. A file that cannot be read now, or could not
    /// be then, is not compared.
    pub(super) fn check(&self, dataset: &dyn Dataset) -> Result<()> {
        let files = dataset.files();
        let Some(here) = Content::of(files).filter(|here| here.sizes == self.sizes) else { return Ok(()) };
        let pairs = self.hashes.iter().zip(&here.hashes);
        let is_other = |(then, now): (&Option<u64>, &Option<u64>)| then.is_some() && now.is_some() && then != now;
        let others: Vec<usize> = pairs.enumerate().filter(|(_, pair)| is_other(*pair)).map(|(at, _)| at).collect();
        let Some(&first) = others.first() else { return Ok(()) };
        Err(self.changed(&content_files(files).get(first).map(|&file| files.path(file)), others.len()))
    }

    fn changed(&self, first: &Option<std::path::PathBuf>, others: usize) -> Error {
        let looked_at = self.hashes.len();
        let what = format!(
            "the state is of a dataset with other content: {others} of the {looked_at} files that were compared have \
             the same sizes, but not the bytes that they had when it was saved"
        );
        let error = mismatch(what).with_remedy(
            "bring back the files that it was saved with; a program can also start at the cursor alone, which is not \
             checked",
        );
        match first {
            Some(path) => error.with_path(path),
            None => error,
        }
    }
}

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

/// The content of a loader's dataset: looked at once, when the first state is taken, by a thread of its own. Loaders
/// that save nothing read nothing.
#[derive(Default)]
pub(crate) struct Look(Mutex<Looking>);

#[derive(Default)]
enum Looking {
    #[default]
    NotYet,
    /// A thread is at it. It ends by itself, whoever waits.
    UnderWay(Receiver<Option<Content>>),
    Done(Option<Content>),
}

impl Look {
    /// What is known now, or soon. `None` where files cannot be read, do not answer, or no thread can be had: the state
    /// is then compared by names and sizes.
    pub(crate) fn content(&self, dataset: &Arc<dyn Dataset>) -> Option<Content> {
        let mut looking = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Looking::NotYet = *looking {
            let (tell, told) = channel();
            let dataset = Arc::clone(dataset);
            let look = move || drop(tell.send(Content::of(dataset.files())));
            let thread = std::thread::Builder::new().name("uringload-content".into()).spawn(look);
            // Without a thread the next state tries again.
            thread.ok()?;
            *looking = Looking::UnderWay(told);
            if let Looking::UnderWay(told) = &*looking
                && let Ok(content) = told.recv_timeout(PATIENCE)
            {
                *looking = Looking::Done(content);
            }
        }
        if let Looking::UnderWay(told) = &*looking
            && let Ok(content) = told.try_recv()
        {
            *looking = Looking::Done(content);
        }
        if let Looking::Done(content) = &*looking { content.clone() } else { None }
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
            let content = Content { sizes: 0x12, hashes: (0..count).map(hash).collect() };
            let text = content.to_string();
            assert_eq!(text.len(), 16 + count * digits, "{files}");
            assert_eq!(Content::parse(&text, files as u64).unwrap(), content);
            for wrong in [&text[1..], "", &text.replace('0', "g")] {
                let error = Content::parse(wrong, files as u64).unwrap_err();
                assert!(error.what().contains("dataset.content"), "{error}");
            }
        }
    }
}
