//! Views of tensors: elements in memory with shape and strides.

use candle_core::Layout;
use slabjit::{Argument, BufferView, ElementType};

use crate::storage::Elements;

/// A tensor's elements. Whoever makes it keeps the storage borrowed while it is used.
#[derive(Debug, Clone)]
pub(crate) struct View {
    start: *mut u8,
    element: ElementType,
    pub shape: Vec<usize>,
    strides: Vec<isize>,
}

// SAFETY: a view is an address; whoever uses it vouches for the elements (`Call::run`).
unsafe impl Sync for View {}

impl View {
    /// Views a tensor; `None` if its layout leads out of the storage.
    pub fn new(elements: Elements, layout: &Layout) -> Option<Self> {
        let (shape, strides) = (layout.dims(), layout.stride());
        let last = shape.iter().zip(strides).try_fold(layout.start_offset(), |at, (extent, stride)| {
            at.checked_add(extent.saturating_sub(1).checked_mul(*stride)?)
        })?;
        if !shape.contains(&0) && last >= elements.len {
            return None;
        }
        let start = elements.start.wrapping_add(layout.start_offset() * elements.element.size());
        let strides = strides.iter().map(|stride| isize::try_from(*stride).ok()).collect::<Option<_>>()?;
        Some(Self { start, element: elements.element, shape: shape.to_vec(), strides })
    }

    /// Makes memory for a call, and a view of it; `None` if it is too large.
    pub fn scratch(element: ElementType, alignment: usize, shape: Vec<usize>) -> Option<(Vec<u8>, Self)> {
        let len = shape.iter().try_fold(element.size(), |len, extent| len.checked_mul(*extent))?;
        let mut memory = Vec::new();
        memory.try_reserve_exact(len.checked_add(alignment)?).ok()?;
        memory.resize(len + alignment, 0_u8);
        let start = memory.as_mut_ptr();
        let start = start.wrapping_add(start.align_offset(alignment));
        let strides = Layout::contiguous(shape.as_slice()).stride().iter().map(|stride| *stride as isize).collect();
        Some((memory, Self { start, element, shape, strides }))
    }

    /// Returns whether several elements may lie at one address: whether a step of a dimension does not lead beyond all
    /// elements of the dimensions with smaller steps.
    pub fn repeats(&self) -> bool {
        let dimensions = self.shape.iter().zip(&self.strides).filter(|(extent, _)| **extent > 1);
        let mut dimensions: Vec<_> = dimensions.map(|(extent, stride)| (*stride, *extent)).collect();
        dimensions.sort_unstable();
        let mut last = 0;
        dimensions.into_iter().any(|(stride, extent)| {
            let meets = stride <= last;
            last += stride * (extent as isize - 1);
            meets
        })
    }

    /// Returns `len` rows from `first` on, of which there are as many.
    pub fn rows(&self, first: usize, len: usize) -> Self {
        let mut rows = self.clone();
        if let (Some(extent), Some(stride)) = (rows.shape.first_mut(), rows.strides.first()) {
            *extent = len;
            rows.start = rows.start.wrapping_offset(stride * first as isize * rows.element.size() as isize);
        }
        rows
    }

    pub fn argument(&self) -> Argument<'_> {
        BufferView::raw(self.start.cast(), self.element, &self.shape).strides(&self.strides).into()
    }
}
