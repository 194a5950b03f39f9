//! The index of a prepared object, which replaces its bytes for the linker.

use std::cmp::Reverse;

use super::relocations::{Kind, Table};
use crate::elf::elf_abi::{
    SHF_ALLOC, SHF_EXECINSTR, SHF_GNU_RETAIN, SHF_TLS, SHF_WRITE, SHT_FINI_ARRAY, SHT_INIT_ARRAY, SHT_PREINIT_ARRAY,
    SHT_PROGBITS,
};
use crate::{DebugInfo, Error, ObjectError, Result};

/// A prepared object's names, sections and initialisers. It owns its data; names lie in one arena.
#[derive(Debug, Clone, Default)]
pub(crate) struct ObjectIndex {
    /// `e_machine`.
    pub machine: u16,
    /// All names, each followed by a NUL character.
    pub(super) names: String,
    /// Every non-local definition, in the order of the symbol table.
    pub definitions: Vec<Definition>,
    /// Every undefined non-local symbol.
    pub imports: Vec<Import>,
    /// COMDAT groups.
    pub groups: Vec<Group>,
    /// Sections of initialisers and finalisers, as pointers or as code, in the order of the sections.
    pub arrays: Vec<Array>,
    /// Sections that are kept without a reference.
    pub retain: Vec<u32>,
    /// All sections in order, the null section included, so that a section's index is its position. Relocation sections
    /// have no names here.
    pub sections: Vec<Section>,
    /// Sections that only 64-bit references reach (`SHF_X86_64_LARGE`).
    pub large_sections: Vec<u32>,
    /// Relocations with a carrier of another kind, because this LLVM's JITLink lacks their own.
    pub lifted: Lifted,
    /// Indirect functions, local ones included: the name and the resolver's file offset, sorted by offset and then
    /// name.
    pub indirect: Vec<(Name, u64)>,
    /// The object's definitions and uses of thread-local storage.
    pub thread_local: Option<Box<ThreadLocal>>,
    /// Whether unwind tables of signal frames were changed for JITLink and have to be restored.
    pub signal_frames: bool,
    /// Whether the object asks for executable stacks.
    pub executable_stack: bool,
    /// What is kept for debuggers.
    pub debug: DebugInfo,
}

/// An object's thread-local variables, and the way in which its code reaches such variables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ThreadLocal {
    /// Thread-local sections, with distinct names.
    pub sections: Vec<u32>,
    /// Whether their contents hold addresses that the linker fills in.
    pub relocated: bool,
    /// Whether code needs the object's own variables at a fixed distance from the thread pointer (initial-exec,
    /// local-exec).
    pub own_static: bool,
    /// Imported or exported variables that code needs at a fixed distance from the thread pointer.
    pub statics: Vec<Name>,
}

/// Relocations whose kind was replaced by a carrier, which leads to the same symbol or GOT entry. The linker computes
/// and writes their values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lifted {
    /// File offset of the field, and the kind's number; sorted, each offset once.
    fields: Vec<(u64, u32)>,
}

impl Lifted {
    pub(super) fn add(&mut self, field: u64, kind: u32) {
        self.fields.push((field, kind));
    }

    /// Sorts the fields; returns false if two relocations share a field.
    pub(super) fn sort(&mut self) -> bool {
        self.fields.sort_unstable();
        self.fields.windows(2).all(|pair| matches!(pair, [(a, _), (b, _)] if a != b))
    }

    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    /// Returns the kinds of the relocations whose fields lie at these offsets.
    fn within(&self, offsets: std::ops::Range<u64>) -> impl Iterator<Item = u32> {
        let first = self.fields.partition_point(|(offset, _)| *offset < offsets.start);
        let rest = self.fields.get(first..).unwrap_or_default();
        rest.iter().take_while(move |(offset, _)| *offset < offsets.end).map(|(_, kind)| *kind)
    }

    /// Returns the kind of the lifted relocation whose field is at this offset of the prepared bytes.
    pub(crate) fn at(&self, field: u64) -> Option<u32> {
        let found = self.fields.binary_search_by_key(&field, |(offset, _)| *offset).ok()?;
        self.fields.get(found).map(|(_, kind)| *kind)
    }
}

