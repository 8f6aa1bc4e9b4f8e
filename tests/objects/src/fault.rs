//! What is answered wrongly, and when.

use std::time::Duration;

/// One way to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Throttled,
    TooMany,
    Internal,
    Denied,
    Expired,
    Redirect,
    Circle,
    Stall,
    SlowStart,
    Drip,
    Reset,
    Short,
    Long,
    WrongRange,
    Whole,
    NoLength,
    TwoLengths,
    Chunked,
    Gzip,
    ChangedEtag,
    WeakEtag,
    NoEtag,
    NoStamp,
    EndlessHead,
    BigHead,
    Garbage,
    Http2,
    RepeatedToken,
    CutXml,
    Unsorted,
}

/// What is behind the colon.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Argument {
    None,
    Number,
    Text,
}

/// Each kind with its name, the argument that it takes, and what the client sees.
const KINDS: [(Kind, &str, Argument, &str); 30] = [
    (Kind::Throttled, "503", Argument::Number, "503 SlowDown with Retry-After: ARG seconds (1)"),
    (Kind::TooMany, "429", Argument::Number, "the same with 429"),
    (Kind::Internal, "500", Argument::None, "500 InternalError"),
    (Kind::Denied, "403", Argument::None, "403 AccessDenied"),
    (Kind::Expired, "expired", Argument::None, "400 ExpiredToken"),
    (Kind::Redirect, "redirect", Argument::Text, "307 to the server ARG (http://HOST:PORT), or to itself, once"),
    (Kind::Circle, "circle", Argument::None, "307 to the same URL"),
    (Kind::Stall, "stall", Argument::Number, "stops for ARG ms (1000) at some byte"),
    (Kind::SlowStart, "slow-start", Argument::Number, "waits ARG ms (1000) before the first byte"),
    (Kind::Drip, "drip", Argument::Number, "a byte each ARG ms (1000)"),
    (Kind::Reset, "reset", Argument::None, "RST at some byte"),
    (Kind::Short, "short", Argument::None, "closed at some byte"),
    (Kind::Long, "long", Argument::None, "1000 bytes more than its length, and closed"),
    (Kind::WrongRange, "wrong-range", Argument::None, "Content-Range of another place"),
    (Kind::Whole, "200-for-206", Argument::None, "the whole object"),
    (Kind::NoLength, "no-length", Argument::None, "no length, and closed"),
    (Kind::TwoLengths, "two-lengths", Argument::None, "two lengths that differ"),
    (Kind::Chunked, "chunked", Argument::None, "in chunks"),
    (Kind::Gzip, "gzip", Argument::None, "says that it is compressed"),
    (Kind::ChangedEtag, "changed-etag", Argument::None, "another ETag"),
    (Kind::WeakEtag, "weak-etag", Argument::None, "a weak ETag"),
    (Kind::NoEtag, "no-etag", Argument::None, "no ETag"),
    (Kind::NoStamp, "no-stamp", Argument::None, "neither ETag nor Last-Modified"),
    (Kind::EndlessHead, "endless-head", Argument::Number, "a head without end, a byte each ARG ms (1)"),
    (Kind::BigHead, "big-head", Argument::None, "a head of 200 fields and 20 KiB"),
    (Kind::Garbage, "garbage", Argument::None, "64 random bytes, and closed"),
    (Kind::Http2, "http2", Argument::None, "a frame of HTTP/2, and closed"),
    (Kind::RepeatedToken, "repeated-token", Argument::None, "a page (LIST) whose token leads to itself"),
    (Kind::CutXml, "cut-xml", Argument::None, "half a page (LIST)"),
    (Kind::Unsorted, "unsorted", Argument::None, "a page (LIST) from its end on"),
];

impl Kind {
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, name, ..)| name)
    }
}

/// A kind with the share of requests that it takes.
#[derive(Clone, Debug)]
pub struct Fault {
    kind: Kind,
    percent: f64,
    number: Option<u64>,
    text: Option<String>,
}

/// A fault that a request got.
#[derive(Clone, Debug)]
pub struct Hit {
    pub kind: Kind,
    /// Milliseconds, or seconds of `Retry-After`.
    pub number: Option<u64>,
    pub text: Option<String>,
    /// Where in the body it happens, as a random number.
    pub place: u64,
}

