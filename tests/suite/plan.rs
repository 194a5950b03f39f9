//! What was captured before a barrier and is used behind it. The model is openucx/ucc#1268: a fast peer releases a slot
//! of a table, which is used again, while a slow peer has yet to read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{self, Checked, child_with, compile_bytes, freed, temporary};
use slabjit::{CallPlan, Capture, Error, JitEngine, Library, LibraryError, Removal};

common::tests![
    slow_peer_reads_a_slot_that_is_used_again,
    ranks_read_a_slot_that_is_used_again,
    plans_keep_what_they_capture,
    plans_keep_owners_of_pointers,
    plans_that_fail_keep_nothing,
    plans_are_shared_by_threads;
    parts: rank_part,
];

type Kernel = unsafe extern "C" fn(i32) -> i32;

/// The kernel of an operation: 1 adds, 2 multiplies.
fn kernel(engine: &JitEngine, operation: usize) -> Library {
    let body = ["x + 1", "x * 100"][operation - 1];
    let source = format!("int table[4] = {{ {operation} }}; int kernel(int x) {{ return {body}; }}");
    engine.add_object(compile_bytes("kernel.c", &source, &[])).unwrap()
}

fn address(library: &Library) -> usize {
    // SAFETY: int (int).
    unsafe { library.get::<Kernel>("kernel").unwrap().address() as usize }
}

/// Calls what a slot of a table has.
///
/// # Safety
/// It is the address of a kernel that lives.
unsafe fn run(slot: usize, x: i32) -> i32 {
    // SAFETY: by the caller.
    unsafe { std::mem::transmute::<usize, Kernel>(slot)(x) }
}

/// The interleaving, step by step.
fn slow_peer_reads_a_slot_that_is_used_again() {
    let engine = Checked::new();
    let slots = [AtomicUsize::new(0)];
    let first = kernel(&engine, 1);
    // Both peers enter the operation.
    slots[0].store(address(&first), Ordering::SeqCst);
    let plan = CallPlan::capture(|capture| {
        // SAFETY: the types are those of the source above.
        Ok(unsafe { (capture.get::<Kernel>(&first, "kernel")?, capture.get::<*const i32>(&first, "table")?) })
    })
    .unwrap();
    // Barrier. The fast peer runs, and releases the slot for the next operation.
    // SAFETY: it lives.
    assert_eq!(unsafe { run(slots[0].load(Ordering::SeqCst), 5) }, 6);
    assert_eq!(first.remove(), Removal::Waiting { holders: 1 });
    let second = kernel(&engine, 2);
    slots[0].store(address(&second), Ordering::SeqCst);
    // The slow peer comes out of the barrier, and reads what is not its operation any more.
    // SAFETY: it lives, whatever it is.
    assert_eq!(unsafe { run(slots[0].load(Ordering::SeqCst), 5) }, 500);
    // What it captured is.
    // SAFETY: the plan keeps both.
    assert_eq!(unsafe { ((plan.0)(5), *plan.1) }, (6, 1));
    drop(plan);
    freed(&first);
    freed(&second);
    engine.finish();
}

// ---- with processes ----

/// Memory that the ranks share.
#[repr(C)]
struct Shared {
    barrier: libc::pthread_barrier_t,
    /// The operation that is to be run.
    slot: AtomicUsize,
}

const RANK: &str = "SLABJIT_RANK";
const SHARED: &str = "SLABJIT_SHARED";

