//! Which columns of a file are read, by their names, and which are left out.

use super::column::{Column, Kind, SAME_COLUMNS};
use crate::dataset::{DType, Shape, SkipReason};
use std::collections::HashSet;
use uringload_core::{Error, ErrorKind, Result};

/// Which columns of a file are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'a> {
    /// All that can be read.
    All,
    /// These, or those below them.
    Named(&'a [String]),
    /// Those that the first file has.
    Like(&'a [Column]),
}

/// Which columns are read, by number, and which are left out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) columns: Vec<usize>,
    pub(super) left_out: Vec<(SkipReason, String)>,
}

/// Gives a struct that holds a file, as Hugging Face's `Image`, `Audio` and `Video` do, one column of its name: the
/// bytes. The path beside them, which may be null, keeps its own name. Source: `datasets` 4.4, `features/image.py`.
pub(crate) fn name_file<T>(name: &str, fields: &mut [(String, Result<(Kind, T)>)]) {
    let is_file = |bytes: &Kind, path: &Kind| {
        let is_of_bytes = |kind: &Kind| kind.dtype == DType::U8 && kind.shape == Shape::Ragged;
        is_of_bytes(bytes) && !bytes.is_text && is_of_bytes(path) && path.is_text
    };
    let (bytes, path) = (format!("{name}.bytes"), format!("{name}.path"));
    if let [(first, _), _] = fields
        && *first == path
    {
        fields.swap(0, 1);
    }
    if let [(first, Ok((kind, _))), (second, Ok((beside, _)))] = fields
        && *first == bytes
        && *second == path
        && is_file(kind, beside)
    {
        name.clone_into(first);
    }
}

/// Whether a column is the path of a file whose bytes are the column before it. It is read only where it is named.
fn is_path(names: &[(String, Result<()>)], number: usize) -> bool {
    let Some(before) = number.checked_sub(1) else { return false };
    names[number].0.strip_suffix(".path").is_some_and(|name| name == names[before].0)
}

/// Returns the numbers of the wanted columns. A name with an error cannot be read.
///
/// # Errors
/// `InvalidArgument` for a name that does not exist, is given twice or matches two columns; `Corrupt` for one that only
/// the first file has; the error of a column that is asked for, or of the first if none can be read; `Empty` if there
/// is none.
pub(super) fn choose(names: &[(String, Result<()>)], wanted: Wanted<'_>) -> Result<Chosen> {
    let mut chosen = Chosen { columns: Vec::new(), left_out: Vec::new() };
    match wanted {
        Wanted::All => {
            for (number, (name, is_had)) in names.iter().enumerate() {
                match is_had {
                    Ok(()) if is_path(names, number) => chosen.left_out.push((SkipReason::FilePath, name.clone())),
                    Ok(()) => chosen.columns.push(number),
                    Err(_) => chosen.left_out.push((SkipReason::ColumnType, name.clone())),
                }
            }
            if let (true, Some((_, Err(error)))) = (chosen.columns.is_empty(), names.first()) {
                return Err(error.clone());
            }
        }
        Wanted::Named(wanted) => {
            for name in wanted {
                chosen.add(names, name)?;
            }
        }
        Wanted::Like(first) => chosen.like(names, first)?,
    }
    if chosen.columns.is_empty() {
        return Err(Error::new(ErrorKind::Empty, "the file has no column"));
    }
    if !matches!(wanted, Wanted::Like(_)) {
        chosen.check_names(names)?;
    }
    Ok(chosen)
}

impl Chosen {
    /// Adds the column of that name, or all fields of that struct.
    fn add(&mut self, names: &[(String, Result<()>)], name: &str) -> Result<()> {
        let is_one = |column: &str| match column.strip_prefix(name) {
            Some(rest) => rest.is_empty() || rest.starts_with('.'),
            None => false,
        };
        let is_named = |number: &usize| {
            let column = &names[*number].0;
            is_one(column) && (column == name || !is_path(names, *number))
        };
        let found: Vec<usize> = (0..names.len()).filter(is_named).collect();
        if found.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("the file has no column {name:?}"))
                .with_remedy(others_of(names)));
        }
        let is_any = found.iter().any(|&number| names[number].1.is_ok());
        for number in found {
            let (column, is_had) = &names[number];
            if let Err(error) = is_had {
                // The other fields of a struct can be read.
                if is_any && column != name {
                    self.left_out.push((SkipReason::ColumnType, column.clone()));
                    continue;
                }
                return Err(error.clone().with_remedy(others_of(names)));
            }
            if self.columns.contains(&number) {
                return Err(Error::new(ErrorKind::InvalidArgument, format!("column {column:?} is named twice")));
            }
            self.columns.push(number);
        }
        Ok(())
    }

    /// Refuses two columns of one name: samples have their values by name, and one would hide the other.
    fn check_names(&self, names: &[(String, Result<()>)]) -> Result<()> {
        let mut seen = HashSet::new();
        let twice = self.columns.iter().map(|&number| &names[number].0).find(|name| !seen.insert(*name));
        let Some(name) = twice else { return Ok(()) };
        Err(Error::new(ErrorKind::InvalidArgument, format!("two columns of the file are called {name:?}"))
            .with_remedy("rename one of them, or choose other columns"))
    }

    /// Adds the columns of the first file, in its order, wherever they are in this one.
    fn like(&mut self, names: &[(String, Result<()>)], first: &[Column]) -> Result<()> {
        let mut is_taken = vec![false; names.len()];
        for (place, column) in first.iter().enumerate() {
            let is_one = |&number: &usize| !is_taken[number] && names[number].0 == column.name;
            // Most files have it at the same place, and two columns may have the same name.
            let found = Some(place).filter(|&place| place < names.len()).filter(is_one);
            let Some(number) = found.or_else(|| (0..names.len()).find(is_one)) else {
                let what = format!("the file has no column {:?}, which the first file has", column.name);
                return Err(Error::new(ErrorKind::Corrupt, what).with_remedy(SAME_COLUMNS));
            };
            names[number].1.clone().map_err(|error| error.with_remedy(SAME_COLUMNS))?;
            is_taken[number] = true;
            self.columns.push(number);
        }
        let others = names.iter().zip(is_taken).enumerate();
        let others = others.filter(|(_, ((_, is_had), is_taken))| !is_taken && is_had.is_ok());
        let others = others.filter(|(number, _)| !is_path(names, *number));
        self.left_out.extend(others.map(|(_, ((name, _), _))| (SkipReason::OtherColumn, name.clone())));
        Ok(())
    }
}

