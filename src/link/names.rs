//! One library's namespace: which definition of a name counts.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use once_cell::race::OnceBox;

use super::prepared::PreparedObject;
use crate::elf::{Binding, Definition, Group, SymbolKind, Visibility, discarded_reference};
use crate::name::Name;
use crate::{Error, Result};

/// The definition that counts for a name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Symbol {
    /// Position of the object in its library.
    pub(super) object: u32,
    /// Position of the definition in the object.
    pub(super) definition: u32,
    size: u64,
    /// `None` until its object is linked.
    pub(super) address: Option<u64>,
    strength: Strength,
    /// Its object is being linked: others may be bound to it already.
    linking: bool,
    /// Of a common symbol: its alignment's logarithm.
    alignment: u8,
    pub(super) kind: SymbolKind,
    pub(super) hidden: bool,
}

impl Symbol {
    /// Whether something may refer to it already.
    fn is_in_use(&self) -> bool {
        self.address.is_some() || self.linking
    }
}

/// How definitions of one name compare (System V gABI, Symbol Table; common over weak as GNU ld has it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strength {
    Weak,
    Common,
    Strong,
}

/// Most libraries are one kernel: a few names are searched one by one, and have no hash table.
const HASH_ABOVE: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Names {
    symbols: Vec<(Box<str>, Symbol)>,
    /// What most libraries do without.
    tables: Option<Box<Tables>>,
}

#[derive(Debug, Default)]
struct Tables {
    /// Positions in `symbols`, once there are more than [`HASH_ABOVE`].
    positions: HashTable<u32>,
    /// Other names of a symbol `f@@VERSION`, with its position: `f` and `f@VERSION`. What is defined under such a name itself comes first.
    versions: HashMap<Box<str>, u32>,
    /// The object whose COMDAT group of this signature is linked.
    groups: HashMap<Box<str>, u32>,
}

/// What objects that came together have changed, for when one of them is refused.
#[derive(Debug)]
pub(super) struct Journal {
    /// How many names there were.
    symbols: usize,
    /// Positions of symbols that changed, with what they were, in this order.
    changed: Vec<(usize, Symbol)>,
    /// Signatures of COMDAT groups that came.
    groups: Vec<Box<str>>,
}

impl Names {
    /// From here on.
    pub(super) fn journal(&self) -> Journal {
        Journal { symbols: self.symbols.len(), changed: Vec::new(), groups: Vec::new() }
    }

    /// Makes everything as it was when the journal began.
    pub(super) fn undo(&mut self, journal: Journal) {
        for (position, symbol) in journal.changed.into_iter().rev() {
            if let Some((_, changed)) = self.symbols.get_mut(position) {
                *changed = symbol;
            }
        }
        self.symbols.truncate(journal.symbols);
        let Some(tables) = &mut self.tables else { return };
        for signature in &journal.groups {
            tables.groups.remove(signature);
        }
        tables.versions.retain(|_, position| (*position as usize) < journal.symbols);
        // As it would be without them: see `insert`.
        let kept = if journal.symbols > HASH_ABOVE { journal.symbols } else { 0 };
        tables.positions.retain(|position| (*position as usize) < kept);
    }

    pub(super) fn get(&self, name: &str) -> Option<&Symbol> {
        self.position(name).and_then(|i| self.symbols.get(i)).map(|(_, symbol)| symbol)
    }

    fn get_mut(&mut self, name: &str) -> Option<&mut Symbol> {
        self.position(name).and_then(|i| self.symbols.get_mut(i)).map(|(_, symbol)| symbol)
    }

    /// As [`get_mut`](Self::get_mut), with what it was noted.
    fn change(&mut self, name: &str, journal: &mut Journal) -> Option<&mut Symbol> {
        let position = self.position(name)?;
        let (_, symbol) = self.symbols.get_mut(position)?;
        journal.changed.push((position, *symbol));
        Some(symbol)
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.exact_position(name)
            .or_else(|| self.tables.as_ref()?.versions.get(name).map(|position| *position as usize))
    }

