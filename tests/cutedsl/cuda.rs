//! Stubs for what the objects import, and what a thread's calls of them were.
//!
//! Each is called by an object, which passes what the function of that name takes: by NVIDIA's documentation of the
//! CUDA runtime, `tvm/ffi/c_api.h`, and what the objects do with `cuda_dialect_…`. That is every safety contract here.
#![allow(unsafe_code, reason = "places for results, texts and arguments are the caller's")]

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};

use crate::kernels::{self, Value};

/// A launch that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// The kernel's name in CuTe DSL's source.
    pub kernel: &'static str,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: usize,
    pub stream: usize,
    pub arguments: Vec<Value>,
}

/// What has been asked of the stubs by this thread.
#[derive(Debug, Default)]
pub struct Asked {
    /// Where the code for the device is that was loaded.
    pub loaded: Vec<usize>,
    /// The kernels looked up.
    pub kernels: Vec<&'static str>,
    pub launches: Vec<Launch>,
    /// Libraries unloaded, by the number of their loading, from 1 on.
    pub unloaded: Vec<usize>,
    /// Errors raised, as kind and message.
    pub raised: Vec<(String, String)>,
    /// What launches return.
    pub launch_error: c_int,
}

thread_local!(static ASKED: RefCell<Asked> = RefCell::default());

/// Forgets what was asked, and has launches return this.
pub fn reset(launch_error: c_int) {
    ASKED.set(Asked { launch_error, ..Asked::default() });
}

/// Has launches fail from now on.
pub fn fail_launches(error: c_int) {
    ASKED.with_borrow_mut(|asked| asked.launch_error = error);
}

/// What was asked since the last [`reset`].
pub fn with_asked<T>(look: impl FnOnce(&Asked) -> T) -> T {
    ASKED.with_borrow(look)
}

/// The same, and forgets it.
pub fn asked() -> Asked {
    ASKED.take()
}

/// The stream that `TVMFFIEnvGetStream` knows.
pub const STREAM_OF_ENVIRONMENT: usize = 0x57e0;

/// Every stub, by the name it has in objects.
pub fn stub(name: &str) -> Option<*const ()> {
    Some(match name {
        "_cudaLibraryLoadData" => library_load_data as *const (),
        "_cudaLibraryGetKernel" => library_get_kernel as *const (),
        "_cudaLaunchKernelEx" => launch_kernel_ex as *const (),
        "_cudaGetDevice" => get_device as *const (),
        "_cudaSetDevice" | "_cudaFuncSetAttribute" | "_cudaKernelSetAttributeForDevice" => succeed as *const (),
        "_cudaDeviceGetAttribute" | "_cuKernelGetAttribute" => get_attribute as *const (),
        "cudaGetDeviceCount" => get_device_count as *const (),
        "cudaLibraryUnload" => library_unload as *const (),
        "cudaGetErrorName" | "cudaGetErrorString" | "cuda_dialect_get_error_name" => error_name as *const (),
        "cuda_dialect_init_library_once" => init_library_once as *const (),
        "cuda_dialect_unload_library_once" => unload_library_once as *const (),
        "CuteDSLRT_TVMFFISetRaisedCudaError" => set_raised_cuda_error as *const (),
        "TVMFFIEnvGetStream" => env_get_stream as *const (),
        "TVMFFIErrorSetRaisedFromCStr" => set_raised as *const (),
        "TVMFFIErrorSetRaisedFromCStrParts" => set_raised_from_parts as *const (),
        _ => return None,
    })
}

type Handle = usize;

extern "C" fn succeed() -> c_int {
    0
}

unsafe extern "C" fn library_load_data(library: *mut Handle, code: *const c_void) -> c_int {
    let number = ASKED.with_borrow_mut(|asked| {
        asked.loaded.push(code.addr());
        asked.loaded.len()
    });
    // SAFETY: by the caller.
    unsafe { library.write(number) };
    0
}

extern "C" fn library_unload(library: Handle) -> c_int {
    ASKED.with_borrow_mut(|asked| asked.unloaded.push(library));
    0
}

unsafe extern "C" fn library_get_kernel(kernel: *mut Handle, library: Handle, name: *const c_char) -> c_int {
    // SAFETY: by the caller.
    let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap();
    let number = ASKED.with_borrow_mut(|asked| {
        assert!((1..=asked.loaded.len()).contains(&library), "{name} of a library that was not loaded");
        asked.kernels.push(kernels::kernel(name));
        asked.kernels.len()
    });
    // SAFETY: by the caller.
    unsafe { kernel.write(number) };
    0
}

