//! The engine: an arena, an LLVM session, and how objects are prepared.
#![allow(unsafe_code, reason = "unsafe fns, whose contracts are the caller's")]

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "llvm")]
use once_cell::sync::OnceCell;

#[cfg(doc)]
use crate::Error;
use crate::debuggers;
use crate::elf::{HOST_MACHINE, LinkPlan, ObjectPlugin, Preparation, Target};
use crate::explanation::{Explanation, Symbolized};
use crate::image::{ImageLoader, Linked};
use crate::library::{Library, LibraryBuilder};
#[cfg(feature = "llvm")]
use crate::link::{JitLinker, Session};
use crate::live::context::Context;
use crate::live::images::{Images, Source};
use crate::live::linker::Linker;
use crate::memory::{ArenaConfig, ArenaStats, PackedConfig};
use crate::name::Name;
use crate::out_of_range::OutOfRange;
use crate::runtime::SharedLibrary;
use crate::threads::Threads;
use crate::{ArenaPlacement, DebugInfo, Limits, Result, SectionConflicts};

/// Loads objects into this process. Clones share one engine; it may be used from any thread.
///
/// Dropping the last clone does not end what was loaded: libraries and symbols keep what they need.
#[derive(Clone)]
pub struct JitEngine {
    context: Arc<Context>,
    #[cfg(feature = "llvm")]
    session: Arc<OnceCell<Session>>,
}

/// The placement of objects in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SlabLayout {
    /// Every object has one contiguous slab of its own: `R-X | R-- | RW-`, each part on pages of its own. Small objects
    /// that are linked together (`Library::add_objects`) lie back to back, every other one in the opposite order.
    #[default]
    PerObject,
    /// Small objects (up to 16 KiB, or four pages) share pages: in the arena there are pools of `R-X`, `R--` and `RW-`,
    /// in which an object takes multiples of 16 bytes, and whole cache lines for its variables. Code and constants are
    /// written through a second view of their memory. An object whose references reach less than the arena, or that is
    /// larger, has a slab of its own; where there are too many mappings for that, objects of up to 256 KiB share pages,
    /// too.
    Packed,
}

/// Settings of an engine; see [`JitEngine::builder`].
#[derive(Default)]
pub struct JitEngineBuilder {
    arena: ArenaConfig,
    placement: ArenaPlacement,
    layout: SlabLayout,
    packed: PackedConfig,
    conflicts: SectionConflicts,
    out_of_range: OutOfRange,
    limits: Limits,
    debug: DebugInfo,
    threads: Threads,
    verify_images: bool,
    ignore_cpu_needs: bool,
    keep_objects: bool,
    plugins: Vec<Arc<dyn ObjectPlugin>>,
}

/// The statistics of an engine at one moment; see [`JitEngine::stats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineStats {
    /// The arena's address space.
    pub arena: ArenaStats,
    /// Libraries whose code is alive: not removed, or removed and still held.
    pub libraries: usize,
    /// References of live code that reach their targets through a literal, a slot or a stub; see
    /// [`OutOfRange::Bridge`].
    pub bridges: u64,
}

impl JitEngine {
    /// Returns an engine with default settings.
    ///
    /// # Errors
    /// [`MemoryError::AddressSpace`](crate::MemoryError::AddressSpace) if no arena can be reserved,
    /// [`LinkError::Session`](crate::LinkError::Session) if LLVM cannot be started.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// Returns settings for an engine.
    pub fn builder() -> JitEngineBuilder {
        let builder = JitEngineBuilder::default();
        #[cfg(slabjit_faults)]
        let builder = builder.slab_layout_of_tests();
        builder
    }

    /// Prepares an object and puts it into a library of its own, which runs nothing: it is linked and initialised when
    /// something is first asked of it. The bytes are copied, unless a `Vec<u8>` is passed by value.
    ///
    /// # Errors
    /// Problems that preparation finds; nothing is kept then.
    pub fn add_object(&self, bytes: impl AsRef<[u8]>) -> Result<Library> {
        self.alone(self.context.next_object_name(), bytes)
    }

