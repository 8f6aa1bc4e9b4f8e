//! One pass over a file that finds where its lines begin and end.

use super::elements::{Elements, array_of_objects};
use crate::compression::{Compression, read_full};
use crate::index::indexes::Pass;
use crate::index::packed::{in_decoded, undecodable};
use crate::index::window::{Source, Stored};
use memchr::{memchr, memchr_iter, memchr2};
use std::io::BufReader;
use uringload_core::{Error, ErrorKind, Result};

/// What counts as a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// All lines, even empty ones.
    Text,
    /// Lines that are not blank.
    Json,
    /// The elements of an array, if the file begins as an array of objects; else as [`Json`](Rule::Json).
    JsonFile,
    /// Rows whose quoted fields may contain newlines. Empty lines do not count.
    Csv {
        /// The byte between two fields.
        delimiter: u8,
    },
}

/// Receives what a pass finds.
pub(super) trait Sink {
    /// A line: its first byte, and its length without the line end.
    fn line(&mut self, offset: u64, len: u64);

    /// A line that does not count because it is empty.
    fn empty(&mut self);
}

/// Most bytes of a line. Anything longer is not a line but a file of another format.
pub(super) const LINE_BYTES_MAX: u64 = 1 << 30;

/// Bytes per read: enough for the throughput of a disk, and few enough to stay in the CPU cache until they are scanned.
const READ_BYTES: u64 = 1 << 20;

/// Reports every line of a file to `sink`.
///
/// # Errors
/// `Io`; `Truncated` for a file that shrinks; `Corrupt` for a line longer than [`LINE_BYTES_MAX`] and for a quote that
/// is never closed; with the offset, but without the file.
pub(super) fn scan(pass: &Pass<'_>, rule: Rule, sink: &mut impl Sink) -> Result<()> {
    let mut scanner = Scanner::new(rule, LINE_BYTES_MAX);
    let (size, mut file) = (pass.size, pass.plain());
    // Fits: at most READ_BYTES.
    let mut buffer = vec![0; READ_BYTES.min(size) as usize];
    let mut offset = 0;
    while offset < size {
        // Fits: at most READ_BYTES.
        let len = READ_BYTES.min(size - offset) as usize;
        let have = file.read_at_least(&mut buffer[..len], offset, len)?;
        if have < len {
            let what = "the file became shorter while it was indexed";
            return Err(Error::new(ErrorKind::Truncated, what).with_offset(offset + have as u64));
        }
        if offset == 0 {
            refuse_other_text(&buffer[..len], rule)?;
        }
        scanner.feed(&buffer[..len], sink)?;
        offset += len as u64;
        pass.passed(offset);
    }
    scanner.finish(sink)
}

/// Reports every line of what a file decodes to. Returns the number of decoded bytes up to the end of the last whole
/// line, and why the file does not end there.
pub(super) fn scan_decoded(
    pass: &Pass<'_>,
    compression: Compression,
    rule: Rule,
    sink: &mut impl Sink,
) -> (u64, Option<Error>) {
    let undecoded = |error, at| undecodable("file", compression, error).with_offset(at);
    let stored = Stored { source: pass.source, at: 0, passed: |at| pass.passed(at) };
    let mut reader = match compression.reader(BufReader::with_capacity(STORED_BYTES, stored)) {
        Ok(reader) => reader,
        Err(error) => return (0, Some(undecoded(error, 0))),
    };
    let mut scanner = Scanner::new(rule, LINE_BYTES_MAX);
    // Fits: a constant.
    let mut buffer = vec![0; READ_BYTES as usize];
    loop {
        let (have, error) = read_full(&mut *reader, &mut buffer);
        let text = if scanner.at == 0 { refuse_other_text(&buffer[..have], rule) } else { Ok(()) };
        let fed = text.and_then(|()| scanner.feed(&buffer[..have], sink));
        let damage = match (fed, error) {
            (Err(fault), _) => Some(fault),
            (Ok(()), Some(error)) => Some(undecoded(error, scanner.at)),
            (Ok(()), None) => None,
        };
        if let Some(damage) = damage {
            return (scanner.start, Some(in_decoded(damage)));
        }
        if have < buffer.len() {
            let (start, end) = (scanner.start, scanner.at);
            return match scanner.finish(sink) {
                Ok(()) => (end, None),
                Err(fault) => (start, Some(in_decoded(fault))),
            };
        }
    }
}

/// Stored bytes per read.
const STORED_BYTES: usize = 256 << 10;

