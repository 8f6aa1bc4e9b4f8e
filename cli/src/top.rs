//! `uringload top`: shows the statistics that running loaders share, once a second.

use crate::Done;
use crate::arguments::Top;
use crate::failure::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::output::{self, Table, eprintln_quietly};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, IsTerminal, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use uringload::dataset::inspect::open_regular;
use uringload::{Error, ErrorKind};
use uringload_measure::text;
use uringload_measure::text::one_line;

/// The version of the pages that it understands.
const VERSION: u64 = 1;

/// A page is some kilobytes. A larger file is not ours.
const MOST_BYTES: u64 = 1 << 20;

/// Columns of the names of rows.
const NAMES: usize = 9;

/// Cells of the bar of reads in flight.
const BAR: usize = 30;

/// Clears a terminal and goes to its first line.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// A loader's page.
struct Page {
    pid: u32,
    path: PathBuf,
    value: Value,
}

/// Shows the pages until the loaders end or the user stops it.
pub fn run(options: &Top) -> Done {
    let interrupt = Interrupt::install();
    let is_screen = !options.once && !options.json && io::stdout().is_terminal();
    let (mut has_shown, mut told) = (false, BTreeSet::new());
    loop {
        let (pages, passed_over) = pages(&options.at, options.pid)?;
        for line in passed_over {
            if told.insert(line.clone()) {
                eprintln_quietly(&line);
            }
        }
        if pages.is_empty() {
            // Those that were shown have ended.
            return if has_shown { Ok(Exit::Done) } else { Err(none(options)) };
        }
        has_shown = true;
        show(&pages, options.json, is_screen)?;
        if options.once {
            return Ok(Exit::Done);
        }
        interrupt.sleep_until(Instant::now() + options.every);
        if interrupt.is_set() {
            return Ok(Exit::Interrupted);
        }
    }
}

fn none(options: &Top) -> Failure {
    let what = match options.pid {
        Some(pid) => format!("process {pid} shares no loader's statistics"),
        None => "no loader shares its statistics".to_owned(),
    };
    let error = Error::new(ErrorKind::NotFound, what).with_path(&options.at);
    let remedy = "share them: Builder::share_stats(\"/dev/shm\"), DataLoader(share_stats=True), the variable \
                  URINGLOAD_SHARE_STATS=1 for Python, or `bench --share-stats`";
    error.with_remedy(remedy).into()
}

/// The pages of living processes, by process; and the pages that were passed over, and why. In a folder that all may
/// write to, any user may put a page: a page is not trusted if it is not a file, or belongs to another user than its
/// process.
fn pages(at: &Path, pid: Option<u32>) -> Result<(Vec<Page>, Vec<String>), Failure> {
    let failed = |source| Error::io("cannot look for loaders", source).with_path(at);
    let (mut found, mut passed_over) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(at).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let of = path.file_name().and_then(|name| process(name.to_str()?));
        // One that was killed has left its page.
        let Some(of) = of.filter(|of| pid.is_none_or(|pid| pid == *of) && Path::new(&format!("/proc/{of}")).exists())
        else {
            continue;
        };
        match read(&path, of) {
            Ok(value) => found.push(Page { pid: of, path, value }),
            // It has just ended, or it belongs to another user, and was not asked for.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::PermissionDenied && pid.is_none() => {}
            Err(error) if pid.is_none() => passed_over.push(format!("uringload: passed over: {}", error.headline())),
            Err(error) => return Err(error.into()),
        }
    }
    found.sort_by(|a, b| (a.pid, &a.path).cmp(&(b.pid, &b.path)));
    Ok((found, passed_over))
}

/// The process of `uringload-PID-NUMBER.json`.
fn process(name: &str) -> Option<u32> {
    let (pid, number) = name.strip_prefix("uringload-")?.strip_suffix(".json")?.split_once('-')?;
    u64::from_str_radix(number, 16).ok().and_then(|_| pid.parse().ok())
}

/// The page of a process.
fn read(path: &Path, pid: u32) -> uringload::Result<Value> {
    let failed = |source| Error::io("cannot read the loader's page", source).with_path(path);
    // What is no file is not waited for.
    let file = open_regular(path, "cannot read the loader's page")?;
    let owner = file.metadata().map_err(failed)?.uid();
    if fs::metadata(format!("/proc/{pid}")).map_err(failed)?.uid() != owner {
        let what = format!("the page belongs to user {owner}, and process {pid} to another");
        return Err(Error::new(ErrorKind::Corrupt, what).with_path(path));
    }
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).map_err(failed)?;
    let corrupt = |what: String| Error::new(ErrorKind::Corrupt, what).with_path(path);
    let page: Value =
        serde_json::from_str(&text).map_err(|error| corrupt("the page is no JSON".into()).with_source(error))?;
    match page["version"].as_u64() {
        Some(VERSION) => Ok(page),
        other => {
            let other = other.map_or_else(|| "none".to_owned(), |other| other.to_string());
            let what = format!("the page's version is {other}, and this uringload reads version {VERSION}");
            Err(corrupt(what).with_remedy("use the `uringload` of the loader's own version"))
        }
    }
}

fn show(pages: &[Page], json: bool, is_screen: bool) -> Result<(), Failure> {
    if json {
        // One line for each, so that a stream of them can be read as it comes.
        let lines: String = pages.iter().map(|page| format!("{}\n", page.value)).collect();
        return Ok(output::print(&lines)?);
    }
    let text = pages.iter().map(table).collect::<Vec<_>>().join("\n");
    if is_screen {
        output::print_raw(CLEAR)?;
    }
    Ok(output::print_table(&text, NAMES)?)
}

