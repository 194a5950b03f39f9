//! Namespaces of objects and modules.
#![allow(unsafe_code, reason = "unsafe fns, whose contracts are the caller's")]

use std::fmt;
use std::path::Path;

#[cfg(feature = "inkwell")]
use inkwell::module::Module;

use super::compiler::Compiler;
use crate::given_bytes::Given;
#[cfg(feature = "inkwell")]
use crate::ir::{self, OptLevel};
use crate::link::Dylib as Inner;
#[cfg(feature = "inkwell")]
use crate::link::Tracker as InnerTracker;
use crate::live::library::Link;
use crate::live::lifetime::loaded_library::CodeRef;
use crate::read::{Contents, read_object};
use crate::symbol::{Symbol, pointer_from};
use crate::{Error, Library, LibraryError, Linkable, Result};

/// A namespace of objects that are linked when they are needed. Clones are the same.
#[derive(Clone)]
pub struct Dylib {
    pub(super) inner: Inner,
    pub(super) compiler: Compiler,
}

/// Keeps code that a function [led to](Dylib::redirect).
#[must_use = "threads may be in the code, which goes with this"]
#[derive(Debug)]
pub struct Replaced(#[allow(dead_code, reason = "it is dropped")] Option<CodeRef>);

/// What a dylib is linked against; see [`Dylib::link`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum LinkTarget<'a> {
    /// Another dylib of the same [`Jit`](super::Jit).
    Dylib(&'a Dylib),
    /// A library of any engine. It is linked and initialised by the next look-up, and what it gets later by the one
    /// after that. Code that dylibs have found names of is kept as long as the [`Jit`](super::Jit).
    Library(&'a Library),
}

impl Dylib {
    #[cfg(feature = "cli")]
    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// Returns its name.
    pub fn name(&self) -> String {
        self.inner.name()
    }

    /// Prepares an object, and has it linked when one of its names is needed. The bytes are copied,
    /// unless a `Vec<u8>` is passed by value.
    ///
    /// # Errors
    /// Problems that preparation finds; [`LinkError::Failed`](crate::LinkError::Failed) if it defines a name that the
    /// dylib has already. Nothing is kept then.
    pub fn add_object(&self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.inner.add_object(None, None, Given::new(bytes).take())
    }

    /// Does the same as [`add_object`](Self::add_object), with a name for errors and traces.
    ///
    /// # Errors
    /// As for [`add_object`](Self::add_object).
    pub fn add_object_named(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.inner.add_object(None, Some(name), Given::new(bytes).take())
    }

    /// Does the same as [`add_object`](Self::add_object) with a file, named by its path.
    ///
    /// # Errors
    /// As for [`add_object`](Self::add_object); [`Error::Io`] if the file cannot be read.
    pub fn add_object_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.add_object_named(&path.display().to_string(), read_object(path)?)
    }

    /// Takes an archive (`ar`): a member is added when a name that it defines is needed and not defined otherwise. What
    /// [`clear`](Self::clear) removes is added again when it is needed again.
    ///
    /// # Errors
    /// [`ObjectError::NotAnArchive`](crate::ObjectError::NotAnArchive),
    /// [`ObjectError::ThinArchive`](crate::ObjectError::ThinArchive),
    /// [`ObjectError::Malformed`](crate::ObjectError::Malformed) if it cannot be read. Errors of members come when they
    /// are needed, as causes of [`LinkError::SymbolFailed`](crate::LinkError::SymbolFailed).
    pub fn add_archive(&self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.inner.add_archive("archive", Contents::Memory(bytes.as_ref().into()))
    }

    /// Does the same as [`add_archive`](Self::add_archive), with a name for errors and traces, in which members are
    /// called `NAME(MEMBER)`.
    ///
    /// # Errors
    /// As for [`add_archive`](Self::add_archive).
    pub fn add_archive_named(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.inner.add_archive(name, Contents::Memory(bytes.as_ref().into()))
    }

    /// Does the same as [`add_archive`](Self::add_archive) with a file, named by its path, as
    /// [`Library::add_archive_file`] does.
    ///
    /// # Errors
    /// As for [`add_archive`](Self::add_archive); [`Error::Io`] if the file cannot be read.
    pub fn add_archive_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.inner.add_archive(&path.display().to_string(), Contents::of_archive(path)?)
    }

    /// Takes a module, which is compiled and linked when one of its names is needed. It is copied as bitcode into a
    /// context of its own, and not changed.
    ///
    /// # Errors
    /// [`IrError::Invalid`](crate::IrError::Invalid), [`IrError::OtherTarget`](crate::IrError::OtherTarget);
    /// [`LinkError::Failed`](crate::LinkError::Failed) if it defines a name that the dylib has already. Nothing is kept
    /// then. What goes wrong in compiling is told by [`get`](Self::get), as
    /// [`LinkError::SymbolFailed`](crate::LinkError::SymbolFailed).
    #[cfg(feature = "inkwell")]
    pub fn add_module(&self, module: &Module<'_>, level: impl Into<OptLevel>) -> Result<()> {
        let (name, bitcode) = ir::bitcode_of(module)?;
        self.add_ir(None, &name, bitcode.as_slice(), level.into())
    }

    /// Does the same as [`add_module`](Self::add_module) with bitcode or the text of IR. The name is for errors.
    ///
    /// # Errors
    /// As for [`add_module`](Self::add_module).
    #[cfg(feature = "inkwell")]
    pub fn add_bitcode(&self, name: &str, ir: impl AsRef<[u8]>, level: impl Into<OptLevel>) -> Result<()> {
        self.add_ir(None, name, ir.as_ref(), level.into())
    }

    /// Takes a module, each of whose functions is compiled when it is first called. What calls one, or has its address,
    /// has that of a stub, which leads to the code from then on: one more jump a call. The module's own functions and
    /// variables become the dylib's, hidden, under names that no other module has.
    ///
    /// Functions are optimised one by one: of others, a function has only those inlined that always are. Those that use
    /// thread-local variables of the module, or have addresses of blocks, other names or scalable vectors as arguments,
    /// are compiled with the module's variables, when one of these is needed. Each first call reads the module's
    /// declarations: a module of more than some thousand functions is better split.
    ///
    /// # Errors
    /// As for [`add_module`](Self::add_module). A call has no way to tell an error: where a function cannot be compiled
    /// or linked then, or it or what it needs was removed before its first call, or the [`Jit`](super::Jit) has ended,
    /// the error goes to the standard error stream, and the process is aborted.
    #[cfg(feature = "inkwell")]
    pub fn add_module_lazily(&self, module: &Module<'_>, level: impl Into<OptLevel>) -> Result<()> {
        let (name, bitcode) = ir::bitcode_of(module)?;
        self.add_parts(None, &name, bitcode.as_slice(), level.into())
    }

    /// Does the same as [`add_module_lazily`](Self::add_module_lazily) with bitcode or the text of IR. The name is for
    /// errors.
    ///
    /// # Errors
    /// As for [`add_module_lazily`](Self::add_module_lazily).
    #[cfg(feature = "inkwell")]
    pub fn add_bitcode_lazily(&self, name: &str, ir: impl AsRef<[u8]>, level: impl Into<OptLevel>) -> Result<()> {
        self.add_parts(None, name, ir.as_ref(), level.into())
    }

    #[cfg(feature = "inkwell")]
    pub(super) fn add_ir(
        &self,
        tracker: Option<&InnerTracker>,
        name: &str,
        code: &[u8],
        level: OptLevel,
    ) -> Result<()> {
        self.inner.add_deferred(tracker, self.compiler.deferred(name, code, level)?)
    }

    #[cfg(feature = "inkwell")]
    pub(super) fn add_parts(
        &self,
        tracker: Option<&InnerTracker>,
        name: &str,
        code: &[u8],
        level: OptLevel,
    ) -> Result<()> {
        let suffix = format!(".lazy{}", self.inner.next_number());
        self.inner.add_lazily(tracker, &suffix, &self.compiler.lazy(name, code, level, &suffix)?)
    }

    /// Defines a name as an address of the host.
    ///
    /// # Errors
    /// [`LinkError::SymbolFailed`](crate::LinkError::SymbolFailed) if the dylib has the name already.
    ///
    /// # Safety
    /// The address is that of a function or object of the type that the dylib's code expects, and stays valid as long
    /// as that code.
    pub unsafe fn define(&self, name: &str, address: *const ()) -> Result<()> {
        valid(name)?;
        self.inner.define(name, address.expose_provenance())
    }

    /// Defines a function as a stub that leads to another one, which is kept: [`redirect`](Self::redirect) has it lead
    /// elsewhere. Costs one more jump a call.
    ///
    /// # Errors
    /// [`LinkError::Failed`](crate::LinkError::Failed) if the dylib has the name already.
    ///
    /// # Safety
    /// The symbol is a function, of the type that callers of the name expect.
    pub unsafe fn define_stub<T: Copy>(&self, name: &str, to: &Symbol<T>) -> Result<()> {
        valid(name)?;
        self.inner.define_stub(None, name, to.address().expose_provenance() as u64, to.hold())
    }

    /// Has a function lead to another one, for all calls from now on, also by code that is linked already and on other
    /// threads: one that was added lazily (`add_module_lazily`), which is not compiled any more if it was not
    /// called, or [as a stub](Self::define_stub). The other one is kept as long as the stub leads there. Returns what
    /// keeps the code that it led to before.
    ///
    /// # Errors
    /// [`LinkError::NoStub`](crate::LinkError::NoStub); as for [`get`](Self::get).
    ///
    /// # Safety
    /// As for [`get`](Self::get); the symbol is a function of the same type. What is returned is dropped when no thread
    /// is in the code that it keeps. Functions do not lead to each other in a circle.
    pub unsafe fn redirect<T: Copy>(&self, name: &str, to: &Symbol<T>) -> Result<Replaced> {
        valid(name)?;
        // SAFETY: by the caller.
        unsafe { self.inner.redirect(name, to.address().expose_provenance() as u64, to.hold()).map(Replaced) }
    }

    /// Has the dylib's code find the exported names of another dylib, or of a library, behind those that it was linked
    /// against before. Code that is linked already stays as it is.
    ///
    /// # Errors
    /// [`LinkError::OtherJit`](crate::LinkError::OtherJit) for a dylib of another [`Jit`](super::Jit).
    pub fn link<'a>(&self, target: impl Into<LinkTarget<'a>>) -> Result<()> {
        match target.into() {
            LinkTarget::Dylib(dylib) => self.inner.link(&dylib.inner),
            LinkTarget::Library(library) => {
                self.inner.link_library(library.shared());
                Ok(())
            }
        }
    }

    /// Looks up a name that the dylib exports. The object that defines it is linked, with all that it needs, and all
    /// that is linked is initialised, objects behind those that they refer to.
    ///
    /// Whoever looks up a name that another thread is linking waits for that. Initialisers and exit handlers may look
    /// up, add and remove.
    ///
    /// # Errors
    /// [`LibraryError::SymbolNotFound`]; [`LinkError::SymbolFailed`](crate::LinkError::SymbolFailed) with the error of
    /// the object that could not be linked, such as [`LinkError::UndefinedSymbols`](crate::LinkError::UndefinedSymbols)
    /// or [`MemoryError::ArenaExhausted`](crate::MemoryError::ArenaExhausted);
    /// [`LinkError::InitializerFailed`](crate::LinkError::InitializerFailed), each time for a symbol of that object;
    /// [`LibraryError::WrongSymbolKind`] for a function type where the symbol is data, [`LibraryError::NullSymbol`],
    /// [`LibraryError::InvalidName`]. What libraries that it is linked against say.
    ///
    /// # Safety
    /// As for [`Library::get`]: `T` is the symbol's type, and the initialisers of all that is linked may be run by this
    /// thread, now; its exit handlers and finalisers by whichever thread drops the last that keeps the code.
    pub unsafe fn get<T: Copy + 'static>(&self, name: &str) -> Result<Symbol<T>> {
        const { assert!(size_of::<T>() == size_of::<*const ()>(), "a symbol's type must have the size of a pointer") }
        valid(name)?;
        // SAFETY: by the caller.
        let found = unsafe { self.inner.get(name)? };
        // SAFETY: the size was checked above; that the type is right is the caller's word.
        unsafe { pointer_from(found, name) }
    }

    /// Has the object that defines a name linked, with all that it needs, and calls `done` with the symbol: once, also
    /// if it fails, without a lock, on a thread of the [`Jit`](super::JitBuilder::compile_threads) or on any that looks
    /// a name up; without such threads, mostly on this one, before the call returns.
    ///
    /// Objects are not initialised: [`get`](Self::get) or [`initialize`](Self::initialize), on a thread of yours, does
    /// that. `done` may look up, add and remove. A panic in it is caught.
    ///
    /// # Safety
    /// As for [`get`](Self::get), but that only the initialisers of libraries may be run now. Code that needs
    /// initialisers is not called before these have run.
    pub unsafe fn request<T: Copy + 'static>(&self, name: &str, done: impl FnOnce(Result<Symbol<T>>) + Send + 'static) {
        const { assert!(size_of::<T>() == size_of::<*const ()>(), "a symbol's type must have the size of a pointer") }
        if let Err(error) = valid(name) {
            return done(Err(error));
        }
        let asked = name.to_owned();
        // SAFETY: by the caller; the size was checked above, and that the type is right is the caller's word.
        unsafe {
            self.inner.request(name, move |found| done(found.and_then(|found| pointer_from(found, &asked))));
        }
    }

    /// Links every object that has initialisers, of this dylib and of those that it is linked against, and runs these.
    ///
    /// # Errors
    /// [`LinkError::InitializerFailed`](crate::LinkError::InitializerFailed), also for an object that cannot be linked.
    ///
    /// # Safety
    /// The initialisers may be run by this thread, now.
    pub unsafe fn initialize(&self) -> Result<()> {
        // SAFETY: by the caller.
        unsafe { self.inner.initialise() }
    }

    /// Removes everything that was added and defined. What is kept goes later.
    ///
    /// # Errors
    /// [`LinkError::Failed`](crate::LinkError::Failed) with LLVM's words.
    pub fn clear(&self) -> Result<()> {
        self.inner.clear()
    }
}

fn valid(name: &str) -> Result<()> {
    if name.contains('\0') {
        return Err(Error::Library(LibraryError::InvalidName { name: name.to_owned() }));
    }
    Ok(())
}

impl<'a> From<&'a Dylib> for LinkTarget<'a> {
    fn from(dylib: &'a Dylib) -> Self {
        Self::Dylib(dylib)
    }
}

impl<'a> From<&'a Library> for LinkTarget<'a> {
    fn from(library: &'a Library) -> Self {
        Self::Library(library)
    }
}

impl From<&Dylib> for Linkable {
    fn from(dylib: &Dylib) -> Self {
        Self(Link::Source(dylib.inner.names()))
    }
}

impl fmt::Debug for Dylib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dylib").field("name", &self.name()).finish_non_exhaustive()
    }
}
