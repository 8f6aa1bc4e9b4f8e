//! `doctor`, `inspect`, completions and man pages.

use super::*;

#[test]
fn doctor_ends_as_it_says() {
    let folder = folder(&[("a", 5000)]);
    for arguments in ["doctor".to_owned(), format!("doctor {}", folder.path().display())] {
        let output = run(&mut uringload(&format!("{arguments} --json")));
        let told = json(&stdout(&output));
        let degraded = told["degraded"].as_bool().unwrap();
        assert_eq!(output.status.code(), Some(i32::from(degraded)), "{told:#}");
        let findings = told["findings"].as_array().unwrap();
        let is_bad = |finding: &&serde_json::Value| finding["state"] == "degraded";
        assert_eq!(findings.iter().any(|finding| is_bad(&finding)), degraded);
        for finding in findings {
            assert!(!finding["found"].as_str().unwrap().is_empty() && !finding["means"].as_str().unwrap().is_empty());
        }
        for bad in findings.iter().filter(is_bad) {
            assert!(bad["remedy"].is_string(), "what to do is missing: {bad}");
        }
        for what in
            ["kernel", "io_uring", "confinement", "locked memory", "open files", "huge pages", "JPEG decoder", "GPU"]
        {
            assert!(findings.iter().any(|finding| finding["what"] == what), "{what} in {told:#}");
        }
        let decoder = findings.iter().find(|finding| finding["what"] == "JPEG decoder").unwrap();
        assert_eq!(decoder["remedy"].is_string(), decoder["found"].as_str().unwrap().starts_with("zune-jpeg"));
        assert_eq!(told["route"].is_object(), arguments != "doctor");
        let text = stdout(&run(&mut uringload(&arguments)));
        assert_eq!(text.contains("!!"), degraded, "{text}");
        // One line for what is in order; the reason and the remedy are two more; and the conclusion is apart.
        let mended = findings.iter().filter(|finding| finding["remedy"].is_string()).count();
        assert_eq!(text.lines().count(), findings.len() + 2 * mended + 2, "{text}");
        let has_gpu = findings.iter().any(|finding| finding["what"] == "GPU" && finding["state"] != "info");
        let is_short = text.lines().count() <= 24;
        assert!(is_short || degraded || has_gpu || arguments != "doctor", "it has more than a screen: {text}");
    }
}

/// The oldest kernel that is enough, and what later ones add, each with whether this machine has it.
#[test]
fn doctor_says_what_later_kernels_add() {
    let text = stdout(&run(&mut uringload("doctor")));
    let lines: Vec<&str> = text.lines().collect();
    let kernel = lines.iter().find(|line| line.contains(" kernel ")).unwrap();
    assert!(kernel.contains("any gives reading by threads"), "{text}");
    let since: Vec<&&str> = lines.iter().filter(|line| line.contains(" since ")).collect();
    assert!(since.len() > 5 && since.iter().any(|line| line.contains("since 5.19 ") && line.contains("io_uring")));
}

#[test]
fn inspect_counts_what_is_there() {
    let folder = folder(&[("a/1", 100), ("a/2", 300), ("b/3", 200), (".hidden", 5)]);
    let dir = folder.path().display();
    let told = json(&expect(&mut uringload(&format!("inspect {dir} --json")), 0).0);
    assert_eq!((&told["samples"], &told["bytes"], &told["classes"]), (&3.into(), &600.into(), &2.into()));
    assert_eq!((&told["sample_bytes"]["least"], &told["sample_bytes"]["most"]), (&100.into(), &300.into()));
    assert_eq!(told["left_out"][0]["count"], 1);
    let (text, _) = expect(&mut uringload(&format!("inspect {dir}")), 0);
    assert!(text.contains("3 in 3 files") && text.contains("left out       1 hidden names"), "{text}");
    let records = json(&expect(&mut uringload(&format!("inspect {dir}/a/2 --record-bytes 100 --json")), 0).0);
    assert_eq!((&records["samples"], &records["columns"][0]["shape"][0]), (&3.into(), &100.into()));
}

