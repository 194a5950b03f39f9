//! Arguments, environment and auxiliary vector, which the kernel passes to a program, and the dynamic loader to
//! initialisers.
#![allow(unsafe_code, reason = "an initialiser of this crate's own, and the C library's variables")]

use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// A list that ends with a null.
pub(crate) type Strings = *const *const c_char;

/// The parameters of an initialiser.
///
/// After the null at the end of `arguments` comes the initial environment of the process, and after its null the
/// auxiliary vector. `environment` is the present `environ`, which is elsewhere once the process has changed it:
/// `dlopen` passes both in this way (glibc, elf/dl-open.c).
pub(crate) struct Vectors {
    pub(crate) count: c_int,
    pub(crate) arguments: Strings,
    pub(crate) environment: Strings,
}

static COUNT: AtomicI32 = AtomicI32::new(0);
static ARGUMENTS: AtomicPtr<*const c_char> = AtomicPtr::new(ptr::null_mut());

/// Captures the vectors: glibc passes them to each initialiser, also in libraries that are opened later. It has a
/// priority, so that it runs before initialisers that may load objects.
#[used]
#[unsafe(link_section = ".init_array.00099")]
static CAPTURE: extern "C" fn(c_int, Strings, Strings) = capture;

extern "C" fn capture(count: c_int, arguments: Strings, _environment: Strings) {
    set(count, arguments);
}

fn set(count: c_int, arguments: Strings) {
    COUNT.store(count, Ordering::Relaxed);
    ARGUMENTS.store(arguments.cast_mut(), Ordering::Release);
}

unsafe extern "C" {
    static mut environ: Strings;
}

impl Vectors {
    pub(crate) fn of_process() -> Self {
        // This reference makes a linker extract it from an archive.
        std::hint::black_box(&CAPTURE);
        // SAFETY: the C library's, which is read as the dynamic loader does.
        let environment = unsafe { environ };
        let arguments = ARGUMENTS.load(Ordering::Acquire).cast_const();
        if arguments.is_null() {
            // The loader of this crate passed nothing to its initialiser.
            return Self { count: 0, arguments: NOTHING.0.as_ptr(), environment };
        }
        Self { count: COUNT.load(Ordering::Relaxed), arguments, environment }
    }
}

/// No argument, no variable, and `AT_NULL`.
struct Nothing([*const c_char; 4]);
// SAFETY: null pointers, which nobody changes.
unsafe impl Sync for Nothing {}
static NOTHING: Nothing = Nothing([ptr::null(); 4]);

#[cfg(feature = "cli")]
pub(crate) mod program {
    //! The vectors of a program that the kernel has not started itself.

    use std::ffi::CString;

    use super::{Strings, Vectors, c_char, c_int, environ, ptr, set};

    unsafe extern "C" {
        // The program's name in messages of glibc's `error`, `warn` and `assert`.
        static mut program_invocation_name: *mut c_char;
        static mut program_invocation_short_name: *mut c_char;
    }

    /// Makes these the arguments of the process, in a block of the kernel's shape: the number of arguments, the
    /// arguments, a null, the environment, a null, the auxiliary vector. From now on initialisers get it, and `environ`
    /// points into it. It is never freed.
    ///
    /// # Safety
    /// No other thread reads or changes the environment meanwhile.
    pub(crate) unsafe fn begin(arguments: Vec<CString>) {
        let process = Vectors::of_process();
        let count = arguments.len();
        let mut block: Vec<*const c_char> = vec![ptr::without_provenance(count)];
        block.extend(arguments.into_iter().map(|argument| argument.into_raw().cast_const()));
        block.push(ptr::null());
        let start = block.len();
        // SAFETY: both lists are the process's, and end with a null; the second is followed by the auxiliary vector,
        // whose last pair has the type AT_NULL.
        let environment = unsafe {
            block.extend(list(process.environment));
            block.push(ptr::null());
            let at_start = process.arguments.add(usize::try_from(process.count).unwrap_or(0) + 1);
            let mut auxiliary = at_start.add(list(at_start).count() + 1).cast::<[*const c_char; 2]>();
            while !(*auxiliary)[0].is_null() {
                block.extend(*auxiliary);
                auxiliary = auxiliary.add(1);
            }
            block.extend(*auxiliary);
            &block.leak()[start..]
        };
        // SAFETY: the block begins this far before its environment.
        let arguments = unsafe { environment.as_ptr().sub(count + 1) };
        set(c_int::try_from(count).unwrap_or(c_int::MAX), arguments);
        // SAFETY: by the caller's contract; the first argument, if there is one, is a string that stays.
        unsafe {
            environ = environment.as_ptr();
            if let Some(name) = (*arguments).cast_mut().as_mut() {
                let name: *mut c_char = name;
                program_invocation_name = name;
                let slash = libc::strrchr(name, c_int::from(b'/'));
                program_invocation_short_name = if slash.is_null() { name } else { slash.add(1) };
            }
        }
    }

    /// # Safety
    /// It is null, or ends with a null.
    unsafe fn list(strings: Strings) -> impl Iterator<Item = *const c_char> {
        let mut next = strings;
        std::iter::from_fn(move || {
            // SAFETY: by the caller's contract; nothing after the null is read.
            let string = unsafe { next.as_ref() }.copied().filter(|string| !string.is_null())?;
            // SAFETY: it was not the null.
            next = unsafe { next.add(1) };
            Some(string)
        })
    }
}
