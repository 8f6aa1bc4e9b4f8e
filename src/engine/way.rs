//! Chooses how to read: past the page cache or through it, and with what alignment.

use super::files::has_no_descriptor;
use crate::config::{Cause, Config, Fallback, IoChoice};
use crate::dataset::inspect::NO_ANSWER;
use crate::dataset::{Dataset, FileId, FileTable};
use crate::patience::Patience;
use crate::{Error, ErrorKind, Result};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use uringload_sys::block::BlockDevice;
use uringload_sys::file::{self, OpenFlags, Opened};

/// Number of files to sample when checking whether a dataset is in the page cache.
const RESIDENCY_FILES: u64 = 64;

/// From this share of resident pages on, the page cache is used. Below it, misses cost more than hits save.
const RESIDENT_SHARE: f64 = 0.9;

/// Number of files of a root to try before giving it up.
const FILES_TRIED: usize = 16;

/// The smallest sector of any device, in bytes.
const SECTOR_BYTES: u32 = 512;

/// Alignment that suits every device with sectors of up to 4096 bytes, for kernels that do not report one.
const ALIGNMENT_UNKNOWN: u32 = 4096;

/// The chosen way to read.
#[derive(Clone, Debug)]
pub(super) struct Way {
    /// `O_DIRECT`.
    pub(super) direct: bool,
    /// Alignment of the offset, length and memory of reads; 1 if any will do.
    pub(super) alignment: u32,
    /// Whether a read may block the submitting thread.
    pub(super) blocking: bool,
    /// Whether any root is on FUSE.
    pub(super) fuse: bool,
    /// Whether the data is in memory, judging by a sample. Reads are then copies and do not wait.
    pub(super) resident: bool,
    /// The devices below the dataset, where known.
    pub(super) devices: Vec<BlockDevice>,
    pub(super) fallbacks: Vec<Fallback>,
}

/// What one root allows.
struct Direct {
    alignment: Option<u32>,
    error: Option<io::Error>,
    file: std::path::PathBuf,
    device: Option<BlockDevice>,
    fuse: bool,
    /// Whether any of the files that were tried has answered.
    answers: bool,
}

/// Probes one file of each root and, if the choice is open, the page cache.
///
/// # Errors
/// `Unavailable` if `O_DIRECT` was requested by name and a root refuses it. `Timeout` if a root's folder does not
/// answer. Otherwise, why a root's file cannot be opened.
pub(super) fn choose(config: &Config, dataset: &Arc<dyn Dataset>, patience: &Patience) -> Result<Way> {
    let roots = probe_roots(dataset, patience)?;
    let devices: Vec<BlockDevice> = roots.iter().filter_map(|root| root.device.clone()).collect();
    let fuse = roots.iter().any(|root| root.fuse);
    let insists = config.io == IoChoice::Direct;
    let share = if insists { None } else { resident_share(dataset, patience) };
    let resident = !fuse && share.is_some_and(|share| share >= RESIDENT_SHARE);
    let buffered = |fallbacks| {
        let devices = devices.clone();
        Way { direct: false, alignment: 1, blocking: true, fuse, resident, devices, fallbacks }
    };
    if config.io == IoChoice::Buffered {
        return Ok(buffered(Vec::new()));
    }
    if let Some(root) = roots.iter().find(|root| root.error.is_some()) {
        let step = Fallback::new(Cause::DirectOpen, "the page cache", root.error.as_ref());
        if insists {
            return Err(Error::new(ErrorKind::Unavailable, format!("O_DIRECT was asked for, but {}", step.reason))
                .with_path(&root.file)
                .with_remedy(step.remedy));
        }
        return Ok(buffered(vec![step]));
    }
    if !insists {
        if let Some(share) = share.filter(|&share| share >= RESIDENT_SHARE) {
            let reason = format!("the page cache holds {:.0} % of a sample of the files", share * 100.0);
            return Ok(buffered(vec![Fallback::new(Cause::PageCache, "the page cache", None).with_reason(reason)]));
        }
        if let Some(silent) = roots.iter().find(|root| !root.answers) {
            let reason = format!("{} did not answer within {:?}", silent.file.display(), patience.bound());
            let step = Fallback::new(Cause::DirectOpen, "the page cache", None).with_reason(reason);
            return Ok(buffered(vec![step.with_remedy(NO_ANSWER)]));
        }
        if roots.iter().any(|root| root.alignment.is_none()) {
            return Ok(buffered(vec![Fallback::new(Cause::DirectAlignment, "the page cache", None)]));
        }
    }
    let alignment = |root: &Direct| root.alignment.unwrap_or(ALIGNMENT_UNKNOWN);
    Ok(Way {
        direct: true,
        alignment: roots.iter().map(alignment).max().unwrap_or(ALIGNMENT_UNKNOWN),
        blocking: roots.iter().any(|root| root.alignment.is_none()),
        fuse,
        resident: false,
        devices,
        fallbacks: Vec::new(),
    })
}

