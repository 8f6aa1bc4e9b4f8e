//! Ways to wait for a batch, handles to end the waiting, and batches for others: slices, tensors, made by hand.

use crate::common::content::write_file;
use crate::common::fixture::made;
use crate::common::within;
use bytes::Bytes;
use futures_util::StreamExt;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uringload::batch::{Batch, Column, Data};
use uringload::dataset::{self, DType, Dataset, FileId, Options, SampleId, Span};
use uringload::{Builder, Loader, Reader, ReaderOptions};

const BOUND: Duration = Duration::from_secs(60);
const RECORDS: u64 = 40;

fn builder(root: &TempDir) -> Builder {
    write_file(&root.path().join("0"), RECORDS * 512).expect("a file");
    let options = Options::new().format("records").set("record_bytes", 512_u64).set("dtype", "f32");
    let dataset: Arc<dyn Dataset> = dataset::open(&[root.path()], &options).expect("records");
    Loader::builder(dataset).batch_size(4)
}

#[test]
fn an_iterator_stays_one_where_streams_are_imported() {
    within(BOUND, || {
        let root = TempDir::new().expect("a folder");
        let mut loader = builder(&root).build().expect("a loader");
        // `StreamExt` is in scope: this does not compile if a loader is a stream.
        let first = loader.next().expect("a batch").expect("no error");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let second = runtime.block_on(loader.stream().next()).expect("a batch").expect("no error");
        assert_eq!((first.ids[0], second.ids[0]), (SampleId(0), SampleId(4)));
        let rest = runtime.block_on(loader.stream().count());
        assert_eq!((rest as u64, loader.is_empty()), (RECORDS / 4 - 2, true));
        assert!(format!("{loader:?}").contains("records") && format!("{:?}", builder(&root)).contains("batch_size: 4"));
    });
}

#[test]
fn a_wait_has_an_end() {
    within(BOUND, || {
        let root = TempDir::new().expect("a folder");
        // One batch fills the memory, so that none comes while it is kept.
        let mut loader = builder(&root).memory_limit(256 << 10).batch_size(20).build().expect("a loader");
        let kept = loader.next_timeout(BOUND).expect("no error").expect("a batch");
        let start = Instant::now();
        let more = loader.next_timeout(Duration::from_millis(50)).expect("no error");
        assert!(more.is_some() || start.elapsed() >= Duration::from_millis(50), "too early");
        drop((kept, more));
        while loader.next_timeout(BOUND).expect("no error").is_some() {}
        assert!(loader.is_empty() && loader.next_timeout(Duration::ZERO).expect("no error").is_none());
    });
}

#[test]
fn a_task_closes_a_loader_without_blocking() {
    within(BOUND, || {
        let options = Options::new().format("records").set("record_bytes", 512_u64);
        let (_root, dataset) = made([("0", RECORDS * 512)], &options);
        let builder = Loader::builder(Arc::clone(&dataset)).batch_size(4).epochs(None);
        let mut loader = builder.build().expect("a loader");
        let held = loader.next().expect("a batch").expect("no error");
        assert!(Arc::strong_count(&dataset) > 1);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let other = tokio::spawn(async { 7 });
            loader.close().await;
            assert_eq!(other.await.expect("it ran"), 7);
        });
        assert_eq!(held.len(), 4);
        drop(held);
        assert_eq!(Arc::strong_count(&dataset), 1, "its threads still have the dataset");
    });
}

#[test]
fn a_loader_says_how_much_is_left() {
    let root = TempDir::new().expect("a folder");
    let mut loader = builder(&root).build().expect("a loader");
    assert_eq!(loader.size_hint(), (10, Some(10)));
    let _ = loader.next();
    assert_eq!(loader.size_hint(), (9, Some(9)));
    assert_eq!(loader.by_ref().count(), 9);
    assert_eq!(loader.size_hint(), (0, Some(0)));
    assert_eq!(builder(&root).epochs(None).build().expect("a loader").size_hint(), (0, None));
}

#[test]
fn a_loader_is_cancelled_from_another_thread() {
    within(BOUND, || {
        let root = TempDir::new().expect("a folder");
        for waits in [false, true] {
            let mut loader = builder(&root).epochs(None).memory_limit(64 << 10).build().expect("a loader");
            let handle = loader.cancel_handle().expect("a handle");
            let first = loader.next().expect("a batch").expect("no error");
            let mut kept = vec![first];
            let canceller = std::thread::spawn({
                let handle = handle.clone();
                move || {
                    std::thread::sleep(Duration::from_millis(if waits { 50 } else { 0 }));
                    handle.cancel();
                }
            });
            // Where batches are kept, `next` waits for memory until it is cancelled.
            for batch in loader.by_ref() {
                let batch = batch.expect("no error");
                if waits {
                    kept.push(batch);
                }
            }
            canceller.join().expect("no panic");
            assert!(handle.is_cancelled() && loader.is_empty() && loader.next().is_none());
            assert_eq!(loader.state().cursor(), if waits { kept[kept.len() - 1].next } else { loader.cursor() });
        }
    });
}

