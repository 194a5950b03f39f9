//! The build script, compiled and run as cargo would, in environments where something is missing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the script with nothing but these variables, and returns the errors it has cargo print. What it prints
/// otherwise must be directives.
fn errors(script: &Path, variables: &[(&str, &str)]) -> Vec<String> {
    let glibc = [("CARGO_CFG_TARGET_OS", "linux"), ("CARGO_CFG_TARGET_ENV", "gnu")];
    let output = Command::new(script).env_clear().envs(glibc).envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().all(|line| line.starts_with("cargo::")), "{text}");
    text.lines().filter_map(|line| line.strip_prefix("cargo::error=")).map(str::to_owned).collect()
}

/// A folder with `bin/llvm-config` that runs these commands.
fn fake(folder: &Path, name: &str, commands: &str) -> PathBuf {
    let prefix = folder.join(name);
    let bin = prefix.join("bin");
    fs::create_dir_all(prefix.join("include/llvm/ExecutionEngine/Orc")).unwrap();
    fs::create_dir_all(&bin).unwrap();
    let config = bin.join("llvm-config");
    fs::write(&config, format!("#!/bin/sh\n{commands}\n")).unwrap();
    fs::set_permissions(&config, Permissions::from_mode(0o755)).unwrap();
    prefix
}

