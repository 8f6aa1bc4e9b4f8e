//! Zip archives of files: every member is a sample, as every file of a folder is.
//!
//! Nothing but the directories of the archives is read when they are opened. A member is read together with its own
//! header, whose length only the header says; a deflated member is a unit.

pub(crate) mod directory;

use crate::dataset::{
    Check, DType, Dataset, Field, FileId, Index, Sample, SampleId, Schema, Shape, SkipReason, Span, UnitId, Units,
    Value,
};
use crate::detect::{format_of_name, is_beside_data};
use crate::find::names::has_extension;
use crate::find::paths::header_thread_count;
use crate::format::{Format, Paths, Shows};
use crate::index::headers::{Source, head, map_files};
use crate::options::{FormatOptions, options};
use bytes::Bytes;
use directory::{DEFLATED, Member, STORED, content_in, inflate};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::Arc;
use uringload_core::{Error, ErrorKind, Result};

options! {
    /// Options of zip.
    pub struct ZipOptions {
        /// Whether the folders of files are their classes: true, and a file outside a folder is an error; false; or not
        /// given: they are, if every file is in a subfolder of its root, and none was named by itself.
        labels: Option<bool>,
    }
}

pub(crate) const FORMAT: Format = Format {
    name: "zip",
    help: "Zip archives of files: every member is a sample; their folders give labels.",
    options: ZipOptions::SPECS,
    has_sidecars: false,
    shows: Shows::Names {
        called: |name| has_extension(name, "zip"),
        // An archive without a member begins with its end.
        begins: |place| head(place).starts_with(b"PK"),
    },
    open: |paths, options| Ok(Arc::new(Zip::open(paths, &options.typed()?)?)),
};

/// Zip archives of files. Memory: some 120 bytes and its name for each member.
#[derive(Debug)]
struct Zip {
    /// Every archive is a shard.
    index: Index,
    /// In the order of their names, archive by archive.
    entries: Vec<Entry>,
    /// The samples whose members are deflated, one a unit.
    deflated: Vec<u32>,
}

/// A sample.
#[derive(Debug)]
struct Entry {
    file: FileId,
    member: Member,
    /// Position in the classes, if there are any.
    label: u32,
    unit: Option<UnitId>,
}

impl Zip {
    /// Opens folders, files and patterns; errors are those of [`open`](crate::open).
    fn open(mut paths: Paths, options: &ZipOptions) -> Result<Zip> {
        let (common, formats) = (&options.common, paths.formats());
        let found = paths.find(&["zip"], common.threads)?.only_part(common.part)?;
        let (files, mut skips) = (found.files, found.skips);
        let archives = map_files(0..files.len() as u32, header_thread_count(common.threads), |file| {
            let source = Source::open(&files, file)?;
            samples(directory::members(&source)?, &source, formats)
        })?;
        let (mut entries, mut ends, mut deflated) = (Vec::new(), Vec::new(), Vec::new());
        for (Archive { members, left_out }, file) in archives.into_iter().zip(0..) {
            let path = files.path(FileId(file));
            left_out.iter().for_each(|(reason, name)| skips.add(*reason, &path.join(name)));
            for member in members {
                let number = u32::try_from(entries.len()).map_err(|_| {
                    Error::new(ErrorKind::Unavailable, "the archives have more than 2^32 members").with_path(&path)
                })?;
                // Fits: there are no more units than members.
                let unit = (member.method == DEFLATED).then_some(UnitId(deflated.len() as u32));
                deflated.extend(unit.map(|_| number));
                entries.push(Entry { file: FileId(file), member, label: 0, unit });
            }
            ends.push(entries.len() as u64);
        }
        if entries.is_empty() {
            let error = Error::new(ErrorKind::Empty, "no archive has a file").with_path(files.place());
            return Err(error.with_remedy("name another archive, or choose another format"));
        }
        let classes = label(&mut entries, options.labels).map_err(|error| error.with_path(files.place()))?;
        let mut fields = vec![Field { name: "data".into(), dtype: DType::U8, shape: Shape::Ragged }];
        if classes.is_some() {
            fields.push(Field { name: "label".into(), dtype: DType::I64, shape: Shape::Fixed(Vec::new()) });
        }
        let mut index = Index::new("zip", files, Schema { fields }, entries.len() as u64);
        index.bytes = entries.iter().fold(0, |sum, entry| u64::saturating_add(sum, entry.member.bytes));
        index.shards = ends;
        index.classes = classes.unwrap_or_default().into_iter().map(Into::into).collect();
        index.left_out = skips.into_vec();
        Ok(Zip { index, entries, deflated })
    }

