//! What is printed: names from files cannot move a terminal's cursor, and who reads may stop reading.
#![allow(unsafe_code)] // what a signal does, descriptors

use std::fmt::Write as _;
use std::io::{self, Write as _};

use crate::words;

/// A name with its control characters, and those that change the direction of text, as `\u{…}` or `\n`.
pub(crate) fn escaped(text: &str) -> String {
    escaped_but(text, |_| false)
}

/// The same of a text that has lines of its own.
pub(crate) fn escaped_lines(text: &str) -> String {
    escaped_but(text, |c| c == '\n')
}

fn escaped_but(text: &str, keep: impl Fn(char) -> bool) -> String {
    let acts = |c: char| {
        c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().fold(String::with_capacity(text.len()), |mut result, c| {
        if acts(c) && !keep(c) {
            let _ = write!(result, "{}", c.escape_default());
        } else {
            result.push(c);
        }
        result
    })
}

/// Says on standard error what went wrong, if anybody listens.
pub(crate) fn say(error: &slabjit::Error) {
    complain(&words::of(error));
}

pub(crate) fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "slabjit: {text}");
}

/// Has standard streams that are closed lead nowhere, as Rust's own start-up code does: else files that are opened from
/// now on would get their numbers, and what is printed.
pub(crate) fn open_streams() {
    for stream in 0..3 {
        // SAFETY: plain calls. The lowest number that is free is the stream's: those below are taken.
        unsafe {
            if libc::fcntl(stream, libc::F_GETFD) == -1 {
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            }
        }
    }
}

/// From now on the process does not end when nobody reads what it writes: its exit status is worth having all the same.
pub(crate) fn outlive_readers() {
    // SAFETY: a plain call.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Writes to standard output. False if that failed; it has not where the reader has had enough.
pub(crate) fn print(text: &str) -> bool {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => true,
        Err(error) => {
            complain(&format!("cannot write to standard output: {error}"));
            false
        }
    }
}
