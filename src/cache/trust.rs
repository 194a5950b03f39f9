//! Who may have written a file or folder, or may write to it: only this process's user will do.
//!
//! It is asked of what is open, so nothing can be exchanged after the question. Folders above the cache's need no question: whoever may
//! rename those can put another folder in the cache's place, but none that this user owns and that has somebody else's files in it.

use std::path::Path;

use rustix::fs::{Mode, Stat};

/// A reason to refuse it, and what to do about it.
pub(super) struct Distrust {
    pub(super) problem: String,
    pub(super) remedy: String,
}

/// Something that is open, under the path by which it is known.
pub(super) fn check(status: &Stat, path: &Path) -> Result<(), Distrust> {
    let path = path.display();
    let user = rustix::process::geteuid();
    if status.st_uid != user.as_raw() {
        let problem = format!("user {} owns it, and this process runs as user {user}", status.st_uid);
        let remedy = format!("if you trust what is in it: chown {user} '{path}'");
        return Err(Distrust { problem, remedy });
    }
    let mode = Mode::from_raw_mode(status.st_mode);
    if mode.intersects(Mode::WGRP | Mode::WOTH) {
        let problem = format!("others than its owner may write to it (its mode is {:04o})", mode.as_raw_mode());
        let remedy = format!("if you trust what is in it: chmod go-w '{path}'");
        return Err(Distrust { problem, remedy });
    }
    Ok(())
}
