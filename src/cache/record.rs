//! A record of the cache, which leads from a key to an object or image: a file of a few lines, named after the key.
//!
//! ```text
//! slabjit record 1
//! key HASH
//! object HASH                of its bytes; or image
//! bytes LENGTH
//! slabjit VERSION
//! llvm VERSION
//! time SECONDS               since 1970
//! cpu FEATURE…               what the code needs beyond the baseline, if that is known
//! part NAME VALUE            of the key, as often as there are
//! signature ID SIGNATURE     of all lines above, as often as there are
//! check HASH                 of all lines above
//! ```

use std::fmt::Write as _;
use std::time::SystemTime;

use super::key::{CacheKey, Part};

/// Upper bound of a record's size.
pub(super) const LARGEST: u64 = 16 << 10;

/// What a key leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Image,
}

impl Kind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Image => "image",
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Self::Object => "o",
            Self::Image => "so",
        }
    }
}

/// A signature, and the identifier of the key that made it: both in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Signed {
    pub(super) by: String,
    pub(super) signature: String,
}

/// An object or image, identified by its contents, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) kind: Kind,
    contents: blake3::Hash,
    bytes: u64,
    pub(super) slabjit: String,
    pub(super) llvm: String,
    pub(super) time: u64,
    pub(super) cpu: Option<Vec<String>>,
    pub(super) parts: Vec<Part>,
    pub(super) signatures: Vec<Signed>,
}

impl Record {
    /// Makes the record of a key's contents, which were made now and here.
    pub(super) fn of(key: &CacheKey, kind: Kind, contents: &[u8]) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            kind,
            contents: blake3::hash(contents),
            bytes: contents.len() as u64,
            slabjit: env!("CARGO_PKG_VERSION").to_owned(),
            llvm: crate::llvm_version_string(),
            time: now.as_secs(),
            cpu: None,
            parts: key.parts().to_vec(),
            signatures: Vec::new(),
        }
    }

    /// Returns the name of the key's record file.
    pub(super) fn file_name(key: &CacheKey) -> String {
        format!("{key}.key")
    }

    /// Returns the key whose record has a file of this name.
    pub(super) fn key_of(file_name: &str) -> Option<CacheKey> {
        CacheKey::from_text(file_name.strip_suffix(".key")?)
    }

    /// Returns whether it leads to these bytes.
    pub(super) fn is_of(&self, contents: &[u8]) -> bool {
        self.bytes == contents.len() as u64 && self.contents == blake3::hash(contents)
    }

    /// Returns the name of the object's or image's file.
    pub(super) fn contents_name(&self) -> String {
        format!("{}.{}", self.contents, self.kind.extension())
    }

    /// Returns that file's length.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the lines that are signed.
    pub(super) fn statement(&self, key: &CacheKey) -> String {
        let Self { kind, contents, bytes, slabjit, llvm, time, cpu, parts, .. } = self;
        let word = kind.word();
        let mut lines = format!("slabjit record 1\nkey {key}\n{word} {contents}\nbytes {bytes}\n");
        // Writing to a string succeeds.
        let _ = write!(lines, "slabjit {slabjit}\nllvm {llvm}\ntime {time}\n");
        if let Some(cpu) = cpu {
            lines.push_str("cpu");
            cpu.iter().for_each(|feature| lines.extend([" ", feature]));
            lines.push('\n');
        }
        for part in parts {
            let _ = writeln!(lines, "part {part}");
        }
        lines
    }

    /// Returns the file's contents. The last line is a hash of the others, which detects changes.
    pub(super) fn text(&self, key: &CacheKey) -> String {
        let mut lines = self.statement(key);
        for Signed { by, signature } in &self.signatures {
            let _ = writeln!(lines, "signature {by} {signature}");
        }
        let check = blake3::hash(lines.as_bytes());
        let _ = writeln!(lines, "check {check}");
        lines
    }

    /// Reads the record of a key; returns `None` if the bytes differ in anything from what [`text`](Self::text) writes.
    pub(super) fn read(text: &[u8], key: &CacheKey) -> Option<Self> {
        // It is printed, and may come from strangers.
        if !text.iter().all(|byte| matches!(byte, b'\n' | b' ') || byte.is_ascii_graphic()) {
            return None;
        }
        let mut lines = std::str::from_utf8(text).ok()?.lines().peekable();
        let mut next = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let _ = (next("slabjit")?, next("key")?);
        let (kind, contents) = [Kind::Object, Kind::Image].into_iter().find_map(|kind| {
            let hash = lines.peek()?.strip_prefix(kind.word())?.strip_prefix(' ')?;
            Some((kind, blake3::Hash::from_hex(hash).ok()?))
        })?;
        lines.next();
        let mut next = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let bytes = next("bytes")?.parse().ok()?;
        let (slabjit, llvm) = (next("slabjit")?.to_owned(), next("llvm")?.to_owned());
        let time = next("time")?.parse().ok()?;
        let (mut cpu, mut parts, mut signatures) = (None, Vec::new(), Vec::new());
        for line in lines {
            match line.split_once(' ').unwrap_or((line, "")) {
                ("cpu", features) => cpu = Some(features.split_whitespace().map(str::to_owned).collect()),
                ("part", part) => parts.push(Part::read(part)?),
                ("signature", signed) => {
                    let (by, signature) = signed.split_once(' ')?;
                    signatures.push(Signed { by: by.to_owned(), signature: signature.to_owned() });
                }
                _ => {}
            }
        }
        let record = Self { kind, contents, bytes, slabjit, llvm, time, cpu, parts, signatures };
        (record.text(key).as_bytes() == text).then_some(record)
    }
}
