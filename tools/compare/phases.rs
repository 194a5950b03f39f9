//! What is measured, in which order.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::bench::Sample;
use crate::child::{Child, Heap, command};
use crate::codegen;
use crate::instructions;
use crate::measure::Cost;
use crate::report::{Extra, Measured, Table};
use crate::sides::{Kind, SIDES};
use crate::system_calls;
use crate::workloads::{Workload, workloads};

/// The command line.
pub struct Options {
    pub json: bool,
    pub quick: bool,
    pub only: Option<String>,
    /// Where the drawing goes.
    pub plot: Option<PathBuf>,
    /// The Python that loads.
    pub python: Option<PathBuf>,
    rounds: usize,
    /// How long one side may take for the repetitions of one table, begun ones not counted.
    patience: Duration,
}

impl Options {
    /// Of the words.
    ///
    /// # Errors
    /// For those that mean nothing.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let quick = words.contains(&"--quick");
        let (rounds, seconds) = if quick { (2, 1) } else { (15, 20) };
        let patience = Duration::from_secs(seconds);
        let mut options = Self { json: false, quick, only: None, plot: None, python: None, rounds, patience };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match *word {
                "--quick" => {}
                "--json" => options.json = true,
                "--only" => options.only = Some((*value()?).to_owned()),
                "--plot" => options.plot = Some((*value()?).into()),
                "--python" => options.python = Some((*value()?).into()),
                "--rounds" => options.rounds = value()?.parse().map_err(|_| "--rounds needs a number")?,
                other => return Err(format!("unknown argument {other}")),
            }
        }
        Ok(options)
    }
}

/// Seconds of a repetition, of which no system calls and no memory are counted.
const LONG: f64 = 5.0;

/// A side with what it did.
struct Runner<T> {
    kind: &'static Kind,
    /// What does it; or why it cannot.
    state: Result<T, String>,
    spent: Duration,
}