/// Whether `O_DIRECT` would be chosen now. `None` if the choice is not automatic, or files do not answer.
///
/// # Errors
/// Same as opening an engine.
pub(crate) fn would_be_direct(
    config: &Config,
    dataset: &Arc<dyn Dataset>,
    patience: &Patience,
) -> Result<Option<bool>> {
    // Files that have not answered yet would not answer now, and each would cost a thread.
    let is_settled = config.io != IoChoice::Auto || patience.is_waiting() || dataset.files().has_objects();
    if is_settled || config.engine == crate::config::EngineChoice::Sim {
        return Ok(None);
    }
    choose(config, dataset, patience).map(|way| Some(way.direct))
}

/// Probes one file of each root: the first that can be opened. A missing file is reported by its own samples.
fn probe_roots(dataset: &Arc<dyn Dataset>, patience: &Patience) -> Result<Vec<Direct>> {
    let asked = Arc::clone(dataset);
    let first = move |root| {
        let id = asked.files().files_of(root).next()?;
        Some(probe(&*asked, FileId(id)))
    };
    let first = patience.ask(dataset.files().roots().len(), 1, first);
    let of_root = |(root, first)| match first {
        Some(None) => None,
        Some(Some(Ok(direct))) => Some(Ok(direct)),
        Some(Some(Err(error))) => Some(probe_others(dataset, root, Some(error), patience)),
        None => Some(probe_others(dataset, root, None, patience)),
    };
    first.into_iter().enumerate().filter_map(of_root).collect()
}

/// Probes the other files of a root, after the first one has failed or has not answered.
fn probe_others(dataset: &Arc<dyn Dataset>, root: usize, first: Option<Error>, patience: &Patience) -> Result<Direct> {
    let of_root = dataset.files().files_of(root);
    let others: Vec<u32> = of_root.clone().skip(1).take(FILES_TRIED - 1).collect();
    let asked = Arc::clone(dataset);
    let found = patience.first_of(others.len(), move |number| probe(&*asked, FileId(others[number])).ok());
    match (found, first) {
        (Some(direct), _) => Ok(direct),
        (None, Some(error)) => Err(error),
        (None, None) => silent(dataset, root, FileId(of_root.start), patience),
    }
}

/// What a root allows if none of its files has answered, judging by its folder.
fn silent(dataset: &Arc<dyn Dataset>, root: usize, first: FileId, patience: &Patience) -> Result<Direct> {
    let path = dataset.files().roots()[root].clone();
    let asked = path.clone();
    let patience = patience.whole();
    let folder = patience.ask_one(move || file::open_folder(&asked).map(|folder| is_fuse(folder.as_fd())));
    let fuse = folder
        .ok_or_else(|| patience.over(&path))?
        .map_err(|source| Error::io("cannot open the folder", source).with_path(&path))?;
    let file = dataset.files().path(first);
    Ok(Direct { alignment: None, error: None, file, device: None, fuse, answers: false })
}

fn probe(dataset: &dyn Dataset, id: FileId) -> Result<Direct> {
    let files = dataset.files();
    let path = files.path(id);
    let plain = open(files, id, false).map_err(|source| Error::io("cannot open the file", source).with_path(&path))?;
    let device = BlockDevice::of(plain.file.as_fd());
    let fuse = is_fuse(plain.file.as_fd());
    // If only one descriptor is left, the next open needs it.
    drop(plain);
    match open(files, id, true) {
        Ok(opened) => {
            let alignment = file::direct_alignment(opened.file.as_fd());
            let alignment = alignment.map(|alignment| alignment.memory.max(alignment.offset).max(SECTOR_BYTES));
            Ok(Direct { alignment, error: None, file: path, device, fuse, answers: true })
        }
        // That says nothing about O_DIRECT.
        Err(error) if has_no_descriptor(&error) => Err(Error::io("cannot open the file", error).with_path(path)),
        Err(error) => Ok(Direct { alignment: None, error: Some(error), file: path, device, fuse, answers: true }),
    }
}

/// Whether a file is on FUSE. If that cannot be determined, a server did not answer, as FUSE servers may.
fn is_fuse(file: BorrowedFd<'_>) -> bool {
    file::file_system(file).map_or(true, |name| name == "fuse")
}

/// Whether files of all roots can be read without leaving anything in the page cache, judging by one of each.
///
/// # Errors
/// Why not.
pub(super) fn reads_once(dataset: &Arc<dyn Dataset>, patience: &Patience) -> io::Result<()> {
    let asked = Arc::clone(dataset);
    patience.ask_one(move || reads_files_once(asked.files())).unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}

