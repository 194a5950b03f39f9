//! Catches other languages' exceptions that leave linked code, and describes them in words.
//!
//! `catch_unwind` aborts for them. A call therefore goes through a frame whose personality routine takes every
//! exception but Rust's own panics and forced unwinding (Itanium C++ ABI: Exception Handling, level I), which needs no
//! C++ compiler.
#![allow(unsafe_code, reason = "an unwinder's personality routine, and the C++ runtime of whoever threw")]

use std::arch::naked_asm;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr::{self, NonNull};

use crate::runtime::process;

/// `_Unwind_Exception` of libgcc and LLVM's libunwind.
#[repr(C, align(16))]
struct Exception {
    class: u64,
    cleanup: Option<unsafe extern "C" fn(reason: c_int, exception: *mut Self)>,
    private: [usize; 2],
}

/// `_Unwind_Context`, which is the unwinder's alone.
type Context = c_void;

unsafe extern "C" {
    fn _Unwind_SetGR(context: *mut Context, register: c_int, value: usize);
    fn _Unwind_SetIP(context: *mut Context, address: usize);
    fn _Unwind_GetIP(context: *mut Context) -> usize;
    fn _Unwind_DeleteException(exception: *mut Exception);
}

// `_Unwind_Action` and `_Unwind_Reason_Code`.
const SEARCH_PHASE: c_int = 1;
const HANDLER_FRAME: c_int = 4;
const FORCE_UNWIND: c_int = 8;
const FATAL_PHASE1_ERROR: c_int = 3;
const HANDLER_FOUND: c_int = 6;
const INSTALL_CONTEXT: c_int = 7;
const CONTINUE_UNWIND: c_int = 8;

/// The exception class of panics of Rust's standard library.
const RUST: u64 = u64::from_ne_bytes(*b"MOZ\0RUST");
/// The exception class of libstdc++; that of `std::rethrow_exception` is one above.
const LIBSTDCXX: u64 = u64::from_be_bytes(*b"GNUCC++\0");
/// The exception class of libc++abi.
const LIBCXXABI: u64 = u64::from_be_bytes(*b"CLNGC++\0");

/// Calls `function(argument)`. An exception that leaves it comes back; a Rust panic and forced unwinding go on to the
/// caller.
///
/// # Safety
/// The call must be sound.
pub(super) unsafe fn call(function: unsafe extern "C-unwind" fn(*mut c_void), argument: *mut c_void) -> Option<Caught> {
    // SAFETY: by the caller.
    NonNull::new(unsafe { call_catching(function, argument) }).map(Caught)
}

/// An exception that was caught and has not ended.
#[derive(Debug)]
pub(super) struct Caught(NonNull<Exception>);

/// Bytes of the instruction behind the call in [`call_catching`], which only a normal return executes.
const OF_RETURN: usize = if cfg!(target_arch = "x86_64") { 2 } else { 4 };

/// The address of the personality routine, which the unwinder reads indirectly.
static PERSONALITY: unsafe extern "C" fn(c_int, c_int, u64, *mut Exception, *mut Context) -> c_int = personality;

/// Returns null, or the exception: after one it goes on behind the instruction that makes null.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn call_catching(
    function: unsafe extern "C-unwind" fn(*mut c_void),
    argument: *mut c_void,
) -> *mut Exception {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_personality 0x9b, {personality}",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "xor eax, eax",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        ".cfi_endproc",
        personality = sym PERSONALITY,
    )
}

/// Does the same as for x86-64.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C-unwind" fn call_catching(
    function: unsafe extern "C-unwind" fn(*mut c_void),
    argument: *mut c_void,
) -> *mut Exception {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_personality 0x9b, {personality}",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_adjust_cfa_offset 16",
        ".cfi_rel_offset x29, 0",
        ".cfi_rel_offset x30, 8",
        "mov x29, sp",
        "mov x2, x0",
        "mov x0, x1",
        "blr x2",
        "mov x0, #0",
        "ldp x29, x30, [sp], #16",
        ".cfi_adjust_cfa_offset -16",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
        personality = sym PERSONALITY,
    )
}

