//! The same with libtvm_ffi.so itself, and the header that comes with it: those of PyPI's apache-tvm-ffi, as
//! `ci/tvm-ffi` gets them.

use std::ffi::c_void;
use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::ptr;

use slabjit::tvm_ffi::abi::{
    DELETE_STRONG, DELETE_WEAK, TVMFFIAny, TVMFFIByteArray, TVMFFIErrorCell, TVMFFIObject, TVMFFIObjectAllocHeader,
};
use slabjit::tvm_ffi::{
    Any, DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLTensor, FromValue, Object, Runtime, Tensor, TypeIndex,
};
use slabjit::{Error, Library, Provider, TvmFfiError};

use super::{errors_that_are_left, function, of_int, raised};
use crate::common::{self, Checked, child, compile_bytes, freed, tool};
use crate::target;

/// Where libtvm_ffi.so is: `SLABJIT_TVM_FFI`, or where `ci/tvm-ffi` puts it. Says so if it is nowhere.
fn library_file() -> Option<PathBuf> {
    if target::not_under_qemu("PyPI's libtvm_ffi.so is for this machine") {
        return None;
    }
    let given = std::env::var_os("SLABJIT_TVM_FFI").map(PathBuf::from);
    let cache = || {
        let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
        let caches = || std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
        let ours = std::env::var_os("SLABJIT_CACHE").map(PathBuf::from);
        Some(ours.or_else(|| Some(caches()?.join("slabjit")))?.join("tvm-ffi/site/tvm_ffi/lib/libtvm_ffi.so"))
    };
    let found = given.or_else(cache).filter(|path| path.is_file());
    if found.is_none() {
        println!(
            "not run: there is no libtvm_ffi.so; ci/tvm-ffi gets it, where there are Python and PyPI (or set \
             SLABJIT_TVM_FFI)"
        );
    }
    found
}

/// The kernels, and those that use more of it, with the real library.
fn library(engine: &Checked, file: &Path) -> Library {
    // SAFETY: it registers its types, and nothing else.
    let library = unsafe { engine.library("kernels and libtvm_ffi").shared_library(file).tvm_ffi().build().unwrap() };
    let sources = concat!(include_str!("abi.h"), include_str!("kernels.c"), include_str!("real.c"));
    library.add_object_named("kernels.o", compile_bytes("real.c", sources, &[])).unwrap();
    library
}

