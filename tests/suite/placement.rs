//! Where the arena lies: the promise of each placement, held against /proc/self/maps and against code that works only
//! there; and what is said when the place cannot be had.

use std::ops::Range;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::blocker::{self, SMALLEST_ARENA, furthest, keep_away, nearest, occupy};
use crate::common::{self, Checked, compile, compile_bytes, compile_with, freed, link_shared, temporary, tool};
use crate::target::{not_under_qemu, page_size};
use slabjit::{ArenaPlacement, Error, JitEngine, Library, LinkError, MemoryError};

common::tests![
    ;
    alone: near_the_executable, near_libraries, usually_near_libraries, usually_anywhere_where_there_is_no_room, several_engines_of_one_process,
        a_child_of_fork_has_engines_near_libraries, near_an_address_far_from_all, near_a_multiple_of_4_gib, near_the_stack, low_2_gib, low_2_gib_with_a_static_destructor,
        low_2_gib_taken, near_taken, near_libraries_taken, libraries_apart, smaller_where_there_is_less_room,
        three_gibibytes_away, sixteen_gibibytes_away, sixteen_tebibytes_away,
];

const GIB: usize = 1 << 30;
const TIB: usize = 1 << 40;
/// What a signed displacement of 32 bits reaches.
const REACH: usize = i32::MAX as usize;

/// Why no address space is taken away there.
const TAKEN: &str = "it has a record for each page that is mapped, also without access: gigabytes for terabytes";

fn engine(placement: ArenaPlacement) -> Result<Checked, Error> {
    JitEngine::builder().arena_placement(placement).build().map(Checked::of)
}

fn call(library: &Library, function: &str, argument: i32) -> Result<i32, Error> {
    // SAFETY: the functions called here are int(int), or ignore the argument, and do not misuse it.
    Ok(unsafe { library.get::<extern "C" fn(i32) -> i32>(function)? }(argument))
}

/// Compiled as for a position-dependent executable.
fn non_pic(name: &str, source: &str) -> Vec<u8> {
    compile_bytes(name, source, &["-fno-pic", "-fno-pie", "-mcmodel=small"])
}

// ---- near something ----

static HOST_VALUE: AtomicI32 = AtomicI32::new(0);

fn near_the_executable() {
    let at = HOST_VALUE.as_ptr();
    let bytes = non_pic("host.c", "extern int host_value; int take(int x) { host_value += x; return host_value; }");
    let load = |engine: &Checked| {
        // SAFETY: the value is one of the process, and int.
        let library = unsafe { engine.library("host").symbol("host_value", at.cast_const().cast()).build().unwrap() };
        library.add_object(&bytes).unwrap();
        let result = call(&library, "take", 5);
        drop(library);
        result
    };
    let near = engine(ArenaPlacement::Near { address: at.addr() }).unwrap();
    assert!(furthest(&near.arena(), &(at.addr()..at.addr() + 4)) <= REACH, "{:x?}", near.arena());
    HOST_VALUE.store(37, Ordering::Relaxed);
    assert_eq!(load(&near).unwrap(), 42);
    assert_eq!(HOST_VALUE.load(Ordering::Relaxed), 42);
    near.assert_usable();
    near.finish();

    let anywhere = engine(ArenaPlacement::Anywhere).unwrap();
    assert!(nearest(&anywhere.arena(), &(at.addr()..at.addr() + 4)) > REACH, "the executable is position-independent");
    load(&anywhere).expect_err("a displacement of 32 bits does not reach");
    assert_eq!(HOST_VALUE.load(Ordering::Relaxed), 42);
    anywhere.finish();
}

/// `in6addr_loopback` is data of libc: 15 times 0 and a 1 (RFC 4291, 2.5.3). Code that is not PIC reads it by
/// R_X86_64_PC32.
const LIBC_DATA: &str = "extern const unsigned char in6addr_loopback[16];
    int first(int x) { return in6addr_loopback[0] + x; } int last(int x) { return in6addr_loopback[15] + x; }";

