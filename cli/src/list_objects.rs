//! `uringload list-objects`: writes a listing of a store to a file, or brings one up to date.

use crate::Done;
use crate::arguments::ListObjects;
use crate::failure::Exit;
use crate::interrupt::Interrupt;
use crate::output::{self, Table};
use crate::progress::Doing;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};
use uringload::dataset::{self, ChangedObjects, ListedObjects, ListingChanges};
use uringload_measure::text;

/// Writes the file, and says what it has.
pub fn run(asked: &ListObjects) -> Done {
    Interrupt::end_at_once();
    let start = Instant::now();
    let options = &asked.access.0;
    let (file, changes) = match (&asked.update, &asked.url, &asked.out) {
        (Some(file), ..) => {
            let doing = Doing::new(&format!("listing again what {} has", file.display()), None);
            let changes = dataset::update_listing(file, options)?;
            drop(doing);
            (file, Ok(changes))
        }
        (None, Some(url), Some(file)) => {
            let doing = Doing::new(&format!("listing {}", shown(url)), None);
            let listed = dataset::list_objects(url, file, options)?;
            drop(doing);
            (file, Err(listed))
        }
        // clap asks for one or the other.
        _ => return Ok(Exit::Done),
    };
    if asked.json {
        output::print(&as_json(file, &changes, start.elapsed()))?;
    } else {
        output::print_table(&as_text(file, &changes, start.elapsed()), output::NAMES)?;
    }
    Ok(Exit::Done)
}

/// A URL without its query, which may be a signature, and without a user.
fn shown(url: &Path) -> String {
    let url = url.to_string_lossy();
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    match plain.split_once("://") {
        Some((scheme, rest)) if !scheme.starts_with("abfs") => {
            format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, host)| host))
        }
        _ => plain.to_owned(),
    }
}

type Came = Result<ListingChanges, ListedObjects>;

fn kinds(changes: &ListingChanges) -> [(&'static str, &ChangedObjects); 3] {
    [("added", &changes.added), ("removed", &changes.removed), ("replaced", &changes.replaced)]
}

fn as_text(file: &Path, came: &Came, time: Duration) -> String {
    let listed = came.as_ref().map_or_else(|listed| listed, |changes| &changes.now);
    let mut table = Table::new(output::NAMES);
    let bytes = text::bytes(listed.bytes as f64);
    table.row("objects", format!("{} of {bytes}, listed in {}", text::count(listed.objects), text::time(time)));
    let each = listed.file_bytes as f64 / listed.objects.max(1) as f64;
    let written = text::bytes(listed.file_bytes as f64);
    table.row("written", format!("{}: {written}, {each:.0} bytes an object", file.display()));
    for (told, objects) in came.iter().flat_map(kinds) {
        let first = objects.first.first().map(|first| format!(", the first {}", first.display()));
        table.row(told, format!("{}{}", text::count(objects.count), first.unwrap_or_default()));
    }
    table.text
}

fn as_json(file: &Path, came: &Came, time: Duration) -> String {
    let listed = came.as_ref().map_or_else(|listed| listed, |changes| &changes.now);
    let mut json = json!({
        "version": 1,
        "file": file.to_string_lossy(),
        "objects": listed.objects,
        "bytes": listed.bytes,
        "file_bytes": listed.file_bytes,
        "seconds": time.as_secs_f64(),
    });
    for (told, objects) in came.iter().flat_map(kinds) {
        let first: Vec<Value> = objects.first.iter().map(|path| path.to_string_lossy().into()).collect();
        json[told] = json!({ "count": objects.count, "first": first });
    }
    format!("{json}\n")
}