fn map_shared(path: &std::path::Path) -> *mut Shared {
    use std::os::fd::AsRawFd;
    let file = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    file.set_len(4096).unwrap();
    // SAFETY: new addresses; the file has that size.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

/// One rank: rank 0 is fast, rank 1 is delayed behind the barrier.
fn rank_part() {
    let rank: usize = std::env::var(RANK).unwrap().parse().unwrap();
    let shared = map_shared(std::env::var_os(SHARED).unwrap().as_ref());
    // SAFETY: mapped until the process ends, and initialised by the test.
    let (barrier, slot) = unsafe { (&raw mut (*shared).barrier, &(*shared).slot) };
    let engine = JitEngine::new().unwrap();
    let kernels = [kernel(&engine, 1), kernel(&engine, 2)];
    let operation = slot.load(Ordering::SeqCst);
    // SAFETY: int (int).
    let plan =
        CallPlan::capture(|capture| unsafe { capture.get::<Kernel>(&kernels[operation - 1], "kernel") }).unwrap();
    // SAFETY: both ranks wait.
    unsafe { libc::pthread_barrier_wait(barrier) };
    if rank == 1 {
        let start = Instant::now();
        while slot.load(Ordering::SeqCst) == operation && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let found = &kernels[slot.load(Ordering::SeqCst) - 1];
    // SAFETY: they live, whichever they are.
    let (by_slot, by_plan) = unsafe { (run(address(found), 5), (*plan)(5)) };
    println!("{by_slot} {by_plan}");
    if rank == 0 {
        kernels[operation - 1].remove();
        slot.store(2, Ordering::SeqCst);
    }
}

fn ranks_read_a_slot_that_is_used_again() {
    let path = temporary().join("ranks");
    let shared = map_shared(&path);
    // SAFETY: nobody else has it yet.
    unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_barrierattr_init(&raw mut attributes);
        libc::pthread_barrierattr_setpshared(&raw mut attributes, libc::PTHREAD_PROCESS_SHARED);
        assert_eq!(libc::pthread_barrier_init(&raw mut (*shared).barrier, &raw const attributes, 2), 0);
        (*shared).slot.store(1, Ordering::SeqCst);
    }
    let path = path.to_str().unwrap();
    let ends = std::thread::scope(|scope| {
        let ranks =
            ["0", "1"].map(|rank| scope.spawn(move || child_with("rank_part", &[(RANK, rank), (SHARED, path)])));
        ranks.map(|rank| rank.join().unwrap())
    });
    // SAFETY: ours, and both ranks have ended.
    unsafe { libc::munmap(shared.cast(), 4096) };
    assert_eq!(
        ends.each_ref().map(|end| (end.code, &*end.stdout)),
        [(Some(0), "6 6\n"), (Some(0), "500 6\n")],
        "{ends:?}"
    );
}

// ---- what plans keep ----

fn plans_keep_what_they_capture() {
    let engine = Checked::new();
    let [one, two] = [kernel(&engine, 1), kernel(&engine, 2)];
    // SAFETY: the types are those of the source above.
    let symbol = unsafe { one.get::<Kernel>("kernel").unwrap() };
    let capture = |capture: &mut Capture| {
        // SAFETY: as above.
        Ok((capture.symbol(&symbol), unsafe { capture.get::<*const i32>(&two, "table")? }.addr()))
    };
    let plan = CallPlan::capture(capture).unwrap();
    drop(symbol);
    assert_eq!(one.remove(), Removal::Waiting { holders: 1 });
    let again = plan.clone();
    drop((plan, one));
    drop(two);
    // SAFETY: the plan keeps both.
    assert_eq!(unsafe { ((again.0)(1), *(again.1 as *const i32)) }, (2, 2));
    assert_eq!(engine.stats().libraries, 2);
    drop(again);
    engine.finish();
}

fn plans_keep_owners_of_pointers() {
    let buffer = Arc::new([1.0_f32; 16]);
    let plan = CallPlan::capture(|capture| Ok(capture.pointer(buffer.as_ptr().addr(), Arc::clone(&buffer)))).unwrap();
    assert_eq!((*plan, Arc::strong_count(&buffer)), (buffer.as_ptr().addr(), 2));
    drop(plan);
    assert_eq!(Arc::strong_count(&buffer), 1);
}

fn plans_that_fail_keep_nothing() {
    let engine = Checked::new();
    let library = kernel(&engine, 1);
    let buffer = Arc::new(());
    let failed = CallPlan::capture(|capture| {
        capture.pointer(0_u64, Arc::clone(&buffer));
        // SAFETY: the type is that of the source above.
        let kernel = unsafe { capture.get::<Kernel>(&library, "kernel")? };
        // SAFETY: nothing is found.
        unsafe { capture.get::<Kernel>(&library, "no_such_kernel")? };
        Ok(kernel)
    });
    assert!(matches!(failed.unwrap_err(), Error::Library(LibraryError::SymbolNotFound { .. })));
    assert_eq!(Arc::strong_count(&buffer), 1);
    freed(&library);
    engine.finish();
}

fn plans_are_shared_by_threads() {
    let engine = Checked::new();
    let library = kernel(&engine, 1);
    // SAFETY: the type is that of the source above.
    let plan = CallPlan::capture(|capture| unsafe { capture.get::<Kernel>(&library, "kernel") }).unwrap();
    freed_later(&library);
    std::thread::scope(|scope| {
        for i in 0..4 {
            let plan = plan.clone();
            // SAFETY: the plan keeps it.
            scope.spawn(move || assert_eq!(unsafe { (*plan)(i) }, i + 1));
        }
        drop(plan);
    });
    freed(&library);
    engine.finish();
}

fn freed_later(library: &Library) {
    assert_eq!(library.remove(), Removal::Waiting { holders: 1 });
}
