//! The owner of a file in a place where others may write.

use std::os::fd::BorrowedFd;

/// Why a file or folder that this library has made is not trusted: another user may have written it. Root could change
/// this process too; and a user who may write to its `source` data could change the result anyway.
pub fn distrust(file: BorrowedFd<'_>, source: Option<BorrowedFd<'_>>) -> Option<String> {
    let stat = match rustix::fs::fstat(file) {
        Ok(stat) => stat,
        Err(errno) => return Some(errno.to_string()),
    };
    let source = source.and_then(|source| rustix::fs::fstat(source).ok());
    let of_source = source.is_some_and(|source| source.st_uid == stat.st_uid);
    if stat.st_uid != rustix::process::geteuid().as_raw() && stat.st_uid != 0 && !of_source {
        return Some(format!("it belongs to another user ({})", stat.st_uid));
    }
    // A group may write what is made of a source that it may write.
    let group = source.filter(|source| source.st_gid == stat.st_gid).map_or(0, |source| source.st_mode & 0o020);
    let all = source.map_or(0, |source| source.st_mode & 0o002);
    let others = stat.st_mode & 0o022 & !(group | all);
    (others != 0).then(|| format!("others may write it (mode {:o})", stat.st_mode & 0o777))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsFd;

    #[test]
    fn what_others_may_write_is_not_trusted() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, is_trusted) in [(0o600, true), (0o644, true), (0o664, false), (0o646, false)] {
            file.as_file().set_permissions(fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(distrust(file.as_file().as_fd(), None).is_none(), is_trusted, "{mode:o}");
        }
        if rustix::process::geteuid().is_root() {
            file.as_file().set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::fchown(file.as_file(), Some(12345), None).unwrap();
            assert!(distrust(file.as_file().as_fd(), None).unwrap().contains("another user (12345)"));
            let shard = tempfile::NamedTempFile::new().unwrap();
            let beside = || distrust(file.as_file().as_fd(), Some(shard.as_file().as_fd()));
            assert!(beside().unwrap().contains("another user (12345)"));
            std::os::unix::fs::fchown(shard.as_file(), Some(12345), None).unwrap();
            assert_eq!(beside(), None, "whose shard it is");
            file.as_file().set_permissions(fs::Permissions::from_mode(0o666)).unwrap();
            assert!(beside().unwrap().contains("others may write it"));
            shard.as_file().set_permissions(fs::Permissions::from_mode(0o666)).unwrap();
            assert_eq!(beside(), None, "they may write the shard too");
        }
    }
}
