//! The shared libraries that provide an image's imports, and the versions of their symbols. A reference without a
//! version binds to the oldest, which may be another function (glibc's `pthread_cond_wait`).

use std::path::Path;

use hashbrown::HashMap;
use object::LittleEndian;
use object::elf;
use object::read::elf::{ElfFile64, FileHeader as _, SectionHeader as _, Sym as _};

use crate::ImageError;
use crate::elf::EM_AARCH64;
use crate::{Error, Result};

const LITTLE: LittleEndian = LittleEndian;

/// Libraries that compilers link programs with; an image needs them only where it has a name of theirs.
const SYSTEM: [&str; 6] =
    ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"];
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

/// The shared libraries of an image, in the order in which names are looked for.
#[derive(Debug, Default)]
pub(super) struct Providers {
    names: Vec<String>,
    is_always_needed: Vec<bool>,
    /// Exported names with the library that comes first, and the default version.
    exports: HashMap<Vec<u8>, (usize, Option<String>)>,
}

impl Providers {
    /// Reads a shared library. `is_needed`: it is loaded even if the image has no name of it.
    pub(super) fn add(&mut self, path: &Path, bytes: &[u8], machine: u16, is_needed: bool) -> Result<()> {
        let refused = |message: String| Error::Image(ImageError::NotASharedLibrary { path: path.into(), message });
        let (name, exports) = read(bytes, machine).map_err(refused)?;
        let name = name.or_else(|| Some(path.file_name()?.to_string_lossy().into_owned())).unwrap_or_default();
        let number = self.names.len();
        for (export, version) in exports {
            self.exports.entry(export).or_insert((number, version));
        }
        self.names.push(name);
        self.is_always_needed.push(is_needed);
        Ok(())
    }

    /// Reads the system's libraries until these names are found.
    pub(super) fn add_system(&mut self, machine: u16, names: &[&str]) -> Result<()> {
        let folders = if machine == EM_AARCH64 { FOLDERS_AARCH64 } else { FOLDERS_X86_64 };
        for library in SYSTEM {
            if names.iter().all(|name| self.exports.contains_key(name.as_bytes())) {
                break;
            }
            for folder in folders {
                let path = Path::new(folder).join(library);
                let Ok(bytes) = std::fs::read(&path) else { continue };
                if read(&bytes, machine).is_ok() {
                    self.add(&path, &bytes, machine, false)?;
                    break;
                }
            }
        }
        Ok(())
    }

    pub(super) fn libraries(&self) -> &[String] {
        &self.names
    }

    pub(super) fn is_always_needed(&self, library: usize) -> bool {
        self.is_always_needed.get(library).copied().unwrap_or(false)
    }

    /// Returns the first library that exports a name, and the version there.
    pub(super) fn find(&self, name: &str) -> Option<(usize, Option<&str>)> {
        let (library, version) = self.exports.get(name.as_bytes())?;
        Some((*library, version.as_deref()))
    }
}

type Exports = Vec<(Vec<u8>, Option<String>)>;

/// Returns a shared library's name, and what it exports.
fn read(bytes: &[u8], machine: u16) -> Result<(Option<String>, Exports), String> {
    let text = |error: object::Error| error.to_string();
    let file = ElfFile64::<LittleEndian>::parse(bytes).map_err(text)?;
    let header = file.elf_header();
    if header.e_type(LITTLE) != elf::ET_DYN || header.e_machine(LITTLE).0 != machine {
        return Err("it is another kind of file, or for another machine".to_owned());
    }
    let sections = header.sections(LITTLE, bytes).map_err(text)?;
    let versions = sections.versions(LITTLE, bytes).map_err(text)?;
    let table = sections.symbols(LITTLE, bytes, elf::SHT_DYNSYM).map_err(text)?;
    let mut exports = Vec::new();
    for (index, symbol) in table.enumerate() {
        if symbol.is_undefined(LITTLE) || symbol.st_bind() == elf::STB_LOCAL {
            continue;
        }
        let name = symbol.name(LITTLE, table.strings()).map_err(text)?;
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
        exports.push((name.to_vec(), version));
    }
    let mut soname = None;
    for section in sections.iter() {
        let Some((entries, link)) = section.dynamic(LITTLE, bytes).map_err(text)? else { continue };
        let strings = sections.strings(LITTLE, bytes, link).map_err(text)?;
        let entry = entries.iter().find(|entry| entry.d_tag.get(LITTLE).0 == elf::DT_SONAME.0);
        let name = entry.and_then(|entry| strings.get(u32::try_from(entry.d_val.get(LITTLE)).ok()?).ok());
        soname = name.map(|name| String::from_utf8_lossy(name).into_owned());
    }
    Ok((soname, exports))
}
