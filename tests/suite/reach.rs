//! References that are too long: bridged where that computes the same, refused with everything there is to say
//! otherwise.

use slabjit::{Error, FarReference, JitEngine, Library, LinkError, ObjectError, OutOfRange, Verdict};

use crate::common::{Checked, compile_bytes, freed, tests};

tests![
    addresses_far_away_are_taken,
    functions_far_away_are_called,
    near_objects_have_no_bridges,
    what_cannot_be_bridged_is_refused_all_at_once,
    bridges_can_be_turned_off,
    what_no_place_mends_is_refused_before_linking,
    verdicts_are_what_the_linker_does,
    kinds_that_llvm_lacks_are_linked,
    targets_at_the_edge_of_reach,
    data_is_never_taken_for_an_instruction,
    bridges_reach_across_large_code,
    small_fields_are_read_as_signed_or_as_unsigned,
    branches_go_to_an_offset_from_an_external_function,
    far_sections_of_other_objects_are_reached,
    stale_bits_of_instructions_do_not_count,
    lifted_kinds_are_not_bridged_as_others,
    lifted_kinds_stand_beside_other_edges,
    sizes_of_other_objects_symbols_are_refused,
];

type Long = unsafe extern "C" fn() -> u64;
type Int = unsafe extern "C" fn(i32) -> i32;

extern "C" fn double(x: i32) -> i32 {
    2 * x
}

/// An address that no engine's arena is near of: x86-64 and AArch64 processes have their mappings in the upper half of
/// 47 bits, or at least far above this.
const FAR: u64 = 0x0000_0007_1234_5678;

#[track_caller]
fn library(engine: &JitEngine, source: &str) -> Library {
    // SAFETY: the addresses are only taken, but for `double`, which is called as what it is.
    let library = unsafe {
        engine
            .library("far")
            .symbol("far", FAR as usize as *const ())
            .symbol("double_it", double as *const ())
            .build()
            .unwrap()
    };
    library.add_object_named("far.o", compile_bytes("far.s", source, &[])).unwrap();
    library
}

#[track_caller]
fn long(library: &Library, name: &str) -> u64 {
    // SAFETY: functions of this file that are called like this are `uint64_t (void)`.
    unsafe { library.get::<Long>(name).unwrap()() }
}

#[track_caller]
fn int(library: &Library, name: &str, x: i32) -> i32 {
    // SAFETY: functions of this file that are called like this are `int (int)`.
    unsafe { library.get::<Int>(name).unwrap()(x) }
}

#[track_caller]
fn failures(library: &Library, name: &str) -> Vec<FarReference> {
    // SAFETY: nothing runs, it fails.
    match unsafe { library.get::<Long>(name) } {
        Err(Error::Link(LinkError::ReferencesOutOfRange { object, references, more: 0 })) => {
            assert_eq!(object, "far.o");
            references
        }
        other => panic!("expected ReferencesOutOfRange, not {:?}", other.map(|s| s.address())),
    }
}

/// Source in this machine's assembly.
const fn source(x86_64: &'static str, aarch64: &'static str) -> &'static str {
    if cfg!(target_arch = "x86_64") { x86_64 } else { aarch64 }
}

fn addresses_far_away_are_taken() {
    let engine = Checked::new();
    let source = source(
        ".text\n.globl take, take_more, twice\n\
         take: leaq far(%rip),%rax\n ret\n\
         take_more: leaq far+4096(%rip),%r11\n movq %r11,%rax\n ret\n\
         twice: leaq far(%rip),%rcx\n leaq far-1(%rip),%rax\n cmpq %rcx,%rax\n jae 1f\n addq %rcx,%rax\n1: ret\n",
        ".text\n.globl take, take_more, twice\n\
         take: adrp x0, far\n add x0, x0, :lo12:far\n ret\n\
         take_more: adrp x9, far+4096\n add x0, x9, :lo12:far+4096\n ret\n\
         twice: adr x1, far\n adr x0, far-1\n cmp x0, x1\n b.hs 1f\n add x0, x0, x1\n1: ret\n",
    );
    let library = library(&engine, source);
    assert_eq!(long(&library, "take"), FAR);
    assert_eq!(long(&library, "take_more"), FAR + 4096);
    assert_eq!(long(&library, "twice"), 2 * FAR - 1);
    assert_eq!(engine.stats().bridges, 4);
    freed(&library);
    engine.finish();
}

