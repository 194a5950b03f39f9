//! Tensors as arguments: views of borrowed memory.
#![allow(unsafe_code, reason = "an unsafe fn, and what DLPack's pointers lead to")]

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

use super::Any;
use crate::tvm_ffi::abi::{DLDataType, DLDevice, DLTensor, TVMFFIAnyValue, TypeIndex};
use crate::tvm_ffi::dlpack::DlpackElement;
use crate::{Error, Result, TvmFfiError};

/// Shape and strides of tensors, in elements, after checks: nothing is negative, and the extent is addressable.
/// Creation allocates; a layout serves any number of tensors.
///
/// A shape with a 0 stands for a tensor without elements. Strides may be 0, and elements may overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The shape, then the strides.
    both: Box<[i64]>,
    /// Elements from the first to the last, both included.
    reach: i64,
}

impl Layout {
    /// Creates a layout without gaps, the last dimension first.
    ///
    /// # Errors
    /// [`TvmFfiError::TensorExtent`](crate::TvmFfiError::TensorExtent),
    /// [`TvmFfiError::TensorOverflow`](crate::TvmFfiError::TensorOverflow).
    pub fn contiguous(shape: &[i64]) -> Result<Self> {
        check_extents(shape)?;
        let mut both = [shape, shape].concat();
        let (_, strides) = both.split_at_mut(shape.len());
        let mut stride = 1_i64;
        for (place, extent) in strides.iter_mut().zip(shape).rev() {
            *place = stride;
            // An empty tensor gets the strides for 1 in place of 0.
            stride = stride.checked_mul((*extent).max(1)).ok_or_else(|| overflow(shape, &[]))?;
        }
        let reach = reach(shape, strides)?;
        Ok(Self { both: both.into(), reach })
    }

    /// Creates a layout with strides.
    ///
    /// # Errors
    /// [`TvmFfiError::TensorRank`](crate::TvmFfiError::TensorRank),
    /// [`TvmFfiError::TensorExtent`](crate::TvmFfiError::TensorExtent),
    /// [`TvmFfiError::TensorStride`](crate::TvmFfiError::TensorStride),
    /// [`TvmFfiError::TensorOverflow`](crate::TvmFfiError::TensorOverflow).
    pub fn strided(shape: &[i64], strides: &[i64]) -> Result<Self> {
        Ok(Self { reach: reach(shape, strides)?, both: [shape, strides].concat().into() })
    }

    /// Returns the number of elements in each dimension.
    pub fn shape(&self) -> &[i64] {
        &self.both[..self.both.len() / 2]
    }

    /// Returns the elements from one to the next in each dimension.
    pub fn strides(&self) -> &[i64] {
        &self.both[self.both.len() / 2..]
    }
}

fn check_extents(shape: &[i64]) -> Result<()> {
    match shape.iter().position(|extent| *extent < 0) {
        Some(dimension) => Err(Error::TvmFfi(TvmFfiError::TensorExtent { shape: shape.to_vec(), dimension })),
        None => Ok(()),
    }
}

fn overflow(shape: &[i64], strides: &[i64]) -> Error {
    Error::TvmFfi(TvmFfiError::TensorOverflow { shape: shape.to_vec(), strides: strides.to_vec() })
}

/// Checks a layout, and returns the number of elements from the first to the last.
fn reach(shape: &[i64], strides: &[i64]) -> Result<i64> {
    if shape.len() != strides.len() || i32::try_from(shape.len()).is_err() {
        return Err(Error::TvmFfi(TvmFfiError::TensorRank { shape: shape.to_vec(), strides: strides.to_vec() }));
    }
    check_extents(shape)?;
    if let Some(dimension) = strides.iter().position(|stride| *stride < 0) {
        return Err(Error::TvmFfi(TvmFfiError::TensorStride { strides: strides.to_vec(), dimension }));
    }
    if shape.contains(&0) {
        return Ok(0);
    }
    let last = shape.iter().zip(strides).try_fold(0_i64, |last, (extent, stride)| {
        // The total number is checked too, as kernels multiply.
        last.checked_add((extent - 1).checked_mul(*stride)?)
    });
    let count = shape.iter().try_fold(1_i64, |count, extent| count.checked_mul(*extent));
    count.and(last).and_then(|last| last.checked_add(1)).ok_or_else(|| overflow(shape, strides))
}

/// A view of memory as a tensor, passed to a function as `DLTensor*`, valid during the call.
///
/// The element types are those with dlpark's [`DlpackElement`]; its feature `half` adds `f16` and `bf16`.
#[derive(Clone)]
pub struct Tensor<'a> {
    raw: DLTensor,
    borrowed: PhantomData<&'a ()>,
}

