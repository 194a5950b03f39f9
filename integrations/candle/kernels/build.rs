//! Compiles c/kernels.c once for each variant, and links all of them into one image with their contracts.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use slabjit::{ImageBuilder, KernelSignature};

/// Variants and the compiler's options for them, the best first.
fn variants(architecture: &str) -> Result<&'static [(&'static str, &'static str)], Box<dyn Error>> {
    match architecture {
        "x86_64" => Ok(&[
            ("avx512", "-march=x86-64-v4 -mavx512vnni"),
            ("avx2", "-march=x86-64-v3"),
            ("sse42", "-march=x86-64-v2"),
        ]),
        "aarch64" => Ok(&[("sve", "-march=armv8.2-a+sve+dotprod"), ("neon", "-march=armv8-a")]),
        other => Err(format!("no kernels for {other}").into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    for input in ["c/kernels.c", "c/kernels.contract"] {
        println!("cargo::rerun-if-changed={input}");
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let architecture = env::var("CARGO_CFG_TARGET_ARCH")?;
    let contract = fs::read_to_string("c/kernels.contract")?;
    let (mut image, mut contracts, mut objects) =
        (ImageBuilder::new().soname("kernels.so"), String::new(), String::new());
    let variants = variants(&architecture)?;
    for (variant, options) in variants {
        let object = out.join(format!("{variant}.o"));
        compile(&architecture, variant, options, &object)?;
        image = image.object_file(&object)?;
        let contract = contract.replace('@', &format!("_{variant}"));
        for signature in KernelSignature::parse_all(&contract)? {
            image = image.signature(&signature);
        }
        contracts.push_str(&contract);
        objects.push_str(&format!("({variant:?}, include_bytes!({object:?})),"));
    }
    fs::write(out.join("kernels.so"), image.link()?)?;
    fs::write(out.join("kernels.contract"), contracts)?;
    fs::write(out.join("objects.rs"), format!("&[{objects}]"))?;
    let names: Vec<_> = variants.iter().map(|(variant, _)| variant).collect();
    fs::write(out.join("variants.rs"), format!("&{names:?}"))?;
    Ok(())
}

fn compile(architecture: &str, variant: &str, options: &str, object: &Path) -> Result<(), Box<dyn Error>> {
    let named = env::var("CLANG").ok();
    let candidates = match &named {
        Some(clang) => vec![clang.as_str()],
        None => vec!["clang-19", "clang-22", "clang"],
    };
    for clang in &candidates {
        let mut command = Command::new(clang);
        command.args([&format!("--target={architecture}-linux-gnu"), "-c", "c/kernels.c", "-o"]).arg(object);
        command.arg(format!("-DVARIANT={variant}")).args(options.split(' '));
        // Sums in any order, so that they become vectors. No function of libm sets errno here.
        command.args(["-std=c11", "-O3", "-fPIC", "-Wall", "-Wextra", "-ffreestanding", "-fno-math-errno"]);
        command.args(["-fassociative-math", "-freciprocal-math", "-fno-signed-zeros", "-fno-trapping-math"]);
        match command.status() {
            Ok(status) if status.success() => return Ok(()),
            Ok(status) => return Err(format!("{command:?}: {status}").into()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{clang}: {error}").into()),
        }
    }
    Err(format!("none of {} is installed; set CLANG to the path of a clang", candidates.join(", ")).into())
}
