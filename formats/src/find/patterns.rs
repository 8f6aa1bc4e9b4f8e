//! Expands what a user types for files: braces `{000..146}` and `{a,b}` as in a shell, and patterns with `*`, `?`,
//! `[a-z]` and `**`.
//!
//! The crate `glob` matches single names. The walk is our own, because the one in the crate silently skips names that
//! are not UTF-8.

use crate::find::absent::advice;
use crate::place::Place;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use uringload_core::{Error, ErrorKind, Result};

/// Most paths that braces may expand to. More is a typo, such as `{0..9999999999}`.
const EXPANSION_MAX: usize = 1 << 20;

/// The meaning of one argument.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    /// A place that was named explicitly.
    Named(Place),
    /// The paths that match a pattern, relative to the part of the pattern before its first wildcard; sorted by bytes.
    Matched { root: Place, names: Vec<PathBuf> },
}

/// Appends the matches of `place`. One that exists is taken literally, whatever characters it contains.
pub(crate) fn expand(place: &Place, out: &mut Vec<Argument>) -> Result<()> {
    if !has_any(place.bytes(), b"{*?[") || place.is_taken() {
        out.push(Argument::Named(place.clone()));
        return Ok(());
    }
    for bytes in expand_braces(place)? {
        let place = place.with_bytes(bytes);
        if !has_any(place.bytes(), b"*?[") || place.is_taken() {
            out.push(Argument::Named(place));
            continue;
        }
        let (root, steps) = parse_pattern(&place)?;
        if let Some(far) = root.as_far() {
            // One listing answers whatever the pattern asks.
            far.tree.all(&far.inside()).map_err(|error| Error::io("cannot list", error).with_path(&root))?;
        }
        let mut names = Vec::new();
        find(&root, Path::new(""), &steps, &mut names)?;
        if names.is_empty() {
            let error = Error::new(ErrorKind::NotFound, "no file matches the pattern").with_path(place);
            let none = || "check the pattern, and what is in the folders that it names".to_owned();
            return Err(error.with_remedy(advice(root.path()).unwrap_or_else(none)));
        }
        names.sort_unstable_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
        // With two `**`, the same file can be reached in more than one way.
        names.dedup();
        out.push(Argument::Matched { root, names });
    }
    Ok(())
}

fn has_any(text: &[u8], wanted: &[u8]) -> bool {
    text.iter().any(|byte| wanted.contains(byte))
}

/// Expands all braces from left to right.
fn expand_braces(place: &Place) -> Result<Vec<Vec<u8>>> {
    // Finished paths, and paths with a part that is still to be expanded.
    let mut done = Vec::new();
    let mut pending = vec![(Vec::new(), place.bytes().to_vec())];
    while let Some((mut head, tail)) = pending.pop() {
        let Some((open, close, choices)) = first_braces(&tail)? else {
            head.extend_from_slice(&tail);
            done.push(head);
            continue;
        };
        if done.len() + pending.len() + choices.len() > EXPANSION_MAX {
            let what = format!("the braces stand for more than {EXPANSION_MAX} paths");
            return Err(Error::new(ErrorKind::InvalidArgument, what).with_path(place));
        }
        head.extend_from_slice(&tail[..open]);
        // Pushed last to first, so that they are popped in order. A choice may itself contain braces.
        for choice in choices.into_iter().rev() {
            pending.push((head.clone(), [&choice, &tail[close + 1..]].concat()));
        }
    }
    Ok(done)
}

/// Finds the first braces with more than one choice: where they open and close, and their choices. Other braces are
/// literal, as in a shell.
#[expect(clippy::type_complexity, reason = "used once, right above")]
fn first_braces(text: &[u8]) -> Result<Option<(usize, usize, Vec<Vec<u8>>)>> {
    for open in (0..text.len()).filter(|&at| text[at] == b'{') {
        let (mut depth, mut commas) = (0, vec![open]);
        let close = (open..text.len()).find(|&at| {
            match text[at] {
                b'{' => depth += 1,
                b'}' => depth -= 1,
                b',' if depth == 1 => commas.push(at),
                _ => {}
            }
            depth == 0
        });
        let Some(close) = close else { continue };
        if commas.len() > 1 {
            commas.push(close);
            let choices = commas.windows(2).map(|pair| text[pair[0] + 1..pair[1]].to_vec()).collect();
            return Ok(Some((open, close, choices)));
        }
        if let Some(choices) = number_range(&text[open + 1..close])? {
            return Ok(Some((open, close, choices)));
        }
    }
    Ok(None)
}

