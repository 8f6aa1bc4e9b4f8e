//! The source obeys its own rules. Each rule is a function from a file to its violations, and a test first shows that
//! it finds some.

mod source;
mod imports;
mod pages;
mod prose;
mod rules;
mod scripts;

use imports::Crate;
use pages::Known;
use rules::Rule;
use scripts::Package;
use source::{Source, python_files, rust_files, shell_files, texts};
use std::collections::BTreeSet;
use std::path::Path;

/// What the rules about code look at: whatever of it is there.
const CODE_FOLDERS: [&str; 14] = [
    "src", "core", "formats", "images", "remote", "sys", "measure", "cli", "capi", "python", "tests", "examples",
    "benches", "fuzz",
];
/// Where scripts in Python and shell are. Data and corpora have none.
const SCRIPT_FOLDERS: [&str; 12] =
    [".ci", "adapters", "benches", "capi", "cli", "examples", "fuzz", "images", "python", "remote", "sys", "tests"];
/// The pages in the repository's root.
const PAGES: [&str; 6] =
    ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "RELEASING.md", "SECURITY.md"];
/// The modules of the Python package.
const PACKAGE: &str = "python/lib/uringload";
/// The libraries, which other programs link.
const LIBRARY_FOLDERS: [&str; 7] =
    ["src", "core/src", "formats/src", "images/src", "remote/src", "sys/src", "capi/src"];
