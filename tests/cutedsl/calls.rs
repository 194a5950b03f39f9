//! Each kernel in each form, with stubs for all that it imports of CUDA and TVM-FFI: what it asks for is what its
//! source says.
#![allow(
    unsafe_code,
    reason = "builds libraries with stubs of the types that the objects declare, and calls what ci/cutedsl.d has"
)]

use std::cell::Cell;
use std::ffi::c_int;

use slabjit::{EngineStats, ImageBuilder, JitEngine, Library, Provider, Removal, Symbol};

use crate::Test;
use crate::compiled::{Compiled, Form};
use crate::cuda::{self, Asked};
use crate::kernels::{KERNELS, Kernel};
use crate::tvm_ffi::{self, Any, Packed};

pub const TESTS: &[Test] = &[
    ("c_form", c_form),
    ("tvm_ffi_form", tvm_ffi_form),
    ("wrong_arguments_are_refused", wrong_arguments_are_refused),
    ("errors_of_launches_come_back", errors_of_launches_come_back),
    ("sixteen_at_once", sixteen_at_once),
];

/// `cudaErrorLaunchFailure`.
const LAUNCH_FAILURE: c_int = 719;
/// The first bytes of a fat binary, as a number (CUDA's `fatbinary.h`).
const FATBIN_MAGIC: u32 = 0xba55_ed50;

std::thread_local! {
    /// Whether [`load`] links them into an image.
    static AS_IMAGES: Cell<bool> = const { Cell::new(false) };
}

/// Objects in one library, all that there are stubs for given.
fn load(engine: &JitEngine, objects: &[(&str, Vec<u8>)]) -> Library {
    let plans = objects.iter().map(|(_, bytes)| engine.check_object(bytes).unwrap()).collect::<Vec<_>>();
    let imports = plans.iter().flat_map(|plan| &plan.imports);
    let stubs = imports.filter_map(|import| Some((&import.name, cuda::stub(&import.name)?)));
    // SAFETY: the stubs have the types that the objects take them for.
    let builder = stubs.fold(engine.library("kernel"), |builder, (name, stub)| unsafe { builder.symbol(name, stub) });
    let library = builder.build().unwrap();
    if AS_IMAGES.get() {
        let image = objects.iter().fold(ImageBuilder::new(), |image, (name, bytes)| image.object(name, &bytes[..]));
        library.add_image_named(objects[0].0, image.link().unwrap()).unwrap();
    } else {
        objects.iter().for_each(|(name, bytes)| library.add_object_named(name, bytes).unwrap());
    }
    assert_eq!(library.undefined_symbols().unwrap(), [], "there are no stubs for these");
    library
}

fn c_library(engine: &JitEngine, compiled: &Compiled, kernel: &Kernel) -> Library {
    load(engine, &[("kernel.o", compiled.bytes(kernel.name, Form::C)), ("host.o", compiled.host(kernel.name))])
}

fn run(library: &Library, function: &str) {
    // SAFETY: `HOST` of ci/cutedsl.d declares it so.
    unsafe { library.get::<unsafe extern "C" fn()>(function).unwrap()() }
}

/// An engine that ends as it began, with objects, and with images of them.
fn with_engine(test: impl Fn(&JitEngine)) {
    for as_images in [false, true] {
        AS_IMAGES.set(as_images);
        with_one_engine(&test);
    }
}

fn with_one_engine(test: impl Fn(&JitEngine)) {
    let engine = JitEngine::new().unwrap();
    let without_rest = || {
        let mut stats: EngineStats = engine.stats();
        // What was removed rests.
        stats.arena.quarantined_bytes = 0;
        stats.arena.warm_bytes = 0;
        stats
    };
    let start = without_rest();
    cuda::reset(0);
    test(&engine);
    assert_eq!(without_rest(), start, "stats() is not back to its start");
}

/// The code for the device was loaded once, from the object; and the kernels that are launched were looked up.
#[track_caller]
fn assert_loaded_once(engine: &JitEngine, kernel: &Kernel, asked: &Asked) {
    let [code] = asked.loaded[..] else { panic!("{}: loaded {} times", kernel.name, asked.loaded.len()) };
    let found = engine
        .explain_address(std::ptr::with_exposed_provenance(code))
        .unwrap_or_else(|| panic!("{code:#x} is not of the object"));
    assert_eq!(found.object.to_string(), "kernel.o");
    // SAFETY: the object is there, and this is in it.
    assert_eq!(unsafe { std::ptr::with_exposed_provenance::<u32>(code).read() }, FATBIN_MAGIC);
    let launched = (kernel.launches)().into_iter().map(|launch| launch.kernel);
    assert!(launched.eq(asked.kernels.iter().copied()), "{:?}", asked.kernels);
}

#[track_caller]
fn assert_stubs_were_taken(library: &Library) {
    for import in library.imports().unwrap().iter().filter(|import| cuda::stub(&import.name).is_some()) {
        assert_eq!(import.provider, Provider::Given, "{import}");
        assert_eq!(import.address, cuda::stub(&import.name).unwrap().addr());
    }
}

fn c_form(compiled: &Compiled) {
    for kernel in &KERNELS {
        with_engine(|engine| {
            let library = c_library(engine, compiled, kernel);
            run(&library, &format!("{}_load", kernel.name));
            assert_stubs_were_taken(&library);
            assert_eq!((kernel.call)(&library), 0);
            run(&library, &format!("{}_unload", kernel.name));
            let asked = cuda::asked();
            assert_loaded_once(engine, kernel, &asked);
            assert_eq!(asked.launches, (kernel.launches)());
            assert_eq!(asked.unloaded, [1]);
            assert_eq!(library.remove(), Removal::Freed);
        });
    }
}

