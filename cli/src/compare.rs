//! `uringload compare`: two results of `bench --json`, with an interval for the difference, for people and for CI.

use crate::Done;
use crate::arguments::{Compare, TableForm};
use crate::failure::{Exit, Failure};
use crate::output::{self, eprintln_quietly};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;
use uringload::{Error, ErrorKind};
use uringload_measure::text;

/// The version of the JSON that it understands.
const VERSION: u64 = 3;

/// An interval misses the truth in this share of all comparisons at most.
const CHANCE: f64 = 0.05;

/// With more rounds than this the exact distribution is not told from the normal one.
const EXACT: usize = 20;

/// Less than this is as before.
const LITTLE: f64 = 0.05;

/// Largest file that is read: a report of thousands of rounds takes some megabytes.
const FILE_BYTES: u64 = 256 << 20;

/// The keys that make two machines different.
const MACHINE: [&str; 7] = [
    "/machine/host",
    "/machine/kernel",
    "/machine/cpu",
    "/machine/processors",
    "/machine/memory_bytes",
    "/machine/filesystem",
    "/machine/device",
];

/// The keys that make two measurements different.
const SUBJECT: [&str; 11] = [
    "/dataset/format",
    "/dataset/samples",
    "/dataset/bytes",
    "/config/batch_size",
    "/config/shuffle",
    "/config/world_size",
    "/config/drop_last",
    "/step_ms",
    "/cold",
    "/route/engine",
    "/route/direct_io",
];

/// A figure: its name in the JSON, whether every round has it, and whether more of it is better.
const FIGURES: [(&str, bool, bool); 9] = [
    ("samples_per_s", true, true),
    ("bytes_per_s", true, true),
    ("raw_read_bytes_per_s", true, true),
    ("au_percent", true, true),
    ("cpu_s_per_gb", true, false),
    ("first_batch_ms", true, false),
    ("batch_wait_ms/p99", false, false),
    ("read_latency_us/p99", false, false),
    ("peak_rss_bytes", false, false),
];

/// Prints the differences; degraded if the second is slower than allowed.
pub fn run(options: &Compare) -> Done {
    let (first, second) = (read(&options.first)?, read(&options.second)?);
    same_version(options, &first, &second)?;
    let comparison = Comparison::of(&first, &second, options.fail_below);
    for warning in &comparison.differences {
        eprintln_quietly(&format!("uringload: the measurements differ in {warning}"));
    }
    let text = match options.output {
        TableForm::Text => comparison.text(),
        TableForm::Markdown => comparison.markdown(),
        TableForm::Csv => comparison.csv(),
        TableForm::Json => serde_json::to_string_pretty(&comparison).map_err(io::Error::from)? + "\n",
    };
    output::print(&text)?;
    Ok(if comparison.failed { Exit::Degraded } else { Exit::Done })
}

fn read(path: &Path) -> Result<Value, Failure> {
    let of_file = |source| Failure::Loader(Error::io("cannot read the result", source).with_path(path));
    let bytes = fs::metadata(path).map_err(of_file)?.len();
    let refused = |what: String| {
        let error = Error::new(ErrorKind::InvalidArgument, what).with_path(path);
        Failure::Loader(error.with_remedy("give a file that `uringload bench --json FILE` wrote"))
    };
    if bytes > FILE_BYTES {
        return Err(refused(format!("{bytes} bytes are no result of bench")));
    }
    let text = fs::read_to_string(path).map_err(of_file)?;
    serde_json::from_str(&text).map_err(|error| refused(format!("this is no JSON of bench: {error}")))
}