/// Every crate's sources.
const CRATES: [&str; 10] = [
    "core/src",
    "sys/src",
    "images/src",
    "remote/src",
    "formats/src",
    "src",
    "measure/src",
    "cli/src",
    "capi/src",
    "python/src",
];
/// The faces: what people and other languages call.
const FACES: [&str; 3] = ["cli/src", "capi/src", "python/src"];
/// The crates without a line of `unsafe`.
const SAFE: [(&str, &str); 7] = [
    ("src", "src/lib.rs"),
    ("core", "core/src/lib.rs"),
    ("formats", "formats/src/lib.rs"),
    ("images", "images/src/lib.rs"),
    ("remote", "remote/src/lib.rs"),
    ("measure", "measure/src/lib.rs"),
    ("cli", "cli/src/main.rs"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files of an extension in a folder, as one text.
fn texts_of(folder: &str, extension: &str) -> String {
    let entries = std::fs::read_dir(root().join(folder)).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let wanted = paths.filter(|path| path.extension().is_some_and(|found| found == extension));
    wanted.map(|path| std::fs::read_to_string(path).expect("a text")).collect()
}

fn crates() -> impl Iterator<Item = Crate> {
    CRATES.into_iter().map(|folder| Crate::new(folder, rust_files(root(), folder)))
}

/// Applies `rule` to the Rust files below `folders` and fails with everything that it finds.
fn keep(rule: Rule, folders: &[&str]) {
    keep_all(rule, folders.iter().flat_map(|folder| rust_files(root(), folder)).collect());
}

fn keep_all(rule: Rule, files: Vec<Source>) {
    assert!(!files.is_empty(), "no source is there");
    let broken: Vec<String> = files.iter().flat_map(rule).collect();
    assert!(broken.is_empty(), "{} places break this rule:\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn modules_use_only_what_stands_before_them() {
    let broken: Vec<String> = crates().flat_map(|tested| tested.against_the_floors()).collect();
    assert!(broken.is_empty(), "against the order of lib.rs:\n{}", broken.join("\n"));
}

#[test]
fn every_file_stands_on_a_floor() {
    let lost: Vec<String> = crates().flat_map(|tested| tested.lost()).collect();
    assert!(lost.is_empty(), "{}", lost.join("\n"));
}

#[test]
fn no_large_circles() {
    let circles = crates().flat_map(|tested| tested.circles());
    let found: Vec<String> = circles.map(|circle| circle.to_string()).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn only_sys_has_unsafe() {
    for (folder, file) in SAFE {
        keep(rules::no_unsafe, &[folder]);
        let text = std::fs::read_to_string(root().join(file)).expect("a crate root is readable");
        assert!(text.contains("#![forbid(unsafe_code)]"), "{file} lacks #![forbid(unsafe_code)]");
    }
}

#[test]
fn each_unsafe_has_its_proof() {
    keep(rules::unsafe_is_explained, &CODE_FOLDERS);
}

#[test]
fn the_library_neither_prints_nor_reads_the_environment() {
    keep(rules::library_is_quiet, &LIBRARY_FOLDERS);
}

#[test]
fn faces_have_no_back_door() {
    keep(rules::no_back_door, &FACES);
}

#[test]
fn the_library_has_no_globals_but_those_of_the_process() {
    keep(rules::no_globals, &LIBRARY_FOLDERS);
    for (path, name, _) in rules::GLOBALS_OF_THE_PROCESS {
        let text = std::fs::read_to_string(root().join(path)).unwrap_or_default();
        let found: Vec<_> = rules::globals(&Source::new(path, text)).into_iter().map(|(_, name)| name).collect();
        assert!(found.iter().any(|found| found == name), "{path} has no static {name} any more: take it off the list");
    }
}

#[test]
fn formats_ask_places_and_not_file_systems() {
    keep(rules::formats_ask_places, &["formats/src"]);
    for (path, _) in rules::ROOMS_OF_FILE_SYSTEMS {
        let text = std::fs::read_to_string(root().join(path)).unwrap_or_default();
        let asks = rules::of_file_systems(&Source::new(path, text));
        assert!(!asks.is_empty(), "{path} asks no file system any more: take it off the list");
    }
}

#[test]
fn files_and_functions_are_short() {
    keep(rules::short_files, &CODE_FOLDERS);
    keep(rules::short_functions, &CODE_FOLDERS);
}

#[test]
fn lines_are_narrow() {
    keep(rules::narrow_lines, &CODE_FOLDERS);
}

#[test]
fn scripts_are_short_and_narrow_and_read_pipes_whole() {
    let python = || SCRIPT_FOLDERS.iter().flat_map(|folder| python_files(root(), folder));
    let shell = || SCRIPT_FOLDERS.iter().flat_map(|folder| shell_files(root(), folder));
    let all = || python().chain(shell());
    keep_all(scripts::whole_pipes, shell().collect());
    keep_all(rules::narrow_lines, all().collect());
    keep_all(rules::short_files, all().collect());
    keep_all(scripts::short_functions, python().collect());
}

#[test]
fn modules_of_python_make_no_large_circles() {
    let files = python_files(root(), PACKAGE).into_iter().filter(|file| file.path.parent() == Some(Path::new(PACKAGE)));
    let found: Vec<String> = Package::new(files.collect()).circles().iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn words_are_plain() {
    let folders: BTreeSet<&str> = CODE_FOLDERS.into_iter().chain(SCRIPT_FOLDERS).chain(["docs"]).collect();
    let page = |path| Source::script(path, std::fs::read_to_string(root().join(path)).expect("a page is readable"));
    let all = folders.into_iter().flat_map(|folder| texts(root(), folder)).chain(PAGES.into_iter().map(page));
    keep_all(prose::plain_words, all.collect());
}

#[test]
fn pages_name_what_is_there() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect("a page is readable");
    let all = ["docs", "python", "adapters", "deploy"].into_iter().flat_map(|folder| texts(root(), folder));
    let all = all.filter(|page| page.path.extension().is_some_and(|extension| extension == "md"));
    let all: Vec<Source> = all.chain(PAGES.map(|path| Source::script(path, read(path)))).collect();
    let surface = texts_of("tests/api", "txt");
    let compiled: String = CRATES.map(|folder| read(&format!("{folder}/lib.rs"))).concat();
    let sources: String = CRATES.iter().flat_map(|folder| rust_files(root(), folder)).map(|file| file.code).collect();
    let known = Known { root: root(), surface: &surface, sources: &sources, compiled: &compiled };
    let broken = all.iter().flat_map(|page| [pages::broken(page, &known), pages::unexplained(page)].concat());
    let broken: Vec<String> = broken.collect();
    assert!(all.len() > 20 && broken.is_empty(), "{} names lead nowhere:\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn each_file_says_what_it_is() {
    keep(rules::has_header, &CODE_FOLDERS);
}

#[test]
fn the_floors_catch_what_they_are_for() {
    let with = |path: &str, text: &str| {
        let lib = "pub mod config;\npub mod plan;\nmod engine;\npub use engine::*;\npub use plan::Plan;\n";
        let files = [
            ("src/lib.rs", lib),
            ("src/config.rs", ""),
            ("src/engine.rs", "struct Uring;"),
            ("src/plan.rs", "mod reads;"),
        ];
        let files = files.into_iter().filter(|(standing, _)| *standing != path).chain([(path, text)]);
        Crate::new("src", files.map(|(path, text)| Source::new(path, text)).collect())
    };
    let caught = |path: &str, text: &str| with(path, text).against_the_floors().len();
    assert_eq!(caught("src/engine.rs", "use crate::plan::Plan;"), 0);
    assert_eq!(caught("src/engine.rs", "use crate::{Config, plan::Plan};"), 0);
    assert_eq!(caught("src/plan.rs", "use crate::engine::Engine;"), 1);
    assert_eq!(caught("src/plan.rs", "fn f() { crate::engine::start() }"), 1);
    assert_eq!(caught("src/plan.rs", "use crate::Uring;"), 1, "by a name that lib.rs passes on");
    assert_eq!(caught("src/plan/reads.rs", "use crate::{config::{Config, Kind}, engine::{self}};"), 1);
    assert_eq!(caught("src/plan/reads.rs", "fn f() -> super::super::engine::Engine {}"), 2);
    assert_eq!(caught("src/plan/reads.rs", "mod tests { use super::super::Plan; }"), 0);
    assert_eq!(caught("src/plan.rs", "mod tests { use super::*; }"), 0);
    assert_eq!(caught("src/plan.rs", "use super::config::Config;"), 1);
    assert_eq!(caught("src/plan.rs", "// see crate::engine\nconst S: &str = \"crate::engine\";"), 0);
    assert_eq!(with("src/spare.rs", "").lost().len(), 1);
    assert_eq!(with("src/plan/reads.rs", "").lost().len(), 0);
}

#[test]
fn the_circles_catch_what_they_are_for() {
    let with = |bmp: &str, gif: &str, image: &str| {
        let files = [
            ("a/src/lib.rs", "mod decode;\nmod image;\npub use decode::Decoded;"),
            ("a/src/decode.rs", "mod bmp;\nmod gif;\nmod png;\n#[cfg(test)]\nmod tests;\npub use bmp::Bmp as Bitmap;"),
            ("a/src/decode/bmp.rs", bmp),
            ("a/src/decode/png.rs", "use super::bmp;\nfn f() { bmp::f() }"),
            ("a/src/decode/gif.rs", gif),
            ("a/src/decode/tests.rs", "use super::*; use super::{bmp, png, gif};"),
            ("a/src/image.rs", image),
        ];
        Crate::new("a/src", files.map(|(path, text)| Source::new(path, text)).into()).circles().len()
    };
    // Each of bmp, gif and image uses the next one, and png uses bmp.
    let (bmp, gif) = ("use super::gif::{self, Gif as Animated};", "use crate::image::{Image, mirror};");
    assert_eq!(with(bmp, gif, ""), 0);
    assert_eq!(with(bmp, gif, "use crate::decode::bmp;"), 0, "three in a circle");
    assert_eq!(with(bmp, gif, "use crate::decode::png::Png;"), 1);
    assert_eq!(with(bmp, gif, "fn f() { crate::decode::png::f() }"), 1);
    assert_eq!(with("fn f() { super::gif::f() }", gif, "use crate::decode::png;"), 1);
    assert_eq!(with("use super::gif; use crate::decode::png as other;", gif, "use crate::decode::Bitmap;"), 1);
    assert_eq!(with(bmp, gif, "#[cfg(test)]\nmod tests { use crate::decode::png; }"), 0, "only a test");
    assert_eq!(with("use super::Decoded;", "use super::bmp;", "use crate::decode::png;"), 0, "what it is a part of");
    assert_eq!(with(bmp, gif, "use crate::decode::Bitmap;"), 0, "a name is followed to the file that defines it");
}

#[test]
fn the_rules_about_scripts_catch_what_they_are_for() {
    let functions = |text: &str| scripts::short_functions(&Source::script("a.py", text)).len();
    let lines = |count: usize| "    call()\n".repeat(count);
    assert_eq!(functions(&format!("def f():\n{}", lines(rules::FUNCTION_LINES))), 1);
    assert_eq!(functions(&format!("def f():\n{}\n\n{}", lines(rules::FUNCTION_LINES - 1), "x = 1\n".repeat(9))), 0);
    assert_eq!(functions(&format!("async def f(\n    a,\n) -> None:\n{}", lines(rules::FUNCTION_LINES))), 1);
    assert_eq!(functions(&format!("def f():\n    \"\"\"\nA\n    \"\"\"\n{}", lines(rules::FUNCTION_LINES))), 1);

    let pipes = |text: &str| scripts::whole_pipes(&Source::script("a.sh", text)).len();
    assert_eq!(pipes("ldd a | grep -q b\na | b | grep -xq c\ngrep -q a <<<\"$b\" || exit\na || grep -q b c\n"), 2);

    let circles = |last: &str| {
        let files = [
            ("p/__init__.py", "from ._a import A\n"),
            ("p/_a.py", "from . import _b as b, _x\n"),
            ("p/_b.py", "from . import (\n    _a,\n    _c,\n)\n"),
            ("p/_c.py", "def f():\n    from ._d import D\n"),
            ("p/_d.py", last),
        ];
        Package::new(files.map(|(path, text)| Source::script(path, text)).into()).circles().len()
    };
    assert_eq!(circles("from . import A\n"), 0);
    assert_eq!(circles("from ._a import A\n"), 1);
    assert_eq!(circles("if TYPE_CHECKING:\n    from ._a import A\n"), 0);
    assert_eq!(circles("if TYPE_CHECKING:\n    pass\nfrom . import _a\n"), 1);
    assert_eq!(circles("\"\"\"\nfrom . import _a\n\"\"\"\n"), 0);
}

#[test]
fn the_rule_about_pages_catches_what_it_is_for() {
    let surface = "fn uringload::Builder::pin(self: Self) -> Builder\n\
                   use uringload::sys::Stream = uringload_sys::Stream\n\
                   use uringload::dataset = uringload_formats\nfn uringload_formats::open()";
    let sources = "fn turn() {}";
    let known = Known { root: root(), surface, sources, compiled: "include_str!(\"../docs/gpu.md\")]" };
    let found = |path: &str, text: &str| pages::broken(&Source::script(path, text), &known).len();
    let user = |text: &str| found("docs/cli.md", text);
    assert_eq!(user("[a](cli.md) [b](gpu.md#memory) [c](#one-two) [d](https://a.b/c)\n\n## One: `two`"), 0);
    assert_eq!(user("[a](clj.md) [b](gpu.md#memories) [c](#one)"), 3);
    assert_eq!(user("[a](https://github.com/uringload/uringload/blob/main/docs/nothing.md)"), 1);
    assert_eq!(user("[a][here] [b][there]\n\n[here]: ../README.md\n"), 1);
    assert_eq!(user("`benches/gpu.sh` `tests/loaders.rs:7` `target/x` `images/7.jpg` `capi/tests/none.c`"), 1);
    assert_eq!(user("```sh\ncapi/install.sh && docs/none.sh [a](b)\n```\n"), 1);
    assert_eq!(user("`Builder::pin` `Builder::pi` `uringload::Builder::pin()` `Reactor::turn`"), 2);
    assert_eq!(user("`sys::Stream` `uringload::sys::Stream` `dataset::open()` `std::fs::read`"), 0);
    assert_eq!(user("`sys::cuda::Stream` `dataset::opened()` `uringload::config::None`"), 3);
    assert_eq!(found("docs/internals/reading.md", "`Reactor::turn` `Reactor::turned`"), 1);
    assert_eq!((found("docs/gpu.md", "a\n```rust\n```\n"), user("a\n```rust\n```\n")), (0, 1));
    let inside = |path: &str, text: &str| pages::unexplained(&Source::script(path, text)).len();
    assert_eq!(inside("docs/cli.md", "The reactor has an arena; `reactor`, reactors and the route of units"), 4);
    assert_eq!(inside("docs/cli.md", "The [route](faq.md#glossary) of units"), 0);
    assert_eq!(inside("docs/internals/reading.md", "The reactor takes the route"), 0);
    let of_crate = |path: &str| found(path, "a\n```rust\n```\n");
    assert_eq!((of_crate("formats/README.md"), of_crate("adapters/README.md")), (0, 1));
}

#[test]
fn the_rule_about_words_catches_what_it_is_for() {
    let found = |text: &str| prose::plain_words(&Source::script("src/plan.rs", text));
    assert_eq!(
        found("/// What is\n    /// had, and as\n    /// far as"),
        ["src/plan.rs:1: not English: be|been|being|is|are|was|were had", "src/plan.rs:2: not English: as far as",]
    );
    assert_eq!(found("x = 1  # Nobody is told of so many bytes").len(), 3);
    assert_eq!(found("say(\"what becomes of one, of which none lies at 7\")").len(), 3);
    assert!(found("enum A { Nobody, B } const NOBODY: A = A::Nobody; it.so_many(bytes)").is_empty());
    assert!(found("It is. Had it been as far, as good as so many, telling of which one lies there").is_empty());
}

#[test]
fn the_rules_catch_what_they_are_for() {
    let breaks = |rule: Rule, text: &str| rule(&Source::new("src/plan.rs", text)).len();
    assert_eq!(breaks(rules::no_unsafe, "fn f() { unsafe { g() } }"), 1);
    assert_eq!(breaks(rules::no_unsafe, "fn unsafe_not() {} // unsafe"), 0);
    assert_eq!(breaks(rules::unsafe_is_explained, "let a = 1;\nlet b = unsafe { f() };"), 1);
    assert_eq!(breaks(rules::unsafe_is_explained, "// SAFETY: a\nlet a = 1;\nunsafe impl Send for A {}"), 1);
    assert_eq!(breaks(rules::unsafe_is_explained, "// Because. SAFETY: a\nlet b =\n    unsafe { f() };"), 0);
    assert_eq!(breaks(rules::unsafe_is_explained, "/// # Safety\n/// Mind.\n#[inline]\npub unsafe fn f() {}"), 0);
    assert_eq!(breaks(rules::library_is_quiet, "fn f() { println!(\"a\") }"), 1);
    assert_eq!(breaks(rules::library_is_quiet, "fn f() { std::env::var(\"a\"); todo!() }"), 2);
    assert_eq!(breaks(rules::library_is_quiet, "#[cfg(test)]\nmod tests { fn f() { eprintln!(\"skipped\") } }"), 0);
    assert_eq!(breaks(rules::library_is_quiet, "#[cfg(test)]\nmod tests;\nfn f() { eprintln!(\"a\") }"), 1);
    assert_eq!(breaks(rules::no_back_door, "use uringload_sys::ring;\nuse uringload::internal::Config;"), 2);
    assert_eq!(breaks(rules::no_back_door, "use uringload::sys::Stream; // internal"), 0);
    assert_eq!(breaks(rules::no_globals, "static OPEN: AtomicBool = AtomicBool::new(false);"), 1);
    assert_eq!(breaks(rules::no_globals, "fn f() {\n    static mut CALLS: u32 = 0;\n}"), 1);
    assert_eq!(breaks(rules::no_globals, "extern \"C\" { pub static environ: *mut *mut c_char; }"), 1);
    assert_eq!(breaks(rules::no_globals, "thread_local! { static A: Cell<u8> = const { Cell::new(0) } }"), 2);
    assert_eq!(breaks(rules::no_globals, "const A: &'static str = \"static B\"; fn f<T: 'static>() {}"), 0);
    assert_eq!(breaks(rules::no_globals, "#[cfg(test)]\nmod tests { static A: u8 = 0; }"), 0);
    assert_eq!(breaks(rules::no_globals, "#[cfg(test)]\nmod tests;\nstatic A: u8 = 0;"), 1);
    let (path, name, _) = rules::GLOBALS_OF_THE_PROCESS[0];
    let listed = format!("static {name}: AtomicBool = AtomicBool::new(false);");
    assert_eq!(rules::no_globals(&Source::new(path, listed.clone())).len(), 0);
    assert_eq!(rules::no_globals(&Source::new("sys/src/file.rs", listed)).len(), 1, "listed for one file only");
    let local = |name: &str| format!("thread_local! {{ static {name}: Cell<u8> = const {{ Cell::new(0) }} }}");
    assert_eq!(rules::no_globals(&Source::new(path, local(name))).len(), 0);
    assert_eq!(rules::no_globals(&Source::new(path, format!("{} {}", local(name), local("A")))).len(), 2);
    assert_eq!(breaks(rules::formats_ask_places, "use std::fs::File;\nfn f(file: &OwnedFd) { file.metadata() }"), 3);
    assert_eq!(breaks(rules::formats_ask_places, "uringload_sys::file::open_regular(path); path.exists();"), 2);
    assert_eq!(breaks(rules::formats_ask_places, "use std::path::Path; fn exists(files: u8) { place.is_there() }"), 0);
    assert_eq!(breaks(rules::formats_ask_places, "#[cfg(test)]\nmod tests { use std::fs; }"), 0);
    let (room, _) = rules::ROOMS_OF_FILE_SYSTEMS[0];
    assert_eq!(rules::formats_ask_places(&Source::new(room, "use std::fs;")).len(), 0);
    let long = format!("fn f(a: [u8; 4]) {{\n{}}}", "    g();\n".repeat(rules::FUNCTION_LINES));
    assert_eq!(breaks(rules::short_functions, &long), 1);
    assert_eq!(breaks(rules::short_functions, &format!("trait T {{\nfn f();\n{}}}", "\n".repeat(200))), 0);
    assert_eq!(breaks(rules::short_files, &"\n".repeat(rules::FILE_LINES + 1)), 1);
    assert_eq!(breaks(rules::narrow_lines, &"x".repeat(rules::LINE_CHARS + 1)), 1);
    assert_eq!(breaks(rules::has_header, "use a;"), 1);
}
