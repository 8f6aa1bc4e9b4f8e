//! Puts the rows of a nested column together from the levels of its leaves, as JSON text.
//!
//! Each leaf is a sequence of entries: how deep the list is that goes on (0 begins a row), and how much of the path to
//! the value is there. All leaves of a struct have the same entries above it.

use super::decode::elements;
use super::reader::ChunkReader;
use super::schema::{Form, Stem};
use super::values::{Stored, broken};
use crate::formats::columnar::json::{Scalar, Text};
use crate::formats::columnar::layout::{ColumnWriter, State};
use std::ops::Range;
use uringload_core::Result;

/// A part of a nested column.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// The definition level from which on it is there; below, it is null.
    pub(super) definition: u32,
    /// Its leaves, by their number in the column. At least one.
    pub(super) stems: Range<usize>,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Value,
    /// Names, as text with a colon.
    Struct(Vec<(Box<[u8]>, Tree)>),
    List(Repeated, Box<Tree>),
    Map(Repeated, Box<[Tree; 2]>),
}

/// The levels of a list's elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeated {
    /// The definition level from which on there is an element; one less is an empty list.
    pub(super) definition: u32,
    pub(super) repetition: u32,
}

impl Tree {
    /// Adds to the number of each leaf how many bytes of text an entry takes beside its value.
    pub(super) fn add_words(&self, words: u64, to: &mut [u64]) {
        /// Null, or the brackets and what separates one element from the next.
        const AROUND: u64 = 5;
        let words = words.saturating_add(AROUND);
        match &self.kind {
            Kind::Value => to[self.stems.clone()].iter_mut().for_each(|to| *to = words),
            Kind::Struct(fields) => {
                fields.iter().for_each(|(name, field)| field.add_words(words.saturating_add(name.len() as u64), to));
            }
            Kind::List(_, element) => element.add_words(words, to),
            // A colon, and the quotes of keys that are numbers.
            Kind::Map(_, pair) => pair.iter().for_each(|part| part.add_words(words.saturating_add(3), to)),
        }
    }
}

/// Decodes all rows.
///
/// # Errors
/// `Corrupt` where the leaves contradict each other, or hold less than their levels say.
pub(super) fn rows(
    tree: &Tree,
    stems: &[Stem],
    readers: &mut [ChunkReader],
    writer: &mut ColumnWriter<'_>,
) -> Result<()> {
    let leaves = readers.iter_mut().zip(stems).map(|(reader, stem)| Entries::new(reader, stem)).collect();
    let mut rows = Rows { leaves, scratch: Vec::new() };
    let mut text = Text::new(writer);
    while let Some(repetition) = rows.repetition(tree.stems.clone())? {
        if repetition != 0 {
            return Err(broken("a list goes on where it ended, or before the first row"));
        }
        if rows.definition(tree.stems.start)? < tree.definition {
            rows.absent(tree.stems.clone(), tree.definition)?;
            text.writer().end_row(State::Null)?;
        } else {
            rows.write(tree, &mut text)?;
            text.writer().end_row(State::Valid)?;
        }
    }
    Ok(())
}

/// Levels of a leaf that are taken at once.
const LEVELS: usize = 64;

/// The entries of a leaf, one after another.
struct Entries<'a> {
    reader: &'a mut ChunkReader,
    scalar: Scalar,
    stored: Stored,
    /// How values become elements, unless they are elements as they are stored.
    form: Option<Form>,
    repetition: [u32; LEVELS],
    definition: [u32; LEVELS],
    /// The range of levels that are still to come.
    at: usize,
    end: usize,
}

impl<'a> Entries<'a> {
    fn new(reader: &'a mut ChunkReader, stem: &Stem) -> Entries<'a> {
        let form = Some(stem.form).filter(|form| matches!(form, Form::Int32(1 | 2) | Form::Decimal(_)));
        let (stored, scalar) = (Stored::of(&stem.leaf), stem.scalar);
        Entries { reader, scalar, stored, form, repetition: [0; LEVELS], definition: [0; LEVELS], at: 0, end: 0 }
    }

    /// The repetition and the definition level of the next entry; `None` at the end.
    #[inline]
    fn level(&mut self) -> Result<Option<(u32, u32)>> {
        if self.at == self.end {
            let Some(taken) = self.reader.take_levels(&mut self.repetition, &mut self.definition)? else {
                return Ok(None);
            };
            (self.at, self.end) = (0, taken);
        }
        Ok(Some((self.repetition[self.at], self.definition[self.at])))
    }

    /// How much of the path to the next value is there.
    #[inline]
    fn definition(&mut self) -> Result<u32> {
        let level = self.level()?.ok_or_else(|| broken("the fields of a struct end at different rows"))?;
        Ok(level.1)
    }

    /// Goes past an entry that was looked at.
    fn skip(&mut self) {
        self.at += 1;
    }

    /// Writes the value of the next entry, and goes past it.
    #[inline]
    fn write(&mut self, scratch: &mut Vec<u8>, out: &mut Text<'_, '_>) -> Result<()> {
        let Entries { reader, scalar, stored, form, .. } = self;
        reader.value(|value| match form {
            None => scalar.write(value, out),
            Some(form) => scalar.write(elements(*form, *stored, value, scratch)?.0, out),
        })?;
        self.skip();
        Ok(())
    }
}

struct Rows<'a> {
    leaves: Vec<Entries<'a>>,
    /// Room for the element of a value.
    scratch: Vec<u8>,
}

