//! What an object was made from, as a number.

use std::fmt;

/// What an object was made from, reduced to a hash (BLAKE3, 256 bits). `Display` is the hash in hexadecimal.
///
/// ```
/// use slabjit::CacheKey;
///
/// let key = CacheKey::new(["cc 12.2.0", "-O2 -fPIC", "x86_64-unknown-linux-gnu", "int add(int a, int b) { return a + b; }"]);
/// assert_ne!(key, CacheKey::new(["cc 12.2.0", "-O3 -fPIC", "x86_64-unknown-linux-gnu", "int add(int a, int b) { return a + b; }"]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheKey(blake3::Hash);

impl CacheKey {
    /// Of everything that the object depends on, in an order of yours: source, options, target with its features, and the compiler's
    /// version. What is left out cannot be told apart: the cache answers with an object for other inputs then.
    ///
    /// Where one input ends counts: `["ab", "c"]` is not `["a", "bc"]`.
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
