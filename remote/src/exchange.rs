//! One exchange of HTTP/1.1 without a socket: from the bytes of a head to what the body is. Nothing is believed that
//! was not compared with the question.

use crate::clock;
use crate::version::Versions;
use std::time::Duration;
use uringload_core::store::Version;
use uringload_core::store::{Class, Failure};

/// Longest head of an answer, in bytes.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// Most fields of a head.
pub const FIELDS_MAX: usize = 100;
/// Statuses of servers that ask for fewer requests, or cannot answer now.
pub const BUSY: [u16; 6] = [408, 429, 500, 502, 503, 504];
/// The longest that a server may ask to wait.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// After that many bytes.
    After(u64),
    /// Where its last chunk says so.
    Chunked,
    /// With the connection.
    WithConnection,
}

/// What `Content-Range` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentRange {
    /// The bytes from `first` to `last`, both included, of an object of `total`.
    Part { first: u64, last: u64, total: Option<u64> },
    /// None of them: the object ends before.
    Beyond { total: u64 },
}

/// The head of an answer.
#[derive(Debug)]
pub struct Head {
    pub status: u16,
    /// Bytes of the head: the body begins behind them.
    pub bytes: usize,
    pub ends: Ends,
    /// Whether the connection can be used again when the body has ended.
    pub keeps: bool,
    pub range: Option<ContentRange>,
    pub versions: Versions,
    /// The server's clock, in seconds since 1970.
    pub date: Option<i64>,
    pub after: Option<Duration>,
    /// Of redirections: where to.
    pub location: Option<String>,
    /// Of AWS: where the bucket is.
    pub region: Option<String>,
    /// Whether the body is a page for people, as those of proxies are.
    pub is_page: bool,
    /// What the bytes are encoded with, so that they are not those of the object.
    pub encoding: Option<String>,
}

/// What is asked for: `bytes` > 0 bytes from `offset` on.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub offset: u64,
    pub bytes: u64,
    pub expected: Option<Version>,
}

impl Asked {
    /// The field `Range` for it, without its first bytes.
    pub fn range(&self, without: u64) -> String {
        format!("bytes={}-{}", self.offset + without, self.offset.saturating_add(self.bytes - 1))
    }
}

/// What of it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Bytes that the body has at most; where its length is not told, that many are taken.
    pub bytes: u64,
    pub total: Option<u64>,
    pub version: Option<Version>,
}

impl Head {
    /// Reads the head of a final answer from `bytes`; nothing if it is not complete yet. Answers in between (1xx) are
    /// passed over.
    pub fn parse(bytes: &[u8]) -> Result<Option<Head>, Failure> {
        let mut passed = 0;
        loop {
            let Some(mut head) = Head::parse_one(&bytes[passed..])? else {
                if bytes.len() >= HEAD_BYTES_MAX {
                    return Err(no_http(format!("the head of the answer is longer than {HEAD_BYTES_MAX} bytes")));
                }
                return Ok(None);
            };
            head.bytes += passed;
            if head.status == 101 || head.status < 100 {
                return Err(no_http(format!("the server answers with status {}", head.status)));
            }
            if head.status >= 200 {
                return Ok(Some(head));
            }
            passed = head.bytes;
        }
    }

