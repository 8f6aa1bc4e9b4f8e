//! Pages of documentation: each link, heading, file and name of Rust that they name is there.

use super::source::{Source, is_word, word_at};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where the repository's own pages are for who reads them elsewhere: on docs.rs, PyPI and crates.io.
const OURS: &str = "https://github.com/uringload/uringload/blob/main/";
/// A path that begins so in code, or in a command, is one of the repository.
const FOLDERS: [&str; 21] = [
    ".ci/",
    "adapters/",
    "benches/",
    "capi/",
    "cli/",
    "core/",
    "deploy/",
    "docs/",
    "examples/",
    "formats/src/",
    "fuzz/",
    "images/src/",
    "images/tests/",
    "measure/",
    "python/",
    "remote/",
    "src/",
    "sys/",
    "tests/",
    ".github/",
    "formats/README",
];

/// A path of Rust in a page begins with one of these, the library's modules.
const MODULES: [&str; 12] = [
    "batch",
    "config",
    "dataset",
    "device",
    "inspect",
    "pack",
    "quarantine",
    "sampler",
    "stats",
    "sys",
    "transform",
    "verify",
];
/// Words of the inside: pages for users do without them.
const INSIDE: [&str; 3] = ["reactor", "arena", "yardstick"];
/// Words that a page for users links to the glossary, or says itself.
const IN_GLOSSARY: [&str; 3] = ["route", "units", "views"];
/// Pages that say what a unit is, what steps down, or mean the views of NumPy and torch.
const EXPLAINED: [&str; 4] = ["docs/formats.md", "docs/metrics.md", "docs/performance.md", "docs/read-into.md"];
/// A type of the standard library.
const OTHERS: &str = "Duration::";
/// What a build makes.
const BUILT: &str = "/target/";

/// What pages may name: the files that are there, and the public names of the libraries.
pub struct Known<'a> {
    pub root: &'a Path,
    /// The golden lists of the public surface: what pages for users may name.
    pub surface: &'a str,
    /// All Rust of the crates: what the pages about the inside may name too.
    pub sources: &'a str,
    /// Pages that `cargo test` compiles, by the source that includes them.
    pub compiled: &'a str,
}

/// Everything that a page names and that is not there.
pub fn broken(page: &Source, known: &Known<'_>) -> Vec<String> {
    let parts = Parts::of(&page.text);
    let mut found = Vec::new();
    for (at, target) in links(&parts.prose) {
        found.extend(broken_link(page, known.root, target).map(|why| page.place(at, &format!("{target}: {why}"))));
    }
    for (at, name) in undefined(&parts.prose) {
        found.push(page.place(at, &format!("[{name}] is defined nowhere")));
    }
    for (at, path) in parts.code.iter().flat_map(|&(at, code)| paths(code).map(move |(in_it, path)| (at + in_it, path)))
    {
        if !known.root.join(path).exists() {
            found.push(page.place(at, &format!("{path}: no such file")));
        }
    }
    for (at, name) in parts.spans().flat_map(|(at, code)| names(code).map(move |name| (at, name))) {
        let method = name.rsplit(':').next().unwrap_or(name);
        let is_there = has_name(known.surface, name) || is_inside(page) && has_name(known.sources, method);
        if !is_there && !name.starts_with(OTHERS) {
            found.push(page.place(at, &format!("{name}: no such public name")));
        }
    }
    let paths = parts.spans().flat_map(|(at, code)| module_paths(code).map(move |path| (at, path)));
    for (at, path) in paths.filter(|(_, path)| !is_inside(page) && !has_path(known.surface, path)) {
        found.push(page.place(at, &format!("{path}: no such public path")));
    }
    if let Some(at) = page.text.find("\n```rust").filter(|_| !is_compiled(page, known)) {
        found.push(page.place(at + 1, "no test compiles this page's Rust: include it in src/lib.rs"));
    }
    found
}

