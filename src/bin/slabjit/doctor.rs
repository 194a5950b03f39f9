//! What this machine offers, for `slabjit --version`.

use std::fs;

use object::{Object as _, ObjectSymbol as _};
use slabjit::{JitEngine, PackedMode, SlabLayout};

/// Prints one line for each thing that depends on the machine.
pub(crate) fn print() {
    let engine = JitEngine::builder().slab_layout(SlabLayout::Packed).build();
    match engine.map(|engine| engine.stats().arena) {
        Ok(arena) => {
            line("packed memory", packed(arena.packed));
            let gained = if arena.exec_gain_refused {
                "written elsewhere: the system lets none become executable"
            } else {
                "ordinary"
            };
            line("code pages", gained);
            let known = if arena.known_to_loader {
                "knows loaded code (dladdr, backtrace_symbols)"
            } else {
                "does not know loaded code: it takes glibc 2.36, memory files and /proc"
            };
            line("dynamic loader", known);
        }
        Err(error) => line("memory", &error.to_string()),
    }
    line("debuggers", debuggers());
    line("attaching", attaching(read("/proc/sys/kernel/yama/ptrace_scope")));
    line("perf", perf(read("/proc/sys/kernel/perf_event_paranoid")));
}

fn line(what: &str, text: &str) {
    println!("  {what}: {text}");
}

fn read(path: &str) -> Option<i32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn packed(mode: Option<PackedMode>) -> &'static str {
    match mode {
        Some(PackedMode::TwoViews) => "small objects share pages",
        _ => "each object has whole pages: the system gives no memory that can be mapped twice",
    }
}

/// Whether debuggers find what they look for in this program.
fn debuggers() -> &'static str {
    let program = fs::read("/proc/self/exe").unwrap_or_default();
    let has = object::File::parse(&*program)
        .is_ok_and(|file| file.symbols().any(|symbol| symbol.name_bytes() == Ok(b"__jit_debug_register_code")));
    if has {
        "see loaded code"
    } else {
        "see no loaded code: this program has no symbol table; use strip --strip-debug"
    }
}

fn attaching(scope: Option<i32>) -> &'static str {
    match scope {
        None | Some(0) => "to processes of the same user",
        Some(1) => "to own children only, else as root (kernel.yama.ptrace_scope is 1)",
        Some(2) => "as root only (kernel.yama.ptrace_scope is 2)",
        Some(_) => "to nothing (kernel.yama.ptrace_scope is 3)",
    }
}

fn perf(paranoid: Option<i32>) -> &'static str {
    match paranoid {
        None => "not in this kernel",
        Some(..=2) => "records own programs",
        Some(_) => "as root only (kernel.perf_event_paranoid is above 2)",
    }
}