fn functions_far_away_are_called() {
    let engine = Checked::new();
    // Without @PLT (R_X86_64_PC32): JITLink makes no stub for that.
    let source = source(
        ".text\n.globl call, tail, conditional\n\
         call: subq $8,%rsp\n .byte 0xe8\n .reloc ., R_X86_64_PC32, double_it-4\n .long 0\n incl %eax\n addq $8,%rsp\n ret\n\
         tail: .byte 0xe9\n .reloc ., R_X86_64_PC32, double_it-4\n .long 0\n\
         conditional: testl %edi,%edi\n .byte 0x0f,0x84\n .reloc ., R_X86_64_PC32, double_it-4\n .long 0\n movl $7,%eax\n ret\n",
        ".text\n.globl call, tail, conditional\n\
         call: stp x29, x30, [sp,-16]!\n bl double_it\n add w0, w0, 1\n ldp x29, x30, [sp],16\n ret\n\
         tail: tbz w0, #31, double_it\n mov w0, -1\n ret\n\
         conditional: cbz w0, double_it\n cmp w0, 1\n b.eq double_it\n mov w0, 7\n ret\n",
    );
    let library = library(&engine, source);
    assert_eq!(int(&library, "call", 21), 43);
    assert_eq!(int(&library, "tail", 21), 42);
    assert_eq!(int(&library, "conditional", 0), 0);
    assert_eq!(int(&library, "conditional", 5), 7);
    if cfg!(target_arch = "aarch64") {
        assert_eq!(int(&library, "tail", -3), -1);
        assert_eq!(int(&library, "conditional", 1), 2);
    }
    assert_eq!(engine.stats().bridges, 3);
    freed(&library);
    engine.finish();
}

fn near_objects_have_no_bridges() {
    let engine = Checked::new();
    let source = source(
        ".text\n.globl take\ntake: leaq here(%rip),%rax\n ret\n.data\nhere: .quad 0\n",
        ".text\n.globl take\ntake: adrp x0, here\n add x0, x0, :lo12:here\n ret\n.data\nhere: .quad 0\n",
    );
    let bytes = compile_bytes("near.s", source, &[]);
    let library = engine.add_object(&bytes).unwrap();
    let here = long(&library, "take") as usize;
    assert!(engine.arena().contains(&here));
    assert_eq!(engine.stats().bridges, 0);
    // The same instructions, but for the field.
    // SAFETY: three or two instructions of the function.
    let code = unsafe { library.get::<*const [u8; 8]>("take").unwrap().read() };
    let opcode = if cfg!(target_arch = "x86_64") {
        code[..3] == [0x48, 0x8d, 0x05]
    } else {
        u32::from_le_bytes(code[..4].try_into().unwrap()) & 0x9f00_001f == 0x9000_0000
    };
    assert!(opcode, "{code:02x?}");
    freed(&library);
    engine.finish();
}

fn what_cannot_be_bridged_is_refused_all_at_once() {
    let engine = Checked::new();
    let source = source(
        ".text\n.globl f, g\n.type f,@function\nf: movl far(%rip),%eax\n movl $far,%edi\n ret\n.size f,.-f\n\
         .type g,@function\ng: leaq far(%rip),%rax\n ret\n.size g,.-g\n\
         .data\n.globl table\n.long 0\ntable: .long far - .\n",
        ".text\n.globl f, g\n.type f,@function\nf: ldr w0, far\n nop\n ret\n.size f,.-f\n\
         .type g,@function\ng: adrp x0, far\n ret\n.size g,.-g\n\
         .data\n.globl table\n.long 0\n.long far\ntable: .long far - .\n",
    );
    let library = library(&engine, source);
    let mut found = failures(&library, "f");
    found.sort_by_key(|r| (r.section.clone(), r.offset));
    let of = |r: &FarReference| (r.section.clone(), r.offset, r.function.clone(), r.relocation.clone());
    let found_at: Vec<_> = found.iter().map(of).collect();
    let at = |section: &str, offset, function: Option<&str>, relocation: &str| {
        (section.to_owned(), offset, function.map(str::to_owned), relocation.to_owned())
    };
    let wanted = if cfg!(target_arch = "x86_64") {
        vec![
            at(".data", 4, Some("table"), "R_X86_64_PC32"),
            at(".text", 2, Some("f"), "R_X86_64_PC32"),
            at(".text", 7, Some("f"), "R_X86_64_32"),
        ]
    } else {
        vec![
            at(".data", 4, None, "R_AARCH64_ABS32"),
            at(".data", 8, Some("table"), "R_AARCH64_PREL32"),
            at(".text", 0, Some("f"), "R_AARCH64_LD_PREL_LO19"),
        ]
    };
    assert_eq!(found_at, wanted);
    for reference in &found {
        assert_eq!(reference.symbol, "far");
        assert!(reference.value < reference.limit.0 || reference.value > reference.limit.1, "{reference}");
        assert!(reference.to_string().contains("-fPIC"), "{reference}");
    }
    assert_eq!(found.iter().find(|r| r.section == ".data").unwrap().target, Some(FAR));
    // What is missing can be mended, and the rest has not suffered.
    freed(&library);
    engine.assert_usable();
    engine.finish();
}

