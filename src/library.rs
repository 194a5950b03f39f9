//! Libraries: objects that share one namespace and one life.
#![allow(unsafe_code, reason = "unsafe fns, whose contracts are the caller's")]

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "cuda")]
use crate::CudaError;
#[cfg(feature = "cuda")]
use crate::cuda::Device;
use crate::elf::Archive;
use crate::image::{ImageBuilder, Linked, link_kept};
use crate::live::context::Context;
use crate::live::images::Source;
use crate::live::library::{self as inner, Link};
use crate::memory::SlabRange;
use crate::name::Name;
use crate::read::Contents;
#[cfg(feature = "cuda")]
use crate::runtime::SearchOrder;
use crate::runtime::{self, SharedLibrary};
use crate::symbol::{Symbol, pointer_from};
use crate::{
    Drain, Error, ImageError, KernelSignature, LibraryError, LinkPlan, Protection, Removal, ResolvedImport, Result,
    UndefinedSymbol,
};

/// Objects in one namespace, the unit of ownership.
///
/// Objects are linked and initialised when something is first asked of them, all of a library in the order in which
/// they were added. The code lives until the last of these is gone: clones of the library (unless
/// [removed](Self::remove)), [`Symbol`]s, and libraries with references to it. Then exit handlers and finalisers run,
/// on the thread that dropped the last, and the memory is freed.
#[derive(Clone)]
pub struct Library {
    inner: Arc<inner::Library>,
}

/// A function of a linked object; see [`Library::functions`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its code; up to the end of its section, if the object does not say how long it is.
    pub addresses: Range<usize>,
}

/// One contiguous range of an object's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slab {
    /// Its addresses, whole pages.
    pub addresses: Range<usize>,
    /// Its parts, in the order of their addresses.
    pub segments: Vec<SlabSegment>,
    /// True if it lies in the engine's arena; sections that need not be near may lie elsewhere.
    pub in_arena: bool,
}

/// Pages of a slab with one protection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlabSegment {
    /// Its addresses.
    pub addresses: Range<usize>,
    /// The pages' access rights.
    pub protection: Protection,
}

impl fmt::Display for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.in_arena { "in the arena" } else { "outside the arena" };
        write!(f, "{:#x}..{:#x} {} bytes, {place}", self.addresses.start, self.addresses.end, self.addresses.len())?;
        self.segments.iter().try_for_each(|s| {
            write!(
                f,
                "\n  {} {:#x}..{:#x} {} bytes",
                s.protection,
                s.addresses.start,
                s.addresses.end,
                s.addresses.len()
            )
        })
    }
}

impl Library {
    /// Returns a library with the process's symbols and nothing else.
    pub(crate) fn alone(context: &Arc<Context>, name: Name) -> Self {
        Self { inner: inner::Library::new(Arc::clone(context), name, inner::Scope::default(), Vec::new()) }
    }

    #[cfg(feature = "llvm")]
    pub(crate) fn shared(&self) -> &Arc<inner::Library> {
        &self.inner
    }

