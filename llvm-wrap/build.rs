//! Compiles the shim against the headers of the LLVM that llvm-sys found; llvm-sys alone emits LLVM's link flags.
use std::env;
use std::path::Path;
use std::process::{Command, exit};

/// (beginning of the features' names, major version, links key of llvm-sys, variable that names a prefix)
const VERSIONS: [(&str, u32, &str, &str); 9] = [
    ("CARGO_FEATURE_LLVM15_0", 15, "DEP_LLVM_15_CONFIG_PATH", "LLVM_SYS_150_PREFIX"),
    ("CARGO_FEATURE_LLVM16_0", 16, "DEP_LLVM_16_CONFIG_PATH", "LLVM_SYS_160_PREFIX"),
    ("CARGO_FEATURE_LLVM17_0", 17, "DEP_LLVM_17_CONFIG_PATH", "LLVM_SYS_170_PREFIX"),
    ("CARGO_FEATURE_LLVM18_1", 18, "DEP_LLVM_18_CONFIG_PATH", "LLVM_SYS_181_PREFIX"),
    ("CARGO_FEATURE_LLVM19_1", 19, "DEP_LLVM_19_CONFIG_PATH", "LLVM_SYS_191_PREFIX"),
    ("CARGO_FEATURE_LLVM20_1", 20, "DEP_LLVM_20_CONFIG_PATH", "LLVM_SYS_201_PREFIX"),
    ("CARGO_FEATURE_LLVM21_1", 21, "DEP_LLVM_21_CONFIG_PATH", "LLVM_SYS_211_PREFIX"),
    ("CARGO_FEATURE_LLVM22_1", 22, "DEP_LLVM_22_CONFIG_PATH", "LLVM_SYS_221_PREFIX"),
    ("CARGO_FEATURE_LLVM23_1", 23, "DEP_LLVM_23_CONFIG_PATH", "LLVM_SYS_231_PREFIX"),
];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(slabjit_llvm)");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=cpp");
    println!("cargo:rerun-if-env-changed=DOCS_RS");
    let features: Vec<String> = env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|n| n.starts_with("CARGO_FEATURE_LLVM"))
        .collect();
    let chosen: Vec<_> = VERSIONS.iter().filter(|v| features.iter().any(|f| f.starts_with(v.0))).collect();
    // None: there is nothing to wrap. Several: slabjit-llvm-find says so, and fails the build.
    let [(_, major, key, prefix_var)] = chosen[..] else { return };
    println!("cargo::rustc-cfg=slabjit_llvm");
    // docs.rs has neither LLVM nor a C++ compiler, and documentation needs no code.
    if env::var_os("DOCS_RS").is_some() {
        return;
    }

    let missing =
        format!("LLVM {major} or its headers are missing: install llvm-{major}-dev, or set {prefix_var} to its prefix");
    // Where llvm-sys links nothing it does not tell; slabjit-llvm-find looks in the same places.
    let config = env::var(key).or_else(|_| env::var("DEP_SLABJIT_LLVM_CONFIG_PATH")).unwrap_or_else(|_| fail(&missing));
    let ask = |argument: &str| {
        let output = Command::new(&config).arg(argument).output().ok().filter(|o| o.status.success());
        output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_else(|| fail(&missing))
    };
    let found = ask("--version");
    let number = |place: usize| found.split('.').nth(place);
    if number(0) != Some(&major.to_string()) {
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
        .define("SLABJIT_LLVM_MAJOR", number(0))
        .define("SLABJIT_LLVM_MINOR", number(1))
        .define("__STDC_CONSTANT_MACROS", None)
        .define("__STDC_LIMIT_MACROS", None)
        .flag("-fvisibility=hidden")
        .flag("-fno-semantic-interposition")
        .opt_level(2)
        .debug(false)
        .warnings(true);
    // LLVM's headers carry checks that are linear in the size of a graph. A library that was built with assertions has
    // functions and members that only these know.
    if ask("--assertion-mode") != "ON" {
        build.define("NDEBUG", None);
    }
    // Tests may have it compare what it makes with what LLVM makes.
    if env::var_os("CARGO_CFG_SLABJIT_FAULTS").is_some() {
        build.define("SLABJIT_COMPARES_GRAPHS", None);
    }
    if ask("--has-rtti") == "NO" {
        build.flag("-fno-rtti");
    }
    build.file("cpp/all.cpp").compile("slabjit_llvm_wrap");
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    exit(1)
}
