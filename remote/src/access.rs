//! How stores are reached: endpoint, region, trust, proxies, and where credentials are looked for.

use crate::client::{Client, Proxies};
use crate::connection::Peer;
use crate::connector::Connector;
use crate::credentials::{Asked, Authority, Desk, Granted, Provider, Source};
use crate::environment::{Environment, parse_proxy};
use crate::lock::{BRIEF, lock};
use crate::profile::Profiles;
use crate::sign::SharedKey;
use crate::tls::Trust;
use crate::url::{Scheme, Url, split_port};
use object_store::RetryConfig;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::GoogleCloudStorageBuilder;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uringload_core::Result;
use uringload_core::store::{Class, Failure};

/// How long nothing may move on a connection, unless another limit is given.
const STALL_LIMIT: Duration = Duration::from_secs(30);
/// The region, unless one is given or the server names another.
const REGION: &str = "us-east-1";
/// What object_store is to look at for a role by a web identity, a container or the machine itself.
const ROLE_VARIABLES: [&str; 7] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];

/// How stores are reached. What is `None` is taken from the environment if there is one, else the usual.
#[derive(Clone, Default)]
pub struct AccessOptions {
    /// The server of a store instead of the cloud's own: `http(s)://HOST[:PORT][/PATH]`.
    pub endpoint: Option<String>,
    /// The region of S3; of others it means nothing.
    pub region: Option<String>,
    /// Requests are not signed.
    pub anonymous: bool,
    /// Certificates in PEM that are good beside the system's.
    pub ca_file: Option<PathBuf>,
    /// Signed requests go without TLS to other machines too.
    pub allow_http: bool,
    /// The requester pays for what is read, where the bucket says so.
    pub requester_pays: bool,
    /// The proxy of all that is not this machine: `http://[USER:PASSWORD@]HOST:PORT`.
    pub proxy: Option<String>,
    /// Credentials that are used instead of any that would be looked for.
    pub credentials: Option<Credentials>,
    /// How long nothing may move on a connection before it is given up; 30 s.
    pub stall_limit: Option<Duration>,
}

impl fmt::Debug for AccessOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = |given: bool| if given { "given" } else { "none" };
        f.debug_struct("AccessOptions")
            .field("endpoint", &has(self.endpoint.is_some()))
            .field("region", &self.region)
            .field("anonymous", &self.anonymous)
            .field("ca_file", &self.ca_file)
            .field("allow_http", &self.allow_http)
            .field("requester_pays", &self.requester_pays)
            .field("proxy", &has(self.proxy.is_some()))
            .field("credentials", &has(self.credentials.is_some()))
            .field("stall_limit", &self.stall_limit)
            .finish()
    }
}

/// Credentials that are given. They have no `Debug`.
#[derive(Clone)]
pub enum Credentials {
    /// A pair of keys of S3, with the token of a session.
    Keys {
        /// The name of the key, such as `AKIA..`.
        key_id: String,
        /// Its secret.
        secret: String,
        /// The token of a session.
        token: Option<String>,
    },
    /// A token of GCS or Azure.
    Bearer(String),
    /// The key of an account of Azure, in Base64.
    SharedKey {
        /// The account.
        account: String,
        /// Its key.
        key: String,
    },
    /// A signature of Azure that is handed on: `sv=..&sig=..`.
    SharedSignature(String),
}

/// How stores are reached: one for all stores of a program. Clones share connections, addresses and credentials.
#[derive(Clone, Debug)]
pub struct Access(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) options: AccessOptions,
    environment: Option<Environment>,
    pub(crate) client: Arc<Client>,
    /// Who gives out credentials, by kind of store and account: all stores share them, so no source is asked twice.
    desks: Mutex<HashMap<(Scheme, String), Arc<Desk>>>,
    /// Seconds that servers are ahead of this machine's clock.
    pub(crate) skew: AtomicI64,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.options.fmt(f)
    }
}

impl Access {
    /// Reaches stores with what `options` say and nothing else: no variable, no profile, no metadata of the machine.
    /// The system's certificates are found as OpenSSL finds them, by `SSL_CERT_FILE` and `SSL_CERT_DIR` too.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidArgument`](uringload_core::ErrorKind::InvalidArgument) if the proxy or the file of
    /// certificates cannot be used.
    pub fn new(options: AccessOptions) -> Result<Access> {
        Access::with(options, None)
    }