fn reads_libc(engine: &Checked) -> Result<(), Error> {
    let library = engine.add_object(non_pic("loopback.c", LIBC_DATA))?;
    assert_eq!((call(&library, "first", 7)?, call(&library, "last", 7)?), (7, 8));
    freed(&library);
    Ok(())
}

fn near_libraries() {
    let engine = engine(ArenaPlacement::NearLibraries).unwrap();
    let libraries = blocker::libraries();
    let count = libraries.iter().filter(|m| m.name.contains("/libc.so") || m.name.contains("libLLVM")).count();
    assert!(count >= 8, "libc and LLVM have segments: {libraries:x?}");
    for library in libraries {
        assert!(
            furthest(&engine.arena(), &(library.start..library.end)) <= REACH,
            "{:x?} {library:x?}",
            engine.arena()
        );
    }
    assert!(engine.arena().len() >= GIB / 2, "there is room below the libraries: {:x?}", engine.arena());
    reads_libc(&engine).unwrap();
    engine.assert_usable();
    engine.finish();
}

// ---- the default ----

/// As Debian's gcc compiles without being told how: for an executable, position-independent, which reads data of libc
/// directly.
const STDERR: &str = "#include <stdio.h>\n#include <unistd.h>
    int is_stderr(int x) { return fileno(stderr) == 2 && environ != 0 ? x : -1; }";

fn reads_stderr(engine: &JitEngine) -> Result<(), Error> {
    let object = compile("stderr.c", STDERR, &["-D_GNU_SOURCE", "-fPIE"]);
    let relocations = tool("readelf", &["-rW".as_ref(), object.as_os_str()]);
    assert!(relocations.lines().any(|l| l.contains(" R_X86_64_PC32 ") && l.contains(" stderr ")), "{relocations}");
    let library = engine.add_object_file(object)?;
    assert_eq!(call(&library, "is_stderr", 42)?, 42);
    freed(&library);
    Ok(())
}

fn is_near_libraries(engine: &JitEngine) -> bool {
    blocker::libraries().iter().all(|l| furthest(&engine.arena(), &(l.start..l.end)) <= REACH)
}

/// Room that is left beside the libraries.
const ROOM: usize = 256 << 20;
/// What an arena has unless something else is asked for.
const USUAL: usize = 2 * GIB - (32 << 20);

fn usually_near_libraries() {
    let engine = Checked::of(JitEngine::new().unwrap());
    let arena = engine.arena();
    assert!(is_near_libraries(&engine) && arena.len() >= USUAL / 2, "{arena:x?}");
    reads_stderr(&engine).unwrap();
    reads_libc(&engine).unwrap();
    // What comes later has room beside the libraries.
    for library in blocker::libraries() {
        let away = nearest(&arena, &(library.start..library.end));
        assert!(away >= ROOM, "{away:#x} from {library:x?}: {arena:x?}");
    }
    let shared = link_shared("liblater.so", &[&common::good_object()], &[]);
    // SAFETY: it has no initialisers.
    let held = unsafe { engine.library("holds it").shared_library(&shared).build().unwrap() };
    assert!(is_near_libraries(&engine), "{:x?}", blocker::libraries());
    drop(held);
    engine.assert_usable();
    engine.finish();
    // Other sizes have room, too.
    let small = JitEngine::builder().arena_size(64 << 20).build().unwrap();
    assert!(is_near_libraries(&small) && small.arena().len() == 64 << 20, "{:x?}", small.arena());
}

fn usually_anywhere_where_there_is_no_room() {
    if not_under_qemu(TAKEN) {
        return;
    }
    let blocker = keep_away(2 * GIB);
    let engine = Checked::of(JitEngine::new().unwrap());
    assert_eq!(engine.arena().len(), USUAL);
    // What does not reach is refused, as ever, and says where an arena would do.
    let error = reads_stderr(&engine).unwrap_err();
    assert!(matches!(error, Error::Link(LinkError::ReferencesOutOfRange { .. })), "{error}");
    assert!(error.to_string().contains("ArenaPlacement"), "{error}");
    engine.assert_usable();
    engine.finish();
    drop(blocker);
    assert!(is_near_libraries(&JitEngine::new().unwrap()));
}

