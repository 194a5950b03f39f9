//! Devices and their primary contexts, which the process shares.
#![allow(unsafe_code, reason = "calls the driver")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::sys::{CUcontext, CUdevice};

use crate::runtime::cuda_driver::Driver;
use crate::runtime::cuda_driver::functions::{Code, DEINITIALIZED};
use crate::{CudaError, Error, Result};

/// An NVIDIA device with its primary context, which the CUDA runtime uses too.
///
/// The first user in a process retains the context, and the last one releases it. Users are clones of this, libraries
/// that were [loaded for it](crate::LibraryBuilder::device) or [initialised on it](crate::Library::initialize_on),
/// [`Memory`](crate::runtime::cuda_driver::Memory), [`Event`](crate::runtime::cuda_driver::Event)s and
/// [`Work`](crate::runtime::cuda_driver::Work). The release destroys the context with all its contents, unless other
/// code has retained it.
#[derive(Clone)]
pub struct Device {
    context: Arc<Context>,
}

/// A retained primary context.
struct Context {
    driver: Driver,
    ordinal: usize,
    device: CUdevice,
    handle: CUcontext,
}

// SAFETY: a context may be current on any thread, and on several (CUDA Driver API, "Context Management").
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Retained contexts by their devices' ordinals. A fork does not wait for this lock, as the driver may take long; a
/// child never takes it.
static CONTEXTS: Mutex<BTreeMap<usize, Weak<Context>>> = Mutex::new(BTreeMap::new());

impl Driver {
    /// Opens a device, by its ordinal, and retains its primary context.
    ///
    /// # Errors
    /// [`CudaError::NoDevice`](crate::CudaError::NoDevice),
    /// [`CudaError::NoSuchDevice`](crate::CudaError::NoSuchDevice),
    /// [`CudaError::DeviceOutOfMemory`](crate::CudaError::DeviceOutOfMemory) if there is no memory for the context,
    /// [`CudaError::Call`](crate::CudaError::Call), [`CudaError::AfterFork`](crate::CudaError::AfterFork).
    pub fn device(&self, ordinal: usize) -> Result<Device> {
        Device::open(*self, ordinal)
    }
}

impl Device {
    fn open(driver: Driver, ordinal: usize) -> Result<Self> {
        match driver.device_count()? {
            0 => return Err(Error::Cuda(CudaError::NoDevice)),
            count if ordinal >= count => return Err(Error::Cuda(CudaError::NoSuchDevice { ordinal, count })),
            _ => {}
        }
        // Other threads wait here, so that no device is retained twice.
        let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        let context = match contexts.get(&ordinal).and_then(Weak::upgrade) {
            Some(context) => context,
            None => {
                let context = Arc::new(Context::retain(driver, ordinal)?);
                contexts.insert(ordinal, Arc::downgrade(&context));
                context
            }
        };
        Ok(Self { context })
    }

    /// Returns its ordinal, from 0.
    pub fn ordinal(&self) -> usize {
        self.context.ordinal
    }

    /// Returns its driver.
    pub fn driver(&self) -> Driver {
        self.context.driver
    }

    /// Returns its name, such as "NVIDIA H200".
    ///
    /// # Errors
    /// [`CudaError::Call`](crate::CudaError::Call), [`CudaError::AfterFork`](crate::CudaError::AfterFork).
    pub fn name(&self) -> Result<String> {
        self.driver().check_process()?;
        let mut name = [0_u8; 256];
        let get = self.driver().functions().cuDeviceGetName;
        // SAFETY: the length is the array's; the device is one of the driver's.
        let code = unsafe { get(name.as_mut_ptr().cast(), name.len() as c_int, self.context.device) };
        self.check("cuDeviceGetName", code)?;
        Ok(CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned())
    }

    /// Returns the primary context (`CUcontext`), which stays as long as this does.
    pub fn as_raw(&self) -> *mut std::ffi::c_void {
        self.context.handle.cast()
    }

    /// Makes its context the current one of this thread until the result is dropped; then the context before is current
    /// again. With several results, the context of the last one is current, in whichever order they are dropped.
    ///
    /// # Errors
    /// [`CudaError::Call`](crate::CudaError::Call), [`CudaError::AfterFork`](crate::CudaError::AfterFork).
    pub fn make_current(&self) -> Result<Current> {
        self.driver().check_process()?;
        let functions = self.driver().functions();
        let mut previous = ptr::null_mut();
        // SAFETY: a place for a handle; this context is retained, and stays so as long as the result has it.
        unsafe {
            self.check("cuCtxGetCurrent", (functions.cuCtxGetCurrent)(&raw mut previous))?;
            self.check("cuCtxSetCurrent", (functions.cuCtxSetCurrent)(self.context.handle))?;
        }
        Ok(Current::new(self.clone(), previous))
    }

