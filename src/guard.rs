//! Guards the boundary between the loader and a dataset: checks what foreign code returns, and turns its panics into
//! errors. If a thread ended with the panic, others would wait for it forever.

use crate::dataset::{Dataset, FileTable, Sample, SampleId, Span, UnitId, Units};
use crate::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The largest offset that a file can have, so that sums of offsets and alignment never overflow.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// The remedy for a bug in foreign code.
const REMEDY: &str = "this is a bug of the dataset: please report it to its author, with this message";

/// Maximum bytes of samples and units, as declared by a dataset. Memory was planned by these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The spans of a sample.
    pub sample: u64,
    /// The spans of all samples of a batch.
    pub batch: u64,
    /// The spans that a unit is stored in.
    pub stored: u64,
    /// A decoded unit.
    pub decoded: u64,
}

impl Bounds {
    /// No bounds, for callers that plan without reading.
    pub const NONE: Bounds = Bounds { sample: u64::MAX, batch: u64::MAX, stored: u64::MAX, decoded: u64::MAX };
}

/// A panic of a dataset outside any sample, on its way to the thread's end.
struct Named(Error);

/// Appends the spans of a sample.
///
/// # Errors
/// `Internal` for a panic, a file that does not exist, or more than `bound` bytes. Nothing is appended then.
pub fn spans(dataset: &dyn Dataset, id: SampleId, bound: u64, out: &mut Vec<Span>) -> Result<()> {
    let first = out.len();
    let told = caught(|| dataset.spans(id, out)).map_err(|panic| panicked(dataset, &of_sample("spans", id), &*panic));
    let told = told.and_then(|()| {
        let spans =
            out.get(first..).ok_or_else(|| wrong(dataset, format!("{} took spans away", of_sample("spans", id))))?;
        let (files, what) = (dataset.files(), || of_sample("spans", id));
        check(files, spans).map_err(|why| wrong(dataset, format!("{} {why}", what())))?;
        let bytes = spans.iter().map(|span| span.len).fold(0, u64::saturating_add);
        if bytes <= bound {
            return Ok(());
        }
        Err(wrong(
            dataset,
            format!("{} has {bytes} bytes, and \"largest\" says that no sample has more than {bound}", what()),
        ))
    });
    if told.is_err() {
        out.truncate(first);
    }
    told
}

/// The span of a sample that is an unencoded array, and the array's shape, if known.
///
/// # Errors
/// `Internal` for a panic.
pub fn array_of(dataset: &dyn Dataset, id: SampleId, field: usize) -> Result<Option<(usize, Vec<u64>)>> {
    let told = caught(|| Some((dataset.span_of(id, field)?, dataset.shape(id, field)?.to_vec())));
    told.map_err(|panic| panicked(dataset, &of_sample("span_of", id), &*panic))
}

/// Appends the spans that a unit is stored in, and returns the most bytes that it decodes to.
///
/// # Errors
/// As [`spans`].
pub fn stored(
    dataset: &dyn Dataset,
    units: &dyn Units,
    unit: UnitId,
    bounds: Bounds,
    out: &mut Vec<Span>,
) -> Result<u64> {
    let first = out.len();
    let of_unit = |method: &str| format!("\"{method}\" of unit {}", unit.0);
    let told = caught(|| {
        units.stored(unit, out);
        units.decoded_bytes(unit)
    });
    let told = told.map_err(|panic| panicked(dataset, &of_unit("stored"), &*panic)).and_then(|decoded| {
        let spans = out.get(first..).ok_or_else(|| wrong(dataset, format!("{} took spans away", of_unit("stored"))))?;
        check(dataset.files(), spans).map_err(|why| wrong(dataset, format!("{} {why}", of_unit("stored"))))?;
        let bytes = spans.iter().map(|span| span.len).fold(0, u64::saturating_add);
        for (method, most, bytes, bound) in [
            ("stored", "largest_stored", bytes, bounds.stored),
            ("decoded_bytes", "largest_decoded", decoded, bounds.decoded),
        ] {
            if bytes > bound {
                let what = format!(
                    "{} has {bytes} bytes, and \"{most}\" says that none has more than {bound}",
                    of_unit(method)
                );
                return Err(wrong(dataset, what));
            }
        }
        Ok(decoded)
    });
    if told.is_err() {
        out.truncate(first);
    }
    told
}

