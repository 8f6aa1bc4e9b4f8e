//! Listings: pages, and each way in which they go wrong.

use crate::server::{Request, Server, Step, answer, refusal, text};
use crate::{keys, open, options, store};
use std::ops::ControlFlow;
use std::time::Duration;
use uringload_core::store::{Class, Failure, Interrupt, ListOptions, Listed, Store as _};
use uringload_remote::{AccessOptions, Credentials, Store};

fn entry(key: &str, size: u64) -> String {
    format!("<Contents><Key>{key}</Key><Size>{size}</Size><ETag>\"{key}\"</ETag></Contents>")
}

fn page(entries: &[String], next: &str) -> Vec<Step> {
    let next = match next {
        "" => "<IsTruncated>false</IsTruncated>".to_owned(),
        next => format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{next}</NextContinuationToken>"),
    };
    let body = format!("<ListBucketResult>{next}{}</ListBucketResult>", entries.concat());
    answer("200 OK", "Content-Type: application/xml\r\n", body.as_bytes())
}

/// Three pages of two keys, by their tokens.
fn three(request: &Request) -> Vec<Step> {
    let two = |number: u32| [entry(&format!("data/{number}a"), 5), entry(&format!("data/{number}b"), 6)];
    match request.query() {
        query if query.contains("continuation-token=t1%3D") => page(&two(2), "t2"),
        query if query.contains("continuation-token=t2") => page(&two(3), ""),
        _ => page(&two(1), "t1="),
    }
}

fn list(store: &Store, prefix: &str, options: &ListOptions) -> (Vec<String>, Result<Listed, Failure>) {
    let mut found = Vec::new();
    let listed = store.list(prefix.as_bytes(), options, &Interrupt::new(), &mut |page| {
        found.extend(page.objects.into_iter().map(|object| String::from_utf8(object.key).unwrap()));
        found.extend(page.folders.into_iter().map(|folder| String::from_utf8(folder).unwrap()));
        ControlFlow::Continue(())
    });
    if let Err(failure) = &listed {
        assert!(!format!("{failure} {failure:?}").contains("hush"), "{failure}");
    }
    (found, listed)
}

fn all(store: &Store) -> (Vec<String>, Result<Listed, Failure>) {
    list(store, "data/", &ListOptions::default())
}

#[test]
fn pages_come_one_after_the_other() {
    let server = Server::new(three);
    let store = store(&server);
    let (found, listed) = all(&store);
    assert_eq!(found, ["data/1a", "data/1b", "data/2a", "data/2b", "data/3a", "data/3b"]);
    assert_eq!(listed.unwrap(), Listed { pages: 3, objects: 6, markers: 0 });
    let asked = server.asked();
    assert_eq!(asked[0].target, "/bucket?encoding-type=url&list-type=2&prefix=data%2F");
    assert!(asked.iter().all(|request| request.field("authorization").contains("Signature=")));
    assert_eq!(server.connections(), 1);
    let mut pages = 0;
    let broken = store.list(b"data/", &ListOptions::default(), &Interrupt::new(), &mut |_| {
        pages += 1;
        ControlFlow::Break(())
    });
    assert_eq!((broken.unwrap().pages, pages), (1, 1));
}

#[test]
fn versions_are_those_of_reads() {
    let server = Server::new(|request| match request.query() {
        "" => crate::server::part(request, b"12345", "ETag: \"data/1a\"\r\n"),
        _ => three(request),
    });
    let store = store(&server);
    let mut version = None;
    let take = &mut |page: uringload_core::store::Page| {
        version = page.objects[0].version;
        ControlFlow::Break(())
    };
    store.list(b"data/", &ListOptions::default(), &Interrupt::new(), take).unwrap();
    assert_eq!(crate::read_as(&store, b"data/1a", 0, 5, version).unwrap().1.version, version);
    assert!(version.is_some());
}

#[test]
fn folders_and_what_is_behind() {
    let folded = "<ListBucketResult><Contents><Key>data/</Key><Size>0</Size></Contents><CommonPrefixes><Prefix>data/x/\
                  </Prefix></CommonPrefixes></ListBucketResult>";
    let server = Server::new(|_| answer("200 OK", "", folded.as_bytes()));
    let options = ListOptions { after: Some(b"data/w".to_vec()), folders: true };
    let (found, listed) = list(&store(&server), "data/", &options);
    assert_eq!((found, listed.unwrap().markers), (vec!["data/x/".to_owned()], 1));
    let query = server.asked()[0].query().to_owned();
    assert_eq!(query, "delimiter=%2F&encoding-type=url&list-type=2&prefix=data%2F&start-after=data%2Fw");
}

