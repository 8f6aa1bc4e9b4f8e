//! Groups members into samples: names split into key and field as in webdataset; consecutive members with one key form
//! a sample.

use crate::sidecar::{Builder, COLUMNS_MAX, KEY_BYTES_MAX, Member};
use crate::skipped::SkipReason;
use std::collections::HashMap;

/// Splits a member's name into key and field, or says why it has none.
///
/// The rule is webdataset's `base_plus_ext`, `^((?:.*/|)[^.]+)[.]([^/]*)$`: the key is everything up to the first dot
/// of the last component, the field everything after it. With that rule, `a/.hidden.jpg` has the key `a/`. Here a last
/// component that begins with a dot has no key, as in DALI: such a file was never meant to be a sample. `.` in the
/// expression does not match a newline, so a dot and a later newline in a folder's name need a slash between them.
pub fn split(name: &[u8]) -> Result<(&[u8], &[u8]), SkipReason> {
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

/// Groups members into samples.
#[derive(Debug)]
pub(super) struct Grouper {
    pub(super) builder: Builder,
    key: Vec<u8>,
    members: Vec<Member>,
    /// Columns by the ending as written, so that each is lowercased only once.
    columns: HashMap<Vec<u8>, u16>,
}

impl Grouper {
    pub(super) fn new(unit: u32) -> Grouper {
        Grouper { builder: Builder::new(unit), key: Vec::new(), members: Vec::new(), columns: HashMap::new() }
    }

    /// Adds a regular member; `Ok(Some)` says why it was left out.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(super) fn push(&mut self, name: &[u8], offset: u64, len: u64) -> Result<Option<SkipReason>, String> {
        let (key, field) = match split(name) {
            Ok(parts) => parts,
            Err(reason) => return Ok(Some(reason)),
        };
        if key != self.key {
            self.flush();
            if key.len() > KEY_BYTES_MAX {
                return Err(format!("its key has more than {KEY_BYTES_MAX} bytes"));
            }
            self.key.extend(key);
        }
        let column = match self.columns.get(field) {
            Some(&column) => column,
            None => self.add_column(field)?,
        };
        if self.members.iter().any(|member| member.column == column) {
            return Err(format!("the field {:?} comes twice in one sample", self.builder.name(column)));
        }
        self.members.push(Member { column, offset, len });
        Ok(None)
    }

    fn add_column(&mut self, field: &[u8]) -> Result<u16, String> {
        let name = String::from_utf8_lossy(field).to_lowercase();
        let column = self.builder.column(&name).ok_or_else(|| {
            format!(
                "more than {COLUMNS_MAX} different fields: a field is everything behind the first dot, so names that \
                 hold more dots than the one before the ending are all different fields"
            )
        })?;
        self.columns.insert(field.to_vec(), column);
        Ok(column)
    }

    /// Ends the sample: the next member starts another one, whatever its key.
    pub(super) fn flush(&mut self) {
        if !self.members.is_empty() {
            self.builder.push(&self.key, &mut self.members);
        }
        self.drop_open();
    }

    /// Ends the sample if a member of this name belongs to another one.
    pub(super) fn end_before(&mut self, name: &[u8]) {
        if split(name).is_ok_and(|(key, _)| key != self.key) {
            self.flush();
        }
    }

    /// Discards the incomplete sample.
    pub(super) fn drop_open(&mut self) {
        self.members.clear();
        self.key.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results of webdataset 1.0.2, and of DALI for names that begin with a dot.
    #[test]
    fn names_split_as_webdataset_has_it() {
        let split = |name: &str| {
            split(name.as_bytes()).map(|(key, field)| {
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
