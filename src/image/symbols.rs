//! Symbol resolution among the objects of an image, as in one link: groups, strong, common and weak definitions.

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};

use super::input::{Field, Input, Local};
use crate::elf::link_tables::{LinkTables, SymbolPlace};
use crate::elf::relocations::{Operation, Tls};
use crate::elf::{Binding, Definition, EM_AARCH64, SymbolKind, Visibility, is_c_identifier};
use crate::{Error, ImageError, Result};

/// Where a symbol is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Target {
    /// An offset in a section of an object.
    Section {
        object: u32,
        section: u32,
        value: u64,
    },
    /// An indirect function, by its resolver.
    Indirect {
        object: u32,
        section: u32,
        value: u64,
    },
    /// A common variable.
    Common(u32),
    /// Another module's: the global symbol of this number.
    Import(u32),
    Absolute(u64),
    /// A bound of a linker set.
    Bound {
        set: u32,
        is_end: bool,
    },
    /// The GOT, from which offsets are counted.
    Got,
    /// The word whose address stands for the image (`__dso_handle`).
    DsoHandle,
    /// The dynamic section (`_DYNAMIC`).
    Dynamic,
    /// The start of the image.
    Start,
    /// The end of the image's code.
    CodeEnd,
    /// The end of its data that the file has, where zeros begin.
    DataEnd,
    /// The end of the image.
    End,
    /// The start of the image's thread-local variables (`_TLS_MODULE_BASE_`).
    ThreadLocal,
    /// A function that the image has of its own.
    Helper(u32),
}

/// A function that passes `__dso_handle` on to one of libc's, as those of `libc_nonshared.a` do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Helper {
    /// The function of libc's.
    pub(super) import: u32,
    /// The number of the argument, counted from 0.
    pub(super) argument: u8,
    /// Whether the one before is a null pointer.
    pub(super) with_null: bool,
}

/// Their names (empty for the finaliser of an image), libc's, and the rest of [`Helper`].
const HELPERS: [(&str, &str, u8, bool); 4] = [
    ("atexit", "__cxa_atexit", 2, true),
    ("at_quick_exit", "__cxa_at_quick_exit", 1, false),
    ("pthread_atfork", "__register_atfork", 3, false),
    ("", "__cxa_finalize", 0, false),
];

impl Target {
    /// Returns the place of a reference with an addend.
    pub(super) fn moved(self, by: i64) -> Self {
        match self {
            Self::Section { object, section, value } => {
                Self::Section { object, section, value: value.wrapping_add_signed(by) }
            }
            other => other,
        }
    }
}

/// A symbol that objects share.
#[derive(Debug)]
pub(super) struct Global<'a> {
    pub(super) name: &'a str,
    pub(super) target: Target,
    rank: Rank,
    pub(super) kind: SymbolKind,
    pub(super) size: u64,
    /// Whether it is weak: as a definition, or in all references to an import.
    pub(super) is_weak: bool,
    pub(super) is_hidden: bool,
    /// The object that defines it, or the first that refers to it.
    object: u32,
}

impl Global<'_> {
    /// Returns whether other modules may find it.
    pub(super) fn is_exported(&self) -> bool {
        self.rank != Rank::Undefined && !self.is_hidden
    }
}

/// Which definition of a name counts: the greatest, and of equals the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Undefined,
    Weak,
    Common,
    Strong,
}

/// A common variable without a definition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Common {
    pub(super) size: u64,
    pub(super) alignment: u64,
}

/// The symbols of an image.
#[derive(Debug, Default)]
pub(super) struct Symbols<'a> {
    pub(super) globals: Vec<Global<'a>>,
    /// By object and symbol index: the global symbol plus one, or 0 for a local one.
    by_index: Vec<Vec<u32>>,
    pub(super) commons: Vec<Common>,
    /// Linker sets: sections whose bounds have names. Their numbers by the sections' names.
    pub(super) sets: HashMap<&'a str, u32>,
    pub(super) helpers: Vec<Helper>,
    /// The one that calls what was registered with `__dso_handle`.
    pub(super) finaliser: Option<Target>,
    /// Where `__dso_handle` is.
    pub(super) dso_handle: Option<Target>,
}

