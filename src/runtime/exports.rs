//! Search for shared libraries that export a missing name, for messages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use object::elf::Machine;
use object::read::elf::ElfFile64;
use object::read::elf::Sym as _;
use object::{LittleEndian, ReadCache};

use super::{LoadedLibrary, SharedLibrary, loaded_libraries};

use crate::elf::HOST_MACHINE;

/// The largest number of files to read in a folder.
const MOST: usize = 4096;

/// Returns shared libraries in these folders, and among those that the process has loaded, that export one of these
/// names. Unreadable files are skipped.
pub(crate) fn exporters(names: &BTreeSet<&str>, folders: &[PathBuf]) -> BTreeMap<String, Vec<PathBuf>> {
    let (mut found, mut seen) = (BTreeMap::<String, Vec<PathBuf>>::new(), BTreeSet::new());
    let mut add = |path: PathBuf, exported: Vec<String>| {
        // Several links to one file are one library.
        if !exported.is_empty() && path.canonicalize().is_ok_and(|file| seen.insert(file)) {
            exported.into_iter().for_each(|name| found.entry(name).or_default().push(path.clone()));
        }
    };
    if names.is_empty() {
        return found;
    }
    for path in folders.iter().flat_map(|folder| shared_libraries(folder)) {
        let exported = exported(&path, names).unwrap_or_default();
        add(path, exported);
    }
    for library in loaded_libraries() {
        let exported = exported_by_loaded(&library, names).unwrap_or_default();
        add(library.name.into(), exported);
    }
    found
}

/// Returns the names that a loaded library exports, without reading or loading a file.
fn exported_by_loaded(library: &LoadedLibrary, names: &BTreeSet<&str>) -> Option<Vec<String>> {
    let open = SharedLibrary::open_loaded(Path::new(&library.name))?;
    // The loader also searches the library's dependencies.
    let is_its = |name: &&&str| open.symbol(name).is_some_and(|at| library.addresses.contains(&(at as usize)));
    Some(names.iter().filter(is_its).map(|name| (*name).to_owned()).collect())
}

/// Returns files with names of shared libraries, sorted.
fn shared_libraries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| is_named(path)).collect();
    paths.sort_unstable();
    paths.truncate(MOST);
    paths
}

/// Recognises `libx.so` and `libx.so.1`.
fn is_named(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".so") || name.contains(".so.")
}

/// Returns the names that the dynamic symbol table of a file defines.
fn exported(path: &Path, names: &BTreeSet<&str>) -> Option<Vec<String>> {
    // Opening a pipe would block.
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let file = ReadCache::new(File::open(path).ok()?);
    let elf = ElfFile64::<LittleEndian, _>::parse(&file).ok()?;
    if elf.elf_header().e_machine.get(LittleEndian) != Machine(HOST_MACHINE) {
        return None;
    }
    // Includes indirect functions and thread-local variables. Versions are in another table; any version of the name is
    // worth a mention.
    let table = elf.elf_dynamic_symbol_table();
    let defined = table.iter().filter(|symbol| symbol.st_shndx.get(LittleEndian) != object::elf::SHN_UNDEF);
    let visible = defined.filter(|symbol| symbol.st_bind() != object::elf::STB_LOCAL);
    let exported: BTreeSet<&[u8]> =
        visible.filter_map(|symbol| symbol.name(LittleEndian, table.strings()).ok()).collect();
    let wanted = names.iter().filter(|name| exported.contains(name.split('@').next().unwrap_or(name).as_bytes()));
    Some(wanted.map(|name| (*name).to_owned()).collect())
}
