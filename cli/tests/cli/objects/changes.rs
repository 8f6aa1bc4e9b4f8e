//! What goes wrong in mid-run: credentials that expire, objects that are removed, answers that contradict themselves.

use super::*;
use std::thread;

/// With a profile whose credentials are of this token.
fn profile(folder: &Path, token: &str) {
    let text = format!(
        "[default]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\naws_session_token = {token}\n"
    );
    fs::write(folder.join("new"), text).unwrap();
    fs::rename(folder.join("new"), folder.join("credentials")).unwrap();
}

/// Images behind a server that takes one token for three seconds, and another one for longer.
fn expiring() -> (Far, tempfile::TempDir, impl Fn(&str) -> Command) {
    let tokens = "--token-until hush-old:3 --token-until hush-new:600";
    let far = Far::of_images(400, &format!("--keys {KEY_ID}:{SECRET} {tokens}"));
    let home = tempfile::tempdir().unwrap();
    profile(home.path(), "hush-old");
    let (url, file) = (far.server.url().to_owned(), home.path().join("credentials"));
    let command = move |arguments: &str| {
        let mut command = unsigned(arguments, &url);
        command.env("AWS_SHARED_CREDENTIALS_FILE", &file).env("AWS_CONFIG_FILE", "/nowhere");
        command
    };
    (far, home, command)
}

#[test]
fn credentials_that_expire_are_read_again_and_waited_for() {
    let (far, home, command) = expiring();
    let whole = digest(&bench(&mut far.commands("bench AT/class")[0]));
    let child = begun(&mut command("bench s3://bucket/class --on-error raise"));
    // They come a while after the others have expired.
    thread::sleep(Duration::from_secs(5));
    assert!(far.server.stats().statuses.contains_key(&400), "the token has not expired: {:?}", far.server.stats());
    profile(home.path(), "hush-new");
    let output = child.wait_with_output().unwrap();
    let (out, err) = (stdout(&output), stderr(&output));
    assert!(output.status.success() && !err.contains("hush"), "{err}");
    assert_eq!(digest(&json(&out)), whole, "{err}");
}

#[test]
fn credentials_that_have_expired_end_a_run_with_its_state() {
    let (far, home, command) = expiring();
    let whole = digest(&bench(&mut far.commands("bench AT/class")[0]));
    let state = home.path().join("state.json").display().to_string();
    let run = format!("bench s3://bucket/class --on-error skip --outage-timeout 1s --save-state {state}");
    let output = begun(&mut command(&run)).wait_with_output().unwrap();
    let err = stderr(&output);
    assert!(output.status.code() == Some(1) && !err.contains("hush"), "{err}");
    for words in ["there are no newer credentials yet", "key ..1234", "renew the credentials", "resume"] {
        assert!(err.contains(words), "{words}: {err}");
    }
    profile(home.path(), "hush-new");
    let rest = bench(&mut command(&format!("bench s3://bucket/class --resume {state} --epochs 1")));
    assert_eq!(digest(&rest), whole, "nothing is lost: {err}");
}

#[test]
fn a_bucket_that_is_away_for_a_while_costs_no_sample() {
    let far = Far::of_images(120, "");
    let whole = digest(&bench(&mut far.commands("bench AT/class")[0]));
    let [bucket, away] = ["bucket", "away"].map(|name| far.root.path().join(name));
    let child = begun(&mut far.far("bench AT/class --on-error skip"));
    fs::rename(&bucket, &away).unwrap();
    waits(child, "there is no such bucket", || fs::rename(&away, &bucket).unwrap(), whole);
}

#[test]
fn an_object_that_is_removed_is_an_error_of_its_sample() {
    let far = Far::of_images(120, "");
    let kept = tempfile::tempdir().unwrap();
    let quarantine = kept.path().join("bad.jsonl");
    let mut command = far.far("bench AT/class --on-error skip");
    let child = begun(command.arg("--quarantine").arg(&quarantine));
    fs::remove_file(far.root.path().join("bucket/class/dog/119.jpg")).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = &json(&stdout(&output))["digest"];
    assert_eq!((&told["samples"], &told["lost_samples"]), (&119.into(), &1.into()), "{}", stderr(&output));
    let bad = fs::read_to_string(&quarantine).unwrap();
    assert!(bad.contains("class/dog/119.jpg") && bad.contains("\"kind\":\"NotFound\""), "{bad}");
}

/// Each is asked for once more elsewhere, and then its samples fail: no byte of it is believed.
#[test]
fn answers_that_contradict_are_errors_of_their_samples() {
    let far = Far::of_images(6, "");
    let wanted = expect(&mut far.far("list AT/class --digest sha256"), 0).0;
    for (fault, what) in [
        ("wrong-range=100", "the server was asked for the bytes "),
        ("two-lengths=100", "the server's answer has two lengths"),
        ("changed-etag=100", "the object was replaced since it was listed"),
    ] {
        far.server.tune("fault", fault).unwrap();
        let told = fails(&mut far.far("bench AT/class --no-raw --on-error raise"), 1);
        assert!(told.contains("s3://bucket/class/") && told.contains(what), "{fault}: {told}");
        if fault == "changed-etag=100" {
            continue;
        }
        // Wrong once, it is right elsewhere.
        far.ask("POST", "/_reset", b"");
        far.server.tune("attempts", "1").unwrap();
        far.server.tune("fault", fault).unwrap();
        let once = expect(&mut far.far("list AT/class --digest sha256 --on-error raise"), 0).0;
        assert_eq!(once, wanted, "{fault}");
        far.ask("POST", "/_reset", b"");
    }
}

#[test]
fn a_server_by_ipv6_alone_is_read() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: there is no IPv6 here");
        return;
    }
    let far = Far::of_images(12, "--listen [::1]:0");
    let [near, by_url] = far.commands("bench AT/class --shuffle").map(|mut command| digest(&bench(&mut command)));
    assert_eq!(near, by_url);
}
