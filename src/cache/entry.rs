//! An entry of the cache, which leads from a key to an object: a file of a few lines, named after the key.

use super::CacheKey;

/// Upper bound of an entry's size.
pub(super) const LARGEST: u64 = 512;

/// An object, identified by its contents.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    object: blake3::Hash,
    bytes: u64,
}

impl Entry {
    pub(super) fn of(object: &[u8]) -> Self {
        Self { object: blake3::hash(object), bytes: object.len() as u64 }
    }

    /// Returns the name of the key's entry file.
    pub(super) fn file_name(key: &CacheKey) -> String {
        format!("{key}.key")
    }

    /// Returns the name of the object's file.
    pub(super) fn object_name(&self) -> String {
        format!("{}.o", self.object)
    }

    /// Returns the object's length.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the file's contents. The last line is a hash of the others, which detects changes.
    pub(super) fn text(&self, key: &CacheKey) -> String {
        let lines = format!("slabjit object 1\nkey {key}\nbytes {}\nobject {}\n", self.bytes, self.object);
        let check = blake3::hash(lines.as_bytes());
        format!("{lines}check {check}\n")
    }

    /// Parses the entry of a key; returns `None` if the bytes differ in anything.
    pub(super) fn read(text: &[u8], key: &CacheKey) -> Option<Self> {
        let lines = std::str::from_utf8(text).ok()?;
        let field = |name: &str| lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let bytes = field("bytes")?.parse().ok()?;
        let object = blake3::Hash::from_hex(field("object")?).ok()?;
        let entry = Self { object, bytes };
        (entry.text(key).as_bytes() == text).then_some(entry)
    }
}
