//! A file in the format of `perf` (tools/perf/Documentation/jitdump-specification.txt). It has the code of loaded
//! functions and the time of each, so that `perf inject --jit` knows what was where when a sample was taken.
#![allow(unsafe_code, reason = "a mapping by which perf finds the file, and code that is copied")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::time::{ClockId, clock_gettime};

use crate::elf::HOST_MACHINE;
use crate::fork_guard::{self, Mutex};
use crate::functions::{Function, FunctionSlice};
use crate::{Error, Result};

/// "JiTD"
const MAGIC: u32 = 0x4a69_5444;
const HEADER: u32 = 40;
/// Bytes of a record before its content, and of that of `JIT_CODE_LOAD` before the function's name.
const PREFIX: usize = 16;
const LOAD: usize = 40;
const JIT_CODE_LOAD: u32 = 0;

/// Whether there is a file.
static IS_OPEN: AtomicBool = AtomicBool::new(false);
static DUMP: Mutex<Option<Dump>> = Mutex::new(None);

struct Dump {
    file: File,
    path: PathBuf,
    /// Number of functions so far.
    functions: u64,
    /// The process that writes it.
    generation: u32,
}

/// Begins to write the functions of all engines that are loaded from now on to `jit-PID.dump` in a folder, for `perf`,
/// and returns the file. It stays when the process ends; with its code it is as secret as the program. The second call
/// changes nothing.
///
/// ```text
/// perf record -k CLOCK_MONOTONIC PROGRAM
/// perf inject --jit -i perf.data -o perf.jit.data
/// perf report -i perf.jit.data
/// ```
///
/// Each function has its time, so code at addresses that are used again has its own name. A child of `fork` writes
/// nothing. If the file cannot be written any more, an error event is traced, and it ends there.
///
/// # Errors
/// [`Error::Io`] if the file cannot be made.
pub fn write_jitdump(folder: impl AsRef<Path>) -> Result<PathBuf> {
    let mut dump = DUMP.lock();
    if let Some(dump) = dump.as_ref().filter(|dump| dump.generation == fork_guard::generation()) {
        return Ok(dump.path.clone());
    }
    let path = folder.as_ref().join(format!("jit-{}.dump", std::process::id()));
    let file = create(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
    *dump = Some(Dump { file, path: path.clone(), functions: 0, generation: fork_guard::generation() });
    IS_OPEN.store(true, Ordering::Release);
    Ok(path)
}

fn create(path: &Path) -> io::Result<File> {
    // Of an earlier process of this number.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    let mut header = Vec::with_capacity(HEADER as usize);
    for word in [MAGIC, 1, HEADER, HOST_MACHINE.into(), 0, std::process::id()] {
        header.extend(word.to_ne_bytes());
    }
    header.extend(now().to_ne_bytes());
    header.extend(0_u64.to_ne_bytes());
    file.write_all(&header)?;
    // perf finds the file by this mapping, which stays.
    // SAFETY: a new mapping of a file, which nobody reads.
    unsafe { mmap(ptr::null_mut(), HEADER as usize, ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE, &file, 0)? };
    Ok(file)
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Writes the functions of an object, if somebody wants it.
///
/// # Safety
/// Their code is there, and stays meanwhile.
pub(crate) unsafe fn record(functions: FunctionSlice<'_, '_>) {
    if !IS_OPEN.load(Ordering::Acquire) {
        return;
    }
    let mut dump = DUMP.lock();
    let Some(open) = dump.as_mut().filter(|dump| dump.generation == fork_guard::generation()) else { return };
    // SAFETY: by the caller.
    if let Err(error) = functions.iter().try_for_each(|function| unsafe { open.write(&function) }) {
        tracing::error!(target: "slabjit", path = %open.path.display(), %error, "the file for perf ends here");
        IS_OPEN.store(false, Ordering::Release);
    }
}

impl Dump {
    /// # Safety
    /// The function's code is there, and stays meanwhile.
    unsafe fn write(&mut self, function: &Function<'_>) -> io::Result<()> {
        let (address, bytes) = (function.address, function.bytes as usize);
        let total = PREFIX + LOAD + function.name.len() + 1 + bytes;
        let mut record = Vec::with_capacity(total);
        record.extend(JIT_CODE_LOAD.to_ne_bytes());
        record.extend(u32::try_from(total).unwrap_or(u32::MAX).to_ne_bytes());
        record.extend(now().to_ne_bytes());
        for word in [std::process::id(), rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()] {
            record.extend(word.to_ne_bytes());
        }
        for long in [address, address, bytes as u64, self.functions] {
            record.extend(long.to_ne_bytes());
        }
        record.extend(function.name.as_bytes());
        record.push(0);
        // SAFETY: by the caller.
        record.extend(unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance(address as usize), bytes) });
        self.functions += 1;
        self.file.write_all(&record)
    }
}