/// Near libraries as long as there is room; then in full size elsewhere.
fn several_engines_of_one_process() {
    let engines: Vec<_> = (0..5).map(|_| JitEngine::new().unwrap()).collect();
    assert!(is_near_libraries(&engines[0]), "{:x?}", engines[0].arena());
    let near: Vec<_> = engines.iter().map(|engine| (is_near_libraries(engine), engine.arena())).collect();
    for (near, arena) in &near {
        assert!(if *near { arena.len() >= USUAL / 2 } else { arena.len() == USUAL }, "{near} {arena:x?}");
    }
    let last = near.iter().rposition(|(near, _)| *near).unwrap();
    assert!(last < 2, "two fill what there is: {near:x?}");
    assert!(near[..last].iter().all(|(near, _)| *near), "{near:x?}");
    engines.iter().for_each(|engine| Checked::of(engine.clone()).assert_usable());
}

fn a_child_of_fork_has_engines_near_libraries() {
    let engine = JitEngine::new().unwrap();
    reads_stderr(&engine).unwrap();
    // SAFETY: the child goes on as this thread, and ends without what is the parent's.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            reads_stderr(&engine).unwrap();
            drop(engine.clone());
            let own = JitEngine::builder().arena_size(GIB / 4).build().unwrap();
            assert!(is_near_libraries(&own), "{:x?}", own.arena());
            reads_stderr(&own).unwrap();
        }));
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(held.is_err())) };
    }
    let mut status = -1;
    // SAFETY: the child of above.
    assert_eq!((unsafe { libc::waitpid(child, &mut status, 0) }, status), (child, 0), "the child's end");
}

fn near_an_address_far_from_all() {
    for address in [17 * TIB + 2 * GIB, 64 << 20] {
        let engine = engine(ArenaPlacement::Near { address }).unwrap();
        assert!(furthest(&engine.arena(), &(address..address + 1)) <= REACH, "{:x?}", engine.arena());
        assert!(engine.arena().contains(&address), "it is free: {:x?}", engine.arena());
        reads_libc(&engine).expect_err("libc is not in reach");
        engine.assert_usable();
        engine.finish();
    }
}

/// The stack of the main thread, on which this runs, still has room to grow.
fn near_the_stack() {
    if not_under_qemu(TAKEN) {
        return;
    }
    #[inline(never)]
    fn deep(kibibytes: usize) -> u8 {
        let block = std::hint::black_box([kibibytes as u8; 1024]);
        if kibibytes == 0 { 0 } else { deep(kibibytes - 1).wrapping_add(block[1]) }
    }
    let on_the_stack = 0_u8;
    let address = (&raw const on_the_stack).addr();
    // Only below it there is room.
    let _blocker = occupy(common::mapping_at(address).end..usize::MAX);
    let engine = engine(ArenaPlacement::Near { address }).unwrap();
    assert!(furthest(&engine.arena(), &(address..address + 1)) <= REACH, "{:x?}", engine.arena());
    // Most of the 8 MiB that are the usual limit; frames of a debug build need more than their arrays.
    deep(2 << 10);
    engine.assert_usable();
    engine.finish();
}

// ---- the lowest 2 GiB ----

/// References of all kinds to data and functions of its own by their absolute addresses.
const ABSOLUTE: &str = "static int table[] = {2, 3, 5, 7, 11, 13}; static int zero[8]; int counter = 1;
    static int twice(int x) { return 2 * x; } static int thrice(int x) { return 3 * x; }
    static int (*const functions[])(int) = {twice, thrice};
    static int (*volatile chosen)(int); static const char *volatile text;
    int *volatile place;
    int take(int n) {
        int sum = table[n] + functions[n & 1](n);
        zero[n] += ++counter; place = &table[n]; chosen = n > 3 ? twice : thrice; text = \"0123456\";
        switch (n) { case 0: sum += 100; break; case 1: sum += text[2]; break; case 2: sum *= 7; break;
                     case 3: sum -= 9; break; case 4: sum ^= 55; break; default: sum = -sum; }
        return sum + *place + chosen(zero[n]) + text[n];
    }";

