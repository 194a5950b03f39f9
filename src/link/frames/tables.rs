//! For libgcc before 13: sections of objects whose code lies side by side are registered as one.
//!
//! Of what is registered, libgcc expects that no two lie within each other (`_Unwind_Find_FDE`, libgcc 12): it looks into the first that
//! begins at or before an address, and no further. So what is registered together is what is next to each other.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::num::NonZero;

use crate::gate::Mutex;

unsafe extern "C" {
    // libgcc: an array of sections, which ends in a null pointer.
    fn __register_frame_table(sections: *const c_void);
    fn __deregister_frame(sections: *const c_void);
}

/// More is not registered as one: a change means that it is registered again, and sorted again when something is thrown.
const MOST: usize = 256;

/// Those of all engines.
pub(super) static TABLES: Mutex<Tables> = Mutex::new(Tables { by_code: BTreeMap::new() });

/// By where the first code begins.
pub(super) struct Tables {
    by_code: BTreeMap<u64, Table>,
}

/// Sections by where their code begins, in its order, and what is registered of them.
#[derive(Default)]
struct Table {
    sections: Vec<(u64, NonZero<u64>)>,
    registered: Registered,
}

impl Tables {
    /// A section, and where its code begins.
    pub(super) fn add(&mut self, code: u64, section: NonZero<u64>) {
        let before = self.by_code.range(..=code).next_back().map(|(first, _)| *first);
        // One that begins behind it is its own first then.
        let first = before.or_else(|| self.by_code.keys().next().copied());
        let mut table = first.and_then(|first| self.by_code.remove(&first)).unwrap_or_default();
        let at = table.sections.partition_point(|(other, _)| *other < code);
        let mut rest = Table::default();
        if table.sections.len() >= MOST {
            // Behind the last, so that what grows is full.
            let half = if at == table.sections.len() { at } else { table.sections.len() / 2 };
            rest.sections = table.sections.split_off(half);
            if at < half {
                table.sections.insert(at, (code, section))
            } else {
                rest.sections.insert(at - half, (code, section))
            }
        } else {
            table.sections.insert(at, (code, section));
        }
        rest.register();
        table.register();
        self.put(table);
        self.put(rest);
    }

    /// The section whose code begins there.
    pub(super) fn remove(&mut self, code: u64) {
        let first = self.by_code.range(..=code).next_back().map(|(first, _)| *first);
        let Some(mut table) = first.and_then(|first| self.by_code.remove(&first)) else { return };
        table.sections.retain(|(other, _)| *other != code);
        table.register();
        self.put(table);
    }

    fn put(&mut self, table: Table) {
        if let Some((first, _)) = table.sections.first() {
            self.by_code.insert(*first, table);
        }
    }
}

impl Table {
    /// Registers what there is now, and then only deregisters what was: others may be throwing through it.
    fn register(&mut self) {
        self.registered = Registered::new(self.sections.iter().map(|(_, section)| section.get()));
    }
}

/// An array that libgcc knows.
#[derive(Default)]
struct Registered(Vec<u64>);

/// An empty section. The array begins with it, as libgcc takes one whose first 32 bits are zero for empty.
static EMPTY: [u64; 2] = [0; 2];

impl Registered {
    fn new(sections: impl ExactSizeIterator<Item = u64>) -> Self {
        if sections.len() == 0 {
            return Self::default();
        }
        let mut array = Vec::with_capacity(sections.len() + 2);
        array.push((&raw const EMPTY).addr() as u64 + 4);
        array.extend(sections);
        array.push(0);
        // SAFETY: sections that end with a terminator, as whoever added them says, and a null pointer.
        unsafe { __register_frame_table(array.as_ptr().cast()) };
        Self(array)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            // SAFETY: it was registered; all its sections are still there, as they go only after they were removed.
            unsafe { __deregister_frame(self.0.as_ptr().cast()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::num::NonZero;

    use proptest::prelude::*;

    use super::super::unwinder::{Unwinder, describing};
    use super::*;

    unsafe extern "C" {
        fn _Unwind_Find_FDE(pc: *const c_void, bases: *mut [usize; 3]) -> *const c_void;
    }

    /// What unwinders find for an address.
    fn found(code: u64) -> u64 {
        // SAFETY: it writes to the bases.
        unsafe { _Unwind_Find_FDE(code as *const c_void, &mut [0; 3]).addr() as u64 }
    }

    const SLOT: u64 = 64;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]

        /// Sections come and go in any order; libgcc finds each that is there, and no other.
        #[test]
        fn libgcc_finds_what_is_there(steps in prop::collection::vec((0_u64..900, any::<bool>()), 1..1500), throws in 1_usize..50) {
            if Unwinder::of_process() != Unwinder::List {
                println!("not run: this unwinder has no list");
                return Ok(());
            }
            // Addresses that nobody runs.
            let code = vec![0_u64; (SLOT as usize / 8) * 900];
            let at = |slot: u64| code.as_ptr().addr() as u64 + slot * SLOT;
            let mut tables = Tables { by_code: BTreeMap::new() };
            let mut there: BTreeMap<u64, Box<[u32; 12]>> = BTreeMap::new();
            for (n, (slot, ascending)) in steps.into_iter().enumerate() {
                // Half of them as a pool gives them: the lowest that is free.
                let slot = if ascending { (0..900).find(|s| !there.contains_key(s)).unwrap_or(slot) } else { slot };
                match there.remove(&slot) {
                    Some(_section) => tables.remove(at(slot)),
                    None => {
                        let section = Box::new(describing(at(slot), SLOT as u32));
                        tables.add(at(slot), NonZero::new(section.as_ptr().addr() as u64).unwrap());
                        there.insert(slot, section);
                    }
                }
                prop_assert!(tables.by_code.values().all(|table| table.sections.len() <= MOST));
                if n % throws == 0 {
                    for slot in (0..900).step_by(7) {
                        let expected = there.get(&slot).map_or(0, |section| section.as_ptr().addr() as u64 + 16);
                        prop_assert_eq!(found(at(slot) + SLOT - 1), expected);
                    }
                }
            }
            for slot in 0..900 {
                let expected = there.get(&slot).map_or(0, |section| section.as_ptr().addr() as u64 + 16);
                prop_assert_eq!(found(at(slot)), expected);
            }
            for slot in there.keys() {
                tables.remove(at(*slot));
            }
            prop_assert!(tables.by_code.is_empty());
        }
    }
}
