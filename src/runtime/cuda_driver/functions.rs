//! The driver functions that this crate calls.
#![allow(unsafe_code, reason = "addresses become functions")]
#![allow(non_snake_case, reason = "fields are named as the driver names its functions")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdeviceptr, CUevent, CUmodule, CUresult, CUstream, CUstreamCaptureMode,
    CUstreamCaptureStatus,
};

use crate::runtime::SharedLibrary;

/// The result of a driver function: a `CUresult`, which may be unknown to this crate.
pub(super) type Code = u32;

pub(super) const SUCCESS: Code = CUresult::CUDA_SUCCESS as Code;
pub(super) const OUT_OF_MEMORY: Code = CUresult::CUDA_ERROR_OUT_OF_MEMORY as Code;
pub(super) const DEINITIALIZED: Code = CUresult::CUDA_ERROR_DEINITIALIZED as Code;
pub(super) const NO_DEVICE: Code = CUresult::CUDA_ERROR_NO_DEVICE as Code;
pub(super) const NOT_READY: Code = CUresult::CUDA_ERROR_NOT_READY as Code;
pub(super) const CAPTURED_EVENT: Code = CUresult::CUDA_ERROR_CAPTURED_EVENT as Code;
pub(super) const CAPTURE_IMPLICIT: Code = CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT as Code;

macro_rules! functions {
    ($($function:ident($($argument:ty),*)$(: $unbound:ident)?;)*) => {
        /// The functions under the names that the driver exports.
        #[derive(Debug)]
        pub(super) struct Functions {
            $(pub(super) $function: unsafe extern "C" fn($($argument),*) -> Code,)*
        }

        $(functions!(@check $function($($argument),*) $($unbound)?);)*

        impl Functions {
            /// Looks all functions up; returns the name of one that the library lacks.
            pub(super) fn of(library: &SharedLibrary) -> Result<Self, &'static str> {
                $(let $function = library.symbol(stringify!($function)).ok_or(stringify!($function))?;)*
                // SAFETY: not null; the driver's interface, of which cudarc has the bindings, says that they are
                // functions with these arguments. A CUresult is a C enum, with the size of an int.
                Ok(unsafe {
                    Self {
                        $($function: std::mem::transmute::<*const (), unsafe extern "C" fn($($argument),*) -> Code>(
                            std::ptr::with_exposed_provenance($function as usize),
                        ),)*
                    }
                })
            }
        }
    };
    // Compares with the bindings: a difference does not compile.
    (@check $function:ident($($argument:ty),*)) => {
        const _: unsafe fn($($argument),*) -> CUresult = sys::$function;
    };
    (@check $function:ident($($argument:ty),*) unbound) => {};
}

functions! {
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuGetErrorName(Code, *mut *const c_char): unbound;
    cuGetErrorString(Code, *mut *const c_char): unbound;
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut CUdevice, c_int);
    cuDeviceGetName(*mut c_char, c_int, CUdevice);
    cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
    cuDevicePrimaryCtxRelease_v2(CUdevice);
    cuCtxGetCurrent(*mut CUcontext);
    cuCtxSetCurrent(CUcontext);
    cuThreadExchangeStreamCaptureMode(*mut CUstreamCaptureMode);
    cuStreamIsCapturing(CUstream, *mut CUstreamCaptureStatus);
    cuStreamQuery(CUstream);
    cuStreamSynchronize(CUstream);
    cuEventCreate(*mut CUevent, c_uint);
    cuEventRecord(CUevent, CUstream);
    cuEventQuery(CUevent);
    cuEventSynchronize(CUevent);
    // CUDA 13's headers use this name for cuEventElapsedTime_v2. Every driver exports this one, older ones no other.
    cuEventElapsedTime(*mut f32, CUevent, CUevent): unbound;
    cuEventDestroy_v2(CUevent);
    cuModuleUnload(CUmodule);
    cuMemAlloc_v2(*mut CUdeviceptr, usize);
    cuMemFree_v2(CUdeviceptr);
    cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
    cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
    cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
}
