//! Real objects of CuTe DSL: kernels of this project, compiled by NVIDIA's compiler without a GPU, and loaded here.
//!
//! `ci/cutedsl` makes the objects, and names their folders in `SLABJIT_CUTEDSL`; without that, everything is skipped.
//! With stubs for what they import of CUDA's runtime and of TVM-FFI, each is called in both forms, and what it asks for
//! is compared with the kernel's source (`ci/cutedsl.d`). With the compiler's own runtime library all imports resolve,
//! and a call says that there is no driver.

mod calls;
mod compiled;
mod cuda;
mod kernels;
#[path = "../stock/lljit.rs"]
mod lljit;
mod raw_order;
mod runtime;
mod sections;
mod tvm_ffi;

use std::process::ExitCode;
use std::sync::Arc;

use compiled::Compiled;
use libtest_mimic::{Arguments, Trial};

const FOLDERS: &str = "SLABJIT_CUTEDSL";

/// What is true of the objects of each version.
type Test = (&'static str, fn(&Compiled));

const TESTS: &[(&str, &[Test])] = &[
    ("sections", sections::TESTS),
    ("calls", calls::TESTS),
    ("runtime", runtime::TESTS),
    ("raw_order", raw_order::TESTS),
];

fn main() -> ExitCode {
    if raw_order::run_as_child() {
        return ExitCode::SUCCESS;
    }
    let trials = match std::env::var_os(FOLDERS) {
        Some(folders) if !folders.is_empty() => {
            let versions = std::env::split_paths(&folders).map(|folder| Arc::new(Compiled::read(&folder)));
            versions.flat_map(|version| trials(&version)).collect()
        }
        _ => vec![Trial::test("cutedsl::objects", || {
            println!("not run: there are no objects of CuTe DSL; ci/cutedsl makes them and sets {FOLDERS}");
            Ok(())
        })],
    };
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trials(version: &Arc<Compiled>) -> Vec<Trial> {
    let tests = TESTS.iter().flat_map(|(table, tests)| tests.iter().map(move |test| (*table, *test)));
    let trial = |(table, (name, run)): (&str, Test)| {
        let compiled = Arc::clone(version);
        Trial::test(format!("{}::{table}::{name}", version.version), move || {
            run(&compiled);
            Ok(())
        })
    };
    tests.map(trial).collect()
}
