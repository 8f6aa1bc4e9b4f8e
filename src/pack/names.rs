//! Maps a dataset's samples to keys and fields: which members a sample has, and their names.

use super::layout::Member;
use super::npy;
use crate::dataset::inspect::{KEY_BYTES_MAX, split_name};
use crate::dataset::{DType, Dataset, Field, SampleId, Shape};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::sync::Arc;

/// The keys of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keys {
    /// The names in the source, if it has names: files of folders and samples of tar archives. Otherwise numbers.
    #[default]
    Source,
    /// Their numbers in the source, from 0, with at least nine digits. A file keeps the last ending of its name as its
    /// field.
    Numbers,
}

impl Keys {
    /// The name, as in the command line and the manifest.
    #[doc(hidden)]
    pub fn name(self) -> &'static str {
        match self {
            Keys::Source => "source",
            Keys::Numbers => "numbers",
        }
    }
}

/// The keys of the samples of a dataset.
pub(super) struct Names {
    dataset: Arc<dyn Dataset>,
    /// Whether samples are files, whose endings are fields.
    is_files: bool,
    keys: Keys,
    columns: Vec<Column>,
    /// Digits of a number.
    width: usize,
    /// The ending that all images get, if files have several endings and each sample has one image: otherwise a reader
    /// would make a column of each ending, and each sample would lack the others.
    image_ending: Option<Vec<u8>>,
}

struct Column {
    /// The field, or what is added to a file's name.
    field: String,
    form: Form,
    element_bytes: u64,
}

/// The content of a member.
enum Form {
    /// The bytes of the value.
    Raw,
    /// A number in decimal digits, the label of a folder.
    Label,
    /// A `.npy` file, with its header if all values have one shape.
    Array { dtype: DType, header: Option<Vec<u8>> },
}

/// Minimum number of digits, as in the examples of webdataset's writers.
const DIGITS: usize = 9;

/// Endings of images. Decoders go by the first bytes.
const IMAGES: [&[u8]; 8] = [b"jpg", b"jpeg", b"png", b"webp", b"bmp", b"gif", b"tif", b"tiff"];

/// The field of a file whose name has no ending.
const NO_ENDING: &[u8] = b"bin";

/// The field of a label, as in webdataset's decoders.
const LABEL_FIELD: &str = "cls";

