#![allow(unsafe_code, reason = "calls what was loaded")]

use object::LittleEndian;
use object::elf::{DT_RELR, DT_RELRSZ, FileHeader64, Relr64};
use object::read::elf::{FileHeader as _, RelrIterator, SectionHeader as _};

use super::*;
use crate::elf::image_file::{Unfit, read_image};
use crate::elf::{EM_AARCH64, EM_X86_64, HOST_MACHINE, testing};
use crate::image::tests::{call_large, engines, large, object};
use crate::{Error, ImageBuilder, ImageError, JitEngine, Removal};

type Header = FileHeader64<LittleEndian>;
const LITTLE: LittleEndian = LittleEndian;

fn decoded(entries: &[u64]) -> Vec<u64> {
    let entries: Vec<_> = entries.iter().map(|entry| Relr64((*entry).into())).collect();
    RelrIterator::<Header>::new(LITTLE, &entries).collect()
}

#[test]
fn entries_are_as_short_as_the_format_has_them() {
    assert_eq!(entries(&[]), [0_u64; 0]);
    assert_eq!(entries(&[0x1000]), [0x1000]);
    assert_eq!(entries(&[0x1000, 0x1008, 0x1018]), [0x1000, 0b1011]);
    // The last word of a bitmap, the first of the next, and the first behind that one.
    assert_eq!(entries(&[0x1000, 0x11f8]), [0x1000, 1 << 63 | 1]);
    assert_eq!(entries(&[0x1000, 0x1200]), [0x1000, 0x1200]);
    assert_eq!(entries(&[0x1000, 0x1008, 0x1200]), [0x1000, 0b11, 0b11]);
    assert_eq!(entries(&[0x1000, 0x1008, 0x13f8]), [0x1000, 0b11, 0x13f8]);
}

#[test]
fn entries_are_decoded_to_the_same_places() {
    for step in [1, 2, 3, 40, 62, 63, 64, 65, 1000] {
        let gaps = (0..2000_u64).map(|i| 8 * (1 + i * i % step));
        let places: Vec<u64> = gaps.scan(0x1000, |at, gap| Some(std::mem::replace(at, *at + gap))).collect();
        let mut entries = entries(&places);
        assert_eq!(decoded(&entries), places, "{step}");
        entries.resize(entries.len() + 3, NONE);
        assert_eq!(decoded(&entries), places, "{step}");
    }
}

/// Pointers of all kinds of places, aligned and not, to symbols, behind and before them; some hundred in a row, and
/// some apart.
const POINTERS: &str = "
    static int table[300] = {1, 2, 3};
    static int *const row[] = {&table[2], &table[299], table};
    int *apart[1000] = {[0] = table, [70] = &table[1], [71] = &table[2], [999] = table};
    struct __attribute__((packed)) { char c; int *p; } odd = {1, &table[1]};
    struct __attribute__((packed, aligned(8))) { char c; int *p, *q; char d[7]; int *r; }
        within = {1, table, table, {0}, &table[2]};
    struct { int *p; } __attribute__((aligned(64))) aligned = {&table[1]};
    __thread int *of_thread = &table[2];
    int started, *before = table - 4; void *malloc(unsigned long);
    __attribute__((constructor)) static void start(void) { *(volatile int *)&started = 5; }
    __attribute__((destructor)) static void stop(void) { *(volatile int *)&started = 0; }
    static int *volatile *volatile keep;
    int answer(int n) {
        int *volatile *of_row = (int *volatile *)row;
        if (n == 99) keep = (int *volatile *)malloc(8);
        if (n == 98) keep = (int *volatile *)apart, odd.p++, within.p++, within.r++, aligned.p++, of_thread++, before++;
        if (n < 3) return of_row[n][0];
        if (n == 3) return *odd.p * 100 + *within.p * 10 + *within.r;
        if (n == 4) return *aligned.p * 100 + *of_thread * 10 + (before + 4 == table);
        if (n == 5) return *apart[0] * 1000 + *apart[70] * 100 + *apart[71] * 10 + (apart[999] == table);
        return started;
    }";
