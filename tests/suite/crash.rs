//! Reports of crashes in loaded code.

use std::ffi::{c_int, c_void};
use std::fmt::Write as _;
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use slabjit::crash::{self, AlternateStack};
use slabjit::{JitEngine, Library};

use crate::common::{self, ChildEnd, Int, child, child_with, compile, compile_bytes, freed, int, tests};
use crate::target::{self, by_qemu, not_under_qemu};

tests![
    each_signal_is_reported,
    the_processor_says_what_was_done,
    stale_calls_are_reported_with_their_remedy,
    engines_that_are_gone_are_known,
    crashes_in_libc_are_of_their_callers,
    calls_of_nothing_are_of_their_callers,
    host_functions_are_of_their_callers,
    handlers_are_of_what_they_interrupted,
    crashes_elsewhere_are_silent,
    without_install_nothing_is_written,
    handlers_from_before_are_called,
    handlers_have_their_masks,
    handlers_may_repair,
    handlers_are_called_once_if_they_say_so,
    defaults_end_the_process,
    what_is_ignored_is_ignored,
    overflows_are_reported_on_alternate_stacks,
    two_threads_report_one_after_the_other,
    reports_are_made_while_libraries_come_and_go,
    a_fault_in_a_report_ends_it,
    nothing_is_allocated,
    a_report_takes_a_millisecond;
    alone: installing_again_changes_nothing, alternate_stacks_come_and_go;
    parts: crash_fault_part, crash_stale_part, crash_gone_part, crash_elsewhere_part, crash_silent_part, crash_before_part,
        crash_mask_part, crash_repair_part, crash_once_part, crash_default_part, crash_ignored_part,
        crash_overflow_part, crash_threads_part, crash_busy_part, crash_nested_part, crash_allocation_part,
        crash_time_part,
];

/// Each `outer_…` calls something that crashes.
const KERNELS: &str = "
    #include <stddef.h>
    #include <signal.h>
    #define INNER __attribute__((noinline)) static int
    void *memset(void *, int, size_t); void host(void);
    volatile int zero; const int constant = 5; int (*volatile nothing)(void); char *volatile place;
    INNER reads(void) { return *(volatile int *)place; }
    INNER writes(void) { *(volatile int *)place = 1; return 0; }
    INNER writes_constant(void) { *(volatile int *)&constant = 1; return 0; }
    INNER executes(void) { ((void (*)(void))place)(); return 1; }
    INNER calls_nothing(void) { return nothing() + 1; }
    INNER illegal(void) { __asm__ volatile(ILLEGAL); return 0; }
    INNER breaks(void) { __asm__ volatile(BREAK); return 0; }
    INNER divides(void) { return DIVIDE; }
    INNER in_libc(void) { memset(place, 1, 100); return 0; }
    INNER in_host(void) { host(); return 1; }
    INNER raises(void) { raise(SIGUSR1); return 1; }
    INNER overflows(int n) { volatile char a[999]; a[n % 999] = n; return overflows(n + 1) + a[0]; }
    #define OUTER(f, ...) int outer_##f(void) { return f(__VA_ARGS__) + 1; }
    OUTER(reads) OUTER(writes) OUTER(writes_constant) OUTER(executes) OUTER(calls_nothing) OUTER(illegal)
    OUTER(breaks) OUTER(divides) OUTER(in_libc) OUTER(in_host) OUTER(raises) OUTER(overflows, 0)
    void set_place(void *p) { place = p; }
    int harmless(void) { volatile char a[4000]; a[zero] = 1; return a[zero]; }";

fn kernels() -> Vec<u8> {
    let defines: &[&str] = if cfg!(target_arch = "x86_64") {
        &["-DILLEGAL=\"ud2\"", "-DBREAK=\"int3\"", "-DDIVIDE=7 / zero"]
    } else {
        // Divisions do not trap there.
        &["-DILLEGAL=\"udf #0\"", "-DBREAK=\"brk #0\"", "-DDIVIDE=raise(SIGFPE)"]
    };
    compile_bytes("kernels.c", KERNELS, &[&["-fno-builtin"], defines].concat())
}

/// What `host` does.
static HOST: AtomicUsize = AtomicUsize::new(0);

extern "C" fn host() {
    match HOST.load(Ordering::Relaxed) {
        0 => fault(),
        // SAFETY: stored below.
        other => unsafe { std::mem::transmute::<usize, fn()>(other)() },
    }
}

fn read_nothing() {
    // SAFETY: none: it is to trap.
    unsafe { std::ptr::without_provenance::<u8>(16).read_volatile() };
}

#[inline(never)]
fn fault() {
    read_nothing();
}

