//! Configures cuFile before it is loaded, with a `cufile.json` in a private folder that the environment names.
//!
//! cuFile can be configured in three ways. Its own `cuFileSetParameter*` come too late for the log, which 1.20 still
//! writes to the current folder, and divide by zero in 1.17.1. `/etc/cufile.json` belongs to the administrator. That
//! leaves `CUFILE_ENV_PATH_JSON`, so one variable must be in the environment while the driver is opened. The module
//! `environment` says why that is sound while other threads run. The variable is removed as soon as the driver is open.

use super::environment;
use std::ffi::CString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The variable that names the configuration.
pub const VARIABLE: &str = "CUFILE_ENV_PATH_JSON";

/// How to configure cuFile.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Configuration {
    /// A file in a new folder, which only this user may enter and which is deleted once the driver is open. It forbids
    /// compatibility mode, so that nothing is copied through the host and called direct, and sends cuFile's log there
    /// instead of to the current folder.
    #[non_exhaustive]
    Private {
        /// An existing folder to make the new one in, such as `/tmp`.
        scratch: PathBuf,
        /// `use_pci_p2pdma`: whether cuFile may do without nvidia-fs.
        p2pdma: bool,
    },
    /// Whatever the environment or `/etc/cufile.json` says, for a user who has set [`VARIABLE`]. Nothing is created or
    /// changed.
    Environment,
}

impl Configuration {
    /// [`Private`](Configuration::Private), in a new folder inside `scratch`.
    pub fn private(scratch: PathBuf, p2pdma: bool) -> Configuration {
        Configuration::Private { scratch, p2pdma }
    }
}

/// Names to try for the folder before giving up.
const NAMES_TRIED: u32 = 64;

/// Bytes at the end of the log to search for an error.
const LOG_BYTES_MAX: usize = 64 << 10;

/// A configuration in force. Dropping it restores the environment and deletes the folder.
pub(super) struct InForce {
    folder: Option<PathBuf>,
    before: Option<environment::Before>,
}

impl InForce {
    /// # Errors
    /// If the folder or the file cannot be created, or JSON or the environment cannot hold its path.
    pub(super) fn new(configuration: &Configuration) -> io::Result<InForce> {
        let Configuration::Private { scratch, p2pdma } = configuration else {
            return Ok(InForce { folder: None, before: None });
        };
        let folder = new_folder(scratch)?;
        let mut in_force = InForce { folder: Some(folder.clone()), before: None };
        let path = folder.join("cufile.json");
        fs::write(&path, text(&folder, *p2pdma)?)?;
        let mut variable = format!("{VARIABLE}=").into_bytes();
        variable.extend_from_slice(path.as_os_str().as_bytes());
        in_force.before = Some(environment::put(CString::new(variable)?)?);
        Ok(in_force)
    }

    /// Where cuFile writes its log; `None` if other code decides that.
    pub(super) fn log(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The last error in the log, in one line, for an opening that failed.
    pub(super) fn last_error(&self) -> Option<String> {
        let entries = fs::read_dir(self.folder.as_deref()?).ok()?;
        let mut logs = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let log = logs.find(|path| path.extension().is_some_and(|end| end == "log"))?;
        let bytes = fs::read(log).ok()?;
        let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LOG_BYTES_MAX)..]).into_owned();
        let line = text.lines().rev().find_map(|line| line.split_once("ERROR"))?.1;
        Some(line.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl Drop for InForce {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            environment::put_back(before);
        }
        if let Some(folder) = &self.folder {
            // At worst a small file remains in a scratch folder. cuFile keeps writing to its open log.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Creates a folder that no other user can have created or may enter.
fn new_folder(scratch: &Path) -> io::Result<PathBuf> {
    let mut last = io::ErrorKind::AlreadyExists.into();
    for number in 0..NAMES_TRIED {
        let folder = scratch.join(format!("uringload-cufile-{}-{number}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return std::path::absolute(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// The configuration. Anything it omits has cuFile's default.
fn text(folder: &Path, p2pdma: bool) -> io::Result<String> {
    let folder = folder.to_str().filter(|folder| !folder.contains(char::is_control));
    let folder =
        folder.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the folder's path is not plain text"))?;
    let folder = folder.replace('\\', "\\\\").replace('"', "\\\"");
    Ok(format!(
        "{{\n  \"logging\": {{ \"dir\": \"{folder}\", \"level\": \"ERROR\" }},\n  \
           \"profile\": {{ \"nvtx\": false, \"cufile_stats\": 0 }},\n  \
           \"properties\": {{ \"allow_compat_mode\": false, \"use_pci_p2pdma\": {p2pdma} }}\n}}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_says_where_the_log_goes_and_forbids_compatibility() {
        let json = text(Path::new("/a \"b\"\\c"), true).unwrap();
        for part in [r#""dir": "/a \"b\"\\c""#, r#""allow_compat_mode": false"#, r#""use_pci_p2pdma": true"#] {
            assert!(json.contains(part), "{json}");
        }
        assert!(text(Path::new("/a\nb"), false).is_err());
    }

    #[test]
    fn the_folder_is_private_and_goes_with_the_configuration() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = tempfile::tempdir().unwrap();
        let squatter = scratch.path().join(format!("uringload-cufile-{}-0", std::process::id()));
        std::os::unix::fs::symlink("/", &squatter).unwrap();
        let folder = new_folder(scratch.path()).unwrap();
        assert_ne!(folder, squatter);
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(folder.join("cufile_1.log"), " 1 WARN a:1 b\n 2 ERROR  c:1252 d\te \n 3 NOTICE f\n").unwrap();
        let in_force = InForce { folder: Some(folder.clone()), before: None };
        assert_eq!(in_force.last_error().as_deref(), Some("c:1252 d e"));
        drop(in_force);
        assert!(!folder.exists());
        assert!(new_folder(&scratch.path().join("absent")).is_err());
    }
}
