//! Decides what files are: each votes with its name and a few with their first bytes; companions have no vote.
//!
//! One stray file must not change what a sample is, and files of several kinds must not become samples side by side. So
//! a format needs nearly all votes; else the error says what was found, and the user names the format. Splits are never
//! put together unasked.

mod nearest;
mod objects;
mod roles;
mod splits;

use crate::dataset::{FileId, FileTable, SkipReason};
use crate::find::paths::{FoundFiles, looking_threads};
use crate::format::{Format, Paths, Shows};
use crate::index::headers::head;
use crate::options::Options;
use crate::parallel::in_parallel;
use crate::place::Place;
#[cfg(test)]
pub(crate) use nearest::ELSEWHERE;
pub use nearest::nearest;
use nearest::nearest_format;
use objects::Objects;
use roles::{Role, Shown, UNREAD, Vote, is_loose, is_media, of_name, unread};
use splits::{ALL, Chosen, Splits};
use std::collections::{BTreeMap, HashSet};
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use uringload_core::{Error, ErrorKind, Result};

/// Files of a format whose first bytes are looked at. Some may be empty or broken.
const LOOKS: usize = 8;
/// Documents that any data may have beside it. More are companions where there are no more of them than of the data.
const DOCUMENTS_MAX: u64 = 16;
/// How many times more files the data has than there are others beside it; else it is a mixture.
const STRAYS_ARE_FEWER: u64 = 3;
/// Bytes of a file in which two lines are looked for.
const LINES_LOOKED_AT_BYTES: u64 = 64 << 10;
/// Folders in which marks of a store are looked for.
const ROOTS_LOOKED_AT: usize = 16;
/// The format in which every file is a sample.
const WHOLE: &str = "folder";

/// Whether a file is no sample by its name: a description, a table of labels, a checksum.
pub(crate) fn is_beside_data(name: &[u8], formats: &[Format]) -> bool {
    of_name(name, formats).role != Role::Data
}

/// The name of the format that a file shows by its name, read or not, unless it is a sample as a whole.
pub(crate) fn format_of_name(name: &[u8], formats: &'static [Format]) -> Option<&'static str> {
    match of_name(name, formats).vote {
        Vote::Format(at) => Some(formats[usize::from(at)].name),
        Vote::Unread(at) => Some(UNREAD[usize::from(at)].name),
        Vote::Whole | Vote::Bytes => None,
    }
}

/// The format that `options` name, or that the files show. Leaves in `paths` the files that are its data.
///
/// # Errors
/// `InvalidArgument` for files of several formats, of a format that is not read, or of bytes that show nothing, and
/// where there are splits and none is chosen; what the system says of paths that cannot be listed.
pub(crate) fn decide(paths: &mut Paths, options: &Options) -> Result<&'static Format> {
    let formats = paths.formats();
    let asked_split = options.split()?;
    let split = asked_split.as_deref().filter(|split| *split != ALL);
    let asked = asked(options, formats)?;
    if split.is_none() {
        match asked {
            Some(format) if format.name == WHOLE || matches!(format.shows, Shows::Path(_)) && !is_raw(format) => {
                return Ok(format);
            }
            Some(_) => {}
            None => {
                if let Some(format) = shown_by_paths(paths, options) {
                    return Ok(format);
                }
            }
        }
    }
    let found = match paths.list(options.common().threads) {
        Ok(found) => found,
        // A format may take names that are no paths: it says what is wrong with them.
        Err(_) if asked.is_some() && split.is_none() => return Ok(asked.unwrap_or(&formats[0])),
        Err(error) => return Err(error),
    };
    let mut look = Look::at(found, formats, options);
    let (format, taken) = match asked {
        // A label beside its image is a file of the sample.
        Some(format) if options.is_set("pairs") => (format, (0..found.files.len() as u32).map(FileId).collect()),
        Some(format) => (format, look.taken_by(format, found)),
        None => look.decide(found)?,
    };
    if asked.is_none()
        && format.name == WHOLE
        && !options.is_set("labels")
        && let Some(objects) = &look.objects
    {
        return Err(objects.refuse(found.files.place()));
    }
    let mut keep: Vec<bool> = vec![false; found.files.len()];
    taken.iter().for_each(|file| keep[file.0 as usize] = true);
    let splits = Splits::find(found, &taken, format.name != WHOLE);
    match (split, splits) {
        (None, Some(splits)) if asked_split.is_none() => return Err(splits.ask(found.files.place())),
        (None, _) => {}
        (Some(wanted), None) => {
            let error = Error::new(ErrorKind::InvalidArgument, format!("there is no split {wanted:?}, nor any other"));
            return Err(error.with_path(found.files.place()).with_remedy("leave out split"));
        }
        (Some(wanted), Some(splits)) => match splits.choose(wanted, found, options.pairs_by_folder())? {
            Chosen::Folders(folders) => {
                *paths = Paths::new(folders, formats);
                return decide(paths, &options.clone().set("split", ALL));
            }
            Chosen::Files(chosen) => {
                let stays = |(keep, chosen): (&mut bool, bool)| *keep &= chosen;
                keep.iter_mut().zip(chosen).for_each(stays);
                let reasons =
                    |file: FileId| if look.is_data(file) { SkipReason::OtherSplit } else { look.reason(file) };
                paths.keep(&keep, |file| Some(reasons(file)));
                return Ok(format);
            }
        },
    }
    if asked.is_none() || is_raw(format) {
        paths.keep(&keep, |file| (look.shown[file.0 as usize].role != Role::Index).then(|| look.reason(file)));
    }
    Ok(format)
}

