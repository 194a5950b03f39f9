//! Choice of the fastest of several kernels.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use once_cell::sync::OnceCell;

use super::argument::Argument;
use super::signature::KernelSignature;
use super::tuning_memory::{HostMemory, Region, TuningMemory};
use crate::fork_guard::Mutex;
use crate::kernel::argument_checks::Words;
use crate::kernel::bound_kernel::Kernel;
use crate::{Error, KernelError, Result};

/// Finds the fastest of several equivalent kernels, on the caller's own buffers and without changing them; see
/// [`run`](Self::run).
///
/// The result is kept under a key of the caller's, made from everything that the choice depends on (shapes, types,
/// device). One tuner serves all threads. A child of `fork` must not use a key that another thread was tuning.
///
/// ```no_run
/// use slabjit::{Argument, Autotuner, Candidate, Kernel};
///
/// # fn tune(tuner: &Autotuner, narrow: &Kernel, wide: &Kernel) -> slabjit::Result<()> {
/// let (x, mut y) = (vec![1.0f32; 4096], vec![0.0f32; 4096]);
/// let candidates = [Candidate::kernel("narrow", narrow), Candidate::kernel("wide", wide)];
/// // SAFETY: both are kernels of this signature.
/// let tuning = unsafe { tuner.run("scale 4096", &candidates, &[Argument::slice(&x), Argument::slice_mut(&mut y)])? };
/// println!("{tuning}");
/// # Ok(())
/// # }
/// ```
pub struct Autotuner<M: TuningMemory = HostMemory> {
    memory: M,
    warm_up: usize,
    runs: usize,
    tuned: Mutex<HashMap<String, Cell>>,
}

type Cell = Arc<OnceCell<Arc<Tuning>>>;

/// One of the kernels to choose from. All take the same arguments; each has its own signature, which says how it uses
/// them.
pub struct Candidate<'a> {
    pub(super) name: String,
    pub(super) signature: KernelSignature,
    pub(super) run: Run<'a>,
}

pub(super) enum Run<'a> {
    Kernel(Kernel),
    Closure(Closure<'a>),
}

type Closure<'a> = Box<dyn Fn(&[Argument<'_>]) -> Result<()> + 'a>;

/// The result of tuning a key.
#[derive(Debug)]
#[non_exhaustive]
pub struct Tuning {
    /// The index of the fastest candidate.
    pub winner: usize,
    /// The trials of all candidates, in their order.
    pub trials: Vec<Trial>,
}

/// The trial of a candidate.
#[derive(Debug)]
#[non_exhaustive]
pub struct Trial {
    /// Its name.
    pub candidate: String,
    /// The median of its runs, or the reason for its exclusion.
    pub outcome: Result<Duration>,
}

impl<'a> Candidate<'a> {
    /// Makes a candidate from a kernel.
    pub fn kernel(name: impl Into<String>, kernel: &Kernel) -> Self {
        Self { name: name.into(), signature: kernel.signature.clone(), run: Run::Kernel(kernel.clone()) }
    }