impl Names {
    /// # Errors
    /// `InvalidArgument` for two columns that would be one field.
    pub(super) fn new(dataset: Arc<dyn Dataset>, keys: Keys) -> Result<Names> {
        let is_files = dataset.format() == "folder";
        let is_tar = dataset.format() == "tar";
        let mut columns: Vec<Column> = Vec::new();
        let mut fields: HashMap<String, &str> = HashMap::new();
        for (number, field) in dataset.schema().fields.iter().enumerate() {
            let column = match (is_files, number) {
                (true, 1) => Column { field: LABEL_FIELD.into(), form: Form::Label, element_bytes: 8 },
                _ => Column::new(field, is_files),
            };
            if let Some(other) = fields.insert(column.field.clone(), &field.name) {
                let what =
                    format!("the columns {other:?} and {:?} would both be the field {:?}", field.name, column.field);
                let remedy = "choose columns that differ in more than upper case and special characters";
                return Err(Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy));
            }
            columns.push(column);
        }
        let keys = if is_files || is_tar { keys } else { Keys::Numbers };
        let width = dataset.len().saturating_sub(1).to_string().len().max(DIGITS);
        drop(fields);
        let mut names = Names { dataset, is_files, keys, columns, width, image_ending: None };
        names.image_ending = if is_files { names.common_image_ending() } else { None };
        Ok(names)
    }

    /// The most frequent ending of images, if there are several and each sample has one image.
    fn common_image_ending(&self) -> Option<Vec<u8>> {
        let mut counts: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let mut has_image = true;
        for id in 0..self.dataset.len() {
            if self.begins(id) && !std::mem::take(&mut has_image) {
                return None;
            }
            let ending = lower(&self.own_ending(SampleId(id)));
            if !IMAGES.contains(&&*ending) {
                continue;
            }
            if std::mem::replace(&mut has_image, true) {
                return None;
            }
            *counts.entry(ending).or_default() += 1;
        }
        let most = counts.iter().max_by_key(|(_, count)| **count).map(|(ending, _)| ending.clone());
        most.filter(|_| has_image && counts.len() > 1)
    }

    /// The kind of keys that is used.
    pub(super) fn keys(&self) -> Keys {
        self.keys
    }

    /// Whether a new sample begins here: files whose names differ only after the first dot are one sample.
    pub(super) fn begins(&self, id: u64) -> bool {
        if !self.is_files || self.keys == Keys::Numbers || id == 0 {
            return true;
        }
        let (mut key, mut before) = (Vec::new(), Vec::new());
        self.key(SampleId(id), &mut key);
        self.key(SampleId(id - 1), &mut before);
        key != before
    }

    /// Appends the key of a sample.
    pub(super) fn key(&self, id: SampleId, out: &mut Vec<u8>) {
        let start = out.len();
        match self.keys {
            Keys::Numbers => {
                let width = self.width;
                write!(out, "{:0width$}", id.0).expect("a Vec takes everything");
            }
            Keys::Source => self.dataset.key(id, out),
        }
        if self.is_files
            && self.keys == Keys::Source
            && let Some(dot) = first_dot(&out[start..])
        {
            out.truncate(start + dot);
        }
    }

    /// Appends the members of a sample of the dataset, with sizes from the index. Returns whether the index has all of
    /// them.
    pub(super) fn members(&self, id: SampleId, is_first: bool, out: &mut Vec<Member>) -> bool {
        let mut is_known = true;
        for (number, column) in self.columns.iter().enumerate() {
            let is_label = matches!(column.form, Form::Label);
            if is_label && !is_first || !self.dataset.has_field(id, number) {
                continue;
            }
            let mut name = Vec::new();
            let ending = if self.is_files && !is_label { self.file_ending(id) } else { Vec::new() };
            self.key(id, &mut name);
            name.push(b'.');
            let key_bytes = name.len();
            name.extend(ending);
            name.extend(column.field.as_bytes());
            let elements = self.dataset.length(id, number);
            is_known &= elements.is_some();
            out.push(Member {
                field: lower(&name[key_bytes..]),
                name,
                is_label,
                id: id.0,
                column: number,
                len: elements.map_or(0, |elements| column.form.bytes(elements, column.element_bytes)),
                ..Member::default()
            });
        }
        is_known
    }

    /// Sorts the members of a sample, and checks that readers will recognize them as this sample.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that readers would parse differently, and for two members of one name.
    pub(super) fn finish(&self, key: &[u8], members: &mut Vec<Member>) -> Result<()> {
        members.sort_by(|a, b| (&a.field, a.is_label).cmp(&(&b.field, b.is_label)));
        // A label in a file beside its image was chosen by the user; the folder's name stays in the key.
        members.dedup_by(|later, first| later.is_label && later.field == first.field);
        let refused = |what: String, id: SampleId| {
            Err(Error::new(ErrorKind::InvalidArgument, what)
                .with_path(self.path(id))
                .with_remedy("rename it, or call samples by number: keys=numbers (--keys numbers)"))
        };
        for member in members.iter() {
            let name = String::from_utf8_lossy(&member.name);
            // An archive must not unpack outside its folder, whatever the names in the source.
            let is_safe = is_below(&member.name);
            let is_read =
                matches!(split_name(&member.name), Ok((found, field)) if found == key && lower(field) == member.field);
            if !is_safe || !is_read || key.is_empty() || key.len() > KEY_BYTES_MAX {
                let what = format!("sample {} would be the member {name:?}, which readers take for another", member.id);
                return refused(what, SampleId(member.id));
            }
        }
        if let Some(pair) = members.windows(2).find(|pair| pair[0].field == pair[1].field) {
            let [first, second] = [&pair[0], &pair[1]].map(|member| String::from_utf8_lossy(&member.name));
            let what = format!("{first:?} and {second:?} would be one field of one sample");
            return refused(what, SampleId(pair[1].id));
        }
        Ok(())
    }

    /// Gives a member the value that was read: bytes, or a number from the index.
    pub(super) fn fill(&self, member: &mut Member, value: Filling) {
        let column = &self.columns[member.column];
        let bytes = match (value, &column.form) {
            (Filling::Number(number), Form::Label) => {
                member.head = number.to_string().into_bytes();
                Bytes::new()
            }
            (Filling::Number(number), _) => Bytes::copy_from_slice(&number.to_le_bytes()),
            (Filling::Bytes(bytes), _) => bytes,
        };
        if let Form::Array { dtype, header } = &column.form {
            let elements = bytes.len() as u64 / column.element_bytes;
            member.head = header.clone().unwrap_or_else(|| npy::header(*dtype, &[elements]));
        }
        member.len = (member.head.len() + bytes.len()) as u64;
        member.value = bytes;
    }

    /// The part of a file's name after its key.
    fn file_ending(&self, id: SampleId) -> Vec<u8> {
        let own = self.own_ending(id);
        match &self.image_ending {
            Some(common) if IMAGES.contains(&&*lower(&own)) => common.clone(),
            _ => own,
        }
    }

    /// The part of a file's name from the first dot on, or from the last if keys are numbers.
    fn own_ending(&self, id: SampleId) -> Vec<u8> {
        let mut path = Vec::new();
        self.dataset.key(id, &mut path);
        let dot = match self.keys {
            Keys::Source => first_dot(&path),
            Keys::Numbers => first_dot(&path).and_then(|_| path.iter().rposition(|&byte| byte == b'.')),
        };
        dot.map_or_else(|| NO_ENDING.to_vec(), |dot| path[dot + 1..].to_vec())
    }

    /// The file of a sample.
    fn path(&self, id: SampleId) -> std::path::PathBuf {
        let mut spans = Vec::new();
        self.dataset.spans(id, &mut spans);
        spans.first().map_or_else(Default::default, |span| self.dataset.files().path(span.file))
    }
}