/// A symbol that a relocation refers to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Referred<'a> {
    pub(super) name: &'a str,
    pub(super) target: Target,
    /// What is added to the target's address, or to that of its GOT entry.
    pub(super) addend: i64,
    pub(super) size: u64,
}

/// Keeps the first of all COMDAT groups with one signature.
pub(super) fn discard_groups(inputs: &mut [Input]) {
    let mut seen = HashSet::<String>::new();
    for input in inputs {
        for group in &input.index.groups {
            let signature = input.index.name(group.signature);
            if !seen.contains(signature) {
                seen.insert(signature.to_owned());
                continue;
            }
            for member in &group.members {
                if let Some(dead) = input.dead.get_mut(*member as usize) {
                    *dead = true;
                }
            }
        }
    }
}

impl<'a> Symbols<'a> {
    pub(super) fn resolve(inputs: &'a [Input]) -> Result<Self> {
        let mut symbols = Self::default();
        let mut ids = HashMap::<&'a str, u32>::new();
        symbols.find_sets(inputs);
        for (number, input) in (0..).zip(inputs) {
            for definition in &input.index.definitions {
                let dead = input.dead.get(definition.section as usize).copied().unwrap_or(true);
                if definition.section == 0 || !dead {
                    symbols.define(inputs, &mut ids, number, definition)?;
                }
            }
        }
        symbols.add_versions(&mut ids);
        for (number, input) in (0..).zip(inputs) {
            for import in &input.index.imports {
                let hidden = import.visibility == Visibility::Hidden;
                symbols.refer(&mut ids, number, input.index.name(import.name), (import.weak, hidden));
            }
            // Definitions of discarded groups are references to the others.
            for definition in &input.index.definitions {
                let weak = definition.binding != Binding::Strong;
                let hidden = definition.visibility == Visibility::Hidden;
                symbols.refer(&mut ids, number, input.index.name(definition.name), (weak, hidden));
            }
        }
        symbols.add_helpers(&mut ids);
        symbols.bind_imports(inputs)?;
        for input in inputs {
            let tables = input.tables();
            let all = tables.iter().flat_map(|tables| tables.symbols().map(move |(i, symbol)| (i, tables, symbol)));
            let mut indices = Vec::new();
            for (i, tables, symbol) in all.filter(|(.., symbol)| !symbol.is_local()) {
                let id = tables.name(&symbol).and_then(|name| ids.get(name)).map_or(0, |id| id + 1);
                indices.resize(i as usize, 0);
                indices.push(id);
            }
            symbols.by_index.push(indices);
        }
        Ok(symbols)
    }

    /// Numbers the sections whose bounds have names.
    fn find_sets(&mut self, inputs: &'a [Input]) {
        for input in inputs {
            for section in (0..).zip(&input.index.sections).filter(|(i, _)| input.is_mapped(*i)).map(|(_, s)| s) {
                let name = input.index.name(section.name);
                if is_c_identifier(name.as_bytes()) {
                    let next = self.sets.len() as u32;
                    self.sets.entry(name).or_insert(next);
                }
            }
        }
    }

