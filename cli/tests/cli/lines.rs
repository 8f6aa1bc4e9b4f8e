//! Formats of lines on the command line: detected, indexed, inspected, listed.

use super::*;

fn run(arguments: &str, path: &Path, code: i32) -> (String, String) {
    expect(&mut uringload(&format!("{arguments} {}", path.display())), code)
}

fn files(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = folder(&[]);
    files.iter().for_each(|(name, bytes)| write(&folder.path().join(name), bytes));
    folder
}

const OBJECTS: &[u8] = b"{\"text\": \"a\", \"label\": 1}\n\n{\"text\": \"bc\", \"label\": 2}\n";

#[test]
fn formats_are_found_by_name_and_described() {
    let folder = files(&[("a.jsonl", OBJECTS), ("b.jsonl", OBJECTS)]);
    let told = json(&run("inspect --json", folder.path(), 0).0);
    assert_eq!((&told["format"], &told["samples"], &told["shards"]), (&"jsonl".into(), &4.into(), &2.into()));
    assert_eq!((&told["left_out"][0]["reason"], &told["left_out"][0]["count"]), (&"empty lines".into(), &2.into()));
    let (text, _) = run("inspect --columns text,label:f32", folder.path(), 0);
    assert!(text.contains("text: u8 of any length") && text.contains("label: f32 scalar"), "{text}");
    // The indexes beside them make no other format of the folder; by name each file but them is a sample.
    assert!(folder.path().join("a.jsonl.uidx").exists());
    let told = json(&run("inspect --json --format folder", folder.path(), 0).0);
    assert_eq!((&told["format"], &told["samples"]), (&"folder".into(), &2.into()));
    let table = files(&[("a.tsv", b"x\ty\n1\t2\n3\t4\n")]);
    let (text, _) = run("inspect", table.path(), 0);
    for part in ["csv", "2 in 1 files", "x: u8 of any length", "y: u8 of any length"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let all = json(&run("inspect --json --no-header --delimiter tab", table.path(), 0).0);
    assert_eq!((&all["samples"], &all["columns"][1]["name"]), (&3.into(), &"1".into()));
}

/// Each of many text files is a document, with or without classes; lines they are by name, or one by one.
#[test]
fn folders_of_text_stay_folders() {
    let folder = files(&[("pos/a.txt", b"one\ntwo\n"), ("neg/b.txt", b"three\n")]);
    let told = json(&run("inspect --json", folder.path(), 0).0);
    assert_eq!((&told["format"], &told["samples"], &told["classes"]), (&"folder".into(), &2.into(), &2.into()));
    let told = json(&run("inspect --json", &folder.path().join("pos"), 0).0);
    assert_eq!((&told["format"], &told["samples"]), (&"folder".into(), &1.into()));
    let told = json(&run("inspect --json", &folder.path().join("pos/a.txt"), 0).0);
    assert_eq!((&told["format"], &told["samples"]), (&"text".into(), &2.into()));
    let told = json(&run("inspect --json --dtype u16", &folder.path().join("pos/a.txt"), 0).0);
    assert_eq!((&told["format"], &told["columns"][0]["dtype"]), (&"folder".into(), &"u16".into()));
    let told = json(&run("inspect --json --format text", folder.path(), 0).0);
    assert_eq!((&told["format"], &told["samples"]), (&"text".into(), &3.into()));
}

#[test]
fn index_builds_once_and_says_what_it_did() {
    let folder = files(&[("a.jsonl", OBJECTS), ("b.jsonl", OBJECTS)]);
    let (out, err) = run("index", folder.path(), 0);
    assert!(out.contains("4 in 2 files") && out.contains("2 looked through, 0 had their index"), "{out}");
    assert!(out.contains("2 indexes") && out.contains("2 empty lines") && err.is_empty(), "{out}{err}");
    let (out, _) = run("index", folder.path(), 0);
    assert!(out.contains("0 looked through, 2 had their index"), "{out}");
    let tables = files(&[("a.csv", b"x\n1\n"), ("b.csv", b"y\n1\n2,\"3\n")]);
    let (out, err) = run("index", tables.path(), 1);
    assert!(out.contains("samples        4 in 2 files") && out.contains("1 indexes"), "{out}");
    assert!(err.contains("b.csv:6: a quote is never closed\n  help: "), "{err}");
    // What the index command made is what the others use: they have the same rows.
    std::fs::remove_file(tables.path().join("b.csv")).unwrap();
    let (out, _) = run("index", tables.path(), 0);
    assert!(out.contains("0 looked through, 1 had their index"), "{out}");
    run("index --format folder", folder.path(), 2);
}

#[test]
fn list_has_keys_and_the_fields_that_are_wanted() {
    let folder = files(&[("a.jsonl", b"{\"n\": 5}\n{\"n\": \"x\"}\n{\"n\": 7}\n")]);
    let (out, _) = run("list --columns n", folder.path(), 1);
    let lines: Vec<_> = out.lines().map(json).collect();
    let values: Vec<_> = lines.iter().filter_map(|line| line["columns"]["n"]["value"].as_i64()).collect();
    assert_eq!((values, &lines[0]["key"]), (vec![5, 7], &"a.jsonl#0".into()));
    let failed = lines.iter().find(|line| line["index"] == 1).unwrap();
    assert!(failed["error"]["what"].as_str().is_some_and(|what| what.contains("\"n\" is a string")), "{failed}");
    let (_, err) = run("list --columns m", folder.path(), 2);
    assert!(err.contains("no field \"m\"") && err.contains("\n  help: give a type"), "{err}");
    for wrong in ["--format tar --columns a", "--format folder --no-header", "--format text --columns a"] {
        run(&format!("list {wrong}"), folder.path(), 2);
    }
    let packed = files(&[("a.jsonl.xz", b"\xfd7zXZ\0")]);
    let (_, err) = run("list", packed.path(), 1);
    assert!(err.contains("xz -d"), "{err}");
}
