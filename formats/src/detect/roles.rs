//! What the name of a file says about it: data of a format, or a companion of data.

use crate::find::names::has_extension;
use crate::format::{Format, Shows};
use std::borrow::Cow;

/// What a file is in its dataset, judging by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Samples.
    Data,
    /// A table or array of labels: samples, unless there are others.
    Labels,
    /// A document, a description, a program: a companion of data, and a sample of a folder of documents.
    Document,
    /// What people and programs put beside data: never a sample.
    Companion,
    /// What this library puts beside data, or reads together with it. It is not reported.
    Index,
}

/// What a file would be opened as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Vote {
    /// A format, by its position among all.
    Format(u8),
    /// A sample as a whole.
    Whole,
    /// Bytes that do not show what they are.
    Bytes,
    /// A format that is known and not read, by its position in [`UNREAD`].
    Unread(u8),
}

/// The role and the vote of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) role: Role,
    pub(super) vote: Vote,
}

impl Shown {
    pub(super) const fn data(vote: Vote) -> Shown {
        Shown { role: Role::Data, vote }
    }
}

/// Endings of pictures, sound and film, which are samples as they are.
///
/// Filled up with dots, which no ending has, so that each is compared at once.
const MEDIA: [[u8; 4]; 20] = [
    *b"jpg.", *b"jpeg", *b"png.", *b"webp", *b"gif.", *b"bmp.", *b"tif.", *b"tiff", *b"ppm.", *b"pgm.", *b"jp2.",
    *b"jxl.", *b"wav.", *b"flac", *b"mp3.", *b"ogg.", *b"opus", *b"mp4.", *b"webm", *b"mkv.",
];

/// Names of tables and arrays that accompany samples, up to the first dot.
const LABELS: [&str; 14] = [
    "labels",
    "label",
    "targets",
    "target",
    "y",
    "metadata",
    "meta",
    "annotations",
    "annotation",
    "classes",
    "class_names",
    "synset_words",
    "captions",
    "train_labels",
];

/// Names of companions, up to the first dot, dash or underscore after them.
const WRITTEN_FOR_PEOPLE: [&str; 8] =
    ["readme", "license", "licence", "copying", "notice", "citation", "changelog", "authors"];

/// Whole names of companions, in lower case.
const COMPANIONS: [&str; 22] = [
    "_success",
    "_metadata",
    "_common_metadata",
    "dataset_info.json",
    "dataset_infos.json",
    "dataset_dict.json",
    "features.json",
    "state.json",
    "index.json",
    "manifest",
    "manifest.json",
    "manifest.txt",
    "thumbs.db",
    "desktop.ini",
    "sha256sums",
    "sha256sum",
    "sha1sums",
    "md5sums",
    "checksums",
    "checksums.txt",
    "makefile",
    "dockerfile",
];

/// Endings of companions.
const COMPANION_ENDINGS: [&str; 23] = [
    "_stats.json",
    ".index.json",
    ".labels.txt",
    ".crc",
    ".md5",
    ".sha1",
    ".sha256",
    ".sha512",
    ".sfv",
    ".asc",
    ".sig",
    ".lock",
    ".tmp",
    ".temp",
    ".part",
    ".partial",
    ".incomplete",
    ".crdownload",
    ".aria2",
    ".swp",
    ".bak",
    ".done",
    "~",
];

/// Endings of documents, descriptions and programs.
const DOCUMENTS: [&str; 35] = [
    "txt", "md", "rst", "json", "yaml", "yml", "toml", "xml", "html", "htm", "pdf", "log", "py", "sh", "cfg", "ini",
    "conf", "ipynb", "tex", "bib", "css", "js", "c", "h", "names", "model", "pbtxt", "prototxt", "jinja", "map",
    "data", "proto", "gitkeep", "idx", "lst",
];

/// A format that is known and not read.
#[derive(Debug)]
pub(super) struct Unread {
    pub(super) name: &'static str,
    /// Endings of its files.
    extensions: &'static [&'static str],
    /// How its files begin, where that shows.
    pub(super) magic: &'static [u8],
    pub(super) remedy: &'static str,
}