    /// Converts the result of a driver function to an error.
    pub(super) fn check(&self, function: &'static str, code: Code) -> Result<()> {
        self.driver().check(function, Some(self.ordinal()), code)
    }

    /// Returns whether both are the same device.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.context, &other.context)
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other)
    }
}

impl Eq for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("ordinal", &self.ordinal()).finish_non_exhaustive()
    }
}

impl Context {
    fn retain(driver: Driver, ordinal: usize) -> Result<Self> {
        let check = |function, code| driver.check(function, Some(ordinal), code);
        let (functions, mut device, mut handle) = (driver.functions(), 0, ptr::null_mut());
        // There are fewer devices than an int can count.
        let number = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: places for a device and a handle. The context is released once, by Drop.
        unsafe {
            check("cuDeviceGet", (functions.cuDeviceGet)(&raw mut device, number))?;
            check("cuDevicePrimaryCtxRetain", (functions.cuDevicePrimaryCtxRetain)(&raw mut handle, device))?;
        }
        Ok(Self { driver, ordinal, device, handle })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.driver.is_ours() {
            return;
        }
        // SAFETY: retained by `retain`, and this is its last user.
        let code = unsafe { (self.driver.functions().cuDevicePrimaryCtxRelease_v2)(self.device) };
        report(self.driver.check("cuDevicePrimaryCtxRelease_v2", Some(self.ordinal), code), code);
    }
}

/// Reports an error that has no caller to return it to. At the end of the process the driver is unloaded first, which
/// is no error.
pub(super) fn report(result: Result<()>, code: Code) {
    if let Err(error) = result
        && code != DEINITIALIZED
    {
        tracing::error!(target: "slabjit", %error, "CUDA failed");
    }
}

/// A guard that keeps a device's context current on this thread; see [`Device::make_current`].
///
/// Dropping it undoes other settings made meanwhile; code that pushes contexts must pop them.
#[derive(Debug)]
#[must_use = "the context is current until this is dropped"]
pub struct Current {
    device: Device,
    number: u64,
    /// The guard belongs to its thread.
    _not_send: PhantomData<*const ()>,
}

thread_local! {
    /// The contexts that this thread's [`Current`]s have set, in the order of creation.
    static MADE_CURRENT: RefCell<Vec<MadeCurrent>> = const { RefCell::new(Vec::new()) };
}

/// A context that a guard has set, and the one to restore, which is never a context that only a dropped guard has kept.
struct MadeCurrent {
    number: u64,
    context: CUcontext,
    previous: CUcontext,
}

impl Current {
    fn new(device: Device, previous: CUcontext) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (number, context) = (NEXT.fetch_add(1, Ordering::Relaxed), device.context.handle);
        // There is no list any more while the thread's storage is destroyed.
        let _ = MADE_CURRENT.try_with(|list| list.borrow_mut().push(MadeCurrent { number, context, previous }));
        Self { device, number, _not_send: PhantomData }
    }

    /// Removes this guard, and returns the context to restore if it was the last: null on a thread without a list.
    fn give_up(&self) -> Option<CUcontext> {
        let taken = MADE_CURRENT.try_with(|list| {
            let mut list = list.borrow_mut();
            let at = list.iter().rposition(|made| made.number == self.number)?;
            let gone = list.remove(at);
            match list.get_mut(at) {
                // The next guard would restore this guard's context.
                Some(later) if later.previous == gone.context => later.previous = gone.previous,
                Some(_) => {}
                None => return Some(gone.previous),
            }
            None
        });
        taken.unwrap_or(Some(ptr::null_mut()))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let driver = self.device.driver();
        // A child of `fork` drops its copy too.
        if let Some(previous) = self.give_up()
            && driver.is_ours()
        {
            // SAFETY: it was current before this guard and before all earlier ones that were dropped, or is null for
            // none.
            let code = unsafe { (driver.functions().cuCtxSetCurrent)(previous) };
            report(self.device.check("cuCtxSetCurrent", code), code);
        }
    }
}
