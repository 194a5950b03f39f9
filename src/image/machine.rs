//! What the two machines have different in shared objects.

use object::elf;

use crate::elf::{EM_AARCH64, put};

/// Preparation replaces the fewest relocations for this one.
pub(super) const NEWEST_LLVM: u32 = 23;

/// The dynamic relocations and the stubs of a machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine {
    pub(super) number: u16,
    /// The largest page size that its systems have.
    pub(super) page: u64,
    pub(super) stub_bytes: u64,
}

/// A relocation that the dynamic loader makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum DynamicKind {
    /// The load address is added.
    Relative,
    /// A symbol's address.
    Symbol,
    /// A GOT entry with a symbol's address.
    Slot,
    /// The number of a symbol's module; without a symbol of this module.
    Module,
    /// A symbol's offset in its module's block.
    Offset,
    /// The distance from the thread pointer.
    Distance,
    /// A descriptor: two words.
    Descriptor,
    /// The result of a resolver.
    Indirect,
}

impl Machine {
    pub(super) fn of(number: u16) -> Self {
        match number {
            EM_AARCH64 => Self { number, page: 64 << 10, stub_bytes: 16 },
            _ => Self { number, page: 4 << 10, stub_bytes: 16 },
        }
    }

    fn is_aarch64(self) -> bool {
        self.number == EM_AARCH64
    }

    /// Returns the number of a dynamic relocation.
    pub(super) fn relocation(self, kind: DynamicKind) -> u32 {
        match (self.is_aarch64(), kind) {
            (false, DynamicKind::Relative) => elf::R_X86_64_RELATIVE.0,
            (false, DynamicKind::Symbol) => elf::R_X86_64_64.0,
            (false, DynamicKind::Slot) => elf::R_X86_64_GLOB_DAT.0,
            (false, DynamicKind::Module) => elf::R_X86_64_DTPMOD64.0,
            (false, DynamicKind::Offset) => elf::R_X86_64_DTPOFF64.0,
            (false, DynamicKind::Distance) => elf::R_X86_64_TPOFF64.0,
            (false, DynamicKind::Descriptor) => elf::R_X86_64_TLSDESC.0,
            (false, DynamicKind::Indirect) => elf::R_X86_64_IRELATIVE.0,
            (true, DynamicKind::Relative) => elf::R_AARCH64_RELATIVE.0,
            (true, DynamicKind::Symbol) => elf::R_AARCH64_ABS64.0,
            (true, DynamicKind::Slot) => elf::R_AARCH64_GLOB_DAT.0,
            (true, DynamicKind::Module) => elf::R_AARCH64_TLS_DTPMOD.0,
            (true, DynamicKind::Offset) => elf::R_AARCH64_TLS_DTPREL.0,
            (true, DynamicKind::Distance) => elf::R_AARCH64_TLS_TPREL.0,
            (true, DynamicKind::Descriptor) => elf::R_AARCH64_TLSDESC.0,
            (true, DynamicKind::Indirect) => elf::R_AARCH64_IRELATIVE.0,
        }
    }

    /// Writes a stub: it jumps to the address in a slot. False if the slot is too far away.
    pub(super) fn write_stub(self, out: &mut [u8], offset: usize, at: u64, slot: u64) -> bool {
        if self.is_aarch64() {
            let pages = ((slot & !0xfff) as i64).wrapping_sub((at & !0xfff) as i64) >> 12;
            if !(-(1 << 20)..1 << 20).contains(&pages) {
                return false;
            }
            let pages = pages as u32;
            // bti c; adrp x16, slot; ldr x17, [x16, #:lo12:slot]; br x17
            let adrp = 0x9000_0010 | (pages & 3) << 29 | (pages >> 2 & 0x7_ffff) << 5;
            let ldr = 0xf940_0211 | ((slot & 0xfff) as u32 >> 3) << 10;
            for (i, word) in [0xd503_245f_u32, adrp, ldr, 0xd61f_0220].into_iter().enumerate() {
                put(out, offset + 4 * i, &word.to_le_bytes());
            }
            return true;
        }
        let Ok(distance) = i32::try_from(slot.wrapping_sub(at + 10) as i64) else { return false };
        // endbr64; jmp *slot(%rip); int3
        let mut code = [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0, 0, 0, 0, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc];
        put(&mut code, 6, &distance.to_le_bytes());
        put(out, offset, &code);
        true
    }
}