/// The most names that a message lists.
const NAMES_TOLD: usize = 12;

fn others_of(names: &[(String, Result<()>)]) -> String {
    let had = names.iter().filter(|(_, is_had)| is_had.is_ok()).map(|(name, _)| name.as_str());
    let told: Vec<&str> = had.clone().take(NAMES_TOLD).collect();
    let more = if had.count() > NAMES_TOLD { ", ..." } else { "" };
    format!("choose from the columns {}{more}", told.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::DType;
    use crate::formats::columnar::Kind;

    fn names() -> Vec<(String, Result<()>)> {
        let bad = || Err(Error::new(ErrorKind::Unavailable, "column \"m\" is a map"));
        [("a", Ok(())), ("i.bytes", Ok(())), ("i.path", Ok(())), ("m", bad()), ("ix", Ok(()))]
            .into_iter()
            .map(|(name, is_had)| (name.to_owned(), is_had))
            .collect()
    }

    #[test]
    fn columns_are_chosen_by_name() {
        let choose = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
            choose(&names(), Wanted::Named(&wanted)).map(|chosen| chosen.columns).map_err(|error| error.to_string())
        };
        assert_eq!(choose(&["ix", "i", "a"]), Ok(vec![4, 1, 2, 0]));
        assert_eq!(choose(&["i.path"]), Ok(vec![2]));
        assert!(choose(&["m"]).unwrap_err().contains("is a map\nhelp: choose from the columns a, i.bytes, i.path, ix"));
        assert!(choose(&["i", "i.bytes"]).unwrap_err().contains("\"i.bytes\" is named twice"));
        assert!(choose(&["b"]).unwrap_err().contains("the file has no column \"b\""));
    }

    #[test]
    fn what_cannot_be_read_is_left_out_unless_it_is_asked_for() {
        let all = choose(&names(), Wanted::All).unwrap();
        assert_eq!((all.columns, all.left_out), (vec![0, 1, 2, 4], vec![(SkipReason::ColumnType, "m".to_owned())]));
        let error = choose(&names()[3..4], Wanted::All).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert_eq!(choose(&[], Wanted::All).unwrap_err().kind(), ErrorKind::Empty);
    }

    #[test]
    fn columns_are_found_by_name_in_any_order() {
        let first = |names: &[&str]| -> Vec<Column> {
            let column = |name: &&str| Column { name: (*name).to_owned(), kind: Kind::scalar(DType::U8, "byte") };
            names.iter().map(column).collect()
        };
        let like = |wanted: &[&str]| choose(&names(), Wanted::Like(&first(wanted)));
        let chosen = like(&["ix", "a", "i.path"]).unwrap();
        assert_eq!(chosen.columns, [4, 0, 2]);
        assert_eq!(chosen.left_out, [(SkipReason::OtherColumn, "i.bytes".to_owned())]);
        let error = like(&["a", "b"]).unwrap_err().to_string();
        assert!(error.contains("the file has no column \"b\", which the first file has"), "{error}");
        assert_eq!(like(&["m"]).unwrap_err().kind(), ErrorKind::Unavailable);
        let twice = [names(), names()].concat();
        for wanted in [Wanted::All, Wanted::Named(&["a".to_owned()])] {
            let error = choose(&twice, wanted).unwrap_err().to_string();
            assert!(error.contains("two columns of the file are called \"a\""), "{error}");
        }
        let both = choose(&twice, Wanted::Like(&first(&["a", "i.bytes", "i.path", "a"]))).unwrap();
        assert_eq!(both.columns, [0, 1, 2, 5]);
    }
}