    fn parse_one(bytes: &[u8]) -> Result<Option<Head>, Failure> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut answer = httparse::Response::new(&mut fields);
        let length = match answer.parse(bytes) {
            Ok(httparse::Status::Complete(length)) if length <= HEAD_BYTES_MAX => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Ok(_) => return Err(no_http(format!("the head of the answer is longer than {HEAD_BYTES_MAX} bytes"))),
            Err(httparse::Error::TooManyHeaders) => {
                return Err(no_http(format!("the head of the answer has more than {FIELDS_MAX} fields")));
            }
            Err(error) => return Err(no_http("the server does not answer in HTTP/1.1".to_owned()).with_source(error)),
        };
        let mut head = Head {
            status: answer.code.unwrap_or_default(),
            bytes: length,
            ends: Ends::WithConnection,
            keeps: answer.version == Some(1),
            range: None,
            versions: Versions::default(),
            date: None,
            after: None,
            location: None,
            region: None,
            is_page: false,
            encoding: None,
        };
        let mut lengths = Lengths::default();
        for field in answer.headers.iter() {
            let Ok(value) = std::str::from_utf8(field.value) else { continue };
            head.take(field.name, value.trim(), &mut lengths)?;
        }
        head.after = lengths.after.and_then(|written| after(&written, head.date));
        head.ends = match (head.status, lengths.length, lengths.is_chunked) {
            (204 | 304, ..) => Ends::After(0),
            (_, Some(_), true) => return Err(contradiction("has a length and is chunked")),
            (_, Some(length), false) => Ends::After(length),
            (_, None, true) => Ends::Chunked,
            (_, None, false) => Ends::WithConnection,
        };
        head.keeps &= head.ends != Ends::WithConnection;
        Ok(Some(head))
    }

    fn take(&mut self, name: &str, value: &str, lengths: &mut Lengths) -> Result<(), Failure> {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        if is("content-length") {
            let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let length = value.parse().ok().filter(|_| is_number);
            if lengths.length.is_some() || length.is_none() {
                return Err(contradiction("has two lengths, or one that is no number"));
            }
            lengths.length = length;
        } else if is("content-range") {
            if self.range.is_some() {
                return Err(contradiction("has two ranges"));
            }
            self.range = Some(content_range(value).ok_or_else(|| contradiction("has a range that is none"))?);
        } else if is("transfer-encoding") {
            if lengths.is_chunked || !value.eq_ignore_ascii_case("chunked") {
                return Err(contradiction("is transferred in a way that was not asked for"));
            }
            lengths.is_chunked = true;
        } else if is("connection") {
            let says = |word: &str| value.split(',').any(|other| other.trim().eq_ignore_ascii_case(word));
            self.keeps = (self.keeps || says("keep-alive")) && !says("close");
        } else if is("etag") {
            self.versions.take_etag(value);
        } else if is("x-goog-generation") {
            self.versions.take_generation(value);
        } else if is("last-modified") {
            self.versions.modified = clock::parse_http(value);
        } else if is("date") {
            self.date = clock::parse_http(value);
        } else if is("retry-after") {
            lengths.after = Some(value.to_owned());
        } else if is("location") {
            self.location = Some(value.to_owned());
        } else if is("x-amz-bucket-region") {
            self.region = Some(value.to_owned());
        } else if is("content-type") {
            self.is_page = value.starts_with("text/html");
        } else if (is("content-encoding") || is("x-goog-stored-content-encoding"))
            && !["", "identity", "aws-chunked"].iter().any(|plain| value.eq_ignore_ascii_case(plain))
        {
            self.encoding = Some(word(value));
        }
        Ok(())
    }

    /// What of `asked` this answer brings, or why it brings none of it. The status is 200, 206 or 416.
    pub fn judge(&self, asked: &Asked) -> Result<Taken, Failure> {
        if let Some(encoding) = &self.encoding {
            let failure = Failure::new(
                Class::Unavailable,
                format!("the object is stored or sent as Content-Encoding: {encoding}, so its bytes have no places"),
            );
            return Err(failure.with_remedy("store the object without a Content-Encoding"));
        }
        let (bytes, total) = match (self.status, self.range) {
            (416, Some(ContentRange::Beyond { total })) if asked.offset >= total => (0, Some(total)),
            (200 | 206, Some(ContentRange::Part { first, last, total })) => (self.part(asked, first, last)?, total),
            (200, None) => self.whole(asked)?,
            _ => return Err(contradiction("does not say which bytes it has")),
        };
        if total.is_some_and(|total| asked.offset.saturating_add(bytes) > total && bytes > 0) {
            return Err(contradiction("has bytes behind the end of the object"));
        }
        let is_other = |expected| self.status != 416 && self.versions.is_other(expected, total);
        if asked.expected.is_some_and(is_other) {
            let failure = Failure::new(Class::Changed, "the object was replaced since it was listed");
            return Err(failure.with_remedy("open the dataset again, or keep the objects as they are while it is read"));
        }
        Ok(Taken { bytes, total, version: self.versions.best(total) })
    }

    fn part(&self, asked: &Asked, first: u64, last: u64) -> Result<u64, Failure> {
        let Some(bytes) = last.checked_sub(first).and_then(|rest| rest.checked_add(1)) else {
            return Err(contradiction("has a range that ends before it begins"));
        };
        if first != asked.offset || bytes > asked.bytes {
            let (offset, end) = (asked.offset, asked.offset.saturating_add(asked.bytes - 1));
            return Err(Failure::new(
                Class::Corrupt,
                format!("the server was asked for the bytes {offset}-{end} and answers with {first}-{last}"),
            ));
        }
        match self.ends {
            Ends::After(length) if length != bytes => Err(contradiction("has a length that is not its range's")),
            _ => Ok(bytes),
        }
    }

    /// An answer that knows of no ranges: good if it is all of what was asked for.
    fn whole(&self, asked: &Asked) -> Result<(u64, Option<u64>), Failure> {
        match self.ends {
            Ends::After(length) if asked.offset == 0 && length <= asked.bytes => Ok((length, Some(length))),
            Ends::Chunked | Ends::WithConnection if asked.offset == 0 => Ok((asked.bytes, None)),
            // It has told where it ends, and no byte of it is wanted.
            Ends::After(length) if asked.offset >= length => Ok((0, Some(length))),
            _ => Err(Failure::new(Class::Unavailable, "the server does not honour Range: it sends the whole object")
                .with_remedy("serve the objects by a server that knows ranges, or download them first")),
        }
    }
}

