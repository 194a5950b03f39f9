//! Objects of real compilers at a distance from everything that they refer to: libc and the test's own executable are 3
//! GiB, 16 GiB and 16 TiB away from the arena.

use std::ffi::{c_int, c_void};

use slabjit::{Error, FarReference, JitEngine, Library, LinkError};

use crate::common::{self, Checked, compile_with, freed, mappings, once_per, tool};

common::tests![; alone: objects_3_gib_away, objects_16_gib_away, objects_16_tib_away, function_pointers_16_tib_away];

const GIB: usize = 1 << 30;
const TIB: usize = 1 << 40;
const X86_64: bool = cfg!(target_arch = "x86_64");
const COMPILERS: [&str; 3] = ["gcc", "clang-19", "clang-22"];

static HOST_VALUE: c_int = 4321;

extern "C" fn host_function(x: c_int) -> c_int {
    1000 * x
}

/// Everything of the process that may have symbols: what is mapped of files, but for what arenas have: the headers of
/// their modules, and the memory of packed code and constants.
fn files() -> Vec<common::Mapping> {
    let is_arena = |name: &str| name.starts_with("/memfd:slabjit");
    mappings().into_iter().filter(|m| m.name.starts_with('/') && !is_arena(&m.name)).collect()
}

/// An engine whose arena is at least so far away from all of that, and from something not much further.
fn engine_away(distance: usize) -> Checked {
    // By force: the kernel finds no place that is nearer. qemu-user would take minutes for so much address space.
    #[cfg(target_arch = "x86_64")]
    let engine = {
        let _blocker = crate::blocker::keep_away(distance);
        Checked::of(JitEngine::new().unwrap())
    };
    #[cfg(not(target_arch = "x86_64"))]
    let engine = {
        let away = |address: usize| files().iter().all(|m| m.start.abs_diff(address) > distance + 2 * GIB);
        let places = files()
            .into_iter()
            .flat_map(|m| [m.end.checked_add(distance + 3 * GIB), m.start.checked_sub(distance + 3 * GIB)]);
        let near = |address| {
            JitEngine::builder().arena_size(GIB).arena_placement(slabjit::ArenaPlacement::Near { address }).build()
        };
        Checked::of(places.flatten().filter(|a| away(*a)).find_map(|a| near(a).ok()).expect("no place so far away"))
    };
    let arena = engine.arena();
    let nearest =
        files().iter().map(|m| if m.start >= arena.end { m.start - arena.end } else { arena.start - m.end }).min();
    let nearest = nearest.unwrap();
    assert!((distance - (8 << 20)..2 * distance + 8 * GIB).contains(&nearest), "{nearest:#x} from {arena:x?}");
    engine
}

fn load(engine: &Checked, object: &std::path::Path) -> Library {
    // SAFETY: of the types that the sources below give them.
    let library = unsafe {
        let builder = engine.library("far").symbol("host_value", (&raw const HOST_VALUE).cast());
        builder.symbol("host_function", host_function as *const ()).build().unwrap()
    };
    library.add_object_file(object).unwrap();
    library
}

/// What a function of an object returns.
fn call(library: &Library, name: &str, x: c_int) -> Result<usize, Error> {
    // SAFETY: the functions of the sources below take an int and return what fits into a register.
    Ok(unsafe { library.get::<unsafe extern "C" fn(c_int) -> usize>(name)?(x) })
}

fn process_symbol(name: &std::ffi::CStr) -> usize {
    // SAFETY: a plain call.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) as usize }
}

const CALLS: &str = "#include <string.h>
    #include <stdlib.h>
    int host_function(int);
    long calls(int x) { char text[64]; memset(text, 'a', 63); text[63] = 0; return abs(-x) + (long)strlen(text) + host_function(x); }";
const FUNCTION: &str = "#include <stdlib.h>
    void *function(int i) { return (void *)qsort; }";
const IFUNC: &str = "#include <string.h>
    void *function(int i) { return (void *)strlen; }";
const DATA: &str = "extern int host_value; void *data(int i) { return &host_value; }";
const READS: &str = "extern int host_value; extern const unsigned char in6addr_loopback[16];
    long reads(int i) { return host_value + in6addr_loopback[15]; }";
const TABLE: &str = "#include <stdlib.h>
    extern int host_value; int host_function(int);
    void *const table[] = {(void *)qsort, &host_value, (void *)host_function};
    void *entry(int i) { return table[i]; }";

/// Right, whatever the flags.
fn right(engine: &Checked, object: &std::path::Path, name: &str, x: c_int, wanted: usize) {
    let library = load(engine, object);
    assert_eq!(call(&library, name, x).unwrap(), wanted, "{name} of {}", object.display());
    freed(&library);
}

/// Refused, with what there is to say.
fn refused(engine: &Checked, object: &std::path::Path, name: &str) {
    let library = load(engine, object);
    let told = |r: &FarReference| r.remedy.contains("-fPIC") && r.relocation.starts_with("R_X86_64_");
    match call(&library, name, 0) {
        Err(Error::Link(LinkError::ReferencesOutOfRange { references, more: 0, .. })) => {
            assert!(!references.is_empty() && references.iter().all(told), "{references:?}");
        }
        other => panic!("{name} of {}: {other:?}", object.display()),
    }
    freed(&library);
}

