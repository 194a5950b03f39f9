//! The object of a module's stubs.
#![allow(unsafe_code, reason = "reads linked code")]

use object::write::{Object, Relocation, SectionId, StandardSection, Symbol, SymbolId, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind, SymbolScope, elf,
};

/// A stub: its name, and the word that stands behind that by which it jumps.
pub(super) struct Stub<'a> {
    pub(super) name: &'a str,
    pub(super) is_weak: bool,
    pub(super) is_exported: bool,
    pub(super) record: u64,
}

/// An instruction that refers to data: its offset, the relocation, and what is added.
type Reference = (u64, elf::RelocationType, i64);

/// A stub's code, and that behind it which calls through: `word` is where it jumps, `handler` the word that has the
/// address of what handles first calls.
struct Code {
    bytes: &'static [u8],
    /// The offset of what calls through.
    first_call: u64,
    word: &'static [Reference],
    handler: &'static [Reference],
    /// A relocation of an address.
    absolute: elf::RelocationType,
    /// A relocation of a distance of 4 bytes.
    distance: elf::RelocationType,
    /// The augmented part of a CIE ("zR", distances of 4 bytes), from the alignment of code: the frame is the caller's.
    frames: &'static [u8],
}

/// `endbr64; jmp *word(%rip)`, and `endbr64; lea word(%rip), %r11; jmp *handler(%rip)`.
#[cfg(target_arch = "x86_64")]
const CODE: Code = Code {
    bytes: &[
        0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0, 0, 0, 0, 0xcc, 0xcc, // a stub
        0xf3, 0x0f, 0x1e, 0xfa, 0x4c, 0x8d, 0x1d, 0, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0, 0xcc, 0xcc, 0xcc,
    ],
    first_call: 12,
    word: &[(6, elf::R_X86_64_PC32, -4), (19, elf::R_X86_64_PC32, -4)],
    handler: &[(25, elf::R_X86_64_PC32, -4)],
    absolute: elf::R_X86_64_64,
    distance: elf::R_X86_64_PC32,
    // DW_CFA_def_cfa rsp+8; the return address at CFA-8.
    frames: &[1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1],
};

/// `bti c; adrp x16, word; ldr x16, [x16, :lo12:word]; br x16`, and `bti c; adrp x17, word; add x17, x17, :lo12:word;
/// adrp x16, handler; ldr x16, [x16, :lo12:handler]; br x16`.
#[cfg(target_arch = "aarch64")]
const CODE: Code = Code {
    bytes: &[
        0x5f, 0x24, 0x03, 0xd5, 0x10, 0x00, 0x00, 0x90, 0x10, 0x02, 0x40, 0xf9, 0x00, 0x02, 0x1f, 0xd6, // a stub
        0x5f, 0x24, 0x03, 0xd5, 0x11, 0x00, 0x00, 0x90, 0x31, 0x02, 0x00, 0x91, 0x10, 0x00, 0x00, 0x90, 0x10, 0x02,
        0x40, 0xf9, 0x00, 0x02, 0x1f, 0xd6,
    ],
    first_call: 16,
    word: &[
        (4, elf::R_AARCH64_ADR_PREL_PG_HI21, 0),
        (8, elf::R_AARCH64_LDST64_ABS_LO12_NC, 0),
        (20, elf::R_AARCH64_ADR_PREL_PG_HI21, 0),
        (24, elf::R_AARCH64_ADD_ABS_LO12_NC, 0),
    ],
    handler: &[(28, elf::R_AARCH64_ADR_PREL_PG_HI21, 0), (32, elf::R_AARCH64_LDST64_ABS_LO12_NC, 0)],
    absolute: elf::R_AARCH64_ABS64,
    distance: elf::R_AARCH64_PREL32,
    // DW_CFA_def_cfa sp+0; the return address in x30.
    frames: &[1, 0x78, 30, 1, 0x1b, 0x0c, 31, 0],
};

/// Where the first word is; the handler's address is before it.
const FIRST_WORD: u64 = 16;
/// Bytes of a word and of what stands behind it.
const WORD: u64 = 16;

