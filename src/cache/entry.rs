//! What leads from a key to an object: a file of a few lines, named after the key.

use super::CacheKey;

/// Larger than any entry.
pub(super) const LARGEST: u64 = 512;

/// An object by its contents.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    object: blake3::Hash,
    bytes: u64,
}

impl Entry {
    pub(super) fn of(object: &[u8]) -> Self {
        Self { object: blake3::hash(object), bytes: object.len() as u64 }
    }

    /// The file of a key's entry.
    pub(super) fn file_name(key: &CacheKey) -> String {
        format!("{key}.key")
    }

    /// The object's file.
    pub(super) fn object_name(&self) -> String {
        format!("{}.o", self.object)
    }

    /// The object's length.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Contents of the file. The last line is a hash of the others: an entry that was read back is what was written.
    pub(super) fn text(&self, key: &CacheKey) -> String {
        let lines = format!("slabjit object 1\nkey {key}\nbytes {}\nobject {}\n", self.bytes, self.object);
        let check = blake3::hash(lines.as_bytes());
        format!("{lines}check {check}\n")
    }

    /// The entry of a key, if that is what these bytes are, exactly.
    pub(super) fn read(text: &[u8], key: &CacheKey) -> Option<Self> {
        let lines = std::str::from_utf8(text).ok()?;
        let field = |name: &str| lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let bytes = field("bytes")?.parse().ok()?;
        let object = blake3::Hash::from_hex(field("object")?).ok()?;
        let entry = Self { object, bytes };
        (entry.text(key).as_bytes() == text).then_some(entry)
    }
}