/// Refuses results of another version, and says which.
fn same_version(options: &Compare, first: &Value, second: &Value) -> Result<(), Failure> {
    for (path, result) in [(&options.first, first), (&options.second, second)] {
        let version = &result["version"];
        if version.as_u64() == Some(VERSION) {
            continue;
        }
        let program = result["uringload"].as_str().unwrap_or("another program");
        let what = match version.as_u64() {
            Some(version) => {
                format!("version {version} of the JSON (by uringload {program}), and this reads {VERSION}")
            }
            None => "no version: this is no result of bench".to_owned(),
        };
        let error = Error::new(ErrorKind::InvalidArgument, what).with_path(path);
        let remedy = format!("measure both with uringload {}", env!("CARGO_PKG_VERSION"));
        return Err(Failure::Loader(error.with_remedy(remedy)));
    }
    Ok(())
}

/// What two results have in common, and what not.
#[derive(Debug, Serialize)]
struct Comparison {
    differences: Vec<String>,
    figures: Vec<Figure>,
    fail_below: Option<f64>,
    failed: bool,
    conclusion: String,
}

/// One figure in both.
#[derive(Debug, Serialize)]
struct Figure {
    name: &'static str,
    first: f64,
    second: f64,
    rounds: [usize; 2],
    /// The second over the first.
    ratio: f64,
    /// The ratio is in this range with 95 % of certainty; `None`: there are too few rounds for that.
    interval: Option<[f64; 2]>,
    better: Option<bool>,
}

impl Comparison {
    fn of(first: &Value, second: &Value, fail_below: Option<f64>) -> Comparison {
        let named = |path: &&str| {
            let (a, b) = (first.pointer(path), second.pointer(path));
            let shown = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
            (a != b).then(|| format!("{}: {} and {}", path[1..].replace('/', " "), shown(a), shown(b)))
        };
        let differences = MACHINE.iter().chain(&SUBJECT).filter_map(named).collect();
        let figures: Vec<Figure> = FIGURES.iter().filter_map(|&figure| Figure::of(figure, first, second)).collect();
        let (failed, conclusion) = conclude(figures.iter().find(|one| one.name == "samples_per_s"), fail_below);
        Comparison { differences, figures, fail_below, failed, conclusion }
    }

    fn rows(&self) -> Vec<[String; 5]> {
        let row = |one: &Figure| {
            let interval = one.interval.map_or_else(String::new, |[low, high]| format!("{low:.3} to {high:.3}"));
            let [first, second] = [one.first, one.second].map(|value| with_unit(one.name, value));
            [first, second, format!("{:.3}", one.ratio), interval, one.judgement().to_owned()]
        };
        self.figures.iter().map(row).collect()
    }

    fn text(&self) -> String {
        let mut text = format!("{:<22} {:>12} {:>12} {:>7}  {:<16} \n", "", "first", "second", "ratio", "95 %");
        for (figure, [first, second, ratio, interval, better]) in self.figures.iter().zip(self.rows()) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{:<22} {first:>12} {second:>12} {ratio:>7}  {interval:<16} {better}", figure.name);
        }
        text + &self.conclusion + "\n"
    }

    fn markdown(&self) -> String {
        let mut text = "| figure | first | second | ratio | 95 % | |\n|---|---:|---:|---:|---|---|\n".to_owned();
        for (figure, cells) in self.figures.iter().zip(self.rows()) {
            let _ = writeln!(text, "| {} | {} |", figure.name, cells.join(" | "));
        }
        for difference in &self.differences {
            let _ = writeln!(text, "\nThe measurements differ in {}.", difference.replace('|', "\\|"));
        }
        text + "\n" + &self.conclusion + "\n"
    }

    fn csv(&self) -> String {
        let mut text = "figure,first,second,ratio,low,high,better\n".to_owned();
        for Figure { name, first, second, ratio, interval, better, .. } in &self.figures {
            let [low, high] = interval.map_or_else(Default::default, |ends| ends.map(|end| end.to_string()));
            let better = better.map_or("", |better| if better { "yes" } else { "no" });
            let _ = writeln!(text, "{name},{first},{second},{ratio},{low},{high},{better}");
        }
        text
    }
}