pub fn records_are_those_of_the_header() {
    let Some(file) = library_file() else { return };
    let include = file.ancestors().nth(2).unwrap().join("include");
    let program = common::once_per(&["tvm-ffi header"], "exe", |path| {
        let source = path.with_extension("c");
        std::fs::write(&source, concat!(include_str!("abi.h"), include_str!("header.c"))).unwrap();
        let [flag, first, to] = ["-I", "-include", "-o"].map(Path::new);
        tool("gcc", &[flag, &include, first, Path::new("tvm/ffi/c_api.h"), &source, to, path]);
    });
    let theirs = tool(program.to_str().unwrap(), &[""; 0]);

    let mut ours = String::new();
    macro_rules! size { ($($type:ident),*) => { $(writeln!(ours, "{} {}", stringify!($type), size_of::<$type>()).unwrap();)* } }
    macro_rules! offsets {
        ($type:ident: $($field:ident = $name:literal),*) => {
            size!($type);
            $(writeln!(ours, concat!(stringify!($type), ".", $name, " {}"), offset_of!($type, $field)).unwrap();)*
        };
    }
    offsets!(TVMFFIAny: type_index = "type_index", small_str_len = "small_str_len", value = "v_int64", value = "v_bytes");
    offsets!(TVMFFIObject: combined_ref_count = "combined_ref_count", type_index = "type_index", deleter = "deleter");
    size!(TVMFFIObjectAllocHeader);
    offsets!(TVMFFIByteArray: data = "data", size = "size");
    offsets!(TVMFFIErrorCell: kind = "kind", message = "message", backtrace = "backtrace", update_backtrace = "update_backtrace",
        cause_chain = "cause_chain", extra_context = "extra_context");
    offsets!(DLTensor: data = "data", device = "device", ndim = "ndim", dtype = "dtype", shape = "shape", strides = "strides",
        byte_offset = "byte_offset");
    offsets!(DLDataType: code = "code", bits = "bits", lanes = "lanes");
    offsets!(DLDevice: device_type = "device_type", device_id = "device_id");
    type T = TypeIndex;
    let indices = [
        T::NONE,
        T::INT,
        T::BOOL,
        T::FLOAT,
        T::OPAQUE_PTR,
        T::DATA_TYPE,
        T::DEVICE,
        T::DL_TENSOR_PTR,
        T::RAW_STR,
        T::BYTE_ARRAY_PTR,
        T::OBJECT_R_VALUE_REF,
        T::SMALL_STR,
        T::SMALL_BYTES,
        T::OBJECT,
        T::STR,
        T::BYTES,
        T::ERROR,
        T::FUNCTION,
        T::SHAPE,
        T::TENSOR,
        T::ARRAY,
        T::MAP,
        T::MODULE,
        T::OPAQUE_PY_OBJECT,
        T::LIST,
        T::DICT,
    ];
    for index in indices.map(|index| index.0).into_iter().chain([DELETE_STRONG, DELETE_WEAK]) {
        writeln!(ours, "index {index}").unwrap();
    }
    type D = DLDeviceType;
    let devices = [
        D::CPU,
        D::CUDA,
        D::CUDAHOST,
        D::OPENCL,
        D::VULKAN,
        D::METAL,
        D::VPI,
        D::ROCM,
        D::ROCMHOST,
        D::EXTDEV,
        D::CUDAMANAGED,
        D::ONEAPI,
        D::WEBGPU,
        D::HEXAGON,
        D::MAIA,
        D::TRN,
    ];
    type C = DLDataTypeCode;
    let codes = [
        C::INT,
        C::UINT,
        C::FLOAT,
        C::OPAQUEHANDLE,
        C::BFLOAT,
        C::COMPLEX,
        C::BOOL,
        C::FLOAT8_E3M4,
        C::FLOAT8_E4M3,
        C::FLOAT8_E4M3B11FNUZ,
        C::FLOAT8_E4M3FN,
        C::FLOAT8_E4M3FNUZ,
        C::FLOAT8_E5M2,
        C::FLOAT8_E5M2FNUZ,
        C::FLOAT8_E8M0FNU,
        C::FLOAT6_E2M3FN,
        C::FLOAT6_E3M2FN,
        C::FLOAT4_E2M1FN,
    ];
    for kind in devices.map(|kind| kind.0).into_iter().chain(codes.map(|code| code.0.into())) {
        writeln!(ours, "kind {kind}").unwrap();
    }
    assert_eq!(ours, theirs);
}

pub fn errors_of_the_real_library() {
    let Some(file) = library_file() else { return };
    let engine = Checked::new();
    let library = library(&engine, &file);
    let raise = function(&library, "raise");
    // What the shared library has comes before what is ours.
    let import =
        library.imports().unwrap().into_iter().find(|import| import.name == "TVMFFIErrorSetRaisedFromCStr").unwrap();
    assert_eq!(import.provider, Provider::SharedLibrary { path: file });
    // SAFETY: it takes two strings.
    let (kind, message, _) = raised(unsafe { raise.call::<()>((c"ValueError", c"too large: 7")) });
    assert_eq!((&*kind, &*message), ("ValueError", "too large: 7"));
    let (kind, message, _) = raised(of_int::<()>(&library, "raise_parts", 0));
    assert_eq!((&*kind, &*message), ("TypeError", "Argument 1 mismatch in `f(x: Tensor)`"));
    let (kind, message, backtrace) = raised(of_int::<()>(&library, "raise_with_backtrace", 0));
    assert_eq!((&*kind, &*message, backtrace.as_deref()), ("ValueError", "deep", Some("inner\nouter")));
    // It counts as ours does.
    let (kind, message, _) = raised(of_int::<()>(&library, "raise_object", 0));
    assert_eq!((&*kind, &*message), ("", "ffi.Shape was raised"));
    assert_eq!(["strong_ended", "weak_ended"].map(|name| common::call(&library, name)), [1, 1]);
    assert!(of_int::<i64>(&library, "swallow", 0).unwrap() > 0);
    assert!(matches!(of_int::<()>(&library, "fail", 1), Err(Error::TvmFfi(TvmFfiError::Failed { .. }))));
    // One of C++.
    let global = function(&library, "global");
    // SAFETY: it takes a name and the function's arguments.
    let (array, out_of_range) = unsafe {
        let array: Object = global.call((c"ffi.Array", 1_i64)).unwrap();
        let result = global.call::<i64>((c"ffi.ArrayGetItem", &array, 100_i64));
        (array, raised(result))
    };
    assert_eq!(out_of_range.0, "IndexError", "{out_of_range:?}");
    assert!(out_of_range.2.is_some(), "{out_of_range:?}");
    drop((array, global, raise));
    freed(&library);
    engine.finish();
}

