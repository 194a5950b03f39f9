//! Rust panics and backtraces through frames of loaded code.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::RwLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{self, Checked, Random, compile, compile_with, thread_time};
use crate::target::{by_qemu, not_under_qemu, page_size};
use slabjit::{JitEngine, Library, SlabLayout, Symbol};

common::tests![
    panic_through_c,
    panic_runs_cxx_destructors,
    backtrace_sees_past_loaded_code,
    exception_of_one_library_caught_in_another,
    frames_are_gone_after_removal,
    exceptions_with_many_objects,
    frames_behind_discarded_ones_are_found;
    alone: throws_with_a_hundred_thousand_objects, throws_while_others_come_and_go;
    parts: throw_while_others_come_and_go,
];

extern "C-unwind" fn host_panics(value: i32) -> i32 {
    // No message on standard error: `resume_unwind` does not call the hook.
    std::panic::resume_unwind(Box::new(value))
}

type CallsHost = extern "C-unwind" fn(i32) -> i32;

fn calls_host(library: &Library) -> Symbol<CallsHost> {
    // SAFETY: `through` is int(int).
    unsafe { library.get("through").unwrap() }
}

fn panic_through_c() {
    let engine = Checked::new();
    // SAFETY: `host` is int(int).
    let library = unsafe { engine.library("panics").symbol("host", host_panics as *const ()).build().unwrap() };
    let source = "int host(int); static __attribute__((noinline)) int deeper(int x) { return host(x + 1) + 1; } int through(int x) { return deeper(x) * 2; }";
    library.add_object_file(compile("panics.c", source, &[])).unwrap();
    let through = calls_host(&library);
    for i in 0..10 {
        let payload = catch_unwind(|| through(i)).unwrap_err();
        assert_eq!(*payload.downcast::<i32>().unwrap(), i + 1);
    }
    drop((through, library));
    engine.finish();
}

fn panic_runs_cxx_destructors() {
    let engine = Checked::new();
    // SAFETY: `host` is int(int).
    let builder = unsafe {
        engine.library("cleanup").symbol("host", host_panics as *const ()).shared_library("libstdc++.so.6").build()
    };
    let library = builder.unwrap();
    let source = "extern \"C\" int host(int); static int cleaned;
                  struct Guard { ~Guard() { cleaned++; } };
                  extern \"C\" int through(int x) { Guard g; return host(x) + 1; }
                  extern \"C\" int count(int) { return cleaned; }";
    library.add_object_file(compile_with("g++", "cleanup.cc", source, &[])).unwrap();
    let through = calls_host(&library);
    assert!(catch_unwind(|| through(1)).is_err());
    // SAFETY: `count` is int(int).
    assert_eq!(unsafe { library.get::<CallsHost>("count").unwrap()(0) }, 1);
    drop((through, library));
    engine.finish();
}

thread_local! {
    static SEEN: RefCell<String> = const { RefCell::new(String::new()) };
}

extern "C-unwind" fn host_looks(value: i32) -> i32 {
    SEEN.set(Backtrace::force_capture().to_string());
    value
}

/// A function of this program that calls loaded code.
#[inline(never)]
fn the_caller_of_loaded_code(through: CallsHost) -> i32 {
    std::hint::black_box(through(4)) + 1
}

fn backtrace_sees_past_loaded_code() {
    // So does a program that does nothing else: std maps its own executable.
    if page_size() > 4096 && not_under_qemu("with pages larger than the machine's own, printing a backtrace crashes it")
    {
        return;
    }
    for compiler in ["gcc", "clang-19", "clang-22"] {
        let engine = Checked::new();
        // SAFETY: `host` is int(int).
        let library = unsafe { engine.library("looks").symbol("host", host_looks as *const ()).build().unwrap() };
        library
            .add_object_file(compile_with(
                compiler,
                "looks.c",
                "int host(int); int through(int x) { return host(x) * 10; }",
                &[],
            ))
            .unwrap();
        let through = calls_host(&library);
        assert_eq!(the_caller_of_loaded_code(*through), 41);
        let seen = SEEN.take();
        assert!(seen.contains("host_looks") && seen.contains("the_caller_of_loaded_code"), "{seen}");
        drop((through, library));
        engine.finish();
    }
}

