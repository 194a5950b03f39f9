//! What an image's file has around the segments: headers, notes, and references between segments.

use object::elf;

use super::cpu::functions;
use super::debug::DebugSection;
use super::dynamic::DYNAMIC_SIZE;
use super::layout::{CLASSES, Class, Made, Out};
use super::relr::RELR_SIZE;
use super::symtab::Symtab;
use super::write::Writer;
use crate::cpu::list;
use crate::elf::image_note::{
    CONTRACTS, CPU, FUNCTIONS, IMAGE_NOTE, ImageNote, NOTE_SIZE, OBJECTS, OWNER, REFERENCES, Reference, ReferenceList,
};
use crate::elf::{
    HEADER_SIZE, ImageBytes, PROGRAM_HEADER_SIZE, RELA_SIZE, SECTION_SIZE, SHN_LORESERVE, SYMBOL_SIZE, put,
};

/// Four segments, the dynamic section, thread-local storage, the unwind table, relocated data, notes and the stack.
const PROGRAM_HEADERS: u16 = 10;
/// Bytes of the headers at the start of the file.
pub(super) const HEADERS: u64 = HEADER_SIZE + PROGRAM_HEADERS as u64 * PROGRAM_HEADER_SIZE;
/// Bytes of the build ID and of the note: header, name and contents.
pub(super) const NOTES: [u64; 2] = [12 + 4 + BUILD_ID as u64, 12 + 8 + NOTE_SIZE as u64];
const BUILD_ID: usize = 20;
const NT_GNU_BUILD_ID: u32 = 3;

/// What the section `.comment` says of the linker, as compilers and linkers have it.
const LINKER: &[u8] = concat!("slabjit ", env!("CARGO_PKG_VERSION"), "\0").as_bytes();

/// The places of what follows the segments: offset and bytes of each.
#[derive(Clone, Copy)]
struct Tail {
    references: (u64, u64),
    /// Those that depend on more than distances, which follow.
    addresses: (u64, u64),
    symtab: Symtab,
    cpu: (u64, u64),
    contracts: (u64, u64),
}