/// Formats of shards show themselves by their index, and say how their columns are stored.
#[test]
fn inspect_knows_shards_by_their_index() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data");
    let column = |told: &serde_json::Value, name: &str| {
        let columns = told["columns"].as_array().unwrap();
        columns.iter().find(|column| column["name"] == name).unwrap().clone()
    };
    let mds = json(&expect(&mut uringload(&format!("inspect {data}/mds --json")), 0).0);
    assert_eq!((&mds["format"], &mds["samples"], &mds["files"]), (&"mds".into(), &10.into(), &4.into()));
    assert_eq!(column(&mds, "fixed")["encoding"], "ndarray:uint16:2,3");
    assert_eq!((&column(&mds, "deep")["dtype"], &column(&mds, "x_int8")["dtype"]), (&"f32".into(), &"i8".into()));
    let (text, _) = expect(&mut uringload(&format!("inspect {data}/mds/0 {data}/mds/1")), 0);
    assert!(text.contains("10 in 4 files") && text.contains("jpeg: u8 of any length (jpeg)"), "{text}");
    let lit = json(&expect(&mut uringload(&format!("inspect {data}/litdata --json --format litdata")), 0).0);
    assert_eq!((&lit["format"], &column(&lit, "score")["encoding"]), (&"litdata".into(), &"float".into()));
    let blocks = format!("inspect {data}/litdata-tokens --block-size 16 --json");
    let blocks = json(&expect(&mut uringload(&blocks), 0).0);
    assert_eq!((&blocks["samples"], &blocks["left_out"][0]["count"]), (&9.into(), &3.into()));
    let zipped = json(&expect(&mut uringload(&format!("inspect {data}/mds-zip/zstd --json")), 0).0);
    assert!(zipped["units"]["count"].as_u64().is_some_and(|units| units > 0), "{zipped}");
    // One of four shards is missing: its samples are, and the others are there.
    let some = folder(&[]);
    for name in ["index.json", "0/shard.00000.mds", "0/shard.00001.mds", "0/shard.00002.mds"] {
        write(&some.path().join(name), &fs::read(format!("{data}/mds/{name}")).unwrap());
    }
    let some = some.path().display();
    expect(&mut uringload(&format!("list {some}")), 1);
    let (lines, _) = expect(&mut uringload(&format!("list {some} --allow-bad-shards")), 1);
    let count = |what: &str| lines.lines().filter(|line| line.contains(what)).count();
    assert_eq!((lines.lines().count(), count("\"columns\""), count("1/shard.00000.mds")), (10, 7, 3), "{lines}");
    for wrong in ["--format mds --record-bytes 5", "--format mds --block-size 5", "--format records"] {
        expect(&mut uringload(&format!("inspect {data}/mds {wrong}")), 2);
    }
}

