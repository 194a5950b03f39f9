//! The rules by which a frame's registers are restored: instructions of unwind tables (DWARF 5, 6.4.2).

use super::expression;
use super::frame_table::Entry;
use super::readable::Readable;
use super::reader::Reader;
use super::registers::{COUNT, RETURN, Registers, STACK, without_signature};

/// The rule of a register in the calling frame.
#[derive(Debug, Clone, Copy)]
enum Rule<'a> {
    Same,
    Undefined,
    /// It is saved at this distance from the frame's address.
    Saved(i64),
    /// It is this far from the frame's address.
    Distance(i64),
    Register(usize),
    /// It is saved where the expression says.
    SavedAt(Reader<'a>),
    Value(Reader<'a>),
}

#[derive(Debug, Clone, Copy)]
enum FrameAddress<'a> {
    Unknown,
    Register(usize, i64),
    Value(Reader<'a>),
}

#[derive(Debug, Clone, Copy)]
struct Row<'a> {
    frame: FrameAddress<'a>,
    registers: [Rule<'a>; COUNT],
}

/// Rows that a function's table may remember at once.
const REMEMBERED: usize = 4;

/// Returns the registers of the calling frame. `Some(None)` where the table says that there is none.
pub(super) fn caller(
    entry: &Entry<'_>,
    address: usize,
    registers: &Registers,
    memory: &mut Readable,
) -> Option<Option<Registers>> {
    let row = row(entry, address)?;
    let frame = match row.frame {
        FrameAddress::Unknown => return None,
        FrameAddress::Register(number, offset) => registers.get(number)?.wrapping_add_signed(offset as isize),
        FrameAddress::Value(expression) => expression::value(expression, None, registers, memory)?,
    };
    let mut restored = *registers;
    for (number, rule) in row.registers.iter().enumerate() {
        let at = |offset: i64| frame.wrapping_add_signed(offset as isize);
        let value = match *rule {
            Rule::Same => continue,
            Rule::Undefined => None,
            Rule::Saved(offset) => memory.word(at(offset)),
            Rule::Distance(offset) => Some(at(offset)),
            Rule::Register(other) => registers.get(other),
            Rule::SavedAt(expression) => {
                expression::value(expression, Some(frame), registers, memory).and_then(|at| memory.word(at))
            }
            Rule::Value(expression) => expression::value(expression, Some(frame), registers, memory),
        };
        *restored.values.get_mut(number)? = value;
    }
    if matches!(row.registers.get(STACK)?, Rule::Same) {
        restored.values[STACK] = Some(frame);
    }
    if matches!(row.registers.get(entry.return_column)?, Rule::Undefined) {
        return Some(None);
    }
    restored.pc = without_signature(restored.get(entry.return_column)?);
    // x86-64 has no such register.
    if cfg!(target_arch = "x86_64") {
        restored.values[RETURN] = None;
    }
    Some(Some(restored))
}

/// Returns the rules at an address of the entry's function.
fn row<'a>(entry: &Entry<'a>, address: usize) -> Option<Row<'a>> {
    let mut row = Row { frame: FrameAddress::Unknown, registers: [Rule::Same; COUNT] };
    run(entry, entry.common, address, &mut row, None)?;
    let initial = row;
    run(entry, entry.own, address, &mut row, Some(&initial))?;
    Some(row)
}

