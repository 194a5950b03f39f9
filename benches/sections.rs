//! A large object of many small sections: 1.2 MB, 2000 function sections, 10 000 relocations, from its bytes to the
//! first address. ORC's dependence tracking, which has no part here, takes seconds for such an object on LLVM 19 and 22
//! (llvm#179611).
//!
//! Run with `cargo bench --bench sections`; for another LLVM add `--no-default-features --features llvm22-1`.

mod objects;

use std::time::{Duration, Instant};

use slabjit::{JitEngine, Symbol};

const SECTIONS: usize = 2000;
const ROUNDS: usize = 31;

type Function = unsafe extern "C" fn() -> i32;

fn main() {
    let object = objects::sections(SECTIONS);
    let engine = JitEngine::new().unwrap();
    let plan = engine.check_object(&object).unwrap();
    let relocations: u64 = plan.relocations.iter().map(|r| r.always + r.in_arena + r.bridged + r.refused).sum();
    let mut times: Vec<Duration> = (0..=ROUNDS).map(|_| load(&engine, &object)).collect();
    // The first warms up.
    times.remove(0);
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "LLVM {}, {} bytes, {SECTIONS} function sections, {relocations} relocations: median {:.1} ms ({:.1}..{:.1}) \
         of {ROUNDS}",
        slabjit::llvm_version(),
        object.len(),
        ms(times[ROUNDS / 2]),
        ms(times[0]),
        ms(times[ROUNDS - 1]),
    );
}

fn load(engine: &JitEngine, object: &[u8]) -> Duration {
    let start = Instant::now();
    let library = engine.add_object(object).unwrap();
    // SAFETY: `int f7(void)`; there are no initialisers.
    let f: Symbol<Function> = unsafe { library.get("f7").unwrap() };
    let time = start.elapsed();
    // SAFETY: as above.
    assert_eq!(unsafe { f() }, 7);
    time
}
