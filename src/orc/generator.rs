//! Definitions that are made when they are asked for.
#![allow(unsafe_code, reason = "an unsafe fn, whose contract is the caller's")]

use super::dylib::Dylib;
use crate::Result;

/// Makes definitions when they are asked for; see [`Dylib::add_generator`].
pub trait Generator: Send + Sync + 'static {
    /// Returns the address of a name, or adds what defines it to the dylib, or does neither. Called by any thread that
    /// needs the name, without a lock of this crate, and once more for each look-up that finds it nowhere. It must not
    /// look up a name that it would be asked for: up to LLVM 17, ORC holds a lock for each generator.
    ///
    /// # Errors
    /// Its own, which fail what needs the name: they are the cause of a
    /// [`LinkError::SymbolFailed`](crate::LinkError::SymbolFailed).
    fn generate(&self, dylib: &Dylib, name: &str) -> Result<Option<*const ()>>;
}

impl<F: Fn(&Dylib, &str) -> Result<Option<*const ()>> + Send + Sync + 'static> Generator for F {
    fn generate(&self, dylib: &Dylib, name: &str) -> Result<Option<*const ()>> {
        self(dylib, name)
    }
}

impl Dylib {
    /// Has a generator asked for names that the dylib does not define, before those that it is linked against. Several
    /// are asked in the order in which they were added. It goes with the [`Jit`](super::Jit), which it must not keep:
    /// it is given the dylib.
    ///
    /// # Safety
    /// The addresses that it returns are as [`define`](Self::define) demands.
    pub unsafe fn add_generator(&self, generator: impl Generator) {
        let compiler = self.compiler.clone();
        self.inner.add_generator(move |dylib, name| {
            let dylib = Self { inner: dylib.clone(), compiler: compiler.clone() };
            let address = generator.generate(&dylib, name)?;
            Ok(address.map(<*const ()>::expose_provenance))
        });
    }
}