    /// Does the same as [`add_object`](Self::add_object), with a name for errors, traces and the library.
    ///
    /// # Errors
    /// As for [`add_object`](Self::add_object).
    pub fn add_object_named(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<Library> {
        self.alone(name.into(), bytes)
    }

    /// Prepares objects and puts all of them into one library: see [`Library::add_objects`].
    ///
    /// # Errors
    /// Problems that preparation finds in one of them, or two that define the same name; nothing is kept then.
    pub fn add_objects(&self, objects: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<Library> {
        let library = Library::alone(&self.context, self.context.next_object_name());
        library.add_objects(objects)?;
        Ok(library)
    }

    fn alone(&self, name: Name, bytes: impl AsRef<[u8]>) -> Result<Library> {
        let library = Library::alone(&self.context, name.clone());
        library.add(name, bytes)?;
        Ok(library)
    }

    /// Does the same as [`add_object`](Self::add_object) with a file, named by its path.
    ///
    /// # Errors
    /// As for [`add_object`](Self::add_object); [`Error::Io`] if the file cannot be read.
    pub fn add_object_file(&self, path: impl AsRef<Path>) -> Result<Library> {
        let path = path.as_ref();
        self.alone(path.display().to_string().as_str().into(), self.context.read(path)?)
    }

    /// Loads an image, which [`ImageBuilder`](crate::ImageBuilder) has made, as a library of its own. This needs no
    /// linker, and a build without LLVM can do it.
    ///
    /// Nothing runs; the first [`Library::get`] or [`Library::initialize`] opens the shared libraries that it needs, binds
    /// its imports, places it and runs its initialisers. Its code is as trusted as an object's: see [`add_object`](Self::add_object).
    ///
    /// # Errors
    /// [`Error::Image`] for bytes that are no image, of another machine, of another format, or damaged.
    pub fn add_image<'a>(&self, bytes: impl Into<Cow<'a, [u8]>>) -> Result<Library> {
        self.image(self.context.next_object_name(), Source::Bytes(bytes.into()))
    }

    /// Does the same as [`add_image`](Self::add_image), with a name for errors, traces and the library.
    ///
    /// # Errors
    /// As for [`add_image`](Self::add_image).
    pub fn add_image_named<'a>(&self, name: &str, bytes: impl Into<Cow<'a, [u8]>>) -> Result<Library> {
        self.image(name.into(), Source::Bytes(bytes.into()))
    }

    /// Does the same as [`add_image`](Self::add_image) with a file, named by its path.
    ///
    /// Pages that need no relocation are the file's where it has 64 KiB and more, so that processes share them; not where
    /// others than root and this user may write it or its folder. Such a file must not be changed or cut short while
    /// the image lives: install a new one by renaming, as with every shared object.
    ///
    /// # Errors
    /// As for [`add_image`](Self::add_image); [`Error::Io`] if the file cannot be read.
    pub fn add_image_file(&self, path: impl AsRef<Path>) -> Result<Library> {
        let path = path.as_ref();
        self.image(path.display().to_string().as_str().into(), Source::open(path)?)
    }

    /// Puts what [`ObjectCache::get_or_link`](crate::ObjectCache::get_or_link) has returned into a library of its own:
    /// see [`Library::add_linked`].
    ///
    /// # Errors
    /// As for [`Library::add_linked`]; nothing is kept then.
    pub fn add_linked(&self, linked: &Linked) -> Result<Library> {
        let library = Library::alone(&self.context, self.context.next_object_name());
        library.add_linked(linked)?;
        Ok(library)
    }

    fn image(&self, name: Name, source: Source<'_>) -> Result<Library> {
        let library = Library::alone(&self.context, name.clone());
        library.add_image_as(name, source)?;
        Ok(library)
    }