/// Runs instructions up to those of a later address.
fn run<'a>(
    entry: &Entry<'a>,
    mut code: Reader<'a>,
    address: usize,
    row: &mut Row<'a>,
    initial: Option<&Row<'a>>,
) -> Option<()> {
    let mut remembered = [None; REMEMBERED];
    let mut depth = 0_usize;
    let mut place = entry.start;
    while !code.is_at_end() {
        let byte = code.u8()?;
        let low = usize::from(byte & 0x3f);
        let mut advance = None;
        match byte >> 6 {
            1 => advance = Some(low as u64),
            2 => {
                let offset = code.unsigned()? as i64;
                row.set(low, Rule::Saved(offset.wrapping_mul(entry.data_factor)));
            }
            3 => row.restore(low, initial),
            _ => match byte {
                // DW_CFA_nop
                0x00 => {}
                // DW_CFA_set_loc: compilers do not write it.
                0x01 => return None,
                // DW_CFA_advance_loc1, 2, 4
                0x02 => advance = Some(code.u8()?.into()),
                0x03 => advance = Some(code.u16()?.into()),
                0x04 => advance = Some(code.u32()?.into()),
                // DW_CFA_offset_extended, _sf, DW_CFA_val_offset, _sf
                0x05 | 0x11 | 0x14 | 0x15 => {
                    let number = code.unsigned()? as usize;
                    let signed = matches!(byte, 0x11 | 0x15);
                    let factored = if signed { code.signed()? } else { code.unsigned()? as i64 };
                    let offset = factored.wrapping_mul(entry.data_factor);
                    let is_value = matches!(byte, 0x14 | 0x15);
                    row.set(number, if is_value { Rule::Distance(offset) } else { Rule::Saved(offset) });
                }
                // DW_CFA_restore_extended, DW_CFA_undefined, DW_CFA_same_value, DW_CFA_register
                0x06 => row.restore(code.unsigned()? as usize, initial),
                0x07 => row.set(code.unsigned()? as usize, Rule::Undefined),
                0x08 => row.set(code.unsigned()? as usize, Rule::Same),
                0x09 => row.set(code.unsigned()? as usize, Rule::Register(code.unsigned()? as usize)),
                // DW_CFA_remember_state, DW_CFA_restore_state
                0x0a => {
                    *remembered.get_mut(depth)? = Some(*row);
                    depth += 1;
                }
                0x0b => {
                    depth = depth.checked_sub(1)?;
                    *row = (*remembered.get(depth)?)?;
                }
                // DW_CFA_def_cfa, _sf
                0x0c => row.frame = FrameAddress::Register(code.unsigned()? as usize, code.unsigned()? as i64),
                0x12 => {
                    let number = code.unsigned()? as usize;
                    row.frame = FrameAddress::Register(number, code.signed()?.wrapping_mul(entry.data_factor));
                }
                // DW_CFA_def_cfa_register, DW_CFA_def_cfa_offset, _sf
                0x0d | 0x0e | 0x13 => {
                    let FrameAddress::Register(number, offset) = row.frame else { return None };
                    row.frame = match byte {
                        0x0d => FrameAddress::Register(code.unsigned()? as usize, offset),
                        0x0e => FrameAddress::Register(number, code.unsigned()? as i64),
                        _ => FrameAddress::Register(number, code.signed()?.wrapping_mul(entry.data_factor)),
                    };
                }
                // DW_CFA_def_cfa_expression, DW_CFA_expression, DW_CFA_val_expression
                0x0f | 0x10 | 0x16 => {
                    let number = if byte == 0x0f { None } else { Some(code.unsigned()? as usize) };
                    let bytes = code.unsigned()? as usize;
                    let expression = code.take(bytes)?;
                    match number {
                        None => row.frame = FrameAddress::Value(expression),
                        Some(number) if byte == 0x10 => row.set(number, Rule::SavedAt(expression)),
                        Some(number) => row.set(number, Rule::Value(expression)),
                    }
                }
                // DW_CFA_AARCH64_negate_ra_state: addresses are always taken without their signature.
                0x2d => {}
                // DW_CFA_GNU_args_size
                0x2e => drop(code.unsigned()?),
                _ => return None,
            },
        }
        if let Some(distance) = advance {
            place = place.wrapping_add((distance.wrapping_mul(entry.code_factor)) as usize);
            if place > address {
                return Some(());
            }
        }
    }
    Some(())
}

impl<'a> Row<'a> {
    /// Registers that no address depends on are left out.
    fn set(&mut self, number: usize, rule: Rule<'a>) {
        if let Some(place) = self.registers.get_mut(number) {
            *place = rule;
        }
    }

    fn restore(&mut self, number: usize, initial: Option<&Self>) {
        let rule = initial.and_then(|row| row.registers.get(number)).copied().unwrap_or(Rule::Same);
        self.set(number, rule);
    }
}
