//! Labels from a table of names: a file of `file,label` rows, or what the program has in memory.

use super::known::KnownColumn;
use super::matching::{Names, Unlabelled};
use crate::dataset::{DType, Dataset};
use crate::find::names::has_extension;
use crate::place::Place;
use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uringload_core::{Error, ErrorKind, Result};

/// Labels by the names of samples.
///
/// A sample is found by its key (for a folder: the file's path below it), else by the last component of that, else by
/// either without what follows the last dot, else by the one name that ends in its key. Labels that are all whole
/// numbers become 64-bit integers, numbers become `f64`, and anything else becomes classes, sorted by their bytes. An
/// empty label is none, and so is, among numbers, what pandas reads as none (`nan`, `NA`, `null` and their kin): its
/// sample has no label.
///
/// ```
/// use uringload_formats::{Dataset, Labels, Options, SampleId, Unlabelled, open};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// ["1.jpg", "2.jpg"].iter().for_each(|name| std::fs::write(folder.path().join(name), "a photo").unwrap());
/// let photos = open(&[folder.path()], &Options::new())?;
/// let labels = Labels::new([("2.jpg", "cat"), ("1.jpg", "dog")])?;
/// let labelled = labels.onto(photos, Unlabelled::Error)?;
/// assert_eq!(labelled.label(SampleId(0)), Some((1, "dog".as_ref())));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Labels {
    names: Names,
    labels: Vec<String>,
}

/// Texts that mean "no number", in any case of letters. Source: the values that `pandas.read_csv` takes for missing by
/// default, and those that parse as a float.
const MISSING: [&str; 15] = [
    "nan", "-nan", "+nan", "na", "n/a", "#n/a", "#na", "<na>", "null", "none", "1.#ind", "-1.#ind", "1.#qnan",
    "-1.#qnan", "#n/a n/a",
];

/// Most bytes of a file of labels. It is held in memory.
const FILE_BYTES_MAX: u64 = 4 << 30;

impl Labels {
    /// Pairs of a name and a label.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that comes twice.
    pub fn new<N: AsRef<OsStr>, L: Into<String>>(pairs: impl IntoIterator<Item = (N, L)>) -> Result<Labels> {
        let pairs = pairs.into_iter().map(|(name, label)| (name.as_ref().as_bytes().to_vec(), label.into()));
        let (names, labels) = pairs.unzip();
        Labels::of(names, labels, None)
    }

    /// Reads a file with a row `name,label` for each sample: with tabs between them if its name ends in `.tsv`, else
    /// commas. A first row that names no sample and has no number for a label holds the names of the columns.
    ///
    /// # Errors
    /// `Corrupt`, with the row's offset, for a row without exactly two fields; `InvalidArgument` for a name that comes
    /// twice; `Empty` for a file without a row; what the system says of the file.
    pub fn read(path: &Path) -> Result<Labels> {
        Labels::at(&Place::new(path))
    }

