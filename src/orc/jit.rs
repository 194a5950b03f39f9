//! The session that dylibs share, and its settings.

#[cfg(feature = "inkwell")]
use std::error::Error;
use std::fmt;
use std::sync::Arc;

#[cfg(feature = "inkwell")]
use inkwell::module::Module;

use super::compiler::Compiler;
use super::dylib::Dylib;
#[cfg(feature = "inkwell")]
use crate::ObjectCache;
#[cfg(feature = "inkwell")]
use crate::ir::Transform;
use crate::link::{Dylib as Inner, Session};
use crate::live::context::Context;
use crate::{JitEngine, Result};

/// Settings of a [`Jit`]; see [`JitEngine::orc`].
#[derive(Clone)]
pub struct JitBuilder {
    context: Arc<Context>,
    compile_threads: usize,
    compiler: Compiler,
}

/// Dylibs over an engine, which share one ORC session: an LLJIT whose object layer is slabjit's. Clones are the same.
///
/// It ends with the last clone of it, of its dylibs and of its trackers. It may outlive the engine's handle.
#[derive(Clone)]
pub struct Jit {
    session: Arc<Session>,
    compiler: Compiler,
}

impl JitEngine {
    /// Returns settings of a [`Jit`]: dylibs whose objects are linked when they are needed.
    pub fn orc(&self) -> JitBuilder {
        JitBuilder { context: Arc::clone(self.context()), compile_threads: 0, compiler: Compiler::default() }
    }
}

impl JitBuilder {
    /// Sets the number of threads that compile and link; with 0, the default, the thread that needs a name does. They
    /// are started when they are first needed, and run no initialiser.
    #[must_use]
    pub fn compile_threads(mut self, threads: usize) -> Self {
        self.compile_threads = threads;
        self
    }

    /// Has compiled modules be kept in a cache, and be taken from there: the key is made of the module's bitcode or
    /// text, its level, this CPU, the versions of LLVM and of this crate, and the keys of
    /// [transforms](Self::transform). Problems of the cache are events of `tracing`.
    #[cfg(feature = "inkwell")]
    #[must_use]
    pub fn object_cache(mut self, cache: impl Into<Arc<ObjectCache>>) -> Self {
        self.compiler.cache = Some(cache.into());
        self
    }

    /// Has a function change modules before they are optimised and compiled: a whole module, or one function of a
    /// module that was added [lazily](Dylib::add_module_lazily), with declarations of what it refers to. Several are
    /// called in the order in which they were given.
    ///
    /// What the module defined for others, it has to define afterwards
    /// ([`LinkError::DefinitionLost`](crate::LinkError::DefinitionLost)). It is verified again. The key stands for what
    /// the function does, in an [object cache](Self::object_cache): change it when the function changes. The function
    /// is called by any thread, once for each module that is not found in the cache.
    ///
    /// Its error, or its panic, is an [`IrError::Transform`](crate::IrError::Transform), which fails the module. To
    /// change objects, give the engine a [plugin](crate::JitEngineBuilder::plugin).
    #[cfg(feature = "inkwell")]
    #[must_use]
    pub fn transform(
        mut self,
        key: &str,
        change: impl Fn(&Module<'_>) -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        let transform = Transform { key: key.to_owned(), change: Arc::new(change) };
        Arc::make_mut(&mut self.compiler.transforms).push(transform);
        self
    }

    /// Makes the session, which takes LLVM about half a millisecond.
    ///
    /// # Errors
    /// [`LinkError::Session`](crate::LinkError::Session) if LLVM cannot make one.
    pub fn build(self) -> Result<Jit> {
        let policy = self.context.out_of_range;
        Ok(Jit { session: Session::with_threads(self.context, policy, self.compile_threads)?, compiler: self.compiler })
    }
}

impl Jit {
    /// Returns the dylib of a name, which is made if there is none.
    pub fn dylib(&self, name: &str) -> Dylib {
        Dylib { inner: Inner::of(&self.session, name), compiler: self.compiler.clone() }
    }
}

impl fmt::Debug for JitBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JitBuilder").field("compile_threads", &self.compile_threads).finish_non_exhaustive()
    }
}

impl fmt::Debug for Jit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jit").finish_non_exhaustive()
    }
}
