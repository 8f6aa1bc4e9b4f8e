//! `tune`: what it finds, what it writes, and who takes it.

use super::*;
use common::faulty::{Fault, Faulty, Spec};
use std::time::{Duration, Instant};

/// Small records on the disk of this machine.
fn records() -> (tempfile::TempDir, String) {
    let folder = folder(&[("data/a.bin", 4 << 20)]);
    let dir = folder.path().join("data").display().to_string();
    (folder, format!("{dir} --format records --record-bytes 4096"))
}

#[test]
fn a_profile_is_written_and_taken() {
    let (folder, data) = records();
    let profile = folder.path().join("found.toml");
    // A busy machine tries less in as long.
    let mut tried = [2, 6, 20, 60].into_iter().map(|limit| {
        let out = profile.display();
        let tune = format!("tune {data} --shuffle --limit {limit}s --json --queue-depth 1 --out {out}");
        json(&expect(&mut uringload(&tune), 0).0)
    });
    let found = tried.find(|found| found.pointer("/tried/1/what").is_some()).expect("a search");
    for key in
        ["machine/kernel", "limits/processors", "device/0/latency_us", "now/bottleneck", "tried/1/what", "best/gain"]
    {
        assert!(found.pointer(&format!("/{key}")).is_some_and(|value| !value.is_null()), "{key}: {found:#}");
    }
    assert_eq!((&found["version"], &found["now"]["what"]), (&1.into(), &"queue_depth = 1".into()));
    let text = fs::read_to_string(&profile).unwrap();
    assert!(text.starts_with("# Written by `uringload tune`, 2") && text.contains("\nversion = 1\n"), "{text}");
    assert!(fs::read_dir(folder.path()).unwrap().count() == 2, "no sample of a pack is left");
    let bench = format!("bench {data} --no-raw --json - --profile {}", profile.display());
    json(&expect(&mut uringload(&bench), 0).0);
    expect(&mut uringload(&format!("list {data} --profile {}", profile.display())), 0);
}

#[test]
fn a_profile_decides_what_is_not_given() {
    let (folder, data) = records();
    let profile = folder.path().join("p.toml");
    fs::write(&profile, "version = 1\nengine = \"threads\"\nio_threads = 4\nqueue_depth = 3\n").unwrap();
    let bench = |more: &str| {
        let line = format!("bench {data} --no-raw --json - --profile {} {more}", profile.display());
        json(&expect(&mut uringload(&line), 0).0)["route"].clone()
    };
    let route = bench("");
    assert_eq!((&route["engine"], &route["queue_depth"]), (&"threads".into(), &3.into()));
    assert_eq!(bench("--queue-depth 2")["queue_depth"], 2, "what is given wins");
    fs::write(&profile, "version = 1\nqueue_deep = 3\n").unwrap();
    let (_, err) = expect(&mut uringload(&format!("bench {data} --profile {}", profile.display())), 2);
    assert!(err.contains("line 2 of the profile: unknown field `queue_deep`") && err.contains("p.toml"), "{err}");
    fs::write(&profile, "version = 7\n").unwrap();
    let (_, err) = expect(&mut uringload(&format!("list {data} --profile {}", profile.display())), 2);
    assert!(err.contains("version is 7") && err.contains("uringload tune"), "{err}");
}

#[test]
fn a_profile_that_cannot_be_written_is_said() {
    let (folder, data) = records();
    // Before anything is measured: the limit is longer than the test waits.
    for out in ["/nowhere/at/all".to_owned(), folder.path().display().to_string()] {
        let begun = Instant::now();
        let (_, err) = expect(&mut uringload(&format!("tune {data} --limit 300s --out {out}")), 1);
        assert!(err.contains("cannot write the profile") && err.contains("--out"), "{err}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{out}: {:?}", begun.elapsed());
    }
}