    #[cfg(feature = "cli")]
    pub(crate) fn inner(&self) -> &inner::Library {
        &self.inner
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Prepares an object and adds it; nothing runs yet. The bytes are copied, unless a `Vec<u8>` is passed by value.
    ///
    /// # Errors
    /// Problems that preparation finds; [`LinkError::DuplicateDefinition`](crate::LinkError::DuplicateDefinition) if
    /// it defines a name that another object of the library defines;
    /// [`LinkError::DiscardedReference`](crate::LinkError::DiscardedReference) if it refers to its own copy of a COMDAT
    /// group that another object has; [`LinkError::LateForLinkerSet`](crate::LinkError::LateForLinkerSet) if it has a
    /// section of a linker set that objects of the library have read;
    /// [`LibraryError::Removed`](crate::LibraryError::Removed). The library is as before then.
    pub fn add_object(&self, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.add(self.inner.next_object_name(), bytes)
    }

    /// Does the same as [`add_object`](Self::add_object), with a name for errors and traces.
    ///
    /// # Errors
    /// As for [`add_object`](Self::add_object).
    pub fn add_object_named(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.add(name.into(), bytes)
    }

    /// Prepares objects and adds all of them, or none. They may refer to each other in any order. Whenever several
    /// objects of a library wait to be linked, they are linked as one batch, however they were added: their memory gets
    /// its final protections at once.
    ///
    /// # Errors
    /// As for [`add_object`](Self::add_object), of the first object that is refused. The library is as before then.
    pub fn add_objects(&self, objects: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<()> {
        self.inner.add(objects.into_iter().map(|bytes| (self.inner.next_object_name(), bytes)))
    }

    pub(crate) fn add_image_as(&self, name: Name, source: Source<'_>) -> Result<()> {
        self.inner.add_image(name, source)
    }

    pub(crate) fn add(&self, name: Name, bytes: impl AsRef<[u8]>) -> Result<()> {
        self.inner.add([(name, bytes)])
    }

    /// Does the same as [`add_object`](Self::add_object) with a file, named by its path.
    ///
    /// # Errors
    /// As for [`add_object`](Self::add_object); [`Error::Io`] if the file cannot be read.
    pub fn add_object_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.add(path.display().to_string().as_str().into(), self.inner.read(path)?)
    }

    /// Links the library's objects once more, into an image, and writes it. Nothing of what has run is in it: variables
    /// have their first values. Archives give the members that are needed; names of other libraries and given symbols
    /// are imports; the shared libraries that were given are needed.
    ///
    /// Plugins and settings of the engine count as they did for the objects.
    ///
    /// # Errors
    /// [`ImageError::NotKept`](crate::ImageError::NotKept) unless the engine was made with
    /// [`JitEngineBuilder::keep_objects`](crate::JitEngineBuilder::keep_objects); as for
    /// [`ImageBuilder::link`](crate::ImageBuilder::link); [`ImageError::Write`](crate::ImageError::Write) of the
    /// writer; [`LibraryError::Removed`](crate::LibraryError::Removed).
    pub fn save_image(&self, mut writer: impl io::Write) -> Result<()> {
        let not_kept = || Error::Image(ImageError::NotKept { library: self.name().to_owned() });
        let objects = self.inner.kept_objects()?.ok_or_else(not_kept)?;
        let shared = self.inner.shared_libraries();
        let paths: Vec<PathBuf> = shared.iter().map(|library| runtime::file_of(library.path())).collect();
        let bytes = link_kept(self.inner.preparation_of_images(), &objects, &paths)?;
        let written = writer.write_all(&bytes).and_then(|()| writer.flush());
        written.map_err(|source| Error::Image(ImageError::Write { path: self.name().into(), source }))
    }

    /// Adds an image, which [`ImageBuilder`](crate::ImageBuilder) has made: see
    /// [`JitEngine::add_image`](crate::JitEngine::add_image). It is linked with no other object of the library: objects
    /// that wait at the same time are an error then, later ones are not.
    ///
    /// # Errors
    /// [`Error::Image`](crate::Error::Image) for bytes that are no image;
    /// [`LibraryError::Removed`](crate::LibraryError::Removed).
    pub fn add_image<'a>(&self, bytes: impl Into<Cow<'a, [u8]>>) -> Result<()> {
        self.inner.add_image(self.inner.next_object_name(), Source::Bytes(bytes.into()))
    }

