//! Measures what a GPU gets: copies to it, file reads into it, kernels, and how busy a trainer's steps keep it.
//! `benches/gpu.sh` runs it on a machine without Rust, `cargo bench --bench gpu` on one with Rust.
//!
//! usage: gpu [--dir DIR] [--json FILE] [--seconds N] [--only SECTION]... [--tiny] [--mock] [--required]
//!        [--nvjpeg PATH]
//!
//! - `--dir`: where to make and keep the files to read, for others to read them too; by default they are made in the
//!   system's temporary folder and removed.
//! - `--json`: where to write every number. What is there of sections that ran before stays.
//! - `--seconds`: how long everything may take; 240 by default. With less time, measurements are repeated less often,
//!   and the output says how many runs each median is of.
//! - `--only`: h2d, kernels, beside, jpeg, works, cached or busy.
//! - `--nvjpeg`: nvJPEG's library or its folder, where the system finds none.
//! - `--tiny`: little data, only to try this program.
//! - `--mock`: says in every output that the driver is a mock and no number means anything.
//!
//! - `--required`: there is a GPU, as another program has shown, so not to find it is a failure.
//!
//! Times on the device come from the device's events. Without a driver or a device it says so and exits with success.

mod bandwidth;
mod beside;
mod busy;
mod files;
mod h2d;
mod jpeg;
mod machine;
mod report;
mod works;

use machine::{Gpu, Limits, Outcome};
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// A section's name, its share of the time, and its function.
type Section = (&'static str, u32, fn(&Gpu, &Setting, &Limits, &mut Report) -> Outcome<()>);

/// Files are made within the time of `works`. `h2d` comes first, because the others are compared with its peak.
const SECTIONS: [Section; 7] = [
    ("h2d", 10, h2d::run),
    ("kernels", 10, bandwidth::run),
    ("beside", 5, beside::run),
    ("jpeg", 5, jpeg::run),
    ("works", 50, works::run),
    ("cached", 10, works::cached),
    ("busy", 10, busy::run),
];

/// What the user asked for.
struct Setting {
    folder: PathBuf,
    is_tiny: bool,
    /// Where nvJPEG is, if not where the system finds it.
    nvjpeg: Option<PathBuf>,
}

struct Arguments {
    folder: Option<PathBuf>,
    json: Option<PathBuf>,
    seconds: u64,
    only: Vec<String>,
    is_tiny: bool,
    is_mock: bool,
    is_required: bool,
    nvjpeg: Option<PathBuf>,
}

fn arguments() -> Outcome<Arguments> {
    let (folder, json, only, nvjpeg) = (None, None, Vec::new(), None);
    let (is_tiny, is_mock, is_required) = (false, false, false);
    let mut arguments = Arguments { folder, json, seconds: 240, only, is_tiny, is_mock, is_required, nvjpeg };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let mut value = || given.next().ok_or_else(|| format!("{name} lacks its value"));
        match name.as_str() {
            "--dir" => arguments.folder = Some(value()?.into()),
            "--json" => arguments.json = Some(value()?.into()),
            "--seconds" => arguments.seconds = value()?.parse()?,
            "--only" => arguments.only.push(value()?),
            "--nvjpeg" => arguments.nvjpeg = Some(value()?.into()),
            "--tiny" => arguments.is_tiny = true,
            "--mock" => arguments.is_mock = true,
            "--required" => arguments.is_required = true,
            // Cargo passes this to every benchmark.
            "--bench" => {}
            _ => return Err(format!("{name} is not known: see the head of benches/gpu/main.rs").into()),
        }
    }
    if let Some(unknown) = arguments.only.iter().find(|only| !SECTIONS.iter().any(|(name, ..)| name == only)) {
        return Err(format!("there is no section {unknown}").into());
    }
    Ok(arguments)
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("gpu: {error}");
            return ExitCode::from(2);
        }
    };
    let gpu = match Gpu::open() {
        Ok(gpu) => gpu,
        Err(reason) if arguments.is_required => {
            eprintln!("gpu: there is a GPU, and it cannot be opened: {reason}");
            return ExitCode::FAILURE;
        }
        Err(reason) => {
            println!("skipped: no GPU to measure: {reason}");
            return ExitCode::SUCCESS;
        }
    };
    match measure(&gpu, arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("gpu: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the sections; returns whether all of them succeeded. If one fails, the others still run.
fn measure(gpu: &Gpu, arguments: Arguments) -> Outcome<bool> {
    let Arguments { folder, json, seconds, only, is_tiny, is_mock, nvjpeg, .. } = arguments;
    let temporary = tempfile::TempDir::new()?;
    let folder = folder.unwrap_or_else(|| temporary.path().to_owned());
    std::fs::create_dir_all(&folder)?;
    let setting = Setting { folder, is_tiny, nvjpeg };
    let before = json.as_ref().and_then(|json| std::fs::read_to_string(json).ok());
    let mut report = Report::new(gpu, is_mock, before.as_deref());
    let mut all_well = true;
    let chosen = |(name, ..): &Section| only.is_empty() || only.iter().any(|only| only == name);
    let parts: u32 = SECTIONS.iter().filter(|section| chosen(section)).map(|(_, part, _)| part).sum();
    for (name, part, section) in SECTIONS.into_iter().filter(chosen) {
        eprintln!("gpu: {name}");
        let limits = Limits::new(Duration::from_secs(seconds) * part / parts);
        if let Err(error) = section(gpu, &setting, &limits, &mut report) {
            eprintln!("gpu: {name}: {error}");
            report.failed(name, &error.to_string());
            all_well = false;
        }
        // Written after each section, and whole at any time, so that a later crash loses no result.
        if let Some(json) = &json {
            let new = json.with_extension("new");
            std::fs::write(&new, report.json())?;
            std::fs::rename(&new, json)?;
        }
    }
    print!("{}", report.table());
    Ok(all_well)
}
