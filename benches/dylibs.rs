//! `slabjit::orc` beside stock LLJIT of the same LLVM, with its object layer and default memory manager.
//!
//! `cargo bench --bench dylibs` prints ratios (ours / stock; below 1 is better) of medians of interleaved rounds: one
//! object at a time, an object of 2000 sections, a chain of 4000 objects; and, with the feature `inkwell`, 200 modules
//! with two threads that compile beside one, and functions that are compiled when they are called, beside LLLazyJIT. It
//! asserts nothing but that answers are right.

#[path = "../tests/stock/lljit.rs"]
mod lljit;
mod objects;

use std::ffi::CString;
use std::time::{Duration, Instant};

use lljit::{Linker, Lljit};
use objects::Template;
use slabjit::orc::Dylib;
use slabjit::{JitEngine, SlabLayout, Symbol};

type Kernel = unsafe extern "C" fn(i32) -> i32;

const LAYOUTS: [(&str, SlabLayout); 2] = [("PerObject", SlabLayout::PerObject), ("Packed", SlabLayout::Packed)];

fn main() {
    println!("LLVM {}", slabjit::llvm_version());
    one_by_one();
    sections();
    chain();
    #[cfg(feature = "inkwell")]
    {
        modules();
        lazily();
    }
}

fn dylib(layout: SlabLayout) -> Dylib {
    let engine = JitEngine::builder().slab_layout(layout).build().unwrap();
    engine.orc().build().unwrap().dylib("main")
}

