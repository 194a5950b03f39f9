//! The tables of an image for the dynamic loader.

use hashbrown::HashMap;
use object::elf;

use super::layout::{Layout, Made, TableSizes};
use super::machine::Machine;
use super::providers::Providers;
use super::relr::RELR_SIZE;
use super::scan::{Dynamic, Scan};
use super::symbols::{Global, Symbols, Target};
use crate::elf::relocations::DynamicKind;
use crate::elf::{
    ImageBytes, RELA_SIZE, SYMBOL_SIZE, SymbolKind, gnu_hash, gnu_hash_bucket, gnu_hash_table, sysv_hash,
};

/// Bytes of an entry of the dynamic section.
pub(super) const DYNAMIC_SIZE: u64 = 16;
/// The version of glibc's that says that its loader knows `DT_RELR`.
const RELR_VERSION: &str = "GLIBC_ABI_DT_RELR";

/// The names of an image and of what it needs.
#[derive(Debug)]
pub(super) struct Tables {
    /// Global symbols in the order of `.dynsym`, behind the null symbol: imports, and then exports by their hashes.
    symbols: Vec<u32>,
    imports: usize,
    by_global: HashMap<u32, u32>,
    /// Each symbol's name in `strings`.
    names: Vec<u32>,
    pub(super) strings: Vec<u8>,
    pub(super) hash: Vec<u8>,
    pub(super) versions: Vec<u8>,
    pub(super) needed: Vec<u8>,
    needed_libraries: u64,
    /// Names of libraries, for `DT_NEEDED`.
    libraries: Vec<u32>,
    soname: Option<u32>,
    is_static: bool,
    relocations: u64,
    relative: u64,
    /// Whether there are relocations without addends.
    has_relr: bool,
}

/// A string table that holds each string once.
#[derive(Debug, Default)]
struct Strings {
    bytes: Vec<u8>,
    known: HashMap<Vec<u8>, u32>,
}

impl Strings {
    fn new() -> Self {
        Self { bytes: vec![0], known: HashMap::new() }
    }

    fn add(&mut self, text: &str) -> u32 {
        if let Some(at) = self.known.get(text.as_bytes()) {
            return *at;
        }
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
        self.known.insert(text.as_bytes().to_vec(), at);
        at
    }
}

impl Tables {
    pub(super) fn new(symbols: &Symbols<'_>, scan: &Scan, providers: &Providers, soname: Option<&str>) -> Self {
        let mut imported: Vec<u32> = scan.imports().collect();
        imported.sort_unstable();
        imported.dedup();
        let global = |id: u32| symbols.globals.get(id as usize);
        let name = |id: u32| global(id).map_or("", |global| global.name);
        let exported = (0..).zip(&symbols.globals).filter(|(_, global)| global.is_exported()).map(|(id, _)| id);
        let mut exported: Vec<u32> = exported.collect();
        let count = exported.len();
        exported.sort_by_key(|id| gnu_hash_bucket(gnu_hash(name(*id)), count));
        let imports = imported.len();

        let mut strings = Strings::new();
        let all: Vec<u32> = imported.into_iter().chain(exported.iter().copied()).collect();
        let names: Vec<u32> = all.iter().map(|id| strings.add(name(*id))).collect();
        let by_global = all.iter().copied().zip(1..).collect();

        // Versions of imports, by library.
        let found: Vec<_> = all.iter().take(imports).map(|id| providers.find(name(*id))).collect();
        let mut wanted: Vec<Vec<(&str, u16)>> = vec![Vec::new(); providers.libraries().len()];
        let mut versions = ImageBytes::with_capacity(2 * all.len() + 2);
        versions.half(0);
        // 0 is a local symbol's, 1 one without a version.
        let mut next = 2;
        for provider in &found {
            let version = provider.and_then(|(library, version)| Some((wanted.get_mut(library)?, version?)));
            let index = version.map_or(1, |(wanted, version)| {
                if let Some((_, index)) = wanted.iter().find(|(known, _)| *known == version) {
                    return *index;
                }
                wanted.push((version, next));
                next += 1;
                next - 1
            });
            versions.half(index);
        }
        exported.iter().for_each(|_| versions.half(1));
        let has_relr = scan.dynamic.iter().any(|dynamic| dynamic.is_relr);
        // A glibc without this version would ignore the table. As by ld and lld, an image that needs no other does not
        // need this one.
        let is_of_glibc =
            |versions: &[(&str, u16)]| versions.iter().any(|(version, _)| version.starts_with("GLIBC_2."));
        let mut of_libraries = providers.libraries().iter().zip(&mut wanted);
        if has_relr
            && let Some((_, versions)) =
                of_libraries.find(|(library, versions)| library.starts_with("libc.so.") && is_of_glibc(versions))
        {
            versions.push((RELR_VERSION, next));
        }
        let is_used = |library: usize| {
            providers.is_always_needed(library) || found.iter().flatten().any(|(from, _)| *from == library)
        };
        let libraries: Vec<u32> = (0..providers.libraries().len())
            .filter(|library| is_used(*library))
            .map(|library| strings.add(providers.libraries().get(library).map_or("", |name| name)))
            .collect();
        let mut needed = ImageBytes::with_capacity(0);
        let mut of: Vec<_> =
            providers.libraries().iter().zip(&wanted).filter(|(_, wanted)| !wanted.is_empty()).collect();
        let needed_libraries = of.len() as u64;
        let last = of.pop();
        for ((library, wanted), is_last) in of.into_iter().map(|of| (of, false)).chain(last.map(|of| (of, true))) {
            let bytes = 16 + 16 * wanted.len() as u32;
            needed.half(1);
            needed.half(wanted.len() as u16);
            [strings.add(library), 16, if is_last { 0 } else { bytes }].into_iter().for_each(|word| needed.word(word));
            for (i, (version, index)) in wanted.iter().enumerate() {
                needed.word(sysv_hash(version.as_bytes()));
                needed.half(0);
                needed.half(*index);
                let is_last = i + 1 == wanted.len();
                [strings.add(version), if is_last { 0 } else { 16 }].into_iter().for_each(|word| needed.word(word));
            }
        }
        let soname = soname.map(|name| strings.add(name));
        let with_addends = || scan.dynamic.iter().filter(|dynamic| !dynamic.is_relr);
        let hash =
            gnu_hash_table(&exported.iter().map(|id| gnu_hash(name(*id))).collect::<Vec<_>>(), imports as u32 + 1);
        Self {
            symbols: all,
            imports,
            by_global,
            names,
            strings: strings.bytes,
            hash,
            versions: if needed_libraries == 0 { Vec::new() } else { versions.into_bytes() },
            needed: needed.into_bytes(),
            needed_libraries,
            libraries,
            soname,
            is_static: scan.is_static,
            relocations: with_addends().count() as u64,
            relative: with_addends().filter(|dynamic| dynamic.kind == DynamicKind::Relative).count() as u64,
            has_relr,
        }
    }