/// Appends the units that a sample is cut from.
///
/// # Errors
/// `Internal` for a panic, and for a unit that does not exist. Nothing is appended then.
pub fn units_of(dataset: &dyn Dataset, units: &dyn Units, id: SampleId, out: &mut Vec<UnitId>) -> Result<()> {
    let first = out.len();
    let told = caught(|| {
        units.of(id, out);
        units.count()
    });
    let told = told.map_err(|panic| panicked(dataset, &of_sample("units", id), &*panic)).and_then(|count| {
        match out.get(first..).unwrap_or_default().iter().find(|unit| unit.0 >= count) {
            None => Ok(()),
            Some(unit) => {
                let what = format!("{} names unit {}, and there are {count}", of_sample("units", id), unit.0);
                Err(wrong(dataset, what))
            }
        }
    });
    if told.is_err() {
        out.truncate(first);
    }
    told
}

/// As [`units_of`], for callers that only count: a sample whose units are unknown has none.
pub fn known_units_of(units: &dyn Units, id: SampleId, out: &mut Vec<UnitId>) {
    let first = out.len();
    if caught(|| units.of(id, out)).is_err() {
        out.truncate(first);
    }
}

/// The declared maximum of bytes that a unit is stored in; `u64::MAX` on a panic.
pub fn largest_stored(units: &dyn Units) -> u64 {
    caught(|| units.largest_stored()).unwrap_or(u64::MAX)
}

/// Parses a sample.
///
/// # Errors
/// The parser's, or `Internal` for a panic.
pub fn parse(dataset: &dyn Dataset, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
    let parsed = caught(|| dataset.parse(id, raw, out));
    parsed.unwrap_or_else(|panic| Err(panicked(dataset, &of_sample("parse", id), &*panic)))
}

/// Calls a method that has no sample to blame and no error to return. A panic goes on to [`whole`], with the dataset's
/// name.
pub fn named<T>(dataset: &dyn Dataset, method: &str, call: impl FnOnce() -> T) -> T {
    caught(call).unwrap_or_else(|panic| {
        let error = panicked(dataset, &format!("\"{method}\""), &*panic);
        resume_unwind(Box::new(Named(error)))
    })
}

/// Runs work that only calls a dataset: a panic in it is the dataset's, unless it already has a name.
///
/// # Errors
/// That of `work`, or `Internal` for a panic.
pub fn whole<T>(dataset: &dyn Dataset, what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    caught(work).unwrap_or_else(|panic| match panic.downcast::<Named>() {
        Ok(named) => Err(named.0),
        Err(panic) => Err(panicked(dataset, what, &*panic)),
    })
}

/// Runs the work of a thread: a panic in it is a bug of this library, unless it is a dataset's.
///
/// # Errors
/// That of `work`, or `Internal` for a panic.
pub fn thread<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    caught(work).unwrap_or_else(|panic| match panic.downcast::<Named>() {
        Ok(named) => Err(named.0),
        Err(panic) => {
            let what = format!("thread {name} panicked: {}: this is a bug of uringload", text(&*panic));
            Err(Error::new(ErrorKind::Internal, what)
                .with_remedy("please report it with the message that the thread printed"))
        }
    })
}

/// An error about invalid values of a dataset.
pub fn wrong(dataset: &dyn Dataset, what: String) -> Error {
    // Another panic would end the thread.
    let format = caught(|| dataset.format()).unwrap_or("?");
    Error::new(ErrorKind::Internal, format!("the {format} dataset is wrong: {what}")).with_remedy(REMEDY)
}

/// The message of a panic.
pub fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Unwind safe: callers drop what a panic leaves behind, or use only its length.
fn caught<T>(call: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(call))
}

fn panicked(dataset: &dyn Dataset, what: &str, panic: &(dyn Any + Send)) -> Error {
    let format = caught(|| dataset.format()).unwrap_or("?");
    Error::new(ErrorKind::Internal, format!("the {format} dataset panicked in {what}: {}", text(panic)))
        .with_remedy(REMEDY)
}

fn of_sample(method: &str, id: SampleId) -> String {
    format!("\"{method}\" of sample {}", id.0)
}

/// Checks that spans are in existing files, at offsets that files can have.
///
/// # Errors
/// Why not, as text that follows the name of their source.
pub fn check(files: &FileTable, spans: &[Span]) -> Result<(), String> {
    for span in spans {
        if span.file.0 as usize >= files.len() {
            return Err(format!("names file {}, and there are {}", span.file.0, files.len()));
        }
        if span.offset.checked_add(span.len).is_none_or(|end| end > OFFSET_MAX) {
            return Err(format!("leads {} bytes on from byte {}, where no file goes", span.len, span.offset));
        }
    }
    Ok(())
}
