//! Tensors as arguments: views of memory that is somebody's.
#![allow(unsafe_code)] // an unsafe fn, and what DLPack's pointers lead to

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

use dlpark::DlpackElement;

use super::Any;
use super::abi::{DLDataType, DLDevice, DLTensor, TVMFFIAnyValue, TypeIndex};
use crate::{Error, Result};

/// Shape and strides of tensors, in elements, checked: nothing is negative, and what they reach can be addressed. Making one allocates;
/// it serves any number of tensors.
///
/// A shape with a 0 is that of a tensor without elements. Strides may be 0, and may have elements overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The shape, then the strides.
    both: Box<[i64]>,
    /// Elements from the first to the last, both included.
    reach: i64,
}

impl Layout {
    /// Without gaps, the last dimension first.
    ///
    /// # Errors
    /// [`Error::TensorExtent`], [`Error::TensorOverflow`].
    pub fn contiguous(shape: &[i64]) -> Result<Self> {
        check_extents(shape)?;
        let mut both = [shape, shape].concat();
        let (_, strides) = both.split_at_mut(shape.len());
        let mut stride = 1_i64;
        for (place, extent) in strides.iter_mut().zip(shape).rev() {
            *place = stride;
            // Of an empty tensor, they are those of one with 1 in place of 0.
            stride = stride.checked_mul((*extent).max(1)).ok_or_else(|| overflow(shape, &[]))?;
        }
        let reach = reach(shape, strides)?;
        Ok(Self { both: both.into(), reach })
    }

    /// With strides.
    ///
    /// # Errors
    /// [`Error::TensorRank`], [`Error::TensorExtent`], [`Error::TensorStride`], [`Error::TensorOverflow`].
    pub fn strided(shape: &[i64], strides: &[i64]) -> Result<Self> {
        Ok(Self { reach: reach(shape, strides)?, both: [shape, strides].concat().into() })
    }

    /// Elements in each dimension.
    pub fn shape(&self) -> &[i64] {
        &self.both[..self.both.len() / 2]
    }

    /// Elements from one to the next in each dimension.
    pub fn strides(&self) -> &[i64] {
        &self.both[self.both.len() / 2..]
    }
}

fn check_extents(shape: &[i64]) -> Result<()> {
    match shape.iter().position(|extent| *extent < 0) {
        Some(dimension) => Err(Error::TensorExtent { shape: shape.to_vec(), dimension }),
        None => Ok(()),
    }
}

fn overflow(shape: &[i64], strides: &[i64]) -> Error {
    Error::TensorOverflow { shape: shape.to_vec(), strides: strides.to_vec() }
}

/// Elements from the first to the last, after all checks.
fn reach(shape: &[i64], strides: &[i64]) -> Result<i64> {
    if shape.len() != strides.len() || i32::try_from(shape.len()).is_err() {
        return Err(Error::TensorRank { shape: shape.to_vec(), strides: strides.to_vec() });
    }
    check_extents(shape)?;
    if let Some(dimension) = strides.iter().position(|stride| *stride < 0) {
        return Err(Error::TensorStride { strides: strides.to_vec(), dimension });
    }
    if shape.contains(&0) {
        return Ok(0);
    }
    let last = shape.iter().zip(strides).try_fold(0_i64, |last, (extent, stride)| {
        // How many there are, too: kernels multiply.
        last.checked_add((extent - 1).checked_mul(*stride)?)
    });
    let count = shape.iter().try_fold(1_i64, |count, extent| count.checked_mul(*extent));
    count.and(last).and_then(|last| last.checked_add(1)).ok_or_else(|| overflow(shape, strides))
}

/// A view of somebody's memory as a tensor, to be passed to a function: `DLTensor*`, valid during the call.
///
/// Element types are those that dlpark has a [`DlpackElement`] for; its feature `half` adds `f16` and `bf16`.
#[derive(Clone)]
pub struct Tensor<'a> {
    raw: DLTensor,
    borrowed: PhantomData<&'a ()>,
}

impl<'a> Tensor<'a> {
    /// Of a slice of the host's, for functions that only read it.
    ///
    /// # Errors
    /// [`Error::TensorOutOfBounds`].
    pub fn from_slice<T: DlpackElement>(data: &'a [T], layout: &'a Layout) -> Result<Self> {
        let first = data.as_ptr().cast_mut();
        Self::of_host(first, data.len(), layout)
    }

    /// Of a slice of the host's that a function may write to.
    ///
    /// # Errors
    /// [`Error::TensorOutOfBounds`].
    pub fn from_slice_mut<T: DlpackElement>(data: &'a mut [T], layout: &'a Layout) -> Result<Self> {
        Self::of_host(data.as_mut_ptr(), data.len(), layout)
    }

