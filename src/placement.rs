//! The placement of an engine's arena.

use std::ops::Range;

use crate::memory::{ArenaConfig, Place};
use crate::runtime::{LoadedLibrary, loaded_libraries};
use crate::{Error, MemoryError, Result};

/// The requested placement of an engine's arena; see
/// [`JitEngineBuilder::arena_placement`](crate::JitEngineBuilder::arena_placement).
///
/// Calls reach everything from anywhere. A placement is for code that refers to other things of the process in 32 bits
/// because it was not compiled with `-fPIC`. The arena never takes the room that the heap and the main thread's stack
/// grow into, and never replaces what is mapped. [`JitEngine::arena`](crate::JitEngine::arena) says where it came to
/// lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ArenaPlacement {
    /// As [`NearLibraries`](Self::NearLibraries), if there is room for at least half of what
    /// [`arena_size`](crate::JitEngineBuilder::arena_size) says, and else as [`Anywhere`](Self::Anywhere), in its full
    /// size. Never an error: code that refers directly to data of libc, such as what a plain `gcc -c` makes of
    /// `stderr`, has it in its reach, or is told that it has not. On each side of the libraries 256 MiB stay free, for
    /// stacks of threads, malloc and libraries that are loaded later. So with the usual size there is room for one or
    /// two engines of a process, and the next ones lie anywhere.
    #[default]
    PreferNearLibraries,
    /// The kernel chooses the place.
    Anywhere,
    /// Every byte of the arena is within 2 GiB − 1 MiB of the address, so that signed 32-bit PC-relative references
    /// (`R_X86_64_PC32`, `R_AARCH64_PREL32`) reach it; as near as there is room.
    Near {
        /// The address; nothing needs to be there.
        address: usize,
    },
    /// Every byte of the arena is within 2 GiB − 1 MiB of every byte of all shared libraries that are loaded when the
    /// engine is built (`dl_iterate_phdr`): all but the executable and the vDSO. For code that refers directly to data
    /// of libc or libcuda. Load those libraries first; for libraries that are loaded later nothing is promised.
    NearLibraries,
    /// The whole arena is below 2 GiB − 1 MiB, so that absolute 32-bit references inside it, signed or not, are in
    /// range (`R_X86_64_32`, `R_X86_64_32S`, `R_AARCH64_ABS32`): code for the small code model of a position-dependent
    /// executable (`-fno-pic`). Data of libraries, and of an executable that is position-independent, are out of such
    /// code's reach then; so is the personality function that the frames of non-PIC C++ code name by its absolute
    /// address (compile it with `-fPIE`, or without exceptions).
    Low2GiB,
}

impl ArenaPlacement {
    /// Returns the placement in the terms of the memory module.
    pub(crate) fn place(self) -> Result<Option<Place>> {
        match self {
            Self::Anywhere => Ok(None),
            Self::Near { address } => {
                Ok(Some(Place::near(&(address..address), format!("within 2 GiB of {address:#x}"))))
            }
            Self::PreferNearLibraries => Ok(rather_near_all(&loaded_libraries())),
            Self::NearLibraries => near_all(&loaded_libraries()),
            Self::Low2GiB => Ok(Some(Place::low_2_gib())),
        }
    }
}

const NAME: &str = "within 2 GiB of the loaded libraries";

/// Returns the lowest and the highest library. glibc's dynamic loader is a library itself, so that there is one.
fn ends(libraries: &[LoadedLibrary]) -> Option<(&LoadedLibrary, &LoadedLibrary)> {
    let lowest = libraries.iter().min_by_key(|l| l.addresses.start)?;
    Some((lowest, libraries.iter().max_by_key(|l| l.addresses.end)?))
}

fn rather_near_all(libraries: &[LoadedLibrary]) -> Option<Place> {
    let (lowest, highest) = ends(libraries)?;
    Some(Place::rather_near(&(lowest.addresses.start..highest.addresses.end), NAME.to_owned()))
}

fn near_all(libraries: &[LoadedLibrary]) -> Result<Option<Place>> {
    // Without libraries, any place will do.
    let Some((lowest, highest)) = ends(libraries) else { return Ok(None) };
    let span: Range<usize> = lowest.addresses.start..highest.addresses.end;
    let place = Place::near(&span, NAME.to_owned());
    if place.window.len() < ArenaConfig::MIN {
        let (lowest, highest) = (lowest.name.clone(), highest.name.clone());
        return Err(Error::Memory(MemoryError::LibrariesApart { lowest, highest, span }));
    }
    Ok(Some(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(name: &str, addresses: Range<usize>) -> LoadedLibrary {
        LoadedLibrary { name: name.to_owned(), addresses }
    }

    #[test]
    fn libraries_too_far_apart_are_named() {
        let base = 0x7000_0000_0000;
        let near = library("near.so", base..base + 0x1000);
        let between = library("between.so", base + 0x10_0000..base + 0x10_1000);
        // The arena of the least size, 8 MiB, has to be within 2 GiB - 1 MiB of the end of the one and the start of the
        // other.
        let limit = 2 * ((2 << 30) - (1 << 20)) - (8 << 20);
        let far = |span| library("far.so", base + span - 0x1000..base + span);
        let place = near_all(&[between.clone(), far(limit), near.clone()]).unwrap().unwrap();
        assert_eq!(place.window.len(), 8 << 20);
        match near_all(&[between, far(limit + 1), near]).unwrap_err() {
            Error::Memory(MemoryError::LibrariesApart { lowest, highest, span }) => {
                assert_eq!((lowest.as_str(), highest.as_str()), ("near.so", "far.so"));
                assert_eq!(span, base..base + limit + 1);
            }
            other => panic!("{other}"),
        }
    }
}
