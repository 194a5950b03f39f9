//! Finds an object's sections by their names or by the offsets of their contents: there may be a hundred thousand.

use crate::elf::{ObjectIndex, is_c_identifier};

/// Indices of sections, one list for each kind of lookup, in an order of its own each.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    /// Thread-local ones, by name: each has one of its own.
    thread_local: Vec<u32>,
    /// Positions of initialiser and finaliser sections in the index's list, by the offsets of their contents.
    arrays: Vec<u32>,
    /// Retained sections: those with contents by offset, and all by name.
    retained_at: Vec<u32>,
    retained: Vec<u32>,
    /// One section of each name of which all are reached by 64-bit references only, by name.
    large: Vec<u32>,
    /// Sections of linker sets, in the order of the file.
    sets: Vec<u32>,
}

impl Lookup {
    pub(crate) fn new(index: &ObjectIndex) -> Self {
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

    pub(crate) fn sets(&self) -> &[u32] {
        &self.sets
    }

    /// Returns the thread-local section of this name.
    pub(crate) fn thread_local(&self, index: &ObjectIndex, name: &str) -> Option<u32> {
        let found = self.thread_local.binary_search_by_key(&name, |i| index.section_name(*i)).ok()?;
        self.thread_local.get(found).copied()
    }

    /// Returns the position of the initialiser or finaliser section of this name whose contents begin at this offset.
    /// Empty sections may begin where others do.
    pub(crate) fn array_at(&self, index: &ObjectIndex, name: &str, offset: u64) -> Option<usize> {
        let array = |i: &u32| index.arrays.get(*i as usize);
        let first = self.arrays.partition_point(|i| array(i).is_some_and(|array| array.offset < offset));
        let mut here =
            self.arrays.get(first..)?.iter().take_while(|i| array(i).is_some_and(|array| array.offset == offset));
        let found = here.find(|i| array(i).is_some_and(|array| index.section_name(array.section) == name))?;
        Some(*found as usize)
    }

    /// Returns the retained section that begins at this offset of the object, or has no contents and this name. Empty
    /// sections may begin where others do.
    pub(crate) fn retained(&self, index: &ObjectIndex, name: &str, offset: Option<u64>) -> Option<u32> {
        let named = |i: &&u32| index.section_name(**i) == name;
        let Some(offset) = offset else {
            let first = self.retained.partition_point(|i| index.section_name(*i) < name);
            return self.retained.get(first).filter(named).copied();
        };
        let at = |i: &u32| index.sections.get(*i as usize).map_or(0, |section| section.offset);
        let first = self.retained_at.partition_point(|i| at(i) < offset);
        self.retained_at.get(first..)?.iter().take_while(|i| at(i) == offset).find(named).copied()
    }

    /// Returns whether all sections of this name are reached by 64-bit references only.
    pub(crate) fn is_large(&self, index: &ObjectIndex, name: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::elf::testing::{X86, asm, prepare};

    /// The same, one by one.
    struct OneByOne<'i>(&'i ObjectIndex);

    impl OneByOne<'_> {
        fn array_at(&self, name: &str, offset: u64) -> Option<usize> {
            let named = |section| self.0.section_name(section) == name;
            let mut arrays = self.0.arrays.iter();
            arrays.position(|array| array.size != 0 && array.offset == offset && named(array.section))
        }

        fn retained(&self, name: &str, offset: Option<u64>) -> Option<u32> {
            let is = |i: &&u32| {
                let section = &self.0.sections[**i as usize];
                let there = offset.is_none_or(|offset| section.has_contents && section.offset == offset);
                there && self.0.section_name(**i) == name
            };
            self.0.retain.iter().find(is).copied()
        }

        fn is_large(&self, name: &str) -> bool {
            let mut same = (0..self.0.sections.len() as u32).filter(|i| self.0.section_name(*i) == name).peekable();
            same.peek().is_some() && same.all(|i| self.0.large_sections.contains(&i))
        }
    }