    /// Does the same as [`add_image`](Self::add_image), with a name for errors and traces.
    ///
    /// # Errors
    /// As for [`add_image`](Self::add_image).
    pub fn add_image_named<'a>(&self, name: &str, bytes: impl Into<Cow<'a, [u8]>>) -> Result<()> {
        self.inner.add_image(name.into(), Source::Bytes(bytes.into()))
    }

    /// Does the same as [`add_image`](Self::add_image) with a file, named by its path; see
    /// [`JitEngine::add_image_file`](crate::JitEngine::add_image_file).
    ///
    /// # Errors
    /// As for [`add_image`](Self::add_image); [`Error::Io`] if the file cannot be read.
    pub fn add_image_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.inner.add_image(path.display().to_string().as_str().into(), Source::open(path)?)
    }

    /// Adds what [`ObjectCache::get_or_link`](crate::ObjectCache::get_or_link) has returned: an image, or objects and
    /// archives to be linked here. The shared libraries that the [`ImageBuilder`](crate::ImageBuilder) was given are
    /// opened when the objects are linked, as an image's are.
    ///
    /// # Errors
    /// As for [`add_image`](Self::add_image), or as for [`add_objects`](Self::add_objects) and
    /// [`add_archive`](Self::add_archive). The library is as before then.
    pub fn add_linked(&self, linked: &Linked) -> Result<()> {
        let ImageBuilder { objects, archives, libraries, .. } = match linked {
            Linked::Image(bytes) => return self.add_image(bytes),
            Linked::Objects(builder) => builder,
        };
        let parse = |(name, bytes): &(String, Arc<[u8]>)| Archive::parse(name, Contents::Memory(Arc::clone(bytes)));
        let archives = archives.iter().map(parse).collect::<Result<Vec<_>>>()?;
        let objects = objects.iter().map(|(name, bytes)| (name.as_str().into(), bytes));
        self.inner.add_with(objects, archives, libraries)
    }

    /// Returns the signature that an image of the library has for a kernel; see
    /// [`ImageBuilder::signature`](crate::ImageBuilder::signature). [`KernelSignature::bind`] compares a function of the
    /// kernel's with it.
    ///
    /// # Errors
    /// [`ImageError::NoSignature`](crate::ImageError::NoSignature); [`Error::Kernel`](crate::Error::Kernel) for one that
    /// cannot be read.
    pub fn signature(&self, kernel: &str) -> Result<KernelSignature> {
        let found = self.inner.contracts().iter().find_map(|text| KernelSignature::find(text, kernel));
        found.unwrap_or_else(|| {
            let (library, kernel) = (self.name().to_owned(), kernel.to_owned());
            Err(Error::Image(ImageError::NoSignature { library, kernel }))
        })
    }

    /// Returns all findings and changes of preparation for an object, and whether its references would reach their
    /// targets as an object of this library. Adds nothing.
    ///
    /// Undefined names are looked for in the library (what was added to it already counts), then as for a link; a weak
    /// one that is nowhere has the address 0.
    ///
    /// # Errors
    /// Only for bytes that are no ELF object of either machine, everything else is in the plan;
    /// [`LibraryError::Removed`](crate::LibraryError::Removed).
    pub fn check_object_named(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<LinkPlan> {
        self.inner.check(name, bytes.as_ref())
    }

    /// Adds an archive (`ar`): its members are added when a name that they define is needed, by an object of the
    /// library or by [`get`](Self::get).
    ///
    /// # Errors
    /// [`ObjectError::NotAnArchive`](crate::ObjectError::NotAnArchive),
    /// [`ObjectError::ThinArchive`](crate::ObjectError::ThinArchive),
    /// [`ObjectError::Malformed`](crate::ObjectError::Malformed) if it cannot be read;
    /// [`LibraryError::Removed`](crate::LibraryError::Removed). Members are prepared when they are needed; their errors
    /// come then.
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

    /// Does the same as [`add_archive`](Self::add_archive) with a file, named by its path. A file of 256 KiB and more
    /// stays open as long as the library may need it, and members are read when they are needed: it may be removed or
    /// replaced meanwhile, and must not be written.
    ///
    /// # Errors
    /// As for [`add_archive`](Self::add_archive); [`Error::Io`] if the file cannot be read. What later needs a member
    /// fails with that, too, if the file was written since.
    pub fn add_archive_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        self.inner.add_archive(&path.display().to_string(), Contents::of_archive(path)?)
    }

    /// Returns the function or object of this name, typed. Links and initialises waiting objects first.
    ///
    /// Only names that the library's own objects define are found, not those of libraries it is linked against.
    ///
    /// `T` is a function pointer such as `unsafe extern "C" fn(i32) -> i32` (or an `Option` of one), or a data pointer
    /// such as `*const f32`, which may also point to a function. It must have the size of a pointer, which is checked
    /// at compile time:
    /// ```compile_fail
    /// # let library = slabjit::JitEngine::new().unwrap().add_object([]).unwrap();
    /// let wrong: slabjit::Symbol<u8> = unsafe { library.get("x").unwrap() };
    /// ```
    ///
    /// # Errors
    /// [`LibraryError::SymbolNotFound`](crate::LibraryError::SymbolNotFound),
    /// [`LibraryError::WrongSymbolKind`](crate::LibraryError::WrongSymbolKind) for a function type where the symbol is
    /// data, [`LibraryError::ThreadLocalSymbol`](crate::LibraryError::ThreadLocalSymbol),
    /// [`LibraryError::NullSymbol`](crate::LibraryError::NullSymbol); what can go wrong in linking:
    /// [`LinkError::UndefinedSymbols`](crate::LinkError::UndefinedSymbols),
    /// [`LinkError::Failed`](crate::LinkError::Failed),
    /// [`LinkError::InitializerFailed`](crate::LinkError::InitializerFailed),
    /// [`MemoryError::ArenaExhausted`](crate::MemoryError::ArenaExhausted),
    /// [`LinkError::StaticThreadLocal`](crate::LinkError::StaticThreadLocal) and others;
    /// [`LibraryError::Removed`](crate::LibraryError::Removed),
    /// [`LibraryError::InvalidName`](crate::LibraryError::InvalidName).
    ///
    /// After a failed link, what was linked before is still found, and adding what was missing and asking again
    /// succeeds. Objects whose initialiser failed are unloaded; the next call links and initialises them once more.
    ///
    /// # Safety
    /// - `T` must be the symbol's type: signature and calling convention of a function, type and mutability of an
    ///   object.
    /// - The initialisers of the library and of those it is linked against may be run by this thread, now. Its exit
    ///   handlers and finalisers may be run by whichever thread drops the last holder, or by the one that ends the
    ///   process. Resolvers of indirect functions are run like initialisers, destructors of thread-local variables by
    ///   the threads that have them.
    /// - A pointer that is copied out of the [`Symbol`] must not be used after the last holder is gone.
    pub unsafe fn get<T: Copy + 'static>(&self, name: &str) -> Result<Symbol<T>> {
        const { assert!(size_of::<T>() == size_of::<*const ()>(), "a symbol's type must have the size of a pointer") }
        if name.contains('\0') {
            return Err(Error::Library(LibraryError::InvalidName { name: name.to_owned() }));
        }
        // SAFETY: by the caller.
        let found = unsafe { self.inner.get(name)? };
        // SAFETY: the size was checked above; that the type is right is the caller's word.
        unsafe { pointer_from(found, name) }
    }

    /// Links and initialises waiting objects, without asking for a symbol.
    ///
    /// # Errors
    /// Errors of linking, as for [`get`](Self::get).
    ///
    /// # Safety
    /// As for [`get`](Self::get), except what concerns the symbol.
    pub unsafe fn initialize(&self) -> Result<()> {
        // SAFETY: by the caller.
        unsafe { self.inner.make_ready() }
    }

    /// Returns every name that a link would find undefined now, and the objects that refer to it. Links nothing, and
    /// opens no shared library: names of those that an image needs (`DT_NEEDED`) are among them until the first link.
    ///
    /// # Errors
    /// Errors of archive members that are needed; [`LibraryError::Removed`](crate::LibraryError::Removed).
    pub fn undefined_symbols(&self) -> Result<Vec<UndefinedSymbol>> {
        self.inner.undefined_symbols()
    }

    /// Returns the bindings of linked objects' imports, object by object. Names that linkers define
    /// (`_GLOBAL_OFFSET_TABLE_`, `__start_` and `__stop_` of the library's linker sets) are not among them.
    ///
    /// # Errors
    /// [`LibraryError::Removed`](crate::LibraryError::Removed).
    pub fn imports(&self) -> Result<Vec<ResolvedImport>> {
        self.inner.imports()
    }

    /// Returns the definition that an import of that name leads to, or would.
    ///
    /// # Safety
    /// `T` has the size of a pointer, and is the symbol's type.
    #[cfg(feature = "tvm-ffi")]
    pub(crate) unsafe fn import<T: Copy + 'static>(&self, name: &str) -> Result<Option<Symbol<T>>> {
        // SAFETY: by the caller.
        self.inner.import(name)?.map(|found| unsafe { pointer_from(found, name) }).transpose()
    }

    /// Returns the names that can be asked for, sorted; those of archive members only once they were needed.
    pub fn symbols(&self) -> Vec<String> {
        self.inner.symbols()
    }

    /// Returns the functions of all linked objects, as their symbol tables have them, by address: static and hidden
    /// ones, too, and each name of a function that has several.
    ///
    /// # Errors
    /// [`LibraryError::Removed`](crate::LibraryError::Removed).
    pub fn functions(&self) -> Result<Vec<Function>> {
        let functions = self.inner.functions()?.into_iter();
        Ok(functions.map(|(name, addresses)| Function { name, addresses }).collect())
    }

    /// Returns the slabs of the object that defines a linked symbol: one in the arena, one for each section outside.
    /// If it has a part in a linker set that was put together of several objects' sections, the slab of those sets
    /// comes last.
    ///
    /// # Errors
    /// [`LibraryError::SymbolNotFound`](crate::LibraryError::SymbolNotFound), also if it is not linked yet;
    /// [`LibraryError::Removed`](crate::LibraryError::Removed).
    pub fn slab_of(&self, name: &str) -> Result<Vec<Slab>> {
        Ok(slabs(self.inner.slab_of(name)?))
    }

    /// Hides the library's names at once and lets its code go with its last holder. May be called again, and then says
    /// what has become of it.
    ///
    /// Finalisers that run here have the contract that was accepted with [`get`](Self::get) or
    /// [`initialize`](Self::initialize); without those, nothing was initialised and nothing is finalised.
    pub fn remove(&self) -> Removal {
        self.inner.remove()
    }

    /// Calls [`remove`](Self::remove), and waits until finalisers have run and the memory is freed: until all holders
    /// have let go, and all [drains](Self::drain) have finished.
    ///
    /// # Errors
    /// [`LibraryError::RemovalTimedOut`](crate::LibraryError::RemovalTimedOut),
    /// [`LibraryError::RemovalFromOwnCode`](crate::LibraryError::RemovalFromOwnCode). The library is removed also then.
    pub fn remove_and_wait(&self, timeout: Duration) -> Result<()> {
        self.inner.remove_and_wait(timeout)
    }

    /// Adds a condition that must hold before finalisers run and the memory is freed: the end of device work that reads
    /// it, say. It may be added also after the library was removed, as long as something holds it.
    ///
    /// When the last holder is gone before that has finished, the code is kept. Nothing polls by itself: it goes when a
    /// library is made or removed after that, by any engine of the process, or within
    /// [`remove_and_wait`](Self::remove_and_wait).
    ///
    /// # Errors
    /// [`LibraryError::Removed`](crate::LibraryError::Removed) if nothing holds the code any more.
    pub fn drain(&self, drain: impl Drain + 'static) -> Result<()> {
        self.inner.drain(Box::new(drain))
    }

    /// Returns the device that it was [loaded for](LibraryBuilder::device); none once its code is gone.
    #[cfg(feature = "cuda")]
    pub fn device(&self) -> Option<Device> {
        self.inner.device()
    }

    /// Runs a function that prepares the library's code for a device, such as one that loads its modules there: once
    /// for this library and device, by the first that asks, with the device's context current. Others that ask
    /// meanwhile wait; a call from inside of the function does not. After an error, and after a panic, the next that
    /// asks runs its function. The code keeps the device from then on.
    ///
    /// The device need not be the one that the library was [loaded for](LibraryBuilder::device).
    ///
    /// # Errors
    /// [`CudaError::DeviceInitialization`](crate::CudaError::DeviceInitialization) with what the function returned;
    /// [`CudaError::Call`](crate::CudaError::Call), [`CudaError::AfterFork`](crate::CudaError::AfterFork);
    /// [`LibraryError::Removed`](crate::LibraryError::Removed),
    /// [`LibraryError::LostInFork`](crate::LibraryError::LostInFork).
    #[cfg(feature = "cuda")]
    pub fn initialize_on<E>(&self, device: &Device, initialize: impl FnOnce(&Self) -> Result<(), E>) -> Result<()>
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.inner.initialise_on(device, || {
            initialize(self).map_err(|source| {
                Error::Cuda(CudaError::DeviceInitialization {
                    library: self.name().to_owned(),
                    device: device.ordinal(),
                    source: source.into(),
                })
            })
        })
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// Merges ranges in the arena that touch into one slab.
fn slabs(ranges: Vec<SlabRange>) -> Vec<Slab> {
    let mut slabs: Vec<Slab> = Vec::new();
    for range in ranges {
        let segment = SlabSegment { addresses: range.addresses.clone(), protection: range.protection };
        match slabs.last_mut() {
            Some(slab) if !range.outside && slab.in_arena && slab.addresses.end == range.addresses.start => {
                slab.addresses.end = range.addresses.end;
                slab.segments.push(segment);
            }
            _ => slabs.push(Slab { addresses: range.addresses, segments: vec![segment], in_arena: !range.outside }),
        }
    }
    slabs
}

