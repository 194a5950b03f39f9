//! Expressions of unwind tables (DWARF 5, 2.5.1): procedure linkage tables and signal frames have some.

use gimli::{
    Encoding, Evaluation, EvaluationResult, EvaluationStorage, Expression, Format, Piece, Reader, UnitOffset, Value,
};

use super::readable::Readable;
use super::reader::Bytes;
use super::registers::Registers;

/// Values on the stack of an expression.
const DEPTH: usize = 8;
/// Operations: they may jump.
const MOST: u32 = 1000;
const ENCODING: Encoding = Encoding { format: Format::Dwarf32, version: 4, address_size: size_of::<usize>() as u8 };
/// Values have no type.
const NONE: UnitOffset = UnitOffset(0);

/// Without memory of the heap.
struct InPlace;

impl<R: Reader> EvaluationStorage<R> for InPlace {
    type Stack = [Value; DEPTH];
    type ExpressionStack = [(R, R); 0];
    type Result = [Piece<R>; 1];
}

/// Returns the value of an expression, which begins with `first` on its stack.
pub(super) fn value(
    expression: Expression<Bytes<'_>>,
    first: Option<usize>,
    registers: &Registers,
    memory: &Readable,
) -> Option<usize> {
    let mut evaluation = Evaluation::<_, InPlace>::new_in(expression.0, ENCODING);
    evaluation.set_max_iterations(MOST);
    if let Some(first) = first {
        evaluation.set_initial_value(first as u64);
    }
    let mut result = evaluation.evaluate();
    loop {
        result = match result.ok()? {
            EvaluationResult::Complete => return Some(evaluation.value_result()?.to_u64(u64::MAX).ok()? as usize),
            EvaluationResult::RequiresMemory { address, size: 8, space: None, base_type: NONE } => {
                evaluation.resume_with_memory(Value::Generic(memory.word(address as usize)? as u64))
            }
            EvaluationResult::RequiresRegister { register, base_type: NONE } => {
                evaluation.resume_with_register(Value::Generic(registers.get(register.0.into())? as u64))
            }
            EvaluationResult::RequiresRelocatedAddress(address) => evaluation.resume_with_relocated_address(address),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::registers::COUNT;

    fn value_of(code: &[u8], registers: &Registers) -> Option<usize> {
        let memory = Readable::default();
        let code = Bytes::from(code.as_ptr().expose_provenance(), &memory).split(code.len()).unwrap();
        value(Expression(code), None, registers, &memory)
    }

    #[test]
    fn the_expression_of_a_procedure_linkage_table() {
        // Binutils: DW_OP_breg7 (rsp) 8, DW_OP_breg16 (rip) 0, lit15, and, lit11, ge, lit3, shl, plus.
        let code = [0x77, 8, 0x70, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        for (address, more) in [(0x1000_usize, 0), (0x100a, 0), (0x100b, 8), (0x100f, 8)] {
            let mut registers = Registers { pc: 0, values: [None; COUNT] };
            (registers.values[7], registers.values[0]) = (Some(0x5000), Some(address));
            assert_eq!(value_of(&code, &registers), Some(0x5008 + more), "{address:#x}");
        }
        let registers = Registers { pc: 0, values: [None; COUNT] };
        // The last jumps to itself.
        for bad in [&[0x22][..], &[0x13], &[0x70, 0], &[0x31, 0x06], &[0xff], &[0x30; DEPTH + 1], &[0x2f, 0xfd, 0xff]] {
            assert_eq!(value_of(bad, &registers), None, "{bad:x?}");
        }
    }
}
