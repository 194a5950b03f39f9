//! One library's namespace: which definition of a name counts.

use std::hash::BuildHasher;

use hashbrown::hash_map::EntryRef;
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use once_cell::race::OnceBox;

use crate::elf::{Binding, Definition, Group, SymbolKind, Visibility, discarded_reference};
use crate::live::resolve::prepared::PreparedObject;
use crate::name::Name;
use crate::{Error, LinkError, Result};

/// The definition that counts for a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Symbol {
    /// Position of the object in its library.
    pub(crate) object: u32,
    /// Position of the definition in the object.
    pub(crate) definition: u32,
    size: u64,
    /// `None` until its object is linked.
    pub(crate) address: Option<u64>,
    strength: Strength,
    /// Of a common symbol: its alignment's logarithm.
    alignment: u8,
    pub(crate) kind: SymbolKind,
    pub(crate) hidden: bool,
}

/// The objects that are in the library already.
pub(crate) struct Others<'a> {
    /// Returns an object's name.
    pub(crate) name_of: &'a dyn Fn(u32) -> String,
    /// Returns whether an object waits to be linked, so that nothing is bound to its definitions.
    pub(crate) waits: &'a dyn Fn(u32) -> bool,
}

impl Others<'_> {
    /// Returns whether something may refer to a symbol already: its object is linked, or is being linked.
    fn use_it(&self, symbol: &Symbol) -> bool {
        symbol.address.is_some() || !(self.waits)(symbol.object)
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
pub(crate) struct SymbolTable {
    symbols: Vec<(Box<str>, Symbol)>,
    /// Tables that most libraries do without.
    tables: Option<Box<Tables>>,
}

#[derive(Debug, Default)]
struct Tables {
    /// Positions in `symbols`, once there are more than [`HASH_ABOVE`].
    positions: HashTable<u32>,
    /// Other names of a symbol `f@@VERSION`, with its position: `f` and `f@VERSION`. A definition under such a name
    /// itself comes first.
    versions: HashMap<Box<str>, u32>,
    /// The object whose COMDAT group of this signature is linked.
    groups: HashMap<Box<str>, u32>,
}

/// Changes by objects that were added together, to be undone when one of them is refused.
#[derive(Debug)]
pub(crate) struct Journal {
    /// How many names there were.
    symbols: usize,
    /// Positions of symbols that changed, with their old values, in this order.
    changed: Vec<(usize, Symbol)>,
    /// Signatures of COMDAT groups that were added.
    groups: Vec<Box<str>>,
}

impl SymbolTable {
    /// Returns a journal of the changes from now on.
    pub(crate) fn journal(&self) -> Journal {
        Journal { symbols: self.symbols.len(), changed: Vec::new(), groups: Vec::new() }
    }

    /// Restores the state at the journal's beginning.
    pub(crate) fn undo(&mut self, journal: Journal) {
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

    pub(crate) fn get(&self, name: &str) -> Option<&Symbol> {
        self.position(name).and_then(|i| self.symbols.get(i)).map(|(_, symbol)| symbol)
    }

    fn get_mut(&mut self, name: &str) -> Option<&mut Symbol> {
        self.position(name).and_then(|i| self.symbols.get_mut(i)).map(|(_, symbol)| symbol)
    }

    /// Does the same as [`get_mut`](Self::get_mut), and records the old symbol in the journal.
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

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Symbol)> {
        self.symbols.iter().map(|(name, symbol)| (&**name, symbol))
    }

    /// Adds the definitions of object number `number`, all or none.
    ///
    /// # Errors
    /// A second strong definition, or a reference into a group that another object has.
    pub(crate) fn add(
        &mut self,
        library: &Name,
        number: u32,
        object: &PreparedObject,
        others: &Others<'_>,
        journal: &mut Journal,
    ) -> Result<()> {
        let index = &object.index;
        for definition in index.definitions.iter().filter(|d| self.group_counts(number, object, d)) {
            let name = index.name(definition.name);
            if let Some(first) = self.get(name).filter(|first| clashes(first, definition, others)) {
                return Err(Error::Link(LinkError::DuplicateDefinition {
                    symbol: name.to_owned(),
                    library: library.to_string(),
                    first: (others.name_of)(first.object),
                    second: object.name.to_string(),
                }));
            }
        }
        self.check_discarded(number, object, others.name_of)?;
        for group in &index.groups {
            let groups = &mut self.tables.get_or_insert_default().groups;
            let signature = index.name(group.signature);
            if let EntryRef::Vacant(group) = groups.entry_ref(signature) {
                group.insert_with_key(signature.into(), number);
                journal.groups.push(signature.into());
            }
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
                alignment: definition.common.map_or(0, |alignment| alignment.max(1).ilog2() as u8),
                kind: definition.kind,
                hidden: definition.visibility == Visibility::Hidden,
                size: definition.size,
                address: definition.absolute.then_some(definition.value),
            };
            let name = index.name(definition.name);
            match self.change(name, journal) {
                None => self.insert(name, new),
                Some(old) if replaces(old, &new, others) => *old = new,
                // The most constraining visibility wins.
                Some(old) => old.hidden |= new.hidden,
            }
        }
        Ok(())
    }

    /// Refuses an object that refers to a symbol that only its own copy of another object's COMDAT group has.
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
        Err(Error::Link(LinkError::DiscardedReference {
            object: object.name.to_string(),
            section: found.section,
            offset: found.offset,
            symbol: found.symbol,
            group: group.to_owned(),
            linked: owner.copied().map_or_else(String::new, name_of),
        }))
    }

    /// Returns whether the definition is in no COMDAT group, or in one that is linked from this object.
    fn group_counts(&self, number: u32, object: &PreparedObject, definition: &Definition) -> bool {
        definition.comdat.is_none_or(|group| self.group_is_from(number, object, group))
    }

    /// Returns whether a COMDAT group is linked from this object, or from none yet.
    pub(crate) fn group_is_from(&self, number: u32, object: &PreparedObject, group: u32) -> bool {
        let index = &object.index;
        let signature = index.groups.get(group as usize).map(|g| index.name(g.signature));
        let owner = signature.and_then(|s| self.tables.as_ref()?.groups.get(s));
        owner.is_none_or(|owner| *owner == number)
    }

    /// Returns the sections of an object that are linked from another one, sorted.
    pub(crate) fn dead_sections(&self, number: u32, object: &PreparedObject) -> Vec<u32> {
        let is_dead = |(i, _): &(u32, _)| !self.group_is_from(number, object, *i);
        let groups = (0..).zip(&object.index.groups).filter(is_dead);
        let mut dead: Vec<u32> = groups.flat_map(|(_, group)| group.members.iter().copied()).collect();
        dead.sort_unstable();
        dead
    }

    /// Records the address of a linked definition, or its absence.
    pub(crate) fn set_address(&mut self, name: &str, address: Option<u64>) {
        if let Some(symbol) = self.get_mut(name) {
            symbol.address = address;
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Hashes a name. Names come from files: the hash is keyed, with one key for the process.
pub(crate) fn hash(name: &str) -> u64 {
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

/// Returns whether a name with this definition cannot take another one: both are strong, or the second would replace
/// the first, which is in use already.
fn clashes(first: &Symbol, second: &Definition, others: &Others<'_>) -> bool {
    match strength(second) {
        Strength::Strong => first.strength == Strength::Strong || others.use_it(first),
        Strength::Common => first.strength != Strength::Strong && first.size < second.size && others.use_it(first),
        Strength::Weak => false,
    }
}

fn replaces(old: &Symbol, new: &Symbol, others: &Others<'_>) -> bool {
    let both_common = old.strength == Strength::Common && new.strength == Strength::Common;
    let larger_common = both_common && (new.size, new.alignment) > (old.size, old.alignment);
    (new.strength > old.strength || larger_common) && !others.use_it(old)
}
