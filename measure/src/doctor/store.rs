//! How a store of objects answers: who asks whom, whether it lists, and how fast one request reads.

use super::{Finding, State};
use crate::text;
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};
use uringload::dataset::{FarFile, FileId, FileTable};
use uringload::store::{Failure, Interrupt, Known, ListOptions};

/// Bytes of the first object that are read, at most.
const READ_BYTES: u64 = 8 << 20;

/// Looks at the store of the first object of `files`, if it is one.
pub(super) fn look(files: &FileTable) -> Option<Vec<Finding>> {
    let file = (!files.is_empty()).then_some(FileId(0))?;
    let (far, size, path) = (&files.far(file)?, files.size(file), &files.path(file));
    let folder = &far.key[..far.key.len() - files.name(file).len()];
    let told = far.store.told().unwrap_or_else(|| "a store that does not say".to_owned());
    let mut findings = vec![Finding::new("store", State::Info, told, "whom requests go to, and by whose right")];
    findings.push(if far.store.lists() {
        list(far, folder).unwrap_or_else(|failure| failed("listing", failure, path))
    } else {
        Finding::new("listing", State::Info, "none", "each object is named, and asked for by itself")
    });
    match read(far, size) {
        Ok(read) => findings.extend(read),
        Err(failure) => findings.push(failed("request", failure, path)),
    }
    let (found, means) = match far.version.map(uringload::store::Version::known_by) {
        Some(Known::Generation) => ("generations", "an object that changes is an error of its samples"),
        Some(Known::Etag) => ("ETags", "an object that changes is an error of its samples"),
        Some(Known::Modified) => ("dates and sizes", "two writes of one size in one second look the same"),
        None => ("none", "an object that changes goes unnoticed if its size stays"),
    };
    findings.push(Finding::new("versions", State::Info, found, means));
    let note = |note: &dyn ToString| Finding::new("note", State::Info, note.to_string(), "told once a store");
    findings.extend(far.store.notes().iter().map(|said| note(said)));
    Some(findings)
}

/// The first page of what the folder has.
fn list(far: &FarFile<'_>, folder: &[u8]) -> Result<Finding, Failure> {
    let (begun, mut found) = (Instant::now(), 0);
    far.store.list(folder, &ListOptions::default(), &Interrupt::new(), &mut |page| {
        found = page.objects.len();
        ControlFlow::Break(())
    })?;
    let found = format!("{} objects in {}", text::count(found as u64), text::time(begun.elapsed()));
    Ok(Finding::new("listing", State::Good, found, "one page; pages are asked for one after another"))
}

/// How soon the first byte comes, and how fast the next ones do, over a connection that is there.
fn read(far: &FarFile<'_>, size: u64) -> Result<Vec<Finding>, Failure> {
    let mut bytes = vec![0; size.min(READ_BYTES) as usize];
    let ask = |at: usize, into: &mut [u8]| -> Result<(usize, Duration), Failure> {
        let begun = Instant::now();
        let read = far.store.read(&far.key, at as u64, into, far.version, &Interrupt::new())?;
        Ok((read.bytes, begun.elapsed()))
    };
    let latency = ask(0, &mut [0])?.1;
    let found = format!("after {}", text::time(latency));
    let mut findings = vec![Finding::new("first byte", State::Info, found, "of a request; many are in flight at once")];
    let (read, time) = ask(0, &mut bytes)?;
    if read > 0 {
        let rate = text::bytes(read as f64 / time.as_secs_f64());
        let found = format!("{rate}/s, {} in {}", text::bytes(read as f64), text::time(time));
        let means = "of a single request, with its latency: more of them share what the network gives";
        findings.push(Finding::new("one read", State::Info, found, means));
    }
    Ok(findings)
}

fn failed(what: impl Into<Cow<'static, str>>, failure: Failure, path: &Path) -> Finding {
    let error = failure.into_error(path);
    let remedy = error.remedy().unwrap_or("see what the store's own log says").to_owned();
    Finding::new(what, State::Degraded, error.what().to_owned(), "reads will fail in the same way").remedy(remedy)
}