/// Whatever was found, the profile has what was given unless something else was faster in pairs.
#[test]
fn what_is_written_is_the_start_or_was_shown_to_be_faster() {
    let (folder, data) = records();
    let profile = folder.path().join("found.toml");
    for start in ["--queue-depth 16 --read-size 64KiB", ""] {
        let tune = format!("tune {data} --shuffle --limit 6s --json {start} --out {}", profile.display());
        let found = json(&expect(&mut uringload(&tune), 0).0);
        let text = fs::read_to_string(&profile).unwrap();
        match found["judgement"].as_str() {
            Some("faster") => {
                assert!(found["found"]["interval"][0].as_f64() > Some(1.0), "{found:#}");
                assert_eq!(found["best"]["what"], found["found"]["what"]);
                assert!(text.contains("times what was given"), "{text}");
            }
            _ => {
                assert_eq!((&found["best"]["what"], &found["best"]["gain"]), (&found["now"]["what"], &1.0.into()));
                assert_eq!(text.contains("\nqueue_depth = 16\nread_size = 65536\n"), !start.is_empty(), "{text}");
            }
        }
    }
}

/// What many small files gain as shards is measured by a sample of them.
#[test]
fn a_pack_of_small_files_is_tried() {
    let files: Vec<(String, usize)> = (0..300).map(|number| (format!("data/{number}.dat"), 4096)).collect();
    let files: Vec<(&str, usize)> = files.iter().map(|(name, size)| (name.as_str(), *size)).collect();
    let folder = folder(&files);
    let mut tried = [4, 16, 60].into_iter().map(|limit| {
        let line = format!("tune {}/data --limit {limit}s --json --out -", folder.path().display());
        expect(&mut uringload(&line), 0)
    });
    let is_pack =
        |other: &serde_json::Value| other["what"].as_str().is_some_and(|what| what.contains("uringload pack"));
    let found = tried.find(|(out, err)| {
        assert!(!err.contains("pack was not tried"), "{err}");
        json(out)["others"].as_array().is_some_and(|others| others.iter().any(is_pack))
    });
    assert!(found.is_some(), "no pack was tried in a minute");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the sample is deleted");
}

#[test]
#[ignore = "slow: measures time"]
fn a_step_that_is_slower_than_the_loader_ends_the_search() {
    let (folder, data) = records();
    let tune = format!("tune {data} --emulate-step 40 --limit 3s --out {}/p", folder.path().display());
    // Where other programs take the processors, these are the limit, and the search goes on.
    let told: Vec<String> = (0..4).map(|_| expect(&mut uringload(&tune), 0).0).collect();
    let is_it = |out: &String| out.contains("limit     trainer") && out.contains("faster than the step");
    assert!(told.iter().any(is_it), "{told:?}");
}

/// Storage that answers after 5 ms, and more reads in flight bring more: from a bad start, near the best of a sweep.
#[test]
#[ignore = "slow: measures time"]
fn from_a_bad_start_it_comes_near_a_sweep() {
    let spec =
        |number| Spec { name: format!("{number:04}"), size: 16 << 10, fault: Fault::Slow(Duration::from_millis(5)) };
    let disk = match Faulty::mount((0..2048).map(spec).collect()) {
        Ok(disk) => disk,
        Err(why) => return common::skip(why),
    };
    let data = format!("{} --format folder --batch-size 16 --shuffle", disk.path().display());
    let rate = |depth: usize| {
        let line = format!("bench {data} --no-raw --json - --duration 700ms --queue-depth {depth}");
        json(&expect(&mut uringload(&line), 0).0)["samples_per_s"].as_f64().unwrap()
    };
    let depths = [1, 4, 16, 64, 128, 256];
    let mut said = String::new();
    // Other programs take the machine in the middle of a measurement, now and then.
    for _ in 0..3 {
        let sweep = depths.map(|depth| (depth, rate(depth)));
        let (deepest, before) = sweep.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        let begun = Instant::now();
        let line = format!("tune {data} --queue-depth 1 --limit 10s --json --out -");
        let found = json(&expect(&mut uringload(&line), 0).0);
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        let best = found["best"]["samples_per_s"].as_f64().unwrap();
        // Once more, because a machine that others use gives now more and now less.
        let most = before.min(rate(deepest));
        if best >= 0.95 * most && found["best"]["gain"].as_f64().unwrap() > 5.0 {
            return;
        }
        said += &format!("{best:.0} of {most:.0}: {found:#}\n");
    }
    panic!("{said}");
}
