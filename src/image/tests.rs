//! Images without a linker: these tests run in a build without LLVM, too.
#![allow(unsafe_code, reason = "calls what was loaded")]

use std::time::Duration;

use crate::elf::image_file::{ImageRelocation, Unfit, read_image};
use crate::elf::image_note::{FUNCTIONS_ROOM, OWNER};
use crate::elf::relocations::DynamicKind;
use crate::elf::{EM_AARCH64, HOST_MACHINE, testing};
use crate::{Error, ImageBuilder, JitEngine, LibraryError, LinkError, Removal, SlabLayout};

const SOURCE: &str = "
    int table[3] = {1, 2, 3};
    int *const pointers[] = {&table[2], &table[0]};
    static __thread int calls = 40;
    __attribute__((noinline)) int pick(int n) { return *pointers[n & 1]; }
    int kernel(int n) { return ++calls + pick(n) * 1000; }";

pub(super) fn object(source: &str) -> Vec<u8> {
    let target = if HOST_MACHINE == EM_AARCH64 { "--target=aarch64-linux-gnu" } else { "--target=x86_64-linux-gnu" };
    testing::clang(&[target, "-O1", "-fPIC"], source)
}

fn builder() -> ImageBuilder {
    ImageBuilder::new().object("kernel.o", object(SOURCE))
}

fn image() -> Vec<u8> {
    builder().link().unwrap()
}

pub(super) fn engines() -> [JitEngine; 2] {
    [SlabLayout::PerObject, SlabLayout::Packed].map(|layout| JitEngine::builder().slab_layout(layout).build().unwrap())
}

#[test]
fn images_are_loaded_without_a_linker() {
    let bytes = image();
    for engine in engines() {
        let library = engine.add_image(&bytes).unwrap();
        // SAFETY: it is such a function.
        let kernel = unsafe { library.get::<unsafe extern "C" fn(i32) -> i32>("kernel").unwrap() };
        // SAFETY: as above.
        assert_eq!(unsafe { [kernel(0), kernel(1), kernel(2)] }, [3041, 1042, 3043]);
        let other = std::thread::spawn({
            let kernel = kernel.clone();
            // SAFETY: as above.
            move || unsafe { kernel(0) }
        });
        assert_eq!(other.join().unwrap(), 3041);
        drop(kernel);
        assert_eq!(library.remove(), Removal::Freed);
    }
}

/// The places of functions and of their names, as the note has them.
#[test]
fn functions_that_the_note_misplaces_are_refused() {
    let bytes = image();
    let note = bytes.windows(8).position(|bytes| bytes == OWNER).unwrap() + OWNER.len();
    let field = |number: usize| note + 8 + 8 * number;
    let word = |number| u64::from_le_bytes(*bytes[field(number)..].first_chunk().unwrap());
    // Place and bytes of the functions, then of the names.
    let [functions, size, names, names_size] = [6, 7, 8, 9].map(word);
    assert_eq!(functions + size, names);
    let room = FUNCTIONS_ROOM as u64;
    assert_eq!((size - room) % 24, 0);
    let refused = |what: &str, words: [u64; 4]| {
        let mut bytes = bytes.clone();
        for (number, word) in (6..).zip(words) {
            bytes[field(number)..][..8].copy_from_slice(&word.to_le_bytes());
        }
        let unfit = read_image(&bytes, HOST_MACHINE, false).map(|_| ()).expect_err(what);
        let error = unfit.into_error("kernel.so").to_string();
        assert!(
            error.contains("its list of functions is damaged") || error.contains("it is cut short"),
            "{what}: {error}"
        );
    };
    refused("no room", [functions, 0, functions, names_size]);
    refused("less than the room", [names - room + 1, room - 1, names, names_size]);
    refused("the room alone", [names - room, room, names, names_size]);
    refused("part of a symbol", [functions + 1, size - 1, names, names_size]);
    refused("a symbol less", [functions, size - 24, names - 24, names_size + 24]);
    refused("behind the names", [names + names_size, size, names, names_size]);
    refused("apart", [functions, size, names + 1, names_size - 1]);
    refused("no names", [functions, size, names, 0]);
    refused("a name less", [functions, size, names, names_size - 1]);
    refused("nowhere", [u64::MAX - 7, size, names, names_size]);
    refused("larger than the file", [functions, u64::MAX, names, names_size]);
}