/// Says where a library's imports are looked for. In this order: its own objects, its archives, linked libraries in the
/// order given, `__dso_handle` and the functions that belong to each library (`atexit` and its relatives), shared
/// libraries in the order given, given symbols, the process, and what compilers expect to be linked statically
/// (libgcc's outline atomics of AArch64; with the process, what `libc_nonshared.a` has). [`Library::imports`] says
/// where each was found.
#[must_use = "a builder does nothing until build"]
pub struct LibraryBuilder {
    context: Arc<Context>,
    name: String,
    scope: inner::Scope,
    shared: Vec<PathBuf>,
}

/// What a library can be [linked against](LibraryBuilder::link): `&Library`, or `&Dylib` of `slabjit::orc`.
#[derive(Clone)]
pub struct Linkable(pub(crate) Link);

impl From<&Library> for Linkable {
    fn from(library: &Library) -> Self {
        Self(Link::Library(Arc::clone(&library.inner)))
    }
}

impl<'a, T> From<&'a &T> for Linkable
where
    &'a T: Into<Self>,
{
    fn from(to: &'a &T) -> Self {
        (*to).into()
    }
}

impl<'a, T> From<&'a Arc<T>> for Linkable
where
    &'a T: Into<Self>,
{
    fn from(to: &'a Arc<T>) -> Self {
        (&**to).into()
    }
}