    /// Puts an archive (`ar`) into a library of its own: its members are linked when a name that they define is needed,
    /// see [`Library::add_archive`]. The bytes are copied.
    ///
    /// # Errors
    /// [`ObjectError::NotAnArchive`](crate::ObjectError::NotAnArchive),
    /// [`ObjectError::ThinArchive`](crate::ObjectError::ThinArchive),
    /// [`ObjectError::Malformed`](crate::ObjectError::Malformed) if it cannot be read; nothing is kept then. Members
    /// are prepared when they are needed; their errors come then.
    pub fn add_archive(&self, bytes: impl AsRef<[u8]>) -> Result<Library> {
        let library = Library::alone(&self.context, "archive".into());
        library.add_archive(bytes)?;
        Ok(library)
    }

    /// Does the same as [`add_archive`](Self::add_archive) with a file, named by its path, which may stay open: see
    /// [`Library::add_archive_file`].
    ///
    /// # Errors
    /// As for [`add_archive`](Self::add_archive); [`Error::Io`] if the file cannot be read. What later needs a member
    /// fails with that, too, if the file was written since.
    pub fn add_archive_file(&self, path: impl AsRef<Path>) -> Result<Library> {
        let path = path.as_ref();
        let library = Library::alone(&self.context, path.display().to_string().as_str().into());
        library.add_archive_file(path)?;
        Ok(library)
    }

    /// Returns a builder of a library for several objects that share one namespace.
    pub fn library(&self, name: &str) -> LibraryBuilder {
        LibraryBuilder::new(Arc::clone(&self.context), name)
    }

    /// Opens a shared library for the whole process (`RTLD_NOW | RTLD_GLOBAL`) and never closes it, for code that opens
    /// others later which expect its symbols there (CUTLASS#3075).
    ///
    /// # Errors
    /// [`LibraryError::SharedLibraryNotFound`](crate::LibraryError::SharedLibraryNotFound),
    /// [`LibraryError::NotASharedLibrary`](crate::LibraryError::NotASharedLibrary);
    /// [`LibraryError::SharedLibrary`](crate::LibraryError::SharedLibrary) with what the dynamic loader said.
    ///
    /// # Safety
    /// The shared library's initialisers run now, its finalisers when the process ends. Its symbols come before those
    /// of libraries that are opened later, also for code that is not of this engine.
    pub unsafe fn preload_global(&self, path: impl AsRef<Path>) -> Result<()> {
        // SAFETY: by the caller.
        unsafe { SharedLibrary::open_global(path.as_ref()) }
    }

    /// Returns all findings and changes of preparation for an object, without linking it. Objects for x86-64 and for
    /// AArch64 are both checked, whichever this process is.
    ///
    /// Undefined names are looked for in the process, to say whether references reach them; those that are not there
    /// count as another object's. See [`Library::check_object_named`] for an object that has a library around it.
    ///
    /// # Errors
    /// Only for bytes that are no ELF object of either machine; everything else is in the plan.
    pub fn check_object(&self, bytes: impl AsRef<[u8]>) -> Result<LinkPlan> {
        self.check_object_named("object", bytes)
    }

