//! The whole path: an object is added, linked, asked for its symbols and removed. Nothing of it runs.
#![no_main]

use std::ffi::c_void;
use std::sync::LazyLock;

use libfuzzer_sys::Corpus;
use slabjit::{JitEngine, Library, Limits, SectionConflicts};

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    slabjit_fuzz::mutate(data, size, max_size, seed)
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| -> Corpus {
    static ENGINES: LazyLock<[JitEngine; 2]> =
        LazyLock::new(|| [SectionConflicts::Rename, SectionConflicts::Harmonize].map(engine));
    // What is refused is the other targets' matter: to get far, start from what gets far.
    match load(&ENGINES[bytes.len() % 2], bytes) {
        Ok(()) => Corpus::Keep,
        Err(_) => Corpus::Reject,
    }
});

fn engine(conflicts: SectionConflicts) -> JitEngine {
    let mut limits = Limits::default();
    limits.decompressed_bytes = 1 << 20;
    JitEngine::builder().section_conflicts(conflicts).limits(limits).build().unwrap()
}

fn load(engine: &JitEngine, bytes: &[u8]) -> slabjit::Result<()> {
    let mut library = engine.library("fuzz").build()?;
    library.add_object(bytes)?;
    let missing = library.undefined_symbols()?;
    if !missing.is_empty() {
        let given = missing.iter().fold(engine.library("fuzz"), |builder, symbol| {
            // SAFETY: what could use the addresses does not run.
            unsafe { builder.symbol(&symbol.name, std::ptr::from_ref(engine).cast()) }
        });
        library = given.build()?;
        library.add_object(bytes)?;
    }
    // SAFETY: with `--cfg slabjit_fuzzing`, no initialiser runs.
    unsafe { library.initialize()? };
    ask(&library);
    library.remove();
    Ok(())
}

/// Asks for every symbol, and has the unwinder read the tables.
fn ask(library: &Library) {
    let mut bases = [0; 3];
    for name in library.symbols() {
        // SAFETY: the addresses are only looked at.
        let Ok(symbol) = (unsafe { library.get::<*const c_void>(&name) }) else { continue };
        // SAFETY: any address may be asked about, and there is room for the answer.
        unsafe { _Unwind_Find_FDE(symbol.address(), &mut bases) };
    }
    // Of objects without symbols, too.
    // SAFETY: as above.
    unsafe { _Unwind_Find_FDE(std::ptr::without_provenance(1), &mut bases) };
}

unsafe extern "C" {
    // libgcc_s (libgcc/unwind-dw2-fde.c): finds the entry of an address, and reads all tables that were registered on
    // the way. The answer's `struct dwarf_eh_bases` is three pointers.
    fn _Unwind_Find_FDE(address: *const (), bases: &mut [usize; 3]) -> *const c_void;
}