impl fmt::Debug for Linkable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Linkable").field(&self.0.name()).finish()
    }
}

impl LibraryBuilder {
    pub(crate) fn new(context: Arc<Context>, name: &str) -> Self {
        Self { context, name: name.to_owned(), scope: inner::Scope::default(), shared: Vec::new() }
    }

    /// Looks in another library of this or another engine of the process, at its symbols with default visibility. It is
    /// initialised before this one, and kept alive by it: its names as long as this library is not dropped, its code as
    /// long as that of this one, if references lead to it. Libraries that the other was linked against are not looked
    /// in.
    ///
    /// Or looks in a dylib of `slabjit::orc`, at the names that it exports: what defines a name that this library needs
    /// is linked, and initialised, before the library is. Its code is kept as long as that of this one; the `Jit` is
    /// not, and once it has ended, the dylib has no names. A dylib that is linked against this library in turn finds
    /// what is linked already.
    pub fn link(mut self, to: impl Into<Linkable>) -> Self {
        self.scope.links.push(to.into().0);
        self
    }

    /// Looks in a shared library, and in what that depends on. It is opened by [`build`](Self::build) with
    /// `RTLD_NOW | RTLD_LOCAL` and stays open as long as the code lives.
    ///
    /// # Safety
    /// - The initialisers of the shared library, and of what it depends on, may be run by the thread that calls
    ///   [`build`](Self::build). Their finalisers may be run by whichever thread drops the last holder of the code, or
    ///   by the one that ends the process.
    /// - That holds for each file that a name without a slash may lead to: in a folder of
    ///   [`search_path`](Self::search_path), and where the dynamic loader looks.
    /// - What it exports must be what the objects take it for.
    pub unsafe fn shared_library(mut self, path: impl AsRef<Path>) -> Self {
        self.shared.push(path.as_ref().to_owned());
        self
    }

