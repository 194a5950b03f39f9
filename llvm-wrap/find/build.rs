//! Looks for LLVM where llvm-sys will, and says in one line what is missing.
use std::env;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// (feature, version, variable that names a prefix)
const VERSIONS: [(&str, (u32, u32), &str); 4] = [
    ("LLVM15_0", (15, 0), "LLVM_SYS_150_PREFIX"),
    ("LLVM16_0", (16, 0), "LLVM_SYS_160_PREFIX"),
    ("LLVM19_1", (19, 1), "LLVM_SYS_191_PREFIX"),
    ("LLVM22_1", (22, 1), "LLVM_SYS_221_PREFIX"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PATH");
    for (_, _, prefix) in VERSIONS {
        println!("cargo::rerun-if-env-changed={prefix}");
    }
    if let Some(problem) = target().or_else(llvm) {
        println!("cargo::error={problem}");
    }
}

fn target() -> Option<String> {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    if variable("CARGO_CFG_TARGET_OS") != "linux" || variable("CARGO_CFG_TARGET_ENV") != "gnu" {
        return Some(
            "slabjit needs Linux with glibc (a -linux-gnu target): musl and other systems cannot load objects".into(),
        );
    }
    if variable("CARGO_CFG_TARGET_FEATURE").split(',').any(|f| f == "crt-static") {
        return Some("slabjit cannot work with a static glibc (it needs dlopen and dlsym): build without -C target-feature=+crt-static".into());
    }
    None
}

fn llvm() -> Option<String> {
    let chosen: Vec<_> = VERSIONS.iter().filter(|v| env::var_os(format!("CARGO_FEATURE_{}", v.0)).is_some()).collect();
    let [(_, version @ (major, _), prefix)] = chosen[..] else {
        let found = if chosen.is_empty() {
            "none is enabled"
        } else {
            "both are enabled; llvm19-1 is the default, so add default-features = false (--no-default-features)"
        };
        return Some(format!("slabjit needs exactly one LLVM feature, llvm19-1 (the default) or llvm22-1: {found}"));
    };
    let found = find(*version, env::var_os(prefix).map(|p| Path::new(&p).join("bin")).unwrap_or_default());
    found.and_then(|config| usable(&config)).err().map(|why| {
        format!("slabjit needs LLVM {major}: install llvm-{major}-dev, or set {prefix} to where an LLVM {major} is installed ({why})")
    })
}

/// The first llvm-config of this version, in the order of llvm-sys (`llvm_compatible_binary_name` in its build script).
fn find((major, minor): (u32, u32), folder: PathBuf) -> Result<PathBuf, String> {
    let names = [
        "llvm-config".to_owned(),
        format!("llvm-config-{major}"),
        format!("llvm-config{major}"),
        format!("llvm{major}-config"),
        format!("llvm-config-{major}.{minor}"),
        format!("llvm-config{major}{minor}"),
    ];
    for config in names.map(|name| folder.join(name)) {
        // Others are passed over only if they do not exist.
        let Some(found) = ask(&config, &["--version"])? else { continue };
        let mut numbers = found.split('.').map(|n| n.parse().ok());
        if (numbers.next(), numbers.next()) == (Some(Some(major)), Some(Some(minor))) {
            return Ok(config);
        }
    }
    let place = if folder.as_os_str().is_empty() { "on PATH".to_owned() } else { format!("in {}", folder.display()) };
    Err(format!("no llvm-config of {major}.{minor} is {place}"))
}

/// Debian has llvm-config in one package, headers and libraries in another.
fn usable(config: &Path) -> Result<(), String> {
    let include = ask(config, &["--includedir"])?.unwrap_or_default();
    if !Path::new(&include).join("llvm/ExecutionEngine/Orc/LLJIT.h").exists() {
        return Err(format!("{} has no headers", config.display()));
    }
    ask(config, &["--libnames", "--link-shared"]).map_err(|_| format!("{} has no shared library", config.display()))?;
    Ok(())
}

/// What a program prints; `None` if there is no such program.
fn ask(program: &Path, arguments: &[&str]) -> Result<Option<String>, String> {
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => Ok(Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())),
        Ok(output) => Err(format!("{} ended with {}", program.display(), output.status)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{} cannot be run: {error}", program.display())),
    }
}