/// Every byte flipped, and every end: refused, or placed and relocated. What was changed is not run.
#[test]
fn damaged_images_do_no_harm() {
    let engines = engines();
    let load = |bytes: &[u8]| {
        let Ok((index, image)) = read_image(bytes, HOST_MACHINE, false) else { return false };
        let is_resolver =
            |(): &mut (), of: ImageRelocation| if of.kind == DynamicKind::Indirect { Err(()) } else { Ok(()) };
        let resolvers = image.relocations(HOST_MACHINE, bytes, &mut (), |(), _, _| true, is_resolver);
        if !index.arrays.is_empty() || resolvers.is_err() {
            return false;
        }
        for engine in &engines {
            // What functions need of the CPU is only read if this one has not got it all.
            let Ok(library) = engine.add_image(bytes) else { return false };
            // SAFETY: there are no initialisers and no resolvers.
            let _ = unsafe { library.get::<*const i32>("table") };
        }
        true
    };
    // The second is like the first but for a table: some of its bytes will do.
    for (bytes, step) in [(image(), 1), (builder().pack_relative_relocations(true).link().unwrap(), 3)] {
        assert!(load(&bytes));
        let (mut loaded, mut refused) = (0, 0);
        for at in (0..bytes.len()).step_by(step) {
            for change in [1, 0x40, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                if load(&changed) { loaded += 1 } else { refused += 1 }
            }
            load(&bytes[..at]);
        }
        assert!(loaded > 100 && refused > 100, "{loaded} {refused}");
    }
    assert!(engines.iter().all(|engine| engine.stats().libraries == 0));
}

#[test]
fn two_segments_of_one_kind_are_refused() {
    let bytes = image();
    let header = u64::from_le_bytes(bytes[32..40].try_into().unwrap()) as usize;
    let flags = (0..6).map(|i| header + i * 56 + 4);
    // Loaded, and executable.
    let code = flags.clone().find(|at| bytes[at - 4..at + 4] == [1, 0, 0, 0, 5, 0, 0, 0]).unwrap();
    let read = flags.clone().find(|at| bytes[at - 4..at + 4] == [1, 0, 0, 0, 4, 0, 0, 0]).unwrap();
    for (at, flags) in [(code, 4), (read, 5)] {
        let mut changed = bytes.clone();
        changed[at] = flags;
        let error = read_image(&changed, HOST_MACHINE, false).map(drop).unwrap_err();
        assert_eq!(error, Unfit::Malformed("it has two segments of one kind"));
    }
}

/// The last page of what becomes read-only ends with padding, which nothing is loaded for.
#[test]
fn pointers_may_lead_behind_what_becomes_read_only() {
    let pointers =
        [0, 40, 0x100, 0x400, 0x2000, -0x10, -0x400].map(|distance: i32| format!("(char *)table + {distance},"));
    let source = format!("char *const table[] = {{ {} }};", pointers.concat());
    let padded = format!("{source} char padding[0x20000];");
    for source in [source, padded] {
        let bytes = ImageBuilder::new().object("table.o", object(&source)).link().unwrap();
        for engine in engines() {
            let library = engine.add_image(&bytes).unwrap();
            // SAFETY: it has these pointers; there are no initialisers.
            let (table, pointers) = unsafe {
                let table = library.get::<*const [usize; 7]>("table").unwrap().address();
                (table.addr() as isize, table.cast::<[isize; 7]>().read())
            };
            assert_eq!(pointers.map(|pointer| pointer - table), [0, 40, 0x100, 0x400, 0x2000, -0x10, -0x400]);
        }
    }
}