const ANSWERS: [i32; 7] = [3, 0, 1, 213, 231, 1231, 5];

fn pointers(machine: u16) -> ImageBuilder {
    let target = if machine == EM_AARCH64 { "--target=aarch64-linux-gnu" } else { "--target=x86_64-linux-gnu" };
    ImageBuilder::new().object("pointers.o", testing::clang(&[target, "-O1", "-fPIC"], POINTERS))
}

fn packed(builder: ImageBuilder) -> Vec<u8> {
    builder.pack_relative_relocations(true).link().unwrap()
}

/// Returns an address as a section and an offset in it.
fn in_section(bytes: &[u8], address: u64) -> (String, u64) {
    let header = Header::parse(bytes).unwrap();
    let sections = header.sections(LITTLE, bytes).unwrap();
    let has = |section: &&object::elf::SectionHeader64<LittleEndian>| {
        let start = section.sh_addr.get(LITTLE);
        start != 0 && (start..start + section.sh_size.get(LITTLE)).contains(&address)
    };
    // A section of no one's memory: zeros of threads.
    let section = sections.iter().find(|of| of.sh_type.get(LITTLE) != object::elf::SHT_NOBITS && has(of));
    let section = section.or_else(|| sections.iter().find(has));
    let section = section.unwrap_or_else(|| panic!("{address:#x} is in no section"));
    let name = sections.section_name(LITTLE, section).unwrap();
    (String::from_utf8_lossy(name).into_owned(), address - section.sh_addr.get(LITTLE))
}

/// Returns the relative relocations: place and target; those with addends alone, or all.
fn relative(machine: u16, bytes: &[u8]) -> (Vec<u64>, Vec<(u64, u64)>) {
    let (_, image) = read_image(bytes, machine, true).unwrap();
    let apart: Vec<u64> = image.relr_places(bytes).collect();
    let mut all: Vec<_> = apart.iter().map(|at| (*at, image.word(bytes, *at).unwrap())).collect();
    let add = |all: &mut Vec<_>, at, to| {
        all.push((at, to));
        true
    };
    assert_eq!(image.relocations(machine, bytes, &mut all, add, |_, _| Ok::<(), ()>(())), Ok(true));
    let with_addends = all.iter().map(|(at, _)| *at).filter(|at| !apart.contains(at)).collect();
    (with_addends, all)
}

/// With and without, the same words have the same targets. What is not aligned stays.
#[test]
fn packed_relocations_are_the_same() {
    for machine in [EM_X86_64, EM_AARCH64] {
        let (plain, packed) = (pointers(machine).link().unwrap(), packed(pointers(machine)));
        assert_eq!(packed, self::packed(pointers(machine)));
        let told = |bytes: &[u8], before: u64| {
            let all = relative(machine, bytes).1;
            // One target lies before its section.
            let target = |at: u64| if at == before { ("before".to_owned(), 0) } else { in_section(bytes, at) };
            let mut all: Vec<_> = all.into_iter().map(|(at, to)| (in_section(bytes, at), target(to))).collect();
            all.sort();
            all
        };
        let before = |bytes: &[u8]| {
            let all = relative(machine, bytes).1;
            let table =
                all.iter().filter(|(at, _)| in_section(bytes, *at).0 == ".data.rel.ro").map(|(_, to)| *to).min();
            table.unwrap() - 16
        };
        let (of_plain, of_packed) = (told(&plain, before(&plain)), told(&packed, before(&packed)));
        assert_eq!(of_plain, of_packed);
        assert!(of_plain.iter().any(|(_, to)| to.0 == "before"), "{of_plain:?}");
        assert!(of_plain.len() > 15, "{of_plain:?}");
        for section in [".data", ".data.rel.ro", ".tdata", ".init_array", ".fini_array"] {
            assert!(of_plain.iter().any(|(at, _)| at.0 == section), "{section}: {of_plain:?}");
        }
        let (plain_left, packed_left) = (relative(machine, &plain).0, relative(machine, &packed).0);
        assert_eq!(plain_left.len(), of_plain.len());
        // `odd.p`, `within.p` and `within.q`.
        assert_eq!(packed_left.len(), 3, "{packed_left:x?}");
        let bytes = |image: &[u8], section| section_of(image, section).len();
        assert_eq!(bytes(&packed, ".rela.dyn"), bytes(&plain, ".rela.dyn") - 24 * (of_plain.len() - 3));
        assert!(bytes(&packed, ".relr.dyn") < 12 * (of_plain.len() - 3));
    }
}

