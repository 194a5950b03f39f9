//! Processes in which no page may become executable: by `PR_SET_MDWE` (Linux 6.3), or by a filter of system calls, as
//! systemd's MemoryDenyWriteExecute had one before. Everything runs in children, which set that for themselves.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};

use slabjit::{Error, JitEngine, JitEngineBuilder, Library, MemoryError, SlabLayout};

use crate::common::{self, Checked, call, child_with, compile, freed, int, mapping_at, once_per};
use crate::target::{by_arch, not_under_qemu};

common::tests![
    everything_runs_where_the_kernel_refuses,
    everything_runs_where_a_filter_refuses,
    what_is_refused_later_is_said_once;
    parts: refused_by_the_kernel_part, refused_by_a_filter_part, refused_later_part,
];

/// Where the objects are: they are compiled before.
const OBJECTS: &str = "SLABJIT_TEST_NO_EXECUTION";

const SMALL: &str =
    "static const char text[] = \"four\"; int data = 38; int value(void) { return data + text[4] + sizeof text - 1; }";
/// More code than a unit of what is packed; more in all than is packed.
const LARGE: [&str; 2] = [
    "__asm__(\".pushsection .text.filling, \\\"ax\\\"\\n.globl filling\\nfilling: .fill 100000\\n.popsection\");
     extern char filling[]; char *volatile used = filling; int value(void) { return used[99999] + 42; }",
    "__asm__(\".pushsection .text.filling, \\\"ax\\\"\\n.globl filling\\nfilling: .fill 400000\\n.popsection\");
     extern char filling[]; char *volatile used = filling; int value(void) { return used[399999] + 42; }",
];
const THROWS: &str = "struct S { int &x; ~S() { x += 2; } }; static void thrower(int x) { throw x; }
    extern \"C\" int value() { int x = 0; try { S s{x}; thrower(40); } catch (int e) { return e + x; } return 0; }";
const EXITS: &str = "extern \"C\" void told(int); extern \"C\" int atexit(void (*)());
    struct S { int x; S(int x) : x(x) { told(x); } ~S() { told(-x); } }; static S one(1), two(20);
    static void handler() { told(-300); } static int registered = (told(300), atexit(handler));
    extern \"C\" int value() { return one.x + two.x + 21; }";
const OF_THREADS: &str = "extern \"C\" void told(int);
    struct S { int x = 7000; S() { told(x); } ~S() { told(-x); } int get() { return 42; } }; static thread_local S s;
    extern \"C\" int value() { return s.get(); }";
