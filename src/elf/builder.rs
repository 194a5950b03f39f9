//! Builder of an [`ObjectIndex`].

use super::index::{Name, ObjectIndex};
use crate::Result;
use crate::elf::elf_view::{NameBudget, View};

/// The most bytes of names in an ordinary object.
const FEW: usize = 4096;

pub(crate) struct IndexBuilder {
    pub(crate) index: ObjectIndex,
    arena: Vec<u8>,
    budget: NameBudget,
    of_locals: NameBudget,
}

impl IndexBuilder {
    /// Creates a builder for an object with this many bytes of string tables and this many names in them.
    pub(crate) fn new(strings: usize, names: usize) -> Self {
        // One allocation for an ordinary object; most names of a large one are local and stay out.
        Self {
            index: ObjectIndex::default(),
            arena: Vec::with_capacity(strings.min(FEW)),
            budget: NameBudget::new(strings, names),
            of_locals: NameBudget::of_locals(strings, names),
        }
    }

    /// Counts a name that is read but not kept.
    pub(crate) fn pass(&mut self, view: &View<'_>, name: &[u8]) -> Result<()> {
        self.of_locals.spend(view, name)
    }

    /// Stores the name of a symbol defined in a section. With `-ffunction-sections` the section's name ends in the
    /// symbol's, and both share their bytes.
    pub(crate) fn name_in(&mut self, view: &View<'_>, section: u32, name: &[u8]) -> Result<Name> {
        let shared = || {
            let whole = self.index.sections.get(section as usize)?.name;
            let text = self.arena.get(whole.start as usize..)?.get(..whole.len as usize)?;
            // The name begins at a character boundary.
            let begins = name.first().is_some_and(|first| first & 0xc0 != 0x80);
            let len = u32::try_from(name.len()).ok().filter(|_| begins && text.ends_with(name))?;
            Some(Name { start: whole.start + whole.len - len, len })
        };
        match shared() {
            Some(name_of_section) => self.pass(view, name).map(|()| name_of_section),
            None => self.name(view, name),
        }
    }

    pub(crate) fn name(&mut self, view: &View<'_>, name: &[u8]) -> Result<Name> {
        self.budget.spend(view, name)?;
        let full = |_| view.malformed(None, None, "its names have more than 4 GiB");
        let start = u32::try_from(self.arena.len()).map_err(full)?;
        let len = u32::try_from(name.len()).map_err(full)?;
        self.arena.extend_from_slice(name);
        // Keeps two names from forming one character together.
        self.arena.push(0);
        Ok(Name { start, len })
    }

    /// Returns a thread-local section that has the name of another one.
    pub(crate) fn twin_of_thread_local(&self) -> Option<u32> {
        let text = |section: &u32| {
            let name = self.index.sections.get(*section as usize)?.name;
            self.arena.get(name.start as usize..)?.get(..name.len as usize)
        };
        let mut names: Vec<_> =
            self.index.thread_local.iter().flat_map(|t| &t.sections).map(|s| (text(s), *s)).collect();
        names.sort_unstable();
        names.windows(2).find_map(|pair| match pair {
            [(first, _), (second, index)] if first == second => Some(*index),
            _ => None,
        })
    }

    pub(crate) fn finish(mut self, view: &View<'_>) -> Result<ObjectIndex> {
        // The vector grew by doubling; a large object would keep the excess.
        if self.arena.len() > FEW {
            self.arena.shrink_to_fit();
            self.index.definitions.shrink_to_fit();
            self.index.imports.shrink_to_fit();
        }
        self.index.names = String::from_utf8(self.arena).map_err(|error| {
            let bytes = error.as_bytes();
            let at = error.utf8_error().valid_up_to();
            let start = bytes.iter().take(at).rposition(|b| *b == 0).map_or(0, |p| p + 1);
            let name: &[u8] = bytes.get(start..).unwrap_or_default().split(|b| *b == 0).next().unwrap_or_default();
            view.malformed(None, None, format!("the name '{}' is not UTF-8", String::from_utf8_lossy(name)))
        })?;
        self.index.machine = view.machine;
        Ok(self.index)
    }
}
