//! Where nothing comes, the rest is asked for over another connection: each stage's stall, and what may not be mixed.

use crate::secure::{Certificate, trusting};
use crate::server::{Request, Server, Step, answer, part, refusal, text};
use crate::{data, open, options, read};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use uringload_core::store::{Class, Counts, Interrupt, ListOptions, Store as _};
use uringload_remote::{AccessOptions, Store};

/// Far longer than a test takes, and than any patience.
const STALL: Duration = Duration::from_secs(15);
/// What an answer takes while it is measured. The patience is eight times as long: pauses of a busy machine are no
/// stalls.
const USUAL: Duration = Duration::from_millis(30);
/// What a read that is saved from a stall may take on a busy machine.
const SOON: Duration = Duration::from_secs(8);

/// A server of 200 000 bytes behind all keys. The first `stalled` attempts at a key that begins with `stall` are
/// answered by `steps`.
fn server(stalled: usize, steps: impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static) -> Server {
    Server::new(script(stalled, steps))
}

fn script(
    stalled: usize,
    steps: impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static,
) -> impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static {
    let attempts: Mutex<HashMap<String, usize>> = Mutex::default();
    move |request| {
        let mut attempts = attempts.lock().unwrap();
        let attempt = attempts.entry(request.path().to_owned()).or_default();
        *attempt += 1;
        if request.path().contains("stall") && *attempt <= stalled { steps(request) } else { whole(request) }
    }
}

fn whole(request: &Request) -> Vec<Step> {
    let mut steps = part(request, &data(200_000), "ETag: \"one\"\r\n");
    if request.path().ends_with("warm") {
        steps.insert(0, Step::Wait(USUAL));
    }
    steps
}

/// The right answer, which stops for that long behind this number of bytes of its body.
fn stops(request: &Request, behind: usize, time: Duration) -> Vec<Step> {
    let Some(Step::Send(mut sent)) = whole(request).pop() else { unreachable!() };
    let body = sent.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let rest = sent.split_off(body + behind);
    vec![Step::Send(sent), Step::Wait(time), Step::Send(rest)]
}

/// A store that has measured how soon its server answers.
fn measured(server: &Server) -> Store {
    let options = AccessOptions { stall_limit: Some(STALL * 2), ..options(server) };
    learn(open("s3://bucket", options))
}

fn learn(store: Store) -> Store {
    for _ in 0..4 {
        assert_eq!(read(&store, b"warm", 0, 200_000).unwrap().0, data(200_000));
    }
    store
}

fn counts(store: &Store) -> Counts {
    store.counts().unwrap()
}

/// Reads 100 000 bytes from 7 on, soon.
fn read_soon(store: &Store, key: &str) {
    let start = Instant::now();
    let (found, read) = read(store, key.as_bytes(), 7, 100_000).unwrap();
    assert!(start.elapsed() < SOON, "{key}: {:?}", start.elapsed());
    assert_eq!((read.bytes, read.total), (100_000, Some(200_000)), "{key}");
    assert!(found == data(200_000)[7..100_007], "{key}: other bytes");
}

#[test]
fn a_head_that_does_not_come() {
    let server = server(1, |_| vec![Step::Wait(STALL)]);
    let store = measured(&server);
    read_soon(&store, "stall");
    let now = counts(&store);
    assert!(now.hedges >= 1 && now.hedges_won >= 1, "{now:?}");
    assert_eq!(now.endpoint, server.address.to_string());
    let asked = server.asked();
    assert_eq!((now.requests as usize, now.connections as usize), (asked.len(), server.connections()));
    assert_eq!((asked[4].range(), asked[5].range()), ((7, 100_006), (7, 100_006)));
    assert_ne!(asked[4].connection, asked[5].connection);
    // The connection that won is used again.
    read_soon(&store, "warm");
    assert_eq!(counts(&store).connections, now.connections);
}

#[test]
fn half_a_head() {
    let server = server(1, |_| {
        let mut steps = text("HTTP/1.1 206 x\r\nContent-Ra");
        steps.push(Step::Wait(STALL));
        steps
    });
    read_soon(&measured(&server), "stall");
}

#[test]
fn a_body_that_stops_goes_on_where_it_stopped() {
    for behind in [0, 1, 1000, 99_999] {
        let server = server(1, move |request| stops(request, behind, STALL));
        let store = measured(&server);
        read_soon(&store, "stall");
        assert!(counts(&store).hedges_won >= 1, "{behind}");
        assert_eq!(server.asked()[5].range(), (7 + behind, 100_006), "what is here is not asked for again");
    }
}

