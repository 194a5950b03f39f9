//! Locating a byte of an object, for messages. It parses the object again, so that nothing has to be kept.

use object::read::elf::{ElfFile64, Sym as _};
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use crate::elf::elf_view::in_message;

/// A place in an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Location {
    /// The section's name.
    pub(crate) section: String,
    /// Offset in the section.
    pub(crate) offset: u64,
    /// The function, or other symbol, that covers it.
    pub(crate) function: Option<String>,
}

/// Returns the place of the byte at `offset` of the prepared bytes; `None` if it belongs to no section.
pub(crate) fn locate(bytes: &[u8], offset: u64) -> Option<Location> {
    let file: ElfFile64<'_> = ElfFile64::parse(bytes).ok()?;
    let (section, start) = file.sections().find_map(|section| {
        let (start, size) = section.file_range()?;
        (offset >= start && offset - start < size).then_some((section, start))
    })?;
    let offset = offset - start;
    // A symbol without a size reaches to the next one.
    let covers = |address: u64, size: u64| address <= offset && (size == 0 || offset - address < size);
    let symbols = file.symbols().filter(|s| s.section_index() == Some(section.index()));
    let named = symbols.filter(|s| matches!(s.kind(), SymbolKind::Text | SymbolKind::Data | SymbolKind::Unknown));
    // Reads the name of one symbol only, since names may be long.
    let around = named.filter(|s| s.elf_symbol().st_name(Endianness::Little) != 0 && covers(s.address(), s.size()));
    let function = around.max_by_key(|s| (s.address(), s.size() != 0, s.is_global()));
    Some(Location {
        section: section.name_bytes().map(in_message).unwrap_or_default(),
        offset,
        function: function.and_then(|s| Some(in_message(s.name_bytes().ok()?))),
    })
}
