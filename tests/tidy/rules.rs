//! The rules: from a file to the places that break them.

use super::source::{Source, word_at};
use std::path::Path;

/// A rule: one line for each place of a file that breaks it.
pub type Rule = fn(&Source) -> Vec<String>;

/// Longest file, in lines.
pub const FILE_LINES: usize = 700;
/// Longest function, in lines from its `fn` to its closing brace.
pub const FUNCTION_LINES: usize = 100;
/// Longest line, in characters.
pub const LINE_CHARS: usize = 120;

/// What a library must not do: print, read the environment, or leave work undone.
const LOUD: [&str; 10] = [
    "println!",
    "eprintln!",
    "print!",
    "eprint!",
    "dbg!",
    "todo!",
    "unimplemented!",
    "env::var",
    "env::var_os",
    "env::set_var",
];

/// The statics that a library may have, each with its file and the reason. A global belongs to the whole process, so
/// two loaders share it and no test can have its own: only what is one for the process anyway may be one, or, in a
/// `thread_local!`, one for the thread.
pub const GLOBALS_OF_THE_PROCESS: [(&str, &str, &str); 6] = [
    // cuFile is configured by the environment and may close standard input while it opens. The process has one of each,
    // so one thread opens it at a time.
    ("sys/src/cufile.rs", "OPENING", "the turn to open cuFile"),
    // Declared here and defined by the C library: the environment itself.
    ("sys/src/cufile/abi.rs", "environ", "environ(7)"),
    // A library is loaded into the process, once, and stays.
    ("images/src/decode/turbo.rs", "LIBRARY", "libjpeg-turbo, or why there is none"),
    // Never changes. It is no `const` because a reference to it is handed out.
    ("src/batch/columns.rs", "NOTHING", "an empty slice"),
    // The driver keeps a current context and a mode for captures for each thread. What notes them is the thread's too:
    // whoever drops an event or a stream there must find them as they are, whichever loader they belong to.
    ("sys/src/cuda/capture.rs", "ADOPTED", "what the driver has current in a thread of ours"),
    // What a thread of an opening asks storage about, noted where it asks: a hundred functions below whoever watches.
    ("formats/src/watched.rs", "SELF", "the watched thread itself"),
];

/// What asks a file system, or holds what it has opened: words, and parts of the code.
const OF_FILE_SYSTEMS: ([&str; 5], [&str; 9]) = (
    ["fs", "AsFd", "BorrowedFd", "OwnedFd", "OpenFlags"],
    [
        "sys::file::open",
        ".canonicalize()",
        ".exists()",
        ".is_dir()",
        ".is_file()",
        ".metadata()",
        ".read_dir()",
        ".read_link()",
        ".symlink_metadata()",
    ],
);

/// The files of formats that ask a file system, each with what it does there. All others ask a `Place` or read a
/// `Source`, which need not be of a file system.
pub const ROOMS_OF_FILE_SYSTEMS: [(&str, &str); 5] = [
    ("formats/src/place.rs", "whether something is there, what is in a folder, and a listing as a whole"),
    ("formats/src/find/absent.rs", "which part of a path is missing, for advice"),
    ("formats/src/find/walk.rs", "lists and measures millions of files"),
    ("formats/src/index/opened.rs", "opens files and reads them"),
    ("formats/src/index/sidecar/place.rs", "writes indexes, and judges whose they are"),
];

pub fn no_unsafe(file: &Source) -> Vec<String> {
    file.words("unsafe").map(|at| file.place(at, "unsafe outside sys")).collect()
}

/// `unsafe` blocks and impls need a SAFETY comment in front of their statement, functions a Safety section.
pub fn unsafe_is_explained(file: &Source) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().collect();
    let code: Vec<&str> = file.code.lines().collect();
    let mut broken = Vec::new();
    for at in file.words("unsafe") {
        let next = word_at(&file.code, at + "unsafe".len());
        // A function pointer's type promises nothing, and an extern block's items are each marked.
        if next == "extern" || (next == "fn" && file.code[at..].trim_start_matches("unsafe fn").starts_with('(')) {
            continue;
        }
        let line = file.line_of(at) - 1;
        let in_front = (0..line).rev().take_while(|&above| {
            let text = code[above].trim();
            text.starts_with("#[") || !text.ends_with([';', '{', '}']) && !lines[above].trim().is_empty()
        });
        let explained = lines[line].contains("SAFETY:")
            || in_front.into_iter().any(|above| lines[above].contains("SAFETY:") || lines[above].contains("# Safety"));
        if !explained {
            broken.push(file.place(at, "unsafe without a SAFETY comment"));
        }
    }
    broken
}