/// The format that the options name or imply: the size of a record implies records, and the length of a window and the
/// type of its tokens imply tokens; with a type of elements, files hold numbers, whatever their names. Files that have
/// labels, or that are paired, are samples.
fn asked(options: &Options, formats: &'static [Format]) -> Result<Option<&'static Format>> {
    let name = match options.format_name() {
        Some(name) => name,
        None if options.is_set("record_bytes") || options.is_set("record_fields") => "records",
        None if options.is_set("window_tokens") && options.is_set("token_dtype") => "tokens",
        None if ["dtype", "label_file", "pairs"].iter().any(|name| options.is_set(name)) => WHOLE,
        None => return Ok(None),
    };
    named(name, formats).map(Some)
}

/// The format of that name.
///
/// # Errors
/// `InvalidArgument` where there is none.
fn named(name: &str, formats: &'static [Format]) -> Result<&'static Format> {
    formats.iter().find(|format| format.name == name).ok_or_else(|| {
        let names: Vec<&str> = formats.iter().map(|format| format.name).collect();
        let error = Error::new(ErrorKind::InvalidArgument, format!("there is no format {name:?}"));
        error.with_remedy(nearest_format(name, &names))
    })
}

/// Whether any file can be read as this format.
fn is_raw(format: &Format) -> bool {
    matches!(format.name, "records" | "tokens")
}

/// The format that all named paths show by themselves, without a look at the files below them.
fn shown_by_paths(paths: &Paths, options: &Options) -> Option<&'static Format> {
    let shows = |format: &&Format| match format.shows {
        Shows::Path(shows) => !paths.is_empty() && paths.iter().all(|place| shows(place, options)),
        Shows::Names { .. } | Shows::Any => false,
    };
    paths.formats().iter().find(shows)
}

/// What is known of each file.
struct Look {
    formats: &'static [Format],
    shown: Vec<Shown>,
    objects: Option<Objects>,
}

impl Look {
    fn at(found: &FoundFiles, formats: &'static [Format], options: &Options) -> Look {
        let files = &found.files;
        let of = |file: u32| of_name(files.name(FileId(file)), formats);
        let of_range = |range: &Range<u32>| range.clone().map(of).collect::<Vec<_>>();
        let mut shown = in_parallel(&files.ranges(), looking_threads(options.common().threads), of_range).concat();
        let objects = Objects::find(files, &mut shown);
        let mut look = Look { formats, shown, objects };
        look.see_packed(files);
        look.see_stores(found);
        look.see_archives(files);
        look.see_tokens(files, options);
        look.promote(found);
        look
    }

    fn is_data(&self, file: FileId) -> bool {
        self.shown[file.0 as usize].role == Role::Data
    }

    /// Why a file is left out.
    fn reason(&self, file: FileId) -> SkipReason {
        if self.is_data(file) { SkipReason::OtherFormat } else { SkipReason::Companion }
    }

    /// The vote for a format that is read.
    fn vote_for(&self, format: &str) -> Vote {
        roles::format(format, self.formats)
    }

    fn has(&self, vote: Vote) -> bool {
        self.shown.iter().any(|shown| *shown == Shown::data(vote))
    }

    /// Compressed files beside what they were unpacked to.
    fn see_packed(&mut self, files: &FileTable) {
        let is_packed = |shown: &Shown| matches!(shown.vote, Vote::Unread(_)) && shown.role == Role::Data;
        if !self.shown.iter().any(is_packed) {
            return;
        }
        let names: HashSet<&[u8]> = all(files).map(|file| files.name(file)).collect();
        for file in all(files) {
            let (name, shown) = (files.name(file), &mut self.shown[file.0 as usize]);
            let stem = name.iter().rposition(|&byte| byte == b'.').map_or(name, |dot| &name[..dot]);
            if is_packed(shown) && stem.len() < name.len() && names.contains(stem) {
                shown.role = Role::Companion;
            }
        }
    }

    /// Stores of many files that a file at their root shows.
    fn see_stores(&mut self, found: &FoundFiles) {
        let files = &found.files;
        for number in 0..files.roots().len().min(ROOTS_LOOKED_AT) {
            let root = files.root_at(number);
            let has = |name: &str| root.join(name).is_there();
            let is_named = |ending: &str| root.has_extension(ending);
            let store =
                if is_named("zarr") || [".zgroup", ".zarray", ".zmetadata", "zarr.json"].iter().any(|it| has(it)) {
                    "Zarr"
                } else if has(".hoodie") {
                    "Hudi"
                } else if has("_delta_log") {
                    "Delta Lake"
                } else if is_named("lance") {
                    "Lance"
                } else if has_iceberg_metadata(&root) {
                    "Iceberg"
                } else {
                    continue;
                };
            // A user who names files has chosen them.
            let its = files.files_of(number).filter(|&file| !found.is_single(FileId(file)));
            its.for_each(|file| self.shown[file as usize] = Shown::data(unread(store)));
        }
    }

    /// Files that accompany archives and records under their names: tables of their samples, indexes of other programs.
    fn see_archives(&mut self, files: &FileTable) {
        let (tar, records) = (self.vote_for("tar"), self.vote_for("tfrecord"));
        let (has_tar, has_records) = (self.has(tar), self.has(records));
        if !has_tar && !has_records {
            return;
        }
        let stem_of = |name: &[u8], vote: Vote| {
            let base = name.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
            let dot = name[base..].iter().position(|&byte| byte == b'.');
            (vote == tar).then(|| dot.map_or(name, |dot| &name[..base + dot]).to_vec())
        };
        let archives: HashSet<Vec<u8>> =
            all(files).filter_map(|file| stem_of(files.name(file), self.shown[file.0 as usize].vote)).collect();
        for file in all(files) {
            let (name, shown) = (files.name(file), &mut self.shown[file.0 as usize]);
            if name.ends_with(b".idx") {
                shown.role = Role::Index;
            } else if shown.role == Role::Data
                && shown.vote != tar
                && has_tar
                && !is_media(name)
                && stem_of(name, tar).is_some_and(|stem| archives.contains(&stem))
            {
                shown.role = Role::Companion;
            }
        }
    }

    /// Pairs of Megatron-LM's, and chunks of LitData: files whose names alone show nothing.
    fn see_tokens(&mut self, files: &FileTable, options: &Options) {
        if !self.has(Vote::Bytes) {
            return;
        }
        let indexes: HashSet<&[u8]> = all(files)
            .map(|file| files.name(file))
            .filter_map(|name| name.strip_suffix(b".idx").or(name.strip_suffix(b"index.json")))
            .collect();
        if indexes.is_empty() {
            return;
        }
        let shows = |name: &str, place: &Place| {
            let format = self.formats.iter().find(|format| format.name == name);
            format.is_some_and(|format| matches!(format.shows, Shows::Path(shows) if shows(place, options)))
        };
        let (tokens, litdata) = (self.vote_for("tokens"), self.vote_for("litdata"));
        let mut known: BTreeMap<Place, bool> = BTreeMap::new();
        for file in all(files) {
            if self.shown[file.0 as usize].vote != Vote::Bytes {
                continue;
            }
            let name = files.name(file);
            let Some(stem) = name.strip_suffix(b".bin") else { continue };
            let folder = &name[..name.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1)];
            if indexes.contains(stem) && shows("tokens", &files.at(file)) {
                self.shown[file.0 as usize].vote = tokens;
            } else if indexes.contains(folder) {
                let folder = files.at(file).folder();
                let is_listed = known.entry(folder).or_insert_with_key(|folder| shows("litdata", folder));
                if *is_listed {
                    self.shown[file.0 as usize].vote = litdata;
                }
            }
        }
        if self.has(tokens) {
            let is_index = |file: &FileId| files.name(*file).ends_with(b".idx");
            all(files).filter(is_index).for_each(|file| self.shown[file.0 as usize].role = Role::Index);
        }
    }

    /// If there is no data, its companions are the data: labels first, then documents. A file that was named alone is
    /// what it is.
    fn promote(&mut self, found: &FoundFiles) {
        let files = &found.files;
        let is_text = |file: FileId| files.name(file).to_ascii_lowercase().ends_with(b".txt");
        if all(files).all(|file| found.is_single(file) && is_text(file)) {
            let text = Shown::data(self.vote_for("text"));
            self.shown.fill(text);
            return;
        }
        if let [only] = &mut self.shown[..]
            && found.is_single(FileId(0))
        {
            only.role = Role::Data;
        }
        for role in [Role::Labels, Role::Document] {
            if self.shown.iter().any(|shown| shown.role == Role::Data) {
                return;
            }
            self.shown.iter_mut().filter(|shown| shown.role == role).for_each(|shown| shown.role = Role::Data);
        }
        if self.shown.iter().all(|shown| shown.role != Role::Data)
            && all(&found.files).all(|file| found.is_single(file))
        {
            self.shown.iter_mut().for_each(|shown| shown.role = Role::Data);
        }
    }

    /// The files that a format takes that was named.
    fn taken_by(&self, format: &Format, found: &FoundFiles) -> Vec<FileId> {
        let is_taken = |file: &FileId| match format.shows {
            Shows::Names { called, .. } => found.is_single(*file) || called(found.files.name(*file)),
            Shows::Path(_) if format.name == "tokens" => {
                found.is_single(*file) || self.is_data(*file) && !found.files.name(*file).ends_with(b".idx")
            }
            Shows::Path(_) | Shows::Any => found.is_single(*file) || self.is_data(*file),
        };
        all(&found.files).filter(is_taken).collect()
    }

    /// The format that nearly all data is of, and its files.
    fn decide(&mut self, found: &FoundFiles) -> Result<(&'static Format, Vec<FileId>)> {
        let files = &found.files;
        self.look_inside(files)?;
        let votes = self.votes();
        let Some((&winner, &(count, first))) =
            votes.iter().max_by_key(|(_, (count, first))| (*count, std::cmp::Reverse(first.0)))
        else {
            let error = Error::new(ErrorKind::Empty, "there are only companions of data, and no data");
            let remedy = "name the files themselves, or the format: folder takes every file as a sample";
            return Err(error.with_path(files.place()).with_remedy(remedy));
        };
        let others: u64 = votes.values().map(|(count, _)| count).sum::<u64>() - count;
        let documents = self.shown.iter().filter(|shown| shown.role == Role::Document).count() as u64;
        let documents_max = if winner == Vote::Whole { count / 2 } else { count.max(DOCUMENTS_MAX) };
        // No user names a stray file.
        let named_another = all(files)
            .any(|file| found.is_single(file) && self.is_data(file) && self.shown[file.0 as usize].vote != winner);
        let is_stray = others == 1 && count >= 2 && winner != Vote::Whole;
        let is_clear = others == 0 || is_stray || others.saturating_mul(STRAYS_ARE_FEWER) <= count;
        if !is_clear || named_another || documents > documents_max {
            return Err(self.mixture(files, &votes, if documents > documents_max { documents } else { 0 }));
        }
        let path = || files.path(first);
        let format = match winner {
            Vote::Format(at) => &self.formats[usize::from(at)],
            Vote::Whole => named(WHOLE, self.formats)?,
            Vote::Bytes => return Err(bytes_show_nothing(count, &path())),
            Vote::Unread(at) => {
                let known = &UNREAD[usize::from(at)];
                let are = if count == 1 { "file is" } else { "files are" };
                let what = format!("{count} {are} {}, which is known and not read", known.name);
                return Err(Error::new(ErrorKind::InvalidArgument, what).with_path(path()).with_remedy(format!(
                    "{}, or name the format: folder takes every file as a sample",
                    known.remedy
                )));
            }
        };
        let is_its = |file: &FileId| self.shown[file.0 as usize] == Shown::data(winner);
        Ok((format, all(files).filter(is_its).collect()))
    }

    /// Files and the first of them for each vote.
    fn votes(&self) -> BTreeMap<Vote, (u64, FileId)> {
        let (mut votes, mut first) = (BTreeMap::new(), 0);
        for alike in self.shown.chunk_by(|one, other| one == other) {
            if alike[0].role == Role::Data {
                // Fits: a table has fewer than 2^32 files.
                votes.entry(alike[0].vote).or_insert((0, FileId(first as u32))).0 += alike.len() as u64;
            }
            first += alike.len();
        }
        votes
    }

    /// Compares the first bytes of a few files with their names.
    ///
    /// # Errors
    /// `Corrupt` if none of a format's files begins as it should: their kind is then unknown.
    fn look_inside(&mut self, files: &FileTable) -> Result<()> {
        for vote in self.votes().into_keys().collect::<Vec<_>>() {
            let its: Vec<FileId> = all(files).filter(|file| self.shown[file.0 as usize] == Shown::data(vote)).collect();
            let looked_at: Vec<FileId> = spread(&its).filter(|&file| files.size(file) > 0).collect();
            match vote {
                Vote::Format(at) => {
                    let format = &self.formats[usize::from(at)];
                    let Shows::Names { begins, .. } = format.shows else { continue };
                    if looked_at.is_empty() || looked_at.iter().any(|&file| begins(&files.at(file))) {
                        continue;
                    }
                    if !its.iter().all(|&file| is_loose(files.name(file))) {
                        let name = format.name;
                        let (count, are) = (its.len(), if its.len() == 1 { "file is" } else { "files are" });
                        let what = format!("{count} {are} called as those of {name} and do not begin as they do");
                        return Err(Error::new(ErrorKind::Corrupt, what)
                            .with_path(files.path(looked_at[0]))
                            .with_offset(0)
                            .with_remedy(
                                "fetch them again, or name their format: folder takes every file as a sample",
                            ));
                    }
                    let vote = self.vote_of_heads(files, &looked_at).unwrap_or(Vote::Whole);
                    its.iter().for_each(|file| self.shown[file.0 as usize].vote = vote);
                }
                Vote::Whole => {
                    if are_rows_of_json(files, &its, &looked_at)? {
                        let rows = self.vote_for("jsonl");
                        its.iter().for_each(|file| self.shown[file.0 as usize].vote = rows);
                        continue;
                    }
                    if let Some(vote) = self.vote_of_heads(files, &looked_at) {
                        its.iter().for_each(|file| self.shown[file.0 as usize].vote = vote);
                    }
                }
                Vote::Bytes | Vote::Unread(_) => {}
            }
        }
        Ok(())
    }

    /// What the first bytes of all these files vote for.
    fn vote_of_heads(&self, files: &FileTable, looked_at: &[FileId]) -> Option<Vote> {
        if looked_at.iter().any(|&file| is_media(files.name(file))) {
            return None;
        }
        let mut votes = looked_at.iter().map(|&file| vote_of(&head(&files.at(file)), self.formats));
        let first = votes.next()??;
        votes.all(|vote| vote == Some(first)).then_some(first)
    }

    fn mixture(&self, files: &FileTable, votes: &BTreeMap<Vote, (u64, FileId)>, documents: u64) -> Error {
        let mut found: Vec<(u64, String)> = votes
            .iter()
            .map(|(&vote, &(count, first))| {
                let name = match vote {
                    Vote::Format(at) => self.formats[usize::from(at)].name.to_owned(),
                    Vote::Unread(at) => UNREAD[usize::from(at)].name.to_owned(),
                    Vote::Bytes => "raw bytes (.bin)".to_owned(),
                    Vote::Whole => match files.path(first).extension() {
                        Some(extension) => format!("other files (.{})", extension.to_string_lossy()),
                        None => "other files".to_owned(),
                    },
                };
                (count, name)
            })
            .collect();
        if documents > 0 {
            found.push((documents, "documents (.txt, .json and the like)".to_owned()));
        }
        found.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let found: Vec<String> = found.into_iter().map(|(count, name)| format!("{count} {name}")).collect();
        let error =
            Error::new(ErrorKind::InvalidArgument, format!("the files are of several kinds: {}", found.join(", ")));
        // LeRobot's layout: tables of time steps, films of cameras, and what describes both.
        if let Some(info) = all(files).find(|&file| files.name(file).ends_with(b"meta/info.json")) {
            let data = files.path(info).parent().and_then(Path::parent).map(|root| root.join("data"));
            let data = data.unwrap_or_default();
            return error.with_path(files.place()).with_remedy(format!(
                "this looks like a LeRobot dataset: open its tables, {}, and read its films in a transform",
                data.display()
            ));
        }
        let remedy = "name the format (--format, format=), or the files; folder takes every file as a sample";
        error.with_path(files.place()).with_remedy(remedy)
    }
}

