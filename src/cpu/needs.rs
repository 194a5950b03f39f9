//! What a function needs of the CPU.

use smallvec::SmallVec;

/// Features that a function needs beyond the baseline of its machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Numbers of features in the machine's table, and the offset in the function of the first instruction that needs
    /// each.
    pub(crate) features: SmallVec<[(u8, u64); 4]>,
    /// Something in it is no instruction that is known.
    pub(crate) undecoded: bool,
}

impl Needs {
    /// Notes a feature at an offset.
    pub(crate) fn add(&mut self, number: u8, offset: u64) {
        if self.features.iter().all(|(known, _)| *known != number) {
            self.features.push((number, offset));
        }
    }

    /// Adds what code at this offset needs.
    pub(crate) fn append(&mut self, other: &Self, at: u64) {
        other.features.iter().for_each(|(number, offset)| self.add(*number, at + offset));
        self.undecoded |= other.undecoded;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.features.is_empty() && !self.undecoded
    }
}
