//! What images depend on beside their objects.

use std::path::Path;
use std::sync::OnceLock;

use object::elf::{FileHeader64, NT_GNU_BUILD_ID};
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use super::providers::{SYSTEM, folders};
use crate::elf::HOST_MACHINE;
use crate::elf::image_note::FORMAT;
use crate::fork_guard;
use crate::read::{read_object, read_start};

const LITTLE: object::LittleEndian = object::LittleEndian;

/// Bytes of a library in which its headers and notes are.
const HEADERS: u64 = 4096;

/// What all images of this process depend on, beside their objects. The page size is not among it: the layout has the
/// largest of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageIdentity {
    /// The format that the loader reads.
    pub(crate) format: u32,
    /// The version of this crate, whose link may differ from another's.
    pub(crate) version: &'static str,
    pub(crate) machine: u16,
    /// The system's libraries, which give imports their versions.
    pub(crate) libraries: blake3::Hash,
}

impl ImageIdentity {
    pub(crate) fn current() -> Self {
        static LIBRARIES: OnceLock<blake3::Hash> = OnceLock::new();
        let libraries = *fork_guard::once(&LIBRARIES, || of_libraries(folders(HOST_MACHINE), HOST_MACHINE));
        Self { format: FORMAT, version: env!("CARGO_PKG_VERSION"), machine: HOST_MACHINE, libraries }
    }

    pub(crate) fn hash(&self) -> blake3::Hash {
        let Self { format, version, machine, libraries } = self;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&format.to_le_bytes()).update(&machine.to_le_bytes()).update(libraries.as_bytes());
        hasher.update(version.as_bytes()).finalize()
    }
}

/// Identifies the libraries that a link would find in these folders.
fn of_libraries(folders: &[&str], machine: u16) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for library in SYSTEM {
        let found = folders.iter().find_map(|folder| of_library(&Path::new(folder).join(library), machine));
        hasher.update(&found.map_or([0; 32], |hash| *hash.as_bytes()));
    }
    hasher.finalize()
}

/// Identifies a library of this machine by its build ID; one without by its contents.
fn of_library(path: &Path, machine: u16) -> Option<blake3::Hash> {
    let start = read_start(path, HEADERS).ok()?;
    let header = FileHeader64::<object::LittleEndian>::parse(start.as_slice()).ok()?;
    if header.e_machine(LITTLE).0 != machine {
        return None;
    }
    let segments = header.program_headers(LITTLE, start.as_slice()).unwrap_or_default();
    let notes = segments.iter().filter_map(|segment| segment.notes(LITTLE, start.as_slice()).ok().flatten());
    let mut notes = notes.flat_map(|mut notes| std::iter::from_fn(move || notes.next().ok().flatten()));
    let id = notes.find(|note| note.name() == b"GNU" && note.n_type(LITTLE) == NT_GNU_BUILD_ID);
    match id {
        Some(id) => Some(blake3::hash(id.desc())),
        None => Some(blake3::hash(&read_object(path).ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::testing;

    #[test]
    fn everything_counts() {
        let identity = ImageIdentity::current();
        assert_eq!(identity.hash(), ImageIdentity::current().hash());
        let others = [
            ImageIdentity { format: identity.format + 1, ..identity.clone() },
            ImageIdentity { version: "0.0.0", ..identity.clone() },
            ImageIdentity { machine: 0, ..identity.clone() },
            ImageIdentity { libraries: blake3::hash(b"others"), ..identity.clone() },
        ];
        for other in others {
            assert_ne!(identity.hash(), other.hash(), "{other:?}");
        }
    }

    #[test]
    fn libraries_count_by_their_builds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(SYSTEM[0]);
        let of = || of_libraries(&["/nonexistent", folder.path().to_str().unwrap()], crate::elf::EM_X86_64);
        let library = |flags: &[&str], source: &str| {
            let gcc = if cfg!(target_arch = "x86_64") { "gcc" } else { "x86_64-linux-gnu-gcc" };
            testing::build(gcc, &[&["-shared", "-fPIC", "-nostdlib"], flags].concat(), "c", source)
        };
        let mut seen = vec![of()];
        let mut is_new = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let is_new = !seen.contains(&of());
            seen.push(of());
            is_new
        };
        let with_id = library(&["-Wl,--build-id"], "int f(void) { return 1; }");
        assert!(is_new(&with_id));
        assert!(!is_new(&[&with_id[..], b"its build ID is the same"].concat()));
        assert!(is_new(&library(&["-Wl,--build-id"], "int f(void) { return 2; }")));
        let without = library(&["-Wl,--build-id=none"], "int f(void) { return 1; }");
        assert!(is_new(&without));
        assert!(is_new(&[&without[..], b"contents"].concat()));
        // Of another machine, or no library: as if it was not there.
        let mut foreign = with_id;
        foreign[18] = 183;
        assert!(!is_new(&foreign) && !is_new(b"#!/bin/sh"));
        // The system has them.
        let none = of_libraries(&[], HOST_MACHINE);
        assert_ne!(of_libraries(folders(HOST_MACHINE), HOST_MACHINE), none);
    }
}