/// The UTF-8 byte order mark. Some files start with it; it is not part of the first line.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A pass that is fed the bytes of a file piece by piece. Its memory does not depend on the file.
pub(super) struct Scanner {
    rule: Rule,
    /// Longest line, in bytes.
    limit: u64,
    /// Where the next piece begins in the file.
    at: u64,
    /// Where the current line begins.
    start: u64,
    /// The byte before the next piece.
    last: Option<u8>,
    /// Whether the line has only blanks so far, if that matters.
    is_blank: bool,
    quote: Quote,
    /// The array that the file is, if it is one.
    array: Option<Elements>,
}

/// The state of a pass with respect to quotes. A quote opens a field if it is its first byte, and is an ordinary byte
/// elsewhere in an unquoted field: this is how csv-core and Python's `csv` parse.
#[derive(Clone, Copy)]
enum Quote {
    Outside,
    /// After the opening quote at this offset.
    Inside(u64),
    /// After a quote in a quoted field; a second quote makes it a literal one.
    Closing(u64),
}

impl Scanner {
    pub(super) fn new(rule: Rule, limit: u64) -> Scanner {
        Scanner { rule, limit, at: 0, start: 0, last: None, is_blank: true, quote: Quote::Outside, array: None }
    }

    /// Scans the next piece of the file. The first piece must contain the whole byte order mark, if there is one.
    pub(super) fn feed(&mut self, piece: &[u8], sink: &mut impl Sink) -> Result<()> {
        let mut from = 0;
        if self.at == 0 && piece.starts_with(BYTE_ORDER_MARK) {
            from = BYTE_ORDER_MARK.len();
            self.start = from as u64;
        }
        if self.at == 0
            && self.rule == Rule::JsonFile
            && let Some(inside) = array_of_objects(&piece[from..])
        {
            from += inside;
            self.start = from as u64;
            self.array = Some(Elements::default());
        }
        if let Some(array) = &mut self.array {
            let start = array.feed(&piece[from..], self.at + from as u64, sink)?;
            self.start = start.unwrap_or(self.start);
            self.at += piece.len() as u64;
            return self.check_len(self.at - self.start);
        }
        match self.rule {
            Rule::Text | Rule::Json | Rule::JsonFile => {
                for place in memchr_iter(b'\n', &piece[from..]).map(|place| from + place) {
                    self.end_line(piece, place, sink)?;
                }
            }
            Rule::Csv { delimiter } => self.feed_rows(piece, from, delimiter, sink)?,
        }
        self.look_for_more_than_blanks(&piece[self.in_piece()..]);
        self.at += piece.len() as u64;
        self.last = piece.last().copied().or(self.last);
        self.check_len(self.at - self.start)
    }

    fn feed_rows(&mut self, piece: &[u8], mut from: usize, delimiter: u8, sink: &mut impl Sink) -> Result<()> {
        while from < piece.len() {
            match self.quote {
                Quote::Outside => {
                    let Some(place) = memchr2(b'"', b'\n', &piece[from..]).map(|place| from + place) else { break };
                    let is_first = self.at + place as u64 == self.start;
                    if piece[place] == b'\n' {
                        self.end_line(piece, place, sink)?;
                    } else if is_first || self.before(piece, place) == Some(delimiter) {
                        self.quote = Quote::Inside(self.at + place as u64);
                    }
                    from = place + 1;
                }
                Quote::Inside(opened) => {
                    let Some(place) = memchr(b'"', &piece[from..]) else { break };
                    self.quote = Quote::Closing(opened);
                    from += place + 1;
                }
                Quote::Closing(opened) if piece[from] == b'"' => {
                    self.quote = Quote::Inside(opened);
                    from += 1;
                }
                Quote::Closing(_) => self.quote = Quote::Outside,
            }
        }
        Ok(())
    }

    /// Ends the file: what follows the last newline is a line, too.
    pub(super) fn finish(mut self, sink: &mut impl Sink) -> Result<()> {
        if let Quote::Inside(opened) = self.quote {
            return Err(never_closed(opened));
        }
        if let Some(array) = self.array {
            return array.finish(self.at);
        }
        if self.start < self.at {
            self.tell(self.at, sink)?;
        }
        Ok(())
    }

    /// Ends the line at `place` of the piece, which holds its `\n`.
    fn end_line(&mut self, piece: &[u8], place: usize, sink: &mut impl Sink) -> Result<()> {
        self.look_for_more_than_blanks(&piece[self.in_piece()..place]);
        let newline = self.at + place as u64;
        let has_return = newline > self.start && self.before(piece, place) == Some(b'\r');
        self.tell(newline - u64::from(has_return), sink)?;
        self.start = newline + 1;
        self.is_blank = true;
        Ok(())
    }

