//! Constant tables of the relocation kinds.

mod aarch64;
pub(crate) mod bridge;
mod dynamic;
mod field;
mod terms;
mod x86_64;

pub(crate) use dynamic::DynamicKind;
pub(crate) use field::{AddressForm, Field};
pub(crate) use terms::{Entry, Form, Operation, Range, Repair, Through, Tls};

use crate::elf::elf_abi::{EM_AARCH64, EM_X86_64};

/// In place of LLVM's version: these tables are the linker.
pub(crate) const NO_LLVM: u32 = u32::MAX;

/// One relocation kind of an ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub number: u32,
    /// The name in the ABI.
    pub name: &'static str,
    /// Bytes of the field, or of the instruction that holds it.
    pub width: u8,
    /// Bytes before the field that LLVM reads too, when it relaxes the instruction.
    pub before: u8,
    /// The first LLVM, from 15, whose JITLink links it correctly; `None` if none does.
    pub since: Option<u32>,
    pub operation: Operation,
    pub field: Field,
    pub range: Range,
    /// The required alignment of the value: a power of two.
    pub alignment: u8,
    /// Whether the ABI requires a range check. We check every kind that has a range, so nothing is truncated.
    pub checked: bool,
    pub through: Through,
    /// The replacement on an LLVM older than `since`.
    pub repair: Repair,
    /// Whether it concerns thread-local storage.
    pub tls: bool,
    /// Whether it concerns an indirect function's resolver.
    pub indirect: bool,
    /// The only addend that JITLink links correctly: it ignores others, or reads past the GOT.
    pub addend: Option<i64>,
    /// The instructions that it may patch, as (mask, value); any if empty. JITLink does not check them.
    pub shape: &'static [(u32, u32)],
}

const fn new(
    number: u32,
    name: &'static str,
    since: Option<u32>,
    operation: Operation,
    field: Field,
    range: Range,
) -> Kind {
    Kind {
        number,
        name,
        width: field.width(),
        before: 0,
        since,
        operation,
        field,
        range,
        alignment: field.alignment(),
        checked: !matches!(range, Range::Unchecked),
        through: operation.through(),
        repair: Repair::None,
        tls: matches!(operation, Operation::ThreadLocal(_)),
        indirect: false,
        addend: None,
        shape: &[],
    }
}

impl Kind {
    const fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    const fn indirect(mut self) -> Self {
        self.indirect = true;
        self
    }

    const fn before(mut self, bytes: u8) -> Self {
        self.before = bytes;
        self
    }

    const fn addend(mut self, only: i64) -> Self {
        self.addend = Some(only);
        self
    }

    const fn shape(mut self, shape: &'static [(u32, u32)]) -> Self {
        self.shape = shape;
        self
    }

    /// Marks a kind whose range the ABI does not require to be checked.
    const fn silent(mut self) -> Self {
        self.checked = false;
        self
    }

    const fn stub(mut self) -> Self {
        self.through = Through::Stub;
        self
    }

    const fn got(mut self) -> Self {
        self.through = Through::Got;
        self
    }

    const fn drop(mut self) -> Self {
        self.repair = Repair::Drop;
        self
    }

    const fn same(mut self, number: u32) -> Self {
        self.repair = Repair::Same(number);
        self
    }

    const fn lift(mut self, carrier: u32) -> Self {
        self.repair = Repair::Lift(carrier);
        self
    }

    /// Returns whether it needs the variable at a fixed distance from the thread pointer.
    pub(crate) fn is_static_tls(&self) -> bool {
        matches!(self.operation, Operation::ThreadLocal(Tls::FromThreadPointer | Tls::Entry(Entry::Offset, _)))
    }

    /// Returns whether its value depends on where the GOT begins.
    pub(crate) fn is_from_got(&self) -> bool {
        use Operation::{FromGot, GotBaseRelative, GotFromGot, GotFromGotPage};
        matches!(self.operation, FromGot | GotBaseRelative | GotFromGot | GotFromGotPage)
    }

    /// Returns whether the JITLink of this LLVM links it; for [`NO_LLVM`], whether we do.
    pub(crate) fn linkable(&self, llvm: u32) -> bool {
        self.since.is_some_and(|since| llvm >= since) || llvm == NO_LLVM && self.repair != Repair::None
    }

    /// Returns the lowest and the highest value that fit.
    pub(crate) fn limit(&self) -> (i128, i128) {
        self.range.limit()
    }

    /// Returns whether a value is in range. [`is_aligned`](Self::is_aligned) is a separate check.
    pub(crate) fn fits(&self, value: i128) -> bool {
        let (lowest, highest) = self.limit();
        !self.is_limited() || (lowest..=highest).contains(&value)
    }

    /// Returns whether every value fits that is as near to 0 as this one, on either side.
    pub(crate) fn reaches(&self, distance: u64) -> bool {
        match self.range {
            Range::Unchecked => true,
            Range::Signed(width) | Range::Either(width) => u32::from(width) > u64::BITS - distance.leading_zeros(),
            Range::Unsigned(_) => false,
        }
    }

    /// Returns whether some values do not fit.
    pub(crate) fn is_limited(&self) -> bool {
        self.range != Range::Unchecked
    }

    /// Returns whether the field can hold the value's lowest bits.
    pub(crate) fn is_aligned(&self, value: i128) -> bool {
        value & (i128::from(self.alignment) - 1) == 0
    }
}

/// The kinds of one machine, found by number in constant time.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    kinds: &'static [Kind],
    /// Position in `kinds` plus one, or 0.
    index: &'static [u8],
}

impl Table {
    /// Returns the table of a machine; an empty one if the machine is not supported.
    pub(crate) fn of(machine: u16) -> Self {
        match machine {
            EM_X86_64 => Self { kinds: x86_64::KINDS, index: &x86_64::INDEX },
            EM_AARCH64 => Self { kinds: aarch64::KINDS, index: &aarch64::INDEX },
            _ => Self { kinds: &[], index: &[] },
        }
    }

    /// Returns a kind and its position in the table.
    pub(crate) fn get(&self, number: u32) -> Option<(usize, &'static Kind)> {
        let position = usize::from(*self.index.get(number as usize)?).checked_sub(1)?;
        Some((position, self.kinds.get(position)?))
    }

    pub(crate) fn kinds(&self) -> &'static [Kind] {
        self.kinds
    }
}

/// Computes `Table::index`; a number that does not fit is a compile error.
const fn index_of<const N: usize>(kinds: &[Kind]) -> [u8; N] {
    let mut index = [0; N];
    let mut i = 0;
    assert!(kinds.len() < 255);
    while i < kinds.len() {
        let slot = kinds[i].number as usize;
        assert!(index[slot] == 0);
        index[slot] = (i + 1) as u8;
        i += 1;
    }
    index
}

#[cfg(test)]
mod tests;