fn reads_files_once(files: &FileTable) -> io::Result<()> {
    for root in 0..files.roots().len() {
        // A file that cannot be opened is an error of its own samples, and an empty one is never read.
        let opened = files.files_of(root).take(FILES_TRIED).find_map(|id| open(files, FileId(id), false).ok());
        if let Some(opened) = opened {
            file::read_once_at(opened.file.as_fd(), &mut [0], 0)?;
        }
    }
    Ok(())
}

/// Share of bytes in the page cache, over a sample of the files. `None` if the kernel does not report it
/// (`cachestat(2)`, Linux 6.5), or one of them does not answer.
fn resident_share(dataset: &Arc<dyn Dataset>, patience: &Patience) -> Option<f64> {
    let asked = Arc::clone(dataset);
    let count = dataset.files().len() as u64;
    let looked_at = count.min(RESIDENCY_FILES);
    let page_bytes = uringload_sys::arena::page_bytes() as u64;
    let pages_of = move |index: usize| {
        let id = FileId((index as u64 * count / looked_at) as u32);
        let Ok(opened) = open(asked.files(), id, false) else { return Some((0, 0)) };
        let resident = file::cachestat(opened.file.as_fd(), 0, 0).ok()?.cached;
        Some((resident, opened.identity.size.div_ceil(page_bytes)))
    };
    let (mut resident, mut pages) = (0, 0);
    for of_file in patience.ask(looked_at as usize, 2, pages_of) {
        let of_file = of_file.flatten()?;
        resident += of_file.0;
        pages += of_file.1;
    }
    (pages > 0).then(|| resident as f64 / pages as f64)
}

fn open(files: &FileTable, id: FileId, direct: bool) -> io::Result<Opened> {
    let root = file::open_folder(&files.roots()[files.root_of(id)])?;
    let flags = OpenFlags::default().direct(direct).noatime(true).nonblock(true);
    file::open(root.as_fd(), files.name(id), flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{self, FileTable, Options};

    fn patient() -> Patience {
        Patience::of(&Config::default())
    }

    /// A dataset of one file in a folder.
    fn one_file(folder: &std::path::Path) -> std::sync::Arc<dyn Dataset> {
        let mut files = FileTable::new();
        files.push_root(folder);
        std::fs::write(folder.join("a"), vec![1; 100_000]).unwrap();
        files.push(b"a", 100_000);
        dataset::inspect::of_files(files, &Options::new().set("labels", false)).unwrap()
    }

    #[test]
    fn what_a_file_system_cannot_read_once_is_said() {
        let config = Config { io: IoChoice::Buffered, read_once: true, ..Config::default() };
        let stats = std::sync::Arc::new(crate::stats::Stats::new());
        if let Ok(folder) = tempfile::tempdir_in("/dev/shm") {
            let dataset = one_file(folder.path());
            assert_eq!(reads_once(&dataset, &patient()).unwrap_err().raw_os_error(), Some(95), "EOPNOTSUPP");
        }
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let dataset = one_file(folder.path());
        let file = open(dataset.files(), FileId(0), false).unwrap().file;
        std::fs::File::open(folder.path().join("a")).unwrap().sync_all().unwrap();
        file::evict(file.as_fd()).unwrap();
        let way = choose(&config, &dataset, &patient()).unwrap();
        if way.resident {
            return eprintln!("skipped: nothing leaves the page cache here");
        }
        let route = super::super::open(&config, &dataset, &stats, &patient()).unwrap().route;
        let step = route.fallbacks.iter().find(|step| step.cause == Cause::ReadOnce);
        assert_eq!(route.reads_once, step.is_none(), "{route} {:?}", route.fallbacks);
        assert_eq!(route.to_string().contains("keeps nothing"), route.reads_once);
        let plain =
            super::super::open(&Config { read_once: false, ..config }, &dataset, &stats, &patient()).unwrap().route;
        assert!(!plain.reads_once && plain.fallbacks.is_empty(), "only where it is asked for");
    }

    #[test]
    fn freshly_written_files_are_resident_and_read_through_the_page_cache() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = FileTable::new();
        files.push_root(folder.path());
        for name in ["a", "b"] {
            std::fs::write(folder.path().join(name), vec![1; 100_000]).unwrap();
            files.push(name.as_bytes(), 100_000);
        }
        let dataset = dataset::inspect::of_files(files, &Options::new().set("labels", false)).unwrap();
        let Some(share) = resident_share(&dataset, &patient()) else {
            eprintln!("skipped: no cachestat(2) on this kernel, or file system");
            return;
        };
        assert!(share > 0.9, "{share}");
        let way = choose(&Config::default(), &dataset, &patient()).unwrap();
        assert!(!way.direct);
        assert_eq!(way.fallbacks.len(), 1, "said, not silent");
        let way = choose(&Config { io: IoChoice::Buffered, ..Config::default() }, &dataset, &patient()).unwrap();
        assert!(way.fallbacks.is_empty(), "what was asked for is no step down");
    }
}