    /// Makes a candidate from a closure, to which the signature applies as to a kernel: a launch on a device, or
    /// several kernels.
    pub fn closure(
        name: impl Into<String>,
        signature: &KernelSignature,
        closure: impl Fn(&[Argument<'_>]) -> Result<()> + 'a,
    ) -> Self {
        Self { name: name.into(), signature: signature.clone(), run: Run::Closure(Box::new(closure)) }
    }
}

impl Autotuner {
    /// Creates a tuner for kernels of the host.
    pub fn new() -> Self {
        Self::with_memory(HostMemory)
    }
}

impl Default for Autotuner {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: TuningMemory> Autotuner<M> {
    /// Creates a tuner for kernels whose buffers this memory can save.
    pub fn with_memory(memory: M) -> Self {
        Self { memory, warm_up: 2, runs: 7, tuned: Mutex::new(HashMap::new()) }
    }

    /// Sets how often each candidate runs before it is measured; twice by default.
    pub fn warm_up(self, runs: usize) -> Self {
        Self { warm_up: runs, ..self }
    }

    /// Sets how often each candidate is measured, at least once; seven times by default.
    pub fn runs(self, runs: usize) -> Self {
        Self { runs: runs.max(1), ..self }
    }

    /// Returns the result for a key.
    pub fn tuning(&self, key: &str) -> Option<Arc<Tuning>> {
        let tuned = self.tuned.lock();
        tuned.get(key).and_then(|cell| cell.get().cloned())
    }

    /// Forgets the result for a key.
    pub fn forget(&self, key: &str) {
        self.tuned.lock().remove(key);
    }

    /// Returns the cell for the result of a key.
    pub(super) fn cell(&self, key: &str) -> Cell {
        let mut tuned = self.tuned.lock();
        match tuned.get(key) {
            Some(cell) => Arc::clone(cell),
            None => Arc::clone(tuned.entry(key.to_owned()).or_default()),
        }
    }

    /// Runs all candidates that accept the arguments. Dropping the result restores everything that they wrote.
    pub(super) fn tune(
        &self,
        key: &str,
        arguments: &[Argument<'_>],
        candidates: Vec<(&Candidate<'_>, Result<Words>)>,
        run: impl Fn(&Candidate<'_>, &Words) -> Result<()>,
    ) -> Result<(Tuning, Before<'_, M>)> {
        let suitable = candidates.iter().filter(|(_, words)| words.is_ok());
        let regions = Region::written(suitable.map(|(candidate, _)| &candidate.signature), arguments);
        let before = Before::save(&self.memory, regions)?;
        let mut trials = Vec::with_capacity(candidates.len());
        for (candidate, words) in candidates {
            let outcome = match words {
                Ok(words) => self.measure(&before, &mut || run(candidate, &words))?,
                Err(refused) => Err(refused),
            };
            trials.push(Trial { candidate: candidate.name.clone(), outcome });
        }
        before.restore()?;
        let times = trials.iter().enumerate().filter_map(|(index, trial)| Some((trial.outcome.as_ref().ok()?, index)));
        match times.min() {
            Some((_, winner)) => Ok((Tuning { winner, trials }, before)),
            None => {
                let failed = |trial: Trial| Some((trial.candidate, trial.outcome.err()?));
                let candidates = trials.into_iter().filter_map(failed).collect();
                Err(Error::NoCandidate { key: key.to_owned(), candidates })
            }
        }
    }

    /// Returns the median time of a candidate, or the reason for its exclusion; an error if memory could not be
    /// restored.
    fn measure(&self, before: &Before<'_, M>, run: &mut dyn FnMut() -> Result<()>) -> Result<Result<Duration>> {
        let mut times = Vec::new();
        for number in 0..self.warm_up.saturating_add(self.runs) {
            before.restore()?;
            match self.memory.time(run) {
                Ok(time) if number >= self.warm_up => times.push(time),
                Ok(_) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        times.sort_unstable();
        Ok(Ok(times[times.len() / 2]))
    }
}

impl Tuning {
    /// Returns the fastest among the candidates of another call.
    pub(super) fn winner_of<'c, 'a>(&self, key: &str, candidates: &'c [Candidate<'a>]) -> Result<&'c Candidate<'a>> {
        let name = &self.trials[self.winner].candidate;
        candidates.get(self.winner).filter(|candidate| candidate.name == *name).ok_or_else(|| {
            Error::Kernel(KernelError::TunedCandidateMissing {
                key: key.to_owned(),
                candidate: name.clone(),
                place: self.winner,
            })
        })
    }
}

/// The contents of memory before anything ran, restored on drop.
pub(super) struct Before<'m, M: TuningMemory> {
    memory: &'m M,
    saved: Vec<(Region, M::Saved)>,
}

impl<'m, M: TuningMemory> Before<'m, M> {
    fn save(memory: &'m M, regions: Vec<Region>) -> Result<Self> {
        let saved = regions.into_iter().map(|region| memory.save(&region).map(|saved| (region, saved)));
        Ok(Self { memory, saved: saved.collect::<Result<_>>()? })
    }

    pub(super) fn restore(&self) -> Result<()> {
        // Restores all regions, even if one fails.
        let mut first = Ok(());
        for (region, saved) in &self.saved {
            let restored = self.memory.restore(region, saved);
            first = first.and(restored);
        }
        first
    }

    /// Keeps the present contents of memory.
    pub(super) fn forget(mut self) {
        self.saved.clear();
    }
}

impl<M: TuningMemory> Drop for Before<'_, M> {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            tracing::error!(target: "slabjit", "what an autotuner has overwritten could not be restored: {error}");
        }
    }
}

impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, trial) in self.trials.iter().enumerate() {
            let mark = if index == self.winner { ", the fastest" } else { "" };
            writeln!(f, "{trial}{mark}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Ok(time) => write!(f, "{}: {time:?}", self.candidate),
            Err(error) => write!(f, "{}: {error}", self.candidate),
        }
    }
}

impl<M: TuningMemory> fmt::Debug for Autotuner<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Autotuner").field("warm_up", &self.warm_up).field("runs", &self.runs).finish_non_exhaustive()
    }
}

impl fmt::Debug for Candidate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate")
            .field("name", &self.name)
            .field("signature", &self.signature)
            .finish_non_exhaustive()
    }
}
