//! Names that libraries export to the process: what finds them there, what they keep, and when they are gone. What the
//! same object does as a shared library that was opened RTLD_GLOBAL is the oracle.

use std::ffi::{CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::thread;
use std::time::Duration;

use slabjit::{Error, JitEngine, Library, LinkError, Provider, Removal};

use crate::common::{
    self, Checked, Int, call, child, compile, compile_bytes, freed, int, link_shared, tests, thread_time,
};

tests![
    dlsym_finds_what_is_visible,
    later_libraries_bind_as_to_a_shared_library,
    bound_libraries_keep_what_they_use,
    names_of_versions_and_of_weak_definitions,
    the_first_of_two_libraries_counts,
    names_of_objects_that_come_later,
    indirect_functions_are_what_they_resolve_to,
    initialisers_open_what_binds_to_them,
    what_failed_is_withdrawn,
    imports_from_the_process_keep_who_exports,
    circles_by_names_in_the_process_end,
    finalisers_run_outside_of_the_loader,
    a_library_that_goes_is_used_to_the_end,
    programs_are_called_back;
    alone: engines_inside_of_the_loader, many_names_take_linear_time, threads_open_and_export,
        children_inherit_exports, exports_at_the_end, refused;
    parts: ending_with_exports
];

// ---- shared libraries and look-ups ----

/// A shared library that this test has opened.
struct Opened(*mut c_void);

// SAFETY: the loader's handle may be used from any thread.
unsafe impl Send for Opened {}

impl Opened {
    fn try_open(path: &Path, flags: c_int) -> Result<Self, String> {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: compiled by the test.
        let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
        if !handle.is_null() {
            return Ok(Self(handle));
        }
        // SAFETY: there was an error on this thread, whose text is copied.
        Err(unsafe { std::ffi::CStr::from_ptr(libc::dlerror()) }.to_string_lossy().into_owned())
    }

    #[track_caller]
    fn open(path: &Path, flags: c_int) -> Self {
        Self::try_open(path, flags).unwrap()
    }

    #[track_caller]
    fn call(&self, name: &str) -> i32 {
        let name = CString::new(name).unwrap();
        // SAFETY: the handle is open, and the function `int (void)`, by the test.
        unsafe {
            let function = libc::dlsym(self.0, name.as_ptr());
            assert!(!function.is_null(), "{name:?}");
            std::mem::transmute::<*mut c_void, Int>(function)()
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: opened once, by this.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

/// The results of all look-ups in the process's scope, which agree.
#[track_caller]
fn find(name: &str) -> usize {
    let text = CString::new(name).unwrap();
    // SAFETY: plain look-ups.
    let (default, program, version) = unsafe {
        let program = libc::dlopen(ptr::null(), libc::RTLD_LAZY);
        let found = (
            libc::dlsym(libc::RTLD_DEFAULT, text.as_ptr()),
            libc::dlsym(program, text.as_ptr()),
            libc::dlvsym(program, text.as_ptr(), c"ANY".as_ptr()),
        );
        libc::dlclose(program);
        found
    };
    assert_eq!((default, default), (program, version), "{name}");
    default.addr()
}

/// A shared library of C whose undefined names are left so, bound at once or when they are called.
fn plugin(name: &str, source: &str, lazy: bool) -> PathBuf {
    let object = compile("plugin.c", source, &[]);
    link_shared(name, &[&object], &[if lazy { "-Wl,-z,lazy" } else { "-Wl,-z,now" }])
}

fn exporting(engine: &JitEngine, name: &str, source: &str) -> Library {
    let library = engine.library(name).export().build().unwrap();
    library.add_object_named(name, compile_bytes("exporting.c", source, &[])).unwrap();
    library
}

#[track_caller]
fn ready(library: &Library) {
    // SAFETY: the initialisers are those of the test.
    unsafe { library.initialize().unwrap() };
}

// ---- the tests ----

fn dlsym_finds_what_is_visible() {
    let engine = Checked::new();
    let source = "int seen_f(void) { return 5; }  int seen_d = 6;  int seen_zero[10];
        static int unseen_s(void) { return 1; }  int (*seen_p)(void) = unseen_s;
        __attribute__((visibility(\"hidden\"))) int unseen_h(void) { return 2; }
        __attribute__((visibility(\"protected\"))) int seen_q(void) { return 3; }
        _Thread_local int unseen_t = 7;  int *seen_t(void) { return &unseen_t; }";
    let plain = engine.add_object(compile_bytes("exporting.c", source, &[])).unwrap();
    ready(&plain);
    assert_eq!(find("seen_f"), 0, "nothing is exported unasked");
    freed(&plain);

    let library = exporting(&engine, "seen.o", source);
    assert_eq!(find("seen_f"), 0, "nothing is linked yet");
    assert_eq!(call(&library, "seen_f"), 5);
    for name in ["seen_f", "seen_d", "seen_zero", "seen_p", "seen_q", "seen_t"] {
        // SAFETY: any of them may be pointed to.
        let address = unsafe { library.get::<*const u8>(name).unwrap().address() };
        assert_eq!(find(name), address as usize, "{name}");
    }
    for name in ["unseen_s", "unseen_h", "unseen_t", "seen", "seen_f@@V", ""] {
        assert_eq!(find(name), 0, "{name}");
    }
    // What `dlsym` has found keeps nothing, also where the loader keeps the module for it.
    freed(&library);
    for name in ["seen_f", "seen_d", "seen_zero", "seen_p", "seen_q", "seen_t"] {
        assert_eq!(find(name), 0, "{name} is still found");
    }
    // A library that is dropped goes with its names, though a symbol keeps the code.
    let library = exporting(&engine, "seen.o", source);
    let kept = int(&library, "seen_f");
    assert_eq!(find("seen_f"), kept.address() as usize);
    drop(library);
    assert_eq!(find("seen_f"), 0);
    // SAFETY: the symbol keeps it.
    assert_eq!(unsafe { kept() }, 5);
    drop(kept);
    engine.finish();
}

/// What is exported, and what binds to it, with names of their own for each that exports.
fn pair(prefix: &str) -> (String, String) {
    let exported = "int P_d = 40;  int P_f(void) { return P_d++; }  int P_g(void) { return 2; }
        extern int P_missing __attribute__((weak));
        int P_weakly(void) { return &P_missing == 0; }
        __attribute__((visibility(\"hidden\"))) int P_hidden(void) { return 3; }";
    let plugin = "extern int P_d;  int P_f(void), P_g(void), P_weakly(void);
        int P_hidden(void) __attribute__((weak));
        int (*pointer)(void) = P_g;  int *data = &P_d;
        int use_f(void) { return P_f(); }  int use_g(void) { return P_g(); }  int use_d(void) { return P_d; }
        int use_pointer(void) { return pointer() + *data; }  int use_hidden(void) { return P_hidden ? 1 : 0; }
        int use_weakly(void) { return P_weakly(); }";
    (exported.replace('P', prefix), plugin.replace('P', prefix))
}

/// What a shared library gets from the names that it binds to.
fn used(plugin: &Opened) -> [i32; 7] {
    ["use_f", "use_d", "use_f", "use_g", "use_pointer", "use_hidden", "use_weakly"].map(|name| plugin.call(name))
}

fn later_libraries_bind_as_to_a_shared_library() {
    for (lazy, flags) in [(false, libc::RTLD_NOW), (true, libc::RTLD_LAZY), (true, libc::RTLD_NOW)] {
        let path = |prefix: &str| plugin("plugin.so", &pair(prefix).1, lazy);
        let refused = Opened::try_open(&path("absent"), libc::RTLD_NOW).err().unwrap();
        assert!(refused.contains("undefined symbol: absent_"), "{refused}");
        let object = compile("exporting.c", &pair("oracle").0, &[]);
        let oracle = Opened::open(&link_shared("oracle.so", &[&object], &[]), libc::RTLD_NOW | libc::RTLD_GLOBAL);
        let expected = used(&Opened::open(&path("oracle"), flags));
        drop(oracle);

        let engine = Checked::new();
        let library = exporting(&engine, "bound.o", &pair("bound").0);
        ready(&library);
        let plugin = Opened::open(&path("bound"), flags);
        assert_eq!(used(&plugin), expected);
        assert_eq!(expected, [40, 41, 41, 2, 44, 0, 1]);
        assert_eq!(plugin.call("use_d"), call(&library, "bound_f"), "data is shared");
        drop(plugin);
        freed(&library);
        assert!(Opened::try_open(&path("bound"), libc::RTLD_NOW).is_err());
        engine.finish();
    }
}

fn bound_libraries_keep_what_they_use() {
    static FINALISED: AtomicI32 = AtomicI32::new(0);
    for lazy in [false, true] {
        FINALISED.store(0, Ordering::Relaxed);
        let engine = Checked::new();
        // SAFETY: an int.
        let builder = unsafe { engine.library("kept").symbol("finalised", FINALISED.as_ptr() as *const ()) };
        let library = builder.export().build().unwrap();
        let source = "extern int *const at;  extern int finalised;  int kept_d = 4;
            int kept_f(void) { return kept_d; }  int kept_g(void) { return 9; }
            __attribute__((destructor)) static void end(void) { finalised++; }";
        library.add_object(compile_bytes("kept.c", source, &[])).unwrap();
        ready(&library);
        let source = "int kept_f(void), kept_g(void);
            int use_f(void) { return kept_f(); }  int use_g(void) { return kept_g(); }";
        let flags = if lazy { libc::RTLD_LAZY } else { libc::RTLD_NOW };
        let (first, second) = (plugin("first.so", source, lazy), plugin("second.so", source, lazy));
        let (first, second) = (Opened::open(&first, flags), Opened::open(&second, flags));
        assert_eq!((first.call("use_f"), second.call("use_f")), (4, 4));
        assert_ne!(find("kept_f"), 0);
        assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
        assert_eq!(find("kept_f"), 0, "removal hides names");
        drop(first);
        // With lazy binding, this is the first call of the function.
        assert_eq!((second.call("use_f"), second.call("use_g")), (4, 9));
        assert_eq!((engine.stats().libraries, FINALISED.load(Ordering::Relaxed)), (1, 0));
        drop(second);
        assert_eq!((engine.stats().libraries, FINALISED.load(Ordering::Relaxed)), (0, 1));
        assert_eq!(library.remove(), Removal::Freed);
        engine.finish();
    }
}

fn names_of_versions_and_of_weak_definitions() {
    let engine = Checked::new();
    let library = exporting(
        &engine,
        "versions.o",
        "int new_v(void) { return 2; }  __asm__(\".symver new_v, version_f@@V2\");
         int old_v(void) { return 1; }  __asm__(\".symver old_v, version_f@V1\");
         __attribute__((weak)) int weak_f(void) { return 3; }
         int common_d;  int set_d(void) { return common_d = 8; }
         __asm__(\".globl absolute_d\\nabsolute_d = 0x1234\\n.globl zero_d\\nzero_d = 0\");",
    );
    // The same function in two objects, of which one has it.
    for _ in 0..2 {
        let inline = "struct T { static inline int n; __attribute__((noinline)) int f() { return ++n; } };
            extern \"C\" __attribute__((weak)) int inline_f() { return T().f(); }";
        library.add_object(compile_bytes("inline.cc", inline, &[])).unwrap();
    }
    assert_eq!(call(&library, "set_d"), 8);
    assert_eq!((find("version_f@V1"), find("absolute_d"), find("zero_d")), (0, 0x1234, 0));
    // `T::n` is unique in GNU's sense, `T::f` in a group.
    let source = "int version_f(void), weak_f(void), inline_f(void);  extern int common_d, _ZN1T1nE;
        int _ZN1T1fEv(void);
        int use(void) { return version_f() + 10 * weak_f() + 100 * common_d
            + 1000 * (inline_f() + _ZN1T1fEv() + _ZN1T1nE); }";
    let bound = Opened::open(&plugin("names.so", source, false), libc::RTLD_NOW);
    assert_eq!(bound.call("use"), 2 + 30 + 800 + 5000);
    drop(bound);
    freed(&library);
    engine.finish();
}

fn the_first_of_two_libraries_counts() {
    let engine = Checked::new();
    let other = Checked::new();
    let source = |n: i32| format!("int two_f(void) {{ return {n}; }}  int only_{n}(void) {{ return {n}; }}");
    let (first, second) = (exporting(&engine, "first.o", &source(1)), exporting(&other, "second.o", &source(2)));
    let (one, two) = (int(&first, "two_f").address() as usize, int(&second, "two_f").address() as usize);
    let path = plugin("two.so", "int two_f(void); int use(void) { return two_f(); }", false);
    assert_eq!((find("two_f"), find("only_1") != 0, find("only_2") != 0), (one, true, true));
    assert_eq!(Opened::open(&path, libc::RTLD_NOW).call("use"), 1);
    freed(&first);
    assert_eq!(find("two_f"), two);
    assert_eq!(Opened::open(&path, libc::RTLD_NOW).call("use"), 2);
    // A new version comes behind the other one, in the order of opening.
    let third = exporting(&engine, "third.o", &source(3));
    assert_eq!(call(&third, "two_f"), 3);
    assert_eq!(find("two_f"), two);
    // What the process has comes first.
    let puts = exporting(&engine, "puts.o", "int puts(const char *s) { return 7; }");
    ready(&puts);
    // SAFETY: a plain look-up.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"puts".as_ptr()) };
    assert_eq!(found.addr(), libc::puts as *const () as usize);
    [third, second, puts].iter().for_each(freed);
    engine.finish();
    other.finish();
}

fn names_of_objects_that_come_later() {
    let engine = Checked::new();
    let library = exporting(&engine, "early.o", "int early_f(void) { return 1; }");
    ready(&library);
    assert_eq!((find("early_f") != 0, find("late_f")), (true, 0));
    let late = "int early_f(void); int late_f(void) { return 10 + early_f(); }";
    library.add_object(compile_bytes("late.c", late, &[])).unwrap();
    let archive = common::temporary().join("late.a");
    let member = compile("member.c", "int member_f(void) { return 100; }", &[]);
    common::tool("ar", &["rcs".as_ref(), archive.as_os_str(), member.as_os_str()]);
    library.add_archive_file(&archive).unwrap();
    ready(&library);
    assert_eq!(find("member_f"), 0, "nothing needs it");
    assert_eq!(call(&library, "member_f"), 100);
    // Something without names to export.
    library
        .add_object(compile_bytes(
            "none.c",
            "static int x; int *p(void) __attribute__((visibility(\"hidden\"))); int *p(void) { return &x; }",
            &[],
        ))
        .unwrap();
    ready(&library);
    let source =
        "int early_f(void), late_f(void), member_f(void); int use(void) { return early_f() + late_f() + member_f(); }";
    let bound = Opened::open(&plugin("late.so", source, false), libc::RTLD_NOW);
    assert_eq!(library.remove(), Removal::Waiting { holders: 2 + 1 });
    assert_eq!((find("early_f"), find("late_f"), find("member_f")), (0, 0, 0));
    assert_eq!(bound.call("use"), 112);
    drop(bound);
    assert_eq!(library.remove(), Removal::Freed);
    engine.finish();
}

fn indirect_functions_are_what_they_resolve_to() {
    let engine = Checked::new();
    let source = "static int chosen(void) { return 17; }  static void *resolve(void) { return chosen; }
        int indirect_f(void) __attribute__((ifunc(\"resolve\")));  int direct_f(void) { return indirect_f(); }";
    let library = exporting(&engine, "indirect.o", source);
    assert_eq!(call(&library, "direct_f"), 17);
    assert_eq!(find("indirect_f"), int(&library, "indirect_f").address() as usize);
    let source = "int indirect_f(void); int (*p)(void) = indirect_f; int use(void) { return indirect_f() + p(); }";
    assert_eq!(Opened::open(&plugin("indirect.so", source, false), libc::RTLD_NOW).call("use"), 34);
    freed(&library);
    engine.finish();
}

fn initialisers_open_what_binds_to_them() {
    let engine = Checked::new();
    let path = plugin("callback.so", "int callback_f(void); int use(void) { return callback_f(); }", false);
    let source = format!(
        "void *dlopen(const char *, int), *dlsym(void *, const char *); int dlclose(void *); const char *dlerror(void);
         int printf(const char *, ...);  static int got = -1;
         int callback_f(void) {{ return 23; }}  int got_f(void) {{ return got; }}
         __attribute__((constructor)) static void begin(void) {{
             void *handle = dlopen(\"{}\", 2);
             if (!handle) {{ printf(\"%s\\n\", dlerror()); return; }}
             got = ((int (*)(void))dlsym(handle, \"use\"))();
             dlclose(handle);
         }}",
        path.display()
    );
    let library = exporting(&engine, "callback.o", &source);
    assert_eq!(call(&library, "got_f"), 23);
    freed(&library);
    engine.finish();
}

fn what_failed_is_withdrawn() {
    static FAILS: AtomicI32 = AtomicI32::new(0);
    static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let engine = Checked::new();
    let path = plugin("failing.so", "int failing_f(void); int use(void) { return failing_f(); }", false);
    let source = format!(
        "extern \"C\" {{ void *dlopen(const char *, int); extern int fails; extern void *handle; }}
         int value = 31;  extern \"C\" int failing_f() {{ return value; }}
         struct Begin {{ Begin() {{ if (fails == 2) handle = dlopen(\"{}\", 2); if (fails) throw 1; }} }} begin;",
        path.display()
    );
    // SAFETY: an int and a pointer; the C++ runtime is a shared library like any other.
    let builder = unsafe {
        let builder = engine.library("failing").symbol("fails", FAILS.as_ptr() as *const ());
        builder.symbol("handle", HANDLE.as_ptr() as *const ()).shared_library("libstdc++.so.6")
    };
    let library = builder.export().build().unwrap();
    library.add_object(compile_bytes("failing.cc", &source, &[])).unwrap();
    let start = engine.stats().arena.slabs;
    for fails in [1, 2] {
        FAILS.store(fails, Ordering::Relaxed);
        // SAFETY: the initialisers are those of the test.
        let error = unsafe { library.initialize() }.unwrap_err();
        assert!(matches!(error, Error::Link(LinkError::InitializerFailed { .. })), "{error:?}");
        assert_eq!(find("failing_f"), 0);
        let bound = HANDLE.swap(ptr::null_mut(), Ordering::Relaxed);
        assert_eq!(bound.is_null(), fails == 1);
        if !bound.is_null() {
            let bound = Opened(bound);
            assert_eq!(bound.call("use"), 31, "what is bound keeps what was unloaded");
        }
        assert_eq!(engine.stats().arena.slabs, start, "it is gone after that");
    }
    FAILS.store(0, Ordering::Relaxed);
    assert_eq!(call(&library, "failing_f"), 31);
    assert_ne!(find("failing_f"), 0);
    freed(&library);
    engine.finish();
}

fn imports_from_the_process_keep_who_exports() {
    let engine = Checked::new();
    let library = exporting(&engine, "provider.o", "int provided_f(void) { return 6; }  int provided_d = 3;");
    ready(&library);
    let user = compile_bytes(
        "user.c",
        "extern int provided_d; int provided_f(void); int use(void) { return provided_f() * provided_d; }",
        &[],
    );
    let user = engine.add_object(user).unwrap();
    assert_eq!(call(&user, "use"), 18);
    let imports = user.imports().unwrap();
    let by_library = |import: &slabjit::ResolvedImport| match &import.provider {
        Provider::Library { name } => name == "provider.o",
        _ => false,
    };
    assert!(imports.iter().filter(|import| import.name.starts_with("provided")).all(by_library), "{imports:?}");
    let jit = engine.orc().build().unwrap();
    let dylib = jit.dylib("user");
    dylib
        .add_object(compile_bytes("dylib.c", "int provided_f(void); int twice(void) { return 2 * provided_f(); }", &[]))
        .unwrap();
    // SAFETY: `int (void)`.
    let twice = unsafe { dylib.get::<Int>("twice").unwrap() };
    assert!(matches!(library.remove(), Removal::Waiting { .. }));
    assert_eq!(call(&user, "use"), 18);
    freed(&user);
    drop((dylib, jit));
    assert!(matches!(library.remove(), Removal::Waiting { .. }));
    // SAFETY: as above; the symbol keeps it.
    assert_eq!(unsafe { twice() }, 12);
    drop(twice);
    assert_eq!(library.remove(), Removal::Freed);
    engine.finish();
}

/// Two libraries find names of each other, which neither was linked against.
fn circles_by_names_in_the_process_end() {
    for removed in [true, false] {
        let engine = Checked::new();
        let first = exporting(&engine, "circle1.o", "int circle_1(void) { return 1; }");
        ready(&first);
        let second = "int circle_1(void); int circle_2(void) { return 2 + circle_1(); }";
        let second = exporting(&engine, "circle2.o", second);
        ready(&second);
        let third = "int circle_2(void); int circle_3(void) { return 3 + circle_2(); }";
        first.add_object(compile_bytes("circle3.c", third, &[])).unwrap();
        assert_eq!(call(&first, "circle_3"), 6);
        match removed {
            true => {
                assert_eq!(first.remove(), Removal::Waiting { holders: 1 });
                freed(&second);
                freed(&first);
            }
            false => drop((first, second)),
        }
        engine.finish();
    }
}

/// A library with a finaliser that calls `wait`, and exports `name_f`.
fn waiting(engine: &JitEngine, name: &str, wait: extern "C" fn()) -> Library {
    // SAFETY: `void (void)`.
    let builder = unsafe { engine.library(name).symbol("wait", wait as *const ()) };
    let library = builder.export().build().unwrap();
    let source = "void wait(void);  int NAME_f(void) { return 1; }
        __attribute__((destructor)) static void end(void) { wait(); }";
    library.add_object(compile_bytes("waiting.c", &source.replace("NAME", name), &[])).unwrap();
    ready(&library);
    library
}

/// Removal runs finalisers where they may wait for others that are in the loader.
fn finalisers_run_outside_of_the_loader() {
    static LOADED: AtomicBool = AtomicBool::new(false);
    extern "C" fn wait_for_another_loader() {
        let other = thread::spawn(|| {
            drop(Opened::open(&plugin("unrelated.so", "int unrelated;", false), libc::RTLD_NOW));
            LOADED.store(true, Ordering::Relaxed);
        });
        other.join().unwrap();
    }
    common::within(Duration::from_secs(60), "a finaliser that waits for the loader", || {
        let engine = Checked::new();
        for removed in [true, false] {
            LOADED.store(false, Ordering::Relaxed);
            let library = waiting(&engine, "outside", wait_for_another_loader);
            match removed {
                true => freed(&library),
                false => drop(library),
            }
            assert!(LOADED.load(Ordering::Relaxed));
        }
        engine.finish();
    });
}

/// The destructors of what is bound come before the library's.
fn a_library_that_goes_is_used_to_the_end() {
    static ORDER: AtomicI32 = AtomicI32::new(0);
    extern "C" fn second() {
        ORDER.fetch_add(2, Ordering::Relaxed);
    }
    let engine = Checked::new();
    let library = waiting(&engine, "end", second);
    // SAFETY: an int.
    let recorder = unsafe { engine.library("recorder").symbol("order", ORDER.as_ptr() as *const ()) };
    let recorder = recorder.export().build().unwrap();
    recorder
        .add_object(compile_bytes("record.c", "extern int order; void record(int n) { order *= n; }", &[]))
        .unwrap();
    ready(&recorder);
    let source = "void record(int); int end_f(void);
        __attribute__((destructor)) static void end(void) { record(10 * end_f()); }";
    let bound = Opened::open(&plugin("destructor.so", source, false), libc::RTLD_NOW);
    assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
    assert_eq!(recorder.remove(), Removal::Waiting { holders: 1 });
    ORDER.store(1, Ordering::Relaxed);
    drop(bound);
    assert_eq!(ORDER.load(Ordering::Relaxed), 12);
    engine.finish();
}

/// Initialisers and finalisers of shared libraries, and those who walk the list of them, hold the loader's locks. It is
/// alone: glibc takes two locks in either order if one thread opens something while it walks, and another just opens.
fn engines_inside_of_the_loader() {
    static RUN: AtomicI32 = AtomicI32::new(0);
    extern "C" fn run() {
        let engine = Checked::new();
        let library = exporting(&engine, "inside.o", "int inside_f(void) { return 77; }");
        assert_eq!(call(&library, "inside_f"), 77);
        assert_ne!(find("inside_f"), 0);
        // The module of names goes when the outer call of the loader ends.
        library.remove();
        assert_eq!(find("inside_f"), 0);
        RUN.fetch_add(1, Ordering::Relaxed);
    }
    unsafe extern "C" fn visit(_: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
        run();
        1
    }
    let engine = Checked::new();
    // SAFETY: `void (void)`.
    let builder = unsafe { engine.library("runner").symbol("run", run as *const ()) };
    let library = builder.export().build().unwrap();
    library.add_object(compile_bytes("runner.c", "void run(void); void run_inside(void) { run(); }", &[])).unwrap();
    ready(&library);
    let source = "void run_inside(void);
        __attribute__((constructor)) static void begin(void) { run_inside(); }
        __attribute__((destructor)) static void end(void) { run_inside(); }";
    drop(Opened::open(&plugin("inside.so", source, false), libc::RTLD_NOW));
    assert_eq!(RUN.load(Ordering::Relaxed), 2);
    // SAFETY: the callback has no argument.
    unsafe { libc::dl_iterate_phdr(Some(visit), ptr::null_mut()) };
    assert_eq!(RUN.load(Ordering::Relaxed), 3);
    freed(&library);
    engine.finish();
}

fn many_names_take_linear_time() {
    let engine = Checked::new();
    let library_of = |count: usize| {
        let names: String =
            (0..count).map(|i| format!(".globl many_{count}_{i}\nmany_{count}_{i}: .byte 0\n")).collect();
        let object = compile_bytes("many.s", &format!(".data\n{names}"), &[]);
        let time = |export: bool| {
            let builder = engine.library("many");
            let library = if export { builder.export() } else { builder }.build().unwrap();
            library.add_object(&object).unwrap();
            let start = thread_time();
            ready(&library);
            (library, thread_time() - start)
        };
        freed(&time(false).0);
        let plain = (0..3)
            .map(|_| {
                let (library, time) = time(false);
                freed(&library);
                time
            })
            .min()
            .unwrap();
        let best = (0..3)
            .map(|_| {
                let (library, time) = time(true);
                freed(&library);
                time
            })
            .min()
            .unwrap();
        let (library, _) = time(true);
        let first = find(&format!("many_{count}_0"));
        for i in (0..count).step_by(7) {
            assert_eq!(find(&format!("many_{count}_{i}")), first + i);
        }
        assert_eq!(find(&format!("many_{count}_{count}")), 0);
        freed(&library);
        println!("{count} names: {plain:?} to link, {best:?} with exporting");
        best.saturating_sub(plain)
    };
    let (few, many) = (library_of(10_000), library_of(80_000));
    assert!(many < few.max(Duration::from_millis(1)) * 24, "{few:?} for 10 000 names, {many:?} for 80 000");
    engine.finish();
}

fn threads_open_and_export() {
    common::within(Duration::from_secs(240), "threads that open and export", || {
        let engine = Checked::new();
        let path = |i: usize| {
            let source = format!(
                "int busy_{i}(void) __attribute__((weak));
                int use(void) {{ return busy_{i} ? busy_{i}() : -1; }}"
            );
            plugin(&format!("busy{i}.so"), &source, i.is_multiple_of(2))
        };
        let object = |i: usize| compile_bytes("busy.c", &format!("int busy_{i}(void) {{ return {i}; }}"), &[]);
        let parts: Vec<_> = (0..3).map(|i| (path(i), object(i))).collect();
        let seen = AtomicI32::new(0);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let exporters: Vec<_> = (0..3)
                .map(|i| {
                    let (engine, parts) = (&engine, &parts);
                    scope.spawn(move || {
                        for _ in 0..150 {
                            let library = engine.library("busy").export().build().unwrap();
                            library.add_object(&parts[i].1).unwrap();
                            assert_eq!(call(&library, &format!("busy_{i}")), i as i32);
                            library.remove();
                        }
                    })
                })
                .collect();
            for i in 0..3 {
                let (parts, seen, done) = (&parts, &seen, &done);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        let bound = Opened::open(&parts[i].0, libc::RTLD_LAZY);
                        let got = bound.call("use");
                        assert!(got == -1 || got == i as i32, "{got}");
                        seen.fetch_add(i32::from(got >= 0), Ordering::Relaxed);
                    }
                });
            }
            exporters.into_iter().for_each(|thread| thread.join().unwrap());
            done.store(true, Ordering::Relaxed);
        });
        assert!(seen.load(Ordering::Relaxed) > 0, "nothing was ever bound");
        engine.finish();
    });
}

fn children_inherit_exports() {
    let engine = Checked::new();
    let library = exporting(&engine, "forked.o", "int forked_f(void) { return 12; }");
    ready(&library);
    let path = plugin("forked.so", "int forked_f(void); int use(void) { return forked_f(); }", false);
    let bound = Opened::open(&path, libc::RTLD_NOW);
    // SAFETY: the child ends without unwinding into what is the parent's.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(60);
            let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                assert_ne!(find("forked_f"), 0);
                assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
                assert_eq!(bound.call("use"), 12);
                libc::dlclose(bound.0);
                assert_eq!(library.remove(), Removal::Freed);
                let own = exporting(&engine, "child.o", "int child_f(void) { return 13; }");
                assert_eq!(call(&own, "child_f"), 13);
                assert_ne!(find("child_f"), 0);
                freed(&own);
            }));
            libc::_exit(i32::from(passed.is_err()));
        }
        child
    };
    let mut status = -1;
    // SAFETY: a child of this process, and a place for the status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!((bound.call("use"), find("forked_f") != 0, find("child_f")), (12, true, 0));
    drop(bound);
    freed(&library);
    engine.finish();
}

/// A process ends while something is bound: finalisers run once, and what ends later still calls the library.
fn exports_at_the_end() {
    let end = child("ending_with_exports");
    assert_eq!((end.code, end.signal), (Some(0), None), "{end:?}");
    let lines: Vec<_> = end.stdout.lines().collect();
    assert_eq!(
        lines,
        ["removed", "plugin 2", "finaliser of held", "finaliser of removed", "plugin 1", "late"],
        "{end:?}"
    );
}

fn ending_with_exports() {
    let engine = JitEngine::new().unwrap();
    let source = |name: &str| {
        format!(
            "int puts(const char *); int atexit(void (*)(void)); int {name}_f(void) {{ return 1; }}
         __attribute__((destructor)) static void end(void) {{ puts(\"finaliser of {name}\"); }}"
        )
    };
    let held = exporting(&engine, "held.o", &source("held"));
    let removed = exporting(&engine, "removed.o", &source("removed"));
    let bare = exporting(&engine, "bare.o", "int bare_f(void) { return 3; }");
    [&removed, &held, &bare].into_iter().for_each(ready);
    let source = "int puts(const char *); int atexit(void (*)(void)); int held_f(void), removed_f(void), bare_f(void);
        static void handler(void) { puts(held_f() + removed_f() == 2 ? \"plugin 2\" : \"?\"); }
        __attribute__((constructor)) static void begin(void) { atexit(handler); }
        int use(void) { return bare_f(); }
        __attribute__((destructor)) static void end(void) { puts(held_f() * removed_f() ? \"plugin 1\" : \"?\"); }";
    let bound = Opened::open(&plugin("ending.so", source, false), libc::RTLD_NOW);
    // What was opened last ends last.
    let late = "int puts(const char *); int usleep(unsigned);
        __attribute__((destructor)) static void end(void) { usleep(200000); puts(\"late\"); }";
    std::mem::forget(Opened::open(&plugin("late.so", late, false), libc::RTLD_NOW));
    removed.remove();
    bare.remove();
    println!("removed");
    // Threads run to the very end.
    thread::spawn(move || while bound.call("use") == 3 {});
    std::mem::forget(held);
}

/// Without a memory file, descriptors or `/proc`, a library that is to export is an error, and works once it can.
#[cfg(slabjit_faults)]
fn refused() {
    use slabjit::fault::{Call, with_errors};
    let engine = Checked::new();
    let library = exporting(&engine, "refused.o", "int refused_f(void) { return 4; }");
    let files = common::open_files();
    let cases = [
        (Call::CreateImage, 0, libc::EMFILE, "ulimit -n"),
        (Call::SizeImage, 0, libc::ENOMEM, "ftruncate"),
        (Call::WriteImage, 1, libc::ENOSPC, "pwrite"),
        (Call::OpenImage, 0, libc::ENOMEM, "Cannot allocate"),
        (Call::OpenImage, 1, libc::ENOMEM, "Cannot allocate"),
    ];
    for (refused, nth, errno, word) in cases {
        let mut seen = 0;
        let refuse = move |_, call| {
            seen += i32::from(call == refused);
            (call == refused && seen > nth).then_some(errno)
        };
        // SAFETY: there are no initialisers.
        let (result, _) = with_errors(refuse, || unsafe { library.initialize() });
        let error = result.unwrap_err();
        assert!(matches!(&error, Error::Link(LinkError::ExportRefused { library, .. }) if library == "refused.o"));
        let text = error.to_string();
        assert!(text.contains(word) && text.contains("LibraryBuilder::export"), "{text}");
        assert_eq!((common::open_files(), find("refused_f")), (files, 0));
    }
    assert_eq!((call(&library, "refused_f"), common::open_files()), (4, files));
    assert_ne!(find("refused_f"), 0);
    freed(&library);
    engine.finish();
}

/// `slabjit run` exports a program's names, as a linker does with `-rdynamic`, and goes on where it cannot.
#[cfg(feature = "cli")]
fn programs_are_called_back() {
    use crate::target;
    let plugin = plugin(
        "callback.so",
        "extern int counter; int add(int); __attribute__((weak)) int hidden(void);
         int use(void) { add(5); return counter + (hidden ? 100 : 0); }",
        true,
    );
    let object = compile(
        "program.c",
        "#include <dlfcn.h>\n#include <stdio.h>
         int counter = 1;  int add(int n) { return counter += n; }
         __attribute__((visibility(\"hidden\"))) int hidden(void) { return 1; }
         int main(int argc, char **argv) {
             void *plugin = dlopen(argv[1], RTLD_NOW);
             if (!plugin) { puts(dlerror()); return 2; }
             printf(\"%d\\n\", ((int (*)(void))dlsym(plugin, \"use\"))());
             printf(\"%d %d\\n\", dlsym(RTLD_DEFAULT, \"add\") == add, dlsym(dlopen(0, RTLD_LAZY), \"main\") == main);
             return dlclose(plugin);
         }",
        &[],
    );
    let program = common::temporary().join("called-back");
    common::tool("gcc", &["-rdynamic".as_ref(), "-o".as_ref(), program.as_os_str(), object.as_os_str()]);
    let native = target::run(&program).arg(&plugin).output().unwrap();
    let run = |limited: bool| {
        let program = env!("CARGO_BIN_EXE_slabjit");
        let mut command = if limited {
            // No file may have bytes, memory files included. A shell sets the limit. `pre_exec` would make the child
            // with `fork`, and other tests count the handlers that run then.
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", "ulimit -f 0 && exec \"$@\"", "sh", program]);
            shell
        } else {
            target::run(program)
        };
        command.arg("run").arg(&object).arg("--").arg(&plugin);
        command.output().unwrap()
    };
    let ours = run(false);
    let text = |output: &std::process::Output| String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!((ours.status.code(), text(&ours)), (native.status.code(), text(&native)), "{ours:?}");
    assert_eq!(text(&ours), "6\n1 1\n");
    if target::not_under_qemu("qemu itself writes a file that is limited") {
        return;
    }
    let limited = run(true);
    assert_eq!(limited.status.code(), Some(2), "{limited:?}");
    assert!(text(&limited).contains("undefined symbol: "), "{limited:?}");
}

#[cfg(not(feature = "cli"))]
fn programs_are_called_back() {
    println!("not run: there is no program");
}

#[cfg(not(slabjit_faults))]
fn refused() {
    println!("not run: no call can be made to fail");
}
