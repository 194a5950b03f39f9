//! The memory that a tuner saves and restores, and the measurement of a run.

use std::time::Duration;

use arrayvec::ArrayVec;

use super::argument::{Argument, MemorySpace, Value};
use super::element::Word;
use super::signature::KernelSignature;
use super::span::MAX_RANK;
use crate::{Error, KernelError, Result};

/// The memory and the clock of an [`Autotuner`](crate::Autotuner). [`HostMemory`] serves the host; for a device,
/// implement it with the device's copies and events.
pub trait TuningMemory: Send + Sync {
    /// The saved contents of a region.
    type Saved;

    /// Copies the contents of a region.
    ///
    /// # Errors
    /// [`KernelError::TuningMemory`](crate::KernelError::TuningMemory) or another, which ends the tuning.
    fn save(&self, region: &Region) -> Result<Self::Saved>;

    /// Copies saved contents of an equal region back. The copy comes after all work that was started before, and is
    /// done when this returns or at least before any work that is started later.
    ///
    /// # Errors
    /// As for [`save`](Self::save).
    fn restore(&self, region: &Region, saved: &Self::Saved) -> Result<()>;

    /// Runs a closure once and measures it. Its work has finished when this returns, also with an error; after a panic
    /// of the closure at the latest when the next [`restore`](Self::restore) returns.
    ///
    /// # Errors
    /// Those of the closure and of the measurement; the measured candidate is then excluded.
    fn time(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<Duration>;
}

/// The host's memory, also managed memory, and the host's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostMemory;

/// The contents of a region that [`HostMemory`] has saved.
#[derive(Debug)]
pub struct HostSaved {
    pub(super) of: NotedRegion,
    pub(super) bytes: Vec<u8>,
}

/// The elements of a buffer that a candidate may write, as blocks of bytes at regular distances.
///
/// The caller of [`Autotuner::run`](crate::Autotuner::run) vouches for it: while a [`TuningMemory`] has one, its bytes
/// may be read and written.
// Not Clone: nobody may vouch for its bytes later.
#[derive(Debug, PartialEq, Eq)]
pub struct Region {
    space: MemorySpace,
    start: Word,
    block: usize,
    /// Counts and distances in bytes, the smallest distance first.
    dimensions: ArrayVec<(usize, usize), MAX_RANK>,
}

/// The identity of a region, for comparison.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotedRegion(MemorySpace, usize, usize, ArrayVec<(usize, usize), MAX_RANK>);

impl Region {
    /// Returns the regions that a kernel with one of these signatures may write, after the checks of the arguments.
    /// Only for `Autotuner::run`.
    pub(super) fn written<'s>(
        signatures: impl Iterator<Item = &'s KernelSignature> + Clone,
        arguments: &[Argument<'_>],
    ) -> Vec<Self> {
        let mut regions = Vec::new();
        for (index, argument) in arguments.iter().enumerate() {
            let mut buffers = signatures.clone().filter_map(|signature| signature.inner.buffer(index));
            if let Value::Buffer(view) = &argument.0
                && buffers.any(|buffer| buffer.access.writes())
                && !view.extents().contains(&0)
            {
                let elements = view.elements();
                let region = Self::of(view.space, view.pointer, elements.size, elements.dimensions);
                if !regions.contains(&region) {
                    regions.push(region);
                }
            }
        }
        regions
    }

    fn of(space: MemorySpace, start: Word, size: u64, mut dimensions: ArrayVec<(u64, u64), MAX_RANK>) -> Self {
        dimensions.retain(|(_, step)| *step != 0);
        dimensions.sort_unstable_by_key(|(_, step)| *step);
        let mut region = Self { space, start, block: size as usize, dimensions: ArrayVec::new() };
        for (count, step) in dimensions {
            let (count, step) = (count as usize, step as usize);
            if region.dimensions.is_empty() && step == region.block {
                region.block *= count;
            } else {
                region.dimensions.push((count, step));
            }
        }
        region
    }

    pub(crate) fn refused(&self, problem: &str) -> Error {
        Error::Kernel(KernelError::TuningMemory { space: self.space, bytes: self.bytes(), problem: problem.to_owned() })
    }

    /// Returns its identity.
    pub(crate) fn noted(&self) -> NotedRegion {
        NotedRegion(self.space, self.start.addr(), self.block, self.dimensions.clone())
    }

    /// Returns its memory space.
    pub fn space(&self) -> MemorySpace {
        self.space
    }

    /// Returns the bytes of one block.
    pub fn block_bytes(&self) -> usize {
        self.block
    }

    /// Returns the number of blocks in each dimension and their distance in bytes, the smallest distance first; empty
    /// for a single block.
    pub fn dimensions(&self) -> &[(usize, usize)] {
        &self.dimensions
    }

    /// Returns the bytes of all blocks. A byte in two blocks counts twice.
    pub fn bytes(&self) -> usize {
        self.count().saturating_mul(self.block)
    }

    fn count(&self) -> usize {
        self.dimensions.iter().fold(1, |count: usize, (extent, _)| count.saturating_mul(*extent))
    }

    /// Returns the start of each block.
    pub fn blocks(&self) -> impl Iterator<Item = *mut u8> {
        (0..self.count()).map(|block| {
            let steps = self.dimensions.iter().scan(block, |rest, (extent, step)| {
                let place = *rest % extent;
                *rest /= extent;
                Some(place * step)
            });
            self.start.cast::<u8>().wrapping_add(steps.sum())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BufferView;

    fn region(view: BufferView<'_>) -> Region {
        let elements = view.elements();
        Region::of(view.space, view.pointer, elements.size, elements.dimensions)
    }

    fn offsets(region: &Region) -> Vec<usize> {
        region.blocks().map(|block| block.addr() - region.start.addr()).collect()
    }

    #[test]
    fn what_is_contiguous_is_one_block() {
        let memory = [0u16; 64];
        let whole = region(BufferView::of(&memory).shape(&[4, 4, 4]));
        assert_eq!((whole.block_bytes(), offsets(&whole)), (128, vec![0]));
        // The transposed view has the same bytes.
        assert_eq!(region(BufferView::of(&memory).shape(&[8, 8]).strides(&[1, 8])), whole);
    }

    #[test]
    fn gaps_are_in_no_block() {
        let memory = [0u16; 64];
        let halves = region(BufferView::of(&memory).shape(&[3, 4]).strides(&[8, 1]));
        assert_eq!((halves.block_bytes(), offsets(&halves), halves.bytes()), (8, vec![0, 16, 32], 24));
        let columns = region(BufferView::of(&memory).shape(&[2, 3]).strides(&[8, 2]));
        assert_eq!((columns.block_bytes(), offsets(&columns)), (2, vec![0, 4, 8, 16, 20, 24]));
        // One element, repeated.
        let repeated = region(BufferView::of(&memory).shape(&[5]).strides(&[0]));
        assert_eq!((repeated.block_bytes(), offsets(&repeated)), (2, vec![0]));
    }
}