/// What the same source says as a program of the system's own linker and loader.
fn absolute_as_a_program() -> Vec<i32> {
    let main = format!(
        "#include <stdio.h>\n{ABSOLUTE}\nint main(void) {{ for (int i = 0; i < 6; i++) printf(\"%d\\n\", take(i)); \
         return 0; }}"
    );
    let object = compile("program.c", &main, &["-fno-pic", "-fno-pie"]);
    let program = temporary().join("program");
    tool("gcc", &["-no-pie".as_ref(), "-o".as_ref(), program.as_os_str(), object.as_os_str()]);
    tool(program.to_str().unwrap(), &[""]).lines().map(|l| l.parse().unwrap()).collect()
}

#[track_caller]
fn assert_low(arena: &Range<usize>) {
    assert!(arena.end <= 1 << 31 && arena.len() >= GIB, "{arena:x?}");
}

fn low_2_gib() {
    let expected = absolute_as_a_program();
    assert_eq!(expected.len(), 6);
    let compilers = [("gcc", "-O1"), ("gcc", "-O2"), ("clang-19", "-O2"), ("clang-22", "-O0")];
    let objects = compilers.map(|(cc, level)| {
        compile_with(cc, "absolute.c", ABSOLUTE, &["-fno-pic", "-fno-pie", "-mcmodel=small", level])
    });
    for path in &objects {
        let relocations = tool("readelf", &["-rW".as_ref(), path.as_os_str()]);
        assert!(relocations.contains("R_X86_64_32S ") || relocations.contains("R_X86_64_32 "), "{relocations}");
    }
    let run = |engine: &Checked| -> Result<Vec<Vec<i32>>, Error> {
        let one = |path| {
            let library = engine.add_object_file(path)?;
            (0..6).map(|n| call(&library, "take", n)).collect()
        };
        objects.iter().map(one).collect()
    };
    let low = engine(ArenaPlacement::Low2GiB).unwrap();
    assert_low(&low.arena());
    for results in run(&low).unwrap() {
        assert_eq!(results, expected);
    }
    low.assert_usable();
    low.finish();

    let anywhere = engine(ArenaPlacement::Anywhere).unwrap();
    assert!(anywhere.arena().start > 1 << 32);
    run(&anywhere).expect_err("absolute addresses of 32 bits do not reach");
    anywhere.finish();
}

/// `__cxa_atexit` gets the address of `__dso_handle` in 32 bits.
fn low_2_gib_with_a_static_destructor() {
    let source = "extern \"C\" void host_call(int);
        struct S { int x; S(int x) : x(x) { host_call(x); } ~S() { host_call(-x); } }; static S one(1), two(20);
        extern \"C\" int take(int x) { return one.x + two.x + x; }";
    extern "C" fn host_call(x: i32) {
        HOST_VALUE.fetch_add(x, Ordering::Relaxed);
    }
    let engine = engine(ArenaPlacement::Low2GiB).unwrap();
    // SAFETY: void(int), as the source says.
    let library = unsafe { engine.library("static").symbol("host_call", host_call as *const ()).build().unwrap() };
    // Frames would name __gxx_personality_v0 of libstdc++ by its absolute address.
    let flags = ["-fno-pic", "-fno-pie", "-fno-exceptions", "-fno-asynchronous-unwind-tables"];
    let object = compile("static.cc", source, &flags);
    let relocations = tool("readelf", &["-rW".as_ref(), object.as_os_str()]);
    assert!(relocations.lines().any(|l| l.contains(" R_X86_64_32 ") && l.contains("__dso_handle")), "{relocations}");
    library.add_object_named("static.o", std::fs::read(&object).unwrap()).unwrap();
    assert_eq!(call(&library, "take", 300).unwrap(), 321);
    assert_eq!(HOST_VALUE.load(Ordering::Relaxed), 21);
    freed(&library);
    assert_eq!(HOST_VALUE.load(Ordering::Relaxed), 0);
    engine.finish();
}

