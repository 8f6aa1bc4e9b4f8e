//! The ways to a store: TLS, proxies of the environment, the protocols of GCS and Azure, a clock that is wrong.

use super::*;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::{io, thread};

/// Images, by a server with a certificate of this kind, and the file of the certificate.
fn with_tls(kind: &str, images: usize) -> (Far, tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem").display().to_string();
    let far = Far::of_images(images, &format!("--tls {kind} --cert-out {file}"));
    (far, folder, file)
}

#[test]
fn a_certificate_is_trusted_by_its_file_alone() {
    let (far, _folder, file) = with_tls("good", 12);
    let near = digest(&bench(&mut far.commands("bench AT/class --shuffle")[0]));
    assert_eq!(digest(&bench(&mut far.far(&format!("bench AT/class --shuffle --ca-file {file}")))), near);
    assert_eq!(digest(&bench(far.far("bench AT/class --shuffle").env("AWS_CA_BUNDLE", &file))), near);
    let told = fails(&mut far.far("inspect AT/class"), 1);
    assert!(told.contains("s3://bucket/class: ") && told.contains("the certificate of 127.0.0.1"), "{told}");
    assert!(told.contains("is not trusted: ") && told.contains("--ca-file"), "{told}");
    for kind in ["expired", "other-name"] {
        let (far, _folder, file) = with_tls(kind, 12);
        let told = fails(&mut far.far(&format!("inspect AT/class --ca-file {file}")), 1);
        assert!(told.contains("the certificate of 127.0.0.1 is not trusted: "), "{kind}: {told}");
    }
}

/// Passes connections on to a server, and later ones to another.
struct Balancer {
    url: String,
    /// The server, and both ends of each connection to it.
    to: Arc<Mutex<(SocketAddr, Vec<TcpStream>)>>,
}

impl Balancer {
    fn new(server: &Server) -> Balancer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let to = Arc::new(Mutex::new((address_of(server), Vec::new())));
        let balancer = Balancer { url, to: Arc::clone(&to) };
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut to = to.lock().unwrap();
                let behind = TcpStream::connect(to.0).unwrap();
                for (from, into) in [(&stream, &behind), (&behind, &stream)] {
                    let (mut from, mut into) = (from.try_clone().unwrap(), into.try_clone().unwrap());
                    thread::spawn(move || io::copy(&mut from, &mut into));
                }
                to.1.extend([stream, behind]);
            }
        });
        balancer
    }

    /// Breaks all connections, and passes the next ones on to that server.
    fn lead_to(&self, server: &Server) {
        let mut to = self.to.lock().unwrap();
        to.0 = address_of(server);
        for stream in to.1.drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn address_of(server: &Server) -> SocketAddr {
    server.url().split("://").nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_certificate_that_is_trusted_no_more_costs_no_sample() {
    let (far, _folder, file) = with_tls("good", 120);
    let whole = digest(&bench(&mut far.commands("bench AT/class")[0]));
    let root = far.root.path().to_str().unwrap();
    let other = Server::start(Options::parse(["--root", root, "--tls", "good"]).unwrap()).unwrap();
    let balancer = Balancer::new(&far.server);
    let run = format!("bench s3://bucket/class --on-error skip --ca-file {file}");
    let child = begun(&mut signed(&run, &balancer.url));
    balancer.lead_to(&other);
    waits(child, "is not trusted", || balancer.lead_to(&far.server), whole);
}

/// What a proxy does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Good,
    /// Answers everything with a page for people.
    Page,
    /// Asks who it is.
    Asks,
    /// Lets no one through.
    Refuses,
}

/// A proxy in front of a server, whatever it is asked for.
struct Proxy {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn new(server: &Server, kind: Kind) -> Proxy {
        let to = address_of(server);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let asks = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let asks = Arc::clone(&asks);
                thread::spawn(move || serve(stream, to, kind, &asks));
            }
        });
        Proxy { url, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// Serves a connection until an end of it is gone.
fn serve(mut stream: TcpStream, to: SocketAddr, kind: Kind, asked: &Mutex<Vec<String>>) -> io::Result<()> {
    let answer = match kind {
        Kind::Good => "",
        Kind::Page => "200 OK\r\nContent-Type: text/html\r\nContent-Length: 15\r\n\r\n<html>hush</a>\n",
        Kind::Asks => "407 x\r\nContent-Length: 0\r\n\r\n",
        Kind::Refuses => "403 Forbidden\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
    };
    let mut behind = TcpStream::connect(to)?;
    let (mut from, mut into) = (behind.try_clone()?, stream.try_clone()?);
    thread::spawn(move || io::copy(&mut from, &mut into));
    while let Some(head) = head(&mut stream)? {
        let first = head.lines().next().unwrap_or_default().to_owned();
        asked.lock().unwrap().push(first.clone());
        if !answer.is_empty() {
            stream.write_all(format!("HTTP/1.1 {answer}").as_bytes())?;
        } else if first.starts_with("CONNECT ") {
            stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
            return io::copy(&mut stream, &mut behind).map(drop);
        } else {
            // Without TLS a proxy reads whole URLs.
            behind.write_all(head.replacen("http://storage.invalid", "", 1).as_bytes())?;
        }
    }
    Ok(())
}

/// The head of a request; nothing at the end.
fn head(stream: &mut TcpStream) -> io::Result<Option<String>> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte)? == 0 {
            return Ok(None);
        }
        head.push(byte[0]);
    }
    Ok(Some(String::from_utf8(head).unwrap()))
}