impl Figure {
    fn of((name, is_of_rounds, more): (&'static str, bool, bool), first: &Value, second: &Value) -> Option<Figure> {
        let (a, b) = (values(first, name, is_of_rounds)?, values(second, name, is_of_rounds)?);
        let (before, after) = (median(&a), median(&b));
        if before <= 0.0 {
            return None;
        }
        let ratios = ratios(&a, &b);
        let (ratio, interval) = (median(&ratios), interval(&ratios, [a.len(), b.len()]));
        let better = interval.filter(|[low, high]| *low > 1.0 || *high < 1.0).map(|[low, _]| (low > 1.0) == more);
        Some(Figure { name, first: before, second: after, rounds: [a.len(), b.len()], ratio, interval, better })
    }

    /// What people make of it.
    fn judgement(&self) -> &'static str {
        match (self.better, self.interval) {
            (Some(true), _) => "better",
            (Some(false), _) => "worse",
            (None, _) if self.first.to_bits() == self.second.to_bits() => "the same",
            (None, Some([low, high])) if low > 1.0 - LITTLE && high < 1.0 + LITTLE => "as before",
            (None, Some(_)) => "may be chance",
            (None, None) => "too few rounds",
        }
    }
}

/// The figure of every round, or the single one; `None` if one lacks it.
fn values(result: &Value, name: &str, is_of_rounds: bool) -> Option<Vec<f64>> {
    if !is_of_rounds {
        return Some(vec![result.pointer(&format!("/{name}"))?.as_f64()?]);
    }
    let rounds = result["rounds"].as_array()?;
    let values: Vec<f64> =
        rounds.iter().filter_map(|round| round[name].as_f64()).filter(|one| one.is_finite()).collect();
    (!values.is_empty()).then_some(values)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[half - 1] + sorted[half]) / 2.0 } else { sorted[half] }
}

/// The second over the first, of all pairs of rounds, in ascending order.
fn ratios(first: &[f64], second: &[f64]) -> Vec<f64> {
    let of = |second: &f64| first.iter().map(move |first| second / first).collect::<Vec<_>>();
    let mut ratios: Vec<f64> = second.iter().flat_map(of).filter(|ratio| ratio.is_finite()).collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}

/// The interval of the ratio by the ranks of the rounds (Mann and Whitney; Hodges and Lehmann): whatever the noise is
/// like, it misses the truth in 5 % of all comparisons at most, and the ratio of a run to itself is in it. `None`: so
/// few rounds may lie in any order by chance.
fn interval(ratios: &[f64], rounds: [usize; 2]) -> Option<[f64; 2]> {
    let outside = outside(rounds);
    let low = outside.checked_sub(1)?;
    Some([*ratios.get(low)?, *ratios.get(ratios.len().checked_sub(outside)?)?])
}

/// Of all pairs, so many may be on the other side by chance, and that is as unlikely as the interval wants it.
fn outside([first, second]: [usize; 2]) -> usize {
    let pairs = first * second;
    if first.max(second) > EXACT {
        let deviation = (pairs as f64 * (first + second + 1) as f64 / 12.0).sqrt();
        return (pairs as f64 / 2.0 - 1.96 * deviation).max(0.0) as usize;
    }
    // The number of orders of the rounds in which so many pairs are on the other side: those that end with a round of
    // the one, and those that end with one of the other.
    let mut orders = vec![vec![vec![0.0; pairs + 1]; second + 1]; first + 1];
    for one in 0..=first {
        for other in 0..=second {
            for count in 0..=one * other {
                orders[one][other][count] = match (one, other) {
                    (0, _) | (_, 0) => 1.0,
                    _ => {
                        let before = count.checked_sub(other).map_or(0.0, |count| orders[one - 1][other][count]);
                        before + orders[one][other - 1][count]
                    }
                };
            }
        }
    }
    let counts = &orders[first][second];
    let all: f64 = counts.iter().sum();
    let mut seen = 0.0;
    let is_unlikely = |count: &&f64| {
        seen += **count;
        2.0 * seen / all <= CHANCE
    };
    counts.iter().take_while(is_unlikely).count()
}

