//! Initialisers and finalisers: their order, and calls that may throw.
#![allow(unsafe_code, reason = "calls into linked code")]

use super::catching::call;
use crate::elf::{ArrayKind, ObjectIndex, Rank};
use crate::name::Name;

/// A function to be called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    rank: Rank,
    /// 0 for none.
    pub(crate) function: usize,
}

impl Entry {
    /// A placeholder for an object without initialisers.
    pub(crate) const NOTHING: Self = Self { rank: Rank::PLAIN, function: 0 };
}

/// The functions of one object's initialiser and finaliser sections. Each `.ctors` section is called from its end to
/// its start. Finalisers are called in the reverse of the order that they have here.
#[derive(Debug, Default)]
pub(crate) struct InitFini {
    initialisers: Vec<Entry>,
    finalisers: Vec<Entry>,
    /// Slots of indirect functions, to be filled before.
    slots: Vec<u64>,
}

impl InitFini {
    /// # Safety
    /// Each address is that of the section of the same index in the object's `arrays`, linked and readable; or 0.
    pub(crate) unsafe fn read(index: &ObjectIndex, addresses: &[u64], slots: Vec<u64>) -> Self {
        let mut all = Self { slots, ..Self::default() };
        for (array, &address) in index.arrays.iter().zip(addresses).filter(|(_, address)| **address != 0) {
            let words = usize::try_from(array.size).unwrap_or(0) / size_of::<usize>();
            // SAFETY: the section has that many bytes; it may be unaligned.
            let word = |i: usize| unsafe { (address as *const usize).add(i).read_unaligned() };
            let (list, backwards) = match array.kind {
                ArrayKind::PreInit | ArrayKind::InitCode | ArrayKind::Init => (&mut all.initialisers, false),
                ArrayKind::Ctors => (&mut all.initialisers, true),
                // Finalisers are called from the last to the first.
                ArrayKind::FiniCode | ArrayKind::Fini => (&mut all.finalisers, false),
                // They run from start to end, and all finalisers are reversed.
                ArrayKind::Dtors => (&mut all.finalisers, true),
            };
            let rank = array.rank(index);
            if !array.kind.is_list() {
                list.push(Entry { rank, function: address as usize });
                continue;
            }
            let mut put = |i: usize| {
                let function = word(i);
                // 0 and -1 delimit old .ctors lists.
                if function != 0 && function != usize::MAX {
                    list.push(Entry { rank, function });
                }
            };
            if backwards { (0..words).rev().for_each(&mut put) } else { (0..words).for_each(&mut put) }
        }
        all
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.initialisers.is_empty() && self.finalisers.is_empty() && self.slots.is_empty()
    }

    /// Takes the slots of indirect functions, once.
    pub(crate) fn take_slots(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.slots)
    }

    /// Takes the initialisers, once.
    pub(crate) fn take_initialisers(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.initialisers)
    }

    pub(crate) fn finalisers(&self) -> &[Entry] {
        &self.finalisers
    }
}

/// Puts entries of several objects, which come object by object, into the order of their sections.
pub(crate) fn put_in_order<T>(entries: &mut [(T, Entry)]) {
    entries.sort_by_key(|(_, entry)| entry.rank);
}

/// Calls finalisers from the last to the first; one that fails does not keep the others from running.
///
/// # Safety
/// The functions of linked objects that are still there, which may be finalised and have not been.
pub(crate) unsafe fn finalise(entries: &[(Name, Entry)]) {
    for (object, entry) in entries.iter().rev() {
        // SAFETY: by the caller.
        if let Err(message) = unsafe { call(entry.function) } {
            tracing::error!(target: "slabjit", object = &*object.text(), message, "a finaliser failed");
        }
    }
}
