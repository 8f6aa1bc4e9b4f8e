//! Nodes of memory: which one a device is next to, memory that is taken there, and threads that stay there.

use crate::arena::Arena;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ffi::{c_int, c_long, c_ulong};
use std::fs;
use std::io;
use std::path::Path;

/// Nodes that a mask has room for: as many as Linux can be built for.
const NODES_MAX: usize = 1024;
/// Pages that are there already are not moved.
const NO_FLAGS: c_long = 0;
/// `MPOL_F_ADDR` of `linux/mempolicy.h`: asks about the memory at an address.
const MPOL_F_ADDR: c_long = 2;
const WORDS: usize = NODES_MAX / c_ulong::BITS as usize;

/// A node of memory with its processors, on a machine that has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Near {
    node: u32,
    processors: Vec<usize>,
}

impl Near {
    /// The node that all of these PCI devices ("0000:3b:00.0") are next to, from the files of the system below `root`
    /// ("/"). `None` on a machine of one node, if a device is next to none, and if the devices are next to several.
    pub fn to(root: &Path, devices: &[&str]) -> Option<Near> {
        let nodes = fs::read_to_string(root.join("sys/devices/system/node/online")).ok()?;
        if list(&nodes)?.len() < 2 {
            return None;
        }
        let mut found = None;
        for address in devices {
            let node = node_of_pci(root, address)?;
            if *found.get_or_insert(node) != node {
                return None;
            }
        }
        let node = found.filter(|&node| (node as usize) < NODES_MAX)?;
        let processors = fs::read_to_string(root.join(format!("sys/devices/system/node/node{node}/cpulist"))).ok()?;
        Some(Near { node, processors: list(&processors)? })
    }

    /// Its number.
    pub fn node(&self) -> u32 {
        self.node
    }

    /// Has the pages of the arena taken from this node, while it has room. Pages that it has already stay where they
    /// are.
    ///
    /// # Errors
    /// `EPERM` where a filter of system calls refuses, as Docker's does; what else `mbind(2)` reports.
    pub fn hold(&self, arena: &Arena) -> io::Result<()> {
        let mut mask: [c_ulong; WORDS] = [0; WORDS];
        let (word, bit) = (self.node as usize / c_ulong::BITS as usize, self.node % c_ulong::BITS);
        mask[word] = 1 << bit;
        let most = (NODES_MAX + 1) as c_ulong;
        // SAFETY: the range is the arena's mapping, which `arena` keeps. The call changes where its pages will be taken
        // from and no byte of them. The mask has a bit for each node below `most`, and lives until the call returns.
        let done = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                arena.address(),
                arena.len(),
                c_long::from(libc::MPOL_PREFERRED),
                mask.as_ptr(),
                most,
                NO_FLAGS,
            )
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Restricts this thread to those of the node's processors on which it may run. If there are none, nothing changes.
    ///
    /// # Errors
    /// What `sched_setaffinity(2)` reports.
    pub fn stay(&self) -> io::Result<()> {
        let (allowed, mut set) = (sched_getaffinity(None)?, CpuSet::new());
        let mine = self.processors.iter().filter(|&&number| number < CpuSet::MAX_CPU && allowed.is_set(number));
        mine.for_each(|&number| set.set(number));
        if set.count() == 0 {
            return Ok(());
        }
        Ok(sched_setaffinity(None, &set)?)
    }
}

/// The node that the pages of an arena are preferably taken from, if one was named ([`Near::hold`]). For tests.
///
/// # Errors
/// What `get_mempolicy(2)` reports.
pub fn held_by(arena: &Arena) -> io::Result<Option<u32>> {
    let (mut mode, mut mask): (c_int, [c_ulong; WORDS]) = (0, [0; WORDS]);
    let most = (NODES_MAX + 1) as c_ulong;
    // SAFETY: both places live until the call returns, and the mask has a bit for each node below `most`. The address
    // is only asked about.
    let done = unsafe {
        libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, mask.as_mut_ptr(), most, arena.address(), MPOL_F_ADDR)
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    let word = mask.iter().position(|&word| word != 0).filter(|_| mode == libc::MPOL_PREFERRED);
    Ok(word.map(|word| word as u32 * c_ulong::BITS + mask[word].trailing_zeros()))
}

