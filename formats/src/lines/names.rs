//! Which files have lines: what their names tell.

use super::{LineFormat, LineOptions};
use crate::headers::{example, has_extension};
use crate::paths::Index;
use crate::sidecar;
use crate::{FileId, FileTable};
use std::path::Path;
use uringload_core::{Error, ErrorKind, Result};

/// Extensions by format.
const EXTENSIONS: [(LineFormat, &[&str]); 3] =
    [(LineFormat::Jsonl, &["jsonl", "ndjson"]), (LineFormat::Csv, &["csv", "tsv"]), (LineFormat::Text, &["txt"])];

/// What is compressed as a whole has no lines that could be read one by one. With the tool that helps.
const COMPRESSED: [(&str, &str); 4] = [("gz", "gzip -d"), ("zst", "zstd -d"), ("bz2", "bzip2 -d"), ("xz", "xz -d")];

impl LineFormat {
    /// The format that a path shows by its name: a file or a pattern, or a folder with nothing but files of one such
    /// format in it. Text shows itself by a file alone: a folder of text files is as often one of documents, and each
    /// of them a sample.
    pub fn detect(path: &Path) -> Option<LineFormat> {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if path.is_file() {
            return LineFormat::of(name);
        }
        let shows = |&format: &LineFormat| match path.exists() {
            true => {
                let file = example(path, |name| LineFormat::of(name) == Some(format) || is_index(name));
                file.is_some_and(|file| !is_index(file.as_os_str().as_encoded_bytes()))
            }
            false => LineFormat::of(name) == Some(format),
        };
        [LineFormat::Jsonl, LineFormat::Csv].into_iter().find(shows)
    }

    /// The format that a name ends with, compressed or not.
    fn of(name: &[u8]) -> Option<LineFormat> {
        let name = compression(name).map_or(name, |(extension, _)| &name[..name.len() - extension.len() - 1]);
        let has = |extensions: &[&str]| extensions.iter().any(|extension| has_extension(name, extension));
        EXTENSIONS.iter().find(|(_, extensions)| has(extensions)).map(|&(format, _)| format)
    }
}

fn compression(name: &[u8]) -> Option<(&'static str, &'static str)> {
    COMPRESSED.into_iter().find(|(extension, _)| has_extension(name, extension))
}

/// Whether a name is that of an index of ours.
fn is_index(name: &[u8]) -> bool {
    has_extension(name, sidecar::EXTENSION)
}

/// Keeps the files of the format. Those that were named by themselves are taken whatever their names.
///
/// # Errors
/// `Unavailable` for a compressed one, `Empty` where there is none.
pub(super) fn only_lines(index: Index, options: &LineOptions) -> Result<Index> {
    let place = index.files.roots().first().map_or_else(Default::default, |root| root.path.clone());
    let all = index.has_single_files;
    let fits = |name: &[u8]| !is_index(name) && (all || LineFormat::of(name) == Some(options.format));
    let index = index.retain(fits, |name| !is_index(name));
    // Fits: a table has fewer than 2^32 files.
    for file in (0..index.files.len() as u32).map(FileId) {
        if let Some((extension, tool)) = compression(index.files.name(file)) {
            let doing = format!("lines that are compressed ({extension}) cannot be read one by one:");
            let error = Error::new(ErrorKind::Unavailable, doing).with_file(index.files.path(file));
            return Err(error.with_remedy(format!("decompress it first: {tool} FILE")));
        }
    }
    if index.files.is_empty() {
        let extensions =
            EXTENSIONS.iter().find(|(format, _)| *format == options.format).map_or(&[][..], |found| found.1);
        let doing = format!("no file has a name that ends in .{} in", extensions.join(" or ."));
        let error = Error::new(ErrorKind::Empty, doing).with_file(place);
        return Err(error.with_remedy("name the files themselves, or another format"));
    }
    Ok(index)
}

/// What stands between the fields of all files: a tab where their names end in .tsv, a comma elsewhere.
///
/// # Errors
/// `InvalidArgument` where files have different ones.
pub(super) fn delimiter_of(files: &FileTable) -> Result<u8> {
    let of = |file: FileId| if has_extension(files.name(file), "tsv") { b'\t' } else { b',' };
    let first = of(FileId(0));
    // Fits: a table has fewer than 2^32 files.
    match (1..files.len() as u32).map(FileId).find(|&file| of(file) != first) {
        None => Ok(first),
        Some(other) => {
            Err(Error::new(ErrorKind::InvalidArgument, "fields are between commas in some files and tabs in")
                .with_file(files.path(other))
                .with_remedy("open .csv and .tsv files as different datasets, or name the delimiter of all"))
        }
    }
}