fn bytes_show_nothing(count: u64, path: &Path) -> Error {
    let files = if count == 1 { "a file of raw bytes does".into() } else { format!("{count} files of raw bytes do") };
    let what = format!("{files} not show what a sample is");
    Error::new(ErrorKind::InvalidArgument, what).with_path(path).with_remedy(
        "give record_bytes (--record-bytes) for records of one size; window_tokens and token_dtype \
         for tokens; or the format folder, where every file is a sample",
    )
}

/// Refuses files of raw elements whose first bytes are the header of a known format: it would be data.
///
/// # Errors
/// `InvalidArgument`, with what the files are. Few files are looked at.
pub(crate) fn refuse_headers(files: &FileTable, elements: &str, formats: &[Format]) -> Result<()> {
    let all: Vec<FileId> = all(files).collect();
    for file in spread(&all) {
        let place = files.at(file);
        let head = head(&place);
        let (name, remedy) = match vote_of(&head, formats).filter(|_| !head.starts_with(&PICKLE)) {
            Some(Vote::Format(at)) => (formats[usize::from(at)].name, "open it as that format"),
            Some(Vote::Unread(at)) if UNREAD[usize::from(at)].magic.len() >= MAGIC_BYTES_LEAST => {
                (UNREAD[usize::from(at)].name, UNREAD[usize::from(at)].remedy)
            }
            _ if LLM_C.iter().any(|magic| head.starts_with(&magic.to_le_bytes())) => {
                ("llm.c", "its tokens begin after 256 integers: give header_bytes=1024 (--header-bytes 1024)")
            }
            _ => continue,
        };
        let what = format!("the file begins with a header of {name}, which would be taken for {elements}");
        return Err(Error::new(ErrorKind::InvalidArgument, what).with_path(place).with_remedy(remedy));
    }
    Ok(())
}