#[test]
fn tls_and_what_goes_through_it() {
    let certificate = Certificate::new("127.0.0.1", |_| {});
    for (key, behind) in [("stall/head", None), ("stall/body", Some(5)), ("stall/later", Some(50_000))] {
        let server = certificate.server(script(1, move |request| match behind {
            None => vec![Step::Wait(STALL)],
            Some(behind) => stops(request, behind, STALL),
        }));
        let url = format!("https://127.0.0.1:{}/", server.address.port());
        let options = AccessOptions { stall_limit: Some(STALL * 2), ..trusting(Some(certificate.file())) };
        let store = learn(open(&url, options));
        read_soon(&store, key);
        assert!(counts(&store).hedges_won >= 1, "{key}");
    }
}

#[test]
fn a_handshake_that_does_not_go_on() {
    let certificate = Certificate::new("127.0.0.1", |_| {});
    let connections = AtomicUsize::new(0);
    let server = certificate.server_by(
        // The answer to the second greeting does not come.
        move || if connections.fetch_add(1, Ordering::Relaxed) == 1 { STALL } else { Duration::ZERO },
        // Each connection is good for 5 requests.
        |request| {
            let mut steps = whole(request);
            if request.before == 4 {
                steps.push(Step::Close);
            }
            steps
        },
    );
    let url = format!("https://127.0.0.1:{}/", server.address.port());
    let options = AccessOptions { stall_limit: Some(STALL * 2), ..trusting(Some(certificate.file())) };
    let store = learn(open(&url, options));
    read_soon(&store, "last");
    thread::sleep(Duration::from_millis(100));
    read_soon(&store, "new");
    let now = counts(&store);
    assert!(now.hedges_won >= 1 && now.connections >= 3, "{now:?}");
}

#[test]
fn there_are_four_attempts() {
    let server = server(3, |_| vec![Step::Wait(STALL)]);
    let store = measured(&server);
    read_soon(&store, "stall");
    assert!(counts(&store).hedges >= 3 && server.asked().len() >= 8);
    let always = Server::new(script(9, |_| vec![Step::Wait(STALL)]));
    let options = AccessOptions { stall_limit: Some(Duration::from_secs(3)), ..options(&always) };
    let store = learn(open("s3://bucket", options));
    let start = Instant::now();
    assert_eq!(read(&store, b"stall", 0, 10).unwrap_err().class(), Class::Storage);
    assert!(start.elapsed() >= Duration::from_secs(3), "the last ends with the limit, not before");
    assert_eq!(always.asked().len(), 8);
}

#[test]
fn what_brings_some_bytes_and_stops_again_is_no_end() {
    let server = server(5, |request| stops(request, 1000, STALL));
    let store = measured(&server);
    read_soon(&store, "stall");
    assert!(counts(&store).hedges_won >= 5);
    let firsts: Vec<usize> = server.asked()[4..].iter().map(|request| request.range().0).collect();
    assert!((0..=5).all(|at| firsts.contains(&(7 + 1000 * at))), "{firsts:?}");
}

#[test]
fn those_that_win_cost_nothing() {
    let server = server(1, |_| vec![Step::Wait(STALL)]);
    let store = measured(&server);
    thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || (0..10).for_each(|at| read_soon(store, &format!("stall/{thread}/{at}"))));
        }
    });
    assert!(counts(&store).hedges_won >= 40, "more than there were at first: {:?}", counts(&store));
}

#[test]
fn the_budget_bounds_what_is_asked_twice() {
    // After a while each answer takes 500 ms, those of second attempts too: the first is always sooner.
    let server = Server::new(|request| {
        let mut steps = whole(request);
        if request.path().ends_with("slow") {
            steps.insert(0, Step::Wait(Duration::from_millis(500)));
        }
        steps
    });
    let store = measured(&server);
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| (0..4).for_each(|_| read_soon(&store, "slow")));
        }
    });
    let now = counts(&store);
    assert!(now.hedges >= 1 && now.hedges <= 16 + now.hedges_won + now.requests / 50, "{now:?}");
    assert_eq!(now.requests, 4 + 128 + now.hedges);
}

#[test]
fn undisturbed_reads_are_made_once() {
    let server = server(0, |_| Vec::new());
    let store = measured(&server);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..250).for_each(|at| read_soon(&store, &format!("{at}"))));
        }
    });
    let now = counts(&store);
    assert!(now.hedges <= 16 + now.requests / 50, "{now:?}");
    assert_eq!((now.throttled, now.lists), (0, 0));
    assert!(now.bytes >= 1000 * 100_000 + 4 * 200_000, "{now:?}");
}