impl ObjectIndex {
    /// Keeps sections with a narrow lifted field near, whatever their flags: the field may lead to a GOT entry.
    pub(super) fn keep_near_what_is_lifted(&mut self) {
        let (table, sections, lifted) = (Table::of(self.machine), &self.sections, &self.lifted);
        let is_narrow = |kind: u32| table.get(kind).is_none_or(|(_, kind)| kind.width < 8);
        self.large_sections.retain(|&i| {
            let Some(section) = sections.get(i as usize).filter(|s| s.has_contents) else { return true };
            let end = section.offset.saturating_add(section.size);
            !lifted.within(section.offset..end).any(is_narrow)
        });
    }

    /// Returns the kind of a lifted relocation by the file offset of its field.
    pub(crate) fn lifted(&self, field: u64) -> Option<&'static Kind> {
        Some(Table::of(self.machine).get(self.lifted.at(field)?)?.1)
    }

    /// Makes the definitions in a section common.
    pub(super) fn make_common(&mut self, section: u32) {
        let alignment = self.sections.get(section as usize).map(|section| section.alignment.max(1));
        for definition in self.definitions.iter_mut().filter(|definition| definition.section == section) {
            definition.common = alignment;
        }
    }

    /// Refuses an object that asks for executable stacks, unless they are allowed.
    pub(crate) fn check_stack(&self, object: &str, allowed: bool) -> Result<()> {
        let refused = self.executable_stack && !allowed;
        if refused { Err(Error::Object(ObjectError::ExecutableStack { object: object.into() })) } else { Ok(()) }
    }

    /// Returns the text of a name of this index.
    pub(crate) fn name(&self, name: Name) -> &str {
        let start = name.start as usize;
        self.names.get(start..start + name.len as usize).unwrap_or_default()
    }

    /// Returns whether an indirect function of this name has its resolver at this offset of the prepared bytes.
    pub(crate) fn is_indirect(&self, name: &str, resolver: u64) -> bool {
        self.indirect.binary_search_by(|(known, at)| (*at, self.name(*known)).cmp(&(resolver, name))).is_ok()
    }

    /// Sorts the indirect functions.
    pub(super) fn sort_indirect(&mut self) {
        let mut indirect = std::mem::take(&mut self.indirect);
        indirect.sort_unstable_by(|(a, at), (b, bt)| (at, self.name(*a)).cmp(&(bt, self.name(*b))));
        self.indirect = indirect;
    }

    /// Returns a section's name; empty if there is no such section.
    pub(crate) fn section_name(&self, index: u32) -> &str {
        self.sections.get(index as usize).map_or("", |section| self.name(section.name))
    }

    /// Returns the section whose contents begin at this offset of the prepared bytes.
    #[cfg(test)]
    pub(crate) fn section_at(&self, offset: u64) -> Option<u32> {
        let found = self.sections.iter().position(|s| s.has_contents && s.size != 0 && s.offset == offset)?;
        u32::try_from(found).ok()
    }
}

/// A name in an index's arena.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Name {
    pub(super) start: u32,
    pub(super) len: u32,
}

/// A symbol that the object exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Definition {
    pub name: Name,
    pub kind: SymbolKind,
    pub binding: Binding,
    pub visibility: Visibility,
    /// Offset in the section; the address of an absolute symbol; 0 for a common one.
    pub value: u64,
    pub size: u64,
    /// Its section; 0 if it has none.
    pub section: u32,
    /// Position in `groups` of the COMDAT group that contains its section.
    pub comdat: Option<u32>,
    /// The alignment of a common symbol; of a thread-local one, its section's.
    pub common: Option<u64>,
    /// Whether `value` is its address. The prepared bytes have such a symbol undefined, since JITLink knows no absolute
    /// symbols in objects; the linker supplies it.
    pub absolute: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SymbolKind {
    Function,
    Data,
    Unknown,
    /// A variable of which each thread has a copy.
    ThreadLocal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    Strong,
    Weak,
    /// `STB_GNU_UNIQUE`: one per process; within one namespace the same as weak.
    Unique,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// Default or protected visibility; no definition is pre-empted here.
    Default,
    /// Hidden or internal visibility.
    Hidden,
}