/// The first number of llm.c's files of tokens: those of GPT-2 (u16), and of Llama 3 (u32). Source:
/// `dev/data/data_common.py`.
const LLM_C: [u32; 2] = [20_240_520, 20_240_801];
/// How a pickle begins. So may elements.
const PICKLE: [u8; 1] = [0x80];
/// Shorter magic numbers may be elements.
const MAGIC_BYTES_LEAST: usize = 4;

/// What the first bytes of a file vote for, whatever its name.
fn vote_of(head: &[u8], formats: &[Format]) -> Option<Vote> {
    let known: [(&[u8], &str); 5] = [
        (b"PK\x03\x04", "zip"),
        (b"PAR1", "parquet"),
        (b"ARROW1", "arrow"),
        (b"\x93NUMPY", "npy"),
        (b"\x89HDF\r\n\x1a\n", "hdf5"),
    ];
    if let Some((_, name)) = known.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Some(roles::format(name, formats));
    }
    let is_one = |known: &roles::Unread| !known.magic.is_empty() && head.starts_with(known.magic);
    if let Some(at) = UNREAD.iter().position(is_one) {
        return Some(Vote::Unread(at as u8));
    }
    // A pickle begins with its version, and its frame or its first object.
    matches!(head, [0x80, 2..=5, b'}' | b']' | 0x95 | b'c', ..]).then(|| unread("pickle"))
}

