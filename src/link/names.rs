//! One library's namespace: which definition of a name counts.

use std::collections::HashMap;
use std::collections::hash_map::Entry;


use super::object::PreparedObject;
use crate::elf::{Binding, Definition, SymbolKind, Visibility};
use crate::{Error, Result};

/// The definition that counts for a name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Symbol {
    /// Position of the object in its library.
    pub(super) object: u32,
    /// Position of the definition in the object.
    pub(super) definition: u32,
    strength: Strength,
    pub(super) kind: SymbolKind,
    pub(super) hidden: bool,
    size: u64,
    /// `None` until its object is linked.
    pub(super) address: Option<u64>,
}

/// How definitions of one name compare (System V gABI, Symbol Table; common over weak as GNU ld has it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Strength {
    Weak,
    Common,
    Strong,
}

#[derive(Debug, Default)]
pub(super) struct Names {
    symbols: HashMap<Box<str>, Symbol>,
    /// The object whose COMDAT group of this signature is linked.
    groups: HashMap<Box<str>, u32>,
}

impl Names {
    pub(super) fn get(&self, name: &str) -> Option<&Symbol> {
        self.symbols.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Symbol)> {
        self.symbols.iter().map(|(name, symbol)| (&**name, symbol))
    }

    /// Adds what object number `number` defines, or nothing.
    ///
    /// # Errors
    /// A second strong definition; `name_of` gives the name of the object that has the first.
    pub(super) fn add<'a>(
        &mut self,
        library: &str,
        number: u32,
        object: &PreparedObject,
        name_of: impl Fn(u32) -> &'a str,
    ) -> Result<()> {
        let index = &object.index;
        for definition in self.counting(number, object) {
            let name = index.name(definition.name);
            let Some(first) = self.symbols.get(name) else { continue };
            if clashes(first, definition) {
                return Err(Error::DuplicateDefinition {
                    symbol: name.to_owned(),
                    library: library.to_owned(),
                    first: name_of(first.object).to_owned(),
                    second: object.name.to_string(),
                });
            }
        }
        for group in &index.groups {
            self.groups.entry(index.name(group.signature).into()).or_insert(number);
        }
        for (i, definition) in index.definitions.iter().enumerate() {
            if !self.group_counts(number, object, definition) {
                continue;
            }
            let new = Symbol {
                object: number,
                definition: i as u32,
                strength: strength(definition),
                kind: definition.kind,
                hidden: definition.visibility == Visibility::Hidden,
                size: definition.size,
                address: definition.absolute.then_some(definition.value),
            };
            match self.symbols.entry(index.name(definition.name).into()) {
                Entry::Vacant(entry) => _ = entry.insert(new),
                Entry::Occupied(mut entry) if replaces(entry.get(), &new) => _ = entry.insert(new),
                // The most constraining visibility wins.
                Entry::Occupied(mut entry) => entry.get_mut().hidden |= new.hidden,
            }
        }
        Ok(())
    }

    fn counting<'o>(&self, number: u32, object: &'o PreparedObject) -> impl Iterator<Item = &'o Definition> {
        object.index.definitions.iter().filter(move |d| self.group_counts(number, object, d))
    }

    /// Whether the definition is in no COMDAT group, or in one that is linked from this object.
    fn group_counts(&self, number: u32, object: &PreparedObject, definition: &Definition) -> bool {
        definition.comdat.is_none_or(|group| self.group_is_from(number, object, group))
    }

    pub(super) fn group_is_from(&self, number: u32, object: &PreparedObject, group: u32) -> bool {
        let index = &object.index;
        let signature = index.groups.get(group as usize).map(|g| index.name(g.signature));
        signature.and_then(|s| self.groups.get(s)).is_none_or(|owner| *owner == number)
    }

    /// Records where a linked definition is.
    pub(super) fn set_address(&mut self, name: &str, address: Option<u64>) {
        if let Some(symbol) = self.symbols.get_mut(name) {
            symbol.address = address;
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
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
        Strength::Strong => first.strength == Strength::Strong || first.address.is_some(),
        Strength::Common => {
            first.address.is_some() && first.strength != Strength::Strong && first.size < second.size
        }
        Strength::Weak => false,
    }
}

fn replaces(old: &Symbol, new: &Symbol) -> bool {
    old.address.is_none()
        && (new.strength > old.strength
            || new.strength == Strength::Common && old.strength == Strength::Common && new.size > old.size)
}

