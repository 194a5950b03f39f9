//! The table of relative relocations without addends (`DT_RELR`): an address, and bitmaps of the words behind it.

use super::frames::Frames;
use super::input::Input;
use super::layout::{Layout, Parts};
use super::scan::{Scan, Word};
use crate::elf::relocations::DynamicKind;

/// Bytes of an entry, and of a word that is relocated.
pub(super) const RELR_SIZE: u64 = 8;
/// Words that a bitmap stands for.
const BITS: u64 = 63;
/// A bitmap of no word: it fills what a table has no use for.
const NONE: u64 = 1;

/// Chooses the relocations that go into the table: relative ones of words that are aligned wherever they will lie, and
/// have contents, which hold the addend.
pub(super) fn choose(scan: &mut Scan, inputs: &[Input], frames: &Frames) {
    let is_aligned = |word| match word {
        Word::Section { object, section, offset } => {
            let section = inputs.get(object as usize).and_then(|input| input.section(section));
            let section = section.filter(|section| section.has_contents);
            section.is_some_and(|of| of.alignment.is_multiple_of(RELR_SIZE)) && offset.is_multiple_of(RELR_SIZE)
        }
        Word::Frame(record, offset) => {
            frames.records.get(record).is_some_and(|record| (record.offset + offset).is_multiple_of(RELR_SIZE))
        }
        Word::Slot(_) | Word::Resolved(_) | Word::Initialiser(_) | Word::Finaliser(_) => true,
    };
    for dynamic in scan.dynamic.iter_mut().filter(|dynamic| dynamic.kind == DynamicKind::Relative) {
        dynamic.is_relr = is_aligned(dynamic.word);
    }
}

/// Lays an image out, and again with more room for the table, until it suffices: it depends on addresses, and they on
/// it. Room is never taken back, so that this ends.
pub(super) fn lay_out(parts: &mut Parts<'_, '_>) -> Option<Layout> {
    loop {
        let layout = Layout::new(parts)?;
        let bytes = RELR_SIZE * entries(&places(&layout, parts)?).len() as u64;
        if bytes <= parts.sizes.relr {
            return Some(layout);
        }
        parts.sizes.relr = bytes;
    }
}

/// Returns the table, as long as the layout has it.
pub(super) fn table(layout: &Layout, parts: &Parts<'_, '_>) -> Option<Vec<u8>> {
    let mut entries = entries(&places(layout, parts)?);
    entries.resize((parts.sizes.relr / RELR_SIZE) as usize, NONE);
    Some(entries.into_iter().flat_map(u64::to_le_bytes).collect())
}

/// Returns the addresses of the words, in ascending order, each once.
fn places(layout: &Layout, parts: &Parts<'_, '_>) -> Option<Vec<u64>> {
    let words = parts.scan.dynamic.iter().filter(|dynamic| dynamic.is_relr).map(|dynamic| dynamic.word);
    let mut places: Vec<u64> = words.map(|word| layout.word(word, parts)).collect::<Option<_>>()?;
    places.sort_unstable();
    places.dedup();
    Some(places)
}

/// Returns the entries for addresses of words.
fn entries(places: &[u64]) -> Vec<u64> {
    let (mut entries, mut places) = (Vec::new(), places.iter().copied().peekable());
    while let Some(first) = places.next() {
        entries.push(first);
        let mut base = first + RELR_SIZE;
        loop {
            let mut bitmap = NONE;
            while let Some(at) = places.next_if(|at| at - base < BITS * RELR_SIZE) {
                bitmap |= 2 << ((at - base) / RELR_SIZE);
            }
            if bitmap == NONE {
                break;
            }
            entries.push(bitmap);
            base += BITS * RELR_SIZE;
        }
    }
    entries
}

#[cfg(test)]
mod tests;
