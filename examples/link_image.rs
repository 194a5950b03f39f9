//! The builder's half of shipping kernels: `cargo run --example link_image -- kernels.so` compiles a kernel and links
//! it into an image. `run_image` is the other half.

use std::path::PathBuf;
use std::process::Command;

use slabjit::ImageBuilder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let output = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: link_image FILE.so")?);
    let folder = tempfile::tempdir()?;
    let object = folder.path().join("rmsnorm.o");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/rmsnorm/rmsnorm.c");
    let status = Command::new("gcc").args(["-c", "-O2", "-fPIC", source, "-o"]).arg(&object).status()?;
    if !status.success() {
        return Err("gcc failed".into());
    }

    // Any compiler's objects will do; archives give the members that are needed.
    let image = ImageBuilder::new().object_file(&object)?.link()?;
    std::fs::write(&output, &image)?;
    println!("{}: {} bytes", output.display(), image.len());
    Ok(())
}
