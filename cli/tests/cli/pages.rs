//! The pages of documentation: each command and option that they name is there, and their blocks of commands work.

use super::common::archive::Archive;
use super::{content, expect, rank_variables, stdout, uringload, write};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

/// Options of Docker, Podman, cargo and SLURM that stand alone in a page.
const OTHERS: [&str; 11] = [
    "--no-default-features",
    "--ulimit",
    "--security-opt",
    "--shm-size",
    "--ipc",
    "--read-only",
    "--cap-drop",
    "--memory",
    "--cpus",
    "--release",
    "--propagate",
];
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// What a page may ask of a shell beside our command and the scripts of the repository: it builds, installs or starts
/// something, and so do the tests of what it names.
const FOREIGN: [&str; 9] = ["cargo", "cc", "docker", "kubectl", "pip", "sbatch", "sudo", "torchrun", "python"];
/// Prefixes of a command line.
const PROMPTS: [&str; 4] = ["$", "sudo", "python", "-m"];

type Commands = BTreeMap<String, BTreeSet<String>>;

/// Each command with its options, as completions have them.
fn commands() -> Commands {
    let (script, _) = expect(&mut uringload("completions nushell"), 0);
    let mut commands = Commands::new();
    let mut last = String::new();
    for line in script.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("export extern ") {
            last = name.trim_matches(|sign| "\"[ ]".contains(sign)).trim_start_matches("uringload").trim().to_owned();
            commands.entry(last.clone()).or_default();
        }
        if line.starts_with("--") {
            let name = line.split(|sign: char| !(sign.is_alphanumeric() || sign == '-')).next().unwrap_or_default();
            commands.entry(last.clone()).or_default().insert(name.to_owned());
        }
    }
    commands
}

/// What a page says of the command line and is not so.
fn wrong(text: &str, commands: &Commands) -> Vec<String> {
    code(text).flat_map(|code| code.split(['\n', '|', ';']).flat_map(|line| line.split("&&"))).fold(
        Vec::new(),
        |mut wrong, line| {
            let words: Vec<&str> = line.split(" #").next().unwrap_or(line).split_whitespace().collect();
            let words = &words[words.iter().take_while(|word| PROMPTS.contains(word)).count()..];
            match words {
                ["uringload", rest @ ..] if !line.contains("import ") => wrong.extend(of_command(rest, commands)),
                [first, ..] if first.starts_with("--") => wrong.extend(words.iter().filter_map(|word| {
                    let option = option(word)?;
                    let is_there = commands.values().any(|options| options.contains(option));
                    (!is_there && !OTHERS.contains(&option)).then(|| format!("no command has {option}"))
                })),
                _ => {}
            }
            wrong
        },
    )
}

fn of_command(words: &[&str], commands: &Commands) -> Vec<String> {
    let is_name = |word: &&&str| word.starts_with(|sign: char| sign.is_ascii_lowercase());
    let two: Vec<&str> = words.iter().take(2).take_while(is_name).copied().collect();
    let Some(first) = two.first() else { return Vec::new() };
    let name = if commands.contains_key(&two.join(" ")) { two.join(" ") } else { (*first).to_owned() };
    let Some(options) = commands.get(&name) else { return vec![format!("no command {name:?}")] };
    let unknown = words.iter().filter_map(|word| option(word)).filter(|option| !options.contains(*option));
    unknown.map(|option| format!("{name} has no {option}")).collect()
}

/// The option that a word of a command line is.
fn option(word: &str) -> Option<&str> {
    let word = word.trim_start_matches('[');
    let end = word.find(|sign: char| !(sign.is_ascii_lowercase() || sign.is_ascii_digit() || sign == '-'));
    Some(&word[..end.unwrap_or(word.len())]).filter(|name| name.len() > 2 && name.starts_with("--"))
}

/// The spans and blocks of code of a page: what stands between marks of the same number.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let start = rest.find('`')?;
        let marks = rest[start..].bytes().take_while(|&byte| byte == b'`').count();
        let inner = &rest[start + marks..];
        let end = inner.find(&"`".repeat(marks))?;
        rest = inner[end + marks..].trim_start_matches('`');
        Some(&inner[..end])
    })
}

/// The pages for users, by their paths in the repository.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(ROOT);
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let docs = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let docs = docs.map(|path| format!("docs/{}", path.file_name().unwrap().to_string_lossy()));
    let others = ["README.md", "cli/README.md", "python/README.md", "formats/README.md", "CONTRIBUTING.md"];
    let names = docs.chain(others.map(str::to_owned));
    let read = |name: String| {
        let text = fs::read_to_string(root.join(&name)).unwrap();
        (name, text)
    };
    names.map(read).collect()
}

