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

/// The opcodes of `mov` and `lea`.
const LOAD: u8 = 0x8b;
const LEA: u8 = 0x8d;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::EM_X86_64;
    use crate::elf::relocations::Table;

    #[test]
    fn loads_are_relaxed_where_linkers_may_and_the_target_is_near() {
        let relaxed = |kind: u32, code: [u8; 3], distance: i64| {
            let (_, kind) = Table::of(EM_X86_64).get(kind).unwrap();
            let at = 1_u64 << 40;
            let mut code = [code[0], code[1], code[2], 0, 0, 0, 0];
            let relaxed = relax(kind, &mut code, 3, at, at.wrapping_add_signed(distance));
            assert_eq!(relaxed, code[1] == LEA);
            relaxed
        };
        let load = [0x48, LOAD, 0x05];
        let reach = 1 << 31;
        for distance in [0, 1000, -1000, reach - 5, 4 - reach] {
            assert!(relaxed(REX_GOTPCRELX, load, distance), "{distance:#x}");
        }
        for distance in [reach - 4, reach, 3 - reach, -reach, i64::MAX, i64::MIN] {
            assert!(!relaxed(REX_GOTPCRELX, load, distance), "{distance:#x}");
        }
        // `cmp f@GOTPCREL(%rip), %rax`, `call *f@GOTPCREL(%rip)`, and a load that must stay one.
        assert!(!relaxed(REX_GOTPCRELX, [0x48, 0x3b, 0x05], 0));
        assert!(!relaxed(GOTPCRELX, [0x90, 0xff, 0x15], 0));
        assert!(relaxed(GOTPCRELX, [0x90, LOAD, 0x05], 0));
        assert!(!relaxed(9, load, 0));
    }

    #[test]
    fn symbols_have_an_entry_each() {
        let mut got = Got { address: 0x1000, ..Got::default() };
        assert_eq!((got.symbols(), got.entry(0)), (&[][..], None));
        for symbol in [3, 1, 3, 2] {
            got.add(symbol, 4).unwrap();
        }
        assert_eq!(got.symbols(), [3, 1, 2]);
        assert_eq!([3, 1, 2, 0].map(|symbol| got.entry(symbol)), [Some(0x1000), Some(0x1008), Some(0x1010), None]);
        assert_eq!(got.add(4, 4), None);
    }
}