fn objects_away(distance: usize) {
    let engine = engine_away(distance);
    let value = (&raw const HOST_VALUE).addr();
    let own = host_function as *const () as usize;
    let (qsort, strlen) = (process_symbol(c"qsort"), process_symbol(c"strlen"));
    assert!(qsort != 0 && strlen != 0);
    for compiler in COMPILERS {
        for model in ["-fPIC", "-fPIE", "-fno-pic"] {
            let object = |source| compile_with(compiler, "away.c", source, &[model, "-fno-builtin"]);
            right(&engine, &object(CALLS), "calls", 7, 7 + 63 + 7000);
            // In 32 bits without PIC on x86-64; one instruction, or two on AArch64, that can be bridged.
            let absolute = X86_64 && model == "-fno-pic";
            for (source, name, wanted) in
                [(FUNCTION, "function", qsort), (IFUNC, "function", strlen), (DATA, "data", value)]
            {
                match absolute {
                    true => refused(&engine, &object(source), name),
                    false => right(&engine, &object(source), name, 0, wanted),
                }
            }
            // An instruction of x86-64 reads the memory itself; clang goes through the GOT for what a PIE may import.
            match X86_64 && (absolute || model == "-fPIE" && compiler == "gcc") {
                true => refused(&engine, &object(READS), "reads"),
                false => right(&engine, &object(READS), "reads", 0, 4322),
            }
            if !absolute {
                for (i, wanted) in [qsort, value, own].into_iter().enumerate() {
                    right(&engine, &object(TABLE), "entry", i as c_int, wanted);
                }
            }
        }
    }
    engine.assert_usable();
    engine.finish();
}

fn objects_3_gib_away() {
    objects_away(3 * GIB);
}

fn objects_16_gib_away() {
    objects_away(16 * GIB);
}

fn objects_16_tib_away() {
    objects_away(16 * TIB);
}

// ---- llvm#173269 ----

type Kernel = unsafe extern "C" fn(f32, *const f32, *const f32, i64, i64, i64, *mut f32, *mut f32, i64, i64, i64);

extern "C" fn runtime_set_error(_: *const c_void, _: *const c_void) {}

/// Gets the address of a function of the object, and that of one of the process; stores the first where the caller
/// says.
///
/// # Safety
/// Called by the object, with what the test below gave it.
unsafe extern "C" fn runtime_register(
    place: *mut *const c_void,
    kernel: *const c_void,
    set_error: *const c_void,
) -> c_int {
    // SAFETY: by the caller.
    unsafe { place.write(kernel) };
    c_int::from(set_error.addr() == (runtime_set_error as *const ()).addr())
}

fn function_pointers_16_tib_away() {
    let engine = engine_away(16 * TIB);
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/function_pointers.ll");
    let source = std::fs::read_to_string(source).unwrap();
    // What compilers for position-dependent executables say: that all of it is near. Then llc does not go through the
    // GOT.
    let local = source.replace("\ndefine ", "\ndefine dso_local ").replace("\ndeclare ", "\ndeclare dso_local ");
    for llc in ["llc-19", "llc-22"] {
        for (model, source) in [("pic", &source), ("static", &source), ("static", &local)] {
            let near = std::ptr::eq(source, &local);
            let object = once_per(&["function_pointers", llc, model, source], "o", |object| {
                let input = object.with_extension("ll");
                std::fs::write(&input, source).unwrap();
                let model = format!("-relocation-model={model}");
                let arguments =
                    ["-filetype=obj".as_ref(), model.as_ref(), input.as_os_str(), "-o".as_ref(), object.as_os_str()];
                tool(llc, &arguments);
            });
            // SAFETY: of the types that the object declares.
            let library = unsafe {
                let builder = engine.library("kernels").symbol("runtime_register", runtime_register as *const ());
                builder.symbol("runtime_set_error", runtime_set_error as *const ()).build().unwrap()
            };
            library.add_object_file(&object).unwrap();
            let mut kernel: *const c_void = std::ptr::null();
            // SAFETY: int (void *), which hands its argument to runtime_register.
            let init = unsafe { library.get::<unsafe extern "C" fn(*mut *const c_void) -> c_int>("kernel_init") };
            if X86_64 && near {
                // `movl $saxpy, %esi`: only an arena in the lowest 2 GiB will do.
                assert!(matches!(init, Err(Error::Link(LinkError::ReferencesOutOfRange { .. }))), "{llc}");
                drop(init);
                freed(&library);
                continue;
            }
            let init = init.unwrap();
            // SAFETY: as above.
            assert_eq!(unsafe { init(&mut kernel) }, 1, "{llc} {model}: the process's function has another address");
            // SAFETY: only its address is wanted.
            let saxpy = unsafe { library.get::<Kernel>("saxpy").unwrap() };
            assert_eq!(kernel, saxpy.address().cast(), "{llc} {model}");
            let (x, mut y) = ([1.0_f32, 2.0, 3.0, 4.0, 5.0], [-1.0_f32; 5]);
            // SAFETY: memrefs of five elements.
            unsafe { saxpy(2.0, x.as_ptr(), x.as_ptr(), 0, 5, 1, y.as_mut_ptr(), y.as_mut_ptr(), 0, 5, 1) };
            assert_eq!(y, [1.0, 3.0, 5.0, 7.0, 9.0], "{llc} {model}");
            drop((init, saxpy));
            freed(&library);
        }
    }
    engine.finish();
}
