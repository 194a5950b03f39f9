//! How long it takes to open a BLAS: `cargo run --release --no-default-features --example open_blas -- WAY FILE.so
//! [wait]`, where WAY is `dlopen`, or `per-object` or `packed` for an image and slabjit. Prints microseconds from
//! before the file is opened until its initialisers have run and the address of `cblas_dgemm` is known; then a product
//! is checked. With `wait` it stays until its standard input ends.
//!
//! `ci/images --libraries` runs it for OpenBLAS.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use slabjit::{JitEngine, SlabLayout};

/// `cblas_dgemm` of the C interface: order, transpositions, sizes, alpha, A, its stride, B, its stride, beta, C, its
/// stride.
type Dgemm =
    unsafe extern "C" fn(i32, i32, i32, i32, i32, i32, f64, *const f64, i32, *const f64, i32, f64, *mut f64, i32);
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const ROW_MAJOR: i32 = 101;
const NOT_TRANSPOSED: i32 = 111;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ([way, file] | [way, file, _]) = &arguments[..] else {
        return Err("usage: open_blas dlopen|per-object|packed FILE.so [wait]".into());
    };
    let stay = || if arguments.len() == 3 { std::io::stdin().read_to_end(&mut Vec::new()).map(|_| ()) } else { Ok(()) };
    let layout = match way.as_str() {
        "dlopen" => None,
        "per-object" => Some(SlabLayout::PerObject),
        "packed" => Some(SlabLayout::Packed),
        _ => return Err(format!("'{way}' is no way to open it: dlopen, per-object or packed").into()),
    };
    let start = Instant::now();
    let say = |took: Duration| {
        println!("{}", took.as_micros());
        std::io::stdout().flush()
    };
    match layout {
        None => {
            // SAFETY: the initialisers are a BLAS's, made for any program.
            let library = unsafe { libloading::Library::new(file)? };
            // SAFETY: the type is that of the C interface.
            let dgemm = unsafe { library.get::<Dgemm>(b"cblas_dgemm")? };
            let took = start.elapsed();
            check(*dgemm)?;
            say(took)?;
            stay()?;
        }
        Some(layout) => {
            let engine = JitEngine::builder().slab_layout(layout).build()?;
            let library = engine.add_image_file(Path::new(file))?;
            // SAFETY: as above.
            let dgemm = unsafe { library.get::<Dgemm>("cblas_dgemm")? };
            let took = start.elapsed();
            check(*dgemm)?;
            say(took)?;
            stay()?;
        }
    }
    Ok(())
}

fn check(dgemm: Dgemm) -> Outcome<()> {
    const N: usize = 65;
    let at = |i: usize| (i / N, i % N);
    let a: Vec<f64> = (0..N * N).map(at).map(|(row, column)| (row * 3 + column) as f64).collect();
    let b: Vec<f64> = (0..N * N).map(at).map(|(row, column)| row as f64 - 2.0 * column as f64).collect();
    let mut c = vec![0.0; N * N];
    let n = N as i32;
    // SAFETY: three matrices of this size, which do not overlap.
    unsafe {
        let (a, b) = (a.as_ptr(), b.as_ptr());
        dgemm(ROW_MAJOR, NOT_TRANSPOSED, NOT_TRANSPOSED, n, n, n, 1.0, a, n, b, n, 0.0, c.as_mut_ptr(), n);
    }
    for (row, column) in (0..N * N).map(at) {
        // Whole numbers: every order of the sum gives the same.
        let expected: f64 = (0..N).map(|k| a[row * N + k] * b[k * N + column]).sum();
        let found = c[row * N + column];
        if found != expected {
            return Err(format!("the product has {found} at {row}, {column}, not {expected}").into());
        }
    }
    Ok(())
}
