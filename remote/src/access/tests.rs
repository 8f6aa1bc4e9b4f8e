//! Which credentials are found, and what is said about those that are not.

use super::*;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Instant;

fn access(pairs: &[(&str, &str)]) -> Access {
    let pairs = pairs.iter().map(|&(name, value)| (name.into(), value.into()));
    Access::from_environment(AccessOptions::default(), pairs).unwrap()
}

fn told(pairs: &[(&str, &str)]) -> String {
    match access(pairs).desk(Scheme::S3, "").granted() {
        Ok(granted) => granted.told.clone(),
        Err(failure) => failure.to_string(),
    }
}

/// A folder as the user's, with these files.
fn home(files: &[(&str, &str)]) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    files.iter().for_each(|(name, text)| std::fs::write(home.path().join(name), text).unwrap());
    home
}

/// Answers each request by the first of `answers` whose start it has, and counts.
fn serve(answers: &'static [(&'static str, &'static str)]) -> (String, Arc<std::sync::Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let asks = asked.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(|stream| stream.ok()) {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count > 0) {
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let body = answers.iter().find(|(start, _)| head.starts_with(start)).map_or("", |(_, body)| body);
            let status = if body.is_empty() { "404 x" } else { "200 x" };
            let length = body.len();
            asks.lock().unwrap().push(head.lines().next().unwrap_or_default().to_owned());
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        }
    });
    (address, asked)
}

#[test]
fn the_first_source_that_has_some_is_taken() {
    let empty = home(&[]);
    let empty = ("HOME", empty.path().to_str().unwrap());
    let keys = [("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"), ("AWS_SECRET_ACCESS_KEY", "hush"), empty];
    assert_eq!(told(&keys), "credentials of the environment, key ..MPLE");
    let filled = home(&[(".aws/credentials", "[default]\naws_access_key_id=AKIDFILE\naws_secret_access_key=hush\n")]);
    let filled = ("HOME", filled.path().to_str().unwrap());
    assert_eq!(told(&[filled]), "credentials of the profile default, key ..FILE");
    assert!(told(&[filled, ("AWS_PROFILE", "other")]).contains("the profile other has no credentials"));
    let off = [empty, ("AWS_EC2_METADATA_DISABLED", "true")];
    assert!(told(&off).contains("looked at: environment, ~/.aws, web identity, container"), "{}", told(&off));
}

#[test]
fn what_is_not_done_is_refused_by_name() {
    let config = "[default]\nrole_arn = x\nsource_profile = base\n[profile p]\ncredential_process = /bin/x\n";
    let folder = home(&[(".aws/config", config)]);
    let folder = ("HOME", folder.path().to_str().unwrap());
    assert!(told(&[folder]).contains("source_profile"), "{}", told(&[folder]));
    assert!(told(&[folder, ("AWS_PROFILE", "p")]).contains("credential_process"));
    let full = [folder, ("AWS_PROFILE", ""), ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/x")];
    assert!(told(&full[1..]).contains("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"), "{}", told(&full[1..]));
}

#[test]
fn a_machine_is_asked_once() {
    const CREDENTIALS: &str = r#"{"AccessKeyId": "AKIDMACHINE", "SecretAccessKey": "hush", "Token": "hush",
        "Expiration": "2099-01-01T00:00:00Z"}"#;
    let (address, asked) = serve(&[
        ("PUT /latest/api/token", "token"),
        ("GET /latest/meta-data/iam/security-credentials/role", CREDENTIALS),
        ("GET /latest/meta-data/iam/security-credentials/", "role"),
    ]);
    let empty = home(&[]);
    let variables = [("HOME", empty.path().to_str().unwrap()), ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &address)];
    let access = access(&variables);
    let desk = access.desk(Scheme::S3, "");
    assert_eq!(desk.granted().unwrap().told, "credentials of the machine (instance metadata), key ..HINE");
    desk.granted().unwrap();
    access.desk(Scheme::S3, "").granted().unwrap();
    assert_eq!(asked.lock().unwrap().len(), 3, "all stores share it");
}

#[test]
fn a_container_gives_credentials() {
    const CREDENTIALS: &str = r#"{"AccessKeyId": "AKIDTASK", "SecretAccessKey": "hush", "Token": "hush",
        "Expiration": "2099-01-01T00:00:00Z"}"#;
    let (address, _) = serve(&[("GET /task", CREDENTIALS)]);
    let folder = home(&[("token", "hush")]);
    let token = folder.path().join("token");
    let variables = [
        ("HOME", folder.path().to_str().unwrap()),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &*format!("{address}/task")),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.to_str().unwrap()),
    ];
    assert_eq!(told(&variables), "credentials of the container, key ..TASK");
}

