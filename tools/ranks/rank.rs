//! What one rank does: with all others at the same moment, takes its kernel from the cache or compiles it, loads it,
//! and checks what it answers.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use slabjit::{CacheKey, JitEngine, ObjectCache, Symbol};

use crate::lljit::{Linker, Lljit};
use crate::{Job, Loader, Pass, Result, crowd};

/// `int kernel(const float *x, float *y, long n)`, which returns how often it was called.
type Kernel = unsafe extern "C" fn(*const f32, *mut f32, i64) -> i32;

const ELEMENTS: usize = 1000;

/// Runs a rank. It says in a file of its own what came of it; one that is killed says nothing.
pub fn run(job: &Job) -> Result<()> {
    // Open MPI's name for it.
    let rank: usize = std::env::var("OMPI_COMM_WORLD_RANK")?.parse()?;
    if job.crowded {
        crowd::crowd(&[job.seed as usize, job.pass as usize, rank])?;
    }
    wait_for_all(job)?;
    std::fs::write(job.report_of(rank), load(job)?)?;
    Ok(())
}

/// What came of it, in a line.
fn load(job: &Job) -> Result<String> {
    let cache = ObjectCache::open(job.folder.join("cache"))?;
    let source = std::fs::read_to_string(kernel_source())?;
    let flags = job.object.flags();
    let key = CacheKey::new([&source, flags, std::env::consts::ARCH]);
    let object = cache.get_or_compile(&key, || compile(&job.folder, flags))?;
    if let Some(problem) = object.problems.first() {
        return Ok(format!("wrong: {problem}"));
    }
    if job.pass == Pass::Warm && !object.found {
        return Ok("wrong: the cache was filled, and is empty".into());
    }
    let answer = match job.loader {
        Loader::Slabjit => ours(&object.bytes),
        Loader::RuntimeDyld => stock(Linker::RuntimeDyld, &object.bytes),
        Loader::JitLink => stock(Linker::Default, &object.bytes),
    };
    Ok(answer.unwrap_or_else(|error| format!("refused: {}", error.replace('\n', " "))))
}

fn ours(object: &[u8]) -> Result<String, String> {
    let kernel = || {
        let library = JitEngine::new()?.add_object(object)?;
        // SAFETY: the type is that in kernel.c; there are no initialisers.
        unsafe { library.get::<Kernel>("kernel") }
    };
    let kernel: Symbol<Kernel> = kernel().map_err(|error| error.to_string())?;
    Ok(check(*kernel))
}

fn stock(linker: Linker, object: &[u8]) -> Result<String, String> {
    let jit = Lljit::new(linker)?;
    jit.add(jit.main(), object)?;
    let address = jit.look_up(c"kernel")?;
    // SAFETY: as above.
    Ok(check(unsafe { std::mem::transmute::<usize, Kernel>(address as usize) }))
}

/// Twice, as the second call finds what the first has written.
fn check(kernel: Kernel) -> String {
    let x: Vec<f32> = (0..ELEMENTS).map(|i| i as f32 * 0.37 - 100.0).collect();
    for call in 1..=2 {
        let mut y = vec![0.0; ELEMENTS];
        // SAFETY: both have as many elements as it is told.
        let calls = unsafe { kernel(x.as_ptr(), y.as_mut_ptr(), ELEMENTS as i64) };
        if calls != call {
            return format!("wrong: call {call} says that it is call {calls}");
        }
        if let Some(i) = (0..ELEMENTS).find(|&i| y[i] != scalar(i, x[i])) {
            return format!("wrong: y[{i}] is {}, not {}", y[i], scalar(i, x[i]));
        }
    }
    crate::RIGHT.into()
}

/// What kernel.c computes, in the same order.
fn scalar(i: usize, x: f32) -> f32 {
    const WEIGHTS: [f32; 8] = [1.5, -2.25, 0.5, 3.0, -1.0, 0.25, 7.5, -0.75];
    let scaled = x * 0.75;
    (scaled * scaled + 0.125 - 3.5) * WEIGHTS[i % 8]
}

fn kernel_source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("ranks/kernel.c")
}

fn compile(folder: &Path, flags: &str) -> Result<Vec<u8>> {
    let object = folder.join(format!("{}.o", std::process::id()));
    let mut gcc = Command::new("gcc");
    gcc.args(["-c", "-O2", "-fPIC", "-ffp-contract=off", flags]).arg(kernel_source());
    let status = gcc.arg("-o").arg(&object).status().map_err(|error| format!("cannot run gcc: {error}"))?;
    if !status.success() {
        return Err("gcc failed".into());
    }
    let mut bytes = std::fs::read(object)?;
    // See kernel.c.
    let name = b".tekt\0";
    while let Some(at) = bytes.windows(name.len()).position(|window| window == name) {
        bytes[at + 3] = b'x';
    }
    Ok(bytes)
}

/// A barrier: each rank adds a byte to a file, and waits for those of all. (No MPI library is linked; if one of them
/// dies, mpirun ends the others.)
fn wait_for_all(job: &Job) -> Result<()> {
    let path = job.file("barrier");
    let mut file = std::fs::File::options().create(true).append(true).open(path)?;
    file.write_all(b".")?;
    let start = Instant::now();
    while file.metadata()?.len() < job.ranks as u64 {
        if start.elapsed() > Duration::from_secs(120) {
            return Err("the other ranks did not come".into());
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}