/// What is not decoded here is named, and a name that says otherwise, too.
#[test]
fn inspect_names_sound_and_film_by_their_first_bytes() {
    let wav = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0";
    for (name, bytes, words) in [
        ("a.wav", &wav[..], ", WAV audio, not decoded\n"),
        ("a.FLAC", b"fLaC\0\0\0\x22", ", FLAC audio, not decoded\n"),
        ("a.mp4", b"\0\0\0\x20ftypisom", ", MP4 video, not decoded\n"),
        ("a.wav", b"\x89PNG\r\n\x1a\n", ", PNG image, though called .wav\n"),
        ("a.mp3", wav, ", WAV audio, not decoded, though called .mp3\n"),
        ("a.ogg", b"an error page", ", neither sound nor film by its first bytes, though called .ogg\n"),
        ("a.dat", b"an error page", "\n"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write(&folder.path().join(name), bytes);
        let dir = folder.path().display();
        let (text, _) = expect(&mut uringload(&format!("inspect {dir}")), 0);
        assert!(text.contains(&format!("data: u8 of any length{words}")), "{name}: {text}");
        let told = json(&expect(&mut uringload(&format!("inspect {dir} --json")), 0).0);
        let content =
            told["columns"][0]["content"].as_str().map_or("\n".to_owned(), |content| format!(", {content}\n"));
        assert_eq!(content, words, "{told}");
    }
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.wav"), wav);
    let dir = folder.path().display();
    let (_, err) = expect(&mut uringload(&format!("bench {dir} --transform resize(8x8)")), 2);
    assert!(err.contains("\"data\" is WAV audio, not decoded") && err.contains("--image-column"), "{err}");
    let (_, err) = expect(&mut uringload(&format!("bench {dir} --transform resize(8x8) --image-column data")), 1);
    assert!(err.contains("this is WAV audio, and no image"), "{err}");
}

#[test]
fn completions_and_pages_know_every_command() {
    for shell in ["bash", "elvish", "fish", "nushell", "powershell", "zsh"] {
        let (script, _) = expect(&mut uringload(&format!("completions {shell}")), 0);
        assert!(script.contains("doctor") && script.contains("emulate-step"), "{shell}");
    }
    let (module, _) = expect(&mut uringload("completions nushell"), 0);
    assert!(module.starts_with("module completions {") && module.contains("export extern \"uringload bench\""));
    let (page, _) = expect(&mut uringload("man"), 0);
    assert!(page.contains(".TH uringload 1") && page.contains("130"), "{page}");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("share/man1");
    expect(&mut uringload(&format!("man --out {}", out.display())), 0);
    let pages = [
        "bench",
        "cache",
        "cache-stat",
        "cache-verify",
        "cache-clear",
        "doctor",
        "index",
        "inspect",
        "list",
        "state",
        "state-show",
        "state-seek",
        "verify",
        "verify-order",
    ];
    for command in pages {
        let page = fs::read_to_string(out.join(format!("uringload-{command}.1"))).unwrap();
        assert!(page.contains(".SH OPTIONS"), "{command}");
    }
    expect(&mut uringload("man --out /proc/nonexistent"), 1);
}

/// What is linked is named with its licence: one of pure Rust, two of C, and one that has no file of its own.
#[test]
fn licenses_are_told() {
    let (text, _) = expect(&mut uringload("licenses"), 0);
    let line = "=".repeat(100);
    let parts: Vec<&str> = text.split(&format!("{line}\n")).collect();
    for (krate, words) in [
        ("io-uring ", "Permission is hereby granted"),
        ("zstd-sys ", "Redistribution and use in source and binary forms"),
        ("turbojpeg-sys ", "libjpeg-turbo Licenses"),
        ("highway ", "MIT License"),
    ] {
        // Names, then the text that they share.
        let has = parts[1..].chunks(2).any(|one| one[0].contains(krate) && one[1].contains(words));
        assert!(has, "{krate}");
    }
}

/// Whoever names files and columns does not control the terminal of those who look at them.
#[test]
fn names_are_printed_and_not_obeyed() {
    let hostile = folder(&[("a.csv", 0), (".\x1b[31mhidden", 1), ("\x1b]0;title\x07.md", 1)]);
    write(&hostile.path().join("a.csv"), b"\x1b[2Jid,te\xc2\x9b2Jxt\n1,a\n");
    let dir = hostile.path().display();
    for command in ["inspect", "inspect --json", "list", "verify", "verify --json"] {
        let output = run(&mut uringload(&format!("{command} {dir}")));
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8(told).unwrap();
        assert!(!told.contains(|letter: char| letter.is_control() && letter != '\n'), "{command}: {told:?}");
    }
    let (text, _) = expect(&mut uringload(&format!("inspect {dir}")), 0);
    assert!(text.contains("\\u001b[31mhidden") && text.contains("\\u001b[2Jid"), "{text}");
}

/// A stray file is left out and said so; splits are asked for.
#[test]
fn inspect_says_what_it_takes_and_what_not() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data");
    let some = folder(&[("README.md", 5), ("train/labels.csv", 5)]);
    let table = fs::read(format!("{data}/lines/unix.csv")).unwrap();
    for name in ["train/0.csv", "train/1.csv", "val/0.csv"] {
        write(&some.path().join(name), &table);
    }
    let dir = some.path().display();
    let (_, told) = expect(&mut uringload(&format!("inspect {dir}")), 2);
    assert!(told.contains("several splits: \"train\" with 2 files, \"val\" with 1 file"), "{told}");
    assert!(told.contains("--split"), "{told}");
    let train = json(&expect(&mut uringload(&format!("inspect {dir} --split train --json")), 0).0);
    assert_eq!((&train["format"], &train["files"]), (&"csv".into(), &2.into()));
    assert_eq!(train["left_out"][0]["reason"], "companions of the data", "{train}");
    let all = json(&expect(&mut uringload(&format!("inspect {dir} --split all --json")), 0).0);
    assert_eq!(all["files"], 3);
    let (_, told) = expect(&mut uringload(&format!("inspect {dir} --split trian")), 2);
    assert!(told.contains("did you mean \"train\"?"), "{told}");
}