fn bridges_can_be_turned_off() {
    let engine = Checked::of(JitEngine::builder().out_of_range(OutOfRange::Reject).build().unwrap());
    let source = source(
        ".text\n.globl take\ntake: leaq far(%rip),%rax\n ret\n",
        ".text\n.globl take\ntake: adrp x0, far\n add x0, x0, :lo12:far\n ret\n",
    );
    let library = library(&engine, source);
    let found = failures(&library, "take");
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].function.as_deref(), &*found[0].section), (Some("take"), ".text"));
    assert!(found[0].remedy.contains("Bridge"), "{}", found[0]);
    freed(&library);
    engine.finish();
}

fn what_no_place_mends_is_refused_before_linking() {
    let engine = Checked::new();
    let sources = if cfg!(target_arch = "x86_64") {
        [
            ("R_X86_64_PC8", ".text\nf: .reloc ., R_X86_64_PC8, f+128\n .byte 0\n .zero 200\n"),
            ("R_X86_64_PC16", ".text\nf: .zero 65536\n .reloc ., R_X86_64_PC16, f\n .short 0\n"),
            ("R_X86_64_PC32", ".data\nf: .reloc ., R_X86_64_PC32, f+0x7fffffffffffffff\n .long 0\n"),
        ]
    } else {
        [
            ("R_AARCH64_LDST64_ABS_LO12_NC", ".text\nldr x0, [x0, :lo12:f]\n.data\n.balign 8\n.long 0\nf: .quad 0\n"),
            ("R_AARCH64_LD_PREL_LO19", ".text\nf: .reloc ., R_AARCH64_LD_PREL_LO19, f+0x100000\n ldr x0, .\n"),
            ("R_AARCH64_CALL26", ".text\nf: .reloc ., R_AARCH64_CALL26, f+2\n bl .\n"),
        ]
    };
    for (kind, source) in sources {
        let bytes = compile_bytes("mends.s", source, &[]);
        match engine.add_object_named("mends.o", &bytes) {
            Err(Error::Link(LinkError::ReferencesOutOfRange { object, references, more: 0 })) => {
                assert_eq!((&*object, &*references[0].relocation, references[0].target), ("mends.o", kind, None));
                assert_eq!(references.len(), 1);
            }
            other => panic!("{kind}: {other:?}"),
        }
        assert!(!engine.check_object(&bytes).unwrap().loads());
        engine.assert_usable();
    }
    engine.finish();
}

