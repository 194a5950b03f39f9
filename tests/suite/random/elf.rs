//! Writes relocatable ELF objects (gABI, "Object Files"), byte by byte: no assembler is fast enough for tens of
//! thousands.

use crate::common::Random;

pub const SHF_WRITE: u64 = 1;
pub const SHF_ALLOC: u64 = 2;
pub const SHF_EXECINSTR: u64 = 4;
pub const SHF_X86_64_LARGE: u64 = 0x1000_0000;

/// A section, and what is to be relocated in it.
pub struct Section<'a> {
    pub name: &'a str,
    pub flags: u64,
    pub align: u64,
    /// Empty for one without contents.
    pub bytes: &'a [u8],
    /// Bytes in memory.
    pub size: u64,
    pub relocations: Vec<Relocation>,
}

pub struct Relocation {
    pub offset: u64,
    pub kind: u32,
    /// Position in the list of symbols.
    pub symbol: usize,
    pub addend: i64,
}

#[derive(Clone, Copy)]
pub enum Place {
    Undefined,
    /// Position in the list of sections.
    Section(usize),
    Absolute,
}

pub struct Symbol<'a> {
    pub name: &'a str,
    pub place: Place,
    pub value: u64,
    pub size: u64,
    /// `STB_*`: 0 local, 1 global, 2 weak.
    pub binding: u8,
    /// `STT_*`: 0 none, 1 object, 2 function, 3 section.
    pub kind: u8,
    /// `STV_*`: 0 default, 2 hidden.
    pub visibility: u8,
}

const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_RELA: u32 = 4;
const SHT_NOBITS: u32 = 8;
const SHF_INFO_LINK: u64 = 0x40;
const SHN_ABS: u16 = 0xfff1;

struct Header {
    name: u32,
    kind: u32,
    flags: u64,
    offset: u64,
    size: u64,
    link: u32,
    info: u32,
    align: u64,
    entry: u64,
}

