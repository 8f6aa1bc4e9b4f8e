//! Opens what can be opened of a dataset, and finds out of everything else why it cannot.

use super::super::data;
use super::super::failure::Failure;
use super::super::interrupt::Interrupt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload::dataset::internal::detect;
use uringload::dataset::{self, Dataset, FileId, Options};
use uringload::{Error, ErrorKind};

/// What could be opened, and why the rest could not.
pub type Opened = (Option<Arc<dyn Dataset>>, Vec<Error>);

/// The dataset, or as much of it as can be opened; and why the rest cannot. Where it cannot be opened as a whole, which
/// tells the first reason only, each of its parts is opened by itself.
pub fn all_that_can_be(paths: &[PathBuf], options: &Options, interrupt: &Interrupt) -> Result<Opened, Failure> {
    let first = match told(data::open_quietly(paths, options))? {
        Ok(data) => return Ok((Some(data), Vec::new())),
        Err(error) => error,
    };
    // What one file shows may be what is wrong with another one.
    let Ok(format) = detect(paths, options) else { return Ok((None, vec![first])) };
    let name = format.name;
    let options = options.clone().format(name);
    let (parts, mut errors) = parts(paths, name, &first);
    let mut good = Vec::with_capacity(parts.len());
    for part in parts {
        if interrupt.is_set() {
            return Ok((None, errors));
        }
        match told(data::open_quietly(std::slice::from_ref(&part), &options))? {
            Ok(_) => good.push(part),
            // What has no sample is not bad for it, and not of use either.
            Err(error) if error.kind() == ErrorKind::Empty => {}
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        // Each is good, but they do not go together.
        return Ok((None, vec![first]));
    }
    if good.is_empty() {
        return Ok((None, errors));
    }
    let data = told(data::open_quietly(&good, &options))?.map_err(|error| errors.push(error)).ok();
    Ok((data, errors))
}

/// What is wrong with the data is one thing, and what is wrong with the arguments another.
fn told(opened: Result<Arc<dyn Dataset>, Error>) -> Result<Result<Arc<dyn Dataset>, Error>, Failure> {
    match opened {
        Err(error) if error.kind() == ErrorKind::InvalidArgument => Err(error.into()),
        opened => Ok(opened),
    }
}

/// What can be opened by itself: folders with an index, or files; and why there is nothing to open at some paths.
fn parts(paths: &[PathBuf], name: &str, first: &Error) -> (Vec<PathBuf>, Vec<Error>) {
    if matches!(name, "mds" | "litdata") {
        return (paths.to_vec(), Vec::new());
    }
    let (mut parts, mut errors) = (Vec::new(), Vec::new());
    for path in paths {
        match dataset::open(std::slice::from_ref(path), &Options::new().format("folder")) {
            Ok(folder) => {
                let files = folder.files();
                // A table has fewer than 2^32 files.
                parts.extend((0..files.len() as u32).map(|file| files.path(FileId(file))));
            }
            Err(error) => errors.push(error),
        }
    }
    // Of a folder's files some may be none of the dataset's. Those that are have endings like the one that was refused,
    // but for numbers.
    let kin = first.path().map(ending);
    parts.retain(|part| paths.contains(part) || Some(ending(part)) == kin);
    (parts, errors)
}

/// What follows the last dot of a name, without its digits.
fn ending(path: &Path) -> String {
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    ending.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}
