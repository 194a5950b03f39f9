//! Looks for LLVM where llvm-sys will, and says in one line what is missing.
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// (feature, version, variable that names a prefix)
const VERSIONS: [(&str, (u32, u32), &str); 9] = [
    ("llvm15-0", (15, 0), "LLVM_SYS_150_PREFIX"),
    ("llvm16-0", (16, 0), "LLVM_SYS_160_PREFIX"),
    ("llvm17-0", (17, 0), "LLVM_SYS_170_PREFIX"),
    ("llvm18-1", (18, 1), "LLVM_SYS_181_PREFIX"),
    ("llvm19-1", (19, 1), "LLVM_SYS_191_PREFIX"),
    ("llvm20-1", (20, 1), "LLVM_SYS_201_PREFIX"),
    ("llvm21-1", (21, 1), "LLVM_SYS_211_PREFIX"),
    ("llvm22-1", (22, 1), "LLVM_SYS_221_PREFIX"),
    ("llvm23-1", (23, 1), "LLVM_SYS_231_PREFIX"),
];

/// How LLVM gets into the program; in the order of `FORMS`.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Shared,
    Static,
    NotLinked,
}

/// What a feature's name ends with.
const FORMS: [(&str, Form); 3] =
    [("", Form::Shared), ("-prefer-static", Form::Static), ("-no-llvm-linking", Form::NotLinked)];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PATH");
    for (_, _, prefix) in VERSIONS {
        println!("cargo::rerun-if-env-changed={prefix}");
    }
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    // docs.rs has no LLVM, and documentation needs none.
    if env::var_os("DOCS_RS").is_some() {
        return;
    }
    if let Some(problem) = target().or_else(llvm) {
        println!("cargo::error={problem}");
    }
}

fn target() -> Option<String> {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    if variable("CARGO_CFG_TARGET_OS") != "linux" || variable("CARGO_CFG_TARGET_ENV") != "gnu" {
        return Some(
            "slabjit needs Linux with glibc (a -linux-gnu target): musl, macOS and other systems are not supported"
                .into(),
        );
    }
    if variable("CARGO_CFG_TARGET_FEATURE").split(',').any(|f| f == "crt-static") {
        return Some(
            "slabjit cannot work with a static glibc (it needs dlopen and dlsym): build without -C \
             target-feature=+crt-static"
                .into(),
        );
    }
    None
}

fn llvm() -> Option<String> {
    let features =
        VERSIONS.iter().flat_map(|v| FORMS.iter().map(move |(end, form)| (format!("{}{end}", v.0), v, *form)));
    let is_enabled =
        |feature: &str| env::var_os(format!("CARGO_FEATURE_{}", feature.replace('-', "_").to_uppercase())).is_some();
    let chosen: Vec<_> = features.filter(|(feature, ..)| is_enabled(feature)).collect();
    // A build without LLVM, which links nothing.
    if chosen.is_empty() {
        return None;
    }
    let [(_, (_, version @ (major, _), prefix), form)] = &chosen[..] else {
        let names: Vec<_> = chosen.iter().map(|(feature, ..)| feature.as_str()).collect();
        return Some(format!(
            "slabjit takes one LLVM feature at most, {}, or one of them with -prefer-static or -no-llvm-linking behind \
             it: {} are enabled; llvm19-1 is the default, so add default-features = false (--no-default-features)",
            VERSIONS.map(|(feature, ..)| feature).join(", "),
            names.join(" and ")
        ));
    };
    let folder = env::var_os(prefix).map(|p| Path::new(&p).join("bin"));
    let found = match (find(*version, folder.as_deref().unwrap_or(Path::new(""))), folder) {
        (Err(why), None) => elsewhere(*version, *form, prefix).unwrap_or(Err(why)),
        (found, _) => found,
    };
    let why = found.and_then(|config| usable(&config, *form)).err()?;
    Some(format!(
        "slabjit needs LLVM {major}: install llvm-{major}-dev (Debian, Ubuntu), llvm{major}-devel (Fedora) or llvm{major} \
         (Arch), without the number where it is the newest, or set {prefix} to where an LLVM {major} is installed ({why})"
    ))
}

