//! Compares lists of numbers within each other with the lengths that all of them have: the rows of a tensor.

use super::values::broken;
use crate::formats::columnar::layout::{ColumnWriter, State};
use uringload_core::{Error, ErrorKind, Result};

/// The row that is being read.
pub(super) struct Row {
    /// Of the lists, from the outside in.
    lengths: Vec<u64>,
    /// The numbers of a row, and of an element of each list.
    sizes: Vec<usize>,
    number: u64,
    /// None before the first row.
    pub(super) state: Option<State>,
    /// How many numbers it has so far.
    at: usize,
}

impl Row {
    /// Before the first row.
    ///
    /// # Errors
    /// `Corrupt` for more numbers than this machine can count.
    pub(super) fn new(lengths: Vec<u64>) -> Result<Row> {
        let mut sizes = vec![1_usize];
        for length in lengths.iter().rev() {
            let inner = sizes[sizes.len() - 1];
            let size = usize::try_from(*length).ok().and_then(|length| length.checked_mul(inner));
            sizes.push(size.ok_or_else(|| broken("a row has more elements than this machine can count"))?);
        }
        sizes.reverse();
        Ok(Row { lengths, sizes, number: 0, state: None, at: 0 })
    }

    /// Begins an entry in which so many lists go on; 0 begins a row.
    pub(super) fn begin(&mut self, goes_on: usize, writer: &mut ColumnWriter<'_>) -> Result<()> {
        let Some(outer) = goes_on.checked_sub(1) else {
            self.end(writer)?;
            (self.state, self.at) = (Some(State::Valid), 0);
            return Ok(());
        };
        // The innermost list that goes on is not full, and its element before this one is.
        let is_inside = self.state.is_some() && goes_on < self.sizes.len() && self.sizes[outer] > 0;
        if !is_inside || self.at.is_multiple_of(self.sizes[outer]) || !self.at.is_multiple_of(self.sizes[goes_on]) {
            return Err(self.wrong());
        }
        Ok(())
    }

    /// Takes elements of the list `there`, counted from 1, and returns how many numbers they are: numbers, or lists
    /// that are null. With 0 the row is null.
    pub(super) fn take(&mut self, there: usize, goes_on: usize, count: u64, is_empty: bool) -> Result<usize> {
        if goes_on > there {
            return Err(broken("a list goes on that is not there"));
        }
        let is_whole = there == self.lengths.len();
        if is_empty {
            // Right only for a length of 0.
            return if self.sizes[there] == 0 { Ok(0) } else { Err(self.wrong()) };
        }
        if there == 0 {
            self.state = Some(State::Null);
            return Ok(0);
        }
        if !is_whole {
            self.state = Some(State::NullInside);
        }
        let (each, list) = (self.sizes[there], self.sizes[there - 1]);
        let numbers = usize::try_from(count).ok().and_then(|count| count.checked_mul(each));
        // What the list has room for.
        let left = if list == 0 { 0 } else { list - self.at % list };
        let numbers = numbers.filter(|&numbers| numbers <= left).ok_or_else(|| self.wrong())?;
        self.at += numbers;
        Ok(numbers)
    }

    /// Ends the row, if there is one.
    pub(super) fn end(&mut self, writer: &mut ColumnWriter<'_>) -> Result<()> {
        let Some(state) = self.state else { return Ok(()) };
        if state != State::Null && self.at != self.sizes[0] {
            return Err(self.wrong());
        }
        self.number += 1;
        writer.end_row(state)
    }

    fn wrong(&self) -> Error {
        let what = format!(
            "row {} of it has not the shape {:?}, which is that of the column by the Arrow schema in the footer",
            self.number, self.lengths
        );
        Error::new(ErrorKind::Corrupt, what)
            .with_remedy("write the files again without that schema (pyarrow: store_schema=False), or with equal lists")
    }
}
