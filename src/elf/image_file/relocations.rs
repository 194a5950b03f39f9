//! The checks of relocations by the loader, and of references between segments.

use std::ops::Range;

use super::headers::{File, Tables};
use super::index::{ImageIndex, ImageRelocation, RELR_WORD};
use super::unfit::Unfit;
use crate::elf::elf_abi::{LE, RELA_SIZE};
use crate::elf::index::{Name, ObjectIndex};
use crate::elf::relocations::DynamicKind;

const BAD_RELR: Unfit = Unfit::Malformed("its table of relative relocations cannot be read");
const OUTSIDE: Unfit = Unfit::Malformed("a relocation is of an unknown kind, or outside its segment");

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
    find_relr(file, image, tables)?;
    let (segment, statics) = (0..0, Vec::new());
    let mut checks =
        Checks { image, index, segment, count: 0, descriptors: 0, relocated: false, own_static: false, statics };
    checks.without_addends(file.bytes)?;
    let checked = image.relocations(file.machine, file.bytes, &mut checks, Checks::relative, Checks::other);
    let Checks { count, descriptors, relocated, own_static, statics, .. } = checks;
    if checked != Ok(true) || count != size / RELA_SIZE {
        return Err(OUTSIDE);
    }
    image.descriptors = descriptors;
    if own_static || relocated || !statics.is_empty() || descriptors != 0 {
        let own = index.thread_local.get_or_insert_default();
        (own.relocated, own.own_static) = (relocated, own_static);
        own.statics.extend(statics);
    }
    Ok(())
}

/// What is checked of relocations, one by one.
struct Checks<'a> {
    image: &'a ImageIndex,
    index: &'a ObjectIndex,
    /// The segment of the last one: most are in the same.
    segment: Range<u64>,
    /// The number of those with addends.
    count: u64,
    descriptors: usize,
    /// Whether they change the thread-local block, or want its distance from the thread pointer, and the names of
    /// variables of which they do.
    relocated: bool,
    own_static: bool,
    statics: Vec<Name>,
}

impl Checks<'_> {
    /// Checks those without addends. Their places ascend, so that they are no more than the words of the segments.
    fn without_addends(&mut self, bytes: &[u8]) -> Result<(), Unfit> {
        let mut free = 0;
        for at in self.image.relr_places(bytes) {
            if at < free {
                return Err(BAD_RELR);
            }
            if !self.place(at, 1) {
                return Err(OUTSIDE);
            }
            free = at.saturating_add(RELR_WORD);
        }
        Ok(())
    }

    /// Checks one that moves an address. What lies outside is among the references, too.
    fn relative(&mut self, at: u64, _: u64) -> bool {
        self.count += 1;
        self.place(at, 1)
    }

    fn other(&mut self, relocation: ImageRelocation) -> Result<(), ()> {
        self.count += 1;
        let ImageRelocation { at, kind, import, addend } = relocation;
        let symbol = match import {
            Some(import) => Some(self.index.imports.get(import as usize).ok_or(())?),
            None => None,
        };
        let is_variable = kind.is_of_variable();
        let agrees = match (kind, symbol) {
            (DynamicKind::Indirect, None) => self.image.segment_at(addend as u64).is_some(),
            (DynamicKind::Address | DynamicKind::Slot, Some(symbol)) => !symbol.thread_local,
            (_, Some(symbol)) => is_variable && symbol.thread_local,
            (_, None) => {
                let block = self.image.thread_local;
                is_variable && block.is_some_and(|(.., bytes)| (0..=bytes as i64).contains(&addend))
            }
        };
        agrees.then_some(()).ok_or(())?;
        if kind == DynamicKind::Distance {
            match symbol {
                Some(symbol) => self.statics.push(symbol.name),
                None => self.own_static = true,
            }
        }
        self.descriptors += usize::from(kind == DynamicKind::Descriptor);
        self.place(at, if kind == DynamicKind::Descriptor { 2 } else { 1 }).then_some(()).ok_or(())
    }

    /// Returns whether so many words are in a segment.
    fn place(&mut self, at: u64, words: u64) -> bool {
        if !self.segment.contains(&at) {
            self.segment = self.image.data_at(at);
        }
        let block = self.image.thread_local;
        self.relocated |= block.is_some_and(|(address, contents, _)| (address..address + contents).contains(&at));
        self.segment.contains(&at) && self.segment.end - at >= 8 * words
    }
}

/// Finds the table of relocations without addends, and checks its form.
fn find_relr(file: &File<'_>, image: &mut ImageIndex, tables: &Tables) -> Result<(), Unfit> {
    let (address, size) = tables.relr;
    if (size != 0) != image.note.has_relr {
        return Err(BAD_RELR);
    }
    if size == 0 {
        return Ok(());
    }
    image.relr = image.file_range(address, size)?;
    // A bitmap stands for words behind an address.
    let first = image.relr(file.bytes).and_then(|entries| entries.first());
    first.filter(|first| first.0.get(LE) & 1 == 0).map(drop).ok_or(BAD_RELR)
}