fn table(Page { pid, value, .. }: &Page) -> String {
    let mut table = Table::new(NAMES);
    let (now, dataset) = (&value["now"], &value["dataset"]);
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let count = |value: &Value| text::count(number(value).round() as u64);
    let rate = |value: &Value| format!("{}/s", text::bytes(number(value)));
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let time = |value: &Value| {
        value
            .as_f64()
            .map_or_else(|| "-".to_owned(), |micros| text::time(Duration::from_secs_f64(micros.max(0.0) / 1e6)))
    };
    table.row("process", format!("{pid} {}", command(*pid)));
    let (samples, size) = (count(&dataset["samples"]), text::bytes(number(&dataset["bytes"])));
    table.row("dataset", format!("{} of {samples} samples, {size}", text(&dataset["format"])));
    let elapsed = text::time(Duration::from_secs_f64(number(&value["elapsed_s"]).max(0.0)));
    table.row(
        "so far",
        format!("{} samples in {} batches, {elapsed}", count(&value["samples"]), count(&value["batches"])),
    );
    let ready = format!("{:.0} % of the batches lay ready", 100.0 * number(&now["batches_ready"]));
    table.row("now", format!("{} samples/s, {}; {ready}", count(&now["samples_per_s"]), rate(&now["bytes_per_s"])));
    let (bottleneck, share) = (text(&now["bottleneck"]), 100.0 * number(&now["share"]));
    table.row("limit", format!("{bottleneck} ({share:.0} %): {}", text(&now["advice"])));
    let latency = &now["read_latency_us"];
    let (median, most) = (time(&latency["p50"]), time(&latency["p99"]));
    let (reads, bytes) = (count(&now["reads_per_s"]), rate(&now["read_bytes_per_s"]));
    table.row("disk", format!("{bytes} in {reads} reads/s, p50 {median}, p99 {most}"));
    let (flying, depth) = (number(&now["in_flight"]), number(&now["depth"]));
    table.row("queue", format!("{flying:.1} of {depth:.0} reads in flight  {}", bar(flying / depth.max(1.0))));
    let device = &now["device"];
    if let Some(names) = device["names"].as_array() {
        let busy = |name: &str| format!("{:.0} %", 100.0 * number(&device[name]));
        let (copies, kernels) = (busy("copy_busy"), busy("kernel_busy"));
        let rate = rate(&device["copied_bytes_per_s"]);
        let names = names.iter().map(&text).collect::<Vec<_>>().join(", ");
        table.row("GPU", format!("{rate} copied, at copies for {copies} and at columns for {kernels} of it: {names}"));
    }
    let (used, all) = (number(&now["processors"]), number(&now["processors_available"]));
    table.row("CPU", format!("{used:.2} of {all:.0} processors, the whole process"));
    let threads = now["threads"].as_array().into_iter().flatten();
    for thread in threads.filter(|thread| number(&thread["share"]) >= 0.01) {
        let (role, doing) = (text(&thread["role"]), text(&thread["doing"]));
        let share = 100.0 * number(&thread["share"]);
        // Time of a thread that waits for a processor is time of what it does.
        let had = thread["processors"].as_f64().map_or_else(String::new, |had| format!(", {had:.2} processors"));
        let threads = match number(&thread["threads"]) as u64 {
            1 => "1 thread".to_owned(),
            threads => format!("{threads} threads"),
        };
        table.row("", format!("{role:<10} {doing:<18} {share:>4.0} % of a thread's time ({threads}{had})"));
    }
    if let Some(outage) = now["outage"].as_str() {
        table.row("outage", outage.to_owned());
    }
    table.text
}

fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    format!("[{}{}]", "#".repeat(full), ".".repeat(BAR - full))
}

/// The command line of the process.
fn command(pid: u32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&words).replace('\0', " ");
    one_line(words.trim()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_loaders_are_pages() {
        assert_eq!(process("uringload-12-0.json"), Some(12));
        for other in
            ["uringload-12.json", "uringload-x-0.json", "uringload-12-0.new", "12-0.json", "uringload-1-x.json"]
        {
            assert_eq!(process(other), None, "{other}");
        }
    }

    #[test]
    fn what_a_page_lacks_is_told_and_breaks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page");
        for (text, told) in [("{", "no JSON"), ("{}", "version is none"), ("{\"version\": 2}", "version is 2")] {
            fs::write(&path, text).unwrap();
            let error = read(&path, std::process::id()).unwrap_err();
            assert!(error.kind() == ErrorKind::Corrupt && error.what().contains(told), "{error}");
        }
        fs::write(&path, "{\"version\": 1, \"now\": {\"in_flight\": -3}}").unwrap();
        let text = table(&Page {
            pid: std::process::id(),
            path: path.clone(),
            value: read(&path, std::process::id()).unwrap(),
        });
        assert!(text.contains("limit     unknown") && text.contains("[...."), "{text}");
        assert!(!text.contains("GPU"), "batches stay on the host: {text}");
        let device = "{\"names\": [\"H200\", \"H200\"], \"copied_bytes_per_s\": 2e9, \"copy_busy\": 0.25, \
                      \"kernel_busy\": 0.034}";
        fs::write(&path, format!("{{\"version\": 1, \"now\": {{\"device\": {device}}}}}")).unwrap();
        let text = table(&Page {
            pid: std::process::id(),
            path: path.clone(),
            value: read(&path, std::process::id()).unwrap(),
        });
        let told = "GPU       2.00 GB/s copied, at copies for 25 % and at columns for 3 % of it: H200, H200\n";
        assert!(text.contains(told), "{text}");
        assert_eq!(bar(2.0), format!("[{}]", "#".repeat(BAR)));
    }
}
