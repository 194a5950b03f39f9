//! Objects and IR that are given to the engine's LLJIT, through LLVM's C API.

use std::ffi::{CStr, CString, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use slabjit::JitEngine;
use slabjit::llvm_sys::core::{LLVMContextCreate, LLVMCreateMemoryBufferWithMemoryRangeCopy, LLVMIsMultithreaded};
use slabjit::llvm_sys::ir_reader;
use slabjit::llvm_sys::orc2::lljit::{
    LLVMOrcLLJITAddLLVMIRModule, LLVMOrcLLJITAddObjectFile, LLVMOrcLLJITAddObjectFileWithRT,
    LLVMOrcLLJITGetMainJITDylib, LLVMOrcLLJITLookup, LLVMOrcLLJITRef,
};
use slabjit::llvm_sys::orc2::{
    LLVMOrcCreateNewThreadSafeContext, LLVMOrcCreateNewThreadSafeModule, LLVMOrcJITDylibCreateResourceTracker,
    LLVMOrcReleaseResourceTracker, LLVMOrcResourceTrackerRef, LLVMOrcResourceTrackerRemove,
    LLVMOrcResourceTrackerTransferTo, LLVMOrcThreadSafeContextRef, LLVMOrcThreadSafeModuleRef,
};

use crate::common::{Checked, compile_bytes, tests};
use crate::lljit::check;
use crate::target::by_arch;
use crate::trace::recorded;

tests![
    objects_of_a_cycle_call_each_other,
    of_two_weak_definitions_one_counts,
    missing_names_fail_and_can_be_given_later,
    a_removed_object_goes_with_the_last_that_refers_to_it,
    a_cycle_goes_as_one,
    resources_are_transferred,
    exceptions_thread_local_variables_and_indirect_functions,
    a_chain_of_thousands_is_ready_at_once,
    many_threads_look_up_and_remove,
    hidden_and_absolute_names,
    initialisers_run_when_asked_for,
    ir_and_objects_call_each_other;
    alone: what_preparation_refuses_fails_in_its_words
];

/// A reference to the LLJIT of an engine that lives.
#[derive(Clone, Copy)]
pub struct Jit(pub LLVMOrcLLJITRef);

// SAFETY: an LLJIT may be used from any thread.
unsafe impl Send for Jit {}
// SAFETY: as above.
unsafe impl Sync for Jit {}

/// A resource tracker of the main dylib; dropped before the engine.
pub struct Tracker(LLVMOrcResourceTrackerRef);

impl Tracker {
    fn remove(&self) {
        // SAFETY: the tracker's engine lives.
        unsafe { check(LLVMOrcResourceTrackerRemove(self.0)) }.unwrap();
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        // SAFETY: released once.
        unsafe { LLVMOrcReleaseResourceTracker(self.0) }
    }
}

impl Jit {
    pub fn of(engine: &JitEngine) -> Self {
        // SAFETY: the engine outlives the tests' uses.
        Self(unsafe { engine.raw() }.unwrap())
    }

    fn tracker(self) -> Tracker {
        // SAFETY: the engine lives.
        Tracker(unsafe { LLVMOrcJITDylibCreateResourceTracker(LLVMOrcLLJITGetMainJITDylib(self.0)) })
    }

    fn add_bytes(self, tracker: Option<&Tracker>, name: &str, bytes: &[u8]) {
        let name = CString::new(name).unwrap();
        // SAFETY: the engine lives; the buffer is a copy, which the LLJIT takes.
        let error = unsafe {
            let buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(bytes.as_ptr().cast(), bytes.len(), name.as_ptr());
            match tracker {
                Some(tracker) => LLVMOrcLLJITAddObjectFileWithRT(self.0, tracker.0, buffer),
                None => LLVMOrcLLJITAddObjectFile(self.0, LLVMOrcLLJITGetMainJITDylib(self.0), buffer),
            }
        };
        // SAFETY: it is ours.
        unsafe { check(error) }.unwrap();
    }

    pub fn add(self, tracker: Option<&Tracker>, name: &str, source: &str) {
        self.add_bytes(tracker, name, &compile_bytes(name, source, &[]));
    }

    pub fn find(self, name: &str) -> Result<usize, String> {
        let name = CString::new(name).unwrap();
        let mut address = 0;
        // SAFETY: the engine lives.
        unsafe { check(LLVMOrcLLJITLookup(self.0, &mut address, name.as_ptr())) }.map(|()| address as usize)
    }

    pub fn call(self, name: &str, argument: i32) -> i32 {
        call(self.find(name).unwrap(), argument)
    }
}

/// Calls `int (int)`.
fn call(address: usize, argument: i32) -> i32 {
    // SAFETY: the functions of these tests have this type, and are there.
    unsafe { std::mem::transmute::<usize, extern "C" fn(i32) -> i32>(address)(argument) }
}

/// An object with other names, of the same lengths.
pub fn renamed(template: &[u8], names: &[(&str, String)]) -> Vec<u8> {
    let mut bytes = template.to_vec();
    for at in 0..bytes.len() {
        for (old, new) in names {
            if template[at..].starts_with(old.as_bytes()) {
                bytes[at..at + old.len()].copy_from_slice(new.as_bytes());
            }
        }
    }
    bytes
}

fn objects_of_a_cycle_call_each_other() {
    let engine = Checked::new();
    let jit = Jit::of(&engine);
    jit.add(None, "a.c", "int b(int); int a(int n) { return n ? b(n - 1) + 1 : 0; }");
    jit.add(None, "b.c", "int c(int); int b(int n) { return n ? c(n - 1) + 10 : 0; }");
    jit.add(None, "c.c", "int a(int); int c(int n) { return n ? a(n - 1) + 100 : 0; }");
    assert_eq!((jit.call("b", 6), jit.call("a", 3)), (222, 111));
    assert!(engine.arena().contains(&jit.find("c").unwrap()));
    assert_eq!(engine.stats().arena.slabs, 3);
    engine.assert_usable();
}

fn of_two_weak_definitions_one_counts() {
    let engine = Checked::new();
    let jit = Jit::of(&engine);
    let source = |n: u32| {
        format!(
            "__attribute__((weak)) int w(int n) {{ return {n}; }} int common[4]; int w{n}(int n) {{ return w(n); }}
             int *c{n}(void) {{ return common; }}"
        )
    };
    jit.add_bytes(None, "one.c", &compile_bytes("one.c", &source(1), &["-fcommon"]));
    jit.add_bytes(None, "two.c", &compile_bytes("two.c", &source(2), &["-fcommon"]));
    assert_eq!(jit.call("w1", 0), jit.call("w2", 0));
    // SAFETY: `int *(void)`.
    let common =
        |name: &str| unsafe { std::mem::transmute::<usize, extern "C" fn() -> usize>(jit.find(name).unwrap())() };
    assert_eq!(common("c1"), common("c2"));
    // Inline functions with static variables are COMDAT groups.
    let inline = "inline int counter(int n) { static int all; return all += n; }\n";
    jit.add(None, "three.cc", &format!("{inline} extern \"C\" int three(int n) {{ return counter(n); }}"));
    jit.add(None, "four.cc", &format!("{inline} extern \"C\" int four(int n) {{ return counter(n); }}"));
    assert_eq!((jit.call("three", 3), jit.call("four", 4), jit.call("three", 0)), (3, 7, 7));
}

fn missing_names_fail_and_can_be_given_later() {
    let engine = Checked::new();
    let jit = Jit::of(&engine);
    let first = jit.tracker();
    jit.add(Some(&first), "m.c", "int nowhere_to_be_found(int); int m(int n) { return nowhere_to_be_found(n); }");
    let error = jit.find("m").unwrap_err();
    assert!(error.contains("Failed to materialize") && error.contains('m'), "{error}");
    assert_eq!(engine.stats().arena.slabs, 0, "the memory of a failed link is kept");
    first.remove();
    // What referred to it failed with it, and nothing else.
    jit.add(None, "other.c", "int other(int n) { return n + 1; }");
    jit.add(None, "m.c", "int nowhere_to_be_found(int); int m(int n) { return nowhere_to_be_found(n); }");
    jit.add(None, "given.c", "int nowhere_to_be_found(int n) { return n * 2; }");
    assert_eq!((jit.call("m", 21), jit.call("other", 1)), (42, 2));
}

fn a_removed_object_goes_with_the_last_that_refers_to_it() {
    // Whether it is linked before, or for the sake of the other.
    for before in [true, false] {
        let engine = Checked::new();
        let jit = Jit::of(&engine);
        let (callee, caller) = (jit.tracker(), jit.tracker());
        jit.add(Some(&callee), "callee.c", "int callee(int n) { return n + 1; }");
        if before {
            assert_eq!(jit.call("callee", 1), 2);
        }
        jit.add(Some(&caller), "caller.c", "int callee(int); int caller(int n) { return callee(n) * 2; }");
        let function = jit.find("caller").unwrap();
        callee.remove();
        assert!(jit.find("callee").is_err(), "its name is gone");
        assert_eq!(engine.stats().arena.slabs, 2);
        assert_eq!(call(function, 20), 42);
        caller.remove();
        drop((callee, caller));
        engine.finish();
    }
}

fn a_cycle_goes_as_one() {
    let engine = Checked::new();
    let jit = Jit::of(&engine);
    let (one, two) = (jit.tracker(), jit.tracker());
    // Both have exit handlers of their own.
    let source = |this: &str, other: &str| {
        format!(
            "#include <stdlib.h>
             int {other}(int); static int calls; static void bye(void) {{ calls = {other}(0); }}
             int {this}(int n) {{ return n ? {other}(n - 1) + 1 : 0; }}
             int enlist_{this}(int n) {{ return atexit(bye); }}"
        )
    };
    jit.add(Some(&one), "one.c", &source("one", "two"));
    jit.add(Some(&two), "two.c", &source("two", "one"));
    let function = jit.find("two").unwrap();
    assert_eq!((jit.call("one", 9), jit.call("enlist_one", 0), jit.call("enlist_two", 0)), (9, 0, 0));
    one.remove();
    assert_eq!(call(function, 9), 9);
    two.remove();
    drop((one, two));
    engine.finish();
}

fn resources_are_transferred() {
    let engine = Checked::new();
    let jit = Jit::of(&engine);
    let (first, second) = (jit.tracker(), jit.tracker());
    jit.add(Some(&first), "moved.c", "int moved(int n) { return n + 1; }");
    jit.add(Some(&second), "there.c", "int there(int n) { return n + 2; }");
    assert_eq!((jit.call("moved", 1), jit.call("there", 1)), (2, 3));
    // SAFETY: both live.
    unsafe { LLVMOrcResourceTrackerTransferTo(first.0, second.0) };
    assert_eq!(jit.call("moved", 1), 2);
    second.remove();
    assert_eq!(engine.stats().arena.slabs, 0);
    assert!(jit.find("moved").is_err());
}

fn exceptions_thread_local_variables_and_indirect_functions() {
    let engine = Checked::new();
    let jit = Jit::of(&engine);
    jit.add(None, "throws.cc", "extern \"C\" int throws(int n) { if (n) throw n; return 0; }");
    // SAFETY: the C++ runtime is looked for in the process.
    let runtime = unsafe { libc::dlopen(c"libstdc++.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    assert!(!runtime.is_null());
    jit.add(
        None,
        "catches.cc",
        "extern \"C\" int throws(int);
         extern \"C\" int catches(int n) { try { throws(n); } catch (int m) { return m * 2; } return 0; }",
    );
    assert_eq!((jit.call("catches", 21), jit.call("catches", 0)), (42, 0));
    jit.add(None, "tls.c", "static __thread int n = 5; __thread int zero; int tls(int m) { return n += m + zero++; }");
    let tls = jit.find("tls").unwrap();
    assert_eq!((call(tls, 1), call(tls, 1)), (6, 8));
    assert_eq!(std::thread::spawn(move || call(tls, 1)).join().unwrap(), 6);
    jit.add(
        None,
        "indirect.c",
        "static int one(int n) { return n + 1; } int helper(void);
         static int (*pick(void))(int) { return one; }
         int indirect(int) __attribute__((ifunc(\"pick\"))); int through(int n) { return indirect(n) * 2; }",
    );
    assert_eq!((jit.call("through", 4), jit.call("indirect", 4)), (10, 5));
    let source = "int throws(int); static int one(int n) { return n; }
        static int (*pick(void))(int) { throws(1); return one; }
        int broken(int) __attribute__((ifunc(\"pick\"))); int uses_broken(int n) { return broken(n); }";
    jit.add_bytes(None, "broken.c", &compile_bytes("broken.c", source, &["-fexceptions"]));
    let error = jit.find("uses_broken").unwrap_err();
    assert!(error.contains("Failed to materialize"), "{error}");
}

fn what_preparation_refuses_fails_in_its_words() {
    let engine = Checked::new();
    let jit = Jit::of(&engine);
    let refused = compile_bytes("refused.s", ".section wx,\"awx\"\n.globl refused\nrefused: nop\n", &[]);
    let lines = recorded(|| {
        jit.add_bytes(None, "refused.o", &refused);
        let error = jit.find("refused").unwrap_err();
        assert!(error.contains("Failed to materialize"), "{error}");
    });
    let ours = |line: &&String| line.starts_with("ERROR") && line.contains("refused.o") && line.contains("writable");
    assert_eq!(lines.iter().filter(ours).count(), 1, "{lines:#?}");
    engine.assert_usable();
    engine.finish();
}

fn a_chain_of_thousands_is_ready_at_once() {
    const N: usize = 10_000;
    let engine = Checked::new();
    let jit = Jit::of(&engine);
    let tracker = jit.tracker();
    let text = by_arch(
        "link_00001: sub $8,%rsp\n call link_00002@PLT\n inc %eax\n add $8,%rsp\n ret\n",
        "link_00001: stp x29,x30,[sp,-16]!\n bl link_00002\n add w0,w0,1\n ldp x29,x30,[sp],16\n ret\n",
    );
    let template = compile_bytes("link.s", &format!(".globl link_00001\n.text\n{text}"), &[]);
    for i in 0..N {
        let names = [("link_00001", format!("link_{i:05}")), ("link_00002", format!("link_{:05}", i + 1))];
        jit.add_bytes(Some(&tracker), "link.o", &renamed(&template, &names));
    }
    jit.add(Some(&tracker), "end.c", &format!("int link_{N:05}(int n) {{ return 0; }}"));
    assert_eq!(jit.call("link_00000", 0), N as i32);
    tracker.remove();
    drop(tracker);
    engine.finish();
}

fn many_threads_look_up_and_remove() {
    // SAFETY: no arguments.
    assert!(unsafe { LLVMIsMultithreaded() } != 0);
    let engine = Checked::new();
    let jit = Jit::of(&engine);
    jit.add(None, "shared.c", "int shared(int n) { return n + 1; }");
    let template = compile_bytes("of_thread.c", "int shared(int); int of_00000(int n) { return shared(n) * 2; }", &[]);
    let next = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let (template, next) = (&template, Arc::clone(&next));
            scope.spawn(move || {
                for _ in 0..40 {
                    let name = format!("of_{:05}", next.fetch_add(1, Ordering::Relaxed));
                    let bytes = renamed(template, &[("of_00000", name.clone())]);
                    let tracker = jit.tracker();
                    jit.add_bytes(Some(&tracker), &name, &bytes);
                    assert_eq!(jit.call(&name, 20), 42);
                    tracker.remove();
                }
            });
        }
    });
    assert_eq!(engine.stats().arena.slabs, 1);
    engine.assert_usable();
}

fn hidden_and_absolute_names() {
    let engine = Checked::new();
    let jit = Jit::of(&engine);
    let hidden = |n: u32| {
        format!(
            "__attribute__((visibility(\"hidden\"))) int secret_{n}(int n) {{ return n + {n}; }}
             int open_{n}(int n) {{ return secret_{n}(n); }}"
        )
    };
    jit.add(None, "one.c", &hidden(1));
    jit.add(None, "two.c", &hidden(2));
    assert_eq!((jit.call("open_1", 1), jit.call("open_2", 1)), (2, 3));
    let absolute = ".globl fixed\nfixed = 0x123456\n.text\n.globl user\nuser: nop\n";
    jit.add_bytes(None, "absolute.s", &compile_bytes("absolute.s", absolute, &[]));
    assert_eq!(jit.find("fixed"), Ok(0x123456));
}

/// An object's initialisers come behind those of the objects that it refers to.
fn initialisers_run_when_asked_for() {
    let engine = Checked::new();
    let jit = Jit::of(&engine);
    // SAFETY: the engine lives.
    let run = |down: i32| unsafe {
        check(slabjit_stock::slabjit_stock_initialize(jit.0, LLVMOrcLLJITGetMainJITDylib(jit.0), down)).unwrap();
    };
    let first = "int value = 1; int *gone; int watch(int n) { return value; } void tell(int *flag) { gone = flag; }
        __attribute__((constructor)) static void up(void) { value *= 20; }
        __attribute__((destructor)) static void down(void) { ++*gone; }";
    let second = "extern int value; int copy; int copied(int n) { return copy + n; }
        __attribute__((constructor)) static void up(void) { copy = value + 1; }";
    jit.add(None, "second.c", second);
    jit.add(None, "first.c", first);
    assert_eq!((jit.call("copied", 0), jit.call("watch", 0)), (0, 1));
    run(0);
    assert_eq!((jit.call("copied", 0), jit.call("watch", 0)), (21, 20));
    // Once; and what nobody has looked up is linked for the sake of its initialisers.
    jit.add(None, "third.c", "extern int value; __attribute__((constructor)) static void up(void) { value += 3; }");
    run(0);
    run(0);
    assert_eq!((jit.call("copied", 0), jit.call("watch", 0)), (21, 23));
    let mut gone = 0;
    // SAFETY: `void (int *)`; the flag lives as long as the finalisers need it.
    unsafe { std::mem::transmute::<usize, extern "C" fn(*mut i32)>(jit.find("tell").unwrap())(&raw mut gone) };
    run(1);
    run(1);
    // SAFETY: nobody else writes it.
    assert_eq!(unsafe { (&raw const gone).read_volatile() }, 1);
}

/// The function that makes a context for threads, which is another one from LLVM 21 on.
unsafe fn context() -> (LLVMOrcThreadSafeContextRef, *mut slabjit::llvm_sys::LLVMContext) {
    let function = |name: &CStr| {
        // SAFETY: plain use.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?}");
        found
    };
    // SAFETY: as LLVM's headers declare them.
    unsafe {
        if slabjit::llvm_version() >= 21 {
            let context = LLVMContextCreate();
            let make = function(c"LLVMOrcCreateNewThreadSafeContextFromLLVMContext");
            let make = std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_void) -> *mut c_void>(make);
            (make(context.cast()).cast(), context)
        } else {
            let context = LLVMOrcCreateNewThreadSafeContext();
            let inner = function(c"LLVMOrcThreadSafeContextGetContext");
            let inner = std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_void) -> *mut c_void>(inner);
            (context, inner(context.cast()).cast())
        }
    }
}

#[allow(deprecated, reason = "LLVM 22 deprecates the only function that older versions have")]
/// Reads a module.
pub fn module(text: &CStr) -> LLVMOrcThreadSafeModuleRef {
    let text = text.to_str().unwrap();
    // SAFETY: plain use of LLVM's C API; the module is its caller's, and keeps the context.
    unsafe {
        let (threads, context) = context();
        let buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(text.as_ptr().cast(), text.len(), c"ir.ll".as_ptr());
        let (mut module, mut message) = (std::ptr::null_mut(), std::ptr::null_mut());
        assert_eq!(ir_reader::LLVMParseIRInContext(context, buffer, &mut module, &mut message), 0);
        LLVMOrcCreateNewThreadSafeModule(module, threads)
    }
}

fn ir_and_objects_call_each_other() {
    let engine = Checked::new();
    let jit = Jit::of(&engine);
    jit.add(
        None,
        "object.c",
        "int of_ir(int); int start(int n) { return of_ir(n) + 1; } int triple(int n) { return n * 3; }",
    );
    let text = c"@offset = internal global i32 100
        declare i32 @triple(i32)
        define i32 @of_ir(i32 %n) {
          %three = call i32 @triple(i32 %n)
          %offset = load i32, ptr @offset
          %sum = add i32 %three, %offset
          ret i32 %sum
        }";
    // SAFETY: plain use of LLVM's C API, while the engine lives; what is made is given on.
    unsafe {
        check(LLVMOrcLLJITAddLLVMIRModule(jit.0, LLVMOrcLLJITGetMainJITDylib(jit.0), module(text))).unwrap();
    }
    assert_eq!((jit.call("start", 5), jit.call("of_ir", 1)), (116, 103));
    assert!(engine.arena().contains(&jit.find("of_ir").unwrap()));
}
