//! Packing on the command line: what it says, what a kill leaves, and what a limit does.

use super::{content, expect, folder, json, run, stderr, uringload, write};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Some classes of files.
fn source(files: usize, bytes: usize) -> tempfile::TempDir {
    let names: Vec<String> = (0..files).map(|number| format!("class-{}/{number:04}.dat", number % 3)).collect();
    folder(&names.iter().map(|name| (name.as_str(), bytes)).collect::<Vec<_>>())
}

fn pack(options: &str, from: &Path, to: &Path, code: i32) -> (String, String) {
    expect(&mut uringload(&format!("pack {options} {} {}", from.display(), to.display())), code)
}

/// Shards and manifest: indexes tell the time of their shard.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
    named.filter(|(name, _)| !name.ends_with(".uidx")).collect()
}

#[test]
fn pack_says_what_came_of_it() {
    let (from, to) = (source(30, 5000), tempfile::tempdir().unwrap());
    let (told, err) = pack("--shard-size 64KiB --json", from.path(), to.path(), 0);
    let told = json(&told);
    assert!(err.is_empty(), "{err}");
    for (name, wanted) in [("samples", 30), ("shards", 5), ("members_written", 60), ("failed", 0), ("lacking", 0)] {
        assert_eq!(told[name], wanted, "{name}: {told}");
    }
    assert_eq!(told["payload_bytes"], 30 * 5001);
    let plan = told["plan"].as_array().unwrap();
    assert_eq!((plan.len(), plan[0]["name"].as_str()), (5, Some("shard-000000.tar")));
    let padding = told["padding_bytes"].as_u64().unwrap();
    assert!(padding > 0 && padding < told["bytes_written"].as_u64().unwrap());
    // What it made is found for what it is, with what lies beside it.
    let (listed, _) = expect(&mut uringload(&format!("list --digest sha256 {}", to.path().display())), 0);
    assert_eq!(listed.lines().count(), 30);
    let (listed_from, _) = expect(&mut uringload(&format!("list --digest sha256 {}", from.path().display())), 0);
    for (ours, theirs) in listed.lines().map(json).zip(listed_from.lines().map(json)) {
        assert_eq!(ours["columns"]["dat"], theirs["columns"]["data"]);
        assert_eq!(format!("{}.dat", ours["key"].as_str().unwrap()), theirs["key"].as_str().unwrap());
    }
    let (text, _) = pack("--shard-size 64KiB", from.path(), to.path(), 0);
    assert!(text.contains("5 of 5") && text.contains("5 of them from before"), "{text}");
    let (_, err) = pack("--shard-size 65KiB", from.path(), to.path(), 2);
    assert!(err.contains("other settings: shard size") && err.contains("--overwrite"), "{err}");
    let (text, _) = pack("--shard-size 1GB --prefix train --overwrite --align 512", from.path(), to.path(), 0);
    assert!(text.contains("1 of 1") && text.contains("0.00 % padding"), "{text}");
    assert_eq!(files(to.path()).keys().collect::<Vec<_>>(), ["pack.json", "train-000000.tar"]);
}