#[test]
fn commands_and_options_in_pages_are_there() {
    let commands = commands();
    assert!(commands.len() > 15 && commands["bench"].contains("--cold") && commands["state seek"].contains("--out"));
    let of =
        |(name, text): (String, String)| wrong(&text, &commands).into_iter().map(move |what| format!("{name}: {what}"));
    let wrong: Vec<String> = pages().into_iter().flat_map(of).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn wrong_commands_and_options_are_found() {
    let commands = commands();
    let count = |text: &str| wrong(text, &commands).len();
    assert_eq!(
        count("`uringload bench DIR --cold --shuffle=auto` `--record-bytes 5` `uringload state seek --out a`"),
        0
    );
    assert_eq!(count("`uringload bnech DIR` `uringload bench --cool` `--record-size 5` `--shuffle[=auto|full]`"), 3);
    assert_eq!(count("```sh\ncd a && uringload list a --digest sha256 --cold | wc --lines\n```\n"), 1);
    assert_eq!(count("```text\n$ python -m uringload top --at DIR --evry 1   # --nothing\n```\n"), 1);
}

/// The lines that a page tells a reader to type: those of blocks for a shell, and what follows a prompt.
fn typed(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut language = None;
    for line in text.lines() {
        match (line.trim().strip_prefix("```"), language) {
            (Some(named), None) => language = Some(named),
            (Some(_), Some(_)) => language = None,
            (None, Some("sh")) if !line.trim().is_empty() => lines.push(line),
            (None, Some(_)) => lines.extend(line.strip_prefix("$ ")),
            (None, None) => {}
        }
    }
    lines
}

/// What the pages' paths name, small, in a folder of its own.
fn sandbox(page: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let classes = |root: &str| {
        for number in 0..40 {
            let name = format!("{root}/{}/{number}.jpg", if number % 2 == 0 { "cat" } else { "dog" });
            write(&at(&name), &content(&name, 3000));
        }
    };
    match page {
        "README.md" => classes("data/imagenet/train"),
        "docs/cli.md" => {
            classes("DIR");
            write(&at("data/all.bin"), &content("all", 4096 * 500));
            let bench = format!("bench {} --rounds 5 --json {}", at("DIR").display(), at("main.json").display());
            expect(&mut uringload(&bench), 0);
        }
        "docs/formats.md" => {
            write(&at("data/train.bin"), &content("train", 150_528 * 4));
            write(&at("data/corpus/a.bin"), &content("a", 4097 * 2 * 8));
            write(&at("data/train.jsonl"), "{\"text\": \"a line\", \"label\": 3}\n".repeat(9).as_bytes());
            write(&at("cifar-10-batches-bin/data_batch_1.bin"), &content("batch", 3073 * 10));
            let table = Path::new(ROOT).join("tests/data/columnar/types-none-v1.parquet");
            fs::copy(table, at("data/train.parquet")).unwrap();
        }
        "docs/orders.md" => {
            classes("DIR");
            classes("data");
            write(&at("data/tokens.jsonl"), "{\"id\": 1, \"tokens\": [5, 6, 7]}\n".repeat(9).as_bytes());
        }
        "docs/webdataset.md" => {
            let archive = Archive::new().file("0.jpg", b"image").file("0.cls", b"1").file("1.jpg", b"other");
            write(&at("data/train/0.tar"), &archive.file("1.cls", b"2").end().0);
        }
        _ => {
            classes("DIR");
            classes("data");
        }
    }
    folder
}

/// Runs a line of a page as its reader does; what is wrong with it.
fn failed(line: &str, folder: &Path) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().skip_while(|word| word.contains('=')).collect();
    let program = *words.first()?;
    if program != "uringload" {
        // A test of the pages' files sees to it that the script is there.
        let is_known = FOREIGN.contains(&program) || program.contains('/');
        return (!is_known).then(|| format!("{program:?} is neither run nor known"));
    }
    let mut command = line.replace(" /data", &format!(" {}/data", folder.display()));
    command = command.replace(" /fast", &format!(" {}/fast", folder.display()));
    if words[1] == "tune" {
        // Else it measures for half a minute.
        command += " --limit 2s";
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_uringload")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]).current_dir(folder).env("PATH", path).stdin(Stdio::null());
    rank_variables().for_each(|name| {
        shell.env_remove(name);
    });
    let output = shell.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let may_fail = match output.status.code() {
        Some(0) => true,
        // What doctor and compare find is not of the page's making.
        Some(1) => words[1] == "doctor" || line.contains("--fail-below") || told.contains("cuda:0 is not available"),
        _ => false,
    };
    (!may_fail).then(|| format!("{line}: {}\n{told}{}", output.status, stdout(&output)))
}

#[test]
fn blocks_of_commands_work() {
    let mut count = 0;
    for (name, text) in pages() {
        let lines = typed(&text);
        if lines.is_empty() {
            continue;
        }
        let folder = sandbox(&name);
        for line in lines {
            count += 1;
            let wrong = failed(line, folder.path());
            assert!(wrong.is_none(), "{name}: {}", wrong.unwrap_or_default());
        }
    }
    assert!(count > 50, "{count} lines");
}

#[test]
fn a_line_that_does_not_work_is_found() {
    let folder = sandbox("");
    assert_eq!(typed("a\n```sh\nb c\n\n```\nd\n```text\n$ e\nf\n```\n$ g\n"), ["b c", "e"]);
    for wrong in
        ["uringload list NOWHERE", "uringload bench DIR --no-such", "make install", "uringload list DIR --format tra"]
    {
        assert!(failed(wrong, folder.path()).is_some(), "{wrong}");
    }
    assert_eq!(failed("uringload list /data | head    # some", folder.path()), None);
}
