//! The shim's calls: thin, and none unwinds.
#![allow(unsafe_code, reason = "callbacks from C++")]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use slabjit_llvm_wrap as shim;

use super::given::Given;
use super::layer::{Layer, Referred, Unit};
use super::object::{OrcObject, prepare as prepare_object};
use super::pool::Task;
use crate::fork_guard;
use crate::guarded::guarded;
use crate::link::llvm::callbacks::{lossy, slice};
use crate::{Error, LinkError};

/// Returns the calls for a layer, which the caller keeps as long as the session.
pub(in crate::link) fn callbacks(layer: &Arc<Layer>) -> shim::slabjit_orc {
    shim::slabjit_orc {
        user: Arc::as_ptr(layer).cast_mut().cast(),
        prepare,
        bind,
        placed,
        missing,
        asks,
        refers,
        belongs,
        linked,
        failed,
        removed,
        transferred,
        dispatch,
        initialise,
        deinitialise,
    }
}

/// # Safety
/// `user` is that of [`callbacks`].
unsafe fn layer(user: *mut c_void) -> Arc<Layer> {
    let user = user.cast_const().cast::<Layer>();
    // SAFETY: by the caller, the pointer is that of an `Arc` that somebody keeps.
    unsafe {
        Arc::increment_strong_count(user);
        Arc::from_raw(user)
    }
}

/// The shim's object.
struct Linking {
    layer: Arc<Layer>,
    object: OrcObject,
    /// What the layer had lost when the object asked for what it refers to.
    lost: AtomicU64,
}

/// # Safety
/// `object` is what `prepare` returned, and neither linked nor failed.
unsafe fn object<'a>(object: *mut c_void) -> &'a Linking {
    // SAFETY: by the caller. It changes behind locks only.
    unsafe { &*object.cast::<Linking>() }
}

/// Takes an object back.
///
/// # Safety
/// `object` is what `prepare` returned, neither linked nor failed before, and the shim uses it no more.
unsafe fn take(object: *mut c_void) -> Linking {
    // SAFETY: by the caller.
    *unsafe { Box::from_raw(object.cast::<Linking>()) }
}

unsafe extern "C" fn prepare(
    user: *mut c_void,
    unit: *mut shim::slabjit_unit,
    dylib: *const c_void,
    dylib_name: *const c_char,
    dylib_len: usize,
    data: *const c_char,
    len: usize,
    name: *const c_char,
    name_len: usize,
    definitions: *mut *mut shim::slabjit_definition,
    n: *mut usize,
) -> *mut c_void {
    // SAFETY: the layer's, and texts and bytes that are lent for this call; the unit is ours.
    let (layer, unit, dylib_name, data, name) = unsafe {
        let data = slice(data.cast::<u8>(), len);
        (layer(user), Unit::new(unit), lossy(dylib_name, dylib_len), data, lossy(name, name_len))
    };
    let number = layer.begin(unit, dylib.addr());
    let made = guarded(None, || {
        let given = layer.given(data);
        let stubs = if let Some(Given::Stubs(_, stubs)) = &given { Some(Arc::clone(stubs)) } else { None };
        let prepare = |bytes: &[u8]| match layer.context.has_plugins() {
            // They are user code.
            true => fork_guard::without(|| prepare_object(&layer.context, &name, bytes)),
            false => prepare_object(&layer.context, &name, bytes),
        };
        let object = match given {
            Some(Given::Prepared(object) | Given::Stubs(object, _)) => Ok(object),
            Some(Given::Deferred(deferred)) => {
                layer.identify(number, Given::Deferred(Arc::clone(&deferred)));
                (deferred.make)().and_then(|bytes| prepare(&bytes)).and_then(|object| {
                    deferred.check(&object)?;
                    Ok(object)
                })
            }
            None => prepare(data),
        };
        Some(object.and_then(|object| {
            layer.identify(number, Given::Prepared(Arc::clone(&object)));
            let made = OrcObject::new(&layer.context, layer.policy, number, &dylib_name, object)?;
            if let Some(stubs) = stubs {
                layer.has_stubs.store(true, Ordering::Relaxed);
                stubs.set_code(made.code.code());
                made.code.own(stubs);
            }
            Ok(made)
        }))
    });
    let object = made.unwrap_or_else(|| {
        Err(Error::Link(LinkError::Failed { object: name, message: "preparing it panicked".to_owned() }))
    });
    guarded(ptr::null_mut(), || match object {
        Ok(mut object) => {
            layer.set_code(number, &object.code);
            // SAFETY: both results may be written; the list does not move with the object.
            unsafe {
                *definitions = object.definitions.as_mut_ptr();
                *n = object.definitions.len();
            }
            Box::into_raw(Box::new(Linking { layer: Arc::clone(&layer), object, lost: AtomicU64::new(0) })).cast()
        }
        Err(error) => {
            layer.fail(number, error);
            ptr::null_mut()
        }
    })
}

