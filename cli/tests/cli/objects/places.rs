//! What is named: empty places of a store are told as what they are, and what an option writes stays on this machine.

use super::*;

#[test]
fn an_empty_place_is_no_folder() {
    let far = Far::of_images(2, "");
    far.ask("PUT", "/empty/some/", b"");
    for (named, words) in [
        ("s3://empty", "s3://empty/: the bucket has no object"),
        ("s3://empty --format tar", "s3://empty/: the bucket has no object"),
        ("s3://empty/some", "s3://empty/some: the prefix has no object"),
        ("s3://bucket/class --format npy", "s3://bucket/class: the prefix has no .npy file"),
    ] {
        let told = fails(&mut far.far(&format!("inspect {named}")), 1);
        assert!(told.contains(words) && !told.contains("folder"), "{named}: {told}");
    }
}

/// Each of a thousand names that stand in braces is looked up in one listing.
#[test]
fn braces_are_not_a_request_for_each_name() {
    let far = Far::new("");
    (0..1000).for_each(|number| far.write(&format!("plain/{number:03}.bin"), b"bytes"));
    let told = expect(&mut far.far("inspect AT/plain/{000..999}.bin --format folder --json"), 0).0;
    assert_eq!(json(&told)["samples"], 1000, "{told}");
    let asked = far.server.stats().requests;
    assert!(asked.values().sum::<u64>() <= 4, "{asked:?}");
}

#[test]
fn no_option_that_names_a_file_takes_a_url() {
    let far = Far::of_images(2, "");
    let here = tempfile::tempdir().unwrap();
    let state = here.path().join("state.json");
    fs::write(&state, "{}").unwrap();
    let state = state.display();
    for (arguments, option) in [
        ("man --out URL".to_owned(), "--out"),
        ("bench AT/class --json URL".to_owned(), "--json"),
        ("bench AT/class --html URL".to_owned(), "--html"),
        ("bench AT/class --trace URL".to_owned(), "--trace"),
        ("bench AT/class --save-state URL".to_owned(), "--save-state"),
        ("bench AT/class --resume URL".to_owned(), "--resume"),
        ("bench AT/class --quarantine URL --on-error skip".to_owned(), "--quarantine"),
        ("bench AT/class --share-stats=URL".to_owned(), "--share-stats"),
        (
            "bench AT/class --transform random_resized_crop(8) --cache-images 1MB --cache-images-dir URL".to_owned(),
            "--cache-images-dir",
        ),
        ("list AT/class --exclude URL".to_owned(), "--exclude"),
        ("show AT/class --out URL".to_owned(), "--out"),
        ("tune AT/class --out URL".to_owned(), "--out"),
        ("tune AT/class --scratch URL".to_owned(), "--scratch"),
        ("pack AT/class s3://empty/set --staging URL".to_owned(), "--staging"),
        ("list-objects AT/class --out URL".to_owned(), "--out"),
        ("list-objects --update URL".to_owned(), "--update"),
        ("compare URL /nowhere".to_owned(), "<A>"),
        (format!("state seek {state} --epoch 1 --out URL"), "--out"),
        ("state show URL".to_owned(), "<FILE>"),
        ("cache stat URL".to_owned(), "<DIR>"),
    ] {
        for url in ["s3://bucket/out", "https://me:hush@host/out.uls?sig=hush"] {
            let mut command = far.far(&arguments.replace("URL", url));
            let told = fails(command.current_dir(here.path()), 2);
            assert!(told.contains(option) && told.contains("a URL was given"), "{arguments}: {told}");
            assert!(told.contains("\n  help: "), "{arguments}: {told}");
        }
    }
    let (_, err) = expect(far.far("bench AT/class --cache-disk s3://bucket/cache:1MiB").current_dir(here.path()), 2);
    assert!(err.contains("--cache-disk") && err.contains("a folder of a local disk"), "{err}");
    let left: Vec<_> = fs::read_dir(here.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["state.json"], "no folder is made");
}
