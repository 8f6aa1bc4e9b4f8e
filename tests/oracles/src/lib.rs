//! What uringload reads of Parquet and Arrow, compared with the crates `parquet` and `arrow-ipc`: the metadata of
//! random schemas field by field, the same with bytes changed, and the rows of small files. In a package of its own,
//! because those crates take minutes to compile: `cargo test --manifest-path tests/oracles/Cargo.toml --locked`.
#![forbid(unsafe_code)]
#![cfg(test)]

mod arrow;
mod arrow_files;
#[path = "../../common/direct.rs"]
#[allow(dead_code)]
mod direct;
mod parquet;
mod parquet_files;
#[path = "../../common/random.rs"]
#[allow(dead_code)]
mod random;

use direct::{Row, samples};
use random::Random;
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Once;
use uringload::dataset::{self, Options};

/// Where all random choices begin. A failure prints the case, too.
const SEED: u64 = 0x5eed_0f7a_b1e5;

/// Inputs that are made from each seed.
const SCHEMAS: u64 = 400;
/// Changed copies of each input.
const CHANGES: u64 = 60;
/// Small files of each format.
const FILES: u64 = 60;

/// A row that was written: its values by column, `None` for null.
type Written = BTreeMap<String, Option<Vec<u8>>>;

/// The result of changed bytes.
#[derive(Default, Debug)]
struct Told {
    refused: u64,
    agreed: u64,
    /// Refused by the oracle alone, which looks at what we do not read: its words without numbers, and how often.
    ours_alone: BTreeMap<String, u64>,
}

/// Cuts or changes some bytes.
fn changed(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    if random.below(8) == 0 {
        changed.truncate(random.below(bytes.len() as u64) as usize);
        return changed;
    }
    for _ in 0..=random.below(3) {
        let at = random.below(changed.len() as u64) as usize;
        changed[at] = match random.below(5) {
            0 => 0xff,
            1 => 0,
            2 => changed[at].wrapping_add(1),
            3 => changed[at] ^ 1 << random.below(8),
            _ => random.number() as u8,
        };
    }
    changed
}

/// What an error says first, and where the oracle was.
fn words(error: &str) -> String {
    let words: Vec<&str> = error.lines().take(2).flat_map(str::split_whitespace).collect();
    words.join(" ").chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

/// Panics of the oracles are caught, and say nothing of ours.
fn silence_oracles() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !info.location().is_some_and(|location| location.file().contains("/registry/")) {
                before(info);
            }
        }));
    });
}

/// Holds changed copies of `bytes` against the oracle. `ours` and `theirs` return what they read as values that are
/// compared; neither sees what the other has refused, because the oracle may take any time and memory for that.
fn hold<O, T>(
    case: u64,
    bytes: &[u8],
    random: &mut Random,
    told: &mut Told,
    ours: impl Fn(&[u8]) -> Result<O, String>,
    theirs: impl Fn(&[u8]) -> Result<T, String>,
    agree: impl Fn(&O, &T) -> Result<(), String>,
) {
    silence_oracles();
    for turn in 0..CHANGES {
        let changed = changed(bytes, random);
        let place = format!("seed {SEED:#x}, case {case}, turn {turn}");
        let found = catch_unwind(AssertUnwindSafe(|| ours(&changed)));
        let Ok(found) = found else { panic!("{place}: a panic") };
        let Ok(found) = found else {
            told.refused += 1;
            continue;
        };
        match catch_unwind(AssertUnwindSafe(|| theirs(&changed))) {
            Ok(Ok(expected)) => {
                told.agreed += 1;
                if let Err(what) = agree(&found, &expected) {
                    panic!("{place}: {what}");
                }
            }
            Ok(Err(what)) => *told.ours_alone.entry(words(&what)).or_default() += 1,
            Err(_) => *told.ours_alone.entry("a panic".into()).or_default() += 1,
        }
    }
}

/// Writes small files by `write`, and compares their rows with what uringload reads.
fn rows_are_those_written(name: &str, write: fn(&Path, &mut Random) -> Vec<Written>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    for case in 0..FILES {
        let expected = write(&path, &mut Random::new(SEED + case));
        let dataset = dataset::open(&[&path], &Options::new().set("nulls", "zero"));
        let dataset = dataset.unwrap_or_else(|error| panic!("seed {SEED:#x}, case {case}: {error}"));
        let rows: Vec<Row> = samples(&*dataset).into_iter().map(|row| row.expect("a row")).collect();
        assert_eq!(rows.len(), expected.len(), "seed {SEED:#x}, case {case}");
        for (number, (row, expected)) in rows.iter().zip(&expected).enumerate() {
            assert!(row.keys().eq(expected.keys()), "seed {SEED:#x}, case {case}: {:?}", row.keys());
            for (name, value) in expected {
                let found = &row[name];
                let is_same = match value {
                    Some(value) => found == value,
                    // Null numbers are 0, and null texts and lists are empty.
                    None => found.iter().all(|&byte| byte == 0),
                };
                assert!(is_same, "seed {SEED:#x}, case {case}: {name} of row {number}: {found:?}, not {value:?}");
            }
        }
    }
}
