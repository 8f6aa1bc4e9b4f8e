//! Whose right requests are signed with: found once, renewed before it ends and when a server says that it has ended.

use crate::connector::wait;
use crate::lock::{BRIEF, lock};
use crate::profile::Profiles;
use crate::sign::{Keys, SharedKey};
use object_store::aws::AwsCredentialProvider;
use object_store::azure::{AzureCredential, AzureCredentialProvider};
use object_store::gcp::GcpCredentialProvider;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uringload_core::store::{Class, Failure};

/// How long credentials are used before their source is asked again. It renews them five minutes before they end, so
/// none is used behind its end.
const FRESH: Duration = Duration::from_secs(60);
/// Shortest time between two renewals that servers ask for.
const RENEWAL_PAUSE: Duration = Duration::from_secs(5);
/// Longest wait for another thread that asks for credentials.
const ASKING_LIMIT: Duration = Duration::from_secs(30);

/// What a request is signed with. `Debug` shows no secret.
pub enum Authority {
    Anonymous,
    Keys(Keys),
    /// The value of `Authorization`.
    Bearer(String),
    Shared(SharedKey),
    /// A query that signs by itself.
    Query(String),
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Authority::Anonymous => f.write_str("Anonymous"),
            Authority::Keys(keys) => keys.fmt(f),
            Authority::Bearer(_) => f.write_str("Bearer"),
            Authority::Shared(key) => key.fmt(f),
            Authority::Query(_) => f.write_str("Query"),
        }
    }
}

impl Authority {
    fn is_same(&self, other: &Authority) -> bool {
        match (self, other) {
            (Authority::Keys(one), Authority::Keys(other)) => one.is_same(other),
            (Authority::Bearer(one), Authority::Bearer(other)) => one == other,
            (Authority::Query(one), Authority::Query(other)) => one == other,
            // The key of an account does not expire.
            _ => true,
        }
    }
}

/// An authority, and where it is from in words: its source and the last letters of its name.
#[derive(Debug)]
pub struct Granted {
    pub authority: Authority,
    pub told: String,
}

impl Granted {
    pub fn keys(from: &str, key_id: String, secret: String, token: Option<String>) -> Granted {
        let keys = Keys::new(key_id, secret, token);
        let told = format!("credentials of {from}, key ..{}", keys.last_four());
        Granted { authority: Authority::Keys(keys), told }
    }

    pub fn bearer(from: &str, token: &str) -> Granted {
        Granted { authority: Authority::Bearer(format!("Bearer {token}")), told: format!("token of {from}") }
    }
}

/// Where credentials are from.
pub enum Source {
    /// They do not change.
    Fixed(Arc<Granted>),
    /// They stand in files, which are read again.
    Profile(Profiles),
    /// object_store asks for them.
    Asked(Asked),
    /// There are none: why.
    Nowhere(Failure),
}

/// What object_store asks for, where it is told to look.
pub struct Asked {
    pub told: String,
    /// Makes who asks: anew where what it keeps has ended.
    pub make: Box<dyn Fn() -> Result<Provider, Failure> + Send + Sync>,
    /// Whether the machine itself is asked, which most machines do not answer: then there are no credentials, and
    /// they are not asked for twice.
    pub is_metadata: bool,
}

/// Who of object_store asks.
pub enum Provider {
    Aws(AwsCredentialProvider),
    Gcp(GcpCredentialProvider),
    Azure(AzureCredentialProvider),
}

impl Provider {
    fn ask(&self, told: &str) -> Result<Granted, Failure> {
        let broke = |error: object_store::Error| {
            Failure::new(Class::Storage, format!("{told} gave no credentials: {}", scrubbed(&error.to_string())))
        };
        match self {
            Provider::Aws(provider) => {
                let found = wait(provider.get_credential())?.map_err(broke)?;
                Ok(Granted::keys(told, found.key_id.clone(), found.secret_key.clone(), found.token.clone()))
            }
            Provider::Gcp(provider) => {
                let found = wait(provider.get_credential())?.map_err(broke)?;
                Ok(Granted::bearer(told, &found.bearer))
            }
            Provider::Azure(provider) => match &*wait(provider.get_credential())?.map_err(broke)? {
                AzureCredential::BearerToken(token) => Ok(Granted::bearer(told, token)),
                _ => Err(Failure::new(Class::Refused, format!("{told} gave credentials of another kind"))),
            },
        }
    }
}

/// Gives out the credentials of one source.
pub struct Desk {
    source: Source,
    held: Mutex<Option<Held>>,
    /// Who asks. Whoever asks holds it, so that a source is asked once at a time.
    provider: Mutex<Option<Provider>>,
}

#[derive(Clone)]
struct Held {
    granted: Result<Arc<Granted>, Failure>,
    at: Instant,
    /// Asked again never.
    is_final: bool,
}

impl Held {
    fn is_fresh(&self) -> bool {
        self.is_final || self.at.elapsed() < FRESH
    }
}

impl Desk {
    pub fn new(source: Source) -> Desk {
        Desk { source, held: Mutex::new(None), provider: Mutex::new(None) }
    }