#[test]
fn shared_libraries_are_found_by_name() {
    // The C library has one of this name for old programs.
    let link = |library: &str| ImageBuilder::new().object("kernel.o", object(SOURCE)).shared_library(library).link();
    let bytes = link("libdl.so.2").unwrap();
    let (_, image) = read_image(&bytes, HOST_MACHINE, true).unwrap();
    assert!(image.needed.iter().any(|name| name == "libdl.so.2"), "{:?}", image.needed);
    assert!(matches!(link("libnone.so.9"), Err(Error::Io { path, .. }) if path.ends_with("libnone.so.9")));
}

#[test]
fn the_loader_and_the_dynamic_loader_agree() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image.so");
    std::fs::write(&file, image()).unwrap();
    // SAFETY: there are no initialisers, and it is such a function.
    unsafe {
        let library = libloading::Library::new(&file).unwrap();
        let kernel = library.get::<unsafe extern "C" fn(i32) -> i32>(b"kernel").unwrap();
        assert_eq!([kernel(0), kernel(1)], [3041, 1042]);
    }
}

/// Members of archives that are not linked are not told.
#[test]
fn an_image_tells_which_objects_it_has() {
    use object::{Object as _, ObjectSection as _};
    let objects = ["int a(void) { return b(); }", "int b(void) { return 1; }", "int c(void) { return 2; }"];
    let objects = objects.map(|source| object(&format!("int b(void); {source}")));
    let [a, b, c] = &objects;
    let mut archive = b"!<arch>\n".to_vec();
    for (name, member) in [("b.o/", b), ("c.o/", c)] {
        archive.extend(format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 644, member.len()).into_bytes());
        archive.extend(member);
        archive.resize(archive.len().next_multiple_of(2), b'\n');
    }
    let bytes = ImageBuilder::new().object("a.o", a.clone()).archive("b.a", archive).link().unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let section = |name| file.section_by_name(name).unwrap().data().unwrap();
    let expected = [a, b].map(|object| *blake3::hash(object).as_bytes());
    assert_eq!(section(".slabjit.objects"), expected.as_flattened());
    assert_eq!(section(".comment"), format!("slabjit {}\0", env!("CARGO_PKG_VERSION")).as_bytes());
}

