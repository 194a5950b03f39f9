//! The objects, and what they compute.

use std::path::Path;
use std::process::Command;

use crate::dylibs;

/// Kinds of objects that have `seed` and `sum`; see `kernel.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Plain,
    ThreadLocal,
    Indirect,
    Initialised,
    Dependent,
    Base,
}

impl Kind {
    pub const ALL: [Self; 6] =
        [Self::Plain, Self::ThreadLocal, Self::Indirect, Self::Initialised, Self::Dependent, Self::Base];
}

/// Everything that is loaded, as bytes.
pub struct Objects {
    kinds: [Vec<u8>; Kind::ALL.len()],
    /// What fails to link, each for a reason of its own.
    pub failing: Vec<Vec<u8>>,
    pub for_dylibs: dylibs::Objects,
}

impl Objects {
    /// With gcc.
    pub fn compile(folder: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        let mut kinds: [Vec<u8>; Kind::ALL.len()] = Default::default();
        for (kind, bytes) in kinds.iter_mut().enumerate() {
            *bytes = compile(folder, include_str!("kernel.c"), &[&format!("-DKIND={kind}")])?;
        }
        let undefined = "int absent(void); int sum(void) { return absent(); }";
        let throwing =
            "__attribute__((constructor)) static void init() { throw 1; } extern \"C\" int sum() { return 0; }";
        let twice = "int sum(void) { return 0; }";
        let mut damaged = compile(folder, twice, &[])?;
        damaged.truncate(damaged.len() / 2);
        let failing = vec![compile(folder, undefined, &[])?, compile(folder, throwing, &["-xc++"])?, damaged];
        let for_dylibs = dylibs::Objects::compile(|source| compile(folder, source, &[]))?;
        Ok(Self { kinds, failing, for_dylibs })
    }

    pub fn of(&self, kind: Kind) -> &[u8] {
        &self.kinds[kind as usize]
    }
}

/// What `sum` returns.
pub fn sum(values: &[i32], seed: i32) -> i32 {
    values.iter().fold(0, |total: i32, value| total.wrapping_add(value.wrapping_mul(3).wrapping_add(seed)))
}

fn compile(folder: &Path, source: &str, flags: &[&str]) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let (input, output) = (folder.join("source.c"), folder.join("object.o"));
    std::fs::write(&input, source)?;
    let status = Command::new("gcc")
        .args(["-c", "-O2", "-fPIC", "-fwrapv", "-w"])
        .args(flags)
        .arg(&input)
        .arg("-o")
        .arg(&output)
        .status()?;
    if status.success() { Ok(std::fs::read(output)?) } else { Err("gcc failed".into()) }
}
