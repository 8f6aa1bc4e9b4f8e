//! Finds the objects of a store, which its listing measures at once.

use crate::dataset::{FileTable, SEGMENT_BYTES, SkipReason, Skips, Stamp, too_many_files};
use crate::find::walk::{FileType, Measured};
use crate::place::{Far, Place};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use uringload_core::{Error, ErrorKind, Result};

/// Appends every object below `root` to `files`, sorted by the bytes of its name, as a walk appends files.
pub(super) fn add(root: &Place, far: &Far, files: &mut FileTable, skips: &mut Skips) -> Result<()> {
    let inside = far.inside();
    let listing = far.tree.all(&inside).map_err(|error| Error::io("cannot list", error).with_path(root))?;
    files.push_root_at(root);
    files.reserve_exact(listing.len());
    let full = || too_many_files(root.path());
    let mut walk = listing.walk();
    // A segment at a time: its names, and for each where it ends there.
    let (mut names, mut found) = (Vec::with_capacity(SEGMENT_BYTES), Vec::new());
    loop {
        let is_one = walk.next();
        if is_one && is_hidden(walk.name()) {
            skips.add(SkipReason::Hidden, root.join(OsStr::from_bytes(walk.name())).path());
            continue;
        }
        if is_one {
            names.extend_from_slice(walk.name());
            found.push((names.len(), walk.size(), walk.version()));
        }
        if names.len() >= SEGMENT_BYTES || !is_one && !found.is_empty() {
            let segment = files.push_segment(names.clone()).ok_or_else(full)?;
            let mut start = 0;
            for (end, size, version) in found.drain(..) {
                files.push_in(segment, start..end, size, Stamp::of_version(version)).ok_or_else(full)?;
                start = end;
            }
            names.clear();
        }
        if !is_one {
            break;
        }
    }
    if walk.is_broken() {
        let error = Error::new(ErrorKind::Corrupt, "the listing contradicts itself").with_path(root);
        return Err(error.with_remedy("list the objects again: uringload list-objects URL -o FILE.uls"));
    }
    Ok(())
}

/// Whether a part of the name begins with a dot, and is not `.` or `..`.
fn is_hidden(name: &[u8]) -> bool {
    let has_dot = name.first() == Some(&b'.') || name.windows(2).any(|pair| pair == b"/.");
    let is_hidden = |part: &[u8]| part.starts_with(b".") && part != b"." && part != b"..";
    has_dot && name.split(|&byte| byte == b'/').any(is_hidden)
}

/// Appends the first of these places, which are objects, and those after it of the same store: below the deepest folder
/// that has all of them. Returns how many they are.
pub(super) fn add_single(group: &[(Place, (u64, Stamp))], first: &Far, files: &mut FileTable) -> Result<usize> {
    let of_store = |(place, _): &&(Place, _)| place.as_far().is_some_and(|far| Arc::ptr_eq(&far.tree, &first.tree));
    let these: Vec<&(Place, (u64, Stamp))> = group.iter().take_while(of_store).collect();
    let common = these.iter().fold(&first.key[..], |common, (place, _)| {
        let alike = common.iter().zip(place.bytes()).take_while(|(one, other)| one == other).count();
        &common[..alike]
    });
    let prefix = &common[..common.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1)];
    files.push_prefix(Arc::clone(&first.tree), prefix.to_vec());
    for (place, (size, stamp)) in &these {
        files
            .push_stamped(&place.bytes()[prefix.len()..], *size, *stamp)
            .ok_or_else(|| too_many_files(place.path()))?;
    }
    Ok(these.len())
}

/// Lets each store list what is asked for of it.
pub(super) fn expect(places: &[Place]) -> Result<()> {
    let mut rest: Vec<(&Place, &Far)> = places.iter().filter_map(|place| Some((place, place.as_far()?))).collect();
    while let Some(&(place, first)) = rest.first() {
        let (these, others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|(_, far)| Arc::ptr_eq(&far.tree, &first.tree));
        let keys: Vec<&[u8]> = these.iter().map(|(_, far)| &far.key[..]).collect();
        first.tree.expect(&keys).map_err(|error| Error::io("cannot list", error).with_path(place))?;
        rest = others;
    }
    Ok(())
}

/// As `measure_paths` says it of files.
pub(super) fn measure(far: &Far) -> Measured {
    let (stat, version) = far.tree.stat(&far.key)?;
    let kind = if stat.is_folder { FileType::Directory } else { FileType::RegularFile };
    Ok((kind, stat.bytes, Stamp::of_version(version)))
}

/// The error of a key that no object has, and no folder. Its advice has the first part of the key that is not there.
pub(crate) fn absent(place: &Place) -> Error {
    if place.bytes().is_empty() {
        return Error::new(ErrorKind::Empty, "the bucket has no object").with_path(place);
    }
    let error = Error::new(ErrorKind::NotFound, "there is no such object, and no folder of this name").with_path(place);
    let Some((folder, missing)) = (1..)
        .map_while(|folders| Some((place.above(folders)?, place.above(folders - 1)?)))
        .find(|(folder, _)| folder.is_folder())
    else {
        return error.with_remedy("check the URL");
    };
    let (folder, name) = (folder.path().display(), String::from_utf8_lossy(missing.name()).into_owned());
    error.with_remedy(format!("check the URL: there is no {name} in {folder}"))
}