/// `7..12`, `007..012` (padded with zeros to the longer end), `12..7` (downwards).
fn number_range(text: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
    let Some((first, last)) = std::str::from_utf8(text).ok().and_then(|text| text.split_once("..")) else {
        return Ok(None);
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(first) || !is_number(last) {
        return Ok(None);
    }
    let parse = |text: &str| {
        let what = format!("the number {text} in the braces {{{first}..{last}}} is too large");
        text.parse::<u64>().map_err(|error| Error::new(ErrorKind::InvalidArgument, what).with_source(error))
    };
    let (from, to) = (parse(first)?, parse(last)?);
    if from.abs_diff(to) >= EXPANSION_MAX as u64 {
        let what = format!("the braces {{{first}..{last}}} stand for more than {EXPANSION_MAX} paths");
        return Err(Error::new(ErrorKind::InvalidArgument, what));
    }
    let padded = |text: &str| text.len() > 1 && text.starts_with('0');
    let width = if padded(first) || padded(last) { first.len().max(last.len()) } else { 0 };
    let write = |number: u64| format!("{number:0width$}").into_bytes();
    let range = from.min(to)..=from.max(to);
    Ok(Some(if from <= to { range.map(write).collect() } else { range.rev().map(write).collect() }))
}

/// One step of a pattern: one component of the path.
enum Step {
    Literal(OsString),
    Pattern(glob::Pattern),
    /// `**`: any number of folders, including none.
    AnyDepth,
}

/// Splits a pattern into the part before the first wildcard, and the steps after it.
fn parse_pattern(place: &Place) -> Result<(Place, Vec<Step>)> {
    if let Some(far) = place.as_far() {
        return pattern_of_key(place, &far.key);
    }
    let path = place.path();
    let (mut root, mut steps) = (PathBuf::new(), Vec::new());
    for component in path.components() {
        let Component::Normal(name) = component else {
            // "/", "." and ".." are not names of files.
            if steps.is_empty() {
                root.push(component);
            } else {
                steps.push(Step::Literal(component.as_os_str().to_os_string()));
            }
            continue;
        };
        if !has_any(name.as_bytes(), b"*?[") {
            if steps.is_empty() {
                root.push(name);
            } else {
                steps.push(Step::Literal(name.to_os_string()));
            }
        } else {
            push_wildcards(place, name, &mut steps)?;
        }
    }
    if root.as_os_str().is_empty() {
        root.push(".");
    }
    Ok((Place::new(root), steps))
}

/// As `parse_pattern`, for a key: all between its slashes are names.
fn pattern_of_key(place: &Place, key: &[u8]) -> Result<(Place, Vec<Step>)> {
    let names: Vec<&[u8]> = key.split(|&byte| byte == b'/').collect();
    let literal = names.iter().position(|name| has_any(name, b"*?[")).unwrap_or(names.len());
    let mut steps = Vec::new();
    for name in names[literal..].iter().map(|name| OsStr::from_bytes(name)) {
        if has_any(name.as_bytes(), b"*?[") {
            push_wildcards(place, name, &mut steps)?;
        } else {
            steps.push(Step::Literal(name.to_os_string()));
        }
    }
    Ok((place.with_bytes(names[..literal].join(&b'/')), steps))
}

/// Adds the step of a name that has wildcards.
fn push_wildcards(place: &Place, name: &OsStr, steps: &mut Vec<Step>) -> Result<()> {
    if name == "**" {
        if !matches!(steps.last(), Some(Step::AnyDepth)) {
            steps.push(Step::AnyDepth);
        }
        return Ok(());
    }
    let bad =
        |why: String| Error::new(ErrorKind::InvalidArgument, format!("the pattern is wrong: {why}")).with_path(place);
    let text = name.to_str().ok_or_else(|| bad("a name with a wildcard is not UTF-8".into()))?;
    steps.push(Step::Pattern(glob::Pattern::new(text).map_err(|error| bad(error.msg.into()))?));
    Ok(())
}

/// Appends what matches `steps` below `root/relative`.
fn find(root: &Place, relative: &Path, steps: &[Step], out: &mut Vec<PathBuf>) -> Result<()> {
    let Some((step, rest)) = steps.split_first() else {
        out.push(relative.to_path_buf());
        return Ok(());
    };
    match step {
        Step::Literal(name) => {
            let path = relative.join(name);
            if root.join(&path).is_taken() {
                find(root, &path, rest, out)?;
            }
        }
        Step::Pattern(pattern) => {
            for (name, _) in list(&root.join(relative))? {
                // Bytes that are not UTF-8 become U+FFFD, which `*` and `?` match. A leading dot must be written out.
                let options = glob::MatchOptions { require_literal_leading_dot: true, ..Default::default() };
                if pattern.matches_with(&name.to_string_lossy(), options) {
                    find(root, &relative.join(name), rest, out)?;
                }
            }
        }
        // At the end it means the folder, which is read with everything below it.
        Step::AnyDepth if rest.is_empty() => out.push(relative.to_path_buf()),
        Step::AnyDepth => {
            find(root, relative, rest, out)?;
            for (name, is_folder) in list(&root.join(relative))? {
                if is_folder && !name.as_bytes().starts_with(b".") {
                    find(root, &relative.join(name), steps, out)?;
                }
            }
        }
    }
    Ok(())
}

/// The names in a folder, and whether each is a folder itself (a link to one is not). Empty if there is no such folder.
fn list(place: &Place) -> Result<Vec<(OsString, bool)>> {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    let failed = |error| Error::io("cannot list the folder", error).with_path(place);
    let entries = match place.list() {
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    entries
        .map(|entry| {
            let entry = entry.map_err(failed)?;
            Ok((entry.name(), entry.is_folder().map_err(failed)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn braces(text: &str) -> Vec<String> {
        let paths = expand_braces(&Place::new(text)).unwrap();
        paths.into_iter().map(|bytes| String::from_utf8(bytes).unwrap()).collect()
    }

    #[test]
    fn braces_expand_as_in_a_shell() {
        assert_eq!(braces("a{b,c}d"), ["abd", "acd"]);
        assert_eq!(braces("{8..11}"), ["8", "9", "10", "11"]);
        assert_eq!(braces("{008..11}"), ["008", "009", "010", "011"]);
        assert_eq!(braces("{0..2}"), ["0", "1", "2"]);
        assert_eq!(braces("{2..0}"), ["2", "1", "0"]);
        assert_eq!(braces("{a,b}{1..2}"), ["a1", "a2", "b1", "b2"]);
        assert_eq!(braces("{a,b{1..2},}x"), ["ax", "b1x", "b2x", "x"]);
    }

    #[test]
    fn braces_without_a_choice_stand_for_themselves() {
        for text in ["{a}", "{}", "{", "a{b", "{a..c}", "}{", "{1..}"] {
            assert_eq!(braces(text), [text]);
        }
        assert_eq!(braces("{a}{b,c}"), ["{a}b", "{a}c"]);
        assert_eq!(braces("{{a,b}"), ["{a", "{b"]);
    }

    #[test]
    fn too_many_paths_are_refused() {
        for text in ["{0..9999999999}", "{0..999}{0..999}{0..999}", "{0..99999999999999999999999}"] {
            assert_eq!(expand_braces(&Place::new(text)).unwrap_err().kind(), ErrorKind::InvalidArgument, "{text}");
        }
    }

    fn matched(root: &Path, pattern: &str) -> Vec<String> {
        let mut places = Vec::new();
        expand(&Place::new(root.join(pattern)), &mut places).unwrap();
        let [Argument::Matched { names, .. }] = &places[..] else { panic!("{places:?}") };
        names.iter().map(|name| name.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn wildcards_match_names_and_depths() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a/1.jpg", "a/2.png", "a/.3.jpg", "b/c/4.jpg", ".h/5.jpg", "6.jpg"] {
            std::fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::write(folder.path().join(OsStr::from_bytes(b"a/\xff.jpg")), "").unwrap();
        assert_eq!(matched(folder.path(), "*/*.jpg"), ["a/1.jpg", "a/\u{fffd}.jpg"]);
        assert_eq!(matched(folder.path(), "**/*.jpg"), ["6.jpg", "a/1.jpg", "a/\u{fffd}.jpg", "b/c/4.jpg"]);
        assert_eq!(matched(folder.path(), "**/c/**/*.jpg"), ["b/c/4.jpg"]);
        assert_eq!(matched(folder.path(), "[ab]"), ["a", "b"]);
        assert_eq!(matched(folder.path(), "a/.*.jpg"), [".3.jpg"]);
        assert_eq!(matched(folder.path(), "?/c/4.jpg"), ["b/c/4.jpg"]);
    }

    #[test]
    fn what_exists_is_not_a_pattern() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::new(folder.path().join("a[1]{2,3}*"));
        std::fs::write(&place, "").unwrap();
        let mut places = Vec::new();
        expand(&place, &mut places).unwrap();
        assert_eq!(places, [Argument::Named(place)]);
    }

    #[test]
    fn a_pattern_without_match_and_a_bad_one_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let kind =
            |pattern: &str| expand(&Place::new(folder.path().join(pattern)), &mut Vec::new()).unwrap_err().kind();
        assert_eq!(kind("*.tar"), ErrorKind::NotFound);
        assert_eq!(kind("missing/*.tar"), ErrorKind::NotFound);
        assert_eq!(kind("[a"), ErrorKind::InvalidArgument);
    }
}