    /// Reaches stores as the other programs of this user do: `variables` are those of the process
    /// (`std::env::vars_os()`), which name profiles, credentials, regions, endpoints and proxies. `options` win.
    ///
    /// # Errors
    ///
    /// As [`new`](Access::new).
    pub fn from_environment(
        options: AccessOptions,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Access> {
        Access::with(options, Some(Environment::new(variables)))
    }

    fn with(options: AccessOptions, environment: Option<Environment>) -> Result<Access> {
        let proxies = match (&options.proxy, &environment) {
            (Some(written), _) => {
                let proxy = parse_proxy(written, &[]).map_err(Failure::into_placeless_error)?;
                Proxies { secure: Some(proxy.clone()), plain: Some(proxy) }
            }
            (None, Some(environment)) => environment.proxies().map_err(Failure::into_placeless_error)?,
            (None, None) => Proxies::default(),
        };
        let bundle = environment.as_ref().and_then(|environment| environment.get(["AWS_CA_BUNDLE"]));
        let trust = Trust::load(options.ca_file.as_deref().or(bundle.map(Path::new)));
        let trust = match trust {
            Err(failure) if failure.class() == Class::Invalid => return Err(failure.into_placeless_error()),
            trust => trust,
        };
        let client = Arc::new(Client::new(trust, proxies, options.stall_limit.unwrap_or(STALL_LIMIT)));
        let desks = Mutex::default();
        Ok(Access(Arc::new(Inner { options, environment, client, desks, skew: AtomicI64::new(0) })))
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }

    /// The server that is asked instead of the cloud's own: whom, and what stands in front of each path.
    pub(crate) fn endpoint(&self, scheme: Scheme) -> Result<Option<(Peer, String)>, Failure> {
        let of_scheme = |environment: &Environment| match scheme {
            Scheme::S3 => {
                let named =
                    environment.get(["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]).map(str::to_owned);
                named.or_else(|| self.of_profile("endpoint_url"))
            }
            Scheme::Azure => environment.get(["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"]).map(str::to_owned),
            Scheme::Gcs => {
                let written = environment.get(["STORAGE_EMULATOR_HOST"]);
                written.map(|host| if host.contains("://") { host.to_owned() } else { format!("http://{host}") })
            }
            Scheme::Http | Scheme::Https => None,
        };
        let written = self.0.options.endpoint.clone().or_else(|| self.0.environment.as_ref().and_then(of_scheme));
        let Some(written) = written else { return Ok(None) };
        let wrong =
            || Failure::new(Class::Invalid, "the endpoint is none").with_remedy("write it as https://HOST[:PORT]");
        let url = Url::parse(written.as_bytes()).map_err(|_| wrong())?;
        if !matches!(url.scheme(), Scheme::Http | Scheme::Https) || url.user().is_some() {
            return Err(wrong());
        }
        let path = String::from_utf8_lossy(url.key()).trim_end_matches('/').to_owned();
        let path = if path.is_empty() { path } else { format!("/{path}") };
        Ok(Some((peer_of(&url).ok_or_else(wrong)?, path)))
    }

    /// The region of S3.
    pub(crate) fn region(&self) -> String {
        let environment = self.0.environment.as_ref();
        let named = environment.and_then(|environment| environment.get(["AWS_REGION", "AWS_DEFAULT_REGION"]));
        let region = self.0.options.region.clone().or_else(|| named.map(str::to_owned));
        region.or_else(|| self.of_profile("region")).unwrap_or_else(|| REGION.to_owned())
    }

    /// The account of Azure, where the URL names none.
    pub(crate) fn azure_account(&self) -> Option<String> {
        if let Some(Credentials::SharedKey { account, .. }) = &self.0.options.credentials {
            return Some(account.clone());
        }
        let environment = self.0.environment.as_ref()?;
        let named = environment.get(["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"]).map(str::to_owned);
        named.or_else(|| connection_string(environment, "AccountName"))
    }

    fn profiles(environment: &Environment) -> Profiles {
        let file =
            |variable, name| environment.get([variable]).map_or_else(|| environment.at_home(name), PathBuf::from);
        Profiles {
            credentials: file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
            config: file("AWS_CONFIG_FILE", ".aws/config"),
            name: environment.get(["AWS_PROFILE", "AWS_DEFAULT_PROFILE"]).unwrap_or("default").to_owned(),
        }
    }

    fn of_profile(&self, name: &str) -> Option<String> {
        let profile = Access::profiles(self.0.environment.as_ref()?).read().ok()?;
        profile.get(name).map(str::to_owned)
    }

    /// Who gives out the credentials for a store.
    pub(crate) fn desk(&self, scheme: Scheme, account: &str) -> Arc<Desk> {
        let found = Arc::new(Desk::new(self.source(scheme, account)));
        match lock(&self.0.desks, BRIEF) {
            Some(mut desks) => desks.entry((scheme, account.to_owned())).or_insert(found).clone(),
            None => found,
        }
    }

    fn source(&self, scheme: Scheme, account: &str) -> Source {
        let options = &self.0.options;
        if options.anonymous || matches!(scheme, Scheme::Http | Scheme::Https) {
            let granted = Granted { authority: Authority::Anonymous, told: "no one, unsigned".to_owned() };
            return Source::Fixed(Arc::new(granted));
        }
        if let Some(credentials) = &options.credentials {
            return given(scheme, credentials);
        }
        let Some(environment) = &self.0.environment else {
            return Source::Nowhere(nowhere(scheme, "the options"));
        };
        match scheme {
            Scheme::Azure => self.of_azure(environment, account),
            Scheme::Gcs => self.of_gcs(environment),
            _ => self.of_aws(environment),
        }
    }

    fn of_aws(&self, environment: &Environment) -> Source {
        let both = environment.get(["AWS_ACCESS_KEY_ID"]).zip(environment.get(["AWS_SECRET_ACCESS_KEY"]));
        if let Some((key_id, secret)) = both {
            let token = environment.get(["AWS_SESSION_TOKEN"]).map(str::to_owned);
            let granted = Granted::keys("the environment", key_id.to_owned(), secret.to_owned(), token);
            return Source::Fixed(Arc::new(granted));
        }
        let profiles = Access::profiles(environment);
        let is_named = environment.get(["AWS_PROFILE", "AWS_DEFAULT_PROFILE"]).is_some();
        let is_web = environment.get(["AWS_WEB_IDENTITY_TOKEN_FILE"]).zip(environment.get(["AWS_ROLE_ARN"])).is_some();
        if is_named || !is_web {
            match profiles.read() {
                Ok(profile) if profile.get("aws_access_key_id").is_some() => return Source::Profile(profiles),
                Ok(profile) => {
                    if let Some(what) = profile.not_done() {
                        let what = format!("the profile {} {what}, which is not done here", profiles.name);
                        let remedy = "hand the keys on: eval \"$(aws configure export-credentials --format env)\"";
                        return Source::Nowhere(Failure::new(Class::Unavailable, what).with_remedy(remedy));
                    }
                    if is_named {
                        let what = format!("the profile {} has no credentials", profiles.name);
                        return Source::Nowhere(Failure::new(Class::Refused, what).with_remedy("check AWS_PROFILE"));
                    }
                }
                Err(error) => return Source::Nowhere(Failure::io("the files of profiles cannot be read", error)),
            }
        }
        let full = environment.get(["AWS_CONTAINER_CREDENTIALS_FULL_URI"]);
        let is_container = full.is_some() || environment.get(["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"]).is_some();
        let told = match (is_web, is_container) {
            (true, _) => "the web identity",
            (_, true) => "the container",
            _ => "the machine (instance metadata)",
        };
        if is_container && full.is_some() && environment.get(["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]).is_none() {
            let what = "AWS_CONTAINER_CREDENTIALS_FULL_URI is read with AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE only";
            return Source::Nowhere(Failure::new(Class::Unavailable, what));
        }
        let is_off = environment.get(["AWS_EC2_METADATA_DISABLED"]).is_some_and(|off| off.eq_ignore_ascii_case("true"));
        let is_metadata = !is_web && !is_container;
        if is_metadata && is_off {
            return Source::Nowhere(nowhere(Scheme::S3, "environment, ~/.aws, web identity, container"));
        }
        let mut builder = AmazonS3Builder::new().with_bucket_name("b").with_region(self.region());
        for name in ROLE_VARIABLES {
            if let (Some(value), Ok(key)) =
                (environment.get([name]), name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>())
            {
                builder = builder.with_config(key, value);
            }
        }
        if let Some(endpoint) = environment.get(["AWS_EC2_METADATA_SERVICE_ENDPOINT"]) {
            builder = builder.with_metadata_endpoint(endpoint.trim_end_matches('/'));
        }
        let connector = self.connector(full);
        let make = move || {
            let store = builder.clone().with_retry(once()).with_http_connector(connector.clone()).build();
            store.map(|store| Provider::Aws(store.credentials().clone())).map_err(unusable)
        };
        Source::Asked(Asked { told: told.to_owned(), make: Box::new(make), is_metadata })
    }

    fn of_gcs(&self, environment: &Environment) -> Source {
        if let Some(token) = environment.get(["CLOUDSDK_AUTH_ACCESS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN"]) {
            return Source::Fixed(Arc::new(Granted::bearer("the environment", token)));
        }
        let usual = environment.at_home(".config/gcloud/application_default_credentials.json");
        let path = environment.get(["GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"]).map(str::to_owned);
        let path = path.or_else(|| usual.exists().then(|| usual.to_string_lossy().into_owned()));
        let key = environment.get(["GOOGLE_SERVICE_ACCOUNT_KEY"]).map(str::to_owned);
        if let Some(kind) = path.as_deref().and_then(other_kind) {
            let what = format!("the credentials of Google's file are of the kind {kind}, which is not done here");
            let remedy = "hand a token on: CLOUDSDK_AUTH_ACCESS_TOKEN=$(gcloud auth print-access-token)";
            return Source::Nowhere(Failure::new(Class::Unavailable, what).with_remedy(remedy));
        }
        let (told, is_metadata) = match (&path, &key) {
            (Some(path), _) => (format!("the file {path}"), false),
            (None, Some(_)) => ("GOOGLE_SERVICE_ACCOUNT_KEY".to_owned(), false),
            (None, None) => ("the machine (metadata.google.internal)".to_owned(), true),
        };
        let connector = self.connector(None);
        let make = move || {
            let mut builder = GoogleCloudStorageBuilder::new().with_bucket_name("b").with_retry(once());
            match (&path, &key) {
                (Some(path), _) => builder = builder.with_application_credentials(path),
                (None, Some(key)) => builder = builder.with_service_account_key(key),
                (None, None) => {}
            }
            let store = builder.with_http_connector(connector.clone()).build();
            store.map(|store| Provider::Gcp(store.credentials().clone())).map_err(unusable)
        };
        Source::Asked(Asked { told, make: Box::new(make), is_metadata })
    }

    fn of_azure(&self, environment: &Environment, account: &str) -> Source {
        let key = environment.get(["AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCESS_KEY"]);
        if let Some(key) = key.map(str::to_owned).or_else(|| connection_string(environment, "AccountKey")) {
            let credentials = Credentials::SharedKey { account: account.to_owned(), key };
            return given(Scheme::Azure, &credentials);
        }
        let signature = environment.get(["AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"]).map(str::to_owned);
        if let Some(signature) = signature.or_else(|| connection_string(environment, "SharedAccessSignature")) {
            return given(Scheme::Azure, &Credentials::SharedSignature(signature));
        }
        let is_metadata = environment.get(["AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"]).is_none();
        let told = if is_metadata { "the machine (managed identity)" } else { "the registered application" };
        let mut builder = MicrosoftAzureBuilder::new().with_container_name("c").with_account(account);
        for (name, value) in environment.iter() {
            let name = name.to_ascii_lowercase();
            let is_identity = ["azure_", "identity_", "msi_"].iter().any(|start| name.starts_with(start))
                && !name.starts_with("azure_storage")
                && !name.contains("cli")
                || name.starts_with("azure_client");
            if let (true, Ok(key)) = (is_identity, name.parse::<AzureConfigKey>()) {
                builder = builder.with_config(key, value);
            }
        }
        let connector = self.connector(environment.get(["IDENTITY_ENDPOINT", "MSI_ENDPOINT"]));
        let make = move || {
            let store = builder.clone().with_retry(once()).with_http_connector(connector.clone()).build();
            store.map(|store| Provider::Azure(store.credentials().clone())).map_err(unusable)
        };
        Source::Asked(Asked { told: told.to_owned(), make: Box::new(make), is_metadata })
    }

    /// Who asks for credentials; without TLS also at the host of `plain`.
    fn connector(&self, plain: Option<&str>) -> Connector {
        let plain_host = plain.and_then(|plain| Url::parse(plain.as_bytes()).ok()).and_then(|url| peer_of(&url));
        Connector { client: self.0.client.clone(), plain_host: plain_host.map(|peer| peer.host) }
    }
}

/// Whom an HTTP URL names.
pub(crate) fn peer_of(url: &Url) -> Option<Peer> {
    let is_secure = url.scheme() == Scheme::Https;
    let (host, port) = split_port(url.bucket(), if is_secure { 443 } else { 80 })?;
    Some(Peer { host: host.to_owned(), port, is_secure })
}

fn given(scheme: Scheme, credentials: &Credentials) -> Source {
    const FROM: &str = "the options";
    let granted = match (scheme, credentials.clone()) {
        (Scheme::S3, Credentials::Keys { key_id, secret, token }) => Granted::keys(FROM, key_id, secret, token),
        (Scheme::Gcs | Scheme::Azure, Credentials::Bearer(token)) => Granted::bearer(FROM, &token),
        (Scheme::Azure, Credentials::SharedKey { account, key }) => match SharedKey::new(&account, &key) {
            Some(shared) => {
                Granted { authority: Authority::Shared(shared), told: format!("key of the account {account}") }
            }
            None => return Source::Nowhere(Failure::new(Class::Invalid, "the key of the account is no Base64")),
        },
        (Scheme::Azure, Credentials::SharedSignature(query)) => {
            let query = query.trim_start_matches('?').to_owned();
            Granted { authority: Authority::Query(query), told: "shared access signature".to_owned() }
        }
        _ => return Source::Nowhere(Failure::new(Class::Invalid, "these credentials are not of this kind of store")),
    };
    Source::Fixed(Arc::new(granted))
}

/// There are no credentials, and where they were looked for.
pub(crate) fn nowhere(scheme: Scheme, looked_at: &str) -> Failure {
    let store = match scheme {
        Scheme::Gcs => "GCS",
        Scheme::Azure => "Azure",
        _ => "S3",
    };
    let what = format!("{store} asks for a signature, and no credentials were found (looked at: {looked_at})");
    Failure::new(Class::Refused, what).with_remedy("give credentials, or `anonymous` if the bucket is public")
}

/// The kind of credentials that a file of Google names, if it is one that object_store does not know.
fn other_kind(path: &str) -> Option<&'static str> {
    let text = std::fs::read_to_string(path).ok()?;
    let kinds = ["external_account", "external_account_authorized_user", "impersonated_service_account"];
    kinds.into_iter().find(|kind| text.contains(&format!("\"{kind}\"")))
}

fn connection_string(environment: &Environment, name: &str) -> Option<String> {
    let pairs = environment.get(["AZURE_STORAGE_CONNECTION_STRING"])?.split(';');
    pairs.filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
}

/// One try: who reads decides about more.
fn once() -> RetryConfig {
    RetryConfig { max_retries: 0, retry_timeout: Duration::from_secs(10), ..RetryConfig::default() }
}

fn unusable(error: object_store::Error) -> Failure {
    // Its text may quote what a file of credentials holds.
    let what = match error {
        object_store::Error::Generic { store, .. } => format!("the credentials of {store} cannot be used"),
        _ => "the credentials cannot be used".to_owned(),
    };
    Failure::new(Class::Refused, what).with_remedy("check the variables and files that name them")
}

#[cfg(test)]
#[path = "access/tests.rs"]
mod tests;
