//! What shells and `man` are told of the command line.

use std::ffi::c_int;
use std::io;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::output;

pub fn completions(shell: Shell, mut command: Command) -> c_int {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "slabjit", &mut text);
    print(&text)
}

/// A page of the command, and one of each subcommand behind it.
pub fn pages(mut command: Command) -> c_int {
    // Subcommands get the options that all have, and their whole names.
    command.build();
    let mut text = Vec::new();
    let parts = command.get_subcommands().filter(|part| part.get_name() != "help");
    let rendered: io::Result<()> =
        std::iter::once(&command).chain(parts).try_for_each(|command| Man::new(command.clone()).render(&mut text));
    match rendered {
        Ok(()) => print(&text),
        Err(error) => {
            output::complain(&format!("cannot make the manual: {error}"));
            1
        }
    }
}

fn print(text: &[u8]) -> c_int {
    output::outlive_readers();
    c_int::from(!output::print(&String::from_utf8_lossy(text)))
}
