//! ORC: dylibs whose code is linked when it is looked up, and taken back with its tracker.
//!
//! ```no_run
//! # fn main() -> slabjit::Result<()> {
//! # let (parser, lexer) = (&[][..], &[][..]);
//! let engine = slabjit::JitEngine::new()?;
//! let jit = engine.orc().build()?;
//! let main = jit.dylib("main");
//! main.add_object(parser)?;
//! let tracker = main.tracker();
//! tracker.add_object(lexer)?;
//! // SAFETY: the objects define `int parse(int)`, and their initialisers may run.
//! let parse = unsafe { main.get::<unsafe extern "C" fn(i32) -> i32>("parse")? };
//! // SAFETY: as above.
//! assert_eq!(unsafe { parse(1) }, 2);
//! tracker.remove()?; // `parse` and what it needs stay until `parse` is dropped
//! # Ok(())
//! # }
//! ```
//!
//! A [`Library`] links all of its objects together. A [`Dylib`] links an object when one of its names is looked up or
//! is needed by one that is linked; objects may refer to each other in circles, over several dylibs. All of them are
//! prepared, placed and checked like an engine's other objects.
//!
//! # Names
//! Code of a dylib finds names in this order: in the dylib, by its [generators](Generator), in the dylibs and libraries
//! that it was linked against, in that order, and in the process. Hidden names are found within the dylib only, and
//! hidden weak ones, as compilers make them for inline functions, only within the object.
//!
//! # What is kept
//! A [`Symbol`] keeps its object and all that this refers to, also after their removal and the end of the [`Jit`].
//! Objects that refer to each other go together.
//!
//! # Limits
//! Thread-local variables are seen by the object that defines them only. A name whose object could not be linked stays
//! failed until the object is removed, with its tracker or by [`Dylib::clear`]. Libraries do not find names of dylibs.
#![allow(unsafe_code, reason = "unsafe fns, whose contracts are the caller's")]

use std::fmt;
use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "inkwell")]
use inkwell::module::Module;

#[cfg(feature = "inkwell")]
use crate::ObjectCache;
#[cfg(feature = "inkwell")]
use crate::ir::{self, Interface, OptLevel, Part, Parts};
#[cfg(feature = "inkwell")]
use crate::link::{Deferred, Lazy};
use crate::link::{Dylib as Inner, Session, Tracker as InnerTracker};
use crate::live::context::Context;
use crate::live::lifetime::loaded_library::CodeRef;
use crate::read::read_object;
use crate::symbol::{Symbol, pointer_from};
use crate::{Error, JitEngine, Library, LibraryError, Result};

/// Settings of a [`Jit`]; see [`JitEngine::orc`].
#[derive(Clone)]
pub struct JitBuilder {
    context: Arc<Context>,
    compile_threads: usize,
    #[cfg(feature = "inkwell")]
    cache: Option<Arc<ObjectCache>>,
}

/// Dylibs over an engine, which share one ORC session: an LLJIT whose object layer is slabjit's. Clones are the same.
///
/// It ends with the last clone of it, of its dylibs and of its trackers. It may outlive the engine's handle.
#[derive(Clone)]
pub struct Jit {
    session: Arc<Session>,
    #[cfg(feature = "inkwell")]
    cache: Option<Arc<ObjectCache>>,
}

/// A namespace of objects that are linked when they are needed. Clones are the same.
#[derive(Clone)]
pub struct Dylib {
    inner: Inner,
    #[cfg(feature = "inkwell")]
    cache: Option<Arc<ObjectCache>>,
}

/// Objects of a dylib that are removed together. Without [`remove`](Self::remove), they stay as long as the dylib.
pub struct Tracker {
    dylib: Dylib,
    inner: InnerTracker,
}

