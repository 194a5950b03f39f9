//! Arguments of a kernel: buffers and scalars.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

use super::element::{Element, ElementType, Scalar, ScalarType, Word};

/// The memory that an address belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemorySpace {
    /// This process's memory.
    Host,
    /// A device's memory, by the device's ordinal. Buffers of different spaces share no memory, whatever their
    /// addresses. Memory with two addresses (host memory mapped for a device at another address, one physical page
    /// mapped twice) is not recognised as the same.
    Device(u32),
    /// Memory that the host and devices see under one address (`cudaMallocManaged`). It may share memory with a buffer
    /// of any space.
    Managed,
}

impl MemorySpace {
    /// Returns whether equal addresses in both spaces may be the same memory.
    pub(super) fn meets(self, other: Self) -> bool {
        self == other || self == Self::Managed || other == Self::Managed
    }
}

impl fmt::Display for MemorySpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host memory"),
            Self::Device(ordinal) => write!(f, "memory of device {ordinal}"),
            Self::Managed => f.write_str("managed memory"),
        }
    }
}

/// One argument of a kernel: a buffer, or a scalar.
///
/// It can be made from every [`Scalar`] and every [`BufferView`] (`3i64.into()`, `view.into()`).
#[derive(Clone, Copy)]
pub struct Argument<'a>(pub(super) Value<'a>);

#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Buffer(BufferView<'a>),
    Scalar(ScalarType, Word),
    Extent,
}

impl<'a> Argument<'a> {
    /// Makes a read-only buffer of one dimension. [`BufferView::of`] has more dimensions.
    pub fn slice<T: Element>(elements: &'a [T]) -> Self {
        BufferView::of(elements).into()
    }

    /// Makes a buffer of one dimension.
    pub fn slice_mut<T: Element>(elements: &'a mut [T]) -> Self {
        BufferView::of_mut(elements).into()
    }

    /// Leaves the value of an [extent scalar](crate::KernelSignatureBuilder::extent_scalar) to the call, which takes it
    /// from the buffers.
    pub fn extent() -> Self {
        Self(Value::Extent)
    }

    /// Makes a pointer that is no buffer of the contract ([`ScalarType::Pointer`]).
    pub fn pointer(pointer: *const c_void) -> Self {
        Self(Value::Scalar(ScalarType::Pointer, pointer.cast_mut().cast()))
    }
}

impl<T: Scalar> From<T> for Argument<'_> {
    fn from(value: T) -> Self {
        Self(Value::Scalar(T::TYPE, value.to_word()))
    }
}

impl<'a> From<BufferView<'a>> for Argument<'a> {
    fn from(view: BufferView<'a>) -> Self {
        Self(Value::Buffer(view))
    }
}

impl fmt::Debug for Argument<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::Buffer(view) => view.fmt(f),
            Value::Scalar(kind, word) => write!(f, "{kind}({:#x})", word.addr()),
            Value::Extent => f.write_str("an extent"),
        }
    }
}

/// A view of elements in memory, with their layout.
///
/// Shape and strides are in elements, outermost dimension first. Without strides the view is contiguous, and the last
/// dimension is the densest. A call checks the view; these methods do not.
///
/// ```
/// use slabjit::BufferView;
///
/// let matrix = [0.0f32; 4 * 8];
/// let even_columns = BufferView::of(&matrix).shape(&[4, 4]).strides(&[8, 2]);
/// let odd_columns = BufferView::of(&matrix[1..]).shape(&[4, 4]).strides(&[8, 2]);
/// # let _ = (even_columns, odd_columns);
/// ```
#[derive(Clone, Copy)]
pub struct BufferView<'a> {
    pub(super) pointer: *mut (),
    pub(super) space: MemorySpace,
    pub(super) element: ElementType,
    /// The only extent, if `shape` has none.
    len: usize,
    shape: Option<&'a [usize]>,
    pub(super) strides: Option<&'a [isize]>,
    /// The size of the memory in bytes, if known.
    pub(super) bytes: usize,
    pub(super) writable: bool,
    borrow: PhantomData<&'a ()>,
}

impl<'a> BufferView<'a> {
    /// Views all of a slice, read-only.
    pub fn of<T: Element>(elements: &'a [T]) -> Self {
        Self::of_slice(elements.as_ptr().cast_mut(), elements.len(), false)
    }

    /// Views all of a slice.
    pub fn of_mut<T: Element>(elements: &'a mut [T]) -> Self {
        Self::of_slice(elements.as_mut_ptr(), elements.len(), true)
    }

    fn of_slice<T: Element>(pointer: *mut T, len: usize, writable: bool) -> Self {
        let view = Self::raw(pointer.cast(), T::TYPE, &[]);
        Self { len, shape: None, bytes: len * size_of::<T>(), writable, ..view }
    }

    /// Views elements at a host pointer; the caller of the kernel vouches for it.
    pub fn raw(pointer: *mut c_void, element: ElementType, shape: &'a [usize]) -> Self {
        Self {
            pointer: pointer.cast(),
            space: MemorySpace::Host,
            element,
            len: 0,
            shape: Some(shape),
            strides: None,
            bytes: usize::MAX,
            writable: true,
            borrow: PhantomData,
        }
    }

    /// Views elements at a device address (a `CUdeviceptr`); the caller of the kernel vouches for it.
    pub fn on_device(address: u64, ordinal: u32, element: ElementType, shape: &'a [usize]) -> Self {
        let view = Self::raw(std::ptr::with_exposed_provenance_mut(address as usize), element, shape);
        view.space(MemorySpace::Device(ordinal))
    }

    /// Sets the memory space.
    pub fn space(self, space: MemorySpace) -> Self {
        Self { space, ..self }
    }

    /// Sets the shape. A call refuses a shape that exceeds the slice.
    pub fn shape(self, shape: &'a [usize]) -> Self {
        Self { shape: Some(shape), ..self }
    }

    /// Sets the strides, one for each dimension.
    pub fn strides(self, strides: &'a [isize]) -> Self {
        Self { strides: Some(strides), ..self }
    }

    /// Sets another element type for the same bytes: [`ElementType::BF16`] for a slice of `u16`, for example.
    pub fn element(self, element: ElementType) -> Self {
        Self { element, ..self }
    }

    /// Makes the view read-only.
    pub fn read_only(self) -> Self {
        Self { writable: false, ..self }
    }

    /// Returns the extents.
    pub(super) fn extents(&self) -> &[usize] {
        self.shape.unwrap_or(std::slice::from_ref(&self.len))
    }
}

impl fmt::Debug for BufferView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} at {:p} in {}", self.element, self.extents(), self.pointer, self.space)?;
        self.strides.map_or(Ok(()), |strides| write!(f, ", strides {strides:?}"))
    }
}