    /// Looks for shared libraries in a folder: for those that are given by name alone, before the dynamic loader looks
    /// where it does; and, where a link finds names undefined, for those that export them, to name them in
    /// [`LinkError::UndefinedSymbols`](crate::LinkError::UndefinedSymbols). Nothing else is opened.
    pub fn search_path(mut self, folder: impl AsRef<Path>) -> Self {
        self.scope.folders.push(folder.as_ref().to_owned());
        self
    }

    /// Gives a name an address: of a function, or of an object.
    ///
    /// Code refers to it in 32 bits unless it was compiled with `-fPIC`, and a Rust program is usually further away
    /// than that from the arena.
    ///
    /// # Safety
    /// The address must be that of what the objects take it for, and stay so as long as the code lives.
    pub unsafe fn symbol(mut self, name: &str, address: *const ()) -> Self {
        self.scope.elsewhere.given.insert(name.into(), address as u64);
        self
    }

    /// Loads for a device: its primary context is current, on the thread that does it, when shared libraries are
    /// opened, when initialisers run and when finalisers do; then the one before is again. Exit handlers that run at
    /// the process's end, and finalisers of shared libraries, run without it. Code finds the driver's functions, and
    /// nothing of what the driver depends on, after shared libraries and symbols that are given. The device stays as
    /// long as the code.
    #[cfg(feature = "cuda")]
    pub fn device(mut self, device: &Device) -> Self {
        self.scope.device = Some(device.clone());
        self
    }