const INDIRECT: &str = "static int fast(void) { return 42; } static int (*resolve(void))(void) { return fast; }
    int pick(void) __attribute__((ifunc(\"resolve\"))); int value(void) { return pick(); }";
/// Code that may lie outside the arena.
const FAR_CODE: &str = ".section .ltext,\"axl\",@progbits\n.globl far\nfar: movl $42, %eax\n ret\n
    .text\n.globl value\nvalue: movabsq $far, %rax\n jmpq *%rax\n.section .note.GNU-stack,\"\",@progbits\n";

static TOLD: AtomicI32 = AtomicI32::new(0);

extern "C" fn told(x: i32) {
    TOLD.fetch_add(x, Ordering::Relaxed);
}

fn objects() -> PathBuf {
    let model = &["-ftls-model=global-dynamic"][..];
    once_per(&["no execution"], "d", |folder| {
        std::fs::create_dir(folder).unwrap();
        let put = |name: &str, object: PathBuf| std::fs::copy(object, folder.join(name)).unwrap();
        put("small", compile("small.c", SMALL, &[]));
        put("other", compile("other.c", "int value(void); int other(void) { return value() + 1; }", &[]));
        put("large0", compile("large.c", LARGE[0], &[]));
        put("large1", compile("large.c", LARGE[1], &[]));
        put("throws", compile("throws.cc", THROWS, &[]));
        put("exits", compile("exits.cc", EXITS, &[]));
        put("of_threads", compile("of_threads.cc", OF_THREADS, model));
        put("indirect", compile("indirect.c", INDIRECT, &[]));
        if cfg!(target_arch = "x86_64") {
            put("far", compile("far.s", FAR_CODE, &[]));
        }
    })
}

fn in_child(part: &str) {
    if not_under_qemu("the host's kernel would refuse qemu its own memory, and qemu-user has no such call") {
        return;
    }
    let end = child_with(part, &[(OBJECTS, objects().to_str().unwrap())]);
    println!("{}", end.stdout);
    assert_eq!(end.code, Some(0), "{end:?}");
}

fn everything_runs_where_the_kernel_refuses() {
    in_child("refused_by_the_kernel_part");
}

fn everything_runs_where_a_filter_refuses() {
    in_child("refused_by_a_filter_part");
}

fn what_is_refused_later_is_said_once() {
    in_child("refused_later_part");
}

// ---- in children ----

/// False if this kernel cannot.
fn refuse_by_the_kernel() -> bool {
    // SAFETY: a plain system call.
    let set = unsafe { libc::prctl(libc::PR_SET_MDWE, libc::PR_MDWE_REFUSE_EXEC_GAIN as libc::c_ulong, 0, 0, 0) };
    if set != 0 {
        println!("not run: no PR_SET_MDWE here ({}; Linux 6.3 has it)", std::io::Error::last_os_error());
    }
    set == 0
}

/// As systemd does it: mprotect with PROT_EXEC, and mmap that is writable and executable.
fn refuse_by_a_filter() {
    let (statement, jump) = (
        |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k },
        |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k },
    );
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    // The low half of argument 2 of both, on a little-endian machine.
    let argument = (std::mem::offset_of!(libc::seccomp_data, args) + 2 * 8) as u32;
    let mut program = [
        statement(load, std::mem::offset_of!(libc::seccomp_data, nr) as u32),
        jump(equal, libc::SYS_mprotect as u32, 2, 0),
        jump(equal, libc::SYS_mmap as u32, 4, 0),
        statement(give, libc::SECCOMP_RET_ALLOW),
        statement(load, argument),
        jump(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, libc::PROT_EXEC as u32, 4, 0),
        statement(give, libc::SECCOMP_RET_ALLOW),
        statement(load, argument),
        statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, (libc::PROT_WRITE | libc::PROT_EXEC) as u32),
        jump(equal, (libc::PROT_WRITE | libc::PROT_EXEC) as u32, 0, 1),
        statement(give, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(give, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the filter lives until the calls return.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter), 0);
    }
}

/// The witness: what every other linker would do.
fn is_refused() -> bool {
    // SAFETY: fresh memory, given back.
    unsafe {
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let page = libc::mmap(std::ptr::null_mut(), 4096, rw, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        let refused = libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_EXEC) != 0;
        libc::munmap(page, 4096);
        refused
    }
}

fn refused_by_the_kernel_part() {
    if refuse_by_the_kernel() {
        run_everything();
    }
}

fn refused_by_a_filter_part() {
    refuse_by_a_filter();
    run_everything();
}

fn object(name: &str) -> Vec<u8> {
    std::fs::read(PathBuf::from(std::env::var_os(OBJECTS).unwrap()).join(name)).unwrap()
}

fn load(engine: &JitEngine, names: &[&str]) -> Library {
    // SAFETY: void(int), as the sources say.
    let library = unsafe { engine.library(names[0]).symbol("told", told as *const ()).build().unwrap() };
    names.iter().for_each(|name| library.add_object_named(name, object(name)).unwrap());
    library
}