/// What was read for a member.
pub(super) enum Filling {
    Bytes(Bytes),
    Number(i64),
}

impl Column {
    fn new(field: &Field, is_file: bool) -> Column {
        let header = match &field.shape {
            Shape::Fixed(shape) => Some(npy::header(field.dtype, shape)),
            Shape::Ragged => None,
        };
        let is_vector = match &field.shape {
            Shape::Fixed(shape) => shape.len() == 1,
            Shape::Ragged => true,
        };
        let name = if is_file { String::new() } else { legal(&field.name) };
        let element_bytes = field.dtype.size();
        match field.dtype {
            // The length of the value says everything about it.
            DType::U8 if is_vector => Column { field: name, form: Form::Raw, element_bytes },
            dtype => {
                let form = Form::Array { dtype, header };
                Column { field: name + &npy::suffix(dtype), form, element_bytes }
            }
        }
    }
}

impl Form {
    /// Bytes of a member whose value has this many elements.
    fn bytes(&self, elements: u64, element_bytes: u64) -> u64 {
        let value = elements.saturating_mul(element_bytes);
        match self {
            Form::Raw => value,
            // Anything shorter than a block takes a block.
            Form::Label => 1,
            Form::Array { dtype, header } => {
                let head = header.as_ref().map_or_else(|| npy::header(*dtype, &[elements]).len(), Vec::len);
                value.saturating_add(head as u64)
            }
        }
    }
}

/// The name of a column as a valid field: in lower case, as readers make it; without characters that end a name or a
/// folder; and without the two leading underscores that mark webdataset's own fields.
fn legal(name: &str) -> String {
    let is_bad = |c: char| c == '/' || c.is_control() || c.is_whitespace();
    let name: String = name.to_lowercase().chars().map(|c| if is_bad(c) { '_' } else { c }).collect();
    let name = if name.starts_with("__") { name.trim_start_matches('_') } else { &name };
    if name.is_empty() { "column".into() } else { name.into() }
}

/// The position of the first dot of a path's last component, unless it begins with one.
fn first_dot(path: &[u8]) -> Option<usize> {
    let base = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    path[base..].iter().position(|&byte| byte == b'.').filter(|&dot| dot > 0).map(|dot| base + dot)
}

/// As readers do.
fn lower(field: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(field).to_lowercase().into_bytes()
}

/// Whether a name stays below the folder that an archive is unpacked in.
fn is_below(name: &[u8]) -> bool {
    !name.starts_with(b"/") && name.split(|&byte| byte == b'/').all(|part| part != b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_become_fields() {
        for (name, field) in [
            ("image", "image"),
            ("Image JPG", "image_jpg"),
            ("a/b\nc", "a_b_c"),
            ("__key__", "key__"),
            ("____", "column"),
            ("", "column"),
            ("x.shape", "x.shape"),
        ] {
            assert_eq!(legal(name), field, "{name:?}");
        }
    }

    #[test]
    fn the_first_dot_of_the_last_component() {
        for (path, dot) in
            [(&b"a.jpg"[..], Some(1)), (b"x.y/a.b.c", Some(5)), (b"x.y/a", None), (b"x/.a.b", None), (b"", None)]
        {
            assert_eq!(first_dot(path), dot, "{path:?}");
        }
    }
}