#[test]
fn pack_is_done_by_parts() {
    let (from, to, whole) = (source(30, 5000), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    pack("--shard-size 64KiB", from.path(), whole.path(), 0);
    for (part, shards) in [("2/3", 1), ("0/3", 2), ("1/3", 2)] {
        let (told, err) = pack(&format!("--shard-size 64KiB --part {part} --json"), from.path(), to.path(), 0);
        let told = json(&told);
        assert_eq!((told["shards"].as_u64(), told["part"].as_str()), (Some(shards), Some(part)), "{told}{err}");
        assert_eq!((told["shards_planned"].as_u64(), told["lacking"].as_u64()), (Some(5), Some(0)), "{told}");
    }
    assert!(files(to.path()) == files(whole.path()));
    let (text, _) = pack("--shard-size 64KiB --part 0/3", from.path(), to.path(), 0);
    assert!(text.contains("2 of 2 in") && text.contains("0/3 of 5 shards in all"), "{text}");
    let (_, err) = pack("--shard-size 64KiB --part 0/3 --overwrite", from.path(), to.path(), 2);
    assert!(err.contains("--overwrite"), "{err}");
    let (_, err) = pack("--part 5", from.path(), to.path(), 2);
    assert!(err.contains("is no part"), "{err}");
}

#[test]
fn pack_refuses_a_folder_within_the_source() {
    let from = source(3, 100);
    for within in ["shards", "class-0", ".", "a/b/c"] {
        let (_, err) = pack("", from.path(), &from.path().join(within), 2);
        assert!(err.contains("within the source") && err.contains("apart"), "{within}: {err}");
    }
    assert_eq!(fs::read_dir(from.path()).unwrap().count(), 3, "nothing was made");
    let (_, err) = pack("--on-error replace", from.path(), Path::new("/nonexistent"), 2);
    assert!(err.contains("cannot replace samples"), "{err}");
}

#[test]
fn pack_names_what_it_leaves_out() {
    let (from, to) = (folder(&[]), tempfile::tempdir().unwrap());
    let whole = content("records", 10_000);
    write(&from.path().join("a.bin"), &whole);
    // A sample without any of the fields that are wanted.
    let archive =
        super::common::archive::Archive::new().file("x.jpg", b"1").file("y.cls", b"2").file("z.jpg", b"3").end();
    write(&from.path().join("t/a.tar"), &archive.0);
    let (_, err) = pack("--fields jpg", &from.path().join("t"), to.path(), 1);
    assert!(err.contains("sample 1 (\"y\")") && err.contains("none of the chosen fields"), "{err}");
    let (told, _) = pack("--fields jpg --on-error skip --json", &from.path().join("t"), to.path(), 0);
    let told = json(&told);
    assert_eq!((&told["samples"], &told["lacking"], &told["failed"]), (&2.into(), &1.into(), &1.into()));
    let (text, _) = pack("--fields jpg --on-error skip", &from.path().join("t"), to.path(), 0);
    assert!(text.contains("1 samples that could not be read"), "{text}");
    let (_, err) =
        pack("--fields jpg --on-error skip --max-failures 0 --overwrite", &from.path().join("t"), to.path(), 1);
    assert!(err.contains("1 samples could not be read, and 0 may fail"), "{err}");
}

/// A kill at any moment leaves whole shards, and the rest is made as if nothing had happened.
#[test]
fn pack_goes_on_behind_a_kill() {
    const SHARDS: usize = 60;
    let (from, to, whole) = (source(SHARDS, 50_000), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    pack("--shard-samples 1 --threads 2", from.path(), whole.path(), 0);
    let arguments = format!("pack --shard-samples 1 --threads 1 {} {}", from.path().display(), to.path().display());
    let mut shards = 0;
    // Some kills, each a little later than the last.
    for wanted in [1, 7, 20] {
        let mut child = uringload(&arguments).stdout(Stdio::null()).spawn().unwrap();
        let last = to.path().join(format!("shard-{wanted:06}.tar"));
        let start = Instant::now();
        while !last.exists() && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_micros(200));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let there = files(to.path());
        let tars: Vec<&String> = there.keys().filter(|name| name.starts_with("shard-")).collect();
        shards = tars.len();
        assert!(shards > wanted, "{tars:?}");
        let made = files(whole.path());
        for name in tars {
            assert!(there[name] == made[name], "{name} is whole");
        }
    }
    assert!(shards < SHARDS, "the last kill came too late to show anything");
    let (told, _) = expect(&mut uringload(&format!("{arguments} --json")), 0);
    let told = json(&told);
    assert_eq!((&told["shards"], &told["shards_kept"]), (&SHARDS.into(), &shards.into()));
    assert!(files(to.path()) == files(whole.path()), "{:?}", files(to.path()).keys());
}

/// A limit on the size of files, which everybody can set, is met as a full disk is.
#[test]
fn pack_leaves_no_half_shard_at_a_limit() {
    let (from, to) = (source(40, 100_000), tempfile::tempdir().unwrap());
    let (binary, from, to) = (env!("CARGO_BIN_EXE_uringload"), from.path().display(), to.path());
    // In blocks of 512 bytes: a whole shard has some 4 MB. Without a handler the signal ends the process.
    let limited = format!("trap '' XFSZ; ulimit -f 4000; exec {binary} pack {from} {}", to.display());
    let output = run(Command::new("sh").arg("-c").arg(limited).stdin(Stdio::null()));
    let err = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(
        err.contains("shard-000000.tar") && err.contains("File too large") && err.contains("smaller shards"),
        "{err}"
    );
    assert_eq!(files(to).keys().collect::<Vec<_>>(), ["pack.json"]);
}

/// Ctrl-C and SIGTERM end a pack in order, and a second one ends it at once. Either way shards are whole, and the next
/// run leaves no trace of the one that was ended.
#[test]
fn pack_ends_at_a_signal_without_torn_shards() {
    const SHARDS: usize = 60;
    let (from, whole) = (source(SHARDS, 50_000), tempfile::tempdir().unwrap());
    pack("--shard-samples 1 --threads 2", from.path(), whole.path(), 0);
    let made = files(whole.path());
    for signals in [&["-INT"][..], &["-TERM"], &["-HUP"], &["-INT", "-INT"], &["-TERM", "-TERM"], &["-INT", "-TERM"]] {
        let to = tempfile::tempdir().unwrap();
        let arguments = format!("pack --shard-samples 1 --threads 2 {} {}", from.path().display(), to.path().display());
        let mut child = uringload(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (first, start) = (to.path().join("shard-000002.tar"), Instant::now());
        while !first.exists() && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_micros(200));
        }
        for signal in signals {
            let sent = Command::new("kill").args([signal, child.id().to_string().as_str()]).status().unwrap();
            // The first one may have been enough.
            assert!(sent.success() || child.try_wait().unwrap().is_some(), "{signals:?}");
        }
        let output = child.wait_with_output().unwrap();
        let (there, err) = (files(to.path()), stderr(&output));
        assert_eq!(output.status.code(), Some(130), "{signals:?}: {err}");
        let is_shard = |name: &&String| name.starts_with("shard-") && name.ends_with(".tar");
        let shards: Vec<&String> = there.keys().filter(is_shard).collect();
        // Two of three: one thread may have been at its first one all the time.
        assert!((2..SHARDS).contains(&shards.len()), "{signals:?}: {} shards", shards.len());
        shards.into_iter().for_each(|name| assert!(there[name] == made[name], "{signals:?}: {name} is torn"));
        if signals.len() == 1 {
            assert!(there.keys().all(|name| made.contains_key(name)), "{signals:?}: {:?}", there.keys());
        }
        expect(&mut uringload(&arguments), 0);
        assert!(files(to.path()) == made, "{signals:?}: {:?}", files(to.path()).keys());
    }
}

