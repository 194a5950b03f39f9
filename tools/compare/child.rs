//! A side in a process of its own. A program has one linker: beside others, a side would pay for what they leave in the
//! unwinder's lists, in malloc and in the kernel's tables. It does what lines on its standard input say, and answers
//! each with a line of JSON. So repetitions of several of them still alternate.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child as Process, ChildStdin, ChildStdout, Command, Stdio};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::bench::{Bench, Sample};
use crate::measure::Cost;
use crate::memory::{Files, Memory, share_one_heap};
use crate::sides;
use crate::workloads::Workload;

/// Objects that are loaded before anything is counted.
const WARM_UP: usize = 20;

/// How malloc gets memory in a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heap {
    /// From one heap, so that all else that is mapped is not malloc's.
    One,
    /// As it does by itself.
    Usual,
}

/// What `live` answers.
#[derive(Serialize, Deserialize)]
pub struct Live {
    pub load: Cost,
    /// Of each object.
    pub memory: Memory,
}

/// `compare --child SIDE WORKLOAD [PYTHON]`, where the workload is in a file: commands `prepare`, `live COUNT`,
/// `round THREADS`, `batch COUNT`, `calls TIMES` and `unload` on standard input. What cannot be answered is the answer.
///
/// # Errors
/// If there is nobody to tell.
pub fn be(side: &str, workload: &str, python: Option<&Path>, heap: Heap) -> Result<(), String> {
    if let Err(error) = answer_all(side, workload, python, heap) {
        println!("{}", json(Err::<(), _>(error))?);
    }
    std::process::exit(0)
}

fn answer_all(side: &str, workload: &str, python: Option<&Path>, heap: Heap) -> Result<(), String> {
    if heap == Heap::One {
        share_one_heap();
    }
    let kind = sides::named(side).ok_or("no such side")?;
    let workload: Workload = std::fs::read(workload)
        .map_err(|error| error.to_string())
        .and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()))?;
    let mut bench = Bench::new(kind, &workload, python)?;
    // What is not unloaded leaves nothing for later ones to use again. Large objects warm up by themselves, and may
    // have names that clash.
    if workload.per_round > 1 {
        bench.load_live(bench.share(WARM_UP, 2))?;
    }
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let (command, number) = line.split_once(' ').unwrap_or((&line, "0"));
        let number = number.parse().map_err(|_| "not a number")?;
        let answer = match command {
            "prepare" => bench.prepare().and_then(json),
            "live" => live(&mut bench, number).and_then(json),
            "round" => bench.round(number).and_then(json),
            "batch" => bench.batch(number).and_then(json),
            "calls" => bench.calls(number).and_then(json),
            "unload" => bench.unload_live().and_then(json),
            _ => Err(format!("unknown command {command}")),
        };
        println!("{}", json(answer)?);
    }
    // What is loaded goes with the process, and not before: that would be counted.
    std::mem::forget(bench);
    Ok(())
}

fn live(bench: &mut Bench, count: usize) -> Result<Live, String> {
    let files = Files::now();
    let before = Memory::now(&files);
    let load = bench.load_live(count)?;
    Ok(Live { load, memory: Memory::now(&files).each(before, count) })
}

fn json(value: impl Serialize) -> Result<serde_json::Value, String> {
    serde_json::to_value(value).map_err(|error| error.to_string())
}

/// How a child is started; if need be with the Python that is given.
///
/// # Errors
/// If this program is not found.
pub fn command(side: &str, workload: &Path, python: Option<&Path>, heap: Heap) -> Result<Command, String> {
    let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
    let child = if heap == Heap::One { "--child-with-one-heap" } else { "--child" };
    command.args([child, side]).arg(workload).args(python);
    Ok(command)
}

/// Has a child do something under a program that looks at it, to its end.
///
/// # Errors
/// If the program is missing, or what the child could not do.
pub fn under(
    mut program: Command,
    child: &Command,
    body: impl FnOnce(&mut Child) -> Result<(), String>,
) -> Result<(), String> {
    program.arg(child.get_program()).args(child.get_args());
    let mut child = Child::start(program)?;
    let done = body(&mut child);
    child.end();
    done
}

/// A child, from its parent's side.
pub struct Child {
    process: Process,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Child {
    /// Starts one.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start(mut command: Command) -> Result<Self, String> {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
        let mut process = spawned.map_err(|error| format!("{command:?}: {error}"))?;
        let (commands, answers) = (process.stdin.take(), process.stdout.take());
        let (Some(commands), Some(answers)) = (commands, answers) else { return Err("no pipes".into()) };
        Ok(Self { process, commands, answers: BufReader::new(answers) })
    }

    fn ask<T: DeserializeOwned>(&mut self, command: &str) -> Result<T, String> {
        let mut line = String::new();
        // One that has ended before has said why.
        let _ = writeln!(self.commands, "{command}");
        let said = self.answers.read_line(&mut line);
        if said.is_err() || line.is_empty() {
            return Err(format!("the process has ended: {:?}", self.process.wait()));
        }
        serde_json::from_str::<Result<T, String>>(&line).map_err(|error| format!("{error}: {line}"))?
    }

    /// Loads what stays.
    pub fn live(&mut self, count: usize) -> Result<Live, String> {
        self.ask(&format!("live {count}"))
    }

    /// Loads what stays before the first repetition.
    pub fn prepare(&mut self) -> Result<(), String> {
        self.ask("prepare")
    }

    /// One repetition, by so many threads.
    pub fn round(&mut self, threads: usize) -> Result<Sample, String> {
        self.ask(&format!("round {threads}"))
    }

    /// One repetition of so many objects that are loaded and unloaded together.
    pub fn batch(&mut self, count: usize) -> Result<Sample, String> {
        self.ask(&format!("batch {count}"))
    }

    /// Calls all that stays.
    pub fn calls(&mut self, times: usize) -> Result<Cost, String> {
        self.ask(&format!("calls {times}"))
    }

    /// Unloads what stays.
    pub fn unload(&mut self) -> Result<(), String> {
        self.ask("unload")
    }

    /// Lets it end by itself.
    pub fn end(self) {
        let Self { mut process, commands, .. } = self;
        drop(commands);
        // How it ended does not matter: its answers are here.
        let _ = process.wait();
    }
}
