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

/// How to bring to a file system what this URL names; `None` for what is no URL of these.
pub(crate) fn elsewhere(named: &Path) -> Option<&'static str> {
    let (scheme, _) = named.to_str()?.split_once("://")?;
    REMOTE.iter().find(|(known, _)| scheme.eq_ignore_ascii_case(known)).map(|(_, remedy)| *remedy)
}

/// Whether a file name has this extension, in any case.
pub(crate) fn has_extension(name: &[u8], extension: &str) -> bool {
    let dot = name.iter().rposition(|&byte| byte == b'.');
    dot.is_some_and(|dot| name[dot + 1..].eq_ignore_ascii_case(extension.as_bytes()))
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

#[cfg(test)]
mod tests {
    use super::*;

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