fn layouts() -> [(&'static str, JitEngineBuilder); 4] {
    let of = |layout| JitEngine::builder().slab_layout(layout);
    [
        ("PerObject", of(SlabLayout::PerObject)),
        ("Packed", of(SlabLayout::Packed)),
        ("Packed, hardened", of(SlabLayout::Packed).hardened(true)),
        ("Packed, striped", of(SlabLayout::Packed).page_striped(true)),
    ]
}

fn run_everything() {
    assert!(is_refused());
    for (layout, builder) in layouts() {
        println!("{layout}");
        let engine = Checked::of(builder.quarantine(0).build().unwrap());
        assert!(engine.stats().arena.exec_gain_refused);
        let far = by_arch(&["far"][..], &[]);
        for name in ["small", "large0", "large1", "throws", "indirect"].iter().chain(far) {
            let library = load(&engine, &[name]);
            assert_eq!(call(&library, "value"), 42, "{name}");
            let rights = mapping_at(int(&library, "value").address().addr()).permissions;
            assert_eq!(rights, "r-xs", "{name}");
            common::assert_no_rwx();
            freed(&library);
        }
        exit_handlers(&engine);
        destructors_of_threads(&engine);
        many(&engine);
        forks(&engine);
        engine.finish();
    }
}

fn exit_handlers(engine: &JitEngine) {
    let library = load(engine, &["exits"]);
    assert_eq!((call(&library, "value"), TOLD.load(Ordering::Relaxed)), (42, 321));
    freed(&library);
    assert_eq!(TOLD.load(Ordering::Relaxed), 0);
}

fn destructors_of_threads(engine: &JitEngine) {
    let library = load(engine, &["of_threads"]);
    let value = int(&library, "value");
    // SAFETY: int(void).
    let run = move || assert_eq!((unsafe { value() }, TOLD.load(Ordering::Relaxed)), (42, 7000));
    std::thread::spawn(run).join().unwrap();
    assert_eq!(TOLD.load(Ordering::Relaxed), 0);
    common::within(std::time::Duration::from_secs(10), "removal", move || {
        library.remove_and_wait(std::time::Duration::from_secs(9)).unwrap();
    });
}

/// One by one and in batches, so that memory is returned and comes back.
fn many(engine: &JitEngine) {
    for _ in 0..3 {
        let mut all: Vec<_> = (0..60).map(|i| load(engine, &[["small", "large0"][i % 2]])).collect();
        assert!(all.iter().all(|library| call(library, "value") == 42));
        let batch = engine.add_objects([object("small"), object("other")]).unwrap();
        assert_eq!((call(&batch, "value"), call(&batch, "other")), (42, 43));
        freed(&batch);
        all.drain(..59).for_each(|library| freed(&library));
        assert_eq!(call(&all[0], "value"), 42);
    }
}

/// Both sides go on.
fn forks(engine: &JitEngine) {
    let kept = load(engine, &["small"]);
    let gone = load(engine, &["throws"]);
    assert_eq!((call(&kept, "value"), call(&gone, "value")), (42, 42));
    // SAFETY: the child goes on as this thread, and ends without what is the parent's.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let own = load(engine, &["large1"]);
            assert_eq!((call(&own, "value"), call(&kept, "value"), call(&gone, "value")), (42, 42, 42));
            freed(&own);
            freed(&gone);
            assert_eq!(call(&kept, "value"), 42);
        }));
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(held.is_err())) };
    }
    let mut status = -1;
    // SAFETY: the child of above.
    assert_eq!((unsafe { libc::waitpid(child, &mut status, 0) }, status), (child, 0), "the child's end");
    assert_eq!((call(&kept, "value"), call(&gone, "value")), (42, 42));
    freed(&gone);
    let own = load(engine, &["indirect"]);
    assert_eq!((call(&own, "value"), call(&kept, "value")), (42, 42));
    freed(&own);
    freed(&kept);
}

fn refused_later_part() {
    let engines = layouts().map(|(name, builder)| (name, builder.build().unwrap()));
    let before: Vec<_> = engines.iter().map(|(_, engine)| load(engine, &["small"])).collect();
    assert!(before.iter().all(|library| call(library, "value") == 42));
    if !refuse_by_the_kernel() {
        return;
    }
    assert!(is_refused());
    for ((name, engine), before) in engines.iter().zip(&before) {
        assert!(!engine.stats().arena.exec_gain_refused);
        let library = load(engine, &["large1"]);
        // SAFETY: int(void).
        match unsafe { library.get::<common::Int>("value") }.map(drop) {
            Err(error @ Error::Memory(MemoryError::System { call: "mprotect", .. })) => {
                let text = error.to_string();
                let words = ["MemoryDenyWriteExecute", "PR_SET_MDWE", "SELinux", "ask again"];
                assert!(words.iter().all(|word| text.contains(word)), "{name}: {text}");
            }
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(call(&library, "value"), 42);
        assert!(engine.stats().arena.exec_gain_refused);
        freed(&library);
        assert_eq!(call(before, "value"), 42);
    }
}
