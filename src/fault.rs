//! The system calls of this crate, each with a name, and where tests make them fail.
//!
//! Whatever asks the kernel for something that it may refuse calls [`check`] before. Outside of tests that does
//! nothing. Calls of the dynamic loader count as one. Left out is what cannot fail for us (`close`, `munmap` inside of
//! `dlclose`), and what others do on our behalf: malloc, LLVM, the standard library's mutexes.

use rustix::io::Errno;

macro_rules! calls {
    ($($(#[$only:meta])? $call:ident = $function:literal, $purpose:literal;)*) => {
        /// A place that makes a system call, by what it is for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Call {
            $($(#[$only])? #[doc = $purpose] $call,)*
        }

        #[cfg(slabjit_faults)]
        impl Call {
            /// All of them that this architecture has.
            pub const ALL: &[Self] = &[$($(#[$only])? Self::$call,)*];

            /// Whether it is of an object cache.
            pub fn is_of_cache(self) -> bool {
                self >= Self::MakeCache
            }

            /// The function that is called, as its manual page names it.
            pub const fn function(self) -> &'static str {
                match self {
                    $($(#[$only])? Self::$call => $function,)*
                }
            }

            /// What it is for.
            pub const fn purpose(self) -> &'static str {
                match self {
                    $($(#[$only])? Self::$call => $purpose,)*
                }
            }
        }
    };
}

calls! {
    Reserve = "mmap", "an arena's addresses";
    ReserveAt = "mmap", "an arena's addresses where it was placed";
    ReserveTables = "mmap", "the tables of an arena's names, for the dynamic loader";
    GrowTable = "mprotect", "room for names in such a table";
    Release = "munmap", "an arena's addresses, which the dynamic loader gets";
    MapArena = "mmap", "the arena in their place";
    WriteModule = "mprotect", "the headers of the loader's module of an arena";
    MapWritable = "mmap", "a section outside the arena";
    Unmap = "munmap", "an arena, or a section outside";
    UnmapLater = "munmap", "the same that was refused before";
    Protect = "mprotect", "pages get another protection";
    TryExecution = "mprotect", "whether a page may become executable";
    Replace = "mmap", "freed pages are replaced";
    Deny = "mprotect", "freed pages, where they cannot be replaced";
    Discard = "madvise", "the memory of freed pages";
    MoveMemory = "mremap", "the memory of removed pages, for new ones";
    Populate = "madvise", "pages about to be written";
    SmallPages = "madvise", "zero-fill without huge pages";
    SyncCores = "membarrier", "other cores see new code";
    CreateCode = "memfd_create", "memory for packed code and constants";
    CreateOldCode = "memfd_create", "the same where the kernel does not know all flags";
    SizeCode = "ftruncate", "its size";
    OpenCode = "open", "it is opened for reading only";
    MapCode = "mmap", "a view of it";
    MapFile = "mmap", "an image's pages";
    ReadImage = "pread", "what an image's program writes to";
    KeepFromChildren = "madvise", "its writable view is not inherited";
    DiscardCode = "madvise", "the memory of packed code that was removed";
    OpenMaps = "open", "the list of mappings";
    ReadMaps = "read", "the list of mappings";
    OpenSetting = "open", "the lowest address that may be mapped, or how many mappings there may be";
    ReadSetting = "read", "the lowest address that may be mapped, or how many mappings there may be";
    OpenObject = "open", "an object or archive";
    ReadObject = "read", "an object or archive";
    CreateImage = "memfd_create", "an image for the dynamic loader";
    CreateOldImage = "memfd_create", "the same where the kernel does not know all flags";
    SizeImage = "ftruncate", "the size of such an image";
    WriteImage = "pwrite", "its contents";
    MoveImage = "fcntl", "it is open under a high number";
    OpenImage = "dlopen", "it is loaded";
    FindImage = "open", "why such an image is not loaded";
    OpenShared = "dlopen", "a shared library of the caller's";
    SpawnThread = "pthread_create", "a second thread, to compare where variables are";
    MapSignalStack = "mmap", "an alternate stack for signals";
    MakeCache = "mkdir", "a cache's folder, and its parents";
    MakeCacheFolder = "mkdir", "a folder in it";
    OpenCacheFolder = "open", "one of its folders";
    OpenCached = "open", "one of its files";
    CreateCached = "open", "a new file in it";
    LockCached = "flock", "a file for a key that is compiled";
    StatCached = "fstat", "an open file or folder of it";
    StatCachedName = "fstatat", "a name in it";
    ReadCached = "read", "one of its files";
    WriteCached = "write", "one of its files";
    SyncCached = "fsync", "one of its files";
    TouchCached = "utimensat", "one of its files";
    RenameCached = "rename", "one of its files";
    RemoveCached = "unlink", "one of its files";
    ListCached = "getdents", "one of its folders";
}

/// Whether the call is to be made; else what the kernel says, in a test.
#[cfg(not(any(test, slabjit_faults)))]
#[inline(always)]
#[allow(clippy::unnecessary_wraps, reason = "as the one for tests")]
pub(crate) fn check(_: Call) -> Result<(), Errno> {
    Ok(())
}

#[cfg(any(test, slabjit_faults))]
pub(crate) use injected::check;
#[cfg(any(test, slabjit_faults))]
pub use injected::{with, with_errors};

#[cfg(any(test, slabjit_faults))]
mod injected {
    use std::cell::RefCell;

    use super::{Call, Errno};

    struct Active {
        refuse: Box<dyn FnMut(usize, Call) -> Option<i32>>,
        calls: Vec<Call>,
    }

    thread_local! {
        static ACTIVE: RefCell<Option<Active>> = const { RefCell::new(None) };
    }

    /// Runs `body`; calls of this thread for which `fails(index, call)` holds are not made and give ENOMEM. Returns all
    /// calls.
    pub fn with<R>(mut fails: impl FnMut(usize, Call) -> bool + 'static, body: impl FnOnce() -> R) -> (R, Vec<Call>) {
        with_errors(move |index, call| fails(index, call).then_some(libc::ENOMEM), body)
    }

    /// The same with the error (errno) that each call is to give.
    pub fn with_errors<R>(
        refuse: impl FnMut(usize, Call) -> Option<i32> + 'static,
        body: impl FnOnce() -> R,
    ) -> (R, Vec<Call>) {
        ACTIVE.set(Some(Active { refuse: Box::new(refuse), calls: Vec::new() }));
        let result = body();
        (result, ACTIVE.take().map(|active| active.calls).unwrap_or_default())
    }

    pub(crate) fn check(call: Call) -> Result<(), Errno> {
        // A thread that ends may have taken it down already.
        let refused = ACTIVE.try_with(|active| {
            let mut active = active.borrow_mut();
            let active = active.as_mut()?;
            active.calls.push(call);
            (active.refuse)(active.calls.len() - 1, call)
        });
        refused.ok().flatten().map_or(Ok(()), |errno| Err(Errno::from_raw_os_error(errno)))
    }
}
