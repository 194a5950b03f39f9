//! The names of an object's functions, for debuggers.

use std::sync::LazyLock;

use hashbrown::HashMap;

use super::names_file::{NamesFile, Piece, region_bits};
use crate::fork_guard::Mutex;
use crate::functions::Function;

/// Files of all engines.
static FILES: LazyLock<Mutex<Files>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Files {
    /// There is one for each region of the address space with functions.
    by_region: HashMap<u32, NamesFile>,
    /// Those that debuggers were not told of.
    changed: Vec<u32>,
    /// Those from which something was removed since they were settled.
    stale: Vec<u32>,
}

impl Files {
    fn has_changed(&mut self, region: u32) {
        if self.changed.last() != Some(&region) {
            self.changed.push(region);
        }
    }

    /// Notes the bounds of what is left after removals.
    fn settle(&mut self) {
        for region in self.stale.drain(..) {
            if let Some(file) = self.by_region.get_mut(&region) {
                file.settle();
            }
        }
    }
}

/// An object's names, which debuggers have until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Names(Pieces);

#[derive(Debug, Default)]
enum Pieces {
    #[default]
    None,
    One(Piece),
    /// Of an object whose functions lie in several regions.
    Many(Box<[Piece]>),
    /// Of an object that fills a region: a file of its own.
    Own(#[allow(dead_code, reason = "debuggers read it")] Box<NamesFile>),
}

impl Names {
    /// Adds functions, which are sorted. `is_alone`: no other object's code lies between them. Debuggers that are
    /// attached see them after [`announce`] at the latest.
    pub(crate) fn add(functions: &[Function<'_>], is_alone: bool) -> Self {
        let bits = region_bits();
        let region = |function: &Function<'_>| function.address as usize >> bits;
        let mut pieces: Vec<Piece> = Vec::new();
        let (Some(first), Some(last)) = (functions.first().map(region), functions.last().map(region)) else {
            return Self::default();
        };
        let mut files = FILES.lock();
        files.settle();
        // In the first region others lie before them, in the last one behind them, and none lies in between: sections
        // of files do not overlap.
        if is_alone && last - first >= 2 {
            return Self(NamesFile::of(functions).map_or(Pieces::None, |file| Pieces::Own(Box::new(file))));
        }
        for functions in functions.chunk_by(|a, b| region(a) == region(b)) {
            // No address space of today has more regions.
            let Some(key) = functions.first().map(region).filter(|key| u32::try_from(*key).is_ok()) else { continue };
            let bytes = functions.iter().map(|function| function.name.len() + 1).sum();
            let new = || NamesFile::new(key, functions.len(), bytes);
            pieces.extend(files.by_region.entry(key as u32).or_insert_with(new).add(functions));
            files.has_changed(key as u32);
        }
        Self(match *pieces {
            [] => Pieces::None,
            [piece] => Pieces::One(piece),
            _ => Pieces::Many(pieces.into_boxed_slice()),
        })
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        let pieces = match &self.0 {
            Pieces::None | Pieces::Own(_) => return,
            Pieces::One(piece) => std::slice::from_ref(piece),
            Pieces::Many(pieces) => pieces,
        };
        let mut files = FILES.lock();
        for piece in pieces {
            files.has_changed(piece.region);
            if let Some(file) = files.by_region.get_mut(&piece.region) {
                if !file.remove(*piece) {
                    files.by_region.remove(&piece.region);
                } else if files.stale.last() != Some(&piece.region) {
                    files.stale.push(piece.region);
                }
            }
        }
    }
}

/// Tells debuggers that are attached of what was added and removed since.
pub(crate) fn announce() {
    let mut files = FILES.lock();
    files.settle();
    let Files { by_region, changed, .. } = &mut *files;
    changed.sort_unstable();
    changed.dedup();
    for region in changed.drain(..) {
        if let Some(file) = by_region.get_mut(&region) {
            file.tell();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_image_that_fills_a_region_has_a_file_of_its_own() {
        let region = 1_u64 << region_bits();
        let function = |address| Function { name: "f", address, bytes: 16 };
        // No other test has code there.
        let start = 1 << 46;
        let regions = || FILES.lock().by_region.len();
        let before = regions();
        for (addresses, is_alone, own, files) in [
            ([start + region - 1, start + 2 * region], true, true, 0),
            ([start + region - 1, start + 2 * region], false, false, 2),
            ([start + region - 1, start + region], true, false, 2),
            ([start, start + region - 1], true, false, 1),
        ] {
            let names = Names::add(&addresses.map(function), is_alone);
            assert_eq!(matches!(names.0, Pieces::Own(_)), own, "{addresses:x?}");
            assert_eq!(regions() - before, files, "{addresses:x?}");
            drop(names);
            assert_eq!(regions(), before);
        }
    }
}
