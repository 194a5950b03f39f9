//! What a kernel may do with its buffers, and which of two is faster: `cargo run --example kernel_contract`.
//!
//! A permutation of rows reads one row and writes another. If whoever plans memory gives its output the place of its
//! input, the result is wrong, and nothing says so (NVIDIA/TransformerEngine#2730). Its contract says so before it
//! runs.

use std::error::Error;
use std::process::Command;

use slabjit::{
    Argument, Autotuner, BufferView, Candidate, ElementType, Error as SlabjitError, JitEngine, Kernel, KernelError,
    KernelSignature,
};

/// `dst[r] = src[map[r]]`, as it is, or with `-DBY_COLUMN` in an order that caches dislike.
const SOURCE: &str = "
    void permute_rows(const float *src, const int *map, float *dst, long rows, long columns) {
    #ifdef BY_COLUMN
        for (long c = 0; c < columns; c++)
            for (long r = 0; r < rows; r++)
                dst[r * columns + c] = src[map[r] * columns + c];
    #else
        for (long r = 0; r < rows; r++)
            for (long c = 0; c < columns; c++)
                dst[r * columns + c] = src[map[r] * columns + c];
    #endif
    }";

type PermuteRows = unsafe extern "C" fn(*const f32, *const i32, *mut f32, i64, i64);

const ROWS: usize = 1024;
const COLUMNS: usize = 1024;
const SHAPE: [usize; 2] = [ROWS, COLUMNS];

fn main() -> Result<(), Box<dyn Error>> {
    let engine = JitEngine::new()?;
    // No alias is declared: the output must not share memory with anything.
    let signature = KernelSignature::builder("permute_rows")
        .input("src", ElementType::F32, ["rows", "columns"])
        .input("map", ElementType::I32, ["rows"])
        .output("dst", ElementType::F32, ["rows", "columns"])
        .extent_scalar::<i64>("rows")
        .extent_scalar::<i64>("columns")
        .build()?;
    let load = |flags: &[&str]| -> Result<Kernel, Box<dyn Error>> {
        let library = engine.add_object(compile(flags)?)?;
        // SAFETY: the type is that of the C source, which has no initialisers. The kernel keeps the code.
        Ok(signature.bind(unsafe { library.get::<PermuteRows>("permute_rows")? })?)
    };
    let (by_row, by_column) = (load(&[])?, load(&["-DBY_COLUMN"])?);

    let mut memory: Vec<f32> = (0..2 * ROWS * COLUMNS).map(|i| (i % 1000) as f32).collect();
    let map: Vec<i32> = (0..ROWS as i32).rev().collect();
    let before = memory.clone();
    let base = memory.as_mut_ptr();
    let matrix = |slot: usize| {
        let pointer = base.wrapping_add(slot * ROWS * COLUMNS);
        Argument::from(BufferView::raw(pointer.cast(), ElementType::F32, &SHAPE))
    };
    let arguments = |src, dst| [src, Argument::slice(&map), dst, Argument::extent(), Argument::extent()];

    // What a planner would do to which nobody has said anything.
    // SAFETY: both slots are in `memory`, and the map has rows that there are.
    match unsafe { by_row.call(&arguments(matrix(0), matrix(0))) } {
        Err(error @ SlabjitError::Kernel(KernelError::BuffersOverlap { .. })) => println!("refused: {error}"),
        other => return Err(format!("expected to be refused, got {other:?}").into()),
    }
    println!("a planner can ask: may dst have the place of src? {}", signature.may_share("dst", "src"));

    let candidates = [Candidate::kernel("by row", &by_row), Candidate::kernel("by column", &by_column)];
    let tuner = Autotuner::new();
    // SAFETY: as above.
    let tuning = unsafe { tuner.run("permute_rows 1024x1024", &candidates, &arguments(matrix(0), matrix(1)))? };
    print!("{tuning}");

    let (src, dst) = memory.split_at(ROWS * COLUMNS);
    assert_eq!(src, &before[..ROWS * COLUMNS], "the input was changed");
    for (row, from) in dst.chunks(COLUMNS).zip(&map) {
        assert_eq!(row, &src[*from as usize * COLUMNS..][..COLUMNS]);
    }
    println!("right");
    Ok(())
}

/// The object of the C source.
fn compile(flags: &[&str]) -> Result<Vec<u8>, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let (input, output) = (folder.path().join("permute.c"), folder.path().join("permute.o"));
    std::fs::write(&input, SOURCE)?;
    let mut gcc = Command::new("gcc");
    let status = gcc.args(["-c", "-O2", "-fPIC"]).args(flags).arg(input).arg("-o").arg(&output).status()?;
    if status.success() { Ok(std::fs::read(output)?) } else { Err("gcc failed".into()) }
}
