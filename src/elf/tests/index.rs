use crate::elf::index::PLAIN_PRIORITY;
use crate::elf::testing::{ARM, X86, asm, build, clang, gcc, prepare};
use crate::elf::{ArrayKind, Binding, Definition, ObjectIndex, SymbolKind, Visibility};

fn definition<'a>(index: &'a ObjectIndex, name: &str) -> &'a Definition {
    index.definitions.iter().find(|d| index.name(d.name) == name).unwrap_or_else(|| panic!("{name} is not defined"))
}

#[test]
fn definitions_say_what_they_are() {
    let source = "
        int function(void) { return 1; }
        __attribute__((weak)) int weak_function(void) { return 2; }
        __attribute__((visibility(\"hidden\"))) int hidden_data = 3;
        __attribute__((visibility(\"protected\"))) int protected_data = 4;
        __attribute__((visibility(\"internal\"))) int internal_data = 4;
        int zeros[100]; static int local = 5; int *keep = &local;
        extern int elsewhere; int *want = &elsewhere;
        __attribute__((weak)) extern int maybe(void); int (*perhaps)(void) = maybe;";
    for bytes in [gcc(&["-fcommon"], source), clang(&["-fcommon"], source)] {
        let prepared = prepare(X86, &bytes).unwrap();
        let index = &prepared.index;
        let get = |name| definition(index, name);
        assert_eq!(get("function").kind, SymbolKind::Function);
        assert_eq!((get("function").binding, get("function").visibility), (Binding::Strong, Visibility::Default));
        assert!(get("function").size > 0);
        assert_eq!(index.section_name(get("function").section), ".text");
        assert_eq!(get("weak_function").binding, Binding::Weak);
        assert_eq!(get("hidden_data").visibility, Visibility::Hidden);
        assert_eq!(get("hidden_data").kind, SymbolKind::Data);
        assert_eq!(get("protected_data").visibility, Visibility::Default);
        assert_eq!(get("internal_data").visibility, Visibility::Hidden);
        let zeros = get("zeros");
        assert_eq!((zeros.size, zeros.section, zeros.kind), (400, 0, SymbolKind::Data));
        assert!(zeros.common.is_some_and(|alignment| alignment >= 16));
        assert!(!index.definitions.iter().any(|d| index.name(d.name) == "local"));
        let imports: Vec<_> = index.imports.iter().map(|i| (index.name(i.name), i.weak)).collect();
        assert!(imports.contains(&("elsewhere", false)) && imports.contains(&("maybe", true)), "{imports:?}");
        // JITLink refuses internal symbols, so preparation has made them hidden.
        assert!(!crate::elf::testing::readelf(&prepared.bytes, &["-sW"]).contains("INTERNAL"));
    }
}

#[test]
fn absolute_symbols_are_taken_out() {
    let bytes =
        asm(".globl magic\nmagic = 0x1234\n.globl f\nf: movabsq $magic, %rax\nret\n.reloc f+2, R_X86_64_64, magic");
    let prepared = prepare(X86, &bytes).unwrap();
    let magic = definition(&prepared.index, "magic");
    assert!(magic.absolute && magic.value == 0x1234 && magic.section == 0);
    assert!(prepared.index.imports.is_empty());
    let symbols = crate::elf::testing::readelf(&prepared.bytes, &["-sW"]);
    let line = symbols.lines().find(|line| line.ends_with(" magic")).unwrap();
    assert!(line.contains("UND"), "{line}");
    // An untyped symbol in code is a function.
    assert_eq!(definition(&prepared.index, "f").kind, SymbolKind::Function);
}

#[test]
fn comdat_groups_know_their_members() {
    let source =
        "inline int twice(int x) { static int calls; return 2 * x + ++calls; } int f(int x) { return twice(x); }";
    for tool in ["g++", "clang++-22"] {
        let bytes = build(tool, &["-c", "-ffunction-sections"], "cc", source);
        let prepared = prepare(X86, &bytes).unwrap();
        let index = &prepared.index;
        let twice = definition(index, "_Z5twicei");
        let group = &index.groups[twice.comdat.unwrap() as usize];
        assert_eq!(index.name(group.signature), "_Z5twicei");
        assert!(group.members.contains(&twice.section));
        assert_eq!(twice.binding, Binding::Weak);
        let calls = definition(index, "_ZZ5twiceiE5calls");
        if tool == "g++" {
            assert_eq!(calls.binding, Binding::Unique);
        }
        assert!(calls.comdat.is_some());
        assert_eq!(definition(index, "_Z1fi").comdat, None);
    }
}

#[test]
fn arrays_have_kinds_and_priorities() {
    let source = "
        __attribute__((constructor(101))) void early(void) {} __attribute__((constructor)) void plain(void) {}
        __attribute__((destructor(200))) void late(void) {} __attribute__((destructor)) void end(void) {}
        __attribute__((section(\".preinit_array\"), used)) static void (*pre)(void) = plain;";
    for (target, bytes) in
        [(X86, gcc(&[], source)), (X86, clang(&[], source)), (ARM, clang(&["-target", "aarch64-linux-gnu"], source))]
    {
        let prepared = prepare(target, &bytes).unwrap();
        let mut arrays: Vec<_> = prepared.index.arrays.iter().map(|a| (a.kind as u8, a.priority, a.size)).collect();
        arrays.sort();
        let expected = [
            (ArrayKind::PreInit as u8, PLAIN_PRIORITY, 8),
            (ArrayKind::Init as u8, 101, 8),
            (ArrayKind::Init as u8, PLAIN_PRIORITY, 8),
            (ArrayKind::Fini as u8, 200, 8),
            (ArrayKind::Fini as u8, PLAIN_PRIORITY, 8),
        ];
        assert_eq!(arrays, expected);
        for array in &prepared.index.arrays {
            assert_eq!(prepared.index.section_at(array.offset), Some(array.section));
        }
    }
    let legacy =
        prepare(X86, &asm(".section .ctors.65434,\"aw\"\n.quad f\n.section .dtors,\"aw\"\n.quad f")).unwrap().index;
    assert_eq!((legacy.arrays[0].kind, legacy.arrays[0].priority), (ArrayKind::Ctors, 101));
    assert_eq!((legacy.arrays[1].kind, legacy.arrays[1].priority), (ArrayKind::Dtors, PLAIN_PRIORITY));
}

#[test]
fn what_to_keep_and_what_may_be_far() {
    let bytes =
        asm(".section kept,\"a\"\n.quad 1\n.section .held,\"aR\"\n.quad 2\n.section .other,\"a\"\n.quad 3\n.section \
         .lbig,\"awl\"\n.quad 4");
    let index = prepare(X86, &bytes).unwrap().index;
    let names = |list: &[u32]| list.iter().map(|&s| index.section_name(s).to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&index.retain), ["kept", ".held"]);
    assert_eq!(names(&index.large_sections), [".lbig"]);
}

#[test]
fn objects_without_names_are_objects() {
    for bytes in [gcc(&[], ""), asm(""), gcc(&[], "static __attribute__((constructor)) void f(void) {}")] {
        let prepared = prepare(X86, &bytes).unwrap();
        assert!(prepared.index.definitions.is_empty() && prepared.index.imports.is_empty());
    }
}

/// With `-ffunction-sections`, a function's section contains its name.
#[test]
fn names_that_sections_end_in_are_there_once() {
    let name = "function_with_a_section_of_its_own";
    let bytes = gcc(&["-ffunction-sections"], &format!("int {name}(void) {{ return 1; }}"));
    let prepared = prepare(X86, &bytes).unwrap();
    assert_eq!(definition(&prepared.index, name).kind, SymbolKind::Function);
    assert_eq!(prepared.index.names.matches(name).count(), 1, "{:?}", prepared.index.names);
}
