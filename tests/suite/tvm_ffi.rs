//! The packed calling convention: kernels in C, with declarations written from the ABI's document; and the real
//! libtvm_ffi.

mod real;

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::thread;

use slabjit::tvm_ffi::{
    Any, DLDataType, DLDevice, DLTensor, FromValue, Function, Layout, Object, Tensor, TypeIndex, Value,
};
use slabjit::{Error, Library, LibraryError, LinkError, Removal, TvmFfiError};

use real::{
    errors_of_the_real_library, errors_outlive_their_library_in_the_real_one, functions_of_the_real_library,
    left_errors_of_the_real_library_part, records_are_those_of_the_header, streams_of_the_real_library,
    values_of_the_real_library,
};

use crate::common::{self, Checked, call, child, compile_bytes, freed};

common::tests![
    arguments_arrive_as_c_reads_them,
    results_of_every_kind,
    results_of_another_kind,
    objects_are_let_go_of_once,
    objects_keep_their_code,
    weak_references_keep_the_memory,
    strings_may_be_kept,
    tensors_are_returned,
    errors_have_kind_and_message,
    errors_without_a_runtime,
    errors_that_functions_handle,
    errors_belong_to_threads,
    errors_outlive_their_library,
    streams_belong_to_threads_and_devices,
    tensors_with_strides,
    tensors_that_are_refused,
    functions_that_are_not_there,
    functions_keep_their_code,
    more_arguments_than_can_be_counted,
    records_are_those_of_the_header,
    errors_of_the_real_library,
    errors_outlive_their_library_in_the_real_one,
    values_of_the_real_library,
    streams_of_the_real_library,
    functions_of_the_real_library;
    alone: strings_are_freed;
    parts: left_errors_part, left_errors_of_the_real_library_part,
];

/// The kernels' object.
fn kernels() -> Vec<u8> {
    compile_bytes("kernels.c", concat!(include_str!("tvm_ffi/abi.h"), include_str!("tvm_ffi/kernels.c")), &[])
}

/// A library of the kernels with our runtime.
fn library(engine: &Checked) -> Library {
    let library = engine.library("kernels").tvm_ffi().build().unwrap();
    library.add_object_named("kernels.o", kernels()).unwrap();
    library
}

fn function(library: &Library, name: &str) -> Function {
    // SAFETY: all kernels are packed functions.
    unsafe { Function::get(library, name).unwrap() }
}

/// Calls a kernel with an int.
fn of_int<R: FromValue>(library: &Library, name: &str, argument: i64) -> slabjit::Result<R> {
    // SAFETY: it takes one.
    unsafe { function(library, name).call((argument,)) }
}

fn described(library: &Library) -> String {
    // SAFETY: as kernels.c has it.
    let text =
        unsafe { CStr::from_ptr(library.get::<unsafe extern "C" fn() -> *const c_char>("described").unwrap()()) };
    text.to_str().unwrap().to_owned()
}

fn arguments_arrive_as_c_reads_them() {
    let engine = Checked::new();
    let library = library(&engine);
    let describe = function(&library, "describe");
    let pointer = ptr::without_provenance_mut::<c_void>(0x1234);
    // SAFETY: it takes anything.
    let described_after = |result: slabjit::Result<()>| result.map(|()| described(&library)).unwrap();
    // SAFETY: as above.
    unsafe {
        assert_eq!(described_after(describe.call(())), "null 0");
        assert_eq!(
            described_after(describe.call((3_i64, -4_i8, 5_u32, i64::MIN))),
            "null 4 1:3 1:-4 1:5 1:-9223372036854775808"
        );
        assert_eq!(described_after(describe.call((4.5_f64, 0.25_f32, true, false))), "null 4 3:4.5 3:0.25 2:1 2:0");
        assert_eq!(described_after(describe.call(((), None::<i64>, Some(7_i64)))), "null 3 0:0 0:0 1:7");
        assert_eq!(described_after(describe.call((pointer, pointer.cast_const()))), "null 2 4:0x1234 4:0x1234");
        let half = DLDataType::scalar(slabjit::tvm_ffi::DLDataTypeCode::FLOAT, 16);
        assert_eq!(described_after(describe.call((half, DLDevice::cuda(3)))), "null 2 5:2/16/1/0 6:2/3");
        assert_eq!(
            described_after(describe.call((c"raw text", "", "1234567", "12345678"))),
            "null 4 8:raw text 11:0/ 11:7/1234567 65:8/12345678/100000001"
        );
        let owned = String::from("a longer text");
        assert_eq!(
            described_after(describe.call((&owned, &b"bytes"[..], &b"more than seven"[..]))),
            "null 3 65:13/a longer text/100000001 12:5/bytes 66:15/more than seven/100000001"
        );
        let i = 1_i32;
        assert_eq!(
            described_after(describe.call((i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, 16_i64))),
            format!("null 16{} 1:16", " 1:1".repeat(15))
        );
        let many: Vec<Any> = (0..100_i64).map(Any::from).collect();
        let all: String = (0..100).map(|i| format!(" 1:{i}")).collect();
        assert_eq!(described_after(describe.call(&many[..])), format!("null 100{all}"));
        assert_eq!(
            described_after(describe.call(&[Any::from(1_i64), Any::from("a string object")])),
            "null 2 1:1 65:15/a string object/100000001"
        );
    }
    drop(describe);
    freed(&library);
    engine.finish();
}

