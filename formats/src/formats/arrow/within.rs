//! Tables within the files of another format, one in each. Their writer took the types of each file from its rows, so
//! files differ: a column that no row of a file has is missing there, one that is null in all its rows has no type, and
//! if all lists are empty, their type is unknown.

use super::ArrowIpc;
use super::messages;
use super::nested::Tree;
use super::schema::{Layout, Leaf, Storage};
use crate::dataset::FileId;
use crate::find::paths::{FoundFiles, thread_count};
use crate::formats::columnar::{Column, Columnar, ColumnarOptions, Kind, Listing, Wanted};
use crate::index::headers::{Source, map_files};
use std::collections::HashMap;
use std::ops::Range;
use uringload_core::{Error, ErrorKind, Result};

/// A table within a file.
#[derive(Clone, Debug)]
pub(crate) struct Within {
    pub(crate) place: Range<u64>,
    /// How many rows it must have.
    pub(crate) rows: u64,
}

impl ArrowIpc {
    /// Opens the tables within files of the format `name`: those of `tables`, one for each file.
    ///
    /// A column is one that any of the files has; the rows of those that lack it are null.
    ///
    /// # Errors
    /// As [`open`](ArrowIpc::open); `Corrupt` for a column that two files have with different types, and for a table
    /// without its rows.
    pub(crate) fn within(
        name: &'static str,
        found: FoundFiles,
        tables: &[Within],
        options: &ColumnarOptions,
    ) -> Result<ArrowIpc> {
        let (files, threads) = (&found.files, thread_count(options.common.threads));
        let layouts = map_files(0..files.len() as u32, threads, |file| {
            messages::layout(&Source::open(files, file)?, tables[file.0 as usize].place.clone())
        })?;
        let united = united(layouts).map_err(|(file, error)| error.with_path(files.path(file)))?;
        let wanted = if options.columns.is_empty() { Wanted::All } else { Wanted::Named(&options.columns) };
        let chosen = Listing::<(), ()>::choose(united, wanted).map_err(|error| error.with_path(files.place()))?;
        Columnar::of(found, [name, "record batch"], options, |source, file, _, _| {
            let Within { place, rows } = &tables[file.0 as usize];
            let listing = messages::read(source, file, place.clone(), |columns| {
                // Of two columns with one name, the first counts. What cannot be read was not chosen.
                let found = columns.into_iter().rev().filter_map(|(name, column)| Some((name, column.ok()?)));
                let mut found: HashMap<String, _> = found.collect();
                let leaves = chosen.columns.iter().map(|column| fitted(found.remove(&column.name), column)).collect();
                // What is left out is reported once, not for each file.
                let left_out = if file.0 == 0 { chosen.left_out.clone() } else { Vec::new() };
                Ok(Listing::chosen(chosen.columns.clone(), leaves, left_out))
            })?;
            let found = listing.groups.iter().map(|group| group.rows).fold(0, u64::saturating_add);
            if found != *rows {
                let what = format!("the table has {found} rows, and the index says {rows}");
                return Err(source.corrupt(place.start, what).with_remedy("copy the file again"));
            }
            Ok(listing)
        })
    }
}

/// What the columns of all files are, in the order in which they first appear; or why one cannot be read.
type United = Vec<(String, Result<(Kind, ())>)>;

/// What is known of a column.
enum Found {
    Typed(Kind, Form),
    /// Lists without an element, or of nulls alone.
    Lists(Kind),
    Bad(Error),
    /// Null in all rows.
    Nothing(Error),
}

/// In which form a column is delivered. Lists without elements can be either of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Plain,
    Lists,
    Json,
}

