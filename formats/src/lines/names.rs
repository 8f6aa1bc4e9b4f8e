//! Recognizes files with lines by their names.

use super::{Delimiter, LineFormat};
use crate::headers::has_extension;
use crate::paths::FoundFiles;
use crate::sidecar;
use crate::{FileId, FileTable};
use uringload_core::{Error, ErrorKind, Result};

/// Extensions by format.
pub(super) const EXTENSIONS: [(LineFormat, &[&str]); 3] =
    [(LineFormat::Jsonl, &["jsonl", "ndjson"]), (LineFormat::Csv, &["csv", "tsv"]), (LineFormat::Text, &["txt"])];

/// Extensions of compressed files, whose lines cannot be read one by one, and the tool that helps.
const COMPRESSED: [(&str, &str); 4] = [("gz", "gzip -d"), ("zst", "zstd -d"), ("bz2", "bzip2 -d"), ("xz", "xz -d")];

impl LineFormat {
    /// The format that the end of a name indicates, compressed or not.
    fn of(name: &[u8]) -> Option<LineFormat> {
        let name = compression(name).map_or(name, |(extension, _)| &name[..name.len() - extension.len() - 1]);
        let has = |extensions: &[&str]| extensions.iter().any(|extension| has_extension(name, extension));
        EXTENSIONS.iter().find(|(_, extensions)| has(extensions)).map(|&(format, _)| format)
    }
}

/// Whether a name shows the format. Text shows itself only where a file is named alone: in a folder, each text file is
/// just as often one sample.
pub(super) fn is_called(name: &[u8], format: LineFormat) -> bool {
    format != LineFormat::Text && LineFormat::of(name) == Some(format)
}

fn compression(name: &[u8]) -> Option<(&'static str, &'static str)> {
    COMPRESSED.into_iter().find(|(extension, _)| has_extension(name, extension))
}

/// Whether a file is one of our indexes, by its name.
fn is_index(name: &[u8]) -> bool {
    has_extension(name, sidecar::EXTENSION)
}

/// Keeps the files of the format. Files that were named explicitly are kept whatever their names.
///
/// # Errors
/// `Unavailable` for a compressed file, `Empty` if no file is left.
pub(super) fn only_lines(index: FoundFiles, format: LineFormat) -> Result<FoundFiles> {
    let place = index.files.place().to_path_buf();
    let all = index.has_single_files;
    let fits = |name: &[u8]| !is_index(name) && (all || LineFormat::of(name) == Some(format));
    let index = index.retain(fits, |name| !is_index(name));
    // Fits: a table has fewer than 2^32 files.
    for file in (0..index.files.len() as u32).map(FileId) {
        if let Some((extension, tool)) = compression(index.files.name(file)) {
            let what = format!("the lines are compressed ({extension}) and cannot be read one by one");
            let error = Error::new(ErrorKind::Unavailable, what).with_path(index.files.path(file));
            return Err(error.with_remedy(format!("decompress it first: {tool} FILE")));
        }
    }
    if index.files.is_empty() {
        let extensions = EXTENSIONS.iter().find(|(known, _)| *known == format).map_or(&[][..], |found| found.1);
        let what = format!("no file has a name that ends in .{}", extensions.join(" or ."));
        let error = Error::new(ErrorKind::Empty, what).with_path(place);
        return Err(error.with_remedy("name the files themselves, or choose another format"));
    }
    Ok(index)
}

/// The delimiter of all files: a tab if their names end in .tsv, otherwise a comma.
///
/// # Errors
/// `InvalidArgument` if the files have different delimiters.
pub(super) fn delimiter_of(files: &FileTable) -> Result<Delimiter> {
    let of = |file: FileId| if has_extension(files.name(file), "tsv") { Delimiter::Tab } else { Delimiter::Comma };
    let first = of(FileId(0));
    // Fits: a table has fewer than 2^32 files.
    match (1..files.len() as u32).map(FileId).find(|&file| of(file) != first) {
        None => Ok(first),
        Some(other) => Err(Error::new(
            ErrorKind::InvalidArgument,
            "this file has another delimiter than the first: some have commas, some tabs",
        )
        .with_path(files.path(other))
        .with_remedy("open .csv and .tsv files as different datasets, or give the delimiter of all files")),
    }
}