fn results_of_every_kind() {
    let engine = Checked::new();
    let library = library(&engine);
    assert_eq!(of_int::<()>(&library, "kind", 0).map_err(|e| e.to_string()), Ok(()));
    assert_eq!(of_int::<i64>(&library, "kind", 1).unwrap(), -5);
    assert!(of_int::<bool>(&library, "kind", 2).unwrap());
    assert_eq!(of_int::<f64>(&library, "kind", 3).unwrap(), 2.5);
    // SAFETY: as kernels.c has it.
    let text = unsafe { library.get::<unsafe extern "C" fn() -> *mut c_void>("pointer").unwrap()() };
    assert_eq!(of_int::<*mut c_void>(&library, "kind", 4).unwrap(), text);
    let dtype = of_int::<DLDataType>(&library, "kind", 5).unwrap();
    assert_eq!((dtype.code.0, dtype.bits, dtype.lanes), (2, 16, 4));
    assert_eq!(of_int::<DLDevice>(&library, "kind", 6).unwrap(), DLDevice::cuda(3));
    assert_eq!(of_int::<String>(&library, "kind", 11).unwrap(), "small");
    assert_eq!(of_int::<Vec<u8>>(&library, "kind", 12).unwrap(), [0, 1, 2]);
    assert_eq!(of_int::<String>(&library, "kind", 65).unwrap(), "a longer text");
    assert_eq!(of_int::<Vec<u8>>(&library, "kind", 66).unwrap(), b"a longer text");
    assert_eq!(of_int::<Vec<u8>>(&library, "not_utf8", 0).unwrap(), b"\xff\xfe");
    assert_eq!(of_int::<Option<i64>>(&library, "kind", 0).unwrap(), None);
    assert_eq!(of_int::<Option<i64>>(&library, "kind", 1).unwrap(), Some(-5));
    assert!(matches!(of_int::<Value>(&library, "kind", 3).unwrap(), Value::Float(2.5)));
    assert!(matches!(of_int::<Value>(&library, "kind", 8).unwrap(), Value::Other(TypeIndex::RAW_STR)));
    assert!(matches!(of_int::<Value>(&library, "kind", -1).unwrap(), Value::Other(TypeIndex(-1))));
    assert!(matches!(of_int::<Value>(&library, "null_object", 0).unwrap(), Value::Other(TypeIndex::OBJECT)));
    freed(&library);
    engine.finish();
}

fn results_of_another_kind() {
    let engine = Checked::new();
    let library = library(&engine);
    #[track_caller]
    fn refused<R: FromValue>(result: slabjit::Result<R>, wanted: &str, had: &str) {
        match result.err() {
            Some(Error::TvmFfi(TvmFfiError::Result { library, function, expected, found })) => {
                assert_eq!((&*library, expected, &*found), ("kernels", wanted, had));
                assert!(["kind", "object"].contains(&&*function));
            }
            other => panic!("{other:?}"),
        }
    }
    refused(of_int::<i64>(&library, "kind", 3), "int", "float");
    refused(of_int::<f64>(&library, "kind", 1), "float", "int");
    refused(of_int::<bool>(&library, "kind", 1), "bool", "int");
    refused(of_int::<i64>(&library, "kind", 2), "int", "bool");
    refused(of_int::<()>(&library, "kind", 2), "None", "bool");
    refused(of_int::<i64>(&library, "kind", 0), "int", "None");
    refused(of_int::<Option<i64>>(&library, "kind", 3), "int", "float");
    refused(of_int::<String>(&library, "kind", 66), "str in UTF-8", "ffi.Bytes");
    refused(of_int::<i64>(&library, "kind", 8), "int", "const char*");
    refused(of_int::<i64>(&library, "kind", 50), "int", "a value of the unknown type 50");
    // Let go of, each once.
    refused(of_int::<i64>(&library, "object", 70), "int", "ffi.Tensor");
    refused(of_int::<String>(&library, "object", 200), "str in UTF-8", "an object of type 200");
    assert_eq!(["strong_ended", "weak_ended"].map(|name| call(&library, name)), [2, 2]);
    freed(&library);
    engine.finish();
}

