//! The table of CUTLASS#3162: kernels that many MPI ranks compile, cache and load at the same moment, and how often
//! that crashes.
//!
//! `cargo run --release -p slabjit-tools --bin ranks` starts 1, 4 and 16 ranks under Open MPI's mpirun, 20 times for
//! each of three objects, in an ordinary and in a crowded address space, with this crate and with both linkers of stock
//! LLJIT. Each run is a cold pass, in which all ranks fill an empty cache, and a warm one. Printed is in how many of
//! them a rank was killed by a signal or got a wrong answer. Exits with 1 if one of ours did, with 2 if there is no
//! mpirun. `--quick`: 3 runs each. Other numbers of ranks are arguments.

mod crowd;
#[path = "../../tests/stock/lljit.rs"]
mod lljit;
mod rank;

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// What a rank reports; else `wrong: ` or `refused: `, and why.
const RIGHT: &str = "right";

/// What is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Object {
    WritableText,
    ReadOnlyText,
    Ordinary,
}

impl Object {
    const ALL: [Self; 3] = [Self::WritableText, Self::ReadOnlyText, Self::Ordinary];

    fn flags(self) -> &'static str {
        match self {
            Self::WritableText => "-DSHAPE=1",
            Self::ReadOnlyText => "-DSHAPE=2",
            Self::Ordinary => "-DSHAPE=0",
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::WritableText => "two .text, AX + WA",
            Self::ReadOnlyText => "two .text, AX + A",
            Self::Ordinary => "ordinary",
        })
    }
}

/// What loads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loader {
    Slabjit,
    RuntimeDyld,
    JitLink,
}

impl Loader {
    const ALL: [Self; 3] = [Self::Slabjit, Self::RuntimeDyld, Self::JitLink];
}

impl fmt::Display for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Slabjit => "slabjit",
            Self::RuntimeDyld => "stock RuntimeDyld",
            Self::JitLink => "stock JITLink",
        })
    }
}

/// With what cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// An empty one.
    Cold,
    /// The one that the cold pass has filled.
    Warm,
}

impl Pass {
    const ALL: [Self; 2] = [Self::Cold, Self::Warm];
}

/// One start of mpirun.
#[derive(Debug, Clone)]
struct Job {
    ranks: usize,
    object: Object,
    crowded: bool,
    loader: Loader,
    pass: Pass,
    seed: u64,
    /// A run's own: the cache, and what the ranks leave.
    folder: PathBuf,
}

impl Job {
    /// A file of this pass.
    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{:?}-{name}", self.pass))
    }

    fn report_of(&self, rank: usize) -> PathBuf {
        self.file(&format!("rank-{rank}"))
    }

    fn arguments(&self) -> [String; 7] {
        [
            self.ranks.to_string(),
            (self.object as usize).to_string(),
            self.crowded.to_string(),
            (self.loader as usize).to_string(),
            (self.pass as usize).to_string(),
            self.seed.to_string(),
            self.folder.display().to_string(),
        ]
    }

    fn from(arguments: &[String]) -> Result<Self> {
        let [ranks, object, crowded, loader, pass, seed, folder] = arguments else {
            return Err("seven arguments are expected".into());
        };
        Ok(Self {
            ranks: ranks.parse()?,
            object: *Object::ALL.get(object.parse::<usize>()?).ok_or("no such object")?,
            crowded: crowded.parse()?,
            loader: *Loader::ALL.get(loader.parse::<usize>()?).ok_or("no such loader")?,
            pass: *Pass::ALL.get(pass.parse::<usize>()?).ok_or("no such pass")?,
            seed: seed.parse()?,
            folder: folder.into(),
        })
    }
}

/// How often a pass ended how.
#[derive(Default)]
struct Counts {
    right: usize,
    crashed: usize,
    wrong: usize,
    refused: usize,
}

