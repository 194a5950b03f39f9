//! `slabjit cache`.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Subcommand;
use serde_json::json;
use slabjit::{CacheEntry, Error, ObjectCache};

use crate::output;
use crate::words;

#[derive(Subcommand)]
pub(crate) enum Action {
    /// List the entries of a cache; what was not used for the longest time comes first.
    Ls {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// The cache's folder.
        folder: PathBuf,
    },
    /// Print how many entries a cache has, and how many bytes.
    Stats {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// The cache's folder.
        folder: PathBuf,
    },
    /// Remove what was not used for the longest time, until the cache is within these bounds.
    Gc {
        /// The most bytes to keep, also with K, M or G behind the number, for the powers of 1024.
        #[arg(long, value_name = "BYTES", value_parser = bytes)]
        max_bytes: Option<u64>,
        /// The most entries to keep.
        #[arg(long, value_name = "N", required_unless_present = "max_bytes")]
        max_entries: Option<u64>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// The cache's folder.
        folder: PathBuf,
    },
    /// Read every entry and what it leads to; exit with 0 if all can be used, else with 1.
    ///
    /// What cannot be used is moved aside, with `.refused` behind its name, as a program that asked for it would do.
    Verify {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// The cache's folder.
        folder: PathBuf,
    },
    #[cfg(feature = "shared-cache")]
    #[command(flatten)]
    Shared(super::cache_store::Action),
}

/// Does it.
pub(crate) fn act(action: &Action) -> c_int {
    let done = match action {
        Action::Ls { json, folder } => list(folder, *json),
        Action::Stats { json, folder } => stats(folder, *json),
        Action::Gc { max_bytes, max_entries, json, folder } => gc(folder, *max_bytes, *max_entries, *json),
        Action::Verify { json, folder } => verify(folder, *json),
        #[cfg(feature = "shared-cache")]
        Action::Shared(action) => super::cache_store::act(action),
    };
    match done {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(error) => {
            output::say(&error);
            1
        }
    }
}

/// Reads a number of bytes.
fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| "give a number of bytes, such as 500M or 2G")?;
    number.checked_mul(1 << shift).ok_or_else(|| "that is more than any disk has".to_owned())
}

/// Prints a result; returns whether somebody read it.
pub(crate) fn told(json: bool, value: &serde_json::Value, text: &str) -> bool {
    output::outlive_readers();
    output::print(&if json { format!("{value:#}\n") } else { format!("{text}\n") })
}

/// A missing folder is a mistake here; programs make it.
pub(crate) fn existing(folder: &Path) -> slabjit::Result<&Path> {
    let error = |source| Error::Io { path: folder.to_owned(), source };
    folder.metadata().map_err(error).map(|_| folder)
}

fn list(folder: &Path, json: bool) -> slabjit::Result<bool> {
    let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let entries = ObjectCache::open(existing(folder)?)?.entries()?;
    let kind = |entry: &CacheEntry| if entry.is_image { "image" } else { "object" };
    let value = |entry: &CacheEntry| {
        json!({
            "key": entry.key.to_string(), "kind": kind(entry), "bytes": entry.bytes, "used": seconds(entry.used),
            "made": seconds(entry.made), "slabjit": entry.slabjit, "llvm": entry.llvm, "cpu": entry.cpu,
            "signed_by": entry.signed_by,
            "parts": entry.parts.iter().cloned().collect::<BTreeMap<_, _>>(),
        })
    };
    let line = |entry: &CacheEntry| {
        let signed = if entry.signed_by.is_empty() { "-".to_owned() } else { entry.signed_by.join(",") };
        format!("{} {:6} {:>10} {} {signed}", entry.key, kind(entry), entry.bytes, seconds(entry.used))
    };
    let text = entries.iter().map(line).collect::<Vec<_>>().join("\n");
    output::outlive_readers();
    Ok(if json {
        output::print(&format!("{:#}\n", json!(entries.iter().map(value).collect::<Vec<_>>())))
    } else {
        entries.is_empty() || output::print(&format!("{text}\n"))
    })
}

fn stats(folder: &Path, json: bool) -> slabjit::Result<bool> {
    let all = ObjectCache::open(existing(folder)?)?.gc()?;
    let value = json!({ "entries": all.entries, "bytes": all.bytes });
    Ok(told(json, &value, &format!("{} entries, {} bytes", all.entries, all.bytes)))
}

fn gc(folder: &Path, max_bytes: Option<u64>, max_entries: Option<u64>, json: bool) -> slabjit::Result<bool> {
    let mut builder = ObjectCache::builder(existing(folder)?);
    builder = max_bytes.into_iter().fold(builder, slabjit::ObjectCacheBuilder::max_bytes);
    builder = max_entries.into_iter().fold(builder, slabjit::ObjectCacheBuilder::max_entries);
    let slabjit::Collected { entries, bytes, removed_entries, removed_bytes, .. } = builder.open()?.gc()?;
    let value = json!({
        "entries": entries, "bytes": bytes, "removed_entries": removed_entries, "removed_bytes": removed_bytes,
    });
    let text =
        format!("removed {removed_entries} entries, {removed_bytes} bytes; {entries} entries, {bytes} bytes are left");
    Ok(told(json, &value, &text))
}

fn verify(folder: &Path, json: bool) -> slabjit::Result<bool> {
    let verified = ObjectCache::open(existing(folder)?)?.verify()?;
    let (entries, bytes) = (verified.entries, verified.bytes);
    let problems: Vec<String> = verified.problems.iter().map(words::of).collect();
    let value = json!({ "entries": entries, "bytes": bytes, "problems": problems });
    let mut text = format!("{entries} entries, {bytes} bytes can be used");
    for problem in &problems {
        text.push('\n');
        text.push_str(problem);
    }
    Ok(told(json, &value, &text) && problems.is_empty())
}