/// Binutils and LLVM decode what we do.
#[test]
fn tools_decode_the_same_relocations() {
    for machine in [EM_X86_64, EM_AARCH64] {
        let bytes = packed(pointers(machine));
        let (left, all) = relative(machine, &bytes);
        let mut places: Vec<u64> = all.iter().map(|(at, _)| *at).filter(|at| !left.contains(at)).collect();
        places.sort_unstable();
        let told = testing::readelf(&bytes, &["-r", "-W"]);
        let of_relr = told.split(".relr.dyn").nth(1).unwrap();
        // An entry's first line begins with its number and with itself.
        let address = |line: &str| {
            let nth = if line.starts_with(' ') { 0 } else { 2 };
            u64::from_str_radix(line.split_whitespace().nth(nth)?, 16).ok()
        };
        let decoded: Vec<u64> = of_relr.lines().skip(2).filter_map(address).collect();
        assert_eq!(decoded, places, "{told}");
    }
}

/// Returns whether the C library's loader knows the table.
fn is_known_to_dlopen() -> bool {
    // SAFETY: it returns a text.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    let mut numbers = version.to_str().unwrap().split('.').map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(2), Some(36))
}

fn answers(answer: impl Fn(i32) -> i32) {
    assert_eq!([0, 1, 2, 3, 4, 5, 6].map(answer), ANSWERS);
}

