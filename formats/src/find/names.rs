//! What the names of files say about them, in every format.

use crate::dataset::SkipReason;
use std::path::Path;

/// Schemes of what is not on a file system, and how to bring it there.
const REMOTE: [(&str, &str); 9] = [
    ("s3", "copy it (aws s3 sync, s5cmd) or mount it (mount-s3)"),
    ("gs", "copy it (gcloud storage rsync) or mount it (gcsfuse)"),
    ("az", "copy it (azcopy) or mount it (blobfuse2)"),
    ("abfs", "copy it (azcopy) or mount it (blobfuse2)"),
    ("abfss", "copy it (azcopy) or mount it (blobfuse2)"),
    ("hf", "download it: hf download NAME --repo-type dataset --local-dir DIR"),
    ("hdfs", "copy it: hdfs dfs -get"),
    ("http", "download it"),
    ("https", "download it"),
];

/// The file in which a packer notes what the shards beside it are made of.
pub const MANIFEST_NAME: &str = "pack.json";

/// The scheme of a URL (RFC 3986, 3.1); `None` for the path of a file.
pub fn url_scheme(named: &Path) -> Option<&str> {
    let (scheme, _) = named.to_str()?.split_once("://")?;
    let is_one = scheme.starts_with(|first: char| first.is_ascii_alphabetic());
    let may_go_on = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    Some(scheme).filter(|scheme| is_one && scheme.bytes().all(may_go_on))
}

/// How to bring to a file system what this URL names; `None` for what is no URL of these.
pub(crate) fn elsewhere(named: &Path) -> Option<&'static str> {
    let scheme = url_scheme(named)?;
    REMOTE.iter().find(|(known, _)| scheme.eq_ignore_ascii_case(known)).map(|(_, remedy)| *remedy)
}

/// Whether a file name has this extension, in any case: one with a dot is none.
#[inline]
pub(crate) fn has_extension(name: &[u8], extension: &str) -> bool {
    let Some((stem, end)) = name.len().checked_sub(extension.len()).map(|at| name.split_at(at)) else { return false };
    stem.last() == Some(&b'.') && end.eq_ignore_ascii_case(extension.as_bytes()) && !extension.contains('.')
}

/// Whether a name ends so, in any case.
#[inline]
pub(crate) fn ends_like(name: &[u8], ending: &[u8]) -> bool {
    name.len().checked_sub(ending.len()).is_some_and(|at| name[at..].eq_ignore_ascii_case(ending))
}

/// The last component of a name.
pub(crate) fn base_of(name: &[u8]) -> &[u8] {
    name.rsplit(|&byte| byte == b'/').next().unwrap_or(name)
}

/// A name without what follows the last dot of its last component, unless that begins with it.
pub(crate) fn without_extension(name: &[u8]) -> &[u8] {
    let base = base_of(name);
    let dot = base.iter().rposition(|&byte| byte == b'.').filter(|&dot| dot > 0);
    dot.map_or(name, |dot| &name[..name.len() - base.len() + dot])
}

/// Splits a member's name into key and field, or says why it has none.
///
/// The rule is webdataset's `base_plus_ext`, `^((?:.*/|)[^.]+)[.]([^/]*)$`: the key is everything up to the first dot
/// of the last component, the field everything after it. With that rule, `a/.hidden.jpg` has the key `a/`. Here a last
/// component that begins with a dot has no key, as in DALI: such a file was never meant to be a sample. `.` in the
/// expression does not match a newline, so a dot and a later newline in a folder's name need a slash between them.
pub fn split_name(name: &[u8]) -> Result<(&[u8], &[u8]), SkipReason> {
    if is_metadata(name) {
        return Err(SkipReason::Metadata);
    }
    let base = name.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let dot = name[base..].iter().position(|&byte| byte == b'.').filter(|&dot| dot > 0);
    let dot = base + dot.ok_or(SkipReason::NoField)?;
    if let Some(newline) = name[..base].iter().position(|&byte| byte == b'\n') {
        let plain = name[..newline].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        if name[plain..base].contains(&b'.') {
            return Err(SkipReason::NoField);
        }
    }
    Ok((&name[..dot], &name[dot + 1..]))
}