    fn tell(&mut self, end: u64, sink: &mut impl Sink) -> Result<()> {
        let len = end - self.start;
        self.check_len(len)?;
        let is_empty = match self.rule {
            Rule::Text => false,
            Rule::Json | Rule::JsonFile => self.is_blank,
            Rule::Csv { .. } => len == 0,
        };
        if is_empty {
            sink.empty()
        } else {
            sink.line(self.start, len)
        }
        Ok(())
    }

    fn look_for_more_than_blanks(&mut self, bytes: &[u8]) {
        if matches!(self.rule, Rule::Json | Rule::JsonFile) && self.is_blank {
            // Stops at the first byte that is not blank: nearly always the line's first.
            self.is_blank = bytes.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
        }
    }

    fn check_len(&self, len: u64) -> Result<()> {
        if len <= self.limit {
            return Ok(());
        }
        // An unclosed quote is the usual cause of huge rows.
        if let Quote::Inside(opened) = self.quote {
            return Err(never_closed(opened));
        }
        let what = format!("a line has more than {} bytes", self.limit);
        let error = Error::new(ErrorKind::Corrupt, what).with_offset(self.start);
        Err(error.with_remedy("check that it is a file of lines, or choose another format"))
    }

    /// Where the line begins in the piece, or the start of the piece.
    fn in_piece(&self) -> usize {
        // Fits: a line begins in a piece that was scanned, or right after it.
        self.start.saturating_sub(self.at) as usize
    }

    /// The byte before `place` of the piece.
    fn before(&self, piece: &[u8], place: usize) -> Option<u8> {
        if place == 0 { self.last } else { piece.get(place - 1).copied() }
    }
}

/// Bytes at the beginning of a file that are looked at to see what text it is.
const LOOKED_AT_BYTES: usize = 4096;

/// Refuses text whose lines end otherwise, or whose characters have two or four bytes: each line, or all of the file,
/// would be one wrong sample. Lines of plain text may hold a few zeros.
fn refuse_other_text(piece: &[u8], rule: Rule) -> Result<()> {
    let head = &piece[..piece.len().min(LOOKED_AT_BYTES)];
    let refused = |what: &str, at: usize, remedy: &'static str| {
        Err(Error::new(ErrorKind::InvalidArgument, what.to_owned()).with_offset(at as u64).with_remedy(remedy))
    };
    let has_mark = matches!(head, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]);
    // Every other byte of English text is one.
    let is_usual = rule == Rule::Text && memchr_iter(0, head).count() < head.len() * 2 / 5;
    let zero = memchr(0, head).filter(|_| !is_usual);
    if has_mark || zero.is_some() {
        let what =
            if has_mark { "this is text of UTF-16 or UTF-32" } else { "there is a zero byte, as UTF-16 has them" };
        return refused(what, zero.unwrap_or(0), "write it as UTF-8 (iconv -f UTF-16 -t UTF-8)");
    }
    // A quoted field may hold any.
    let is_quoted = matches!(rule, Rule::Csv { .. }) && memchr(b'"', piece).is_some();
    if !is_quoted
        && memchr(b'\n', piece).is_none()
        && let Some(place) = memchr(b'\r', head).filter(|place| place + 1 < piece.len())
    {
        let what = "lines end in a carriage return alone, and there is no newline";
        return refused(what, place, "write them with newlines (tr '\\r' '\\n')");
    }
    Ok(())
}

