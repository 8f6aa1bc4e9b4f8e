//! Which file of a crate uses which, for the floors and against circles.
//!
//! A file uses the file that defines a name that it writes, wherever it gets the name from: re-exports are followed. So
//! lib.rs, or the file of a folder, uses nothing by declaring its modules and by passing their names on. Nor does a
//! file use those that it is a part of: what a folder's file defines is what its parts are written with. Test code
//! keeps to the floors, but makes no circles.

use super::source::{Source, is_word, word_at};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// Most files that may use each other in a circle.
pub const CIRCLE_FILES: usize = 3;
/// Most re-exports on the way from a name to its definition.
const REEXPORTS_MAX: usize = 16;
/// What stands in front of a name that is defined.
const ITEMS: [&str; 8] = ["const", "enum", "fn", "macro_rules!", "struct", "trait", "type", "union"];

/// The files of one crate.
pub struct Crate {
    /// The modules of lib.rs in their order: one may use only what stands before it.
    floors: Vec<String>,
    files: Vec<File>,
}

struct File {
    source: Source,
    /// `["decode", "jpeg"]` for src/decode/jpeg.rs, and nothing for lib.rs.
    module: Vec<String>,
    is_test: bool,
    /// The modules that it declares.
    children: BTreeSet<String>,
    /// What its `use` declarations bring in: each name with the path behind it, from the root.
    names: BTreeMap<String, Vec<String>>,
    /// The modules of which it passes every name on.
    globs: Vec<Vec<String>>,
    /// Every path that it writes, from the root.
    paths: Vec<Used>,
}

struct Used {
    at: usize,
    path: Vec<String>,
    /// Brought in by a `pub use`.
    is_public: bool,
}

impl Crate {
    /// `sources` are all files below `folder`. The root is lib.rs, or main.rs where there is no such file.
    pub fn new(folder: &str, sources: Vec<Source>) -> Crate {
        let has_lib = sources.iter().any(|source| source.path == Path::new(folder).join("lib.rs"));
        let mut files = Vec::new();
        for source in sources {
            let inside = source.path.strip_prefix(folder).expect("a file of the folder").with_extension("");
            let names = inside.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
            let mut module: Vec<String> = names.collect();
            if module == ["main"] && has_lib {
                continue; // a crate of its own
            }
            if module == ["main"] || module == ["lib"] || module.last().is_some_and(|last| last == "mod") {
                module.pop();
            }
            files.push(File::new(source, module));
        }
        let mut found = Crate { floors: Vec::new(), files };
        let root = found.file(&[]).expect("a crate has a root");
        found.floors = declarations(&found.files[root].source).into_iter().map(|(_, name)| name).collect();
        assert!(!found.floors.is_empty(), "{folder} has no modules");
        found.find_tests();
        found
    }

    /// Files that belong to no module of the root.
    pub fn lost(&self) -> Vec<String> {
        let files = self.files.iter().filter(|file| file.module.first().is_some_and(|name| self.floor(name).is_none()));
        files.map(|file| format!("{}: no module of the crate", file.source.path.display())).collect()
    }

    /// Uses of a module that stands later than the file's own, and paths to the root by `super`.
    pub fn against_the_floors(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for file in &self.files {
            let Some(own) = file.module.first() else { continue };
            let mut found = BTreeSet::new();
            for used in &file.paths {
                let targets = self.resolved(&used.path, 0).into_iter().map(|target| &self.files[target].module);
                let heads = targets.filter_map(|module| module.first()).chain(used.path.first());
                let later = heads.filter(|head| self.floor(head) > self.floor(own));
                found.extend(later.map(|head| (used.at, format!("{own} uses {head}, a later floor"))));
            }
            let climbs = file.climbs_to_the_root().into_iter();
            found.extend(climbs.map(|at| (at, "reaches the crate's root by super: write crate::".to_owned())));
            broken.extend(found.into_iter().map(|(at, what)| file.source.place(at, &what)));
        }
        broken
    }

    /// Each circle of more files than are allowed.
    pub fn circles(&self) -> Vec<Circle> {
        let uses: Vec<BTreeSet<usize>> = (0..self.files.len()).map(|file| self.uses_of(file)).collect();
        let names: Vec<String> = self.files.iter().map(|file| file.source.path.display().to_string()).collect();
        circles(&names, &uses)
    }

    /// The files that one uses, but for those that it is a part of, and for parts that it only passes names of on.
    fn uses_of(&self, file: usize) -> BTreeSet<usize> {
        let own = &self.files[file];
        let mut uses = BTreeSet::new();
        for used in own.paths.iter().filter(|used| !own.is_test && !own.source.is_test(used.at)) {
            let targets = self.resolved(&used.path, 0).into_iter();
            let is_part = |target: &[String]| used.is_public && target.starts_with(&own.module);
            let is_left_out = |target: &[String]| own.module.starts_with(target) || is_part(target);
            uses.extend(targets.filter(|&target| !is_left_out(&self.files[target].module)));
        }
        uses
    }

