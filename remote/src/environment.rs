//! The variables that whoever runs a program sets for it, as they were given to us: the library itself reads none.

use crate::client::Proxies;
use crate::connection::Proxy;
use crate::url::{Url, split_port};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use uringload_core::store::{Class, Failure};

/// Variables by name. `Debug` shows none.
#[derive(Clone, Default)]
pub struct Environment(HashMap<String, String>);

impl Environment {
    /// Those whose names and values are text.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Environment {
        let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        Environment(variables.into_iter().filter_map(text).collect())
    }

    /// The first of `names` that is set and not empty.
    pub fn get<const N: usize>(&self, names: [&str; N]) -> Option<&str> {
        names.iter().find_map(|name| self.0.get(*name).map(String::as_str).filter(|value| !value.is_empty()))
    }

    /// A file in the folder of the user.
    pub fn at_home(&self, name: &str) -> PathBuf {
        PathBuf::from(self.get(["HOME"]).unwrap_or("/")).join(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The proxies that are set, as curl reads them.
    pub fn proxies(&self) -> Result<Proxies, Failure> {
        let past = self.get(["no_proxy", "NO_PROXY"]).unwrap_or_default();
        let past: Vec<String> = past.split(',').map(|name| name.trim().to_owned()).collect();
        let proxy = |written: Option<&str>| written.map(|written| parse_proxy(written, &past)).transpose();
        Ok(Proxies {
            secure: proxy(self.get(["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]))?,
            // Not HTTP_PROXY: a server of CGI lets whoever asks set it.
            plain: proxy(self.get(["http_proxy", "all_proxy", "ALL_PROXY"]))?,
        })
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Environment({} variables)", self.0.len())
    }
}

/// A proxy as it is written: `http://user:password@host:port`, the scheme and the user left out or not.
pub fn parse_proxy(written: &str, past: &[String]) -> Result<Proxy, Failure> {
    let wrong = || {
        Failure::new(Class::Invalid, "the proxy is not one that is spoken to in HTTP")
            .with_remedy("write it as http://HOST:PORT")
    };
    let with_scheme = if written.contains("://") { written.to_owned() } else { format!("http://{written}") };
    if !with_scheme.starts_with("http://") {
        return Err(wrong());
    }
    let url = Url::parse(with_scheme.as_bytes()).map_err(|_| wrong())?;
    let (host, port) = split_port(url.bucket(), 3128).ok_or_else(wrong)?;
    let user = url.user().map(|user| String::from_utf8_lossy(&crate::url::decode(user.as_bytes(), false)).into_owned());
    Ok(Proxy { host: host.to_owned(), port, user, past: past.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Peer;

    #[test]
    fn proxies_are_read_as_curl_reads_them() {
        let pairs =
            [("https_proxy", "http://me:hu%73h@p:8080"), ("HTTP_PROXY", "q"), ("NO_PROXY", "a.example, .b.example")];
        let environment = Environment::new(pairs.map(|(name, value)| (name.into(), value.into())));
        let proxies = environment.proxies().unwrap();
        assert!(proxies.plain.is_none());
        let proxy = proxies.secure.unwrap();
        assert_eq!((&*proxy.host, proxy.port, proxy.user.as_deref()), ("p", 8080, Some("me:hush")));
        assert!(!format!("{proxy:?} {environment:?}").contains("hush"));
        let serves = |host: &str| proxy.serves(&Peer { host: host.to_owned(), port: 443, is_secure: true });
        for past in ["a.example", "x.a.example", "b.example", "localhost", "127.0.0.1", "169.254.169.254"] {
            assert!(!serves(past), "{past}");
        }
        for host in ["c.example", "xa.example", "10.0.0.1"] {
            assert!(serves(host), "{host}");
        }
        for wrong in ["socks5://h:1", "https://h", "http://", "http://:80"] {
            assert_eq!(parse_proxy(wrong, &[]).unwrap_err().class(), Class::Invalid, "{wrong}");
        }
        assert_eq!(parse_proxy("h", &[]).unwrap().port, 3128);
    }
}
