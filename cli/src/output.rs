//! What commands print.

use std::fmt::Write as _;
use std::io::{self, Write as _};

/// Writes to stdout at once.
pub fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Lines of a name and a value.
pub struct Table {
    pub text: String,
    width: usize,
}

impl Table {
    /// Names are padded to `width`.
    pub fn new(width: usize) -> Table {
        Table { text: String::new(), width }
    }

    pub fn row(&mut self, name: &str, value: String) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{name:<0$} {value}", self.width);
    }
}
