//! The loader half of a CPU runtime for cubecl's kernels: objects come in, launches go out.
//!
//! cubecl-cpu 0.11 makes an LLJIT for each kernel and keeps no compiled code, so each start compiles everything again
//! (cubecl#1527). Here one engine has all kernels, and a cache on disk keeps each as an image: the next start loads it
//! without LLVM. The launch ABI is cubecl's (`KernelFn` of cubecl-llvm).

use std::ffi::c_void;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use slabjit::{CacheKey, ImageBuilder, JitEngine, ObjectCache, Result, Symbol};

/// A kernel: pointers to its buffers; cubes in x, y and z; the position of a unit in its cube; the state of barriers;
/// metadata (lengths, shapes, strides). It does a unit's work for all cubes.
pub type KernelFn = unsafe extern "C" fn(*mut *mut c_void, u32, u32, u32, u32, u32, u32, *mut u32, *mut u64);

/// Words of a barrier: units that have arrived, and rounds.
const BARRIER_WORDS: usize = 2;

/// Loads kernels, each compiled once for all processes of this machine.
#[derive(Debug)]
pub struct CpuLoader {
    engine: JitEngine,
    cache: ObjectCache,
    compiler: String,
}

impl CpuLoader {
    /// Opens a cache in a folder, which is made if it is missing. `compiler` names what compiles kernels, with its
    /// version: a program without it finds what it has made.
    ///
    /// # Errors
    /// Those of [`ObjectCache::open`] and [`JitEngine::new`].
    pub fn open(folder: impl AsRef<Path>, compiler: &str) -> Result<Self> {
        Ok(Self { engine: JitEngine::new()?, cache: ObjectCache::open(folder)?, compiler: compiler.to_owned() })
    }

    /// Returns a kernel: from the cache, or else compiled. `source` is all that the code depends on, such as cubecl's
    /// `KernelId`, or the IR; the machine and versions are part of the key, too.
    ///
    /// # Errors
    /// Those of `compile`, and of loading.
    ///
    /// # Safety
    /// The object defines `name` as a [`KernelFn`].
    pub unsafe fn kernel<E: From<slabjit::Error>>(
        &self,
        name: &str,
        source: &[u8],
        compile: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<CpuKernel, E> {
        // In place of the LLVM of this build, which may have none.
        let key = CacheKey::builder().part("llvm", &self.compiler).native_cpu();
        let key = key.part("kernel", name).part("source", source).build();
        let cached = self.cache.get_or_link(&key, || Ok::<_, E>(ImageBuilder::new().object(name, compile()?)))?;
        let library = self.engine.add_linked(&cached.linked)?;
        // SAFETY: by the caller's contract. The symbol keeps the code.
        Ok(CpuKernel { function: unsafe { library.get(name)? }, was_compiled: !cached.found })
    }
}

/// A loaded kernel; clones share it, and the last one unloads it.
#[derive(Debug, Clone)]
pub struct CpuKernel {
    function: Symbol<KernelFn>,
    was_compiled: bool,
}

/// One launch.
#[derive(Debug)]
pub struct Launch<'a> {
    pub buffers: &'a mut [*mut c_void],
    pub metadata: &'a mut [u64],
    /// Cubes in x, y and z.
    pub cubes: [u32; 3],
    /// Units of a cube in x, y and z.
    pub units: [u32; 3],
    /// Whether units of a cube wait for each other: each has a thread then.
    pub has_barriers: bool,
}

impl CpuKernel {
    /// Returns whether the cache had no such kernel.
    pub fn was_compiled(&self) -> bool {
        self.was_compiled
    }

    /// Runs the kernel, and returns when all units are done.
    ///
    /// # Errors
    /// The system's, if it has not got a thread for each unit of a kernel with barriers. Nothing has run then.
    ///
    /// # Safety
    /// The buffers and the metadata are what the kernel expects, for all units of all cubes. It does not unwind.
    pub unsafe fn launch(&self, launch: Launch<'_>) -> io::Result<()> {
        let Launch { buffers, metadata, cubes: [x, y, z], units, has_barriers } = launch;
        let barriers: [AtomicU32; BARRIER_WORDS] = Default::default();
        let shared = Shared { buffers: buffers.as_mut_ptr(), metadata: metadata.as_mut_ptr(), barriers: &barriers };
        let run = |unit: [u32; 3]| {
            let Shared { buffers, metadata, barriers } = shared.get();
            // SAFETY: by the caller's contract. Units share the buffers as the kernel's author has said.
            unsafe {
                (self.function)(
                    buffers,
                    x,
                    y,
                    z,
                    unit[0],
                    unit[1],
                    unit[2],
                    barriers.as_ptr().cast_mut().cast(),
                    metadata,
                );
            }
        };
        let [units_x, units_y, units_z] = units;
        let all = (0..units_z).flat_map(|z| (0..units_y).flat_map(move |y| (0..units_x).map(move |x| [x, y, z])));
        if !has_barriers {
            all.for_each(run);
            return Ok(());
        }
        // A unit that ran would wait for ever for one that has no thread.
        let gate = Gate::default();
        thread::scope(|scope| {
            let gate = &gate;
            let begun = all.map(|unit| {
                let unit = move || {
                    if gate.wait() {
                        run(unit);
                    }
                };
                thread::Builder::new().spawn_scoped(scope, unit).map(drop)
            });
            let begun = begun.collect::<io::Result<()>>();
            gate.open(begun.is_ok());
            begun
        })
    }
}

/// Where units wait until all have a thread.
#[derive(Default)]
struct Gate {
    /// Whether they run, once that is known.
    run: Mutex<Option<bool>>,
    opened: Condvar,
}

impl Gate {
    fn open(&self, run: bool) {
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = Some(run);
        self.opened.notify_all();
    }

    fn wait(&self) -> bool {
        let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match *run {
                Some(run) => return run,
                None => run = self.opened.wait(run).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// What all units of a launch are given.
#[derive(Clone, Copy)]
struct Shared<'a> {
    buffers: *mut *mut c_void,
    metadata: *mut u64,
    barriers: &'a [AtomicU32; BARRIER_WORDS],
}

// SAFETY: addresses; whoever launches vouches for what units do with them.
unsafe impl Send for Shared<'_> {}
// SAFETY: as above.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    /// Returns itself: a closure that calls it captures the whole, and not one pointer.
    fn get(&self) -> Shared<'a> {
        *self
    }
}
