//! What is removed together.

use std::fmt;

#[cfg(feature = "inkwell")]
use inkwell::module::Module;

use super::dylib::Dylib;
use crate::Result;
use crate::given_bytes::Given;
#[cfg(feature = "inkwell")]
use crate::ir::{self, OptLevel};
use crate::link::Tracker as Inner;

/// Objects of a dylib that are removed together. Without [`remove`](Self::remove), they stay as long as the dylib.
pub struct Tracker {
    dylib: Dylib,
    inner: Inner,
}

impl Dylib {
    /// Returns a tracker for objects that are to be removed together.
    pub fn tracker(&self) -> Tracker {
        Tracker { dylib: self.clone(), inner: self.inner.tracker() }
    }
}

impl Tracker {
    /// Does the same as [`Dylib::add_object`]; the object is removed with this.
    ///
    /// # Errors
    /// As for [`Dylib::add_object`].
    pub fn add_object(&self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.dylib.inner.add_object(Some(&self.inner), None, Given::new(bytes).take())
    }

    /// Does the same as [`Dylib::add_object_named`]; the object is removed with this.
    ///
    /// # Errors
    /// As for [`Dylib::add_object`].
    pub fn add_object_named(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.dylib.inner.add_object(Some(&self.inner), Some(name), Given::new(bytes).take())
    }

    /// Does the same as [`Dylib::add_module`]; the module is removed with this.
    ///
    /// # Errors
    /// As for [`Dylib::add_module`].
    #[cfg(feature = "inkwell")]
    pub fn add_module(&self, module: &Module<'_>, level: impl Into<OptLevel>) -> Result<()> {
        let (name, bitcode) = ir::bitcode_of(module)?;
        self.dylib.add_ir(Some(&self.inner), &name, bitcode.as_slice(), level.into())
    }

    /// Does the same as [`Dylib::add_bitcode`]; the module is removed with this.
    ///
    /// # Errors
    /// As for [`Dylib::add_module`].
    #[cfg(feature = "inkwell")]
    pub fn add_bitcode(&self, name: &str, ir: impl AsRef<[u8]>, level: impl Into<OptLevel>) -> Result<()> {
        self.dylib.add_ir(Some(&self.inner), name, ir.as_ref(), level.into())
    }

    /// Does the same as [`Dylib::add_module_lazily`]; the module is removed with this.
    ///
    /// # Errors
    /// As for [`Dylib::add_module_lazily`].
    #[cfg(feature = "inkwell")]
    pub fn add_module_lazily(&self, module: &Module<'_>, level: impl Into<OptLevel>) -> Result<()> {
        let (name, bitcode) = ir::bitcode_of(module)?;
        self.dylib.add_parts(Some(&self.inner), &name, bitcode.as_slice(), level.into())
    }

    /// Does the same as [`Dylib::add_bitcode_lazily`]; the module is removed with this.
    ///
    /// # Errors
    /// As for [`Dylib::add_module_lazily`].
    #[cfg(feature = "inkwell")]
    pub fn add_bitcode_lazily(&self, name: &str, ir: impl AsRef<[u8]>, level: impl Into<OptLevel>) -> Result<()> {
        self.dylib.add_parts(Some(&self.inner), name, ir.as_ref(), level.into())
    }

    /// Removes the objects that were added. Nobody finds them any more; what is being linked fails. What is kept, by
    /// symbols or by code that refers to it, goes later.
    ///
    /// # Errors
    /// [`LinkError::Session`](crate::LinkError::Session) with LLVM's words.
    pub fn remove(self) -> Result<()> {
        self.inner.remove()
    }
}

impl fmt::Debug for Tracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracker").field("dylib", &self.dylib.name()).finish_non_exhaustive()
    }
}