    fn define(
        &mut self,
        inputs: &'a [Input],
        ids: &mut HashMap<&'a str, u32>,
        object: u32,
        definition: &Definition,
    ) -> Result<()> {
        let Some(input) = inputs.get(object as usize) else { return Ok(()) };
        let name = input.index.name(definition.name);
        let (section, value) = (definition.section, definition.value);
        let rank = match definition.binding {
            _ if definition.common.is_some() => Rank::Common,
            Binding::Strong => Rank::Strong,
            Binding::Weak | Binding::Unique => Rank::Weak,
        };
        let target = if definition.absolute {
            Target::Absolute(value)
        } else if let Some(alignment) = definition.common.filter(|_| section == 0) {
            self.commons.push(Common { size: definition.size, alignment });
            Target::Common(self.commons.len() as u32 - 1)
        } else if input.is_indirect(name, section, value) {
            Target::Indirect { object, section, value }
        } else {
            Target::Section { object, section, value }
        };
        let mut new = Global {
            name,
            target,
            rank,
            kind: definition.kind,
            size: definition.size,
            is_weak: rank == Rank::Weak,
            is_hidden: definition.visibility == Visibility::Hidden,
            object,
        };
        let id = match ids.entry(name) {
            Entry::Vacant(entry) => {
                entry.insert(self.globals.len() as u32);
                self.globals.push(new);
                return Ok(());
            }
            Entry::Occupied(entry) => *entry.get(),
        };
        let Some(old) = self.globals.get_mut(id as usize) else { return Ok(()) };
        new.is_hidden |= old.is_hidden;
        if (old.rank, new.rank) == (Rank::Strong, Rank::Strong) {
            let of = |object: u32| inputs.get(object as usize).map_or_else(String::new, |input| input.name.to_string());
            let (first, second) = (of(old.object), of(object));
            return Err(Error::Image(ImageError::DuplicateDefinition { symbol: name.to_owned(), first, second }));
        }
        if let (Target::Common(kept), Target::Common(other)) = (old.target, new.target) {
            // One variable, large and aligned enough for all.
            let other = self.commons.get(other as usize).copied();
            if let Some((kept, other)) = self.commons.get_mut(kept as usize).zip(other) {
                kept.size = kept.size.max(other.size);
                kept.alignment = kept.alignment.max(other.alignment);
                old.size = kept.size;
            }
            self.commons.pop();
            old.is_hidden = new.is_hidden;
        } else if new.rank > old.rank || new.rank == Rank::Common && old.rank == Rank::Common && new.size > old.size {
            *old = new;
        } else {
            old.is_hidden = new.is_hidden;
        }
        Ok(())
    }

    /// Gives a symbol `f@@VERSION` its other name, `f`, unless another one has it.
    fn add_versions(&mut self, ids: &mut HashMap<&'a str, u32>) {
        for id in 0..self.globals.len() {
            let Some(global) = self.globals.get(id) else { continue };
            let Some((name, _)) = global.name.split_once("@@").filter(|(base, _)| !base.is_empty()) else { continue };
            let unversioned = Global { name, ..*global };
            if let Entry::Vacant(entry) = ids.entry(name) {
                entry.insert(self.globals.len() as u32);
                self.globals.push(unversioned);
            }
        }
    }

    fn refer(
        &mut self,
        ids: &mut HashMap<&'a str, u32>,
        object: u32,
        name: &'a str,
        (is_weak, is_hidden): (bool, bool),
    ) {
        match ids.entry(name) {
            Entry::Occupied(entry) => {
                if let Some(global) = self.globals.get_mut(*entry.get() as usize) {
                    global.is_hidden |= is_hidden;
                    global.is_weak &= is_weak || global.rank != Rank::Undefined;
                }
            }
            Entry::Vacant(entry) => {
                let id = *entry.insert(self.globals.len() as u32);
                self.globals.push(Global {
                    name,
                    target: Target::Import(id),
                    rank: Rank::Undefined,
                    kind: SymbolKind::Unknown,
                    size: 0,
                    is_weak,
                    is_hidden,
                    object,
                });
            }
        }
    }

