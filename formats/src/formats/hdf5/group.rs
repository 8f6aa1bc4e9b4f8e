//! Groups: the three ways in which a file names its objects, and how a path is resolved to an object.

use super::header::{LINK, LINK_INFO, Message, SYMBOL_TABLE, messages};
use super::heap::Heap;
use super::meta::{Block, Meta};
use super::tree;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use uringload_core::{Error, ErrorKind, Result};

/// Deepest nesting of groups, and longest chain of soft links.
const DEPTH_MAX: usize = 64;
/// Objects of a file that are visited if no dataset is requested by name.
const OBJECTS_MAX: usize = 1 << 20;
/// Longest name, in bytes. Names in the heap and messages of sound files are far shorter.
const NAME_BYTES_MAX: usize = 1 << 16;

/// A name in a group.
pub(super) struct Link {
    pub(super) name: String,
    target: Target,
}

enum Target {
    Object(u64),
    Soft(String),
    /// In another file, or in a form that only its writer knows.
    Elsewhere(String),
}

/// The links of groups, by address: many datasets are found in one group.
pub(super) type Known = HashMap<u64, Vec<Link>>;

/// The forms of a path with any other name in the place of one of its groups.
pub(super) fn forms(path: &str) -> Vec<String> {
    let parts: Vec<&str> = path.split('/').collect();
    let form = |group: usize| {
        let mut form = parts.clone();
        form[group] = "*";
        form.join("/")
    };
    (0..parts.len() - 1).map(form).collect()
}

/// All objects that hard links lead to, with their paths ("train/x"), sorted by path. Groups are entered, not shown. An
/// object with several names is shown once.
pub(super) fn walk<'a>(
    meta: &Meta<'a>,
    root: u64,
    mut show: impl FnMut(String, Vec<Message<'a>>) -> Result<()>,
) -> Result<()> {
    let mut seen = HashSet::from([root]);
    let mut waiting = vec![(String::new(), root, 0)];
    while let Some((path, address, depth)) = waiting.pop() {
        let of_object = messages(meta, address)?;
        let Some(mut links) = links(meta, &path, &of_object)? else {
            show(path, of_object)?;
            continue;
        };
        // Sorted backwards, because they are popped from the end.
        links.sort_by(|a, b| b.name.cmp(&a.name));
        for Link { name, target } in links {
            let Target::Object(address) = target else { continue };
            if seen.insert(address) {
                if depth >= DEPTH_MAX || seen.len() > OBJECTS_MAX {
                    let what = format!(
                        "groups are nested more than {DEPTH_MAX} deep, or have more than {OBJECTS_MAX} objects"
                    );
                    let error = meta.source.unavailable(meta.base.saturating_add(address), what);
                    return Err(error.with_remedy("name the datasets to read"));
                }
                let path = if path.is_empty() { name } else { format!("{path}/{name}") };
                waiting.push((path, address, depth + 1));
            }
        }
    }
    Ok(())
}

/// The object at a path from the root, and the rest of the path after a dataset: fields of its elements. Soft links are
/// followed.
///
/// # Errors
/// `InvalidArgument` if there is none; `Unavailable` if it is in another file.
pub(super) fn find<'a>(
    meta: &Meta<'a>,
    root: u64,
    path: &str,
    known: &mut Known,
) -> Result<(Vec<Message<'a>>, String)> {
    let mut steps: Vec<String> = parts(path).rev().collect();
    let (mut address, mut followed) = (root, 0);
    loop {
        let of_object = messages(meta, address)?;
        let Some(step) = steps.last() else { return Ok((of_object, String::new())) };
        let links = match known.entry(address) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(free) => links(meta, path, &of_object)?.map(|links| free.insert(links)),
        };
        let Some(links) = links else {
            let fields = steps.iter().rev().map(|step| format!("/{step}")).collect();
            return Ok((of_object, fields));
        };
        if is_nothing(step) {
            steps.pop();
            continue;
        }
        let Some(link) = links.iter().find(|link| link.name == *step) else {
            let names: Vec<&str> = links.iter().take(8).map(|link| link.name.as_str()).collect();
            let error = Error::new(ErrorKind::InvalidArgument, format!("the file has no dataset {path:?}"));
            let remedy = format!("{step:?} is not among {}", names.join(", "));
            return Err(error.with_path(meta.source.path()).with_remedy(remedy));
        };
        steps.pop();
        match &link.target {
            Target::Object(next) => address = *next,
            Target::Soft(to) => {
                followed += 1;
                if followed > DEPTH_MAX || steps.len() > DEPTH_MAX {
                    return Err(meta.source.corrupt(meta.base, format!("the links of {path:?} form a loop")));
                }
                if to.starts_with('/') {
                    address = root;
                }
                steps.extend(parts(to).rev());
            }
            Target::Elsewhere(place) => {
                let what = format!("{path:?} is a link to {place}");
                let error = meta.source.unavailable(meta.base, what);
                return Err(error.with_remedy("open that file itself"));
            }
        }
    }
}