fn objects_are_let_go_of_once() {
    let engine = Checked::new();
    let library = library(&engine);
    let references = function(&library, "references");
    // SAFETY: it takes an object.
    let counted = |object: &Object| unsafe { references.call::<i64>((object,)) }.unwrap();
    let weak = 1 << 32;
    let ended = || ["strong_ended", "weak_ended"].map(|name| call(&library, name));
    let object: Object = of_int(&library, "object", 130).unwrap();
    assert_eq!(object.type_index(), TypeIndex(130));
    assert!(object.tensor().is_none());
    // Its own, and the argument's.
    assert_eq!(counted(&object), weak + 2);
    let clone = object.clone();
    assert_eq!(counted(&clone), weak + 3);
    let argument = Any::from(&object);
    let arguments = [argument.clone()];
    assert_eq!(counted(&clone), weak + 5);
    // SAFETY: it takes an object.
    assert_eq!(unsafe { references.call::<i64>(&arguments) }.unwrap(), weak + 4);
    drop((argument, arguments));
    drop(object);
    assert_eq!(ended(), [0, 0]);
    assert_eq!(counted(&clone), weak + 2);
    drop(clone);
    assert_eq!(ended(), [1, 1]);
    // Nothing of what failed is left.
    assert!(matches!(
        of_int::<Object>(&library, "object_and_error", 130),
        Err(Error::TvmFfi(TvmFfiError::Raised { .. }))
    ));
    assert_eq!(ended(), [2, 2]);
    // Dropped by many threads at once.
    let objects: Vec<Object> = (0..4).map(|_| of_int(&library, "object", 130).unwrap()).collect();
    struct Shared(Object);
    // SAFETY: counts are atomic, and the kernels' deleter can be run by any thread.
    unsafe impl Send for Shared {}
    thread::scope(|scope| {
        for _ in 0..8 {
            let mine: Vec<Shared> = objects.iter().cloned().map(Shared).collect();
            scope.spawn(move || drop({ mine }.drain(..).flat_map(|o| vec![o.0.clone(); 100]).collect::<Vec<_>>()));
        }
        drop(objects);
    });
    assert_eq!(ended(), [6, 6]);
    drop(references);
    freed(&library);
    engine.finish();
}

fn objects_keep_their_code() {
    let engine = Checked::new();
    let library = library(&engine);
    let object: Object = of_int(&library, "object", 130).unwrap();
    assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
    // Its deleter is run, which is the library's.
    drop(object);
    freed(&library);
    engine.finish();
}

fn weak_references_keep_the_memory() {
    let engine = Checked::new();
    let library = library(&engine);
    let object: Object = of_int(&library, "watched_object", 0).unwrap();
    drop(object);
    assert_eq!(["strong_ended", "weak_ended"].map(|name| call(&library, name)), [1, 0]);
    assert_eq!(call(&library, "unwatch"), 1);
    assert_eq!(["strong_ended", "weak_ended"].map(|name| call(&library, name)), [1, 1]);
    // The other way round: the weak reference goes first.
    let object: Object = of_int(&library, "watched_object", 0).unwrap();
    assert_eq!(call(&library, "unwatch"), 0);
    drop(object);
    assert_eq!(["strong_ended", "weak_ended"].map(|name| call(&library, name)), [2, 2]);
    freed(&library);
    engine.finish();
}

