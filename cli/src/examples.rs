//! The whole definition of the command line: the arguments, and below each command's help and man page some examples
//! that work as they stand.

use crate::arguments::Arguments;
use crate::failure::EXIT_CODES;
use clap::{Command, CommandFactory};
use std::fmt::Write;

/// For each command, by its path: lines to type, and their purpose.
const EXAMPLES: [(&str, &[(&str, &str)]); 22] = [
    (
        "bench",
        &[
            ("uringload bench /data --shuffle --cold", "as a first epoch reads"),
            ("uringload bench /data --emulate-step 30", "how busy a GPU is that takes 30 ms"),
            ("uringload bench /data --duration 10s --json -", "figures for programs"),
        ],
    ),
    ("cache stat", &[("uringload cache stat /nvme/kept", "what takes the room, and is it still used?")]),
    (
        "cache fill",
        &[("uringload cache fill s3://bucket/train --cache-disk /nvme/kept:500GiB", "before the GPUs are paid for")],
    ),
    ("cache verify", &[("uringload cache verify /nvme/kept", "every checksum of every entry")]),
    (
        "cache clear",
        &[
            ("uringload cache clear /nvme/kept --stale", "only what older versions of datasets left"),
            ("uringload cache clear /nvme/kept s3://bucket/train", "one dataset"),
            ("uringload cache clear /nvme/kept", "all of it"),
        ],
    ),
    (
        "doctor",
        &[
            ("uringload doctor", "this machine"),
            ("uringload doctor /data --json", "and the disk of this folder, for programs"),
        ],
    ),
    ("index", &[("uringload index '/data/shards/*.tar'", "before a job with many ranks")]),
    (
        "inspect",
        &[
            ("uringload inspect /data", "what is it?"),
            ("uringload inspect batch.bin --record-fields 'label:u8,image:u8[3,32,32]'", "CIFAR-10's own files"),
        ],
    ),
    (
        "list-objects",
        &[
            ("uringload list-objects s3://bucket/train -o train.uls", "once, for all ranks and runs"),
            ("uringload list-objects --update train.uls", "what came, went and changed since?"),
        ],
    ),
    (
        "list",
        &[
            ("uringload list /data", "a line of JSON for each sample"),
            ("uringload list /data --shuffle --seed 1 --digest sha256", "the order of an epoch, with digests"),
        ],
    ),
    (
        "pack",
        &[
            ("uringload pack /data/photos /fast/photos", "many small files as shards"),
            ("uringload pack /data/photos /fast/small --resize 256", "images decoded once and stored smaller"),
            ("uringload pack /data /fast/data --part 1/4", "the first of four machines"),
        ],
    ),
    (
        "compare",
        &[
            ("uringload compare main.json this.json", "what changed, and whether it is chance"),
            ("uringload compare main.json this.json --fail-below 5%", "for CI: exits with 1 if this is slower"),
        ],
    ),
    ("show", &[("uringload show /data --shuffle --out sheet.png", "are these the images that I mean?")]),
    ("state show", &[("uringload state show state.json /data", "does it belong to this dataset?")]),
    ("state seek", &[("uringload state seek state.json --samples +10000 --out other.json", "skip samples")]),
    (
        "top",
        &[
            ("uringload top", "all loaders of this user that share their statistics"),
            ("uringload top 4711 --once --json", "one process, once, for programs"),
        ],
    ),
    (
        "tune",
        &[
            ("uringload tune /data --shuffle", "the fastest way to read it here"),
            ("uringload tune /data --shuffle --emulate-step 30", "is it fast enough for steps of 30 ms?"),
            ("uringload tune /data --out /etc/data.toml --json", "figures for programs, the profile elsewhere"),
        ],
    ),
    ("verify", &[("uringload verify /data", "every checksum, every sample")]),
    ("verify-order", &[("uringload verify-order /data --shuffle --world-size 8", "nothing lost, nothing doubled")]),
    (
        "completions",
        &[
            ("uringload completions bash", "~/.local/share/bash-completion/completions/uringload"),
            ("uringload completions nushell", "a module for `use`"),
        ],
    ),
    ("man", &[("uringload man --out /tmp/man1", "a page for each command")]),
    ("licenses", &[("uringload licenses", "to hand on with a program that has it built in")]),
];

/// What `-h` shows; `--help` and the man pages show everything.
const SHORT: [&str; 30] = [
    "paths",
    "folder",
    "dataset",
    "stale",
    "pid",
    "once",
    "format",
    "batch_size",
    "shuffle",
    "seed",
    "world_size",
    "engine",
    "io",
    "memory_limit",
    "on_error",
    "devices",
    "duration",
    "epochs",
    "cold",
    "emulate_step",
    "json",
    "digest",
    "file",
    "out",
    "position",
    "epoch",
    "samples",
    "destination",
    "part",
    "shell",
];

/// The end of the first statement of a help text: the rest explains it, and is for `--help`.
const CLAUSE_ENDS: [&str; 6] = ["; ", ": ", ". ", " [", " (", ", and "];

/// A longer list of possible values is for `--help`.
const SHORT_LIST: usize = 40;

