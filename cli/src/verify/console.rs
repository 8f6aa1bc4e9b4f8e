//! The output while a dataset is verified: findings on stdout as they come, and a progress line on stderr.

use crate::failure::{Failure, help};
use crate::interrupt::Interrupt;
use crate::output;
use crate::progress::{Line, bar};
use serde_json::{Value, json};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use uringload::verify::{Finding, Progress, Samples, Stage, Watch};
use uringload_measure::text;

/// See the module documentation.
pub struct Console<'a> {
    interrupt: &'a Interrupt,
    findings_max: u64,
    findings: AtomicU64,
    line: Line,
    /// The findings, if they are printed at the end.
    kept: Option<Mutex<Vec<Value>>>,
    /// Why nothing more can be printed.
    failed: Mutex<Option<io::Error>>,
}

impl<'a> Console<'a> {
    /// Creates a console for at most `findings_max` findings, which it keeps if they are to become JSON.
    pub fn new(interrupt: &'a Interrupt, findings_max: u64, is_json: bool) -> Console<'a> {
        let kept = is_json.then(Mutex::default);
        Console {
            interrupt,
            findings_max,
            findings: AtomicU64::new(0),
            line: Line::new(),
            kept,
            failed: Mutex::default(),
        }
    }

    /// Returns the findings that were kept.
    pub fn finish(self) -> Result<Vec<Value>, Failure> {
        drop(self.line);
        match self.failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error.into()),
            None => {
                Ok(self.kept.map(|kept| kept.into_inner().unwrap_or_else(PoisonError::into_inner)).unwrap_or_default())
            }
        }
    }
}

impl Watch for Console<'_> {
    fn found(&self, finding: &Finding) {
        if self.findings.fetch_add(1, Ordering::Relaxed) >= self.findings_max {
            return;
        }
        match &self.kept {
            Some(kept) => kept.lock().unwrap_or_else(PoisonError::into_inner).push(as_json(finding)),
            None => {
                // The progress line disappears while it is printed.
                if let Err(error) = self.line.suspend(|| output::print(&as_text(finding))) {
                    *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            }
        }
    }

    fn progress(&self, progress: Progress) {
        self.line.show(|| {
            let (name, done) = match progress.stage {
                Stage::Samples => ("samples", text::count(progress.done)),
                _ => ("checksums", text::bytes(progress.done as f64)),
            };
            let findings = text::count(self.findings.load(Ordering::Relaxed));
            format!("{name} {}  {done}  {findings} findings", bar(progress.done, progress.total))
        });
    }

    fn is_over(&self) -> bool {
        self.interrupt.is_set()
            || self.findings.load(Ordering::Relaxed) >= self.findings_max
            || self.failed.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// `FILE:OFFSET: WHAT: CAUSE`, and below it the samples and the remedy.
fn as_text(Finding { error, samples, .. }: &Finding) -> String {
    let mut text = error.headline().to_string();
    if let Some(Samples { first, key, count, .. }) = samples {
        let key = String::from_utf8_lossy(key);
        text += &match count {
            1 => format!("\n  note: sample {} ({key:?})", first.0),
            _ => format!("\n  note: {} samples, the first {} ({key:?})", text::count(*count), first.0),
        };
    }
    text + &help(error) + "\n"
}

fn as_json(Finding { error, samples, .. }: &Finding) -> Value {
    let mut value = json!(error);
    if let Some(Samples { first, key, count, .. }) = samples {
        value["sample"] = first.0.into();
        value["key"] = String::from_utf8_lossy(key).into();
        value["samples"] = (*count).into();
    }
    value
}