impl Writer<'_, '_> {
    /// Writes all but the contents of the segments; returns the file.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.write_headers();
        let [references, addresses] = self.write_references();
        let symtab = self.write_symtab();
        let cpu = self.write_cpu();
        let contracts = self.append(self.parts.contracts.as_bytes());
        let hashes = self.parts.inputs.iter().flat_map(|input| *input.hash.as_bytes()).collect::<Vec<_>>();
        let mut others = vec![(".comment", self.append(LINKER)), (OBJECTS, self.append(&hashes))];
        let debug: Vec<_> = if self.parts.debug { self.debug_sections() } else { Vec::new() };
        others.extend(debug.into_iter().map(|DebugSection { name, bytes }| (name, self.append(&bytes))));
        let tail = Tail { references, addresses, symtab, cpu, contracts };
        self.write_section_headers(tail, &others);
        self.write_notes(tail);
        self.out
    }

    fn write_headers(&mut self) {
        let (layout, machine) = (self.layout, self.parts.machine);
        let mut out = ImageBytes::with_capacity(HEADERS as usize);
        out.file_header(machine.number, PROGRAM_HEADERS);
        let (read, write, execute) = (elf::PF_R.0, elf::PF_W.0, elf::PF_X.0);
        let mut written = 0;
        let mut segment = |kind: elf::ProgramType, flags, places, sizes, alignment| {
            out.segment_at(kind.0, flags, places, sizes, alignment);
            written += 1;
        };
        for (class, part) in CLASSES.into_iter().zip(&layout.segments).filter(|(_, part)| part.memory_bytes != 0) {
            let flags = match class {
                Class::Read => read,
                Class::Code => read | execute,
                Class::Relro | Class::Data => read | write,
            };
            let sizes = [part.file_bytes, part.memory_bytes];
            segment(elf::PT_LOAD, flags, [part.offset, part.address], sizes, part.alignment);
        }
        let mut section = |made, kind, flags, alignment| {
            if let Some(Out { offset, address, size, .. }) = layout.made(made) {
                segment(kind, flags, [*offset, *address], [*size, *size], alignment);
            }
        };
        section(Made::Dynamic, elf::PT_DYNAMIC, read | write, 8);
        section(Made::FramesHeader, elf::PT_GNU_EH_FRAME, read, 4);
        if let (Some(first), Some(last)) = (layout.made(Made::BuildId), layout.made(Made::Note)) {
            let bytes = last.address + last.size - first.address;
            segment(elf::PT_NOTE, read, [first.offset, first.address], [bytes, bytes], 4);
        }
        if let Some(block) = layout.thread_local {
            let sizes = [block.file_bytes, block.memory_bytes];
            segment(elf::PT_TLS, read, [block.offset, block.address], sizes, block.alignment);
        }
        if let Some(part) = layout.segments.get(Class::Relro as usize).filter(|part| part.memory_bytes != 0) {
            let sizes = [part.file_bytes, part.memory_bytes];
            segment(elf::PT_GNU_RELRO, read, [part.offset, part.address], sizes, 1);
        }
        segment(elf::PT_GNU_STACK, read | write, [0, 0], [0, 0], 16);
        let mut bytes = out.into_bytes();
        // e_phnum
        put(&mut bytes, 56, &(written as u16).to_le_bytes());
        put(&mut self.out, 0, &bytes);
    }

    /// Writes the references, behind the segments; returns their place and bytes.
    fn write_references(&mut self) -> [(u64, u64); 2] {
        let mut references = std::mem::take(&mut self.references);
        references.sort_by_key(|reference| reference.at);
        let (addresses, distances): (Vec<_>, Vec<_>) = references.into_iter().partition(Reference::is_address);
        [distances, addresses].map(|references| {
            let mut list = ReferenceList::default();
            references.into_iter().for_each(|reference| list.push(self.parts.machine.number, reference));
            self.append(&list.into_bytes())
        })
    }

    /// Writes what functions need of the CPU.
    fn write_cpu(&mut self) -> (u64, u64) {
        let (parts, mut records) = (self.parts, Vec::new());
        for (object, input) in (0..).zip(parts.inputs) {
            let Some(tables) = parts.tables_of(object) else { continue };
            for function in functions(input, tables) {
                let Some((out, at)) = self.layout.out_of(object, function.section) else { continue };
                let needs = parts.cpu.get(function.name).cloned().unwrap_or(function.needs);
                records.push((out.address + at + function.value, needs));
            }
        }
        self.append(&list::write(parts.machine.number, records))
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> (u64, u64) {
        let at = self.out.len() as u64;
        self.out.extend_from_slice(bytes);
        (at, bytes.len() as u64)
    }

    /// Writes the notes. Both have the hash of the file without it.
    fn write_notes(&mut self, Tail { references, addresses, symtab, cpu, contracts }: Tail) {
        let (layout, (symbols, imports)) = (self.layout, self.tables.counts());
        let dso_handle = self.dso_handle();
        let mut ours = ImageNote {
            alignments: layout.segments.map(|segment| segment.section_alignment.max(1).trailing_zeros() as u8),
            symbols,
            imports,
            got: layout.made(Made::Got).map_or(0, |got| got.address),
            dso_handle,
            references,
            addresses,
            functions: symtab.functions,
            names: symtab.function_names,
            cpu,
            contracts,
            has_relr: self.tables.has_relr(),
            ..ImageNote::default()
        };
        let note = |owner: &[u8], kind, contents: &[u8]| {
            let mut note = ImageBytes::with_capacity(128);
            [owner.len() as u32, contents.len() as u32, kind].into_iter().for_each(|word| note.word(word));
            note.raw(owner);
            note.raw(contents);
            note.into_bytes()
        };
        self.put(Made::BuildId, &note(b"GNU\0", NT_GNU_BUILD_ID, &[0; BUILD_ID]));
        self.put(Made::Note, &note(OWNER, IMAGE_NOTE, &ours.write()));
        ours.hash = *blake3::hash(&self.out).as_bytes();
        self.put(Made::BuildId, &note(b"GNU\0", NT_GNU_BUILD_ID, ours.hash.get(..BUILD_ID).unwrap_or_default()));
        self.put(Made::Note, &note(OWNER, IMAGE_NOTE, &ours.write()));
    }

    /// Writes the section headers, for tools.
    fn write_section_headers(&mut self, tail: Tail, others: &[(&str, (u64, u64))]) {
        let Tail { references, addresses, symtab, cpu, contracts } = tail;
        let outs = &self.layout.outs;
        let mut names = vec![0];
        let mut name = |text: &str| {
            let at = names.len() as u32;
            names.extend_from_slice(text.as_bytes());
            names.push(0);
            at
        };
        let index = |made| self.layout.made(made).map_or(0, |out| out.header);
        let mut table = ImageBytes::with_capacity(SECTION_SIZE as usize * (outs.len() + 8));
        table.raw(&[0; SECTION_SIZE as usize]);
        for out in outs {
            let strings = index(Made::DynamicStrings);
            let (kind, link, info, entry) = match out.made {
                Some(Made::BuildId | Made::Note) => (elf::SHT_NOTE, 0, 0, 0),
                Some(Made::GnuHash) => (elf::SHT_GNU_HASH, index(Made::DynamicSymbols), 0, 0),
                Some(Made::DynamicSymbols) => (elf::SHT_DYNSYM, strings, 1, SYMBOL_SIZE),
                Some(Made::DynamicStrings) => (elf::SHT_STRTAB, 0, 0, 0),
                Some(Made::Versions) => (elf::SHT_GNU_VERSYM, index(Made::DynamicSymbols), 0, 2),
                Some(Made::VersionsNeeded) => (elf::SHT_GNU_VERNEED, strings, self.tables.needed_count(), 0),
                Some(Made::Relocations) => (elf::SHT_RELA, index(Made::DynamicSymbols), 0, RELA_SIZE),
                Some(Made::Relr) => (elf::SHT_RELR, 0, 0, RELR_SIZE),
                Some(Made::Initialisers) => (elf::SHT_INIT_ARRAY, 0, 0, 8),
                Some(Made::Finalisers) => (elf::SHT_FINI_ARRAY, 0, 0, 8),
                Some(Made::Dynamic) => (elf::SHT_DYNAMIC, strings, 0, DYNAMIC_SIZE),
                _ if out.is_zero => (elf::SHT_NOBITS, 0, 0, 0),
                _ => (elf::SHT_PROGBITS, 0, 0, 0),
            };
            let mut flags = elf::SHF_ALLOC.0;
            flags |= match out.class {
                Class::Read => 0,
                Class::Code => elf::SHF_EXECINSTR.0,
                Class::Relro | Class::Data => elf::SHF_WRITE.0,
            };
            if out.is_thread_local {
                flags |= elf::SHF_TLS.0;
            }
            table.word(name(&out.name));
            table.word(kind.0);
            [flags, out.address, out.offset, out.size].into_iter().for_each(|value| table.long(value));
            [link, info].into_iter().for_each(|value| table.word(value));
            [out.alignment, entry].into_iter().for_each(|value| table.long(value));
        }
        let count = (outs.len() + others.len()) as u64 + 8;
        let others: Vec<_> =
            others.iter().map(|(text, place)| (name(text), (elf::SHT_PROGBITS, *place, [0, 0], [1, 0]))).collect();
        let own = [REFERENCES, CPU, CONTRACTS, FUNCTIONS, ".symtab", ".strtab", ".shstrtab"].map(&mut name);
        let last = [
            (elf::SHT_PROGBITS, (references.0, references.1 + addresses.1), [0, 0], [1, 0]),
            (elf::SHT_PROGBITS, cpu, [0, 0], [1, 0]),
            (elf::SHT_PROGBITS, contracts, [0, 0], [1, 0]),
            (elf::SHT_PROGBITS, symtab.functions, [0, 0], [8, 0]),
            (elf::SHT_SYMTAB, symtab.symbols, [count as u32 - 2, symtab.locals], [8, SYMBOL_SIZE]),
            (elf::SHT_STRTAB, symtab.names, [0, 0], [1, 0]),
            (elf::SHT_STRTAB, (self.out.len() as u64, names.len() as u64), [0, 0], [1, 0]),
        ];
        for (name, (kind, (at, bytes), links, sizes)) in others.into_iter().chain(own.into_iter().zip(last)) {
            table.word(name);
            table.word(kind.0);
            [0, 0, at, bytes].into_iter().for_each(|value| table.long(value));
            links.into_iter().for_each(|value| table.word(value));
            sizes.into_iter().for_each(|value| table.long(value));
        }
        self.out.extend_from_slice(&names);
        self.out.resize(self.out.len().next_multiple_of(8), 0);
        let (headers, mut table) = (self.out.len() as u64, table.into_bytes());
        put(&mut self.out, 40, &headers.to_le_bytes());
        // With more than 16 bits can count, the null section's header has the numbers.
        let (mut number, mut names_at) = (count as u16, count as u16 - 1);
        if count >= u64::from(SHN_LORESERVE) {
            (number, names_at) = (0, elf::SHN_XINDEX.0);
            put(&mut table, 32, &count.to_le_bytes());
            put(&mut table, 40, &(count as u32 - 1).to_le_bytes());
        }
        for (at, value) in [(58, 64), (60, number), (62, names_at)] {
            put(&mut self.out, at, &value.to_le_bytes());
        }
        self.out.extend_from_slice(&table);
    }
}
