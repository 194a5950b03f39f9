//! Many sections that refer to each other, in one object and in several. ORC, which links nothing here, keeps account
//! of which symbols become ready with which others, in more than linear time (llvm#179611). Whatever order LLVM's
//! containers choose, and whichever thread comes first, values, errors and addresses must not show it.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use slabjit::{Error, JitEngine, Library, LibraryBuilder, LibraryError, LinkError, OutOfRange};

use crate::common::{self, Checked, compile_bytes, freed, within};
use crate::target::{by_arch, by_qemu};

common::tests![
    many_sections_that_refer_to_each_other,
    thousands_of_sections_take_no_time,
    lookups_from_many_threads,
    a_failing_dependency,
    a_batch_that_fails_while_other_threads_link,
    cycles_of_objects,
    removal_while_linking,
    every_link_of_an_object_has_the_same_layout,
    sections_of_one_name_keep_their_order,
    references_out_of_range_are_listed_in_order,
];

const LIMIT: Duration = Duration::from_secs(60);
/// Sections of each object.
const SECTIONS: usize = 64;

type Function = unsafe extern "C" fn(i32) -> i32;

/// Object `k` of a ring of `n`: each function calls one of the same object and one of the next object of the ring.
fn source(k: usize, n: usize, sections: usize) -> String {
    let next = (k + 1) % n;
    let mut text: String =
        [k, next].map(|o| (0..sections).map(|i| format!("int f{o}_{i}(int);\n")).collect::<String>()).concat();
    for i in 0..sections {
        let (here, there) = callees(i, sections);
        text += &format!(
            "int f{k}_{i}(int x) {{ return x <= 0 ? {} : f{k}_{here}(x - 1) + f{next}_{there}(x - 2); }}\n",
            leaf(k, i)
        );
    }
    text
}

fn callees(i: usize, sections: usize) -> (usize, usize) {
    ((i * 7 + 1) % sections, (i * 13 + 5) % sections)
}

fn leaf(k: usize, i: usize) -> i32 {
    (k * 10_000 + i) as i32
}

/// What `f{k}_{i}(x)` has to return.
fn expected(k: usize, i: usize, x: i32, n: usize, sections: usize) -> i32 {
    if x <= 0 {
        return leaf(k, i);
    }
    let (here, there) = callees(i, sections);
    expected(k, here, x - 1, n, sections) + expected((k + 1) % n, there, x - 2, n, sections)
}

fn object(k: usize, n: usize) -> Vec<u8> {
    compile_bytes(&format!("ring{k}.c"), &source(k, n, SECTIONS), &["-ffunction-sections"])
}

#[track_caller]
fn assert_right(library: &Library, k: usize, i: usize, n: usize) {
    // SAFETY: `int f{k}_{i}(int)`.
    let value = unsafe { library.get::<Function>(&format!("f{k}_{i}")).unwrap()(5) };
    assert_eq!(value, expected(k, i, 5, n, SECTIONS), "f{k}_{i}");
}

fn ring(engine: &JitEngine, n: usize) -> Library {
    let library = engine.library("ring").build().unwrap();
    for k in 0..n {
        library.add_object_named(&format!("ring{k}.o"), object(k, n)).unwrap();
    }
    library
}

/// With ORC's dependence tracking it would take minutes.
fn many_sections_that_refer_to_each_other() {
    const MANY: usize = 1500;
    let engine = Checked::new();
    let bytes = compile_bytes("many.c", &source(0, 1, MANY), &["-ffunction-sections"]);
    let start = Instant::now();
    let library = engine.add_object(bytes).unwrap();
    // SAFETY: `int f0_0(int)`.
    let value = unsafe { library.get::<Function>("f0_0").unwrap()(5) };
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    assert_eq!(value, expected(0, 0, 5, 1, MANY));
    freed(&library);
    engine.finish();
}