unsafe extern "C" fn personality(
    version: c_int,
    actions: c_int,
    class: u64,
    exception: *mut Exception,
    context: *mut Context,
) -> c_int {
    if version != 1 {
        return FATAL_PHASE1_ERROR;
    }
    if class == RUST || actions & FORCE_UNWIND != 0 {
        return CONTINUE_UNWIND;
    }
    if actions & SEARCH_PHASE != 0 {
        return HANDLER_FOUND;
    }
    if actions & HANDLER_FRAME == 0 {
        return CONTINUE_UNWIND;
    }
    // SAFETY: the unwinder lends the context of the frame of `call_catching`. Register 0 is `rax` or `x0`, where a
    // function's result is (DWARF numbers of both ABIs).
    unsafe {
        _Unwind_SetGR(context, 0, exception.expose_provenance());
        _Unwind_SetIP(context, _Unwind_GetIP(context) + OF_RETURN);
    }
    INSTALL_CONTEXT
}

impl Caught {
    /// Ends the exception. Returns `what()` of a `std::exception`, the type of another C++ exception, or the language's
    /// mark.
    pub(super) fn end(self) -> String {
        // SAFETY: an exception that was caught is there until it is ended.
        let class = unsafe { self.0.as_ref().class };
        let is_cxx = class & !0xff == LIBSTDCXX || class & !0xff == LIBCXXABI;
        if let Some(runtime) = is_cxx.then(|| Runtime::of(self.0)).flatten() {
            // SAFETY: the exception is one of this runtime's, and nobody else ends it.
            return unsafe { runtime.end(self.0) };
        }
        let text = match class {
            // SAFETY: an exception of a C++ runtime.
            LIBSTDCXX | LIBCXXABI => unsafe { mangled_type(self.0) },
            _ if is_cxx => "a C++ exception".to_owned(),
            _ => format!("an exception of another language (class '{}')", class.to_be_bytes().escape_ascii()),
        };
        // SAFETY: whoever threw it said how it ends, and nobody else ends it.
        unsafe { _Unwind_DeleteException(self.0.as_ptr()) };
        text
    }
}

/// Returns the type of an exception whose runtime cannot be asked.
///
/// # Safety
/// The exception is of the class [`LIBSTDCXX`] or [`LIBCXXABI`].
unsafe fn mangled_type(exception: NonNull<Exception>) -> String {
    // SAFETY: both have the type ten words before (`__cxa_exception`: unwind-cxx.h, cxa_exception.h).
    let name = unsafe { (*exception.as_ptr().cast::<*const TypeInfo>().sub(10).read()).name };
    // SAFETY: a type's name is NUL-terminated, and as constant as the type.
    format!("exception of type {}", unsafe { CStr::from_ptr(name) }.to_string_lossy())
}

/// `std::type_info` of both C++ runtimes.
#[repr(C)]
struct TypeInfo {
    functions: *const TypeFunctions,
    name: *const c_char,
}

/// Its virtual functions. None of the first four is called.
#[repr(C)]
struct TypeFunctions {
    _others: [usize; 4],
    /// libstdc++'s `__do_catch`, libc++abi's `can_catch`, which takes no last argument: returns whether a handler for
    /// `handler` takes a `thrown` one, and where that is then.
    catches: unsafe extern "C-unwind" fn(
        handler: *const TypeInfo,
        thrown: *const TypeInfo,
        object: *mut *const Object,
        outer: u32,
    ) -> bool,
}

/// A `std::exception`.
#[repr(C)]
struct Object {
    functions: *const ObjectFunctions,
}

/// Its virtual functions: two destructors, and `what`.
#[repr(C)]
struct ObjectFunctions {
    _destructors: [usize; 2],
    what: unsafe extern "C-unwind" fn(*const Object) -> *const c_char,
}

type BeginCatch = unsafe extern "C-unwind" fn(*mut Exception) -> *mut c_void;
type EndCatch = unsafe extern "C-unwind" fn();
type CurrentType = unsafe extern "C-unwind" fn() -> *const TypeInfo;
type Demangle = unsafe extern "C-unwind" fn(*const c_char, *mut c_char, *mut usize, *mut c_int) -> *mut c_char;

