//! A kernel of the packed calling convention, as CuTe DSL and TVM compile them: `cargo run --example tvm_ffi --features
//! tvm-ffi`.
//!
//! Such a kernel takes values of any type, tensors among them, and raises errors through functions that it imports.
//! Here they are this crate's; give libtvm_ffi.so instead, as an argument of the example, and they are its.

use std::process::Command;

use slabjit::tvm_ffi::{Function, Layout, Tensor};
use slabjit::{Error, JitEngine, TvmFfiError};

/// `scale(tensor, factor)`: multiplies a tensor of float32, and returns how many elements it has. The declarations are
/// those of `tvm/ffi/c_api.h` and `dlpack.h`, as far as it needs them.
const SOURCE: &str = r#"
    #include <stdint.h>
    typedef struct {
        void *data;
        int32_t device_type, device_id, ndim;
        uint8_t code, bits;
        uint16_t lanes;
        int64_t *shape, *strides;
        uint64_t byte_offset;
    } DLTensor;
    typedef struct {
        int32_t type_index;
        uint32_t zero_padding;
        union { int64_t v_int64; double v_float64; void *v_ptr; };
    } TVMFFIAny;
    enum { Int = 1, Float = 3, DLTensorPtr = 7 };
    void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);

    int __tvm_ffi_scale(void *self, const TVMFFIAny *args, int32_t num_args, TVMFFIAny *result) {
        if (num_args != 2 || args[0].type_index != DLTensorPtr || args[1].type_index != Float) {
            TVMFFIErrorSetRaisedFromCStr("TypeError", "scale(tensor, factor: float) is expected");
            return -1;
        }
        DLTensor *tensor = args[0].v_ptr;
        if (tensor->ndim != 2 || tensor->code != 2 || tensor->bits != 32) {
            TVMFFIErrorSetRaisedFromCStr("ValueError", "a matrix of float32 is expected");
            return -1;
        }
        float *data = (float *)((char *)tensor->data + tensor->byte_offset);
        for (int64_t i = 0; i < tensor->shape[0]; i++)
            for (int64_t j = 0; j < tensor->shape[1]; j++)
                data[i * tensor->strides[0] + j * tensor->strides[1]] *= args[1].v_float64;
        result->type_index = Int;
        result->v_int64 = tensor->shape[0] * tensor->shape[1];
        return 0;
    }"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = JitEngine::new()?;
    let mut builder = engine.library("scale").tvm_ffi();
    if let Some(path) = std::env::args_os().nth(1) {
        // SAFETY: libtvm_ffi.so registers its types when it is opened, and nothing else.
        builder = unsafe { builder.shared_library(path) };
    }
    let library = builder.build()?;
    library.add_object_named("scale.o", compile(SOURCE)?)?;
    // SAFETY: the source has a packed function of this name, and no initialisers.
    let scale = unsafe { Function::get(&library, "scale")? };

    // Two columns of a matrix with three.
    let mut data = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let columns = Layout::strided(&[2, 2], &[3, 1])?;
    let tensor = Tensor::from_slice_mut(&mut data, &columns)?;
    // SAFETY: it takes a tensor that it may write to, and a float.
    let elements: i64 = unsafe { scale.call((&tensor, 10.0))? };
    println!("scaled {elements} elements: {data:?}");
    assert_eq!(data, [10.0, 20.0, 3.0, 40.0, 50.0, 6.0]);

    let doubles = [1.0_f64];
    let layout = Layout::contiguous(&[1, 1])?;
    let tensor = Tensor::from_slice(&doubles, &layout)?;
    // SAFETY: it checks its arguments, and does not write to this tensor.
    match unsafe { scale.call::<i64>((&tensor, 10.0)) } {
        Err(Error::TvmFfi(TvmFfiError::Raised { kind, message, .. })) => println!("as expected: {kind}: {message}"),
        other => return Err(format!("expected a ValueError, got {other:?}").into()),
    }
    for import in library.imports()? {
        println!("{import}");
    }
    Ok(())
}

/// The object of some C source.
fn compile(source: &str) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let (input, output) = (folder.path().join("scale.c"), folder.path().join("scale.o"));
    std::fs::write(&input, source)?;
    let status = Command::new("gcc").args(["-c", "-O2", "-fPIC"]).arg(input).arg("-o").arg(&output).status()?;
    if status.success() { Ok(std::fs::read(output)?) } else { Err("gcc failed".into()) }
}
