//! Which bytes a buffer takes.

use arrayvec::ArrayVec;

use super::argument::{BufferView, MemorySpace};

/// The most dimensions a buffer may have.
pub(super) const MAX_RANK: usize = 16;

pub(super) type Extents = ArrayVec<usize, MAX_RANK>;

/// Addresses are below this one. What is above it in a pointer is a tag of the host's (AArch64's top-byte-ignore, x86-64's linear address
/// masking), and no part of the address.
const END: u64 = 1 << 56;

/// From the first byte of a buffer to the last. There may be gaps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub start: u64,
    pub end: u64,
    pub space: MemorySpace,
    pub written: bool,
    /// Which argument it is.
    pub argument: u8,
}

impl Span {
    /// Of a view that is not empty, and takes so many bytes. Nothing if that leads beyond all addresses.
    pub fn of(view: &BufferView<'_>, bytes: u64, written: bool, argument: u8) -> Option<Self> {
        let start = address(view.pointer);
        let end = start.checked_add(bytes).filter(|end| *end <= END)?;
        Some(Self { start, end, space: view.space, written, argument })
    }
}

/// A pointer's address.
pub(super) fn address(pointer: *mut ()) -> u64 {
    pointer.addr() as u64 & (END - 1)
}

/// From the first byte of a buffer that is not empty to its last. Nothing if that is more than fits into any address space.
/// Strides are not negative, and one for each extent; without them it is contiguous.
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

/// The strides that a contiguous buffer has. The products fit, as [`bytes`] has found.
pub(super) fn contiguous(shape: &[usize]) -> ArrayVec<isize, MAX_RANK> {
    let mut strides: ArrayVec<isize, MAX_RANK> = shape.iter().map(|_| 1).collect();
    for dimension in (1..shape.len()).rev() {
        strides[dimension - 1] = strides[dimension].saturating_mul(shape[dimension] as isize);
    }
    strides
}

/// Whether strides lead to the same elements as others: those of dimensions with one element do not count.
pub(super) fn same_strides(shape: &[usize], one: &[isize], other: &[isize]) -> bool {
    shape.iter().zip(one.iter().zip(other)).all(|(extent, (one, other))| *extent == 1 || one == other)
}
