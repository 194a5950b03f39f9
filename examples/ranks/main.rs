//! The table of CUTLASS#3162: kernels that many MPI ranks compile, cache and load at the same moment, and how often that crashes.
//!
//! `cargo run --release --example ranks` starts 1, 4 and 16 ranks under Open MPI's mpirun, 20 times for each of three objects, in an
//! ordinary and in a crowded address space, with this crate and with both linkers of stock LLJIT. Each run has a cold pass, in which all
//! ranks fill an empty cache, and a warm one. Printed is in how many of the runs a rank was killed by a signal or got a wrong answer.
//! Exits with 1 if one of ours did, with 2 if there is no mpirun. `--quick`: 3 runs each.

mod crowd;
#[path = "../../tests/stock/lljit.rs"]
mod lljit;
mod rank;

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const RANKS: [usize; 3] = [1, 4, 16];
const PASSES: [&str; 2] = ["cold", "warm"];

/// What a rank reports of a pass; else `wrong: ` or `refused: `, and why.
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

/// One start of mpirun.
struct Job {
    ranks: usize,
    object: Object,
    crowded: bool,
    loader: Loader,
    seed: u64,
    /// The ranks' own: the cache, the barriers, what they report.
    folder: PathBuf,
}

impl Job {
    fn report_of(&self, rank: usize) -> PathBuf {
        self.folder.join(format!("rank-{rank}"))
    }

    fn arguments(&self) -> [String; 6] {
        let index = |at: Option<usize>| at.unwrap_or_default().to_string();
        [
            self.ranks.to_string(),
            index(Object::ALL.iter().position(|o| *o == self.object)),
            self.crowded.to_string(),
            index(Loader::ALL.iter().position(|l| *l == self.loader)),
            self.seed.to_string(),
            self.folder.display().to_string(),
        ]
    }

    fn from(arguments: &[String]) -> Result<Self> {
        let [ranks, object, crowded, loader, seed, folder] = arguments else { return Err("six arguments".into()) };
        Ok(Self {
            ranks: ranks.parse()?,
            object: *Object::ALL.get(object.parse::<usize>()?).ok_or("no such object")?,
            crowded: crowded.parse()?,
            loader: *Loader::ALL.get(loader.parse::<usize>()?).ok_or("no such loader")?,
            seed: seed.parse()?,
            folder: folder.into(),
        })
    }
}

/// How often a pass ended how. Those that a crash of the pass before left out are not in it.
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
            _ if all == 0 => "–".to_owned(),
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
        Some((first, rest)) if first == "rank" => match Job::from(rest) {
            Ok(job) => return rank::run(&job),
            Err(error) => Err(error),
        },
        None => table(20),
        Some((first, [])) if first == "--quick" => table(3),
        _ => Err("usage: ranks [--quick]".into()),
    };
    result.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}

fn table(runs: u64) -> Result<ExitCode> {
    if Command::new("mpirun").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("mpirun is missing: apt-get install openmpi-bin");
        return Ok(ExitCode::from(2));
    }
    println!("LLVM {}, {runs} runs for each row", slabjit::llvm_version_string());
    println!("| ranks | object | address space | loader | cold | warm |\n|---|---|---|---|---|---|");
    let mut failed = 0;
    for ranks in RANKS {
        for object in Object::ALL {
            for (crowded, space) in [(false, "ordinary"), (true, "crowded")] {
                for loader in Loader::ALL {
                    if loader == Loader::JitLink && !lljit::is_jitlink() {
                        continue;
                    }
                    let mut counts: [Counts; 2] = Default::default();
                    for seed in 0..runs {
                        let folder = tempfile::Builder::new().prefix("slabjit-ranks-").tempdir()?;
                        let job = Job { ranks, object, crowded, loader, seed, folder: folder.path().to_owned() };
                        one_run(&job, &mut counts)?;
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

fn one_run(job: &Job, counts: &mut [Counts; 2]) -> Result<()> {
    let mut mpirun = Command::new("mpirun");
    mpirun.args(["--oversubscribe", "-n", &job.ranks.to_string()]);
    // SAFETY: a plain call.
    if unsafe { libc::geteuid() } == 0 {
        mpirun.arg("--allow-run-as-root");
    }
    let output = mpirun.arg(std::env::current_exe()?).arg("rank").args(job.arguments()).output()?;
    let report = |rank| std::fs::read_to_string(job.report_of(rank)).unwrap_or_default();
    let reports: Vec<String> = (0..job.ranks).map(report).collect();
    for (pass, counts) in counts.iter_mut().enumerate() {
        let said: Vec<&str> = reports.iter().filter_map(|report| report.lines().nth(pass)).collect();
        let bad = said.iter().find(|said| **said != RIGHT);
        match bad {
            Some(bad) if bad.starts_with("refused") => counts.refused += 1,
            Some(bad) => {
                eprintln!("{job}, {}: {bad}", PASSES[pass]);
                counts.wrong += 1;
            }
            None if said.len() == job.ranks => counts.right += 1,
            None => {
                // mpirun ends as a shell would: 128 and the number of the signal that a rank died of.
                if output.status.code().is_none_or(|code| code <= 128) {
                    let words = String::from_utf8_lossy(&output.stderr);
                    return Err(format!("{job}: {} without a signal: {words}", output.status).into());
                }
                counts.crashed += 1;
                return Ok(());
            }
        }
    }
    Ok(())
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.crowded { "crowded" } else { "ordinary" };
        write!(f, "{} ranks, {}, {space} address space, {}, run {}", self.ranks, self.object, self.loader, self.seed)
    }
}