fn never_closed(opened: u64) -> Error {
    Error::new(ErrorKind::Corrupt, "a quote is never closed").with_offset(opened).with_remedy(
        "the file may have been cut short, have another delimiter (--delimiter), or be plain text: \
         format=text (--format text)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Seen {
        lines: Vec<(u64, u64)>,
        empty: u64,
    }

    impl Sink for Seen {
        fn line(&mut self, offset: u64, len: u64) {
            self.lines.push((offset, len));
        }

        fn empty(&mut self) {
            self.empty += 1;
        }
    }

    const COMMA: Rule = Rule::Csv { delimiter: b',' };

    /// What a pass finds if it is fed this many bytes at a time, but at least the first three together.
    fn seen(rule: Rule, bytes: &[u8], step: usize, limit: u64) -> Result<Seen> {
        let (mut seen, mut scanner) = (Seen::default(), Scanner::new(rule, limit));
        let (first, rest) = bytes.split_at(bytes.len().min(step.max(3)));
        scanner.feed(first, &mut seen)?;
        rest.chunks(step).try_for_each(|piece| scanner.feed(piece, &mut seen))?;
        scanner.finish(&mut seen)?;
        Ok(seen)
    }

    fn lines(rule: Rule, bytes: &[u8], step: usize) -> Vec<&[u8]> {
        let seen = seen(rule, bytes, step, 1 << 20).expect("whole lines");
        seen.lines.iter().map(|&(offset, len)| &bytes[offset as usize..(offset + len) as usize]).collect()
    }

    #[test]
    fn ends_of_lines_of_every_kind() {
        for step in 1..20 {
            let of = |rule, bytes| lines(rule, bytes, step);
            assert_eq!(of(Rule::Text, b"a\nbc\r\n\n\r\nd\re\r"), [&b"a"[..], b"bc", b"", b"", b"d\re\r"]);
            assert_eq!(of(Rule::Text, b"\xef\xbb\xbfa\n\xef\xbb\xbf"), [&b"a"[..], b"\xef\xbb\xbf"]);
            assert_eq!(of(Rule::Text, b"\xef\xbb\xbf"), [b""; 0]);
            assert_eq!(of(Rule::Text, b"\xef\xbb"), [b"\xef\xbb"]);
            assert_eq!(of(Rule::Text, b"\n"), [b""]);
            assert_eq!(of(Rule::Text, b""), [b""; 0]);
            assert_eq!(of(Rule::Json, b" \t\r\n{}\n\n 1 \r\n  "), [&b"{}"[..], b" 1 "]);
            assert_eq!(
                of(COMMA, b"a,\"b\r\n\"\"c\"\r\n\n\"\"\nx\"y,z\n"),
                [&b"a,\"b\r\n\"\"c\""[..], b"\"\"", b"x\"y,z"]
            );
            assert_eq!(of(COMMA, b"\"a,\"b\"\nc\n\"d\""), [&b"\"a,\"b\""[..], b"c", b"\"d\""]);
            assert_eq!(of(COMMA, b"a \"b\n\"c\", \"d\ne"), [&b"a \"b"[..], b"\"c\", \"d", b"e"]);
        }
        assert_eq!(seen(Rule::Json, b"\n1\n \n", 1, 9).unwrap(), Seen { lines: vec![(1, 1)], empty: 2 });
    }

    #[test]
    fn what_is_no_line_is_named_with_its_place() {
        for step in 1..9 {
            let fault = |rule, bytes: &[u8], limit| {
                let error = seen(rule, bytes, step, limit).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                (error.offset().unwrap(), error.to_string().contains("never closed"))
            };
            assert_eq!(fault(COMMA, b"a\nb,\"c\nd\n", 100), (4, true));
            assert_eq!(fault(COMMA, b"\"", 100), (0, true));
            assert_eq!(fault(COMMA, b"a\nb,\"c\nd\n", 3), (4, true));
            assert_eq!(fault(Rule::Text, b"abc\nabcd\n", 3), (4, false));
            assert_eq!(fault(Rule::Text, b"abc\nabcd", 3), (4, false));
            assert_eq!(fault(Rule::Json, b"abcd", 3), (0, false));
            assert!(seen(Rule::Text, b"abc\nabc", step, 3).is_ok());
        }
    }

    proptest! {
        /// Pieces of any length give the same lines, and every byte except line ends is in one.
        #[test]
        fn pieces_do_not_matter(
            bytes in vec(prop::sample::select(&b"\"\"\n\n\r, a\xef\xbb\xbf"[..]), 0..40),
            step in 1..9_usize,
        ) {
            for rule in [Rule::Text, Rule::Json, COMMA] {
                let whole = seen(rule, &bytes, bytes.len().max(1), 1 << 20);
                let pieces = seen(rule, &bytes, step, 1 << 20);
                prop_assert_eq!(whole.as_ref().ok(), pieces.as_ref().ok());
                prop_assert_eq!(whole.as_ref().err().map(Error::offset), pieces.as_ref().err().map(Error::offset));
                if let (Rule::Text, Ok(seen)) = (rule, whole) {
                    let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&bytes);
                    let mut wanted: Vec<&[u8]> = text.split(|&byte| byte == b'\n').collect();
                    let last = wanted.pop().filter(|last| !last.is_empty());
                    let wanted = wanted.into_iter().map(|line| line.strip_suffix(b"\r").unwrap_or(line)).chain(last);
                    let found = seen.lines.iter().map(|&(at, len)| &bytes[at as usize..(at + len) as usize]);
                    prop_assert!(found.eq(wanted));
                }
            }
        }
    }
}
