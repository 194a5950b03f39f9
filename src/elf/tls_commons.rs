//! Thread-local common variables (`__thread int x;` with GCC's `-fcommon`).
//!
//! JITLink would make ordinary variables of them. They get a section without contents, as from `ld`, and are common in
//! the index only.

use super::patch::{Patch, Value};
use super::plugin::{Mode, ObjectReport};
use super::report::ChangeKind;
use super::validate::{MAX_ALIGNMENT, symbol_table};
use crate::Result;
use crate::elf::elf_abi::{
    LE, SECTION_SIZE, SHF_ALLOC, SHF_TLS, SHF_WRITE, SHN_COMMON, SHN_LORESERVE, SHT_NOBITS, STB_LOCAL, STT_TLS,
    SYMBOL_SIZE, Symbol, field,
};
use crate::elf::elf_view::{View, lossy, string_at};

pub(crate) const NAME: &str = "commons";

/// The section's name; the harmonizer renames other sections with it.
const SECTION: &[u8] = b".tbss.slabjit\0";
/// The largest block that threads can get (`tls_image`).
const MOST: u64 = 1 << 40;

/// Returns whether a symbol table has such variables.
pub(crate) fn has_any(view: &View<'_>, table: u32) -> Result<bool> {
    let Some(header) = view.header(table).filter(|_| table != 0) else { return Ok(false) };
    let symbols = view.symbols(table, &header)?.unwrap_or_default();
    Ok(symbols.iter().any(|raw| raw.st_shndx.get(LE).0 == SHN_COMMON && is_common(&Symbol::decode(raw))))
}

fn is_common(symbol: &Symbol) -> bool {
    symbol.kind == STT_TLS && symbol.shndx == SHN_COMMON
}

/// Returns the change and the section's index; `None` also if such a variable is invalid, which validation reports.
pub(crate) fn prepare(view: &View<'_>, report: &mut ObjectReport) -> Result<Option<(Patch, u32)>> {
    let Ok(tables) = symbol_table(view, &mut ObjectReport::new(Mode::Load)) else { return Ok(None) };
    let commons = (0u64..).zip(tables.symbols).map(|(index, raw)| (index, Symbol::decode(raw)));
    let mut commons = commons.filter(|(_, symbol)| is_common(symbol)).peekable();
    let section = view.count();
    if commons.peek().is_none() || view.names_index == 0 || section >= u32::from(SHN_LORESERVE) - 1 {
        return Ok(None);
    }
    let mut patch = Patch::new(view.bytes.len());
    let table = view.header(tables.symtab).map_or(0, |header| header.offset);
    let (mut size, mut alignment) = (0_u64, 1);
    report.begin(NAME);
    for (index, symbol) in commons {
        let align = symbol.value.max(1);
        let sound = align.is_power_of_two() && align <= MAX_ALIGNMENT && symbol.size <= MOST && size <= MOST;
        if symbol.binding == STB_LOCAL || !sound {
            return Ok(None);
        }
        let offset = size.next_multiple_of(align);
        (size, alignment) = (offset + symbol.size, alignment.max(align));
        let at = table.saturating_add(index * SYMBOL_SIZE);
        patch.write(at + field::ST_SHNDX, Value::U16(section as u16));
        patch.write(at + field::ST_VALUE, Value::U64(offset));
        let name = lossy(string_at(tables.strings, symbol.name).unwrap_or_default()).into_owned();
        report.change(None, ChangeKind::Symbol { name, to: "given a place, as it is thread-local and common".into() });
    }
    let names = view.names();
    let Ok(name) = u32::try_from(names.len()) else { return Ok(None) };
    let strings = patch.begin();
    patch.extend(names);
    patch.extend(SECTION);

    // Existing contents must not move, so the table goes to the end.
    let count = u64::from(section);
    let headers = usize::try_from(view.table)
        .ok()
        .and_then(|start| view.bytes.get(start..)?.get(..(count * SECTION_SIZE) as usize));
    let Some(headers) = headers else { return Ok(None) };
    let mut headers = headers.to_vec();
    let mut put = |at: u64, value: u64| {
        if let Some(field) = headers.get_mut(at as usize..at as usize + 8) {
            field.copy_from_slice(&value.to_le_bytes());
        }
    };
    let of_names = u64::from(view.names_index) * SECTION_SIZE;
    put(of_names + field::SH_OFFSET, strings);
    put(of_names + field::SH_SIZE, (names.len() + SECTION.len()) as u64);
    let end = patch.begin();
    patch.extend(&headers);
    // Name and type are 32 bits each; then flags, address, offset, size, links, alignment, size of entries.
    patch.extend(&name.to_le_bytes());
    patch.extend(&SHT_NOBITS.to_le_bytes());
    for value in [SHF_ALLOC | SHF_WRITE | SHF_TLS, 0, end, size, 0, alignment, 0] {
        patch.extend(&value.to_le_bytes());
    }
    patch.write(field::E_SHOFF, Value::U64(end));
    patch.write(field::E_SHNUM, Value::U16(section as u16 + 1));
    Ok(Some((patch, section)))
}