fn strings_may_be_kept() {
    let engine = Checked::new();
    let library = library(&engine);
    let (keep, give) = (function(&library, "keep"), function(&library, "give"));
    let text = "longer than seven bytes".to_owned();
    // SAFETY: they keep a string object and give it.
    unsafe {
        keep.call::<()>((&text,)).unwrap();
        drop(text);
        assert_eq!(give.call::<String>(()).unwrap(), "longer than seven bytes");
    }
    drop((keep, give));
    freed(&library);
    engine.finish();
}

fn strings_are_freed() {
    let engine = Checked::new();
    let library = library(&engine);
    let describe = function(&library, "describe");
    let text = "x".repeat(4 << 20);
    let pass = |times: usize| {
        for _ in 0..times {
            // SAFETY: it takes anything, and writes the beginning of it.
            unsafe { describe.call::<()>((&text,)).unwrap() };
        }
        common::resident()
    };
    let (before, after) = (pass(2), pass(20));
    assert!(after < before + (40 << 20), "{before} bytes, then {after}");
    drop(describe);
    freed(&library);
    engine.finish();
}

fn tensors_are_returned() {
    let engine = Checked::new();
    let library = library(&engine);
    let object: Object = of_int(&library, "tensor_object", 0).unwrap();
    let tensor = object.tensor().unwrap();
    // SAFETY: as kernels.c has it.
    let tensor = unsafe { Tensor::from_dlpack(tensor).unwrap() };
    // SAFETY: it takes a tensor.
    assert_eq!(unsafe { function(&library, "sum").call::<f64>((&tensor,)) }.unwrap(), 3.0);
    drop(object);
    freed(&library);
    engine.finish();
}

/// Kind, message and backtrace of what was raised.
#[track_caller]
fn raised<R>(result: slabjit::Result<R>) -> (String, String, Option<String>) {
    match result.err() {
        Some(Error::TvmFfi(TvmFfiError::Raised { library, kind, message, backtrace, .. })) => {
            assert!(library.starts_with("kernels"), "{library}");
            (kind, message, backtrace)
        }
        other => panic!("{other:?}"),
    }
}

fn errors_have_kind_and_message() {
    let engine = Checked::new();
    let library = library(&engine);
    let raise = function(&library, "raise");
    let expected = |kind: &str, message: &str| (kind.to_owned(), message.to_owned(), None);
    // SAFETY: it takes two strings.
    unsafe {
        assert_eq!(raised(raise.call::<()>((c"ValueError", c"too large: 7"))), expected("ValueError", "too large: 7"));
        // The last counts; what is not UTF-8 is replaced.
        assert_eq!(raised(raise.call::<()>((c"K", c"\xff"))), expected("K", "\u{fffd}"));
        // Null counts as nothing.
        assert_eq!(raised(raise.call::<()>((ptr::null::<c_void>(), ptr::null::<c_void>()))), expected("", ""));
    }
    // SAFETY: as above.
    let text = unsafe { raise.call::<()>((c"ValueError", c"too large")) }.unwrap_err().to_string();
    assert_eq!(text, "'raise' of library 'kernels' raised ValueError: too large");
    assert_eq!(
        raised(of_int::<()>(&library, "raise_parts", 0)),
        expected("TypeError", "Argument 1 mismatch in `f(x: Tensor)`")
    );
    assert_eq!(
        raised(of_int::<()>(&library, "raise_with_backtrace", 0)),
        ("ValueError".to_owned(), "deep".to_owned(), Some("inner\nouter".to_owned()))
    );
    // What is no error.
    assert_eq!(raised(of_int::<()>(&library, "raise_object", 0)), expected("", "ffi.Shape was raised"));
    assert_eq!(["strong_ended", "weak_ended"].map(|name| call(&library, name)), [1, 1]);
    drop(raise);
    freed(&library);
    engine.finish();
}

