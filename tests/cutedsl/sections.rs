//! What the objects are made of, by `readelf`; what stock JITLink says to it, and what preparation changes.

use std::ffi::CString;
use std::process::Command;

use slabjit::{ChangeKind, JitEngine, LinkPlan, Verdict};

use crate::Test;
use crate::compiled::{Compiled, Form};
use crate::cuda;
use crate::kernels::KERNELS;
use crate::lljit::{Linker, Lljit};

pub const TESTS: &[Test] =
    &[("texts", texts), ("plans", plans), ("stock_refuses_what_is_prepared_here", stock_refuses_what_is_prepared_here)];

/// The flags of the sections called `.text`, as `readelf` shows them, with their indices.
fn text_sections(compiled: &Compiled, kernel: &str, form: Form) -> Vec<(u32, String)> {
    let output = Command::new("readelf").arg("-WS").arg(compiled.object(kernel, form)).env("LC_ALL", "C").output();
    let output = output.unwrap_or_else(|e| panic!("cannot run readelf ({e}); ci/cutedsl installs what this needs"));
    assert!(output.status.success());
    // "  [ 9] .text PROGBITS 0000000000000000 002298 000018 00  WA  0   0  8"
    let text = |line: &str| {
        let (index, rest) = line.trim_start().strip_prefix('[')?.split_once(']')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        (fields[0] == ".text").then(|| (index.trim().parse().unwrap(), fields[6].to_owned()))
    };
    String::from_utf8(output.stdout).unwrap().lines().filter_map(text).collect()
}

/// In 4.4 the second has pointers to functions, three of them: writable where they are relocated by a dynamic loader.
fn texts(compiled: &Compiled) {
    for kernel in &KERNELS {
        for form in Form::ALL {
            let sections = text_sections(compiled, kernel.name, form);
            let flags: Vec<&str> = sections.iter().map(|(_, flags)| flags.as_str()).collect();
            let expected: &[&str] = match form {
                Form::TvmFfi if compiled.has_two_texts() => &["AX", "WA"],
                Form::TvmFfiStatic if compiled.has_two_texts() => &["AX", "A"],
                _ => &["AX"],
            };
            assert_eq!(flags, expected, "{} in form {form:?}", kernel.name);
        }
    }
}

/// What it imports; the table of addresses is the linker's.
fn imports(plan: &LinkPlan) -> Vec<&str> {
    plan.imports.iter().map(|import| import.name.as_str()).filter(|name| *name != "_GLOBAL_OFFSET_TABLE_").collect()
}

fn plans(compiled: &Compiled) {
    let engine = JitEngine::new().unwrap();
    for kernel in &KERNELS {
        for form in Form::ALL {
            let plan = engine.check_object(compiled.bytes(kernel.name, form)).unwrap();
            let renamed = plan.changes.iter().map(|change| match &change.what {
                ChangeKind::Renamed { to } if to != ".text" => change.section.as_ref().unwrap(),
                _ => panic!("{change}"),
            });
            // A section of relocations is named after the one that they apply to.
            let renamed = renamed.filter(|section| section.name == ".text").map(|section| section.index);
            let clashing = text_sections(compiled, kernel.name, form).into_iter().skip(1).map(|(index, _)| index);
            assert!(renamed.eq(clashing), "{}: {:?}", kernel.name, plan.changes);
            assert_eq!(plan.problems, []);
            assert_eq!(plan.finalizers, u64::from(form != Form::C), "unloads what was loaded for it");
            assert_eq!(plan.initializers, 0);
            let names = imports(&plan);
            let unknown: Vec<&str> = names.into_iter().filter(|name| cuda::stub(name).is_none()).collect();
            assert_eq!(unknown, [] as [&str; 0], "{}: these have no stubs", kernel.name);
            assert!(plan.references.iter().all(|reference| reference.verdict != Verdict::Refused));
        }
    }
}

fn stock_refuses_what_is_prepared_here(compiled: &Compiled) {
    let version = slabjit::llvm_version();
    for kernel in &KERNELS {
        for form in Form::ALL {
            let bytes = compiled.bytes(kernel.name, form);
            let plan = JitEngine::new().unwrap().check_object(&bytes).unwrap();
            let jit = Lljit::new(Linker::InProcess).unwrap();
            for name in imports(&plan) {
                let stub = cuda::stub(name).unwrap().expose_provenance() as u64;
                jit.define(jit.main(), &CString::new(name).unwrap(), stub).unwrap();
            }
            let (symbol, two_texts) = match form {
                Form::C => (format!("{}_cuda_init", kernel.name), false),
                _ => (format!("__tvm_ffi_{}", kernel.name), compiled.has_two_texts()),
            };
            // JITLink parses it when it is added, or when it is looked for.
            let linked = jit.add(jit.main(), &bytes);
            let linked = linked.and_then(|_| jit.look_up(&CString::new(symbol).unwrap()));
            match linked {
                Err(said) if two_texts && version >= 18 => {
                    assert!(said.contains(".text is present more than once with different permissions"), "{said}");
                }
                // Before, the first section's permissions hold for both.
                Ok(address) if !two_texts || version < 18 => assert_ne!(address, 0),
                other => panic!("{} in form {form:?}: {other:?}", kernel.name),
            }
        }
    }
}