fn load(engine: &JitEngine) -> Library {
    // SAFETY: it is void(void).
    let library = unsafe { engine.library("model").symbol("host", host as *const ()).build() }.unwrap();
    library.add_object_named("kernels.o", kernels()).unwrap();
    library
}

fn set_place(library: &Library, place: usize) {
    // SAFETY: it is void(void *).
    unsafe { library.get::<extern "C" fn(usize)>("set_place").unwrap()(place) };
}

/// Calls a kernel that is to crash.
fn run(library: &Library, name: &str) {
    // SAFETY: none: this is what is tested.
    unsafe { int(library, name)() };
}

fn action(signal: c_int, handler: usize, flags: c_int, mask: &[c_int]) {
    // SAFETY: the handlers here are of the type that the flags say.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        mask.iter().for_each(|signal| _ = libc::sigaddset(&raw mut action.sa_mask, *signal));
        assert_eq!(libc::sigaction(signal, &raw const action, null_mut()), 0);
    }
}

/// A page of a file that has no bytes.
fn behind_a_file() -> usize {
    let file = tempfile::tempfile().unwrap();
    let bytes = target::page_size();
    file.set_len(bytes as u64).unwrap();
    // SAFETY: a mapping of its own.
    let page = unsafe {
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        libc::mmap(null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, fd, 0)
    };
    assert_ne!(page, libc::MAP_FAILED);
    // qemu-user, with larger pages than the machine's, maps nothing behind a file's end.
    file.set_len(0).unwrap();
    page.expose_provenance()
}

const KERNEL: &str = "SLABJIT_TEST_KERNEL";
const PLACE: &str = "SLABJIT_TEST_PLACE";

fn crash_fault_part() {
    let kernel = std::env::var(KERNEL).unwrap();
    let place = match std::env::var(PLACE).as_deref() {
        Ok("file") => behind_a_file(),
        Ok("wild") => 1 << 63,
        Ok("data") => Box::leak(Box::new(0x90_u64)) as *mut u64 as usize,
        Ok("host") => host as *const () as usize,
        _ => 8,
    };
    extern "C" fn usr1(_: c_int) {
        fault();
    }
    action(libc::SIGUSR1, usr1 as *const () as usize, 0, &[]);
    // SAFETY: ends a process that hangs.
    unsafe { libc::alarm(by_qemu(20, 100) as u32) };
    crash::install();
    // It would go on to itself.
    crash::install();
    let library = load(&JitEngine::new().unwrap());
    set_place(&library, place);
    run(&library, &kernel);
}

fn faulted(kernel: &str, place: &str) -> ChildEnd {
    child_with("crash_fault_part", &[(KERNEL, kernel), (PLACE, place)])
}

/// The lines of a report.
fn lines(end: &ChildEnd) -> Vec<&str> {
    end.stderr.lines().filter_map(|line| line.strip_prefix("slabjit: ")).collect()
}

/// It ended by SIGSEGV without a word, but for qemu-user's.
#[track_caller]
fn assert_silent(end: &ChildEnd) {
    assert_eq!(end.signal, Some(libc::SIGSEGV), "{end:?}");
    assert!(end.stderr.lines().all(|line| line.starts_with("qemu: uncaught target signal")), "{end:?}");
}

#[track_caller]
fn assert_line(end: &ChildEnd, line: usize, parts: &[&str]) {
    let mut rest = lines(end).get(line).copied().unwrap_or_else(|| panic!("there is no line {line}: {end:?}"));
    for part in parts {
        rest = rest.split_once(part).unwrap_or_else(|| panic!("line {line} has no '{part}': {end:?}")).1;
    }
}

fn each_signal_is_reported() {
    let arch = cfg!(target_arch = "x86_64");
    for (kernel, place, signal, name) in [
        ("reads", "", libc::SIGSEGV, "SIGSEGV"),
        ("reads", "file", libc::SIGBUS, "SIGBUS"),
        ("illegal", "", libc::SIGILL, "SIGILL"),
        ("breaks", "", libc::SIGTRAP, "SIGTRAP"),
        ("divides", "", libc::SIGFPE, "SIGFPE"),
    ] {
        let end = faulted(&format!("outer_{kernel}"), place);
        assert_eq!(end.signal, Some(signal), "{end:?}");
        assert_line(&end, 0, &[&format!("{name} at 0x")]);
        if signal == libc::SIGFPE && !arch {
            assert_line(&end, 0, &["sent by process"]);
            continue;
        }
        assert_line(&end, 1, &["  in ", kernel, "+0x", ", object 'kernels.o' of library 'model' (generation "]);
        assert_line(&end, 2, &[&format!("  called from outer_{kernel}+0x"), ", object 'kernels.o' of library 'model'"]);
        assert_line(&end, 3, &["  called from the program+0x"]);
        assert!(!end.stderr.contains("perhaps"), "{end:?}");
    }
}

