//! Runs a loader to its end and compares every byte with the source.

use super::content::{first_wrong, key_of, name_of};
use std::sync::Arc;
use uringload::batch::{Batch, Data};
use uringload::config::{EngineChoice, IoChoice};
use uringload::dataset::{Dataset, SampleId};
use uringload::sampler::{Cursor, Sampler};
use uringload::{Builder, Loader};
use uringload::{Error, ErrorKind};

/// Every way to read that can be requested by name.
pub const WAYS: [(EngineChoice, IoChoice); 4] = [
    (EngineChoice::Uring, IoChoice::Direct),
    (EngineChoice::Uring, IoChoice::Buffered),
    (EngineChoice::Threads, IoChoice::Direct),
    (EngineChoice::Threads, IoChoice::Buffered),
];

/// The [`WAYS`] that are available here; prints which are not.
///
/// # Panics
/// If a loader cannot be built for any other reason.
pub fn ways_to(dataset: &Arc<dyn Dataset>) -> Vec<(EngineChoice, IoChoice)> {
    let can = |&(engine, io): &(EngineChoice, IoChoice)| match Loader::builder(Arc::clone(dataset))
        .batch_size(1)
        .engine(engine)
        .io(io)
        .build()
    {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            super::skip(format!("{engine:?} {io:?}: {error}"));
            false
        }
        Err(error) => panic!("{engine:?} {io:?}: {error}"),
    };
    WAYS.into_iter().filter(can).collect()
}

/// Where `bytes` differ from the content of sample `id`, whose files were written by `content::write_file`.
pub fn wrong_in(dataset: &dyn Dataset, id: SampleId, bytes: &[u8]) -> Option<String> {
    let mut spans = Vec::new();
    dataset.spans(id, &mut spans);
    let mut rest = bytes;
    for span in spans {
        let path = dataset.files().path(span.file);
        let Some((head, tail)) = rest.split_at_checked(span.len as usize) else {
            return Some(format!("{path:?}: {} bytes of {} are missing", span.len - rest.len() as u64, span.len));
        };
        if let Some(at) = first_wrong(key_of(name_of(&path)), span.offset, head) {
            let got = &head[(at - span.offset) as usize..];
            return Some(format!("{path:?}: wrong byte at {at}, {:x?} follow", &got[..got.len().min(8)]));
        }
        rest = tail;
    }
    (!rest.is_empty()).then(|| format!("sample {}: {} bytes too many", id.0, rest.len()))
}

/// The samples of a batch, after comparing the bytes of each with the source.
///
/// # Panics
/// On the first sample that differs, and on a batch whose parts do not fit together.
pub fn checked(dataset: &dyn Dataset, batch: &Batch) -> Vec<SampleId> {
    let column = &batch.columns[0];
    let size = column.dtype.size();
    match &column.data {
        Data::Views(views) => assert_eq!(views.len(), batch.ids.len(), "one view a sample"),
        Data::Dense { shape, bytes, .. } => {
            let elements = shape.iter().product::<u64>() * batch.ids.len() as u64;
            assert_eq!(bytes.len() as u64, elements * size, "a full tensor");
        }
        Data::Ragged { values, offsets } => {
            assert_eq!(offsets.len(), batch.ids.len() + 1, "one offset a sample and the end");
            assert_eq!(values.len() as u64, offsets[batch.ids.len()] * size, "values end where the last one does");
        }
        Data::Padded { length, values, lengths } => {
            assert_eq!(lengths.len(), batch.ids.len(), "one length a sample");
            assert_eq!(values.len() as u64, length * batch.ids.len() as u64 * size, "a full tensor");
        }
        other => panic!("the first column is bytes, not {other:?}"),
    }
    for (index, &id) in batch.ids.iter().enumerate() {
        let bytes = column.bytes_of(index).expect("each sample has bytes");
        if let Some(wrong) = wrong_in(dataset, id, &bytes) {
            panic!("sample {index} of the batch at {:?}, {wrong}", batch.cursor);
        }
    }
    batch.ids.clone()
}

/// Reads everything from a loader: the samples in order, each compared with the source, and the errors among them.
pub fn drain(dataset: &dyn Dataset, loader: &mut Loader) -> (Vec<SampleId>, Vec<Error>) {
    let (mut ids, mut errors) = (Vec::new(), Vec::new());
    for batch in loader {
        match batch {
            Ok(batch) => {
                ids.extend(checked(dataset, &batch));
                errors.extend(batch.failed.into_iter().map(|failed| failed.error));
            }
            Err(error) => errors.push(error),
        }
    }
    (ids, errors)
}

/// The order of `sampler` over epochs `0..epochs`.
pub fn order(sampler: &dyn Sampler, epochs: u64) -> Vec<SampleId> {
    let cursors = (0..epochs).flat_map(|epoch| (0..sampler.len()).map(move |position| Cursor::new(epoch, position)));
    cursors.map(|cursor| sampler.at(cursor)).collect()
}

/// Reads all of `dataset` with `sampler` and checks that every sample comes once per epoch, in order, byte-exact.
/// Returns false, after saying so, if this way is not available here.
pub fn conforms(
    dataset: Arc<dyn Dataset>,
    sampler: Arc<dyn Sampler>,
    (engine, io): (EngineChoice, IoChoice),
    configure: impl FnOnce(Builder) -> Builder,
) -> bool {
    const EPOCHS: u64 = 2;
    let wanted = order(&*sampler, EPOCHS);
    let builder = Loader::builder(Arc::clone(&dataset)).batch_size(7).epochs(EPOCHS).sampler(sampler);
    let mut loader = match configure(builder).engine(engine).io(io).build() {
        Ok(loader) => loader,
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            assert!(error.remedy().is_some(), "an error that says what to do: {error}");
            super::skip(format!("{engine:?} {io:?}: {error}"));
            return false;
        }
        Err(error) => panic!("{engine:?} {io:?}: {error}"),
    };
    let (ids, errors) = drain(&*dataset, &mut loader);
    assert!(errors.is_empty(), "{engine:?} {io:?}: {errors:?}");
    assert_eq!(ids, wanted, "{engine:?} {io:?}: order");
    let route = loader.route();
    if io != IoChoice::Auto {
        assert_eq!(route.direct_io, io == IoChoice::Direct, "{engine:?} {io:?}: {route:?}");
    }
    assert_eq!(loader.remaining(), Some(0), "no batch is left");
    true
}
