//! How a session makes objects of modules: transforms, the compiler, and a cache in front of it.

#[cfg(feature = "inkwell")]
use std::sync::Arc;

#[cfg(feature = "inkwell")]
use crate::fork_guard;
#[cfg(feature = "inkwell")]
use crate::ir::{self, Interface, OptLevel, Part, Parts, Transform};
#[cfg(feature = "inkwell")]
use crate::link::{Deferred, Lazy};
#[cfg(feature = "inkwell")]
use crate::{CacheKey, ObjectCache, Result};

/// Clones are the same. Without the feature `inkwell`, nothing is compiled.
#[derive(Clone, Default)]
pub(super) struct Compiler {
    #[cfg(feature = "inkwell")]
    pub(super) cache: Option<Arc<ObjectCache>>,
    #[cfg(feature = "inkwell")]
    pub(super) transforms: Arc<Vec<Transform>>,
}

#[cfg(feature = "inkwell")]
impl Compiler {
    /// Reads IR now, and compiles it when it is needed.
    pub(super) fn deferred(&self, name: &str, code: &[u8], level: OptLevel) -> Result<Deferred> {
        let Interface { names, has_initialisers } = ir::interface(name, code)?;
        let (this, module, code) = (self.clone(), name.to_owned(), code.to_vec());
        let make = Box::new(move || {
            let key = || ir::cache_key(&module, "", &code, level, &this.transforms);
            this.cached(key, || ir::compile_interface(&module, &code, level, &this.transforms))
        });
        Ok(Deferred { name: name.to_owned(), names, has_initialisers, make })
    }

    /// Reads IR now, and compiles each of its functions when it is called.
    pub(super) fn lazy(&self, name: &str, code: &[u8], level: OptLevel, suffix: &str) -> Result<Lazy> {
        let Parts { bitcode, functions, rest } = ir::parts(name, code, suffix)?;
        let (this, module) = (self.clone(), name.to_owned());
        let make = Arc::new(move |function: Option<(&str, &str)>| {
            let part = function.map_or(Part::Rest, |(name, body)| Part::Function { name, body });
            let function = function.map_or("", |(name, _)| name);
            let key = || ir::cache_key(&module, function, &bitcode, level, &this.transforms);
            this.cached(key, || ir::compile_part(&module, &bitcode, &part, level, &this.transforms))
        });
        let Interface { names: rest, has_initialisers } = rest;
        Ok(Lazy { name: name.to_owned(), functions, rest, has_initialisers, make })
    }

    fn cached(
        &self,
        key: impl FnOnce() -> Result<CacheKey>,
        compile: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        match &self.cache {
            None => compile(),
            // Another process may be compiling it, or another thread here, which forks.
            Some(cache) => Ok(fork_guard::without(|| cache.get_or_compile(&key()?, compile))?.bytes),
        }
    }
}
