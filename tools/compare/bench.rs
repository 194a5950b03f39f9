//! One side with one workload.

use std::path::Path;
use std::sync::Barrier;
use std::thread;

use serde::{Deserialize, Serialize};

use crate::measure::Cost;
use crate::sides::{Entry, Kind, Loaded, Object, Side};
use crate::workloads::Workload;

/// Objects of the sides for which each is a process or two, in one repetition and before the first.
const SLOW: (usize, usize) = (3, 10);

/// Why a side is not there.
const NOT_PACKED: &str = "loads functions of the TVM FFI's convention only, and of these there are small ones";

/// One repetition.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Sample {
    pub load: Cost,
    pub unload: Cost,
}

/// A side, and what is loaded in it.
pub struct Bench<'a> {
    pub kind: &'static Kind,
    workload: &'a Workload,
    side: Box<dyn Side>,
    next: usize,
    live: Vec<Loaded>,
}

impl<'a> Bench<'a> {
    /// A new one, with nothing loaded, if need be in the Python that is given.
    ///
    /// # Errors
    /// Why there is no such side here.
    pub fn new(kind: &'static Kind, workload: &'a Workload, python: Option<&Path>) -> Result<Self, String> {
        if kind.is_python && workload.packed(0).is_none() {
            return Err(NOT_PACKED.into());
        }
        let side = (kind.make)(python)?;
        Ok(Self { kind, workload, side, next: 0, live: Vec::new() })
    }

    /// How many of so many objects this side loads.
    pub fn share(&self, count: usize, of_slow: usize) -> usize {
        if self.kind.is_slow { count.min(of_slow) } else { count }
    }

    fn objects(&mut self, count: usize) -> Result<Vec<Object>, String> {
        let first = self.next;
        self.next += count;
        (first..self.next).map(|number| object(self.kind, self.workload, number)).collect()
    }

    /// Measures here, or takes what the side has measured.
    fn cost_of<T>(&self, count: usize, body: impl FnOnce() -> Result<T, String>) -> Result<(Cost, T), String> {
        let (cost, answer) = Cost::of(count, body)?;
        Ok((self.side.cost().unwrap_or(cost), answer))
    }

    /// Loads what stays.
    ///
    /// # Errors
    /// What went wrong, with how many were loaded before.
    pub fn load_live(&mut self, count: usize) -> Result<Cost, String> {
        let (kind, workload, first) = (self.kind, self.workload, self.next);
        self.next += count;
        let (side, live) = (&self.side, &mut self.live);
        let (cost, ()) = Cost::of(count, || {
            for number in first..first + count {
                let loaded = object(kind, workload, number).and_then(|mut object| side.load(&mut object));
                live.push(loaded.map_err(|error| format!("stopped at {} objects: {error}", live.len()))?);
            }
            Ok(())
        })?;
        self.side.keep();
        Ok(cost)
    }

    /// Loads what stays before the first repetition.
    ///
    /// # Errors
    /// As `load_live`.
    pub fn prepare(&mut self) -> Result<(), String> {
        let count = self.share(self.workload.live, SLOW.1.min(self.workload.live / 50));
        self.load_live(count).map(drop)
    }

    /// Loads, calls and unloads so many objects as a repetition has, on so many threads.
    ///
    /// # Errors
    /// What went wrong.
    pub fn round(&mut self, threads: usize) -> Result<Sample, String> {
        if self.kind.is_python && threads > 1 {
            return Err("from Python, measured with one thread only".into());
        }
        // Waking a thread and waiting for its end takes as long as loading twenty objects, too.
        let per_round = if threads > 1 { self.workload.live } else { 0 }.max(self.workload.per_round);
        let count = self.share(per_round, SLOW.0);
        let mut objects = self.objects(count)?;
        let side = &*self.side;
        let all = |objects: &mut [Object]| side.load_each(objects);
        // Making threads takes as long as loading twenty objects, and is not what is measured.
        let ready = &Barrier::new(threads + 1);
        let (load, loaded) = match threads {
            1 => self.cost_of(count, || all(&mut objects))?,
            _ => thread::scope(|scope| {
                let mut parts = objects.chunks_mut(count.div_ceil(threads));
                let one = |_| {
                    let part = parts.next().unwrap_or_default();
                    scope.spawn(move || {
                        ready.wait();
                        all(part)
                    })
                };
                let running: Vec<_> = (0..threads).map(one).collect();
                self.cost_of(count, || {
                    ready.wait();
                    let mut loaded = Vec::new();
                    for one in running {
                        loaded.extend(one.join().map_err(|_| "a thread panicked")??);
                    }
                    Ok(loaded)
                })
            })?,
        };
        let (unload, ()) = self.cost_of(count, || side.unload(loaded))?;
        Ok(Sample { load, unload })
    }

    /// As [`round`](Self::round) by one thread, of so many objects that are loaded and unloaded together.
    ///
    /// # Errors
    /// What went wrong.
    pub fn batch(&mut self, count: usize) -> Result<Sample, String> {
        let mut objects = self.objects(count)?;
        let (load, loaded) = self.cost_of(count, || self.side.load_together(&mut objects))?;
        let (unload, ()) = self.cost_of(count, || self.side.unload(loaded))?;
        Ok(Sample { load, unload })
    }

    /// Calls each function that is loaded, one after the other, so many times.
    ///
    /// # Errors
    /// If the sum of the answers is wrong.
    pub fn calls(&self, times: usize) -> Result<Cost, String> {
        // SAFETY: addresses of entries that stay loaded; all have this type.
        let entry = |address| unsafe { std::mem::transmute::<usize, Entry>(address) };
        let entries: Vec<Entry> = self.live.iter().filter_map(|one| one.address).map(entry).collect();
        let (cost, sum) = Cost::of(entries.len() * times, || {
            // SAFETY: as above; they take any number.
            let one_turn = || entries.iter().map(|entry| i64::from(unsafe { entry(0) })).sum::<i64>();
            Ok((0..times).map(|_| one_turn()).sum::<i64>())
        })?;
        let expected = 42 * (entries.len() * times) as i64;
        if sum == expected { Ok(cost) } else { Err(format!("WRONG ANSWER: the sum is {sum}, not {expected}")) }
    }

    /// Unloads what stays.
    ///
    /// # Errors
    /// What went wrong.
    pub fn unload_live(&mut self) -> Result<(), String> {
        let live = std::mem::take(&mut self.live);
        self.side.unload(live)
    }
}

/// The object of a number, as a side can load it.
fn object(kind: &Kind, workload: &Workload, number: usize) -> Result<Object, String> {
    match kind.is_python {
        true => workload.packed(number).ok_or_else(|| NOT_PACKED.into()),
        false => Ok(workload.object(number)),
    }
}