    /// Takes objects that ask for executable stacks (`.note.GNU-stack` with the flag X), as nested functions of GNU C
    /// need them whose addresses are taken; without this they are refused
    /// ([`ObjectError::ExecutableStack`](crate::ObjectError::ExecutableStack)). When the first of them is linked, the
    /// dynamic loader makes all stacks executable, as `dlopen` of such a shared library does: the main thread's, those
    /// of threads that `pthread_create` has made, and those of threads to come; not stacks that a program has made
    /// itself. They stay so. A link is an
    /// [`LinkError::ExecutableStackRefused`](crate::LinkError::ExecutableStackRefused) where the system does not let
    /// it.
    pub fn executable_stack(mut self) -> Self {
        self.scope.executable_stack = true;
        self
    }

    /// Exports the library's names to the process, as `dlopen` with `RTLD_GLOBAL` exports those of a shared library:
    /// `dlsym` finds them with `RTLD_DEFAULT` and with a handle of `dlopen(NULL)`, and shared libraries that are opened
    /// later bind to them. Names are found once their objects are linked, so that initialisers may open such shared
    /// libraries. Names that the process had, or that another library exported, before come first.
    ///
    /// Hidden names and thread-local variables are not exported. `f@@VERSION` is exported as `f`, and `f@VERSION` is
    /// not. An indirect function has the address that [`get`](Library::get) returns.
    ///
    /// The names are withdrawn when the library is removed or dropped. Shared libraries that are bound to them keep the
    /// library, and still find its other names. When the last of them is closed, the library's finalisers may run,
    /// within `dlclose`. Until then the dynamic loader may bind further shared libraries to the names. An address that
    /// `dlsym` returned keeps nothing, like any copied pointer.
    ///
    /// # Errors
    /// A link is a [`LinkError::ExportRefused`](crate::LinkError::ExportRefused) where the dynamic loader cannot be
    /// given the names: it reads them from a memory file, under `/proc`.
    pub fn export(mut self) -> Self {
        self.scope.exports = Some(inner::Exports::new(false));
        self
    }