/// The functions of a C++ runtime (Itanium C++ ABI: Exception Handling, level II).
struct Runtime {
    begin_catch: BeginCatch,
    end_catch: EndCatch,
    current_type: CurrentType,
    demangle: Demangle,
    /// The type information of `std::exception`.
    standard: *const TypeInfo,
}

impl Runtime {
    /// Returns the runtime that made an exception: that of the shared library that knows how to end it, or the
    /// process's. None if that does not export these functions.
    fn of(exception: NonNull<Exception>) -> Option<Self> {
        // SAFETY: an exception that was caught is there until it is ended.
        let cleanup = unsafe { exception.as_ref().cleanup }?;
        match process::library_at(cleanup as *const ()) {
            Some(library) => Self::in_scope(&|name| library.symbol(name)),
            None => Self::in_scope(&process::symbol),
        }
    }

    fn in_scope(symbol: &dyn Fn(&str) -> Option<u64>) -> Option<Self> {
        let address = |name| Some(ptr::with_exposed_provenance::<c_void>(symbol(name)? as usize));
        // SAFETY: functions and an object of these types, by the ABI that names them.
        unsafe {
            Some(Self {
                begin_catch: transmute::<*const c_void, BeginCatch>(address("__cxa_begin_catch")?),
                end_catch: transmute::<*const c_void, EndCatch>(address("__cxa_end_catch")?),
                current_type: transmute::<*const c_void, CurrentType>(address("__cxa_current_exception_type")?),
                demangle: transmute::<*const c_void, Demangle>(address("__cxa_demangle")?),
                standard: address("_ZTISt9exception")?.cast(),
            })
        }
    }

    /// # Safety
    /// The exception is one of this runtime's, and nobody else ends it.
    unsafe fn end(&self, exception: NonNull<Exception>) -> String {
        // SAFETY: by the caller; the type lives as long as the exception, which `end_catch` ends.
        unsafe {
            (self.begin_catch)(exception.as_ptr());
            let text = match (self.current_type)().as_ref() {
                Some(thrown) => self.what(exception, thrown).unwrap_or_else(|| self.type_name(thrown)),
                None => "a C++ exception".to_owned(),
            };
            (self.end_catch)();
            text
        }
    }

    /// Returns `what()`, if a `catch (const std::exception &)` took it.
    ///
    /// # Safety
    /// The exception is being handled, and `thrown` is its type.
    unsafe fn what(&self, exception: NonNull<Exception>, thrown: &TypeInfo) -> Option<String> {
        // SAFETY: an object that was thrown lies behind its header. Of one that was thrown again, what lies before the
        // header says where it is: in libstdc++ ten words (`__cxa_dependent_exception`, unwind-cxx.h). The runtime
        // knows the types.
        unsafe {
            let mut object: *const Object = match exception.as_ref().class {
                LIBSTDCXX | LIBCXXABI => exception.as_ptr().add(1).cast(),
                again if again == LIBSTDCXX + 1 => exception.as_ptr().cast::<*const Object>().sub(10).read(),
                _ => return None,
            };
            let catches = (*(*self.standard).functions).catches;
            if !catches(self.standard, thrown, &mut object, 1) {
                return None;
            }
            let text = ((*(*object).functions).what)(object);
            Some(CStr::from_ptr(text).to_string_lossy().into_owned())
        }
    }

    /// # Safety
    /// A type of this runtime's.
    unsafe fn type_name(&self, thrown: &TypeInfo) -> String {
        // SAFETY: a NUL-terminated name; GCC marks those of one file's types with an asterisk. What `demangle` returns
        // is malloc's.
        unsafe {
            let name = CStr::from_ptr(thrown.name).to_bytes();
            let name = CString::from(CStr::from_ptr(thrown.name.add(usize::from(name.starts_with(b"*")))));
            let readable = (self.demangle)(name.as_ptr(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
            let text = if readable.is_null() { name.as_c_str() } else { CStr::from_ptr(readable) };
            let text = format!("exception of type {}", text.to_string_lossy());
            libc::free(readable.cast());
            text
        }
    }
}

#[cfg(test)]
mod tests;