/// One reference an object, of every shape to every kind of place: what the plan foretells is what happens.
fn verdicts_are_what_the_linker_does() {
    let shapes: &[&str] = if cfg!(target_arch = "x86_64") {
        &[
            "leaq TARGET(%rip),%rax",
            "leal TARGET(%rip),%eax",
            "movl TARGET(%rip),%eax",
            "call TARGET",
            ".byte 0xe8\n .reloc ., R_X86_64_PLT32, TARGET\n .long 0",
            ".data\n .reloc ., R_X86_64_PLT32, TARGET\n .long 0",
            ".byte 0xe8\n .reloc ., R_X86_64_PC32, TARGET-4\n .long 0",
            ".byte 0x0f,0x84\n .reloc ., R_X86_64_PC32, TARGET-4\n .long 0",
            ".reloc ., R_X86_64_GOTPCREL, TARGET-4\n .long 0",
            ".reloc ., R_X86_64_64, TARGET\n .quad 0",
            ".reloc ., R_X86_64_32, TARGET\n .long 0",
            ".reloc ., R_X86_64_32S, TARGET\n .long 0",
            ".data\n .reloc ., R_X86_64_PC32, TARGET\n .long 0",
            ".data\n .reloc ., R_X86_64_PC64, TARGET\n .quad 0",
        ]
    } else {
        &[
            "adrp x0, TARGET",
            "adr x0, TARGET",
            "tbz x0, #1, TARGET",
            "cbz x0, TARGET",
            "b.ne TARGET",
            "bl TARGET",
            "ldr x0, TARGET",
            "add x0, x0, :lo12:TARGET",
            "ldr x0, [x0, :lo12:TARGET]",
            ".reloc ., R_AARCH64_ABS64, TARGET\n .xword 0",
            ".reloc ., R_AARCH64_ABS32, TARGET\n .word 0",
            ".data\n .reloc ., R_AARCH64_PREL32, TARGET\n .word 0",
            ".data\n .reloc ., R_AARCH64_PREL16, TARGET\n .word 0",
        ]
    };
    let other = compile_bytes("other.s", ".data\n.balign 16\n.globl other\nother: .zero 16\n", &[]);
    let engine = Checked::new();
    let near = engine.arena().end + (1 << 20);
    let mut seen = std::collections::BTreeMap::<_, usize>::new();
    for (shape, target) in shapes.iter().flat_map(|s| ["here", "there", "far", "near", "low", "other"].map(|t| (s, t)))
    {
        for addend in ["", "+8192", "+0x70000000", "-0x70000000"] {
            let source = format!(
                ".text\n.globl here, there\n.balign 16\n nop\n.balign 16\nhere: {}\n\
                 .data\n.balign 16\nthere: .zero 16\n.globl mark\n.type mark,%object\nmark: .quad 0\n.size mark,8\n",
                shape.replace("TARGET", &format!("{target}{addend}"))
            );
            let bytes = compile_bytes("foretold.s", &source, &[]);
            // SAFETY: the addresses are only taken.
            let library = unsafe {
                let builder = engine.library("foretold").symbol("far", FAR as usize as *const ());
                builder.symbol("near", near as *const ()).symbol("low", 0x1000 as *const ()).build().unwrap()
            };
            library.add_object(&other).unwrap();
            let plan = library.check_object_named("foretold.o", &bytes).unwrap();
            let [reference] = &plan.references[..] else {
                // The assembler has computed it.
                assert!(plan.references.is_empty(), "{plan}");
                continue;
            };
            let added = library.add_object_named("foretold.o", &bytes);
            // SAFETY: a datum of the object; nothing runs.
            let linked = added.and_then(|()| unsafe { library.get::<*const u64>("mark") }.map(drop));
            let bridges = engine.stats().bridges;
            match (reference.verdict, linked) {
                // What depends on something may go either way.
                (Verdict::Always | Verdict::InArena, Ok(())) => assert_eq!(bridges, 0, "{source}{plan}"),
                (Verdict::InArena, Err(Error::Link(LinkError::ReferencesOutOfRange { .. }))) => {
                    assert!(reference.note.is_some(), "{source}{plan}");
                }
                (Verdict::Bridged, Ok(())) => {
                    assert!(bridges == 1 || bridges == 0 && reference.note.is_some(), "{source}{plan}");
                }
                (Verdict::Refused, Err(Error::Link(LinkError::ReferencesOutOfRange { object, .. }))) => {
                    assert_eq!(object, "foretold.o")
                }
                (Verdict::Refused, Ok(())) => {
                    assert!(reference.note.as_ref().is_some_and(|note| note.contains("a part of the arena")), "{plan}");
                }
                (verdict, linked) => panic!("{verdict:?} is {:?}: {source}{plan}", linked.map_err(|e| e.to_string())),
            }
            *seen.entry(reference.verdict.describe()).or_default() += 1;
            freed(&library);
        }
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert!(seen.values().all(|times| *times >= 10), "{seen:?}");
    engine.finish();
}

fn kinds_that_llvm_lacks_are_linked() {
    let engine = Checked::new();
    let source = source(
        ".text\n.globl half, entry\n\
         half: movswq near(%rip),%rax\n leaq near(%rip),%rcx\n addq %rcx,%rax\n ret\n\
         .balign 8\nnear: .reloc ., R_X86_64_PC16, half\n .short 0\n\
         entry: leaq _GLOBAL_OFFSET_TABLE_(%rip),%rcx\n movslq 2f(%rip),%rax\n movq (%rcx,%rax),%rax\n ret\n\
         2: .reloc ., R_X86_64_GOT32, far\n .long 0\n",
        ".text\n.globl half, entry\n\
         half: adr x1, near\n ldrsh x0, [x1]\n add x0, x0, x1\n ret\n\
         .balign 8\nnear: .reloc ., R_AARCH64_PREL16, half\n .long 0\n\
         entry: adrp x1, _GLOBAL_OFFSET_TABLE_\n ldr x0, [x1, :gotpage_lo15:far]\n ret\n",
    );
    let library = library(&engine, source);
    // SAFETY: only its address is wanted.
    let half = unsafe { library.get::<Long>("half").unwrap() };
    assert_eq!(long(&library, "half"), half.address() as u64);
    assert_eq!(long(&library, "entry"), FAR);
    drop(half);
    freed(&library);
    engine.finish();
}

/// Every distance at which JITLink might relax a reference that then does not reach.
fn targets_at_the_edge_of_reach() {
    if crate::target::only_on_x86_64("nothing is relaxed on AArch64") {
        return;
    }
    let engine = Checked::of(JitEngine::builder().quarantine(0).build().unwrap());
    let source = ".text\n.globl load, call\nload: movq edge@GOTPCREL(%rip),%rax\n ret\ncall: jmp edge@PLT\n.globl take\ntake: leaq edge(%rip),%rax\n ret\n\
                  .data\n.globl data\ndata: .reloc ., R_X86_64_PLT32, edge\n .long 0\n";
    let bytes = compile_bytes("edge.s", source, &[]);
    let at = |edge: usize| {
        // SAFETY: the address is only taken.
        let library = unsafe { engine.library("edge").symbol("edge", edge as *const ()).build().unwrap() };
        library.add_object(&bytes).unwrap();
        library
    };
    // All slabs of an engine that is empty again are at one place.
    let first = at(1 << 40);
    // SAFETY: only its address is wanted.
    let load = unsafe { first.get::<Long>("load").unwrap() }.address() as usize;
    // SAFETY: as above.
    let data = unsafe { first.get::<*const i32>("data").unwrap() }.address() as usize;
    freed(&first);
    let ends = [load, data].map(|place| [place as i64 + (1 << 31), place as i64 - (1 << 31)]);
    for end in ends.into_iter().flatten() {
        for off in -24..40 {
            let edge = (end + off) as usize;
            let library = at(edge);
            // SAFETY: only its address is wanted.
            assert_eq!(unsafe { library.get::<Long>("load").unwrap() }.address() as usize, load);
            assert_eq!(long(&library, "load") as usize, edge, "{off}");
            assert_eq!(long(&library, "take") as usize, edge, "{off}");
            // It leads to the target, or to a stub in the slab.
            // SAFETY: four bytes.
            let (data, distance) = unsafe {
                let data = library.get::<*const i32>("data").unwrap();
                let distance = data.read();
                (data, distance)
            };
            let leads = data.address().addr().wrapping_add_signed(distance as isize);
            let slab = &library.slab_of("data").unwrap()[0].addresses;
            assert!(leads == edge || slab.contains(&leads), "{off}: {leads:#x} {edge:#x}");
            drop(data);
            freed(&library);
        }
    }
    engine.finish();
}

fn small_fields_are_read_as_signed_or_as_unsigned() {
    let engine = Checked::new();
    let source = source(
        ".data\n.weak nowhere\n.globl small\nsmall: .byte nowhere-5, small_200\n .short nowhere-5, small_60000\n",
        ".data\n.weak nowhere\n.globl small\nsmall: .byte 0xfb, 200\n .hword nowhere-5, small_60000\n",
    );
    // SAFETY: numbers, of which nothing is used as an address.
    let library = unsafe {
        let builder = engine.library("small").symbol("small_200", std::ptr::without_provenance(200));
        builder.symbol("small_60000", std::ptr::without_provenance(60000)).build().unwrap()
    };
    library.add_object(compile_bytes("small.s", source, &[])).unwrap();
    // SAFETY: six bytes.
    let bytes = unsafe { library.get::<*const [u8; 6]>("small").unwrap().read() };
    assert_eq!(bytes, [0xfb, 200, 0xfb, 0xff, 0x60, 0xea]);
    freed(&library);
    engine.finish();
}

/// A stub leads to the symbol itself, so a branch to somewhere behind it must not go there by way of the stub.
fn branches_go_to_an_offset_from_an_external_function() {
    let engine = Checked::new();
    let source = source(
        ".text\n.globl tail\ntail: jmp before@PLT+16\n",
        ".text\n.globl call, tail\ncall: stp x29, x30, [sp,-16]!\n bl before+16\n add w0, w0, 1\n\
         ldp x29, x30, [sp],16\n ret\ntail: b before+16\n",
    );
    let before = (double as *const ()).wrapping_byte_sub(16);
    // SAFETY: what is called is 16 bytes behind it: `double`.
    let library = unsafe { engine.library("far").symbol("before", before).build().unwrap() };
    library.add_object_named("far.o", compile_bytes("far.s", source, &[])).unwrap();
    if cfg!(target_arch = "x86_64") {
        let found = failures(&library, "tail");
        assert_eq!((found.len(), &*found[0].relocation), (1, "R_X86_64_PLT32"), "{found:?}");
    } else {
        assert_eq!(int(&library, "call", 21), 43);
        assert_eq!(int(&library, "tail", 21), 42);
    }
    freed(&library);
    engine.finish();
}

fn far_sections_of_other_objects_are_reached() {
    if cfg!(target_arch = "aarch64") {
        eprintln!("skipped: AArch64 has no sections that may lie far away");
        return;
    }
    let engine = Checked::new();
    let user = ".text\n.globl take\ntake: leaq big+8(%rip),%rax\n ret\n";
    let large = ".section .ldata,\"awl\",@progbits\n.globl big\nbig: .quad 1, 2\n";
    let library = engine.add_object(compile_bytes("user.s", user, &[])).unwrap();
    library.add_object(compile_bytes("large.s", large, &[])).unwrap();
    let taken = long(&library, "take");
    // SAFETY: only its address is wanted.
    let big = unsafe { library.get::<*const u64>("big").unwrap() };
    assert_eq!(taken, big.address() as u64 + 8);
    assert!(!engine.arena().contains(&big.address().addr()), "it is outside the arena");
    drop(big);
    freed(&library);
    engine.finish();
}

/// With RELA, what was in the field does not count.
fn stale_bits_of_instructions_do_not_count() {
    let engine = Checked::new();
    let source = source(
        ".text\n.globl take\ntake: .byte 0x48,0xb8\n .reloc ., R_X86_64_64, far\n .quad 0x1122334455667788\n ret\n",
        ".text\n.globl take\ntake: .reloc ., R_AARCH64_MOVW_UABS_G3, far\n .inst 0xd2fffff0 & ~31\n\
         .reloc ., R_AARCH64_MOVW_UABS_G2_NC, far\n .inst 0xf2c12340\n\
         .reloc ., R_AARCH64_MOVW_UABS_G1_NC, far\n .inst 0xf2b56780\n\
         .reloc ., R_AARCH64_MOVW_UABS_G0_NC, far\n .inst 0xf28aaaa0\n ret\n",
    );
    let library = library(&engine, source);
    assert_eq!(long(&library, "take"), FAR);
    freed(&library);
    engine.finish();
}

/// `ldr x0, <GOT entry>` is carried by a relocation of ADRP, which would be bridged.
fn lifted_kinds_are_not_bridged_as_others() {
    if cfg!(target_arch = "x86_64") {
        eprintln!("skipped: on x86-64 no kind is carried by one that is bridged");
        return;
    }
    let engine = Checked::new();
    let source = ".text\n.globl f\nf: .reloc ., R_AARCH64_GOT_LD_PREL19, far\n ldr x0, .\n ret\n\
                  adrp x1, far\n adrp x2, far+0x100000\n .space 2 << 20\n";
    let library = library(&engine, source);
    let found = failures(&library, "f");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].offset, &*found[0].relocation), (0, "R_AARCH64_GOT_LD_PREL19"));
    freed(&library);
    engine.finish();
}