fn parts(path: &str) -> impl DoubleEndedIterator<Item = String> {
    path.split('/').map(str::to_owned)
}

/// Whether a step of a path leads nowhere in a group. A field of a compound may be called so.
fn is_nothing(step: &str) -> bool {
    step.is_empty() || step == "."
}

/// Whether two names of fields are the same but for the number of slashes.
pub(super) fn are_same(one: &str, other: &str) -> bool {
    let steps = [one, other].map(|fields| fields.split('/').filter(|step| !step.is_empty()).collect::<Vec<_>>());
    steps[0] == steps[1]
}

/// The links of an object; `None` if it is not a group.
fn links<'a>(meta: &Meta<'a>, path: &str, of_object: &[Message<'a>]) -> Result<Option<Vec<Link>>> {
    let mut links = Vec::new();
    let mut is_group = false;
    for message in of_object {
        match message.kind {
            SYMBOL_TABLE => old_links(meta, message.body.copy(), &mut links)?,
            LINK => links.push(link(meta, message.body.copy())?),
            LINK_INFO => dense_links(meta, message.body.copy(), &mut links)?,
            _ => continue,
        }
        is_group = true;
    }
    if let Some(link) = links.iter().find(|link| link.name.is_empty() || link.name.len() > NAME_BYTES_MAX) {
        let what = format!("group {path:?} has a name of {} bytes", link.name.len());
        return Err(meta.source.corrupt(meta.base, what));
    }
    Ok(is_group.then_some(links))
}

/// A message that holds one link.
fn link<'a>(meta: &Meta<'a>, mut body: Block<'a>) -> Result<Link> {
    let version = body.u8()?;
    if version != 1 {
        return Err(body.unavailable(format!("a link has the unknown version {version}")));
    }
    let flags = body.u8()?;
    let kind = if flags & 0x08 != 0 { body.u8()? } else { 0 };
    body.skip(if flags & 0x04 != 0 { 8 } else { 0 } + if flags & 0x10 != 0 { 1 } else { 0 })?;
    let len = body.number(1 << (flags & 0x03))?;
    let len = usize::try_from(len).map_err(|_| body.corrupt("a link has no end"))?;
    let name = body.text(len)?;
    let target = match kind {
        0 => Target::Object(meta.address(&mut body)?.ok_or_else(|| body.corrupt("a link leads nowhere"))?),
        1 => {
            let len = body.u16()?;
            Target::Soft(body.text(len.into())?)
        }
        64 => {
            let len = body.u16()?;
            // A byte of flags, then the file name.
            body.skip(1)?;
            Target::Elsewhere(format!("the file {:?}", body.text(usize::from(len).saturating_sub(1))?))
        }
        _ => Target::Elsewhere(format!("something that only its writer knows (type {kind})")),
    };
    Ok(Link { name, target })
}

