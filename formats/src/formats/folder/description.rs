//! The names of classes in the `data.yaml` of a YOLO dataset.

use saphyr_parser::{Event, Parser};
use std::ffi::OsString;
use std::path::Path;
use uringload_core::{Error, ErrorKind, Result};

/// What `names` is in a description.
#[derive(Debug)]
enum Names {
    /// A list, or keys and values by turns.
    List(Vec<String>),
    Map(Vec<String>),
}

/// The names of the classes, in the order of their numbers.
///
/// # Errors
/// `Corrupt` for what is no YAML, and for names that are neither a list nor numbered from 0 on; `Unavailable` for
/// labels with keypoints.
pub(super) fn names(text: &str, path: &Path) -> Result<Vec<OsString>> {
    let refused = |what: String| {
        let error = Error::new(ErrorKind::Corrupt, what).with_path(path);
        error.with_remedy("write names: [cat, dog], in the order of their numbers")
    };
    match find(text).map_err(refused)? {
        Found { has_keypoints: true, .. } => {
            let error = Error::new(ErrorKind::Unavailable, "the labels have keypoints (kpt_shape), which are not read");
            Err(error.with_path(path).with_remedy("convert them to COCO's keypoints, which are"))
        }
        Found { names: Some(Names::List(names)), .. } => Ok(names.into_iter().map(Into::into).collect()),
        Found { names: Some(Names::Map(words)), .. } => {
            let mut names: Vec<(u64, &String)> = Vec::new();
            for pair in words.chunks_exact(2) {
                let number = pair[0].parse().map_err(|_| refused(format!("class {:?} has no number", pair[0])))?;
                names.push((number, &pair[1]));
            }
            names.sort_unstable();
            if let Some((_, (number, _))) = (0..).zip(&names).find(|(wanted, (number, _))| wanted != number) {
                return Err(refused(format!("the classes are not numbered from 0 on: class {number}")));
            }
            Ok(names.into_iter().map(|(_, name)| name.into()).collect())
        }
        Found { names: None, .. } => Err(refused("the description has no names of classes".into())),
    }
}

/// What a description says.
#[derive(Debug, Default)]
struct Found {
    names: Option<Names>,
    has_keypoints: bool,
}

/// Looks through the outermost mapping. Nothing here nests, so that no depth of the text matters.
fn find(text: &str) -> Result<Found, String> {
    let mut found = Found::default();
    // Containers that are open, and the key whose value comes next.
    let (mut depth, mut key): (u64, Option<String>) = (0, None);
    for event in Parser::new_from_str(text) {
        let (event, _) = event.map_err(|error| format!("this is no YAML: {error}"))?;
        let is_names = key.as_deref() == Some("names");
        match (event, depth) {
            (Event::DocumentEnd, _) => break,
            (Event::Scalar(word, ..), 1) if key.is_none() => {
                found.has_keypoints |= word == "kpt_shape";
                key = Some(word.into_owned());
            }
            (Event::Scalar(..) | Event::Alias(_), 1) => key = None,
            (Event::Scalar(word, ..), 2) if is_names => match &mut found.names {
                Some(Names::List(words) | Names::Map(words)) => words.push(word.into_owned()),
                None => {}
            },
            (Event::SequenceStart(..) | Event::MappingStart(..) | Event::Alias(_), 2) if is_names => {
                return Err("a class has something other than a word for a name".into());
            }
            (Event::SequenceStart(..), 0) => return Err("the description is a list".into()),
            (start @ (Event::SequenceStart(..) | Event::MappingStart(..)), _) => {
                if depth == 1 && is_names {
                    let is_list = matches!(start, Event::SequenceStart(..));
                    found.names = Some(if is_list { Names::List(Vec::new()) } else { Names::Map(Vec::new()) });
                }
                depth += 1;
            }
            (Event::SequenceEnd | Event::MappingEnd, _) => {
                depth = depth.saturating_sub(1);
                if depth == 1 {
                    key = None;
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_people_write_them() {
        let of = |text: &str| names(text, Path::new("data.yaml")).map_err(|error| error.what().to_owned());
        let wanted = |names: &[&str]| Ok(names.iter().map(Into::into).collect::<Vec<OsString>>());
        assert_eq!(of("names: [cat, 'dog: big', \"7\"]\nnc: 3"), wanted(&["cat", "dog: big", "7"]));
        assert_eq!(of("# x\npath: a\ntrain: [a, b]\nnames:\n  - cat\n  - yes\nnc: 2"), wanted(&["cat", "yes"]));
        assert_eq!(of("names:\n  1: b\n  0: a\ndownload: |\n  names: [x]\n"), wanted(&["a", "b"]));
        assert_eq!(of("roboflow:\n  names: [x]\nnames: {0: a}"), wanted(&["a"]));
        assert_eq!(of("names: []"), wanted(&[]));
        for (text, words) in [
            ("nc: 2", "no names of classes"),
            ("- names", "is a list"),
            ("names: [[a]]", "other than a word"),
            ("names: {a: b}", "class \"a\" has no number"),
            ("names: {0: a, 2: b}", "not numbered from 0 on: class 2"),
            ("names: [a", "no YAML"),
            ("kpt_shape: [17, 3]\nnames: [a]", "keypoints"),
            ("", "no names of classes"),
        ] {
            let error = of(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
        let deep = format!("names: [a]\nx: {}", "[".repeat(100_000));
        assert!(of(&deep).is_err());
    }
}
