//! `uringload doctor`: whether the fastest way to read is available here, and what to do where it is not.

use crate::Done;
use crate::arguments::Doctor;
use crate::data;
use crate::failure::Exit;
use crate::interrupt::Interrupt;
use crate::output;
use crate::progress::Doing;
use crate::variables;
use std::fmt::Write as _;
use uringload_measure::doctor::{Finding, State, examine};

/// Columns before what was found.
const INDENT: usize = 18;

/// Checks everything. Prints an object for each finding, or a line: and below it, for what can be mended, why and how.
pub fn run(options: &Doctor) -> Done {
    Interrupt::end_at_once();
    let open = || data::open(&options.paths, &options.access.0.clone().format("folder"));
    let dataset = (!options.paths.is_empty()).then(open).transpose()?;
    let doing = Doing::new("looking at the machine", None);
    let mut examination = examine(dataset, options.cuda_library.as_deref())?;
    drop(doing);
    examination.findings.extend(variables::finding());
    examination.is_degraded = examination.findings.iter().any(|finding| finding.state == State::Degraded);
    let degraded = examination.is_degraded;
    if options.json {
        output::print(&format!("{:#}\n", examination.report()))?;
    } else {
        output::print(&output::for_terminal(&as_text(&examination.findings, degraded), INDENT))?;
    }
    Ok(if degraded { Exit::Degraded } else { Exit::Done })
}

fn as_text(findings: &[Finding], degraded: bool) -> String {
    let mut out = String::new();
    for finding in findings {
        let mark = match finding.state {
            State::Good => "ok",
            State::Degraded => "!!",
            State::Info => "--",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{mark} {:<14} {}", finding.what, finding.found);
        if finding.state == State::Degraded || finding.remedy.is_some() {
            let _ = writeln!(out, "   {:<14} {}", "", finding.means);
        }
        if let Some(remedy) = &finding.remedy {
            let _ = writeln!(out, "   {:<14} do: {remedy}", "");
        }
    }
    out + if degraded {
        "\nthe best route is not open: see the lines marked !!\n"
    } else {
        "\nthe best route is open\n"
    }
}
