//! Keys of what is compiled, and objects that are compiled once for all processes.

use inkwell::module::Module;

use super::machine::{Host, host};
use super::{OptLevel, Transform, bitcode_of, compile, failed};
use crate::{CacheKey, CacheKeyBuilder, CachedObject, ObjectCache, Result};

impl ObjectCache {
    /// Returns the object of a module for this machine; compiles the module by
    /// [`compile_module`](crate::ir::compile_module) if the cache has none. With feature `inkwell`.
    ///
    /// The key is made from the module's bitcode, the level, LLVM's version, and the features of this CPU, not its
    /// name: machines of one kind share entries, and so do newer ones with the same features.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use slabjit::ir::OptLevel;
    /// use slabjit::{JitEngine, ObjectCache};
    ///
    /// let context = inkwell::context::Context::create();
    /// let module = context.create_module("kernels");
    /// // ... functions
    /// let cache = ObjectCache::open("/var/cache/kernels")?;
    /// let object = cache.get_or_compile_ir(&module, OptLevel::Default)?;
    /// let library = JitEngine::new()?.add_object_named("kernels", &object.bytes)?;
    /// # drop(library);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`compile_module`](crate::ir::compile_module). Errors of the cache are in [`CachedObject::problems`].
    pub fn get_or_compile_ir(&self, module: &Module<'_>, level: impl Into<OptLevel>) -> Result<CachedObject> {
        let level = level.into();
        let (name, bitcode) = bitcode_of(module)?;
        let key = key_of(&name, bitcode.as_slice(), level)?.build();
        self.get_or_compile(&key, || compile(&name, bitcode.as_slice(), level))
    }
}

/// Returns the key of what [`compile_interface`](super::compile_interface) or, for a function,
/// [`compile_part`](super::compile_part) makes.
pub(crate) fn cache_key(
    name: &str,
    function: &str,
    ir: &[u8],
    level: OptLevel,
    transforms: &[Transform],
) -> Result<CacheKey> {
    let mut key = key_of(name, ir, level)?.part("module", "of slabjit::orc").part("function", function);
    for (index, transform) in transforms.iter().enumerate() {
        key = key.part(&format!("transform-{index}"), &transform.key);
    }
    Ok(key.build())
}

fn key_of(name: &str, ir: &[u8], level: OptLevel) -> Result<CacheKeyBuilder> {
    let Host { features, .. } = host().map_err(failed(name))?;
    let has = features.split(',').filter(|feature| feature.starts_with('+'));
    Ok(CacheKey::builder()
        .cpu_features(has)
        .part("options", level.of_llvm().1)
        .relocation_model("pic")
        .part("source", ir))
}
