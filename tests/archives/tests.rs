//! Tests of this program.

use std::process::ExitCode;

pub fn run() -> ExitCode {
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), Vec::new()).exit_code()
}
