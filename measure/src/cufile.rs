//! Where this system may have cuFile and nvJPEG, beyond the places that the loader searches, and how the user has
//! configured cuFile.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use uringload::inspect::GdsSearch;

/// Names the user's own configuration, which is then left alone.
const CONFIGURATION: &str = "CUFILE_ENV_PATH_JSON";

/// Most Python package folders to search.
const PACKAGES_MAX: usize = 16;

/// NVIDIA's Python packages that have cuFile, of CUDA 13 and before.
const PACKAGES: [&str; 2] = ["cu13", "cufile"];
/// The same of nvJPEG.
const NVJPEG_PACKAGES: [&str; 2] = ["cu13", "nvjpeg"];

/// Where to search for cuFile. `library` is the only one to load, if given.
pub fn search(library: Option<PathBuf>) -> GdsSearch {
    let scratch = env::var_os(CONFIGURATION).is_none().then(env::temp_dir).filter(|folder| folder.is_absolute());
    GdsSearch::default().library(library).places(places(PACKAGES)).scratch(scratch)
}

/// Where to search for nvJPEG beyond what the loader does.
pub fn nvjpeg_places() -> Vec<PathBuf> {
    places(NVJPEG_PACKAGES)
}

/// The folders of a CUDA toolkit, and those of NVIDIA's Python packages of these names in the active environment and
/// the user's.
fn places(names: [&str; 2]) -> Vec<PathBuf> {
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(folder_in);
    let toolkits = toolkits.chain([PathBuf::from("/usr/local/cuda")]);
    let toolkits = toolkits.flat_map(|toolkit| ["lib64", "targets/x86_64-linux/lib"].map(|lib| toolkit.join(lib)));
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(folder_in);
    let users = env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(".local"));
    let packages = active.chain(users).flat_map(|prefix| packages(&prefix)).take(PACKAGES_MAX);
    let packages = packages.flat_map(|packages| names.map(|name| packages.join("nvidia").join(name)));
    toolkits.chain(packages.map(|package| package.join("lib"))).filter(|place| place.is_dir()).collect()
}

/// The folder that a variable names. A variable that is empty or holds a relative path is ignored: libraries are not
/// loaded from the folder in which the program happens to run.
fn folder_in(variable: &str) -> Option<PathBuf> {
    absolute(env::var_os(variable)?)
}

fn absolute(value: OsString) -> Option<PathBuf> {
    Some(PathBuf::from(value)).filter(|folder| folder.is_absolute())
}

/// `lib/python3.x/site-packages` below a prefix.
fn packages(prefix: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten();
    let pythons = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"));
    pythons.map(|python| python.path().join("site-packages")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_library_is_looked_for_where_the_program_happens_to_run() {
        assert_eq!(["", "cuda", "./cuda"].map(|value| absolute(value.into())), [const { None }; 3]);
        assert_eq!(absolute("/opt/cuda".into()), Some("/opt/cuda".into()));
        assert!(places(PACKAGES).iter().all(|place| place.is_absolute()));
    }

    #[test]
    fn packages_of_every_python_are_found() {
        let prefix = tempfile::tempdir().unwrap();
        for name in ["python3.11", "python3.13", "other"] {
            std::fs::create_dir_all(prefix.path().join("lib").join(name)).unwrap();
        }
        let mut found = packages(prefix.path());
        found.sort();
        let wanted = ["python3.11", "python3.13"];
        assert_eq!(found, wanted.map(|name| prefix.path().join("lib").join(name).join("site-packages")));
        assert_eq!(packages(&prefix.path().join("none")), Vec::<PathBuf>::new());
        assert!(places(PACKAGES).iter().all(|place| place.is_dir()));
    }
}
