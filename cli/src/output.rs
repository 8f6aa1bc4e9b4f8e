//! What commands print.

use clap::ValueEnum;
use std::borrow::Cow;
use std::env;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use uringload_measure::text::{one_line, printable};

/// Whether names of tables are written in bold: the command line's `--color`, which is the process's own.
static COLORED: AtomicBool = AtomicBool::new(false);

const BOLD: &str = "\u{1b}[1m";
const PLAIN: &str = "\u{1b}[0m";

/// When to write in color.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorName {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Whether anything is written in color: where stdout is a terminal with colors, unless the user decides otherwise. An
/// argument wins over NO_COLOR (no-color.org).
pub fn is_colored(asked: ColorName) -> bool {
    let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    match asked {
        ColorName::Always => true,
        ColorName::Never => false,
        ColorName::Auto => {
            let is_dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
            !is_set("NO_COLOR") && !is_dumb && io::stdout().is_terminal()
        }
    }
}

/// From now on.
pub fn set_colored(colored: bool) {
    COLORED.store(colored, Ordering::Relaxed);
}

/// Least width of a terminal at which lines are broken at its width.
const WORDS_LEAST: usize = 24;

/// Blanks before what continues a line on stderr.
const STDERR_INDENT: usize = 4;

/// The lines, broken between words at the terminal's width if stdout is one, and continued after that many blanks.
/// Elsewhere a line stays a line, so that it can be searched.
pub fn for_terminal(text: &str, indent: usize) -> Cow<'_, str> {
    match terminal_size::terminal_size_of(io::stdout()) {
        Some((columns, _)) => fitted(text, columns.0.into(), indent),
        None => text.into(),
    }
}

/// Writes lines to stderr, if anybody listens: broken between words where it is a terminal.
pub fn eprintln_quietly(lines: &str) {
    let lines = printable(lines);
    let columns = terminal_size::terminal_size_of(io::stderr()).map(|(columns, _)| usize::from(columns.0));
    let fitted = columns.map_or(Cow::Borrowed(&*lines), |columns| fitted(&lines, columns, STDERR_INDENT));
    let _ = writeln!(io::stderr().lock(), "{}", fitted.trim_end());
}

fn fitted(text: &str, columns: usize, indent: usize) -> Cow<'_, str> {
    let is_wide = |line: &str| line.chars().count() > columns;
    if columns < indent + WORDS_LEAST || !text.lines().any(is_wide) {
        return text.into();
    }
    let mut whole = String::with_capacity(text.len() + 64);
    for line in text.lines() {
        let (mut rest, mut room) = (line, columns);
        while rest.chars().count() > room {
            let end = rest.char_indices().nth(room).map_or(rest.len(), |(at, _)| at);
            // Names stay with what they name. A word that is longer than a line stays whole.
            let names = if room == columns { indent.min(end) } else { 0 };
            let names = rest.char_indices().nth(names).map_or(0, |(at, _)| at);
            let first = names + (rest[names..].len() - rest[names..].trim_start().len());
            let before = rest.get(first..end).and_then(|words| words.rfind(' ')).map(|at| first + at);
            let Some(at) = before.or_else(|| rest[first.max(end)..].find(' ').map(|at| first.max(end) + at)) else {
                break;
            };
            whole.push_str(rest[..at].trim_end());
            whole.push('\n');
            whole.extend(std::iter::repeat_n(' ', indent));
            rest = rest[at..].trim_start();
            room = columns - indent;
        }
        whole.push_str(rest);
        whole.push('\n');
    }
    whole.into()
}

/// Writes a table to stdout at once: names, in the first `width` columns, are bold if colors are on.
pub fn print_table(text: &str, width: usize) -> io::Result<()> {
    let fitted = for_terminal(text, width + 1);
    let text: &str = &fitted;
    if !COLORED.load(Ordering::Relaxed) {
        return print(text);
    }
    let mut bold = String::with_capacity(text.len() * 2);
    for line in printable(text).lines() {
        let at = line.char_indices().nth(width).map_or(line.len(), |(at, _)| at);
        let (name, rest) = line.split_at(at);
        // A line that is not a row has no blank after its name.
        let is_row = rest.starts_with(' ') && !name.trim().is_empty();
        let written = if is_row { writeln!(bold, "{BOLD}{name}{PLAIN}{rest}") } else { writeln!(bold, "{line}") };
        // Writing to a String cannot fail.
        let _ = written;
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(bold.as_bytes())?;
    stdout.flush()
}

/// Writes to stdout at once; see [`printable`].
pub fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(printable(text).as_bytes())?;
    stdout.flush()
}

/// Writes text to stdout as it is, for a terminal.
pub fn print_raw(text: &str) -> io::Result<()> {
    io::stdout().lock().write_all(text.as_bytes())
}

/// Lines of a name and a value.
pub struct Table {
    pub text: String,
    width: usize,
}

/// Columns of the names of most tables.
pub const NAMES: usize = 14;

impl Table {
    /// Names are padded to `width`.
    pub fn new(width: usize) -> Table {
        Table { text: String::new(), width }
    }

    pub fn row(&mut self, name: &str, value: String) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{:<2$} {}", one_line(name), one_line(&value), self.width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_argument_says_wins() {
        assert!(is_colored(ColorName::Always) && !is_colored(ColorName::Never));
    }

    #[test]
    fn lines_are_broken_between_words_where_a_terminal_ends() {
        let text = "name           one two three four five six\n\nother          short\n               \
                    /a/path/without/any/blank/in/it\n";
        let told = fitted(text, 40, 15);
        assert_eq!(
            told,
            "name           one two three four five\n               six\n\nother          short\n               \
             /a/path/without/any/blank/in/it\n"
        );
        assert_eq!(fitted(text, 30, 15), text, "too narrow for anything");
        assert!(matches!(fitted(text, 120, 15), Cow::Borrowed(_)));
        let long = format!("name           {}", "word ".repeat(60));
        let told = fitted(&long, 80, 15);
        assert!(told.lines().all(|line| line.chars().count() <= 80), "{told}");
        assert!(told.lines().skip(1).all(|line| line.starts_with("               word")), "{told}");
        assert_eq!(told.matches("word").count(), 60);
        let wide = format!("ä              {}", "wörter ".repeat(30));
        assert!(fitted(&wide, 60, 15).lines().all(|line| line.chars().count() <= 60));
    }

    #[test]
    fn rows_have_one_line() {
        let mut table = Table::new(4);
        table.row("x\u{1b}", "y\nz".into());
        assert_eq!(table.text, "x\\u001b y\\u000az\n");
    }
}
