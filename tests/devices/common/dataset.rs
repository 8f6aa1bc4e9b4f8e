//! Datasets of every kind that matters on the way to a device: values that are all of what was read, slices of it, made
//! or decoded values, integers from the index, and bad samples.

use super::Random;
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use uringload::dataset::{self, DType, Dataset, Field, Index, Options, Sample, SampleId, Schema, Shape, Span, Value};
use uringload::{Error, ErrorKind, Result};

/// Height, width and channels of all images.
pub const IMAGE: [u64; 3] = [9, 14, 3];
const IMAGE_BYTES: usize = 9 * 14 * 3;
const MIXED_BYTES: u64 = IMAGE_BYTES as u64 + 200;

/// A dataset, and the folder that it lies in.
pub struct Made {
    pub dataset: Arc<dyn Dataset>,
    pub folder: TempDir,
}

/// One file per sample, of 2-byte tokens, some empty, with a label each.
pub fn texts(count: usize, random: &mut Random) -> Made {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    for number in 0..count {
        let class = folder.path().join(["cat", "dog"][number % 2]);
        std::fs::create_dir_all(&class).expect("a class folder");
        let len = if random.chance(8) { 0 } else { random.below(9000) };
        std::fs::write(class.join(format!("{number:04}")), random.bytes(len * 2)).expect("a file");
    }
    let options = Options::new().format("folder").set("labels", true).set("dtype", DType::U16);
    let dataset = dataset::open(&[folder.path()], &options).expect("a folder");
    Made { dataset, folder }
}

/// Images in one file, one after the other.
pub fn images(count: usize, random: &mut Random) -> Made {
    records(count, IMAGE_BYTES as u64, DType::U8, IMAGE.to_vec(), random)
}

/// Samples of an image, tokens at odd addresses, computed numbers, and a label. Some samples are bad, if asked for.
pub fn mixed(count: usize, bad: bool, random: &mut Random) -> Made {
    let Made { dataset, folder } = records(count, MIXED_BYTES, DType::U8, Vec::new(), random);
    let field = |name: &str, dtype, shape| Field { name: name.into(), dtype, shape };
    let fields = vec![
        field("image", DType::U8, Shape::Fixed(IMAGE.to_vec())),
        field("text", DType::U16, Shape::Ragged),
        field("made", DType::F32, Shape::Fixed(vec![3])),
        field("label", DType::I64, Shape::Fixed(Vec::new())),
    ];
    let mut index = dataset.index().clone();
    (index.format, index.schema, index.plain_field) = ("mixed", Schema { fields }, None);
    index.parse_reads_bytes = true;
    Made { dataset: Arc::new(Mixed { records: dataset, index, bad }), folder }
}

/// Numbers and text from a table, which are made and not read.
pub fn table(count: usize, random: &mut Random) -> Made {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let row = |number: usize| format!("{number},{}.25,{}\n", random.below(1000), "text ".repeat(random.below(60)));
    let rows: String = std::iter::once("label,score,text\n".to_owned()).chain((0..count).map(row)).collect();
    std::fs::write(folder.path().join("table.csv"), rows).expect("a file");
    let options = Options::new().format("csv").sidecars(false);
    let dataset = dataset::open(&[folder.path()], &options).expect("a table");
    Made { dataset, folder }
}

/// Lists of one-digit numbers, which take four times as many bytes as their text.
pub fn numbers(count: usize, random: &mut Random) -> Made {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let digits = |count: usize| vec!["7"; count].join(",");
    let lines: String = (0..count).map(|_| format!("{{\"ids\":[{}]}}\n", digits(random.below(400)))).collect();
    std::fs::write(folder.path().join("lines.jsonl"), lines).expect("a file");
    let options = Options::new().format("jsonl").set("columns", ["ids"]);
    let options = options.sidecars(false);
    let dataset = dataset::open(&[folder.path()], &options).expect("lines");
    Made { dataset, folder }
}

/// Samples cut from shards that are decoded first.
pub fn decoded(which: usize) -> Made {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data");
    let dataset: Arc<dyn Dataset> = match which % 3 {
        0 => dataset::open(&[data.join("mds-zip/zstd")], &Options::new().format("mds")).expect("shards"),
        1 => dataset::open(&[data.join("mds-zip/gz")], &Options::new().format("mds")).expect("shards"),
        _ => dataset::open(&[data.join("litdata-zip/sample")], &Options::new().format("litdata")).expect("chunks"),
    };
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    Made { dataset, folder }
}

fn records(count: usize, record_bytes: u64, dtype: DType, shape: Vec<u64>, random: &mut Random) -> Made {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    std::fs::write(folder.path().join("records"), random.bytes(count * record_bytes as usize)).expect("a file");
    let options =
        Options::new().format("records").set("record_bytes", record_bytes).set("dtype", dtype).set("shape", shape);
    let dataset = dataset::open(&[folder.path()], &options).expect("records");
    Made { dataset, folder }
}

struct Mixed {
    records: Arc<dyn Dataset>,
    index: Index,
    bad: bool,
}

impl Dataset for Mixed {
    fn index(&self) -> &Index {
        &self.index
    }

    fn spans(&self, id: SampleId, out: &mut Vec<Span>) {
        self.records.spans(id, out);
    }

    fn parse(&self, id: SampleId, raw: &[Bytes], out: &mut Sample) -> Result<()> {
        if self.bad && id.0 % 11 == 4 {
            return Err(Error::new(ErrorKind::Corrupt, "a bad sample, on purpose"));
        }
        let record = &raw[0];
        let tokens = usize::from(record[IMAGE_BYTES]) % 90;
        let text = IMAGE_BYTES + 1;
        let made: Bytes = record[..3].iter().flat_map(|&byte| (f32::from(byte) / 3.0).to_le_bytes()).collect();
        let slices = [record.slice(..IMAGE_BYTES), record.slice(text..text + tokens * 2), made];
        out.values.extend(slices.map(Value::Bytes));
        out.values.push(Value::I64(id.0 as i64 * 3 - 7));
        Ok(())
    }
}
