//! The unsafe calls of functions and copies of memory, for which the caller vouches.
#![allow(unsafe_code, reason = "calls of loaded functions, copies of callers' memory")]

use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::argument::{Argument, MemorySpace};
use super::autotune::{Autotuner, Candidate, Run, Tuning};
use super::call_plan::Capture;
use super::tuning_memory::{HostMemory, HostSaved, Region, TuningMemory};
use crate::kernel::argument_checks::Words;
use crate::kernel::bound_kernel::Kernel;
use crate::{Error, Library, Result};

// ---- kernels ----

impl Kernel {
    /// Checks the arguments and calls the function. [`KernelSignature::check`](crate::KernelSignature::check) describes
    /// the checks. Nothing is allocated.
    ///
    /// # Errors
    /// Those of [`check`](crate::KernelSignature::check); then the function is not called.
    /// [`KernelError::Failed`](crate::KernelError::Failed) if it returns a status that is not 0.
    ///
    /// # Safety
    /// - The function does what its signature says, and may run where other code of the library may. It does not
    ///   unwind: an exception that leaves it ends the process.
    /// - Each buffer made from a pointer is valid for reads, and for writes if the kernel writes it, for all elements
    ///   of its shape and strides, until the function returns (or its work on a device has finished), and is not used
    ///   in a conflicting way meanwhile.
    /// - The function accepts the values of the scalars: a length does not exceed the buffers.
    pub unsafe fn call(&self, arguments: &[Argument<'_>]) -> Result<()> {
        let words = self.signature.words(arguments)?;
        // SAFETY: by the caller's contract; the function takes what the signature says, and the arguments conform to
        // it.
        self.outcome(unsafe { self.function.invoke(&words) })
    }
}

impl Capture {
    /// Looks a symbol up, as [`Library::get`] does.
    ///
    /// # Errors
    /// As for [`Library::get`].
    ///
    /// # Safety
    /// As for [`Library::get`]. A copy of the result that outlives the plan must not be used.
    pub unsafe fn get<S: Copy + 'static>(&mut self, library: &Library, name: &str) -> Result<S> {
        // SAFETY: by the caller's contract.
        let symbol = unsafe { library.get(name)? };
        Ok(self.symbol(&symbol))
    }
}

// ---- autotuning ----

impl Candidate<'_> {
    /// # Safety
    /// As for [`Kernel::call`]; the words are those of the arguments.
    unsafe fn run(&self, arguments: &[Argument<'_>], words: &Words) -> Result<()> {
        match &self.run {
            // SAFETY: by the caller's contract, as in `Kernel::call`.
            Run::Kernel(kernel) => kernel.outcome(unsafe { kernel.function.invoke(words) }),
            Run::Closure(closure) => closure(arguments),
        }
    }
}

impl<M: TuningMemory> Autotuner<M> {
    /// Runs the fastest candidate for these arguments once. The first call with a key runs all candidates to find it.
    ///
    /// Tuning saves all bytes that any candidate writes: outputs, scratch buffers and in-out buffers, each byte of
    /// their elements and none between, including overlapping buffers, declared as aliases or not. It restores them
    /// before each run, after the last one, and if a candidate fails or panics. Then it runs the winner on the original
    /// contents, so that only the winner's result remains. If that run fails, it restores the bytes once more.
    ///
    /// Candidates whose signature refuses the arguments are not run. Candidates that fail are excluded; the [`Tuning`]
    /// has the reasons. Threads with the same key wait for the one that tunes. A candidate must not call the tuner with
    /// its own key.
    ///
    /// # Errors
    /// [`Error::NoCandidate`] if no candidate can run;
    /// [`KernelError::TunedCandidateMissing`](crate::KernelError::TunedCandidateMissing) if the candidates are not
    /// those with which the key was tuned; [`KernelError::TuningMemory`](crate::KernelError::TuningMemory) or another
    /// of [`TuningMemory`] if memory cannot be saved or restored; otherwise the winner's error, as from
    /// [`Kernel::call`].
    ///
    /// # Safety
    /// As for [`Kernel::call`], for each candidate. Written buffers must also be readable.
    pub unsafe fn run(
        &self,
        key: &str,
        candidates: &[Candidate<'_>],
        arguments: &[Argument<'_>],
    ) -> Result<Arc<Tuning>> {
        // SAFETY: by the caller's contract; the words are those of these arguments.
        let run = |candidate: &Candidate<'_>, words: &Words| unsafe { candidate.run(arguments, words) };
        let mut before = None;
        let cell = self.cell(key);
        let tuning = cell.get_or_try_init(|| {
            let checked =
                candidates.iter().map(|candidate| (candidate, candidate.signature.words(arguments))).collect();
            let (tuning, saved) = self.tune(key, arguments, checked, run)?;
            before = Some(saved);
            Ok::<_, Error>(Arc::new(tuning))
        })?;
        let winner = tuning.winner_of(key, candidates)?;
        let ran = winner.signature.words(arguments).and_then(|words| run(winner, &words));
        match (ran, before) {
            (Ok(()), Some(before)) => before.forget(),
            (Ok(()), None) => {}
            (Err(error), Some(before)) => {
                before.restore()?;
                before.forget();
                return Err(error);
            }
            (Err(error), None) => return Err(error),
        }
        Ok(Arc::clone(tuning))
    }
}

impl TuningMemory for HostMemory {
    type Saved = HostSaved;

    fn save(&self, region: &Region) -> Result<HostSaved> {
        if let MemorySpace::Device(_) = region.space() {
            return Err(region.refused("HostMemory cannot copy it; make the tuner with Autotuner::with_memory"));
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(region.bytes()).map_err(|error| {
            region.refused(&format!("there is no memory to save it in ({error}); tune on smaller buffers"))
        })?;
        for block in region.blocks() {
            let end = bytes.len();
            bytes.resize(end + region.block_bytes(), 0);
            // SAFETY: regions exist only inside `Autotuner::run`, whose caller vouches for their elements; nothing else
            // has `bytes`.
            unsafe { ptr::copy_nonoverlapping(block, bytes[end..].as_mut_ptr(), region.block_bytes()) };
        }
        Ok(HostSaved { of: region.noted(), bytes })
    }

    fn restore(&self, region: &Region, saved: &HostSaved) -> Result<()> {
        if saved.of != region.noted() {
            return Err(region.refused("what is to be restored there was saved of another region"));
        }
        for (block, bytes) in region.blocks().zip(saved.bytes.chunks_exact(region.block_bytes())) {
            // SAFETY: as above.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), block, bytes.len()) };
        }
        Ok(())
    }

    fn time(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<Duration> {
        let start = Instant::now();
        run()?;
        Ok(start.elapsed())
    }
}