fn errors_without_a_runtime() {
    let engine = Checked::new();
    let library = library(&engine);
    // Failed, and raised nothing: also after others have raised.
    let _ = raised(of_int::<()>(&library, "raise_parts", 0));
    for code in [1, -1, -2] {
        let error = of_int::<()>(&library, "fail", code.into()).unwrap_err();
        assert!(
            matches!(&error, Error::TvmFfi(TvmFfiError::Failed { code: found, function, .. }) if *found == code && function == "fail"),
            "{error:?}"
        );
    }
    freed(&library);
    // There is no runtime, and none is needed.
    let object = compile_bytes(
        "alone.c",
        "int __tvm_ffi_fail(void *self, void *args, int count, void *result) { return count; }",
        &[],
    );
    let library = engine.add_object(object).unwrap();
    let fail = function(&library, "fail");
    // SAFETY: it takes anything.
    unsafe {
        fail.call::<()>(()).unwrap();
        assert!(matches!(fail.call::<()>((1_i64, 2_i64)), Err(Error::TvmFfi(TvmFfiError::Failed { code: 2, .. }))));
        let error = fail.runtime().set_stream(DLDevice::cuda(0), ptr::null_mut()).unwrap_err();
        assert!(matches!(error, Error::TvmFfi(TvmFfiError::Runtime { symbol: "TVMFFIEnvSetStream", .. })), "{error}");
    }
    drop(fail);
    freed(&library);
    // One is needed.
    let library = engine.add_object(kernels()).unwrap();
    // SAFETY: nothing is found.
    let error = unsafe { Function::get(&library, "raise") }.unwrap_err();
    assert!(
        matches!(&error, Error::Link(LinkError::UndefinedSymbols { symbols, .. }) if symbols.iter().all(|s| s.name.starts_with("TVMFFI"))),
        "{error}"
    );
    assert!(error.to_string().contains("LibraryBuilder::tvm_ffi"), "{error}");
    drop(library);
    engine.finish();
}

fn errors_that_functions_handle() {
    let engine = Checked::new();
    let library = library(&engine);
    assert_eq!(of_int::<i64>(&library, "swallow", 0).unwrap(), "Argument 1 mismatch in `f(x: Tensor)`".len() as i64);
    // Nothing is left of it.
    assert!(matches!(of_int::<()>(&library, "fail", 1), Err(Error::TvmFfi(TvmFfiError::Failed { .. }))));
    freed(&library);
    engine.finish();
}

fn errors_belong_to_threads() {
    let engine = Checked::new();
    let library = library(&engine);
    let functions = [function(&library, "raise"), function(&library, "fail")];
    let [raise, fail] = &functions;
    let barrier = &std::sync::Barrier::new(4);
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let message = std::ffi::CString::new(format!("of thread {thread}")).unwrap();
                barrier.wait();
                for _ in 0..1000 {
                    // SAFETY: they take two strings, and an int.
                    let result = unsafe {
                        match thread {
                            0 => fail.call::<()>((1_i64,)),
                            _ => raise.call::<()>((c"E", &*message)),
                        }
                    };
                    match thread {
                        0 => assert!(matches!(result, Err(Error::TvmFfi(TvmFfiError::Failed { .. }))), "{result:?}"),
                        _ => assert_eq!(raised(result).1, format!("of thread {thread}")),
                    }
                }
                // One that is never taken goes with its thread.
                let args = [Any::from(c"E"), Any::from(c"never taken")];
                let mut result = *Any::NONE.as_raw();
                // SAFETY: as kernels.c has it.
                assert_eq!(unsafe { (raise.symbol())(ptr::null_mut(), args.as_ptr().cast(), 2, &mut result) }, -1);
            });
        }
    });
    drop(functions);
    freed(&library);
    engine.finish();
}

fn errors_outlive_their_library() {
    let end = child("left_errors_part");
    assert_eq!(end.code, Some(0), "{end:?}");
}

fn left_errors_part() {
    errors_that_are_left(library);
}

/// Errors that a library has made itself, raised and left there by it, and the library is gone before anybody looks.
fn errors_that_are_left(library: impl Fn(&Checked) -> Library + Sync) {
    let leave = |kernel: &str| {
        let engine = Checked::new();
        let library = library(&engine);
        of_int::<()>(&library, kernel, 0).unwrap();
        freed(&library);
        engine.finish();
    };
    let own = |message: &str, line: &str| ("OwnError".to_owned(), message.to_owned(), Some(line.to_owned()));
    let cases = [
        ("raise_own", own("of the library's own", "own.c:1")),
        ("raise_fixed", own("in the library's data", "own.c:2")),
        ("raise_own_object", (String::new(), "ffi.Shape was raised".to_owned(), None)),
    ];
    for (kernel, expected) in cases {
        println!("{kernel}: the thread ends");
        thread::scope(|scope| scope.spawn(|| leave(kernel)).join().unwrap());
        println!("{kernel}: another is raised");
        thread::scope(|scope| {
            let body = || {
                leave(kernel);
                let engine = Checked::new();
                let library = library(&engine);
                assert_eq!(raised(of_int::<()>(&library, "raise_parts", 0)).0, "TypeError");
                freed(&library);
            };
            scope.spawn(body).join().unwrap();
        });
        println!("{kernel}: it is read");
        leave(kernel);
        let engine = Checked::new();
        let library = library(&engine);
        assert_eq!(raised(of_int::<()>(&library, "fail", 1)), expected);
        // Nothing is left, and nothing of the library's is kept.
        assert!(matches!(of_int::<()>(&library, "fail", 1), Err(Error::TvmFfi(TvmFfiError::Failed { .. }))));
        of_int::<()>(&library, "raise_own", 0).unwrap();
        assert_eq!(["strong_ended", "weak_ended"].map(|name| call(&library, name)), [1, 1]);
        freed(&library);
        engine.finish();
    }
}

