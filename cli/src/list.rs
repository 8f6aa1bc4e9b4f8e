//! `uringload list`: prints a JSON line for each sample, read through the loader, for comparison with the source.

use crate::Done;
use crate::arguments::{Digest, List, config};
use crate::data::Data;
use crate::failure::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::progress;
use crate::ranks::Ranks;
use crate::state::resume;
use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use std::io::{BufWriter, IsTerminal, Write};
use uringload::Error;
use uringload::Loader;
use uringload::batch::{Batch, Data as Column, FailedSample};
use uringload::config::Config;
use uringload::config::OnError;
use uringload::dataset::SampleId;
use uringload_measure::consume::{Consumer, Next};
use uringload_measure::text::printable;

/// Lists every sample of one epoch, in the loader's order.
pub fn run(options: &List) -> Done {
    let interrupt = Interrupt::install();
    let data = Data::of(&options.source)?;
    let asked = config(&options.source.order, &options.means, &options.rows, &options.source.failing);
    // A sample that cannot be read gets a line that says so; the others still get theirs.
    let on_error = if asked.on_error == OnError::Replace { OnError::Replace } else { OnError::Skip };
    let config = Ranks::of(&options.source.order)?.apply(Config { on_error, epochs: Some(1), ..asked });
    let sampler = data.sampler(&config, &options.source.chosen)?;
    let builder = Loader::builder(data.dataset.clone()).config(config).sampler(sampler);
    let mut loader = resume(builder, options.checkpoint.load()?.as_ref()).build()?;
    let consumer = Consumer::new(&interrupt, None);
    // Lines on the same terminal say it themselves.
    let mut progress = (!std::io::stdout().is_terminal()).then(|| progress::of_run("list", loader.remaining(), None));
    let stats = loader.stats();
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut lost = 0;
    let end = loop {
        match consumer.next(&mut loader) {
            Next::Batch(batch) => {
                progress.iter_mut().for_each(|progress| progress(&stats));
                match *batch {
                    Ok(batch) => lost += write_batch(&mut out, &data, &batch, options.digest)?,
                    Err(error) => break Err(error.into()),
                }
            }
            Next::End | Next::Late => break Ok(if lost == 0 { Exit::Done } else { Exit::Degraded }),
            Next::Interrupted => break Ok(Exit::Interrupted),
        }
    };
    drop(progress);
    // The lines first: otherwise a state could be past samples whose lines were lost.
    out.flush()?;
    options.checkpoint.save(&loader.state())?;
    consumer.leave(loader);
    end
}

/// The output for one sample.
#[derive(Debug, Serialize)]
struct Line {
    /// Number in the dataset.
    index: u64,
    key: String,
    /// JSON holds only Unicode: if `key` cannot hold all bytes, they are here.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_hex: Option<String>,
    label: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    /// A repeated sample that only fills the batch on this rank.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    padding: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    columns: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
}

impl Line {
    /// What is known about a sample before it is read.
    fn new(data: &Data, id: SampleId) -> Line {
        let mut key = Vec::new();
        data.dataset.key(id, &mut key);
        let (key, key_hex) = match String::from_utf8(key) {
            Ok(key) => (key, None),
            Err(error) => (String::from_utf8_lossy(error.as_bytes()).into_owned(), Some(hex(error.as_bytes()))),
        };
        let (label, class) = data.dataset.label(id).unzip();
        let class = class.map(|class| class.to_string_lossy().into_owned());
        Line { index: id.0, key, key_hex, label, class, padding: false, columns: None, error: None }
    }

    fn write(&self, out: &mut impl Write) -> Result<(), Failure> {
        let text = serde_json::to_string(self).map_err(std::io::Error::from)?;
        out.write_all(printable(&text).as_bytes())?;
        Ok(out.write_all(b"\n")?)
    }
}

/// Writes the samples of a batch; returns how many could not be read.
fn write_batch(out: &mut impl Write, data: &Data, batch: &Batch, digest: Option<Digest>) -> Result<usize, Failure> {
    for (index, &id) in batch.ids.iter().enumerate() {
        let padding = batch.padding.as_ref().is_some_and(|padding| padding[index]);
        let columns = Some(columns(batch, index, digest));
        Line { padding, columns, ..Line::new(data, id) }.write(out)?;
    }
    for FailedSample { id, error, .. } in &batch.failed {
        Line { error: Some(error.clone()), ..Line::new(data, *id) }.write(out)?;
    }
    Ok(batch.failed.len())
}

/// Size and digest of each column of bytes; the value of each column of numbers.
fn columns(batch: &Batch, index: usize, digest: Option<Digest>) -> Value {
    let column = |column: &uringload::batch::Column| {
        let value = match &column.data {
            Column::I64(values) => json!({ "bytes": 8, "value": values[index] }),
            _ => {
                let bytes = column.bytes_of(index).unwrap_or_default();
                let mut value = json!({ "bytes": bytes.len() });
                if let Some(Digest::Sha256) = digest {
                    value["sha256"] = hex(&Sha256::digest(&bytes)).into();
                }
                value
            }
        };
        (column.name.clone(), value)
    };
    Value::Object(batch.columns.iter().map(column).collect::<Map<_, _>>())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
