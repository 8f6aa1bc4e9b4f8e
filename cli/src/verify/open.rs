//! Opens as much of a dataset as possible, and finds out why the rest cannot be opened.

use crate::data;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload::dataset::inspect::detect;
use uringload::dataset::{self, Dataset, FileId, Options};
use uringload::{Error, ErrorKind};

/// What could be opened, and why the rest could not.
pub type Opened = (Option<Arc<dyn Dataset>>, Vec<Error>);

/// The dataset, or as much of it as can be opened, and why the rest cannot. Opening it as a whole reports only the
/// first problem; if that fails, each part is opened on its own.
pub fn all_that_can_be(paths: &[PathBuf], options: &Options, interrupt: &Interrupt) -> Result<Opened, Failure> {
    let first = match told(data::open_quietly(paths, options))? {
        Ok(data) => return Ok((Some(data), Vec::new())),
        Err(error) => error,
    };
    // The format may have been detected from one file while another one is at fault.
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
            // An empty part is not faulty, but useless.
            Err(error) if error.kind() == ErrorKind::Empty => {}
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        // Each part is good, but they do not fit together.
        return Ok((None, vec![first]));
    }
    if good.is_empty() {
        return Ok((None, errors));
    }
    let data = told(data::open_quietly(&good, &options))?.map_err(|error| errors.push(error)).ok();
    Ok((data, errors))
}

/// Separates errors in the data from errors in the arguments.
fn told(opened: Result<Arc<dyn Dataset>, Error>) -> Result<Result<Arc<dyn Dataset>, Error>, Failure> {
    match opened {
        Err(error) if error.kind() == ErrorKind::InvalidArgument => Err(error.into()),
        opened => Ok(opened),
    }
}

/// The parts that can be opened on their own: folders with an index, or files; and why there is nothing to open at some
/// paths.
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
    // Some files of a folder may not belong to the dataset. Those that do have extensions like that of the refused one,
    // apart from digits.
    let kin = first.path().map(ending);
    parts.retain(|part| paths.contains(part) || Some(ending(part)) == kin);
    (parts, errors)
}

/// The extension of a name, without its digits.
fn ending(path: &Path) -> String {
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    ending.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}