#[test]
fn no_two_contents_are_mixed() {
    let other = |request: &Request| part(request, &vec![b'x'; 200_000], "ETag: \"two\"\r\n");
    let longer = |request: &Request| part(request, &vec![b'x'; 200_001], "ETag: \"one\"\r\n");
    let unnamed = |request: &Request| part(request, &vec![b'x'; 200_000], "");
    let shorter = |request: &Request| {
        let (first, last) = request.range();
        let range = format!("Content-Range: bytes {first}-{}/200000\r\nETag: \"one\"\r\n", last - 1);
        answer("206 x", &range, &vec![b'x'; last - first])
    };
    let all = |_: &Request| answer("200 x", "ETag: \"one\"\r\n", &vec![b'x'; 200_000]);
    let page = |_: &Request| answer("403 x", "Content-Type: text/html\r\n", b"<html>");
    type Reply = fn(&Request) -> Vec<Step>;
    let cases: [(&str, Reply); 6] = [
        ("another version", other),
        ("another size", longer),
        ("no version", unnamed),
        ("another part", shorter),
        ("all of it", all),
        ("a page", page),
    ];
    for (case, second) in cases {
        let first = |request: &Request| stops(request, 1000, Duration::from_secs(2));
        let made = AtomicUsize::new(0);
        let server =
            server(
                9,
                move |request| {
                    if made.fetch_add(1, Ordering::Relaxed) == 0 { first(request) } else { second(request) }
                },
            );
        let store = measured(&server);
        read_soon(&store, "stall");
        let now = counts(&store);
        assert!(now.hedges >= 1 && now.hedges_won == 0, "{case}: {now:?}");
    }
}

#[test]
fn what_has_no_version_is_not_put_together() {
    let server = Server::new(|request| {
        if !request.path().ends_with("stall") {
            return whole(request);
        }
        let Some(Step::Send(mut sent)) = part(request, &data(200_000), "").pop() else { unreachable!() };
        let rest = sent.split_off(sent.len() - 5000);
        vec![Step::Send(sent), Step::Wait(Duration::from_secs(1)), Step::Send(rest)]
    });
    let store = measured(&server);
    read_soon(&store, "stall");
    assert_eq!((counts(&store).hedges, server.asked().len()), (0, 5));
}

#[test]
fn a_server_that_wants_fewer_requests_gets_fewer() {
    let made = AtomicUsize::new(0);
    let server = server(9, move |request| match made.fetch_add(1, Ordering::Relaxed) {
        0 => stops(request, 10, Duration::from_secs(1)),
        1 => refusal("503 x", "SlowDown"),
        _ => {
            let mut steps = refusal("503 x", "SlowDown");
            steps.insert(0, Step::Wait(Duration::from_secs(1)));
            steps
        }
    });
    let store = measured(&server);
    read_soon(&store, "stall");
    assert_eq!((counts(&store).hedges, counts(&store).throttled, server.asked().len()), (1, 1, 6));
    assert_eq!(read(&store, b"stall", 0, 10).unwrap_err().class(), Class::Throttled);
    assert_eq!((counts(&store).hedges, counts(&store).throttled), (1, 2), "the budget is gone");
}

#[test]
fn a_body_that_drips() {
    let server = server(1, |request| {
        let Some(Step::Send(sent)) = whole(request).pop() else { unreachable!() };
        let drops =
            sent[1000..].chunks(100).map(|drop| [Step::Wait(Duration::from_millis(4)), Step::Send(drop.to_vec())]);
        std::iter::once(Step::Send(sent[..1000].to_vec())).chain(drops.flatten()).collect()
    });
    let store = measured(&server);
    let start = Instant::now();
    let (found, _) = read(&store, b"stall", 0, 200_000).unwrap();
    assert!(found == data(200_000) && start.elapsed() < SOON, "{:?}", start.elapsed());
    assert!(counts(&store).hedges_won >= 1);
}

#[test]
fn all_attempts_are_cancelled() {
    let server = server(9, |_| vec![Step::Wait(STALL)]);
    let store = measured(&server);
    let interrupt = Interrupt::new();
    let start = Instant::now();
    let failure = thread::scope(|scope| {
        scope.spawn(|| {
            while server.asked().len() < 6 && start.elapsed() < SOON {
                thread::sleep(Duration::from_millis(5));
            }
            interrupt.stop();
        });
        store.read(b"stall", 0, &mut [0; 10], None, &interrupt).unwrap_err()
    });
    assert_eq!(failure.class(), Class::Interrupted);
    assert!(start.elapsed() < SOON && counts(&store).hedges >= 1);
}

#[test]
fn listings_are_not_asked_for_twice() {
    let page = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
    let server = Server::new(move |request| {
        if request.query().contains("list-type") {
            let mut steps = answer("200 OK", "", page.as_bytes());
            steps.insert(0, Step::Wait(Duration::from_secs(1)));
            return steps;
        }
        whole(request)
    });
    let store = measured(&server);
    store.list(b"", &ListOptions::default(), &Interrupt::new(), &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    let now = counts(&store);
    assert_eq!((now.lists, now.requests, now.hedges, server.asked().len()), (1, 5, 0, 5));
}