    /// Adds functions that no shared library has.
    fn add_helpers(&mut self, ids: &mut HashMap<&'a str, u32>) {
        const HANDLE: &str = "__dso_handle";
        let undefined = |symbols: &Self, ids: &HashMap<&'a str, u32>, name: &str| {
            let id = ids.get(name).copied()?;
            symbols.globals.get(id as usize).filter(|global| global.rank == Rank::Undefined).map(|_| id)
        };
        for (name, libc, argument, with_null) in HELPERS {
            let id = undefined(self, ids, name);
            let is_finaliser = name.is_empty() && (undefined(self, ids, HANDLE).is_some() || !self.helpers.is_empty());
            if id.is_none() && !is_finaliser {
                continue;
            }
            self.refer(ids, 0, libc, (false, false));
            let Some(import) = ids.get(libc).copied() else { continue };
            let target = Target::Helper(self.helpers.len() as u32);
            self.helpers.push(Helper { import, argument, with_null });
            match id.and_then(|id| self.globals.get_mut(id as usize)) {
                Some(global) => (global.target, global.rank, global.is_hidden) = (target, Rank::Strong, true),
                None => self.finaliser = Some(target),
            }
        }
        if !self.helpers.is_empty() {
            self.refer(ids, 0, HANDLE, (false, true));
            let handle = ids.get(HANDLE).and_then(|id| self.globals.get(*id as usize));
            self.dso_handle = handle.map(|handle| match handle.rank {
                Rank::Undefined => Target::DsoHandle,
                _ => handle.target,
            });
        }
    }

    /// Binds names that the linker defines, and refuses hidden ones that nobody does.
    fn bind_imports(&mut self, inputs: &[Input]) -> Result<()> {
        let is_aarch64 = inputs.first().is_some_and(|input| input.index.machine == EM_AARCH64);
        for global in self.globals.iter_mut().filter(|global| global.rank == Rank::Undefined) {
            let bound = |prefix: &str, is_end| {
                let set = *self.sets.get(global.name.strip_prefix(prefix)?)?;
                Some(Target::Bound { set, is_end })
            };
            let known = match global.name {
                "_GLOBAL_OFFSET_TABLE_" => Some(Target::Got),
                "__dso_handle" => Some(Target::DsoHandle),
                "_DYNAMIC" => Some(Target::Dynamic),
                "_TLS_MODULE_BASE_" => Some(Target::ThreadLocal),
                "__ehdr_start" | "__executable_start" => Some(Target::Start),
                "_etext" | "etext" | "__etext" => Some(Target::CodeEnd),
                "_edata" | "edata" | "__bss_start" => Some(Target::DataEnd),
                "_end" | "end" => Some(Target::End),
                "__bss_start__" if is_aarch64 => Some(Target::DataEnd),
                "_bss_end__" | "__bss_end__" | "__end__" if is_aarch64 => Some(Target::End),
                _ => bound("__start_", false).or_else(|| bound("__stop_", true)),
            };
            match known {
                Some(target) => (global.target, global.is_hidden) = (target, true),
                // Nobody else may define a hidden name.
                None if global.is_hidden && global.is_weak => global.target = Target::Absolute(0),
                None if global.is_hidden => {
                    let object = inputs.get(global.object as usize).map_or_else(String::new, |i| i.name.to_string());
                    let symbol = global.name.to_owned();
                    return Err(Error::Image(ImageError::UndefinedHidden { object, symbol }));
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Returns the symbol that a relocation of an object refers to.
    pub(super) fn referred(
        &self,
        (number, input): (u32, &'a Input),
        tables: &LinkTables<'a>,
        field: &Field,
    ) -> Referred<'a> {
        let ids = self.by_index.get(number as usize);
        let id = ids.and_then(|ids| ids.get(field.symbol as usize)).copied().unwrap_or(0);
        let found = match self.globals.get((id as usize).wrapping_sub(1)) {
            Some(Global { name, target, size, .. }) => {
                Referred { name, target: *target, addend: field.addend, size: *size }
            }
            None => self.local((number, input), tables, field),
        };
        // AArch64 has GOT entries for S + A (AAELF64, "Relocation operations").
        let is_entry = |operation| matches!(operation, Operation::ThreadLocal(Tls::Entry(..)));
        if input.index.machine == EM_AARCH64 && is_entry(field.kind.operation) {
            return Referred { target: found.target.moved(field.addend), addend: 0, ..found };
        }
        found
    }

    fn local(&self, (number, input): (u32, &'a Input), tables: &LinkTables<'a>, field: &Field) -> Referred<'a> {
        let none = Referred { name: "", target: Target::Absolute(0), addend: field.addend, size: 0 };
        let Some(Local { name, place, size }) = input.symbol(tables, field.symbol) else { return none };
        let SymbolPlace::Section(section, value) = place else { return Referred { name, ..none } };
        let target = if input.is_indirect(name, section, value) {
            Target::Indirect { object: number, section, value }
        } else {
            Target::Section { object: number, section, value }
        };
        let name = if name.is_empty() { input.index.section_name(section) } else { name };
        Referred { name, target, size, ..none }
    }
}