/// Returns an object with these stubs. `handler` is the address of what they call first.
pub(super) fn make(stubs: &[Stub<'_>], handler: u64) -> Result<Vec<u8>, object::write::Error> {
    let machine = if cfg!(target_arch = "aarch64") { Architecture::Aarch64 } else { Architecture::X86_64 };
    let mut object = Object::new(BinaryFormat::Elf, machine, Endianness::Little);
    let text = object.section_id(StandardSection::Text);
    let data = object.section_id(StandardSection::Data);
    let mut code = Vec::with_capacity(stubs.len() * CODE.bytes.len());
    let mut words = Vec::with_capacity(FIRST_WORD as usize + stubs.len() * WORD as usize);
    words.extend(handler.to_le_bytes());
    words.resize(FIRST_WORD as usize, 0);
    for stub in stubs {
        code.extend(CODE.bytes);
        words.extend(0_u64.to_le_bytes());
        words.extend(stub.record.to_le_bytes());
    }
    object.append_section_data(text, &code, 16);
    object.append_section_data(data, &words, 16);
    let (text_symbol, data_symbol) = (object.section_symbol(text), object.section_symbol(data));
    for (i, stub) in stubs.iter().enumerate() {
        let (start, word) = (i as u64 * CODE.bytes.len() as u64, FIRST_WORD + i as u64 * WORD);
        object.add_symbol(Symbol {
            name: stub.name.as_bytes().to_vec(),
            value: start,
            size: CODE.bytes.len() as u64,
            kind: SymbolKind::Text,
            scope: if stub.is_exported { SymbolScope::Dynamic } else { SymbolScope::Linkage },
            weak: stub.is_weak,
            section: SymbolSection::Section(text),
            flags: SymbolFlags::None,
        });
        for &(offset, kind, addend) in CODE.word {
            relocate(&mut object, text, start + offset, kind, data_symbol, word as i64 + addend)?;
        }
        for &(offset, kind, addend) in CODE.handler {
            relocate(&mut object, text, start + offset, kind, data_symbol, addend)?;
        }
        let first_call = (start + CODE.first_call) as i64;
        relocate(&mut object, data, word, CODE.absolute, text_symbol, first_call)?;
    }
    add_frames(&mut object, text_symbol, code.len() as u32)?;
    object.add_section(Vec::new(), b".note.GNU-stack".to_vec(), SectionKind::Other);
    object.write()
}

/// Returns the address of a linked stub's word, as its code has it.
///
/// # Safety
/// `stub` is the address of a stub of [`make`], linked, and not removed.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn word_of(stub: u64) -> *const () {
    // SAFETY: by the caller, the distance from the end of its jump.
    let distance = unsafe { std::ptr::with_exposed_provenance::<i32>(stub as usize + 6).read_unaligned() };
    std::ptr::with_exposed_provenance((stub as usize + 10).wrapping_add_signed(distance as isize))
}

/// Returns the address of a linked stub's word, as its code has it.
///
/// # Safety
/// `stub` is the address of a stub of [`make`], linked, and not removed.
#[cfg(target_arch = "aarch64")]
pub(super) unsafe fn word_of(stub: u64) -> *const () {
    // SAFETY: by the caller, `adrp` and `ldr`.
    let [adrp, ldr] = unsafe { std::ptr::with_exposed_provenance::<[u32; 2]>(stub as usize + 4).read() };
    // Arm ARM C6.2: 21 bits of pages, and 12 of doublewords.
    let pages = ((adrp >> 5 & 0x7_ffff) << 2 | (adrp >> 29 & 3)) << 11;
    let page = (stub as usize + 4 & !0xfff).wrapping_add_signed(((pages as i32 >> 11) as isize) << 12);
    std::ptr::with_exposed_provenance(page + ((ldr >> 10 & 0xfff) as usize) * 8)
}

/// Says that the stubs have no frame of their own.
fn add_frames(object: &mut Object<'_>, text: SymbolId, len: u32) -> Result<(), object::write::Error> {
    let section = object.section_id(StandardSection::EhFrame);
    let record = |pointer: u32, body: &[u8]| {
        let mut body = body.to_vec();
        // DW_CFA_nop.
        body.resize((body.len() + 8).next_multiple_of(8) - 8, 0);
        [&(body.len() as u32 + 4).to_le_bytes(), &pointer.to_le_bytes(), &body[..]].concat()
    };
    let cie = record(0, &[b"\x01zR\0", CODE.frames].concat());
    // The start and the length of the code, and no augmentation.
    let fde = record(cie.len() as u32 + 4, &[&[0; 4], &len.to_le_bytes()[..], &[0]].concat());
    object.append_section_data(section, &[&cie[..], &fde].concat(), 8);
    relocate(object, section, cie.len() as u64 + 8, CODE.distance, text, 0)
}

fn relocate(
    object: &mut Object<'_>,
    section: SectionId,
    offset: u64,
    kind: elf::RelocationType,
    symbol: SymbolId,
    addend: i64,
) -> Result<(), object::write::Error> {
    let flags = RelocationFlags::Elf { r_type: kind };
    object.add_relocation(section, Relocation { offset, symbol, addend, flags })
}
