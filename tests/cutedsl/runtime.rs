//! With the runtime libraries that the compiler comes with: `libcute_dsl_runtime.so`, and TVM-FFI's for objects of that
//! form.
#![allow(unsafe_code, reason = "opens them, and calls objects that they are for")]

use std::ffi::{c_int, c_void};
use std::path::Path;

use slabjit::{Error, JitEngine, Library, LibraryBuilder, LinkError, Provider};

use crate::Test;
use crate::compiled::{Compiled, Form};
use crate::cuda;
use crate::kernels::KERNELS;
use crate::tvm_ffi;

pub const TESTS: &[Test] = &[
    ("all_imports_resolve", all_imports_resolve),
    ("what_is_missing_is_named", what_is_missing_is_named),
    ("without_a_driver_a_call_is_an_error", without_a_driver_a_call_is_an_error),
];

/// What a form needs.
fn with_runtime(builder: LibraryBuilder, compiled: &Compiled, form: Form) -> LibraryBuilder {
    // SAFETY: the initialisers of both may run; they are what the objects are made for.
    unsafe {
        let builder = builder.shared_library(compiled.runtime());
        if form == Form::C { builder } else { builder.shared_library(compiled.tvm_ffi()) }
    }
}

fn load(builder: LibraryBuilder, compiled: &Compiled, kernel: &str, form: Form) -> Library {
    let library = builder.build().unwrap();
    library.add_object_named("kernel.o", compiled.bytes(kernel, form)).unwrap();
    library
}

fn all_imports_resolve(compiled: &Compiled) {
    let engine = JitEngine::new().unwrap();
    for kernel in &KERNELS {
        for form in Form::ALL {
            let builder = with_runtime(engine.library("kernel").isolated(), compiled, form);
            let library = load(builder, compiled, kernel.name, form);
            assert_eq!(library.undefined_symbols().unwrap(), []);
            // SAFETY: the object has no initialisers, and its finaliser is for this runtime.
            unsafe { library.initialize().unwrap() };
            let imports = library.imports().unwrap();
            assert!(imports.iter().any(|import| import.name == "_cudaLibraryLoadData"));
            for import in imports {
                let path = if import.name.starts_with("TVMFFI") { compiled.tvm_ffi() } else { compiled.runtime() };
                assert_eq!(import.provider, Provider::SharedLibrary { path }, "{import}");
            }
        }
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().unwrap()
}

/// CUTLASS#3075 says "Symbols not found: [ _cudaLibraryLoadData, … ]" of it.
fn what_is_missing_is_named(compiled: &Compiled) {
    let engine = JitEngine::new().unwrap();
    let (runtime, tvm_ffi) = (compiled.runtime(), compiled.tvm_ffi());
    for form in Form::ALL {
        let builder = engine.library("kernel").search_path(folder(&runtime)).search_path(folder(&tvm_ffi));
        let library = load(builder, compiled, "saxpy", form);
        // SAFETY: nothing is linked.
        let error = unsafe { library.initialize() }.unwrap_err();
        let Error::Link(LinkError::UndefinedSymbols { symbols, .. }) = &error else { panic!("{error}") };
        assert!(symbols.iter().any(|symbol| symbol.name == "_cudaLibraryLoadData"), "{error}");
        for symbol in symbols {
            let exports = if symbol.name.starts_with("TVMFFI") { &tvm_ffi } else { &runtime };
            // Another test may have opened that of another version for others only.
            assert!(symbol.exported_by.contains(exports), "{}: {:?}", symbol.name, symbol.exported_by);
        }
        let advice = format!("is exported by {}; add it with LibraryBuilder::shared_library", runtime.display());
        assert!(error.to_string().contains(&advice), "{error}");
    }
}

fn without_a_driver_a_call_is_an_error(compiled: &Compiled) {
    // SAFETY: the driver's initialisers may run.
    if unsafe { libloading::Library::new("libcuda.so.1") }.is_ok() {
        println!("not run: there is a CUDA driver, and what is passed here is not a device's memory");
        return;
    }
    let engine = JitEngine::new().unwrap();
    for kernel in &KERNELS {
        // What the header takes from CUDA itself, and the rest from the runtime.
        let of_cuda = ["cudaGetDeviceCount", "cudaLibraryUnload", "cudaGetErrorName", "cudaGetErrorString"];
        let builder = with_runtime(engine.library("kernel"), compiled, Form::C);
        // SAFETY: the stubs have the types that the header takes them for.
        let give = |builder: LibraryBuilder, name: &&str| unsafe { builder.symbol(name, cuda::stub(name).unwrap()) };
        let builder = of_cuda.iter().fold(builder, give);
        let library = load(builder, compiled, kernel.name, Form::C);
        library.add_object_named("host.o", compiled.host(kernel.name)).unwrap();
        type CudaInit = unsafe extern "C" fn(*mut *mut c_void);
        let (mut module, mut error): (usize, c_int) = (0, 0);
        let mut module_at = &raw mut module;
        let mut arguments: [*mut c_void; 2] = [(&raw mut module_at).cast(), (&raw mut error).cast()];
        // SAFETY: the header declares it so, and calls it with these two.
        unsafe {
            library.get::<CudaInit>(&format!("_mlir_{}_cuda_init", kernel.name)).unwrap()(arguments.as_mut_ptr());
        }
        assert_ne!(error, 0, "loaded onto no device");
        assert_ne!((kernel.call)(&library), 0, "launched what is not loaded");

        for form in [Form::TvmFfi, Form::TvmFfiStatic] {
            let builder = with_runtime(engine.library("kernel"), compiled, form);
            let library = load(builder, compiled, kernel.name, form);
            let function = tvm_ffi::function(&library, kernel.name);
            let (arguments, _tensors) = (kernel.arguments)(compiled.byte_offset());
            assert_eq!(tvm_ffi::call(&function, &arguments), -1);
            let (kind, message) = tvm_ffi::raised(&compiled.tvm_ffi());
            assert_eq!(kind, "RuntimeError", "{message}");
            assert!(message.contains("cudaErrorInsufficientDriver"), "{message}");
            if compiled.fails_once() {
                return;
            }
        }
    }
}