    fn entry(&self, id: SampleId) -> &Entry {
        &self.entries[id.0 as usize]
    }

    fn unit(&self, unit: UnitId) -> &Entry {
        &self.entries[self.deflated[unit.0 as usize] as usize]
    }

    fn corrupt(&self, entry: &Entry, what: impl std::fmt::Display) -> Error {
        let what = format!("member {:?} {what}", entry.member.name);
        let error = Error::new(ErrorKind::Corrupt, what).with_path(self.files().path(entry.file));
        error.with_offset(entry.member.header).with_remedy("fetch or write the archive again")
    }

    /// The stored bytes of a member in what was read from its header on.
    fn content(&self, entry: &Entry, read: &Bytes) -> Result<Bytes> {
        let range = content_in(&entry.member, read).map_err(|what| self.corrupt(entry, what))?;
        Ok(read.slice(range))
    }
}

/// From the header of a member to what follows it.
fn span(entry: &Entry) -> Span {
    let Member { header, limit, .. } = entry.member;
    Span { file: entry.file, offset: header, len: limit - header }
}

impl Dataset for Zip {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        let entry = self.entry(id);
        out.extend(entry.unit.is_none().then(|| span(entry)));
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        let entry = self.entry(id);
        let read = raw.first().ok_or_else(|| self.corrupt(entry, "was not read"))?;
        let value = if entry.unit.is_some() { read.clone() } else { self.content(entry, read)? };
        out.values.push(Value::Bytes(value));
        out.values.extend(self.label(id).map(|(label, _)| Value::I64(label)));
        Ok(())
    }

    fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        out.extend_from_slice(self.entry(id).member.name.as_bytes());
    }

    fn length(&self, id: SampleId, field: usize) -> Option<u64> {
        Some(if field == 0 { self.entry(id).member.bytes } else { 1 })
    }

    fn label(&self, id: SampleId) -> Option<(i64, &OsStr)> {
        let label = self.entry(id).label;
        Some((label.into(), self.index.classes.get(label as usize)?))
    }

    fn units(&self) -> Option<&dyn Units> {
        (!self.deflated.is_empty()).then_some(self)
    }

    /// The CRC-32 of every stored member; that of a deflated one is compared when it is inflated.
    fn checks(&self, file: FileId, out: &mut Vec<Check>) -> Result<()> {
        directory::checks(&Source::open(self.files(), file)?, file, |_| true, out)
    }
}

impl Units for Zip {
    fn count(&self) -> u32 {
        // Fits: there are no more units than members.
        self.deflated.len() as u32
    }

    fn of(&self, id: SampleId, out: &mut Vec<UnitId>) {
        out.extend(self.entry(id).unit);
    }

    fn stored(&self, unit: UnitId, out: &mut Vec<Span>) {
        out.push(span(self.unit(unit)));
    }

    fn decoded_bytes(&self, unit: UnitId) -> u64 {
        self.unit(unit).member.bytes.max(1)
    }

    fn decode(&self, unit: UnitId, stored: &[Bytes], out: &mut [u8]) -> Result<usize> {
        let entry = self.unit(unit);
        let read = stored.first().ok_or_else(|| self.corrupt(entry, "was not read"))?;
        let content = self.content(entry, read)?;
        let (bytes, crc) = (entry.member.bytes, entry.member.crc);
        inflate(&content, out, bytes, crc).map_err(|what| self.corrupt(entry, what))?;
        // Fits: the caller has allocated this much.
        Ok(bytes as usize)
    }
}

/// The members of an archive that are samples, sorted by name, and what is left out.
struct Archive {
    members: Vec<Member>,
    left_out: Vec<(SkipReason, String)>,
}