fn exception_of_one_library_caught_in_another() {
    let engine = Checked::new();
    // SAFETY: libstdc++ is a shared library like any other.
    let base = unsafe { engine.library("base").shared_library("libstdc++.so.6").build().unwrap() };
    base.add_object_file(compile_with("g++", "throws_int.cc", "extern \"C\" int throws(int x) { throw x * 2; }", &[]))
        .unwrap();
    // SAFETY: as above.
    let user = unsafe { engine.library("user").link(&base).shared_library("libstdc++.so.6").build().unwrap() };
    let source = "extern \"C\" int throws(int); extern \"C\" int through(int x) { try { return throws(x); } catch (int e) { return e; } }";
    user.add_object_file(compile_with("clang-22", "catches_int.cc", source, &[])).unwrap();
    assert_eq!(calls_host(&user)(21), 42);
    drop((base, user));
    engine.finish();
}

/// New code at the addresses of removed code: its frames count, not those of before.
fn frames_are_gone_after_removal() {
    let engine = Checked::new();
    let variants: Vec<_> = (0..4)
        .map(|i| {
            let padding = (0..i * 7).map(|_| "__asm__ volatile(\"nop\");").collect::<String>();
            let source = format!(
                "static __attribute__((noinline)) int deep(int x) {{ {padding} if (x > {i}) throw x + {i}; return x; }}
                 extern \"C\" int through(int x) {{ volatile char space[{}]; space[0] = 1; {padding} try {{ return deep(x) - 1; }} catch (int e) {{ return e * 2 + space[0] - 1; }} }}",
                100 + i * 300
            );
            compile_with("g++", &format!("frames_{i}.cc"), &source, &[])
        })
        .collect();
    for round in 0..40 {
        let i = round % 4;
        // SAFETY: libstdc++ is a shared library like any other.
        let library = unsafe { engine.library("frames").shared_library("libstdc++.so.6").build().unwrap() };
        library.add_object_file(&variants[i]).unwrap();
        assert_eq!(calls_host(&library)(10), (10 + i as i32) * 2);
        common::freed(&library);
    }
    engine.finish();
}

fn exceptions_with_many_objects() {
    let source = "extern \"C\" int through(int x) { try { throw x; } catch (int e) { return e + 1; } }";
    let path = compile_with("g++", "one_of_many.cc", source, &[]);
    let engine = Checked::new();
    let libraries: Vec<_> = (0..300)
        .map(|_| {
            // SAFETY: libstdc++ is a shared library like any other.
            let library = unsafe { engine.library("many").shared_library("libstdc++.so.6").build().unwrap() };
            library.add_object_file(&path).unwrap();
            library
        })
        .collect();
    for (i, library) in libraries.iter().enumerate() {
        assert_eq!(calls_host(library)(i as i32), i as i32 + 1);
    }
    // Every second one goes, in no particular order; the others still catch.
    let (gone, rest): (Vec<_>, Vec<_>) = libraries.into_iter().enumerate().partition(|(i, _)| i * 7 % 2 == 0);
    gone.into_iter().rev().for_each(|(_, l)| common::freed(&l));
    for (i, library) in &rest {
        assert_eq!(calls_host(library)(*i as i32), *i as i32 + 1);
    }
    drop(rest);
    engine.finish();
}

