//! Groups members into samples: names split into key and field as in webdataset; consecutive members with one key form
//! a sample.

use crate::dataset::SkipReason;
use crate::find::names::split_name;
use crate::index::sidecar::{Builder, COLUMNS_MAX, KEY_BYTES_MAX, Member};
use std::collections::HashMap;

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
        let (key, field) = match split_name(name) {
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
                "more than {COLUMNS_MAX} different fields: a field is everything after the first dot, so names that \
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
        if split_name(name).is_ok_and(|(key, _)| key != self.key) {
            self.flush();
        }
    }

    /// Discards the incomplete sample.
    pub(super) fn drop_open(&mut self) {
        self.members.clear();
        self.key.clear();
    }
}