/// What is known only when all fields are read.
#[derive(Default)]
struct Lengths {
    length: Option<u64>,
    is_chunked: bool,
    after: Option<String>,
}

fn content_range(value: &str) -> Option<ContentRange> {
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
    let (range, total) = value.strip_prefix("bytes")?.trim_start_matches([' ', '=']).split_once('/')?;
    let total = match total.trim() {
        "*" => None,
        total => Some(number(total)?),
    };
    if range.trim() == "*" {
        return total.map(|total| ContentRange::Beyond { total });
    }
    let (first, last) = range.trim().split_once('-')?;
    Some(ContentRange::Part { first: number(first)?, last: number(last)?, total })
}

fn after(written: &str, date: Option<i64>) -> Option<Duration> {
    let seconds = match written.parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => {
            let until = clock::parse_http(written)? - date.unwrap_or_else(clock::now);
            u64::try_from(until).unwrap_or(0)
        }
    };
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

/// A word of the server as a message may repeat it.
pub fn word(text: &str) -> String {
    text.chars().filter(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(*letter)).take(64).collect()
}

fn contradiction(what: &str) -> Failure {
    Failure::new(Class::Corrupt, format!("the server's answer {what}"))
}

fn no_http(what: String) -> Failure {
    Failure::new(Class::Foreign, what).with_remedy("check the endpoint, its port, and whether it wants https")
}

/// Takes the chunks of a body apart.
#[derive(Debug, Default)]
pub struct Chunks {
    /// Bytes of the chunk that are still to come.
    left: u64,
    /// What is read of the line between chunks.
    line: Vec<u8>,
    place: Place,
    /// What is wrong behind the bytes that were given last.
    broken: Option<Failure>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Size,
    Data,
    EndOfData,
    Trailer,
    End,
}

/// Longest line between chunks, in bytes.
const CHUNK_LINE_MAX: usize = 256;
/// Most bytes of lines behind the last chunk.
const TRAILER_BYTES_MAX: u64 = 4096;

impl Chunks {
    /// Whether the last chunk and what follows it have been read.
    pub fn has_ended(&self) -> bool {
        self.place == Place::End
    }

    /// Moves the bytes of chunks from `from` into `into`, until one of them is used up or the body has ended: how many
    /// were taken, and how many given.
    pub fn take(&mut self, from: &[u8], into: &mut [u8]) -> Result<(usize, usize), Failure> {
        if let Some(failure) = self.broken.take() {
            return Err(failure);
        }
        let (mut taken, mut given) = (0, 0);
        while taken < from.len() && !self.has_ended() {
            if self.place == Place::Data {
                let bytes =
                    (from.len() - taken).min(into.len() - given).min(usize::try_from(self.left).unwrap_or(usize::MAX));
                if bytes == 0 {
                    break;
                }
                into[given..given + bytes].copy_from_slice(&from[taken..taken + bytes]);
                (taken, given) = (taken + bytes, given + bytes);
                self.left -= bytes as u64;
                if self.left == 0 {
                    self.place = Place::EndOfData;
                }
                continue;
            }
            let byte = from[taken];
            taken += 1;
            let ended = match byte {
                b'\n' => self.end_line(),
                _ if self.line.len() >= CHUNK_LINE_MAX => {
                    Err(contradiction("has a line between its chunks that does not end"))
                }
                _ => {
                    self.line.push(byte);
                    Ok(())
                }
            };
            match ended {
                // What came before is good, and goes first.
                Err(failure) if given > 0 => {
                    self.broken = Some(failure);
                    break;
                }
                ended => ended?,
            }
        }
        Ok((taken, given))
    }

    fn end_line(&mut self) -> Result<(), Failure> {
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        match self.place {
            Place::Size => {
                let digits = line.split(|&byte| byte == b';').next().and_then(|size| std::str::from_utf8(size).ok());
                let size = digits.map(str::trim).filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
                let size = size.and_then(|text| u64::from_str_radix(text, 16).ok());
                self.left = size.ok_or_else(|| contradiction("has a chunk without a size"))?;
                self.place = if self.left == 0 { Place::Trailer } else { Place::Data };
            }
            Place::EndOfData if line.is_empty() => self.place = Place::Size,
            Place::EndOfData => return Err(contradiction("has a chunk that is longer than it says")),
            Place::Trailer if line.is_empty() => self.place = Place::End,
            _ => {
                self.left += line.len() as u64 + 1;
                if self.left > TRAILER_BYTES_MAX {
                    return Err(contradiction("has fields behind its chunks that do not end"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "exchange/tests.rs"]
mod tests;
