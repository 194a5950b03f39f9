//! Compiles the shim against the headers of the LLVM that llvm-sys found; llvm-sys alone emits LLVM's link flags.
use std::env;
use std::path::Path;
use std::process::{Command, exit};

/// (feature, major version, links key of llvm-sys, variable that names a prefix)
const VERSIONS: [(&str, u32, &str, &str); 2] = [
    ("LLVM19_1", 19, "DEP_LLVM_19_CONFIG_PATH", "LLVM_SYS_191_PREFIX"),
    ("LLVM22_1", 22, "DEP_LLVM_22_CONFIG_PATH", "LLVM_SYS_221_PREFIX"),
];
const SOURCES: [&str; 6] = ["memory.cpp", "passes.cpp", "reach.cpp", "indirect.cpp", "layer.cpp", "session.cpp"];
const HEADERS: [&str; 3] = ["slabjit.h", "internal.h", "version.h"];

fn main() {
    for file in SOURCES.iter().chain(&HEADERS) {
        println!("cargo:rerun-if-changed=cpp/{file}");
    }
    let chosen: Vec<_> = VERSIONS.iter().filter(|v| env::var_os(format!("CARGO_FEATURE_{}", v.0)).is_some()).collect();
    // None or several: slabjit-llvm-find says so, and fails the build.
    let [(_, major, key, prefix_var)] = chosen[..] else { return };

    let missing =
        format!("LLVM {major} or its headers are missing: install llvm-{major}-dev, or set {prefix_var} to its prefix");
    let config = env::var(key).unwrap_or_else(|_| fail(&missing));
    let ask = |argument: &str| {
        let output = Command::new(&config).arg(argument).output().ok().filter(|o| o.status.success());
        output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_else(|| fail(&missing))
    };
    let found = ask("--version");
    if found.split('.').next() != Some(&major.to_string()) {
        fail(&format!("{missing} ({config} is LLVM {found})"));
    }
    let include = ask("--includedir");
    if !Path::new(&include).join("llvm/ExecutionEngine/Orc/LLJIT.h").exists() {
        fail(&missing);
    }

    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .include("cpp")
        .flag(format!("-isystem{include}"))
        // LLVM's headers carry checks that are linear in the size of a graph.
        .define("NDEBUG", None)
        .define("__STDC_CONSTANT_MACROS", None)
        .define("__STDC_LIMIT_MACROS", None)
        .flag("-fvisibility=hidden")
        .flag("-fno-semantic-interposition")
        .opt_level(2)
        .debug(false)
        .warnings(true);
    if ask("--has-rtti") == "NO" {
        build.flag("-fno-rtti");
    }
    for source in SOURCES {
        build.file(format!("cpp/{source}"));
    }
    build.compile("slabjit_llvm_wrap");
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    exit(1)
}
