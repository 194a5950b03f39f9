//! The relocations that the dynamic loader makes.

use object::elf;

use crate::elf::elf_abi::EM_AARCH64;

/// What a relocation by the dynamic loader writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum DynamicKind {
    /// The address of a place in the image: the load address is added.
    Relative,
    /// A symbol's address.
    Address,
    /// The same, for an entry of the GOT.
    Slot,
    /// The number of a thread-local variable's module; without a symbol, of this module.
    Module,
    /// A variable's offset in its module's block.
    Offset,
    /// Its distance from the thread pointer.
    Distance,
    /// Its descriptor: two words.
    Descriptor,
    /// The result of the resolver at a place in the image.
    Indirect,
}

impl DynamicKind {
    const ALL: [Self; 8] = [
        Self::Relative,
        Self::Address,
        Self::Slot,
        Self::Module,
        Self::Offset,
        Self::Distance,
        Self::Descriptor,
        Self::Indirect,
    ];

    /// Returns its number on a machine.
    pub(crate) fn number(self, machine: u16) -> u32 {
        let (x86_64, aarch64) = match self {
            Self::Relative => (elf::R_X86_64_RELATIVE, elf::R_AARCH64_RELATIVE),
            Self::Address => (elf::R_X86_64_64, elf::R_AARCH64_ABS64),
            Self::Slot => (elf::R_X86_64_GLOB_DAT, elf::R_AARCH64_GLOB_DAT),
            Self::Module => (elf::R_X86_64_DTPMOD64, elf::R_AARCH64_TLS_DTPMOD),
            Self::Offset => (elf::R_X86_64_DTPOFF64, elf::R_AARCH64_TLS_DTPREL),
            Self::Distance => (elf::R_X86_64_TPOFF64, elf::R_AARCH64_TLS_TPREL),
            Self::Descriptor => (elf::R_X86_64_TLSDESC, elf::R_AARCH64_TLSDESC),
            Self::Indirect => (elf::R_X86_64_IRELATIVE, elf::R_AARCH64_IRELATIVE),
        };
        if machine == EM_AARCH64 { aarch64.0 } else { x86_64.0 }
    }

    /// Returns the kind that has a number on a machine.
    pub(crate) fn of(machine: u16, number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number(machine) == number)
    }

    /// Returns whether it is about a thread-local variable.
    pub(crate) fn is_of_variable(self) -> bool {
        matches!(self, Self::Module | Self::Offset | Self::Distance | Self::Descriptor)
    }
}
