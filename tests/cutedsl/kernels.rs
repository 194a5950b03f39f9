//! The kernels of `ci/cutedsl.d`: how each is called in both forms, and what it has to launch then, by its source.
#![allow(unsafe_code, reason = "calls of what ci/cutedsl.d declares")]

use std::ffi::{c_int, c_void};

use slabjit::Library;

use crate::cuda::Launch;
use crate::tvm_ffi::{Any, Code, Tensor};

/// An argument of a launched kernel, as it was passed.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    F32(f32),
    I32(i32),
    Tensor { data: usize, shape: Vec<i32> },
}

/// What kind an argument is.
#[derive(Debug, Clone, Copy)]
pub enum Parameter {
    F32,
    I32,
    /// A tensor of this many dynamic sizes: its address, and they.
    Tensor(usize),
}

impl Parameter {
    /// # Safety
    /// There is an argument of this kind.
    pub unsafe fn read(self, at: *const c_void) -> Value {
        // SAFETY: by the caller.
        unsafe {
            match self {
                Self::F32 => Value::F32(at.cast::<f32>().read()),
                Self::I32 => Value::I32(at.cast::<i32>().read()),
                Self::Tensor(sizes) => {
                    let shape = at.cast::<usize>().add(1).cast::<i32>();
                    Value::Tensor {
                        data: at.cast::<usize>().read(),
                        shape: (0..sizes).map(|i| shape.add(i).read()).collect(),
                    }
                }
            }
        }
    }
}

/// The kernels by their names in the source, and their parameters.
const PARAMETERS: &[(&str, &[Parameter])] = &[
    ("saxpy_kernel", &[Parameter::F32, Parameter::Tensor(1), Parameter::Tensor(1)]),
    ("fill_kernel", &[Parameter::I32, Parameter::Tensor(2)]),
    ("square_kernel", &[Parameter::Tensor(1), Parameter::Tensor(1)]),
    ("scale_kernel", &[Parameter::F32, Parameter::Tensor(1), Parameter::Tensor(1)]),
];

/// The source's name of what has a longer one in the code for the device.
pub fn kernel(mangled: &str) -> &'static str {
    let found = PARAMETERS.iter().find(|(name, _)| mangled.contains(name));
    found.unwrap_or_else(|| panic!("no kernel of ci/cutedsl.d is called {mangled}")).0
}

pub fn parameters(kernel: &str) -> &'static [Parameter] {
    PARAMETERS.iter().find(|(name, _)| *name == kernel).unwrap().1
}

/// A kernel, and one call of it.
pub struct Kernel {
    pub name: &'static str,
    /// Calls the C form with [`STREAM`].
    pub call: fn(&Library) -> c_int,
    /// The same arguments for the other form, with so many bytes between addresses and first elements; the tensors have
    /// to outlive them.
    pub arguments: fn(u64) -> (Vec<Any>, Vec<Tensor>),
    /// What that launches.
    pub launches: fn() -> Vec<Launch>,
}

/// Addresses that nobody reads from: the stubs run nothing on a device.
const X: usize = 0x7f00_1000_0000;
const Y: usize = 0x7f00_2000_0000;
const BETWEEN: usize = 0x7f00_3000_0000;
pub const STREAM: usize = 0x5eed;
/// No multiple of any number of threads.
const N: i32 = 1000;
const ROWS: i32 = 50;
const COLUMNS: i32 = 70;

pub const KERNELS: [Kernel; 3] = [
    Kernel { name: "saxpy", call: call_saxpy, arguments: arguments_of_saxpy, launches: launches_of_saxpy },
    Kernel { name: "fill", call: call_fill, arguments: arguments_of_fill, launches: launches_of_fill },
    Kernel { name: "two", call: call_two, arguments: arguments_of_two, launches: launches_of_two },
];

fn vector(data: usize, byte_offset: u64) -> Tensor {
    Tensor::new(data, byte_offset, Code::Float, &[N.into()])
}

fn packed(scalar: Any, tensors: Vec<Tensor>) -> (Vec<Any>, Vec<Tensor>) {
    let arguments = [scalar].into_iter().chain(tensors.iter().map(Any::tensor)).chain([Any::pointer(STREAM)]);
    (arguments.collect(), tensors)
}

fn of_n(data: usize) -> Value {
    Value::Tensor { data, shape: vec![N] }
}

/// A launch over `N` elements, one for each thread.
fn over_n(kernel: &'static str, threads: u32, shared_bytes: usize, arguments: Vec<Value>) -> Launch {
    let grid = [(N as u32).div_ceil(threads), 1, 1];
    Launch { kernel, grid, block: [threads, 1, 1], shared_bytes, stream: STREAM, arguments }
}

fn call_saxpy(library: &Library) -> c_int {
    type Call = unsafe extern "C" fn(f32, usize, usize, c_int, usize) -> c_int;
    // SAFETY: saxpy.c declares it so.
    unsafe { library.get::<Call>("saxpy_call").unwrap()(2.5, X, Y, N, STREAM) }
}

fn arguments_of_saxpy(byte_offset: u64) -> (Vec<Any>, Vec<Tensor>) {
    packed(Any::float(2.5), vec![vector(X, byte_offset), vector(Y, byte_offset)])
}

fn launches_of_saxpy() -> Vec<Launch> {
    vec![over_n("saxpy_kernel", 128, 0, vec![Value::F32(2.5), of_n(X), of_n(Y)])]
}

fn call_fill(library: &Library) -> c_int {
    type Call = unsafe extern "C" fn(c_int, usize, c_int, c_int, usize) -> c_int;
    // SAFETY: fill.c declares it so.
    unsafe { library.get::<Call>("fill_call").unwrap()(-7, X, ROWS, COLUMNS, STREAM) }
}

fn arguments_of_fill(byte_offset: u64) -> (Vec<Any>, Vec<Tensor>) {
    packed(Any::int(-7), vec![Tensor::new(X, byte_offset, Code::Int, &[ROWS.into(), COLUMNS.into()])])
}

fn launches_of_fill() -> Vec<Launch> {
    let out = Value::Tensor { data: X, shape: vec![ROWS, COLUMNS] };
    let grid = [(COLUMNS as u32).div_ceil(32), (ROWS as u32).div_ceil(8), 1];
    let arguments = vec![Value::I32(-7), out];
    vec![Launch { kernel: "fill_kernel", grid, block: [32, 8, 1], shared_bytes: 0, stream: STREAM, arguments }]
}

fn call_two(library: &Library) -> c_int {
    type Call = unsafe extern "C" fn(f32, usize, usize, usize, c_int, usize) -> c_int;
    // SAFETY: two.c declares it so.
    unsafe { library.get::<Call>("two_call").unwrap()(0.5, X, BETWEEN, Y, N, STREAM) }
}

fn arguments_of_two(byte_offset: u64) -> (Vec<Any>, Vec<Tensor>) {
    packed(Any::float(0.5), vec![vector(X, byte_offset), vector(BETWEEN, byte_offset), vector(Y, byte_offset)])
}

fn launches_of_two() -> Vec<Launch> {
    vec![
        over_n("square_kernel", 256, 0, vec![of_n(X), of_n(BETWEEN)]),
        over_n("scale_kernel", 64, 4096, vec![Value::F32(0.5), of_n(BETWEEN), of_n(Y)]),
    ]
}
