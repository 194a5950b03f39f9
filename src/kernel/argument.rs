//! What a kernel is called with.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

use super::element::{Element, ElementType, Scalar, ScalarType, Word};

/// Where memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemorySpace {
    /// This process's own.
    Host,
    /// That of a device, by its ordinal. Buffers of different spaces share no memory, whatever their addresses are; so memory that is seen
    /// under two addresses (host memory mapped for a device at another address, one physical page mapped twice) is not known to be the same.
    Device(u32),
    /// Seen by the host and by devices under one address (`cudaMallocManaged`). It may share memory with a buffer of any space.
    Managed,
}

impl MemorySpace {
    /// Whether an address of one may be the same memory as that address of the other.
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
/// Every [`Scalar`] and every [`BufferView`] is one (`3i64.into()`, `view.into()`).
#[derive(Clone, Copy)]
pub struct Argument<'a>(pub(super) Value<'a>);

#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Buffer(BufferView<'a>),
    Scalar(ScalarType, Word),
}

impl<'a> Argument<'a> {
    /// A buffer of one dimension, which is read only. [`BufferView::of`] has more dimensions.
    pub fn slice<T: Element>(elements: &'a [T]) -> Self {
        BufferView::of(elements).into()
    }

    /// A buffer of one dimension.
    pub fn slice_mut<T: Element>(elements: &'a mut [T]) -> Self {
        BufferView::of_mut(elements).into()
    }

    /// A pointer that leads to no buffer of the contract ([`ScalarType::Pointer`]).
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
        }
    }
}

/// Some elements in memory, and how they lie there.
///
/// Shape and strides are in elements, outermost dimension first; without strides the view is contiguous, the last dimension densest.
/// Nothing is checked here: a call does.
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
    /// The only extent, where `shape` has none.
    len: usize,
    shape: Option<&'a [usize]>,
    pub(super) strides: Option<&'a [isize]>,
    /// What there is, in bytes, where it is known.
    pub(super) bytes: usize,
    pub(super) writable: bool,
    borrow: PhantomData<&'a ()>,
}

impl<'a> BufferView<'a> {
    /// All of a slice, to be read only.
    pub fn of<T: Element>(elements: &'a [T]) -> Self {
        Self::of_slice(elements.as_ptr().cast_mut(), elements.len(), false)
    }

    /// All of a slice.
    pub fn of_mut<T: Element>(elements: &'a mut [T]) -> Self {
        Self::of_slice(elements.as_mut_ptr(), elements.len(), true)
    }

    fn of_slice<T: Element>(pointer: *mut T, len: usize, writable: bool) -> Self {
        let view = Self::raw(pointer.cast(), T::TYPE, &[]);
        Self { len, shape: None, bytes: len * size_of::<T>(), writable, ..view }
    }

    /// Elements at a pointer of the host's, which whoever calls a kernel with it vouches for.
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

    /// Elements at an address of a device's (a `CUdeviceptr`), which whoever calls a kernel with it vouches for.
    pub fn on_device(address: u64, ordinal: u32, element: ElementType, shape: &'a [usize]) -> Self {
        let view = Self::raw(std::ptr::with_exposed_provenance_mut(address as usize), element, shape);
        view.space(MemorySpace::Device(ordinal))
    }

    /// The same in another space.
    pub fn space(self, space: MemorySpace) -> Self {
        Self { space, ..self }
    }

    /// The same with another shape. What lies beyond a slice is an error of the call.
    pub fn shape(self, shape: &'a [usize]) -> Self {
        Self { shape: Some(shape), ..self }
    }

    /// The same with strides, one for each dimension.
    pub fn strides(self, strides: &'a [isize]) -> Self {
        Self { strides: Some(strides), ..self }
    }

    /// The same bytes as elements of another type: of a slice of `u16` as [`ElementType::BF16`], say.
    pub fn element(self, element: ElementType) -> Self {
        Self { element, ..self }
    }

    /// The same, to be read only.
    pub fn read_only(self) -> Self {
        Self { writable: false, ..self }
    }

    /// The extents.
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
