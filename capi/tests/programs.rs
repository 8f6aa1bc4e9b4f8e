//! Compares the header with the library, and runs the examples: compiled by the machine's C and C++ compilers, and run
//! under AddressSanitizer, which also watches the library's heap because it replaces malloc.
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "calls of C stand in a row, under one promise")]

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::{env, fs, mem};
use uringload::dataset::{self, Options};
use uringload_capi as capi;

const CAPI: &str = env!("CARGO_MANIFEST_DIR");

/// Warnings that are errors.
const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

fn skip(why: &str) {
    eprintln!("skipped: {why}");
}

/// Whether the compiler is installed.
fn has(compiler: &str) -> bool {
    let there = Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        skip(&format!("there is no {compiler} here"));
    }
    there
}

/// The static library, which cargo leaves beside this program.
fn library() -> PathBuf {
    let here = env::current_exe().expect("a path");
    let library = here.with_file_name("liburingload_capi.a");
    assert!(library.is_file(), "{} is not there", library.display());
    library
}

fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Compiles a program of capi/examples or capi/tests, with the sanitizers if this compiler has them.
fn compiled(compiler: &str, standard: &str, source: &Path, folder: &Path) -> PathBuf {
    let empty = folder.join("empty.c");
    fs::write(&empty, "int main(void) { return 0; }\n").expect("a file");
    let sanitizers = "-fsanitize=address,undefined";
    let probe = Command::new("cc").args([sanitizers, "-o"]).arg(folder.join("empty")).arg(&empty).output();
    let can = probe.is_ok_and(|output| output.status.success())
        && Command::new(folder.join("empty")).status().is_ok_and(|status| status.success());
    if !can {
        skip("no AddressSanitizer for cc here: the program runs without");
    }
    let flags: &[&str] = if can { &[sanitizers, "-fno-sanitize-recover=all"] } else { &[] };
    compiled_with(flags, compiler, standard, source, folder)
}

fn compiled_with(flags: &[&str], compiler: &str, standard: &str, source: &Path, folder: &Path) -> PathBuf {
    let program = folder.join(source.file_stem().expect("a name"));
    let mut command = Command::new(compiler);
    command.arg(format!("-std={standard}")).args(STRICT).arg("-g").arg(format!("-I{CAPI}/include")).args(flags);
    command.arg(source).arg(library()).args(["-lgcc_s", "-lpthread", "-ldl", "-lm", "-lrt", "-o"]).arg(&program);
    let output = command.output().expect("a compiler");
    assert!(output.status.success(), "{}", told(&output));
    program
}

fn run(program: &Path, argument: &Path) -> String {
    run_with(program, &[argument])
}

fn run_with(program: &Path, arguments: &[&Path]) -> String {
    let output = Command::new(program).args(arguments).output().expect("it starts");
    assert!(output.status.success(), "{}: {}\n{}", program.display(), output.status, told(&output));
    told(&output)
}

/// Records of 64 numbers, each 64 times that of the record.
fn records(folder: &Path) -> PathBuf {
    let path = folder.join("records.bin");
    let bytes: Vec<u8> = (0..1000_i32).flat_map(|record| record.to_ne_bytes().repeat(64)).collect();
    fs::write(&path, bytes).expect("a file");
    path
}

