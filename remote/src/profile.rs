//! Profiles of AWS: what `~/.aws/credentials` and `~/.aws/config` say of one name.

use std::collections::HashMap;
use std::path::PathBuf;

/// Longest file of profiles, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// What a profile may get its credentials by and we do not do, with what it is called.
const NOT_DONE: [(&str, &str); 6] = [
    ("source_profile", "takes on the role of another profile (source_profile)"),
    ("credential_source", "takes on a role (credential_source)"),
    ("credential_process", "runs a program (credential_process)"),
    ("sso_session", "signs in at a portal (sso_session)"),
    ("sso_start_url", "signs in at a portal (sso_start_url)"),
    ("login_session", "signs in by a browser (login_session)"),
];

/// Where the files of profiles are, and which profile is meant.
#[derive(Clone, Debug)]
pub struct Profiles {
    pub credentials: PathBuf,
    pub config: PathBuf,
    pub name: String,
}

/// What the files say of a profile; of two files, the credentials' comes first.
#[derive(Debug, Default)]
pub struct Profile(HashMap<String, String>);

impl Profiles {
    /// Reads both files again: they change when credentials are renewed. A file that is not there says nothing.
    pub fn read(&self) -> std::io::Result<Profile> {
        let mut found = HashMap::new();
        for (path, is_config) in [(&self.config, true), (&self.credentials, false)] {
            let text = match std::fs::metadata(path) {
                Ok(about) if about.len() > FILE_BYTES_MAX => {
                    return Err(std::io::Error::other(format!("{} is longer than 1 MiB", path.display())));
                }
                Ok(_) => std::fs::read_to_string(path)?,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            found.extend(section(&text, &self.name, is_config));
        }
        Ok(Profile(found))
    }
}

impl Profile {
    /// The value of `name`, unless it is empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// What the profile does to get credentials that we do not do, in words.
    pub fn not_done(&self) -> Option<&'static str> {
        NOT_DONE.iter().find(|(name, _)| self.get(name).is_some()).map(|&(_, told)| told)
    }
}

/// The pairs of one section; in `config` all but `default` are called `profile NAME`.
fn section(text: &str, name: &str, is_config: bool) -> HashMap<String, String> {
    let mut pairs = HashMap::new();
    let mut is_ours = false;
    for line in text.lines() {
        // What is indented belongs to the setting above, such as `s3 =`.
        let is_nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if let Some(title) = line.strip_prefix('[') {
            let title = title.split(']').next().unwrap_or_default().trim();
            let title = if is_config { title.strip_prefix("profile").map_or(title, str::trim_start) } else { title };
            is_ours = title.trim_matches(['"', '\'']) == name;
        } else if is_ours
            && !is_nested
            && !line.starts_with(['#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            let value = value.split(" #").next().unwrap_or_default().split(" ;").next().unwrap_or_default();
            pairs.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let profiles = |name: &str| Profiles {
            credentials: folder.path().join("credentials"),
            config: folder.path().join("config"),
            name: name.to_owned(),
        };
        assert!(profiles("default").read().unwrap().get("region").is_none(), "no files");
        let credentials = "[default]\naws_access_key_id = A\n# x = y\n[other]\naws_access_key_id=B # new\n";
        std::fs::write(folder.path().join("credentials"), credentials).unwrap();
        let config = "[default]\nregion = r1\ns3 =\n  region = nested\n[profile other]\nregion=r2\nrole_arn=x\n\
                      source_profile = default\n[profile \"with space\"]\nregion = r3\naws_access_key_id = C\n";
        std::fs::write(folder.path().join("config"), config).unwrap();
        let default = profiles("default").read().unwrap();
        assert_eq!((default.get("aws_access_key_id"), default.get("region")), (Some("A"), Some("r1")));
        assert_eq!((default.get("x"), default.not_done()), (None, None));
        let other = profiles("other").read().unwrap();
        assert_eq!((other.get("aws_access_key_id"), other.get("region")), (Some("B"), Some("r2")));
        assert!(other.not_done().unwrap().contains("source_profile"));
        assert_eq!(profiles("with space").read().unwrap().get("aws_access_key_id"), Some("C"));
    }
}
