//! `slabjit cache`: what has to do with keys and shared stores.

use std::io::{BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use slabjit::store::{self, PublicKey, SecretKey};
use slabjit::{CacheKey, Error, ObjectCache, ObjectCacheBuilder};

use crate::cache::{existing, told};
use crate::output;
use crate::words;

/// Calls of a store at a time.
const AT_A_TIME: usize = 8;

#[derive(Subcommand)]
pub(crate) enum Action {
    /// Make a key that signs entries: write the secret half to a new file, and print the public half.
    Keygen {
        /// The file of the secret key, which is not there yet.
        file: PathBuf,
    },
    /// Sign entries of a cache.
    Sign {
        /// The file of the secret key.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        #[command(flatten)]
        common: Common,
        /// The cache's folder.
        folder: PathBuf,
        /// Keys of the entries; without any, all of the cache.
        keys: Vec<CacheKey>,
    },
    /// Send entries of a cache to a shared store, such as s3://bucket/prefix.
    Push {
        /// The file of the secret key that signs what nobody has signed yet.
        #[arg(long, value_name = "FILE", required_unless_present = "unsigned")]
        key: Option<PathBuf>,
        /// Send entries without signatures.
        #[arg(long, conflicts_with = "key")]
        unsigned: bool,
        #[command(flatten)]
        common: Common,
        /// The cache's folder.
        folder: PathBuf,
        /// The URL of the store.
        store: String,
        /// Keys of the entries; without any, all of the cache.
        keys: Vec<CacheKey>,
    },
    /// Bring entries from a shared store to a cache, such as one in a container image.
    Pull {
        /// Take entries without signatures: whoever can write to the store decides what runs.
        #[arg(long, required_unless_present = "trust", conflicts_with = "trust")]
        unsigned: bool,
        #[command(flatten)]
        common: Common,
        /// The cache's folder.
        folder: PathBuf,
        /// The URL of the store.
        store: String,
        /// Keys of the entries; without any, they are read from standard input, the first word of each line.
        keys: Vec<CacheKey>,
    },
}

#[derive(Args)]
pub(crate) struct Common {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// A public key whose signatures are trusted: its line of text, or a file with it.
    #[arg(long, value_name = "KEY", value_parser = public_key)]
    trust: Vec<PublicKey>,
    /// A key whose signatures are not trusted any more: its identifier, its line of text, or a file with that.
    #[arg(long, value_name = "KEY", value_parser = revoked_key)]
    revoke: Vec<String>,
}

impl Common {
    fn of(&self, builder: ObjectCacheBuilder) -> ObjectCacheBuilder {
        builder.trusted_keys(self.trust.iter().cloned()).revoked_keys(&self.revoke)
    }
}

/// Does it; returns whether all went well.
pub(crate) fn act(action: &Action) -> slabjit::Result<bool> {
    match action {
        Action::Keygen { file } => keygen(file),
        Action::Sign { key, common, folder, keys } => {
            let builder = common.of(ObjectCache::builder(existing(folder)?));
            let cache = builder.sign_with(SecretKey::from_file(key)?).open()?;
            let keys = all_unless(&cache, keys)?;
            each(&keys, common.json, ["signed", "signed before"], |key| cache.sign(key))
        }
        Action::Push { key, unsigned, common, folder, store, keys } => {
            let mut builder = common.of(open(existing(folder)?, store)?).require_signature(!unsigned);
            if let Some(key) = key {
                builder = builder.sign_with(SecretKey::from_file(key)?);
            }
            let cache = builder.open()?;
            let keys = all_unless(&cache, keys)?;
            each(&keys, common.json, ["sent", "already there"], |key| cache.push(key))
        }
        Action::Pull { unsigned, common, folder, store, keys } => {
            let builder = common.of(open(folder, store)?).require_signature(!unsigned);
            let cache = builder.read_only(true).open()?;
            let keys = if keys.is_empty() { from_input()? } else { keys.clone() };
            each(&keys, common.json, ["brought", "not in the store"], |key| cache.pull(key))
        }
    }
}

fn open(folder: &Path, url: &str) -> slabjit::Result<ObjectCacheBuilder> {
    Ok(ObjectCache::builder(folder).store(store::open(url)?))
}

fn all_unless(cache: &ObjectCache, keys: &[CacheKey]) -> slabjit::Result<Vec<CacheKey>> {
    if !keys.is_empty() {
        return Ok(keys.to_vec());
    }
    Ok(cache.entries()?.into_iter().map(|entry| entry.key).collect())
}

fn from_input() -> slabjit::Result<Vec<CacheKey>> {
    let failed = |source| Error::Io { path: "standard input".into(), source };
    let mut keys = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(failed)?;
        let Some(word) = line.split_whitespace().next() else { continue };
        let bad = |error| failed(std::io::Error::new(std::io::ErrorKind::InvalidData, format!("'{word}': {error}")));
        keys.push(word.parse().map_err(bad)?);
    }
    Ok(keys)
}

/// Reads a public key, or a file with one.
fn public_key(text: &str) -> Result<PublicKey, String> {
    text.parse().or_else(|error: store::KeyTextError| {
        let file = fs::read_to_string(text).map_err(|_| error.to_string())?;
        file.parse().map_err(|error: store::KeyTextError| format!("{text}: {error}"))
    })
}

/// Reads an identifier, or a public key.
fn revoked_key(text: &str) -> Result<String, String> {
    Ok(public_key(text).map_or_else(|_| text.to_owned(), |key| key.id()))
}

fn keygen(file: &Path) -> slabjit::Result<bool> {
    let failed = |source| Error::Io { path: file.to_owned(), source };
    let key = SecretKey::generate().map_err(failed)?;
    key.write(file).map_err(failed)?;
    output::outlive_readers();
    eprintln!("the key {}; keep '{}' secret", key.public().id(), file.display());
    Ok(output::print(&format!("{}\n", key.public())))
}

/// Does something for each key, several at a time; prints how many there were of which it was true and false.
fn each(
    keys: &[CacheKey],
    json: bool,
    [done, not_done]: [&str; 2],
    work: impl Fn(&CacheKey) -> slabjit::Result<bool> + Sync,
) -> slabjit::Result<bool> {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(keys.len() as u64) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    let (next, counts, problems) =
        (AtomicUsize::new(0), [AtomicUsize::new(0), AtomicUsize::new(0)], Mutex::new(vec![]));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME.min(keys.len()) {
            scope.spawn(|| {
                while let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match work(key) {
                        Ok(is_done) => drop(counts[usize::from(!is_done)].fetch_add(1, Ordering::Relaxed)),
                        Err(error) => problems.lock().unwrap_or_else(|e| e.into_inner()).push(words::of(&error)),
                    }
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let problems = problems.into_inner().unwrap_or_else(|e| e.into_inner());
    let [first, second] = counts.map(AtomicUsize::into_inner);
    let value = json!({ done: first, not_done: second, "problems": problems });
    let mut text = format!("{first} {done}, {second} {not_done}");
    for problem in &problems {
        text.push('\n');
        text.push_str(problem);
    }
    Ok(told(json, &value, &text) && problems.is_empty())
}