/// A symbol that the object imports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Import {
    pub name: Name,
    pub weak: bool,
    pub visibility: Visibility,
    pub thread_local: bool,
}

/// A COMDAT group. Of all groups with one signature, the members of one object's group are linked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub signature: Name,
    /// Members, with the sections that are ordered after one (`SHF_LINK_ORDER`).
    pub members: Vec<u32>,
}

/// A section of function pointers, or of code that is one function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Array {
    pub kind: ArrayKind,
    /// Lower runs first at load and last at unload; `PLAIN_PRIORITY` for a section without a number.
    pub priority: u32,
    /// File offset of its contents in the prepared bytes.
    pub offset: u64,
    pub size: u64,
    pub section: u32,
}

impl Array {
    /// Returns the number of functions.
    pub(crate) fn functions(&self) -> u64 {
        match self.kind {
            ArrayKind::InitCode | ArrayKind::FiniCode => 1,
            _ => self.size / 8,
        }
    }

    /// Returns its rank among those of all objects that are linked together.
    pub(crate) fn rank(&self, index: &ObjectIndex) -> Rank {
        let stage = match self.kind {
            ArrayKind::PreInit => 0,
            ArrayKind::InitCode | ArrayKind::FiniCode => 1,
            ArrayKind::Init | ArrayKind::Ctors | ArrayKind::Fini | ArrayKind::Dtors => 2,
        };
        if stage < 2 || self.priority == PLAIN_PRIORITY {
            return Rank { stage, ..Rank::PLAIN };
        }
        let length = index.section_name(self.section).len() as u32;
        let name = (matches!(self.kind, ArrayKind::Init | ArrayKind::Fini), Reverse(length));
        Rank { stage, priority: self.priority, name }
    }
}

/// The rank of a section of function pointers among those of all objects that are linked together, in the order of
/// `ld` and the dynamic loader. `.preinit_array` comes first; then code in `.init`; then `.init_array.N` and
/// `.ctors.(65535-N)` by ascending N, those of one N by their names; then `.init_array` and `.ctors`. Equal sections
/// stay in the order of objects, and of sections in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    stage: u8,
    priority: u32,
    /// Names of one N differ in `.ctors` and `.init_array`, and in leading zeros.
    name: (bool, Reverse<u32>),
}

impl Rank {
    /// The rank of sections without a number.
    pub(crate) const PLAIN: Self = Self { stage: 2, priority: PLAIN_PRIORITY, name: (false, Reverse(0)) };
}

/// The priority of an array without a number: after all numbered ones.
pub(crate) const PLAIN_PRIORITY: u32 = 65536;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArrayKind {
    PreInit,
    /// A function, not pointers (`.init`).
    InitCode,
    Init,
    /// Called from the last pointer to the first.
    Ctors,
    Fini,
    Dtors,
    /// A function, not pointers (`.fini`).
    FiniCode,
}

impl ArrayKind {
    /// Returns whether it consists of pointers.
    pub(crate) fn is_list(self) -> bool {
        !matches!(self, Self::InitCode | Self::FiniCode)
    }
}

/// A section of the prepared object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Section {
    pub name: Name,
    pub kind: u32,
    pub flags: u64,
    pub size: u64,
    pub alignment: u64,
    /// File offset of its contents in the prepared bytes.
    pub offset: u64,
    pub has_contents: bool,
}

impl Section {
    /// Returns whether each thread gets a copy of it.
    pub(crate) fn is_thread_local(&self) -> bool {
        self.flags & SHF_TLS != 0
    }

    pub(crate) fn is_executable(&self) -> bool {
        self.flags & SHF_EXECINSTR != 0
    }

    /// Returns whether it is executable and whether it is writable; `None` if it is not mapped.
    pub(crate) fn mapped(&self) -> Option<(bool, bool)> {
        (self.flags & SHF_ALLOC != 0).then_some((self.flags & SHF_EXECINSTR != 0, self.flags & SHF_WRITE != 0))
    }
}