/// The node that a PCI device is next to; `None` if the machine has one only or does not know the device.
pub(crate) fn node_of_pci(root: &Path, address: &str) -> Option<u32> {
    let node = fs::read_to_string(root.join("sys/bus/pci/devices").join(address).join("numa_node")).ok()?;
    // It is -1 where there is none.
    node.trim().parse().ok()
}

/// The numbers of a list as the kernel writes it: "0-3,8,10-11".
fn list(text: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || last >= 1 << 16 {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of a system with these nodes, and these devices next to some.
    fn system(online: &str, nodes: &[(u32, &str)], devices: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |path: String, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        };
        put("sys/devices/system/node/online".into(), online);
        nodes.iter().for_each(|(node, list)| put(format!("sys/devices/system/node/node{node}/cpulist"), list));
        devices.iter().for_each(|(at, node)| put(format!("sys/bus/pci/devices/{at}/numa_node"), node));
        root
    }

    #[test]
    fn a_device_is_next_to_what_the_system_says() {
        let two = [(0, "0-3,8-11"), (1, "4-7,12")];
        let devices = [("0000:3b:00.0", "0"), ("0000:af:00.0", "1"), ("0000:b0:00.0", "1"), ("0000:c0:00.0", "-1")];
        let root = system("0-1", &two, &devices);
        let to = |devices: &[&str]| Near::to(root.path(), devices);
        assert_eq!(to(&["0000:3b:00.0"]), Some(Near { node: 0, processors: vec![0, 1, 2, 3, 8, 9, 10, 11] }));
        assert_eq!(to(&["0000:af:00.0", "0000:b0:00.0"]), Some(Near { node: 1, processors: vec![4, 5, 6, 7, 12] }));
        // Of different nodes, next to none, unknown, and none at all.
        for others in [&["0000:3b:00.0", "0000:af:00.0"][..], &["0000:c0:00.0"], &["0000:00:00.0"], &[]] {
            assert_eq!(to(others), None, "{others:?}");
        }
        let one = system("0", &[(0, "0-11")], &devices);
        assert_eq!(Near::to(one.path(), &["0000:3b:00.0"]), None, "there is nothing to choose");
        assert_eq!([list("0-2,5"), list("7"), list("")], [Some(vec![0, 1, 2, 5]), Some(vec![7]), Some(Vec::new())]);
        assert_eq!([list("2-1"), list("x"), list("0-99999999")], [None, None, None]);
    }

    #[test]
    fn memory_and_threads_are_where_they_were_put() {
        let root = system("0-1", &[(0, "0-65535"), (1, "65000")], &[("0000:3b:00.0", "0"), ("0000:af:00.0", "1")]);
        let near = Near::to(root.path(), &["0000:3b:00.0"]).unwrap();
        let (arena, mut part) = Arena::reserve(4 << 20).unwrap();
        match near.hold(&arena).and_then(|()| held_by(&arena)) {
            Ok(node) => assert_eq!(node, Some(0)),
            Err(error) => return eprintln!("skipped: memory cannot be bound to a node here: {error}"),
        }
        arena.populate(0..arena.len()).unwrap();
        part.as_mut().fill(1);
        let (other, _part) = Arena::reserve(1).unwrap();
        assert_eq!(held_by(&other).unwrap(), None);
        // A thread that may not run on the node's processors stays where it is.
        let thread = std::thread::spawn(move || {
            let before = sched_getaffinity(None).unwrap();
            near.stay().unwrap();
            assert_eq!(sched_getaffinity(None).unwrap(), before, "all that it may");
            let first = (0..CpuSet::MAX_CPU).find(|&number| before.is_set(number)).unwrap();
            Near { node: 0, processors: vec![first, 60_000] }.stay().unwrap();
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
            Near { node: 1, processors: vec![first + 1] }.stay().unwrap();
            assert!(sched_getaffinity(None).unwrap().is_set(first));
        });
        thread.join().unwrap();
    }
}
