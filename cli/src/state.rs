//! `uringload state`: shows a saved state, and creates states for other positions.

use crate::Done;
use crate::arguments::{Checkpoint, Seek, SeekTo, Show, StateCommand};
use crate::data;
use crate::failure::{Exit, Failure};
use crate::output::{self, Table, eprintln_quietly};
use std::io::{self, Read};
use std::path::Path;
use uringload::Builder;
use uringload::inspect::BatchingId;
use uringload::inspect::Identity;
use uringload::sampler::Cursor;
use uringload::{Error, ErrorKind, State};
use uringload_measure::text::{bytes, count};

/// Runs a command on a state.
pub fn run(command: &StateCommand) -> Done {
    match command {
        StateCommand::Show(options) => show(options),
        StateCommand::Seek(options) => seek(options),
    }
}

impl Checkpoint {
    /// The state to resume from, if there is one.
    pub fn load(&self) -> Result<Option<State>, Failure> {
        self.resume.as_deref().map(load).transpose()
    }

    /// Saves a state, if requested.
    pub fn save(&self, state: &State) -> Result<(), Failure> {
        Ok(self.save_state.as_ref().map_or(Ok(()), |path| state.write(path))?)
    }
}

/// Makes a builder resume from a state, if there is one.
pub fn resume(builder: Builder, state: Option<&State>) -> Builder {
    match state {
        Some(state) => builder.resume(state),
        None => builder,
    }
}

/// Reads a state; "-" is stdin.
fn load(path: &Path) -> Result<State, Failure> {
    /// Far more than a state needs.
    const BYTES_MAX: u64 = 1 << 21;
    if path != Path::new("-") {
        return Ok(State::read(path)?);
    }
    let mut text = String::new();
    let read = io::stdin().lock().take(BYTES_MAX).read_to_string(&mut text);
    read.map_err(|source| Error::io("cannot read the state from stdin", source))?;
    Ok(State::from_json(&text)?)
}

fn show(options: &Show) -> Done {
    let state = load(&options.file)?;
    if !options.paths.is_empty() {
        let dataset = data::open(&options.paths, &options.format.0)?;
        state.check_dataset(&Identity::of(&*dataset))?;
        state.check_content(&dataset, None)?;
    }
    let is_checked = !options.paths.is_empty();
    if options.json {
        let state: serde_json::Value = serde_json::from_str(&state.to_json()).map_err(io::Error::from)?;
        return print(&format!("{}\n", serde_json::json!({ "version": 1, "state": state, "checked": is_checked })));
    }
    let mut out = table(&state);
    if is_checked {
        out += "checked       it is of this dataset\n";
    }
    output::print_table(&out, NAMES)?;
    Ok(Exit::Done)
}

/// Columns of the names of rows.
const NAMES: usize = 13;

fn table(state: &State) -> String {
    let mut table = Table::new(NAMES);
    let Cursor { epoch, position, rows } = state.cursor();
    let share = 100.0 * position as f64 / state.length as f64;
    table
        .row("place", format!("epoch {epoch}, position {} of {} ({share:.1} %)", count(position), count(state.length)));
    table.row("order", state.order.to_string());
    if state.batching != BatchingId::Samples {
        let within = if rows > 0 { format!(", {} rows into a window", count(rows)) } else { String::new() };
        table.row("rows", format!("{}{within}", state.batching));
    }
    let Identity { format, fingerprint, samples, files, bytes: size } = &state.dataset;
    let of = format!("{} of {} samples in {} files", format.escape_debug(), count(*samples), count(*files));
    table.row("dataset", format!("{of}, {}, fingerprint {fingerprint:016x}", bytes(*size as f64)));
    if let Some(mixer) = &state.mixer {
        let (slots, given) = (&mixer.slots, &mixer.given);
        let since = format!("since position {} of epoch {}", count(mixer.since), mixer.epoch);
        table.row("mixture", format!("in the ratio {slots:?} {since}, when {given:?} samples had been given"));
    }
    if let Some(delivered) = &state.delivered {
        let digest = &delivered.digest;
        let since = format!("epoch {}, since position {}", digest.epoch, count(digest.since));
        table.row("delivered", format!("to rank {} of {}: {since}", delivered.rank, delivered.world_size));
        for (name, digest) in [("samples", digest.delivered), ("lost", digest.lost)] {
            table.row("", format!("{:<12} {name}, sum {:016x}", count(digest.samples), digest.sum));
        }
    }
    table.text
}