/// Links of a large group in the later format.
fn dense_links<'a>(meta: &Meta<'a>, mut body: Block<'a>, links: &mut Vec<Link>) -> Result<()> {
    let (_version, flags) = (body.u8()?, body.u8()?);
    body.skip(if flags & 0x01 != 0 { 8 } else { 0 })?;
    let (heap, names) = (meta.address(&mut body)?, meta.address(&mut body)?);
    let (Some(heap), Some(names)) = (heap, names) else { return Ok(()) };
    let mut heap = Heap::open(meta, heap)?;
    tree::records(meta, names, &[tree::LINKS], |_, mut record| {
        // The hash of the name comes first.
        record.skip(4)?;
        links.push(link(meta, heap.object(&mut record)?)?);
        Ok(())
    })
}

/// Links of a group in the earlier format: names in a heap, entries in the leaves of a B-tree.
fn old_links<'a>(meta: &Meta<'a>, mut body: Block<'a>, links: &mut Vec<Link>) -> Result<()> {
    let (tree, heap) = (meta.address(&mut body)?, meta.address(&mut body)?);
    let (Some(tree), Some(heap)) = (tree, heap) else { return Err(body.corrupt("a group has no table")) };
    let head = 8 + 2 * meta.length_bytes + meta.address_bytes;
    let mut head = meta.signed(heap, head as u64, b"HEAP", 0, "the names of a group")?;
    head.skip(3)?;
    let len = meta.length(&mut head)?;
    head.skip(meta.length_bytes)?;
    let data = meta.address(&mut head)?.ok_or_else(|| head.corrupt("the names of a group are missing"))?;
    let names = meta.read(data, len, "the names of a group")?;
    let name = |at: u64| {
        let from = usize::try_from(at).ok().and_then(|at| names.all().get(at..));
        let from = from.ok_or_else(|| names.corrupt("a name is past the end of the names of a group"))?;
        let len = from.iter().take(NAME_BYTES_MAX).position(|&byte| byte == 0);
        let len = len.ok_or_else(|| names.corrupt("a name of a group has no end"))?;
        Ok(String::from_utf8_lossy(&from[..len]).into_owned())
    };
    let mut waiting = vec![(tree, None)];
    while let Some((address, level)) = waiting.pop() {
        // Its type, 0, takes the place of other structures' version.
        let mut node = meta.signed(address, 8, b"TREE", 0, "the B-tree of a group")?;
        let (own_level, used) = (node.u8()?, node.u16()?);
        if level.is_some_and(|level| level != own_level) {
            return Err(node.corrupt("the B-tree of a group is a loop"));
        }
        let pair = meta.length_bytes + meta.address_bytes;
        let head = 8 + 2 * meta.address_bytes;
        let mut node = meta.read(address, (head + usize::from(used) * pair) as u64, "the B-tree of a group")?;
        node.skip(head)?;
        for _ in 0..used {
            node.skip(meta.length_bytes)?;
            let child = meta.address(&mut node)?;
            let child = child.ok_or_else(|| node.corrupt("a child in the B-tree of a group is missing"))?;
            match own_level.checked_sub(1) {
                Some(below) => waiting.push((child, Some(below))),
                None => entries(meta, child, &name, links)?,
            }
        }
    }
    Ok(())
}

/// A leaf of a group's B-tree: a symbol table node.
fn entries<'a>(
    meta: &Meta<'a>,
    address: u64,
    name: &impl Fn(u64) -> Result<String>,
    links: &mut Vec<Link>,
) -> Result<()> {
    let mut head = meta.signed(address, 8, b"SNOD", 1, "the symbols of a group")?;
    head.skip(1)?;
    let count = usize::from(head.u16()?);
    let entry = 2 * meta.address_bytes + 24;
    let mut node = meta.read(address.saturating_add(8), (count * entry) as u64, "the symbols of a group")?;
    for _ in 0..count {
        let at = node.number(meta.address_bytes)?;
        let address = meta.address(&mut node)?;
        let kind = node.u32()?;
        node.skip(4)?;
        let soft = node.u32()?;
        node.skip(12)?;
        let target = match (kind, address) {
            (2, _) => Target::Soft(name(soft.into())?),
            (_, Some(address)) => Target::Object(address),
            (_, None) => return Err(node.corrupt("a link leads nowhere")),
        };
        links.push(Link { name: name(at)?, target });
    }
    Ok(())
}
