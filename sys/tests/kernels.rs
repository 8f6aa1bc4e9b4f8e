//! The PTX belongs to the sources: it carries the hashes with which `sys/kernels/build.py` made it.

use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels")
}

/// The hash in the PTX's comment `// name: ...`.
fn hash_of<'a>(ptx: &'a str, name: &str) -> &'a str {
    let lines = ptx.lines().take_while(|line| line.starts_with("// "));
    let found = lines.filter_map(|line| line.strip_prefix("// ")?.strip_prefix(name)?.strip_prefix(": ")).next();
    found.unwrap_or_else(|| panic!("the PTX has no hash of its {name}"))
}

fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn ptx_and_source_agree() {
    let ptx = fs::read_to_string(folder().join("kernels.ptx")).expect("the PTX is there");
    let files = fs::read_dir(folder()).expect("the sources are there").map(|entry| entry.expect("readable").path());
    let mut sources: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "cu" || extension == "cuh"))
        .collect();
    sources.sort();
    assert!(sources.len() > 1, "no sources in {:?}", folder());
    let mut digest = Sha256::new();
    for path in &sources {
        let content = fs::read(path).expect("a source is readable");
        let name = path.file_name().and_then(|name| name.to_str()).expect("a plain name");
        digest.update(format!("{name}\n{}\n", content.len()));
        digest.update(content);
    }
    let remedy = "run sys/kernels/build.py and commit what it writes";
    assert_eq!(hash_of(&ptx, "sources"), hex(digest), "a source has changed and the PTX has not: {remedy}");
    let body = ptx.lines().take(2).map(|line| line.len() + 1).sum();
    let digest = Sha256::new().chain_update(&ptx[body..]);
    assert_eq!(hash_of(&ptx, "body"), hex(digest), "the PTX was changed by hand: {remedy}");
}

/// The machine code is of the same sources, and what it was when it was made.
#[test]
fn cubins_and_source_agree() {
    let ptx = fs::read_to_string(folder().join("kernels.ptx")).expect("the PTX is there");
    let told = fs::read_to_string(folder().join("cubins/hashes.txt")).expect("the hashes are there");
    let mut lines = told.lines().map(|line| line.split_once(": ").expect("a name and a hash"));
    let remedy = "run sys/kernels/build.py and commit what it writes";
    assert_eq!(lines.next(), Some(("sources", hash_of(&ptx, "sources"))), "{remedy}");
    let mut count = 0;
    for (name, hash) in lines {
        let compressed = fs::read(folder().join(format!("cubins/{name}.z"))).expect("it is there");
        let code = miniz_oxide::inflate::decompress_to_vec_zlib(&compressed).expect("it is whole");
        assert_eq!(hex(Sha256::new().chain_update(&code)), hash, "{name}: {remedy}");
        count += 1;
    }
    assert_eq!(count, 4);
}

/// The PTX has every kernel that a launch asks for by name, and is accepted by the oldest driver that is supported.
#[test]
fn ptx_is_what_a_driver_of_cuda_12_0_takes() {
    let ptx = fs::read_to_string(folder().join("kernels.ptx")).expect("the PTX is there");
    for line in [".version 8.0", ".target sm_70", ".address_size 64"] {
        assert!(ptx.lines().any(|other| other == line), "no {line:?}");
    }
    let entries = ptx.lines().filter_map(|line| line.strip_prefix(".visible .entry ")?.strip_suffix('('));
    let mut entries: Vec<&str> = entries.collect();
    entries.sort_unstable();
    let images = ["ur_images_bf16", "ur_images_f16", "ur_images_f32", "ur_images_u8"];
    let (first, last) =
        (["ur_burn", "ur_fill", "ur_gather"], ["ur_pad", "ur_resample", "ur_tokens_u16", "ur_tokens_u32"]);
    assert_eq!(entries, [&first[..], &images, &last].concat());
    // It needs nothing else on the device: nothing is linked and nothing is printed.
    assert!(!ptx.contains(".extern") && !ptx.contains("vprintf"));
}