    /// Does the same as [`check_object`](Self::check_object), with a name for the plan.
    ///
    /// # Errors
    /// As for [`check_object`](Self::check_object).
    pub fn check_object_named(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<LinkPlan> {
        self.context.check_alone(name, bytes.as_ref())
    }

    /// Returns the engine's current statistics.
    pub fn stats(&self) -> EngineStats {
        let live = self.context.live();
        // Nothing is left then of libraries that are not counted.
        self.context.registry.leaving.end_now();
        let bridges = live.iter().map(|code| code.bridges()).sum();
        EngineStats { arena: self.context.arena.stats(), libraries: live.len(), bridges }
    }

    /// Returns the object and the function that have this address, or had it last: a removed one is known until its
    /// addresses have [rested](JitEngineBuilder::quarantine).
    ///
    /// May be called from a signal handler: it takes no lock, waits for nobody and allocates nothing.
    pub fn explain_address(&self, address: *const ()) -> Option<Explanation> {
        self.context.arena.occupant(address.addr()).map(|occupant| Explanation::new(occupant, address.addr()))
    }

    /// Returns the object, the function and, with [`DebugInfo::Lines`] or [`DebugInfo::Full`], the source lines at an
    /// address of loaded code. A removed object has no lines any more. [`symbolize`](crate::symbolize()) asks all
    /// engines.
    ///
    /// Takes locks and allocates; the first lines of an object take milliseconds, as its debug information is read.
    pub fn symbolize(&self, address: *const ()) -> Option<Symbolized> {
        self.explain_address(address).map(|explanation| Symbolized::new(explanation, address.addr()))
    }

    /// Returns the addresses of the arena, in which all slabs lie.
    pub fn arena(&self) -> std::ops::Range<usize> {
        self.context.arena.range()
    }

    #[cfg(feature = "llvm")]
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns LLVM's `LLJIT` of this engine, made on the first call; its C API is in [`llvm_sys`](crate::llvm_sys).
    ///
    /// Objects and IR that are added to it are prepared, checked, placed in the engine's arena and linked like the
    /// engine's own. They belong to the `LLJIT`'s dylibs and resource trackers, not to libraries, and neither finds the
    /// names of the other by itself. Errors of objects go to the subscriber of `tracing`, in this crate's words;
    /// whoever looked a name up is told by LLVM that it failed.
    ///
    /// `LLVMOrcLLJITRef` is a type of llvm-sys, in the version for the crate's LLVM, such as 191 for 19.
    ///
    /// # Errors
    /// [`LinkError::Session`](crate::LinkError::Session) if LLVM cannot make one.
    ///
    /// # Safety
    /// The reference is valid as long as the engine. It must not be disposed of. The error reporter is the engine's.
    #[cfg(feature = "llvm")]
    pub unsafe fn raw(&self) -> Result<crate::llvm_sys::orc2::lljit::LLVMOrcLLJITRef> {
        let context = &self.context;
        let make = || Session::new(Arc::clone(context), context.out_of_range);
        self.session.get_or_try_init(make).map(Session::lljit)
    }
}

impl fmt::Debug for JitEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JitEngine").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl JitEngineBuilder {
    /// Sets the address space to reserve, in bytes: at most 2 GiB − 32 MiB (the default), at least 8 MiB; other values
    /// are clamped. If the reservation fails, half of it is tried, and so on. No memory is used by it.
    #[must_use]
    pub fn arena_size(mut self, bytes: usize) -> Self {
        self.arena.size = bytes;
        self
    }

    /// Sets the arena's placement; the default is near the loaded libraries if there is room. Sizes are tried as
    /// [`arena_size`](Self::arena_size) says; where none can be had there, [`build`](Self::build) fails, but for the
    /// default, which then takes any place. No arena has a page that begins at a multiple of 4 GiB: libgcc cannot
    /// unwind a function there.
    #[must_use]
    pub fn arena_placement(mut self, placement: ArenaPlacement) -> Self {
        self.placement = placement;
        self
    }

    /// Sets how many bytes of removed objects' addresses rest before other objects get them, 64 MiB by default; the
    /// longest-resting go first. Resting addresses have no memory, and every access to them traps. They are
    /// taken before the arena counts as exhausted, and 4096 slabs rest at most. 0 for none: then a stale pointer may
    /// lead into another object.
    ///
    /// With [`SlabLayout::Packed`] others live in the same pages. Stale calls trap there, too. Stale data does not
    /// until all of its 64 KiB is removed: constants and data read as zeros, and what is written to data stays, and may
    /// be found by the object that gets the addresses after they have rested.
    #[must_use]
    pub fn quarantine(mut self, bytes: usize) -> Self {
        self.arena.quarantine = bytes;
        self
    }