#[test]
fn what_would_not_end_is_told_by_its_page() {
    type Script = fn(&Request) -> Vec<Step>;
    let cases: [(&str, Script); 7] = [
        ("page 2 of the listing: the listing says that the next page is this one", |request| {
            page(&[entry(&format!("data/{}", request.before), 1)], "same")
        }),
        ("page 3 of the listing: the listing has a key that is not behind", |request| {
            page(&[entry(["data/a", "data/c", "data/b"][request.before], 1)], &format!("t{}", request.before))
        }),
        ("page 2 of the listing: the listing has a key that is not behind", |request| {
            page(&[entry("data/a", 1)], &format!("t{}", request.before))
        }),
        ("page 1 of the listing: the listing has a key that was not asked for", |_| page(&[entry("other", 1)], "")),
        ("page 1 of the listing: the listing cannot be read: its XML is cut off", |_| {
            answer("200 OK", "", b"<ListBucketResult><Contents><Key>data/a</Key>")
        }),
        ("page 1 of the listing: the listing cannot be read: it is no listing", |_| answer("200 OK", "", b"<x></x>")),
        ("page 1 of the listing: the listing is sent as Content-Encoding: gzip", |_| {
            answer("200 OK", "Content-Encoding: gzip\r\n", b"x")
        }),
    ];
    for (told, script) in cases {
        let server = Server::new(script);
        let failure = all(&store(&server)).1.unwrap_err();
        assert!(failure.class() == Class::Corrupt && failure.to_string().starts_with(told), "{failure}");
        assert!(server.asked().len() <= 3);
    }
}

#[test]
fn a_page_that_fails_is_asked_for_again() {
    let server = Server::new(|request| match request.before {
        1 => refusal("503 x", "SlowDown"),
        2 => {
            let mut steps = text("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n<ListBucketResult>");
            steps.extend([Step::Wait(Duration::from_millis(20)), Step::Close]);
            steps
        }
        _ => three(request),
    });
    let (found, listed) = all(&store(&server));
    assert_eq!((found.len(), listed.unwrap().pages, server.asked().len()), (6, 3, 5));
    let refused = Server::new(|_| refusal("403 x", "AccessDenied"));
    let failure = all(&store(&refused)).1.unwrap_err();
    assert_eq!((failure.class(), refused.asked().len()), (Class::Refused, 1));
}

#[test]
fn a_listing_is_cancelled_while_it_waits() {
    let server = Server::new(|_| answer("503 x", "Retry-After: 60\r\n", b""));
    let store = store(&server);
    let interrupt = Interrupt::new();
    let start = std::time::Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            interrupt.stop();
        });
        let listed = store.list(b"", &ListOptions::default(), &interrupt, &mut |_| ControlFlow::Continue(()));
        assert_eq!(listed.unwrap_err().class(), Class::Interrupted);
    });
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn an_empty_bucket_is_empty_and_http_has_no_listing() {
    let server = Server::new(|_| page(&[], ""));
    assert_eq!(all(&store(&server)).1.unwrap(), Listed { pages: 1, objects: 0, markers: 0 });
    let plain = open(&format!("http://{}/", server.address), AccessOptions::default());
    assert_eq!(all(&plain).1.unwrap_err().class(), Class::Unavailable);
}

#[test]
fn azure_has_markers_and_a_shared_key() {
    let blob = |name: &str| {
        let fields = "<Etag>0x1</Etag><Content-Length>3</Content-Length>";
        format!("<Blob><Name>{name}</Name><Properties>{fields}</Properties></Blob>")
    };
    let script = move |request: &Request| {
        let (blobs, next) = match request.query() {
            query if query.contains("marker=m%2F1") => (blob("data/c"), ""),
            _ => (blob("data/a") + &blob("data/b"), "m/1"),
        };
        let body =
            format!("<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker>{next}</NextMarker></EnumerationResults>");
        answer("200 OK", "", body.as_bytes())
    };
    let server = Server::new(script);
    let key = Credentials::SharedKey { account: "acct".into(), key: "aHVzaA==".into() };
    let options = AccessOptions {
        endpoint: Some(format!("http://{}/acct", server.address)),
        credentials: Some(key),
        ..AccessOptions::default()
    };
    let store = open("az://c/data/", options);
    let after = ListOptions { after: Some(b"data/a".to_vec()), folders: false };
    let (found, listed) = list(&store, "data/", &after);
    assert_eq!((found, listed.unwrap().pages), (vec!["data/b".to_owned(), "data/c".to_owned()], 2));
    let asked = server.asked();
    assert_eq!(asked[0].target, "/acct/c?comp=list&maxresults=5000&prefix=data%2F&restype=container");
    assert!(asked[0].field("authorization").starts_with("SharedKey acct:"));
}

#[test]
fn gcs_lists_with_a_token() {
    let server = Server::new(three);
    let options = AccessOptions { credentials: Some(Credentials::Bearer("hush".into())), ..options(&server) };
    assert_eq!(all(&open("gs://bucket/data/", options.clone())).0.len(), 6);
    assert_eq!(server.asked()[0].field("authorization"), "Bearer hush");
    let wrong = AccessOptions { credentials: keys(), ..options };
    assert_eq!(all(&open("gs://bucket/data/", wrong)).1.unwrap_err().class(), Class::Invalid);
}

/// A server of these keys, with pages of five, in the order that `sorts` gives them.
fn bucket(keys: Vec<String>, sorts: fn(&mut [String])) -> Server {
    bucket_that_refuses(keys, sorts, usize::MAX)
}

