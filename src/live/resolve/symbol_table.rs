//! One library's namespace: which definition of a name counts.

use std::sync::Arc;

use hashbrown::hash_map::EntryRef;
use hashbrown::{HashMap, HashTable};
use smallvec::SmallVec;
use smol_str::SmolStr;

use crate::cpu::list::Lack;
use crate::elf::image_file::ImageIndex;
use crate::elf::{Binding, Definition, Group, Visibility, discarded_reference};
use crate::live::resolve::image_names::{ImageNameTable, ImageNames};
use crate::live::resolve::prepared::PreparedObject;
use crate::live::resolve::symbol::{Strength, Symbol, hash};
use crate::name::Name;
use crate::{Error, LinkError, Result};

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

/// Most libraries are one kernel: a few names are searched one by one, and have no hash table.
const HASH_ABOVE: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct SymbolTable {
    symbols: SmallVec<[(SmolStr, Symbol); 1]>,
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
    /// Names that are not in `symbols`. Other libraries pay for a pointer.
    images: Option<Box<ImageNameTable>>,
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
    /// How many images there were.
    images: usize,
}

impl SymbolTable {
    /// Returns a journal of the changes from now on.
    pub(crate) fn journal(&self) -> Journal {
        let images = self.images().map_or(0, ImageNameTable::len);
        Journal { symbols: self.symbols.len(), changed: Vec::new(), groups: Vec::new(), images }
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
        if let Some(images) = &mut tables.images {
            images.truncate(journal.images);
        }
    }

    #[inline]
    pub(crate) fn get(&self, name: &str) -> Option<Symbol> {
        let own = self.position(name).and_then(|i| self.symbols.get(i)).map(|(_, symbol)| *symbol);
        own.or_else(|| self.images()?.get(name))
    }

    fn is_empty(&self) -> bool {
        self.symbols.is_empty() && self.images().is_none_or(|images| images.len() == 0)
    }

    /// Returns the names of images, if there were some.
    fn images(&self) -> Option<&ImageNameTable> {
        self.tables.as_ref()?.images.as_deref()
    }

    /// Returns the names that an image defines, of which its definition counts.
    pub(crate) fn of_image(&self, object: u32) -> impl Iterator<Item = (&str, Symbol)> {
        let image = self.images().and_then(|images| images.of(object));
        image.into_iter().flat_map(ImageNames::iter).filter(self.those_that_count())
    }

    /// Returns the address of a name whose definition counts, and which this was before it had one.
    pub(crate) fn address(&self, name: &str, symbol: &Symbol) -> Option<u64> {
        match self.images().and_then(|images| images.of(symbol.object)) {
            // It need not be looked up again.
            Some(image) => image.address(symbol.definition),
            None => self.get(name)?.address.filter(|address| *address != 0),
        }
    }

    /// Gives the names of an image their addresses, or takes these away: those of its segments, then that of its
    /// thread-local block.
    pub(crate) fn set_image(&mut self, object: u32, addresses: Option<&[u64]>) {
        let images = self.tables.as_mut().and_then(|tables| tables.images.as_mut());
        if let Some(image) = images.and_then(|images| images.of_mut(object)) {
            image.set_addresses(addresses);
        }
    }

    /// Returns why this CPU does not run a function, and the name of the image that defines it.
    pub(crate) fn lack(&self, symbol: &Symbol) -> Option<(&Name, &Lack)> {
        self.images()?.of(symbol.object)?.lack(symbol.definition)
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
        // Few names have versions, and one byte is looked for faster than two.
        if name.contains('@')
            && let Some((base, version)) = name.split_once("@@").filter(|(base, _)| !base.is_empty())
        {
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

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, Symbol)> {
        let own = self.symbols.iter().map(|(name, symbol)| (&**name, *symbol));
        own.chain(self.images().into_iter().flat_map(ImageNameTable::iter).filter(self.those_that_count()))
    }

    /// Returns which names of images count: those that nobody has defined before.
    fn those_that_count(&self) -> impl Fn(&(&str, Symbol)) -> bool {
        let is_alone = self.symbols.is_empty() && self.images().is_some_and(|images| images.len() == 1);
        move |(name, symbol)| is_alone || self.get(name).is_some_and(|counts| counts.object == symbol.object)
    }

    /// Adds the names of an image that becomes object number `number`. Those that are there come first.
    fn add_image(
        &mut self,
        library: &Name,
        (number, object, image): (u32, &PreparedObject, &Arc<ImageIndex>),
        others: &Others<'_>,
    ) -> Result<()> {
        let image = ImageNames::new(number, object, image);
        let is_first = self.is_empty();
        // What comes first clashes with nothing.
        for (name, second) in (!is_first).then(|| image.iter()).into_iter().flatten() {
            let is_clash = |first: &Symbol| {
                second.strength == Strength::Strong && (first.strength == Strength::Strong || others.use_it(first))
            };
            if let Some(first) = self.get(name).filter(is_clash) {
                return Err(duplicate(name, library, &first, object, others));
            }
        }
        self.tables.get_or_insert_default().images.get_or_insert_default().push(image);
        Ok(())
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
        if let Some(image) = &object.image {
            return self.add_image(library, (number, object, image), others);
        }
        // What comes first clashes with nothing.
        let definitions = if self.is_empty() { &[] } else { &*index.definitions };
        for definition in definitions.iter().filter(|d| self.group_counts(number, object, d)) {
            let name = index.name(definition.name);
            if let Some(first) = self.get(name).filter(|first| clashes(first, definition, others)) {
                return Err(duplicate(name, library, &first, object, others));
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
            let of_image = self.images().is_some_and(|images| images.get(name).is_some());
            match self.change(name, journal) {
                // It stays: the image is linked already, or will not be linked together with an object.
                None if of_image => {}
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
        let found = discarded_reference(&object.name.text(), &object.bytes, |section| group_of.contains_key(&section))?;
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

fn duplicate(name: &str, library: &Name, first: &Symbol, second: &PreparedObject, others: &Others<'_>) -> Error {
    Error::Link(LinkError::DuplicateDefinition {
        symbol: name.to_owned(),
        library: library.to_string(),
        first: (others.name_of)(first.object),
        second: second.name.to_string(),
    })
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
