//! Orders, choices, rows, columns and error policies, by argument.

use super::{expect, files, folder, json, uringload, write};
use serde_json::Value;
use std::fs;

/// The samples that `list` prints.
fn listed(arguments: &str) -> Vec<Value> {
    let (out, _) = expect(&mut uringload(&format!("list {arguments}")), 0);
    out.lines().map(json).collect()
}

fn keys(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["key"].as_str()).collect()
}

#[test]
fn shuffles_stay_in_their_windows_and_shards() {
    let files: Vec<String> = (0..40).map(|number| format!("{number:02}")).collect();
    let data = folder(&files.iter().map(|name| (name.as_str(), 10)).collect::<Vec<_>>());
    let path = data.path().display();
    let full = listed(&format!("{path} --shuffle"));
    assert_eq!(keys(&full), keys(&listed(&format!("{path} --shuffle=full"))));
    let window = listed(&format!("{path} --shuffle=window:4"));
    let places = keys(&window).into_iter().enumerate();
    assert!(places.clone().all(|(place, key)| key.parse::<usize>().unwrap().abs_diff(place) < 4));
    assert!(places.clone().any(|(place, key)| key.parse::<usize>().unwrap() != place));
    // A folder has no shards: one piece of 4096 samples is all of it.
    assert_ne!(keys(&listed(&format!("{path} --shuffle=shards:2"))), keys(&listed(&format!("{path}"))));
    let (_, said) = expect(&mut uringload(&format!("list {path} --shuffle=window:0")), 2);
    assert!(said.contains("window:SAMPLES") || said.contains("from 1 on"), "{said}");
}

#[test]
fn datasets_are_mixed_by_weight() {
    let data = folder(&[("a/1", 9), ("a/2", 9), ("a/3", 9), ("a/4", 9), ("b/5", 9), ("b/6", 9)]);
    let parts = format!("{0}/a {0}/b", data.path().display());
    let first = listed(&format!("{parts} --weights 3,1"));
    assert_eq!(first.iter().filter(|line| line["index"].as_u64().unwrap() < 4).count(), 4, "until a is exhausted");
    let all = listed(&format!("{parts} --weights 3,1 --stopping all_exhausted_without_replacement --shuffle"));
    let mut seen = keys(&all);
    seen.sort_unstable();
    assert_eq!(seen, ["1", "2", "3", "4", "5", "6"]);
    assert_eq!(listed(&format!("{parts} --weights 3,1 --stopping after:10")).len(), 10);
    let (_, said) = expect(&mut uringload(&format!("list {parts} --weights 3")), 2);
    assert!(said.contains("1 weights are given for 2 datasets"), "{said}");
    let (_, said) = expect(&mut uringload(&format!("list {parts} --weights 3,1 --stopping never")), 2);
    assert!(said.contains("all_exhausted"), "{said}");
    let (out, _) = expect(
        &mut uringload(&format!("verify-order {parts} --weights 3,1 --stopping all_exhausted --batch-size 1")),
        0,
    );
    assert!(out.contains("once more, as the mixture asks"), "{out}");
}

#[test]
fn rows_and_columns_have_the_form_that_is_asked_for() {
    let data = folder(&[("1", 10), ("2", 300), ("3", 40), ("4", 100), ("5", 250)]);
    let path = data.path().display();
    let packed = listed(&format!("{path} --packing concat --seq-len 256 --batch-size 2"));
    let bytes: u64 = packed.iter().map(|line| line["columns"]["data"]["bytes"].as_u64().unwrap()).sum();
    assert_eq!(bytes, 700, "every byte in one piece");
    assert!(packed.len() > 5, "samples were cut where a row is full");
    let buckets = listed(&format!("{path} --bucket-boundaries 50,200 --bucket-batch-sizes 2,1,2"));
    assert_eq!(buckets.len(), 5);
    let cut = listed(&format!("{path} --collate padded --max-length 64 --pad-multiple 16"));
    let most = cut.iter().map(|line| line["columns"]["data"]["bytes"].as_u64().unwrap()).max();
    assert_eq!(most, Some(64));
    let (_, said) = expect(&mut uringload(&format!("list {path} --dtype u32")), 2);
    assert!(said.contains("u32") && said.contains("/1: "), "names the file and the type: {said}");
    let (_, said) = expect(&mut uringload(&format!("list {path} --packing best-fit")), 2);
    assert!(said.contains("--seq-len"), "{said}");
}

