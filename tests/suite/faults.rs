//! System calls that fail, each in turn, in a script that loads, calls, fails to link, removes and loads again: every
//! step is done or an error, what was loaded goes on answering, and in the end nothing is left.

mod cache;
mod errors;
mod script;
mod witness;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use slabjit::JitEngine;
use slabjit::fault::{self, Call};

use crate::common::{Random, child_with, tests};
use crate::state::{self, State};
use crate::target::{by_qemu, under_qemu};
use script::Outcome;

tests![
    each_call_in_turn,
    everything_from_some_call_on,
    everything_of_a_kind,
    at_random,
    strace_sees_no_other_call,
    strace_refuses_calls;
    alone: each_call_of_the_cache_in_turn;
    parts: each_call_in_turn_alone, everything_from_some_call_on_alone, everything_of_a_kind_alone, at_random_alone, witnessed,
];

use cache::each_call_of_the_cache_in_turn;
use witness::{strace_refuses_calls, strace_sees_no_other_call, witnessed};

fn each_call_in_turn() {
    in_child("each_call_in_turn_alone");
}

fn everything_from_some_call_on() {
    in_child("everything_from_some_call_on_alone");
}

fn everything_of_a_kind() {
    in_child("everything_of_a_kind_alone");
}

fn at_random() {
    in_child("at_random_alone");
}

fn in_child(part: &str) {
    let end = child_with(part, &[state::ENVIRONMENT]);
    println!("{}", end.stdout);
    assert_eq!(end.code, Some(0), "{end:?}");
}

/// Which call is refused, by its kind and its number among those of a run, and with what. An arena's place may take a
/// try more or less, which moves all calls behind it.
type Refusals = Vec<((Call, usize), i32)>;

/// Counts calls by their kinds.
#[derive(Default)]
struct Numbers(BTreeMap<Call, usize>);

impl Numbers {
    fn of(&mut self, call: Call) -> (Call, usize) {
        let next = self.0.entry(call).or_default();
        *next += 1;
        (call, *next - 1)
    }
}

/// A process in which the script has run without faults.
struct Ground {
    files: PathBuf,
    /// The calls of the last run.
    calls: Vec<Call>,
    /// How often each call was reached and refused.
    counts: Vec<[usize; 2]>,
    before: State,
}

impl Ground {
    fn new() -> Self {
        state::prepare();
        let files = script::files();
        // What is made once in a process is made.
        for _ in 0..3 {
            assert_eq!(script::run(&files).errors, [""; 0]);
        }
        let (calls, counts) = (Vec::with_capacity(1 << 16), vec![[0; 2]; Call::ALL.len()]);
        settle();
        Self { files, calls, counts, before: State::now() }
    }

    /// Runs the script while calls are refused as `refuse` says, with something new each time it is called. Afterwards
    /// all is as before. What malloc has given goes up and down by what tables keep of libraries that are gone; it has
    /// to come down again.
    fn run<R>(&mut self, what: &str, mut refuse: impl FnMut() -> R, mut judge: impl FnMut(&Outcome, &[Call]))
    where
        R: FnMut(usize, Call) -> Option<i32> + 'static,
    {
        /// Runs after which such a table was cleaned.
        const PERIOD: usize = 12;
        /// malloc does not split what would leave less.
        const ROUNDING: isize = 64;
        let mut lowest = [isize::MAX; 4];
        for i in 0..lowest.len() {
            for _ in 0..PERIOD {
                self.calls.clear();
                {
                    let (outcome, calls) = fault::with_errors(refuse(), || script::run(&self.files));
                    self.calls.extend(&calls);
                    judge(&outcome, &calls);
                }
                settle();
                let (more, difference) = self.before.difference();
                if let Some(difference) = difference {
                    panic!("{what}: {difference}");
                }
                lowest[i] = more.min(lowest[i]);
                if more <= ROUNDING {
                    self.before.accept(more.min(0));
                    return;
                }
            }
            // A table has grown for good.
            if i != 0 && lowest[i] <= lowest[0] + ROUNDING {
                self.before.accept(lowest[i]);
                return;
            }
        }
        // What tables keep differs from run to run. A block that each run left would be one of at least 32 bytes, and all
        // of them twice as much as this.
        let [first, .., last] = lowest;
        let runs = (PERIOD * (lowest.len() - 1)) as isize;
        assert!(last <= first + runs * 16, "{what}: malloc has given more each time: {lowest:?}");
        self.before.accept(last);
    }

    /// Runs it with some refusals.
    fn refuse(&mut self, what: &str, refusals: &Refusals, judge: impl FnMut(&Outcome, &[Call])) {
        let refuse = || {
            let (refusals, mut numbers) = (refusals.clone(), Numbers::default());
            move |_, call| {
                let number = numbers.of(call);
                refusals.iter().find(|(of, _)| *of == number).map(|(_, errno)| *errno)
            }
        };
        self.run(what, refuse, judge);
        let mut numbers = Numbers::default();
        for call in &self.calls {
            let [reached, refused] = &mut self.counts[Call::ALL.iter().position(|c| c == call).unwrap()];
            *reached += 1;
            let number = numbers.of(*call);
            *refused += usize::from(refusals.iter().any(|(of, _)| *of == number));
        }
    }
}

/// What could not be unmapped goes when something can be.
fn settle() {
    drop(JitEngine::builder().arena_size(8 << 20).build().unwrap());
}

