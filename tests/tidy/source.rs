//! A file as the rules see it: its text, and for Rust the same text with comments and literals blanked out.

use std::path::{Path, PathBuf};

/// Extensions of what people read.
const TEXTS: [&str; 7] = ["rs", "py", "pyi", "md", "sh", "c", "h"];

/// One source file.
pub struct Source {
    /// Relative to the repository's root.
    pub path: PathBuf,
    /// As it is.
    pub text: String,
    /// The same number of bytes and lines, with every comment, string and character literal replaced by spaces.
    pub code: String,
}

impl Source {
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Source {
        let (path, text) = (path.into(), text.into());
        let code = blank_comments_and_literals(&text);
        assert_eq!(code.len(), text.len());
        Source { path, text, code }
    }

    /// Of another language than Rust, whose code is not looked at.
    pub fn script(path: impl Into<PathBuf>, text: impl Into<String>) -> Source {
        Source { path: path.into(), text: text.into(), code: String::new() }
    }

    /// The number of the line, from 1, that holds the byte at `offset`.
    pub fn line_of(&self, offset: usize) -> usize {
        self.text.as_bytes()[..offset].iter().filter(|&&byte| byte == b'\n').count() + 1
    }

    /// `what`, with the place that it is about.
    pub fn place(&self, offset: usize, what: &str) -> String {
        format!("{}:{}: {what}", self.path.display(), self.line_of(offset))
    }

    /// Whether the byte at `offset` lies in test code: in a file of tests, or in an item behind `#[cfg(test)]`.
    pub fn is_test(&self, offset: usize) -> bool {
        let name = self.path.file_name().is_some_and(|name| name == "tests.rs");
        let folder = self.path.components().any(|part| part.as_os_str() == "tests");
        let mut starts = self.code.match_indices("#[cfg(test)]").map(|(start, _)| start);
        name || folder || starts.any(|start| (start..=self.end_of_item(start)).contains(&offset))
    }

    /// Where the item that starts at `start` ends: at its closing brace, or at the `;` of one without a block.
    fn end_of_item(&self, start: usize) -> usize {
        let end = self.block(start).map(|(_, close)| close);
        end.or_else(|| self.code[start..].find(';').map(|at| start + at)).unwrap_or(self.code.len())
    }

    /// Where each whole word `word` starts in the code.
    pub fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        self.code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
            let before = self.code.as_bytes()[..at].last().copied();
            let after = self.code.as_bytes().get(at + word.len()).copied();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
    }

    /// Where the block that opens at or after `from` starts and ends, both braces included, or `None` where a `;` comes
    /// first, as in a trait's method without a body.
    pub fn block(&self, from: usize) -> Option<(usize, usize)> {
        let bytes = self.code.as_bytes();
        // A `;` inside brackets belongs to an array type such as `[u8; 4]`.
        let mut brackets = 0;
        let open = (from..bytes.len()).find(|&at| match bytes[at] {
            b'[' | b'(' => {
                brackets += 1;
                false
            }
            b']' | b')' => {
                brackets -= 1;
                false
            }
            b'{' => true,
            b';' => brackets == 0,
            _ => false,
        })?;
        if bytes[open] == b';' {
            return None;
        }
        let mut depth = 0;
        (open..bytes.len())
            .find(|&at| {
                depth += i32::from(bytes[at] == b'{') - i32::from(bytes[at] == b'}');
                depth == 0
            })
            .map(|close| (open, close))
    }
}

/// Every Rust file below `folder`, in order of path; nothing where the folder is not there.
pub fn rust_files(root: &Path, folder: &str) -> Vec<Source> {
    let found = files(root, folder, |path| path.extension().is_some_and(|extension| extension == "rs"));
    found.into_iter().map(|(path, text)| Source::new(path, text)).collect()
}

/// Every Python file below `folder`, in order of path.
pub fn python_files(root: &Path, folder: &str) -> Vec<Source> {
    let is_python = |path: &Path| path.extension().is_some_and(|extension| extension == "py" || extension == "pyi");
    files(root, folder, is_python).into_iter().map(|(path, text)| Source::script(path, text)).collect()
}

