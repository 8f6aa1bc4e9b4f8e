//! Filesystems made for one test: on loop devices over sparse images, and tmpfs. Root only.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// xfs needs at least 300 MB. The image is sparse, so it takes only what is written.
const IMAGE_BYTES: u64 = 512 << 20;

/// A filesystem on which reads behave differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ext4,
    /// Direct reads must be aligned to 4096 bytes.
    Ext4Sectors4096,
    /// Accepts `O_DIRECT`, but reads through the page cache.
    Ext4DataJournal,
    Xfs,
    Btrfs,
    Tmpfs,
}

impl Kind {
    /// Whether direct reads must work on it.
    pub fn has_direct(self) -> bool {
        matches!(self, Kind::Ext4 | Kind::Ext4Sectors4096 | Kind::Xfs)
    }
}

/// A mounted filesystem. Drop unmounts and removes it.
pub struct Mounted {
    at: PathBuf,
    _image: TempDir,
}

impl Mounted {
    /// Makes and mounts a filesystem.
    ///
    /// # Errors
    /// The reason, in words, why this machine cannot.
    pub fn new(kind: Kind) -> Result<Mounted, String> {
        if !super::is_root() {
            return Err(format!("{kind:?}: only root can mount"));
        }
        let folder = TempDir::new().map_err(|error| error.to_string())?;
        let at = folder.path().join("at");
        std::fs::create_dir(&at).map_err(|error| error.to_string())?;
        if kind == Kind::Tmpfs {
            run("mount", &[os("-t"), os("tmpfs"), os("tmpfs"), at.as_os_str()])?;
        } else {
            mount_image(kind, &folder.path().join("image"), &at)?;
        }
        Ok(Mounted { at, _image: folder })
    }

    /// Makes and mounts a tmpfs of `bytes` bytes, which is soon full.
    ///
    /// # Errors
    /// The reason, in words, why this machine cannot.
    pub fn small(bytes: u64) -> Result<Mounted, String> {
        if !super::is_root() {
            return Err("a small tmpfs: only root can mount".into());
        }
        let folder = TempDir::new().map_err(|error| error.to_string())?;
        let at = folder.path().join("at");
        std::fs::create_dir(&at).map_err(|error| error.to_string())?;
        let size = format!("size={bytes}");
        run("mount", &[os("-t"), os("tmpfs"), os("-o"), os(&size), os("tmpfs"), at.as_os_str()])?;
        Ok(Mounted { at, _image: folder })
    }

    /// Takes all the room that is left. Dropping the file does not give it back, removing it does.
    ///
    /// # Panics
    /// If that cannot be done.
    pub fn fill(&self) -> PathBuf {
        use std::io::Write;
        let path = self.at.join(".filler");
        let mut file = std::fs::File::create(&path).expect("a file");
        for piece in [1 << 16, 4096, 1] {
            let bytes = vec![1; piece];
            while file.write_all(&bytes).is_ok() {}
        }
        path
    }

    /// The filesystem's root.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.at);
    }
}

/// Unmounts lazily, so that a test that fails with a file open leaves no mount behind.
pub fn unmount(at: &Path) {
    if let Err(error) = run("umount", &[os("-l"), at.as_os_str()]) {
        super::skip(format!("unmounting {at:?}: {error}"));
    }
}

fn mount_image(kind: Kind, image: &Path, at: &Path) -> Result<(), String> {
    let file = std::fs::File::create(image).map_err(|error| error.to_string())?;
    file.set_len(IMAGE_BYTES).map_err(|error| error.to_string())?;
    let sector = if kind == Kind::Ext4Sectors4096 { "4096" } else { "512" };
    let device = run("losetup", &[os("--find"), os("--show"), os("--sector-size"), os(sector), image.as_os_str()])?;
    let device = os(device.trim());
    let (make, force) = match kind {
        Kind::Xfs => ("mkfs.xfs", "-f"),
        Kind::Btrfs => ("mkfs.btrfs", "-f"),
        _ => ("mkfs.ext4", "-F"),
    };
    let options = if kind == Kind::Ext4DataJournal { "data=journal" } else { "defaults" };
    let made = run(make, &[os("-q"), os(force), device])
        .and_then(|_| run("mount", &[os("-o"), os(options), device, at.as_os_str()]));
    // Frees the device when it is unmounted, or now if nothing was mounted.
    run("losetup", &[os("--detach"), device])?;
    made.map(|_| ())
}

fn os(text: &str) -> &OsStr {
    OsStr::new(text)
}

/// A command's output, or the reason why it failed.
fn run(program: &str, arguments: &[&OsStr]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
        return Err(format!("{program} {arguments:?}: {message}"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// An ext4 filesystem on an image, which can lose its power. Root only.
pub struct Disk {
    folder: TempDir,
}

impl Disk {
    /// Makes the filesystem.
    ///
    /// # Errors
    /// The reason, in words, why this machine cannot.
    pub fn new() -> Result<Disk, String> {
        if !super::is_root() {
            return Err("a disk that loses its power: only root can mount".into());
        }
        // Its command `shutdown` is that of ext4, too.
        run("xfs_io", &[os("-V")])?;
        let disk = Disk { folder: TempDir::new().map_err(|error| error.to_string())? };
        let image = std::fs::File::create(disk.image()).map_err(|error| error.to_string())?;
        image.set_len(IMAGE_BYTES).map_err(|error| error.to_string())?;
        std::fs::create_dir(disk.path()).map_err(|error| error.to_string())?;
        run("mkfs.ext4", &[os("-q"), os("-F"), disk.image().as_os_str()])?;
        disk.mount()?;
        Ok(disk)
    }

    /// The filesystem's root.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("at")
    }

    /// From now on nothing reaches the disk, and nothing that the journal still held has reached it.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn cut_power(&self) {
        run("xfs_io", &[os("-x"), os("-c"), os("shutdown"), self.path().as_os_str()]).expect("ext4 shuts down");
    }

    /// Unmounts and mounts again, so that the journal is replayed. Nothing may be open on it.
    ///
    /// # Panics
    /// If it cannot be unmounted within some seconds, or not be mounted.
    pub fn restart(&self) {
        const PATIENCE: Duration = Duration::from_secs(10);
        let start = Instant::now();
        // A ring that was just closed holds its files for some milliseconds more.
        while let Err(error) = run("umount", &[self.path().as_os_str()]) {
            assert!(start.elapsed() < PATIENCE, "{error}");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.mount().expect("the disk mounts again");
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn mount(&self) -> Result<String, String> {
        run("mount", &[os("-o"), os("loop"), self.image().as_os_str(), self.path().as_os_str()])
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(&self.path());
    }
}