fn tvm_ffi_form(compiled: &Compiled) {
    for kernel in &KERNELS {
        for form in [Form::TvmFfi, Form::TvmFfiStatic] {
            with_engine(|engine| {
                let bytes = compiled.bytes(kernel.name, form);
                if AS_IMAGES.get() && form == Form::TvmFfiStatic {
                    let refused = ImageBuilder::new().object("kernel.o", bytes).link().unwrap_err();
                    assert!(
                        refused.to_string().contains("depends on the load address; compile with -fPIC"),
                        "{refused}"
                    );
                    return;
                }
                let library = load(engine, &[("kernel.o", bytes)]);
                let function = tvm_ffi::function(&library, kernel.name);
                assert_stubs_were_taken(&library);
                let (arguments, _tensors) = (kernel.arguments)(compiled.byte_offset());
                for _ in 0..2 {
                    assert_eq!(tvm_ffi::call(&function, &arguments), 0);
                }
                cuda::with_asked(|asked| {
                    assert_loaded_once(engine, kernel, asked);
                    assert_eq!(asked.launches, [(kernel.launches)(), (kernel.launches)()].concat());
                    assert_eq!(asked.raised, []);
                });
                assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
                assert!(cuda::with_asked(|asked| asked.unloaded.is_empty()), "its function can still be called");
                drop(function);
                // Its finaliser.
                assert_eq!(cuda::asked().unloaded, [1]);
            });
        }
    }
}

fn wrong_arguments_are_refused(compiled: &Compiled) {
    for kernel in &KERNELS {
        with_engine(|engine| {
            let library = load(engine, &[("kernel.o", compiled.bytes(kernel.name, Form::TvmFfi))]);
            let function = tvm_ffi::function(&library, kernel.name);
            let (good, _tensors) = (kernel.arguments)(compiled.byte_offset());
            let too_few = good[1..].to_vec();
            let mut scalar_for_a_tensor = good.clone();
            scalar_for_a_tensor[1] = Any::int(1);
            let mut tensor_for_a_scalar = good.clone();
            tensor_for_a_scalar[0] = tensor_for_a_scalar[1];
            for wrong in [too_few, scalar_for_a_tensor, tensor_for_a_scalar] {
                assert_refused(kernel, &function, &wrong, "TypeError");
            }
            if compiled.byte_offset() == 0 {
                let (offset, _tensors) = (kernel.arguments)(64);
                assert_refused(kernel, &function, &offset, "ValueError");
            }
            drop(function);
            assert_eq!(library.remove(), Removal::Freed);
        });
    }
}

#[track_caller]
fn assert_refused(kernel: &Kernel, function: &Symbol<Packed>, arguments: &[Any], kind: &str) {
    cuda::reset(0);
    assert_eq!(tvm_ffi::call(function, arguments), -1);
    let asked = cuda::asked();
    let [(raised, message)] = &asked.raised[..] else { panic!("{asked:?}") };
    assert_eq!(raised, kind, "{message}");
    assert!(message.contains(&format!("{}(", kernel.name)), "{message}");
    assert_eq!((asked.loaded, asked.launches), (vec![], vec![]));
}

fn errors_of_launches_come_back(compiled: &Compiled) {
    for kernel in &KERNELS {
        with_engine(|engine| {
            let library = c_library(engine, compiled, kernel);
            run(&library, &format!("{}_load", kernel.name));
            cuda::fail_launches(LAUNCH_FAILURE);
            assert_eq!((kernel.call)(&library), LAUNCH_FAILURE);
            assert_eq!(library.remove(), Removal::Freed);

            cuda::reset(LAUNCH_FAILURE);
            let library = load(engine, &[("kernel.o", compiled.bytes(kernel.name, Form::TvmFfi))]);
            let function = tvm_ffi::function(&library, kernel.name);
            let (arguments, _tensors) = (kernel.arguments)(compiled.byte_offset());
            assert_eq!(tvm_ffi::call(&function, &arguments), -1);
            let asked = cuda::asked();
            assert_eq!(asked.launches, (kernel.launches)()[..1], "the second was launched after the first had failed");
            let [(kind, message)] = &asked.raised[..] else { panic!("{asked:?}") };
            assert_eq!(kind, "RuntimeError");
            assert!(message.contains(cuda::ERROR_NAME.to_str().unwrap()), "{message}");
            drop(function);
            assert_eq!(library.remove(), Removal::Freed);
        });
    }
}

/// The same object again and again: each time with names, variables and a finaliser of its own.
fn sixteen_at_once(compiled: &Compiled) {
    let kernel = &KERNELS[0];
    let bytes = compiled.bytes(kernel.name, Form::TvmFfi);
    with_engine(|engine| {
        let (arguments, _tensors) = (kernel.arguments)(compiled.byte_offset());
        for _ in 0..2 {
            cuda::reset(0);
            let functions: Vec<_> = (0..16)
                .map(|_| {
                    let library = load(engine, &[("kernel.o", bytes.clone())]);
                    tvm_ffi::function(&library, kernel.name)
                })
                .collect();
            for _ in 0..2 {
                assert!(functions.iter().all(|function| tvm_ffi::call(function, &arguments) == 0));
            }
            drop(functions);
            let Asked { mut loaded, launches, unloaded, .. } = cuda::asked();
            loaded.sort_unstable();
            loaded.dedup();
            assert_eq!(loaded.len(), 16, "each loads its own code, once");
            assert_eq!(unloaded, Vec::from_iter(1..=16), "each unloads what it loaded");
            assert_eq!(launches, vec![(kernel.launches)(); 32].concat());
        }
    });
}
