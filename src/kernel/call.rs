//! Where code is called and memory is copied: all that takes a caller's word for it.
#![allow(unsafe_code)] // calls of loaded functions, copies of callers' memory

use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::argument::{Argument, MemorySpace};
use super::autotune::{Autotuner, Candidate, Run, Tuning};
use super::bound::Kernel;
use super::call_plan::Capture;
use super::check::Words;
use super::tuning_memory::{HostMemory, HostSaved, Region, TuningMemory};
use crate::{Error, Library, Result};

// ---- kernels ----

impl Kernel {
    /// Calls the function, if the arguments are what the signature says and share no memory that they may not:
    /// [`KernelSignature::check`](crate::KernelSignature::check) says what is compared. Nothing is allocated.
    ///
    /// # Errors
    /// Those of [`check`](crate::KernelSignature::check); the function is not called then. [`Error::KernelFailed`] if it returns a status that is not 0.
    ///
    /// # Safety
    /// - The function does what its signature says, and runs as other code of the library may. It does not unwind: an exception that leaves it
    ///   ends the process.
    /// - Each buffer that was made of a pointer is valid, for reads and, where the kernel writes, for writes, for all elements that its shape and
    ///   strides lead to, until the function returns (or what it has started on a device has finished), and nobody else uses them
    ///   meanwhile in a way that conflicts.
    /// - Scalars are what the function can bear: a length goes no further than the buffers do.
    pub unsafe fn call(&self, arguments: &[Argument<'_>]) -> Result<()> {
        let words = self.signature.words(arguments)?;
        // SAFETY: by the caller; the function takes what the signature says, and the arguments are that.
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
        // SAFETY: by the caller.
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
            // SAFETY: by the caller, as in `Kernel::call`.
            Run::Kernel(kernel) => kernel.outcome(unsafe { kernel.function.invoke(words) }),
            Run::Closure(closure) => closure(arguments),
        }
    }
}

impl<M: TuningMemory> Autotuner<M> {
    /// Runs the candidate that is fastest on these arguments, once. The first time that a key is given, all candidates are run to find out.
    ///
    /// To find out, all bytes that any candidate writes are saved: its outputs, what it works in and what it updates, each byte
    /// of their elements and none between, and so whatever else lies there, whether or not an alias was declared. They are restored
    /// before each single run, after the last, and if a candidate fails or panics. Then the winner is run on what was there at first, so that its result is all that is seen. If
    /// that run fails they are restored once more.
    ///
    /// Candidates whose signature refuses the arguments are not run. Those that fail are out; the [`Tuning`] says why. Threads that give the same key
    /// at the same time wait for the one that finds out. A candidate must not call the tuner with its own key.
    ///
    /// # Errors
    /// [`Error::NoCandidate`] if none can be run; [`Error::TunedCandidateMissing`] if the candidates are not those that the key was
    /// found out for; [`Error::TuningMemory`] or another of [`TuningMemory`] if memory cannot be saved or restored; else the winner's own, as from
    /// [`Kernel::call`].
    ///
    /// # Safety
    /// As for [`Kernel::call`], for each candidate. Buffers that are written may also be read.
    pub unsafe fn run(
        &self,
        key: &str,
        candidates: &[Candidate<'_>],
        arguments: &[Argument<'_>],
    ) -> Result<Arc<Tuning>> {
        // SAFETY: by the caller; the words are of these arguments.
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
            // SAFETY: whoever has a region is called by `Autotuner::run`, whose caller vouches for its elements; nothing else has `bytes`.
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
