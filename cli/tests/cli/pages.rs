//! The pages of documentation: each command and option that they name is there.

use super::{expect, uringload};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Options of Docker, Podman, cargo and SLURM that stand alone in a page.
const OTHERS: [&str; 10] = [
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

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let docs = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    docs.chain(["README.md", "python/README.md", "CONTRIBUTING.md"].map(|name| root.join(name))).collect()
}

#[test]
fn commands_and_options_in_pages_are_there() {
    let commands = commands();
    assert!(commands.len() > 15 && commands["bench"].contains("--cold") && commands["state seek"].contains("--out"));
    let wrong: Vec<String> = pages()
        .iter()
        .flat_map(|page| {
            let text = std::fs::read_to_string(page).unwrap();
            let name = page.file_name().unwrap().to_string_lossy().into_owned();
            wrong(&text, &commands).into_iter().map(move |what| format!("{name}: {what}"))
        })
        .collect();
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