    pub(super) fn sizes(&self, layout: (bool, bool), [build_id, note]: [u64; 2]) -> TableSizes {
        TableSizes {
            build_id,
            note,
            hash: self.hash.len() as u64,
            symbols: SYMBOL_SIZE * (self.symbols.len() as u64 + 1),
            strings: self.strings.len() as u64,
            versions: self.versions.len() as u64,
            needed: self.needed.len() as u64,
            relocations: RELA_SIZE * self.relocations,
            // One entry, or as many as the layout will want.
            relr: if self.has_relr { RELR_SIZE } else { 0 },
            dynamic: DYNAMIC_SIZE * self.entries(|_| Some((0, 0)), layout).len() as u64,
        }
    }

    pub(super) fn has_relr(&self) -> bool {
        self.has_relr
    }

    /// Returns the entries of `.dynsym`, and how many of them are imports.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.symbols.len() as u64 + 1, self.imports as u64)
    }

    pub(super) fn needed_count(&self) -> u32 {
        self.needed_libraries as u32
    }

    /// Returns a symbol's index in `.dynsym`.
    pub(super) fn index(&self, target: Target) -> u32 {
        match target {
            Target::Import(global) => self.by_global.get(&global).copied().unwrap_or(0),
            _ => 0,
        }
    }

    /// Returns the names in the order of the table: the global, its place in the string table, and whether it is
    /// imported.
    pub(super) fn symbols(&self) -> impl Iterator<Item = (u32, u32, bool)> {
        let all = self.symbols.iter().zip(&self.names).enumerate();
        all.map(|(i, (global, name))| (*global, *name, i < self.imports))
    }

    /// Returns the entries of the dynamic section, given addresses and sizes of the sections. `arrays`: whether there
    /// are initialisers and finalisers.
    pub(super) fn entries(
        &self,
        section: impl Fn(Made) -> Option<(u64, u64)>,
        (has_initialisers, has_finalisers): (bool, bool),
    ) -> Vec<(i64, u64)> {
        let place = |made| section(made).unwrap_or_default();
        let mut all: Vec<(i64, u64)> = self.libraries.iter().map(|name| (elf::DT_NEEDED.0, u64::from(*name))).collect();
        all.extend(self.soname.map(|name| (elf::DT_SONAME.0, u64::from(name))));
        if has_initialisers {
            let (address, size) = place(Made::Initialisers);
            all.extend([(elf::DT_INIT_ARRAY.0, address), (elf::DT_INIT_ARRAYSZ.0, size)]);
        }
        if has_finalisers {
            let (address, size) = place(Made::Finalisers);
            all.extend([(elf::DT_FINI_ARRAY.0, address), (elf::DT_FINI_ARRAYSZ.0, size)]);
        }
        all.push((elf::DT_GNU_HASH.0, place(Made::GnuHash).0));
        let (strings, size) = place(Made::DynamicStrings);
        all.extend([(elf::DT_STRTAB.0, strings), (elf::DT_SYMTAB.0, place(Made::DynamicSymbols).0)]);
        all.extend([(elf::DT_STRSZ.0, size), (elf::DT_SYMENT.0, SYMBOL_SIZE)]);
        if self.relocations != 0 {
            let (address, size) = place(Made::Relocations);
            all.extend([(elf::DT_RELA.0, address), (elf::DT_RELASZ.0, size), (elf::DT_RELAENT.0, RELA_SIZE)]);
        }
        if self.relative != 0 {
            all.push((elf::DT_RELACOUNT.0, self.relative));
        }
        if self.has_relr {
            let (address, size) = place(Made::Relr);
            all.extend([(elf::DT_RELR.0, address), (elf::DT_RELRSZ.0, size), (elf::DT_RELRENT.0, RELR_SIZE)]);
        }
        if !self.versions.is_empty() {
            all.extend([
                (elf::DT_VERSYM.0, place(Made::Versions).0),
                (elf::DT_VERNEED.0, place(Made::VersionsNeeded).0),
                (elf::DT_VERNEEDNUM.0, self.needed_libraries),
            ]);
        }
        let fixed = if self.is_static { DF_STATIC_TLS } else { 0 };
        all.extend([(elf::DT_FLAGS.0, DF_BIND_NOW | fixed), (elf::DT_FLAGS_1.0, DF_1_NOW), (elf::DT_NULL.0, 0)]);
        all
    }

    /// Returns the relocations in the loader's order: those of the load address, those of symbols, and resolvers last,
    /// which may call the others.
    pub(super) fn relocations(
        &self,
        scan: &Scan,
        machine: Machine,
        place: impl Fn(&Dynamic) -> Option<(u64, i64)>,
    ) -> Option<Vec<u8>> {
        let mut all = Vec::with_capacity(self.relocations as usize);
        for dynamic in scan.dynamic.iter().filter(|dynamic| !dynamic.is_relr) {
            let (at, addend) = place(dynamic)?;
            let symbol = dynamic.target.map_or(0, |target| self.index(target));
            let rank = match dynamic.kind {
                DynamicKind::Relative => 0,
                DynamicKind::Indirect => 2,
                _ => 1,
            };
            all.push(((rank, symbol, at), dynamic.kind.number(machine.number), addend));
        }
        all.sort_unstable();
        let mut out = ImageBytes::with_capacity(all.len() * RELA_SIZE as usize);
        for ((_, symbol, at), kind, addend) in all {
            out.long(at);
            out.long(u64::from(symbol) << 32 | u64::from(kind));
            out.long(addend as u64);
        }
        Some(out.into_bytes())
    }

    /// Returns `.dynsym`. `value`: the section's index and the address of a symbol that is exported.
    /// `imported_variable`: whether an import is thread-local.
    pub(super) fn symbol_table(
        &self,
        symbols: &Symbols<'_>,
        layout: &Layout,
        value: impl Fn(&Global<'_>) -> Option<(u16, u64)>,
        imported_variable: impl Fn(u32) -> bool,
    ) -> Vec<u8> {
        let mut out = ImageBytes::with_capacity((self.symbols.len() + 1) * SYMBOL_SIZE as usize);
        out.raw(&[0; SYMBOL_SIZE as usize]);
        for (id, name, is_import) in self.symbols() {
            let Some(global) = symbols.globals.get(id as usize) else { continue };
            if is_import {
                let kind = if imported_variable(id) { elf::STT_TLS.0 } else { info(global) & 0xf };
                out.symbol(name, info(global) & 0xf0 | kind, 0, 0, 0);
            } else {
                let (section, address) = value(global).unwrap_or_default();
                out.symbol(name, info(global), section, value_of(global, address, layout), global.size);
            }
        }
        out.into_bytes()
    }
}

/// Returns a symbol's binding and its kind, as in a table of symbols.
pub(super) fn info(global: &Global<'_>) -> u8 {
    let kind = match global.kind {
        SymbolKind::Function => elf::STT_FUNC,
        SymbolKind::Data => elf::STT_OBJECT,
        SymbolKind::ThreadLocal => elf::STT_TLS,
        SymbolKind::Unknown => elf::STT_NOTYPE,
    };
    let binding = if global.is_weak { elf::STB_WEAK } else { elf::STB_GLOBAL };
    binding.0 << 4 | kind.0
}

/// Returns the value that a symbol has in a table of symbols: variables of threads have distances.
pub(super) fn value_of(global: &Global<'_>, address: u64, layout: &Layout) -> u64 {
    match (global.kind, layout.thread_local) {
        (SymbolKind::ThreadLocal, Some(block)) => address - block.address,
        _ => address,
    }
}

const DF_BIND_NOW: u64 = 8;
const DF_STATIC_TLS: u64 = 0x10;
const DF_1_NOW: u64 = 1;