/// Asks for another batch while it is dropped, as a guard of a trainer might.
struct Asks(Loader, mpsc::Sender<bool>);

impl Drop for Asks {
    fn drop(&mut self) {
        let came = matches!(self.0.next_timeout(BOUND), Ok(Some(_)));
        let _ = self.1.send(came && self.0.state().cursor() == self.0.cursor());
    }
}

/// A panic of the consumer drops batches, loaders, handles and readers, in any order and with everything in flight.
#[test]
fn what_a_panic_drops_ends_soon_and_takes_nothing_along() {
    within(BOUND, || {
        let root = TempDir::new().expect("a folder");
        let builder = builder(&root).epochs(None);
        let path = root.path().join("0");
        for taken in [0, 1, 3] {
            let (builder, path) = (builder.clone(), path.clone());
            let (tell, told) = mpsc::channel();
            let consumer = std::thread::spawn(move || {
                let mut reader = Reader::open(&[path], &ReaderOptions::default()).expect("a reader");
                let span = [Span { file: FileId(0), offset: 0, len: 4096 }];
                (0..20).for_each(|id| reader.submit(id, &span).expect("a request"));
                let mut loader = builder.build().expect("a loader");
                let _handle = loader.cancel_handle().expect("a handle");
                let kept: Vec<Batch> = loader.by_ref().take(taken).map(|batch| batch.expect("no error")).collect();
                let mut asks = Asks(loader, tell);
                let _epoch = asks.0.next_epoch();
                panic!("as it should, with {} batches and {} requests", kept.len(), reader.in_flight());
            });
            let panic = consumer.join().expect_err("it panics");
            assert!(panic.downcast_ref::<String>().is_some_and(|text| text.starts_with("as it should")));
            assert_eq!(told.recv(), Ok(true));
        }
        // Nothing that was left behind is in the way.
        assert!(builder.epochs(1).build().expect("a loader").all(|batch| batch.is_ok()));
    });
}

#[test]
fn columns_are_slices_and_tensors() {
    let bytes = Bytes::from(vec![0_u8; 4 * 6]);
    let dense = Column::new("x", DType::F32, Data::Dense { shape: vec![3], bytes: bytes.clone() });
    assert_eq!(dense.as_slice::<f32>().map(<[f32]>::len), Some(6));
    assert_eq!(dense.as_slice::<i32>(), None, "another type");
    assert!(dense.to_dlpack().is_some());
    let few = Column::new("x", DType::F32, Data::Padded { length: 4, values: bytes.clone(), lengths: vec![1, 4] });
    assert!(few.to_dlpack().is_none(), "6 elements are not 2 times 4");
    let ragged = Column::new("x", DType::F32, Data::Ragged { values: bytes.clone(), offsets: vec![0, 2, 6] });
    assert!(ragged.to_dlpack().is_some() && ragged.as_slice::<f32>().is_some());
    let views = Column::new("x", DType::F32, Data::Views(vec![bytes]));
    assert!(views.to_dlpack().is_none() && views.as_slice::<f32>().is_none());
    let integers = Column::new("label", DType::I64, Data::I64(vec![7, -1]));
    assert_eq!(integers.as_slice::<i64>(), Some(&[7, -1][..]));
    assert!(integers.to_dlpack().is_some());
    let batch = Batch::new(vec![SampleId(3), SampleId(9)], vec![integers]);
    assert_eq!((batch.len(), batch.bytes()), (2, 16));
}

/// What a loader hands out begins where its elements can begin.
#[test]
fn columns_of_loaders_are_slices() {
    within(BOUND, || {
        let root = TempDir::new().expect("a folder");
        let dense = builder(&root).collate(uringload::config::Collate::Dense).shuffle(true).build().expect("a loader");
        for batch in dense {
            let batch = batch.expect("no error");
            assert_eq!(batch.columns[0].as_slice::<f32>().map(<[f32]>::len), Some(batch.len() * 128));
            assert!(batch.columns[0].to_dlpack().is_some());
        }
    });
}