impl Counts {
    fn all(&self) -> usize {
        self.right + self.crashed + self.wrong + self.refused
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.all();
        let text = match (self.crashed + self.wrong, self.refused) {
            (0, refused) if refused == all => "refused".to_owned(),
            (failed, refused) => {
                let mut text = format!("{} % of {all}", (failed * 100).div_ceil(all));
                if self.wrong > 0 {
                    text += &format!(", {} by a wrong answer", self.wrong);
                }
                if refused > 0 {
                    text += &format!(", {refused} refused");
                }
                text
            }
        };
        f.pad(&text)
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.split_first() {
        Some((first, rest)) if first == "rank" => {
            Job::from(rest).and_then(|job| rank::run(&job)).map(|()| ExitCode::SUCCESS)
        }
        Some((first, rest)) if first == "--quick" => numbers(rest).and_then(|ranks| table(3, &ranks)),
        _ => numbers(&arguments).and_then(|ranks| table(20, &ranks)),
    };
    result.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}

fn numbers(arguments: &[String]) -> Result<Vec<usize>> {
    if arguments.is_empty() {
        return Ok(vec![1, 4, 16]);
    }
    let numbers = arguments.iter().map(|number| number.parse()).collect::<Result<_, _>>();
    numbers.map_err(|_| "usage: ranks [--quick] [NUMBER]...".into())
}

fn table(runs: u64, numbers: &[usize]) -> Result<ExitCode> {
    if Command::new("mpirun").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("mpirun is missing: apt-get install openmpi-bin");
        return Ok(ExitCode::from(2));
    }
    println!("LLVM {}, {runs} runs for each row", slabjit::llvm_version_string());
    println!("| ranks | object | address space | loader | cold | warm |\n|---|---|---|---|---|---|");
    let mut failed = 0;
    for &ranks in numbers {
        for object in Object::ALL {
            for (crowded, space) in [(false, "ordinary"), (true, "crowded")] {
                for loader in Loader::ALL {
                    if loader == Loader::JitLink && !lljit::is_jitlink() {
                        continue;
                    }
                    let mut counts: [Counts; 2] = Default::default();
                    for seed in 0..runs {
                        let folder = tempfile::Builder::new().prefix("slabjit-ranks-").tempdir()?;
                        for (pass, counts) in Pass::ALL.into_iter().zip(&mut counts) {
                            let folder = folder.path().to_owned();
                            one_run(&Job { ranks, object, crowded, loader, pass, seed, folder }, counts)?;
                        }
                    }
                    let [cold, warm] = &counts;
                    println!("| {ranks:2} | {object:18} | {space:8} | {loader:17} | {cold:9} | {warm:9} |");
                    if loader == Loader::Slabjit {
                        failed += 2 * runs - (cold.right + warm.right) as u64;
                    }
                }
            }
        }
    }
    if failed > 0 {
        eprintln!("{failed} passes of ours failed");
    }
    Ok(if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn one_run(job: &Job, counts: &mut Counts) -> Result<()> {
    let mut mpirun = Command::new("mpirun");
    mpirun.args(["--oversubscribe", "-n", &job.ranks.to_string()]);
    // SAFETY: a plain call.
    if unsafe { libc::geteuid() } == 0 {
        mpirun.arg("--allow-run-as-root");
    }
    let output = mpirun.arg(std::env::current_exe()?).arg("rank").args(job.arguments()).output()?;
    let report = |rank| std::fs::read_to_string(job.report_of(rank)).ok().filter(|report| !report.is_empty());
    let reports: Vec<String> = (0..job.ranks).filter_map(report).collect();
    match reports.iter().find(|report| *report != RIGHT) {
        Some(report) if report.starts_with("refused") => counts.refused += 1,
        Some(report) => {
            eprintln!("{job}: {report}");
            counts.wrong += 1;
        }
        None if reports.len() == job.ranks => counts.right += 1,
        // mpirun ends as a shell would: 128 and the number of the signal that a rank died of.
        None if output.status.code().is_some_and(|code| code > 128) => counts.crashed += 1,
        None => {
            let words = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{job}: {}: {words}", output.status).into());
        }
    }
    Ok(())
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.crowded { "crowded" } else { "ordinary" };
        let Self { ranks, object, loader, pass, seed, .. } = self;
        write!(f, "{ranks} ranks, {object}, {space} address space, {loader}, {pass:?}, run {seed}")
    }
}