fn streams_belong_to_threads_and_devices() {
    let engine = Checked::new();
    let library = library(&engine);
    let stream = function(&library, "stream");
    let [one, two] = [0x1000, 0x2000].map(ptr::without_provenance_mut::<c_void>);
    // SAFETY: nobody uses the streams.
    unsafe {
        let of = |device: i32| stream.call::<*mut c_void>((DLDevice::cuda(device),)).unwrap();
        assert!(of(0).is_null());
        assert!(stream.runtime().set_stream(DLDevice::cuda(0), one).unwrap().is_null());
        assert_eq!(stream.runtime().set_stream(DLDevice::cuda(0), two).unwrap(), one);
        assert_eq!((of(0), of(1)), (two, ptr::null_mut()));
        thread::scope(|scope| {
            scope.spawn(|| assert!(stream.call::<*mut c_void>((DLDevice::cuda(0),)).unwrap().is_null()));
        });
        assert_eq!(stream.runtime().set_stream(DLDevice::cuda(0), ptr::null_mut()).unwrap(), two);
    }
    drop(stream);
    freed(&library);
    engine.finish();
}

fn tensors_with_strides() {
    let engine = Checked::new();
    let library = library(&engine);
    let (sum, fill) = (function(&library, "sum"), function(&library, "fill"));
    // SAFETY: it takes a tensor, and reads it.
    let sum_of = |tensor: &Tensor<'_>| unsafe { sum.call::<f64>((tensor,)) };
    let data: Vec<f32> = (0..24).map(|i| i as f32).collect();

    let whole = Layout::contiguous(&[2, 3, 4]).unwrap();
    assert_eq!((whole.shape(), whole.strides()), (&[2, 3, 4][..], &[12, 4, 1][..]));
    assert_eq!(sum_of(&Tensor::from_slice(&data, &whole).unwrap()).unwrap(), 276.0);
    // Every other column of every other row of 6 columns: 0 2 4 12 14 16.
    let some = Layout::strided(&[2, 3], &[12, 2]).unwrap();
    assert_eq!(sum_of(&Tensor::from_slice(&data, &some).unwrap()).unwrap(), 48.0);
    // The last element is the slice's last; a repeated one; no dimension; no element.
    let last = Layout::strided(&[2, 3], &[19, 2]).unwrap();
    assert_eq!(sum_of(&Tensor::from_slice(&data, &last).unwrap()).unwrap(), 6.0 + 63.0);
    let repeated = Layout::strided(&[10], &[0]).unwrap();
    assert_eq!(sum_of(&Tensor::from_slice(&data[3..4], &repeated).unwrap()).unwrap(), 30.0);
    assert_eq!(sum_of(&Tensor::from_slice(&data[5..], &Layout::contiguous(&[]).unwrap()).unwrap()).unwrap(), 5.0);
    let empty = Layout::contiguous(&[3, 0, 2]).unwrap();
    assert_eq!(empty.strides(), [2, 2, 1]);
    assert_eq!(sum_of(&Tensor::from_slice(&data[..0], &empty).unwrap()).unwrap(), 0.0);

    let mut written = vec![0.0_f32; 12];
    let columns = Layout::strided(&[3, 2], &[4, 1]).unwrap();
    let tensor = Tensor::from_slice_mut(&mut written, &columns).unwrap();
    // SAFETY: it takes a tensor that it may write to.
    unsafe { fill.call::<()>((&tensor, 2.0)).unwrap() };
    assert_eq!(written, [2.0, 2.0, 0.0, 0.0].repeat(3));

    // The element type is the slice's.
    let doubles = [1.0_f64; 24];
    let refused = sum_of(&Tensor::from_slice(&doubles, &whole).unwrap());
    assert_eq!(raised(refused), ("TypeError".into(), "a tensor of float32 on the CPU is expected".into(), None));

    let device = ptr::without_provenance_mut::<c_void>(0x10_0000);
    let tensor = Tensor::from_raw(device, DLDataType::F32, DLDevice::cuda(7), &whole).unwrap();
    // SAFETY: it does not follow the pointer.
    let found: i64 = unsafe { function(&library, "data_pointer").call((&tensor,)).unwrap() };
    assert_eq!(found, 0x10_0000 + 2 * 1000 + 7 + 3);
    drop((sum, fill));
    freed(&library);
    engine.finish();
}

