//! Keys of the object cache.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use crate::cpu;
use crate::elf::HOST_MACHINE;
use crate::image::ImageIdentity;

/// The most characters of a part's name and value that are kept; of a longer value there is its hash.
const LONGEST: usize = 100;

/// The most bytes of parts that a record keeps.
const MOST: usize = 8 << 10;

const TARGET: &str =
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" };

/// A hash of an object's inputs, or of several objects' (BLAKE3, 256 bits). `Display` is the hash in hexadecimal, and
/// equality is that of the hashes.
///
/// ```
/// use slabjit::CacheKey;
///
/// let source = "int add(int a, int b) { return a + b; }";
/// let key = CacheKey::new(["cc 12.2.0", "-O2 -fPIC", "x86_64-unknown-linux-gnu", source]);
/// assert_ne!(key, CacheKey::new(["cc 12.2.0", "-O3 -fPIC", "x86_64-unknown-linux-gnu", source]));
/// ```
#[derive(Clone)]
pub struct CacheKey {
    hash: blake3::Hash,
    /// Of a key with named parts: all of them.
    parts: Option<Arc<[Part]>>,
}

impl CacheKey {
    /// Makes a key from all inputs of the object, in any fixed order: source, options, target with its features, and
    /// the compiler's version. If an input is left out, the cache may return an object for another value of it.
    ///
    /// The boundaries of inputs count: `["ab", "c"]` is not `["a", "bc"]`.
    pub fn new<I: AsRef<[u8]>>(inputs: impl IntoIterator<Item = I>) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("slabjit 2026-11 inputs of a compilation");
        for input in inputs {
            let input = input.as_ref();
            hasher.update(&(input.len() as u64).to_le_bytes()).update(input);
        }
        Self { hash: hasher.finalize(), parts: None }
    }

    /// Returns a builder of a key with named parts, some of which are there by default: see [`CacheKeyBuilder`].
    pub fn builder() -> CacheKeyBuilder {
        CacheKeyBuilder::new()
    }

    /// Reads the key that `Display` writes so.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let hash = blake3::Hash::from_hex(text).ok()?;
        Some(Self { hash, parts: None }).filter(|key| key.to_string() == text)
    }

    /// Returns the key of the image of the objects that this is the key of.
    pub(super) fn of_image(&self, identity: &ImageIdentity) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("slabjit 2026-11 inputs of an image");
        hasher.update(self.hash.as_bytes()).update(identity.hash().as_bytes());
        Self { hash: hasher.finalize(), parts: self.parts.clone() }
    }

    /// Returns its named parts.
    pub(super) fn parts(&self) -> &[Part] {
        self.parts.as_deref().unwrap_or_default()
    }
}

impl FromStr for CacheKey {
    type Err = KeyHashError;

    /// Reads the hash that `Display` writes. Such a key has no named parts.
    fn from_str(text: &str) -> Result<Self, KeyHashError> {
        Self::from_text(text).ok_or(KeyHashError)
    }
}

/// A text that is no key of the object cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no key of a cache; give 64 hexadecimal digits, as slabjit cache ls prints them")]
pub struct KeyHashError;

impl PartialEq for CacheKey {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl Eq for CacheKey {}

impl Hash for CacheKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.as_bytes().hash(state);
    }
}

impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hash.fmt(f)
    }
}

impl fmt::Debug for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CacheKey({self})")
    }
}

/// Makes a [`CacheKey`] of named parts, which [`explain_miss`](crate::ObjectCache::explain_miss) can tell apart. Their
/// order does not count; a part that is given twice has the last value.
///
/// There by default: `slabjit` (its version and the format of its images), `llvm` (the LLVM of this build), `target`
/// (`x86_64-unknown-linux-gnu` or AArch64's) and `cpu` (`baseline`). No part is the name of a machine or of its CPU, so
/// that unlike machines can use one entry. A program without LLVM that is to find what one with LLVM has compiled gives
/// `llvm` as that one does.
///
/// ```
/// use slabjit::CacheKey;
///
/// let source = "int add(int a, int b) { return a + b; }";
/// let key = CacheKey::builder()
///     .part("compiler", "clang 22.1.0")
///     .part("options", "-O2 -fPIC -mavx2 -mfma")
///     .cpu_features(["AVX2", "FMA"])
///     .part("source", source)
///     .build();
/// # drop(key);
/// ```
#[derive(Debug, Clone)]
#[must_use = "it is no key until `build` is called"]
pub struct CacheKeyBuilder {
    parts: BTreeMap<String, Vec<u8>>,
}

