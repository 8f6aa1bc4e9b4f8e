//! A part of a job that several equal jobs share.

use std::fmt;
use std::str::FromStr;

/// The part of one of `count` equal jobs: the pieces whose number, from 0, modulo `count` is `index`. Written
/// `index/count`, as in `2/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    index: u64,
    count: u64,
}

impl Part {
    /// Everything, in one job.
    pub const WHOLE: Part = Part { index: 0, count: 1 };

    /// Job `index` of `count`, from 0; `None` if there is no such job.
    pub fn new(index: u64, count: u64) -> Option<Part> {
        (index < count).then_some(Part { index, count })
    }

    /// Whether this is the whole.
    pub fn is_whole(self) -> bool {
        self.count == 1
    }

    /// Whether the part includes piece number `piece`.
    pub fn has(self, piece: u64) -> bool {
        piece % self.count == self.index
    }
}

impl Default for Part {
    fn default() -> Part {
        Part::WHOLE
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let numbers = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        numbers
            .and_then(|(index, count)| Part::new(index, count))
            .ok_or_else(|| format!("{text:?} is no part: give I/N, such as 0/8 to 7/8"))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_is_of_one_part() {
        for count in 1..6 {
            let parts: Vec<Part> = (0..count).map(|index| format!("{index}/{count}").parse().unwrap()).collect();
            for piece in 0..50 {
                assert_eq!(parts.iter().filter(|part| part.has(piece)).count(), 1, "piece {piece} of {count} parts");
            }
        }
        for text in ["", "1", "3/3", "0/0", "-1/2", "1/2/3", "a/b"] {
            assert!(text.parse::<Part>().unwrap_err().contains("0/8"), "{text}");
        }
        assert_eq!(Part::default().to_string(), "0/1");
    }
}
