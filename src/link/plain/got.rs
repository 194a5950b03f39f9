//! GOT entries, and loads from them that are not needed.

use crate::elf::relocations::Kind;

/// The symbols that have entries, in the order in which code refers to them.
#[derive(Default)]
pub(super) struct Got {
    symbols: Vec<u32>,
    /// By symbol, the number of its entry plus one; 0 for none.
    numbers: Vec<u32>,
    /// The address of the first.
    pub(super) address: u64,
}

/// Bytes of an entry.
pub(super) const ENTRY: u64 = 8;

const GOTPCRELX: u32 = 41;
const REX_GOTPCRELX: u32 = 42;

impl Got {
    /// Makes an entry for a symbol, one of so many, unless it has one.
    pub(super) fn add(&mut self, symbol: u32, symbols: usize) -> Option<()> {
        if self.numbers.is_empty() {
            self.numbers = vec![0; symbols];
        }
        let number = self.numbers.get_mut(symbol as usize)?;
        if *number == 0 {
            self.symbols.push(symbol);
            *number = self.symbols.len() as u32;
        }
        Some(())
    }

    pub(super) fn symbols(&self) -> &[u32] {
        &self.symbols
    }

    /// Returns the address of a symbol's entry.
    pub(super) fn entry(&self, symbol: u32) -> Option<u64> {
        let number = self.numbers.get(symbol as usize)?.checked_sub(1)?;
        Some(self.address + u64::from(number) * ENTRY)
    }
}

/// Makes `lea f(%rip), %reg` of `mov f@GOTPCREL(%rip), %reg` where the object lets linkers do so and `f` is near, as
/// JITLink does (`optimizeGOTAndStubAccesses` in x86_64.cpp). Returns whether it has; `offset` is that of the field.
pub(super) fn relax(kind: &Kind, contents: &mut [u8], offset: usize, at: u64, target: u64) -> bool {
    const LOAD: u8 = 0x8b;
    const LEA: u8 = 0x8d;
    let opcode = offset.checked_sub(2).and_then(|opcode| contents.get_mut(opcode));
    let Some(opcode) = opcode.filter(|opcode| matches!(kind.number, GOTPCRELX | REX_GOTPCRELX) && **opcode == LOAD)
    else {
        return false;
    };
    // JITLink asks for the one, and writes the other: see `relaxesTooFar` in passes.cpp.
    let distance = target.wrapping_sub(at) as i64;
    let fits = |distance: i64| i32::try_from(distance).is_ok();
    let is_near = fits(distance.saturating_add(4)) && fits(distance.saturating_sub(4));
    if is_near {
        *opcode = LEA;
    }
    is_near
}
