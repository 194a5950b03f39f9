//! What a kernel's contract costs, and a call through a plan: `cargo bench --bench kernels`. Before anything is
//! measured, it is checked that a call allocates nothing.
//!
//! The check is that of all arguments; what the overlaps alone cost is the difference to the same buffers, of which
//! none is written.

#![allow(missing_docs, reason = "criterion's macros")]

mod next;

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use criterion::{Criterion, criterion_group, criterion_main};
use slabjit::{Access, Argument, BufferView, CallPlan, ElementType, JitEngine, KernelSignature, Strides, Symbol};

use next::Next;

/// Counts allocations.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: the system's, and a count.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

const BUFFERS: usize = 32;
const SHAPE: [usize; 2] = [64, 128];

/// So many matrices; which are written, the function says.
fn signature(count: usize, access: impl Fn(usize) -> Access, strides: Strides) -> KernelSignature {
    let name = |i: usize| format!("a{i}");
    let builder = (0..count).fold(KernelSignature::builder("k"), |builder, i| {
        builder.buffer(name(i), access(i), ElementType::F32, ["rows", "columns"]).strides(name(i), strides.clone())
    });
    builder.build().unwrap()
}

/// Matrices apart, in an order that has nothing to do with their addresses.
fn apart(count: usize) -> Vec<Argument<'static>> {
    const BYTES: usize = 4 * SHAPE[0] * SHAPE[1];
    let place = |i: usize| 0x7f00_0000_0000 + (i * 11 + 5) % count * (BYTES + 64);
    (0..count)
        .map(|i| BufferView::raw(std::ptr::without_provenance_mut(place(i)), ElementType::F32, &SHAPE).into())
        .collect()
}

/// Every other column of 16 matrices, and the columns between.
fn interleaved(count: usize) -> Vec<Argument<'static>> {
    let place = |i: usize| 0x7f00_0000_0000 + i / 2 * (8 * SHAPE[0] * SHAPE[1]) + i % 2 * 4;
    let view = |i| BufferView::raw(std::ptr::without_provenance_mut(place(i)), ElementType::F32, &SHAPE);
    (0..count).map(|i| view(i).strides(&[2 * SHAPE[1] as isize, 2]).into()).collect()
}

fn half(i: usize) -> Access {
    if i.is_multiple_of(2) { Access::In } else { Access::Out }
}

fn checks(c: &mut Criterion) {
    let mut group = c.benchmark_group("check");
    let contiguous = || Strides::Contiguous;
    let all_read = signature(BUFFERS, |_| Access::In, contiguous());
    let half_written = signature(BUFFERS, half, contiguous());
    let all_written = signature(BUFFERS, |_| Access::Out, contiguous());
    let arguments = apart(BUFFERS);
    for (name, signature) in [
        ("32 buffers, none written: no overlaps to look for", &all_read),
        ("32 buffers, half of them written", &half_written),
        ("32 buffers, all written", &all_written),
    ] {
        allocates_nothing(|| signature.check(&arguments).unwrap());
        group.bench_function(name, |b| b.iter(|| signature.check(black_box(&arguments))));
    }
    let any = signature(BUFFERS, half, Strides::Any);
    let arguments = interleaved(BUFFERS);
    allocates_nothing(|| any.check(&arguments).unwrap());
    group.bench_function("32 buffers, in 16 pairs that interleave", |b| b.iter(|| any.check(black_box(&arguments))));
    let (few, arguments) = (signature(4, half, contiguous()), apart(4));
    group.bench_function("4 buffers, half of them written", |b| b.iter(|| few.check(black_box(&arguments))));
    group.finish();
}

fn allocates_nothing(f: impl Fn()) {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    (0..100).for_each(|_| f());
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before, "something was allocated");
}

fn calls(c: &mut Criterion) {
    let mut group = c.benchmark_group("call");
    let library = JitEngine::new().unwrap().add_object(next::object()).unwrap();
    // SAFETY: the type is that of `next`.
    let next: Symbol<Next> = unsafe { library.get("next").unwrap() };
    let raw = next.as_raw();
    let plan = CallPlan::capture(|capture| Ok(capture.symbol(&next))).unwrap();
    // SAFETY: it takes any number.
    group.bench_function("the raw function", |b| b.iter(|| unsafe { black_box(raw)(black_box(41)) }));
    // SAFETY: as above.
    group.bench_function("through a plan", |b| b.iter(|| unsafe { (black_box(&plan))(black_box(41)) }));
    let signature = KernelSignature::builder("next").scalar::<i32>("n").status().build().unwrap();
    let kernel = signature.bind(next).unwrap();
    // SAFETY: as above; -1 is followed by 0, which is no error.
    let call = || unsafe { kernel.call(black_box(&[(-1i32).into()])) };
    allocates_nothing(|| call().unwrap());
    group.bench_function("a kernel of one scalar, through its contract", |b| b.iter(call));
    group.finish();
}

/// What is asked for, in one line each: the least of many, as other processes are none of its business.
fn summary(_: &mut Criterion) {
    let arguments = apart(BUFFERS);
    let check = |access: fn(usize) -> Access| {
        let signature = signature(BUFFERS, access, Strides::Contiguous);
        least(|| signature.check(black_box(&arguments)).unwrap())
    };
    let (none, all) = (check(|_| Access::In), check(|_| Access::Out));
    println!(
        "32 buffers, all written: checked in {all:.0} ns, of which the overlaps take {:.0} (at most 200)",
        all - none
    );
    let library = JitEngine::new().unwrap().add_object(next::object()).unwrap();
    // SAFETY: the type is that of `next`.
    let next: Symbol<Next> = unsafe { library.get("next").unwrap() };
    let plan = CallPlan::capture(|capture| Ok(capture.symbol(&next))).unwrap();
    let function = next.as_raw();
    // SAFETY: it takes any number.
    let raw = least(|| _ = black_box(unsafe { black_box(function)(black_box(41)) }));
    // SAFETY: as above.
    let planned = least(|| _ = black_box(unsafe { (black_box(&plan))(black_box(41)) }));
    println!("a call: {raw:.1} ns, through a plan {planned:.1} (at most 5 more)");
}

/// The nanoseconds that something takes.
fn least(f: impl Fn()) -> f64 {
    const CALLS: u32 = 1000;
    let batch = |_| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| f());
        start.elapsed()
    };
    (0..1000).map(batch).min().unwrap().as_secs_f64() * 1e9 / f64::from(CALLS)
}

criterion_group!(benches, checks, calls, summary);
criterion_main!(benches);