    /// The credentials of now.
    pub fn granted(&self) -> Result<Arc<Granted>, Failure> {
        match &self.source {
            Source::Fixed(granted) => return Ok(granted.clone()),
            Source::Nowhere(failure) => return Err(failure.clone()),
            _ => {}
        }
        let held = self.held();
        if let Some(held) = held.as_ref().filter(|held| held.is_fresh()) {
            return held.granted.clone();
        }
        let old = held.and_then(|held| held.granted.ok());
        // Who has some does not wait for another thread that asks for newer ones.
        let asking = lock(&self.provider, if old.is_some() { Duration::ZERO } else { ASKING_LIMIT });
        let Some(mut provider) = asking else {
            return old.ok_or_else(|| Failure::new(Class::Storage, "another thread asks for credentials for too long"));
        };
        if let Some(held) = self.held().filter(Held::is_fresh) {
            return held.granted;
        }
        let granted = self.fetch(&mut provider);
        // The server may still take the old ones.
        self.hold(granted.map(Arc::new).or_else(|failure| old.ok_or(failure)))
    }

    /// Newer credentials than `failed`, which a server calls expired.
    ///
    /// # Errors
    ///
    /// There are none yet, or the source does not answer.
    pub fn renewed(&self, failed: &Arc<Granted>) -> Result<Arc<Granted>, Failure> {
        let none = || Failure::new(Class::Expired, format!("there are no newer credentials yet ({})", failed.told));
        if matches!(self.source, Source::Fixed(_) | Source::Nowhere(_)) {
            return Err(none().with_remedy("give credentials that are valid longer, or that can be renewed"));
        }
        let mut provider = lock(&self.provider, ASKING_LIMIT).ok_or_else(none)?;
        if let Some(Held { granted: Ok(held), at, .. }) = self.held() {
            if !held.authority.is_same(&failed.authority) {
                return Ok(held);
            }
            if at.elapsed() < RENEWAL_PAUSE {
                return Err(none());
            }
        }
        *provider = None;
        let granted = self.fetch(&mut provider)?;
        let is_same = granted.authority.is_same(&failed.authority);
        let granted = self.hold(Ok(Arc::new(granted)))?;
        if is_same {
            Err(none().with_remedy("renew them: they are read again before each attempt"))
        } else {
            Ok(granted)
        }
    }

    fn held(&self) -> Option<Held> {
        lock(&self.held, BRIEF)?.clone()
    }

    fn hold(&self, granted: Result<Arc<Granted>, Failure>) -> Result<Arc<Granted>, Failure> {
        let is_final = granted.is_err() && matches!(&self.source, Source::Asked(asked) if asked.is_metadata);
        if let Some(mut held) = lock(&self.held, BRIEF) {
            *held = Some(Held { granted: granted.clone(), at: Instant::now(), is_final });
        }
        granted
    }

    fn fetch(&self, provider: &mut Option<Provider>) -> Result<Granted, Failure> {
        match &self.source {
            Source::Profile(profiles) => of_profile(profiles),
            Source::Asked(asked) => {
                let asks = match provider {
                    Some(asks) => asks,
                    None => provider.insert((asked.make)()?),
                };
                asks.ask(&asked.told)
            }
            Source::Fixed(_) | Source::Nowhere(_) => Err(Failure::new(Class::Expired, "they do not change")),
        }
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Desk")
    }
}

fn of_profile(profiles: &Profiles) -> Result<Granted, Failure> {
    let from = format!("the profile {}", profiles.name);
    let profile = profiles.read().map_err(|error| Failure::io(format!("{from} cannot be read"), error))?;
    let both = profile.get("aws_access_key_id").zip(profile.get("aws_secret_access_key"));
    let Some((key_id, secret)) = both else {
        return Err(Failure::new(Class::Refused, format!("{from} has no credentials any more"))
            .with_remedy("write aws_access_key_id and aws_secret_access_key into it"));
    };
    let token = profile.get("aws_session_token").map(str::to_owned);
    Ok(Granted::keys(&from, key_id.to_owned(), secret.to_owned(), token))
}

/// An error of who asked for credentials, without what may be a secret: long words without a dot.
fn scrubbed(text: &str) -> String {
    const WORD_MAX: usize = 24;
    const TEXT_MAX: usize = 400;
    let is_secret = |letter: char| letter.is_ascii_alphanumeric() || "+/=_-%".contains(letter);
    let mut scrubbed = String::new();
    let mut rest = text;
    while !rest.is_empty() && scrubbed.len() < TEXT_MAX {
        let end = rest.find(|letter| !is_secret(letter)).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        scrubbed.push_str(if word.len() > WORD_MAX && !word.starts_with('/') { ".." } else { word });
        let next = tail.find(is_secret).unwrap_or(tail.len());
        scrubbed.push_str(&tail[..next]);
        rest = &tail[next..];
    }
    scrubbed
}

#[cfg(test)]
#[path = "credentials/tests.rs"]
mod tests;
