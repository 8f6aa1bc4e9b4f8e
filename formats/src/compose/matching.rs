//! Finds the row of a table that belongs to each sample, by the names that the sample goes by.

use super::known::{KnownColumn, WithColumns};
use super::view::View;
use crate::dataset::{Dataset, SampleId, Skipped};
use crate::find::names::{base_of, without_extension};
use crate::options::words;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use uringload_core::{Error, ErrorKind, Result};

/// What happens where labels and samples do not fit one to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unlabelled {
    /// It is an error that counts and names both sides.
    #[default]
    Error,
    /// Samples without a label, and labels without a sample, are left out and counted.
    Skip,
}

words!(Unlabelled { "error" => Error, "skip" => Skip, });

/// How many names an error shows.
const SHOWN: usize = 3;

/// The names of a table's rows.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    names: Vec<Vec<u8>>,
    by_name: HashMap<Vec<u8>, usize>,
    /// Rows by the last component of their names, where that is no whole name: `None` if several have it.
    by_base: HashMap<Vec<u8>, Option<usize>>,
    /// The file that they come from.
    file: Option<PathBuf>,
    /// Whether the first row may hold the names of the columns.
    pub(super) may_have_header: bool,
}

impl Names {
    /// # Errors
    /// `InvalidArgument` for a name that comes twice.
    pub(crate) fn of(names: Vec<Vec<u8>>, file: Option<PathBuf>) -> Result<Names> {
        let (mut by_name, mut by_base) = (HashMap::with_capacity(names.len()), HashMap::new());
        for (row, name) in names.iter().enumerate() {
            if by_name.insert(name.clone(), row).is_some() {
                let error = refused(format!("{:?} has two labels", lossy(name)), "give each name one label");
                return Err(match file {
                    Some(file) => error.with_path(file),
                    None => error,
                });
            }
            let base = base_of(name);
            if base.len() < name.len() {
                match by_base.entry(base.to_vec()) {
                    Entry::Vacant(free) => _ = free.insert(Some(row)),
                    Entry::Occupied(mut taken) => _ = taken.insert(None),
                }
            }
        }
        Ok(Names { names, by_name, by_base, file, may_have_header: false })
    }

    pub(super) fn name(&self, row: usize) -> &[u8] {
        &self.names[row]
    }

    /// The row of the sample with this key: under one of the sample's names, else the row whose name ends in the key.
    fn row_of(&self, key: &[u8]) -> Option<usize> {
        let known = names_of(key).find_map(|name| self.by_name.get(name).copied());
        known.or_else(|| {
            let row = (*self.by_base.get(base_of(key))?)?;
            let above = self.names[row].strip_suffix(key)?;
            above.ends_with(b"/").then_some(row)
        })
    }

