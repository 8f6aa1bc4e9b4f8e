//! Recognizes files with lines by their names.

use super::{Delimiter, LineFormat};
use crate::dataset::{FileId, FileTable};
use crate::find::names::has_extension;
use crate::find::paths::FoundFiles;
use crate::index::sidecar;
use std::path::Path;
use uringload_core::{Error, ErrorKind, Result};

/// Extensions by format.
pub(super) const EXTENSIONS: [(LineFormat, &[&str]); 3] =
    [(LineFormat::Jsonl, &["jsonl", "ndjson"]), (LineFormat::Csv, &["csv", "tsv"]), (LineFormat::Text, &["txt"])];

/// Extensions of compressed files.
const COMPRESSED: [&str; 3] = ["gz", "zst", "bz2"];
/// Extensions of compressions that are refused, and the tool that helps.
const UNREADABLE: [(&str, &str); 2] = [("xz", "xz -d"), ("lz4", "lz4 -d")];

impl LineFormat {
    /// The format that the end of a name indicates, compressed or not. Of what is called `.json`, only compressed files
    /// are usually lines.
    fn of(name: &[u8]) -> Option<LineFormat> {
        if is_packed_json(name) {
            return Some(LineFormat::Jsonl);
        }
        let name = unpacked(name);
        let has = |extensions: &[&str]| extensions.iter().any(|extension| has_extension(name, extension));
        EXTENSIONS.iter().find(|(_, extensions)| has(extensions)).map(|&(format, _)| format)
    }
}

/// The name that a file has without the extension of its compression.
fn unpacked(name: &[u8]) -> &[u8] {
    let mut extensions = COMPRESSED.into_iter().chain(UNREADABLE.map(|(extension, _)| extension));
    let packed = extensions.find(|extension| has_extension(name, extension));
    packed.map_or(name, |extension| &name[..name.len() - extension.len() - 1])
}

/// Whether the file is called `.json`, compressed or not: it may be one array.
pub(super) fn is_json(path: &Path) -> bool {
    has_extension(unpacked(path.as_os_str().as_encoded_bytes()), "json")
}

/// Whether the file is called `.json` and compressed, as the shards of C4 are.
pub(super) fn is_packed_json(name: &[u8]) -> bool {
    let inner = unpacked(name);
    inner.len() < name.len() && has_extension(inner, "json")
}

/// Whether nothing in the name says that the file is compressed.
pub(super) fn is_plain(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    LineFormat::of(name).is_some() && unpacked(name).len() == name.len()
}

/// Whether a name shows the format. Text shows itself only where a file is named alone: in a folder, each text file is
/// just as often one sample.
pub(super) fn is_called(name: &[u8], format: LineFormat) -> bool {
    format != LineFormat::Text && LineFormat::of(name) == Some(format)
}

/// Whether a file is one of our indexes, by its name.
fn is_index(name: &[u8]) -> bool {
    has_extension(name, sidecar::EXTENSION)
}

/// Keeps the files of the format. Files that were named explicitly are kept whatever their names.
///
/// # Errors
/// `Unavailable` for a file of an unknown compression, `Empty` if no file is left.
pub(super) fn only_lines(index: FoundFiles, format: LineFormat) -> Result<FoundFiles> {
    let place = index.files.place().to_path_buf();
    let all = index.has_single_files;
    // Files called .json are rows only where nothing else is.
    let is_shown =
        (0..index.files.len() as u32).any(|file| LineFormat::of(index.files.name(FileId(file))) == Some(format));
    let is_json = |name: &[u8]| !is_shown && format == LineFormat::Jsonl && has_extension(name, "json");
    let fits = |name: &[u8]| !is_index(name) && (all || LineFormat::of(name) == Some(format) || is_json(name));
    let index = index.retain(fits, |name| !is_index(name));
    // Fits: a table has fewer than 2^32 files.
    for file in (0..index.files.len() as u32).map(FileId) {
        let name = index.files.name(file);
        if let Some((extension, tool)) = UNREADABLE.iter().find(|(extension, _)| has_extension(name, extension)) {
            let what = format!("the lines are compressed with {extension}, which cannot be read");
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
    let of =
        |file: FileId| if has_extension(unpacked(files.name(file)), "tsv") { Delimiter::Tab } else { Delimiter::Comma };
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
