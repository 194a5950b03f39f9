//! What a tuner saves, where it lies, and how long a run takes.

use std::time::Duration;

use arrayvec::ArrayVec;

use super::argument::{Argument, MemorySpace, Value};
use super::element::Word;
use super::signature::KernelSignature;
use super::span::MAX_RANK;
use crate::{Error, Result};

/// How an [`Autotuner`](crate::Autotuner) saves and restores memory, and measures. [`HostMemory`] does so for the host's; for a device's,
/// implement it with the device's copies and events.
pub trait TuningMemory: Send + Sync {
    /// What was in a region.
    type Saved;

    /// Copies what is in a region.
    ///
    /// # Errors
    /// [`Error::TuningMemory`](crate::Error::TuningMemory) or another, which ends the tuning.
    fn save(&self, region: &Region) -> Result<Self::Saved>;

    /// Copies it back: behind everything that was started before, and before this returns or at least before anything that is started
    /// later. What was saved is of an equal region.
    ///
    /// # Errors
    /// As for [`save`](Self::save).
    fn restore(&self, region: &Region, saved: &Self::Saved) -> Result<()>;

    /// Runs something once, and says how long that took. What it has started is finished when this returns, also with an error; or, as
    /// after a panic of what is run, when the next [`restore`](Self::restore) does.
    ///
    /// # Errors
    /// Those of what is run, and of measuring it. The candidate that is being measured is out then.
    fn time(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<Duration>;
}

/// The host's memory, also managed memory, and the host's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostMemory;

/// What [`HostMemory`] has saved of a region.
#[derive(Debug)]
pub struct HostSaved {
    pub(super) of: NotedRegion,
    pub(super) bytes: Vec<u8>,
}

/// The elements of a buffer that a candidate may write, as blocks of bytes at regular distances.
///
/// Whoever calls [`Autotuner::run`](crate::Autotuner::run) vouches for it: while a [`TuningMemory`] is given one, its bytes may be read and written.
// Not Clone: nobody may vouch for its bytes later.
#[derive(Debug, PartialEq, Eq)]
pub struct Region {
    space: MemorySpace,
    start: Word,
    block: usize,
    /// How many there are, and at which distance in bytes, the nearest first.
    dimensions: ArrayVec<(usize, usize), MAX_RANK>,
}

/// Which region it was, to be compared with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotedRegion(MemorySpace, usize, usize, ArrayVec<(usize, usize), MAX_RANK>);

impl Region {
    /// Of all buffers that a kernel with one of these signatures writes, which the arguments have passed. Only for `Autotuner::run`.
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
        Error::TuningMemory { space: self.space, bytes: self.bytes(), problem: problem.to_owned() }
    }

    /// Which one it is, for later.
    pub(crate) fn noted(&self) -> NotedRegion {
        NotedRegion(self.space, self.start.addr(), self.block, self.dimensions.clone())
    }

    /// Where it is.
    pub fn space(&self) -> MemorySpace {
        self.space
    }

    /// Bytes of one block.
    pub fn block_bytes(&self) -> usize {
        self.block
    }

    /// How many blocks there are along each dimension, and how far apart in bytes; those that are nearest first. None if there is one block.
    pub fn dimensions(&self) -> &[(usize, usize)] {
        &self.dimensions
    }

    /// Bytes of all blocks. A byte that is in two of them counts twice.
    pub fn bytes(&self) -> usize {
        self.count().saturating_mul(self.block)
    }

    fn count(&self) -> usize {
        self.dimensions.iter().fold(1, |count: usize, (extent, _)| count.saturating_mul(*extent))
    }

    /// Where each block begins.
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
        // Transposed, it is the same bytes.
        assert_eq!(region(BufferView::of(&memory).shape(&[8, 8]).strides(&[1, 8])), whole);
    }

    #[test]
    fn gaps_are_in_no_block() {
        let memory = [0u16; 64];
        let halves = region(BufferView::of(&memory).shape(&[3, 4]).strides(&[8, 1]));
        assert_eq!((halves.block_bytes(), offsets(&halves), halves.bytes()), (8, vec![0, 16, 32], 24));
        let columns = region(BufferView::of(&memory).shape(&[2, 3]).strides(&[8, 2]));
        assert_eq!((columns.block_bytes(), offsets(&columns)), (2, vec![0, 4, 8, 16, 20, 24]));
        // One element, seen many times.
        let repeated = region(BufferView::of(&memory).shape(&[5]).strides(&[0]));
        assert_eq!((repeated.block_bytes(), offsets(&repeated)), (2, vec![0]));
    }
}