/// Each call of a run fails, with each error that it may have; and those that are only made then fail, too. One failure
/// is made up for by trying again.
fn each_call_in_turn_alone() {
    let mut ground = Ground::new();
    ground.refuse("no call", &Vec::new(), |outcome, _| assert!(outcome.errors.is_empty()));
    let calls = ground.calls.clone();
    let (mut runs, mut numbers) = (1, Numbers::default());
    for (call, index) in calls.iter().map(|call| numbers.of(*call)) {
        // There, the first of each kind.
        if under_qemu() && index != 0 {
            continue;
        }
        let mut seen: BTreeSet<Call> = calls.iter().copied().collect();
        for &errno in errors::of(call).iter().take(by_qemu(usize::MAX, 2)) {
            let what = format!("{call:?} {index}, errno {errno}");
            let mut refusals = vec![((call, index), errno)];
            ground.refuse(&what, &refusals, |outcome, _| judge_one(&what, errno, outcome));
            runs += 1;
            // What is made instead, the first of each kind.
            let instead: Vec<_> = ground.calls.iter().copied().filter(|call| seen.insert(*call)).collect();
            for call in instead {
                for &errno in errors::of(call).iter().take(by_qemu(usize::MAX, 1)) {
                    refusals.push(((call, 0), errno));
                    ground.refuse(&format!("{what}, then {call:?}, errno {errno}"), &refusals, |_, _| ());
                    refusals.pop();
                    runs += 1;
                }
            }
        }
    }
    report(&ground, runs);
}

fn judge_one(what: &str, errno: i32, outcome: &Outcome) {
    assert!(outcome.missing.is_empty() && outcome.errors.len() <= 1, "{what}: {outcome:?}");
    let system = std::io::Error::from_raw_os_error(errno).to_string();
    let system = system.split(" (os error").next().unwrap_or_default();
    for error in &outcome.errors {
        // glibc says no number.
        assert!(error.contains(system) || error.contains("dlopen failed"), "{what}: '{system}' is not in: {error}");
    }
}

/// The list of all calls. None is left out.
fn report(ground: &Ground, runs: usize) {
    println!("{runs} runs of {} calls; reached and refused:", ground.calls.len());
    let mut left_out = Vec::new();
    for (call, [reached, refused]) in Call::ALL.iter().zip(&ground.counts).filter(|(call, _)| !call.is_of_cache()) {
        println!("{:>8} {:>6}  {call:?}: {}, {}", reached, refused, call.function(), call.purpose());
        if (*reached == 0 || *refused == 0) && !is_elsewhere(*call) {
            left_out.push(call);
        }
    }
    assert!(left_out.is_empty(), "never reached, or never refused: {left_out:?}");
}

/// Sections outside the arena are those of x86-64's large code models.
fn is_elsewhere(call: Call) -> bool {
    call == Call::MapWritable && cfg!(target_arch = "aarch64")
}

/// All but those of an object cache.
fn of_engine() -> impl Iterator<Item = Call> {
    Call::ALL.iter().copied().filter(|call| !call.is_of_cache())
}

/// Calls that are made where nothing fails.
fn usual() -> impl Iterator<Item = Call> {
    let only_instead = [Call::UnmapLater, Call::CreateOldCode, Call::CreateOldImage, Call::FindImage];
    of_engine().filter(move |call| !only_instead.contains(call) && !is_elsewhere(*call))
}

fn everything_from_some_call_on_alone() {
    let mut ground = Ground::new();
    let last = {
        ground.refuse("no call", &Vec::new(), |_, _| ());
        ground.calls.len()
    };
    for first in (0..last).step_by(by_qemu(1, 31)) {
        let refuse = || move |index, _| (index >= first).then_some(libc::ENOMEM);
        ground.run(&format!("everything from call {first} on"), refuse, |outcome, calls| {
            assert!(
                !outcome.errors.is_empty() || calls.iter().skip(first).all(|c| is_of_end(*c)),
                "{first}: {outcome:?}"
            );
        });
    }
}

/// Calls that free something, or that need not be made: an arena needs no module of the dynamic loader's.
fn is_of_end(call: Call) -> bool {
    use Call::*;
    let is_of_module = matches!(
        call,
        ReserveTables
            | ReserveAt
            | Release
            | CreateImage
            | CreateOldImage
            | SizeImage
            | WriteImage
            | OpenImage
            | FindImage
            | WriteModule
            | MapArena
            | GrowTable
    );
    is_of_module || matches!(call, Replace | Deny | Discard | Unmap | UnmapLater | Populate | SmallPages)
}

fn everything_of_a_kind_alone() {
    let mut ground = Ground::new();
    for kind in of_engine() {
        // A call that is interrupted each time is made again each time.
        for &errno in errors::of(kind).iter().filter(|errno| **errno != libc::EINTR).take(by_qemu(usize::MAX, 1)) {
            let refuse = || move |_, call| (call == kind).then_some(errno);
            ground.run(&format!("each {kind:?}, errno {errno}"), refuse, |_, _| ());
        }
    }
}

fn at_random_alone() {
    let mut ground = Ground::new();
    for seed in 0..by_qemu(60, 4) as u64 {
        let refuse = || {
            let mut random = Random::new(seed);
            let rarity = [4, 16, 64][random.below(3)];
            move |_, call| {
                let errors = errors::of(call);
                (random.below(rarity) == 0).then(|| errors[random.below(errors.len())])
            }
        };
        ground.run(&format!("at random, seed {seed}"), refuse, |_, _| ());
    }
}
