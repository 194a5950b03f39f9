//! Trust in files and folders: only this process's user, or root where they are only read, may own them or write to
//! them.
//!
//! The check applies to open files, so they cannot be exchanged after it. Parent folders need no check: a user who can
//! rename those can replace the cache's folder, but not by one that this user owns and that has foreign files in it.

use std::path::Path;

use rustix::fs::{Mode, Stat};

/// The reason for a refusal, and the remedy.
pub(super) struct Distrust {
    pub(super) problem: String,
    pub(super) remedy: String,
}

/// Who may own a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owners {
    /// This process's user, of what it writes.
    User,
    /// Or root, of what it only reads.
    UserOrRoot,
}

/// Checks the status of an open file; `path` is for the error.
pub(super) fn check(status: &Stat, path: &Path, owners: Owners) -> Result<(), Distrust> {
    let path = path.display();
    let user = rustix::process::geteuid();
    let is_roots = status.st_uid == 0 && owners == Owners::UserOrRoot;
    if status.st_uid != user.as_raw() && !is_roots {
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
