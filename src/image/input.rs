//! The objects of an image.

use std::sync::Arc;

use crate::Result;
use crate::elf::link_tables::{LinkTables, Relocation, SymbolPlace};
use crate::elf::relocations::{Kind, NO_LLVM, Table};
use crate::elf::{ObjectIndex, Preparation, Section, SectionConflicts, Target};
use crate::{Limits, elf};

/// A prepared object.
pub(super) struct Input {
    pub(super) name: Arc<str>,
    /// Of the object as it came.
    pub(super) hash: blake3::Hash,
    pub(super) bytes: Vec<u8>,
    pub(super) index: ObjectIndex,
    /// By section: the section of its relocations, or 0.
    relocations: Vec<u32>,
    /// By section: another object's copy of its COMDAT group is linked.
    pub(super) dead: Vec<bool>,
    /// By section: a list of initialisers or finalisers.
    arrays: Vec<bool>,
}

/// A symbol of an object, as its relocations refer to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Local<'a> {
    pub(super) name: &'a str,
    pub(super) place: SymbolPlace,
    pub(super) size: u64,
}

/// A relocation of a section that is linked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) kind: &'static Kind,
    /// Offset in its section.
    pub(super) offset: u64,
    /// Index of the symbol.
    pub(super) symbol: u32,
    pub(super) addend: i64,
}

/// Prepares objects for images of one machine.
pub(super) struct Inputs {
    preparation: Preparation,
}

impl Inputs {
    pub(super) fn new(machine: u16, limits: Limits) -> Self {
        let target = Target { machine, llvm: NO_LLVM };
        Self { preparation: Preparation::new(target, SectionConflicts::Rename, limits, Vec::new()) }
    }

    /// Prepares objects as for a library.
    pub(super) fn of(preparation: Preparation) -> Self {
        Self { preparation }
    }

    pub(super) fn prepare(&self, name: &str, bytes: &[u8]) -> Result<Input> {
        let hash = blake3::hash(bytes);
        let prepared = self.preparation.prepare(name, bytes)?;
        let (bytes, index) = (prepared.bytes.into_owned(), prepared.index);
        index.check_stack(name, false)?;
        let mut relocations = vec![0; index.sections.len()];
        if let Some(tables) = LinkTables::new(&bytes, index.sections.len()) {
            for (section, target) in tables.relocation_sections() {
                if let Some(slot) = relocations.get_mut(target as usize) {
                    *slot = section;
                }
            }
        }
        let dead = vec![false; index.sections.len()];
        let mut arrays = dead.clone();
        for array in index.arrays.iter().filter(|array| array.kind.is_list()) {
            if let Some(flag) = arrays.get_mut(array.section as usize) {
                *flag = true;
            }
        }
        let mut input = Input { name: name.into(), hash, bytes, index, relocations, dead, arrays };
        if input.index.signal_frames {
            input.restore_signal_frames();
        }
        Ok(input)
    }
}

impl Input {
    pub(super) fn tables(&self) -> Option<LinkTables<'_>> {
        LinkTables::new(&self.bytes, self.index.sections.len())
    }

    pub(super) fn section(&self, section: u32) -> Option<&Section> {
        self.index.sections.get(section as usize)
    }

    /// Returns whether a section has memory in an image.
    pub(super) fn is_mapped(&self, section: u32) -> bool {
        let dead = self.dead.get(section as usize).copied().unwrap_or(true);
        !dead && self.section(section).is_some_and(|section| section.mapped().is_some())
    }

    /// Returns whether it is debug information.
    pub(super) fn is_debug(&self, section: u32) -> bool {
        let dead = self.dead.get(section as usize).copied().unwrap_or(true);
        let is_debug = |of: &Section| of.mapped().is_none() && of.has_contents;
        !dead && self.section(section).is_some_and(is_debug) && self.index.section_name(section).starts_with(".debug_")
    }

    /// Returns whether it describes the stack's frames.
    pub(super) fn is_unwind_table(&self, section: u32) -> bool {
        self.is_mapped(section) && self.index.section_name(section) == ".eh_frame"
    }

    /// Returns whether a section has a place of its own: unwind tables and lists of initialisers are made anew, and
    /// what a note says of an object is not true of all.
    pub(super) fn is_placed(&self, section: u32) -> bool {
        let is_list = self.arrays.get(section as usize).copied().unwrap_or(false);
        let is_property = || self.index.section_name(section) == ".note.gnu.property";
        self.is_mapped(section) && !is_list && !self.is_unwind_table(section) && !is_property()
    }

    fn restore_signal_frames(&mut self) {
        for section in 0..self.index.sections.len() as u32 {
            if !self.is_unwind_table(section) {
                continue;
            }
            let Some((start, bytes)) = self.section(section).map(|of| (of.offset as usize, of.size as usize)) else {
                continue;
            };
            if let Some(contents) = start.checked_add(bytes).and_then(|end| self.bytes.get_mut(start..end)) {
                elf::restore_signal_frames(contents);
            }
        }
    }

    /// Returns a section's contents; none for a section without.
    pub(super) fn contents(&self, section: u32) -> &[u8] {
        let range = || {
            let section = self.section(section).filter(|section| section.has_contents)?;
            let start = usize::try_from(section.offset).ok()?;
            self.bytes.get(start..start.checked_add(usize::try_from(section.size).ok()?)?)
        };
        range().unwrap_or_default()
    }

    /// Returns a section's relocations.
    pub(super) fn fields<'a>(&'a self, tables: &LinkTables<'a>, section: u32) -> impl Iterator<Item = Field> + use<'a> {
        let of = self.relocations.get(section as usize).copied().filter(|section| *section != 0);
        let table = Table::of(self.index.machine);
        let all = of.and_then(|of| tables.relocations(of)).unwrap_or_default().iter();
        all.filter_map(move |Relocation { kind, offset, symbol, addend }| {
            Some(Field { kind: table.get(kind)?.1, offset, symbol, addend })
        })
    }

    /// Returns a symbol by its index.
    pub(super) fn symbol<'a>(&'a self, tables: &LinkTables<'a>, symbol: u32) -> Option<Local<'a>> {
        let of = tables.symbol(symbol)?;
        let name = tables.name(&of)?;
        Some(Local { name, place: tables.place(symbol, &of), size: of.size })
    }

    /// Returns whether a symbol in a section is an indirect function's resolver.
    pub(super) fn is_indirect(&self, name: &str, section: u32, value: u64) -> bool {
        let start = self.section(section).map_or(0, |section| section.offset);
        !name.is_empty() && self.index.is_indirect(name, start.saturating_add(value))
    }
}

/// Returns whether the bytes are an object of this machine, by its header.
pub(super) fn machine_of(bytes: &[u8]) -> Option<u16> {
    let machine = u16::from_le_bytes(*bytes.get(18..)?.first_chunk()?);
    (bytes.starts_with(b"\x7fELF") && matches!(machine, elf::EM_X86_64 | elf::EM_AARCH64)).then_some(machine)
}
