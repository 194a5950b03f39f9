//! Source lines: what `addr2line` says of the same object as a shared library.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use slabjit::{DebugInfo, ImageBuilder, JitEngine, Library, SlabLayout, Symbolized};

use crate::common::{self, freed, link_shared, tests, tool};
use crate::target::tool_command;

tests![
    lines_are_those_that_addr2line_says,
    images_have_the_lines_that_they_were_linked_with,
    names_need_no_lines,
    odd_debug_information_is_no_error,
    panics_name_loaded_callers;
    parts: panics_under_loaded_code
];

const C: &str = "
static inline __attribute__((always_inline)) int twice(int n) {
    volatile int doubled = n * 2;
    return doubled;
}
static __attribute__((noinline)) int inner(int n) {
    return twice(n)
         + twice(n + 1);
}
int outer(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += inner(i);
    return sum;
}
__attribute__((section(\".text.apart\"))) int apart(int n) { return outer(n) - 1; }
";

const CXX: &str = "
template <typename T> struct Box {
    T value;
    __attribute__((noinline)) T doubled() const { volatile T copy = value; return copy + copy; }
};
extern \"C\" int of_int(int n) { return Box<int>{n}.doubled(); }
extern \"C\" double of_double(double n) { return Box<double>{n}.doubled(); }
";

fn engines(debug: DebugInfo) -> [JitEngine; 2] {
    [SlabLayout::PerObject, SlabLayout::Packed]
        .map(|layout| JitEngine::builder().slab_layout(layout).debug_info(debug).build().unwrap())
}

fn at(engine: &JitEngine, address: usize) -> Symbolized {
    engine.symbolize(std::ptr::without_provenance(address)).unwrap()
}

/// Functions and places of each address, innermost first, by the addr2line of whoever made the object: binutils' takes
/// some of clang's inlined functions (DWARF 5, AArch64) for those that they are in.
fn addr2line(compiler: &str, library: &Path, addresses: &[usize]) -> Vec<Vec<(String, String)>> {
    let tool = if compiler.starts_with("clang") { "llvm-addr2line-19" } else { "addr2line" };
    let mut child = tool_command(tool)
        .args(["-a", "-f", "-i", "-e"])
        .arg(library)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let text: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let mut all = Vec::new();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().peekable();
    while let Some(address) = lines.next() {
        assert!(address.starts_with("0x"), "{address}");
        let mut frames = Vec::new();
        while lines.peek().is_some_and(|line| !line.starts_with("0x")) {
            let function = lines.next().unwrap().to_owned();
            let place = lines.next().unwrap().split(" (discriminator").next().unwrap().to_owned();
            frames.push((function, place));
        }
        all.push(frames);
    }
    all
}

/// Functions of a shared library: their addresses in it and their sizes.
fn functions_of(library: &Path) -> BTreeMap<String, (usize, usize)> {
    let symbols = tool("readelf", &["-sW".as_ref(), library.as_os_str()]);
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, address, size, "FUNC", _, _, _, name] = words[..] else { return None };
        let address = usize::from_str_radix(address, 16).ok().filter(|address| *address != 0)?;
        Some((name.to_owned(), (address, size.parse().unwrap())))
    };
    symbols.lines().filter_map(of).collect()
}

fn compare(engine: &JitEngine, library: &Library, shared: &Path, compiler: &str, what: &str) -> usize {
    let theirs = functions_of(shared);
    let (mut ours, mut addresses) = (Vec::new(), Vec::new());
    for function in library.functions().unwrap() {
        let (start, size) = theirs[&function.name];
        assert_eq!(size, function.addresses.len(), "{what}: {}", function.name);
        ours.extend(function.addresses.clone());
        addresses.extend(start..start + size);
    }
    for (address, expected) in ours.iter().zip(addr2line(compiler, shared, &addresses)) {
        let seen = at(engine, *address);
        let frames: Vec<_> = seen
            .lines
            .iter()
            .map(|line| {
                let place = format!("{}:{}", line.file.as_ref().unwrap(), line.line.unwrap_or(0));
                (line.function.clone().unwrap(), unknown(&place))
            })
            .collect();
        let expected: Vec<_> = expected.into_iter().map(|(function, place)| (function, unknown(&place))).collect();
        assert_eq!(frames, expected, "{what}: {seen}");
        assert_eq!(slabjit::symbolize(std::ptr::without_provenance(*address)).as_ref(), Some(&seen));
    }
    ours.len()
}

/// Line 0 stands for none.
fn unknown(place: &str) -> String {
    place.strip_suffix(":0").map_or(place.to_owned(), |file| format!("{file}:?"))
}

fn lines_are_those_that_addr2line_says() {
    let ways: [(&str, &str, &str, &[&str]); 8] = [
        ("gcc", "lines.c", C, &["-g", "-O2"]),
        ("gcc", "lines.c", C, &["-gdwarf-4", "-O1"]),
        ("gcc", "lines.c", C, &["-g", "-O2", "-ffunction-sections", "-gz"]),
        ("gcc", "lines.c", C, &["-g", "-O0", "-fdebug-types-section"]),
        ("clang-19", "lines.c", C, &["-g", "-O2"]),
        ("clang-19", "lines.c", C, &["-gdwarf-4", "-O1", "-ffunction-sections"]),
        ("g++", "lines.cpp", CXX, &["-g", "-O1"]),
        ("clang-19", "lines.cpp", CXX, &["-g", "-O1"]),
    ];
    for (compiler, name, source, flags) in ways {
        let object = common::compile_with(compiler, name, source, flags);
        let shared = link_shared("lines.so", &[&object], &[]);
        for debug in [DebugInfo::Lines, DebugInfo::Full] {
            for engine in engines(debug) {
                let what = format!("{compiler} {flags:?} {debug:?}");
                let library = engine.add_object_file(&object).unwrap();
                // SAFETY: nothing runs.
                unsafe { library.initialize().unwrap() };
                assert!(compare(&engine, &library, &shared, compiler, &what) > 50);
                let address = library.functions().unwrap()[0].addresses.start;
                freed(&library);
                // It rests, and has no lines any more.
                let rests = at(&engine, address);
                assert!(rests.explanation.removed.is_some() && rests.lines.is_empty(), "{rests}");
            }
        }
    }
}

/// Smaller ones are copied, and may be packed; larger ones are pages of their file.
fn images_have_the_lines_that_they_were_linked_with() {
    let filler = common::compile("filler.c", "const char filler[100000] = {1};", &[]);
    for (compiler, name, source, flags) in
        [("gcc", "lines.c", C, &["-g", "-O2"][..]), ("clang-19", "lines.cpp", CXX, &["-gdwarf-4", "-O1", "-fPIC"])]
    {
        let object = common::compile_with(compiler, name, source, flags);
        let shared = link_shared("lines.so", &[&object], &[]);
        let builder = || ImageBuilder::new().object_file(&object).unwrap();
        let path = |name: &str, builder: ImageBuilder| {
            let path = common::temporary().join(name);
            std::fs::write(&path, builder.link().unwrap()).unwrap();
            path
        };
        let small = path("small_lines.so", builder().debug_info(true));
        let large = path("large_lines.so", builder().object_file(&filler).unwrap().debug_info(true));
        let without = path("without_lines.so", builder());
        for engine in engines(DebugInfo::Lines).into_iter().chain(engines(DebugInfo::Full)) {
            for image in [&small, &large] {
                let library = engine.add_image_file(image).unwrap();
                // SAFETY: nothing runs.
                unsafe { library.initialize().unwrap() };
                assert!(compare(&engine, &library, &shared, compiler, &format!("{compiler} {image:?}")) > 50);
                freed(&library);
            }
        }
        for (debug, image) in [(DebugInfo::Lines, &without), (DebugInfo::Names, &small)] {
            for engine in engines(debug) {
                let library = engine.add_image_file(image).unwrap();
                // SAFETY: as above.
                unsafe { library.initialize().unwrap() };
                let function = &library.functions().unwrap()[0];
                let seen = at(&engine, function.addresses.start);
                assert_eq!(seen.explanation.function.unwrap().name.to_string(), function.name);
                assert_eq!(seen.lines, []);
                freed(&library);
            }
        }
    }
}

fn names_need_no_lines() {
    let object = common::compile("lines.c", C, &["-g"]);
    for engine in engines(DebugInfo::Names) {
        let library = engine.add_object_file(&object).unwrap();
        // SAFETY: nothing runs.
        unsafe { library.initialize().unwrap() };
        for function in library.functions().unwrap() {
            let seen = at(&engine, function.addresses.start);
            assert_eq!(seen.explanation.function.unwrap().name.to_string(), function.name);
            assert_eq!(seen.lines, []);
        }
        let nowhere = std::ptr::from_ref(&engine).cast();
        assert!(engine.symbolize(nowhere).is_none());
        freed(&library);
    }
}

extern "C-unwind" fn refuses(_: i32) -> i32 {
    panic!("the host refuses");
}

fn panics_under_loaded_code() {
    slabjit::install_panic_hook();
    slabjit::install_panic_hook();
    // Of nobody's.
    assert!(std::panic::catch_unwind(|| panic!("not from loaded code")).is_err());
    let source = "
        int refuses(int);
        int the_inner(int n) { return refuses(n) + 1; }
        int the_outer(int n) { return the_inner(n) * 2; }
    ";
    let object = common::compile("panics.c", source, &["-g", "-O1", "-fno-inline", "-fexceptions"]);
    for engine in engines(DebugInfo::Lines) {
        // SAFETY: a function of that type.
        let library = unsafe { engine.library("panics").symbol("refuses", refuses as *const ()) }.build().unwrap();
        library.add_object_file(&object).unwrap();
        // SAFETY: the type of the function.
        let outer = unsafe { library.get::<unsafe extern "C-unwind" fn(i32) -> i32>("the_outer").unwrap() };
        // SAFETY: it takes any number.
        assert!(std::panic::catch_unwind(|| unsafe { outer(1) }).is_err());
    }
}

fn panics_name_loaded_callers() {
    let end = common::child("panics_under_loaded_code");
    assert_eq!(end.code, Some(0), "{end:?}");
    assert_eq!(end.stderr.matches("called by loaded code").count(), 2, "{end:?}");
    let told: Vec<&str> = end.stderr.lines().filter_map(|line| line.strip_prefix("slabjit:   ")).collect();
    let [inner, at_inner, outer, at_outer, rest @ ..] = &told[..] else { panic!("{end:?}") };
    assert_eq!(rest.len(), 4, "{end:?}");
    for (name, line, told, at) in [("the_inner", 3, inner, at_inner), ("the_outer", 4, outer, at_outer)] {
        assert!(told.starts_with(&format!("{name}+")) && told.contains("panics.o' of library 'panics'"), "{end:?}");
        assert!(at.ends_with(&format!("panics.c:{line} ({name})")), "{end:?}");
    }
}

/// Objects whose debug sections were changed at random: what is linked is not changed by that, nor is anything else
/// than lines.
fn odd_debug_information_is_no_error() {
    let object = common::compile("lines.c", C, &["-g", "-O1"]);
    damage(&object, JitEngine::add_object);
    let image = ImageBuilder::new().object_file(&object).unwrap().debug_info(true).link().unwrap();
    let path = common::temporary().join("damaged_lines.so");
    std::fs::write(&path, image).unwrap();
    damage(&path, JitEngine::add_image);
}

fn damage(path: &Path, add: fn(&JitEngine, Vec<u8>) -> slabjit::Result<Library>) {
    let object = std::fs::read(path).unwrap();
    let sections = tool("readelf", &["-SW".as_ref(), path.as_os_str()]);
    let debug: Vec<(usize, usize)> = sections
        .lines()
        .filter_map(|line| line.split_once("] ")?.1.trim_start().strip_prefix('.'))
        .filter(|line| line.contains("debug_"))
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (usize::from_str_radix(words[3], 16).unwrap(), usize::from_str_radix(words[4], 16).unwrap())
        })
        .collect();
    assert!(debug.len() > 4, "{sections}");
    let mut random = common::Random::new(1);
    for round in 0..200 {
        let mut bytes = object.clone();
        for _ in 0..1 + round % 20 {
            let (start, size) = debug[random.below(debug.len())];
            bytes[start + random.below(size)] = random.next() as u8;
        }
        for engine in engines([DebugInfo::Lines, DebugInfo::Full][round % 2]) {
            let Ok(library) = add(&engine, bytes.clone()) else { continue };
            // SAFETY: it has no initialisers.
            unsafe { library.initialize().unwrap() };
            for function in library.functions().unwrap() {
                let seen = at(&engine, function.addresses.start);
                assert_eq!(seen.explanation.function.unwrap().name.to_string(), function.name);
            }
            freed(&library);
        }
    }
}
