//! Compiles the C++ against the headers of the LLVM that slabjit-llvm-wrap is built for.
use std::env;
use std::process::{Command, exit};

fn main() {
    println!("cargo::rustc-check-cfg=cfg(slabjit_llvm)");
    println!("cargo:rerun-if-changed=cpp/stock.cpp");
    // Of slabjit-llvm-find; not there in a build without LLVM.
    let Ok(config) = env::var("DEP_SLABJIT_LLVM_CONFIG_PATH") else { return };
    println!("cargo::rustc-cfg=slabjit_llvm");
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
        .define("__STDC_CONSTANT_MACROS", None)
        .define("__STDC_LIMIT_MACROS", None)
        .flag("-fvisibility=hidden")
        .opt_level(2)
        .debug(false)
        .warnings(true);
    // As libLLVM was built: its headers carry checks.
    if ask("--assertion-mode") != "ON" {
        build.define("NDEBUG", None);
    }
    if ask("--has-rtti") == "NO" {
        build.flag("-fno-rtti");
    }
    build.file("cpp/stock.cpp").compile("slabjit_stock");
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    exit(1)
}