/// As `benches/sections.rs` has them, on which LLVM 15 and 16 spend 1.6 s alone. The best of three, in time of this
/// thread: others may run beside it.
fn thousands_of_sections_take_no_time() {
    const MANY: usize = 2000;
    let engine = Checked::new();
    let mut text = String::new();
    for i in 0..MANY {
        let code = by_arch("movl $NUMBER, %eax", "mov w0, #NUMBER").replace("NUMBER", &i.to_string());
        text += &format!(
            ".section .text.f{i},\"ax\",%progbits\n.globl f{i}\n.type f{i},%function\nf{i}: {code}\n ret\n.balign 8\n"
        );
        for k in 0..5 {
            text += &format!(" .quad f{}\n", (i * 7 + k * 13) % MANY);
        }
        text += &format!(".size f{i}, .-f{i}\n");
    }
    let bytes = compile_bytes("thousands.s", &text, &[]);
    let times = [(); 3].map(|()| {
        let start = common::thread_time();
        let library = engine.add_object(&bytes).unwrap();
        let value = common::call(&library, "f7");
        let time = common::thread_time() - start;
        assert_eq!(value, 7);
        freed(&library);
        time
    });
    let limit = Duration::from_millis(if crate::target::under_qemu() { 20_000 } else { 500 });
    assert!(times.iter().any(|time| *time < limit), "{times:?}");
    engine.finish();
}

fn lookups_from_many_threads() {
    const THREADS: usize = 8;
    within(LIMIT, "lookups from many threads", || {
        let engine = Checked::new();
        for _ in 0..by_qemu(20, 3) {
            // Two at the same time.
            let libraries = [ring(&engine, 3), ring(&engine, 3)];
            let barrier = Barrier::new(THREADS);
            std::thread::scope(|scope| {
                for t in 0..THREADS {
                    let (library, barrier) = (&libraries[t % 2], &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        assert_right(library, t % 3, t * 5, 3);
                    });
                }
            });
            libraries.iter().for_each(freed);
        }
        engine.finish();
    });
}

fn cycles_of_objects() {
    for n in [1, 2, 5] {
        let engine = Checked::for_a_case();
        let library = ring(&engine, n);
        for k in 0..n {
            for i in [0, SECTIONS / 2, SECTIONS - 1] {
                assert_right(&library, k, i, n);
            }
        }
        // A later batch that needs the earlier one, which has been linked.
        let later = "int f0_3(int); int later(int x) { return f0_3(x) + 1; }";
        library.add_object(compile_bytes("later.c", later, &[])).unwrap();
        // SAFETY: `int later(int)`.
        let value = unsafe { library.get::<Function>("later").unwrap()(5) };
        assert_eq!(value, expected(0, 3, 5, n, SECTIONS) + 1);
        freed(&library);
        engine.finish();
    }
}

/// One object of a ring fails when addresses are final: all of the ring fails, with its error, for everybody who waits.
fn a_failing_dependency() {
    const THREADS: usize = 4;
    within(LIMIT, "a failing dependency", || {
        let engine = Checked::new();
        let far = std::ptr::without_provenance::<()>(0x007e_adbe_f000_0000);
        let rings = [0, 1, 2].map(|failing| {
            [0, 1, 2].map(|k| {
                let mut text = source(k, 3, SECTIONS);
                if k == failing {
                    text += "__asm__(\".data\\n .balign 4\\n .globl wrong\\nwrong: .long far\\n .text\");";
                }
                compile_bytes(&format!("failing{k}.c"), &text, &["-ffunction-sections"])
            })
        });
        let fine = object(0, 1);
        for (round, failing) in (0..by_qemu(60, 3)).map(|r| (r, r % 3)) {
            // SAFETY: no shared library is opened, and `far` is not followed.
            let library = unsafe { engine.library("failing").symbol("far", far).build().unwrap() };
            for (k, bytes) in rings[failing].iter().enumerate() {
                library.add_object_named(&format!("ring{k}.o"), bytes).unwrap();
            }
            let barrier = Barrier::new(THREADS);
            std::thread::scope(|scope| {
                for t in 0..THREADS {
                    let (library, barrier, engine, fine) = (&library, &barrier, &engine, &fine);
                    scope.spawn(move || {
                        barrier.wait();
                        // SAFETY: `int f(int)`, not called.
                        let error =
                            unsafe { library.get::<Function>(&format!("f{}_{t}", (round + t) % 3)) }.unwrap_err();
                        assert!(matches!(&error, Error::Link(LinkError::ReferencesOutOfRange { .. })), "{error:?}");
                        let named = format!("ring{failing}.o");
                        assert!(error.to_string().contains(&named), "not about {named}: {error}");
                        // One that has nothing to do with it.
                        let fine = engine.add_object(fine).unwrap();
                        assert_right(&fine, 0, t, 1);
                        freed(&fine);
                    });
                }
            });
            freed(&library);
            engine.assert_unchanged();
        }
        engine.finish();
    });
}