fn find(dylib: &Dylib, name: &str) -> Symbol<Kernel> {
    // SAFETY: the type of all functions that are called; there are no initialisers.
    unsafe { dylib.get(name).unwrap() }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints the medians of the sides' times, by the number of things, and of the ratios to the last.
fn report(what: &str, sides: &[&str], rounds: &[Vec<Duration>], n: usize) {
    let each = |time: Duration| time.as_secs_f64() * 1e6 / n as f64;
    let of = |side: usize| median(rounds.iter().map(|times| each(times[side])).collect());
    let last = sides.len() - 1;
    for (side, name) in sides.iter().enumerate() {
        let ratio = median(rounds.iter().map(|times| each(times[side]) / each(times[last])).collect());
        println!("{what:<24} {name:<12} {:>10.2} µs   ratio {ratio:.3}", of(side));
    }
}

/// Runs all sides in each round, in turns; the first round warms up.
fn interleave(rounds: usize, sides: usize, mut run: impl FnMut(usize, usize) -> Duration) -> Vec<Vec<Duration>> {
    let mut times = Vec::new();
    for round in 0..=rounds {
        let mut of_round = vec![Duration::ZERO; sides];
        for side in (0..sides).map(|k| (round + k) % sides) {
            of_round[side] = run(side, round);
        }
        times.push(of_round);
    }
    times.remove(0);
    times
}

fn one_by_one() {
    const N: usize = 200;
    let objects = Template::small();
    let ours = LAYOUTS.map(|(_, layout)| dylib(layout));
    let stock = Lljit::new(Linker::InProcess).unwrap();
    let mut removals = Vec::new();
    let times = interleave(15, 3, |side, round| {
        let inputs: Vec<_> = (round * N..(round + 1) * N).map(|i| (objects.with_name(i), objects.name(i))).collect();
        let names: Vec<_> = inputs.iter().map(|(_, name)| CString::new(name.as_str()).unwrap()).collect();
        if removals.len() <= round {
            removals.push(vec![Duration::ZERO; 3]);
        }
        let start = Instant::now();
        let (added, removed);
        if side < 2 {
            let mut trackers = Vec::new();
            for (bytes, name) in &inputs {
                let tracker = ours[side].tracker();
                tracker.add_object(bytes).unwrap();
                let kernel = find(&ours[side], name);
                // SAFETY: it takes any number.
                assert_eq!(unsafe { kernel(0) }, 42);
                trackers.push(tracker);
            }
            added = start.elapsed();
            trackers.into_iter().for_each(|tracker| tracker.remove().unwrap());
        } else {
            let mut trackers = Vec::new();
            for ((bytes, _), name) in inputs.iter().zip(&names) {
                trackers.push(stock.add(stock.main(), bytes).unwrap());
                let address = stock.look_up(name).unwrap();
                // SAFETY: the type that was compiled; it takes any number.
                unsafe {
                    let kernel: Kernel = std::mem::transmute(address as usize);
                    assert_eq!(kernel(0), 42);
                }
            }
            added = start.elapsed();
            trackers.into_iter().for_each(|tracker| tracker.remove().unwrap());
        }
        removed = start.elapsed() - added;
        removals[round][side] = removed;
        added
    });
    let sides = ["PerObject", "Packed", "stock"];
    report("object to first call", &sides, &times, N);
    report("removal of an object", &sides, &removals[1..], N);
}

fn sections() {
    let object = objects::sections(2000);
    let times = interleave(3, 3, |side, _| {
        if side < 2 {
            let main = dylib(LAYOUTS[side].1);
            let start = Instant::now();
            main.add_object(&object).unwrap();
            find(&main, "f7");
            return start.elapsed();
        }
        let stock = Lljit::new(Linker::InProcess).unwrap();
        let start = Instant::now();
        let _tracker = stock.add(stock.main(), &object).unwrap();
        stock.look_up(c"f7").unwrap();
        start.elapsed()
    });
    report("2000 sections", &["PerObject", "Packed", "stock"], &times, 1);
}

/// Objects of which each refers to the next: of half and of the whole length, to see whether time is linear.
fn chain() {
    for n in [2000, 4000] {
        let objects: Vec<Vec<u8>> = objects::chain(n);
        let last = format!("link_{n:08}");
        let times = interleave(3, 3, |side, _| {
            if side < 2 {
                let main = dylib(LAYOUTS[side].1);
                let start = Instant::now();
                objects.iter().for_each(|object| main.add_object(object).unwrap());
                find(&main, "link_00000000");
                let time = start.elapsed();
                // SAFETY: it takes any number.
                assert_eq!(unsafe { find(&main, &last)(1) }, 43);
                return time;
            }
            // Stock LLVM recurses for each object.
            let (objects, run) = (&objects, std::thread::Builder::new().stack_size(1 << 30));
            std::thread::scope(|scope| {
                let run = run.spawn_scoped(scope, || {
                    let stock = Lljit::new(Linker::InProcess).unwrap();
                    let start = Instant::now();
                    let _trackers: Vec<_> =
                        objects.iter().map(|object| stock.add(stock.main(), object).unwrap()).collect();
                    stock.look_up(c"link_00000000").unwrap();
                    start.elapsed()
                });
                run.unwrap().join().unwrap()
            })
        });
        report(&format!("chain of {n}"), &["PerObject", "Packed", "stock"], &times, n);
    }
}

#[cfg(feature = "inkwell")]
fn modules() {
    use slabjit::ir::OptLevel;
    const N: usize = 200;
    let module = |n: usize| {
        let mut text = format!("define i32 @module_{n}(i32 %x) {{\n  %v0 = add i32 %x, {n}\n");
        for i in 1..60 {
            text += &format!("  %a{i} = mul i32 %v{}, {}\n  %v{i} = xor i32 %a{i}, %x\n", i - 1, i + 3);
        }
        text + "  ret i32 %v59\n}"
    };
    let modules: Vec<String> = (0..N).map(module).collect();
    let calls: String = (0..N).map(|n| format!("declare i32 @module_{n}(i32)\n")).collect();
    let sums = |n: usize| format!("  %c{n} = call i32 @module_{n}(i32 %x)\n  %s{} = add i32 %s{n}, %c{n}\n", n + 1);
    let all: String = (0..N).map(sums).collect();
    let all = format!("{calls}define i32 @all(i32 %x) {{\n  %s0 = add i32 0, 0\n{all}  ret i32 %s{N}\n}}");
    let times = interleave(5, 3, |side, _| {
        let engine = JitEngine::new().unwrap();
        let main = engine.orc().compile_threads([2, 0, 1][side]).build().unwrap().dylib("main");
        for (n, module) in modules.iter().enumerate() {
            main.add_bitcode(&n.to_string(), module, OptLevel::Default).unwrap();
        }
        main.add_bitcode("all", &all, OptLevel::Default).unwrap();
        let start = Instant::now();
        find(&main, "all");
        start.elapsed()
    });
    report("200 modules", &["2 threads", "no thread", "1 thread"], &times, N);
}

/// The first calls of 200 functions, and later calls of one, by its stub, in a loop.
#[cfg(feature = "inkwell")]
fn lazily() {
    use slabjit::ir::OptLevel;
    use slabjit::llvm_sys::orc2::lljit::{LLVMOrcDisposeLLJIT, LLVMOrcLLJITLookup};
    const N: usize = 200;
    const CALLS: usize = 20_000_000;
    let function = |n: usize| format!("define i32 @f{n}(i32 %x) {{\n %y = add i32 %x, {n}\n ret i32 %y\n}}\n");
    let call = |n: usize| format!(" %r{n} = call i32 @f{n}(i32 %s{n})\n %s{} = xor i32 %r{n}, %x\n", n + 1);
    let functions: String = (0..N).map(function).collect();
    let calls: String = (0..N).map(call).collect();
    let module = format!(
        "{functions}define i32 @all(i32 %x) {{\n %s0 = add i32 %x, 0\n{calls} ret i32 %s{N}\n}}
        define i32 @loop(i32 %n) {{
        entry: br label %step
        step: %i = phi i32 [0, %entry], [%next, %step]
          %r = call i32 @f1(i32 %i)
          %next = add i32 %r, 0
          %more = icmp slt i32 %next, %n
          br i1 %more, label %step, label %end
        end: ret i32 %next
        }}"
    );
    let expected = (0..N as i32).fold(7, |sum, n| (sum + n) ^ 7);
    let mut later = Vec::new();
    // SAFETY: of this type, and there while they run.
    let run = |all: Kernel, many: Kernel, later: &mut Duration| unsafe {
        let start = Instant::now();
        assert_eq!(all(7), expected);
        let first = start.elapsed();
        let start = Instant::now();
        assert_eq!(many(CALLS as i32), CALLS as i32);
        *later = start.elapsed();
        first
    };
    let times = interleave(5, 2, |side, round| {
        if later.len() <= round {
            later.push(vec![Duration::ZERO; 2]);
        }
        if side == 0 {
            let main = dylib(SlabLayout::PerObject);
            main.add_bitcode_lazily("lazy", &module, OptLevel::Default).unwrap();
            let (all, many) = (find(&main, "all"), find(&main, "loop"));
            return run(*all, *many, &mut later[round][0]);
        }
        // SAFETY: plain use of the API; the functions are of this type, and not called behind the end.
        unsafe {
            let mut jit = std::ptr::null_mut();
            let error = slabjit_stock::slabjit_stock_lazy(
                module.as_ptr().cast(),
                module.len(),
                c"default<O2>".as_ptr(),
                &mut jit,
            );
            assert!(error.is_null());
            let [all, many] = [c"all", c"loop"].map(|name| {
                let mut address = 0;
                assert!(LLVMOrcLLJITLookup(jit, &mut address, name.as_ptr()).is_null());
                std::mem::transmute::<usize, Kernel>(address as usize)
            });
            let time = run(all, many, &mut later[round][1]);
            assert!(LLVMOrcDisposeLLJIT(jit).is_null());
            time
        }
    });
    report("first call of a function", &["ours", "LLLazyJIT"], &times, N);
    report("1000 calls by a stub", &["ours", "LLLazyJIT"], &later[1..], CALLS / 1000);
}