/// Names of tables are bold where there is color, and nothing else differs.
#[test]
fn color_is_a_matter_of_terminals_and_of_who_asks() {
    let (_folder, dir) = files(3);
    let plain = expect(&mut uringload(&format!("inspect {dir}")), 0).0;
    assert!(!plain.contains('\u{1b}') && !plain.is_empty());
    let bold = expect(uringload(&format!("inspect {dir} --color always")).env("NO_COLOR", "1"), 0).0;
    assert!(bold.starts_with("\u{1b}[1mformat        \u{1b}[0m folder"), "an argument wins: {bold:?}");
    let stripped = bold.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
    let without_time =
        |text: &str| text.lines().filter(|line| !line.starts_with("opened in")).collect::<Vec<_>>().join("\n");
    assert_eq!(without_time(&stripped), without_time(&plain));
    let json = expect(&mut uringload(&format!("inspect {dir} --json --color always")), 0).0;
    assert!(!json.contains('\u{1b}'), "programs read no color");
    for (arguments, colored) in [("--help --color always", true), ("bench -h --color=never", false), ("-h", false)] {
        let help = expect(&mut uringload(arguments), 0).0;
        assert_eq!(help.contains('\u{1b}'), colored, "{arguments}");
    }
    let (_, err) = expect(&mut uringload(&format!("inspect {dir} --color blue")), 2);
    assert!(err.contains("blue"), "{err}");
}

/// On a terminal of 80 columns, no line is broken within a word; elsewhere a line stays a line.
#[test]
fn lines_fit_the_terminal() {
    let (_folder, dir) = files(3);
    let binary = env!("CARGO_BIN_EXE_uringload");
    for arguments in ["bench DIR --no-raw --epochs 1", "inspect DIR", "doctor"] {
        let arguments = arguments.replace("DIR", &dir);
        // A terminal of its own; what it shows comes to stdout.
        let line = format!("stty rows 40 cols 80; exec {binary} {arguments} --color never");
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).env("TERM", "xterm");
        let Ok(output) = script.output() else { return common::skip("script (util-linux) is missing: no terminal") };
        let shown = stdout(&output).replace('\r', "");
        // The line of progress is drawn over itself.
        let drawn = |line: &&str| !line.contains('\u{1b}');
        let wide: Vec<&str> = { shown.lines().filter(drawn) }
            .filter(|line| line.chars().count() > 80 && line.trim().contains(' '))
            .collect();
        let words = |line: &&str| line.split_whitespace().all(|word| word.chars().count() < 60);
        assert!(!wide.iter().any(words), "{arguments}: {wide:#?}");
        assert!(shown.lines().count() > 5, "{shown}");
    }
    let (piped, _) = expect(&mut uringload(&format!("bench {dir} --no-raw --epochs 1")), 0);
    assert!(piped.lines().any(|line| line.chars().count() > 80), "{piped}");
}