#[test]
fn packed_images_are_loaded() {
    let bytes = packed(pointers(HOST_MACHINE));
    let engines = [engines(), engines().map(|_| JitEngine::builder().verify_images(true).build().unwrap())].concat();
    for engine in engines {
        let library = engine.add_image(&bytes).unwrap();
        // SAFETY: it is such a function.
        let answer = unsafe { library.get::<unsafe extern "C" fn(i32) -> i32>("answer").unwrap() };
        // SAFETY: as above.
        answers(|n| unsafe { answer(n) });
        drop(answer);
        assert_eq!(library.remove(), Removal::Freed);
        // It keeps its segments' distances.
        let library = engine.add_image(packed(large())).unwrap();
        call_large(&library);
        assert_eq!(library.remove(), Removal::Freed);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large.so");
    std::fs::write(&file, packed(large())).unwrap();
    call_large(&JitEngine::new().unwrap().add_image_file(&file).unwrap());
}

#[test]
fn dlopen_and_the_loader_agree() {
    if !is_known_to_dlopen() {
        println!("not run: the C library is older than 2.36");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pointers.so");
    std::fs::write(&file, packed(pointers(HOST_MACHINE))).unwrap();
    // SAFETY: the constructor sets a variable, and it is such a function.
    unsafe {
        let library = libloading::Library::new(&file).unwrap();
        let answer = library.get::<unsafe extern "C" fn(i32) -> i32>(b"answer").unwrap();
        answers(|n| answer(n));
    }
}

/// Returns the versions that a file needs of glibc's library.
fn versions(bytes: &[u8]) -> Vec<String> {
    let told = testing::readelf(bytes, &["-V", "-W"]);
    let needs = told.split("Version needs section").nth(1).unwrap_or_default();
    let names = needs.lines().filter_map(|line| line.split("Name: ").nth(1)?.split_whitespace().next());
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    names
}

/// The version that says that the loader knows the table is needed where `ld` has it.
#[test]
fn the_version_is_needed_as_by_ld() {
    const RELR: &str = "GLIBC_ABI_DT_RELR";
    let folder = tempfile::tempdir().unwrap();
    let pointer = "static int table[3]; int *pointer = &table[1];";
    let import = "char *getenv(const char *); char *home(void) { return getenv(\"HOME\"); }";
    for (source, is_packed, is_needed) in [
        (format!("{pointer}{import}"), true, true),
        (pointer.to_owned(), true, false),
        (format!("{pointer}{import}"), false, false),
    ] {
        let object = object(&source);
        std::fs::write(folder.path().join("a.o"), &object).unwrap();
        let builder = ImageBuilder::new().object("a.o", object).pack_relative_relocations(is_packed);
        let bytes = builder.shared_library("libc.so.6").link().unwrap();
        let needed = versions(&bytes);
        assert_eq!(needed.iter().any(|version| version == RELR), is_needed, "{needed:?}");
        // GNU ld 2.40 does not pack for AArch64.
        if HOST_MACHINE == EM_X86_64 {
            let flag = if is_packed { "-Wl,-z,pack-relative-relocs" } else { "-Wl,-z,nopack-relative-relocs" };
            testing::run(folder.path(), "gcc", &["-shared", "-nostartfiles", flag, "a.o", "-o", "ld.so"]);
            let of_ld = versions(&std::fs::read(folder.path().join("ld.so")).unwrap());
            assert_eq!(needed, of_ld, "{source}");
        }
        let told = testing::readelf(&bytes, &["-d", "-S", "-W"]);
        assert_eq!(told.contains("(RELRSZ)") && told.contains(".relr.dyn"), is_packed, "{told}");
    }
}

/// An image without relative relocations is of the first format, and has no table.
#[test]
fn without_such_relocations_there_is_no_table() {
    let builder = || ImageBuilder::new().object("none.o", object("int f(int n) { return n + 1; }"));
    assert_eq!(packed(builder()), builder().link().unwrap());
}

fn section_of(bytes: &[u8], wanted: &str) -> std::ops::Range<usize> {
    let sections = Header::parse(bytes).unwrap().sections(LITTLE, bytes).unwrap();
    let is_it = |of: &&object::elf::SectionHeader64<LittleEndian>| {
        sections.section_name(LITTLE, of).unwrap() == wanted.as_bytes()
    };
    let (offset, size) = sections.iter().find(is_it).unwrap().file_range(LITTLE).unwrap();
    offset as usize..(offset + size) as usize
}

/// Returns where the file has the value of a dynamic entry.
fn dynamic_value(bytes: &[u8], tag: object::elf::DynamicTag) -> usize {
    let dynamic = section_of(bytes, ".dynamic");
    let entries = bytes[dynamic.clone()].chunks_exact(16);
    let nth = entries.into_iter().position(|entry| entry[..8] == tag.0.to_le_bytes()).unwrap();
    dynamic.start + 16 * nth + 8
}

#[test]
fn hostile_tables_are_refused() {
    let bytes = packed(pointers(HOST_MACHINE));
    let table = section_of(&bytes, ".relr.dyn");
    let first = u64::from_le_bytes(*bytes[table.clone()].first_chunk().unwrap());
    let [cannot_be_read, outside, elsewhere] = [
        "its table of relative relocations cannot be read",
        "a relocation is of an unknown kind, or outside its segment",
        "a table lies outside its segments",
    ];
    let refused = |name: &str, wanted: &'static str, at: usize, value: &[u8]| {
        let mut changed = bytes.clone();
        changed[at..at + value.len()].copy_from_slice(value);
        let refused = read_image(&changed, HOST_MACHINE, false).map(drop);
        assert_eq!(refused, Err(Unfit::Malformed(wanted)), "{name}");
        let error = JitEngine::new().unwrap().add_image(&changed).unwrap_err();
        assert!(matches!(error, Error::Image(ImageError::Damaged { .. })), "{name}: {error}");
    };
    let entries = |entries: &[u64]| entries.iter().flat_map(|entry| entry.to_le_bytes()).collect::<Vec<u8>>();
    let code = section_of(&bytes, ".text").start as u64 + 0x1000;
    assert!(read_image(&bytes, HOST_MACHINE, true).is_ok());
    refused("a bitmap comes first", cannot_be_read, table.start, &entries(&[0b111]));
    refused("one place twice", cannot_be_read, table.start, &entries(&[first, first]));
    refused("two places overlap", cannot_be_read, table.start, &entries(&[first, first + 4]));
    refused("places descend", cannot_be_read, table.start, &entries(&[first, first - 8]));
    refused("the last place of memory, and a bitmap", outside, table.start, &entries(&[u64::MAX - 7, 0b11]));
    refused("a place is nowhere", outside, table.end - 8, &entries(&[1 << 40]));
    let data = read_image(&bytes, HOST_MACHINE, false).unwrap().1.segments.pop().unwrap();
    let last = (data.address + data.file.len() as u64) / 8 * 8 - 8;
    refused("a bitmap leads nowhere", outside, table.end - 16, &entries(&[last, 0b11]));
    refused("the last bit leads nowhere", outside, table.end - 16, &entries(&[last, 1 << 63 | 1]));
    refused("a place is code", outside, table.start, &entries(&[code, code + 8]));
    let (at, size) = (dynamic_value(&bytes, DT_RELR), dynamic_value(&bytes, DT_RELRSZ));
    refused("there is none", cannot_be_read, size, &entries(&[0]));
    refused("part of an entry", cannot_be_read, size, &entries(&[table.len() as u64 - 1]));
    refused("more than the segment", elsewhere, size, &entries(&[1 << 20]));
    refused("more than there can be", elsewhere, size, &entries(&[u64::MAX - 7]));
    refused("the table is nowhere", elsewhere, at, &entries(&[1 << 40]));
    refused("another tag", cannot_be_read, size - 8, &entries(&[0x6fff_e000]));
    // As an older slabjit would read it.
    let note = bytes.windows(8).position(|bytes| bytes == b"slabjit\0").unwrap() + 8;
    assert_eq!(bytes[note..note + 4], [4, 0, 0, 0]);
    refused("the first format", cannot_be_read, note, &[3]);
}

/// Of the unwind table, what is aligned is packed.
#[test]
fn unwind_tables_are_packed() {
    let absolute = testing::asm(
        ".globl f\n .type f, @function\n f: ret\n .size f, . - f
         .section .eh_frame, \"a\", @progbits
         1: .long 20, 0\n .byte 1, 0, 1, 0x78, 16, 0xc, 7, 8, 0x90, 1, 0, 0, 0, 0, 0, 0
         .long 20, . - 1b\n .quad f, 1",
    );
    let odd = testing::asm(
        ".globl g\n .type g, @function\n g: .cfi_startproc\n .cfi_personality 0, personality\n ret\n .cfi_endproc
         .size g, . - g\n personality: ret",
    );
    let builder = || ImageBuilder::new().object("absolute.o", absolute.clone()).object("odd.o", odd.clone());
    let (plain, packed) = (builder().link().unwrap(), packed(builder()));
    let told = |bytes: &[u8]| {
        let all = relative(EM_X86_64, bytes).1.into_iter();
        let mut all: Vec<_> = all.map(|(at, to)| (in_section(bytes, at), in_section(bytes, to))).collect();
        all.sort();
        all
    };
    assert_eq!(told(&packed), told(&plain));
    assert_eq!(told(&plain).iter().map(|(at, _)| &*at.0).collect::<Vec<_>>(), [".eh_frame"; 2]);
    assert_eq!(relative(EM_X86_64, &packed).0.len(), 1);
    if HOST_MACHINE == EM_X86_64 {
        for engine in engines() {
            // Loading reads the table once it is relocated.
            let library = engine.add_image(&packed).unwrap();
            // SAFETY: it returns at once.
            unsafe { library.get::<unsafe extern "C" fn()>("g").unwrap()() };
        }
    }
}

/// The table moves what it refers to. Where it then needs fewer entries, it is filled with ones that mean nothing.
#[test]
fn room_that_is_not_needed_is_filled() {
    let pointers = object(
        "int number; int *through_the_got(void) { return &number; }
        static int hidden; int *const aligned[8] __attribute__((aligned(512))) = {[2] = &hidden, [5] = &hidden};",
    );
    let constant = testing::build("llvm-mc-22", &[TRIPLE, "-filetype=obj"], "s", ".section .rodata, \"a\"\n .quad 1");
    let mut filled = 0;
    for count in 0..64 {
        let builder = ImageBuilder::new().object("pointers.o", pointers.clone());
        let builder = (0..count).fold(builder, |builder, _| builder.object("constant.o", constant.clone()));
        let bytes = packed(builder);
        let (left, all) = relative(HOST_MACHINE, &bytes);
        assert_eq!((left.len(), all.len()), (0, 3), "{count}");
        let table = &bytes[section_of(&bytes, ".relr.dyn")];
        filled += usize::from(table.ends_with(&NONE.to_le_bytes()));
    }
    assert!(filled != 0 && filled != 64, "{filled}");
}

const TRIPLE: &str = if HOST_MACHINE == EM_AARCH64 { "-triple=aarch64-linux-gnu" } else { "-triple=x86_64-linux-gnu" };

/// Where a section is not aligned, its words are only by chance.
#[test]
fn words_of_unaligned_sections_are_not_packed() {
    let byte = testing::build("llvm-mc-22", &[TRIPLE, "-filetype=obj"], "s", ".data\n .byte 1");
    let word = testing::build("llvm-mc-22", &[TRIPLE, "-filetype=obj"], "s", ".data\n word: .quad word, word");
    let aligned = testing::build("llvm-mc-22", &[TRIPLE, "-filetype=obj"], "s", ".data\n .balign 8\n a: .quad a, a");
    for (objects, packs) in [([&byte, &word], 0), ([&word, &byte], 0), ([&byte, &aligned], 2)] {
        let builder =
            objects.iter().fold(ImageBuilder::new(), |builder, object| builder.object("a.o", (*object).clone()));
        let (left, all) = relative(HOST_MACHINE, &packed(builder));
        assert_eq!((left.len(), all.len()), (2 - packs, 2));
    }
}

/// Of two relocations of one word, the one is made that the dynamic loader makes last.
#[test]
fn words_are_relocated_once() {
    let source = ".data\n .balign 8\n word: .quad 0\n .reloc word, BFD_RELOC_64, word + 8
        .reloc word, BFD_RELOC_64, word\n other: .quad 0";
    let twice = testing::build("llvm-mc-22", &[TRIPLE, "-filetype=obj"], "s", source);
    let builder = || ImageBuilder::new().object("twice.o", twice.clone());
    let (plain, packed) = (builder().link().unwrap(), packed(builder()));
    let targets = |bytes: &[u8]| {
        let all = relative(HOST_MACHINE, bytes).1;
        all.into_iter().map(|(at, to)| (in_section(bytes, at).1, in_section(bytes, to).1)).collect::<Vec<_>>()
    };
    assert_eq!(targets(&plain), [(0, 0), (0, 8)]);
    assert_eq!(targets(&packed), [(0, 8)]);
}