fn tensors_that_are_refused() {
    let data = [0.0_f32; 10];
    let slice = |shape: &[i64], strides: &[i64]| -> slabjit::Result<()> {
        let layout = Layout::strided(shape, strides)?;
        Tensor::from_slice(&data, &layout).map(drop)
    };
    slice(&[2, 3], &[7, 1]).unwrap();
    assert!(matches!(
        slice(&[2, 3], &[8, 1]),
        Err(Error::TvmFfi(TvmFfiError::TensorOutOfBounds { needed: 11, elements: 10 }))
    ));
    assert!(matches!(
        slice(&[11], &[1]),
        Err(Error::TvmFfi(TvmFfiError::TensorOutOfBounds { needed: 11, elements: 10 }))
    ));
    assert!(matches!(slice(&[2, 3], &[1]), Err(Error::TvmFfi(TvmFfiError::TensorRank { .. }))));
    assert!(matches!(slice(&[2, -3], &[1, 1]), Err(Error::TvmFfi(TvmFfiError::TensorExtent { dimension: 1, .. }))));
    assert!(matches!(slice(&[2, 3], &[-1, 1]), Err(Error::TvmFfi(TvmFfiError::TensorStride { dimension: 0, .. }))));
    assert!(matches!(slice(&[3, 2], &[i64::MAX, 1]), Err(Error::TvmFfi(TvmFfiError::TensorOverflow { .. }))));
    assert!(matches!(slice(&[2, 2], &[i64::MAX, 1]), Err(Error::TvmFfi(TvmFfiError::TensorOverflow { .. }))));
    // So many elements cannot be counted, though they all are one.
    assert!(matches!(slice(&[1 << 32, 1 << 32], &[0, 0]), Err(Error::TvmFfi(TvmFfiError::TensorOverflow { .. }))));
    assert!(matches!(Layout::contiguous(&[1 << 32, 1 << 32]), Err(Error::TvmFfi(TvmFfiError::TensorOverflow { .. }))));
    assert!(matches!(
        Layout::contiguous(&[0, 1 << 32, 1 << 32]),
        Err(Error::TvmFfi(TvmFfiError::TensorOverflow { .. }))
    ));
    assert!(matches!(Layout::contiguous(&[1, -1]), Err(Error::TvmFfi(TvmFfiError::TensorExtent { dimension: 1, .. }))));

    let layout = Layout::contiguous(&[3]).unwrap();
    let empty = Layout::contiguous(&[0]).unwrap();
    let raw = |address: usize, dtype, layout: &Layout| {
        Tensor::from_raw(ptr::without_provenance_mut(address), dtype, DLDevice::CPU, layout).map(drop)
    };
    raw(16, DLDataType::F32, &layout).unwrap();
    raw(0, DLDataType::F32, &empty).unwrap();
    assert!(matches!(raw(0, DLDataType::F32, &layout), Err(Error::TvmFfi(TvmFfiError::TensorNull { bytes: 12 }))));
    assert!(matches!(
        raw(18, DLDataType::F32, &layout),
        Err(Error::TvmFfi(TvmFfiError::TensorMisaligned { address: 18, alignment: 4 }))
    ));
    raw(18, DLDataType::U16, &layout).unwrap();
    raw(18, DLDataType { bits: 4, ..DLDataType::U8 }, &layout).unwrap();
    assert!(matches!(
        raw(usize::MAX - 7, DLDataType::F32, &layout),
        Err(Error::TvmFfi(TvmFfiError::TensorOverflow { .. }))
    ));
    let huge = Layout::contiguous(&[1 << 61]).unwrap();
    assert!(matches!(raw(16, DLDataType::F64, &huge), Err(Error::TvmFfi(TvmFfiError::TensorOverflow { .. }))));

    let (mut shape, mut strides) = ([3_i64], [1_i64]);
    let good = DLTensor {
        data: ptr::without_provenance_mut(16),
        device: DLDevice::CPU,
        ndim: 1,
        dtype: DLDataType::F32,
        shape: shape.as_mut_ptr(),
        strides: strides.as_mut_ptr(),
        byte_offset: 0,
    };
    // SAFETY: shape and strides are there.
    let dlpack = |tensor: DLTensor| unsafe { Tensor::from_dlpack(&tensor).map(drop) };
    dlpack(good).unwrap();
    assert!(matches!(
        dlpack(DLTensor { data: ptr::null_mut(), ..good }),
        Err(Error::TvmFfi(TvmFfiError::TensorNull { bytes: 12 }))
    ));
    assert!(matches!(
        dlpack(DLTensor { shape: ptr::null_mut(), ..good }),
        Err(Error::TvmFfi(TvmFfiError::TensorRank { .. }))
    ));
    assert!(matches!(
        dlpack(DLTensor { strides: ptr::null_mut(), ..good }),
        Err(Error::TvmFfi(TvmFfiError::TensorRank { .. }))
    ));
    assert!(matches!(dlpack(DLTensor { ndim: -1, ..good }), Err(Error::TvmFfi(TvmFfiError::TensorRank { .. }))));
    assert!(matches!(
        dlpack(DLTensor { byte_offset: 2, ..good }),
        Err(Error::TvmFfi(TvmFfiError::TensorMisaligned { address: 18, .. }))
    ));
    assert!(matches!(
        dlpack(DLTensor { byte_offset: u64::MAX - 20, ..good }),
        Err(Error::TvmFfi(TvmFfiError::TensorOverflow { .. }))
    ));
    dlpack(DLTensor { ndim: 0, shape: ptr::null_mut(), strides: ptr::null_mut(), ..good }).unwrap();
}