/// An object of a machine (`EM_*`). The order of its sections is theirs; the tables come among them at random.
pub fn write(machine: u16, sections: &[Section<'_>], symbols: &[Symbol<'_>], random: &mut Random) -> Vec<u8> {
    // Local symbols come first.
    let mut order: Vec<usize> = (0..symbols.len()).filter(|i| symbols[*i].binding == 0).collect();
    let locals = order.len() as u32 + 1;
    order.extend((0..symbols.len()).filter(|i| symbols[*i].binding != 0));
    let mut number = vec![0_u64; symbols.len()];
    for (position, symbol) in order.iter().enumerate() {
        number[*symbol] = position as u64 + 1;
    }
    // What is in the file: sections of the object, and for each relocated one its relocations somewhere behind it.
    enum Part {
        Section(usize),
        Relocations(usize),
        Symbols,
        Strings,
    }
    let mut parts: Vec<Part> = (0..sections.len()).map(Part::Section).collect();
    let tables = (0..sections.len()).filter(|i| !sections[*i].relocations.is_empty()).map(Part::Relocations);
    for part in tables.chain([Part::Symbols, Part::Strings]) {
        parts.insert(random.below(parts.len() + 1), part);
    }
    let index_of = |wanted: &dyn Fn(&Part) -> bool| parts.iter().position(wanted).unwrap() as u32 + 1;
    let section_index: Vec<u32> =
        (0..sections.len()).map(|i| index_of(&|p| matches!(p, Part::Section(s) if *s == i))).collect();
    let symbol_table = index_of(&|p| matches!(p, Part::Symbols));
    let string_table = index_of(&|p| matches!(p, Part::Strings));

    // One table has all names.
    let mut strings = vec![0_u8];
    let mut name = |text: &str| {
        if text.is_empty() {
            return 0;
        }
        let at = strings.len() as u32;
        strings.extend_from_slice(text.as_bytes());
        strings.push(0);
        at
    };
    let mut table = vec![0_u8; 24];
    for symbol in order.iter().map(|i| &symbols[*i]) {
        let shndx = match symbol.place {
            Place::Undefined => 0,
            Place::Section(i) => section_index[i] as u16,
            Place::Absolute => SHN_ABS,
        };
        table.extend(name(symbol.name).to_le_bytes());
        table.extend([symbol.binding << 4 | symbol.kind, symbol.visibility]);
        table.extend(shndx.to_le_bytes());
        table.extend(symbol.value.to_le_bytes());
        table.extend(symbol.size.to_le_bytes());
    }

    let mut file = vec![0_u8; 64];
    let mut headers = Vec::with_capacity(parts.len());
    for part in &parts {
        // Contents are aligned in the file by no more than what readers of tables ask for.
        file.resize(file.len().next_multiple_of(8), 0);
        let offset = file.len() as u64;
        headers.push(match part {
            Part::Section(i) => {
                let section = &sections[*i];
                file.extend_from_slice(section.bytes);
                Header {
                    name: name(section.name),
                    kind: if section.bytes.is_empty() { SHT_NOBITS } else { SHT_PROGBITS },
                    flags: section.flags,
                    offset,
                    size: section.size,
                    link: 0,
                    info: 0,
                    align: section.align,
                    entry: 0,
                }
            }
            Part::Relocations(i) => {
                let relocations = &sections[*i].relocations;
                for r in relocations {
                    file.extend(r.offset.to_le_bytes());
                    file.extend((number[r.symbol] << 32 | u64::from(r.kind)).to_le_bytes());
                    file.extend(r.addend.to_le_bytes());
                }
                let (name, info) = (name(&format!(".rela{}", sections[*i].name)), section_index[*i]);
                let size = 24 * relocations.len() as u64;
                let kind = SHT_RELA;
                Header { name, kind, flags: SHF_INFO_LINK, offset, size, link: symbol_table, info, align: 8, entry: 24 }
            }
            Part::Symbols => {
                file.extend_from_slice(&table);
                let (name, size) = (name(".symtab"), table.len() as u64);
                let kind = SHT_SYMTAB;
                Header { name, kind, flags: 0, offset, size, link: string_table, info: locals, align: 8, entry: 24 }
            }
            // Written last, when all names are known.
            Part::Strings => {
                let name = name(".strtab");
                Header { name, kind: SHT_STRTAB, flags: 0, offset: 0, size: 0, link: 0, info: 0, align: 1, entry: 0 }
            }
        });
    }
    let last = &mut headers[string_table as usize - 1];
    (last.offset, last.size) = (file.len() as u64, strings.len() as u64);
    file.extend_from_slice(&strings);
    file.resize(file.len().next_multiple_of(8), 0);
    let header_offset = file.len() as u64;
    file.resize(file.len() + 64, 0);
    for h in &headers {
        file.extend(h.name.to_le_bytes());
        file.extend(h.kind.to_le_bytes());
        for field in [h.flags, 0, h.offset, h.size] {
            file.extend(field.to_le_bytes());
        }
        file.extend(h.link.to_le_bytes());
        file.extend(h.info.to_le_bytes());
        file.extend(h.align.to_le_bytes());
        file.extend(h.entry.to_le_bytes());
    }
    // ELF64, little-endian, version 1; ET_REL.
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    file[16..18].copy_from_slice(&1_u16.to_le_bytes());
    file[18..20].copy_from_slice(&machine.to_le_bytes());
    file[20..24].copy_from_slice(&1_u32.to_le_bytes());
    file[40..48].copy_from_slice(&header_offset.to_le_bytes());
    file[52..54].copy_from_slice(&64_u16.to_le_bytes());
    file[58..60].copy_from_slice(&64_u16.to_le_bytes());
    file[60..62].copy_from_slice(&(headers.len() as u16 + 1).to_le_bytes());
    file[62..64].copy_from_slice(&(string_table as u16).to_le_bytes());
    file
}
