//! Stores that many machines share, behind an [`ObjectCache`](crate::ObjectCache), and the keys that sign what is in
//! them. With feature `shared-cache`; each client has a feature of its own.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use slabjit::store::{self, SecretKey};
//! use slabjit::{CacheKey, ObjectCache};
//! # fn compile(source: &str) -> std::io::Result<Vec<u8>> { Ok(source.into()) }
//!
//! // One machine compiles and signs.
//! let cache = ObjectCache::builder("/var/cache/kernels")
//!     .store(store::open("s3://kernels/llvm22")?)
//!     .sign_with(SecretKey::from_file("/etc/slabjit/builder.key")?)
//!     .open()?;
//! let source = "int add(int a, int b) { return a + b; }";
//! cache.get_or_compile(&CacheKey::new(["cc 12.2.0", source]), || compile(source))?;
//!
//! // A thousand others take what it has signed.
//! let cache = ObjectCache::builder("/var/cache/kernels")
//!     .store(store::open("s3://kernels/llvm22")?)
//!     .trusted_keys(["slabjit-public-key …".parse()?])
//!     .read_only(true)
//!     .open()?;
//! # drop(cache);
//! # Ok(())
//! # }
//! ```

pub use crate::cache::shared::refusal::Refusal;
pub use crate::cache::shared::signing::{KeyTextError, PublicKey, SecretKey, SecretKeyTextError};
pub use crate::cache::shared::store::{Store, StoreError, TooLong};
pub use crate::cache::shared::stores::{OpenStore, open};