fn the_processor_says_what_was_done() {
    let knows = !not_under_qemu("it does not say what was done with an address");
    for (kernel, place, parts) in [
        ("reads", "", [", reading 0x8", ", where nothing is mapped"]),
        ("writes", "", [", writing 0x8", ", where nothing is mapped"]),
        ("writes_constant", "", [", writing 0x", ", which is protected"]),
        ("reads", "file", [", reading 0x", ", behind the end of a mapped file"]),
        ("executes", "", ["SIGSEGV at 0x8", ", where nothing is mapped"]),
        ("executes", "data", ["SIGSEGV at 0x", ", where no code is"]),
        ("divides", "", ["SIGFPE at 0x", ", integer division by zero"]),
        ("illegal", "", ["SIGILL at 0x", ", illegal instruction"]),
    ] {
        if kernel == "divides" && cfg!(target_arch = "aarch64") || !knows && place == "data" {
            continue;
        }
        let end = faulted(&format!("outer_{kernel}"), place);
        let all = knows || !parts[0].starts_with(',');
        assert_line(&end, 0, if all { &parts } else { &parts[1..] });
    }
    let end = faulted("outer_writes_constant", "");
    assert_line(
        &end,
        2,
        &["0x", " is in object 'kernels.o' of library 'model' (generation ", "offset 0x", " of its slab"],
    );
    if cfg!(target_arch = "x86_64") {
        assert_line(&faulted("outer_reads", "wild"), 0, &["an address that is not canonical"]);
    }
}

fn crash_stale_part() {
    crash::install();
    let engine = JitEngine::new().unwrap();
    let library = load(&engine);
    // SAFETY: what it is called for.
    let stale: Int = *int(&library, "outer_reads");
    freed(&library);
    // A kernel of another library calls it.
    HOST.store(stale as *const () as usize, Ordering::Relaxed);
    let other = load(&engine);
    run(&other, "outer_in_host");
}

fn stale_calls_are_reported_with_their_remedy() {
    let end = child("crash_stale_part");
    assert_eq!(end.signal, Some(common::stale_signal()), "{end:?}");
    assert_line(&end, 0, &[if common::packed() { " at 0x" } else { ", where no code is" }]);
    assert_line(&end, 1, &["  in outer_reads+0x0, object 'kernels.o' of library 'model' (generation 1)"]);
    assert_line(
        &end,
        2,
        &["the library was removed 0.", " s ago: a function pointer outlived its Symbol. Keep the Symbol"],
    );
    assert_line(&end, 3, &["  called from the program+0x"]);
    let rest = lines(&end)[4..].join("\n");
    assert!(rest.contains("  called from in_host+0x") && rest.contains("  called from outer_in_host+0x"), "{end:?}");
    assert!(!rest.contains("perhaps"), "{end:?}");
}

fn crash_gone_part() {
    crash::install();
    let engine = JitEngine::new().unwrap();
    let library = load(&engine);
    // SAFETY: what it is called for.
    let stale: Int = *int(&library, "outer_reads");
    drop((library, engine));
    // SAFETY: none: this is what is tested.
    unsafe { stale() };
}

fn engines_that_are_gone_are_known() {
    let end = child("crash_gone_part");
    assert_eq!(end.signal, Some(libc::SIGSEGV), "{end:?}");
    assert_line(&end, 1, &["  in 0x", ", in the arena of an engine that is gone"]);
    assert_line(&end, 2, &["its last library was removed, and the engine dropped, 0.", "Keep the Symbol"]);
    assert_line(&end, 3, &["  called from the program+0x"]);
}

fn crashes_in_libc_are_of_their_callers() {
    let end = faulted("outer_in_libc", "");
    assert_eq!(end.signal, Some(libc::SIGSEGV), "{end:?}");
    assert_line(&end, 1, &["  in ", "libc.so.6+0x"]);
    assert_line(&end, 2, &["  called from in_libc+0x"]);
    assert_line(&end, 3, &["  called from outer_in_libc+0x"]);
}

fn calls_of_nothing_are_of_their_callers() {
    let end = faulted("outer_calls_nothing", "");
    assert_line(&end, 0, &["SIGSEGV at 0x0, where nothing is mapped"]);
    assert_line(&end, 1, &["  in 0x0"]);
    assert_line(&end, 2, &["  called from calls_nothing+0x"]);
    assert_line(&end, 3, &["  called from outer_calls_nothing+0x"]);
}

