//! Finds the objects of a store, which its listing measures at once.

use crate::dataset::{FileTable, Room, SEGMENT_BYTES, SEGMENT_BYTES_MAX, SkipReason, Skips, Stamp, too_many_files};
use crate::find::walk::{FileType, Measured};
use crate::place::{Far, Listing, Place};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use uringload_core::{Error, ErrorKind, Result};
use uringload_sys::cgroup::processors;

/// Bytes that most names have at most.
const NAME_BYTES: usize = 64;

/// Appends every object below `root` to `files`, sorted by the bytes of its name, as a walk appends files.
pub(super) fn add(root: &Place, far: &Far, threads: usize, files: &mut FileTable, skips: &mut Skips) -> Result<()> {
    let inside = far.inside();
    let listing = far.tree.all(&inside).map_err(|error| Error::io("cannot list", error).with_path(root))?;
    files.push_root_at(root);
    let (parts, threads) = (listing.parts(), threads.min(processors()));
    let lens: Vec<usize> = parts.iter().map(|part| listing.len_of(part)).collect();
    let found = files.push_parts(&lens, threads, |part, room| add_part(root, &listing, &parts[part], room));
    let mut last = None;
    for part in found.ok_or_else(|| too_many_files(root.path()))? {
        skips.append(part.skips);
        if part.is_broken || last >= part.first {
            let error = Error::new(ErrorKind::Corrupt, "the listing contradicts itself").with_path(root);
            return Err(error.with_remedy("list the objects again: uringload list-objects URL -o FILE.uls"));
        }
        last = part.last;
    }
    Ok(())
}

/// What was found of a part of a listing.
struct Part {
    skips: Skips,
    /// The first name and the last.
    first: Option<Vec<u8>>,
    last: Option<Vec<u8>>,
    /// It contradicts itself.
    is_broken: bool,
}

/// Puts the objects of a part of a listing into their room. `None`: there is none.
fn add_part(root: &Place, listing: &Listing, part: &Range<usize>, room: &mut Room<'_>) -> Option<Part> {
    let bytes = listing.len_of(part).saturating_mul(NAME_BYTES).clamp(SEGMENT_BYTES, SEGMENT_BYTES_MAX);
    let mut walk = listing.walk_part(part, bytes);
    let (mut first, mut skips, mut is_odd) = (None, Skips::default(), false);
    loop {
        if walk.is_full() && room.is_open() {
            room.close_segment(walk.take_names());
        }
        if !walk.next() {
            break;
        }
        first.get_or_insert_with(|| walk.name().to_vec());
        // What the name shares with the one before was looked at there.
        let new = &walk.name()[walk.shared().saturating_sub(1)..];
        is_odd = (is_odd || has_dot(new)) && has_dot(walk.name());
        if is_odd && is_hidden(walk.name()) {
            skips.add(SkipReason::Hidden, root.join(OsStr::from_bytes(walk.name())).path());
        } else {
            room.push(walk.place(), walk.size(), Stamp::of_version(walk.version()))?;
        }
    }
    let (is_broken, last) = (walk.is_broken(), Some(walk.name().to_vec()).filter(|_| first.is_some()));
    room.close_segment(walk.take_names());
    Some(Part { skips, first, last, is_broken })
}

/// Whether a part of the name begins with a dot.
fn has_dot(name: &[u8]) -> bool {
    name.first() == Some(&b'.') || name.windows(2).any(|pair| pair == b"/.")
}

/// Whether such a part is neither `.` nor `..`.
fn is_hidden(name: &[u8]) -> bool {
    name.split(|&byte| byte == b'/').any(|part| part.starts_with(b".") && part != b"." && part != b"..")
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