#[test]
fn a_machine_without_metadata_is_left_alone_soon() {
    // A port that no one listens on.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let empty = home(&[]);
    let endpoint = format!("http://{address}");
    let variables = [("HOME", empty.path().to_str().unwrap()), ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &*endpoint)];
    let desk = access(&variables).desk(Scheme::S3, "");
    let start = Instant::now();
    let failure = desk.granted().unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(5));
    assert!(failure.to_string().contains("the machine (instance metadata) gave no credentials"), "{failure}");
}

#[test]
fn azure_and_gcs() {
    let string = "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=aHVzaA==;EndpointSuffix=x";
    let by_string = access(&[("AZURE_STORAGE_CONNECTION_STRING", string)]);
    assert_eq!(by_string.azure_account().as_deref(), Some("acct"));
    assert_eq!(by_string.desk(Scheme::Azure, "acct").granted().unwrap().told, "key of the account acct");
    let signed =
        access(&[("AZURE_STORAGE_SAS_TOKEN", "?sv=1&sig=hush")]).desk(Scheme::Azure, "acct").granted().unwrap();
    assert!(matches!(&signed.authority, Authority::Query(query) if query == "sv=1&sig=hush"));
    assert!(!format!("{signed:?}").contains("hush"));
    let token = [("CLOUDSDK_AUTH_ACCESS_TOKEN", "hush"), ("STORAGE_EMULATOR_HOST", "127.0.0.1:9")];
    let by_token = access(&token);
    assert_eq!(by_token.desk(Scheme::Gcs, "").granted().unwrap().told, "token of the environment");
    assert_eq!(by_token.endpoint(Scheme::Gcs).unwrap().unwrap().0.port, 9);
    let other = home(&[("key.json", "{\"type\": \"external_account\"}")]);
    let path = other.path().join("key.json");
    let failure = access(&[("GOOGLE_APPLICATION_CREDENTIALS", path.to_str().unwrap())]).desk(Scheme::Gcs, "").granted();
    assert!(failure.unwrap_err().to_string().contains("external_account"));
    let broken = home(&[("key.json", "{\"type\": \"hush\"}")]);
    let path = broken.path().join("key.json");
    let failure = access(&[("GOOGLE_APPLICATION_CREDENTIALS", path.to_str().unwrap())]).desk(Scheme::Gcs, "").granted();
    let failure = failure.unwrap_err().to_string();
    assert!(failure.contains("cannot be used") && !failure.contains("hush"), "{failure}");
}

#[test]
fn settings_of_the_environment_and_options() {
    let config = "[default]\nregion = from-profile\nendpoint_url = http://profile:1\n";
    let folder = home(&[(".aws/config", config)]);
    let folder = ("HOME", folder.path().to_str().unwrap());
    assert_eq!(access(&[folder]).region(), "from-profile");
    assert_eq!(access(&[folder, ("AWS_DEFAULT_REGION", "named")]).region(), "named");
    assert_eq!(access(&[]).region(), "us-east-1");
    let endpoint = |pairs: &[(&str, &str)]| {
        access(pairs).endpoint(Scheme::S3).map(|found| found.map(|(peer, path)| (peer.authority(), path)))
    };
    assert_eq!(endpoint(&[folder]).unwrap(), Some(("profile:1".to_owned(), String::new())));
    let named = endpoint(&[folder, ("AWS_ENDPOINT_URL", "https://h/x/")]).unwrap();
    assert_eq!(named, Some(("h".to_owned(), "/x".to_owned())));
    for wrong in ["h:1", "s3://h", "https://me:hush@h"] {
        let failure = endpoint(&[("AWS_ENDPOINT_URL", wrong)]).unwrap_err();
        assert!(!failure.to_string().contains("hush"));
    }
}

#[test]
fn no_secret_is_shown() {
    let credentials = Credentials::Keys { key_id: "AKID".into(), secret: "hush".into(), token: Some("hush".into()) };
    let options = AccessOptions {
        endpoint: Some("https://me:hush@h".into()),
        proxy: Some("http://me:hush@p".into()),
        credentials: Some(credentials),
        ..AccessOptions::default()
    };
    let access = Access::new(options.clone()).unwrap();
    let shown = format!("{options:?} {access:?} {:?}", access.inner().client);
    assert!(!shown.contains("hush") && !shown.contains("me:"), "{shown}");
    let wrong = AccessOptions { proxy: Some("socks5://me:hush@p".into()), ..AccessOptions::default() };
    assert!(!Access::new(wrong).unwrap_err().to_string().contains("hush"));
}
