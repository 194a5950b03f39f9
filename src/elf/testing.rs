//! Test helpers: compile objects from source, and change single fields of objects.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Output};

pub(crate) use super::exercise::NOWHERE;
use super::prepare::Prepared;
use super::{Preparation, SectionConflicts, Target};
use crate::elf::elf_abi::{EM_AARCH64, EM_X86_64, SECTION_SIZE, SectionHeader};
use crate::elf::elf_view::{View, lossy};
use crate::{Limits, LinkPlan, Result};

pub(crate) const X86: Target = Target { machine: EM_X86_64, llvm: 22 };
pub(crate) const ARM: Target = Target { machine: EM_AARCH64, llvm: 22 };

/// Runs a tool and returns its output; panics with the tool's message, or with the package to install.
pub(crate) fn run<S: AsRef<OsStr>>(dir: &Path, tool: &str, args: &[S]) -> Output {
    let output = Command::new(tool).args(args).current_dir(dir).output().unwrap_or_else(|error| {
        panic!("cannot run '{tool}' ({error}); the tests need gcc, binutils, clang and the llvm tools of 19 and 22 (ci/test installs them)")
    });
    assert!(output.status.success(), "'{tool}' failed:\n{}", lossy(&output.stderr));
    output
}

/// Compiles a source with `tool ARGS… source.EXTENSION -o object` and returns the object's bytes.
pub(crate) fn build(tool: &str, args: &[&str], extension: &str, source: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let file = format!("source.{extension}");
    std::fs::write(dir.path().join(&file), source).unwrap();
    let args: Vec<&str> = args.iter().copied().chain([file.as_str(), "-o", "object"]).collect();
    run(dir.path(), tool, &args);
    std::fs::read(dir.path().join("object")).unwrap()
}

/// Compiles C for x86-64 with gcc.
pub(crate) fn gcc(args: &[&str], source: &str) -> Vec<u8> {
    let gcc = if cfg!(target_arch = "x86_64") { "gcc" } else { "x86_64-linux-gnu-gcc" };
    build(gcc, &[&["-c"], args].concat(), "c", source)
}

/// Compiles C for any target with clang 22.
pub(crate) fn clang(args: &[&str], source: &str) -> Vec<u8> {
    build("clang-22", &[&["-c"], args].concat(), "c", source)
}

/// Assembles x86-64 code.
pub(crate) fn asm(source: &str) -> Vec<u8> {
    build("llvm-mc-22", &["-triple=x86_64-linux-gnu", "-filetype=obj"], "s", source)
}

/// Assembles AArch64 code.
pub(crate) fn asm_arm(source: &str) -> Vec<u8> {
    build("llvm-mc-22", &["-triple=aarch64-linux-gnu", "-filetype=obj"], "s", source)
}

pub(crate) fn preparation(target: Target, conflicts: SectionConflicts) -> Preparation {
    Preparation::new(target, conflicts, Limits::default(), Vec::new())
}

pub(crate) fn prepare(target: Target, bytes: &[u8]) -> Result<Prepared<'_>> {
    preparation(target, SectionConflicts::Rename).prepare("test.o", bytes)
}

pub(crate) fn check(bytes: &[u8]) -> Result<LinkPlan> {
    preparation(X86, SectionConflicts::Rename).check("test.o", bytes, &NOWHERE)
}

/// Returns the output of `readelf`; panics if it warns.
pub(crate) fn readelf(bytes: &[u8], args: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("object");
    std::fs::write(&path, bytes).unwrap();
    let args: Vec<&OsStr> = args.iter().map(OsStr::new).chain([path.as_os_str()]).collect();
    let output = run(dir.path(), "readelf", &args);
    assert!(output.stderr.is_empty(), "readelf: {}", lossy(&output.stderr));
    let output = run(dir.path(), "llvm-readelf-22", &args);
    assert!(output.stderr.is_empty(), "llvm-readelf: {}", lossy(&output.stderr));
    lossy(&output.stdout).into_owned()
}

pub(crate) fn view(bytes: &[u8]) -> View<'_> {
    View::parse("test.o", bytes, u64::MAX).unwrap()
}

/// Returns the index and the header of the n-th section of a name.
pub(crate) fn section(bytes: &[u8], name: &str, nth: usize) -> (u32, SectionHeader) {
    let view = view(bytes);
    let mut found = view.sections().filter(|(_, header)| view.name_of(header).unwrap() == name.as_bytes());
    found.nth(nth).unwrap_or_else(|| panic!("no section {name} ({nth})"))
}

pub(crate) fn contents<'a>(bytes: &'a [u8], name: &str) -> &'a [u8] {
    let (index, header) = section(bytes, name, 0);
    view(bytes).contents(index, &header).unwrap()
}

/// Returns all section names in order.
pub(crate) fn names(bytes: &[u8]) -> Vec<String> {
    let view = view(bytes);
    view.sections().map(|(_, header)| lossy(view.name_of(&header).unwrap()).into_owned()).collect()
}

/// Overwrites bytes.
pub(crate) fn put(bytes: &mut [u8], offset: u64, value: &[u8]) {
    bytes[offset as usize..][..value.len()].copy_from_slice(value);
}

/// Overwrites a field of a section header.
pub(crate) fn put_header(bytes: &mut [u8], index: u32, field: u64, value: &[u8]) {
    let table = view(bytes).table;
    put(bytes, table + u64::from(index) * SECTION_SIZE + field, value);
}