/// The same; of so many requests, one is put off.
fn bucket_that_refuses(mut keys: Vec<String>, sorts: fn(&mut [String]), of: usize) -> Server {
    sorts(&mut keys);
    Server::new(move |request| {
        if request.before % of == of - 1 {
            return refusal("503 x", "SlowDown");
        }
        let value = |name: &str| {
            let pair = request.query().split('&').find_map(|pair| pair.strip_prefix(name));
            pair.map(|value| value.replace("%2F", "/"))
        };
        let order = |one: &str, other: &str| {
            let mut both = vec![one.to_owned(), other.to_owned()];
            sorts(&mut both);
            both[0] == one
        };
        let from = match (value("continuation-token="), value("start-after=")) {
            (Some(token), _) => token.parse().unwrap(),
            (None, Some(after)) => {
                keys.iter().position(|key| *key != after && order(&after, key)).unwrap_or(keys.len())
            }
            (None, None) => 0,
        };
        let end = (from + 5).min(keys.len());
        let entries: Vec<String> = keys[from..end].iter().map(|key| entry(key, key.len() as u64)).collect();
        let mut steps = vec![Step::Wait(Duration::from_millis(1))];
        steps.extend(page(&entries, &if end < keys.len() { end.to_string() } else { String::new() }));
        steps
    })
}

fn by_folders(keys: &mut [String]) {
    keys.sort_by_key(|key| key.replace('/', "\0"));
}

#[test]
fn ranges_are_listed_at_once_and_joined_in_order() {
    let counted = |count: u64, name: &dyn Fn(u64) -> String| -> Vec<String> {
        let mut keys: Vec<String> = (0..count).map(|number| format!("data/{}", name(number))).collect();
        keys.sort();
        keys.dedup();
        keys
    };
    let hash = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let cases: [(&str, Vec<String>); 6] = [
        ("numbers", counted(1200, &|number| format!("{number:09}.jpg"))),
        ("folders", counted(1200, &|number| format!("n{:08}/n{:08}_{number}.JPEG", number / 37, number / 37))),
        ("hashes", counted(1200, &|number| format!("{:016x}", hash(number)))),
        ("one name in all", counted(1200, &|number| "x".repeat(number as usize % 200 + 1))),
        ("a few far away", counted(1200, &|number| if number < 3 { format!("z{number}") } else { number.to_string() })),
        ("short", counted(23, &|number| number.to_string())),
    ];
    for (told, keys) in cases {
        let server = bucket(keys.clone(), |keys| keys.sort());
        let (found, listed) = all(&store(&server));
        let listed = listed.unwrap();
        assert_eq!(found, keys, "{told}");
        let (asked, pages) = (server.asked().len() as u64, keys.len().div_ceil(5) as u64);
        assert_eq!((listed.pages, listed.objects), (asked, keys.len() as u64), "{told}");
        assert!(asked <= pages + pages / 3 + 8, "{told}: {asked} requests for {pages} pages");
        if told != "one name in all" && told != "short" {
            assert!(server.connections() > 4, "{told}: {} at once", server.connections());
        }
    }
}

#[test]
fn ranges_that_are_put_off_come_later() {
    let keys: Vec<String> = (0..900).map(|number| format!("data/{number:06}")).collect();
    let server = bucket_that_refuses(keys.clone(), |keys| keys.sort(), 25);
    let (found, listed) = all(&store(&server));
    assert_eq!((found, listed.unwrap().objects), (keys, 900));
}

#[test]
fn an_order_of_folders_is_listed_one_after_another() {
    let mut keys: Vec<String> = (0..900).map(|number| format!("data/{}/{number:05}", number / 300)).collect();
    keys.extend((0..300).map(|number| format!("data/{}-more/{number:05}", number / 100)));
    let server = bucket(keys.clone(), by_folders);
    by_folders(&mut keys);
    let (found, listed) = all(&store(&server));
    assert_eq!((found, listed.unwrap().objects), (keys.clone(), 1200));
    // The same names by bytes: nothing may be lost where the order is not known.
    let server = bucket(keys.clone(), |keys| keys.sort());
    keys.sort();
    assert_eq!(all(&store(&server)).0, keys);
}

#[test]
fn a_page_that_fails_ends_all_ranges() {
    let server = Server::new(|request| match request.before {
        40 => refusal("403 x", "AccessDenied"),
        before => {
            let key = |number: usize| entry(&format!("data/{:07}", before * 10 + number), 1);
            let after = if request.query().contains("start-after") { "." } else { "" };
            page(
                &[key(0), key(1), key(2)].map(|key| key.replace("data/", &format!("data/{after}"))),
                &before.to_string(),
            )
        }
    });
    let start = std::time::Instant::now();
    let failure = all(&store(&server)).1.unwrap_err();
    assert!(matches!(failure.class(), Class::Refused | Class::Corrupt), "{failure}");
    assert!(start.elapsed() < Duration::from_secs(20));
}