    fn of_host<T: DlpackElement>(data: *mut T, elements: usize, layout: &'a Layout) -> Result<Self> {
        match usize::try_from(layout.reach) {
            Ok(reach) if reach <= elements => Ok(Self::new(data.cast(), T::DTYPE, DLDevice::CPU, layout)),
            _ => Err(Error::TensorOutOfBounds { needed: layout.reach, elements }),
        }
    }

    /// Of memory anywhere, on a device for example, from a pointer to its first element.
    ///
    /// # Errors
    /// [`Error::TensorNull`]; [`Error::TensorMisaligned`] if the pointer is not a multiple of an element's size, of one lane;
    /// [`Error::TensorOverflow`] if it does not end within the address space.
    pub fn from_raw(data: *mut c_void, dtype: DLDataType, device: DLDevice, layout: &'a Layout) -> Result<Self> {
        check_memory(data, 0, dtype, layout.shape(), layout.strides())?;
        Ok(Self::new(data, dtype, device, layout))
    }

    /// Of another library's.
    ///
    /// # Errors
    /// As for [`from_raw`](Self::from_raw) and [`Layout::strided`]; strides that are missing (before DLPack 1.2 that meant that there are no
    /// gaps) are [`Error::TensorRank`].
    ///
    /// # Safety
    /// Its shape and strides, unless they are null, are there as long as it is borrowed.
    pub unsafe fn from_dlpack(tensor: &'a DLTensor) -> Result<Self> {
        let rank = usize::try_from(tensor.ndim).unwrap_or(0);
        let dimensions = |first: *const i64| match first.is_null() {
            true => &[][..],
            // SAFETY: by the caller.
            false => unsafe { std::slice::from_raw_parts(first, rank) },
        };
        let (shape, strides) = (dimensions(tensor.shape), dimensions(tensor.strides));
        if shape.len() != rank || tensor.ndim < 0 {
            return Err(Error::TensorRank { shape: shape.to_vec(), strides: strides.to_vec() });
        }
        check_memory(tensor.data, tensor.byte_offset, tensor.dtype, shape, strides)?;
        Ok(Self { raw: *tensor, borrowed: PhantomData })
    }

    fn new(data: *mut c_void, dtype: DLDataType, device: DLDevice, layout: &'a Layout) -> Self {
        let raw = DLTensor {
            data,
            device,
            ndim: layout.shape().len() as i32,
            dtype,
            shape: layout.shape().as_ptr().cast_mut(),
            strides: layout.strides().as_ptr().cast_mut(),
            byte_offset: 0,
        };
        Self { raw, borrowed: PhantomData }
    }

    /// The record.
    pub fn as_raw(&self) -> &DLTensor {
        &self.raw
    }
}

/// Whether the elements are somewhere.
fn check_memory(data: *mut c_void, offset: u64, dtype: DLDataType, shape: &[i64], strides: &[i64]) -> Result<()> {
    let reach = reach(shape, strides)?;
    let bits = u64::from(dtype.bits) * u64::from(dtype.lanes);
    // Elements of less than a byte are packed.
    let bytes = u64::try_from(reach).ok().and_then(|reach| reach.checked_mul(bits)).map(|bits| bits.div_ceil(8));
    let first = (data.addr() as u64).checked_add(offset);
    let end = first.zip(bytes).and_then(|(first, bytes)| first.checked_add(bytes));
    let (Some(first), Some(bytes), Some(_)) = (first, bytes, end) else { return Err(overflow(shape, strides)) };
    if bytes == 0 {
        return Ok(());
    }
    if data.is_null() {
        return Err(Error::TensorNull { bytes });
    }
    let alignment = u64::from(dtype.bits / 8).max(1);
    if alignment.is_power_of_two() && !first.is_multiple_of(alignment) {
        return Err(Error::TensorMisaligned { address: first, alignment });
    }
    Ok(())
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DLTensor { data, device, dtype, ndim, .. } = &self.raw;
        let mut all = f.debug_struct("Tensor");
        all.field("data", data)
            .field("device", device)
            .field("dtype", dtype)
            .field("ndim", ndim)
            .finish_non_exhaustive()
    }
}

impl<'a> From<&'a Tensor<'_>> for Any<'a> {
    #[inline]
    fn from(tensor: &'a Tensor<'_>) -> Self {
        let v_ptr = std::ptr::from_ref(tensor.as_raw()).cast_mut().cast();
        Self::new(TypeIndex::DL_TENSOR_PTR, TVMFFIAnyValue { v_ptr })
    }
}
