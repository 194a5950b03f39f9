//! Objects that ask for executable stacks. What makes stacks executable changes the process.

use std::path::PathBuf;
use std::sync::Barrier;

use slabjit::{Error, JitEngine, Library, LibraryBuilder, LinkError, ObjectError};

use crate::common::{self, Checked, call, compile, freed, mappings, tests, tool};
use crate::target;

tests![
    stacks_are_not_made_executable_unasked,
    stacks_are_made_executable_as_by_dlopen;
    alone: a_refusal_of_the_system_is_told;
    parts: executable_stacks_part
];

/// A nested function's address leads to a trampoline on the stack.
const NESTED: &str = "__attribute__((noipa)) static int apply(int (*f)(int), int x) { return f(x); }
    int nested(void) { int y = 2; int add(int x) { return x + y; } return apply(add, 40); }";

fn nested() -> PathBuf {
    compile("nested.c", NESTED, &[])
}

fn build(builder: LibraryBuilder) -> Library {
    builder.build().unwrap()
}

fn has_executable_stack() -> bool {
    mappings().iter().any(|m| m.name == "[stack]" && m.permissions.contains('x'))
}

fn stacks_are_not_made_executable_unasked() {
    let engine = Checked::new();
    let error = engine.add_object_file(nested()).unwrap_err();
    assert!(
        matches!(&error, Error::Object(ObjectError::ExecutableStack { object }) if object.ends_with("nested.o")),
        "{error:?}"
    );
    let text = error.to_string();
    for word in [".note.GNU-stack", "nested functions", "LibraryBuilder::executable_stack"] {
        assert!(text.contains(word), "{text}");
    }
    let bytes = std::fs::read(nested()).unwrap();
    let plan = engine.check_object(&bytes).unwrap();
    assert!(!plan.loads() && plan.executable_stack, "{plan}");
    let asks = "section .note.GNU-stack,\"x\",@progbits";
    assert!(engine.add_object(common::compile_bytes("asks.s", &format!(".{asks}\n"), &[])).is_err());
    // Nor where assembly says nothing, as before.
    let silent = engine.add_object(common::compile_bytes("silent.s", ".globl f\nf: ret\n", &[])).unwrap();
    // SAFETY: there is nothing to run.
    unsafe { silent.initialize().unwrap() };
    freed(&silent);
    engine.finish();
}

/// In a process of its own, as it changes the process. glibc 2.41 and later do it only where that was started so.
fn stacks_are_made_executable_as_by_dlopen() {
    let end = common::child_with("executable_stacks_part", &[("GLIBC_TUNABLES", "glibc.rtld.execstack=2")]);
    assert_eq!((end.code, end.signal), (Some(0), None), "{end:?}");
}

/// Calls it far from the thread's descriptor, which is at the top of its stack. qemu-user makes the page of a
/// trampoline that it has just translated read-only, and Linux refuses the futex of `pthread_join` in such a page.
fn on_a_thread(library: &Library) -> i32 {
    let room = std::hint::black_box([0_u8; 1 << 17]);
    let answer = call(library, "nested");
    std::hint::black_box(&room);
    answer
}

fn executable_stacks_part() {
    // The oracle.
    let main = compile("main.c", "int nested(void); int main(void) { return nested(); }", &[]);
    let program = common::temporary().join("nested");
    tool("gcc", &["-o".as_ref(), program.as_os_str(), main.as_os_str(), nested().as_os_str()]);
    assert_eq!(target::run(&program).status().unwrap().code(), Some(42));

    // glibc that was told to has made them so.
    let at_start = has_executable_stack();
    let engine = JitEngine::new().unwrap();
    let library = build(engine.library("nested").executable_stack());
    let plan = library.check_object_named("nested.o", std::fs::read(nested()).unwrap()).unwrap();
    assert!(plan.loads() && plan.executable_stack && plan.to_string().contains("executable stacks"), "{plan}");
    library.add_object_file(nested()).unwrap();
    assert_eq!(has_executable_stack(), at_start, "nothing is linked yet");
    let (ready, linked) = (&Barrier::new(2), &Barrier::new(2));
    std::thread::scope(|scope| {
        let before = scope.spawn(|| {
            ready.wait();
            linked.wait();
            on_a_thread(&library)
        });
        ready.wait();
        assert_eq!(call(&library, "nested"), 42);
        linked.wait();
        assert_eq!(before.join().unwrap(), 42, "on a thread that was there");
    });
    let later = std::thread::scope(|scope| scope.spawn(|| on_a_thread(&library)).join().unwrap());
    assert_eq!(later, 42);
    // Nothing of the engine's is writable and executable.
    let arena = engine.arena();
    let of_engine = mappings().into_iter().filter(|m| arena.contains(&m.start));
    assert!(of_engine.into_iter().all(|m| !(m.permissions.contains('w') && m.permissions.contains('x'))));
    freed(&library);
    // Nothing is left of what the loader was asked with.
    assert!(mappings().iter().all(|m| !m.name.contains("slabjit-tls")));
}

/// As where systemd's MemoryDenyWriteExecute is set.
fn a_refusal_of_the_system_is_told() {
    const PR_SET_MDWE: i32 = 65;
    let engine = JitEngine::new().unwrap();
    let library = build(engine.library("nested").executable_stack());
    library.add_object_file(nested()).unwrap();
    // SAFETY: it takes numbers.
    if unsafe { libc::prctl(PR_SET_MDWE, 1_u64, 0_u64, 0_u64, 0_u64) } != 0 {
        println!("not run: the system has no PR_SET_MDWE");
        return;
    }
    // SAFETY: nothing runs.
    let error = unsafe { library.initialize() }.unwrap_err();
    assert!(
        matches!(&error, Error::Link(LinkError::ExecutableStackRefused { message, .. }) if !message.is_empty()),
        "{error:?}"
    );
    assert!(error.to_string().contains("nested.o"), "{error}");
    freed(&library);
}
