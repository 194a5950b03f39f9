//! Says in one line what a build needs, before llvm-sys fails in many. It has no dependencies, so it runs first.
use std::env;
use std::process::Command;

/// (feature, major version, variable that names a prefix)
const VERSIONS: [(&str, u32, &str); 2] =
    [("LLVM19_1", 19, "LLVM_SYS_191_PREFIX"), ("LLVM22_1", 22, "LLVM_SYS_221_PREFIX")];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PATH");
    for (_, _, prefix) in VERSIONS {
        println!("cargo::rerun-if-env-changed={prefix}");
    }
    if let Some(problem) = problem() {
        println!("cargo::error={problem}");
    }
}

fn problem() -> Option<String> {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    if variable("CARGO_CFG_TARGET_OS") != "linux" || variable("CARGO_CFG_TARGET_ENV") != "gnu" {
        return Some(
            "slabjit needs Linux with glibc (a -linux-gnu target): musl and other systems cannot load objects".into(),
        );
    }
    if variable("CARGO_CFG_TARGET_FEATURE").split(',').any(|f| f == "crt-static") {
        return Some("slabjit cannot work with a static glibc (it needs dlopen and dlsym): build without -C target-feature=+crt-static".into());
    }
    let chosen: Vec<_> = VERSIONS.iter().filter(|v| env::var_os(format!("CARGO_FEATURE_{}", v.0)).is_some()).collect();
    // None or two of them: slabjit-llvm-wrap says so.
    let [(_, major, prefix)] = chosen[..] else { return None };

    // Where llvm-sys looks, in its order.
    let candidates = match env::var(prefix) {
        Ok(prefix) => vec![format!("{prefix}/bin/llvm-config")],
        Err(_) => vec!["llvm-config".to_owned(), format!("llvm-config-{major}"), format!("llvm{major}-config")],
    };
    let version = |config: &String| Command::new(config).arg("--version").output().ok().filter(|o| o.status.success());
    let found = candidates
        .iter()
        .filter_map(version)
        .any(|output| String::from_utf8_lossy(&output.stdout).split('.').next() == Some(major.to_string().as_str()));
    (!found).then(|| format!("slabjit needs LLVM {major}: install llvm-{major}-dev, or set {prefix} to where an LLVM {major} is installed"))
}