/// Where a test has the places below.
const ROOT: Option<&str> = option_env!("SLABJIT_TEST_ROOT");

/// Folders that are on nobody's PATH, where distributions and Homebrew install an LLVM that is not their newest.
fn places(major: u32) -> [PathBuf; 6] {
    [
        format!("usr/lib64/llvm{major}/bin"),
        format!("usr/lib/llvm{major}/bin"),
        format!("usr/lib/llvm-{major}/bin"),
        format!("opt/homebrew/opt/llvm@{major}/bin"),
        format!("usr/local/opt/llvm@{major}/bin"),
        format!("home/linuxbrew/.linuxbrew/opt/llvm@{major}/bin"),
    ]
    .map(|place| Path::new(ROOT.unwrap_or("/")).join(place))
}

/// The first llvm-config of this version in these places. llvm-sys does not look there, and has to be told where it
/// links anything.
fn elsewhere(version: (u32, u32), form: Form, prefix: &str) -> Option<Result<PathBuf, String>> {
    let config = places(version.0).iter().find_map(|folder| find(version, folder).ok())?;
    if form == Form::NotLinked {
        return Some(Ok(config));
    }
    let there = config.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    Some(Err(format!("there is one: set {prefix}={}", there.display())))
}

/// The first llvm-config of this version, in the order of llvm-sys (`llvm_compatible_binary_name` in its build script).
fn find((major, minor): (u32, u32), folder: &Path) -> Result<PathBuf, String> {
    let names = [
        "llvm-config".to_owned(),
        format!("llvm-config-{major}"),
        format!("llvm-config{major}"),
        format!("llvm{major}-config"),
        format!("llvm-config-{major}.{minor}"),
        format!("llvm-config{major}{minor}"),
    ];
    let mut others = vec![];
    for config in names.map(|name| folder.join(name)) {
        // Others are passed over only if they do not exist.
        let Some(found) = ask(&config, &["--version"])? else { continue };
        let mut numbers = found.split('.').map(|n| n.parse().ok());
        if (numbers.next(), numbers.next()) == (Some(Some(major)), Some(Some(minor))) {
            return Ok(config);
        }
        others.push(format!(", {} is {found}", config.display()));
    }
    let place = if folder.as_os_str().is_empty() { "on PATH".to_owned() } else { format!("in {}", folder.display()) };
    Err(format!("no llvm-config of {major}.{minor} is {place}{}", others.concat()))
}

/// Debian has llvm-config in one package, headers and libraries in another, and what LLVM was built with in others.
fn usable(config: &Path, form: Form) -> Result<(), String> {
    let include = ask(config, &["--includedir"])?.unwrap_or_default();
    let include = Path::new(&include);
    if !include.join("llvm/ExecutionEngine/Orc/LLJIT.h").exists() {
        return Err(format!("{} has no headers", config.display()));
    }
    let library = ask(config, &["--version"])?.unwrap_or_default();
    let headers = fs::read_to_string(include.join("llvm/Config/llvm-config.h")).unwrap_or_default();
    let headers = headers.lines().find_map(|line| line.strip_prefix("#define LLVM_VERSION_STRING "));
    let headers = headers.map_or("unknown", |version| version.trim().trim_matches('"'));
    if headers != library {
        return Err(format!(
            "the library is of LLVM {library}, the headers in {} of LLVM {headers}",
            include.display()
        ));
    }
    match form {
        Form::NotLinked => {}
        Form::Shared => {
            let files = ask(config, &["--libfiles", "--link-shared"]);
            files.map_err(|_| format!("{} has no shared library", config.display()))?;
        }
        Form::Static => {
            let files = ask(config, &["--libfiles", "--link-static"]);
            let files = files.map_err(|_| format!("{} has no static libraries", config.display()))?.unwrap_or_default();
            if let Some(missing) = files.split_whitespace().find(|file| !Path::new(file).exists()) {
                // libPolly.a is in libpolly-N-dev.
                return Err(format!("the static library {missing} is missing; Debian has Polly in libpolly-…-dev"));
            }
        }
    }
    // For what compiles against its headers where llvm-sys, which would tell, links nothing.
    println!("cargo::metadata=config_path={}", config.display());
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