/// With each object registered by itself, libgcc before 13 took 11 s for the first throw, and 0.2 ms for each object
/// that went.
fn throws_with_a_hundred_thousand_objects() {
    let source = "extern \"C\" int through(int x) { try { throw x; } catch (int e) { return e + 1; } }";
    let bytes = std::fs::read(compile_with("g++", "one_of_many.cc", source, &[])).unwrap();
    let engine = JitEngine::builder().slab_layout(SlabLayout::Packed).quarantine(0).build().unwrap();
    let before = engine.stats().libraries;
    let count = by_qemu(100_000, 500);
    let mut libraries: Vec<Library> = (0..count).map(|_| engine.add_object(&bytes).unwrap()).collect();
    let functions: Vec<_> = libraries.iter().map(through).collect();
    // In time of this thread: others may run beside it.
    let timed = |what: &str, limit: Duration, run: &mut dyn FnMut()| {
        let begin = thread_time();
        run();
        let time = thread_time() - begin;
        println!("{what}: {time:?}");
        assert!(time < limit, "{what}: {time:?}, not {limit:?}");
    };
    let throw = |i: usize, function: &Symbol<Through>| {
        // SAFETY: `int through(int)`, which catches what it throws.
        assert_eq!(unsafe { function(i as i32) }, i as i32 + 1);
    };
    let second = Duration::from_secs(by_qemu(1, 30) as u64);
    for round in ["first", "second"] {
        timed(&format!("{round} throw"), second, &mut || throw(count / 2, &functions[count / 2]));
        timed(&format!("{round} panic"), second, &mut || {
            catch_unwind(|| std::panic::resume_unwind(Box::new(0))).unwrap_err();
        });
    }
    functions.iter().enumerate().step_by(97).for_each(|(i, function)| throw(i, function));
    drop(functions);

    // Every third one goes, and the others still catch. Each removal, and the throw after it.
    let mut n = 0;
    let removals = (count / 3) as u32;
    timed("every third one's removal", by_qemu(100, 2000) as u32 * Duration::from_micros(1) * removals, &mut || {
        libraries.retain(|_| {
            n += 1;
            n % 3 != 0
        });
    });
    timed("a throw after it", second, &mut || throw(0, &through(&libraries[libraries.len() / 2])));
    libraries.iter().enumerate().step_by(97).for_each(|(i, library)| throw(i, &through(library)));
    // Where they were, others come, between those that are there.
    let more: Vec<Library> = (0..count / 10).map(|_| engine.add_object(&bytes).unwrap()).collect();
    libraries.iter().chain(&more).enumerate().step_by(97).for_each(|(i, library)| throw(i, &through(library)));
    let rest = libraries.len() as u32 + more.len() as u32;
    timed("the rest's removal", by_qemu(100, 2000) as u32 * Duration::from_micros(1) * rest, &mut || {
        libraries.clear();
    });
    more.iter().enumerate().step_by(97).for_each(|(i, library)| throw(i, &through(library)));
    drop(more);
    assert_eq!(engine.stats().libraries, before);
}

/// In both layouts, for two seconds each, or for SLABJIT_THROW_SECONDS.
fn throws_while_others_come_and_go() {
    for layout in ["per_object", "packed"] {
        let end = common::child_with("throw_while_others_come_and_go", &[("SLABJIT_TEST_LAYOUT", layout)]);
        print!("{layout}: {}", end.stdout);
        // What finds no handler ends the process.
        assert_eq!((end.code, end.signal), (Some(0), None), "{end:?}");
    }
}

