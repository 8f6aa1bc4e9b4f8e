//! The rules about Python and shell: those about Rust that do not depend on the language, and what Python imports.

use super::imports::{Circle, circles};
use super::rules::FUNCTION_LINES;
use super::source::{Source, word_at};
use std::collections::BTreeSet;

/// The modules of one Python package.
pub struct Package {
    files: Vec<Source>,
}

impl Package {
    /// `files` are those of one folder, without those below it.
    pub fn new(files: Vec<Source>) -> Package {
        Package { files }
    }

    /// Each circle of more modules than are allowed. An import for types alone, behind `if TYPE_CHECKING:`, is none;
    /// one within a function is, since it only puts the circle off. The package itself, which passes names on, is left
    /// out.
    pub fn circles(&self) -> Vec<Circle> {
        let uses: Vec<BTreeSet<usize>> = self.files.iter().map(|file| self.used_by(file)).collect();
        let names: Vec<String> = self.files.iter().map(|file| file.path.display().to_string()).collect();
        circles(&names, &uses)
    }

    fn used_by(&self, file: &Source) -> BTreeSet<usize> {
        let named = imported(file);
        named.iter().filter_map(|name| self.files.iter().position(|other| stem(other) == *name)).collect()
    }
}

/// The functions of a Python file that are too long, from their `def` to the last line that is indented further.
pub fn short_functions(file: &Source) -> Vec<String> {
    let lines = code_lines(&file.text);
    let mut broken = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(signature) = line.trim_start().strip_prefix("async ").or(Some(line.trim_start())) else { continue };
        let Some(signature) = signature.strip_prefix("def ") else { continue };
        let own = indent(line);
        // The end of a signature over several lines stands as far to the left as its start.
        let inside = lines[at + 1..].iter().take_while(|line| {
            line.trim().is_empty() || indent(line) > own || indent(line) == own && line.trim_start().starts_with(')')
        });
        let last =
            inside.enumerate().filter(|(_, line)| !line.trim().is_empty()).last().map_or(0, |(below, _)| below + 1);
        if last + 1 > FUNCTION_LINES {
            let name = word_at(signature, 0);
            let what = format!("{name} has {} lines, {FUNCTION_LINES} are allowed", last + 1);
            broken.push(format!("{}:{}: {what}", file.path.display(), at + 1));
        }
    }
    broken
}

/// Pipes into `grep -q`, which ends at the first match: whoever still writes then fails, and with `pipefail` the pipe.
pub fn whole_pipes(file: &Source) -> Vec<String> {
    let quiet = |line: &str| {
        line.replace("||", ";").split('|').skip(1).any(|part| {
            let mut words = part.split_whitespace();
            words.next() == Some("grep") && words.next().is_some_and(|word| word.starts_with('-') && word.contains('q'))
        })
    };
    let lines = file.text.lines().enumerate().filter(|(_, line)| quiet(line));
    lines.map(|(at, _)| format!("{}:{}: compare its whole output", file.path.display(), at + 1)).collect()
}

/// The names behind the package's own imports: modules, and others that no module has.
fn imported(file: &Source) -> BTreeSet<String> {
    let lines = code_lines(&file.text);
    let mut found = BTreeSet::new();
    let mut types_only: Option<usize> = None;
    for (at, line) in lines.iter().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        types_only = types_only.filter(|&own| indent(line) > own);
        if line.trim() == "if TYPE_CHECKING:" {
            types_only = Some(indent(line));
        }
        let Some((module, names)) = line.trim().strip_prefix("from .").and_then(|rest| rest.split_once(" import "))
        else {
            continue;
        };
        if types_only.is_some() {
            continue;
        }
        if !module.is_empty() {
            found.insert(module.split('.').next().unwrap_or(module).to_owned());
            continue;
        }
        // The list may go on over the lines up to its parenthesis.
        let more = lines[at + 1..].iter().take_while(|_| names.trim() == "(").take_while(|line| line.trim() != ")");
        let all: Vec<&str> = [names].into_iter().chain(more.map(String::as_str)).collect();
        let all = all.join(",");
        found.extend(all.split([',', '(', ')']).map(|name| word_at(name, 0).to_owned()));
    }
    found
}

/// The lines, without what is inside strings over several of them.
fn code_lines(text: &str) -> Vec<String> {
    let mut inside = None;
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut code = String::new();
        let mut rest = line;
        while !rest.is_empty() {
            let quotes: &[&str] =
                if let Some(quote) = &inside { std::slice::from_ref(quote) } else { &["\"\"\"", "'''"] };
            let next = quotes.iter().filter_map(|quote| Some((rest.find(quote)?, *quote))).min();
            let Some((at, quote)) = next else { break };
            if inside.take().is_none() {
                code.push_str(&rest[..at]);
                inside = Some(quote);
            }
            rest = &rest[at + quote.len()..];
        }
        if inside.is_none() {
            code.push_str(rest);
        }
        lines.push(code);
    }
    lines
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// "_loader" for _loader.py.
fn stem(file: &Source) -> String {
    file.path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}
