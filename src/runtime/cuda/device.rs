//! Devices, and the context of each that the process shares.
#![allow(unsafe_code)] // calls the driver

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::sys::{CUcontext, CUdevice};

use super::Driver;
use super::functions::{Code, DEINITIALIZED};
use crate::{Error, Result};

/// A device of NVIDIA's, with its primary context: the one that the CUDA runtime uses, too.
///
/// The context is retained once for a process, by the first of these, and released when the last user is gone: clones of this, libraries
/// that were [loaded for it](crate::LibraryBuilder::device) or [initialised on it](crate::Library::initialize_on),
/// [`Memory`](super::Memory), [`Event`](super::Event)s and [`Work`](super::Work). Where nobody else has retained it, that destroys it, and
/// all that is in it.
#[derive(Clone)]
pub struct Device {
    context: Arc<Context>,
}

/// A primary context that is retained.
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

/// Contexts that are retained, by their devices' ordinals. A fork waits for nobody here, as the driver may take its time; a child does not come
/// this far.
static CONTEXTS: Mutex<BTreeMap<usize, Weak<Context>>> = Mutex::new(BTreeMap::new());

impl Driver {
    /// A device, by its ordinal, with its primary context.
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::NoSuchDevice`], [`Error::DeviceOutOfMemory`] if the context finds no room, [`Error::Cuda`],
    /// [`Error::DeviceAfterFork`].
    pub fn device(&self, ordinal: usize) -> Result<Device> {
        Device::open(*self, ordinal)
    }
}

impl Device {
    fn open(driver: Driver, ordinal: usize) -> Result<Self> {
        match driver.device_count()? {
            0 => return Err(Error::NoDevice),
            count if ordinal >= count => return Err(Error::NoSuchDevice { ordinal, count }),
            _ => {}
        }
        // Whoever else wants a device meanwhile waits, so that none is retained twice.
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

    /// Its ordinal, from 0.
    pub fn ordinal(&self) -> usize {
        self.context.ordinal
    }

    /// The driver it is a device of.
    pub fn driver(&self) -> Driver {
        self.context.driver
    }

    /// Its name, as "NVIDIA H200".
    ///
    /// # Errors
    /// [`Error::Cuda`], [`Error::DeviceAfterFork`].
    pub fn name(&self) -> Result<String> {
        self.driver().check_process()?;
        let mut name = [0_u8; 256];
        let get = self.driver().functions().cuDeviceGetName;
        // SAFETY: as many bytes as are said; the device is one of the driver's.
        let code = unsafe { get(name.as_mut_ptr().cast(), name.len() as c_int, self.context.device) };
        self.check("cuDeviceGetName", code)?;
        Ok(CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned())
    }

    /// The primary context (`CUcontext`), which stays as long as this does.
    pub fn as_raw(&self) -> *mut std::ffi::c_void {
        self.context.handle.cast()
    }

    /// Has its context be the current one of this thread, until the result is dropped: then the one before is again. Where
    /// there are several of these, the context of the last one is the current one, in whichever order they are dropped.
    ///
    /// # Errors
    /// [`Error::Cuda`], [`Error::DeviceAfterFork`].
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

    /// Turns what a function of the driver returned into an error.
    pub(super) fn check(&self, function: &'static str, code: Code) -> Result<()> {
        self.driver().check(function, Some(self.ordinal()), code)
    }

    /// Whether both are the same.
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
        // More than an int of them there are not.
        let number = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: places for a device and a handle. What is retained is released once, by Drop.
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
        // SAFETY: retained by `retain`, and nobody has it any more.
        let code = unsafe { (self.driver.functions().cuDevicePrimaryCtxRelease_v2)(self.device) };
        report(self.driver.check("cuDevicePrimaryCtxRelease_v2", Some(self.ordinal), code), code);
    }
}

/// An error that has no caller to return it to. At the process's end the driver has gone first, and all with it.
pub(super) fn report(result: Result<()>, code: Code) {
    if let Err(error) = result
        && code != DEINITIALIZED
    {
        tracing::error!(target: "slabjit", %error, "CUDA failed");
    }
}

/// A device's context is the current one of this thread; see [`Device::make_current`].
///
/// What sets another meanwhile is undone with it; what pushes contexts has to pop them.
#[derive(Debug)]
#[must_use = "the context is current until this is dropped"]
pub struct Current {
    device: Device,
    number: u64,
    /// Of this thread, and no other.
    _not_send: PhantomData<*const ()>,
}

thread_local! {
    /// What this thread's [`Current`]s have set, in the order in which they were made.
    static MADE_CURRENT: RefCell<Vec<MadeCurrent>> = const { RefCell::new(Vec::new()) };
}

/// What one of them has set, and what it puts back. That is never a context that only a guard has kept which is gone.
struct MadeCurrent {
    number: u64,
    context: CUcontext,
    previous: CUcontext,
}

impl Current {
    fn new(device: Device, previous: CUcontext) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (number, context) = (NEXT.fetch_add(1, Ordering::Relaxed), device.context.handle);
        // While the thread's storage is taken down there is no list.
        let _ = MADE_CURRENT.try_with(|list| list.borrow_mut().push(MadeCurrent { number, context, previous }));
        Self { device, number, _not_send: PhantomData }
    }

    /// What is to be current without this one, if that is another one: none of a thread that has no list any more.
    fn give_up(&self) -> Option<CUcontext> {
        let taken = MADE_CURRENT.try_with(|list| {
            let mut list = list.borrow_mut();
            let at = list.iter().rposition(|made| made.number == self.number)?;
            let gone = list.remove(at);
            match list.get_mut(at) {
                // The next one would put this one's back.
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
        // A child that began meanwhile drops it, too.
        if let Some(previous) = self.give_up()
            && driver.is_ours()
        {
            // SAFETY: it was current before this one's and those that were made before and are gone, or null for none.
            let code = unsafe { (driver.functions().cuCtxSetCurrent)(previous) };
            report(self.device.check("cuCtxSetCurrent", code), code);
        }
    }
}