fn host_functions_are_of_their_callers() {
    let end = faulted("outer_in_host", "");
    assert_line(&end, 1, &["  in the program+0x"]);
    let report = lines(&end).join("\n");
    assert!(report.contains("  called from in_host+0x") && !report.contains("perhaps"), "{end:?}");
}

fn handlers_are_of_what_they_interrupted() {
    let end = faulted("outer_raises", "");
    let report = lines(&end).join("\n");
    let (_, rest) = report.split_once("  in a signal handler that interrupted ").unwrap_or_else(|| panic!("{end:?}"));
    assert!(rest.contains("libc.so.6+0x") && rest.contains("  called from raises+0x"), "{end:?}");
}

/// Uninitialised memory, in which return addresses of earlier calls are.
#[inline(never)]
fn crash_in_a_large_frame() {
    let mut words = [const { std::mem::MaybeUninit::<usize>::uninit() }; 512];
    std::hint::black_box(&mut words);
    fault();
    std::hint::black_box(&mut words);
}

fn crash_elsewhere_part() {
    crash::install();
    let library = load(&JitEngine::new().unwrap());
    run(&library, "harmless");
    crash_in_a_large_frame();
}

fn crashes_elsewhere_are_silent() {
    let end = child("crash_elsewhere_part");
    assert_silent(&end);
}

fn crash_silent_part() {
    let library = load(&JitEngine::new().unwrap());
    run(&library, "outer_reads");
}

fn without_install_nothing_is_written() {
    let end = child("crash_silent_part");
    assert_silent(&end);
}

// ---- what was there before ----

/// A place for text that needs no memory.
#[derive(Default)]
struct Text(arrayvec::ArrayString<256>);

impl Text {
    fn say(text: std::fmt::Arguments<'_>) {
        let mut own = Self::default();
        let _ = own.0.write_fmt(text);
        // SAFETY: a plain call.
        unsafe { libc::write(1, own.0.as_ptr().cast(), own.0.len()) };
    }
}

extern "C" fn plain(signal: c_int) {
    Text::say(format_args!("plain {signal}"));
    // SAFETY: a plain call.
    unsafe { libc::_exit(43) };
}

extern "C" fn with_info(signal: c_int, info: *const libc::siginfo_t, context: *const libc::ucontext_t) {
    // SAFETY: a handler is given these.
    let (address, code, stack) = unsafe { ((*info).si_addr(), (*info).si_code, (*context).uc_stack.ss_size) };
    Text::say(format_args!("info {signal} {address:?} {code} {}", stack > 0));
    // SAFETY: a plain call.
    unsafe { libc::_exit(44) };
}

fn crash_before_part() {
    action(libc::SIGSEGV, with_info as *const () as usize, libc::SA_SIGINFO, &[]);
    action(libc::SIGILL, plain as *const () as usize, 0, &[]);
    crash_fault_part();
}

fn handlers_from_before_are_called() {
    for (kernel, place, code, stdout) in
        [("outer_illegal", "", 43, "plain 4"), ("outer_reads", "", 44, "info 11 0x8 1 true")]
    {
        let end = child_with("crash_before_part", &[(KERNEL, kernel), (PLACE, place)]);
        assert_eq!((end.code, end.stdout.as_str()), (Some(code), stdout), "{end:?}");
        assert_line(&end, 1, &["object 'kernels.o'"]);
    }
}

/// A page that a handler makes accessible.
static PAGE: AtomicUsize = AtomicUsize::new(0);
static CALLED: AtomicUsize = AtomicUsize::new(0);

fn protected_page() -> usize {
    // SAFETY: a mapping of its own.
    let page = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(null_mut(), 1 << 16, libc::PROT_NONE, flags, -1, 0)
    };
    PAGE.store(page.expose_provenance(), Ordering::Relaxed);
    page.expose_provenance()
}

fn protect(access: c_int) {
    let page = std::ptr::with_exposed_provenance_mut(PAGE.load(Ordering::Relaxed));
    // SAFETY: of `protected_page`.
    assert_eq!(unsafe { libc::mprotect(page, 1 << 16, access) }, 0);
}

fn blocked() -> Vec<c_int> {
    // SAFETY: plain calls.
    unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set);
        (1..32).filter(|signal| libc::sigismember(&raw const set, *signal) == 1).collect()
    }
}

extern "C" fn repair(_: c_int) {
    CALLED.fetch_add(1, Ordering::Relaxed);
    protect(libc::PROT_READ);
}

extern "C" fn repair_with_masks(_: c_int) {
    println!("{:?}", blocked());
    repair(0);
}