impl Rows<'_> {
    /// The depth of the list that goes on, on which all leaves must agree; `None` at the end.
    fn repetition(&mut self, stems: Range<usize>) -> Result<Option<u32>> {
        let of = |leaf: &mut Entries<'_>| Ok(leaf.level()?.map(|(repetition, _)| repetition));
        let first = of(&mut self.leaves[stems.start])?;
        for leaf in &mut self.leaves[stems.start + 1..stems.end] {
            if of(leaf)? != first {
                return Err(broken("the fields of a struct have lists of different lengths"));
            }
        }
        Ok(first)
    }

    /// How much of the path to a leaf's next value is there.
    fn definition(&mut self, stem: usize) -> Result<u32> {
        self.leaves[stem].definition()
    }

    /// Goes past the entries of something that is not there: all leaves must say that.
    fn absent(&mut self, stems: Range<usize>, below: u32) -> Result<()> {
        for leaf in &mut self.leaves[stems] {
            if leaf.definition()? >= below {
                return Err(broken("a field is there whose struct or list is not"));
            }
            leaf.skip();
        }
        Ok(())
    }

    fn write(&mut self, tree: &Tree, out: &mut Text<'_, '_>) -> Result<()> {
        let stems = tree.stems.clone();
        let definition = self.definition(stems.start)?;
        if definition < tree.definition {
            self.absent(stems, tree.definition)?;
            return out.raw(b"null");
        }
        match &tree.kind {
            Kind::Value => self.value(stems.start, out),
            Kind::Struct(fields) => {
                for (number, (name, field)) in fields.iter().enumerate() {
                    out.raw(if number == 0 { b"{" } else { b"," })?;
                    out.raw(name)?;
                    self.write(field, out)?;
                }
                out.raw(b"}")
            }
            Kind::List(of, element) if matches!(element.kind, Kind::Value) => {
                self.values(stems.start, *of, element.definition, out)
            }
            Kind::List(of, element) => self.repeat(stems, *of, *b"[]", out, |rows, out| rows.write(element, out)),
            Kind::Map(of, pair) => self.repeat(stems, *of, *b"{}", out, |rows, out| {
                let [key, value] = &**pair;
                rows.key(key, out)?;
                out.raw(b":")?;
                rows.write(value, out)
            }),
        }
    }

    /// Writes a list of values, which is [`repeat`](Rows::repeat) without anything to ask for each element.
    /// `definition` is the level from which on an element is there.
    fn values(&mut self, stem: usize, of: Repeated, definition: u32, out: &mut Text<'_, '_>) -> Result<()> {
        let Rows { leaves, scratch } = self;
        let leaf = &mut leaves[stem];
        out.raw(b"[")?;
        let mut level = leaf.definition()?;
        if level < of.definition {
            leaf.skip();
            return out.raw(b"]");
        }
        loop {
            if level < definition {
                leaf.skip();
                out.raw(b"null")?;
            } else {
                leaf.write(scratch, out)?;
            }
            match leaf.level()? {
                Some((repetition, next)) if repetition == of.repetition => level = next,
                _ => return out.raw(b"]"),
            }
            out.raw(b",")?;
        }
    }

    /// Writes the elements of a list, which may be empty.
    fn repeat(
        &mut self,
        stems: Range<usize>,
        of: Repeated,
        [open, close]: [u8; 2],
        out: &mut Text<'_, '_>,
        mut element: impl FnMut(&mut Self, &mut Text<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        out.raw(&[open])?;
        if self.definition(stems.start)? < of.definition {
            self.absent(stems, of.definition)?;
            return out.raw(&[close]);
        }
        loop {
            element(self, out)?;
            if self.repetition(stems.clone())? != Some(of.repetition) {
                return out.raw(&[close]);
            }
            out.raw(b",")?;
        }
    }

    /// Writes a key, which is text in JSON whatever it is.
    fn key(&mut self, key: &Tree, out: &mut Text<'_, '_>) -> Result<()> {
        let is_text = matches!(self.leaves[key.stems.start].scalar, Scalar::Text | Scalar::Bytes);
        if self.definition(key.stems.start)? < key.definition {
            return Err(broken("a key of a map is null"));
        }
        if is_text {
            return self.value(key.stems.start, out);
        }
        out.raw(b"\"")?;
        self.value(key.stems.start, out)?;
        out.raw(b"\"")
    }

    fn value(&mut self, stem: usize, out: &mut Text<'_, '_>) -> Result<()> {
        self.leaves[stem].write(&mut self.scratch, out)
    }
}
