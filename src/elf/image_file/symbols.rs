//! Names: of symbols that an image imports, and of libraries that it needs.

use object::pod;

use super::exports::{Exports, is_weak};
use super::headers::{File, Tables};
use super::index::{ExportTables, ImageIndex};
use super::names::Names;
use super::unfit::Unfit;
use crate::elf::elf_abi::{RawSymbol, SHN_UNDEF, STT_TLS, SYMBOL_SIZE, Symbol};
use crate::elf::gnu_hash::{GNU_HASH_HEADER, gnu_hash_size};
use crate::elf::index::{Import, Name, ObjectIndex, Visibility};

/// Reads the imports, and checks the definitions.
pub(super) fn read(
    file: &File<'_>,
    image: &mut ImageIndex,
    index: &mut ObjectIndex,
    tables: &Tables,
) -> Result<(), Unfit> {
    let at_strings = image.file_range(tables.strings.0, tables.strings.1)?;
    let strings = file.bytes.get(at_strings.clone()).unwrap_or_default();
    if !strings.ends_with(&[0]) {
        return Err(Unfit::Malformed("its names have no end"));
    }
    let bytes = image.note.symbols.checked_mul(SYMBOL_SIZE).ok_or(Unfit::TOO_SHORT)?;
    let at_symbols = image.file_range(tables.symbols, bytes)?;
    let symbols: &[RawSymbol] = pod::slice_from_all_bytes(file.bytes.get(at_symbols.clone()).unwrap_or_default())
        .map_err(|()| Unfit::TOO_SHORT)?;
    let mut names = Names::new(strings, symbols.len());
    for at in &tables.needed {
        let name = u32::try_from(*at).ok().and_then(|at| names.read(at));
        let name = name.ok_or(Unfit::Malformed("a library that it needs has no name"))?;
        image.needed.push(name.to_owned());
    }
    let bad = || Unfit::Malformed("a symbol has no name, or lies outside");
    for symbol in symbols.iter().map(Symbol::decode).skip(1).take(image.note.imports as usize) {
        let name = names.read(symbol.name).ok_or_else(bad)?;
        let weak = is_weak(symbol.binding).ok_or_else(bad)?;
        if symbol.shndx != SHN_UNDEF {
            return Err(bad());
        }
        let name = add_name(index, name);
        let visibility = Visibility::Default;
        index.imports.push(Import { name, weak, visibility, thread_local: symbol.kind == STT_TLS });
    }
    if index.imports.len() as u64 != image.note.imports {
        return Err(bad());
    }
    let header = image.file_range(tables.hashes, GNU_HASH_HEADER)?;
    let defined = symbols.len().saturating_sub(index.imports.len() + 1);
    let hashes = gnu_hash_size(file.bytes.get(header).unwrap_or_default(), defined).ok_or(Unfit::TOO_SHORT)?;
    let hashes = image.file_range(tables.hashes, hashes)?;
    image.export_tables = ExportTables { hashes, symbols: at_symbols, strings: at_strings };
    Exports::new(image, file.bytes, 0).check()?;
    if image.note.dso_handle != 0 {
        // The living half has one for each library.
        let name = add_name(index, "__dso_handle");
        image.dso_handle = Some(index.imports.len() as u32);
        let visibility = Visibility::Hidden;
        index.imports.push(Import { name, weak: false, visibility, thread_local: false });
    }
    Ok(())
}

fn add_name(index: &mut ObjectIndex, name: &str) -> Name {
    let start = index.names.len() as u32;
    index.names.push_str(name);
    index.names.push('\0');
    Name { start, len: name.len() as u32 }
}