pub fn errors_outlive_their_library_in_the_real_one() {
    if library_file().is_none() {
        return;
    }
    let end = child("left_errors_of_the_real_library_part");
    assert_eq!(end.code, Some(0), "{end:?}");
}

pub fn left_errors_of_the_real_library_part() {
    let Some(file) = library_file() else { return };
    errors_that_are_left(|engine| library(engine, &file));
}

pub fn values_of_the_real_library() {
    let Some(file) = library_file() else { return };
    let engine = Checked::new();
    let library = library(&engine, &file);
    let global = function(&library, "global");
    fn item<R: FromValue>(global: &slabjit::tvm_ffi::Function, array: &Object, at: i64) -> R {
        // SAFETY: it takes an array and a number.
        unsafe { global.call((c"ffi.ArrayGetItem", array, at)) }.unwrap()
    }
    let text = "longer than seven bytes".to_owned();
    // SAFETY: it takes anything.
    let array: Object = unsafe {
        global.call((
            c"ffi.Array",
            7_i64,
            &text,
            2.5,
            true,
            "short",
            &b"long enough bytes"[..],
            (),
            DLDevice::cuda(2),
            c"raw text",
        ))
    }
    .unwrap();
    // It keeps what it was given, which is ours.
    drop(text);
    assert_eq!(array.type_index(), TypeIndex::ARRAY);
    // SAFETY: it takes an array.
    assert_eq!(unsafe { global.call::<i64>((c"ffi.ArraySize", &array)) }.unwrap(), 9);
    assert_eq!(item::<i64>(&global, &array, 0), 7);
    assert_eq!(item::<String>(&global, &array, 1), "longer than seven bytes");
    assert_eq!(item::<f64>(&global, &array, 2), 2.5);
    assert!(item::<bool>(&global, &array, 3));
    assert_eq!(item::<String>(&global, &array, 4), "short");
    assert_eq!(item::<Vec<u8>>(&global, &array, 5), b"long enough bytes");
    item::<()>(&global, &array, 6);
    assert_eq!(item::<DLDevice>(&global, &array, 7), DLDevice::cuda(2));
    assert_eq!(item::<String>(&global, &array, 8), "raw text");
    // An array of arrays, dropped in the other order.
    // SAFETY: it takes anything.
    let outer: Object = unsafe { global.call((c"ffi.Array", &array, &array)) }.unwrap();
    drop(array);
    let inner: Object = item(&global, &outer, 1);
    drop(outer);
    assert_eq!(item::<String>(&global, &inner, 1), "longer than seven bytes");
    drop(inner);

    // Its own string, let go of by us: the reference that is left is the kernel's.
    // SAFETY: they take nothing.
    unsafe {
        let empty: &[Any<'_>; 0] = &[];
        assert_eq!(function(&library, "string").call::<String>(empty).unwrap(), "made by libtvm_ffi");
        assert_eq!(function(&library, "string_references").call::<i64>(()).unwrap(), 1 << 32 | 1);
        function(&library, "string_ends").call::<()>(()).unwrap();
    }

    // The library calls what was loaded.
    let through = function(&library, "through");
    // SAFETY: it takes what `kind` takes, or anything.
    unsafe {
        assert_eq!(through.call::<f64>((3_i64,)).unwrap(), 2.5);
        assert_eq!(raised(through.call::<f64>(("not an int",))).1, "Argument 1 mismatch in `f(x: Tensor)`");
    }

    let tensor: Object = of_int(&library, "tensor", 0).unwrap();
    assert_eq!(tensor.type_index(), TypeIndex::TENSOR);
    // SAFETY: a tensor of the library's has its shape and strides.
    let view = unsafe { Tensor::from_dlpack(tensor.tensor().unwrap()) }.unwrap();
    // SAFETY: it takes a tensor.
    assert_eq!(unsafe { function(&library, "sum").call::<f64>((&view,)) }.unwrap(), 12.0);
    assert_eq!(common::call(&library, "memory_returned"), 0);
    drop(tensor);
    assert_eq!(common::call(&library, "memory_returned"), 1);
    drop((global, through));
    freed(&library);
    engine.finish();
}

pub fn streams_of_the_real_library() {
    let Some(file) = library_file() else { return };
    let engine = Checked::new();
    let library = library(&engine, &file);
    let stream = function(&library, "stream");
    let one = ptr::without_provenance_mut::<c_void>(0x1000);
    // SAFETY: nobody uses the streams.
    unsafe {
        let of = |device: i32| stream.call::<*mut c_void>((DLDevice::cuda(device),)).unwrap();
        assert!(stream.runtime().set_stream(DLDevice::cuda(1), one).unwrap().is_null());
        assert_eq!((of(0), of(1)), (ptr::null_mut(), one));
        assert_eq!(stream.runtime().set_stream(DLDevice::cuda(1), ptr::null_mut()).unwrap(), one);
    }
    drop(stream);
    freed(&library);
    engine.finish();
}

pub fn functions_of_the_real_library() {
    let Some(file) = library_file() else { return };
    let engine = Checked::new();
    let library = library(&engine, &file);
    // SAFETY: libtvm_ffi.so is what it is.
    let runtime = unsafe { Runtime::of(&library) }.unwrap();
    let global = |name: &str| runtime.global(name).unwrap();
    // SAFETY: these functions take any values, and check them.
    let array: Object = unsafe { runtime.call(&global("ffi.Array"), (7, "a longer text", ())) }.unwrap();
    assert_eq!(array.type_index(), TypeIndex::ARRAY);
    // SAFETY: as above.
    let size: i64 = unsafe { runtime.call(&global("ffi.ArraySize"), (&array,)) }.unwrap();
    assert_eq!(size, 3);
    let item = global("ffi.ArrayGetItem");
    // SAFETY: as above.
    let text: String = unsafe { runtime.call(&item, (&array, 1)) }.unwrap();
    assert_eq!(text, "a longer text");
    // SAFETY: as above.
    let error = unsafe { runtime.call::<i64>(&item, (&array, 1)) }.unwrap_err();
    assert!(matches!(&error, Error::TvmFfi(TvmFfiError::Result { expected: "int", .. })), "{error}");
    // SAFETY: as above.
    let error = unsafe { runtime.call::<i64>(&item, (&array, 3)) }.unwrap_err();
    assert!(matches!(&error, Error::TvmFfi(TvmFfiError::Raised { kind, .. }) if kind == "IndexError"), "{error}");
    // SAFETY: nothing is called.
    let error = unsafe { runtime.call::<i64>(&array, ()) }.unwrap_err();
    assert!(
        matches!(&error, Error::TvmFfi(TvmFfiError::NotAFunction { found, .. }) if found == "ffi.Array"),
        "{error}"
    );
    let error = runtime.global("nobody.registers.this").unwrap_err();
    assert!(
        matches!(&error, Error::TvmFfi(TvmFfiError::NoGlobal { function, .. }) if function == "nobody.registers.this"),
        "{error}"
    );
    drop((item, array, runtime));
    freed(&library);
    // The substitute has no global functions.
    let library = engine.library("without").tvm_ffi().build().unwrap();
    // SAFETY: the substitute's functions are those of the header.
    let error = unsafe { Runtime::of(&library) }.unwrap().global("ffi.Array").unwrap_err();
    assert!(matches!(&error, Error::TvmFfi(TvmFfiError::Runtime { symbol: "TVMFFIFunctionGetGlobal", .. })), "{error}");
    assert!(!error.to_string().contains("LibraryBuilder::tvm_ffi"), "{error}");
    drop(library);
    engine.finish();
}
