//! What is in a cache, and what a key differs in from it.

use std::fmt;
use std::time::{Duration, SystemTime};

use super::key::{CacheKey, Part};
use super::record::{Kind, Record};
use crate::Error;

/// An entry of a cache, by [`ObjectCache::entries`](crate::ObjectCache::entries).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CacheEntry {
    /// Its key. The key of an image is made from the one that was given.
    pub key: CacheKey,
    /// Whether it is an image, and not an object.
    pub is_image: bool,
    /// The length of the object or image, in bytes.
    pub bytes: u64,
    /// When it was last used, to the hour.
    pub used: SystemTime,
    /// When it was compiled or linked, by the clock of the machine that did it.
    pub made: SystemTime,
    /// The version of slabjit that stored it.
    pub slabjit: String,
    /// The LLVM that this slabjit was built with, or `none`.
    pub llvm: String,
    /// What it needs of the CPU beyond the baseline of its machine, if that is known.
    pub cpu: Option<Vec<String>>,
    /// Identifiers of the keys that signed it.
    pub signed_by: Vec<String>,
    /// Named parts of its key: see [`CacheKeyBuilder`](crate::CacheKeyBuilder).
    pub parts: Vec<(String, String)>,
}

/// The result of [`ObjectCache::verify`](crate::ObjectCache::verify).
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Verified {
    /// Entries that can be used.
    pub entries: u64,
    /// Bytes of the objects and images that they lead to; those of several entries count for each.
    pub bytes: u64,
    /// Why others cannot.
    pub problems: Vec<Error>,
}

impl CacheEntry {
    pub(super) fn of(key: CacheKey, record: &Record, used: SystemTime) -> Self {
        Self {
            key,
            is_image: record.kind == Kind::Image,
            bytes: record.bytes(),
            used,
            made: SystemTime::UNIX_EPOCH
                .checked_add(Duration::from_secs(record.time))
                .unwrap_or(SystemTime::UNIX_EPOCH),
            slabjit: record.slabjit.clone(),
            llvm: record.llvm.clone(),
            cpu: record.cpu.clone(),
            signed_by: record.signatures.iter().map(|signed| signed.by.clone()).collect(),
            parts: record.parts.iter().map(|part| (part.name.clone(), part.value.clone())).collect(),
        }
    }
}

/// What a key differs in from the entry that is nearest to it. `Display` says it in a line.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MissExplanation {
    /// The key of the nearest entry.
    pub nearest: CacheKey,
    /// Parts that differ, by name.
    pub differs: Vec<PartDifference>,
}

/// A part of two keys that is not the same in both. Long values are given as `BLAKE3` and their hash.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartDifference {
    /// The part's name.
    pub name: String,
    /// Its value in the key that was asked for; `None` where that has no such part.
    pub wanted: Option<String>,
    /// Its value in the nearest entry.
    pub found: Option<String>,
}

/// Finds the entry that shares the most parts with a key; the newest of several.
pub(super) fn explain(key: &CacheKey, entries: Vec<CacheEntry>) -> Option<MissExplanation> {
    let shared = |entry: &CacheEntry| {
        key.parts().iter().filter(|part| value(&entry.parts, &part.name) == Some(&part.value)).count()
    };
    let nearest =
        entries.into_iter().filter(|entry| !entry.parts.is_empty()).max_by_key(|entry| (shared(entry), entry.made))?;
    let mut differs: Vec<_> = key
        .parts()
        .iter()
        .map(|Part { name, value: wanted }| PartDifference {
            name: name.clone(),
            wanted: Some(wanted.clone()),
            found: value(&nearest.parts, name).cloned(),
        })
        .filter(|part| part.wanted != part.found)
        .collect();
    let is_new = |name: &str| key.parts().iter().all(|part| part.name != name);
    let others = nearest.parts.iter().filter(|(name, _)| is_new(name));
    differs.extend(others.map(|(name, value)| PartDifference {
        name: name.clone(),
        wanted: None,
        found: Some(value.clone()),
    }));
    Some(MissExplanation { nearest: nearest.key, differs })
}

fn value<'p>(parts: &'p [(String, String)], name: &str) -> Option<&'p String> {
    parts.iter().find_map(|(of, value)| (of == name).then_some(value))
}

impl fmt::Display for MissExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nearest, differs } = self;
        if differs.is_empty() {
            return write!(f, "entry {nearest} has the same parts; what it leads to is gone, or it is of another kind");
        }
        write!(f, "the nearest entry, {nearest}, differs in ")?;
        for (index, PartDifference { name, wanted, found }) in differs.iter().enumerate() {
            let (wanted, found) = (wanted.as_deref().unwrap_or("nothing"), found.as_deref().unwrap_or("nothing"));
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name} (wanted {wanted}, found {found})")?;
        }
        Ok(())
    }
}