    fn exact_position(&self, name: &str) -> Option<usize> {
        if self.symbols.len() <= HASH_ABOVE {
            return self.symbols.iter().position(|(n, _)| **n == *name);
        }
        let same = |i: &u32| self.symbols.get(*i as usize).is_some_and(|(n, _)| **n == *name);
        self.tables.as_ref()?.positions.find(hash(name), same).map(|i| *i as usize)
    }

    fn insert(&mut self, name: &str, symbol: Symbol) {
        let position = self.symbols.len() as u32;
        self.symbols.push((name.into(), symbol));
        if let Some((base, version)) = name.split_once("@@").filter(|(base, _)| !base.is_empty()) {
            let versions = &mut self.tables.get_or_insert_default().versions;
            versions.entry(base.into()).or_insert(position);
            versions.entry(format!("{base}@{version}").into()).or_insert(position);
        }
        let symbols = &self.symbols;
        let rehash = |i: &u32| symbols.get(*i as usize).map_or(0, |(name, _)| hash(name));
        if symbols.len() <= HASH_ABOVE {
            return;
        }
        let positions = &mut self.tables.get_or_insert_default().positions;
        // The first time, all that came before, too.
        let first = if positions.is_empty() { 0 } else { position };
        for (i, (name, _)) in (first..).zip(symbols.iter().skip(first as usize)) {
            positions.insert_unique(hash(name), i, rehash);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Symbol)> {
        self.symbols.iter().map(|(name, symbol)| (&**name, symbol))
    }

    /// Adds what object number `number` defines, or nothing.
    ///
    /// # Errors
    /// A second strong definition, or a reference into a group that another object has; `name_of` gives the name of the
    /// object that has the first.
    pub(super) fn add(
        &mut self,
        library: &Name,
        number: u32,
        object: &PreparedObject,
        name_of: &impl Fn(u32) -> String,
        journal: &mut Journal,
    ) -> Result<()> {
        let index = &object.index;
        for definition in index.definitions.iter().filter(|d| self.group_counts(number, object, d)) {
            let name = index.name(definition.name);
            if let Some(first) = self.get(name).filter(|first| clashes(first, definition)) {
                return Err(Error::DuplicateDefinition {
                    symbol: name.to_owned(),
                    library: library.to_string(),
                    first: name_of(first.object),
                    second: object.name.to_string(),
                });
            }
        }
        self.check_discarded(number, object, name_of)?;
        for group in &index.groups {
            let groups = &mut self.tables.get_or_insert_default().groups;
            groups.entry_ref(index.name(group.signature)).or_insert_with_key(|signature| {
                journal.groups.push(signature.into());
                number
            });
        }
        if self.symbols.is_empty() {
            self.symbols.reserve_exact(index.definitions.len());
        }
        for (i, definition) in index.definitions.iter().enumerate() {
            if !self.group_counts(number, object, definition) {
                continue;
            }
            let new = Symbol {
                object: number,
                definition: i as u32,
                strength: strength(definition),
                linking: false,
                alignment: definition.common.map_or(0, |alignment| alignment.max(1).ilog2() as u8),
                kind: definition.kind,
                hidden: definition.visibility == Visibility::Hidden,
                size: definition.size,
                address: definition.absolute.then_some(definition.value),
            };
            let name = index.name(definition.name);
            match self.change(name, journal) {
                None => self.insert(name, new),
                Some(old) if replaces(old, &new) => *old = new,
                // The most constraining visibility wins.
                Some(old) => old.hidden |= new.hidden,
            }
        }
        Ok(())
    }

    /// Refuses an object that refers to what only its own copy of another object's COMDAT group has.
    fn check_discarded(&self, number: u32, object: &PreparedObject, name_of: impl Fn(u32) -> String) -> Result<()> {
        let index = &object.index;
        let discarded = |(i, _): &(u32, _)| !self.group_is_from(number, object, *i);
        let discarded = (0..).zip(&index.groups).filter(discarded).map(|(_, group)| group);
        let group_of: HashMap<u32, &Group> =
            discarded.flat_map(|group| group.members.iter().map(move |m| (*m, group))).collect();
        if group_of.is_empty() {
            return Ok(());
        }
        let found = discarded_reference(&object.name, &object.bytes, |section| group_of.contains_key(&section))?;
        let Some((group, found)) = found.and_then(|found| Some((group_of.get(&found.target)?, found))) else {
            return Ok(());
        };
        let group = index.name(group.signature);
        let owner = self.tables.as_ref().and_then(|tables| tables.groups.get(group));
        Err(Error::DiscardedReference {
            object: object.name.to_string(),
            section: found.section,
            offset: found.offset,
            symbol: found.symbol,
            group: group.to_owned(),
            linked: owner.copied().map_or_else(String::new, name_of),
        })
    }

    /// Whether the definition is in no COMDAT group, or in one that is linked from this object.
    fn group_counts(&self, number: u32, object: &PreparedObject, definition: &Definition) -> bool {
        definition.comdat.is_none_or(|group| self.group_is_from(number, object, group))
    }

    /// Whether a COMDAT group is linked from this object, or from none yet.
    pub(super) fn group_is_from(&self, number: u32, object: &PreparedObject, group: u32) -> bool {
        let index = &object.index;
        let signature = index.groups.get(group as usize).map(|g| index.name(g.signature));
        let owner = signature.and_then(|s| self.tables.as_ref()?.groups.get(s));
        owner.is_none_or(|owner| *owner == number)
    }

    /// The sections of an object that are linked from another one, sorted.
    pub(super) fn dead_sections(&self, number: u32, object: &PreparedObject) -> Vec<u32> {
        let is_dead = |(i, _): &(u32, _)| !self.group_is_from(number, object, *i);
        let groups = (0..).zip(&object.index.groups).filter(is_dead);
        let mut dead: Vec<u32> = groups.flat_map(|(_, group)| group.members.iter().copied()).collect();
        dead.sort_unstable();
        dead
    }

    /// Records where a linked definition is, or that it is nowhere any more.
    pub(super) fn set_address(&mut self, name: &str, address: Option<u64>) {
        if let Some(symbol) = self.get_mut(name) {
            symbol.address = address;
        }
    }

    /// Records whether the object that has the definition of a name is being linked.
    pub(super) fn set_linking(&mut self, name: &str, object: u32, linking: bool) {
        if let Some(symbol) = self.get_mut(name).filter(|s| s.object == object) {
            symbol.linking = linking;
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Names come from files: the hash is keyed, with one key for the process.
pub(super) fn hash(name: &str) -> u64 {
    static KEY: OnceBox<DefaultHashBuilder> = OnceBox::new();
    KEY.get_or_init(Box::default).hash_one(name)
}

fn strength(definition: &Definition) -> Strength {
    match definition.binding {
        _ if definition.common.is_some() => Strength::Common,
        Binding::Strong => Strength::Strong,
        Binding::Weak | Binding::Unique => Strength::Weak,
    }
}

/// Whether a name with this definition cannot take another one: both are strong, or the first is in use already and is
/// not what the second could be replaced with.
fn clashes(first: &Symbol, second: &Definition) -> bool {
    match strength(second) {
        Strength::Strong => first.strength == Strength::Strong || first.is_in_use(),
        Strength::Common => first.is_in_use() && first.strength != Strength::Strong && first.size < second.size,
        Strength::Weak => false,
    }
}

fn replaces(old: &Symbol, new: &Symbol) -> bool {
    let both_common = old.strength == Strength::Common && new.strength == Strength::Common;
    let larger_common = both_common && (new.size, new.alignment) > (old.size, old.alignment);
    !old.is_in_use() && (new.strength > old.strength || larger_common)
}
