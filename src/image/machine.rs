//! What the two machines have different in shared objects.

use object::elf;

use crate::elf::image_note::Reference;
use crate::elf::relocations::Table;
use crate::elf::{EM_AARCH64, EM_X86_64, put};

/// The pages and the stubs of a machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine {
    pub(super) number: u16,
    /// The largest page size that its systems have.
    pub(super) page: u64,
    pub(super) stub_bytes: u64,
    pub(super) helper_bytes: u64,
}

impl Machine {
    pub(super) fn of(number: u16) -> Self {
        match number {
            EM_AARCH64 => Self { number, page: 64 << 10, stub_bytes: 16, helper_bytes: 32 },
            _ => Self { number, page: 4 << 10, stub_bytes: 16, helper_bytes: 32 },
        }
    }

    fn is_aarch64(self) -> bool {
        self.number == EM_AARCH64
    }

    /// Writes a stub: it jumps to the address in a slot, which is less than 2 GiB away.
    pub(super) fn write_stub(self, out: &mut [u8], offset: usize, at: u64, slot: u64) {
        if self.is_aarch64() {
            // bti c
            put_words(out, offset, &[0xd503_245f]);
            put_words(out, offset + 4, &jump_aarch64(at + 4, slot));
            return;
        }
        // endbr64; jmp *slot(%rip); int3
        let mut code = [0xcc; 16];
        put(&mut code, 0, &[0xf3, 0x0f, 0x1e, 0xfa]);
        put(&mut code, 4, &relative_x86_64(&[0xff, 0x25], at + 4, slot));
        put(out, offset, &code);
    }

    /// Returns the reference of a pointer.
    pub(super) fn pointer(self, at: u64, target: u64) -> Option<Reference> {
        let kind = if self.is_aarch64() { elf::R_AARCH64_ABS64.0 } else { elf::R_X86_64_64.0 };
        reference(self.number, kind, at, target)
    }

    /// Returns the fields of a stub that depend on where its slot is, with the symbol's address.
    pub(super) fn references_of_stub(self, at: u64, slot: u64) -> Vec<(Reference, u64)> {
        if self.is_aarch64() {
            page_references(at + 4, slot, elf::R_AARCH64_LDST64_ABS_LO12_NC.0)
        } else {
            distance(at + 6, slot).into_iter().collect()
        }
    }

    /// Returns the fields of a helper that depend on where other segments are.
    pub(super) fn references_of_helper(
        self,
        at: u64,
        with_null: bool,
        (dso, slot): (u64, u64),
    ) -> Vec<(Reference, u64)> {
        if self.is_aarch64() {
            let mut all = page_references(at + 8, dso, elf::R_AARCH64_ADD_ABS_LO12_NC.0);
            all.extend(page_references(at + 16, slot, elf::R_AARCH64_LDST64_ABS_LO12_NC.0));
            return all;
        }
        let lea = at + 4 + if with_null { 2 } else { 0 };
        [distance(lea + 3, dso), distance(lea + 9, slot)].into_iter().flatten().collect()
    }

    /// Writes a function that passes the address `dso` on, as the argument of this number, and jumps to the address in
    /// a slot. `with_null`: the argument before is a null pointer.
    pub(super) fn write_helper(
        self,
        out: &mut [u8],
        (offset, at): (usize, u64),
        (argument, with_null): (u8, bool),
        (dso, slot): (u64, u64),
    ) {
        if self.is_aarch64() {
            // bti c; mov x1, #0 or nop; adrp xN, dso; add xN, xN, #:lo12:dso
            let register = u32::from(argument);
            let add = 0x9100_0000 | ((dso & 0xfff) as u32) << 10 | register << 5 | register;
            let before = if with_null { 0xd280_0001 } else { 0xd503_201f };
            put_words(out, offset, &[0xd503_245f, before, adrp(register, at + 8, dso), add]);
            put_words(out, offset + 16, &jump_aarch64(at + 16, slot));
            return;
        }
        // endbr64; xor %esi, %esi; lea dso(%rip), ARGUMENT; jmp *slot(%rip); int3
        let lea = [0x48, 0x8d, [0x3d, 0x35, 0x15, 0x0d].get(usize::from(argument)).copied().unwrap_or(0x3d)];
        let mut code = vec![0xf3, 0x0f, 0x1e, 0xfa];
        if with_null {
            code.extend_from_slice(&[0x31, 0xf6]);
        }
        code.extend(relative_x86_64(&lea, at + code.len() as u64, dso));
        code.extend(relative_x86_64(&[0xff, 0x25], at + code.len() as u64, slot));
        code.resize(self.helper_bytes as usize, 0xcc);
        put(out, offset, &code);
    }
}

/// Returns a 32-bit field that ends its instruction, and has the distance from there.
fn distance(at: u64, target: u64) -> Option<(Reference, u64)> {
    let reference = reference(EM_X86_64, elf::R_X86_64_PC32.0, at, target.wrapping_sub(4))?;
    Some((reference, target))
}

/// Returns the fields of an ADRP and of the instruction behind it.
fn page_references(at: u64, target: u64, low: u32) -> Vec<(Reference, u64)> {
    let page = elf::R_AARCH64_ADR_PREL_PG_HI21.0;
    let both = [reference(EM_AARCH64, page, at, target), reference(EM_AARCH64, low, at + 4, target)];
    both.into_iter().flatten().map(|reference| (reference, target)).collect()
}

/// Returns a field of a kind that the tables have.
fn reference(machine: u16, number: u32, at: u64, target: u64) -> Option<Reference> {
    Some(Reference { at, kind: Table::of(machine).get(number)?.1, target, segment: 0 })
}

/// Returns an instruction of x86-64 that ends in the distance of a target.
fn relative_x86_64(opcode: &[u8], at: u64, target: u64) -> Vec<u8> {
    let end = at + opcode.len() as u64 + 4;
    [opcode, &(target.wrapping_sub(end) as u32).to_le_bytes()].concat()
}

fn adrp(register: u32, at: u64, target: u64) -> u32 {
    let pages = ((target >> 12) as u32).wrapping_sub((at >> 12) as u32);
    0x9000_0000 | (pages & 3) << 29 | (pages >> 2 & 0x7_ffff) << 5 | register
}

/// Returns `adrp x16, slot; ldr x17, [x16, #:lo12:slot]; br x17`.
fn jump_aarch64(at: u64, slot: u64) -> [u32; 3] {
    [adrp(16, at, slot), 0xf940_0211 | ((slot & 0xfff) as u32 >> 3) << 10, 0xd61f_0220]
}

fn put_words(out: &mut [u8], offset: usize, words: &[u32]) {
    for (i, word) in words.iter().enumerate() {
        put(out, offset + 4 * i, &word.to_le_bytes());
    }
}