#[test]
fn whatever_is_missing_is_said_in_one_line() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("find");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let script = folder.join("script");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
    // What distributions have outside PATH is not this machine's.
    let root = folder.join("root");
    let mut compile = Command::new("rustc");
    compile.args(["--edition", "2024", "-o"]).arg(&script).arg(source).env("SLABJIT_TEST_ROOT", &root);
    assert!(compile.status().unwrap().success());

    let with = |name: &str, version: &str, libraries: &str| {
        let include = folder.join(name).join("include");
        let commands = format!(
            "case \"$1\" in --version) echo {version} ;; --includedir) echo {} ;; *) {libraries} ;; esac",
            include.display()
        );
        fake(&folder, name, &commands)
    };
    let text = |prefix: PathBuf| prefix.to_str().unwrap().to_owned();
    // The same with headers.
    let with_headers = |name: &str, version: &str, of_headers: &str, libraries: &str| {
        let prefix = with(name, version, libraries);
        fs::write(prefix.join("include/llvm/ExecutionEngine/Orc/LLJIT.h"), "").unwrap();
        fs::create_dir_all(prefix.join("include/llvm/Config")).unwrap();
        let define = format!("#define LLVM_VERSION_MAJOR x\n#define LLVM_VERSION_STRING \"{of_headers}\"\n");
        fs::write(prefix.join("include/llvm/Config/llvm-config.h"), define).unwrap();
        text(prefix)
    };
    let there = script.display();
    let whole = with_headers("whole", "19.1.7", "19.1.7", &format!("echo {there} {there}"));
    let no_library = with_headers("no_library", "19.1.7", "19.1.7", "exit 1");
    let no_polly = with_headers("no_polly", "19.1.7", "19.1.7", &format!("echo {there} /nonexistent/libPolly.a"));
    let mixed = with_headers("mixed", "19.1.7", "19.1.6", &format!("echo {there}"));
    let no_headers = text(with("no_headers", "19.1.7", "echo libLLVM.so"));
    let old = text(with("old", "18.1.8", "echo libLLVM.so"));
    let newer = text(with("newer", "19.2.0", "echo libLLVM.so"));
    let fedora = with_headers("root/usr/lib64/llvm18", "18.1.8", "18.1.8", &format!("echo {there}"));
    let linuxbrew = "root/home/linuxbrew/.linuxbrew/opt/llvm@20";
    let linuxbrew = with_headers(linuxbrew, "20.1.8", "20.1.8", &format!("echo {there}"));
    let broken = text(fake(&folder, "broken", "exit 1"));

    let llvm19 = ("CARGO_FEATURE_LLVM19_1", "1");
    let llvm22 = ("CARGO_FEATURE_LLVM22_1", "1");
    let llvm18 = ("CARGO_FEATURE_LLVM18_1", "1");
    let llvm20 = ("CARGO_FEATURE_LLVM20_1", "1");
    let unlinked18 = ("CARGO_FEATURE_LLVM18_1_NO_LLVM_LINKING", "1");
    fn prefix(path: &str) -> (&str, &str) {
        ("LLVM_SYS_191_PREFIX", path)
    }
    let path = format!("{whole}/bin");
    let static19 = ("CARGO_FEATURE_LLVM19_1_PREFER_STATIC", "1");
    let unlinked19 = ("CARGO_FEATURE_LLVM19_1_NO_LLVM_LINKING", "1");
    for good in [
        [llvm19, prefix(&whole)],
        [llvm19, ("PATH", path.as_str())],
        [static19, prefix(&whole)],
        [unlinked19, prefix(&whole)],
        [unlinked19, prefix(&no_library)],
        [unlinked18, ("PATH", "/nonexistent")],
        [llvm18, ("LLVM_SYS_181_PREFIX", &fedora)],
    ] {
        assert_eq!(errors(&script, &good), Vec::<String>::new(), "{good:?}");
    }
    // Without an LLVM nothing is linked, and nothing is missing.
    assert_eq!(errors(&script, &[]), Vec::<String>::new());
    let of19: &[&str] = &["llvm-19-dev", "LLVM_SYS_191_PREFIX"];
    let of22: &[&str] = &["llvm-22-dev", "LLVM_SYS_221_PREFIX"];
    // What llvm-sys does not find it has to be told of.
    let told_of_fedora = format!("LLVM_SYS_181_PREFIX={fedora}");
    let told_of_linuxbrew = format!("LLVM_SYS_201_PREFIX={linuxbrew}");
    // None of the places where it looks has this version.
    let llvm15 = ("CARGO_FEATURE_LLVM15_0", "1");
    let of15: &[&str] =
        &["llvm-15-dev (Debian, Ubuntu)", "llvm15-devel (Fedora)", "llvm15 (Arch)", "LLVM_SYS_150_PREFIX"];
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
    let cases: &[Case] = &[
        (&[llvm19, ("PATH", "/nonexistent")], of19),
        (&[llvm15, ("PATH", "/nonexistent")], of15),
        (&[llvm18, ("PATH", "/nonexistent")], &[&told_of_fedora]),
        (&[llvm20, ("PATH", "/nonexistent")], &[&told_of_linuxbrew]),
        (&[llvm22, ("PATH", "/nonexistent")], of22),
        (&[llvm22, ("PATH", path.as_str())], of22),
        (&[llvm19, prefix("/nonexistent"), ("PATH", path.as_str())], of19),
        (&[llvm19, prefix(&old)], &["llvm-19-dev", "LLVM_SYS_191_PREFIX", "is 18.1.8"]),
        (&[llvm19, prefix(&newer)], &["llvm-19-dev", "LLVM_SYS_191_PREFIX", "is 19.2.0"]),
        (&[llvm19, prefix(&mixed)], &["library is of LLVM 19.1.7", "headers", "LLVM 19.1.6"]),
        (&[unlinked19, prefix(&mixed)], &["library is of LLVM 19.1.7", "headers", "LLVM 19.1.6"]),
        (&[unlinked19, prefix(&old)], &["llvm-19-dev", "LLVM_SYS_191_PREFIX", "is 18.1.8"]),
        (&[static19, prefix(&no_library)], &["llvm-19-dev", "static"]),
        (&[static19, prefix(&no_polly)], &["libPolly.a", "libpolly"]),
        (&[llvm19, static19, prefix(&whole)], &["one LLVM feature at most", "llvm19-1 and llvm19-1-prefer-static"]),
        (&[llvm19, prefix(&broken)], of19),
        (&[llvm19, prefix(&no_headers)], &["llvm-19-dev", "headers"]),
        (&[llvm19, prefix(&no_library)], &["llvm-19-dev", "shared library"]),
        (&[llvm19, llvm22, prefix(&whole)], &["one LLVM feature at most", "default-features = false"]),
        (&[llvm19, prefix(&whole), ("CARGO_CFG_TARGET_ENV", "musl")], &["glibc"]),
        (
            &[llvm19, prefix(&whole), ("CARGO_CFG_TARGET_OS", "macos")],
            &["Linux", "macOS and other systems are not supported"],
        ),
        (&[llvm19, prefix(&whole), ("CARGO_CFG_TARGET_FEATURE", "sse,crt-static")], &["crt-static"]),
    ];
    for (variables, words) in cases {
        let errors = errors(&script, variables);
        let [line] = &errors[..] else { panic!("{variables:?}: {errors:?}") };
        assert!(words.iter().all(|word| line.contains(word)), "{variables:?}: {line}");
    }
}