/// The command line with its examples.
pub fn whole() -> Command {
    let mut whole = Arguments::command().mut_subcommands(shortened);
    for (path, examples) in EXAMPLES {
        let text = text(examples);
        whole = match path.split_once(' ') {
            None => whole.mut_subcommand(path, |command| below(command, &text)),
            Some((group, name)) => {
                whole.mut_subcommand(group, |group| group.mut_subcommand(name, |command| below(command, &text)))
            }
        };
    }
    let first = ["bench", "doctor", "inspect", "pack"];
    let of = |name: &&str| EXAMPLES.iter().find(|(path, _)| path == name).and_then(|(_, examples)| examples.last());
    let of_all: Vec<(&str, &str)> = first.iter().filter_map(of).copied().collect();
    let text = format!("{}\n{EXIT_CODES}", text(&of_all));
    whole.after_help(text.clone()).after_long_help(text)
}

fn shortened(command: Command) -> Command {
    let is_short = |arg: &clap::Arg| arg.is_required_set() || SHORT.contains(&arg.get_id().as_str());
    let command = command.mut_args(|arg| if is_short(&arg) { terse(arg) } else { arg.hide_short_help(true) });
    command.mut_subcommands(shortened)
}

/// The same argument: `-h` shows a short description and `--help` all of it.
fn terse(arg: clap::Arg) -> clap::Arg {
    let Some(help) = arg.get_help().map(ToString::to_string) else { return arg };
    let mut full = arg.get_long_help().map_or_else(|| help.clone(), ToString::to_string);
    let values = arg.get_possible_values();
    let names: Vec<&str> = values.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name()).collect();
    let has_help = values.iter().any(|value| value.get_help().is_some());
    // clap hides them in both or in none; values with a help of their own are a list in `--help` anyway.
    let is_long = arg.get_action().takes_values() && names.join(", ").len() > SHORT_LIST && !has_help;
    if is_long {
        full += &format!(" [possible values: {}]", names.join(", "));
    }
    let end = CLAUSE_ENDS.iter().filter_map(|end| help.find(end)).min().unwrap_or(help.len());
    arg.help(help[..end].to_owned()).long_help(full).hide_possible_values(is_long)
}

fn below(command: Command, text: &str) -> Command {
    // Existing text there comes after the examples.
    let with = |old: Option<String>| old.map_or(text.to_owned(), |old| format!("{text}\n{old}"));
    let short = with(command.get_after_help().map(ToString::to_string));
    let long = with(command.get_after_long_help().map(ToString::to_string));
    command.after_help(short).after_long_help(long)
}

fn text(examples: &[(&str, &str)]) -> String {
    let mut text = "Examples:\n".to_owned();
    for (line, what_for) in examples {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {line}\n      {what_for}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn commands(of: &Command, path: &str, found: &mut Vec<(String, Command)>) {
        for command in of.get_subcommands().filter(|command| command.get_name() != "help") {
            let path = format!("{path} {}", command.get_name()).trim().to_owned();
            commands(command, &path, found);
            if !command.has_subcommands() {
                found.push((path, command.clone()));
            }
        }
    }

    fn all() -> Vec<(String, Command)> {
        let mut found = Vec::new();
        let mut whole = whole();
        whole.build();
        commands(&whole, "", &mut found);
        found
    }

    #[test]
    fn every_command_has_examples_and_they_parse() {
        let known: Vec<&str> = EXAMPLES.iter().map(|(path, _)| *path).collect();
        for (path, command) in all() {
            assert!(known.contains(&&*path), "{path} has no example");
            let mut command = command;
            for help in [command.render_help(), command.render_long_help()] {
                assert!(help.to_string().contains("Examples:\n  uringload "), "{path}");
            }
        }
        for (path, examples) in EXAMPLES {
            for (line, _) in examples {
                assert!(line.starts_with(&format!("uringload {path}")), "{line}");
                let words = line.split(' ').map(|word| word.trim_matches('\''));
                Arguments::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
    }

    #[test]
    fn short_help_fits_on_a_screen_and_long_help_loses_nothing() {
        for (path, command) in all() {
            let mut command = command.term_width(80);
            let short = command.render_help().to_string();
            let lines = short.lines().count();
            assert!(lines <= 60, "{path} has {lines} lines:\n{short}");
        }
        let full = Arguments::command();
        let of = |command: &Command, id: &str| {
            let bench = command.find_subcommand("bench").expect("bench");
            let arg = bench.get_arguments().find(|arg| arg.get_id() == id).expect("the argument").clone();
            arg.get_long_help().or(arg.get_help()).expect("a help").to_string()
        };
        for id in ["paths", "shuffle", "emulate_step", "json"] {
            assert_eq!(of(&whole(), id), of(&full, id));
        }
        let (_, mut bench) = all().into_iter().find(|(path, _)| path == "bench").expect("bench");
        assert!(bench.render_long_help().to_string().contains("array_record"));
    }

    #[test]
    fn no_line_of_help_is_broken_within_a_word() {
        for (path, command) in all() {
            let mut command = command.term_width(80);
            for help in [command.render_help().to_string(), command.render_long_help().to_string()] {
                // clap never breaks a line of usage.
                let lines = help.lines().filter(|line| !line.starts_with("Usage: "));
                let wide = { lines }.find(|line| line.chars().count() > 80 && line.trim().contains(' '));
                assert_eq!(wide, None, "{path}");
            }
        }
    }

    #[test]
    fn man_pages_have_the_examples() {
        let mut page = Vec::new();
        let bench = all().into_iter().find(|(path, _)| path == "bench").expect("bench").1;
        clap_mangen::Man::new(bench).render(&mut page).expect("a page");
        assert!(String::from_utf8_lossy(&page).contains("uringload bench /data"));
    }
}
