//! What the server was asked for.

use std::collections::BTreeMap;
use std::fmt::Write;

/// How many ranges are kept.
const RANGES_KEPT: usize = 1 << 20;

/// What the server was asked for since its start, or since `/_reset`.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Requests by what they are: `GET`, `HEAD`, `LIST`, `PUT`, `CREATE`, `PART`, `COMPLETE`, `ABORT`, `DELETE`,
    /// `BUCKET`, `BUCKETS` or `OTHER`.
    pub requests: BTreeMap<&'static str, u64>,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Bytes of bodies that were sent.
    pub bytes: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// Requests without a signature.
    pub unsigned: u64,
    /// The most requests that were answered at the same time.
    pub most_at_once: u64,
    /// Ranges that GETs asked for: bucket and key, first byte, and the byte behind the last. At most 2^20 are kept.
    pub ranges: Vec<(String, u64, u64)>,
}

impl Stats {
    pub(crate) fn note_range(&mut self, object: String, first: u64, end: u64) {
        if self.ranges.len() < RANGES_KEPT {
            self.ranges.push((object, first, end));
        }
    }

    /// All but the ranges themselves, which are listed where they are wanted.
    pub(crate) fn json(&self, with_ranges: bool) -> String {
        let map = |pairs: Vec<(String, u64)>| {
            let pairs: Vec<String> = pairs.iter().map(|(name, count)| format!("\"{name}\":{count}")).collect();
            format!("{{{}}}", pairs.join(","))
        };
        let named = |counts: &BTreeMap<&'static str, u64>| {
            map(counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect())
        };
        let statuses = map(self.statuses.iter().map(|(status, count)| (status.to_string(), *count)).collect());
        let mut out = format!(
            "{{\"requests\":{},\"statuses\":{statuses},\"faults\":{},\"bytes\":{},\"connections\":{},\"unsigned\":{},\
             \"most_at_once\":{},\"ranges\":",
            named(&self.requests),
            named(&self.faults),
            self.bytes,
            self.connections,
            self.unsigned,
            self.most_at_once
        );
        if with_ranges {
            let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace(char::is_control, "?");
            let ranges = self.ranges.iter().map(|(key, first, end)| format!("[\"{}\",{first},{end}]", quoted(key)));
            let _ = write!(out, "[{}]}}", ranges.collect::<Vec<_>>().join(","));
        } else {
            let _ = write!(out, "{}}}", self.ranges.len());
        }
        out
    }
}
