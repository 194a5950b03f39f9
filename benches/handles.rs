//! What it costs to take and drop a handle, and to remove a library with and without a quarantine: `cargo bench --bench
//! handles`.

#![allow(missing_docs, reason = "criterion's macros")]

mod next;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use slabjit::{JitEngine, Removal, Symbol};

use next::Next;

fn handles(c: &mut Criterion) {
    let library = JitEngine::new().unwrap().add_object(next::object()).unwrap();
    // SAFETY: the type is that of `next`.
    let next: Symbol<Next> = unsafe { library.get("next").unwrap() };
    c.bench_function("a handle, taken and dropped", |b| b.iter(|| drop(black_box(next.clone()))));
    // SAFETY: as above.
    c.bench_function("a handle, looked up and dropped", |b| b.iter(|| unsafe { library.get::<Next>("next").unwrap() }));
}

/// Removal alone is measured. By default, so many rest that each removal also wakes one.
fn removal(c: &mut Criterion) {
    let object = next::object();
    let mut group = c.benchmark_group("removal");
    for (name, engine) in [
        ("without a quarantine", JitEngine::builder().quarantine(0).build().unwrap()),
        ("with a quarantine", JitEngine::new().unwrap()),
    ] {
        let remove = |times: u64| {
            let mut spent = Duration::ZERO;
            for _ in 0..times {
                let library = engine.add_object(&object).unwrap();
                // SAFETY: the type is that of `next`.
                assert_eq!(unsafe { library.get::<Next>("next").unwrap()(41) }, 42);
                let start = Instant::now();
                let removal = library.remove();
                spent += start.elapsed();
                assert_eq!(removal, Removal::Freed);
            }
            spent
        };
        remove(6000);
        group.bench_function(name, |b| b.iter_custom(remove));
    }
    group.finish();
}

criterion_group!(benches, handles, removal);
criterion_main!(benches);
