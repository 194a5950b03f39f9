//! What RuntimeDyld, the linker of MCJIT and of older users of LLJIT, makes of a reference that does not reach: the
//! reason why this project exists (llvm#71963, llvm#173269). The same object is loaded by both.

use crate::common::{self, Checked, compile_bytes, freed};
use crate::lljit::{Linker, Lljit};
use crate::target::by_arch;

common::tests![runtime_dyld_truncates; parts: runtime_dyld_part];

type Take = unsafe extern "C" fn() -> u64;

/// Nothing need be there: its address is taken. Mappings are further away than 4 GiB.
const FAR: u64 = 0x0000_0007_1234_5678;

/// The address of an array somewhere, by an instruction that reaches 2 GiB (`lea`) or 4 GiB (`adrp`).
fn object() -> Vec<u8> {
    let flags: &[&str] = by_arch(&["-fpie"], &["-fno-pic", "-fno-pie"]);
    compile_bytes("take.c", "extern char far[]; void *take(void) { return far; }", flags)
}

fn runtime_dyld_truncates() {
    let end = common::child("runtime_dyld_part");
    let version = slabjit::llvm_version();
    match (end.signal, end.stdout.trim()) {
        (Some(signal), _) => println!("RuntimeDyld of LLVM {version} ends with signal {signal}: {end:?}"),
        (None, "right") => println!("skipped: RuntimeDyld of LLVM {version} happens to be right here"),
        (None, said) => {
            assert!(said.starts_with("value ") || said.starts_with("error "), "{end:?}");
            println!("RuntimeDyld of LLVM {version}, for {FAR:#x}: {said}");
        }
    }
    let engine = Checked::new();
    // SAFETY: the address is only taken.
    let library =
        unsafe { engine.library("far").symbol("far", std::ptr::without_provenance(FAR as usize)).build().unwrap() };
    library.add_object(object()).unwrap();
    // SAFETY: that is its type.
    assert_eq!(unsafe { library.get::<Take>("take").unwrap()() }, FAR);
    freed(&library);
    engine.finish();
}

/// Prints what LLJIT with RuntimeDyld makes of it.
fn runtime_dyld_part() {
    match take_by_runtime_dyld(&object()) {
        Ok(FAR) => println!("right"),
        Ok(value) => println!("value {value:#x}"),
        Err(error) => println!("error {error}"),
    }
}

fn take_by_runtime_dyld(object: &[u8]) -> Result<u64, String> {
    let jit = Lljit::new(Linker::RuntimeDyld)?;
    jit.define(jit.main(), c"far", FAR)?;
    jit.add(jit.main(), object)?;
    let address = jit.look_up(c"take")?;
    // SAFETY: that is its type.
    let take: Take = unsafe { std::mem::transmute(std::ptr::with_exposed_provenance::<()>(address as usize)) };
    // SAFETY: the address is only taken.
    Ok(unsafe { take() })
}
