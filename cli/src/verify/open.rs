//! Opens what can be opened of a dataset, and finds out of everything else why it cannot.

use super::super::arguments::{Format, FormatName};
use super::super::data::Data;
use super::super::failure::Failure;
use super::super::interrupt::Interrupt;
use std::path::{Path, PathBuf};
use uringload::dataset::{Dataset, FileId, Folder};
use uringload::{Error, ErrorKind};

/// The dataset, or as much of it as can be opened; and why the rest cannot. Where it cannot be opened as a whole, which
/// tells the first reason only, each of its parts is opened by itself.
pub fn all_that_can_be(
    paths: &[PathBuf],
    format: &Format,
    interrupt: &Interrupt,
) -> Result<(Option<Data>, Vec<Error>), Failure> {
    let first = match told(Data::open(paths, format))? {
        Ok(data) => return Ok((Some(data), Vec::new())),
        Err(error) => error,
    };
    let name = Data::format_of(paths, format);
    // What one file shows may be what is wrong with another one; but archives are found among the files of folders.
    let format = match name {
        FormatName::Folder => format.clone(),
        name => Format { format: Some(name), ..format.clone() },
    };
    let (parts, mut errors) = parts(paths, name, &first);
    let mut good = Vec::with_capacity(parts.len());
    for part in parts {
        if interrupt.is_set() {
            return Ok((None, errors));
        }
        match told(Data::open(std::slice::from_ref(&part), &format))? {
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
    let data = told(Data::open(&good, &format))?.map_err(|error| errors.push(error)).ok();
    Ok((data, errors))
}

/// What is wrong with the data is one thing, and what is wrong with the arguments another.
fn told(opened: Result<Data, Failure>) -> Result<Result<Data, Error>, Failure> {
    match opened {
        Ok(data) => Ok(Ok(data)),
        Err(Failure::Loader(error)) if error.kind() != ErrorKind::InvalidArgument => Ok(Err(error)),
        Err(failure) => Err(failure),
    }
}

/// What can be opened by itself: folders with an index, or files; and why there is nothing to open at some paths.
fn parts(paths: &[PathBuf], name: FormatName, first: &Error) -> (Vec<PathBuf>, Vec<Error>) {
    if matches!(name, FormatName::Mds | FormatName::Litdata) {
        return (paths.to_vec(), Vec::new());
    }
    let (mut parts, mut errors) = (Vec::new(), Vec::new());
    for path in paths {
        match Folder::open(std::slice::from_ref(path)) {
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
    let kin = first.file().map(ending);
    parts.retain(|part| paths.contains(part) || Some(ending(part)) == kin);
    (parts, errors)
}

/// What follows the last dot of a name, without its digits.
fn ending(path: &Path) -> String {
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    ending.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}
