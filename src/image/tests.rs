//! Images without a linker: these tests run in a build without LLVM, too.
#![allow(unsafe_code, reason = "calls what was loaded")]

use crate::elf::image_file::{ImageOperation, read_image};
use crate::elf::{EM_AARCH64, HOST_MACHINE, testing};
use crate::{ImageBuilder, JitEngine, Removal, SlabLayout};

const SOURCE: &str = "
    int table[3] = {1, 2, 3};
    int *const pointers[] = {&table[2], &table[0]};
    static __thread int calls = 40;
    __attribute__((noinline)) int pick(int n) { return *pointers[n & 1]; }
    int kernel(int n) { return ++calls + pick(n) * 1000; }";

fn image() -> Vec<u8> {
    let target = if HOST_MACHINE == EM_AARCH64 { "--target=aarch64-linux-gnu" } else { "--target=x86_64-linux-gnu" };
    let object = testing::clang(&[target, "-O1", "-fPIC"], SOURCE);
    ImageBuilder::new().object("kernel.o", object).link().unwrap()
}

fn engines() -> [JitEngine; 2] {
    [SlabLayout::PerObject, SlabLayout::Packed].map(|layout| JitEngine::builder().slab_layout(layout).build().unwrap())
}

#[test]
fn images_are_loaded_without_a_linker() {
    let bytes = image();
    for engine in engines() {
        let library = engine.add_image(&bytes).unwrap();
        // SAFETY: it is such a function.
        let kernel = unsafe { library.get::<unsafe extern "C" fn(i32) -> i32>("kernel").unwrap() };
        // SAFETY: as above.
        assert_eq!(unsafe { [kernel(0), kernel(1), kernel(2)] }, [3041, 1042, 3043]);
        let other = std::thread::spawn({
            let kernel = kernel.clone();
            // SAFETY: as above.
            move || unsafe { kernel(0) }
        });
        assert_eq!(other.join().unwrap(), 3041);
        drop(kernel);
        assert_eq!(library.remove(), Removal::Freed);
    }
}

/// Every byte flipped, and every end: refused, or placed and relocated. What was changed is not run.
#[test]
fn damaged_images_do_no_harm() {
    let bytes = image();
    let engines = engines();
    let load = |bytes: &[u8]| {
        let Ok((index, image)) = read_image(bytes, HOST_MACHINE, false) else { return false };
        let mut relocations = image.relocations(HOST_MACHINE, bytes);
        if !index.arrays.is_empty() || relocations.any(|of| of.operation == ImageOperation::Indirect) {
            return false;
        }
        for engine in &engines {
            let library = engine.add_image(bytes).unwrap();
            // SAFETY: there are no initialisers and no resolvers.
            let _ = unsafe { library.get::<*const i32>("table") };
        }
        true
    };
    assert!(load(&bytes));
    let (mut loaded, mut refused) = (0, 0);
    for at in 0..bytes.len() {
        for change in [1, 0x40, 0xff] {
            let mut changed = bytes.clone();
            changed[at] ^= change;
            if load(&changed) { loaded += 1 } else { refused += 1 }
        }
        load(&bytes[..at]);
    }
    assert!(loaded > 100 && refused > 100, "{loaded} {refused}");
    assert!(engines.iter().all(|engine| engine.stats().libraries == 0));
}

#[test]
fn the_loader_and_the_dynamic_loader_agree() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image.so");
    std::fs::write(&file, image()).unwrap();
    // SAFETY: there are no initialisers, and it is such a function.
    unsafe {
        let library = libloading::Library::new(&file).unwrap();
        let kernel = library.get::<unsafe extern "C" fn(i32) -> i32>(b"kernel").unwrap();
        assert_eq!([kernel(0), kernel(1)], [3041, 1042]);
    }
}

#[test]
fn many_functions_take_no_longer_each() {
    let link = |count: usize| {
        let function = |i| {
            format!(".section .text.f{i},\"ax\",%progbits\n.globl f{i}\nf{i}:\n.cfi_startproc\nret\n.cfi_endproc\n")
        };
        let source: String = (0..count).map(function).collect();
        let target =
            if HOST_MACHINE == EM_AARCH64 { "--target=aarch64-linux-gnu" } else { "--target=x86_64-linux-gnu" };
        let builder = ImageBuilder::new().object("many.o", testing::build("clang-22", &["-c", target], "s", &source));
        let time = || {
            let start = std::time::Instant::now();
            builder.link().unwrap();
            start.elapsed()
        };
        (0..3).map(|_| time()).min().unwrap()
    };
    // 8 if linear, 64 if not.
    let (few, many) = (link(2500), link(20_000));
    assert!(many < few * 24, "{few:?}, {many:?}");
}