unsafe extern "C" fn bind(raw: *mut c_void) -> *mut shim::slabjit_graph {
    guarded(ptr::null_mut(), || {
        // SAFETY: of `prepare`; nobody else has it yet.
        let bound = unsafe { (*raw.cast::<Linking>()).object.bind() };
        bound.unwrap_or_else(|error| {
            // SAFETY: the shim uses it no more.
            let Linking { layer, object, .. } = unsafe { take(raw) };
            layer.fail(object.number, error);
            ptr::null_mut()
        })
    })
}

unsafe extern "C" fn placed(raw: *mut c_void) {
    // SAFETY: of `prepare`.
    let Linking { layer, object, .. } = unsafe { object(raw) };
    guarded((), || layer.place(object.number, object.job.ranges()));
}

unsafe extern "C" fn missing(raw: *mut c_void, name: *const c_char, len: usize) {
    // SAFETY: of `prepare`; a text that is lent for this call.
    let (Linking { object, .. }, name) = unsafe { (object(raw), lossy(name, len)) };
    guarded((), || object.missing.lock().push(name));
}

unsafe extern "C" fn asks(raw: *mut c_void) {
    // SAFETY: of `prepare`.
    let Linking { layer, lost, .. } = unsafe { object(raw) };
    guarded((), || lost.store(layer.lost(), Ordering::Relaxed));
}

unsafe extern "C" fn refers(raw: *mut c_void, addresses: *const u64, known: *mut u8, n: usize) -> c_int {
    // SAFETY: of `prepare`; two arrays of this length, lent for this call.
    let (Linking { layer, object, lost }, addresses, known) =
        unsafe { (object(raw), slice(addresses, n), std::slice::from_raw_parts_mut(known, n)) };
    guarded(-1, || match layer.refer(object.number, &object.code, addresses, known, lost.load(Ordering::Relaxed)) {
        Referred::Held => 1,
        Referred::Lost => 0,
        Referred::Failed => -1,
    })
}

unsafe extern "C" fn belongs(raw: *mut c_void, key: usize) {
    // SAFETY: of `prepare`.
    let Linking { layer, object, .. } = unsafe { object(raw) };
    guarded((), || layer.belong(object.number, key));
}

unsafe extern "C" fn linked(raw: *mut c_void) {
    // SAFETY: the shim uses it no more.
    let Linking { layer, object, .. } = unsafe { take(raw) };
    guarded((), || layer.finish(object));
}

unsafe extern "C" fn failed(raw: *mut c_void, text: *const c_char, len: usize) {
    // SAFETY: the shim uses it no more; a text that is lent for this call.
    let (Linking { layer, object, .. }, text) = unsafe { (take(raw), lossy(text, len)) };
    guarded((), || {
        let number = object.number;
        let known = object.why_failed().map(Arc::new).or_else(|| layer.failure_of_import(number));
        let name = || object.job.object.name.to_string();
        let llvms = || Arc::new(Error::Link(LinkError::Failed { object: name(), message: text }));
        layer.fail(number, known.unwrap_or_else(llvms));
    });
}

unsafe extern "C" fn removed(user: *mut c_void, key: usize) {
    // SAFETY: the layer's.
    let layer = unsafe { layer(user) };
    guarded((), || layer.remove(key));
}

unsafe extern "C" fn transferred(user: *mut c_void, to: usize, from: usize) {
    // SAFETY: the layer's.
    let layer = unsafe { layer(user) };
    guarded((), || layer.transfer(to, from));
}

unsafe extern "C" fn dispatch(user: *mut c_void, task: *mut c_void) -> c_int {
    // SAFETY: the layer's.
    let layer = unsafe { layer(user) };
    guarded(0, || match layer.pool.get() {
        // SAFETY: ours, if this returns 1.
        Some(pool) => pool.push(unsafe { Task::new(task) }).is_ok().into(),
        None => 0,
    })
}

unsafe extern "C" fn initialise(user: *mut c_void, dylib: *const c_void) -> *mut c_char {
    // SAFETY: the layer's.
    let layer = unsafe { layer(user) };
    // SAFETY: whoever has an LLJIT initialise a dylib says that it may.
    guarded(ptr::null_mut(), || said(unsafe { layer.initialise(Some(dylib.addr())) }))
}

unsafe extern "C" fn deinitialise(user: *mut c_void, dylib: *const c_void) -> *mut c_char {
    // SAFETY: the layer's.
    let layer = unsafe { layer(user) };
    guarded(ptr::null_mut(), || {
        // SAFETY: whoever has an LLJIT deinitialise a dylib says so.
        unsafe { layer.deinitialise(dylib.addr()) };
        ptr::null_mut()
    })
}

/// Returns an error's text for the shim.
fn said(result: Result<(), Error>) -> *mut c_char {
    let Err(error) = result else { return ptr::null_mut() };
    let text = error.to_string();
    // SAFETY: it is lent; the shim takes the copy.
    unsafe { shim::slabjit_string_copy(text.as_ptr().cast(), text.len()) }
}
