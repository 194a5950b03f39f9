//! The bits of an instruction or datum that a relocation writes.

use super::{Form, Kind, Operation, Tls};

/// The field that a relocation writes, little-endian. Bits of the value are half-open ranges from bit 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// No field.
    Empty,
    /// An instruction that is only marked, for linkers that relax sequences.
    Marker,
    /// An integer of this many bits.
    Data(u8),
    /// Two 64-bit words that the dynamic loader fills.
    Pair,
    /// AArch64 `B` and `BL`: bits 2..28.
    Imm26,
    /// AArch64 `B.cond`, `CBZ`, `LDR` (literal): bits 2..21.
    Imm19,
    /// AArch64 `TBZ`: bits 2..16.
    Imm14,
    /// AArch64 `ADR`: bits 0..21.
    Adr,
    /// AArch64 `ADRP`: bits 12..33.
    Adrp,
    /// AArch64 `ADD`, `LDR`, `STR` (unsigned offset): bits `low..high`.
    Imm12 { low: u8, high: u8 },
    /// AArch64 `MOVZ`, `MOVK`, `MOVN`: 16 bits from bit `16 * group`. A signed kind makes a negative value a `MOVN`
    /// with these bits inverted, any other a `MOVZ` (AAELF64, "Group relocations").
    MovW { group: u8, signed: bool },
}

impl Field {
    /// Returns the bytes that it covers.
    pub(super) const fn width(self) -> u8 {
        match self {
            Self::Empty => 0,
            Self::Data(bits) => bits / 8,
            Self::Pair => 16,
            _ => 4,
        }
    }

    /// Returns the required alignment of the value, as the field has no place for the bits below.
    pub(super) const fn alignment(self) -> u8 {
        match self {
            Self::Imm26 | Self::Imm19 | Self::Imm14 => 4,
            // The upper half of a split offset leaves the low bits to the instruction of the lower half.
            Self::Imm12 { low, high } if high <= 15 => 1 << low,
            _ => 1,
        }
    }

    /// Replaces the field in an instruction; returns `None` for a field of data.
    fn patch(self, word: u32, value: i64) -> Option<u32> {
        let bits = |low: u8, count: u32| (value >> low) as u32 & ((1 << count) - 1);
        let put = |at: u32, count: u32, bits: u32| word & !(((1 << count) - 1) << at) | bits << at;
        let address = |bits: u32| word & !(3 << 29 | 0x7ffff << 5) | (bits & 3) << 29 | (bits >> 2) << 5;
        Some(match self {
            Self::Empty | Self::Marker => word,
            Self::Data(_) | Self::Pair => return None,
            Self::Imm26 => put(0, 26, bits(2, 26)),
            Self::Imm19 => put(5, 19, bits(2, 19)),
            Self::Imm14 => put(5, 14, bits(2, 14)),
            Self::Adr => address(bits(0, 21)),
            Self::Adrp => address(bits(12, 21)),
            Self::Imm12 { low, high } => put(10, 12, bits(low, u32::from(high - low))),
            Self::MovW { group, signed: false } => put(5, 16, bits(16 * group, 16)),
            Self::MovW { group, signed: true } if value < 0 => put(5, 16, !bits(16 * group, 16) & 0xffff) & !MOVZ,
            Self::MovW { group, signed: true } => put(5, 16, bits(16 * group, 16)) | MOVZ,
        })
    }
}

/// The bit in which `MOVZ` differs from `MOVN`.
const MOVZ: u32 = 1 << 30;

/// The reason why a value was not written. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// The value is outside [`Kind::limit`].
    OutOfRange,
    /// The value is not a multiple of [`Kind::alignment`].
    Misaligned,
    /// The field does not end inside the bytes.
    Truncated,
    /// The instruction has none of the forms of [`Kind::shape`].
    Instruction(u32),
    /// The dynamic loader fills the field.
    Unwritable,
}

