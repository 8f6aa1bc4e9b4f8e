//! `top`: what it shows of a loader that runs, and what it says where there is none.

use super::*;
use std::thread::sleep;
use std::time::{Duration, Instant};

#[test]
fn a_running_loader_is_shown_until_it_ends() {
    let (_folder, dir) = files(200);
    let pages = tempfile::tempdir().unwrap();
    let at = pages.path().display();
    let share = format!("bench {dir} --duration 600s --emulate-step 5 --no-raw --batch-size 8 --share-stats={at}");
    let mut bench = uringload(&share).stdout(Stdio::null()).spawn().unwrap();
    let look = format!("top {} --once --json --at {at}", bench.id());
    let end = Instant::now() + common::HANG;
    let page = loop {
        let output = run(&mut uringload(&look));
        if output.status.success() && json(&stdout(&output))["batches"].as_u64().unwrap() > 0 {
            break json(&stdout(&output));
        }
        assert!(Instant::now() < end, "{}", stderr(&output));
        sleep(Duration::from_millis(50));
    };
    assert_eq!((&page["pid"], &page["dataset"]["samples"]), (&bench.id().into(), &200.into()));
    assert!(page["now"]["bottleneck"].is_string() && page["route"].is_string(), "{page:#}");
    let threads = page["now"]["threads"].as_array().unwrap();
    let is_told = |thread: &serde_json::Value| thread["threads"].as_u64() >= Some(1) && thread["processors"].is_f64();
    assert!(!threads.is_empty() && threads.iter().all(is_told), "{page:#}");
    let text = stdout(&run(&mut uringload(&format!("top --at {at} --once"))));
    for told in
        [&*format!("process   {} ", bench.id()), "folder of 200 samples", "limit     ", "reads in flight", "consumer"]
    {
        assert!(text.contains(told), "{told}: {text}");
    }
    // It goes on for as long as the loader does, and ends with it.
    let mut top = uringload(&format!("top --at {at} --every 200ms")).stdout(Stdio::piped()).spawn().unwrap();
    let (mut all, mut looks) = (String::new(), 0);
    for line in std::io::BufRead::lines(std::io::BufReader::new(top.stdout.take().unwrap())) {
        all += &(line.unwrap() + "\n");
        let now = all.matches("process   ").count();
        if (looks, now) == (1, 2) {
            signal(&bench, "-INT");
        }
        looks = now;
    }
    assert!(looks > 1 && !all.contains('\u{1b}'), "{all}");
    assert!(top.wait().unwrap().success());
    assert_eq!(bench.wait().unwrap().code(), Some(130), "it was interrupted");
    assert_eq!(fs::read_dir(pages.path()).unwrap().count(), 0);
    let (_, err) = expect(&mut uringload(&format!("top --at {at}")), 1);
    assert!(err.contains("no loader shares") && err.contains("share_stats"), "{err}");
    let (_, err) = expect(&mut uringload(&format!("top 1 --at {at}")), 1);
    assert!(err.contains("process 1 shares no"), "{err}");
    // What a killed process left is not shown, and what cannot be read is told.
    fs::write(pages.path().join("uringload-4194305-0.json"), "{}").unwrap();
    expect(&mut uringload(&format!("top --at {at}")), 1);
    fs::write(pages.path().join(format!("uringload-{}-0.json", std::process::id())), "{\"version\": 9}").unwrap();
    let (_, err) = expect(&mut uringload(&format!("top --at {at}")), 1);
    assert!(err.contains("version is 9"), "{err}");
}

/// Any user may put a page where all may write: it keeps no user from seeing their own loaders.
#[test]
fn pages_that_others_have_put_there_are_passed_over() {
    let (_folder, dir) = files(200);
    let pages = tempfile::tempdir().unwrap();
    let (at, page) =
        (pages.path().display(), |pid: u32, number| pages.path().join(format!("uringload-{pid}-{number}.json")));
    // Left by processes that were killed: the next loader removes its user's.
    let page_of = |end| pages.path().join(format!("uringload-4194305-7f0011223344.{end}"));
    let (left, other) = ([page_of("json"), page_of("new")], pages.path().join("uringload-4194305-results.json"));
    let old = std::time::SystemTime::now() - Duration::from_secs(60);
    for path in left.iter().chain([&other]) {
        fs::write(path, "{}").unwrap();
        fs::File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
    }
    let share = format!("bench {dir} --duration 600s --emulate-step 5 --no-raw --batch-size 8 --share-stats={at}");
    let mut bench = uringload(&share).stdout(Stdio::null()).spawn().unwrap();
    let end = Instant::now() + common::HANG;
    while !run(&mut uringload(&format!("top {} --once --json --at {at}", bench.id()))).status.success() {
        assert!(Instant::now() < end);
        sleep(Duration::from_millis(50));
    }
    assert!(left.iter().all(|path| !path.exists()) && other.exists());
    let own = std::process::id();
    fs::write(page(own, 0), "junk").unwrap();
    assert!(Command::new("mkfifo").arg(page(own, 1)).status().unwrap().success());
    fs::write(page(own, 2), "{\"version\": 1}").unwrap();
    let is_given = std::os::unix::fs::chown(page(own, 2), Some(12345), None).is_ok();
    let output = run(&mut uringload(&format!("top --once --json --at {at}")));
    let (out, err) = (stdout(&output), stderr(&output));
    let shown: Vec<_> = out.lines().map(|line| json(line)["pid"].clone()).filter(|pid| *pid != own).collect();
    assert_eq!(shown, [bench.id()], "{out}{err}");
    assert!(err.contains("no JSON") && err.contains("passed over"), "{err}");
    assert!(!is_given || err.contains("belongs to user 12345") && !out.contains(&own.to_string()), "{out}{err}");
    signal(&bench, "-INT");
    assert_eq!(bench.wait().unwrap().code(), Some(130));
}
