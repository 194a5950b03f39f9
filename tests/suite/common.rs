//! What the integration tests share: compilers, the state of the process, and a small test runner.
//!
//! Every test is a plain function in a table, so that `shuffled.rs` can run all tables in one process.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use slabjit::{JitEngine, JitEngineBuilder, Library, Removal, SlabLayout, Symbol};

use crate::{case, target};

// ---- running tests ----

/// One test.
#[derive(Clone, Copy)]
pub struct Test {
    /// Its name, unique over all tables.
    pub name: &'static str,
    /// The test itself; it panics when it fails.
    pub run: fn(),
    /// It measures, changes or forks the process as a whole, or ends it, and gets one of its own.
    pub alone: bool,
}

/// What a test runs in a process of its own.
pub type Part = (&'static str, fn());

/// A table of tests: `tests![a, b; alone: c, d; parts: e]`. Parts are no tests; tests start them with [`child`].
macro_rules! tests {
    ($($name:ident),* $(,)? $(; alone: $($alone:ident),* $(,)?)? $(; parts: $($part:ident),* $(,)?)?) => {
        /// The tests of this file.
        pub const TESTS: &[$crate::common::Test] = &[
            $($crate::common::Test { name: stringify!($name), run: $name, alone: false },)*
            $($($crate::common::Test { name: stringify!($alone), run: $alone, alone: true },)*)?
        ];
        /// What its tests run in processes of their own.
        pub const PARTS: &[$crate::common::Part] = &[$($((stringify!($part), $part as fn()),)*)?];
    };
}

pub(crate) use tests;

/// Set in a process that was started for one test or one part of a test.
const CHILD: &str = "SLABJIT_TEST_CHILD";

/// As a test of libtest-mimic's.
pub fn trial(table: &str, test: Test) -> libtest_mimic::Trial {
    libtest_mimic::Trial::test(format!("{table}::{}", test.name), move || run(test))
}

/// If this process was started for one test or part, runs that.
pub fn run_as_child() -> bool {
    let Ok(name) = std::env::var(CHILD) else { return false };
    let tests = crate::TABLES.iter().flat_map(|(_, tests, _)| *tests).map(|t| (t.name, t.run));
    let parts = crate::TABLES.iter().flat_map(|(_, _, parts)| *parts).copied();
    let (_, run) =
        tests.chain(parts).find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no test or part is called '{name}'"));
    run();
    remove_temporary_files();
    true
}

/// Runs one test, in a process of its own if it asks for that.
pub fn run(test: Test) -> Result<(), libtest_mimic::Failed> {
    if test.alone {
        let end = child(test.name);
        if end.code != Some(0) {
            return Err(format!("{end:?}").into());
        }
    } else {
        (test.run)();
    }
    Ok(())
}

/// How a child process ended, and what it wrote.
#[derive(Debug)]
pub struct ChildEnd {
    /// Its exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    #[cfg_attr(not(feature = "inkwell"), allow(dead_code, reason = "shown by Debug"))]
    pub stderr: String,
}

/// Runs a part, or a test, in a new process.
pub fn child(name: &str) -> ChildEnd {
    child_with(name, &[])
}

/// Runs a part in a new process with further environment variables.
pub fn child_with(name: &str, environment: &[(&str, &str)]) -> ChildEnd {
    let output = output(child_command(name).envs(environment.iter().copied()));
    ChildEnd {
        code: output.status.code(),
        signal: output.status.signal(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Returns how long a process may take: one that hangs must not hang the suite. One that a test's process starts may
/// take less, so that it is named.
fn time_of_process() -> Duration {
    let limit = Duration::from_secs(if std::env::var_os(CHILD).is_some() { 900 } else { 1200 });
    if target::under_valgrind() { limit * 10 } else { limit }
}

/// Runs a process to its end. Children that it leaves behind are killed: one that hangs keeps the pipes open, and would
/// be waited for.
fn output(command: &mut Command) -> Output {
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn().unwrap();
    let id = Pid::from_child(&child);
    let ((ended, wait), limit) = (mpsc::channel(), time_of_process());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // It is left for the other thread to wait for, so that its number is nobody else's.
            if waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).is_ok() {
                let _ = ended.send(());
            }
        });
        let late = scope.spawn(move || {
            let end = wait.recv_timeout(limit);
            if end != Err(RecvTimeoutError::Disconnected) {
                let _ = kill_process_group(id, Signal::KILL);
            }
            end == Err(RecvTimeoutError::Timeout)
        });
        let mut output = child.wait_with_output().unwrap();
        if late.join().unwrap() {
            output.stderr.extend_from_slice(format!("\nkilled: it had not ended after {limit:?}\n").as_bytes());
        }
        output
    })
}

