//! Shell completions and man pages, from the definitions of the arguments; and the licences.

use crate::Done;
use crate::arguments::ShellName;
use crate::examples::whole;
use crate::failure::{Exit, Failure};
use crate::output;
use clap_complete::{Shell, generate};
use clap_complete_nushell::Nushell;
use std::path::Path;
use uringload::Error;

/// Prints the completions for a shell.
pub fn completions(shell: ShellName) -> Done {
    let (mut script, mut whole) = (Vec::new(), whole());
    let shell = match shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Elvish => Shell::Elvish,
        ShellName::Fish => Shell::Fish,
        ShellName::Powershell => Shell::PowerShell,
        ShellName::Zsh => Shell::Zsh,
        ShellName::Nushell => {
            generate(Nushell, &mut whole, "uringload", &mut script);
            return print(script);
        }
    };
    generate(shell, &mut whole, "uringload", &mut script);
    print(script)
}

/// Prints the man page, or writes all of them into a folder, which is made if it is missing.
pub fn man(out: Option<&Path>) -> Done {
    let Some(out) = out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(whole()).render(&mut page)?;
        return print(page);
    };
    std::fs::create_dir_all(out)
        .and_then(|()| clap_mangen::generate_to(whole(), out))
        .map_err(|source| Failure::Loader(Error::io("cannot write the man pages", source).with_path(out)))?;
    Ok(Exit::Done)
}

/// Prints the licences of what this program is linked with; `.ci/licenses.py` collects them.
pub fn licenses() -> Done {
    print(include_bytes!("../licenses.txt").to_vec())
}

fn print(text: Vec<u8>) -> Done {
    output::print(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Done)
}
