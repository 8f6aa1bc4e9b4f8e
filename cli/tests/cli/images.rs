//! Images on the command line: decoded and transformed by `bench`, looked through by `verify`.

use super::{expect, folder, json, uringload};
use std::fs;
use std::path::Path;

const CHAIN: &str = "random_resized_crop(32),hflip,normalize(imagenet)";

/// A folder of twelve images, some of them broken.
fn photos(broken: &[usize]) -> (tempfile::TempDir, String) {
    let root = folder(&[]);
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../images/tests/data");
    for number in 0..12 {
        let name = ["photo.jpg", "420.jpg", "progressive.jpg"][number % 3];
        let bytes = fs::read(data.join(name)).unwrap();
        let end = if broken.contains(&number) { bytes.len() / 2 } else { bytes.len() };
        fs::write(root.path().join(format!("{number:02}.jpg")), &bytes[..end]).unwrap();
    }
    let path = root.path().display().to_string();
    (root, path)
}

#[test]
fn bench_decodes_and_transforms() {
    let (_root, path) = photos(&[]);
    let bench = format!("bench {path} --no-raw --batch-size 4 --num-threads 2 --json -");
    for (images, bytes) in [
        (format!("--transform {CHAIN}"), 12 * 3 * 32 * 32 * 4),
        (format!("--transform {CHAIN} --image-dtype bf16 --image-layout nhwc"), 12 * 3 * 32 * 32 * 2),
        ("--decode".to_owned(), 12 * 16),
    ] {
        let (out, _) = expect(&mut uringload(&format!("{bench} {images}")), 0);
        let report = json(&out);
        assert_eq!((&report["samples_decoded"], &report["bytes"]), (&12.into(), &bytes.into()), "{images}");
        assert_eq!(report["bytes_decoded"], bytes, "{images}");
    }
    let mut by_column = uringload(&bench);
    by_column.arg("--transform-column").arg(format!("data={CHAIN}"));
    let report = json(&expect(&mut by_column, 0).0);
    assert_eq!(report["samples_decoded"], 12);
    for (given, why) in
        [("data", "COLUMN=TEXT"), ("=hflip", "COLUMN=TEXT"), ("data=array(crop(3))", "no step of array")]
    {
        let mut wrong = uringload(&bench);
        wrong.arg("--transform-column").arg(given);
        let (_, told) = expect(&mut wrong, 2);
        assert!(told.contains(why), "{told}");
    }
    let (table, _) = expect(&mut uringload(&format!("bench {path} --no-raw --decode --num-threads 2")), 0);
    assert!(table.lines().any(|line| line.starts_with("decoded") && line.contains("on 2 threads")), "{table}");
}

#[test]
fn decoded_images_are_kept_in_memory_and_in_a_folder() {
    let ((_root, path), kept) = (photos(&[]), folder(&[]));
    let bench = format!("bench {path} --no-raw --batch-size 4 --json - --transform {CHAIN}");
    let run = |rest: &str| {
        let report = json(&expect(&mut uringload(&format!("{bench} {rest}")), 0).0);
        (report["cache_hits"].as_u64().unwrap(), report["cache_misses"].as_u64().unwrap(), report["digest"].clone())
    };
    let (hits, misses, digest) = run("--epochs 3");
    assert_eq!((hits, misses), (0, 0));
    assert_eq!(run("--epochs 3 --cache-images 1GiB"), (24, 12, digest));
    let disk = format!("--epochs 1 --cache-images 1GiB --cache-images-dir {}", kept.path().display());
    let (hits, misses, first) = run(&disk);
    assert_eq!((hits, misses), (0, 12));
    assert_eq!(run(&disk), (12, 0, first), "another process finds them");
    let (table, _) = expect(&mut uringload(&format!("{} {disk}", bench.replace(" --json -", ""))), 0);
    let line = table.lines().find(|line| line.starts_with("cached")).expect("a line of its own");
    assert!(line.contains("12") && line.contains("100.0 %"), "{line}");
    let (_, told) = expect(&mut uringload(&format!("bench {path} --cache-images 1GiB")), 2);
    assert!(told.contains("--transform"), "{told}");
    let (_, told) = expect(&mut uringload(&format!("{bench} --cache-images-dir /tmp")), 2);
    assert!(told.contains("--cache-images"), "{told}");
}

#[test]
fn typos_and_columns_without_images_are_told() {
    let (root, path) = photos(&[]);
    let (_, told) = expect(&mut uringload(&format!("bench {path} --transform hflip,random_resized_corp(32)")), 2);
    assert!(told.contains("character 7") && told.contains("random_resized_crop"), "{told}");
    let (_, told) = expect(&mut uringload(&format!("bench {path} --transform hflip")), 2);
    assert!(told.contains("different sizes"), "{told}");
    // The other ways only read.
    let (_, told) = expect(&mut uringload(&format!("bench {path} --decode --compare threads")), 2);
    assert!(told.contains("--compare"), "{told}");
    let (_, told) = expect(&mut uringload(&format!("bench {path} --image-dtype u8")), 2);
    assert!(told.contains("--transform"), "{told}");
    let (_, told) = expect(&mut uringload(&format!("bench {path} --transform {CHAIN} --image-dtype u8")), 2);
    assert!(told.contains("u8"), "{told}");
    fs::write(root.path().join("00.jpg"), "text").unwrap();
    (1..12).for_each(|number| fs::remove_file(root.path().join(format!("{number:02}.jpg"))).unwrap());
    let (_, told) = expect(&mut uringload(&format!("bench {path} --decode")), 2);
    assert!(told.contains("no column") && told.contains("--image-column"), "{told}");
}

#[test]
fn verify_finds_images_that_cannot_be_decoded() {
    let (_root, path) = photos(&[5, 9]);
    let (out, _) = expect(&mut uringload(&format!("verify {path}")), 0);
    assert!(out.contains("12 good samples"), "{out}");
    let (out, _) = expect(&mut uringload(&format!("verify {path} --decode --json")), 1);
    let report = json(&out);
    assert_eq!((&report["samples"], &report["samples_lost"]), (&10.into(), &2.into()));
    let found: Vec<&str> =
        report["findings"].as_array().unwrap().iter().map(|one| one["file"].as_str().unwrap()).collect();
    assert!(found.len() == 2 && found[0].ends_with("05.jpg") && found[1].ends_with("09.jpg"), "{found:?}");
    let (out, _) = expect(&mut uringload(&format!("verify {path} --decode")), 1);
    assert!(out.contains("ends early"), "{out}");
}

#[test]
fn show_draws_a_batch_before_and_after() {
    let (root, path) = photos(&[2]);
    let out = root.path().join("sheet.png");
    let command = format!("show {path} --batch-size 6 --transform {CHAIN} --out {}", out.display());
    let (text, told) = expect(&mut uringload(&command), 1);
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(
        text.contains("row 2, column 2: sample 5 05.jpg") && told.contains("sample 2 02.jpg is left white"),
        "{told}"
    );
    let picture = fs::read(&out).unwrap();
    assert_eq!(&picture[..8], b"\x89PNG\r\n\x1a\n");
    let side = |at: usize| u32::from_be_bytes(picture[at..at + 4].try_into().unwrap());
    assert_eq!((side(16), side(20)), (4 * (2 * 228 + 4), 2 * 232));
    // The same seed, the same picture.
    expect(&mut uringload(&command), 1);
    assert!(fs::read(&out).unwrap() == picture);
}
