//! What objects of a batch refer to in each other.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Addresses of the definitions that other objects of the batch need, by their numbers, and names for graphs.
pub(in crate::link) struct Exports {
    /// 0 until the exporter has memory.
    addresses: Box<[AtomicU64]>,
    /// Each [`NAME`] bytes long.
    names: OnceLock<String>,
    /// Whether all lie in the arena.
    pub(super) are_near: bool,
}

/// Bytes of a name.
const NAME: usize = 18;

impl Exports {
    pub(super) fn new(count: usize, are_near: bool) -> Self {
        Self { addresses: (0..count).map(|_| AtomicU64::new(0)).collect(), names: OnceLock::new(), are_near }
    }

    /// Returns the address of a definition; `None` as long as it has none.
    pub(in crate::link) fn address(&self, number: u32) -> Option<u64> {
        let address = self.addresses.get(number as usize)?.load(Ordering::Relaxed);
        (address != 0).then_some(address)
    }

    /// Notes the address of a definition.
    pub(super) fn define(&self, number: u32, address: u64) {
        if let Some(slot) = self.addresses.get(number as usize) {
            slot.store(address, Ordering::Relaxed);
        }
    }

    /// Returns the name by which graphs refer to a definition. No object has such a name.
    pub(super) fn name(&self, number: u32) -> &str {
        let names = self.names.get_or_init(|| {
            let mut names = String::with_capacity(self.addresses.len() * NAME);
            (0..self.addresses.len()).for_each(|number| _ = write!(names, "\u{1}slabjit x{number:08x}"));
            names
        });
        let start = number as usize * NAME;
        names.get(start..start + NAME).unwrap_or_default()
    }
}
