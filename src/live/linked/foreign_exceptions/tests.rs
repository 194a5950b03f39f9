//! Exceptions of C++, thrown by shared libraries that g++ has made: C++'s own description of each is the oracle.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::*;
use crate::elf::testing;

const SOURCE: &str = r#"
#include <exception>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <typeinfo>

namespace shapes { struct Square { int ends[3]; }; }
struct Base { virtual ~Base() {} long pad = 7; };
struct Virtual : Base, virtual std::runtime_error { Virtual() : std::runtime_error("virtual") {} };
struct Private : private std::exception { const char *what() const noexcept override { return "private"; } };
struct Counted { ~Counted() { ended += 1; } static int ended; };
int Counted::ended = 0;

extern "C" {
void nothing(void *n) { *static_cast<int *>(n) += 1; }
void standard(void *) { throw std::runtime_error("no room"); }
void derived(void *) { throw std::out_of_range("beyond"); }
void virtual_base(void *) { throw Virtual(); }
void private_base(void *) { throw Private(); }
void number(void *) { throw 7; }
void named(void *) { throw shapes::Square(); }
void pointer(void *) { static std::runtime_error it("pointed at"); throw &it; }
void counted(void *) { throw Counted(); }
void again(void *) {
  try { throw std::runtime_error("first"); }
  catch (...) { auto held = std::current_exception(); std::rethrow_exception(held); }
}
void leaves_the_thread(void *) { pthread_exit(nullptr); }
int ended() { return Counted::ended; }
int uncaught() { return std::uncaught_exceptions(); }
bool handling() { return std::current_exception() != nullptr; }
}
"#;

type Function = unsafe extern "C-unwind" fn(*mut c_void);

fn library(args: &[&str]) -> Library {
    let compiler = if cfg!(target_arch = "x86_64") { "g++" } else { "aarch64-linux-gnu-g++" };
    let bytes = testing::build(compiler, &[&["-shared", "-fPIC", "-O1"], args].concat(), "cc", SOURCE);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    // SAFETY: its initialisers are libstdc++'s.
    unsafe { Library::open(Some(file.path()), RTLD_NOW | RTLD_LOCAL) }.unwrap()
}

fn function(library: &Library, name: &str) -> Function {
    // SAFETY: functions of SOURCE.
    unsafe { *library.get::<Function>(name).unwrap() }
}

/// Returns the description by `call` of a function's exception.
fn text(library: &Library, name: &str) -> Option<String> {
    // SAFETY: functions of SOURCE, which take anything.
    unsafe { call(function(library, name), ptr::null_mut()) }.map(Caught::end)
}

fn number(library: &Library, name: &str) -> c_int {
    // SAFETY: functions of SOURCE.
    unsafe { library.get::<unsafe extern "C" fn() -> c_int>(name).unwrap()() }
}

#[test]
fn they_are_told_as_cxx_tells_them() {
    let library = library(&[]);
    let told = |name| text(&library, name);
    assert_eq!(told("standard").as_deref(), Some("no room"));
    assert_eq!(told("derived").as_deref(), Some("beyond"));
    assert_eq!(told("virtual_base").as_deref(), Some("virtual"));
    assert_eq!(told("private_base").as_deref(), Some("exception of type Private"));
    assert_eq!(told("number").as_deref(), Some("exception of type int"));
    assert_eq!(told("named").as_deref(), Some("exception of type shapes::Square"));
    assert_eq!(told("pointer").as_deref(), Some("exception of type std::runtime_error*"));
    assert_eq!(told("again").as_deref(), Some("first"));
}

#[test]
fn they_have_ended() {
    let library = library(&[]);
    for _ in 0..3 {
        assert_eq!(text(&library, "counted").as_deref(), Some("exception of type Counted"));
        text(&library, "again").unwrap();
    }
    assert_eq!(number(&library, "ended"), 3);
    assert_eq!(number(&library, "uncaught"), 0);
    assert_eq!(number(&library, "handling") & 0xff, 0);
}

