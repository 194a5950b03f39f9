//! Where objects are put, and what they find there.
#![allow(unsafe_code, reason = "opens shared libraries and gives addresses, which the user answers for")]

use std::path::PathBuf;

use clap::ValueEnum;
use slabjit::program;
use slabjit::{ArenaPlacement, DebugInfo, JitEngine, JitEngineBuilder, Library, LibraryBuilder, SlabLayout};

/// The scope of imports beside the objects and the process, and the arena's place, which decides their reach.
#[derive(clap::Args)]
pub(crate) struct Scope {
    /// Look for imports in this shared library. It is opened RTLD_LOCAL, and its initialisers run.
    #[arg(long = "library", value_name = "SO")]
    libraries: Vec<PathBuf>,
    /// Look for shared libraries in this folder: those given by name, and, for messages, those that export a missing
    /// name.
    #[arg(short = 'L', long = "library-path", value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Define a symbol at a fixed address.
    #[arg(long = "define", value_name = "NAME=ADDR", value_parser = definition)]
    definitions: Vec<(String, usize)>,
    /// Accept objects that ask for executable stacks, which nested functions of GNU C need if their address is taken.
    #[arg(long)]
    executable_stack: bool,
    /// The place of objects: within 2 GiB of all shared libraries, for code that refers to them directly; anywhere; or
    /// in the low 2 GiB, for code that was compiled with -fno-pic.
    #[arg(long, value_enum)]
    place: Option<Place>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Place {
    NearLibraries,
    Anywhere,
    Low2g,
}

/// The engine's settings for objects that run.
#[derive(clap::Args)]
pub(crate) struct Settings {
    /// The layout in memory: a slab for each object, or shared pages for small objects, which takes less memory.
    #[arg(long, value_enum, default_value_t = Layout::Packed)]
    layout: Layout,
    /// What debuggers see of the objects: the names of functions, or all that was compiled with -g.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Kept::Names)]
    debug_info: Kept,
    /// Write the loaded functions to jit-PID.dump in this folder, for `perf inject --jit`.
    #[arg(long, value_name = "DIR")]
    jitdump: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Layout {
    PerObject,
    Packed,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kept {
    Names,
    Full,
}

impl Settings {
    fn apply(&self, builder: JitEngineBuilder) -> JitEngineBuilder {
        let builder = builder.slab_layout(match self.layout {
            Layout::PerObject => SlabLayout::PerObject,
            Layout::Packed => SlabLayout::Packed,
        });
        builder.debug_info(match self.debug_info {
            Kept::Names => DebugInfo::Names,
            Kept::Full => DebugInfo::Full,
        })
    }
}

impl Scope {
    /// Creates an engine with the arena's place that the user chose.
    pub(crate) fn engine(&self, settings: Option<&Settings>) -> slabjit::Result<JitEngine> {
        let placed = |builder: JitEngineBuilder, place| {
            builder.arena_placement(match place {
                Place::NearLibraries => ArenaPlacement::NearLibraries,
                Place::Anywhere => ArenaPlacement::Anywhere,
                Place::Low2g => ArenaPlacement::Low2GiB,
            })
        };
        let builder = self.place.into_iter().fold(JitEngine::builder(), placed);
        if let Some(folder) = settings.and_then(|settings| settings.jitdump.as_ref()) {
            slabjit::write_jitdump(folder)?;
        }
        settings.into_iter().fold(builder, |builder, settings| settings.apply(builder)).build()
    }

    pub(crate) fn opens_libraries(&self) -> bool {
        !self.libraries.is_empty()
    }

    /// Creates a library with the scope that the user chose. Opens the shared libraries.
    pub(crate) fn library(&self, engine: &JitEngine) -> slabjit::Result<Library> {
        // SAFETY: the user named the shared libraries.
        let add = |b: LibraryBuilder, path| unsafe { b.shared_library(path) };
        self.libraries.iter().fold(self.without_shared(engine), add).build()
    }

    /// Creates such a library without opening a shared library: none of their code runs.
    pub(crate) fn library_without_shared(&self, engine: &JitEngine) -> slabjit::Result<Library> {
        self.without_shared(engine).build()
    }

    fn without_shared(&self, engine: &JitEngine) -> LibraryBuilder {
        let exporting = program::exporting(engine.library("slabjit"));
        let builder = self.folders.iter().fold(exporting, |b, folder| b.search_path(folder));
        let define = |b: LibraryBuilder, (name, address): &(String, usize)| {
            // SAFETY: the user answers for the addresses.
            unsafe { b.symbol(name, std::ptr::without_provenance(*address)) }
        };
        let builder = self.definitions.iter().fold(builder, define);
        if self.executable_stack { builder.executable_stack() } else { builder }
    }
}

fn definition(text: &str) -> Result<(String, usize), String> {
    let (name, address) = text.split_once('=').ok_or("expected NAME=ADDR, such as host_log=0x401000")?;
    let parsed = match address.strip_prefix("0x").or_else(|| address.strip_prefix("0X")) {
        Some(hex) => usize::from_str_radix(hex, 16),
        None => address.parse(),
    };
    match parsed {
        Ok(_) if name.is_empty() => Err("the name is empty".to_owned()),
        Ok(address) => Ok((name.to_owned(), address)),
        Err(error) => Err(format!("'{address}' is no address: {error}")),
    }
}