/// # Errors
/// `Corrupt` for types that differ, with the file that has another than those before it.
fn united(layouts: Vec<Layout>) -> Result<United, (FileId, Error)> {
    let (mut order, mut known): (Vec<String>, HashMap<String, Found>) = (Vec::new(), HashMap::new());
    for (number, layout) in (0..).zip(layouts) {
        for (name, column) in layout.columns {
            let found = match column {
                Ok((kind, leaf)) if leaf.is_of_nulls() => Found::Lists(kind),
                Ok((kind, leaf)) => Found::Typed(kind, Form::of(&leaf)),
                Err(error) if layout.nulls.contains(&name) => Found::Nothing(error),
                Err(error) => Found::Bad(error),
            };
            match known.get_mut(&name) {
                None => {
                    order.push(name.clone());
                    known.insert(name, found);
                }
                Some(before) => before.join(&name, found).map_err(|error| (FileId(number), error))?,
            }
        }
    }
    let has_fields = |name: &String| order.iter().any(|other| other.strip_prefix(&**name).is_some_and(is_field));
    let column = |name: &String| {
        let column = match known.get(name)? {
            // Some file may lack it.
            Found::Typed(kind, _) | Found::Lists(kind) => Ok((Kind { is_nullable: true, ..kind.clone() }, ())),
            // A struct that is null in all rows of a file. Its fields say what there is.
            Found::Nothing(_) if has_fields(name) => return None,
            Found::Bad(error) | Found::Nothing(error) => Err(error.clone()),
        };
        Some((name.clone(), column))
    };
    Ok(order.iter().filter_map(column).collect())
}

fn is_field(rest: &str) -> bool {
    rest.starts_with('.')
}

impl Found {
    /// Adds what another file says of the column.
    fn join(&mut self, name: &str, other: Found) -> Result<()> {
        match (&*self, &other) {
            // Structs within lists may have other fields: they are text.
            (Found::Typed(a, form), Found::Typed(b, other)) if (is_alike(a, b), form) != (true, other) => {
                return Err(differs(name, b, a));
            }
            (Found::Typed(a, Form::Plain), Found::Lists(b)) | (Found::Lists(a), Found::Typed(b, Form::Plain)) => {
                return Err(differs(name, b, a));
            }
            (Found::Nothing(_), _) | (Found::Lists(_), Found::Typed(..)) | (_, Found::Bad(_)) => *self = other,
            _ => {}
        }
        Ok(())
    }
}

impl Form {
    fn of(leaf: &Leaf) -> Form {
        match leaf.storage {
            Storage::List { .. } => Form::Lists,
            Storage::Nested(_) => Form::Json,
            _ => Form::Plain,
        }
    }
}

fn differs(name: &str, kind: &Kind, before: &Kind) -> Error {
    let what = format!("column {name:?} is {}, and {} in a file before it", kind.described, before.described);
    Error::new(ErrorKind::Corrupt, what).with_remedy("write the dataset again with values of one type in that column")
}

fn is_alike(a: &Kind, b: &Kind) -> bool {
    (a.dtype, &a.shape, a.is_text) == (b.dtype, &b.shape, b.is_text)
}

/// How a file stores a column that is `wanted`. `found` is what it has of that name; nothing if that is always null.
fn fitted(found: Option<(Kind, Leaf)>, wanted: &Column) -> Leaf {
    match found {
        Some((kind, leaf)) if is_alike(&kind, &wanted.kind) => leaf,
        Some((_, Leaf { storage: Storage::Nested(tree), node, parents })) => match *tree {
            Tree::List { is_wide, .. } => {
                Leaf { storage: Storage::Nulls { is_wide, width: wanted.kind.dtype.size() }, node, parents }
            }
            _ => Leaf::absent(),
        },
        // `united` has compared all others.
        _ => Leaf::absent(),
    }
}

impl Leaf {
    /// Whether it is lists of nothing but nulls.
    fn is_of_nulls(&self) -> bool {
        let Storage::Nested(tree) = &self.storage else { return false };
        matches!(&**tree, Tree::List { of, .. } if **of == Tree::Null)
    }

    fn absent() -> Leaf {
        Leaf { storage: Storage::Absent, node: 0, parents: Vec::new() }
    }
}