fn functions_that_are_not_there() {
    let engine = Checked::new();
    let library = library(&engine);
    // SAFETY: nothing is found.
    let get = |name: &str| unsafe { Function::get(&library, name) }.unwrap_err();
    assert!(
        matches!(get("nowhere"), Error::Library(LibraryError::SymbolNotFound { symbol, .. }) if symbol == "__tvm_ffi_nowhere")
    );
    assert!(
        matches!(get("data"), Error::Library(LibraryError::WrongSymbolKind { symbol, .. }) if symbol == "__tvm_ffi_data")
    );
    assert!(matches!(get("a\0b"), Error::Library(LibraryError::InvalidName { .. })));
    freed(&library);
    assert!(matches!(get("raise"), Error::Library(LibraryError::Removed { .. })));
    engine.finish();
}

fn functions_keep_their_code() {
    let engine = Checked::new();
    let library = library(&engine);
    let kind = function(&library, "kind");
    assert!(matches!(library.remove(), Removal::Waiting { .. }));
    let clone = kind.clone();
    drop(kind);
    // SAFETY: it takes an int.
    assert_eq!(unsafe { clone.call::<i64>((1_i64,)) }.unwrap(), -5);
    drop(clone);
    freed(&library);
    engine.finish();
}

fn more_arguments_than_can_be_counted() {
    let engine = Checked::new();
    let library = library(&engine);
    let count = 1_usize << 31;
    let bytes = count * size_of::<Any<'_>>();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new pages.
    let nones = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ, flags, -1, 0) };
    if nones == libc::MAP_FAILED {
        println!("not run: no address space for 2^31 arguments");
    } else {
        // SAFETY: what is all 0 is None.
        let arguments: &[Any<'_>] = unsafe { std::slice::from_raw_parts(nones.cast(), count) };
        let describe = function(&library, "describe");
        // SAFETY: it is not called.
        let error = unsafe { describe.call::<()>(arguments) }.unwrap_err();
        assert!(
            matches!(&error, Error::TvmFfi(TvmFfiError::Arguments { count: found, .. }) if *found == count),
            "{error}"
        );
        // SAFETY: as above.
        assert_eq!(unsafe { libc::munmap(nones, bytes) }, 0);
    }
    freed(&library);
    engine.finish();
}