impl<'a> Tensor<'a> {
    /// Views a slice of the host's, for functions that only read it.
    ///
    /// # Errors
    /// [`TvmFfiError::TensorOutOfBounds`](crate::TvmFfiError::TensorOutOfBounds).
    pub fn from_slice<T: DlpackElement>(data: &'a [T], layout: &'a Layout) -> Result<Self> {
        let first = data.as_ptr().cast_mut();
        Self::of_host(first, data.len(), layout)
    }

    /// Views a slice of the host's that a function may write to.
    ///
    /// # Errors
    /// [`TvmFfiError::TensorOutOfBounds`](crate::TvmFfiError::TensorOutOfBounds).
    pub fn from_slice_mut<T: DlpackElement>(data: &'a mut [T], layout: &'a Layout) -> Result<Self> {
        Self::of_host(data.as_mut_ptr(), data.len(), layout)
    }

    fn of_host<T: DlpackElement>(data: *mut T, elements: usize, layout: &'a Layout) -> Result<Self> {
        match usize::try_from(layout.reach) {
            Ok(reach) if reach <= elements => Ok(Self::new(data.cast(), T::DTYPE, DLDevice::CPU, layout)),
            _ => Err(Error::TvmFfi(TvmFfiError::TensorOutOfBounds { needed: layout.reach, elements })),
        }
    }

    /// Views memory of any kind, for example on a device, from a pointer to its first element.
    ///
    /// # Errors
    /// [`TvmFfiError::TensorNull`](crate::TvmFfiError::TensorNull);
    /// [`TvmFfiError::TensorMisaligned`](crate::TvmFfiError::TensorMisaligned) if the pointer is not a multiple of an
    /// element's size, of one lane; [`TvmFfiError::TensorOverflow`](crate::TvmFfiError::TensorOverflow) if it does not
    /// end within the address space.
    pub fn from_raw(data: *mut c_void, dtype: DLDataType, device: DLDevice, layout: &'a Layout) -> Result<Self> {
        check_memory(data, 0, dtype, layout.shape(), layout.strides())?;
        Ok(Self::new(data, dtype, device, layout))
    }

    /// Views another library's tensor.
    ///
    /// # Errors
    /// As for [`from_raw`](Self::from_raw) and [`Layout::strided`]; missing strides (which before DLPack 1.2 meant no
    /// gaps) are [`TvmFfiError::TensorRank`](crate::TvmFfiError::TensorRank).
    ///
    /// # Safety
    /// Its shape and strides, unless null, live while it is borrowed.
    pub unsafe fn from_dlpack(tensor: &'a DLTensor) -> Result<Self> {
        let rank = usize::try_from(tensor.ndim).unwrap_or(0);
        let dimensions = |first: *const i64| match first.is_null() {
            true => &[][..],
            // SAFETY: by the caller's contract.
            false => unsafe { std::slice::from_raw_parts(first, rank) },
        };
        let (shape, strides) = (dimensions(tensor.shape), dimensions(tensor.strides));
        if shape.len() != rank || tensor.ndim < 0 {
            return Err(Error::TvmFfi(TvmFfiError::TensorRank { shape: shape.to_vec(), strides: strides.to_vec() }));
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

    /// Returns the record.
    pub fn as_raw(&self) -> &DLTensor {
        &self.raw
    }
}

/// Checks that the elements have memory.
fn check_memory(data: *mut c_void, offset: u64, dtype: DLDataType, shape: &[i64], strides: &[i64]) -> Result<()> {
    let reach = reach(shape, strides)?;
    let bits = u64::from(dtype.bits) * u64::from(dtype.lanes);
    // Elements smaller than a byte are packed.
    let bytes = u64::try_from(reach).ok().and_then(|reach| reach.checked_mul(bits)).map(|bits| bits.div_ceil(8));
    let first = (data.addr() as u64).checked_add(offset);
    let end = first.zip(bytes).and_then(|(first, bytes)| first.checked_add(bytes));
    let (Some(first), Some(bytes), Some(_)) = (first, bytes, end) else { return Err(overflow(shape, strides)) };
    if bytes == 0 {
        return Ok(());
    }
    if data.is_null() {
        return Err(Error::TvmFfi(TvmFfiError::TensorNull { bytes }));
    }
    let alignment = u64::from(dtype.bits / 8).max(1);
    if alignment.is_power_of_two() && !first.is_multiple_of(alignment) {
        return Err(Error::TvmFfi(TvmFfiError::TensorMisaligned { address: first, alignment }));
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
        // SAFETY: the tensor is borrowed as long as the value.
        unsafe { Self::new(TypeIndex::DL_TENSOR_PTR, TVMFFIAnyValue { v_ptr }) }
    }
}