/// Every shell script below `folder`, in order of path. One that is a command has no extension.
pub fn shell_files(root: &Path, folder: &str) -> Vec<Source> {
    let found = files(root, folder, |path| path.extension().is_none_or(|extension| extension == "sh"));
    let is_script = |path: &Path, text: &str| path.extension().is_some() || text.starts_with("#!");
    let scripts = found.into_iter().filter(|(path, text)| is_script(path, text));
    scripts.map(|(path, text)| Source::script(path, text)).collect()
}

/// Every text below `folder` that people read: sources, scripts and pages, in order of path.
pub fn texts(root: &Path, folder: &str) -> Vec<Source> {
    let is_text = |path: &Path| {
        path.extension().is_some_and(|extension| TEXTS.iter().any(|&text| extension == text))
            || path.starts_with(root.join(".ci"))
    };
    files(root, folder, is_text).into_iter().map(|(path, text)| Source::script(path, text)).collect()
}

/// Those files below `folder` that are wanted and are text, by path from the root.
fn files(root: &Path, folder: &str, is_wanted: impl Fn(&Path) -> bool) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.expect("a folder of sources is readable").path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                folders.push(path);
            } else if is_wanted(&path)
                && let Ok(text) = std::fs::read_to_string(&path)
            {
                found.push((path.strip_prefix(root).expect("below the root").to_owned(), text));
            }
        }
    }
    found.sort();
    found
}

/// The word that starts at or behind the blanks at `from`.
pub fn word_at(text: &str, from: usize) -> &str {
    let rest = text.get(from..).unwrap_or_default().trim_start();
    let end = rest.bytes().position(|byte| !is_word(byte)).unwrap_or(rest.len());
    &rest[..end]
}

pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Replaces each byte of comments, strings and character literals by a space, and keeps newlines.
fn blank_comments_and_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    while code.len() < bytes.len() {
        let at = code.len();
        let len = literal_or_comment(&bytes[at..], at.checked_sub(1).map(|before| bytes[before]));
        if len == 0 {
            code.push(bytes[at]);
        }
        code.extend(bytes[at..at + len].iter().map(|&byte| if byte == b'\n' { b'\n' } else { b' ' }));
    }
    String::from_utf8_lossy(&code).into_owned()
}

/// The length of the comment or literal that `rest` starts with, or 0. `before` is the byte in front of it.
fn literal_or_comment(rest: &[u8], before: Option<u8>) -> usize {
    let inside_word = before.is_some_and(is_word);
    match rest {
        [b'/', b'/', ..] => find(rest, b"\n").unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment(rest),
        [b'"', ..] => quoted(rest, 0),
        [b'b' | b'c', b'"', ..] if !inside_word => quoted(rest, 1),
        [b'r', b'"' | b'#', ..] if !inside_word => raw_string(rest, 1),
        [b'b' | b'c', b'r', b'"' | b'#', ..] if !inside_word => raw_string(rest, 2),
        [b'\'', b'\\', ..] => character(rest, 3),
        // A lifetime has no closing quote behind its first character.
        [b'\'', first, ..] => {
            let width = match first {
                0..=0x7f => 1,
                0xf0.. => 4,
                0xe0.. => 3,
                _ => 2,
            };
            if rest.get(1 + width) == Some(&b'\'') { 2 + width } else { 0 }
        }
        _ => 0,
    }
}

/// An escaped character such as `'\n'` or `'\u{1f}'`: ends at the first quote from `from` on.
fn character(rest: &[u8], from: usize) -> usize {
    find(&rest[from.min(rest.len())..], b"'").map_or(0, |at| from + at + 1)
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn quoted(rest: &[u8], open: usize) -> usize {
    let mut at = open + 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_string(rest: &[u8], prefix: usize) -> usize {
    let hashes = rest[prefix..].iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(prefix + hashes) != Some(&b'"') {
        return 0; // `r#match`, a raw identifier
    }
    let mut end = vec![b'"'];
    end.resize(1 + hashes, b'#');
    let start = prefix + hashes + 1;
    find(&rest[start..], &end).map_or(rest.len(), |at| start + at + end.len())
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