    /// As [`read`](Labels::read).
    pub(crate) fn at(place: &Place) -> Result<Labels> {
        let (source, path) = (place.open()?, place.path());
        if source.size() > FILE_BYTES_MAX {
            let what = format!("a file of labels may have {FILE_BYTES_MAX} bytes, and this has {}", source.size());
            return Err(Error::new(ErrorKind::Unavailable, what).with_path(path));
        }
        // Fits: it was compared above.
        let text = source.bytes(0, source.size() as usize, "the labels")?;
        let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&text);
        let is_tab = has_extension(path.as_os_str().as_bytes(), "tsv");
        let reader = ReaderBuilder::new().delimiter(if is_tab { b'\t' } else { b',' }).build();
        let (names, labels) = rows(reader, text, path)?;
        if names.is_empty() {
            return Err(Error::new(ErrorKind::Empty, "the file of labels has no row").with_path(path));
        }
        let mut read = Labels::of(names, labels, Some(path.to_path_buf()))?;
        let first = read.names.name(0);
        let is_word = !first.contains(&b'.') && !first.contains(&b'/');
        read.names.may_have_header = is_word && read.labels[0].parse::<f64>().is_err();
        Ok(read)
    }

    fn of(names: Vec<Vec<u8>>, labels: Vec<String>, file: Option<PathBuf>) -> Result<Labels> {
        Ok(Labels { names: Names::of(names, file)?, labels })
    }

    /// Adds the labels to a dataset as its column `label`.
    ///
    /// # Errors
    /// `InvalidArgument` where samples have no label, or labels no sample, unless both are to be left out; where two
    /// samples go by the same name; and where the dataset has a column `label`. `Empty` where no sample has a label.
    pub fn onto(self, dataset: Arc<dyn Dataset>, unlabelled: Unlabelled) -> Result<Arc<dyn Dataset>> {
        let are_numbers = self.are_numbers();
        let missing = |row: usize| {
            let label = &self.labels[row];
            is_missing(label, are_numbers).then(|| format!("{label:?}"))
        };
        Ok(Arc::new(self.names.onto(dataset, unlabelled, missing, |rows| Ok(vec![self.column(rows)?]))?))
    }

    /// Whether all labels are numbers but for those that are missing. The names of the columns are no label.
    fn are_numbers(&self) -> bool {
        let labels = || self.labels.iter().skip(self.names.may_have_header.into()).map(|label| label.trim());
        let is_number = |label: &str| label.parse::<f64>().is_ok_and(|number| !number.is_nan());
        let is_float = |label: &str| label.parse::<f64>().is_ok();
        labels().all(|label| is_number(label) || is_missing(label, true)) && labels().any(is_float)
    }

    /// The column of the labels in these rows.
    fn column(&self, rows: &[usize]) -> Result<KnownColumn> {
        let labels = || rows.iter().map(|&row| self.labels[row].trim());
        if let Ok(numbers) = labels().map(str::parse).collect::<Result<Vec<i64>, _>>() {
            return Ok(KnownColumn::of_numbers("label", numbers));
        }
        // A float would make other numbers of them.
        let is_large = |label: &&str| label.parse::<i64>().is_err() && label.parse::<i128>().is_ok();
        if self.are_numbers()
            && let Some(label) = labels().find(is_large)
        {
            let what = format!("the label {label} does not fit 64 bits");
            return Err(self.names.placed(refused(what, "number the classes from 0 on")));
        }
        if let Ok(numbers) = labels().map(str::parse).collect::<Result<Vec<f64>, _>>() {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            return KnownColumn::of_bytes("label", DType::F64, Vec::new(), bytes.into());
        }
        let classes: BTreeSet<&str> = labels().collect();
        let classes: Vec<&str> = classes.into_iter().collect();
        // Each is there: the classes were made of them.
        let of = |label| classes.binary_search(&label).unwrap_or(0).cast_signed() as i64;
        KnownColumn::of_classes("label", labels().map(of).collect(), classes.iter().map(OsString::from).collect())
    }
}

/// Whether a label is none, among numbers or among words.
fn is_missing(label: &str, among_numbers: bool) -> bool {
    let label = label.trim();
    label.is_empty() || among_numbers && MISSING.iter().any(|missing| missing.eq_ignore_ascii_case(label))
}

/// The two fields of each row.
fn rows(mut reader: Reader, mut text: &[u8], path: &Path) -> Result<(Vec<Vec<u8>>, Vec<String>)> {
    let (mut names, mut labels, whole) = (Vec::new(), Vec::new(), text.len());
    // A field is never longer than what it is read from.
    let (mut fields, mut ends) = (vec![0; text.len() + 1], [0; 3]);
    loop {
        let offset = (whole - text.len()) as u64;
        let (result, read, _, count) = reader.read_record(text, &mut fields, &mut ends);
        // A record is in `text` whole; only the end of the last one is shown by empty input.
        let (result, count) = match result {
            ReadRecordResult::InputEmpty => {
                let (result, _, _, more) = reader.read_record(&[], &mut fields, &mut ends[count..]);
                (result, count + more)
            }
            result => (result, count),
        };
        text = &text[read..];
        match (result, count) {
            (ReadRecordResult::End, _) => return Ok((names, labels)),
            (ReadRecordResult::Record, 2) => {
                let label = std::str::from_utf8(&fields[ends[0]..ends[1]]).map_err(|_| {
                    Error::new(ErrorKind::Corrupt, "a label is not UTF-8").with_path(path).with_offset(offset)
                })?;
                names.push(fields[..ends[0]].to_vec());
                labels.push(label.to_owned());
            }
            (_, count) => {
                let what = format!("a row of labels has {count} fields, and two are wanted: a name and a label");
                return Err(Error::new(ErrorKind::Corrupt, what)
                    .with_path(path)
                    .with_offset(offset)
                    .with_remedy("keep these two columns; a name that holds the delimiter goes in quotes"));
            }
        }
    }
}

fn refused(what: String, remedy: &'static str) -> Error {
    Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy)
}