#[test]
fn a_proxy_of_the_environment_is_gone_through() {
    let (tls, _folder, file) = with_tls("other-name", 12);
    let near = digest(&bench(&mut tls.commands("bench AT/class --shuffle")[0]));
    let proxy = Proxy::new(&tls.server, Kind::Good);
    let arguments = format!("bench s3://bucket/class --shuffle --ca-file {file}");
    let mut command = signed(&arguments, "https://other.invalid");
    assert_eq!(digest(&bench(command.env("HTTPS_PROXY", &proxy.url))), near);
    let asked = proxy.asked();
    assert!(!asked.is_empty() && asked.iter().all(|line| line == "CONNECT other.invalid:443 HTTP/1.1"), "{asked:?}");
    // Without TLS. The name of the server is part of what is signed.
    let plain = Far::of_images(12, &format!("--keys {KEY_ID}:{SECRET}"));
    let proxy = Proxy::new(&plain.server, Kind::Good);
    let mut command = signed("bench s3://bucket/class --shuffle --allow-http", "http://storage.invalid");
    assert_eq!(digest(&bench(command.env("http_proxy", &proxy.url))), near);
    let asked = proxy.asked();
    let is_whole = |line: &String| line.starts_with("GET http://storage.invalid/bucket");
    assert!(asked.len() > 12 && asked.iter().all(is_whole), "{asked:?}");
    // Who is named goes past it, and there is no such host.
    let mut command = signed("inspect s3://bucket/class", "https://other.invalid");
    let told = fails(command.env("HTTPS_PROXY", &proxy.url).env("NO_PROXY", "example.org,other.invalid"), 1);
    assert!(told.contains("the name other.invalid is not resolved"), "{told}");
}

#[test]
fn a_proxy_that_lets_no_one_through_is_told_soon() {
    let far = Far::new("");
    for (kind, by_tls, plain) in [
        (Kind::Page, "the proxy 127.0.0.1 answered 200 text/html", "page for people (text/html), perhaps a proxy's"),
        (Kind::Asks, "the proxy 127.0.0.1 asks who you are", "the proxy asks who you are"),
        (Kind::Refuses, "the proxy 127.0.0.1 answered 403", "403"),
    ] {
        let proxy = Proxy::new(&far.server, kind);
        for (endpoint, what) in [("https://other.invalid", by_tls), ("http://storage.invalid", plain)] {
            let mut command = signed("inspect s3://bucket/class --allow-http", endpoint);
            let told = fails(command.env("https_proxy", &proxy.url).env("http_proxy", &proxy.url), 1);
            assert!(told.contains("s3://bucket/class: ") && told.contains(what), "{endpoint}: {told}");
            assert!(told.contains("\n  help: "), "{told}");
        }
    }
}