#[test]
fn a_default_version_is_found_without_it() {
    let source = "
        int one(void) { return 1; } __asm__(\".symver one, f@V1\");
        int two(void) { return 2; } __asm__(\".symver two, f@@V2\");
        int three(void) { return 3; } __asm__(\".symver three, g@@V2\");
        int g(void) { return 4; } int ask(void) { extern int f(void); return f(); }";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image.so");
    let bytes = ImageBuilder::new().object("versions.o", object(source)).link().unwrap();
    std::fs::write(&file, &bytes).unwrap();
    let expected = [("f", 2), ("ask", 2), ("f@@V2", 2), ("f@V1", 1), ("g", 4), ("g@@V2", 3)];
    // SAFETY: there are no initialisers, and these are such functions.
    unsafe {
        let library = libloading::Library::new(&file).unwrap();
        for (name, value) in expected {
            assert_eq!(library.get::<unsafe extern "C" fn() -> i32>(name).unwrap()(), value, "{name}");
        }
    }
    for engine in engines() {
        let library = engine.add_image(&bytes).unwrap();
        for (name, value) in expected.into_iter().chain([("f@V2", 2), ("g@V2", 3)]) {
            // SAFETY: these are such functions.
            let function = unsafe { library.get::<unsafe extern "C" fn() -> i32>(name).unwrap() };
            // SAFETY: as above.
            assert_eq!(unsafe { function() }, value, "{name}");
        }
        // SAFETY: nothing is called.
        assert!(unsafe { library.get::<unsafe extern "C" fn() -> i32>("f@V3") }.is_err());
    }
    // The process is told what the dynamic loader would find.
    let source = source.replace(" f(", " versioned_f(").replace("f@", "versioned_f@");
    let bytes = ImageBuilder::new().object("versions.o", object(&source)).link().unwrap();
    let library = engines()[0].library("versions").export().build().unwrap();
    library.add_image(&bytes).unwrap();
    // SAFETY: there are no initialisers.
    unsafe { library.initialize().unwrap() };
    let is_exported = |name: &std::ffi::CStr| {
        // SAFETY: a name.
        !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null()
    };
    assert!(is_exported(c"versioned_f") && !is_exported(c"versioned_f@@V2") && !is_exported(c"versioned_f@V1"));
}

/// Of this thread: other tests run beside it.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the result has a place.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn many_functions_take_no_longer_each() {
    let link = |count: usize| {
        let function = |i| {
            format!(".section .text.f{i},\"ax\",%progbits\n.globl f{i}\nf{i}:\n.cfi_startproc\nret\n.cfi_endproc\n")
        };
        let source: String = (0..count).map(function).collect();
        let target =
            if HOST_MACHINE == EM_AARCH64 { "--target=aarch64-linux-gnu" } else { "--target=x86_64-linux-gnu" };
        let builder = ImageBuilder::new().object("many.o", testing::build("clang-22", &["-c", target], "s", &source));
        let time = || {
            let start = processor_time();
            builder.link().unwrap();
            processor_time() - start
        };
        (0..3).map(|_| time()).min().unwrap()
    };
    // 8 if linear, 64 if not.
    let (few, many) = (link(2500), link(20_000));
    assert!(many < few * 24, "{few:?}, {many:?}");
}

/// A function by assembly: 3 bytes or one instruction, then one of a feature that hardly any CPU has (XOP, of some by
/// AMD; SME).
const RARE: (&str, &str) =
    if HOST_MACHINE == EM_AARCH64 { ("", "") } else { (".byte 0x0f, 0x1f, 0x00\\n vphaddbw %xmm0, %xmm1", "XOP") };

#[test]
fn functions_that_the_cpu_does_not_run_are_refused() {
    if HOST_MACHINE == EM_AARCH64 || crate::cpu::has(RARE.1) {
        return;
    }
    let source = format!(
        "asm(\".globl rare\\n.type rare, @function\\nrare: {} \\n ret\\n.size rare, . - rare\");
         int plain(void) {{ return 42; }}
         extern int rare(void);
         int chooses(int n) {{ return n ? rare() : 7; }}",
        RARE.0
    );
    let object = testing::clang(&["--target=x86_64-linux-gnu", "-O1", "-fPIC"], &source);
    let builder = || ImageBuilder::new().object("rare.o", object.clone());
    type Function = unsafe extern "C" fn(i32) -> i32;
    let get = |bytes: &[u8], engine: &JitEngine, name: &str| {
        let library = engine.add_image_named("rare.so", bytes).unwrap();
        // SAFETY: there are no initialisers, and what is called takes no more.
        unsafe { library.get::<Function>(name) }
    };
    let bytes = builder().link().unwrap();
    for engine in engines() {
        let refused = get(&bytes, &engine, "rare").unwrap_err().to_string();
        assert!(refused.starts_with("'rare' of 'rare.so' at +0x3 needs XOP; this CPU has not got it."), "{refused}");
        // SAFETY: as above; nothing of XOP runs.
        assert_eq!(unsafe { get(&bytes, &engine, "plain").unwrap()(0) }, 42);
        // SAFETY: as above.
        assert_eq!(unsafe { get(&bytes, &engine, "chooses").unwrap()(0) }, 7);
    }
    let engine = JitEngine::builder().ignore_cpu_needs(true).build().unwrap();
    assert!(get(&bytes, &engine, "rare").is_ok());
    let engine = JitEngine::new().unwrap();
    let none = builder().cpu_needs("rare", []).link().unwrap();
    assert!(get(&none, &engine, "rare").is_ok());
    let more = builder().cpu_needs("plain", ["SSE3", "XOP"]).link().unwrap();
    let refused = get(&more, &engine, "plain").unwrap_err().to_string();
    assert!(refused.starts_with("'plain' of 'rare.so' at +0x0 needs XOP"), "{refused}");
    let unknown = builder().cpu_needs("pain", []).link().unwrap_err().to_string();
    assert!(unknown.contains("no object defines the function 'pain'"), "{unknown}");
    let unknown = builder().cpu_needs("plain", ["XOP2"]).link().unwrap_err().to_string();
    assert!(unknown.starts_with("'plain' is said to need 'XOP2', which is none of SSE3, "), "{unknown}");
}

#[test]
fn initialisers_that_the_cpu_does_not_run_are_refused_at_once() {
    if HOST_MACHINE == EM_AARCH64 || crate::cpu::has(RARE.1) {
        return;
    }
    let source = format!(
        "__attribute__((constructor)) static void prepares(void) {{ asm(\"{}\" ::: \"xmm1\"); }}
         int plain(void) {{ return 42; }}",
        RARE.0.replace('%', "%%")
    );
    let object = testing::clang(&["--target=x86_64-linux-gnu", "-O1", "-fPIC"], &source);
    for pack in [false, true] {
        let builder = ImageBuilder::new().object("rare.o", object.clone()).pack_relative_relocations(pack);
        let bytes = builder.link().unwrap();
        let refused = JitEngine::new().unwrap().add_image_named("rare.so", bytes).unwrap_err().to_string();
        assert!(refused.starts_with("'prepares' of 'rare.so' at +0x"), "{refused}");
    }
}

/// An image whose segments keep their distances, as it is large: constants that are referred to by distance, a list of
/// initialisers, thread-local storage, and a function that refers to `__dso_handle`.
fn large_image() -> Vec<u8> {
    large().link().unwrap()
}

pub(super) fn large() -> ImageBuilder {
    let source = format!(
        "{SOURCE}
        const char constants[100000] = {{ [99999] = 7 }};
        static int zeros[50000];
        int filled[50000] = {{ 1 }};
        extern void *__dso_handle;
        void *const handles[] = {{ &__dso_handle }};
        void *handle(void) {{ return &__dso_handle; }}
        int reads(int n) {{ return constants[n] + ++zeros[n / 2]; }}
        static int started;
        __attribute__((constructor)) static void start(void) {{ started = 5; }}
        int is_started(void) {{ return started; }}"
    );
    let target = if HOST_MACHINE == EM_AARCH64 { "--target=aarch64-linux-gnu" } else { "--target=x86_64-linux-gnu" };
    let hidden = "__attribute__((visibility(\"hidden\"))) extern void *__dso_handle;
        void *own_handle(void) { return &__dso_handle; }";
    let compile = |source: &str| testing::clang(&[target, "-O1", "-fPIC"], source);
    ImageBuilder::new().object("large.o", compile(&source)).object("hidden.o", compile(hidden))
}

/// Calls what [`large_image`] has.
pub(super) fn call_large(library: &crate::Library) {
    // SAFETY: these are such functions; the initialiser sets a variable.
    unsafe {
        let kernel = library.get::<unsafe extern "C" fn(i32) -> i32>("kernel").unwrap();
        assert_eq!([kernel(0), kernel(1)], [3041, 1042]);
        let reads = library.get::<unsafe extern "C" fn(i32) -> i32>("reads").unwrap();
        assert_eq!([reads(99_999), reads(99_999), reads(3)], [8, 9, 1]);
        assert_eq!(library.get::<unsafe extern "C" fn() -> i32>("is_started").unwrap()(), 5);
        let handles = library.get::<*const usize>("handles").unwrap();
        // Through the GOT, and by distance.
        for name in ["handle", "own_handle"] {
            assert_eq!(library.get::<unsafe extern "C" fn() -> usize>(name).unwrap()(), **handles, "{name}");
        }
    }
}

/// Returns the access of the mapping that has an address, and its file.
fn mapping_of(address: usize) -> Option<(String, String)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let parse = |text| usize::from_str_radix(text, 16).unwrap();
        let access = fields.next()?.to_owned();
        (parse(start)..parse(end)).contains(&address).then(|| (access, fields.nth(3).unwrap_or_default().to_owned()))
    })
}