/// libgcc finds nothing for a function at such an address, and what throws there ends the process.
fn near_a_multiple_of_4_gib() {
    const SIZE: usize = 8 << 20;
    let multiple = 19 * TIB;
    let placement = ArenaPlacement::Near { address: multiple + SIZE / 2 };
    let engine = Checked::of(JitEngine::builder().arena_size(SIZE).arena_placement(placement).build().unwrap());
    // The first function of the first object.
    let thrower = "extern \"C\" int take(int x) { try { if (x) throw x; } catch (int y) { return y + 1; } return 0; }";
    let library = engine.add_object(compile_bytes("multiple.cc", thrower, &[])).unwrap();
    assert_eq!(call(&library, "take", 41).unwrap(), 42);
    freed(&library);
    assert_eq!(engine.arena().start, multiple + page_size());
    engine.finish();
}

// ---- places that cannot be had ----

#[track_caller]
fn refused(placement: ArenaPlacement, words: &[&str]) {
    let error = engine(placement).map(|e| e.arena()).expect_err("there is no room");
    let text = error.to_string();
    match error {
        Error::Memory(MemoryError::ArenaPlacement { requested, minimum, largest_free, window, .. }) => {
            assert_eq!((requested, minimum), (2 * GIB - (32 << 20), SMALLEST_ARENA));
            assert!(largest_free < SMALLEST_ARENA && window.len() <= 4 * GIB, "{largest_free} {window:x?}");
        }
        other => panic!("{other:?}"),
    }
    for word in words {
        assert!(text.contains(word), "'{word}' is not in: {text}");
    }
    // Elsewhere there is room.
    let anywhere = engine(ArenaPlacement::Anywhere).unwrap();
    anywhere.assert_usable();
    anywhere.finish();
}

fn low_2_gib_taken() {
    if not_under_qemu(TAKEN) {
        return;
    }
    let blocker = occupy(0..1 << 31);
    refused(ArenaPlacement::Low2GiB, &["in the lowest 2 GiB", "create the engine before", "ArenaPlacement", "8388608"]);
    drop(blocker);
    assert_low(&engine(ArenaPlacement::Low2GiB).unwrap().arena());
}

fn near_taken() {
    if not_under_qemu(TAKEN) {
        return;
    }
    let address = 17 * TIB + 2 * GIB;
    let blocker = occupy(address - 2 * GIB..address + 2 * GIB);
    refused(ArenaPlacement::Near { address }, &["within 2 GiB of 0x110080000000", "8388608"]);
    // No process of x86-64 has such an address: nothing is mapped there, and the system says no.
    let error = engine(ArenaPlacement::Near { address: 1 << 60 }).map(|e| e.arena()).unwrap_err();
    assert!(
        matches!(&error, Error::Memory(MemoryError::ArenaPlacement { source, .. }) if source.raw_os_error() == Some(libc::ENOMEM)),
        "{error}"
    );
    drop(blocker);
    assert!(engine(ArenaPlacement::Near { address }).unwrap().arena().contains(&address));
}

fn near_libraries_taken() {
    if not_under_qemu(TAKEN) {
        return;
    }
    let blocker = keep_away(2 * GIB);
    refused(ArenaPlacement::NearLibraries, &["within 2 GiB of the loaded libraries"]);
    drop(blocker);
    reads_libc(&engine(ArenaPlacement::NearLibraries).unwrap()).unwrap();
}

