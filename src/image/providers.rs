//! The shared libraries that provide an image's imports, and the versions of their symbols. A reference without a
//! version binds to the oldest, which may be another function (glibc's `pthread_cond_wait`).

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use hashbrown::{HashMap, HashSet};
use object::read::elf::{FileHeader, SectionHeader as _, Sym as _};
use object::{LittleEndian, elf};

use crate::elf::EM_AARCH64;
use crate::read::read_object;
use crate::{Error, ImageError, Result};

const LITTLE: LittleEndian = LittleEndian;

/// Libraries that compilers link programs with; an image needs them only where it has a name of theirs.
pub(super) const SYSTEM: [&str; 6] =
    ["libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6"];
/// Where systems have them, also for cross compilers.
const FOLDERS_X86_64: &[&str] =
    &["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib"];
const FOLDERS_AARCH64: &[&str] = &[
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/aarch64-linux-gnu/lib",
    "/usr/lib",
];

/// Returns the folders in which a machine's libraries are looked for.
pub(super) fn folders(machine: u16) -> &'static [&'static str] {
    if machine == EM_AARCH64 { FOLDERS_AARCH64 } else { FOLDERS_X86_64 }
}

/// The shared libraries of an image, in the order in which names are looked for.
#[derive(Debug, Default)]
pub(super) struct Providers {
    names: Vec<String>,
    /// The number of those that were given, and are needed whether they have a name or not.
    given: usize,
    /// Wanted names with the library that comes first, and the default version.
    found: HashMap<String, (usize, Option<String>)>,
}

impl Providers {
    /// Looks for names in shared libraries, and then in the system's.
    pub(super) fn find_all<'p>(
        machine: u16,
        given: impl IntoIterator<Item = &'p PathBuf>,
        names: &[&str],
    ) -> Result<Self> {
        let mut providers = Self::default();
        let mut wanted: HashSet<&str> = names.iter().copied().collect();
        let folders = folders(machine);
        for path in given {
            let bytes = read_library(path, folders)?;
            let refused = |message| Error::Image(ImageError::NotASharedLibrary { path: path.clone(), message });
            let (name, exports) = read(&bytes, machine, &wanted).map_err(refused)?;
            providers.add(path, name, exports, &mut wanted);
        }
        providers.given = providers.names.len();
        for library in SYSTEM {
            if wanted.is_empty() {
                break;
            }
            for path in folders.iter().map(|folder| Path::new(folder).join(library)) {
                let bytes = match read_object(&path) {
                    Ok(bytes) => bytes,
                    Err(Error::Io { source, .. }) if is_absent(&source) => continue,
                    // Without it, imports would have no versions.
                    Err(error) => return Err(error),
                };
                if let Ok((name, exports)) = read(&bytes, machine, &wanted) {
                    providers.add(&path, name, exports, &mut wanted);
                    break;
                }
            }
        }
        Ok(providers)
    }

    fn add(&mut self, path: &Path, name: Option<String>, exports: Exports, wanted: &mut HashSet<&str>) {
        let number = self.names.len();
        for (export, version) in exports {
            wanted.remove(export.as_str());
            self.found.insert(export, (number, version));
        }
        let file = || path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        self.names.push(name.unwrap_or_else(file));
    }

    pub(super) fn libraries(&self) -> &[String] {
        &self.names
    }

    pub(super) fn is_always_needed(&self, library: usize) -> bool {
        library < self.given
    }

    /// Returns the first library that exports a name, and the version there.
    pub(super) fn find(&self, name: &str) -> Option<(usize, Option<&str>)> {
        let (library, version) = self.found.get(name)?;
        Some((*library, version.as_deref()))
    }
}

/// Returns whether a file cannot be read now and later.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied)
}

/// Reads a shared library that was given: a name that is no file here is one of the system's, as for `dlopen`.
fn read_library(path: &Path, folders: &[&str]) -> Result<Vec<u8>> {
    let is_name = path.components().nth(1).is_none() && !path.exists();
    let found = || folders.iter().find_map(|folder| read_object(&Path::new(folder).join(path)).ok());
    is_name.then(found).flatten().map_or_else(|| read_object(path), Ok)
}

/// Names and default versions.
type Exports = Vec<(String, Option<String>)>;

/// Returns a shared library's name, and those of the wanted names that it exports.
fn read(file: &[u8], machine: u16, wanted: &HashSet<&str>) -> Result<(Option<String>, Exports), String> {
    let text = |error: object::Error| error.to_string();
    let header = elf::FileHeader64::<LittleEndian>::parse(file).map_err(text)?;
    let is_little = header.is_little_endian();
    if !is_little || header.e_type(LITTLE) != elf::ET_DYN || header.e_machine(LITTLE).0 != machine {
        return Err("it is another kind of file, or for another machine".to_owned());
    }
    let sections = header.sections(LITTLE, file).map_err(text)?;
    let versions = sections.versions(LITTLE, file).map_err(text)?;
    let table = sections.symbols(LITTLE, file, elf::SHT_DYNSYM).map_err(text)?;
    let mut exports = Vec::new();
    for (index, symbol) in table.enumerate() {
        if symbol.is_undefined(LITTLE) || symbol.st_bind() == elf::STB_LOCAL {
            continue;
        }
        let Ok(name) = std::str::from_utf8(symbol.name(LITTLE, table.strings()).map_err(text)?) else { continue };
        if !wanted.contains(name) {
            continue;
        }
        let mut version = None;
        if let Some(versions) = &versions {
            let of = versions.version_index(LITTLE, index);
            // A hidden one is found by its version only.
            if of.is_hidden() {
                continue;
            }
            let found = versions.version(of.index()).map_err(text)?;
            version = found.map(|version| String::from_utf8_lossy(version.name()).into_owned());
        }
        exports.push((name.to_owned(), version));
    }
    let mut soname = None;
    for section in sections.iter() {
        let Some((entries, link)) = section.dynamic(LITTLE, file).map_err(text)? else { continue };
        let strings = sections.strings(LITTLE, file, link).map_err(text)?;
        let entry = entries.iter().find(|entry| entry.d_tag.get(LITTLE) == elf::DT_SONAME);
        let name = entry.and_then(|entry| strings.get(u32::try_from(entry.d_val.get(LITTLE)).ok()?).ok());
        soname = name.map(|name| String::from_utf8_lossy(name).into_owned());
    }
    Ok((soname, exports))
}