#[test]
fn large_images_keep_the_distances_of_their_segments() {
    let bytes = large_image();
    for engine in engines() {
        let library = engine.add_image(&bytes).unwrap();
        call_large(&library);
        assert_eq!(library.remove(), Removal::Freed);
    }
}

#[test]
fn pages_of_files_are_shared() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large.so");
    std::fs::write(&file, large_image()).unwrap();
    let name = file.to_str().unwrap();
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for engine in engines() {
        for (of_file, of_folder, is_shared) in [(0o644, 0o755, true), (0o666, 0o755, false), (0o644, 0o777, false)] {
            mode(&file, of_file);
            mode(folder.path(), of_folder);
            let library = engine.add_image_file(&file).unwrap();
            call_large(&library);
            // SAFETY: they are only looked for.
            let [reads, constants, table] =
                ["reads", "constants", "table"].map(|name| unsafe { library.get::<*const u8>(name).unwrap().addr() });
            let kept = |address| mapping_of(address).unwrap();
            // qemu-user does not say that a page can be run.
            let is_of_file = |address: usize| kept(address).1 == name;
            assert_eq!([is_of_file(reads), is_of_file(constants), is_of_file(table)], [is_shared, is_shared, false]);
            assert_eq!([&kept(constants).0, &kept(table).0], ["r--p", "rw-p"]);
            assert_eq!(library.remove(), Removal::Freed);
            for address in [reads, constants, table] {
                assert_eq!(mapping_of(address), Some(("---p".to_owned(), String::new())));
            }
        }
    }
    mode(folder.path(), 0o755);
}