    /// Exports the names of a program, which stays until the process ends, where that is possible.
    #[cfg(feature = "cli")]
    pub(crate) fn export_program(mut self) -> Self {
        self.scope.exports = Some(inner::Exports::new(true));
        self
    }

    /// Does not look at the process's symbols.
    pub fn isolated(mut self) -> Self {
        self.scope.elsewhere.isolated = true;
        self
    }

    /// Makes the library: opens the shared libraries, and links nothing.
    ///
    /// # Errors
    /// [`LibraryError::Removed`](crate::LibraryError::Removed) for a linked library that was removed;
    /// [`LibraryError::SharedLibraryNotFound`](crate::LibraryError::SharedLibraryNotFound),
    /// [`LibraryError::NotASharedLibrary`](crate::LibraryError::NotASharedLibrary) and
    /// [`LibraryError::SharedLibrary`](crate::LibraryError::SharedLibrary) if one cannot be opened;
    /// [`LibraryError::InvalidName`](crate::LibraryError::InvalidName) for a symbol's name with a NUL byte,
    /// [`LibraryError::NullSymbol`](crate::LibraryError::NullSymbol) for one at address 0. Those of the device's
    /// driver, with the feature `cuda`.
    pub fn build(self) -> Result<Library> {
        if let Some(name) = self.scope.elsewhere.given.keys().find(|name| name.contains('\0')) {
            return Err(Error::Library(LibraryError::InvalidName { name: name.to_string() }));
        }
        if let Some((name, _)) = self.scope.elsewhere.given.iter().find(|(_, address)| **address == 0) {
            return Err(Error::Library(LibraryError::NullSymbol { library: self.name, symbol: name.to_string() }));
        }
        if let Some(removed) = self.scope.links.iter().find_map(Link::removed) {
            return Err(Error::Library(LibraryError::Removed { library: removed.name().to_owned() }));
        }
        #[cfg(feature = "cuda")]
        let _current = self.scope.device.as_ref().map(Device::make_current).transpose()?;
        // SAFETY: by the caller of `shared_library`, who gave the path.
        let shared = self.shared.iter().map(|path| unsafe { SharedLibrary::open_local(path, &self.scope.folders) });
        #[cfg_attr(not(feature = "cuda"), expect(unused_mut, reason = "a device adds its driver"))]
        let mut shared = shared.collect::<Result<Vec<_>>>()?;
        #[cfg(feature = "cuda")]
        shared.extend(
            self.scope.device.iter().map(|device| device.driver().library().clone().searched(SearchOrder::AfterGiven)),
        );
        Ok(Library { inner: inner::Library::new(self.context, self.name.as_str().into(), self.scope, shared) })
    }
}

impl fmt::Debug for LibraryBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LibraryBuilder").field("name", &self.name).field("shared", &self.shared).finish_non_exhaustive()
    }
}