impl CacheKeyBuilder {
    fn new() -> Self {
        let ImageIdentity { format, version, .. } = ImageIdentity::current();
        let builder = Self { parts: BTreeMap::new() };
        builder
            .part("slabjit", format!("{version} format {format}"))
            .part("llvm", crate::llvm_version_string())
            .part("target", TARGET)
            .cpu_features::<&str>([])
    }

    /// Adds a part: the source, options, the compiler's version, the relocation model, and whatever else decides about
    /// the code. Records have the first 100 characters of a name, with `_` in place of others than ASCII letters,
    /// digits, `.`, `_` and `-`; of more than 8 KiB of parts they have none, and
    /// [`explain_miss`](crate::ObjectCache::explain_miss) does not know them.
    pub fn part(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.parts.insert(name.to_owned(), value.as_ref().to_owned());
        self
    }

    /// Sets the target triple, for code of another machine.
    pub fn target(self, triple: &str) -> Self {
        self.part("target", triple)
    }

    /// Sets the relocation model, such as `pic`.
    pub fn relocation_model(self, model: &str) -> Self {
        self.part("relocation-model", model)
    }

    /// Sets the features that the code may use beyond the baseline of its machine, in any order, by the names that
    /// [`cpu_needs`](crate::cpu_needs) has or the compiler's. Without them, the key is one of baseline code.
    pub fn cpu_features<F: AsRef<str>>(self, features: impl IntoIterator<Item = F>) -> Self {
        let mut features: Vec<String> = features.into_iter().map(|feature| feature.as_ref().to_owned()).collect();
        features.sort_unstable();
        features.dedup();
        let features = if features.is_empty() { "baseline".to_owned() } else { features.join(" ") };
        self.part("cpu", features)
    }

    /// Sets all features of this CPU, for code that the compiler made for it (`-march=native`).
    pub fn native_cpu(self) -> Self {
        self.cpu_features(cpu::names(HOST_MACHINE).filter(|name| cpu::has(name)))
    }

    /// Makes the key.
    pub fn build(self) -> CacheKey {
        let mut hasher = blake3::Hasher::new_derive_key("slabjit 2026-11 named parts of a compilation");
        for input in self.parts.iter().flat_map(|(name, value)| [name.as_bytes(), value]) {
            hasher.update(&(input.len() as u64).to_le_bytes()).update(input);
        }
        let parts: Arc<[Part]> = self.parts.iter().map(|(name, value)| Part::new(name, value)).collect();
        let bytes: usize = parts.iter().map(|part| part.name.len() + part.value.len() + 7).sum();
        CacheKey { hash: hasher.finalize(), parts: Some(parts).filter(|_| bytes <= MOST) }
    }
}

/// A named part of a key, as records have it: its value, or the hash of one that is long or binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) value: String,
}

impl Part {
    fn name(name: &str) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        name.chars().take(LONGEST).map(|c| if is_plain(c) { c } else { '_' }).collect()
    }

    fn new(name: &str, value: &[u8]) -> Self {
        let plain = std::str::from_utf8(value).ok();
        let plain =
            plain.filter(|value| value.len() <= LONGEST && value.chars().all(|c| c == ' ' || c.is_ascii_graphic()));
        let value = plain.map_or_else(|| format!("BLAKE3 {}", blake3::hash(value)), str::to_owned);
        Self { name: Self::name(name), value }
    }

    /// Reads what `Display` writes.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (name, value) = text.split_once(' ')?;
        Some(Self { name: name.to_owned(), value: value.to_owned() })
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.value)
    }
}
