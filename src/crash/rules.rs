//! The rules by which a frame's registers are restored (DWARF 5, 6.4.2).

use gimli::{CfaRule, Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindExpression, UnwindTableRow};

use super::expression;
use super::frame_table::Entry;
use super::readable::Readable;
use super::registers::{RETURN, Registers, STACK, without_signature};

/// Registers that a function may have rules for: AArch64's, with those of vectors that functions save.
const RULES: usize = 64;
/// Rows that a function's table has at once: the current one, what it began with, and four that it remembers.
const ROWS: usize = 6;

/// Without memory of the heap: 12 KiB of the stack.
struct InPlace;

impl UnwindContextStorage<usize> for InPlace {
    type Rules = [(Register, RegisterRule<usize>); RULES];
    type Stack = [UnwindTableRow<usize, Self>; ROWS];
}

/// Returns the registers of the calling frame. `Some(None)` where the table says that there is none.
pub(super) fn caller(
    entry: &Entry<'_>,
    address: usize,
    registers: &Registers,
    memory: &Readable,
) -> Option<Option<Registers>> {
    let Entry { section, bases, function } = entry;
    let mut context = UnwindContext::<_, InPlace>::new_in();
    let row = function.unwind_info_for_address(section, bases, &mut context, address as u64).ok()?;
    let value = |expression: &UnwindExpression<usize>, first| {
        expression::value(expression.get(section).ok()?, first, registers, memory)
    };
    let frame = match row.cfa() {
        // Nothing has set it.
        rule if *rule == CfaRule::default() => return None,
        CfaRule::RegisterAndOffset { register, offset } => {
            registers.get(register.0.into())?.wrapping_add_signed(*offset as isize)
        }
        CfaRule::Expression(expression) => value(expression, None)?,
    };
    let mut restored = *registers;
    for (number, rule) in row.registers() {
        // Registers that no address depends on are left out.
        let Some(place) = restored.values.get_mut(usize::from(number.0)) else { continue };
        let at = |offset: i64| frame.wrapping_add_signed(offset as isize);
        *place = match rule {
            RegisterRule::SameValue => continue,
            RegisterRule::Undefined | RegisterRule::Architectural => None,
            RegisterRule::Offset(offset) => memory.word(at(*offset)),
            RegisterRule::ValOffset(offset) => Some(at(*offset)),
            RegisterRule::Register(other) => registers.get(other.0.into()),
            RegisterRule::Expression(expression) => value(expression, Some(frame)).and_then(|at| memory.word(at)),
            RegisterRule::ValExpression(expression) => value(expression, Some(frame)),
            RegisterRule::Constant(value) => Some(*value as usize),
        };
    }
    if matches!(row.register(Register(STACK as u16)), None | Some(RegisterRule::SameValue)) {
        restored.values[STACK] = Some(frame);
    }
    let column = function.cie().return_address_register();
    if matches!(row.register(column), Some(RegisterRule::Undefined)) {
        return Some(None);
    }
    restored.pc = without_signature(restored.get(column.0.into())?);
    // x86-64 has no such register.
    if cfg!(target_arch = "x86_64") {
        restored.values[RETURN] = None;
    }
    Some(Some(restored))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::frame_table::in_section;
    use crate::crash::registers::COUNT;

    const START: usize = 0x1000;

    /// A CIE and an FDE of a function at [`START`], with an instruction of each kind.
    fn table() -> Vec<u8> {
        // Version 1, "zRS", factors 1 and -8, return column 16 or 30, addresses of 8 bytes; DW_CFA_def_cfa 7 8, its
        // frame's register and the return address are saved, and 0 is as it was.
        let column = RETURN as u8;
        let common =
            [0, 0, 0, 0, 1, b'z', b'R', b'S', 0, 1, 0x78, column, 1, 0, 0x0c, 7, 8, 0x80 | column, 1, 0x08, 0, 0, 0, 0];
        let mut own = vec![common.len() as u8 + 8, 0, 0, 0];
        own.extend(START.to_le_bytes());
        own.extend([0, 1, 0, 0, 0, 0, 0, 0, 0]);
        // To 1: remembered; offset 16; register 3 is saved, 5 is 6, 2 is undefined, 1 is 8 from the frame.
        own.extend([0x41, 0x0a, 0x0e, 16, 0x83, 2, 0x09, 5, 6, 0x07, 2, 0x14, 1, 1]);
        // To 2: 4 by an expression, 8 at an expression, and the frame by a third; 9 and 10 signed.
        own.extend([0x41, 0x16, 4, 2, 0x23, 8, 0x10, 8, 2, 0x23, 0, 0x0f, 2, 0x77, 8, 0x11, 9, 1, 0x15, 10, 0x7f]);
        // To 3 and 4: as remembered; 3 as at first, the frame by another register.
        own.extend([0x02, 1, 0x0b, 0xc3, 0x06, 2, 0x0d, 7, 0x13, 0x7e, 0x03, 1, 0, 0x2d, 0x2e, 4, 0x05, 12, 1]);
        own.resize(own.len().next_multiple_of(4), 0);
        let mut table = vec![common.len() as u8, 0, 0, 0];
        table.extend(common);
        table.push(own.len() as u8);
        table.extend([0; 3]);
        table.extend(own);
        table.extend([0; 8]);
        table
    }

    fn caller_by(table: &[u8], address: usize, registers: &Registers) -> Option<Option<Registers>> {
        let memory = Readable::default();
        let entry = in_section(table.as_ptr().expose_provenance(), address, &memory)?;
        caller(&entry, address, registers, &memory)
    }

    fn registers(stack: &[usize]) -> Registers {
        let mut registers = Registers { pc: START, values: [None; COUNT] };
        (0..COUNT).for_each(|number| registers.values[number] = Some(100 + number));
        registers.values[7] = Some(stack.as_ptr().expose_provenance());
        registers
    }

    #[test]
    fn each_row_has_its_rules() {
        let stack: [usize; 8] = std::array::from_fn(|n| 1000 + n);
        let (table, registers) = (table(), registers(&stack));
        let at = |offset: usize| caller_by(&table, START + offset, &registers).unwrap().unwrap();
        let word = |n: usize| Some((&raw const stack[n]).addr());
        let of = |offset: usize, numbers: &[usize]| numbers.iter().map(|n| at(offset).get(*n)).collect::<Vec<_>>();
        // The return address is in the word below the frame.
        assert_eq!([0, 1, 2, 3, 4].map(|offset| at(offset).pc), [1000, 1001, 1000, 1001, 1001]);
        assert_eq!(of(0, &[0, 3, STACK]), [Some(100), Some(103), word(1)]);
        assert_eq!(of(1, &[1, 2, 3, 5, STACK]), [word(1), None, Some(1000), Some(106), word(2)]);
        assert_eq!(of(2, &[4, 8, 9, 10]), [word(2), Some(1001), Some(1000), word(2)]);
        assert_eq!(of(3, &[1, 2, 3, 5, STACK]), [Some(101), Some(102), Some(103), Some(105), word(2)]);
        assert!(
            caller_by(&table, START - 1, &registers).is_none() && caller_by(&table, START + 256, &registers).is_none()
        );
    }

    #[test]
    fn damaged_tables_are_survived() {
        let stack = [0; 8];
        let (mut table, registers) = (table(), registers(&stack));
        for place in 0..table.len() {
            let before = table[place];
            for byte in 0..=255 {
                table[place] = byte;
                let _ = caller_by(&table, START + 4, &registers);
            }
            table[place] = before;
        }
    }
}
