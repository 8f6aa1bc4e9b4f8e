//! `cache`: what it says about caches on a disk, and what it removes.

use super::*;
use uringload::Loader;
use uringload::config::ImageCache;
use uringload::dataset::{self, Options};
use uringload::inspect::example_bmp;

/// A folder of images, and one with what is kept of them.
fn kept() -> (tempfile::TempDir, tempfile::TempDir) {
    let (data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for number in 0..20 {
        fs::write(data.path().join(format!("{number}.bmp")), example_bmp()).unwrap();
    }
    keep(data.path(), cache.path());
    (data, cache)
}

fn keep(data: &Path, cache: &Path) {
    let dataset = dataset::open(&[data], &Options::new()).unwrap();
    let builder = Loader::builder(dataset).batch_size(4).epochs(1);
    let chain = "random_resized_crop(8)".parse().unwrap();
    let builder = builder.transform("data", chain).cache_images(ImageCache::disk(cache, 1 << 20));
    builder.build().unwrap().for_each(|batch| drop(batch.unwrap()));
}

fn told(arguments: &str, code: i32) -> serde_json::Value {
    let (out, _) = expect(&mut uringload(&format!("cache {arguments} --json")), code);
    serde_json::from_str(&out).unwrap()
}

#[test]
fn a_cache_is_told_checked_and_cleared() {
    let (data, cache) = kept();
    let (path, dir) = (data.path().display(), cache.path().display());
    let stat = told(&format!("stat {dir}"), 0);
    assert_eq!((&stat["segments"], &stat["closed"]), (&1.into(), &0.into()));
    let of = &stat["datasets"][0];
    assert_eq!((&of["kind"], &of["entries"], &of["dead_entries"]), (&"images".into(), &20.into(), &0.into()));
    assert_eq!(of["name"], path.to_string());
    let (text, _) = expect(&mut uringload(&format!("cache stat {dir}")), 0);
    assert!(text.contains("20 entries of") && text.contains(&path.to_string()), "{text}");

    let checked = told(&format!("verify {dir}"), 0);
    assert_eq!((&checked["entries"], &checked["damaged"]), (&20.into(), &0.into()));
    let segment = cache.path().join("uringload-images-1/seg-0000");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[4096 + 50] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let (text, _) = expect(&mut uringload(&format!("cache verify {dir}")), 1);
    assert!(text.contains("seg-0000:4096: ") && text.ends_with("; 1 damaged\n"), "{text}");
    assert_eq!(told(&format!("verify {dir}"), 1)["findings"][0]["offset"], 4096);

    // The images change: what is kept of the old ones is of no use.
    fs::write(data.path().join("0.bmp"), example_bmp()).unwrap();
    keep(data.path(), cache.path());
    assert_eq!(told(&format!("stat {dir}"), 0)["datasets"][0]["dead_entries"], 20);
    assert_eq!(told(&format!("clear {dir} --stale"), 0)["entries"], 20);
    assert_eq!(told(&format!("verify {dir}"), 0)["entries"], 20);
    let (_, error) = expect(&mut uringload(&format!("cache clear {dir} /elsewhere")), 2);
    assert!(error.contains("nothing of /elsewhere") && error.contains(&path.to_string()), "{error}");
    let (text, _) = expect(&mut uringload(&format!("cache clear {dir} {path}/")), 0);
    assert!(text.starts_with("20 entries of"), "{text}");
    assert_eq!(told(&format!("stat {dir}"), 0)["datasets"], serde_json::json!([]));
    expect(&mut uringload(&format!("cache clear {dir}")), 0);
    expect(&mut uringload(&format!("cache clear {dir} /data --stale")), 2);
    let (_, error) = expect(&mut uringload(&format!("cache stat {path}")), 1);
    assert!(error.contains("no cache is in the folder"), "{error}");
}

#[test]
fn a_cache_in_use_is_not_cleared() {
    let (data, cache) = kept();
    let dataset = dataset::open(&[data.path()], &Options::new()).unwrap();
    let chain = "random_resized_crop(8)".parse().unwrap();
    // So many epochs are not read ahead, so the loader goes on.
    let builder = Loader::builder(dataset).batch_size(4).epochs(1_000_000).transform("data", chain);
    let loader = builder.cache_images(ImageCache::disk(cache.path(), 1 << 20)).build().unwrap();
    let clear = format!("cache clear {}", cache.path().display());
    let (_, error) = expect(&mut uringload(&clear), 1);
    assert!(error.contains("a loader uses the cache") && error.contains("uringload-images-1"), "{error}");
    drop(loader);
    expect(&mut uringload(&clear), 0);
}
