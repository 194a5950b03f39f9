//! The checks of relocations by the loader, and of references between segments.

use super::headers::{File, Tables};
use super::index::{ImageIndex, ImageRelocation, RELR_WORD};
use super::unfit::Unfit;
use crate::elf::elf_abi::{LE, RELA_SIZE};
use crate::elf::index::ObjectIndex;
use crate::elf::relocations::DynamicKind;

/// Checks the relocations by the loader, and counts what they want of thread-local storage.
pub(super) fn check(
    file: &File<'_>,
    image: &mut ImageIndex,
    index: &mut ObjectIndex,
    tables: &Tables,
) -> Result<(), Unfit> {
    let (address, size) = tables.relocations;
    if size != 0 {
        image.relocations = image.file_range(address, size)?;
    }
    if !size.is_multiple_of(RELA_SIZE) {
        return Err(Unfit::TOO_SHORT);
    }
    let without_addends = check_relr(file, image, tables)?;
    let bad = Unfit::Malformed("a relocation is of an unknown kind, or outside its segment");
    let (mut count, mut descriptors) = (0, 0);
    let mut statics = Vec::new();
    let (block, mut relocated, mut own_static) = (image.thread_local, false, false);
    for relocation in image.relocations(file.machine, file.bytes) {
        let ImageRelocation { at, kind, import, addend } = relocation;
        count += 1;
        let words = if kind == DynamicKind::Descriptor { 2 } else { 1 };
        let symbol = import.map(|import| index.imports.get(import as usize).ok_or_else(|| bad.clone())).transpose()?;
        let is_variable = kind.is_of_variable();
        let agrees = match (kind, symbol) {
            // What lies outside is among the references, too.
            (DynamicKind::Relative, None) => true,
            (DynamicKind::Indirect, None) => image.segment_at(addend as u64).is_some(),
            (DynamicKind::Address | DynamicKind::Slot, Some(symbol)) => !symbol.thread_local,
            (_, Some(symbol)) => is_variable && symbol.thread_local,
            (_, None) => is_variable && block.is_some_and(|(.., bytes)| (0..=bytes as i64).contains(&addend)),
        };
        if !agrees || !image.has(at, 8 * words, false) {
            return Err(bad);
        }
        descriptors += usize::from(words == 2);
        relocated |= block.is_some_and(|(address, contents, _)| (address..address + contents).contains(&at));
        if kind == DynamicKind::Distance {
            match symbol {
                Some(symbol) => statics.push(symbol.name),
                None => own_static = true,
            }
        }
    }
    if count != size / RELA_SIZE + without_addends {
        return Err(bad);
    }
    image.descriptors = descriptors;
    if own_static || relocated || !statics.is_empty() || descriptors != 0 {
        let own = index.thread_local.get_or_insert_default();
        (own.relocated, own.own_static) = (relocated, own_static);
        own.statics.extend(statics);
    }
    Ok(())
}

/// Checks the form of the table of relocations without addends; returns their number. Their places ascend, so that they
/// are no more than the words of the segments.
fn check_relr(file: &File<'_>, image: &mut ImageIndex, tables: &Tables) -> Result<u64, Unfit> {
    let (address, size) = tables.relr;
    let bad = Unfit::Malformed("its table of relative relocations cannot be read");
    if (size != 0) != image.note.has_relr {
        return Err(bad);
    }
    if size == 0 {
        return Ok(0);
    }
    image.relr = image.file_range(address, size)?;
    let entries = image.relr(file.bytes).ok_or_else(|| bad.clone())?;
    // A bitmap stands for words behind an address.
    if entries.first().is_none_or(|first| first.0.get(LE) & 1 != 0) {
        return Err(bad);
    }
    let (mut count, mut free) = (0, 0);
    for at in image.relr_places(file.bytes) {
        if at < free {
            return Err(bad);
        }
        count += 1;
        free = at.saturating_add(RELR_WORD);
    }
    Ok(count)
}