/// Nothing of a batch that fails late is left to those that other threads link meanwhile. ORC gives threads parts of
/// each other's batches, and LLVM 22 keeps what waits for a part that failed: with it this ended in malloc's "corrupted
/// double-linked list" (WaitingOnGraph.h, `fail`; Core.cpp, `IL_removeTracker`).
fn a_batch_that_fails_while_other_threads_link() {
    const WAITING: usize = 8;
    const RING: usize = 6;
    within(LIMIT, "a batch that fails meanwhile", || {
        let engine = Checked::new();
        let compile = |name: &str, text: &str| compile_bytes(name, text, &["-ffunction-sections"]);
        // All of `waiting` refer to `between`, which is placed, but waits for what takes long.
        let long = compile("long.c", &source(0, 1, 500));
        let between = compile("between.c", "int f0_0(int); int between(int x) { return f0_0(x); }");
        let mut waiting: Vec<_> = (0..WAITING)
            .map(|i| compile("waiting.c", &format!("int between(int); int waiting{i}(int x) {{ return between(x); }}")))
            .collect();
        let asked: String = (0..WAITING).map(|i| format!(".quad waiting{i}\\n ")).collect();
        let wrong = format!("__asm__(\".data\\n .balign 8\\n .globl wrong\\nwrong: {asked}.long far\");");
        waiting.push(compile("wrong.c", &wrong));
        let ring: Vec<_> = (0..RING)
            .map(|k| {
                let text =
                    format!("int g{0}(int); int g{k}(int x) {{ return x ? g{0}(x - 1) + 1 : {k}; }}", (k + 1) % RING);
                compile("ring.c", &text)
            })
            .collect();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (engine, done, fine) = (&engine, &done, &ring);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        let library = engine.library("ring").build().unwrap();
                        for bytes in fine {
                            library.add_object(bytes).unwrap();
                        }
                        // SAFETY: `int g0(int)`.
                        let value = unsafe { library.get::<Function>("g0").unwrap()(20) };
                        assert_eq!(value, 20 + 20 % RING as i32);
                        freed(&library);
                    }
                });
            }
            let rounds = scope.spawn(|| {
                for _ in 0..by_qemu(200, 5) {
                    let far = std::ptr::without_provenance::<()>(0x007e_adbe_f000_0000);
                    // SAFETY: no shared library is opened, and `far` is not followed.
                    let library = unsafe { engine.library("failing").symbol("far", far).build().unwrap() };
                    for bytes in [&long, &between].into_iter().chain(&waiting) {
                        library.add_object(bytes).unwrap();
                    }
                    // SAFETY: `int f(int)`, not called.
                    let error = unsafe { library.get::<Function>("waiting0") }.unwrap_err();
                    assert!(matches!(&error, Error::Link(LinkError::ReferencesOutOfRange { .. })), "{error:?}");
                    freed(&library);
                }
            });
            let ended = rounds.join();
            done.store(true, Ordering::Relaxed);
            ended.unwrap();
        });
        engine.assert_unchanged();
        engine.finish();
    });
}