fn repaired(handler: usize, flags: c_int, mask: &[c_int], times: usize) {
    action(libc::SIGSEGV, handler, flags, mask);
    crash::install();
    let library = load(&JitEngine::new().unwrap());
    set_place(&library, protected_page());
    for time in 1..=times {
        protect(libc::PROT_NONE);
        // SAFETY: nothing of it crashes once the page can be read.
        assert_eq!(unsafe { int(&library, "outer_reads")() }, 1);
        assert_eq!(CALLED.load(Ordering::Relaxed), time);
    }
    println!("{:?}", blocked());
}

fn crash_mask_part() {
    // SAFETY: plain calls.
    unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::sigaddset(&raw mut set, libc::SIGUSR2);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, null_mut());
    }
    repaired(repair_with_masks as *const () as usize, 0, &[libc::SIGUSR1, libc::SIGILL], 1);
}

fn handlers_have_their_masks() {
    let end = child("crash_mask_part");
    assert_eq!((end.code, end.stdout.as_str()), (Some(0), "[4, 10, 11, 12]\n[12]\n"), "{end:?}");
}

fn crash_repair_part() {
    repaired(repair as *const () as usize, libc::SA_NODEFER, &[], 10);
}

fn handlers_may_repair() {
    let end = child("crash_repair_part");
    assert_eq!((end.code, end.stdout.as_str()), (Some(0), "[]\n"), "{end:?}");
    assert_eq!(end.stderr.matches("slabjit: SIGSEGV").count(), 10, "{end:?}");
}

fn crash_once_part() {
    repaired(repair as *const () as usize, libc::SA_RESETHAND, &[], 2);
}

fn handlers_are_called_once_if_they_say_so() {
    let end = child("crash_once_part");
    assert_eq!((end.signal, end.stdout.as_str()), (Some(libc::SIGSEGV), ""), "{end:?}");
    assert_eq!(end.stderr.matches("slabjit: SIGSEGV").count(), 2, "{end:?}");
}

/// The signals' actions, each by its number.
const ALL: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGTRAP, libc::SIGFPE];

fn crash_default_part() {
    ALL.iter().for_each(|signal| action(*signal, libc::SIG_DFL, 0, &[]));
    crash_fault_part();
}

fn crash_ignored_part() {
    ALL.iter().for_each(|signal| action(*signal, libc::SIG_IGN, 0, &[]));
    crash::install();
    for signal in ALL {
        // SAFETY: it is ignored.
        assert_eq!(unsafe { libc::raise(signal) }, 0);
    }
    println!("ignored");
    crash_fault_part();
}

fn each_ends_by_its_signal(part: &str, stdout: &str) {
    let faults = [("reads", "", libc::SIGSEGV), ("reads", "file", libc::SIGBUS), ("illegal", "", libc::SIGILL)];
    let more = [("breaks", "", libc::SIGTRAP), ("divides", "", libc::SIGFPE)];
    for (kernel, place, signal) in faults.into_iter().chain(more) {
        if kernel == "divides" && cfg!(target_arch = "aarch64") {
            continue;
        }
        let end = child_with(part, &[(KERNEL, &format!("outer_{kernel}")), (PLACE, place)]);
        assert_eq!((end.signal, end.stdout.as_str()), (Some(signal), stdout), "{end:?}");
        assert_line(&end, 1, &[kernel]);
        assert_eq!(end.stderr.matches("slabjit: SIG").count(), 1, "{end:?}");
    }
}

fn defaults_end_the_process() {
    each_ends_by_its_signal("crash_default_part", "");
}

fn what_is_ignored_is_ignored() {
    each_ends_by_its_signal("crash_ignored_part", "ignored\n");
}

fn installing_again_changes_nothing() {
    let now = || {
        ALL.map(|signal| {
            // SAFETY: plain old data, and a call with a place for its result.
            let action = unsafe {
                let mut action: libc::sigaction = zeroed();
                libc::sigaction(signal, std::ptr::null(), &raw mut action);
                action
            };
            (action.sa_sigaction, action.sa_flags)
        })
    };
    let before = now();
    thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(crash::install)));
    let installed = now();
    assert!(before.iter().zip(&installed).all(|(before, now)| before.0 != now.0), "{before:?} {installed:?}");
    crash::install();
    assert_eq!(now(), installed);
}

// ---- stacks ----