impl Hit {
    /// The pause that the argument stands for; one second without.
    pub fn pause(&self) -> Duration {
        Duration::from_millis(self.number.unwrap_or(1000))
    }
}

/// The kinds, a line each.
pub fn usage() -> String {
    KINDS.iter().map(|(_, name, _, what)| format!("  {name:<15} {what}\n")).collect()
}

/// `KIND=PERCENT[:ARG],...`; empty is none.
pub fn parse(text: &str) -> Result<Vec<Fault>, String> {
    let faults: Vec<Fault> = text.split(',').filter(|one| !one.is_empty()).map(one).collect::<Result<_, _>>()?;
    let sum: f64 = faults.iter().map(|fault| fault.percent).sum();
    if sum > 100.0 {
        return Err(format!("the faults take {sum} % of the requests, and there are 100 %"));
    }
    Ok(faults)
}

fn one(text: &str) -> Result<Fault, String> {
    let (name, rest) = text.split_once('=').ok_or_else(|| format!("{text:?} is not KIND=PERCENT[:ARG]"))?;
    let names = || KINDS.map(|(_, name, ..)| name).join(", ");
    let &(kind, _, takes, _) = KINDS
        .iter()
        .find(|(_, known, ..)| *known == name)
        .ok_or_else(|| format!("there is no fault {name:?}; there are {}", names()))?;
    let (percent, argument) = rest.split_once(':').map_or((rest, None), |(percent, arg)| (percent, Some(arg)));
    let share = percent.parse().ok().filter(|share| (0.0..=100.0).contains(share));
    let share = share.ok_or_else(|| format!("{name}: {percent:?} is no share of 0 to 100 percent"))?;
    let mut fault = Fault { kind, percent: share, number: None, text: None };
    match (argument, takes) {
        (None, _) => {}
        (Some(_), Argument::None) => return Err(format!("{name} takes no argument")),
        (Some(text), Argument::Text) => fault.text = Some(text.to_owned()),
        (Some(text), Argument::Number) => {
            let number = text.parse().map_err(|_| format!("{name}: the argument {text:?} is no whole number"))?;
            fault.number = Some(number);
        }
    }
    Ok(fault)
}

/// The fault that an attempt, from 0 on, at `what` gets: one draw, of which each fault owns a part.
pub fn draw(faults: &[Fault], seed: u64, what: u64, attempt: u64) -> Option<Hit> {
    let random = mixed(mixed(seed ^ what).wrapping_add(attempt));
    let mut left = (random >> 11) as f64 / (1u64 << 53) as f64 * 100.0;
    let fault = faults.iter().find(|fault| {
        left -= fault.percent;
        left < 0.0
    })?;
    Some(Hit { kind: fault.kind, number: fault.number, text: fault.text.clone(), place: mixed(random) })
}

/// Two texts as one number.
pub fn hash(key: &str, range: &str) -> u64 {
    mixed(uringload_content::key_of(key.as_bytes())).wrapping_add(uringload_content::key_of(range.as_bytes()))
}

/// The step of SplitMix64.
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_kept_and_runs_repeat() {
        let faults = parse("503=10:1,reset=0.5").unwrap();
        let drawn = |seed| -> Vec<Option<Kind>> {
            (0..20_000).map(|key| draw(&faults, seed, key, 0).map(|hit| hit.kind)).collect()
        };
        let of = |kind| drawn(1).iter().filter(|found| **found == Some(kind)).count();
        assert!((1800..2200).contains(&of(Kind::Throttled)), "{}", of(Kind::Throttled));
        assert!((60..140).contains(&of(Kind::Reset)), "{}", of(Kind::Reset));
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        let attempts = (0..20_000).filter(|&attempt| draw(&faults, 1, 5, attempt).is_some()).count();
        assert!((1900..2300).contains(&attempts), "{attempts}");
    }

    #[test]
    fn wrong_faults_are_told() {
        for (wrong, told) in [
            ("503", "KIND=PERCENT"),
            ("504=1", "there is no fault \"504\"; there are 503, 429"),
            ("503=x", "\"x\" is no share"),
            ("503=101", "no share"),
            ("503=NaN", "no share"),
            ("503=60,500=60", "120 %"),
            ("stall=1:soon", "\"soon\" is no whole number"),
            ("short=1:5", "takes no argument"),
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains(told), "{wrong}: {error}");
        }
    }
}
