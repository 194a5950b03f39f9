//! Output: escapes names from files, so that they cannot move a terminal's cursor, and accepts readers that stop early.
#![allow(unsafe_code, reason = "what a signal does, descriptors")]

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

use crate::words;

/// Escapes control characters, and those that change the direction of text, as `\u{…}` or `\n`.
pub(crate) fn escaped(text: &str) -> String {
    escaped_but(text, |_| false)
}

/// Escapes a text that has lines of its own.
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

/// Prints an error to standard error, if that is open.
pub(crate) fn say(error: &slabjit::Error) {
    complain(&words::of(error));
}

pub(crate) fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "slabjit: {text}");
}

/// Writes all or nothing: a file is replaced when the new one is complete.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if path.symlink_metadata().is_ok_and(|m| !m.is_file()) {
        // A pipe, a terminal or a link is written directly.
        return std::fs::write(path, bytes);
    }
    let mut name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = std::fs::write(&temporary, bytes).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// Opens closed standard streams on `/dev/null`, as Rust's own start-up code does: otherwise, files that are opened
/// later would get their numbers, and the output.
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

/// Ignores SIGPIPE from now on: the exit status matters even if nobody reads the output.
pub(crate) fn outlive_readers() {
    // SAFETY: a plain call.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Writes to standard output. Returns false on failure; a reader that has stopped is none.
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