/// What starts a process for a part.
pub fn child_command(name: &str) -> Command {
    let mut command = target::run(std::env::current_exe().unwrap());
    // A process that ends early does not remove its files; this one does.
    command.env(CHILD, name).env("RUST_BACKTRACE", "0").env("TMPDIR", temporary());
    command
}

/// Returns the version of the C library: major and minor.
pub fn glibc() -> (u32, u32) {
    // SAFETY: it returns a string that lasts.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) }.to_str().unwrap();
    let (major, minor) = version.split_once('.').unwrap();
    (major.parse().unwrap(), minor.parse().unwrap())
}

/// How long this thread has run.
pub fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock is one, and it writes to `time`.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Fails the test if `f` does not return in time: a deadlock must not hang the suite.
pub fn within(limit: Duration, what: &str, f: impl FnOnce() + Send + 'static) {
    // Under qemu-user every instruction costs some twenty; and under valgrind.
    let limit = if cfg!(target_arch = "aarch64") || target::under_valgrind() { limit * 10 } else { limit };
    let (done, wait) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        f();
        let _ = done.send(());
    });
    match wait.recv_timeout(limit) {
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        Err(RecvTimeoutError::Timeout) => panic!("{what}: not done after {limit:?}"),
    }
}

// ---- the state of the process ----

/// One line of /proc/self/maps.
#[derive(Debug, Clone)]
pub struct Mapping {
    pub start: usize,
    pub end: usize,
    /// Such as `r-xp`.
    pub permissions: String,
    /// The file mapped, or a name in brackets, or nothing.
    pub name: String,
}

/// Every mapping of this process. Without the `x` of `r-x` under qemu-user, which shows neighbours that are `r-x` and
/// `r--` as one, with the access of the first: neither is executable for the host.
pub fn mappings() -> Vec<Mapping> {
    let text = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapping = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next().unwrap().split_once('-').unwrap();
        Mapping {
            start: usize::from_str_radix(start, 16).unwrap(),
            end: usize::from_str_radix(end, 16).unwrap(),
            permissions: as_shown(fields.next().unwrap()).to_owned(),
            name: fields.skip(3).collect::<Vec<_>>().join(" "),
        }
    };
    text.lines().map(mapping).collect()
}

/// What [`mappings`] has for some permissions.
pub fn as_shown(permissions: &str) -> &str {
    match permissions {
        "r-xp" if target::under_qemu() => "r--p",
        "r-xs" if target::under_qemu() => "r--s",
        "r-x" if target::under_qemu() => "r--",
        _ => permissions,
    }
}

/// The mapping at an address.
pub fn mapping_at(address: usize) -> Mapping {
    let found = mappings().into_iter().find(|m| (m.start..m.end).contains(&address));
    found.unwrap_or_else(|| panic!("nothing is mapped at {address:#x}"))
}

/// No mapping is writable and executable. (What `ld -shared` made of two `.text` sections is not ours: see `case`.)
#[track_caller]
pub fn assert_no_rwx() {
    // Its own memory is, and shows.
    if target::under_valgrind() {
        return;
    }
    for m in mappings() {
        let rwx = m.permissions.contains('w') && m.permissions.contains('x');
        assert!(!rwx || m.name.contains(case::ORACLE), "writable and executable: {m:x?}");
    }
}

/// Resident bytes of this process that belong to it alone (files excluded).
pub fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).expect("RssAnon in /proc/self/status");
    line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() * 1024
}

/// Open file descriptors.
pub fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Bytes of address space that RLIMIT_AS counts.
pub fn virtual_size() -> u64 {
    mappings().iter().filter(|m| m.name != "[vsyscall]").map(|m| (m.end - m.start) as u64).sum()
}

/// Sets a limit of this process, which is to be alone, and returns the one before.
pub fn limit(resource: libc::__rlimit_resource_t, to: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain calls with a place for their result.
    unsafe {
        assert_eq!(libc::getrlimit(resource, &raw mut limit), 0);
        let before = std::mem::replace(&mut limit.rlim_cur, to);
        assert_eq!(libc::setrlimit(resource, &raw const limit), 0);
        before
    }
}