    /// Keeps up to so many bytes of removed objects' pages in memory, for the next objects: 8 MiB by default, none with
    /// 0 or without a [quarantine](Self::quarantine). They are the pages of objects of more than 16 KiB, and of smaller
    /// ones that were removed together. Their addresses rest as all others: nobody can read, write or run what is kept,
    /// and it is zero before another object gets it, at other addresses. With [`SlabLayout::Packed`], small objects
    /// have no pages of their own. The buffer for the bytes of an object of more than 64 KiB is kept, too, if it is not
    /// larger.
    #[must_use]
    pub fn warm_pages(mut self, bytes: usize) -> Self {
        self.arena.warm = bytes;
        self
    }

    /// Lets so many threads, the calling one included, prepare and link objects that are added together: those of
    /// [`add_objects`](JitEngine::add_objects), and members of archives. One by default: then nothing of the engine runs
    /// on another thread.
    ///
    /// The threads are made where there is enough to do, some 200 small objects or half a MiB, and end with the call.
    /// They run no code of the program but its `tracing` subscriber. If there is a [plugin](Self::plugin), only the
    /// calling thread prepares. The bytes of all objects of an [`add_objects`](JitEngine::add_objects) are held until
    /// all are prepared.
    #[must_use]
    pub fn threads(mut self, count: usize) -> Self {
        self.threads = Threads::new(count);
        self
    }

    /// Sets the placement of objects.
    #[must_use]
    pub fn slab_layout(mut self, layout: SlabLayout) -> Self {
        self.layout = layout;
        self
    }

    /// Sets the layout from the environment: the suite runs with each layout.
    #[cfg(slabjit_faults)]
    fn slab_layout_of_tests(mut self) -> Self {
        if std::env::var_os("SLABJIT_TEST_LAYOUT").is_some_and(|layout| layout == "packed") {
            self.layout = SlabLayout::Packed;
        }
        self
    }

    /// Protects the second view of [`SlabLayout::Packed`], through which code and constants are written, except while
    /// objects are linked (all of a batch), or one is removed. That takes two system calls each time. Where running
    /// code could be made writable (no `/proc`), whole pages are taken as with [`page_striped`](Self::page_striped).
    #[must_use]
    pub fn hardened(mut self, hardened: bool) -> Self {
        self.packed.hardened = hardened;
        self
    }

    /// Gives each object whole pages with [`SlabLayout::Packed`], as where the system gives no memory that can be
    /// mapped twice. Programs that fork often need it: no packed memory is shared with a child then.
    #[must_use]
    pub fn page_striped(mut self, striped: bool) -> Self {
        self.packed.striped = striped;
        self
    }

    /// Sets the treatment of same-named sections that differ.
    #[must_use]
    pub fn section_conflicts(mut self, policy: SectionConflicts) -> Self {
        self.conflicts = policy;
        self
    }

    /// Sets the treatment of references that do not reach their targets.
    #[must_use]
    pub fn out_of_range(mut self, policy: OutOfRange) -> Self {
        self.out_of_range = policy;
        self
    }

    /// Sets bounds for objects from sources that are not trusted.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets what is kept of objects for debuggers and for reports.
    ///
    /// In the pages of [`SlabLayout::Packed`] a debugger can set hardware breakpoints only (GDB's `hbreak`). With
    /// [`DebugInfo::Full`], and in a program that a debugger runs, objects have whole pages, as with
    /// [`page_striped`](Self::page_striped).
    #[must_use]
    pub fn debug_info(mut self, debug: DebugInfo) -> Self {
        self.debug = debug;
        self
    }

    /// Adds a step of preparation, after those added before.
    #[must_use]
    pub fn plugin(mut self, plugin: impl ObjectPlugin + 'static) -> Self {
        self.plugins.push(Arc::new(plugin));
        self
    }

    /// Has libraries keep the bytes of their objects, from which [`Library::save_image`] links an image; off by default.
    #[must_use]
    pub fn keep_objects(mut self, keep: bool) -> Self {
        self.keep_objects = keep;
        self
    }

