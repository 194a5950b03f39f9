//! The functions of the driver that are called here.
#![allow(unsafe_code)] // addresses become functions
#![allow(non_snake_case)] // fields are named as the driver names its functions

use std::ffi::{c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdeviceptr, CUevent, CUmodule, CUresult, CUstream, CUstreamCaptureMode,
    CUstreamCaptureStatus,
};

use crate::runtime::SharedLibrary;

/// What a function of the driver returns: a `CUresult`, also one that this crate does not know.
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
        /// Each with the name that the driver exports.
        #[derive(Debug)]
        pub(super) struct Functions {
            $(pub(super) $function: unsafe extern "C" fn($($argument),*) -> Code,)*
        }

        $(functions!(@check $function($($argument),*) $($unbound)?);)*

        impl Functions {
            /// All of them; or the name of one that the library does not have.
            pub(super) fn of(library: &SharedLibrary) -> Result<Self, &'static str> {
                $(let $function = library.symbol(stringify!($function)).ok_or(stringify!($function))?;)*
                // SAFETY: not null; that they are functions with these arguments is what the driver's interface says, of which cudarc has
                // the bindings. A CUresult is an enum of C's, which has the size of an int.
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
    // The bindings say the same; a difference does not compile.
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
    // CUDA 13's headers call cuEventElapsedTime_v2 so. Every driver exports both, older ones this alone.
    cuEventElapsedTime(*mut f32, CUevent, CUevent): unbound;
    cuEventDestroy_v2(CUevent);
    cuModuleUnload(CUmodule);
    cuMemAlloc_v2(*mut CUdeviceptr, usize);
    cuMemFree_v2(CUdeviceptr);
    cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
    cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
    cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
}