/// Whether the second is slower by more than allowed, and why. With an interval, the loss must be beyond chance.
fn conclude(rate: Option<&Figure>, fail_below: Option<f64>) -> (bool, String) {
    let Some(Figure { ratio, interval, .. }) = rate else {
        return (false, "neither has a rate to compare".to_owned());
    };
    let change = 100.0 * (ratio - 1.0);
    let by_chance = interval.is_some_and(|[low, high]| low <= 1.0 && 1.0 <= high);
    let told = match interval {
        None => {
            format!("{change:+.1} % samples/s; so few rounds say nothing of chance: use bench --rounds 5 or more")
        }
        Some(_) if by_chance => format!("{change:+.1} % samples/s, which may be chance"),
        Some(_) => format!("{change:+.1} % samples/s, beyond chance"),
    };
    let failed = fail_below.is_some_and(|below| *ratio < 1.0 - below) && !by_chance;
    let limit = fail_below
        .filter(|_| failed)
        .map_or_else(String::new, |below| format!("; that is more than the {:.1} % that are allowed", 100.0 * below));
    (failed, told + &limit)
}

/// With the unit that people read.
fn with_unit(name: &str, value: f64) -> String {
    let time = |seconds: f64| text::time(Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
    match name {
        "samples_per_s" => format!("{}/s", text::count(value.round() as u64)),
        "bytes_per_s" | "raw_read_bytes_per_s" => format!("{}/s", text::bytes(value)),
        "au_percent" => format!("{value:.1} %"),
        "cpu_s_per_gb" => format!("{value:.3} s/GB"),
        "first_batch_ms" | "batch_wait_ms/p99" => time(value / 1e3),
        "read_latency_us/p99" => time(value / 1e6),
        "peak_rss_bytes" => text::binary(value as u64),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn result(rates: &[f64], host: &str) -> Value {
        let rounds: Vec<Value> = rates.iter().map(|rate| json!({"samples_per_s": rate, "cpu_s_per_gb": 1.0})).collect();
        json!({"version": VERSION, "machine": {"host": host}, "rounds": rounds})
    }

    #[test]
    fn a_loss_beyond_chance_fails_and_one_by_chance_does_not() {
        let steady = result(&[100.0, 101.0, 99.0, 100.5, 99.5], "a");
        let slower = result(&[90.0, 91.0, 89.0, 90.5, 89.5], "a");
        let noisy = result(&[100.0, 130.0, 60.0, 90.0, 94.0], "a");
        let of = |second: &Value, below: f64| Comparison::of(&steady, second, Some(below));
        let worse = of(&slower, 0.05);
        assert!(worse.failed && worse.conclusion.starts_with("-10.0 %"), "{}", worse.conclusion);
        let [low, high] = worse.figures[0].interval.unwrap();
        assert!(low > 0.88 && high < 0.92 && worse.figures[0].better == Some(false), "{low} to {high}");
        assert!(!of(&slower, 0.15).failed, "that much is allowed");
        assert!(!of(&noisy, 0.05).failed && of(&noisy, 0.05).conclusion.contains("may be chance"));
        assert!(!of(&steady, 0.0).failed && of(&steady, 0.0).differences.is_empty());
        let one = Comparison::of(&result(&[100.0], "a"), &result(&[90.0], "b"), Some(0.05));
        assert!(one.failed && one.figures[0].interval.is_none() && one.conclusion.contains("--rounds"));
        assert_eq!(one.differences, ["machine host: \"a\" and \"b\""]);
    }

    /// The orders of rounds by chance, as the tables of Mann and Whitney have them.
    #[test]
    fn the_interval_is_that_of_the_ranks() {
        for (rounds, wanted) in [([1, 1], 0), ([3, 3], 0), ([4, 4], 1), ([5, 5], 3), ([3, 5], 1), ([10, 10], 24)] {
            assert_eq!(outside(rounds), wanted, "{rounds:?}");
        }
        assert!(outside([20, 21]).abs_diff(outside([20, 20])) < 15, "the normal distribution goes on where it ends");
    }

    #[test]
    fn a_run_is_neither_better_nor_worse_than_itself_and_a_ratio_far_from_1_is_not_as_before() {
        let judged = |a: &[f64], b: &[f64]| {
            let comparison = Comparison::of(&result(a, "a"), &result(b, "a"), Some(0.0));
            let rate = comparison.figures.into_iter().find(|one| one.name == "samples_per_s").unwrap();
            (rate.judgement(), rate.interval, comparison.failed)
        };
        for rates in [&[7.0][..], &[9.0, 100.0], &[5.0, 80.0, 3.0], &[100.0, 90.0, 300.0, 7.0, 4.0], &[0.1; 9]] {
            let (judgement, interval, failed) = judged(rates, rates);
            assert!(judgement == "the same" && !failed, "{rates:?}: {judgement}");
            assert!(interval.is_none_or(|[low, high]| low <= 1.0 && 1.0 <= high), "{rates:?}: {interval:?}");
        }
        // The same machine twice: two or three rounds may lie in any order.
        assert_eq!(judged(&[100.0, 99.0, 98.0], &[97.0, 96.0, 95.0]).0, "too few rounds");
        assert_eq!(judged(&[1000.0], &[72.0]).0, "too few rounds");
        assert_eq!(judged(&[1000.0, 1001.0, 999.0, 998.0], &[72.0, 71.0, 73.0, 70.0]).0, "worse");
        assert_eq!(judged(&[10.0, 100.0, 30.0, 70.0], &[20.0, 90.0, 40.0, 65.0]).0, "may be chance");
        let (a, b) = ([100.0, 101.0, 99.0, 100.5, 99.5], [100.2, 100.9, 99.1, 100.4, 99.4]);
        assert_eq!(judged(&a, &b).0, "as before");
    }

    #[test]
    fn every_form_has_every_figure() {
        let comparison = Comparison::of(&result(&[2e9, 2.1e9], "a"), &result(&[1.0, 2.0], "a"), None);
        assert_eq!(comparison.figures.len(), 2);
        for text in [comparison.text(), comparison.markdown(), comparison.csv()] {
            assert!(text.contains("samples_per_s") && text.contains("cpu_s_per_gb"), "{text}");
        }
        assert_eq!(comparison.csv().lines().next().unwrap().split(',').count(), 7);
        assert!(comparison.csv().lines().all(|line| line.split(',').count() == 7));
        for (name, value, told) in [
            ("samples_per_s", 19_123.4, "19 123/s"),
            ("bytes_per_s", 2.05e9, "2.05 GB/s"),
            ("first_batch_ms", 394.2, "394 ms"),
            ("read_latency_us/p99", 98_600.0, "98.6 ms"),
            ("peak_rss_bytes", f64::from(28 << 20), "28 MiB"),
            ("cpu_s_per_gb", 4.154, "4.154 s/GB"),
        ] {
            assert_eq!(with_unit(name, value), told);
        }
        assert!(FIGURES.iter().all(|(name, ..)| with_unit(name, 1.0) != "1.000"), "each figure has a unit");
    }

    #[test]
    fn hostile_results_are_no_figures() {
        for hostile in [json!(null), json!({"rounds": 7}), json!({"rounds": [{"samples_per_s": "x"}]})] {
            let comparison = Comparison::of(&hostile, &result(&[1.0], "a"), Some(0.1));
            assert!(comparison.figures.is_empty() && !comparison.failed);
        }
        let nothing = Comparison::of(&result(&[0.0, 0.0], "a"), &result(&[1.0], "a"), None);
        assert_eq!(nothing.figures.len(), 1, "no ratio to zero");
    }
}