/// A file that was changed between the two is copied as it was checked, or refused.
#[test]
fn changed_files_are_not_shared() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large.so");
    std::fs::write(&file, large_image()).unwrap();
    let engine = JitEngine::new().unwrap();
    let library = engine.add_image_file(&file).unwrap();
    // Its time is changed, and nothing else.
    let opened = std::fs::File::options().write(true).open(&file).unwrap();
    opened.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    call_large(&library);
    // SAFETY: it is only looked for.
    let reads = unsafe { library.get::<*const u8>("reads").unwrap().addr() };
    assert_ne!(mapping_of(reads).unwrap().1, file.to_str().unwrap());
}

#[test]
fn kernels_have_the_signatures_that_were_given() {
    let source = "void scale(const float *x, float *y, long n) { for (long i = 0; i < n; i++) y[i] = 2 * x[i]; }
        void other(void) {} static void hidden(void) {} void (*keep)(void) = hidden;";
    let target = if HOST_MACHINE == EM_AARCH64 { "--target=aarch64-linux-gnu" } else { "--target=x86_64-linux-gnu" };
    let object = testing::clang(&[target, "-O1", "-fPIC"], source);
    let builder = || ImageBuilder::new().object("scale.o", object.clone());
    let text = "scale(x: in f32[n], y: out f32[n] align 4, n: i64) other()";
    let signatures = crate::KernelSignature::parse_all(text).unwrap();
    let with =
        |signatures: &[crate::KernelSignature]| signatures.iter().fold(builder(), |builder, of| builder.signature(of));
    let library = JitEngine::new().unwrap().add_image(with(&signatures).link().unwrap()).unwrap();
    for signature in &signatures {
        assert_eq!(library.signature(signature.name()).unwrap(), *signature);
    }
    let missing = library.signature("scal").unwrap_err().to_string();
    assert!(missing.contains("has a signature of 'scal'; give it with ImageBuilder::signature"), "{missing}");
    type Scale = unsafe extern "C" fn(*const f32, *mut f32, i64);
    // SAFETY: it is such a function; there are no initialisers.
    let scale = library.signature("scale").unwrap().bind(unsafe { library.get::<Scale>("scale").unwrap() }).unwrap();
    let (x, mut y) = ([1.0_f32, 2.5], [0.0_f32; 2]);
    // SAFETY: as its signature says.
    unsafe { scale.call(&[crate::Argument::slice(&x), crate::Argument::slice_mut(&mut y), 2_i64.into()]).unwrap() };
    assert_eq!(y, [2.0, 5.0]);
    for kernel in ["hidden", "missing"] {
        let none = crate::KernelSignature::builder(kernel).build().unwrap();
        let refused = builder().signature(&none).link().unwrap_err().to_string();
        assert!(refused.starts_with(&format!("no object exports the kernel '{kernel}'")), "{refused}");
    }
    // A thousand of them are found, each by its name.
    let lines: Vec<String> = (0..1000).map(|i| format!("k{i}(n: i64)\n")).collect();
    let mut sorted = lines.clone();
    sorted.sort_unstable();
    let text = sorted.concat();
    for i in 0..1000 {
        assert_eq!(crate::KernelSignature::find(&text, &format!("k{i}")).unwrap().unwrap().name(), format!("k{i}"));
    }
    assert!(crate::KernelSignature::find(&text, "k1000").is_none() && crate::KernelSignature::find("", "k").is_none());
}