/// Whether the first component is `__anything__`, as in webdataset's `skip_meta`.
fn is_metadata(name: &[u8]) -> bool {
    let first = name.split(|&byte| byte == b'/').next().unwrap_or_default();
    first.len() >= 4 && first.starts_with(b"__") && first.ends_with(b"__")
}

/// Names drawn by a seed, of parts that decide what they are, in several cases and with any bytes between them.
#[cfg(test)]
pub(crate) fn drawn_names(seed: u64, parts: &[&str]) -> Vec<Vec<u8>> {
    let mut state = seed;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize % below
    };
    let mut name = || {
        let mut name = Vec::new();
        for _ in 0..=draw(5) {
            match draw(8) {
                0 => name.push(draw(256) as u8),
                1 => name.extend_from_slice([&b"."[..], b"/", b"-", b"_", b".."][draw(5)]),
                2 => name.extend(parts[draw(parts.len())].to_uppercase().bytes()),
                3 => name.extend(format!("{:05}", draw(100_000)).bytes()),
                4 => name.extend(
                    "\u{212a}\u{130}\u{df}".chars().nth(draw(3)).iter().flat_map(|it| it.to_string().into_bytes()),
                ),
                _ => name.extend(parts[draw(parts.len())].bytes()),
            }
        }
        name
    };
    (0..40_000).map(|_| name()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_begins_with_a_letter_and_has_no_slash() {
        let cases = [
            ("s3://bucket", Some("s3")),
            ("svn+ssh://host", Some("svn+ssh")),
            ("S3.x-1://", Some("S3.x-1")),
            ("3s://bucket", None),
            ("://bucket", None),
            ("folder/s3://bucket", None),
            ("s3:/bucket", None),
            ("C:\\data", None),
            ("data", None),
        ];
        for (named, scheme) in cases {
            assert_eq!(url_scheme(Path::new(named)), scheme, "{named}");
        }
    }

    #[test]
    fn endings_are_what_they_are_in_lower_case() {
        let endings = ["tar", "gz", "npy", "t", "", "tar.gz", ".tar.gz", "-of-"];
        for name in drawn_names(1, &endings) {
            let lower = name.to_ascii_lowercase();
            let last = lower.iter().rposition(|&byte| byte == b'.').map(|dot| &lower[dot + 1..]);
            for ending in endings {
                assert_eq!(has_extension(&name, ending), last == Some(ending.as_bytes()), "{name:?} {ending}");
                assert_eq!(
                    ends_like(&name, ending.as_bytes()),
                    lower.ends_with(ending.as_bytes()),
                    "{name:?} {ending}"
                );
            }
        }
    }

    /// Results of webdataset 1.0.2, and of DALI for names that begin with a dot.
    #[test]
    fn names_split_as_webdataset_has_it() {
        let split = |name: &str| {
            split_name(name.as_bytes()).map(|(key, field)| {
                (String::from_utf8(key.to_vec()).unwrap(), String::from_utf8(field.to_vec()).unwrap())
            })
        };
        for (name, key, field) in [
            ("a.jpg", "a", "jpg"),
            ("a/b.output.png", "a/b", "output.png"),
            ("a.b/c.jpg", "a.b/c", "jpg"),
            ("./a.jpg", "./a", "jpg"),
            ("dir.x/y.tar.gz", "dir.x/y", "tar.gz"),
            ("a.JPG", "a", "JPG"),
            ("a.", "a", ""),
            ("a..b", "a", ".b"),
            ("/a.b", "/a", "b"),
            ("../a.b", "../a", "b"),
            ("__x.jpg", "__x", "jpg"),
            ("a/__meta__/x.jpg", "a/__meta__/x", "jpg"),
            ("___.a", "___", "a"),
            ("n\nl/a.b", "n\nl/a", "b"),
            ("c.d/n\nl/a.b", "c.d/n\nl/a", "b"),
        ] {
            assert_eq!(split(name), Ok((key.into(), field.into())), "{name:?}");
        }
        for name in
            [".hidden", "noext", "a/.hidden.jpg", "", ".", "..", "a/", "a.b/c", "c.d\n/a.b", "x.y/", "d/n.\nl/a.b"]
        {
            assert_eq!(split(name), Err(SkipReason::NoField), "{name:?}");
        }
        for name in ["__meta__", "__meta__/x.json", "____", "__a.b__"] {
            assert_eq!(split(name), Err(SkipReason::Metadata), "{name:?}");
        }
    }
}