    /// Has the bytes of images hashed when they are added, and compared with the hash that they have
    /// ([`ImageError::Changed`](crate::ImageError::Changed)); off by default. It finds files that were damaged or
    /// changed, not those that somebody has made anew.
    #[must_use]
    pub fn verify_images(mut self, verify: bool) -> Self {
        self.verify_images = verify;
        self
    }

    /// Lets [`Library::get`] return functions of images whose instructions this CPU has not got, in place of
    /// [`ImageError::Cpu`](crate::ImageError::Cpu); off by default. A function counts as one that needs what it has
    /// anywhere, also behind a question to the CPU. [`ImageBuilder::cpu_needs`](crate::ImageBuilder::cpu_needs) says of
    /// one function what it needs.
    #[must_use]
    pub fn ignore_cpu_needs(mut self, ignore: bool) -> Self {
        self.ignore_cpu_needs = ignore;
        self
    }

    /// Makes the engine.
    ///
    /// # Errors
    /// [`MemoryError::AddressSpace`](crate::MemoryError::AddressSpace) if no arena can be reserved,
    /// [`LinkError::Session`](crate::LinkError::Session) if LLVM cannot be started. With an [`ArenaPlacement`]:
    /// [`MemoryError::ArenaPlacement`](crate::MemoryError::ArenaPlacement) if no arena can be reserved there,
    /// [`MemoryError::LibrariesApart`](crate::MemoryError::LibrariesApart) if there is no such place, [`Error::Io`] if
    /// `/proc/self/maps` cannot be read.
    pub fn build(mut self) -> Result<JitEngine> {
        self.arena.place = self.placement.place()?;
        // No debugger can set a breakpoint in memory that is mapped twice.
        self.packed.striped |= self.debug == DebugInfo::Full || debuggers::debugger_waits();
        self.arena.packed = (self.layout == SlabLayout::Packed).then_some(self.packed);
        #[cfg(feature = "llvm")]
        {
            let linker = Arc::new(JitLinker::new(self.out_of_range, self.threads)?);
            Ok(JitEngine { context: self.context(Some(linker))?, session: Arc::default() })
        }
        #[cfg(not(feature = "llvm"))]
        Ok(JitEngine { context: self.context(None)? })
    }

    fn context(self, linker: Option<Arc<dyn Linker>>) -> Result<Arc<Context>> {
        let llvm = if cfg!(feature = "llvm") { crate::llvm_version() } else { NEWEST_LLVM };
        let target = Target { machine: HOST_MACHINE, llvm };
        let preparation = Preparation::new(target, self.conflicts, self.limits, self.plugins).keeping(self.debug);
        let images = Images {
            loader: Arc::new(ImageLoader),
            verify: self.verify_images,
            ignore_cpu_needs: self.ignore_cpu_needs,
            keep_objects: self.keep_objects,
        };
        Context::new(&self.arena, preparation, self.out_of_range, self.threads, linker, images)
    }
}

impl fmt::Debug for JitEngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plugins: Vec<_> = self.plugins.iter().map(|p| p.name()).collect();
        f.debug_struct("JitEngineBuilder")
            .field("arena_size", &self.arena.size)
            .field("arena_placement", &self.placement)
            .field("quarantine", &self.arena.quarantine)
            .field("warm_pages", &self.arena.warm)
            .field("section_conflicts", &self.conflicts)
            .field("out_of_range", &self.out_of_range)
            .field("limits", &self.limits)
            .field("debug_info", &self.debug)
            .field("threads", &self.threads)
            .field("verify_images", &self.verify_images)
            .field("ignore_cpu_needs", &self.ignore_cpu_needs)
            .field("keep_objects", &self.keep_objects)
            .field("plugins", &plugins)
            .finish()
    }
}

/// The LLVM version that a build without LLVM checks objects for.
const NEWEST_LLVM: u32 = 23;