/// Whoever asked first: a function that works, or an error that says that the library is gone.
fn removal_while_linking() {
    within(LIMIT, "removal while linking", || {
        let engine = Checked::new();
        let mut random = common::Random::new(7);
        let (mut worked, mut gone) = (0, 0);
        // What one link takes, to hit its middle.
        let first = ring(&engine, 2);
        let start = Instant::now();
        assert_right(&first, 0, 0, 2);
        freed(&first);
        let usual = start.elapsed().as_micros() as usize;
        for _ in 0..by_qemu(100, 10) {
            let library = ring(&engine, 2);
            let barrier = Barrier::new(3);
            let delay = Duration::from_micros(random.below(usual) as u64);
            std::thread::scope(|scope| {
                let askers: Vec<_> = (0..2)
                    .map(|t| {
                        let (library, barrier) = (&library, &barrier);
                        scope.spawn(move || {
                            barrier.wait();
                            // SAFETY: `int f(int)`.
                            match unsafe { library.get::<Function>(&format!("f{t}_9")) } {
                                Ok(f) => {
                                    // SAFETY: as above; the handle keeps the code.
                                    let value = unsafe { f(5) };
                                    assert_eq!(value, expected(t, 9, 5, 2, SECTIONS));
                                    true
                                }
                                Err(Error::Library(LibraryError::Removed { .. })) => false,
                                Err(other) => panic!("{other:?}"),
                            }
                        })
                    })
                    .collect();
                barrier.wait();
                std::thread::sleep(delay);
                library.remove();
                for asker in askers {
                    if asker.join().unwrap() { worked += 1 } else { gone += 1 }
                }
            });
            drop(library);
            engine.assert_unchanged();
        }
        println!("{worked} lookups before removal, {gone} after");
        engine.finish();
    });
}

/// Two instructions, without what depends on places in pages: AArch64's ADRP, and ADD, loads and stores behind it.
fn without_places_in_pages(word: usize) -> usize {
    let without = |instruction: u32| match instruction {
        adrp if adrp & 0x9f00_0000 == 0x9000_0000 => adrp & 0x9f00_001f,
        add if add & 0x7fc0_0000 == 0x1100_0000 => add & !0x003f_fc00,
        load if load & 0x3b00_0000 == 0x3900_0000 => load & !0x003f_fc00,
        other => other,
    };
    if cfg!(target_arch = "x86_64") {
        return word;
    }
    (without((word >> 32) as u32) as usize) << 32 | without(word as u32) as usize
}

/// Everything in memory, with addresses in the slab counted from the first of these names, and without the zeros at both
/// ends: each slab begins at another place of its first page.
fn layout(engine: &JitEngine, bytes: &[u8], names: &[String]) -> Vec<usize> {
    let far = |i: usize| std::ptr::without_provenance::<()>(0x007e_adbe_f000_0000 + i * 64);
    // SAFETY: what is given is not followed.
    let give = |b: LibraryBuilder, i| unsafe { b.symbol(&format!("far{i}"), far(i)) };
    let library = (0..SECTIONS).fold(engine.library("layout"), give).build().unwrap();
    library.add_object(bytes).unwrap();
    let address = |name: &String| {
        // SAFETY: functions, of which none is called, and `int` variables.
        let address = unsafe {
            match name.starts_with("common") {
                true => library.get::<*const i32>(name).map(|s| s.address()),
                false => library.get::<Function>(name).map(|s| s.address()),
            }
        };
        address.unwrap_or_else(|e| panic!("{name}: {e}")).addr()
    };
    let addresses: Vec<_> = names.iter().map(address).collect();
    let [slab] = &library.slab_of(&names[0]).unwrap()[..] else { panic!("one slab") };
    let range = slab.addresses.clone();
    let count_from = |value: usize| match range.contains(&value) {
        true => value.wrapping_sub(addresses[0]),
        false => without_places_in_pages(value),
    };
    let words = (range.start..range.end - 7).step_by(8).map(|at| {
        // SAFETY: a slab is readable from end to end, and `library` keeps it.
        count_from(unsafe { std::ptr::with_exposed_provenance::<usize>(at).read() })
    });
    let in_memory: Vec<usize> = words.skip_while(|word| *word == 0).collect();
    let end = in_memory.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
    let layout = addresses.iter().map(|&a| count_from(a)).chain(in_memory[..end].iter().copied()).collect();
    freed(&library);
    layout
}