fn libraries_apart() {
    if not_under_qemu(TAKEN) {
        return;
    }
    let shared = link_shared("libapart.so", &[&common::good_object()], &[]);
    // What is mapped next has to lie below.
    let blocker = keep_away(5 * GIB);
    let anywhere = JitEngine::new().unwrap();
    // SAFETY: it has no initialisers.
    let held = unsafe { anywhere.library("holds it").shared_library(&shared).build().unwrap() };
    drop(blocker);
    match engine(ArenaPlacement::NearLibraries).map(|e| e.arena()).unwrap_err() {
        error @ Error::Memory(MemoryError::LibrariesApart { .. }) => {
            let text = error.to_string();
            assert!(text.contains(shared.to_str().unwrap()) && text.contains("ArenaPlacement::Near"), "{text}");
            let Error::Memory(MemoryError::LibrariesApart { lowest, span, .. }) = error else { unreachable!() };
            assert_eq!(lowest, shared.to_str().unwrap());
            let start = blocker::libraries().iter().find(|m| m.name == lowest).unwrap().start;
            assert!(span.start == start && span.len() > 5 * GIB, "{span:x?}");
        }
        other => panic!("{other:?}"),
    }
    drop(held);
    engine(ArenaPlacement::NearLibraries).unwrap().assert_usable();
}

fn smaller_where_there_is_less_room() {
    if not_under_qemu(TAKEN) {
        return;
    }
    const MIB: usize = 1 << 20;
    let gap = 0x3000_0000..0x3000_0000 + 20 * MIB;
    let _blockers = (occupy(0..gap.start), occupy(gap.end..1 << 31));
    let default = engine(ArenaPlacement::Low2GiB).unwrap();
    let arena = default.arena();
    assert!(gap.start <= arena.start && arena.end <= gap.end, "{arena:x?}");
    // More than half of what there is; and stats() says what it came to.
    assert!(arena.len() > 10 * MIB && arena.len() == default.stats().arena.reserved_bytes, "{arena:x?}");
    default.assert_usable();
    drop(default);
    let exact = JitEngine::builder().arena_size(20 * MIB).arena_placement(ArenaPlacement::Low2GiB).build().unwrap();
    // With no page before it for a module of the dynamic loader, it takes one of these.
    let page = if exact.stats().arena.known_to_loader { rustix::param::page_size() } else { 0 };
    assert_eq!(exact.arena(), gap.start + page..gap.end);
    // Nothing is left for a second.
    assert!(matches!(engine(ArenaPlacement::Low2GiB), Err(Error::Memory(MemoryError::ArenaPlacement { .. }))));
}

// ---- anywhere, and far from everything ----

#[track_caller]
fn far(distance: usize) {
    if not_under_qemu(TAKEN) {
        return;
    }
    let _blocker = keep_away(distance);
    let engine = engine(ArenaPlacement::Anywhere).unwrap();
    for file in blocker::files() {
        let away = nearest(&engine.arena(), &(file.start..file.end));
        assert!(away >= distance - SMALLEST_ARENA, "{away:#x} from {file:x?}: {:x?}", engine.arena());
    }
    // Calls of libc and of the executable, data of libc through the GOT, frames.
    let source = "#include <string.h>\n#include <stdlib.h>\n extern const unsigned char in6addr_loopback[16]; int host_call(int);
        int take(int x) { char text[64]; memset(text, 'a', 63); text[63] = 0;
            return abs(-x) + (int)strlen(text) + host_call(x) + in6addr_loopback[15]; }";
    extern "C" fn host_call(x: i32) -> i32 {
        1000 * x
    }
    // SAFETY: int(int), as the source says.
    let library = unsafe { engine.library("far").symbol("host_call", host_call as *const ()).build().unwrap() };
    library.add_object(compile_bytes("far.c", source, &["-fno-builtin"])).unwrap();
    assert_eq!(call(&library, "take", 7).unwrap(), 7 + 63 + 7000 + 1);
    freed(&library);
    let thrower = "extern \"C\" int take(int x) { try { if (x) throw x; } catch (int y) { return y + 1; } return 0; }";
    let library = engine.add_object(compile_bytes("thrower.cc", thrower, &[])).unwrap();
    assert_eq!(call(&library, "take", 41).unwrap(), 42);
    freed(&library);
    // Without the GOT a displacement of 32 bits would have to reach.
    reads_libc(&engine).expect_err("libc is not in reach");
    engine.assert_usable();
    engine.finish();
}

fn three_gibibytes_away() {
    far(3 * GIB);
}

fn sixteen_gibibytes_away() {
    far(16 * GIB);
}

fn sixteen_tebibytes_away() {
    far(16 * TIB);
}