#[test]
fn bad_samples_are_listed_and_left_out_the_next_time() {
    let data = folder(&[("a", 5000), ("b", 5000), ("c", 5000), ("d", 5000)]);
    let lists = tempfile::tempdir().unwrap();
    let path = data.path().display();
    let list = lists.path().join("ids");
    write(&list, b"# by hand\n1\n3\n");
    let left = listed(&format!("{path} --exclude {}", list.display()));
    assert_eq!(keys(&left), ["a", "c"]);
    let only = listed(&format!("{path} --only {}", list.display()));
    assert_eq!(keys(&only), ["b", "d"]);
    fs::write(&list, "9\n").unwrap();
    let (_, said) = expect(&mut uringload(&format!("list {path} --exclude {}", list.display())), 2);
    assert!(said.contains("9") && said.contains("ids"), "{said}");
    let (_, said) = expect(&mut uringload(&format!("bench {path} --quarantine /nowhere/q --no-raw")), 1);
    assert!(said.contains("/nowhere/q"), "{said}");
    let (_, said) = expect(&mut uringload(&format!("bench {path} --max-failures 2.5")), 2);
    assert!(said.contains("between 0 and 1"), "{said}");
}

#[test]
fn records_have_fields() {
    let root = tempfile::tempdir().expect("a folder");
    let record = |label: u8| [vec![label], (0..12).map(|byte| byte * label).collect()].concat();
    let path = root.path().join("batch.bin");
    fs::write(&path, [record(3), record(1), record(2)].concat()).expect("a file");
    let path = path.display();
    let listed =
        expect(uringload("list").arg(path.to_string()).args(["--record-fields", "label:u8, image:u8[3,2,2]"]), 0).0;
    assert_eq!(listed.lines().count(), 3);
    assert!(listed.contains("\"label\":{\"bytes\":1}") && listed.contains("\"image\":{\"bytes\":12}"), "{listed}");
    for (fields, word) in [("label:u8,image:u8[3,2,3]", "the last record has"), ("label:u9", "no type of elements")] {
        let (_, said) = expect(
            &mut uringload(&format!("list {path} --record-fields {fields}")),
            if word.contains("last") { 1 } else { 2 },
        );
        assert!(said.contains(word), "{said}");
    }
    let (_, said) = expect(&mut uringload(&format!("list {path} --record-fields label:u8 --dtype u8")), 2);
    assert!(said.contains("leave out dtype"), "{said}");
}

#[test]
fn addresses_are_no_paths() {
    #[cfg(not(feature = "remote"))]
    for address in ["s3://bucket/train", "gs://bucket/train/*.tar", "HTTPS://host/x.tar"] {
        let (_, said) = expect(&mut uringload(&format!("inspect {address}")), 1);
        assert!(said.contains("feature `remote`") && said.contains(address), "{said}");
    }
    let (_, said) = expect(&mut uringload("inspect hf://datasets/mnist"), 2);
    assert!(said.contains("not on a file system") && said.contains("name the folder"), "{said}");
    let (_, said) = expect(&mut uringload("inspect x3://bucket"), 1);
    assert!(!said.contains("not on a file system"), "{said}");
}

#[test]
fn commands_print_json() {
    let data = folder(&[("a.txt", 10), ("b.txt", 20)]);
    let path = data.path().display();
    let state = data.path().join("state");
    expect(&mut uringload(&format!("list {path} --json --save-state {}", state.display())), 0);
    let shown = json(&expect(&mut uringload(&format!("state show {} --json", state.display())), 0).0);
    assert_eq!((&shown["version"], &shown["checked"]), (&Value::from(1), &Value::from(false)), "{shown}");
    assert!(shown["state"]["epoch"].is_u64(), "{shown}");
    fs::write(data.path().join("lines.jsonl"), "{\"x\":1}\n{\"x\":2}\n").expect("lines");
    let index = json(&expect(&mut uringload(&format!("index {path}/lines.jsonl --json")), 0).0);
    assert_eq!((&index["samples"], &index["written"]), (&Value::from(2), &Value::from(1)), "{index}");
}

#[test]
fn what_others_call_a_format_and_a_seed_for_a_shuffle_get_the_word_that_is_meant() {
    let (_folder, dir) = files(3);
    for (arguments, meant) in [
        ("--format webdataset", "did you mean \"tar\"?"),
        ("--format imagefolder", "did you mean \"folder\"?"),
        ("--format huggingface", "did you mean \"parquet\" or \"arrow\"?"),
        ("--format foldr", "did you mean \"folder\"?"),
        ("--shuffle 42", "--shuffle --seed 42"),
        ("--shuffle=42", "--shuffle --seed 42"),
        ("--shuffle full", "--shuffle=full"),
    ] {
        let (out, err) = expect(&mut uringload(&format!("list {dir} {arguments}")), 2);
        assert!(out.is_empty() && err.contains(meant), "{arguments}: {err}");
    }
    let (_, err) = expect(&mut uringload(&format!("index {dir} --format webdataset")), 2);
    assert!(err.contains("did you mean \"tar\"?"), "{err}");
    // What is said to work does, and a folder of such a name is a folder.
    expect(&mut uringload(&format!("list {dir} --shuffle --seed 42 --format folder")), 0);
    let root = folder(&[("42/a", 5)]);
    expect(uringload("list --shuffle 42").current_dir(root.path()), 0);
}