/// Recognises initialisers and finalisers by type and by name: old assemblers give `.init_array` the type `PROGBITS`.
pub(super) fn array_kind(name: &[u8], kind: u32) -> Option<(ArrayKind, u32)> {
    let by_name = |prefix: &[u8]| name.strip_prefix(prefix).and_then(priority);
    let plain = |kind| Some((kind, PLAIN_PRIORITY));
    match kind {
        SHT_PREINIT_ARRAY => plain(ArrayKind::PreInit),
        SHT_INIT_ARRAY => Some((ArrayKind::Init, by_name(b".init_array").unwrap_or(PLAIN_PRIORITY))),
        SHT_FINI_ARRAY => Some((ArrayKind::Fini, by_name(b".fini_array").unwrap_or(PLAIN_PRIORITY))),
        SHT_PROGBITS if name.first() == Some(&b'.') => {
            // `.ctors.NNNNN` counts down.
            let reversed = |p: u32| if p == PLAIN_PRIORITY { p } else { 65535_u32.saturating_sub(p) };
            None.or_else(|| by_name(b".init_array").map(|p| (ArrayKind::Init, p)))
                .or_else(|| by_name(b".fini_array").map(|p| (ArrayKind::Fini, p)))
                .or_else(|| by_name(b".ctors").map(|p| (ArrayKind::Ctors, reversed(p))))
                .or_else(|| by_name(b".dtors").map(|p| (ArrayKind::Dtors, reversed(p))))
                .or_else(|| (name == b".preinit_array").then_some((ArrayKind::PreInit, PLAIN_PRIORITY)))
        }
        _ => None,
    }
}

/// Parses the number behind an array's name: nothing, or a dot and digits.
fn priority(suffix: &[u8]) -> Option<u32> {
    if suffix.is_empty() {
        return Some(PLAIN_PRIORITY);
    }
    let digits = suffix.strip_prefix(b".")?;
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // A number that is too large counts as none.
    Some(std::str::from_utf8(digits).ok()?.parse().map_or(PLAIN_PRIORITY, |n: u32| n.min(PLAIN_PRIORITY)))
}

/// Returns whether a section is kept without a reference.
pub(super) fn is_retained(name: &[u8], flags: u64) -> bool {
    flags & SHF_ALLOC != 0 && (flags & SHF_GNU_RETAIN != 0 || super::harmonize::is_c_identifier(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_recognised_by_type_and_name() {
        let cases = [
            (&b".init_array"[..], SHT_INIT_ARRAY, Some((ArrayKind::Init, PLAIN_PRIORITY))),
            (b".init_array.00101", SHT_INIT_ARRAY, Some((ArrayKind::Init, 101))),
            (b".init_array.5", SHT_PROGBITS, Some((ArrayKind::Init, 5))),
            (b".init_array_x", SHT_PROGBITS, None),
            (b".init_array.text", SHT_INIT_ARRAY, Some((ArrayKind::Init, PLAIN_PRIORITY))),
            (b".fini_array.65535", SHT_FINI_ARRAY, Some((ArrayKind::Fini, 65535))),
            (b".ctors", SHT_PROGBITS, Some((ArrayKind::Ctors, PLAIN_PRIORITY))),
            (b".ctors.65434", SHT_PROGBITS, Some((ArrayKind::Ctors, 101))),
            (b".dtors.00000", SHT_PROGBITS, Some((ArrayKind::Dtors, 65535))),
            (b".preinit_array", SHT_PREINIT_ARRAY, Some((ArrayKind::PreInit, PLAIN_PRIORITY))),
            (b".text", SHT_PROGBITS, None),
            (b".init_array.99999999999", SHT_PROGBITS, Some((ArrayKind::Init, PLAIN_PRIORITY))),
        ];
        for (name, kind, expected) in cases {
            assert_eq!(array_kind(name, kind), expected, "{}", String::from_utf8_lossy(name));
        }
    }
}