fn without_alternate_stack() {
    let none = libc::stack_t { ss_sp: null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
    // SAFETY: no handler runs. The thread does not end.
    assert_eq!(unsafe { libc::sigaltstack(&raw const none, null_mut()) }, 0);
}

fn crash_overflow_part() {
    crash::install();
    let library = load(&JitEngine::new().unwrap());
    let kind = std::env::var(KERNEL).unwrap();
    thread::spawn(move || {
        if kind != "std" {
            without_alternate_stack();
        }
        let _stack = (kind == "own").then(|| AlternateStack::of_this_thread().unwrap());
        run(&library, "outer_overflows");
    })
    .join()
    .unwrap();
}

fn overflows_are_reported_on_alternate_stacks() {
    for (kind, signal, reported) in
        [("std", libc::SIGABRT, true), ("own", libc::SIGABRT, true), ("none", libc::SIGSEGV, false)]
    {
        let end = child_with("crash_overflow_part", &[(KERNEL, kind)]);
        assert_eq!(end.signal, Some(signal), "{kind}: {end:?}");
        assert_eq!(end.stderr.contains("has overflowed its stack"), reported, "the standard library: {end:?}");
        assert_eq!(!lines(&end).is_empty(), reported, "{kind}: {end:?}");
        if reported {
            assert_line(&end, 1, &["  in overflows+0x"]);
            assert_line(&end, 2, &["the stack has probably overflowed"]);
            assert_line(&end, 3, &["  called from overflows+0x"]);
            assert_line(&end, 4, &["  … the same again and again"]);
        }
    }
}

fn alternate_stacks_come_and_go() {
    let now = || {
        // SAFETY: plain old data, and a call with a place for its result.
        unsafe {
            let mut now: libc::stack_t = zeroed();
            libc::sigaltstack(std::ptr::null(), &raw mut now);
            (now.ss_sp, now.ss_flags, now.ss_size)
        }
    };
    let given = now();
    drop(AlternateStack::of_this_thread().unwrap());
    assert_eq!(now(), given, "one that was there stays");
    thread::scope(|scope| {
        scope.spawn(|| {
            let std = now();
            without_alternate_stack();
            let before = common::mappings().len();
            let stack = AlternateStack::of_this_thread().unwrap();
            assert!(now().1 == 0 && now().2 >= 64 << 10, "{:?}", now());
            let kept = AlternateStack::of_this_thread().unwrap();
            drop(kept);
            assert_eq!(now().1, 0);
            drop(stack);
            assert_eq!(now().1, libc::SS_DISABLE);
            assert_eq!(common::mappings().len(), before);
            let std = libc::stack_t { ss_sp: std.0, ss_flags: std.1, ss_size: std.2 };
            // SAFETY: of the standard library.
            assert_eq!(unsafe { libc::sigaltstack(&raw const std, null_mut()) }, 0);
        });
    });
}

// ---- threads ----

fn crash_threads_part() {
    crash::install();
    let library = load(&JitEngine::new().unwrap());
    set_place(&library, 8);
    let together = Barrier::new(2);
    thread::scope(|scope| {
        for kernel in ["outer_reads", "outer_writes"] {
            let kernel = int(&library, kernel);
            let together = &together;
            scope.spawn(move || {
                together.wait();
                // SAFETY: none: this is what is tested.
                unsafe { kernel() };
            });
        }
    });
}

fn two_threads_report_one_after_the_other() {
    let mut both = 0;
    // On a busy machine, one thread mostly ends the process before the other runs.
    for tried in 0..400 {
        if tried >= by_qemu(20, 5) && both > 0 {
            break;
        }
        let end = child("crash_threads_part");
        assert_eq!(end.signal, Some(libc::SIGSEGV), "{end:?}");
        let lines = lines(&end);
        let starts: Vec<usize> = (0..lines.len()).filter(|i| lines[*i].starts_with("SIGSEGV")).collect();
        both += usize::from(starts.len() == 2);
        // One may have ended the process before the other crashed, or just when it did.
        for report in starts.iter().filter_map(|start| lines.get(start + 1..start + 3)) {
            let kernel = if report[0].contains("reads+") { "reads" } else { "writes" };
            assert!(report[0].contains(&format!("in {kernel}+0x")), "{end:?}");
            assert!(report[1].contains(&format!("called from outer_{kernel}+0x")), "{end:?}");
        }
    }
    assert!(both > 0, "two threads never reported");
}

fn crash_busy_part() {
    crash::install();
    let engine = JitEngine::new().unwrap();
    let library = load(&engine);
    set_place(&library, 8);
    let bytes = kernels();
    static BUSY: AtomicUsize = AtomicUsize::new(0);
    thread::scope(|scope| {
        for same in [false, true] {
            let (engine, bytes) = (&engine, &bytes);
            scope.spawn(move || {
                loop {
                    let own = JitEngine::builder().arena_size(8 << 20).build().unwrap();
                    let other = if same { engine.clone() } else { own };
                    // SAFETY: it is void(void).
                    let library = unsafe { other.library("other").symbol("host", host as *const ()).build() }.unwrap();
                    library.add_object(bytes).unwrap();
                    common::call(&library, "harmless");
                    freed(&library);
                    BUSY.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let start = Instant::now();
        while BUSY.load(Ordering::Relaxed) < 20 && start.elapsed() < Duration::from_secs(20) {
            thread::yield_now();
        }
        run(&library, "outer_in_libc");
    });
}

fn reports_are_made_while_libraries_come_and_go() {
    for _ in 0..by_qemu(10, 3) {
        let end = child("crash_busy_part");
        assert_eq!(end.signal, Some(libc::SIGSEGV), "{end:?}");
        assert_line(&end, 2, &["  called from in_libc+0x", "library 'model'"]);
    }
}

// ---- the report itself ----

/// A pipe that is full: a report waits for its reader.
static PIPE: OnceLock<[c_int; 2]> = OnceLock::new();
static READ: AtomicBool = AtomicBool::new(false);

extern "C" fn ends(signal: c_int) {
    // SAFETY: plain calls. The pipe's reader comes to its end.
    unsafe {
        libc::close(2);
        libc::close(PIPE.get().unwrap()[1]);
        while !READ.load(Ordering::Acquire) {
            libc::usleep(1000);
        }
        Text::say(format_args!("went on with {signal}"));
        libc::_exit(45);
    }
}

fn crash_nested_part() {
    action(libc::SIGFPE, ends as *const () as usize, 0, &[]);
    crash::install();
    let library = load(&JitEngine::new().unwrap());
    let mut pipe = [0; 2];
    // SAFETY: plain calls, with descriptors of this process.
    let thread = unsafe {
        assert_eq!(libc::pipe2(pipe.as_mut_ptr(), libc::O_NONBLOCK), 0);
        for bytes in [4096, 1] {
            while libc::write(pipe[1], [0_u8; 4096].as_ptr().cast(), bytes) > 0 {}
        }
        assert_eq!((libc::fcntl(pipe[0], libc::F_SETFL, 0), libc::fcntl(pipe[1], libc::F_SETFL, 0)), (0, 0));
        assert_eq!(libc::dup2(pipe[1], 2), 2);
        libc::pthread_self()
    };
    PIPE.set(pipe).unwrap();
    thread::spawn(move || {
        // The report has come to the pipe by then, also where two busy cores translate it.
        thread::sleep(Duration::from_millis(crate::target::by_qemu(300, 5000) as u64));
        // SAFETY: the thread does not end.
        unsafe { libc::pthread_kill(thread, libc::SIGSEGV) };
        // It is delivered before there is room.
        thread::sleep(Duration::from_millis(crate::target::by_qemu(200, 2000) as u64));
        let mut text = Vec::new();
        let mut bytes = [0_u8; 4096];
        // SAFETY: a plain call with a place for its result.
        while let read @ 1.. = unsafe { libc::read(pipe[0], bytes.as_mut_ptr().cast(), 4096) } {
            text.extend(bytes[..read as usize].iter().filter(|byte| **byte != 0));
        }
        println!("{}", String::from_utf8(text).unwrap());
        READ.store(true, Ordering::Release);
    });
    run(&library, "outer_divides");
}

fn a_fault_in_a_report_ends_it() {
    let end = child("crash_nested_part");
    assert_eq!(end.code, Some(45), "{end:?}");
    let expected = "slabjit:   the report ends here, as it has faulted itself\n\nwent on with 8";
    assert_eq!(end.stdout, expected, "{end:?}");
}

/// Counts calls of malloc's functions, and ends the process where one is made while none may be.
const COUNTER: &str = "
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <stddef.h>
    #include <unistd.h>
    unsigned long allocations; int forbidden;
    extern void *__libc_malloc(size_t); extern void *__libc_calloc(size_t, size_t);
    extern void *__libc_realloc(void *, size_t); extern void __libc_free(void *);
    static void count(void) { allocations++; if (forbidden) _exit(99); }
    void *malloc(size_t n) { count(); return __libc_malloc(n); }
    void *calloc(size_t n, size_t m) { count(); return __libc_calloc(n, m); }
    void *realloc(void *p, size_t n) { count(); return __libc_realloc(p, n); }
    void free(void *p) { count(); __libc_free(p); }";

fn counter(name: &std::ffi::CStr) -> *mut c_void {
    // SAFETY: a plain call.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

static COUNT: OnceLock<(usize, u64)> = OnceLock::new();

extern "C" fn tell_count(_: c_int) {
    let (place, before) = *COUNT.get().unwrap();
    // SAFETY: of COUNTER.
    let now = unsafe { std::ptr::with_exposed_provenance::<u64>(place).read_volatile() };
    Text::say(format_args!("{} allocations", now - before));
    // SAFETY: a plain call.
    unsafe { libc::_exit(46) };
}

fn crash_allocation_part() {
    let (allocations, forbidden) = (counter(c"allocations").cast::<u64>(), counter(c"forbidden").cast::<c_int>());
    assert!(!allocations.is_null() && !forbidden.is_null());
    for signal in ALL {
        action(signal, tell_count as *const () as usize, 0, &[]);
    }
    crash::install();
    let engine = JitEngine::new().unwrap();
    let library = load(&engine);
    let kernel = int(&library, &std::env::var(KERNEL).unwrap());
    set_place(&library, 8);
    // SAFETY: of COUNTER.
    unsafe {
        assert!(allocations.read() > 0, "nothing is counted");
        COUNT.set((allocations.expose_provenance(), allocations.read())).unwrap();
        let stale: Int = *kernel;
        if std::env::var_os(PLACE).is_some() {
            drop(kernel);
            drop(library);
            allocations.write(COUNT.get().unwrap().1);
        }
        forbidden.write_volatile(1);
        stale();
    }
}

fn nothing_is_allocated() {
    if not_under_qemu("it would preload the counter itself") {
        return;
    }
    let object = compile("counter.c", COUNTER, &["-fno-builtin"]);
    let counter = common::link_shared("libcounter.so", &[&object], &[]);
    let counter = ("LD_PRELOAD", counter.to_str().unwrap());
    for environment in [
        &[counter, (KERNEL, "outer_in_libc")][..],
        &[counter, (KERNEL, "outer_in_host")],
        &[counter, (KERNEL, "outer_breaks")],
        &[counter, (KERNEL, "outer_reads"), (PLACE, "stale")],
    ] {
        let end = child_with("crash_allocation_part", environment);
        assert_eq!((end.code, end.stdout.as_str()), (Some(46), "0 allocations"), "{end:?}");
        assert!(lines(&end).len() > 2, "{end:?}");
    }
}

static START: AtomicU64 = AtomicU64::new(0);
static BEST: AtomicU64 = AtomicU64::new(u64::MAX);

fn now() -> u64 {
    // SAFETY: plain old data, and a call with a place for its result.
    unsafe {
        let mut time: libc::timespec = zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

extern "C" fn repair_and_tell(_: c_int) {
    BEST.fetch_min(now() - START.load(Ordering::Relaxed), Ordering::Relaxed);
    repair(0);
}

fn crash_time_part() {
    action(libc::SIGSEGV, repair_and_tell as *const () as usize, libc::SA_NODEFER, &[]);
    crash::install();
    let engine = JitEngine::new().unwrap();
    // Others, through whose records it looks, and whose tables are long.
    let others: Vec<_> = (0..200).map(|_| load(&engine)).inspect(|other| drop(int(other, "harmless"))).collect();
    let mut many = String::new();
    (0..2000).for_each(|i| writeln!(many, "int f{i}(int x) {{ return x + {i}; }}").unwrap());
    let many = engine.add_object(compile_bytes(
        "many.c",
        &format!("{many}{KERNELS}"),
        &["-fno-builtin", "-DILLEGAL=\"\"", "-DBREAK=\"\"", "-DDIVIDE=0", "-Dhost=abort"],
    ));
    let many = many.unwrap();
    set_place(&many, protected_page());
    let kernel = int(&many, "outer_reads");
    for _ in 0..20 {
        protect(libc::PROT_NONE);
        START.store(now(), Ordering::Relaxed);
        // SAFETY: nothing of it crashes once the page can be read.
        assert_eq!(unsafe { kernel() }, 1);
    }
    drop(others);
    println!("{}", BEST.load(Ordering::Relaxed));
}

fn a_report_takes_a_millisecond() {
    let end = child("crash_time_part");
    let nanoseconds: u64 = end.stdout.trim().parse().unwrap_or_else(|_| panic!("{end:?}"));
    println!("a report of {} lines took {} µs", lines(&end).len() / 20, nanoseconds / 1000);
    assert_eq!(end.stderr.matches("slabjit: SIGSEGV").count(), 20, "{end:?}");
    let limit = if crate::target::under_valgrind() { 1000 } else { by_qemu(1, 50) as u64 };
    assert!(nanoseconds <= limit * 1_000_000, "{nanoseconds} ns");
}
