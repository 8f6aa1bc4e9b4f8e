//! Through the loader: every byte, on each engine, and samples that lack something.

use super::index::with_sidecars;
use super::{folder, key};
use crate::common::archive::Archive;
use crate::common::{check, content};
use std::collections::BTreeMap;
use std::sync::Arc;
use uringload::Loader;
use uringload::batch::Data;
use uringload::config::Config;
use uringload::config::{EngineChoice, IoChoice, OnError};
use uringload::dataset::{self, Dataset, FileId, SampleId};

/// Every byte of every field through the loader, on each engine, in order and shuffled.
#[test]
fn every_byte_through_the_loader() {
    let mut wanted = BTreeMap::new();
    let mut archives = Vec::new();
    for shard in 0..3_u64 {
        let mut archive = Archive::new();
        for number in 0..40_u64 {
            let id = shard * 40 + number;
            let mut fields = vec![("cls", 1 + id % 3), ("jpg", id * id * 7 % 60_000), ("json", id % 2 * 300)];
            if number % 7 == 3 {
                fields.remove(2);
            }
            for (field, len) in fields {
                let bytes = content::content(id * 8 + field.len() as u64, 0, len as usize);
                archive = archive.file(&format!("s{id}.{field}"), &bytes);
                wanted.insert((format!("s{id}"), field), bytes);
            }
        }
        archives.push((format!("{shard}.tar"), archive.end().0));
    }
    let archives: Vec<(&str, &[u8])> = archives.iter().map(|(name, bytes)| (&**name, &**bytes)).collect();
    let folder = folder(&archives);
    let tar = dataset::open(&[folder.path()], &with_sidecars().set("missing", "empty")).unwrap();
    let dataset = Arc::clone(&tar) as Arc<dyn Dataset>;
    let ways = check::ways_to(&dataset);
    for (engine, io) in ways.into_iter().chain([(EngineChoice::Auto, IoChoice::Auto)]) {
        for (shuffle, gap) in [(false, 0), (true, 0), (true, 8192)] {
            let config = Config {
                batch_size: 7,
                epochs: Some(1),
                shuffle: shuffle.into(),
                engine,
                io,
                coalesce_gap: Some(gap),
                ..Default::default()
            };
            let loader = Loader::builder(Arc::clone(&dataset)).config(config).build().unwrap();
            let mut seen = 0;
            for batch in loader {
                let batch = batch.unwrap();
                for (index, id) in batch.ids.iter().enumerate() {
                    for column in &batch.columns {
                        let Data::Views(views) = &column.data else { panic!("views") };
                        let found = wanted.get(&(key(&*tar, id.0), &*column.name)).map_or(&[][..], |bytes| &bytes[..]);
                        assert!(views[index] == found, "{engine:?} {io:?}: {} of {}", column.name, key(&*tar, id.0));
                    }
                    seen += 1;
                }
            }
            assert_eq!(seen, 120, "{engine:?} {io:?}");
        }
    }
}

/// A sample that lacks a field fails by itself; `on_error` decides about it as about any other.
#[test]
fn a_lacking_field_is_the_error_of_its_sample() {
    let archive = Archive::new()
        .file("a.jpg", b"1")
        .file("a.cls", b"2")
        .file("b.jpg", b"3")
        .file("c.jpg", b"1")
        .file("c.cls", b"2")
        .end();
    let folder = folder(&[("a.tar", &archive.0)]);
    let tar = dataset::open(&[folder.path()], &with_sidecars()).unwrap();
    let loader = Loader::builder(tar.clone()).batch_size(8).epochs(1).on_error(OnError::Skip).build().unwrap();
    let batches: Vec<_> = loader.map(Result::unwrap).collect();
    assert_eq!(batches[0].ids, [SampleId(0), SampleId(2)]);
    assert!(batches[0].failed[0].error.to_string().contains("has no field \"cls\""));
    let mut spans = Vec::new();
    tar.spans(SampleId(2), &mut spans);
    assert_eq!((spans[0].file, tar.shards()), (FileId(0), &[3][..]));
}