    fn index(source: &str) -> ObjectIndex {
        prepare(X86, &asm(source)).unwrap().index
    }

    #[test]
    fn sections_are_found_as_if_one_by_one() {
        let index = index(
            ".section .text.empty,\"ax\"\n
             .section .init_array.7,\"aw\",@init_array\n.quad 0\n.section .init_array,\"aw\",@init_array\n
             .section set,\"aw\"\n.section set,\"aw\",@progbits,unique,1\n.byte 1\n
             .section other,\"a\"\n.section other,\"a\",@nobits,unique,2\n.zero 9\n
             .section .data.kept,\"awR\"\n.byte 2\n.section .bss.kept,\"awR\",@nobits\n.zero 3\n
             .section .data,\"aw\"\n.byte 4\n
             .section .ldata,\"awl\"\n.byte 5\n.section .ldata,\"awl\",@progbits,unique,3\n.byte 6\n
             .section .lbss,\"awl\",@nobits\n.zero 7\n
             .section .tdata,\"awT\"\n.byte 8\n.section variables,\"awT\"\n.byte 9\n",
        );
        let (lookup, oracle) = (Lookup::new(&index), OneByOne(&index));
        let mut found = [0; 4];
        for (i, section) in index.sections.iter().enumerate() {
            let name = index.name(section.name);
            for offset in [None, Some(section.offset), Some(section.offset + 1)] {
                let retained = lookup.retained(&index, name, offset);
                assert_eq!(retained, oracle.retained(name, offset), "{name} {offset:?}");
                found[0] += usize::from(retained.is_some());
            }
            let array = lookup.array_at(&index, name, section.offset);
            assert_eq!(array, oracle.array_at(name, section.offset), "{name}");
            assert_eq!(lookup.is_large(&index, name), oracle.is_large(name), "{name}");
            let own = lookup.thread_local(&index, name);
            assert_eq!(own, section.is_thread_local().then_some(i as u32), "{name}");
            let found_now = [array.is_some(), lookup.is_large(&index, name), own.is_some()];
            found[1..].iter_mut().zip(found_now).for_each(|(n, is)| *n += usize::from(is));
        }
        assert!(found.iter().all(|n| *n != 0), "{found:?}");
        let sets: Vec<&str> = lookup.sets().iter().map(|i| index.section_name(*i)).collect();
        assert_eq!(sets, ["set", "set", "other", "other"]);
    }

    #[test]
    fn many_are_found_in_no_time() {
        const MANY: usize = 6000;
        let source = |i: usize| {
            format!(
                ".section .init_array.{i},\"aw\",@init_array\n.quad 0\n.section s{i},\"aw\"\n.byte 1\n
                 .section .bss.r{i},\"awR\",@nobits\n.zero 1\n.section .ldata.l{i},\"awl\"\n.byte 1\n"
            )
        };
        let index = index(&(0..MANY).map(source).collect::<String>());
        let all = |look: &mut dyn FnMut(&str, u64)| -> Duration {
            let start = Instant::now();
            index.sections.iter().for_each(|section| look(index.name(section.name), section.offset));
            start.elapsed()
        };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let start = Instant::now();
        let lookup = Lookup::new(&index);
        let make = start.elapsed();
        let time = all(&mut |name, offset| {
            let retained = [None, Some(offset)].map(|offset| lookup.retained(&index, name, offset));
            ours.push((retained, lookup.array_at(&index, name, offset), lookup.is_large(&index, name)));
        });
        let oracle = OneByOne(&index);
        let one_by_one = all(&mut |name, offset| {
            let retained = [None, Some(offset)].map(|offset| oracle.retained(name, offset));
            theirs.push((retained, oracle.array_at(name, offset), oracle.is_large(name)));
        });
        assert_eq!(ours, theirs);
        assert!((make + time) * 10 < one_by_one, "{make:?} and {time:?}, one by one {one_by_one:?}");
    }
}