    /// Adds the columns that `columns` makes of the rows of the samples, in their order, to a dataset. `missing` says
    /// what a row has that has no value.
    ///
    /// # Errors
    /// `InvalidArgument` where samples have no row, or rows no sample, unless both are to be left out; where two
    /// samples go by the same name; and where the dataset has such a column. `Empty` where no sample has a row.
    pub(crate) fn onto(
        &self,
        dataset: Arc<dyn Dataset>,
        unlabelled: Unlabelled,
        missing: impl Fn(usize) -> Option<String>,
        columns: impl FnOnce(&[usize]) -> Result<Vec<KnownColumn>>,
    ) -> Result<WithColumns> {
        let mut found = Matches::default();
        let (mut key, mut user) = (Vec::new(), vec![None; self.names.len()]);
        for id in 0..dataset.len() {
            key.clear();
            dataset.key(SampleId(id), &mut key);
            let Some(row) = self.row_of(&key) else {
                found.without.add(&key);
                continue;
            };
            if let Some(other) = user[row].replace(id) {
                return Err(self.ambiguous(&*dataset, row, (other, id)));
            }
            if let Some(missing) = missing(row) {
                found.without.add(&key);
                found.missing.get_or_insert((row, missing));
                continue;
            }
            found.ids.push(id);
            found.rows.push(row);
        }
        for (row, _) in user.iter().enumerate().filter(|(_, user)| user.is_none()) {
            // The names of the columns are no label, and belong to no sample.
            if row > 0 || !self.may_have_header {
                found.unused.add(&self.names[row]);
            }
        }
        let Matches { ids, rows, without, unused, missing } = found;
        if without.count + unused.count > 0 && (unlabelled == Unlabelled::Error || ids.is_empty()) {
            let what = format!(
                "{} samples have no label{}, and {} labels have no sample{}",
                without.count,
                without.shown(),
                unused.count,
                unused.shown()
            );
            let of_row = |(row, says): (usize, String)| {
                format!("; row {} says {says} of {:?}", row + 1, lossy(&self.names[row]))
            };
            let what = what + &missing.map_or_else(String::new, of_row);
            let kind = if ids.is_empty() { ErrorKind::Empty } else { ErrorKind::InvalidArgument };
            let remedy = "name samples as they lie below the folder, or skip what has no partner (unlabelled=\"skip\")";
            return Err(self.placed(Error::new(kind, what).with_remedy(remedy)));
        }
        let place = dataset.files().roots().first().cloned().unwrap_or_default();
        let mut left_out = Vec::new();
        if without.count > 0 {
            let first = place.join(OsStr::from_bytes(&without.first[0]));
            left_out.push(Skipped { what: "samples without a label", count: without.count, first });
        }
        if unused.count > 0 {
            let first = place.join(OsStr::from_bytes(&unused.first[0]));
            left_out.push(Skipped { what: "labels without a sample", count: unused.count, first });
        }
        let dataset: Arc<dyn Dataset> = if without.count > 0 { Arc::new(View::of(dataset, ids)?) } else { dataset };
        Ok(WithColumns::new(dataset, columns(&rows)?)?.leaving_out(left_out))
    }

    fn ambiguous(&self, dataset: &dyn Dataset, row: usize, samples: (u64, u64)) -> Error {
        let key = |id| {
            let mut key = Vec::new();
            dataset.key(SampleId(id), &mut key);
            lossy(&key)
        };
        let (one, other) = (key(samples.0), key(samples.1));
        let what = format!("the label of {:?} fits two samples: {one:?} and {other:?}", lossy(&self.names[row]));
        self.placed(refused(what, "name samples by their paths below the folder"))
    }

    /// The error, with the file of the table.
    pub(crate) fn placed(&self, error: Error) -> Error {
        match &self.file {
            Some(file) => error.with_path(file),
            None => error,
        }
    }
}

/// Which samples and rows fit.
#[derive(Default)]
struct Matches {
    ids: Vec<u64>,
    rows: Vec<usize>,
    without: Counted,
    unused: Counted,
    /// The first row that has no value, and what it has.
    missing: Option<(usize, String)>,
}

/// How many there are, and the first of them.
#[derive(Default)]
struct Counted {
    count: u64,
    first: Vec<Vec<u8>>,
}

impl Counted {
    fn add(&mut self, name: &[u8]) {
        self.count += 1;
        if self.first.len() < SHOWN {
            self.first.push(name.to_vec());
        }
    }

    fn shown(&self) -> String {
        let names: Vec<String> = self.first.iter().map(|name| format!("{:?}", lossy(name))).collect();
        let more = if self.count > SHOWN as u64 { ", ..." } else { "" };
        if names.is_empty() { String::new() } else { format!(" ({}{more})", names.join(", ")) }
    }
}

/// The names that a sample goes by, the most exact first.
fn names_of(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    let base = base_of(key);
    [key, base, without_extension(key), without_extension(base)].into_iter()
}

fn lossy(name: &[u8]) -> String {
    OsString::from_vec(name.to_vec()).to_string_lossy().into_owned()
}

fn refused(what: String, remedy: &'static str) -> Error {
    Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy)
}