/// JITLink keeps blocks in sets ordered by where they happen to be allocated: GOT entries, stubs, COMMON symbols and
/// what else is made while linking must not be laid out in that order.
fn every_link_of_an_object_has_the_same_layout() {
    let engine = Checked::of(common::per_object().build().unwrap());
    let mut text = String::new();
    let mut names = Vec::new();
    for i in 0..SECTIONS {
        text += &format!(
            "extern int far{i}(int); int common{i}; static int (*resolve{i}(void))(int) {{ return far{i}; }}
             int indirect{i}(int) __attribute__((ifunc(\"resolve{i}\")));
             int f{i}(int x) {{ return far{i}(x) + common{i}; }} void *a{i}(void) {{ return indirect{i}; }}\n"
        );
        names.extend(["f", "a", "common", "indirect"].map(|name| format!("{name}{i}")));
    }
    let bytes = compile_bytes("layout.c", &text, &["-ffunction-sections", "-fcommon"]);
    let first = layout(&engine, &bytes, &names);
    // So that the allocator has other addresses to give.
    let mut held = Vec::new();
    for i in 0..by_qemu(8, 3) {
        held.push(vec![0_u8; 1000 + 64 * i]);
        held.push(object(0, 1));
        let other = layout(&engine, &bytes, &names);
        let differing = first.iter().zip(&other).position(|(a, b)| a != b);
        assert!(first.len() == other.len() && differing.is_none(), "differs at word {differing:?}");
    }
    engine.finish();
}

/// Sections of one name that are in groups of their own: their order is the file's, as in every linker (gABI,
/// "Sections"), whoever refers to them. The bounds of a set of C's name are those of all of them.
fn sections_of_one_name_keep_their_order() {
    const MEMBERS: i32 = 16;
    let engine = Checked::new();
    let mut text = String::from("extern int __start_members[], __stop_members[];\n");
    for i in 0..MEMBERS {
        text += &format!(
            "__asm__(\".section members,\\\"awG\\\",%progbits,group{i},comdat\\n.globl m{i}\\nm{i}: .long \
             {i}\\n.text\");"
        );
    }
    // Every other one is referred to, from the last to the first.
    for i in (0..MEMBERS).rev().step_by(2) {
        text += &format!("extern int m{i}; int *a{i}(void) {{ return &m{i}; }}\n");
    }
    text += "int at(int i) { return __start_members + i < __stop_members ? __start_members[i] : -1; }";
    let bytes = compile_bytes("members.c", &text, &[]);
    for _ in 0..by_qemu(10, 3) {
        let library = engine.add_object(&bytes).unwrap();
        // SAFETY: `int at(int)`.
        let at = unsafe { library.get::<Function>("at").unwrap() };
        // SAFETY: as above.
        let found: Vec<_> = (0..MEMBERS + 1).map(|i| unsafe { at(i) }).collect();
        assert_eq!(found, (0..MEMBERS).chain([-1]).collect::<Vec<_>>());
        drop(at);
        freed(&library);
    }
    engine.finish();
}

fn references_out_of_range_are_listed_in_order() {
    const MANY: usize = 200;
    let engine = Checked::of(JitEngine::builder().out_of_range(OutOfRange::Reject).build().unwrap());
    let far = std::ptr::without_provenance::<()>(0x007e_adbe_f000_0000);
    let text: String = (0..MANY)
        .map(|i| {
            let field = by_arch(".long far - .", ".word far - .");
            format!(".section .data.d{i},\"aw\"\n.globl d{i}\nd{i}: .quad d{}\n {field}\n", (i + 7) % MANY)
        })
        .collect();
    let bytes = compile_bytes("order.s", &text, &[]);
    let mut first = None;
    for _ in 0..by_qemu(6, 2) {
        // SAFETY: no shared library is opened, and `far` is not followed.
        let library = unsafe { engine.library("order").symbol("far", far).build().unwrap() };
        library.add_object_named("order.o", &bytes).unwrap();
        // SAFETY: there are no initialisers.
        let error = unsafe { library.initialize() }.unwrap_err();
        let Error::Link(LinkError::ReferencesOutOfRange { references, .. }) = &error else { panic!("{error:?}") };
        let sections: Vec<_> = references.iter().map(|r| r.section.clone()).collect();
        let in_order: Vec<_> = (0..sections.len()).map(|i| format!(".data.d{i}")).collect();
        assert_eq!(sections, in_order);
        assert_eq!(first.get_or_insert_with(|| error.to_string()), &error.to_string());
        freed(&library);
    }
    engine.finish();
}