unsafe extern "C" fn get_device(device: *mut c_int) -> c_int {
    // SAFETY: by the caller.
    unsafe { device.write(0) };
    0
}

unsafe extern "C" fn get_device_count(count: *mut c_int) -> c_int {
    // SAFETY: by the caller.
    unsafe { count.write(1) };
    0
}

/// Shared memory that there is, and that a kernel has already.
unsafe extern "C" fn get_attribute(value: *mut c_int, _attribute: c_int, _of: Handle) -> c_int {
    // SAFETY: by the caller.
    unsafe { value.write(1 << 16) };
    0
}

/// `cudaLaunchConfig_t`, as far as it is looked at.
#[repr(C)]
struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: usize,
    stream: usize,
}

unsafe extern "C" fn launch_kernel_ex(
    config: *const LaunchConfig,
    kernel: Handle,
    arguments: *const *const c_void,
) -> c_int {
    // SAFETY: by the caller.
    let config = unsafe { &*config };
    ASKED.with_borrow_mut(|asked| {
        let kernel = kernel.checked_sub(1).and_then(|i| asked.kernels.get(i)).expect("a kernel that was looked up");
        let kinds = kernels::parameters(kernel);
        // SAFETY: by the caller.
        let arguments = kinds.iter().enumerate().map(|(i, kind)| unsafe { kind.read(*arguments.add(i)) }).collect();
        let LaunchConfig { grid, block, shared_bytes, stream } = *config;
        asked.launches.push(Launch { kernel, grid, block, shared_bytes, stream, arguments });
        asked.launch_error
    })
}

/// What every error is called.
pub const ERROR_NAME: &CStr = c"an error of the stubs";

extern "C" fn error_name(_error: c_int) -> *const c_char {
    ERROR_NAME.as_ptr()
}

// ---- the compiler's runtime and TVM-FFI ----

type Init = unsafe extern "C" fn(*mut Handle) -> c_int;
type LoadToDevice = unsafe extern "C" fn(*mut Handle, c_int) -> c_int;

unsafe extern "C" fn init_library_once(state: *mut Handle, init: Init, load: LoadToDevice) -> c_int {
    // SAFETY: by the caller.
    if unsafe { state.read() } != 0 {
        return 0;
    }
    let mut library = 0;
    // SAFETY: by the caller.
    let loaded = unsafe {
        match init(&mut library) {
            0 => load(&mut library, 0),
            error => error,
        }
    };
    if loaded != 0 {
        return -1;
    }
    // SAFETY: by the caller.
    unsafe { state.write(library) };
    0
}

unsafe extern "C" fn unload_library_once(state: *mut Handle) {
    // SAFETY: by the caller.
    let library = unsafe { state.replace(0) };
    if library != 0 {
        library_unload(library);
    }
}

extern "C" fn env_get_stream(_device_type: c_int, _device: c_int) -> Handle {
    STREAM_OF_ENVIRONMENT
}

fn raise(kind: &str, message: String) {
    ASKED.with_borrow_mut(|asked| asked.raised.push((kind.to_owned(), message)));
}

unsafe fn text<'t>(text: *const c_char) -> &'t str {
    // SAFETY: by the caller.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap()
}

unsafe extern "C" fn set_raised(kind: *const c_char, message: *const c_char) {
    // SAFETY: by the caller.
    unsafe { raise(text(kind), text(message).to_owned()) }
}

unsafe extern "C" fn set_raised_from_parts(kind: *const c_char, parts: *const *const c_char, count: c_int) {
    // SAFETY: by the caller.
    let part = |i: c_int| match unsafe { *parts.add(i as usize) } {
        null if null.is_null() => "",
        // SAFETY: by the caller.
        part => unsafe { text(part) },
    };
    // SAFETY: by the caller.
    unsafe { raise(text(kind), (0..count).map(part).collect()) }
}

type SetRaisedFromParts = unsafe extern "C" fn(*const c_char, *const *const c_char, c_int);

unsafe extern "C" fn set_raised_cuda_error(set_raised: SetRaisedFromParts, error: c_int) {
    // SAFETY: by the caller.
    unsafe { set_raised(c"RuntimeError".as_ptr(), [error_name(error)].as_ptr(), 1) }
}