fn seek(options: &Seek) -> Done {
    let mut state = load(&options.file)?;
    state.cursor = target(&state, &options.to)?;
    let had_digest = state.delivered.take().is_some();
    // The file must hold a valid state in every respect, so the text is parsed once more.
    let text = state.to_json() + "\n";
    let state = State::from_json(&text)?;
    let is_printed = options.out == Path::new("-");
    if !is_printed {
        state.write(&options.out)?;
    }
    if options.json {
        let Cursor { epoch, position, rows } = state.cursor();
        let state: serde_json::Value = serde_json::from_str(&text).map_err(io::Error::from)?;
        let (state, out) = if is_printed { (Some(state), None) } else { (None, Some(options.out.to_string_lossy())) };
        let told = serde_json::json!({
            "version": 1, "epoch": epoch, "position": position, "rows": rows, "dropped_digest": had_digest,
            "state": state, "out": out,
        });
        return print(&format!("{told}\n"));
    }
    if is_printed {
        print(&text)?;
    }
    if had_digest {
        eprintln_quietly("uringload: the new state has no digest: what was delivered was delivered at the old place");
    }
    eprintln_quietly(&format!("uringload: {state}"));
    Ok(Exit::Done)
}

/// The requested position.
fn target(state: &State, to: &SeekTo) -> Result<Cursor, Failure> {
    let Cursor { epoch, position, .. } = state.cursor();
    let cursor = match to.samples {
        Some(samples) => further(state, samples)?,
        None => {
            Cursor::new(to.epoch.unwrap_or(epoch), to.position.unwrap_or(if to.epoch.is_some() { 0 } else { position }))
        }
    };
    if cursor.position > state.length {
        let what = format!("there is no position {} in an epoch of {}", cursor.position, state.length);
        return Err(refused(what, "give a position of the epoch"));
    }
    if let Some(mixer) = &state.mixer
        && cursor.epoch == mixer.epoch
        && cursor.position < mixer.since
    {
        let what = format!("before position {} of epoch {} the mixture had other weights", mixer.since, mixer.epoch);
        return Err(refused(what, "seek to a position after it, or take a state from before"));
    }
    Ok(cursor)
}

/// The position `samples` forward or back.
fn further(state: &State, samples: i64) -> Result<Cursor, Failure> {
    let length = i128::from(state.length);
    let Cursor { epoch, position, .. } = state.cursor();
    // At most 2^64 epochs of 2^64 samples: only the very largest do not fit.
    let place = i128::from(epoch).checked_mul(length).and_then(|place| place.checked_add(i128::from(position)));
    let place = place.and_then(|place| place.checked_add(i128::from(samples))).filter(|&place| place >= 0);
    let cursor = place.and_then(|place| {
        let (epoch, position) = (u64::try_from(place / length).ok()?, u64::try_from(place % length).ok()?);
        Some(Cursor::new(epoch, position))
    });
    let Some(cursor) = cursor else {
        let what =
            format!("{samples:+} samples from here is before the first sample or after the last that can be counted");
        return Err(refused(what, "give fewer samples"));
    };
    if cursor.epoch != epoch && state.mixer.is_some() {
        let what = "epochs of a mixture whose weights were changed differ in length".to_owned();
        return Err(refused(what, "give --epoch and --position"));
    }
    Ok(cursor)
}

fn refused(what: String, remedy: &'static str) -> Failure {
    Failure::Loader(Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy))
}

fn print(text: &str) -> Done {
    output::print(text)?;
    Ok(Exit::Done)
}