/// How a field has an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressForm {
    /// The address itself.
    Whole,
    /// Its distance from the field.
    Distance,
    /// The distance of their pages.
    Pages,
    /// The offset in its page.
    InPage,
    /// The distance from the GOT.
    FromGot,
    /// The distance from the GOT's page.
    FromGotPage,
}

impl AddressForm {
    /// Returns the value for an address, the field's and the GOT's.
    pub(crate) fn value(self, target: u64, at: u64, got: u64) -> i64 {
        const PAGE: u64 = !0xfff;
        let value = match self {
            Self::Whole => target,
            Self::Distance => target.wrapping_sub(at),
            Self::Pages => (target & PAGE).wrapping_sub(at & PAGE),
            Self::InPage => target & !PAGE,
            Self::FromGot => target.wrapping_sub(got),
            Self::FromGotPage => target.wrapping_sub(got & PAGE),
        };
        value as i64
    }
}

impl Kind {
    /// Returns how the kind writes the address of its symbol, its stub, or its GOT entry; `None` if it writes none.
    pub(crate) fn address_form(&self) -> Option<AddressForm> {
        Some(match self.operation {
            Operation::Absolute => AddressForm::Whole,
            Operation::Relative | Operation::GotRelative | Operation::GotBaseRelative => AddressForm::Distance,
            Operation::PageRelative | Operation::GotPageRelative => AddressForm::Pages,
            Operation::PageOffset | Operation::GotPageOffset => AddressForm::InPage,
            Operation::FromGot | Operation::GotFromGot => AddressForm::FromGot,
            Operation::GotFromGotPage => AddressForm::FromGotPage,
            Operation::ThreadLocal(Tls::Entry(_, form)) => match form {
                Form::Distance => AddressForm::Distance,
                Form::Pages => AddressForm::Pages,
                Form::InPage => AddressForm::InPage,
            },
            _ => return None,
        })
    }

    /// Returns the result of the operation for S + A (or G + A, where it has a G), P and GOT, if it is a number: `None`
    /// also where it needs a GOT and there is none.
    pub(crate) fn value(&self, target: u64, at: u64, got: Option<u64>) -> Option<i64> {
        match self.operation {
            Operation::Nothing => Some(0),
            Operation::GotBaseRelative | Operation::ThreadLocal(_) => None,
            _ if self.is_from_got() => Some(self.address_form()?.value(target, at, got?)),
            _ => Some(self.address_form()?.value(target, at, 0)),
        }
    }

    /// Writes a value (the result of [`Kind::operation`], wrapped to 64 bits) into the field at the start of `place`,
    /// and keeps all other bits. Kinds that only mark a place write nothing.
    pub(crate) fn encode(&self, place: &mut [u8], value: i64) -> Result<(), Misfit> {
        let place = place.get_mut(..usize::from(self.width)).ok_or(Misfit::Truncated)?;
        if !self.fits(value.into()) {
            return Err(Misfit::OutOfRange);
        }
        if !self.is_aligned(value.into()) {
            return Err(Misfit::Misaligned);
        }
        match self.field {
            Field::Empty | Field::Marker => Ok(()),
            Field::Pair => Err(Misfit::Unwritable),
            Field::Data(_) => {
                let bytes = value.to_le_bytes();
                place.copy_from_slice(bytes.get(..place.len()).ok_or(Misfit::Unwritable)?);
                Ok(())
            }
            field => {
                let bytes: &mut [u8; 4] = place.try_into().map_err(|_| Misfit::Truncated)?;
                let word = u32::from_le_bytes(*bytes);
                if !self.shape.is_empty() && !self.applies_to(word) {
                    return Err(Misfit::Instruction(word));
                }
                *bytes = field.patch(word, value).ok_or(Misfit::Unwritable)?.to_le_bytes();
                Ok(())
            }
        }
    }

    /// Returns whether this kind may patch the instruction.
    pub(crate) fn applies_to(&self, word: u32) -> bool {
        self.shape.is_empty() || self.shape.iter().any(|(mask, value)| word & mask == *value)
    }
}