    /// The files that define what `path` names: two where a module and a function share the name.
    fn resolved(&self, path: &[String], reexports: usize) -> Vec<usize> {
        let found = (0..=path.len()).rev().find_map(|depth| Some((depth, self.file(&path[..depth])?)));
        let (depth, file) = found.expect("a crate has a root");
        let passed_on = |file: usize, depth: usize| {
            let behind = self.files[file].names.get(path.get(depth)?).filter(|_| reexports < REEXPORTS_MAX)?;
            let whole: Vec<String> = behind.iter().chain(&path[depth + 1..]).cloned().collect();
            Some(self.resolved(&whole, reexports + 1))
        };
        if depth < path.len() {
            let of_glob = |glob: &Vec<String>| self.file(glob).filter(|&from| self.files[from].defines(&path[depth]));
            let all = || vec![self.files[file].globs.iter().find_map(of_glob).unwrap_or(file)];
            return passed_on(file, depth).unwrap_or_else(all);
        }
        let shared = depth.checked_sub(1).and_then(|depth| passed_on(self.file(&path[..depth])?, depth));
        shared.into_iter().flatten().chain([file]).collect()
    }

    fn file(&self, module: &[String]) -> Option<usize> {
        self.files.iter().position(|file| file.module == module)
    }

    fn floor(&self, name: &str) -> Option<usize> {
        self.floors.iter().position(|floor| floor == name)
    }

    /// Marks the files that are declared behind `#[cfg(test)]`, and all below them.
    fn find_tests(&mut self) {
        let mut tests: Vec<Vec<String>> = Vec::new();
        for file in &self.files {
            let declared = declarations(&file.source).into_iter().filter(|(at, _)| file.source.is_test(*at));
            tests.extend(declared.map(|(_, name)| file.child(&name)));
        }
        for file in &mut self.files {
            file.is_test = tests.iter().any(|test| file.module.starts_with(test));
        }
    }
}

impl File {
    fn new(source: Source, module: Vec<String>) -> File {
        let children = declarations(&source).into_iter().map(|(_, name)| name).collect();
        let mut file = File {
            source,
            module,
            is_test: false,
            children,
            names: BTreeMap::new(),
            globs: Vec::new(),
            paths: Vec::new(),
        };
        let (mut names, mut globs) = (BTreeMap::new(), Vec::new());
        for (at, tree) in use_trees(&file.source) {
            let is_public = is_public(&file.source.code[..at]);
            for (name, path) in leaves(tree) {
                let Some(path) = file.rooted(&path, at) else { continue };
                if name == "*" {
                    globs.push(path.clone());
                } else if !file.source.is_test(at) && path != file.child(&name) {
                    names.insert(name, path.clone());
                }
                file.paths.push(Used { at, path, is_public });
            }
        }
        (file.names, file.globs) = (names, globs);
        for (at, path) in written_paths(&file.source) {
            if let Some(path) = file.rooted(&path, at) {
                file.paths.push(Used { at, path, is_public: false });
            }
        }
        file
    }

    /// Whether there is an item of that name.
    fn defines(&self, name: &str) -> bool {
        let of_keyword = |keyword: &&str| {
            self.source.words(keyword).any(|at| word_at(&self.source.code, at + keyword.len()) == name)
        };
        ITEMS.iter().any(of_keyword)
    }

    fn child(&self, name: &str) -> Vec<String> {
        self.module.iter().cloned().chain([name.to_owned()]).collect()
    }

    /// What is written as `path` at `at`, from the root; `None` if it leads out of the crate.
    fn rooted(&self, path: &[String], at: usize) -> Option<Vec<String>> {
        let (head, rest) = path.split_first()?;
        let base = match head.as_str() {
            "crate" => return Some(rest.to_vec()),
            "self" => self.module.clone(),
            "super" => {
                let climbed = path.iter().take_while(|part| *part == "super").count();
                let up = climbed.saturating_sub(self.inline_modules(at));
                let left = self.module.len().saturating_sub(up);
                return Some([&self.module[..left], &path[climbed..]].concat());
            }
            head if self.children.contains(head) => self.child(head),
            head => self.names.get(head)?.clone(),
        };
        Some([&base[..], rest].concat())
    }

    /// Where a path starts that climbs to the root by `super`, or above it.
    fn climbs_to_the_root(&self) -> Vec<usize> {
        let source = &self.source;
        let chains = source.words("super").filter(|&at| source.code[at..].starts_with("super::"));
        let chains = chains.filter(|&at| !source.code[..at].ends_with("super::"));
        let climbed = |at: usize| source.code[at..].split("::").take_while(|part| *part == "super").count();
        chains.filter(|&at| climbed(at) >= self.module.len() + self.inline_modules(at)).collect()
    }

    /// How many modules within the file enclose the byte at `at`.
    fn inline_modules(&self, at: usize) -> usize {
        let starts = self.source.words("mod").filter(|&start| start < at);
        let blocks = starts.filter_map(|start| self.source.block(start));
        blocks.filter(|&(open, close)| open < at && at < close).count()
    }
}

