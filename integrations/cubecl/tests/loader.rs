//! Kernels are compiled once, and units that wait for each other run side by side.
#![cfg(feature = "compiler")]

use anyhow::Result;
use slabjit::ir::{OptLevel, compile};
use slabjit_cubecl::{CpuKernel, CpuLoader, Launch};

/// Each unit writes its number, waits for all others, and then writes the sum of all numbers behind them.
const SUMS: &str = "
define void @sums(ptr %buffers, i32 %x, i32 %y, i32 %z, i32 %unit, i32 %unit_y, i32 %unit_z, ptr %arrived, ptr %units) {
entry:
  %numbers = load ptr, ptr %buffers
  %count = load i64, ptr %units
  %all = trunc i64 %count to i32
  %own = getelementptr i32, ptr %numbers, i32 %unit
  store i32 %unit, ptr %own
  %before = atomicrmw add ptr %arrived, i32 1 seq_cst
  br label %wait
wait:
  %now = load atomic i32, ptr %arrived seq_cst, align 4
  %complete = icmp eq i32 %now, %all
  br i1 %complete, label %add, label %wait
add:
  %i = phi i32 [ 0, %wait ], [ %next, %add ]
  %sum = phi i32 [ 0, %wait ], [ %more, %add ]
  %at = getelementptr i32, ptr %numbers, i32 %i
  %number = load i32, ptr %at
  %more = add i32 %sum, %number
  %next = add i32 %i, 1
  %is_last = icmp eq i32 %next, %all
  br i1 %is_last, label %end, label %add
end:
  %behind = add i32 %all, %unit
  %to = getelementptr i32, ptr %numbers, i32 %behind
  store i32 %more, ptr %to
  ret void
}
";

fn sums(loader: &CpuLoader) -> Result<CpuKernel> {
    let compile = || Ok::<_, anyhow::Error>(compile("sums", SUMS, OptLevel::Default)?);
    // SAFETY: the IR defines it so.
    unsafe { loader.kernel("sums", SUMS.as_bytes(), compile) }
}

#[test]
fn units_that_wait_for_each_other() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let kernel = sums(&CpuLoader::open(folder.path(), "test")?)?;
    let mut numbers = [0_i32; 16];
    let (mut buffers, mut metadata) = ([numbers.as_mut_ptr().cast()], [8]);
    let launch =
        Launch { buffers: &mut buffers, metadata: &mut metadata, cubes: [1; 3], units: [8, 1, 1], has_barriers: true };
    // SAFETY: twice as many numbers as units.
    unsafe { kernel.launch(launch) }?;
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 28, 28, 28, 28, 28, 28, 28, 28]);
    Ok(())
}

/// In a process of its own, which has few threads left.
#[test]
fn units_without_threads() -> Result<()> {
    if std::env::var_os("FEW_THREADS").is_none() {
        let test = std::process::Command::new(std::env::current_exe()?)
            .args(["--exact", "units_without_threads", "--nocapture"])
            .env("FEW_THREADS", "")
            .output()?;
        assert!(
            test.status.success(),
            "{}{}",
            String::from_utf8_lossy(&test.stdout),
            String::from_utf8_lossy(&test.stderr)
        );
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let kernel = sums(&CpuLoader::open(folder.path(), "test")?)?;
    let limit = libc::rlimit { rlim_cur: 1 << 30, rlim_max: 1 << 30 };
    let mut numbers = vec![-1_i32; 2 * 4096];
    let (mut buffers, mut metadata) = ([numbers.as_mut_ptr().cast()], [4096]);
    // Stacks of so many threads, 2 MiB each, do not fit.
    // SAFETY: a limit of this process.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    let units = [4096, 1, 1];
    let launch = Launch { buffers: &mut buffers, metadata: &mut metadata, cubes: [1; 3], units, has_barriers: true };
    // SAFETY: twice as many numbers as units.
    let error = unsafe { kernel.launch(launch) }.unwrap_err();
    println!("{error}");
    assert!(numbers.iter().all(|number| *number == -1));
    Ok(())
}

#[test]
fn a_kernel_is_compiled_once() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let open = |compiler| CpuLoader::open(folder.path(), compiler);
    assert!(sums(&open("one")?)?.was_compiled());
    assert!(!sums(&open("one")?)?.was_compiled());
    assert!(sums(&open("another")?)?.was_compiled());
    // SAFETY: it is not there.
    let missing =
        unsafe { open("one")?.kernel("none", SUMS.as_bytes(), || Ok(compile("sums", SUMS, OptLevel::Default)?)) };
    let error: anyhow::Error = missing.unwrap_err();
    assert!(error.to_string().contains("'none'"), "{error}");
    Ok(())
}