pub fn library_is_quiet(file: &Source) -> Vec<String> {
    let loud = LOUD.iter().flat_map(|what| file.words(what).map(move |at| (at, what)));
    let in_library = loud.filter(|&(at, _)| !file.is_test(at));
    in_library.map(|(at, what)| file.place(at, &format!("{what} in the library"))).collect()
}

/// The command line, C and Python use what any program can: nothing under the library, and no hidden module of it.
pub fn no_back_door(file: &Source) -> Vec<String> {
    let found = ["uringload_sys", "internal"].into_iter().flat_map(|name| file.words(name).map(move |at| (at, name)));
    found.map(|(at, name)| file.place(at, &format!("{name} in a face"))).collect()
}

/// Formats do not ask file systems, but for the rooms on the list.
pub fn formats_ask_places(file: &Source) -> Vec<String> {
    let is_room = ROOMS_OF_FILE_SYSTEMS.iter().any(|(path, _)| file.path == Path::new(path));
    if is_room { Vec::new() } else { of_file_systems(file) }
}

/// What of a file outside of tests asks a file system.
pub fn of_file_systems(file: &Source) -> Vec<String> {
    let (words, parts) = OF_FILE_SYSTEMS;
    let words = words.iter().flat_map(|what| file.words(what).map(move |at| (at, what)));
    let parts = parts.iter().flat_map(|what| file.code.match_indices(what).map(move |(at, _)| (at, what)));
    let found = words.chain(parts).filter(|&(at, _)| !file.is_test(at));
    found.map(|(at, what)| file.place(at, &format!("{what}: ask a Place"))).collect()
}

/// Every `static` item of a library, and each `thread_local!`, but for those that are on the list.
pub fn no_globals(file: &Source) -> Vec<String> {
    let is_listed = |name: &str| {
        GLOBALS_OF_THE_PROCESS.iter().any(|&(path, listed, _)| file.path == Path::new(path) && listed == name)
    };
    let all = globals(file);
    let statics = all.iter().filter(|(_, name)| !is_listed(name));
    let statics = statics.map(|(at, name)| file.place(*at, &format!("static {name} in the library")));
    // It is as good as the first static in it; each further one is judged by itself.
    let holds_listed = |at: usize| all.iter().find(|(other, _)| *other > at).is_some_and(|(_, name)| is_listed(name));
    let locals = file.words("thread_local").filter(|&at| !file.is_test(at) && !holds_listed(at));
    statics.chain(locals.map(|at| file.place(at, "thread_local! in the library"))).collect()
}

/// Where each `static` item outside of tests stands, and its name.
pub fn globals(file: &Source) -> Vec<(usize, String)> {
    // A lifetime has a quote in front, a closure that is static a `|` behind.
    let statics = file.words("static").filter(|&at| !file.code[..at].ends_with('\'') && !file.is_test(at));
    let named = statics.map(|at| {
        let rest = file.code[at + "static".len()..].trim_start();
        (at, word_at(rest.strip_prefix("mut ").unwrap_or(rest), 0).to_owned())
    });
    named.filter(|(_, name)| !name.is_empty()).collect()
}

pub fn short_files(file: &Source) -> Vec<String> {
    let lines = file.text.lines().count();
    if lines <= FILE_LINES {
        return Vec::new();
    }
    vec![format!("{}: {lines} lines, {FILE_LINES} are allowed", file.path.display())]
}

pub fn short_functions(file: &Source) -> Vec<String> {
    let mut broken = Vec::new();
    for at in file.words("fn") {
        // `fn(u8) -> u8` is a type.
        let name = word_at(&file.code, at + "fn ".len());
        let Some((_, close)) = file.block(at).filter(|_| !name.is_empty()) else { continue };
        let lines = file.line_of(close) - file.line_of(at) + 1;
        if lines > FUNCTION_LINES {
            broken.push(file.place(at, &format!("{name} has {lines} lines, {FUNCTION_LINES} are allowed")));
        }
    }
    broken
}

pub fn narrow_lines(file: &Source) -> Vec<String> {
    let lines = file.text.lines().enumerate();
    let wide = lines.filter(|(_, line)| line.chars().count() > LINE_CHARS);
    wide.map(|(at, _)| format!("{}:{}: wider than {LINE_CHARS}", file.path.display(), at + 1)).collect()
}

pub fn has_header(file: &Source) -> Vec<String> {
    if file.text.starts_with("//! ") {
        return Vec::new();
    }
    vec![format!("{}: does not start with a //! line that says what it is", file.path.display())]
}
