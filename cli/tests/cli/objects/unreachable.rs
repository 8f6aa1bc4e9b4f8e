//! Servers that are not there, or are none: told soon and with a remedy, at the opening and in mid-epoch. What may come
//! back is waited for.

use super::*;
use std::net::{SocketAddr, TcpListener};
use std::thread;

/// A port that no one listens at.
fn closed() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Says this to whoever asks, and ends the connection.
fn speaker(said: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]).and_then(|_| stream.write_all(said));
        }
    });
    address
}

/// A port at which connections are neither made nor refused, as behind a firewall, for as long as the sockets live.
fn silent() -> (SocketAddr, TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // Called again, it sets the length of the queue of those that are not accepted.
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok();
    let queued = (0..8).map_while(connect).collect();
    (address, listener, queued)
}

#[test]
fn what_is_no_server_ends_the_opening_soon() {
    let far = Far::new("");
    let tls = Far::new("--tls good");
    let plain = far.server.url().replace("http:", "https:");
    let (unanswered, _listener, _queued) = silent();
    let cases = [
        (format!("http://{}", closed()), "there is no connection to 127.0.0.1", "check the endpoint"),
        ("https://no-such-host.invalid".to_owned(), "the name no-such-host.invalid is not resolved", "name servers"),
        (format!("http://{}", speaker(b"SSH-2.0-OpenSSH_9.6\r\n")), "does not answer in HTTP/1.1", "its port"),
        (format!("http://{}", speaker(b"")), "ended the connection instead of answering", "its port"),
        (tls.server.url().replace("https:", "http:"), "does not answer in HTTP/1.1", "whether it wants https"),
        (plain, "ended the connection while shaking hands for TLS", "http://"),
        (format!("https://{}", speaker(b"HTTP/1.1 400 Bad Request\r\n\r\n")), "does not speak TLS there", "http://"),
        (format!("http://{unanswered}"), "there is no connection to 127.0.0.1", "the firewall"),
    ];
    // Each waits most of the time.
    thread::scope(|scope| {
        for (endpoint, what, remedy) in &cases {
            for arguments in
                ["inspect s3://bucket/class", "bench s3://bucket/tar/{0..1}.tar --no-raw", "list URL/0.tar"]
            {
                scope.spawn(move || {
                    let told = fails(&mut signed(&arguments.replace("URL", endpoint), endpoint), 1);
                    let named = if arguments.starts_with("list") { endpoint } else { "s3://bucket/" };
                    let (first, help) = told.split_once("\n  help: ").unwrap_or_else(|| panic!("no remedy: {told}"));
                    assert!(first.contains(named) && first.contains(what) && help.contains(remedy), "{told}");
                });
            }
        }
    });
}

#[test]
fn a_circle_of_redirections_ends_the_opening_soon() {
    let far = Far::of_images(6, "");
    write_archives(&far);
    far.server.tune("verbs", "GET,LIST").unwrap();
    far.server.tune("fault", "circle=100").unwrap();
    let url = far.server.url();
    let list = format!("list {url}/bucket/tar/0.tar");
    for mut command in [far.far("inspect AT/class"), far.far("inspect AT/tar"), unsigned(&list, "")] {
        let told = fails(&mut command, 1);
        assert!(told.contains("redirected in a circle") && told.contains("help: check the endpoint"), "{told}");
    }
    // The pages come, and no byte of an object.
    far.server.tune("verbs", "GET").unwrap();
    let told = fails(&mut far.far("inspect AT/tar"), 1);
    assert!(told.contains("s3://bucket/tar/0.tar:") && told.contains("redirected in a circle"), "{told}");
}

#[test]
fn what_is_no_server_any_more_ends_a_run_soon() {
    let cases = [
        ("circle=100", "redirected in a circle"),
        ("garbage=100", "does not answer in HTTP/1.1"),
        ("http2=100", "does not answer in HTTP/1.1"),
        ("big-head=100", "the head of the answer has more than 100 fields"),
    ];
    let run = |(fault, what): (&str, &str), on_error: &str| {
        let far = Far::of_images(120, "");
        let child = begun(&mut far.far(&format!("bench AT/class --on-error {on_error}")));
        far.server.tune("fault", fault).unwrap();
        let start = Instant::now();
        let output = child.wait_with_output().unwrap();
        let (took, told) = (start.elapsed(), stderr(&output));
        assert!(took < 2 * SOON, "{fault} took {took:?}: {told}");
        assert_eq!(output.status.code(), Some(1), "{fault}: {told}");
        assert!(told.contains("s3://bucket/") && told.contains(what), "{fault}: {told}");
        assert!(told.contains("help: check the endpoint") && told.contains("resume"), "{fault}: {told}");
    };
    thread::scope(|scope| {
        for case in cases {
            for on_error in ["raise", "skip"] {
                scope.spawn(move || run(case, on_error));
            }
        }
    });
}

/// The server of a folder with images, at a port of its own, so that it can be started again.
fn at_its_port(far: &Far) -> Server {
    let address = far.server.url().trim_start_matches("http://").to_owned();
    let root = far.root.path().to_str().unwrap();
    Server::start(Options::parse(["--root", root, "--listen", &address]).unwrap()).unwrap()
}

#[test]
fn a_server_that_starts_again_costs_no_sample() {
    let mut far = Far::of_images(120, "");
    let whole = digest(&bench(&mut far.commands("bench AT/class")[0]));
    let child = begun(&mut far.far("bench AT/class --on-error raise"));
    far.server.stop();
    let mut again = None;
    waits(child, "there is no connection to", || again = Some(at_its_port(&far)), whole);
}

#[test]
fn a_server_that_stays_away_ends_a_run() {
    let mut far = Far::of_images(120, "");
    let child = begun(&mut far.far("bench AT/class --on-error skip --outage-timeout 2s"));
    far.server.stop();
    let start = Instant::now();
    let output = child.wait_with_output().unwrap();
    let told = stderr(&output);
    assert!(start.elapsed() < SOON && output.status.code() == Some(1), "{told}");
    assert!(told.contains("s3://bucket/class: no object of this place could be read for 2"), "{told}");
    assert!(told.contains("there is no connection to") && told.contains("resume"), "{told}");
}