/// JITLink keeps unwind tables alive by an edge at the beginning of the code.
fn lifted_kinds_stand_beside_other_edges() {
    let engine = Checked::new();
    let source = source(
        ".text\n.reloc ., R_X86_64_GOT32, far\n.reloc ., R_X86_64_NONE, far\n .long 0\n\
         .globl take\ntake: .cfi_startproc\n leaq _GLOBAL_OFFSET_TABLE_(%rip),%rcx\n movslq .text(%rip),%rax\n\
         movq (%rcx,%rax),%rax\n ret\n .cfi_endproc\n",
        ".text\n.globl take\ntake: .cfi_startproc\n .reloc ., R_AARCH64_NONE, far\n movz x0, #:abs_g2:far\n movk x0, #:abs_g1_nc:far\n\
         movk x0, #:abs_g0_nc:far\n ret\n .cfi_endproc\n",
    );
    let library = library(&engine, source);
    assert_eq!(long(&library, "take"), FAR);
    freed(&library);
    engine.finish();
}

fn data_is_never_taken_for_an_instruction() {
    let engine = Checked::new();
    // The bytes of `leaq`, or `adrp`, before or at a distance, and room for bridges because of the code.
    let source = source(
        ".text\n.globl take\ntake: leaq far(%rip),%rax\n ret\n\
         .section .rodata\n.globl data\ndata: .byte 0x48,0x8d,0x05\n.long far - . - 4\n",
        ".text\n.globl take\ntake: adrp x0, far\n ret\n.section .rodata\n.globl data\ndata: adrp x0, far\n",
    );
    let library = library(&engine, source);
    let found = failures(&library, "take");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&*found[0].section, found[0].function.as_deref()), (".rodata", Some("data")));
    freed(&library);
    engine.finish();
}