/// Words in a page for users that only who knows the inside understands.
pub fn unexplained(page: &Source) -> Vec<String> {
    let is_of_docs = page.path.parent() == Some(Path::new("docs"));
    if !is_of_docs && page.path != Path::new("README.md") {
        return Vec::new();
    }
    let prose = Parts::of(&page.text).prose.to_ascii_lowercase();
    let place = |word: &str| {
        let mut places = prose.match_indices(word).map(|(at, _)| at);
        places.find(|&at| word_at(&prose, at) == word && !prose[..at].bytes().last().is_some_and(is_word))
    };
    let inside = INSIDE.iter().filter_map(|word| Some((place(word)?, format!("a word of the inside: {word}"))));
    let has_link = page.text.contains("#glossary") || EXPLAINED.iter().any(|known| page.path == Path::new(known));
    let words = IN_GLOSSARY.iter().filter(|_| !has_link);
    let unknown = words.filter_map(|word| Some((place(word)?, format!("link its first {word:?} to the glossary"))));
    inside.chain(unknown).map(|(at, what)| page.place(at, &what)).collect()
}

/// A page as prose without its code, and as code without its prose.
struct Parts<'a> {
    /// The same number of bytes and lines, with code replaced by spaces.
    prose: String,
    /// Spans and blocks of code, with the offset of each.
    code: Vec<(usize, &'a str)>,
    blocks: BTreeSet<usize>,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Parts<'a> {
        let (mut prose, mut code, mut blocks) = (text.to_owned(), Vec::new(), BTreeSet::new());
        let (mut at, mut open) = (0, None);
        for line in text.split_inclusive('\n') {
            if line.trim_start().starts_with("```") {
                match open.take() {
                    None => open = Some(at + line.len()),
                    Some(start) => {
                        code.push((start, &text[start..at]));
                        blocks.insert(start);
                        blank(&mut prose, start, at);
                    }
                }
            }
            at += line.len();
        }
        let mut from = 0;
        while let Some(start) = prose[from..].find('`').map(|at| from + at) {
            let marks = prose[start..].bytes().take_while(|&byte| byte == b'`').count();
            let inner = start + marks;
            let Some(len) = prose[inner..].find(&"`".repeat(marks)) else { break };
            if marks < 3 {
                code.push((inner, &text[inner..inner + len]));
                blank(&mut prose, inner, inner + len);
            }
            from = inner + len + marks;
        }
        Parts { prose, code, blocks }
    }

    fn spans(&self) -> impl Iterator<Item = (usize, &'a str)> + '_ {
        self.code.iter().copied().filter(|(at, _)| !self.blocks.contains(at))
    }
}

fn blank(text: &mut String, from: usize, to: usize) {
    let spaces: String = text[from..to].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
    text.replace_range(from..to, &spaces);
}

/// The targets of links: `[..](target)` and `[name]: target`.
fn links(prose: &str) -> Vec<(usize, &str)> {
    let inline = prose.match_indices("](").filter_map(|(at, open)| {
        let start = at + open.len();
        Some((start, prose[start..].split([')', ' ']).next()?.trim()))
    });
    inline.chain(definitions(prose).map(|(at, _, target)| (at, target))).collect()
}

/// `[name]: target` at the beginning of a line.
fn definitions(prose: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    let lines = prose.split_inclusive('\n').scan(0, |at, line| {
        *at += line.len();
        Some((*at - line.len(), line))
    });
    lines.filter_map(|(at, line)| {
        let (name, target) = line.strip_prefix('[')?.split_once("]: ")?;
        Some((at, name, target.trim()))
    })
}

/// Names in `[text][name]` that no line defines.
fn undefined(prose: &str) -> Vec<(usize, &str)> {
    let defined: BTreeSet<&str> = definitions(prose).map(|(_, name, _)| name).collect();
    let named = prose.match_indices("][").filter_map(|(at, open)| {
        let start = at + open.len();
        Some((start, prose[start..].split_once(']')?.0))
    });
    named.filter(|(_, name)| !defined.contains(name)).collect()
}

fn broken_link(page: &Source, root: &Path, target: &str) -> Option<&'static str> {
    let here = page.path.parent().unwrap_or(Path::new(""));
    let (path, heading) = target.split_once('#').map_or((target, None), |(path, heading)| (path, Some(heading)));
    let file = match path.strip_prefix(OURS) {
        Some(path) => PathBuf::from(path),
        None if path.contains("://") || path.starts_with("mailto:") => return None,
        None if path.is_empty() => page.path.clone(),
        None => here.join(path),
    };
    if !root.join(&file).exists() {
        return Some("no such file");
    }
    let heading = heading?;
    let is_own = file == page.path;
    let text = if is_own { page.text.clone() } else { std::fs::read_to_string(root.join(&file)).unwrap_or_default() };
    (!headings(&text).iter().any(|known| known == heading)).then_some("no such heading")
}

