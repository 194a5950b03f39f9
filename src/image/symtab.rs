//! An image's symbols: those of functions for loading, and all of them for tools.

use hashbrown::{HashMap, HashSet};
use object::elf;

use super::dynamic::{info, value_of};
use super::layout::Class;
use super::symbols::Global;
use super::write::Writer;
use crate::elf::image_note::{FUNCTION, FUNCTIONS_ROOM, NAMES_START};
use crate::elf::link_tables::SymbolPlace;
use crate::elf::{ImageBytes, SYMBOL_SIZE};

#[cfg(test)]
mod tests;

/// The places of symbols, and of their names.
#[derive(Clone, Copy)]
pub(super) struct Symtab {
    /// Functions in the code, for loading.
    pub(super) functions: (u64, u64),
    /// Their names, which come first of all.
    pub(super) function_names: (u64, u64),
    /// All, for tools.
    pub(super) symbols: (u64, u64),
    pub(super) names: (u64, u64),
    /// How many of these are local: they come first.
    pub(super) locals: u32,
}

/// A symbol for tools.
struct Told<'a> {
    address: u64,
    name: &'a str,
    info: u8,
    section: u16,
    value: u64,
    size: u64,
}

impl Writer<'_, '_> {
    /// Writes symbols for tools, sorted by address: functions and variables that are not exported, and then what is.
    pub(super) fn write_symtab(&mut self) -> Symtab {
        let (parts, layout) = (self.parts, self.layout);
        let exported = parts.symbols.globals.iter().filter(|global| global.is_exported());
        let place = |global: &Global<'_>| self.defined_at(global).unwrap_or_default();
        let mut globals: Vec<_> = exported.map(|global| (place(global), global)).collect();
        globals.sort_unstable_by_key(|((section, address), global)| (*address, global.name, *section));
        let known: HashSet<_> = globals.iter().map(|((_, address), global)| (*address, global.name)).collect();
        let mut locals = Vec::new();
        for object in 0..parts.inputs.len() as u32 {
            let Some(tables) = parts.tables_of(object) else { continue };
            for (i, symbol) in tables.symbols() {
                let is_told = [elf::STT_FUNC.0, elf::STT_OBJECT.0].contains(&symbol.kind);
                let SymbolPlace::Section(section, value) = tables.place(i, &symbol) else { continue };
                let name = tables.name(&symbol).unwrap_or_default();
                if !is_told || name.is_empty() || name.starts_with(".L") {
                    continue;
                }
                let Some((out, at)) = layout.out_of(object, section) else { continue };
                let address = out.address + at + value;
                // Another object's definition may count instead: then this one is nobody else's.
                if symbol.is_local() || !known.contains(&(address, name)) {
                    locals.push((address, name, symbol.kind, symbol.size, out.symbol_section()));
                }
            }
        }
        locals.sort_unstable();
        let locals = locals.into_iter().map(|(address, name, kind, size, section)| {
            let (info, value) = (elf::STB_LOCAL.0 << 4 | kind, address);
            Told { address, name, info, section, value, size }
        });
        let first_global = locals.len() as u32 + 1;
        let globals = globals.into_iter().map(|((section, address), global)| {
            let (info, value) = (info(global), value_of(global, address, layout));
            Told { address, name: global.name, info, section, value, size: global.size }
        });
        let all: Vec<_> = locals.chain(globals).collect();
        self.out.resize(self.out.len().next_multiple_of(8), 0);
        let (functions, mut names, places) = self.functions(&all);
        let functions = self.append(&functions);
        let function_names = (self.out.len() as u64, names.len() as u64);
        let mut table = ImageBytes::with_capacity((all.len() + 1) * SYMBOL_SIZE as usize);
        table.raw(&[0; SYMBOL_SIZE as usize]);
        for Told { address, name, info, section, value, size } in all {
            let at = places.get(&(address, name)).copied().unwrap_or_else(|| add_name(&mut names, name));
            table.symbol(at, info, section, value, size);
        }
        let names = self.append(names.as_bytes());
        self.out.resize(self.out.len().next_multiple_of(8), 0);
        Symtab { functions, function_names, symbols: self.append(&table.into_bytes()), names, locals: first_global }
    }

    /// Returns the functions in the code, in the order of addresses and then of names, shorter ones first; their names,
    /// which follow each other; and the places of those.
    fn functions<'t>(&self, all: &[Told<'t>]) -> (Vec<u8>, String, HashMap<(u64, &'t str), u32>) {
        let code = self.layout.segments.get(Class::Code as usize).copied().unwrap_or_default();
        let is_inside = |of: &&Told<'_>| {
            let at = of.address.checked_sub(code.address);
            let end = at.and_then(|at| at.checked_add(of.size));
            of.info & 0xf == elf::STT_FUNC.0
                && of.section != elf::SHN_ABS.0
                && of.size != 0
                && end.is_some_and(|end| end <= code.memory_bytes)
        };
        let mut functions: Vec<_> = all.iter().filter(is_inside).collect();
        functions.sort_by_key(|of| (of.address, of.name.len(), of.name));
        functions.dedup_by_key(|of| (of.address, of.name));
        let (mut names, mut places) = (NAMES_START.to_owned(), HashMap::with_capacity(functions.len()));
        let mut table = ImageBytes::with_capacity(FUNCTIONS_ROOM + functions.len() * SYMBOL_SIZE as usize);
        table.raw(&[0; FUNCTIONS_ROOM]);
        let [info, _, section, _] = FUNCTION;
        for Told { address, name, size, .. } in functions {
            let at = add_name(&mut names, name);
            places.insert((*address, *name), at);
            table.symbol(at, info, section.into(), address - code.address, *size);
        }
        (table.into_bytes(), names, places)
    }
}

/// Adds a name to those of symbols; returns its place.
fn add_name(names: &mut String, name: &str) -> u32 {
    let at = names.len() as u32;
    names.push_str(name);
    names.push('\0');
    at
}
