//! The manual page and the completions of the command line.

use std::ffi::c_int;
use std::io;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::output;

pub(crate) fn completions(shell: Shell, mut command: Command) -> c_int {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "slabjit", &mut text);
    print(&text)
}

/// Prints a page for the command, and then one for each subcommand, and for theirs.
pub(crate) fn pages(mut command: Command) -> c_int {
    // Gives subcommands the global options and their full names.
    command.build();
    let mut text = Vec::new();
    match render(&command, &mut text) {
        Ok(()) => print(&text),
        Err(error) => {
            output::complain(&format!("cannot make the manual: {error}"));
            1
        }
    }
}

fn render(command: &Command, text: &mut Vec<u8>) -> io::Result<()> {
    Man::new(command.clone()).render(text)?;
    let mut parts = command.get_subcommands().filter(|part| part.get_name() != "help");
    parts.try_for_each(|part| render(part, text))
}

fn print(text: &[u8]) -> c_int {
    output::outlive_readers();
    c_int::from(!output::print(&String::from_utf8_lossy(text)))
}