/// What this thread mounts from now on, only this process sees. It is to be alone.
pub fn mount_alone() -> std::io::Result<()> {
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: a plain call, and one with strings that end with NUL.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(c"/".as_ptr(), c"/".as_ptr(), std::ptr::null(), private, std::ptr::null()) == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Mounts memory as a disk.
pub fn mount(folder: &Path, flags: libc::c_ulong, options: &CStr) -> std::io::Result<()> {
    let folder = CString::new(folder.as_os_str().as_bytes()).unwrap();
    let kind = c"tmpfs".as_ptr();
    // SAFETY: the strings end with NUL.
    let result = unsafe { libc::mount(kind, folder.as_ptr(), kind, flags, options.as_ptr().cast()) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

// ---- engines ----

/// An engine whose statistics have to be what they were when it was new.
pub struct Checked {
    engine: JitEngine,
    start: slabjit::EngineStats,
}

/// Whether engines pack objects if nothing else is asked for: the suite runs with both layouts.
pub fn packed() -> bool {
    cfg!(slabjit_faults) && std::env::var_os("SLABJIT_TEST_LAYOUT").is_some_and(|layout| layout == "packed")
}

/// For what is true of one layout only.
pub fn per_object() -> JitEngineBuilder {
    JitEngine::builder().slab_layout(SlabLayout::PerObject)
}

/// Where code stopped that ran into a trap.
///
/// # Safety
/// What a signal handler is given as its third argument, of SIGTRAP on x86-64 or SIGILL on AArch64.
pub unsafe fn trapped_at(context: *const libc::c_void) -> *mut libc::c_void {
    // SAFETY: by the caller.
    let context = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
    // `int3` has one byte, and was run.
    #[cfg(target_arch = "x86_64")]
    let address = context.gregs[libc::REG_RIP as usize] as usize - 1;
    #[cfg(target_arch = "aarch64")]
    let address = context.pc as usize;
    std::ptr::with_exposed_provenance_mut(address)
}

/// Something that is packed, so that mappings and descriptors of what is packed are there as long as it is.
pub fn something_packed(engine: &JitEngine) -> Option<Library> {
    packed().then(|| {
        let library = engine.add_object_file(good_object()).unwrap();
        int(&library, "text");
        library
    })
}

/// The signal of a call of code that was removed: pages that are gone, or a trap in the place of code that others are
/// next to.
pub fn stale_signal() -> i32 {
    match packed() {
        false => libc::SIGSEGV,
        true if cfg!(target_arch = "aarch64") => libc::SIGILL,
        true => libc::SIGTRAP,
    }
}

impl Checked {
    /// A new engine with defaults.
    pub fn new() -> Self {
        Self::of(JitEngine::new().unwrap())
    }

    /// A new engine for a single case. qemu-user 7.2 keeps 32 bytes for every page that was ever mapped, accessible or
    /// not, so that the usual arena would cost it 16 MiB each time.
    pub fn for_a_case() -> Self {
        if target::under_qemu() {
            Self::of(JitEngine::builder().arena_size(64 << 20).build().unwrap())
        } else {
            Self::new()
        }
    }

    /// An engine that was just made.
    pub fn of(engine: JitEngine) -> Self {
        let start = engine.stats();
        Self { engine, start }
    }

    /// `stats()` is what it was at the start.
    #[track_caller]
    pub fn assert_unchanged(&self) {
        let mut now = self.engine.stats();
        // What was removed rests.
        now.arena.quarantined_bytes = self.start.arena.quarantined_bytes;
        now.arena.warm_bytes = self.start.arena.warm_bytes;
        // Known when something is packed.
        now.arena.packed = self.start.arena.packed;
        assert_eq!(now, self.start, "stats() is not back to its start");
    }

    /// The engine still loads, runs and frees a good object.
    #[track_caller]
    pub fn assert_usable(&self) {
        let library = self.engine.add_object_file(good_object()).unwrap();
        // SAFETY: good_object's `add` takes and returns int, and runs nothing else.
        let sum = unsafe { library.get::<extern "C" fn(i32, i32) -> i32>("add").unwrap()(40, 2) };
        assert_eq!(sum, 42);
        freed(&library);
    }

    /// The end of a test: nothing is left, nothing is writable and executable.
    #[track_caller]
    pub fn finish(self) {
        self.assert_unchanged();
        assert_no_rwx();
    }
}

impl std::ops::Deref for Checked {
    type Target = JitEngine;
    fn deref(&self) -> &JitEngine {
        &self.engine
    }
}

/// A function of linked code that takes nothing.
pub type Int = unsafe extern "C" fn() -> i32;

/// Such a function, for tests all of whose functions that are asked for so are `int (void)`.
#[track_caller]
pub fn int(library: &Library, name: &str) -> Symbol<Int> {
    // SAFETY: by the test, which has compiled it.
    unsafe { library.get(name).unwrap() }
}

/// What such a function returns.
#[track_caller]
pub fn call(library: &Library, name: &str) -> i32 {
    // SAFETY: as above.
    unsafe { int(library, name)() }
}

/// Removes a library that nothing else holds.
#[track_caller]
pub fn freed(library: &Library) {
    assert_eq!(library.remove(), Removal::Freed);
}

/// A small object: `int add(int, int)`, a string, data and `.bss`.
pub fn good_object() -> PathBuf {
    compile(
        "good.c",
        "int counter = 1; int zero[100]; const char *text(void) { return \"text\"; }
         int add(int a, int b) { zero[3] += counter; return a + b; }",
        &[],
    )
}

// ---- compilers ----

static TEMPORARY: OnceLock<Mutex<Option<tempfile::TempDir>>> = OnceLock::new();

/// A folder for the files of this process, removed at its end.
pub fn temporary() -> PathBuf {
    let folder =
        TEMPORARY.get_or_init(|| Mutex::new(Some(tempfile::Builder::new().prefix("slabjit-").tempdir().unwrap())));
    folder.lock().unwrap().as_ref().unwrap().path().to_owned()
}

/// At the end of the process.
pub fn remove_temporary_files() {
    if let Some(folder) = TEMPORARY.get() {
        drop(folder.lock().unwrap().take());
    }
}

/// Runs a tool, and panics with its words if it fails.
#[track_caller]
pub fn tool<S: AsRef<std::ffi::OsStr>>(program: &str, arguments: &[S]) -> String {
    let output = target::tool_command(program).args(arguments).output();
    let output = output.unwrap_or_else(|e| panic!("cannot run {program} ({e}); ci/test installs what the tests need"));
    let shown = || arguments.iter().map(|a| a.as_ref().to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ");
    assert!(output.status.success(), "{program} {} failed:\n{}", shown(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Made at most once for each key, also when threads ask at the same time.
#[track_caller]
pub fn once_per(key: &[&str], extension: &str, make: impl FnOnce(&Path)) -> PathBuf {
    static CACHE: LazyLock<Mutex<HashMap<String, Arc<OnceLock<PathBuf>>>>> = LazyLock::new(Default::default);
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let slot = CACHE.lock().unwrap().entry(key.join("\0")).or_default().clone();
    let path = slot.get_or_init(|| {
        let path = temporary().join(format!("{}.{extension}", COUNT.fetch_add(1, Ordering::Relaxed)));
        make(&path);
        path
    });
    path.clone()
}

/// Compiles C, C++ or assembly with gcc at -O1, position independent; the kind is told by the name's extension, and the
/// object is called after it.
#[track_caller]
pub fn compile(name: &str, source: &str, flags: &[&str]) -> PathBuf {
    compile_with("gcc", name, source, flags)
}

/// The same with another compiler.
#[track_caller]
pub fn compile_with(compiler: &str, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let folder = once_per(&[compiler, name, source, &flags.join(" ")], "d", |folder| {
        std::fs::create_dir(folder).unwrap();
        let input = folder.join(name);
        std::fs::write(&input, source).unwrap();
        let mut arguments: Vec<OsString> = ["-c", "-O1", "-fPIC", "-w"].map(OsString::from).to_vec();
        arguments.extend(flags.iter().map(OsString::from));
        arguments.extend(["-o".into(), object_name(folder, name).into(), input.into()]);
        tool(compiler, &arguments);
    });
    object_name(&folder, name)
}

fn object_name(folder: &Path, source: &str) -> PathBuf {
    folder.join(source).with_extension("o")
}

/// The bytes of what [`compile`] made.
#[track_caller]
pub fn compile_bytes(name: &str, source: &str, flags: &[&str]) -> Vec<u8> {
    std::fs::read(compile(name, source, flags)).unwrap()
}

/// Links objects into a shared library.
#[track_caller]
pub fn link_shared(name: &str, objects: &[&Path], flags: &[&str]) -> PathBuf {
    let paths = objects.iter().map(|o| o.to_string_lossy()).collect::<Vec<_>>();
    let folder = once_per(&["shared", name, &paths.join(" "), &flags.join(" ")], "d", |folder| {
        std::fs::create_dir(folder).unwrap();
        let mut arguments: Vec<OsString> = vec!["-shared".into(), "-o".into(), folder.join(name).into()];
        arguments.extend(objects.iter().map(OsString::from));
        arguments.extend(flags.iter().map(OsString::from));
        tool("gcc", &arguments);
    });
    folder.join(name)
}

/// A random number generator that needs nothing: xorshift64*.
pub struct Random(u64);

impl Random {
    /// From a seed; 0 is as good as any other.
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }

    /// In random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}