/// Four threads throw through code that stays, two load and remove at addresses that are used again, and children do
/// both. No thread throws at the moment of a fork: libgcc before 13 has a lock then, which the child does not get back.
fn throw_while_others_come_and_go() {
    let seconds = std::env::var("SLABJIT_THROW_SECONDS").map_or(2, |text| text.parse().unwrap());
    let source = "extern \"C\" int through(int x) { try { throw x; } catch (int e) { return e + 1; } }";
    let bytes = std::fs::read(compile_with("g++", "one_of_many.cc", source, &[])).unwrap();
    let engine = JitEngine::builder().quarantine(0).arena_size(64 << 20).build().unwrap();
    let gate = RwLock::new(());
    let add = || {
        let library = engine.add_object(&bytes).unwrap();
        (through(&library), library)
    };
    let load = || {
        let (function, library) = add();
        let _gate = gate.read().unwrap();
        assert_eq!(thrown(&function, 1), 2);
        library
    };
    // Those that stay have others between them, also some that go.
    let (stay, gone): (Vec<_>, Vec<_>) = (0..300).map(|_| load()).enumerate().partition(|(i, _)| i % 3 == 0);
    drop(gone);
    let functions: Vec<Symbol<Through>> = stay.iter().map(|(_, library)| through(library)).collect();
    let come_and_go = |random: &mut Random, load: &dyn Fn() -> Library| {
        let mut some: Vec<Library> = (0..1 + random.below(60)).map(|_| load()).collect();
        while !some.is_empty() {
            common::freed(&some.swap_remove(random.below(some.len())));
        }
    };
    let (throws, changes) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let mut children = 0;
    let end = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (functions, throws, gate) = (&functions, &throws, &gate);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while Instant::now() < end {
                    let _gate = gate.read().unwrap();
                    let number = random.below(1000) as i32;
                    assert_eq!(thrown(&functions[random.below(functions.len())], number), number + 1);
                    throws.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for seed in 4..6 {
            let (come_and_go, load, changes) = (&come_and_go, &load, &changes);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                while Instant::now() < end {
                    come_and_go(&mut random, load);
                    changes.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut random = Random::new(6);
        while Instant::now() < end {
            let closed = gate.write().unwrap();
            // SAFETY: the child ends without unwinding into what is the parent's.
            let child = unsafe { libc::fork() };
            if child != 0 {
                drop(closed);
            } else {
                // SAFETY: plain calls.
                unsafe { libc::alarm(by_qemu(60, 600) as u32) };
                let passed = catch_unwind(AssertUnwindSafe(|| {
                    functions.iter().for_each(|function| assert_eq!(thrown(function, 3), 4));
                    // Nobody else throws here, and the gate is the parent's.
                    come_and_go(&mut random, &|| {
                        let (function, library) = add();
                        assert_eq!(thrown(&function, 1), 2);
                        library
                    });
                    functions.iter().for_each(|function| assert_eq!(thrown(function, 5), 6));
                }));
                // SAFETY: as above.
                unsafe { libc::_exit(i32::from(passed.is_err())) };
            }
            let mut status = -1;
            // SAFETY: a child of this process, and a place for the status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0);
            children += 1;
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    let (throws, changes) = (throws.into_inner(), changes.into_inner());
    println!("{throws} throws, {changes} changes, {children} children");
    assert!(throws > 100 && changes > 1 && children > 1);
}

fn thrown(function: &Symbol<Through>, number: i32) -> i32 {
    // SAFETY: `int through(int)`, which catches what it throws.
    unsafe { function(number) }
}

type Through = unsafe extern "C" fn(i32) -> i32;

fn through(library: &Library) -> Symbol<Through> {
    // SAFETY: `int through(int)`.
    unsafe { library.get("through").unwrap() }
}

unsafe extern "C" {
    // libgcc_s: the record of the function that an address is in (libgcc/unwind-dw2-fde.h); `found` gets its beginning
    // third.
    fn _Unwind_Find_FDE(address: *const (), found: *mut [*const (); 3]) -> *const ();
}

/// Of a weak function that several objects have, the first one's copy is used. With each other copy its record goes
/// from the unwind table, and those before and behind it have to lie one after the other: a gap reads as the end. The
/// assembler pads records to 4 bytes, and only the last one to the table's alignment.
fn frames_behind_discarded_ones_are_found() {
    for bytes in (0..24).step_by(3) {
        let engine = Checked::new();
        // SAFETY: libstdc++ is a shared library like any other.
        let library = unsafe { engine.library("shared").shared_library("libstdc++.so.6").build().unwrap() };
        let escapes = "asm volatile(\".cfi_escape 0\");".repeat(bytes);
        for i in 0..3 {
            // In this order in the table.
            let source = format!(
                "extern \"C\" {{
                     int before_{i}(int x) {{ return x; }}
                     __attribute__((weak, noinline)) int shared(int x) {{ {escapes} if (x > 2) throw x; return x; }}
                     int through_{i}(int x) {{ try {{ return shared(x); }} catch (int e) {{ return e + {i}; }} }}
                     int behind_{i}(int x) {{ return x; }}
                 }}"
            );
            let name = format!("shared_{bytes}_{i}.cc");
            library
                .add_object_file(compile_with("g++", &name, &source, &["-fno-toplevel-reorder", "-ffunction-sections"]))
                .unwrap();
        }
        for i in 0..3 {
            for function in ["before", "through", "behind"] {
                // SAFETY: these are int(int).
                let function = unsafe { library.get::<CallsHost>(&format!("{function}_{i}")).unwrap() };
                let (start, mut found) = (*function as *const (), [std::ptr::null(); 3]);
                // SAFETY: the record of a function that is held.
                let record = unsafe { _Unwind_Find_FDE(start.wrapping_byte_add(1), &raw mut found) };
                assert!(
                    !record.is_null() && found[2] == start,
                    "{bytes} bytes, {function:?} of object {i}: {record:?} {found:?}"
                );
            }
            // SAFETY: as above.
            let through = unsafe { library.get::<CallsHost>(&format!("through_{i}")).unwrap() };
            assert_eq!(through(21), 21 + i);
        }
        common::freed(&library);
        engine.finish();
    }
}
