//! The smallest function, in an object of its own.

use std::process::Command;

/// `int next(int)`, one more than it is given.
pub type Next = unsafe extern "C" fn(i32) -> i32;

/// The object, from gcc.
pub fn object() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("next.c"), folder.path().join("next.o"));
    std::fs::write(&source, "int next(int n) { return n + 1; }").unwrap();
    let status = Command::new("gcc").args(["-c", "-O2", "-fPIC"]).arg(source).arg("-o").arg(&object).status().unwrap();
    assert!(status.success());
    std::fs::read(object).unwrap()
}
