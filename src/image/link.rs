//! The link of an image.

use std::path::PathBuf;

use super::arrays::Arrays;
use super::dynamic::Tables;
use super::file::{HEADERS, NOTES};
use super::frames::Frames;
use super::input::Input;
use super::layout::{Layout, Parts};
use super::machine::Machine;
use super::providers::Providers;
use super::scan::Scan;
use super::symbols::{Symbols, discard_groups};
use super::write::Writer;
use crate::ImageError;
use crate::{Error, Result};

/// Distances in an image have 32 bits.
const MOST: u64 = 1 << 31;

/// Links objects into a shared object, which needs these shared libraries.
pub(super) fn link(
    mut inputs: Vec<Input>,
    libraries: &[PathBuf],
    soname: Option<&str>,
    machine: u16,
) -> Result<Vec<u8>> {
    if inputs.is_empty() {
        return Err(Error::Image(ImageError::Empty));
    }
    discard_groups(&mut inputs);
    let inputs = &inputs[..];
    let machine = Machine::of(machine);
    let symbols = Symbols::resolve(inputs)?;
    let frames = Frames::collect(inputs, &symbols);
    let arrays = Arrays::collect(inputs, symbols.finaliser);
    let tables_of: Vec<_> = inputs.iter().map(Input::tables).collect();
    let scan = Scan::new((inputs, &tables_of), &symbols, &frames, &arrays)?;
    let imports: Vec<&str> = scan.imports().map(|id| symbols.globals.get(id as usize).map_or("", |g| g.name)).collect();
    let providers = Providers::find_all(machine.number, libraries, &imports)?;
    let tables = Tables::new(&symbols, &scan, &providers, soname);
    let lists = (!arrays.initialisers.is_empty(), !arrays.finalisers.is_empty());
    let sizes = tables.sizes(lists, NOTES);
    let (symbols, scan, frames, arrays) = (&symbols, &scan, &frames, &arrays);
    let parts = Parts { inputs, tables: &tables_of, symbols, scan, frames, arrays, sizes, machine, headers: HEADERS };
    let too_large = |bytes| Error::Image(ImageError::TooLarge { bytes });
    let layout = Layout::new(&parts).ok_or_else(|| too_large(u64::MAX))?;
    let end = layout.segments.iter().map(|segment| segment.address.saturating_add(segment.memory_bytes)).max();
    if end.is_some_and(|end| end >= MOST) {
        return Err(too_large(end.unwrap_or(u64::MAX)));
    }
    Writer::new(&parts, &layout, &tables).write()
}