/// A few are asked for a name one by one, more by a table of all names.
#[test]
fn many_images_have_one_library() {
    let source = |i: usize| {
        let before = if i == 0 { "0".into() } else { format!("f{}()", i - 1) };
        let extern_before = if i == 0 { String::new() } else { format!("int f{}(void);", i - 1) };
        format!("{extern_before} int f{i}(void) {{ return {before} + 1; }} __attribute__((weak)) int first = {i};")
    };
    let images: Vec<_> =
        (0..9).map(|i| ImageBuilder::new().object("f.o", object(&source(i))).link().unwrap()).collect();
    for engine in engines() {
        let library = engine.library("images").build().unwrap();
        for (i, image) in images.iter().enumerate() {
            library.add_image_named(&format!("{i}.so"), image).unwrap();
            let again = library.add_image_named("again.so", image).unwrap_err();
            let Error::Link(LinkError::DuplicateDefinition { symbol, first, second, .. }) = &again else {
                panic!("{again:?}")
            };
            assert_eq!((&**symbol, &**first, &**second), (&*format!("f{i}"), &*format!("{i}.so"), "again.so"));
            for known in 0..=i {
                // SAFETY: it is such a function.
                let function = unsafe { library.get::<unsafe extern "C" fn() -> i32>(&format!("f{known}")).unwrap() };
                // SAFETY: as above.
                assert_eq!(unsafe { function() }, known as i32 + 1);
            }
            // SAFETY: nothing is called.
            let missing = unsafe { library.get::<unsafe extern "C" fn() -> i32>(&format!("f{}", i + 1)) };
            assert!(matches!(missing, Err(Error::Library(LibraryError::SymbolNotFound { .. }))));
        }
        // SAFETY: it is a variable of this type.
        let first = unsafe { library.get::<*const i32>("first").unwrap() };
        // SAFETY: as above.
        assert_eq!(unsafe { **first }, 0);
        let mut names: Vec<_> = (0..9).map(|i| format!("f{i}")).collect();
        names.push("first".to_owned());
        assert_eq!(library.symbols(), names);
    }
}
