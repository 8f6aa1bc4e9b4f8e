//! Credentials: renewed when they end, asked for once at a time, told without secrets.

use super::*;
use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use std::sync::atomic::{AtomicU64, Ordering};

/// Gives `AKID<n>`, with n counted, or nothing.
#[derive(Debug)]
struct Counting {
    asked: Arc<AtomicU64>,
    fails: bool,
}

#[async_trait]
impl CredentialProvider for Counting {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let count = self.asked.fetch_add(1, Ordering::SeqCst);
        // Long enough that threads meet here.
        std::thread::sleep(Duration::from_millis(20));
        if self.fails {
            let source = "no answer, the token was eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.x".into();
            return Err(object_store::Error::Generic { store: "S3", source });
        }
        let key_id = format!("AKID{count}");
        Ok(Arc::new(AwsCredential { key_id, secret_key: "hush".to_owned(), token: None }))
    }
}

fn desk(fails: bool, is_metadata: bool) -> (Arc<AtomicU64>, Desk) {
    let asked = Arc::new(AtomicU64::new(0));
    let counter = asked.clone();
    let make = Box::new(move || Ok(Provider::Aws(Arc::new(Counting { asked: counter.clone(), fails }))));
    (asked, Desk::new(Source::Asked(Asked { told: "the machine".to_owned(), make, is_metadata })))
}

#[test]
fn many_threads_ask_once() {
    let (asked, desk) = desk(false, false);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| assert_eq!(desk.granted().unwrap().told, "credentials of the machine, key ..KID0"));
        }
    });
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[test]
fn what_a_server_calls_expired_is_renewed_once_in_a_while() {
    let (asked, desk) = desk(false, false);
    let first = desk.granted().unwrap();
    assert_eq!(desk.renewed(&first).unwrap_err().class(), Class::Expired, "asked for just now");
    lock(&desk.held, BRIEF).unwrap().as_mut().unwrap().at -= RENEWAL_PAUSE;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(desk.renewed(&first).unwrap().told.ends_with("KID1")));
        }
    });
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[test]
fn a_machine_that_knows_nothing_is_not_asked_twice() {
    let (asked, silent) = desk(true, true);
    let failure = silent.granted().unwrap_err();
    assert!(failure.to_string().contains("the machine gave no credentials"), "{failure}");
    assert!(!failure.to_string().contains("eyJhbGci"), "{failure}");
    assert!(silent.granted().is_err());
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[test]
fn old_ones_are_used_while_the_source_is_silent() {
    let (_, desk) = desk(true, false);
    let old = Arc::new(Granted::keys("before", "AKID".to_owned(), "hush".to_owned(), None));
    *lock(&desk.held, BRIEF).unwrap() = Some(Held { granted: Ok(old), at: Instant::now() - FRESH, is_final: false });
    assert!(desk.granted().unwrap().told.contains("before"));
}

#[test]
fn a_file_of_profiles_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let credentials = folder.path().join("credentials");
    let write = |key: &str| {
        let text = format!("[default]\naws_access_key_id={key}\naws_secret_access_key=hush\naws_session_token={key}\n");
        std::fs::write(&credentials, text).unwrap();
    };
    write("AKIDONE");
    let config = folder.path().join("config");
    let profiles = Profiles { credentials: credentials.clone(), config, name: "default".to_owned() };
    let desk = Desk::new(Source::Profile(profiles));
    let first = desk.granted().unwrap();
    assert_eq!(first.told, "credentials of the profile default, key ..DONE");
    let age = || lock(&desk.held, BRIEF).unwrap().as_mut().unwrap().at -= RENEWAL_PAUSE;
    age();
    let failure = desk.renewed(&first).unwrap_err();
    assert!(failure.to_string().contains("no newer credentials yet"), "{failure}");
    write("AKIDTWO");
    age();
    assert!(desk.renewed(&first).unwrap().told.ends_with("DTWO"));
    let shown = format!("{first:?} {failure:?} {desk:?}");
    assert!(!shown.contains("hush"), "{shown}");
}

#[test]
fn fixed_ones_are_not_renewed() {
    let granted = Arc::new(Granted::bearer("the options", "hush"));
    let desk = Desk::new(Source::Fixed(granted.clone()));
    assert_eq!(desk.renewed(&granted).unwrap_err().class(), Class::Expired);
    assert_eq!(format!("{granted:?}"), "Granted { authority: Bearer, told: \"token of the options\" }");
}
