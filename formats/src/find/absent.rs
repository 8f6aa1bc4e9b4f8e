//! What to do about a path that is not there.

use crate::find::names::elsewhere;
use std::path::{Path, PathBuf};
use uringload_core::{Error, ErrorKind};

/// The error with advice, if its path does not exist and the error has none yet.
pub(crate) fn advised(error: Error) -> Error {
    if error.kind() != ErrorKind::NotFound || error.remedy().is_some() {
        return error;
    }
    match error.path().and_then(advice) {
        Some(advice) => error.with_remedy(advice),
        None => error,
    }
}

/// Names the first part of the path that is not there: a name with a slip, or what a disk that is not mounted would
/// have. `None` if all of it is there.
pub(crate) fn advice(path: &Path) -> Option<String> {
    if elsewhere(path).is_some() {
        return None;
    }
    let whole = std::env::current_dir().map_or_else(|_| PathBuf::from(path), |folder| folder.join(path));
    let missing = whole.ancestors().take_while(|part| !part.exists()).last()?;
    if let Ok(target) = missing.read_link() {
        let (link, target) = (missing.display(), target.display());
        return Some(format!("{link} is a link to {target}, which is not there: restore that, or mount its disk"));
    }
    let (folder, name) = (missing.parent()?.display(), missing.file_name()?.display());
    Some(format!("check the path, and that its disk is mounted: there is no {name} in {folder}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_what_is_missing() {
        let root = tempfile::tempdir().unwrap();
        let said = |path: &str| advice(&root.path().join(path)).unwrap_or_default();
        let folder = root.path().display();
        assert!(said("a/b/c").ends_with(&format!("there is no a in {folder}")), "{}", said("a/b/c"));
        std::fs::create_dir(root.path().join("a")).unwrap();
        assert!(said("a/b/c").ends_with(&format!("there is no b in {folder}/a")), "{}", said("a/b/c"));
        assert_eq!(said("a"), "");
        std::os::unix::fs::symlink("/nowhere", root.path().join("link")).unwrap();
        assert!(said("link/c").contains("/link is a link to /nowhere, which is not there"), "{}", said("link/c"));
        // A relative path begins where the process is.
        let here = std::env::current_dir().unwrap();
        let said = advice(Path::new("no such name")).unwrap();
        assert!(said.ends_with(&format!("there is no no such name in {}", here.display())), "{said}");
    }
}