/// The server of the tests checks no signature of theirs: those are compared with those of `object_store` elsewhere.
#[test]
fn gcs_and_azure_are_read_as_their_folders() {
    let far = Far::of_images(40, "");
    write_archives(&far);
    let url = far.server.url();
    for name in ["class", "tar"] {
        let near = digest(&bench(&mut far.commands(&format!("bench AT/{name} --shuffle"))[0]));
        for (place, given) in [
            ("gs://bucket", vec![("CLOUDSDK_AUTH_ACCESS_TOKEN", TOKEN)]),
            ("az://bucket", vec![("AZURE_STORAGE_ACCOUNT", "some"), ("AZURE_STORAGE_KEY", "aHVzaC1zZWNyZXQ=")]),
            ("az://bucket", vec![("AZURE_STORAGE_ACCOUNT", "some"), ("AZURE_STORAGE_SAS_TOKEN", "sig=hush")]),
            ("abfss://bucket@some.dfs.core.windows.net", vec![("AZURE_STORAGE_KEY", "aHVzaC1zZWNyZXQ=")]),
        ] {
            let command = |arguments: String| {
                let mut command = unsigned(&format!("{arguments} --endpoint {url}"), "");
                command.envs(given.iter().copied());
                command
            };
            let (told, err) = expect(&mut command(format!("inspect {place}/{name} --json")), 0);
            assert!(!told.contains("hush") && !err.contains("hush"), "a secret is told: {told}{err}");
            let shown = far.same(&format!("list AT/{name} --digest sha256"));
            let (listed, _) = expect(&mut command(format!("list {place}/{name} --digest sha256")), 0);
            let listed = listed.replace(&format!("{place}/"), "AT/");
            assert!(listed == shown, "{place}/{name}: {listed}\n{shown}");
            assert_eq!(digest(&bench(&mut command(format!("bench {place}/{name} --shuffle")))), near, "{place}");
        }
    }
    // What a listing of Azure lacks is asked for page by page.
    let many = Far::new("--synthetic 6000:10");
    let mut command =
        unsigned(&format!("inspect az://synthetic --format folder --json --endpoint {}", many.server.url()), "");
    let (told, _) = expect(command.env("AZURE_STORAGE_ACCOUNT", "some").arg("--anonymous"), 0);
    assert_eq!((&json(&told)["samples"], many.server.stats().requests["LIST"] > 1), (&6000.into(), true), "{told}");
}

#[test]
fn a_clock_that_is_wrong_is_told_once_with_both_times() {
    let fast = Far::of_images(12, &format!("--keys {KEY_ID}:{SECRET} --clock 3600"));
    let near = digest(&bench(&mut fast.commands("bench AT/class")[0]));
    let (out, err) = expect(fast.far("bench AT/class").args(["--no-raw", "--json", "-"]), 0);
    assert_eq!(digest(&json(&out)), near);
    let told: Vec<&str> = err.lines().filter(|line| line.contains("clock")).collect();
    let [told] = told[..] else { panic!("once: {err}") };
    assert!(told.starts_with("uringload: the server's clock instead of this machine's clock: here it is "), "{told}");
    let (here, there) = told.split_once(", and there ").unwrap();
    let hour = |text: &str| text.split(" GMT").next().unwrap().rsplit(' ').next().unwrap()[..2].parse::<u32>().unwrap();
    assert_eq!((hour(here) + 1) % 24, hour(there), "{told}");
    assert!(told.ends_with("; set the clock of this machine (chronyd, systemd-timesyncd)"), "{told}");
}

#[test]
fn another_region_is_followed_and_told_once() {
    let far = Far::of_images(12, &format!("--keys {KEY_ID}:{SECRET} --region eu-west-1"));
    let near = digest(&bench(&mut far.commands("bench AT/class")[0]));
    let run = |region: &str| {
        let mut command = far.far("bench AT/class --no-raw --json -");
        let (out, err) = expect(command.env("AWS_REGION", region), 0);
        assert_eq!(digest(&json(&out)), near, "{region}: {err}");
        err.matches("the region eu-west-1 instead of ").count()
    };
    assert_eq!(["ap-south-1", "eu-west-1"].map(run), [1, 0]);
}

#[test]
fn what_versions_do_not_prove_is_told() {
    let far = Far::of_images(2, "");
    far.server.tune("verbs", "GET").unwrap();
    let url = format!("{}/bucket/class/cat/000.jpg", far.server.url());
    for (fault, what) in [
        ("no-stamp=100", "objects as they come instead of objects with versions"),
        ("weak-etag=100", "their dates and sizes instead of strong ETags"),
    ] {
        far.server.tune("fault", fault).unwrap();
        let (_, err) = expect(&mut unsigned(&format!("list {url}"), ""), 0);
        assert_eq!(err.matches(what).count(), 1, "{fault}: {err}");
    }
}