/// The formats that are known and not read.
pub(super) const UNREAD: &[Unread] = &[
    Unread { name: "Zarr", extensions: &["zarr"], magic: b"", remedy: "write its arrays as .npy or HDF5" },
    Unread {
        name: "Delta Lake",
        extensions: &[],
        magic: b"",
        remedy: "its log says which files are live: export the table to a folder of Parquet files",
    },
    Unread {
        name: "Iceberg",
        extensions: &[],
        magic: b"",
        remedy: "its metadata says which files are live: export the table to a folder of Parquet files",
    },
    Unread {
        name: "Hudi",
        extensions: &[],
        magic: b"",
        remedy: "its timeline says which files are live: export the table to a folder of Parquet files",
    },
    Unread { name: "Lance", extensions: &["lance"], magic: b"", remedy: "export it to Parquet" },
    Unread { name: "Avro", extensions: &["avro"], magic: b"Obj\x01", remedy: "convert it to Parquet" },
    Unread { name: "ORC", extensions: &["orc"], magic: b"ORC", remedy: "convert it to Parquet" },
    Unread { name: "LMDB", extensions: &["mdb", "lmdb"], magic: b"", remedy: "write its values into tar archives" },
    Unread {
        name: "SQLite",
        extensions: &["sqlite", "sqlite3", "db"],
        magic: b"SQLite fo",
        remedy: "export its tables to Parquet or CSV",
    },
    Unread { name: "RecordIO", extensions: &["rec"], magic: b"", remedy: "write its records into tar archives" },
    Unread {
        name: "pickle",
        extensions: &["pkl", "pickle", "pt", "pth", "joblib", "ckpt"],
        magic: b"",
        remedy: "to read a pickle is to run a program: write its arrays as .npy or .safetensors",
    },
    Unread { name: "7-Zip", extensions: &["7z"], magic: b"7z\xbc\xaf\x27\x1c", remedy: "unpack it" },
    Unread { name: "RAR", extensions: &["rar"], magic: b"Rar!", remedy: "unpack it" },
    Unread {
        name: "NIfTI",
        extensions: &["nii"],
        magic: b"",
        remedy: "write its arrays as .npy, read it by nibabel in a transform of the format folder",
    },
    Unread {
        name: "DICOM",
        extensions: &["dcm", "dicom"],
        magic: b"",
        remedy: "write its arrays as .npy, read it by pydicom in a transform of the format folder",
    },
    Unread { name: "MATLAB", extensions: &[], magic: b"MATLAB 5.", remedy: "save it with -v7.3, which is HDF5" },
    Unread { name: "MCAP", extensions: &["mcap"], magic: b"\x89MCAP0\r\n", remedy: "write its messages as Parquet" },
    Unread { name: "AVIF", extensions: &["avif"], magic: b"", remedy: "convert it to JPEG, PNG or WebP" },
    Unread { name: "HEIC", extensions: &["heic", "heif"], magic: b"", remedy: "convert it to JPEG, PNG or WebP" },
    Unread { name: "GGUF", extensions: &["gguf"], magic: b"GGUF", remedy: "these are the weights of a model" },
    Unread { name: "Excel", extensions: &["xlsx", "xls"], magic: b"", remedy: "export it to CSV" },
    Unread { name: "compressed IDX", extensions: &[], magic: b"", remedy: "decompress it: gzip -d" },
    Unread {
        name: "compressed files",
        extensions: &["gz", "zst", "bz2", "xz", "lz4"],
        magic: b"",
        remedy: "decompress them",
    },
];

/// The vote for a format that is not read.
pub(super) fn unread(name: &str) -> Vote {
    // Fits: the table is short.
    UNREAD.iter().position(|unread| unread.name == name).map_or(Vote::Whole, |at| Vote::Unread(at as u8))
}

/// The vote for a format that is read.
pub(super) fn format(name: &str, formats: &[Format]) -> Vote {
    // Fits: the table is short.
    formats.iter().position(|format| format.name == name).map_or(Vote::Whole, |at| Vote::Format(at as u8))
}

/// What a name says; it may have folders in front.
pub(super) fn of_name(name: &[u8], formats: &[Format]) -> Shown {
    let base = name.iter().rposition(|&byte| byte == b'/').map_or(name, |slash| &name[slash + 1..]);
    if is_media(base) {
        return Shown::data(Vote::Whole);
    }
    if let Some(vote) = of_store(name) {
        return Shown::data(vote);
    }
    let lower = &*lowered(base);
    let is = |role| Shown { role, vote: by_ending(lower, formats) };
    if lower.ends_with(".uidx") || lower == crate::find::names::MANIFEST_NAME {
        return is(Role::Index);
    }
    if is_companion(lower, formats) {
        return is(Role::Companion);
    }
    let stem = lower.split('.').next().unwrap_or_default();
    let vote = by_ending(lower, formats);
    if LABELS.contains(&stem) && stem.len() < lower.len() {
        return Shown { role: Role::Labels, vote };
    }
    let is_document = matches!(vote, Vote::Whole) && has_any(lower, &DOCUMENTS)
        // Beside data, they are what a program keeps: vocabularies, weights, the state of an optimizer.
        || vote == unread("pickle");
    if is_document { Shown { role: Role::Document, vote } } else { Shown::data(vote) }
}