/// Keeps code that a function [led to](Dylib::redirect).
#[must_use = "threads may be in the code, which goes with this"]
#[derive(Debug)]
pub struct Replaced(#[allow(dead_code, reason = "it is dropped")] Option<CodeRef>);

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

/// What a dylib is linked against; see [`Dylib::link`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum LinkTarget<'a> {
    /// Another dylib of the same [`Jit`].
    Dylib(&'a Dylib),
    /// A library of any engine. It is linked and initialised by the next look-up, and what it gets later by the one
    /// after that. Code that dylibs have found names of is kept as long as the [`Jit`].
    Library(&'a Library),
}

impl JitEngine {
    /// Returns settings of a [`Jit`]: dylibs whose objects are linked when they are needed.
    pub fn orc(&self) -> JitBuilder {
        JitBuilder {
            context: Arc::clone(self.context()),
            compile_threads: 0,
            #[cfg(feature = "inkwell")]
            cache: None,
        }
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
    /// text, its level, this CPU, and the versions of LLVM and of this crate. Problems of the cache are events of
    /// `tracing`.
    #[cfg(feature = "inkwell")]
    #[must_use]
    pub fn object_cache(mut self, cache: impl Into<Arc<ObjectCache>>) -> Self {
        self.cache = Some(cache.into());
        self
    }

    /// Makes the session, which takes LLVM about half a millisecond.
    ///
    /// # Errors
    /// [`LinkError::Session`](crate::LinkError::Session) if LLVM cannot make one.
    pub fn build(self) -> Result<Jit> {
        let policy = self.context.out_of_range;
        Ok(Jit {
            session: Session::with_threads(self.context, policy, self.compile_threads)?,
            #[cfg(feature = "inkwell")]
            cache: self.cache,
        })
    }
}

impl Jit {
    /// Returns the dylib of a name, which is made if there is none.
    pub fn dylib(&self, name: &str) -> Dylib {
        Dylib {
            inner: Inner::of(&self.session, name),
            #[cfg(feature = "inkwell")]
            cache: self.cache.clone(),
        }
    }
}

impl Dylib {
    /// Returns its name.
    pub fn name(&self) -> String {
        self.inner.name()
    }

    /// Prepares an object, and has it linked when one of its names is needed. The bytes are copied.
    ///
    /// # Errors
    /// Problems that preparation finds; [`LinkError::Failed`](crate::LinkError::Failed) if it defines a name that the
    /// dylib has already. Nothing is kept then.
    pub fn add_object(&self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.inner.add_object(None, None, bytes.as_ref())
    }

    /// Does the same as [`add_object`](Self::add_object), with a name for errors and traces.
    ///
    /// # Errors
    /// As for [`add_object`](Self::add_object).
    pub fn add_object_named(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.inner.add_object(None, Some(name), bytes.as_ref())
    }

    /// Does the same as [`add_object`](Self::add_object) with a file, named by its path.
    ///
    /// # Errors
    /// As for [`add_object`](Self::add_object); [`Error::Io`] if the file cannot be read.
    pub fn add_object_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.add_object_named(&path.display().to_string(), read_object(path)?)
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
    /// are compiled with the module's variables, when one of these is needed.
    ///
    /// # Errors
    /// As for [`add_module`](Self::add_module). A call has no way to tell an error: where a function cannot be compiled
    /// or linked then, or the [`Jit`] has ended, the error goes to the standard error stream, and the process is
    /// aborted.
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

    /// Reads IR now, and has each of its functions compiled when it is called.
    #[cfg(feature = "inkwell")]
    fn add_parts(&self, tracker: Option<&InnerTracker>, name: &str, code: &[u8], level: OptLevel) -> Result<()> {
        let suffix = format!(".lazy{}", self.inner.next_number());
        let Parts { bitcode, functions, rest } = ir::parts(name, code, &suffix)?;
        let (module, cache) = (name.to_owned(), self.cache.clone());
        let make = Arc::new(move |function: Option<(&str, &str)>| {
            let part = function.map_or(Part::Rest, |(name, body)| Part::Function { name, body });
            let compile = || ir::compile_part(&module, &bitcode, &part, level);
            let Some(cache) = &cache else { return compile() };
            let key = ir::cache_key(&module, function.map_or("", |(name, _)| name), &bitcode, level)?;
            Ok(cache.get_or_compile(&key, compile)?.bytes)
        });
        let Interface { names: rest, has_initialisers } = rest;
        let lazy = Lazy { name: name.to_owned(), functions, rest, has_initialisers, make };
        self.inner.add_lazily(tracker, &suffix, &lazy)
    }

    /// Reads IR now, and has it compiled when one of its names is needed.
    #[cfg(feature = "inkwell")]
    fn add_ir(&self, tracker: Option<&InnerTracker>, name: &str, code: &[u8], level: OptLevel) -> Result<()> {
        let Interface { names, has_initialisers } = ir::interface(name, code)?;
        let (module, code, cache) = (name.to_owned(), code.to_vec(), self.cache.clone());
        let make = Box::new(move || {
            let compile = || ir::compile_interface(&module, &code, level);
            let Some(cache) = &cache else { return compile() };
            let key = ir::cache_key(&module, "", &code, level)?;
            Ok(cache.get_or_compile(&key, compile)?.bytes)
        });
        self.inner.add_deferred(tracker, Deferred { name: name.to_owned(), names, has_initialisers, make })
    }

    /// Returns a tracker for objects that are to be removed together.
    pub fn tracker(&self) -> Tracker {
        Tracker { dylib: self.clone(), inner: self.inner.tracker() }
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
    /// threads: one that was added [lazily](Self::add_module_lazily), which is not compiled any more if it was not
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

    /// Has a generator asked for names that the dylib does not define, before those that it is linked against. Several
    /// are asked in the order in which they were added. It goes with the [`Jit`], which it must not keep: it is given
    /// the dylib.
    ///
    /// # Safety
    /// The addresses that it returns are as [`define`](Self::define) demands.
    pub unsafe fn add_generator(&self, generator: impl Generator) {
        #[cfg(feature = "inkwell")]
        let cache = self.cache.clone();
        self.inner.add_generator(move |dylib, name| {
            let dylib = Self {
                inner: dylib.clone(),
                #[cfg(feature = "inkwell")]
                cache: cache.clone(),
            };
            let address = generator.generate(&dylib, name)?;
            Ok(address.map(<*const ()>::expose_provenance))
        });
    }

    /// Has the dylib's code find the exported names of another dylib, or of a library, behind those that it was linked
    /// against before. Code that is linked already stays as it is.
    ///
    /// # Errors
    /// [`LinkError::OtherJit`](crate::LinkError::OtherJit) for a dylib of another [`Jit`].
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
    /// if it fails, without a lock, on a thread of the [`Jit`](JitBuilder::compile_threads) or on any that looks a name
    /// up; without such threads, mostly on this one, before the call returns.
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

impl Tracker {
    /// Does the same as [`Dylib::add_object`]; the object is removed with this.
    ///
    /// # Errors
    /// As for [`Dylib::add_object`].
    pub fn add_object(&self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.dylib.inner.add_object(Some(&self.inner), None, bytes.as_ref())
    }

    /// Does the same as [`Dylib::add_object_named`]; the object is removed with this.
    ///
    /// # Errors
    /// As for [`Dylib::add_object`].
    pub fn add_object_named(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.dylib.inner.add_object(Some(&self.inner), Some(name), bytes.as_ref())
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

impl fmt::Debug for Dylib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dylib").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Tracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracker").field("dylib", &self.dylib.name()).finish_non_exhaustive()
    }
}