/// Sorts members out.
///
/// # Errors
/// `Unavailable` for a member that is encrypted or compressed in another way; `InvalidArgument` for an archive of
/// datasets, whose members are no samples.
fn samples(members: Vec<Member>, source: &Source, formats: &'static [Format]) -> Result<Archive> {
    let mut archive = Archive { members: Vec::new(), left_out: Vec::new() };
    let mut others: Vec<(&str, String)> = Vec::new();
    for member in members {
        let base = member.name.rsplit('/').next().unwrap_or_default();
        // Folders have entries of their own; macOS adds its attributes below __MACOSX.
        let is_hidden = base.starts_with('.') || member.name.starts_with("__MACOSX/");
        let reason = if base.is_empty() {
            continue;
        } else if is_hidden {
            SkipReason::Hidden
        } else if is_beside_data(member.name.as_bytes(), formats) {
            SkipReason::Companion
        } else if let Some(format) = format_of_name(member.name.as_bytes(), formats) {
            others.push((format, member.name));
            continue;
        } else {
            archive.members.push(member);
            continue;
        };
        archive.left_out.push((reason, member.name));
    }
    if let Some((format, first)) = others.first()
        && others.len() >= archive.members.len()
    {
        let what = format!("{} members of the archive are of the format {format}, the first {first:?}", others.len());
        let error = Error::new(ErrorKind::InvalidArgument, what).with_path(source.path());
        return Err(error.with_remedy("unpack it, and open the folder"));
    }
    archive.left_out.extend(others.into_iter().map(|(_, name)| (SkipReason::OtherFormat, name)));
    if let Some(member) =
        archive.members.iter().find(|it| it.is_encrypted() || ![STORED, DEFLATED].contains(&it.method))
    {
        let how = if member.is_encrypted() { "encryption".into() } else { member.method_name() };
        let what = format!("member {:?} is packed by {how}, and stored and deflated members are read", member.name);
        return Err(source.unavailable(member.header, what).with_remedy("unpack it, and open the folder"));
    }
    archive.members.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(archive)
}

/// Gives each sample its class: the first folder that not all of them share. `None` where they have no classes.
///
/// # Errors
/// `InvalidArgument` where classes are asked for, and a member is in none.
fn label(entries: &mut [Entry], asked: Option<bool>) -> Result<Option<Vec<String>>> {
    if asked == Some(false) {
        return Ok(None);
    }
    let shared = shared_folder(entries);
    // Each class with its number in the order of the members, which becomes that in the order of the names.
    let mut classes: BTreeMap<String, u32> = BTreeMap::new();
    for Entry { member, label, .. } in &mut *entries {
        *label = match member.name[shared..].split_once('/') {
            Some((class, _)) if classes.contains_key(class) => classes[class],
            Some((class, _)) => {
                // Fits: there are no more classes than members.
                let number = classes.len() as u32;
                classes.insert(class.to_owned(), number);
                number
            }
            None if asked.is_none() => return Ok(None),
            None => {
                let what = format!("labels are required, and the member {:?} is in no class folder", member.name);
                let error = Error::new(ErrorKind::InvalidArgument, what);
                return Err(error.with_remedy("put it into a class folder, or go without labels"));
            }
        };
    }
    let mut places = vec![0; classes.len()];
    (0..).zip(classes.values()).for_each(|(place, &number)| places[number as usize] = place);
    entries.iter_mut().for_each(|entry| entry.label = places[entry.label as usize]);
    Ok(Some(classes.into_keys().collect()))
}

/// The length of the folders, with their slashes, that all names begin with.
fn shared_folder(entries: &[Entry]) -> usize {
    let Some((first, others)) = entries.split_first() else { return 0 };
    let first = &*first.member.name;
    let folder = |len: usize| first[..len].rfind('/').map_or(0, |slash| slash + 1);
    others.iter().fold(folder(first.len()), |shared, entry| {
        let name = entry.member.name.as_bytes();
        let same = first.as_bytes()[..shared].iter().zip(name).take_while(|(a, b)| a == b).count();
        if same == shared {
            shared
        } else {
            first.as_bytes()[..same].iter().rposition(|&it| it == b'/').map_or(0, |at| at + 1)
        }
    })
}
