//! Expressions of unwind tables (DWARF 5, 2.5.1): procedure linkage tables and signal frames have some.

use super::readable::Readable;
use super::reader::Reader;
use super::registers::Registers;

/// Values on the stack of an expression.
const DEPTH: usize = 8;

struct Stack {
    values: [usize; DEPTH],
    len: usize,
}

impl Stack {
    fn push(&mut self, value: usize) -> Option<()> {
        *self.values.get_mut(self.len)? = value;
        self.len += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<usize> {
        self.len = self.len.checked_sub(1)?;
        self.values.get(self.len).copied()
    }
}

/// Returns the value of an expression, which begins with `first` on its stack.
pub(super) fn value(
    mut code: Reader<'_>,
    first: Option<usize>,
    registers: &Registers,
    memory: &mut Readable,
) -> Option<usize> {
    let mut stack = Stack { values: [0; DEPTH], len: 0 };
    if let Some(first) = first {
        stack.push(first)?;
    }
    while !code.is_at_end() {
        let operation = code.u8()?;
        let value = match operation {
            // DW_OP_addr, DW_OP_const8u, DW_OP_const8s
            0x03 | 0x0e | 0x0f => code.u64()? as usize,
            // DW_OP_deref
            0x06 => memory.word(stack.pop()?)?,
            // DW_OP_const1u … DW_OP_consts
            0x08 => code.u8()?.into(),
            0x09 => code.u8()?.cast_signed() as usize,
            0x0a => code.u16()?.into(),
            0x0b => code.u16()?.cast_signed() as usize,
            0x0c => code.u32()? as usize,
            0x0d => code.u32()?.cast_signed() as usize,
            0x10 => code.unsigned()? as usize,
            0x11 => code.signed()? as usize,
            // DW_OP_dup, DW_OP_drop
            0x12 => {
                let top = stack.pop()?;
                stack.push(top)?;
                top
            }
            0x13 => {
                stack.pop()?;
                continue;
            }
            // DW_OP_and, _minus, _mul, _or, _plus, _shl, _shr, _ge
            0x1a | 0x1c | 0x1e | 0x21 | 0x22 | 0x24 | 0x25 | 0x2a => {
                let (right, left) = (stack.pop()?, stack.pop()?);
                match operation {
                    0x1a => left & right,
                    0x1c => left.wrapping_sub(right),
                    0x1e => left.wrapping_mul(right),
                    0x21 => left | right,
                    0x22 => left.wrapping_add(right),
                    0x24 => left.checked_shl(right.try_into().ok()?).unwrap_or(0),
                    0x25 => left.checked_shr(right.try_into().ok()?).unwrap_or(0),
                    _ => usize::from(left.cast_signed() >= right.cast_signed()),
                }
            }
            // DW_OP_plus_uconst
            0x23 => stack.pop()?.wrapping_add(code.unsigned()? as usize),
            // DW_OP_lit0 …
            0x30..=0x4f => usize::from(operation - 0x30),
            // DW_OP_breg0 …, DW_OP_bregx
            0x70..=0x8f => {
                let register = registers.get(usize::from(operation - 0x70))?;
                register.wrapping_add_signed(code.signed()? as isize)
            }
            0x92 => {
                let register = registers.get(code.unsigned()? as usize)?;
                register.wrapping_add_signed(code.signed()? as isize)
            }
            // DW_OP_nop
            0x96 => continue,
            _ => return None,
        };
        stack.push(value)?;
    }
    stack.pop()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::registers::COUNT;

    #[test]
    fn the_expression_of_a_procedure_linkage_table() {
        // Binutils: DW_OP_breg7 (rsp) 8, DW_OP_breg16 (rip) 0, lit15, and, lit11, ge, lit3, shl, plus.
        let code = [0x77, 8, 0x70, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        for (address, more) in [(0x1000_usize, 0), (0x100a, 0), (0x100b, 8), (0x100f, 8)] {
            let mut registers = Registers { pc: 0, values: [None; COUNT] };
            (registers.values[7], registers.values[0]) = (Some(0x5000), Some(address));
            let value = value(Reader::new(&code, 0), None, &registers, &mut Readable::default());
            assert_eq!(value, Some(0x5008 + more), "{address:#x}");
        }
        let registers = Registers { pc: 0, values: [None; COUNT] };
        for bad in [&[0x22][..], &[0x13], &[0x70, 0], &[0x31, 0x06], &[0xff], &[0x30; DEPTH + 1]] {
            assert_eq!(value(Reader::new(bad, 0), None, &registers, &mut Readable::default()), None, "{bad:x?}");
        }
    }
}