#[test]
fn without_one_the_function_has_run() {
    let (library, mut n) = (library(&[]), 0 as c_int);
    // SAFETY: a function of SOURCE, with its counter.
    assert!(unsafe { call(function(&library, "nothing"), (&raw mut n).cast()) }.is_none());
    assert_eq!(n, 1);
}

/// The exception's runtime is hidden: nobody can ask it.
#[test]
fn of_a_hidden_runtime_the_type_is_told() {
    let library = library(&["-static-libstdc++", "-Wl,--exclude-libs,ALL", "-Wl,-Bsymbolic"]);
    assert_eq!(text(&library, "named").as_deref(), Some("exception of type N6shapes6SquareE"));
    assert_eq!(text(&library, "counted").as_deref(), Some("exception of type 7Counted"));
    assert_eq!(number(&library, "ended"), 1);
}

#[test]
fn panics_go_on() {
    unsafe extern "C-unwind" fn panics(_: *mut c_void) {
        panic!("not C++'s");
    }
    // SAFETY: a function of this file.
    let caught = catch_unwind(AssertUnwindSafe(|| unsafe { call(panics, ptr::null_mut()) }.map(Caught::end)));
    assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"not C++'s"));
}

#[test]
fn forced_unwinding_goes_on() {
    static CAME_BACK: AtomicBool = AtomicBool::new(false);
    extern "C-unwind" fn thread(function: *mut c_void) -> *mut c_void {
        // SAFETY: a function of SOURCE.
        let function = unsafe { transmute::<*mut c_void, Function>(function) };
        // SAFETY: as above; no frame here has anything to drop.
        let caught = unsafe { call_catching(function, ptr::null_mut()) };
        CAME_BACK.store(true, Ordering::SeqCst);
        caught.cast()
    }
    unsafe extern "C" {
        fn pthread_create(
            thread: *mut libc::pthread_t,
            attributes: *const c_void,
            start: extern "C-unwind" fn(*mut c_void) -> *mut c_void,
            argument: *mut c_void,
        ) -> c_int;
    }
    let library = library(&[]);
    let (mut id, mut result) = (0, ptr::without_provenance_mut(1));
    // SAFETY: the thread is joined below, before the library goes.
    unsafe {
        let function = function(&library, "leaves_the_thread") as *mut c_void;
        assert_eq!(pthread_create(&mut id, ptr::null(), thread, function), 0);
        assert_eq!(libc::pthread_join(id, &mut result), 0);
    }
    assert!(result.is_null());
    assert!(!CAME_BACK.load(Ordering::SeqCst));
}

#[test]
fn those_of_other_languages_end_as_they_say() {
    static ENDED: AtomicBool = AtomicBool::new(false);
    unsafe extern "C-unwind" {
        fn _Unwind_RaiseException(exception: *mut Exception) -> c_int;
    }
    unsafe extern "C" fn cleanup(_: c_int, exception: *mut Exception) {
        ENDED.store(true, Ordering::SeqCst);
        // SAFETY: made below.
        drop(unsafe { Box::from_raw(exception) });
    }
    unsafe extern "C-unwind" fn raises(_: *mut c_void) {
        let class = u64::from_be_bytes(*b"GNUCD\0\0\0");
        let exception = Exception { class, cleanup: Some(cleanup), private: [0; 2] };
        // SAFETY: an exception, which whoever catches it ends.
        unsafe { _Unwind_RaiseException(Box::into_raw(Box::new(exception))) };
    }
    let thread = thread::spawn(|| {
        // SAFETY: a function of this file.
        unsafe { call(raises, ptr::null_mut()) }.map(Caught::end)
    });
    let text = thread.join().unwrap();
    assert_eq!(text.as_deref(), Some(r"an exception of another language (class 'GNUCD\x00\x00\x00')"));
    assert!(ENDED.load(Ordering::SeqCst));
}
