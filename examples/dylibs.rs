//! A compiler that emits more than a run needs: `cargo run --release --example dylibs --features inkwell`.
//!
//! Each of 500 kernels is a module of its own in a dylib. Only those that a look-up needs are compiled and linked. Then
//! a kernel is replaced: its tracker takes it back, while a symbol of before keeps the old code. Last, all kernels are
//! one module, and each is compiled when it is called.

use std::time::Instant;

use slabjit::ir::OptLevel;
use slabjit::orc::Dylib;
use slabjit::{JitEngine, Symbol};

const KERNELS: usize = 500;

type Kernel = unsafe extern "C" fn(*mut f32, u64);

fn main() -> slabjit::Result<()> {
    let engine = JitEngine::new()?;
    let jit = engine.orc().build()?;
    let (kernels, models) = (jit.dylib("kernels"), jit.dylib("models"));
    models.link(&kernels)?;

    let start = Instant::now();
    for n in 1..KERNELS {
        kernels.add_bitcode(&format!("kernel_{n}"), kernel(n, n as f32), OptLevel::Default)?;
    }
    let replaceable = kernels.tracker();
    replaceable.add_bitcode("kernel_0", kernel(0, 10.0), OptLevel::Default)?;
    models.add_bitcode("model", model(&[0, 3, 5]), OptLevel::Default)?;
    println!("{KERNELS} kernels and a model are added after {:.1?}", start.elapsed());

    let start = Instant::now();
    assert_eq!(run(&find(&models, "model")?), [18.0; 4]);
    println!("the first result is there after {:.1?}: {} modules of them compiled", start.elapsed(), compiled(&engine));
    assert_eq!(compiled(&engine), 4);

    // Whoever has the old kernel may go on with it.
    let old = find(&kernels, "kernel_0")?;
    replaceable.remove()?;
    kernels.add_bitcode("kernel_0", kernel(0, 100.0), OptLevel::Default)?;
    assert_eq!((run(&old), run(&find(&kernels, "kernel_0")?)), ([10.0; 4], [100.0; 4]));
    println!("a kernel is replaced");

    // One module of all kernels: each is compiled when it is called.
    let lazily = jit.dylib("lazily");
    let all: String = (0..KERNELS).map(|n| kernel(n, n as f32)).collect();
    let before = compiled(&engine);
    let start = Instant::now();
    lazily.add_bitcode_lazily("all", all, OptLevel::Default)?;
    let seventh = find(&lazily, "kernel_7")?;
    assert_eq!(run(&seventh), [7.0; 4]);
    // Stubs, and one function.
    assert_eq!(compiled(&engine) - before, 2);
    println!("one of {KERNELS} functions of a module has run after {:.1?}", start.elapsed());
    // SAFETY: kernels of one type; nobody is in the old one.
    drop(unsafe { lazily.redirect("kernel_7", &find(&kernels, "kernel_1")?)? });
    assert_eq!(run(&seventh), [1.0; 4]);
    println!("and leads elsewhere now");
    Ok(())
}

/// Adds a constant to each of `n` numbers.
fn kernel(number: usize, constant: f32) -> String {
    format!(
        "define void @kernel_{number}(ptr %data, i64 %n) {{
         entry:
           %none = icmp eq i64 %n, 0
           br i1 %none, label %end, label %body
         body:
           %i = phi i64 [ 0, %entry ], [ %next, %body ]
           %place = getelementptr float, ptr %data, i64 %i
           %before = load float, ptr %place
           %after = fadd float %before, {constant:?}
           store float %after, ptr %place
           %next = add i64 %i, 1
           %last = icmp eq i64 %next, %n
           br i1 %last, label %end, label %body
         end:
           ret void
         }}"
    )
}

/// Calls kernels one after the other.
fn model(kernels: &[usize]) -> String {
    let declarations = kernels.iter().map(|n| format!("declare void @kernel_{n}(ptr, i64)\n"));
    let calls = kernels.iter().map(|n| format!("call void @kernel_{n}(ptr %data, i64 %n)\n"));
    format!(
        "{}define void @model(ptr %data, i64 %n) {{\n{}ret void\n}}",
        declarations.collect::<String>(),
        calls.collect::<String>()
    )
}

fn find(dylib: &Dylib, name: &str) -> slabjit::Result<Symbol<Kernel>> {
    // SAFETY: the type is that of the functions above; no module has initialisers.
    unsafe { dylib.get(name) }
}

fn run(kernel: &Symbol<Kernel>) -> [f32; 4] {
    let mut data = [0.0; 4];
    // SAFETY: there are so many numbers.
    unsafe { kernel(data.as_mut_ptr(), data.len() as u64) };
    data
}

/// Every module is an object of its own.
fn compiled(engine: &JitEngine) -> usize {
    engine.stats().libraries
}
