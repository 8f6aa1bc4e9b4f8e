//! Options of `verify`, and the meaning of its output.

use super::{Format, Means};
use crate::units::parse_seconds;
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::time::Duration;
use uringload::dataset::Options;

/// Options of `verify`.
#[derive(Debug, Args)]
#[command(after_long_help = VERIFY_HELP)]
pub struct Verify {
    /// Folders, files or patterns; several make one dataset.
    #[arg(value_name = "DIR", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub format: Format,
    #[command(flatten)]
    pub means: Means,
    /// Decode the images of a column too: those that cannot be decoded are findings.
    #[arg(long)]
    pub decode: bool,
    /// The column that has the images [default: the only one that has some in the first sample].
    #[arg(long, value_name = "NAME", requires = "decode")]
    pub image_column: Option<String>,
    /// Give up on a read, and the samples in it, after this time [default: wait].
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    pub timeout: Option<Duration>,
    /// Stop after this many findings.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub max_findings: u64,
    /// Print one JSON object at the end, instead of lines.
    #[arg(long)]
    pub json: bool,
}

/// What `verify` does, and the content of its JSON.
const VERIFY_HELP: &str = "\
Checks: headers, tables and indexes of all files (archives are scanned afresh, and an index that does not belong to \
its archive is a finding); every sample, read once, with the checks that its format has; hashes of whole files (mds) \
and checksums of members (npz). Nothing is written. A finding is a line `FILE:OFFSET: WHAT: CAUSE`, followed by \
`note: SAMPLES` (those that fail because of it) and `help: REMEDY`.

JSON: format (null if nothing could be opened), files, samples, samples_lost, bytes (of samples), checks and \
check_bytes (checksums and hashes besides those of each sample), not_checked (algorithm, count, first: what cannot be \
computed here), left_out (what, count, first), findings (file, offset, kind, what, cause, remedy; for samples also \
sample: the number of the first, key, samples: how many fail in the same way), complete (false after Ctrl-C, after \
--max-findings, and if nothing could be opened).

Exit codes: 0 all is good; 1 something is bad; 2 the arguments cannot work; 130 interrupted.";

impl Format {
    /// Options that find every problem: no fault may prevent the rest from being opened.
    pub fn for_verify(&self, timeout: Option<Duration>) -> Options {
        self.within(timeout)
            .prefer("split", "all")
            .prefer("keep_damaged", true)
            .prefer("allow_bad_shards", true)
            .verifying(true)
    }
}