fn bridges_reach_across_large_code() {
    if cfg!(target_arch = "x86_64") {
        eprintln!("skipped: on x86-64 every branch and every load reaches all of an object");
        return;
    }
    let engine = Checked::new();
    // 3 MiB between the first `adrp` and any room for literals; 1.5 MiB and 64 KiB between branches and their targets,
    // in one section and across two.
    let source = "
        .text
        .globl take, last, skip, near_end, forward, cold
        take: adrp x0, far
            add x0, x0, :lo12:far
            ret
        forward: cbz w0, cold
            mov w0, 1
            ret
        skip: tbnz w0, 0, near_end
            mov w0, 2
            ret
            .fill 65536 / 4, 4, 0xd503201f
        near_end: mov w0, 3
            ret
            .fill 3 << 18, 4, 0xd503201f
        last: adrp x0, far
            add x0, x0, :lo12:far
            ret
        .section .text.cold, \"ax\"
            .fill 3 << 17, 4, 0xd503201f
        cold: mov w0, 4
            ret
    ";
    let library = library(&engine, source);
    for name in ["take", "last"] {
        assert_eq!(long(&library, name), FAR);
    }
    assert_eq!((int(&library, "skip", 4), int(&library, "skip", 5)), (2, 3));
    assert_eq!((int(&library, "forward", 9), int(&library, "forward", 0)), (1, 4));
    assert_eq!(engine.stats().bridges, 4);
    freed(&library);
    engine.finish();
}

