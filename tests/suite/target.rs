//! What depends on the architecture that the tests are built for, and on whether this machine has it or qemu-user plays
//! it.
//!
//! `ci/aarch64` sets two variables where the tests are built for another architecture than the machine's:
//! `SLABJIT_TEST_CROSS`, the GNU name of the target, by which its tools are called, and `SLABJIT_TEST_RUNNER`, what
//! starts its programs.

use std::ffi::OsStr;
use std::process::Command;

/// As directives spell it.
pub const ARCH: &str = std::env::consts::ARCH;

/// One of two texts: assembly, mostly.
pub const fn by_arch<T: Copy>(x86_64: T, aarch64: T) -> T {
    if cfg!(target_arch = "x86_64") { x86_64 } else { aarch64 }
}

/// A tool of the target: the compilers, binutils and LLVM's code generators by their usual names.
pub fn tool_command(program: &str) -> Command {
    let Ok(cross) = std::env::var("SLABJIT_TEST_CROSS") else { return Command::new(program) };
    match program.split('-').next() {
        Some("gcc" | "g++" | "ld" | "ar" | "objcopy" | "strip") => Command::new(format!("{cross}-{program}")),
        Some("clang") => with_argument(program, &format!("--target={cross}")),
        Some("llc") => with_argument(program, &format!("-mtriple={cross}")),
        _ => Command::new(program),
    }
}

fn with_argument(program: &str, argument: &str) -> Command {
    let mut command = Command::new(program);
    command.arg(argument);
    command
}

/// A program that was built for the target, such as this one.
pub fn run(program: impl AsRef<OsStr>) -> Command {
    match std::env::var_os("SLABJIT_TEST_RUNNER") {
        Some(runner) => {
            let mut command = Command::new(runner);
            command.arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// True if this process runs under qemu-user.
pub fn under_qemu() -> bool {
    std::env::var_os("SLABJIT_TEST_RUNNER").is_some()
}

/// True if this process runs under qemu-user; then says that a test, or a part of one, is not run, and why.
pub fn not_under_qemu(why: &str) -> bool {
    if under_qemu() {
        println!("not run under qemu-user: {why}");
    }
    under_qemu()
}

/// True if this process runs under valgrind: `ci/valgrind` says so.
pub fn under_valgrind() -> bool {
    std::env::var_os("SLABJIT_TEST_VALGRIND").is_some()
}

/// Bytes of a page, as this process is told.
pub fn page_size() -> usize {
    // SAFETY: a plain call.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap()
}

/// True if qemu-user plays pages larger than the machine's; then says that a test, or a part of one, is not run, and
/// why.
pub fn not_with_large_pages_of_qemu(why: &str) -> bool {
    let large = under_qemu() && page_size() > 4096;
    if large {
        println!("not run under qemu-user with large pages: {why}");
    }
    large
}

/// Tests at a time under qemu-user: 7.2 now and then hangs in a process that it forks while other threads are busy, in
/// a lock of its own C library, and tests run compilers. So the only threads are those that tests make.
pub const QEMU_THREADS: usize = 1;

/// How often something is done: natively, and under qemu-user, where it takes twenty times as long.
pub fn by_qemu(native: usize, emulated: usize) -> usize {
    if under_qemu() { emulated } else { native }
}

/// True if the tests are built for AArch64; then says that a test is not run, and why.
pub fn only_on_x86_64(why: &str) -> bool {
    if ARCH != "x86_64" {
        println!("not run on {ARCH}: {why}");
    }
    ARCH != "x86_64"
}
