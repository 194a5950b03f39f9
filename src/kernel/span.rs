//! The range of a buffer's bytes.

use arrayvec::ArrayVec;

use super::argument::{BufferView, MemorySpace};

/// The largest number of a buffer's dimensions.
pub(super) const MAX_RANK: usize = 16;

pub(super) type Extents = ArrayVec<usize, MAX_RANK>;

/// The end of the address space. Higher bits of a host pointer are a tag (AArch64's top-byte-ignore, x86-64's linear
/// address masking) and not part of the address.
const END: u64 = 1 << 56;

/// The range from the first byte of a buffer to the last, which may have gaps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub start: u64,
    pub end: u64,
    pub space: MemorySpace,
    pub written: bool,
    /// The argument's position.
    pub argument: u8,
}

impl Span {
    /// Returns the span of a view that is not empty and takes `bytes` bytes; `None` if it exceeds the address space.
    pub(super) fn of(view: &BufferView<'_>, bytes: u64, written: bool, argument: u8) -> Option<Self> {
        let start = address(view.pointer);
        let end = start.checked_add(bytes).filter(|end| *end <= END)?;
        Some(Self { start, end, space: view.space, written, argument })
    }
}

/// Returns a pointer's address.
pub(super) fn address(pointer: *mut ()) -> u64 {
    pointer.addr() as u64 & (END - 1)
}

/// Returns the number of bytes from the first to the last of a buffer that is not empty; `None` if no address space has
/// as many. Strides are not negative, one for each extent; without them the buffer is contiguous.
pub(super) fn bytes(shape: &[usize], strides: Option<&[isize]>, size: usize) -> Option<u64> {
    let elements = match strides {
        None => shape.iter().try_fold(1usize, |count, extent| count.checked_mul(*extent))?,
        Some(strides) => {
            let mut last = 0usize;
            for (extent, stride) in shape.iter().zip(strides) {
                last = last.checked_add((extent - 1).checked_mul(stride.unsigned_abs())?)?;
            }
            last.checked_add(1)?
        }
    };
    elements.checked_mul(size).map(|bytes| bytes as u64).filter(|bytes| *bytes <= END)
}

/// Returns the strides of a contiguous buffer. The products fit, as [`bytes`] has checked.
pub(super) fn contiguous(shape: &[usize]) -> ArrayVec<isize, MAX_RANK> {
    let mut strides: ArrayVec<isize, MAX_RANK> = shape.iter().map(|_| 1).collect();
    for dimension in (1..shape.len()).rev() {
        strides[dimension - 1] = strides[dimension].saturating_mul(shape[dimension] as isize);
    }
    strides
}

/// Returns whether two lists of strides lead to the same elements: dimensions with one element do not count.
pub(super) fn same_strides(shape: &[usize], one: &[isize], other: &[isize]) -> bool {
    shape.iter().zip(one.iter().zip(other)).all(|(extent, (one, other))| *extent == 1 || one == other)
}