fn sizes_of_other_objects_symbols_are_refused() {
    if cfg!(target_arch = "aarch64") || slabjit::llvm_version() < 20 {
        eprintln!("skipped: the architecture, or LLVM {}, has no relocations for sizes", slabjit::llvm_version());
        return;
    }
    let engine = Checked::new();
    let own = ".data\n.globl size\nsize: .reloc ., R_X86_64_SIZE64, thing+1\n .quad 0\n.type thing,@object\nthing: .zero 5\n.size thing,5\n";
    let library = engine.add_object(compile_bytes("own.s", own, &[])).unwrap();
    // SAFETY: a number.
    assert_eq!(unsafe { library.get::<*const u64>("size").unwrap().read() }, 6);
    freed(&library);
    for theirs in [
        ".reloc ., R_X86_64_SIZE64, thing\n .quad 0",
        ".reloc ., R_X86_64_SIZE64, thing\n .quad 0\n.weak thing\n.type thing,@object\nthing: .zero 5\n.size thing,5",
    ] {
        match engine.add_object(compile_bytes("theirs.s", &format!(".data\n{theirs}\n"), &[])) {
            Err(Error::Object(ObjectError::UnsupportedRelocation { relocation, symbol, .. })) => {
                assert_eq!((&*relocation, &*symbol), ("R_X86_64_SIZE64", "thing"));
            }
            other => panic!("{other:?}"),
        }
    }
    engine.finish();
}
