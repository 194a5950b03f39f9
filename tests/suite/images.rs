//! Images: what is linked once is loaded by the dynamic loader and by slabjit. (Each case of `tests/cases` is one, too.)

use std::path::Path;

use slabjit::{Error, ImageBuilder, ImageError, JitEngine, LibraryError, NoImage, Removal};

use crate::common::{self, Checked, call, compile, compile_bytes, freed, link_shared, temporary, tests};
use crate::large::archive;
use crate::target::{self, by_qemu};

tests![
    readelf_has_nothing_to_complain_of,
    eu_elflint_has_nothing_to_complain_of,
    debug_information_is_kept_on_request,
    a_thousand_kernels_in_one_image,
    members_of_archives_are_taken,
    bounds_of_the_file_are_the_image_s,
    images_use_and_are_used_by_libraries,
    images_come_and_go,
    libraries_are_saved,
    what_an_image_needs_is_opened,
    what_was_not_kept_is_not_saved,
    images_and_objects_of_one_library,
    what_is_no_image_is_named,
    what_cannot_be_an_image_is_named,
    changed_images_are_found;
    alone: the_process_is_asked_for_what_is_missing
];

const KERNEL: &str = "
    int table[3] = {1, 2, 3};
    int *const pointers[] = {&table[2], &table[0]};
    static __thread int calls = 40;
    static const char *const words[] = {\"zero\", \"one\"};
    __attribute__((noinline)) int pick(int n) { return *pointers[n & 1] + words[n & 1][0]; }
    int kernel(int n) { return ++calls + pick(n) * 1000; }
";

fn kernel() -> Vec<u8> {
    ImageBuilder::new().object("kernel.o", compile_bytes("image_kernel.c", KERNEL, &[])).link().unwrap()
}

/// What `kernel(5)` returns at first.
const ANSWER: i32 = 41 + (1 + b'o' as i32) * 1000;

fn write(name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = temporary().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn dlopen(path: &Path) -> libloading::Library {
    // SAFETY: the images of these tests have no initialisers.
    unsafe { libloading::Library::new(path).unwrap() }
}

fn readelf_has_nothing_to_complain_of() {
    let image = write("readelf_image.so", &kernel());
    let readelf = if target::ARCH == "aarch64" { "aarch64-linux-gnu-readelf" } else { "readelf" };
    let output = target::tool_command(readelf).args(["-a", "-W", "--debug-dump=frames"]).arg(&image).output().unwrap();
    let (told, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && complained.is_empty(), "{complained}");
    for name in ["kernel", "pick", "table", "pointers", ".eh_frame_hdr", "GNU_RELRO", ".note.slabjit"] {
        assert!(told.contains(name), "{name}: {told}");
    }
    // What is local stays so, and nothing wants a change of code.
    assert!(!told.contains("calls") && !told.contains("TEXTREL"), "{told}");
}

/// elfutils compares the tables of a file with each other.
fn eu_elflint_has_nothing_to_complain_of() {
    let complete = |output: std::io::Result<std::process::Output>| output.is_ok_and(|output| output.status.success());
    if !complete(target::tool_command("eu-elflint").arg("--version").output()) {
        println!("not run: there is no eu-elflint (elfutils)");
        return;
    }
    let sources: [(&str, &str, &str); 3] = [
        ("gcc", "lint_kernel.c", KERNEL),
        // Thread-local storage of zeros alone, whose alignment is more than a word's.
        ("gcc", "lint_zeros.c", "__thread char zeros[100] __attribute__((aligned(64))); char *f(void) { return zeros; }"),
        (
            "g++",
            "lint_all.cc",
            "#include <stdexcept>
            static thread_local int t = 4; int u; thread_local int v; struct S { S(); ~S(); };
            S::S() { u = 3; } S::~S() { u = 0; } static S s;
            extern \"C\" int f(int n) { try { if (n) throw std::runtime_error(\"x\"); } catch (...) { return ++t + v; } return u; }
            extern \"C\" { static int g1() { return 1; } static int (*r(void))() { return g1; }
            int ff() __attribute__((ifunc(\"r\"))); int calls() { return ff(); } }",
        ),
    ];
    for ((compiler, name, source), pack) in sources.iter().flat_map(|of| [(*of, false), (*of, true)]) {
        let object = common::compile_with(compiler, name, source, &["-fPIC", "-O1"]);
        let builder = ImageBuilder::new().object_file(object).unwrap();
        let bytes = builder.pack_relative_relocations(pack).link().unwrap();
        let image = write(&format!("{name}.so"), &bytes);
        let output = target::tool_command("eu-elflint").arg("--gnu-ld").arg(&image).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        // It knows the notes of some owners; and of AArch64's relocations, not that of indirect functions. Old ones do not
        // know the type SHT_RELR.
        let is_unknown = |line: &str| {
            let is_relocation = line.contains("'.rela.dyn': relocation") && line.ends_with("invalid type");
            let is_relr = line.contains("'.relr.dyn' has wrong type") && line.ends_with(": 19");
            line.contains("with owner name 'slabjit'") || is_relr || target::ARCH == "aarch64" && is_relocation
        };
        let complains = |line: &&str| !is_unknown(line) && *line != "No errors";
        assert_eq!(told.lines().filter(complains).collect::<Vec<_>>(), Vec::<&str>::new(), "{name}");
    }
}

/// Binutils find lines of both objects, with a template's one copy and thread-local storage.
fn debug_information_is_kept_on_request() {
    const SHARED: &str = "template <class T> __attribute__((noinline)) T twice(T n) {\n  return n + n;\n}\n";
    let first = format!(
        "{SHARED}thread_local int counter = 4;\nextern \"C\" int first(int n) {{\n  return twice(n) + ++counter;\n}}"
    );
    let second = format!("{SHARED}\n\nextern \"C\" int second(int n) {{\n  return twice(n * 3) - 1;\n}}");
    for flags in [&["-g"][..], &["-g", "-gdwarf-4"], &["-g", "-gz"]] {
        let flags = [flags, &["-O0", "-fPIC"]].concat();
        let objects = [("lines_first.cc", &first), ("lines_second.cc", &second)]
            .map(|(name, source)| common::compile_with("g++", name, source, &flags));
        let builder = || objects.iter().fold(ImageBuilder::new(), |image, file| image.object_file(file).unwrap());
        let with = write("lines.so", &builder().debug_info(true).link().unwrap());
        let without = write("no_lines.so", &builder().link().unwrap());
        let tool = |name: &str, arguments: &[&str], file: &Path| {
            let name = if target::ARCH == "aarch64" { &*format!("aarch64-linux-gnu-{name}") } else { name };
            let output = target::tool_command(name).args(arguments).arg(file).output().unwrap();
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{name} {flags:?}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let symbols = tool("nm", &["-D"], &with);
        let address = |name: &str| {
            let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}")));
            format!("0x{}", line.unwrap().split(' ').next().unwrap())
        };
        for (name, place) in
            [("first", "lines_first.cc:5"), ("second", "lines_second.cc:6"), ("_Z5twiceIiET_S0_", ".cc:1")]
        {
            let line = tool("addr2line", &[&address(name), "-e"], &with);
            assert!(line.trim_end().ends_with(place), "{name} {flags:?}: {line}");
            let line = tool("addr2line", &[&address(name), "-e"], &without);
            assert!(line.starts_with("??"), "{line}");
        }
        // It says nothing that readelf does not understand.
        assert!(tool("readelf", &["-W", "--debug-dump=info,line,abbrev,ranges,loc"], &with).contains("twice"));
        let library = JitEngine::new().unwrap().add_image_file(&with).unwrap();
        // SAFETY: it is such a function, and there are no initialisers.
        let second = unsafe { library.get::<unsafe extern "C" fn(i32) -> i32>("second").unwrap() };
        // SAFETY: as above.
        assert_eq!(unsafe { second(2) }, 11, "{flags:?}");
    }
}

fn a_thousand_kernels_in_one_image() {
    let count = by_qemu(1000, 100);
    let source =
        "int other_000000(int); int number_000000(int n) { static int k = 3; return n * 7 + k + other_000000(n); }
        __attribute__((weak)) int other_000000(int n) { return n; }";
    let object = compile_bytes("image_thousand.c", source, &[]);
    let named = |number: usize| {
        let mut bytes = object.clone();
        let text = format!("_{number:06}");
        for at in 0..bytes.len() - 7 {
            if &bytes[at..at + 7] == b"_000000" {
                bytes[at..at + 7].copy_from_slice(text.as_bytes());
            }
        }
        bytes
    };
    let mut builder = ImageBuilder::new();
    for number in 0..count {
        builder = builder.object(&format!("{number}.o"), named(number));
    }
    let bytes = builder.link().unwrap();
    assert_eq!(bytes, builder.link().unwrap());
    let engine = Checked::new();
    let library = engine.add_image(&bytes).unwrap();
    let opened = dlopen(&write("thousand.so", &bytes));
    for number in (0..count).step_by(7) {
        let name = format!("number_{number:06}");
        // SAFETY: it is such a function.
        let ours = unsafe { library.get::<unsafe extern "C" fn(i32) -> i32>(&name).unwrap() };
        // SAFETY: as above.
        let theirs = unsafe { opened.get::<unsafe extern "C" fn(i32) -> i32>(name.as_bytes()).unwrap() };
        // SAFETY: as above.
        let both = unsafe { (ours(number as i32), theirs(number as i32)) };
        assert_eq!(both, (number as i32 * 8 + 3, number as i32 * 8 + 3));
        let told = engine.explain_address(ours.address()).unwrap().to_string();
        assert!(told.contains(&name), "{told}");
    }
    assert_eq!(library.functions().unwrap().len(), 2 * count);
    freed(&library);
    engine.finish();
}

fn members_of_archives_are_taken() {
    let object = |name: &str, source: &str| compile_bytes(&format!("image_{name}.c"), source, &[]);
    let members = [
        object("needs_more", "int last(void); int needed(void) { return last() + 1; }"),
        object("unneeded", "int nowhere(void); int unneeded(void) { return nowhere(); }"),
        object("last", "int last(void) { return 5; }"),
    ];
    let archive = archive(&members);
    let root = object("root", "int needed(void); int root(void) { return needed() * 10; }");
    let bytes = ImageBuilder::new().object("root.o", root).archive("lib.a", archive.clone()).link().unwrap();
    let engine = Checked::new();
    let library = engine.add_image(&bytes).unwrap();
    assert_eq!(call(&library, "root"), 60);
    let mut names = library.symbols();
    names.sort();
    assert_eq!(names, ["last", "needed", "root"]);
    freed(&library);
    // An archive alone is taken as it is.
    let all = ImageBuilder::new().archive("lib.a", archive).link().unwrap();
    let library = engine.add_image(all).unwrap();
    assert!(library.symbols().contains(&"unneeded".to_owned()));
    assert_eq!(library.undefined_symbols().unwrap()[0].name, "nowhere");
    drop(library);
    engine.finish();
}

/// What `ld -shared` makes of the same object is the oracle, and `dlopen` the other loader.
fn bounds_of_the_file_are_the_image_s() {
    const BOUNDS: &str = "
        typedef const char at[];
        extern at etext HIDDEN, _etext HIDDEN, __etext HIDDEN, edata HIDDEN, _edata HIDDEN, __bss_start HIDDEN;
        extern at end HIDDEN, _end HIDDEN;
        #ifdef DATA
        int data[10] = {1}, zeros[PADDING];
        static int of_data(void) {
            const char *d = (const char *)data, *z = (const char *)zeros;
            return (d < edata && edata - d < 4096 + (int)sizeof data) | (__bss_start <= z) << 1
                | (z + sizeof zeros <= end) << 2 | (end - z < 4096 + (int)sizeof zeros) << 3;
        }
        #else
        static int of_data(void) { return 15; }
        #endif
        int bounds(void) {
            const char *f = (const char *)bounds;
            return of_data() | (f < etext && etext - f < 4096) << 4
                | (etext == _etext && etext == __etext && edata == _edata && edata == __bss_start && end == _end) << 5
                | (edata <= end && end > f) << 6;
        }
    ";
    const ALL: i32 = 0x7f;
    let engine = Checked::new();
    for (hidden, data) in [("", true), ("__attribute__((visibility(\"hidden\")))", true), ("", false)] {
        for padding in if data { &[3, 100_000][..] } else { &[3] } {
            let defined = [format!("-DHIDDEN={hidden}"), format!("-DPADDING={padding}"), "-DDATA".to_owned()];
            let mut flags: Vec<&str> = defined.iter().map(String::as_str).collect();
            if !data {
                flags.pop();
            }
            let object = common::compile("bounds.c", BOUNDS, &[&flags[..], &["-fPIC", "-O1"]].concat());
            let image = ImageBuilder::new().object_file(&object).unwrap().link().unwrap();
            for file in [&link_shared("bounds.so", &[&object], &["-Wl,-Bsymbolic"]), &write("bounds.so", &image)] {
                let library = dlopen(file);
                // SAFETY: that is its type.
                let bounds = unsafe { library.get::<extern "C" fn() -> i32>(b"bounds").unwrap() };
                assert_eq!(bounds(), ALL, "{file:?} {flags:?}");
            }
            let library = engine.add_image(&image).unwrap();
            assert!(library.undefined_symbols().unwrap().is_empty());
            assert_eq!(call(&library, "bounds"), ALL, "{flags:?}");
            freed(&library);
        }
    }
    engine.finish();
}

fn images_use_and_are_used_by_libraries() {
    let image = compile_bytes(
        "image_between.c",
        "int below(void); extern int variable; __thread int of_thread = 9; extern __thread int others;
         int between(void) { return below() + variable + others++; }",
        &[],
    );
    let image = ImageBuilder::new().object("between.o", image).link().unwrap();
    let engine = Checked::new();
    let below = compile_bytes(
        "image_below.c",
        "int below(void) { return 100; } int variable = 20; __thread int others = 3;",
        &[],
    );
    let below = engine.add_object(below).unwrap();
    let between = engine.library("between").link(&below).build().unwrap();
    between.add_image(&image).unwrap();
    let above = compile_bytes(
        "image_above.c",
        "int between(void); extern __thread int of_thread; int above(void) { return between() * 10 + of_thread++; }",
        &[],
    );
    let library = engine.library("above").link(&between).build().unwrap();
    library.add_object(above).unwrap();
    assert_eq!([call(&library, "above"), call(&library, "above")], [1239, 1250]);
    assert_eq!(library.remove(), Removal::Freed);
    freed(&between);
    freed(&below);
    engine.finish();
}

fn images_come_and_go() {
    let bytes = kernel();
    let engine = Checked::new();
    for _ in 0..by_qemu(300, 10) {
        let library = engine.add_image(&bytes).unwrap();
        assert_eq!(call_with_five(&library), ANSWER);
        freed(&library);
    }
    engine.finish();
}

fn call_with_five(library: &slabjit::Library) -> i32 {
    // SAFETY: it is such a function.
    unsafe { library.get::<unsafe extern "C" fn(i32) -> i32>("kernel").unwrap()(5) }
}

fn libraries_are_saved() {
    let builder = || JitEngine::builder().keep_objects(true);
    let engine = Checked::of(builder().build().unwrap());
    let library = engine.library("saved").build().unwrap();
    let object = |name: &str, source: &str| compile_bytes(&format!("image_saved_{name}.c"), source, &[]);
    library
        .add_object(object(
            "root",
            "int of_archive(void); int calls; int root(void) { return ++calls * 100 + of_archive(); }",
        ))
        .unwrap();
    let members = [
        object("unneeded", "int unneeded(void) { return 1; }"),
        object("member", "int of_archive(void) { return 7; }"),
    ];
    library.add_archive(archive(&members)).unwrap();
    let saved = |library: &slabjit::Library| {
        let mut bytes = Vec::new();
        library.save_image(&mut bytes).unwrap();
        bytes
    };
    // Before it is linked, and after it has run: the same.
    let before = saved(&library);
    assert_eq!([call(&library, "root"), call(&library, "root")], [107, 207]);
    assert_eq!(saved(&library), before);
    let image = engine.add_image(&before).unwrap();
    assert_eq!(call(&image, "root"), 107);
    let mut names = image.symbols();
    names.sort();
    assert_eq!(names, ["calls", "of_archive", "root"]);
    freed(&image);
    // What could not be written says so.
    let error = library.save_image(&mut [0; 10][..]).unwrap_err();
    assert!(matches!(error, Error::Image(ImageError::Write { .. })), "{error}");
    freed(&library);
    let error = library.save_image(Vec::new()).unwrap_err();
    assert!(matches!(error, Error::Library(LibraryError::Removed { .. })), "{error}");
    engine.finish();
}

fn what_an_image_needs_is_opened() {
    let needed = compile("image_needed.c", "int of_needed(void) { return 8; }", &[]);
    let needed = link_shared("libimage_needed.so", &[&needed], &["-Wl,-soname,libimage_needed.so"]);
    let object =
        compile_bytes("image_needs.c", "int of_needed(void); int needs(void) { return of_needed() + 1; }", &[]);
    let bytes = ImageBuilder::new().object("needs.o", object).shared_library(&needed).link().unwrap();
    let engine = Checked::new();
    // SAFETY: nothing of the library runs but its function.
    let library = engine.add_image(&bytes).unwrap();
    // SAFETY: as above.
    let error = unsafe { library.get::<common::Int>("needs") }.unwrap_err();
    assert!(matches!(error, Error::Library(LibraryError::SharedLibrary { .. })), "{error}");
    assert!(error.to_string().contains("libimage_needed.so"), "{error}");
    drop(library);
    let library = engine.library("needs").search_path(needed.parent().unwrap()).build().unwrap();
    library.add_image(&bytes).unwrap();
    assert_eq!(call(&library, "needs"), 9);
    freed(&library);
    engine.finish();
}

fn what_was_not_kept_is_not_saved() {
    let engine = Checked::new();
    let library = engine.add_object(compile_bytes("image_kernel.c", KERNEL, &[])).unwrap();
    let error = library.save_image(Vec::new()).unwrap_err();
    assert!(matches!(error, Error::Image(ImageError::NotKept { .. })), "{error}");
    assert!(error.to_string().contains("keep_objects"), "{error}");
    drop(library);
    let keeping = JitEngine::builder().keep_objects(true).build().unwrap();
    let image = keeping.add_image(kernel()).unwrap();
    assert!(matches!(image.save_image(Vec::new()), Err(Error::Object(_))));
    engine.finish();
}

fn images_and_objects_of_one_library() {
    let engine = Checked::new();
    let library = engine.library("both").build().unwrap();
    library.add_image(kernel()).unwrap();
    let object = "int kernel(int); int twice(void) { return kernel(5) + kernel(5); }";
    let object = compile_bytes("image_twice.c", object, &[]);
    library.add_object(&object).unwrap();
    // SAFETY: of this test.
    let error = unsafe { library.initialize() }.unwrap_err();
    assert!(matches!(error, Error::Image(ImageError::NotAlone { .. })), "{error}");
    drop(library);
    let library = engine.library("one after the other").build().unwrap();
    library.add_image(kernel()).unwrap();
    // SAFETY: of this test.
    unsafe { library.initialize().unwrap() };
    library.add_object(&object).unwrap();
    assert_eq!(call(&library, "twice"), ANSWER * 2 + 1);
    freed(&library);
    engine.finish();
}

fn what_is_no_image_is_named() {
    let engine = Checked::new();
    let object = compile("image_object.c", KERNEL, &[]);
    let foreign = link_shared("image_foreign.so", &[&object], &[]);
    let foreign_machine = {
        let mut bytes = kernel();
        bytes[18] = if target::ARCH == "aarch64" { 62 } else { 183 };
        bytes
    };
    let later = {
        let mut bytes = kernel();
        let note = bytes.windows(8).position(|bytes| bytes == b"slabjit\0").unwrap();
        bytes[note + 8] = 77;
        bytes
    };
    let of_kind = |bytes: &[u8]| match engine.add_image(bytes).map(drop) {
        Err(Error::Image(ImageError::NotAnImage { kind, .. })) => kind,
        other => panic!("{other:?}"),
    };
    assert_eq!(of_kind(b""), NoImage::NotElf);
    assert_eq!(of_kind(b"#!/bin/sh"), NoImage::NotElf);
    assert_eq!(of_kind(&std::fs::read(&object).unwrap()), NoImage::NotShared);
    assert_eq!(of_kind(&std::fs::read(&foreign).unwrap()), NoImage::Foreign);
    let error = engine.add_image_file(&foreign).unwrap_err();
    assert!(error.to_string().contains("shared_library"), "{error}");
    let error = engine.add_image(foreign_machine).unwrap_err();
    assert!(matches!(error, Error::Image(ImageError::ForeignMachine { .. })), "{error}");
    let error = engine.add_image(later).unwrap_err();
    assert!(matches!(error, Error::Image(ImageError::UnknownFormat { format: 77, known: 4, .. })), "{error}");
    let error = engine.add_image_file("/nonexistent/kernels.so").unwrap_err();
    assert!(matches!(error, Error::Io { .. }) && error.to_string().contains("/nonexistent/kernels.so"), "{error}");
    engine.finish();
}

fn what_cannot_be_an_image_is_named() {
    let object = |name: &str, source: &str, flags: &[&str]| compile_bytes(&format!("image_{name}.c"), source, flags);
    let refused = |builder: ImageBuilder| match builder.link() {
        Err(Error::Image(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused(ImageBuilder::new()), ImageError::Empty));
    let one = object("one", "int f(void) { return 1; }", &[]);
    let twice = refused(ImageBuilder::new().object("one.o", one.clone()).object("two.o", one.clone()));
    assert!(
        matches!(&twice, ImageError::DuplicateDefinition { symbol, first, second } if symbol == "f" && first == "one.o" && second == "two.o"),
        "{twice}"
    );
    let hidden =
        object("hidden", "__attribute__((visibility(\"hidden\"))) int g(void); int f(void) { return g(); }", &[]);
    let hidden = refused(ImageBuilder::new().object("hidden.o", hidden));
    assert!(matches!(&hidden, ImageError::UndefinedHidden { symbol, .. } if symbol == "g"), "{hidden}");
    // ld -shared refuses the same.
    let fixed = object("fixed", "extern int g; int f(void) { return g; }", &["-fno-pic", "-O1", "-mcmodel=small"]);
    let fixed = refused(ImageBuilder::new().object("fixed.o", fixed));
    let ImageError::NotPositionIndependent { object, section, symbol, .. } = &fixed else { panic!("{fixed}") };
    assert_eq!((object.as_str(), section.as_str(), symbol.as_str()), ("fixed.o", ".text", "g"));
    let not_shared = refused(ImageBuilder::new().object("one.o", one).shared_library(file!()));
    assert!(matches!(not_shared, ImageError::NotASharedLibrary { .. }), "{not_shared}");
}

fn changed_images_are_found() {
    let engine = JitEngine::builder().verify_images(true).build().unwrap();
    let bytes = kernel();
    drop(engine.add_image(&bytes).unwrap());
    for at in (0..bytes.len()).step_by(by_qemu(1, 97)) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        assert!(engine.add_image(&changed).is_err(), "offset {at:#x}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(matches!(engine.add_image(&longer), Err(Error::Image(ImageError::Changed { .. }))));
}

fn the_process_is_asked_for_what_is_missing() {
    let image = compile_bytes(
        "image_missing.c",
        "int not_in_this_process(void); int f(void) { return not_in_this_process(); }",
        &[],
    );
    let bytes = ImageBuilder::new().object("missing.o", image).link().unwrap();
    let engine = JitEngine::new().unwrap();
    let library = engine.add_image(bytes).unwrap();
    // SAFETY: it is not called.
    let error = unsafe { library.get::<common::Int>("f") }.unwrap_err();
    assert!(error.to_string().contains("not_in_this_process"), "{error}");
    drop(library);
    let library = engine.add_image(kernel()).unwrap();
    // SAFETY: as above.
    let error = unsafe { library.get::<common::Int>("kern") }.unwrap_err();
    assert!(matches!(error, Error::Library(LibraryError::SymbolNotFound { .. })), "{error}");
}
