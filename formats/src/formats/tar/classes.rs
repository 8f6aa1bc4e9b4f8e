//! Classes that archives stand for: ImageNet's training images come as an archive for each class, in one archive or
//! extracted from it. Source: torchvision 0.24, `datasets/imagenet.py` (`parse_train_archive`).

use super::Tar;
use super::scan::ARCHIVE;
use crate::compose::{KnownColumn, WithColumns};
use crate::dataset::{Dataset, SampleId};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use uringload_core::Result;

/// Digits of a class of ImageNet, after an `n`: the offset of a noun in WordNet.
const SYNSET_DIGITS: usize = 8;

/// Adds the column `label` where every sample is in the archive of its class.
pub(super) fn labelled(tar: Tar) -> Result<Arc<dyn Dataset>> {
    let Some(names) = (0..tar.len()).map(|id| class_of(&tar, SampleId(id))).collect::<Option<Vec<_>>>() else {
        return Ok(Arc::new(tar));
    };
    let classes: Vec<&Vec<u8>> = names.iter().collect::<BTreeSet<_>>().into_iter().collect();
    // Each is there: the classes were made of them.
    let labels = names.iter().map(|name| classes.binary_search(&name).unwrap_or(0).cast_signed() as i64).collect();
    let classes: Vec<OsString> = classes.into_iter().map(|name| OsStr::from_bytes(name).to_os_string()).collect();
    let column = KnownColumn::of_classes("label", labels, classes)?;
    Ok(Arc::new(WithColumns::new(Arc::new(tar), vec![column])?))
}

/// The class of a sample: the archive inside the file, else the file, if it is called as a class of ImageNet.
fn class_of(tar: &Tar, id: SampleId) -> Option<Vec<u8>> {
    let mut key = Vec::new();
    tar.key(id, &mut key);
    let file = tar.index.locate(id).0;
    let name = tar.files().name(file);
    let inner = key.split(|&byte| byte == b'/').find_map(|folder| folder.strip_suffix(ARCHIVE));
    let base = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    inner.or_else(|| base.strip_suffix(ARCHIVE).filter(|stem| is_synset(stem))).map(<[u8]>::to_vec)
}

fn is_synset(stem: &[u8]) -> bool {
    stem.strip_prefix(b"n").is_some_and(|digits| digits.len() == SYNSET_DIGITS && digits.iter().all(u8::is_ascii_digit))
}
