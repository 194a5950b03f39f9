//! Compiles the C++ against the headers of the LLVM that llvm-sys found, as slabjit-llvm-wrap does.
use std::env;
use std::process::{Command, exit};

/// (beginning of the features' names, links key of llvm-sys)
const VERSIONS: [(&str, &str); 4] = [
    ("CARGO_FEATURE_LLVM15_0", "DEP_LLVM_15_CONFIG_PATH"),
    ("CARGO_FEATURE_LLVM16_0", "DEP_LLVM_16_CONFIG_PATH"),
    ("CARGO_FEATURE_LLVM19_1", "DEP_LLVM_19_CONFIG_PATH"),
    ("CARGO_FEATURE_LLVM22_1", "DEP_LLVM_22_CONFIG_PATH"),
];

fn main() {
    println!("cargo:rerun-if-changed=cpp/stock.cpp");
    let features: Vec<String> = env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|n| n.starts_with("CARGO_FEATURE_LLVM"))
        .collect();
    let chosen: Vec<_> = VERSIONS.iter().filter(|v| features.iter().any(|f| f.starts_with(v.0))).collect();
    // None: built as a member of the workspace alone, and empty then. Several: slabjit-llvm-find fails the build.
    let [(_, key)] = chosen[..] else { return };
    let config = env::var(key).or_else(|_| env::var("DEP_SLABJIT_LLVM_CONFIG_PATH"));
    let config = config.unwrap_or_else(|_| fail("no llvm-config is known"));
    let ask = |argument: &str| {
        let output = Command::new(&config).arg(argument).output().ok().filter(|o| o.status.success());
        let output = output.unwrap_or_else(|| fail(&format!("{config} {argument} failed")));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .flag(format!("-isystem{}", ask("--includedir")))
        // As Debian's libLLVM was built: LLVM's headers carry checks.
        .define("NDEBUG", None)
        .define("__STDC_CONSTANT_MACROS", None)
        .define("__STDC_LIMIT_MACROS", None)
        .flag("-fvisibility=hidden")
        .opt_level(2)
        .debug(false)
        .warnings(true);
    if ask("--has-rtti") == "NO" {
        build.flag("-fno-rtti");
    }
    build.file("cpp/stock.cpp").compile("slabjit_stock");
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    exit(1)
}