#[test]
fn the_c_example_reads_every_record_once() {
    if !has("cc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let source = Path::new(CAPI).join("examples/train.c");
    let program = compiled("cc", "gnu11", &source, folder.path());
    // Two loaders; the second continues from the state of the first.
    assert_eq!(run(&program, &records(folder.path())), format!("sum {}\n", 64 * (999 * 1000 / 2)));
    let output = Command::new(&program).arg("/nowhere").output().expect("it starts");
    assert!(output.status.code() == Some(1) && told(&output).contains("/nowhere"), "{}", told(&output));
}

#[test]
fn the_cpp_example_makes_tensors_of_a_dataset_of_its_own() {
    if !has("c++") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let source = Path::new(CAPI).join("examples/tensors.cpp");
    let program = compiled("c++", "c++17", &source, folder.path());
    assert_eq!(run(&program, &records(folder.path())), format!("elements {}, bytes {}\n", 256 * 4, 7 * 150));
}

/// A URL gives what its folder gives, whatever the server does, and what is wrong is a kind and a message.
#[cfg(feature = "remote")]
#[test]
fn a_url_gives_what_the_folder_gives() {
    use uringload_objects::{Options, Server};
    if !has("cc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = compiled("cc", "gnu11", &Path::new(CAPI).join("tests/objects.c"), folder.path());
    let train = folder.path().join("root/bucket/train");
    for number in 0..60_usize {
        let class = train.join(format!("c{}", number % 3));
        fs::create_dir_all(&class).expect("a folder");
        fs::write(class.join(format!("{number:03}.dat")), vec![number as u8; 1000 + 997 * number]).expect("a file");
    }
    let root = folder.path().join("root");
    let server = Server::start(Options::parse(["--root", root.to_str().expect("text")]).expect("options"));
    let server = server.expect("a server");
    let reach = format!("{{\"endpoint\": \"{}\", \"anonymous\": true}}", server.url());
    let url = |key: &str| PathBuf::from(format!("s3://bucket/{key}"));
    let near = run_with(&program, &[&train, Path::new("{}")]);
    assert!(near.lines().count() == 60 && near.contains(" label "), "{near}");
    assert_eq!(run_with(&program, &[&url("train"), Path::new(&reach)]), near);
    server.tune("fault", "503=10:0,reset=5,short=5").expect("faults");
    server.tune("attempts", "2").expect("faults");
    assert_eq!(run_with(&program, &[&url("train"), Path::new(&reach)]), near);
    let faults = server.stats().faults;
    assert!(faults.contains_key("503") && faults.contains_key("reset"), "{faults:?}");
    let output = Command::new(&program).args([&url("trian"), Path::new(&reach)]).output().expect("it starts");
    let told = told(&output);
    assert!(output.status.code() == Some(1) && told.starts_with("NotFound: s3://bucket/trian: "), "{told}");
}

/// As another library imports them: only by Arrow's specification, after the batch was freed.
#[test]
fn arrays_of_arrow_are_what_the_specification_says() {
    if !has("cc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let source = Path::new(CAPI).join("tests/arrow.c");
    let program = compiled("cc", "gnu11", &source, folder.path());
    assert_eq!(run(&program, &records(folder.path())), "32 rows of 4 columns, 7 refused\n");
}

/// Each argument of each function, wrong in every way except undefined behaviour; and threads.
#[test]
fn what_no_function_may_be_given_is_a_status() {
    if !has("cc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let source = Path::new(CAPI).join("tests/misuse.c");
    let program = compiled("cc", "gnu11", &source, folder.path());
    let told = run(&program, &records(folder.path()));
    let refused = told.strip_suffix(" calls refused\n").and_then(|count| count.parse::<u32>().ok());
    assert!(refused.is_some_and(|count| count > 100), "{told}");
}

/// Without AddressSanitizer: if another thread is in its malloc at the fork, malloc in the child waits forever. The C
/// library holds its locks over a fork.
#[test]
fn a_forked_child_is_refused_while_a_thread_reads() {
    if !has("cc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let source = Path::new(CAPI).join("tests/misuse.c");
    let program = compiled_with(&[], "cc", "gnu11", &source, folder.path());
    run_with(&program, &[&records(folder.path()), Path::new("forks")]);
}

/// On the mock driver, which cargo leaves beside this program if the whole workspace is built.
#[test]
fn batches_in_the_memory_of_a_gpu_wait_for_streams() {
    if !has("cc") {
        return;
    }
    let here = env::current_exe().expect("a path");
    let mock = here.with_file_name("liburingload_mock_cuda.so");
    if !mock.is_file() {
        return skip("no mock of CUDA (cargo build -p uringload-mock-cuda)");
    }
    let folder = tempfile::tempdir().expect("a folder");
    // A separate copy, so that changes by other tests do not matter.
    let driver = folder.path().join("libcuda.so.1");
    fs::copy(mock, &driver).expect("a copy");
    let source = Path::new(CAPI).join("tests/device.c");
    let program = compiled("cc", "gnu11", &source, folder.path());
    let told = run_with(&program, &[&records(folder.path()), &driver]);
    assert_eq!(told, format!("sum {}\n", 64 * (999 * 1000 / 2)));
}

#[test]
fn examples_are_short() {
    for example in ["train.c", "tensors.cpp"] {
        let text = fs::read_to_string(Path::new(CAPI).join("examples").join(example)).expect("an example");
        let most = if example == "train.c" { 60 } else { 100 };
        assert!(text.lines().count() <= most, "{example}: {} lines", text.lines().count());
        assert!(text.lines().all(|line| line.len() <= 120), "{example}");
    }
}

/// What a block of C in a page finds: what the page says the reader has, and a batch where it opens nothing itself.
const FOUND: &str = r#"
#include <stdio.h>
#include <uringload.h>

static int seen;
#define ul_batch_free(batch) (seen++, (ul_batch_free)(batch))

static inline void train_step(void *values, void *stream) { (void)values, (void)stream; }
static inline void import(struct ArrowArray *array, struct ArrowSchema *schema) {
    array->release(array);
    schema->release(schema);
}

int main(void) {
"#;
const OPENED: &str = r#"
    ul_error *error = NULL;
    ul_dataset *data = NULL;
    ul_loader *loader = NULL;
    ul_batch *batch = NULL;
    void *stream = NULL;
    const char *paths[] = {"/data/train"};
    ul_dataset_open(paths, 1, "{\"format\": \"tar\"}", &data, &error);
    (void)stream;
"#;
const FIRST: &str = r#"
    ul_loader_new(data, "{\"batch_size\": 256, \"collate\": \"ragged\"}", NULL, &loader, &error);
    ul_loader_next(loader, -1, &batch, &error);
"#;
const FREED: &str = r#"
    if (error != NULL) {
        ul_error_info info = {.size = sizeof info};
        ul_error_get(error, &info);
        fprintf(stderr, "%s\n", info.message);
        return 1;
    }
    ul_loader_free(loader);
    ul_dataset_free(data);
    printf("%d\n", seen);
    return 0;
}
"#;

/// Blocks of code of a page, by their language.
fn blocks<'a>(page: &'a str, language: &'a str) -> impl Iterator<Item = &'a str> {
    let begin = format!("```{language}\n");
    page.match_indices("```").step_by(2).filter_map(move |(at, _)| {
        let block = page[at..].strip_prefix(&*begin)?;
        block.split("```").next()
    })
}

fn page() -> String {
    fs::read_to_string(Path::new(CAPI).join("../docs/c.md")).expect("the page")
}

/// Every block of C in the page is compiled and run, over 300 samples of an archive, without a GPU.
#[test]
fn the_c_of_the_page_works() {
    if !has("cc") || !has("tar") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (samples, train) = (folder.path().join("samples"), folder.path().join("train"));
    fs::create_dir(&samples).and_then(|()| fs::create_dir(&train)).expect("folders");
    for sample in 0..300 {
        fs::write(samples.join(format!("{sample:03}.jpg")), [sample as u8; 100]).expect("a file");
        fs::write(samples.join(format!("{sample:03}.cls")), format!("{}", sample % 10)).expect("a file");
    }
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "-cf"]).arg(train.join("0.tar")).arg("-C").arg(&samples).arg(".");
    assert!(tar.status().expect("tar").success());
    let page = page();
    for (number, block) in blocks(&page, "c").enumerate() {
        let mut text = FOUND.to_owned();
        if !block.contains("ul_dataset_open(") {
            text += OPENED;
        }
        let opens = block.contains("ul_loader_new(");
        text += if opens { "" } else { FIRST };
        text += &format!("{block}{FREED}");
        let text = text.replace("/data/train", train.to_str().expect("UTF-8")).replace("cuda:0", "host");
        let source = folder.path().join(format!("block{number}.c"));
        fs::write(&source, &text).expect("a file");
        let program = compiled("cc", "gnu11", &source, folder.path());
        assert_eq!(run_with(&program, &[]), if opens { "2\n" } else { "1\n" }, "{text}");
    }
    assert_eq!(blocks(&page, "c").count(), 3);
}

/// The line of the page that links the static library, with the library of this build.
#[test]
fn the_static_library_links_as_the_page_says() {
    if !has("cc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::copy(Path::new(CAPI).join("examples/train.c"), folder.path().join("train.c")).expect("a copy");
    fs::copy(library(), folder.path().join("liburingload.a")).expect("a copy");
    let page = page();
    let line = blocks(&page, "sh").flat_map(str::lines).find(|line| line.contains("-l:liburingload.a"));
    let line = line.expect("a line of the page").replace("-L/usr/local/lib", "-L.");
    let line = line.replace("/usr/local/include", &format!("{CAPI}/include"));
    let output = Command::new("sh").args(["-c", &line]).current_dir(folder.path()).output().expect("a shell");
    assert!(output.status.success(), "{line}: {}", told(&output));
    assert_eq!(run(&folder.path().join("train"), &records(folder.path())), format!("sum {}\n", 64 * (999 * 1000 / 2)));
}

/// Asserts in C++ about a struct: its size and the offset of each field, as Rust has them.
macro_rules! layout {
    ($text:ident, $($name:ident { $($field:ident),* })*) => {
        $(
            let size = mem::size_of::<capi::$name>();
            writeln!($text, "static_assert(sizeof({0}) == {size}, \"{0}\");", stringify!($name)).expect("text");
            $(
                let at = mem::offset_of!(capi::$name, $field);
                let (name, field) = (stringify!($name), stringify!($field));
                writeln!($text, "static_assert(offsetof({name}, {field}) == {at}, \"{name}.{field}\");").expect("text");
            )*
        )*
    };
}

#[test]
fn structs_and_constants_are_those_of_the_header() {
    if !has("c++") {
        return;
    }
    let mut text = String::from("#include <cstddef>\n#include <uringload.h>\n");
    layout! { text,
        ul_error_info { size, message, kind, what, path, remedy, offset, has_offset }
        ul_span { file, offset, len }
        ul_bytes { data, len }
        ul_field { name, dtype, shape, dimensions }
        ul_value { data, span, offset, len }
        ul_source {
            size, context, paths, path_count, fields, field_count, samples, fingerprint, spans, parse, drop, bytes,
            largest
        }
        ul_dataset_info { size, samples, bytes, files, columns, fingerprint }
        ul_batch_info { size, samples, ids, columns, failed, epoch, position }
        ul_tensor { data, device_type, device_id, ndim, code, bits, lanes, shape, strides, byte_offset }
        ul_column { size, name, dtype, form, values, places, place_count, views, view_count }
        ArrowSchema { format, name, metadata, flags, n_children, children, dictionary, release, private_data }
        ArrowArray {
            length, null_count, offset, n_buffers, n_children, buffers, children, dictionary, release, private_data
        }
        ArrowDeviceArray { array, device_id, device_type, sync_event, reserved }
    }
    for (name, value) in [
        ("UL_ABI", i64::from(capi::UL_ABI)),
        ("UL_OK", capi::UL_OK.into()),
        ("UL_ERROR", capi::UL_ERROR.into()),
        ("UL_TIMEOUT", capi::UL_TIMEOUT.into()),
        ("UL_END", capi::UL_END.into()),
        ("UL_STATE", capi::UL_STATE.into()),
        ("UL_REPORT", capi::UL_REPORT.into()),
        ("UL_DENSE", capi::UL_DENSE as i64),
        ("UL_RAGGED", capi::UL_RAGGED as i64),
        ("UL_PADDED", capi::UL_PADDED as i64),
        ("UL_VIEWS", capi::UL_VIEWS as i64),
        ("UL_PACKED", capi::UL_PACKED as i64),
        ("UL_DLPACK", capi::UL_DLPACK.into()),
        ("UL_ARROW", capi::UL_ARROW.into()),
        ("UL_ARROW_DEVICE", capi::UL_ARROW_DEVICE.into()),
    ] {
        writeln!(text, "static_assert({name} == {value}, \"{name}\");").expect("text");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("layout.cpp");
    fs::write(&source, text).expect("a file");
    let mut command = Command::new("c++");
    command.args(["-std=c++11", "-fsyntax-only"]).args(STRICT).arg(format!("-I{CAPI}/include")).arg(&source);
    let output = command.output().expect("a compiler");
    assert!(output.status.success(), "{}", told(&output));
}

/// Names of functions, and how many commas their arguments have, from their declarations or definitions in a text.
fn functions(text: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("ul_") {
        let rest = &text[at..];
        let name: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
        let is_word = !text[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
        if is_word && let Some(list) = rest[name.len()..].strip_prefix('(') {
            let list = list.split_once(')').expect("an end").0.trim().trim_end_matches(',');
            found.push((name, list.matches(',').count()));
        }
    }
    found.sort();
    found
}

/// Fewer than 25, the same on both sides, each with as many arguments.
#[test]
fn functions_are_those_of_the_header() {
    let header = fs::read_to_string(Path::new(CAPI).join("include/uringload.h")).expect("the header");
    let declared = functions(&without_comments(&header));
    let mut defined = Vec::new();
    for file in fs::read_dir(Path::new(CAPI).join("src")).expect("sources") {
        let text = fs::read_to_string(file.expect("a file").path()).expect("text");
        for part in text.split("extern \"C\" fn ").skip(1).filter(|part| part.starts_with("ul_")) {
            defined.extend(functions(&part[..=part.find(')').expect("an end")]));
        }
    }
    defined.sort();
    assert_eq!(declared, defined);
    assert!(defined.len() < 25, "{} functions", defined.len());
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("/*") {
        out.push_str(before);
        rest = behind.split_once("*/").map_or("", |(_, behind)| behind);
    }
    out + rest
}

/// The states of C are those of Rust.
#[test]
fn a_state_of_c_resumes_in_rust() {
    let folder = tempfile::tempdir().expect("a folder");
    records(folder.path());
    let options = Options::new().format("records").set("record_bytes", 256_u64);
    let dataset = dataset::open(&[folder.path()], &options).expect("records");
    let state = capi_state(folder.path());
    let state = uringload::State::from_json(&state).expect("a state");
    let builder = uringload::Loader::builder(Arc::clone(&dataset)).batch_size(10).resume(&state);
    assert_eq!(builder.build().expect("a loader").remaining(), Some(98));
}

/// The state after two batches of ten.
fn capi_state(folder: &Path) -> String {
    use std::ffi::{CStr, CString};
    use std::ptr::{null, null_mut};
    let path = CString::new(folder.to_str().expect("UTF-8")).expect("text");
    let options = c"{\"format\": \"records\", \"record_bytes\": 256}";
    let (mut data, mut loader, mut batch, mut text) = (null_mut(), null_mut(), null_mut(), null());
    // SAFETY: every pointer is a living text, a handle that the line before made, or the address of a variable; each
    // handle is freed once, at the end.
    unsafe {
        assert_eq!(capi::ul_dataset_open(&path.as_ptr(), 1, options.as_ptr(), &mut data, null_mut()), capi::UL_OK);
        let options = c"{\"batch_size\": 10}".as_ptr();
        assert_eq!(capi::ul_loader_new(data, options, null(), &mut loader, null_mut()), capi::UL_OK);
        for _ in 0..2 {
            assert_eq!(capi::ul_loader_next(loader, -1, &mut batch, null_mut()), capi::UL_OK);
            capi::ul_batch_free(batch);
        }
        assert_eq!(capi::ul_loader_tell(loader, capi::UL_STATE, &mut text, null_mut()), capi::UL_OK);
        let state = CStr::from_ptr(text).to_str().expect("UTF-8").to_owned();
        capi::ul_loader_free(loader);
        capi::ul_dataset_free(data);
        state
    }
}
