//! Debug information of an image (DWARF), for debuggers: the objects' sections one behind the other, not mapped.
//!
//! It is not validated as what is linked: a field that leads nowhere stays as the object has it.

use hashbrown::HashMap;

use super::input::{Field, Input};
use super::symbols::Target;
use super::write::Writer;
use crate::elf::link_tables::LinkTables;
use crate::elf::relocations::{Operation, Tls};

/// A section of debug information.
pub(super) struct DebugSection<'a> {
    pub(super) name: &'a str,
    pub(super) bytes: Vec<u8>,
}

/// Where sections of objects are: the number of the whole, and the offset there.
type Places = HashMap<(u32, u32), (usize, u64)>;

impl<'a> Writer<'_, 'a> {
    /// Joins and relocates the objects' debug information.
    pub(super) fn debug_sections(&self) -> Vec<DebugSection<'a>> {
        let (mut all, mut places) = (Vec::<DebugSection<'a>>::new(), Places::new());
        let mut numbers = HashMap::<&str, usize>::new();
        let inputs: &'a [Input] = self.parts.inputs;
        for (object, input) in (0..).zip(inputs) {
            for section in (0..input.index.sections.len() as u32).filter(|section| input.is_debug(*section)) {
                let name = input.index.section_name(section);
                let number = *numbers.entry(name).or_insert(all.len());
                if number == all.len() {
                    all.push(DebugSection { name, bytes: Vec::new() });
                }
                let Some(whole) = all.get_mut(number) else { continue };
                let alignment = input.section(section).map_or(1, |section| section.alignment.clamp(1, 16)) as usize;
                whole.bytes.resize(whole.bytes.len().next_multiple_of(alignment), 0);
                places.insert((object, section), (number, whole.bytes.len() as u64));
                whole.bytes.extend_from_slice(input.contents(section));
            }
        }
        let mut in_order: Vec<_> = places.iter().map(|(of, place)| (*of, *place)).collect();
        in_order.sort_unstable();
        for ((object, section), (number, start)) in in_order {
            let (Some(input), Some(tables)) = (inputs.get(object as usize), self.parts.tables_of(object)) else {
                continue;
            };
            let Some(DebugSection { name, bytes }) = all.get_mut(number) else { continue };
            // An end of a list is a pair of zeros there.
            let nowhere = i64::from(matches!(*name, ".debug_ranges" | ".debug_loc"));
            for field in input.fields(tables, section) {
                let value = self.debug_value((object, input), tables, &field, &places).unwrap_or(nowhere);
                let at = usize::try_from(start.saturating_add(field.offset)).unwrap_or(usize::MAX);
                if let Some(bytes) = bytes.get_mut(at..) {
                    // What does not fit stays.
                    let _ = field.kind.encode(bytes, value);
                }
            }
        }
        all
    }

    /// Returns the value of a field; `None` if its target is not in the image.
    fn debug_value(
        &self,
        object: (u32, &'a Input),
        tables: &LinkTables<'a>,
        field: &Field,
        places: &Places,
    ) -> Option<i64> {
        let referred = self.parts.symbols.referred(object, tables, field);
        let address = match referred.target {
            Target::Section { object, section, value } => match places.get(&(object, section)) {
                Some((_, start)) => start.wrapping_add(value),
                None if field.kind.operation == Operation::ThreadLocal(Tls::InBlock) => {
                    self.in_block(referred.target)?
                }
                None => self.layout.section(object, section, value)?,
            },
            Target::Import(_) | Target::Absolute(_) => return None,
            other => self.layout.address(other, self.parts)?,
        };
        Some((address as i64).wrapping_add(referred.addend))
    }
}