/// Files that use each other, and how.
pub struct Circle {
    pub files: Vec<String>,
    text: String,
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a circle of {} files, {CIRCLE_FILES} are allowed:{}", self.files.len(), self.text)
    }
}

/// Every circle of more than [`CIRCLE_FILES`] of these files: `uses` says for each which it uses, by number.
pub fn circles(names: &[String], uses: &[BTreeSet<usize>]) -> Vec<Circle> {
    let reach: Vec<BTreeSet<usize>> = (0..uses.len()).map(|from| reached(from, uses)).collect();
    let around = |from: usize| reach[from].iter().copied().filter(|&to| reach[to].contains(&from)).collect();
    let all: BTreeSet<BTreeSet<usize>> = (0..uses.len()).map(around).collect();
    let large = all.into_iter().filter(|circle| circle.len() > CIRCLE_FILES);
    let told = large.map(|circle| {
        let mut text = String::new();
        for &file in &circle {
            let within: Vec<&str> = uses[file].intersection(&circle).map(|&used| names[used].as_str()).collect();
            text.push_str(&format!("\n    {} uses {}", names[file], within.join(", ")));
        }
        Circle { files: circle.iter().map(|&file| names[file].clone()).collect(), text }
    });
    told.collect()
}

fn reached(from: usize, uses: &[BTreeSet<usize>]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(next) = open.pop() {
        open.extend(uses[next].iter().filter(|&&used| found.insert(used)));
    }
    found
}

/// Where each `mod name;` stands, and its name.
fn declarations(source: &Source) -> Vec<(usize, String)> {
    let named = source.words("mod").map(|at| (at, word_at(&source.code, at + "mod ".len())));
    let files = named.filter(|(at, name)| source.code[at + "mod ".len() + name.len()..].starts_with(';'));
    files.map(|(at, name)| (at, name.to_owned())).collect()
}

/// Each `use` declaration: where it stands, and the tree behind the word.
fn use_trees(source: &Source) -> Vec<(usize, &str)> {
    let trees = source.words("use").map(|at| (at, source.code[at + "use".len()..].trim_start()));
    // `use<'a>` is a bound of a type.
    let trees = trees.filter(|(_, tree)| !tree.starts_with('<'));
    trees.map(|(at, tree)| (at, tree.split(';').next().unwrap_or(tree))).collect()
}

/// Whether what stands before a `use` makes it public, to all or to some.
fn is_public(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or(before).trim();
    line == "pub" || line.starts_with("pub(") && line.ends_with(')')
}

/// The names that a tree such as `a::{b, c as d}` brings in, each with its path.
fn leaves(tree: &str) -> Vec<(String, Vec<String>)> {
    let mut prefix: Vec<String> = Vec::new();
    let mut rest = tree.trim();
    while let Some((head, behind)) = rest.split_once("::").filter(|(head, _)| head.bytes().all(is_word)) {
        prefix.push(head.to_owned());
        rest = behind.trim_start();
    }
    if let Some(list) = rest.strip_prefix('{') {
        let within = parts(list).into_iter().flat_map(leaves).map(|(name, path)| (name, [&prefix[..], &path].concat()));
        let own = |path: &[String]| path.last().cloned().unwrap_or_default();
        return within.map(|(name, path)| (if name == "self" { own(&path) } else { name }, path)).collect();
    }
    let (name, alias) = match rest.split_once(" as ") {
        Some((name, alias)) => (name.trim(), alias.trim()),
        None => (rest, rest),
    };
    match name {
        "" => Vec::new(),
        "*" => vec![(name.to_owned(), prefix)],
        // `a::{self}` is `a`.
        "self" => vec![(alias.to_owned(), prefix)],
        name => vec![(alias.to_owned(), [&prefix[..], &[name.to_owned()]].concat())],
    }
}

/// The parts of a list up to its closing brace; a list within one stays whole.
fn parts(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b',' | b'}' if depth == 0 => {
                found.push(&list[start..at]);
                start = at + 1;
                if byte == b'}' {
                    break;
                }
            }
            b'}' => depth -= 1,
            _ => {}
        }
    }
    found
}

/// Paths in the code, outside of `use`: where each starts, and its names.
fn written_paths(source: &Source) -> Vec<(usize, Vec<String>)> {
    let ranges = use_trees(source).into_iter().map(|(at, tree)| at..at + "use ".len() + tree.len());
    let ranges: Vec<_> = ranges.collect();
    let before = |at: usize| source.code[..at].bytes().rposition(|byte| !is_word(byte)).map_or(0, |before| before + 1);
    let mut found = Vec::new();
    let mut end = 0;
    for (at, _) in source.code.match_indices("::") {
        let start = before(at);
        if at < end || start == at || source.code[..start].ends_with("::") || ranges.iter().any(|r| r.contains(&at)) {
            continue;
        }
        let mut path = vec![source.code[start..at].to_owned()];
        end = at;
        while source.code[end..].starts_with("::") && source.code[end + 2..].bytes().next().is_some_and(is_word) {
            let name = word_at(&source.code, end + 2);
            path.push(name.to_owned());
            end += 2 + name.len();
        }
        found.push((start, path));
    }
    found
}
