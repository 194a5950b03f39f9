//! The names of an object's functions, for debuggers.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::image_names::ImageNames;
use super::jit_interface::debugger_waits;
use super::names_file::{NamesFile, Piece, region_bits};
use crate::elf::image_file::ImageIndex;
use crate::fork_guard::Mutex;
use crate::functions::{Function, FunctionSlice};
use crate::read::LastingFile;

/// Files of all engines.
static FILES: LazyLock<Mutex<Files>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Files {
    /// There is one for each region of the address space with functions.
    by_region: HashMap<u32, NamesFile>,
    /// Those that a debugger is told of by [`announce`].
    changed: Vec<u32>,
    /// Those that are to be settled before anything is added, as something was removed from them.
    stale: Vec<u32>,
}

/// Whether [`announce`] has anything to tell.
static UNTOLD: AtomicBool = AtomicBool::new(false);

impl Files {
    /// Adds functions of one region. A debugger stops the program when it is told: that waits for the end of a batch.
    fn add(&mut self, region: u32, functions: &[Function<'_>]) -> Option<Piece> {
        let bytes = functions.iter().map(|function| function.name.len() + 1).sum();
        let file =
            self.by_region.entry(region).or_insert_with(|| NamesFile::new(region as usize, functions.len(), bytes));
        let piece = file.add(functions);
        if debugger_waits() {
            self.tell_later(region);
        } else {
            file.tell();
        }
        piece
    }

    fn tell_later(&mut self, region: u32) {
        if self.changed.last() != Some(&region) {
            self.changed.push(region);
            UNTOLD.store(true, Relaxed);
        }
    }

    fn remove(&mut self, piece: &Piece) {
        if debugger_waits() {
            self.tell_later(piece.region);
        }
        let Some(file) = self.by_region.get_mut(&piece.region) else { return };
        let was_settled = file.is_settled();
        if !file.remove(*piece) {
            self.by_region.remove(&piece.region);
        } else if was_settled {
            self.stale.push(piece.region);
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
    /// Of an image that fills a region: a file of its own.
    Own(#[allow(dead_code, reason = "debuggers read it")] Box<ImageNames>),
}

impl Names {
    /// Adds functions. Debuggers that are attached see them after [`announce`] at the latest.
    pub(crate) fn add(functions: FunctionSlice<'_, '_>) -> Self {
        match functions {
            FunctionSlice::Listed(functions) => Self::add_listed(functions),
            FunctionSlice::Image(_) => Self::add_listed(&functions.iter().collect::<SmallVec<[_; 4]>>()),
        }
    }

    /// Adds those of an image, whose code lies so far from where its file says. `file`: its bytes, if they can be
    /// mapped.
    pub(crate) fn of_image(image: &ImageIndex, bytes: &[u8], file: Option<&LastingFile>, distance: u64) -> Self {
        let functions = image.functions(bytes).moved(distance);
        let Some(code) = image.code().filter(|_| functions.len() != 0) else { return Self::default() };
        let start = code.address.wrapping_add(distance);
        let code = start..start + code.bytes;
        // An image's code is one run of addresses: in the first region others lie before it, in the last one behind it,
        // and none lies in between. Sections of files do not overlap.
        if ((code.end - 1) >> region_bits()) - (code.start >> region_bits()) < 2 {
            return Self::add(FunctionSlice::Image(functions));
        }
        // The section of a file from which an object was removed may still reach into this code.
        FILES.lock().settle();
        Self(Pieces::Own(Box::new(ImageNames::new(image, bytes, file, &code))))
    }

    /// Removes those of several objects.
    pub(crate) fn remove_all<'a>(all: impl Iterator<Item = &'a mut Self>) {
        let mut all = all.filter(|names| !names.0.shared().is_empty()).peekable();
        if all.peek().is_none() {
            return;
        }
        let mut files = FILES.lock();
        let mut run: Option<Piece> = None;
        for names in all {
            for piece in std::mem::take(&mut names.0).shared() {
                if !run.as_mut().is_some_and(|run| run.append(piece)) {
                    run.replace(*piece).into_iter().for_each(|run| files.remove(&run));
                }
            }
        }
        run.into_iter().for_each(|run| files.remove(&run));
    }

    /// Returns the file that it has of its own, as debuggers read it, and whether that is mapped.
    #[cfg(test)]
    pub(crate) fn own_file(&self) -> Option<(&[u8], bool)> {
        match &self.0 {
            Pieces::Own(names) => Some(names.shown()),
            _ => None,
        }
    }

    /// Returns how many files there are of regions in these addresses.
    #[cfg(test)]
    pub(crate) fn regions(addresses: &std::ops::Range<u64>) -> usize {
        let of = |region: &&u32| addresses.contains(&(u64::from(**region) << region_bits()));
        FILES.lock().by_region.keys().filter(of).count()
    }

    fn add_listed(functions: &[Function<'_>]) -> Self {
        let bits = region_bits();
        let region = |function: &Function<'_>| function.address as usize >> bits;
        let mut pieces: SmallVec<[Piece; 1]> = SmallVec::new();
        if functions.is_empty() {
            return Self::default();
        }
        let mut files = FILES.lock();
        files.settle();
        for functions in functions.chunk_by(|a, b| region(a) == region(b)) {
            // No address space of today has more regions.
            let Some(key) = functions.first().map(region).filter(|key| u32::try_from(*key).is_ok()) else { continue };
            pieces.extend(files.add(key as u32, functions));
        }
        Self(match *pieces {
            [] => Pieces::None,
            [piece] => Pieces::One(piece),
            _ => Pieces::Many(pieces.into_vec().into_boxed_slice()),
        })
    }
}

impl Pieces {
    /// Returns those in files of regions.
    fn shared(&self) -> &[Piece] {
        match self {
            Self::None | Self::Own(_) => &[],
            Self::One(piece) => std::slice::from_ref(piece),
            Self::Many(pieces) => pieces,
        }
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        if !self.0.shared().is_empty() {
            let mut files = FILES.lock();
            self.0.shared().iter().for_each(|piece| files.remove(piece));
        }
    }
}

/// Tells a debugger that is attached of what was added and removed since.
pub(crate) fn announce() {
    if !UNTOLD.load(Relaxed) {
        return;
    }
    let mut files = FILES.lock();
    UNTOLD.store(false, Relaxed);
    let Files { by_region, changed, .. } = &mut *files;
    changed.sort_unstable();
    changed.dedup();
    for region in changed.drain(..) {
        if let Some(file) = by_region.get_mut(&region) {
            file.tell();
        }
    }
}
