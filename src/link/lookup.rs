//! Finding an object's sections, by their names or by where their contents begin: there may be a hundred thousand.

use crate::elf::{ObjectIndex, is_c_identifier};

/// Sections by what is asked about them. Lists of indices, in an order of their own each.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    /// Thread-local ones, by name: each has one of its own.
    thread_local: Vec<u32>,
    /// Positions of initialiser and finaliser sections in the index's list, by where their contents begin.
    arrays: Vec<u32>,
    /// Those to be retained: with contents by where they begin, and all by name.
    retained_at: Vec<u32>,
    retained: Vec<u32>,
    /// One of each name of which all are reached by 64-bit references only, by name.
    large: Vec<u32>,
    /// Those of linker sets, in the order of the file.
    sets: Vec<u32>,
}

impl Lookup {
    pub(super) fn new(index: &ObjectIndex) -> Self {
        let section = |i: &u32| index.sections.get(*i as usize);
        let offset = |i: &u32| section(i).map_or(0, |section| section.offset);
        let mut thread_local = index.thread_local.as_ref().map_or_else(Vec::new, |of| of.sections.clone());
        thread_local.sort_unstable_by_key(|i| index.section_name(*i));

        let filled = |i: &u32| index.arrays.get(*i as usize).is_some_and(|array| array.size != 0);
        let mut arrays: Vec<u32> = (0..index.arrays.len() as u32).filter(filled).collect();
        arrays.sort_unstable_by_key(|i| index.arrays.get(*i as usize).map(|array| array.offset));

        let mut retained = index.retain.clone();
        retained.sort_unstable_by_key(|i| (index.section_name(*i), *i));
        let has_contents = |i: &u32| section(i).is_some_and(|section| section.has_contents);
        let mut retained_at: Vec<u32> = index.retain.iter().copied().filter(has_contents).collect();
        retained_at.sort_unstable_by_key(|i| (offset(i), *i));

        let in_set = |i: &u32| {
            is_c_identifier(index.section_name(*i).as_bytes()) && section(i).is_some_and(|s| !s.is_thread_local())
        };
        let sets = index.retain.iter().copied().filter(in_set).collect();
        Self { thread_local, arrays, retained_at, retained, large: large(index), sets }
    }

    pub(super) fn sets(&self) -> &[u32] {
        &self.sets
    }

    /// The thread-local section of this name.
    pub(super) fn thread_local(&self, index: &ObjectIndex, name: &str) -> Option<u32> {
        let found = self.thread_local.binary_search_by_key(&name, |i| index.section_name(*i)).ok()?;
        self.thread_local.get(found).copied()
    }

    /// The position of the initialiser or finaliser section whose contents begin at this offset.
    pub(super) fn array_at(&self, index: &ObjectIndex, offset: u64) -> Option<usize> {
        let at = |i: &u32| index.arrays.get(*i as usize).map(|array| array.offset);
        let found = self.arrays.binary_search_by_key(&Some(offset), at).ok()?;
        self.arrays.get(found).map(|i| *i as usize)
    }

    /// The section to be retained that begins at this offset of the object, or has no contents and this name. Empty ones may begin where
    /// others do.
    pub(super) fn retained(&self, index: &ObjectIndex, name: &str, offset: Option<u64>) -> Option<u32> {
        let named = |i: &&u32| index.section_name(**i) == name;
        let Some(offset) = offset else {
            let first = self.retained.partition_point(|i| index.section_name(*i) < name);
            return self.retained.get(first).filter(named).copied();
        };
        let at = |i: &u32| index.sections.get(*i as usize).map_or(0, |section| section.offset);
        let first = self.retained_at.partition_point(|i| at(i) < offset);
        self.retained_at.get(first..)?.iter().take_while(|i| at(i) == offset).find(named).copied()
    }

    /// Whether all sections of this name are reached by 64-bit references only.
    pub(super) fn is_large(&self, index: &ObjectIndex, name: &str) -> bool {
        self.large.binary_search_by_key(&name, |i| index.section_name(*i)).is_ok()
    }
}

fn large(index: &ObjectIndex) -> Vec<u32> {
    // In the order of the file.
    let is_large = |i: &u32| index.large_sections.binary_search(i).is_ok();
    let mut large = index.large_sections.clone();
    if large.is_empty() {
        return large;
    }
    large.sort_by_key(|i| index.section_name(*i));
    large.dedup_by_key(|i| index.section_name(*i));
    let mut others: Vec<&str> =
        (0..index.sections.len() as u32).filter(|i| !is_large(i)).map(|i| index.section_name(i)).collect();
    others.sort_unstable();
    large.retain(|i| others.binary_search(&index.section_name(*i)).is_err());
    large
}
