//! A call of a packed function with four scalars, and the same call made by hand: `cargo bench --features tvm-ffi
//! --bench tvm_ffi`.

#![allow(missing_docs, reason = "criterion's macros")]

use std::hint::black_box;
use std::process::Command;
use std::ptr;

use criterion::{Criterion, criterion_group, criterion_main};
use slabjit::JitEngine;
use slabjit::tvm_ffi::abi::TVMFFIAny;
use slabjit::tvm_ffi::{Any, Function, Layout, Tensor};

/// It does nothing but return an int.
const SOURCE: &str = "
    struct any { int type, length; long value; };
    int __tvm_ffi_nothing(void *self, const struct any *args, int count, struct any *result) {
        result->type = 1;
        result->value = 42;
        return 0;
    }";

fn object() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("nothing.c"), folder.path().join("nothing.o"));
    std::fs::write(&source, SOURCE).unwrap();
    let status = Command::new("gcc").args(["-c", "-O2", "-fPIC"]).arg(source).arg("-o").arg(&object).status().unwrap();
    assert!(status.success());
    std::fs::read(object).unwrap()
}

fn calls(c: &mut Criterion) {
    let library = JitEngine::new().unwrap().add_object(object()).unwrap();
    // SAFETY: it is one.
    let nothing = unsafe { Function::get(&library, "nothing").unwrap() };
    let mut group = c.benchmark_group("packed call");

    // What there is without: the same symbol, and arguments that are there already.
    let raw = nothing.symbol().as_raw();
    let arguments = [Any::from(1_i64), Any::from(2.0), Any::from(true), Any::from(4_i64)];
    group.bench_function("by hand", |b| {
        b.iter(|| {
            let mut result: TVMFFIAny = *Any::NONE.as_raw();
            // SAFETY: it takes anything.
            let code =
                unsafe { black_box(raw)(ptr::null_mut(), black_box(&arguments).as_ptr().cast(), 4, &mut result) };
            assert_eq!(code, 0);
            // SAFETY: an int.
            unsafe { result.value.v_int64 }
        })
    });
    group.bench_function("four scalars", |b| {
        // SAFETY: it takes anything.
        b.iter(|| unsafe {
            let (a, b, c, d) = black_box((1_i64, 2.0_f64, true, 4_i32));
            black_box(&nothing).call::<i64>((a, b, c, d)).unwrap()
        })
    });
    group.bench_function("a slice of four", |b| {
        // SAFETY: as above.
        b.iter(|| unsafe { black_box(&nothing).call::<i64>(black_box(&arguments)).unwrap() })
    });
    let layout = Layout::contiguous(&[2, 3]).unwrap();
    let data = [0.0_f32; 6];
    group.bench_function("three tensors, made for the call, and a scalar", |b| {
        b.iter(|| {
            let tensor = || Tensor::from_slice(black_box(&data), black_box(&layout)).unwrap();
            // SAFETY: as above.
            unsafe { black_box(&nothing).call::<i64>((&tensor(), &tensor(), &tensor(), 4_i64)).unwrap() }
        })
    });
    group.bench_function("a string of 7 bytes", |b| {
        // SAFETY: as above.
        b.iter(|| unsafe { black_box(&nothing).call::<i64>((black_box("1234567"),)).unwrap() })
    });
    group.bench_function("a string of 8 bytes", |b| {
        // SAFETY: as above.
        b.iter(|| unsafe { black_box(&nothing).call::<i64>((black_box("12345678"),)).unwrap() })
    });
    group.finish();
}

criterion_group!(benches, calls);
criterion_main!(benches);
