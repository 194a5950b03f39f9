//! Keys of the object cache.

use std::fmt;

/// A hash of an object's inputs (BLAKE3, 256 bits). `Display` is the hash in hexadecimal.
///
/// ```
/// use slabjit::CacheKey;
///
/// let source = "int add(int a, int b) { return a + b; }";
/// let key = CacheKey::new(["cc 12.2.0", "-O2 -fPIC", "x86_64-unknown-linux-gnu", source]);
/// assert_ne!(key, CacheKey::new(["cc 12.2.0", "-O3 -fPIC", "x86_64-unknown-linux-gnu", source]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheKey(blake3::Hash);

impl CacheKey {
    /// Makes a key from all inputs of the object, in any fixed order: source, options, target with its features, and the
    /// compiler's version. If an input is left out, the cache may return an object for another value of it.
    ///
    /// The boundaries of inputs count: `["ab", "c"]` is not `["a", "bc"]`.
    pub fn new<I: AsRef<[u8]>>(inputs: impl IntoIterator<Item = I>) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("slabjit 2026-11 inputs of a compilation");
        for input in inputs {
            let input = input.as_ref();
            hasher.update(&(input.len() as u64).to_le_bytes()).update(input);
        }
        Self(hasher.finalize())
    }
}

impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CacheKey({self})")
    }
}