/// Whether files called `.json` hold many samples each, as JSON Lines or as one array of objects: as samples of their
/// own they would be far too few.
fn are_rows_of_json(files: &FileTable, its: &[FileId], looked_at: &[FileId]) -> Result<bool> {
    let rows: Vec<Option<Rows>> = looked_at.iter().map(|&file| rows_of_json(&files.at(file))).collect();
    let Some(lines) = rows.iter().position(|rows| *rows == Some(Rows::Lines)) else {
        // Many arrays are what belongs to a sample each: the objects of an image.
        return Ok(!rows.is_empty() && its.len() <= LOOKS && rows.iter().all(Option::is_some));
    };
    if rows.iter().all(Option::is_some) {
        return Ok(true);
    }
    let what = format!("this is one of {} files, and it holds JSON Lines, which others do not", its.len());
    let error = Error::new(ErrorKind::InvalidArgument, what).with_path(files.path(looked_at[lines]));
    Err(error.with_remedy("name the files themselves and the format jsonl, or call them .jsonl"))
}

/// How a file has rows of JSON.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// Objects, each on its line.
    Lines,
    /// One array of objects.
    Array,
}

/// How a file that is called `.json` has rows, if it does.
fn rows_of_json(place: &Place) -> Option<Rows> {
    if !place.has_extension("json") {
        return None;
    }
    let mut text = Vec::new();
    place.reader().ok()?.take(LINES_LOOKED_AT_BYTES).read_to_end(&mut text).ok()?;
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text).trim_ascii_start();
    if let Some(elements) = text.strip_prefix(b"[") {
        return elements.trim_ascii_start().starts_with(b"{").then_some(Rows::Array);
    }
    let mut lines = text.split(|&byte| byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let is_object = first.starts_with(b"{") && serde_json::from_slice::<serde::de::IgnoredAny>(first).is_ok();
    (is_object && lines.next().is_some_and(|second| second.starts_with(b"{"))).then_some(Rows::Lines)
}

/// Whether a folder holds the metadata of an Iceberg table.
fn has_iceberg_metadata(root: &Place) -> bool {
    let Ok(entries) = root.join("metadata").list() else { return false };
    entries.flatten().take(LOOKS).any(|entry| {
        let name = entry.name();
        let name = name.to_string_lossy();
        name.ends_with(".metadata.json") || name == "version-hint.text"
    })
}

/// A few of these files, from the first to the last.
fn spread(files: &[FileId]) -> impl Iterator<Item = FileId> {
    let count = files.len().min(LOOKS);
    (0..count).map(move |number| files[if count < 2 { 0 } else { number * (files.len() - 1) / (count - 1) }])
}

fn all(files: &FileTable) -> impl Iterator<Item = FileId> + use<> {
    // Fits: a table has fewer than 2^32 files.
    (0..files.len() as u32).map(FileId)
}
