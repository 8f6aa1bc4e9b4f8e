//! States: saved at every batch and resumed with other sizes, refused where they do not belong, and never a panic for
//! what is no state. The states in tests/golden must load for ever.

mod content;
mod files;
mod golden;
mod identities;
mod refused;
mod resumed;

use std::sync::Arc;
use uringload::State;
use uringload::dataset::{self, Dataset, FileTable, Options, SampleId};
use uringload::sampler::{Cursor, OrderId, Sampler};
use uringload::{Builder, Loader};

const FOLDER: &str = include_str!("../golden/state-v2-folder.json");
const RECORDS: &str = include_str!("../golden/state-v2-records.json");
const MIXTURE: &str = include_str!("../golden/state-v2-mixture.json");
const ROWS: &str = include_str!("../golden/state-v2-rows.json");
const MIXER: &str = include_str!("../golden/state-v2-mixer.json");

/// The text as it was before states had a checksum, which comes last.
fn unsummed(text: &str) -> String {
    let (before, sum) = text.split_once(",\n  \"checksum\": \"").expect("a checksum");
    assert_eq!((sum.len(), &sum[16..]), (19, "\"\n}"), "{text}");
    format!("{before}\n}}")
}

/// The dataset that the golden states were saved with: no file of it need be there.
fn golden_files() -> FileTable {
    let mut files = FileTable::new();
    files.push_root("/anywhere");
    for number in 0..100_u64 {
        files.push(format!("{}/{number:03}", number % 3).as_bytes(), 4096 + 16 * number).unwrap();
    }
    files
}

fn golden_folder() -> Arc<dyn Dataset> {
    dataset::inspect::of_files(golden_files(), &Options::new().set("labels", false)).unwrap()
}

fn golden_records() -> Arc<dyn Dataset> {
    let options = Options::new().format("records").set("record_bytes", 16);
    dataset::inspect::of_files(golden_files(), &options).unwrap()
}

fn builder(dataset: &Arc<dyn Dataset>) -> Builder {
    Loader::builder(Arc::clone(dataset)).shuffle(true).seed(42)
}

/// An order with any identity: each sample in turn, for so many positions.
struct Known(OrderId, u64);

impl Sampler for Known {
    fn len(&self) -> u64 {
        self.1
    }

    fn at(&self, cursor: Cursor) -> SampleId {
        SampleId(cursor.position % 100)
    }

    fn id(&self) -> OrderId {
        self.0.clone()
    }
}

/// The state that `loader` has after `batches` batches.
fn stand_at(builder: Builder, batches: usize) -> State {
    let mut loader = builder.build().expect("a loader");
    for _ in 0..batches {
        loader.next().expect("a batch").expect("no error");
    }
    loader.state()
}