/// A name in lower case. Most are, and few are not ASCII.
fn lowered(name: &[u8]) -> Cow<'_, str> {
    let is_lower = name.iter().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase());
    let same = if is_lower { str::from_utf8(name).ok() } else { None };
    same.map_or_else(|| String::from_utf8_lossy(name).to_lowercase().into(), Cow::Borrowed)
}

/// Whether only the first bytes show what files of such a name are: others use it too.
pub(super) fn is_loose(name: &[u8]) -> bool {
    ["nc", "mat", "hdf", "ipc"].iter().any(|extension| has_extension(name, extension))
        || name.rsplit(|&byte| byte == b'/').next().is_some_and(|base| !base.contains(&b'.'))
}

/// Whether a name is that of a picture, sound or film.
pub(super) fn is_media(name: &[u8]) -> bool {
    let Some(dot) = name.iter().rposition(|&byte| byte == b'.') else { return false };
    let (mut ending, its) = ([b'.'; 4], &name[dot + 1..]);
    let Some(first) = ending.get_mut(..its.len()) else { return false };
    first.copy_from_slice(its);
    MEDIA.contains(&ending.map(|byte| byte.to_ascii_lowercase()))
}

/// The vote of a file in a store of many files, by the names of its folders.
fn of_store(name: &[u8]) -> Option<Vote> {
    let folders = name.rsplitn(2, |&byte| byte == b'/').nth(1)?;
    folders.split(|&byte| byte == b'/').find_map(|folder| match folder {
        b"_delta_log" => Some(unread("Delta Lake")),
        _ if folder.ends_with(b".zarr") => Some(unread("Zarr")),
        _ if folder.ends_with(b".lance") => Some(unread("Lance")),
        _ => None,
    })
}

fn is_companion(lower: &str, formats: &[Format]) -> bool {
    let is_for_people = |known: &&str| {
        let rest = lower.strip_prefix(*known);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '_']) && !is_data(rest, formats))
    };
    COMPANIONS.contains(&lower)
        || COMPANION_ENDINGS.iter().any(|ending| lower.as_bytes().ends_with(ending.as_bytes()))
        || WRITTEN_FOR_PEOPLE.iter().any(is_for_people)
        || lower.starts_with("_committed_")
        || lower.starts_with("_started_")
}

/// Whether a name has the ending of samples.
fn is_data(lower: &str, formats: &[Format]) -> bool {
    matches!(by_ending(lower, formats), Vote::Format(_) | Vote::Bytes)
}

/// What the end of a name, in lower case, votes for.
fn by_ending(lower: &str, formats: &[Format]) -> Vote {
    let bytes = lower.as_bytes();
    let is_one = |shows: &Shows| matches!(shows, Shows::Names { called, .. } if called(bytes));
    if let Some(at) = formats.iter().position(|format| is_one(&format.shows)) {
        // Fits: the table is short.
        return Vote::Format(at as u8);
    }
    if let Some(at) = lower.find(".mds")
        && matches!(&lower[at + 4..], "" | ".zstd" | ".gz" | ".br" | ".bz2" | ".snappy")
    {
        return format("mds", formats);
    }
    if has_any(lower, &["bin"]) {
        return Vote::Bytes;
    }
    if let Some((_, name)) =
        [("-ubyte.gz", "compressed IDX"), (".nii.gz", "NIfTI")].iter().find(|(end, _)| lower.ends_with(end))
    {
        return unread(name);
    }
    match UNREAD.iter().position(|unread| has_any(lower, unread.extensions)) {
        Some(at) => Vote::Unread(at as u8),
        None => Vote::Whole,
    }
}

fn has_any(lower: &str, extensions: &[&str]) -> bool {
    lower.rsplit_once('.').is_some_and(|(_, ending)| extensions.contains(&ending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::names::drawn_names;

    #[test]
    fn names_say_the_same_however_they_are_looked_at() {
        let media = MEDIA.map(|ending| String::from_utf8(ending.to_vec()).unwrap().replace('.', ""));
        let mut parts: Vec<&str> = media.iter().map(|ending| &**ending).collect();
        parts.extend([".jpg", "k", "i\u{307}", "ss", "txt", "json"]);
        for name in drawn_names(2, &parts) {
            let plain = String::from_utf8_lossy(&name).to_lowercase();
            assert_eq!(lowered(&name), plain, "{name:?}");
            let ending = name.iter().rposition(|&byte| byte == b'.').map(|dot| name[dot + 1..].to_ascii_lowercase());
            let is_one = ending.as_ref().is_some_and(|its| media.iter().any(|known| known.as_bytes() == its));
            assert_eq!(is_media(&name), is_one, "{name:?}");
            let is_document = DOCUMENTS.iter().any(|known| has_extension(plain.as_bytes(), known));
            assert_eq!(has_any(&plain, &DOCUMENTS), is_document, "{name:?}");
        }
    }
}
