//! What `ci/callgrind` counts: objects of one function, loaded and removed one by one and as one batch, and with stock
//! LLJIT one by one; and images of the same objects. `instructions PerObject|Packed|stock` runs each once; valgrind counts
//! within `loads`, `removals`, `load_of_a_batch`, `removal_of_a_batch` and `image_loads`, which are functions of their
//! own for that.

#[path = "../tests/stock/lljit.rs"]
mod lljit;
mod objects;

use std::ffi::CString;
use std::hint::black_box;

use lljit::{Linker, Lljit, Tracker};
use objects::Template;
use slabjit::{ImageBuilder, JitEngine, Library, SlabLayout};

type Kernel = unsafe extern "C" fn(i32) -> i32;

/// How many objects come before those that are counted, and how many those are.
const BEFORE: usize = 500;
const COUNTED: usize = 1000;

/// Bytes and names.
type Inputs = Vec<(Vec<u8>, String)>;

fn main() {
    let side = std::env::args().nth(1).filter(|side| side != "--bench");
    let objects = Template::small();
    let inputs = |from: usize, n: usize| -> Inputs {
        (from..from + n).map(|i| (objects.with_name(i), objects.name(i))).collect()
    };
    let (before, alone, together) = (inputs(0, BEFORE), inputs(BEFORE, COUNTED), inputs(BEFORE + COUNTED, COUNTED));
    match side.as_deref() {
        Some("stock") => {
            let jit = Lljit::new(Linker::InProcess).unwrap();
            let _before = stock_loads(&jit, &before);
            stock_removes(loads(|| stock_loads(&jit, &alone)));
        }
        Some(layout) => {
            let layout = if layout == "Packed" { SlabLayout::Packed } else { SlabLayout::PerObject };
            let engine = JitEngine::builder().slab_layout(layout).build().unwrap();
            let _before: Vec<_> = before.iter().map(|(bytes, name)| load(&engine, bytes, name)).collect();
            let loaded = loads(|| alone.iter().map(|(bytes, name)| load(&engine, bytes, name)).collect::<Vec<_>>());
            removals(|| drop(loaded));
            let batch = load_of_a_batch(|| {
                let library = engine.add_objects(together.iter().map(|(bytes, _)| bytes)).unwrap();
                call(&library, &together[0].1);
                library
            });
            removal_of_a_batch(|| drop(batch));
            let link =
                |(bytes, name): &(Vec<u8>, String)| ImageBuilder::new().object(name, bytes.clone()).link().unwrap();
            let images: Vec<Vec<u8>> = together.iter().map(link).collect();
            let load_image = |(bytes, (_, name)): (&Vec<u8>, &(_, String))| {
                let library = engine.add_image(bytes).unwrap();
                call(&library, name);
                library
            };
            image_loads(|| images.iter().zip(&together).map(load_image).collect::<Vec<_>>());
        }
        None => println!("ci/callgrind counts its instructions"),
    }
}

#[inline(never)]
fn loads<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

#[inline(never)]
fn removals(work: impl FnOnce()) {
    work();
    black_box(());
}

#[inline(never)]
fn load_of_a_batch<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

#[inline(never)]
fn removal_of_a_batch(work: impl FnOnce()) {
    work();
    black_box(());
}

#[inline(never)]
fn image_loads<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

fn call(library: &Library, name: &str) {
    // SAFETY: the signature is the one that was compiled; there are no initialisers; it takes any number.
    assert_eq!(unsafe { library.get::<Kernel>(name).unwrap()(0) }, 42);
}

fn load(engine: &JitEngine, bytes: &[u8], name: &str) -> Library {
    let library = engine.add_object(bytes).unwrap();
    call(&library, name);
    library
}

fn stock_loads(jit: &Lljit, inputs: &Inputs) -> Vec<Tracker> {
    let load = |(bytes, name): &(Vec<u8>, String)| {
        let tracker = jit.add(jit.main(), bytes).unwrap();
        let address = jit.look_up(&CString::new(name.as_str()).unwrap()).unwrap();
        // SAFETY: the signature is the one that was compiled, and it takes any number.
        assert_eq!(unsafe { std::mem::transmute::<usize, Kernel>(address as usize)(0) }, 42);
        tracker
    };
    inputs.iter().map(load).collect()
}

fn stock_removes(trackers: Vec<Tracker>) {
    removals(|| trackers.into_iter().for_each(|tracker| tracker.remove().unwrap()));
}
