use crate::elf::elf_abi::{SYMBOL_SIZE, field};
use crate::elf::testing::{ARM, X86, asm, asm_arm, check, gcc, prepare, put, put_header, section, view};
use crate::{Error, ObjectError, Result};

const SOURCE: &str = "extern int g(void); int data = 4; int f(void) { return g() + data; }";

/// A change to a valid object, and a part of the resulting error's text.
pub(super) type Case<'a> = (&'a str, &'a dyn Fn(&mut Vec<u8>), &'a str);

pub(super) fn expect(object: &[u8], cases: &[Case<'_>]) {
    assert!(prepare(X86, object).is_ok());
    for (what, change, expected) in cases {
        let mut bytes = object.to_vec();
        change(&mut bytes);
        let error = prepare(X86, &bytes).map(drop).expect_err(what);
        assert!(error.to_string().contains(expected), "{what}: {error}");
        // Checking reports the same, as a problem or as an error.
        let text = match check(&bytes) {
            Ok(plan) => plan.to_string(),
            Err(error) => error.to_string(),
        };
        assert!(text.contains(expected), "{what}: {text}");
    }
}

pub(super) fn set(bytes: &mut [u8], name: &str, field: u64, value: u64) {
    let (index, _) = section(bytes, name, 0);
    let width = if field < 8 || field == 40 || field == 44 { 4 } else { 8 };
    put_header(bytes, index, field, &value.to_le_bytes()[..width]);
}

/// Overwrites a field of the symbol of this name.
pub(super) fn set_symbol(bytes: &mut [u8], name: &str, field: u64, value: &[u8]) {
    let (_, header) = section(bytes, ".symtab", 0);
    let v = view(bytes);
    let strings = v.contents(header.link, &v.header(header.link).unwrap()).unwrap();
    let mut indices = 0..header.size / SYMBOL_SIZE;
    let at = indices.find_map(|i| {
        let offset = header.offset + i * SYMBOL_SIZE;
        let start = u32::from_le_bytes(bytes[offset as usize..][..4].try_into().unwrap());
        (crate::elf::elf_view::string_at(strings, start) == Some(name.as_bytes())).then_some(offset)
    });
    put(bytes, at.unwrap() + field, value);
}

#[test]
fn headers() {
    let object = gcc(&["-O0"], SOURCE);
    expect(
        &object,
        &[
            ("header size", &|b| put(b, 52, &[63, 0]), "header's size"),
            ("entry size", &|b| put(b, 58, &[65, 0]), "section headers have 65"),
            ("table beyond", &|b| put(b, 40, &(1_u64 << 40).to_le_bytes()), "cut off"),
            ("table wraps", &|b| put(b, 40, &(u64::MAX - 8).to_le_bytes()), "cut off"),
            ("no table", &|b| put(b, 40, &[0; 8]), "there is no section table"),
            ("names index", &|b| put(b, 62, &[200, 0]), "section-name table is section 200"),
            ("names type", &|b| put(b, 62, &[1, 0]), "no string table"),
            ("section beyond", &|b| set(b, ".text", field::SH_OFFSET, 1 << 30), "cut off"),
            ("section wraps", &|b| set(b, ".text", field::SH_SIZE, u64::MAX), "cut off"),
            ("name beyond", &|b| set(b, ".text", 0, 1 << 20), "section's name"),
            ("alignment", &|b| set(b, ".text", field::SH_ADDRALIGN, 3), "no power of two"),
            ("large alignment", &|b| set(b, ".text", field::SH_ADDRALIGN, 4 << 20), "wants an alignment"),
            ("address", &|b| set(b, ".data", 16, u64::MAX), "overflow"),
            ("thread local", &|b| set(b, ".data", field::SH_FLAGS, 0x403), "thread-local"),
            ("huge bss", &|b| set(b, ".bss", field::SH_SIZE, 1 << 48), "more memory"),
            (
                "shstrtab without end",
                &|b| {
                    let (_, h) = section(b, ".shstrtab", 0);
                    put(b, h.offset + h.size - 1, b"x");
                },
                "does not begin and end with a NUL",
            ),
            (
                "shstrtab without beginning",
                &|b| {
                    let (_, h) = section(b, ".shstrtab", 0);
                    put(b, h.offset, b"x");
                },
                "does not begin and end with a NUL",
            ),
            (
                "unmapped bss",
                &|b| {
                    set(b, ".bss", field::SH_SIZE, 8);
                    set(b, ".bss", field::SH_FLAGS, 1);
                },
                "not mapped and has no contents",
            ),
            ("null section", &|b| put_header(b, 0, field::SH_TYPE, &[4]), "not the null section"),
            (
                "overlap",
                &|b| {
                    let (_, h) = section(b, ".text", 0);
                    set(b, ".data", field::SH_OFFSET, h.offset + h.size - 1);
                },
                "its contents and those of section '.data' overlap",
            ),
            ("overlap with the header", &|b| set(b, ".data", field::SH_OFFSET, 63), "those of a header overlap"),
            (
                "overlap with headers",
                &|b| {
                    let table = view(b).table;
                    set(b, ".data", field::SH_OFFSET, table - 1);
                },
                "those of a header overlap",
            ),
            ("implicit addends", &|b| set(b, ".rela.text", field::SH_TYPE, 9), "encoding SHT_REL"),
            ("android", &|b| set(b, ".rela.text", field::SH_TYPE, 0x6000_0002), "Android-packed"),
            (
                "odd array",
                &|b| {
                    set(b, ".data", field::SH_TYPE, 14);
                },
                "multiple of a pointer",
            ),
        ],
    );
}

#[test]
fn symbols() {
    let object =
        gcc(&["-O0", "-fcommon"], &format!("{SOURCE} int common; __attribute__((visibility(\"hidden\"))) int f2;"));
    expect(
        &object,
        &[
            ("table size", &|b| set(b, ".symtab", field::SH_SIZE, 25), "no symbol table"),
            ("entry size", &|b| set(b, ".symtab", field::SH_ENTSIZE, 16), "no symbol table"),
            ("strings", &|b| set(b, ".symtab", 40, 1), "string table is section 1"),
            (
                "strings without end",
                &|b| {
                    let (_, h) = section(b, ".strtab", 0);
                    put(b, h.offset + h.size - 1, b"x");
                },
                "does not begin and end with a NUL",
            ),
            (
                "strings without beginning",
                &|b| {
                    let (_, h) = section(b, ".strtab", 0);
                    put(b, h.offset, b"x");
                },
                "does not begin and end with a NUL",
            ),
            (
                "second table",
                &|b| {
                    let (strings, _) = section(b, ".strtab", 0);
                    for (field, value) in [(field::SH_TYPE, 2), (field::SH_SIZE, 24), (field::SH_ENTSIZE, 24)] {
                        set(b, ".comment", field, value);
                    }
                    set(b, ".comment", 40, u64::from(strings));
                },
                "second symbol table",
            ),
            (
                "null symbol",
                &|b| {
                    let (_, h) = section(b, ".symtab", 0);
                    put(b, h.offset + 8, &[1]);
                },
                "null symbol",
            ),
            ("name", &|b| set_symbol(b, "f", 0, &(1_u32 << 30).to_le_bytes()), "beyond the string table"),
            ("section", &|b| set_symbol(b, "f", field::ST_SHNDX, &[99, 0]), "section 99"),
            ("reserved section", &|b| set_symbol(b, "f", field::ST_SHNDX, &[5, 0xff]), "0xff05"),
            ("extended without table", &|b| set_symbol(b, "f", field::ST_SHNDX, &[0xff, 0xff]), "0xffff"),
            ("value", &|b| set_symbol(b, "f", field::ST_VALUE, &(1_u64 << 20).to_le_bytes()), "does not lie in"),
            ("value wraps", &|b| set_symbol(b, "f", field::ST_VALUE, &(u64::MAX - 3).to_le_bytes()), "does not lie in"),
            ("binding", &|b| set_symbol(b, "f", 4, &[0xd2]), "binding 13"),
            ("unique import", &|b| set_symbol(b, "g", 4, &[0xa0]), "binding 10"),
            ("thread local", &|b| set_symbol(b, "data", 4, &[0x16]), "thread-local"),
            ("indirect", &|b| set_symbol(b, "data", 4, &[0x1a]), "indirect function"),
            ("common alignment", &|b| set_symbol(b, "common", field::ST_VALUE, &[3]), "no power of two"),
            (
                "common alignment",
                &|b| set_symbol(b, "common", field::ST_VALUE, &(8_u64 << 20).to_le_bytes()),
                "wants an alignment",
            ),
            ("common size", &|b| set_symbol(b, "common", field::ST_SIZE, &u64::MAX.to_le_bytes()), "more memory"),
            ("common local", &|b| set_symbol(b, "common", 4, &[1]), "common and local"),
            ("nameless", &|b| set_symbol(b, "f", 0, &[0; 4]), "has no name"),
            (
                "twice",
                &|b| {
                    let (_, h) = section(b, ".strtab", 0);
                    let strings = b[h.offset as usize..][..h.size as usize].to_vec();
                    let at = strings.windows(6).position(|w| w == b"\0data\0").unwrap() as u32 + 1;
                    set_symbol(b, "f", 0, &at.to_le_bytes());
                },
                "twice",
            ),
            (
                "not UTF-8",
                &|b| {
                    let (_, h) = section(b, ".strtab", 0);
                    let strings = b[h.offset as usize..][..h.size as usize].to_vec();
                    let at = strings.windows(6).position(|w| w == b"\0data\0").unwrap() as u64 + 1;
                    put(b, h.offset + at, &[0xff]);
                },
                "not UTF-8",
            ),
        ],
    );
}

#[test]
fn relocations() {
    let object = gcc(&["-O0"], SOURCE);
    let entry = |b: &mut Vec<u8>, field: u64, value: &[u8]| {
        let (_, h) = section(b, ".rela.text", 0);
        put(b, h.offset + field, value);
    };
    let info = |symbol: u64, kind: u64| (symbol << 32 | kind).to_le_bytes();
    expect(
        &object,
        &[
            ("entry size", &|b| set(b, ".rela.text", field::SH_ENTSIZE, 16), "no relocations"),
            ("size", &|b| set(b, ".rela.text", field::SH_SIZE, 25), "no relocations"),
            ("target 0", &|b| set(b, ".rela.text", 44, 0), "section 0, which cannot be patched"),
            ("target beyond", &|b| set(b, ".rela.text", 44, 77), "section 77"),
            (
                "target itself",
                &|b| {
                    let (index, _) = section(b, ".rela.text", 0);
                    set(b, ".rela.text", 44, u64::from(index));
                },
                "cannot be patched",
            ),
            (
                "target bss",
                &|b| {
                    let (index, _) = section(b, ".bss", 0);
                    set(b, ".rela.text", 44, u64::from(index));
                },
                "without contents",
            ),
            ("symbol table", &|b| set(b, ".rela.text", 40, 1), "its symbol table is section 1"),
            ("offset", &|b| entry(b, 0, &(1_u64 << 33).to_le_bytes()), "does not lie in section '.text'"),
            ("offset wraps", &|b| entry(b, 0, &(u64::MAX - 1).to_le_bytes()), "does not lie in section '.text'"),
            ("symbol", &|b| entry(b, 8, &info(5000, 4)), "symbol 5000"),
            ("kind unknown", &|b| entry(b, 8, &info(1, 200)), "kind 200"),
            ("kind dynamic", &|b| entry(b, 8, &info(1, 5)), "R_X86_64_COPY"),
            ("kind thread local", &|b| entry(b, 8, &info(2, 23)), "R_X86_64_TPOFF32"),
            ("kind indirect", &|b| entry(b, 8, &info(2, 37)), "indirect function"),
            ("file symbol", &|b| entry(b, 8, &info(1, 2)), "neither defined"),
            (
                "addend",
                &|b| {
                    entry(b, 8, &info(2, 41));
                    entry(b, 0, &9_u64.to_le_bytes());
                    entry(b, 16, &7_i64.to_le_bytes());
                },
                "its addend is 7",
            ),
            (
                "bytes before",
                &|b| {
                    entry(b, 8, &info(2, 42));
                    entry(b, 0, &1_u64.to_le_bytes());
                },
                "does not lie in section '.text'",
            ),
        ],
    );
    // The last field that fits, and one byte more.
    let text = section(&object, ".text", 0).1.size;
    let mut bytes = object.clone();
    entry(&mut bytes, 0, &(text - 4).to_le_bytes());
    assert!(prepare(X86, &bytes).is_ok());
    entry(&mut bytes, 0, &(text - 3).to_le_bytes());
    assert!(prepare(X86, &bytes).is_err());
    // A relocation that does nothing may be anywhere in the section, or right behind its end.
    entry(&mut bytes, 8, &info(0, 0));
    entry(&mut bytes, 0, &text.to_le_bytes());
    assert!(prepare(X86, &bytes).is_ok());
}

/// Names often share their ends; a megabyte that every symbol shares is an attack on memory.
#[test]
fn names_that_overlap_without_end_are_refused() {
    let long = "n".repeat(100_000);
    let mut source = format!(".globl {long}\n{long}: ret\n");
    for i in 0..3000 {
        source.push_str(&format!("s{i}: nop\n.globl s{i}\n"));
    }
    let mut bytes = asm(&source);
    assert!(prepare(X86, &bytes).is_ok());
    let (_, header) = section(&bytes, ".symtab", 0);
    let (_, strings) = section(&bytes, ".strtab", 0);
    let start = strings.offset as usize;
    let at = bytes[start..].windows(9).position(|w| w == b"nnnnnnnnn").unwrap() as u32;
    for i in 2..3000 {
        put(&mut bytes, header.offset + u64::from(i) * SYMBOL_SIZE, &(at + i).to_le_bytes());
    }
    let error = prepare(X86, &bytes).unwrap_err();
    assert!(error.to_string().contains("overlap"), "{error}");
    // Any number of sections may have the same name.
    let mut source = String::new();
    for i in 0..20_000 {
        source.push_str(&format!(".section .text.unlikely,\"ax\",@progbits,unique,{i}\nnop\n"));
    }
    assert!(prepare(X86, &asm(&source)).is_ok());
}

/// Sections with one long name, or with the same contents, which cost only a few bytes of headers each.
#[test]
fn what_sections_share_is_not_taken_many_times() {
    let long = "n".repeat(100_000);
    let mut source = format!(".section {long},\"a\"\n.quad 1\n");
    for i in 0..5000 {
        source.push_str(&format!(".section s{i},\"a\"\n"));
    }
    let mut bytes = asm(&source);
    let (_, first) = section(&bytes, &long, 0);
    let named = |bytes: &[u8], i: u32| section(bytes, &format!("s{i}"), 0).0;
    let start = named(&bytes, 0);
    for i in start..start + 4999 {
        put_header(&mut bytes, i, 0, &first.name.to_le_bytes());
    }
    let plan = check(&bytes).unwrap();
    assert!(plan.to_string().contains("overlap"));
    assert!(plan.sections.iter().map(|s| s.name.len()).sum::<usize>() < 30 * long.len());

    let mut source = ".section .x,\"axG\",@progbits,sig,comdat\n.weak sig\nsig: ret\n".to_owned();
    source.push_str(&".globl f\n.text\n.long f\n".repeat(100));
    let mut bytes = asm(&source);
    let (group, header) = section(&bytes, ".group", 0);
    let (text, other) = section(&bytes, ".text", 0);
    assert!(other.size >= header.size && group != text);
    put_header(&mut bytes, group, field::SH_OFFSET, &other.offset.to_le_bytes());
    let plan = check(&bytes).unwrap();
    assert!(plan.problems.iter().any(|problem| problem.text.contains("overlap")), "{plan}");
    assert_eq!((plan.problems.len(), plan.references.len()), (1, 0), "{plan}");
}

#[test]
fn groups() {
    let object = asm(".section .x,\"axG\",@progbits,sig,comdat\n.weak sig\nsig: ret\n.section \
         .y,\"aG\",@progbits,sig,comdat\n.quad 1");
    let contents = |b: &mut Vec<u8>, at: u64, value: u32| {
        let (_, h) = section(b, ".group", 0);
        put(b, h.offset + at, &value.to_le_bytes());
    };
    expect(
        &object,
        &[
            ("member", &|b| contents(b, 4, 999), "member 999"),
            ("member 0", &|b| contents(b, 4, 0), "member 0"),
            ("size", &|b| set(b, ".group", field::SH_SIZE, 7), "half a member"),
            ("empty", &|b| set(b, ".group", field::SH_SIZE, 0), "no flags"),
            ("signature", &|b| set(b, ".group", 44, 999), "symbol 999"),
            ("signature 0", &|b| set(b, ".group", 44, 0), "symbol 0"),
            (
                "twice",
                &|b| {
                    let (index, _) = section(b, ".x", 0);
                    contents(b, 8, index);
                },
                "two groups",
            ),
        ],
    );
}

fn arm(source: &str) -> Result<()> {
    prepare(ARM, &asm_arm(source)).map(drop)
}

#[test]
fn instructions_that_cannot_be_patched_are_refused_on_aarch64() {
    for (kind, good) in [
        ("R_AARCH64_ADR_PREL_PG_HI21", "adrp x0, 0"),
        ("R_AARCH64_ADR_GOT_PAGE", "adrp x17, 0"),
        ("R_AARCH64_ADR_PREL_LO21", "adr x0, ."),
        ("R_AARCH64_ADD_ABS_LO12_NC", "add w1, w1, #0"),
        ("R_AARCH64_ADD_ABS_LO12_NC", "add x1, x1, #0"),
        ("R_AARCH64_LDST8_ABS_LO12_NC", "ldrsb x1, [x1]"),
        ("R_AARCH64_LDST8_ABS_LO12_NC", "str b1, [x1]"),
        ("R_AARCH64_LDST16_ABS_LO12_NC", "strh w1, [x1]"),
        ("R_AARCH64_LDST16_ABS_LO12_NC", "ldr h1, [x1]"),
        ("R_AARCH64_LDST32_ABS_LO12_NC", "ldr s1, [x1]"),
        ("R_AARCH64_LDST32_ABS_LO12_NC", "ldrsw x1, [x1]"),
        ("R_AARCH64_LDST64_ABS_LO12_NC", "str d1, [x1]"),
        ("R_AARCH64_LDST64_ABS_LO12_NC", "prfm pldl1keep, [x1]"),
        ("R_AARCH64_LDST128_ABS_LO12_NC", "ldr q1, [x1]"),
        ("R_AARCH64_LD64_GOT_LO12_NC", "ldr x1, [x1]"),
        ("R_AARCH64_LD64_GOTPAGE_LO15", "ldr x1, [x1]"),
        ("R_AARCH64_LD_PREL_LO19", "ldr x1, ."),
        ("R_AARCH64_LD_PREL_LO19", "ldr q1, ."),
        ("R_AARCH64_TSTBR14", "tbnz x1, #40, ."),
        ("R_AARCH64_CONDBR19", "b.ne ."),
        ("R_AARCH64_CONDBR19", "cbz w3, ."),
        ("R_AARCH64_JUMP26", "b ."),
        ("R_AARCH64_CALL26", "bl ."),
        ("R_AARCH64_MOVW_UABS_G0_NC", "movk x1, #0"),
        ("R_AARCH64_MOVW_UABS_G1_NC", "movk x1, #0, lsl #16"),
        ("R_AARCH64_MOVW_UABS_G2_NC", "movz x1, #0, lsl #32"),
        ("R_AARCH64_MOVW_UABS_G3", "movz x1, #0, lsl #48"),
    ] {
        arm(&format!("f: {good}\n.reloc f, {kind}, g")).unwrap_or_else(|error| panic!("{kind} on {good}: {error}"));
        for bad in
            ["nop", "ldp x1, x2, [x1]", "sub x1, x1, #0", "movk x1, #0, lsl #32", "ldr w1, [x1]", "ldrb w1, [x1]"]
        {
            let fits = bad == good
                || kind.contains("MOVW_UABS_G2") && bad.starts_with("movk")
                || kind.contains("LDST32") && bad == "ldr w1, [x1]"
                || kind.contains("LDST8") && bad == "ldrb w1, [x1]";
            let result = arm(&format!("f: {bad}\n.reloc f, {kind}, g"));
            assert_eq!(result.is_ok(), fits, "{kind} on {bad}");
        }
    }
    // JITLink would add the addend to the slot's address and read past it.
    let error = arm("f: ldr x1, [x1]\n.reloc f, R_AARCH64_LD64_GOT_LO12_NC, g+8").unwrap_err();
    assert!(matches!(error, Error::Object(ObjectError::UnsupportedRelocation { .. })), "{error}");
}

#[test]
fn local_absolute_symbols_are_refused_only_where_they_are_used() {
    assert!(prepare(X86, &asm("x = 5\n.quad 1")).is_ok());
    let mut used = asm(".globl x\nx = 5\n.quad 0\n.reloc 0, R_X86_64_64, y");
    let (_, relocations) = section(&used, ".rela.text", 0);
    let index = if used[relocations.offset as usize + 12] == 1 { 2 } else { 1 };
    put(&mut used, relocations.offset + 12, &[index]);
    assert!(prepare(X86, &used).is_ok());
    set_symbol(&mut used, "x", 4, &[0]);
    let error = prepare(X86, &used).unwrap_err();
    assert!(error.to_string().contains("local absolute"), "{error}");
}