/// The anchors that GitHub gives the headings of a page.
fn headings(text: &str) -> Vec<String> {
    let prose = Parts::of(text).prose;
    let lines = text.lines().zip(prose.lines()).filter(|(_, prose)| prose.starts_with('#'));
    lines.map(|(line, _)| anchor(line.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|&sign| sign.is_alphanumeric() || " -_".contains(sign));
    kept.map(|sign| if sign == ' ' { '-' } else { sign.to_ascii_lowercase() }).collect()
}

/// The paths of the repository in some code.
fn paths(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let ends = |sign: char| sign.is_whitespace() || "\"'`(){}[],;=".contains(sign);
    let words = code.split(ends).map(|word| (word.as_ptr() as usize - code.as_ptr() as usize, word));
    words.filter_map(|(at, word)| {
        let path = word.split(':').next().unwrap_or(word).trim_end_matches(['.', '/']);
        let is_ours = FOLDERS.iter().any(|folder| word.starts_with(folder));
        let is_ours = is_ours && !path.contains(['*', '<', '$', '|']) && !path.contains(BUILT);
        is_ours.then_some((at, path))
    })
}

/// `Type::name` in a span of code: what a reader looks for in the rustdoc.
fn names(code: &str) -> impl Iterator<Item = &str> {
    let is_path = |sign: char| sign == ':' || sign.is_ascii() && is_word(sign as u8);
    code.split(move |sign| !is_path(sign)).filter_map(|path| {
        let parts: Vec<&str> = path.split("::").collect();
        let [.., of, name] = parts[..] else { return None };
        let is_type = of.starts_with(|sign: char| sign.is_ascii_uppercase());
        (is_type && !name.is_empty()).then(|| &path[path.len() - of.len() - 2 - name.len()..])
    })
}

/// Paths from a module of the library, without its name: `config::Shuffle`.
fn module_paths(code: &str) -> impl Iterator<Item = &str> {
    let is_path = |sign: char| sign == ':' || sign.is_ascii() && is_word(sign as u8);
    let paths = code.split(move |sign| !is_path(sign)).map(|path| path.trim_start_matches("uringload::"));
    let paths = paths.map(|path| path.trim_end_matches(':'));
    paths.filter(|path| path.split_once("::").is_some_and(|(module, _)| MODULES.contains(&module)))
}

/// Whether a path is public, perhaps in a module of another crate that the library passes on.
fn has_path(surface: &str, path: &str) -> bool {
    let mut passed_on = surface.lines().filter_map(|line| line.strip_prefix("use uringload::")?.split_once(" = "));
    has_name(surface, path)
        || passed_on.any(|(here, there)| {
            let rest = path.strip_prefix(here).filter(|rest| rest.starts_with("::"));
            rest.is_some_and(|rest| has_name(surface, &format!("{there}{rest}")))
        })
}

fn has_name(surface: &str, name: &str) -> bool {
    surface.match_indices(name).any(|(at, _)| {
        let before = surface.as_bytes()[..at].last();
        let after = surface.as_bytes().get(at + name.len());
        !before.is_some_and(|&byte| is_word(byte)) && !after.is_some_and(|&byte| is_word(byte))
    })
}

fn is_inside(page: &Source) -> bool {
    ["docs/internals", "docs/decisions", "ARCHITECTURE.md"].iter().any(|path| page.path.starts_with(path))
}

/// Whether `cargo test` compiles a page: a README with the crate that it is of, all others with the library.
fn is_compiled(page: &Source, known: &Known<'_>) -> bool {
    let name = page.path.file_name().unwrap_or_default().to_string_lossy();
    let included = format!("{name}\")]");
    if name != "README.md" {
        return known.compiled.contains(&included);
    }
    let library = known.root.join(page.path.with_file_name("src/lib.rs"));
    std::fs::read_to_string(library).is_ok_and(|text| text.contains(&included))
}
