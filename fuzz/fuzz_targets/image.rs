//! Images: an object is linked into one, and one is loaded, asked for its symbols and removed. Nothing of it runs.
#![no_main]

use std::ffi::c_void;
use std::sync::LazyLock;

use libfuzzer_sys::Corpus;
use slabjit::{DebugInfo, ImageBuilder, JitEngine, Limits, SlabLayout};

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    slabjit_fuzz::mutate(data, size, max_size, seed)
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| -> Corpus {
    static ENGINES: LazyLock<[JitEngine; 2]> = LazyLock::new(|| {
        [(SlabLayout::PerObject, DebugInfo::Lines), (SlabLayout::Packed, DebugInfo::Names)].map(engine)
    });
    // e_type: ET_REL
    let linked = if bytes.get(16) == Some(&1) { link(bytes) } else { Ok(bytes.to_vec()) };
    match linked.and_then(|image| load(&ENGINES[bytes.len() % 2], &image)) {
        Ok(()) => Corpus::Keep,
        Err(_) => Corpus::Reject,
    }
});

fn engine((layout, debug): (SlabLayout, DebugInfo)) -> JitEngine {
    JitEngine::builder().slab_layout(layout).debug_info(debug).build().unwrap()
}

fn link(bytes: &[u8]) -> slabjit::Result<Vec<u8>> {
    let mut limits = Limits::default();
    limits.decompressed_bytes = 1 << 20;
    ImageBuilder::new()
        .limits(limits)
        .pack_relative_relocations(bytes.len() % 4 < 2)
        .debug_info(bytes.len() % 8 < 4)
        .object("fuzz", bytes)
        .link()
}

fn load(engine: &JitEngine, bytes: &[u8]) -> slabjit::Result<()> {
    let mut library = engine.library("fuzz").build()?;
    library.add_image(bytes)?;
    let missing = library.undefined_symbols()?;
    if !missing.is_empty() {
        let given = missing.iter().fold(engine.library("fuzz"), |builder, symbol| {
            // SAFETY: what could use the addresses does not run.
            unsafe { builder.symbol(&symbol.name, std::ptr::from_ref(engine).cast()) }
        });
        library = given.build()?;
        library.add_image(bytes)?;
    }
    // SAFETY: with `--cfg slabjit_fuzzing`, no initialiser runs.
    unsafe { library.initialize()? };
    for name in library.symbols() {
        // SAFETY: the addresses are only looked at.
        if let Ok(symbol) = unsafe { library.get::<*const c_void>(&name) } {
            let _ = engine.symbolize(symbol.address());
        }
    }
    library.remove();
    Ok(())
}