impl<T> Runner<T> {
    /// One for each side.
    fn all(make: impl Fn(&'static Kind) -> Result<T, String>) -> Vec<Self> {
        SIDES.iter().map(|kind| Self { kind, state: make(kind), spent: Duration::ZERO }).collect()
    }
}

/// Repetitions of all sides, one after the other, each time beginning with another one and in another order: what a
/// side finds in caches and in the kernel is what the one before it left. A side that fails does no more.
fn alternate<T, R>(
    runners: &mut [Runner<T>],
    options: &Options,
    round: impl Fn(&mut T) -> Result<R, String>,
) -> Vec<Vec<R>> {
    let mut done: Vec<Vec<R>> = runners.iter().map(|_| Vec::new()).collect();
    runners.iter_mut().for_each(|runner| runner.spent = Duration::ZERO);
    let sides = runners.len();
    // Those that lead to each of them.
    let leads = |step: &usize| (2..=*step).all(|d| !step.is_multiple_of(d) || !sides.is_multiple_of(d));
    let steps: Vec<usize> = (1..sides.max(2)).filter(leads).collect();
    for turn in 0..=options.rounds {
        for k in 0..sides {
            let at = (turn + k * steps[turn % steps.len()]) % sides;
            let Runner { state, spent, .. } = &mut runners[at];
            let Ok(runner) = state else { continue };
            if *spent > options.patience {
                continue;
            }
            let start = Instant::now();
            match round(runner) {
                Ok(sample) => done[at].push(sample),
                Err(error) => *state = Err(error),
            }
            *spent += start.elapsed();
        }
    }
    for samples in &mut done {
        // The first warms up, if it is not all there is.
        if samples.len() > 1 {
            samples.remove(0);
        }
    }
    done
}

fn measured<T>(runners: &[Runner<T>], costs: Vec<Vec<Cost>>) -> Vec<Measured> {
    let of = |(runner, costs): (&Runner<T>, Vec<Cost>)| Measured {
        side: runner.kind.name,
        costs,
        skipped: runner.state.as_ref().err().cloned(),
        system_calls: None,
        instructions: None,
        memory: None,
    };
    runners.iter().zip(costs).map(of).collect()
}

/// Loading and unloading by one thread, and of small objects by several.
///
/// # Errors
/// If nothing can be measured.
pub fn beside(workload: &Workload, options: &Options, show: &mut impl FnMut(Table)) -> Result<(), String> {
    let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    write(workload, file.path())?;

    let mut runners = Runner::all(|kind| {
        let mut child =
            command(kind.name, file.path(), options.python.as_deref(), Heap::Usual).and_then(Child::start)?;
        child.prepare()?;
        Ok(child)
    });
    let live = if workload.live == 0 { String::new() } else { format!(", {} live", workload.live) };
    let samples = alternate(&mut runners, options, |child| child.round(1));
    let key = |what: &str| format!("{}/{what}", workload.name);
    let pick = |of: fn(&Sample) -> Cost| samples.iter().map(|s| s.iter().map(of).collect()).collect();
    let mut load = measured(&runners, pick(|s| s.load));
    let mut unload = measured(&runners, pick(|s| s.unload));
    for (at, kind) in SIDES.iter().enumerate() {
        // In a hurry, of small objects only, and of those that need no linker; and nothing that takes minutes with some
        // LLVM.
        let hurries = options.quick && (workload.name != "small" || kind.is_slow);
        let takes_long = samples[at].iter().any(|s| s.load.wall > LONG);
        // They are of this program's processes, and it is Python's that loads.
        if hurries || takes_long || kind.is_python {
            continue;
        }
        let extra = extra(kind, workload, file.path(), options);
        load[at].system_calls = extra.load_calls;
        load[at].memory = extra.memory;
        load[at].instructions = extra.instructions;
        unload[at].system_calls = extra.unload_calls;
        load[at].skipped = load[at].skipped.take().or(extra.skipped);
    }
    show(Table::new(key("load"), &workload.title, &format!("from bytes to the first call{live}"), load));
    show(Table::new(key("unload"), &workload.title, &format!("unload{live}"), unload));
    if workload.name == "small" {
        small(workload, &live, &mut runners, options, show)?;
    }
    end(runners);
    Ok(())
}

/// More about small objects.
fn small(
    workload: &Workload,
    live: &str,
    runners: &mut [Runner<Child>],
    options: &Options,
    show: &mut impl FnMut(Table),
) -> Result<(), String> {
    let code = codegen::cost(workload.per_round)?;
    let code = Measured {
        side: "LLVM",
        costs: vec![code],
        skipped: None,
        system_calls: None,
        instructions: None,
        memory: None,
    };
    show(Table::new(
        "small/code-generation".into(),
        &workload.title,
        "code generation from IR, which MCJIT is spared here",
        vec![code],
    ));
    let batch = workload.per_round.max(workload.live);
    let samples = alternate(runners, options, |child| child.batch(batch));
    let pick = |of: fn(&Sample) -> Cost| samples.iter().map(|s| s.iter().map(of).collect()).collect();
    let together = |what: &str| format!("{what}, {batch} together{live}");
    let title = &workload.title.replace(" one by one", "");
    show(Table::new(
        "batch/load".into(),
        title,
        &together("from bytes to the first call"),
        measured(runners, pick(|s| s.load)),
    ));
    show(Table::new("batch/unload".into(), title, &together("unload"), measured(runners, pick(|s| s.unload))));
    for threads in 2..=if options.quick { 2 } else { 4 } {
        let samples = alternate(runners, options, |child| child.round(threads));
        let load = samples.iter().map(|s| s.iter().map(|sample| sample.load).collect()).collect();
        let what = format!("from bytes to the first call, {threads} threads{live}");
        show(Table::new(format!("small/{threads}-threads"), &workload.title, &what, measured(runners, load)));
    }
    Ok(())
}

fn write(workload: &Workload, file: &Path) -> Result<(), String> {
    let text = serde_json::to_vec(workload).map_err(|error| error.to_string())?;
    std::fs::write(file, text).map_err(|error| error.to_string())
}

/// Memory and system calls of a side, in processes of their own.
fn extra(kind: &'static Kind, workload: &Workload, file: &Path, options: &Options) -> Extra {
    let mut extra = Extra::default();
    let count = if kind.is_slow { workload.per_round.min(4) } else { workload.per_round.max(workload.live) };
    // Where there is no such side, that is said elsewhere.
    if (kind.make)(options.python.as_deref()).is_err() {
        return extra;
    }
    let memory = command(kind.name, file, None, Heap::One).and_then(Child::start).and_then(|mut child| {
        let live = child.live(count);
        child.end();
        live
    });
    match memory {
        Ok(live) => extra.memory = Some(live.memory),
        Err(error) => extra.skipped = Some(format!("memory: {error}")),
    }
    // Without valgrind they are left out.
    if workload.name == "small" && !kind.is_slow && !options.quick {
        extra.instructions = instructions::count(kind.name, file, workload.per_round).ok();
    }
    match system_calls::count(kind.name, file, count.min(workload.per_round)) {
        Ok((load, unload)) => (extra.load_calls, extra.unload_calls) = (Some(load), Some(unload)),
        Err(error) => extra.skipped = Some(format!("system calls: {error}")),
    }
    extra
}

/// Many small objects, each side in a process of its own.
///
/// # Errors
/// If nothing can be measured.
pub fn large(options: &Options, show: &mut impl FnMut(Table)) -> Result<(), String> {
    let workload = workloads(options.quick, Some("small")).pop().ok_or("no workload")?;
    let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    write(&workload, file.path())?;
    let start = |kind: &Kind| match (kind.is_slow, kind.is_python) {
        (true, _) => Err("one linker process for each object".to_owned()),
        (_, true) => Err("from Python, measured beside the others only".to_owned()),
        _ => command(kind.name, file.path(), None, Heap::One).and_then(Child::start),
    };
    let (rounds, live) = match options.quick {
        true => ([("large/calls-of-some", 100, 10), ("large/calls", 500, 2)], 1000),
        false => ([("large/calls-of-some", 1000, 300), ("large/calls", 15_000, 20)], 20_000),
    };

    let mut runners = Runner::all(start);
    let mut there = 0;
    for (name, functions, times) in rounds {
        in_turns(&mut runners, functions - there);
        there = functions;
        let calls = alternate(&mut runners, options, |child| child.calls(times));
        let what = format!("one call, round robin over {functions} functions");
        show(Table::new(name.into(), &workload.title, &what, measured(&runners, calls)));
    }
    end(runners);

    let mut runners = Runner::all(start);
    let first = from(&mut runners, live);
    show(Table::new(
        "large/first".into(),
        &workload.title,
        &format!("from bytes to the first call, from none to {live}"),
        first,
    ));
    let samples = alternate(&mut runners, options, |child| child.round(1));
    let pick = |of: fn(&Sample) -> Cost| samples.iter().map(|s| s.iter().map(of).collect()).collect();
    let what = format!("from bytes to the first call, {live} live");
    show(Table::new("large/load".into(), &workload.title, &what, measured(&runners, pick(|s| s.load))));
    show(Table::new(
        "large/unload".into(),
        &workload.title,
        &format!("unload, {live} live"),
        measured(&runners, pick(|s| s.unload)),
    ));

    // Where every object has mappings of its own, their number ends (vm.max_map_count).
    let more = from(&mut runners, live);
    let what = format!("from bytes to the first call, from {live} to {}", 2 * live);
    show(Table::new("large/more".into(), &workload.title, &what, more).driven_to_the_end());
    end(runners);
    Ok(())
}

/// Loads so many objects that stay, a few by each side in turn. Otherwise, the first process would get pages that
/// others have left scattered, and calls there would take two to three times as long.
fn in_turns(runners: &mut [Runner<Child>], count: usize) {
    const TURNS: usize = 50;
    let sides = runners.len();
    for at in (0..TURNS).flat_map(|turn| (0..sides).map(move |k| (turn + k) % sides)) {
        let state = &mut runners[at].state;
        if let Ok(child) = state
            && let Err(error) = child.live(count / TURNS)
        {
            *state = Err(error);
        }
    }
}

/// Loads so many more objects that stay. A side that cannot does no more.
fn from(runners: &mut [Runner<Child>], count: usize) -> Vec<Measured> {
    let (mut costs, mut memory) = (Vec::new(), Vec::new());
    for runner in &mut *runners {
        let answer = runner.state.as_mut().map(|child| child.live(count));
        let live = answer.as_ref().ok().and_then(|answer| answer.as_ref().ok());
        costs.push(live.map(|live| live.load).into_iter().collect());
        memory.push(live.map(|live| live.memory));
        if let Ok(Err(error)) = answer {
            runner.state = Err(error);
        }
    }
    let mut rows = measured(runners, costs);
    for (row, memory) in rows.iter_mut().zip(memory) {
        row.memory = memory;
    }
    rows
}

fn end(runners: Vec<Runner<Child>>) {
    for child in runners.into_iter().filter_map(|runner| runner.state.ok()) {
        child.end();
    }
}