#[test]
fn images_are_packed_smaller_and_what_that_brings_is_told() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let photo = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../images/tests/data/photo.jpg")).unwrap();
    (0..6).for_each(|number| fs::write(from.path().join(format!("{number}.jpg")), &photo).unwrap());
    let (told, _) = pack("--resize 32 --quality 80 --json", from.path(), to.path(), 0);
    let told = json(&told);
    assert_eq!((&told["images"]["made"], &told["predicted"]["images"]), (&6.into(), &6.into()));
    assert_eq!(told["images"]["bytes_before"], photo.len() * 6);
    assert!(told["images"]["bytes_after"].as_u64().unwrap() < photo.len() as u64 * 3, "{told}");
    let rate = |name: &str| told["predicted"][name].as_f64().unwrap();
    assert!(rate("images_per_s_after") > rate("images_per_s_before"), "{told}");
    // They are images that a loader goes on with.
    let bench = format!("bench {} --no-raw --json - --transform random_resized_crop(16)", to.path().display());
    assert_eq!(json(&expect(&mut uringload(&bench), 0).0)["samples_decoded"], 6);
    let (text, _) = pack("--resize 32 --quality 80", from.path(), to.path(), 0);
    assert!(text.contains("of them from before") && text.lines().any(|line| line.starts_with("decoded")), "{text}");
    let (_, err) = pack("--resize 32 --quality 81", from.path(), to.path(), 2);
    assert!(err.contains("other settings: images"), "{err}");
    let (text, _) = pack("--transform resize(32),center_crop(32) --pixels --overwrite", from.path(), to.path(), 0);
    assert!(text.lines().any(|line| line.starts_with("images") && line.contains("6 made")), "{text}");
    let (_, err) = pack("--transform hflip", from.path(), to.path(), 2);
    assert!(err.contains("the same in every epoch"), "{err}");
    let (_, err) = pack("--resize 32 --quality 0", from.path(), to.path(), 2);
    assert!(err.contains("--quality"), "{err}");
}

#[test]
fn jobs_take_their_part_from_the_environment_and_are_proved_at_the_end() {
    let (from, to, whole) = (source(30, 5000), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    pack("--shard-size 64KiB", from.path(), whole.path(), 0);
    let job = |part: &str, variables: &[(&str, &str)], code| {
        let (from, to) = (from.path().display(), to.path().display());
        let mut job = uringload(&format!("pack --shard-size 64KiB {part} {from} {to}"));
        for array in ["SLURM_ARRAY_TASK_ID", "AWS_BATCH_JOB_ARRAY_INDEX", "CLOUD_RUN_TASK_INDEX", "BATCH_TASK_INDEX"] {
            job.env_remove(array);
        }
        expect(job.envs(variables.iter().copied()), code)
    };
    let (_, err) = job("--part auto", &[], 2);
    assert!(err.contains("no variable says which part") && err.contains("--part I/N"), "{err}");
    let array = |id| [("SLURM_ARRAY_TASK_ID", id), ("SLURM_ARRAY_TASK_COUNT", "3"), ("SLURM_ARRAY_TASK_MIN", "1")];
    let (text, err) = job("--part auto", &array("2"), 0);
    assert!(
        text.contains("1/3 of 5 shards in all") && err.contains("part 1/3 (from SLURM_ARRAY_TASK_ID)"),
        "{text}{err}"
    );
    let (_, err) = job("--finish", &[], 1);
    assert!(err.contains("3 of 5 shards are missing: numbers 0, 2, 3") && err.contains("job I of N"), "{err}");
    job("--part auto", &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "3")], 0);
    job("--part auto/3", &[("JOB_COMPLETION_INDEX", "2")], 0);
    let (text, _) = job("--finish", &[], 0);
    assert!(text.contains("5 in ") && text.contains("30, each in one shard"), "{text}");
    let (told, _) = job("--finish --json", &[], 0);
    let told = json(&told);
    assert_eq!((told["samples"].as_u64(), told["bytes_written"].as_u64()), (Some(30), Some(0)));
    assert!(files(to.path()) == files(whole.path()));
    let (_, err) = job("--finish --part auto", &array("2"), 2);
    assert!(err.contains("--finish"), "{err}");
}
