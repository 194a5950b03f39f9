//! Checks of arguments against a signature, before anything runs.

use std::fmt;
use std::ptr;

use arrayvec::ArrayVec;

use crate::Overlap;
use crate::kernel::argument::{Argument, BufferView, Value};
use crate::kernel::element::{ElementType, ScalarType, Word};
use crate::kernel::overlap::{self, Elements};
use crate::kernel::signature::{BufferParameter, Dimension, Inner, KernelSignature, Kind, MAX_ARGUMENTS, Strides};
use crate::kernel::span::{self, MAX_RANK, Span, contiguous, same_strides};
use crate::{Error, KernelError, Result};

/// The words that the function is called with.
pub(super) type Words = ArrayVec<Word, MAX_ARGUMENTS>;

impl KernelSignature {
    /// Checks arguments as a call does. Nothing runs, and no buffer is read or written.
    ///
    /// Each buffer is checked by itself: its element type, shape and strides, that its pointer is neither null nor
    /// misaligned (unless it has no elements), that it fits into the address space and into its slice. Then each two
    /// buffers are compared if at least one is [written](crate::Access::writes):
    ///
    /// - Buffers that share no byte pass, even if their ranges interleave, such as even and odd columns of one matrix.
    ///   That is exact for all strides, equal or not, except for shapes that require more than 16 384 combinations
    ///   (strides that are no multiples of each other, in many dimensions): then ranges that meet count as overlapping.
    /// - Buffers of different [spaces](crate::MemorySpace) share nothing, except for
    ///   [managed](crate::MemorySpace::Managed) memory.
    /// - A declared alias of an output and an input passes if the kernel is safe in place and both are the same view:
    ///   one address, one shape, the same strides. With any other overlap, elements would not be written where they are
    ///   read, which an elementwise kernel relies on.
    /// - Buffers without elements share nothing.
    ///
    /// An overlap of a buffer with itself (a stride of 0) is not checked.
    ///
    /// # Errors
    /// [`KernelError::ArgumentCount`](crate::KernelError::ArgumentCount),
    /// [`KernelError::ArgumentOrder`](crate::KernelError::ArgumentOrder) and
    /// [`KernelError::ArgumentKind`](crate::KernelError::ArgumentKind); of one buffer
    /// [`KernelError::ElementMismatch`](crate::KernelError::ElementMismatch),
    /// [`KernelError::ShapeMismatch`](crate::KernelError::ShapeMismatch),
    /// [`KernelError::StridesMismatch`](crate::KernelError::StridesMismatch),
    /// [`KernelError::NegativeStride`](crate::KernelError::NegativeStride),
    /// [`KernelError::BufferTooLarge`](crate::KernelError::BufferTooLarge),
    /// [`KernelError::NullBuffer`](crate::KernelError::NullBuffer),
    /// [`KernelError::MisalignedBuffer`](crate::KernelError::MisalignedBuffer) and
    /// [`KernelError::BufferTooSmall`](crate::KernelError::BufferTooSmall); of an [extent
    /// scalar](crate::KernelSignatureBuilder::extent_scalar)
    /// [`KernelError::ExtentMismatch`](crate::KernelError::ExtentMismatch) and
    /// [`KernelError::ExtentTooLarge`](crate::KernelError::ExtentTooLarge); of two buffers
    /// [`KernelError::BuffersOverlap`](crate::KernelError::BuffersOverlap).
    pub fn check(&self, arguments: &[Argument<'_>]) -> Result<()> {
        self.words(arguments).map(drop)
    }

    /// Checks the arguments and returns the words for the function.
    pub(super) fn words(&self, arguments: &[Argument<'_>]) -> Result<Words> {
        let signature = &*self.inner;
        if arguments.len() != signature.parameters.len() {
            return Err(signature.wrong_count(arguments));
        }
        let mut words = Words::new();
        let mut spans = ArrayVec::new();
        let mut named = Named(signature.extents.iter().map(|_| None).collect());
        for (index, (parameter, argument)) in signature.parameters.iter().zip(arguments).enumerate() {
            match (&parameter.kind, &argument.0) {
                (Kind::Buffer(buffer), Value::Buffer(view)) if view.writable || !buffer.access.writes() => {
                    if let Some(span) = signature.span(index, buffer, view, &mut named)? {
                        spans.push(span);
                    }
                    words.push(view.pointer);
                }
                (Kind::Scalar(expected), Value::Scalar(given, word)) if expected == given => words.push(*word),
                (Kind::Scalar(_), Value::Extent) if signature.is_extent_scalar(index) => words.push(ptr::null_mut()),
                _ => return Err(signature.wrong_kind(index, arguments)),
            }
        }
        for &(index, extent) in &signature.extent_scalars {
            signature.pass_extent(index, extent, arguments, &named, &mut words)?;
        }
        if signature.writes
            && let Some(error) = overlap::find(&spans, |one, other| signature.judge(one, other, arguments))
        {
            return Err(error);
        }
        Ok(words)
    }
}

/// The values of named extents, with the argument that each came from.
struct Named(ArrayVec<Option<(usize, u8)>, MAX_ARGUMENTS>);

impl Inner {
    /// Checks a buffer and returns the span of its bytes; none if it has no elements.
    #[inline]
    fn span(
        &self,
        index: usize,
        buffer: &BufferParameter,
        view: &BufferView<'_>,
        named: &mut Named,
    ) -> Result<Option<Span>> {
        macro_rules! refuse {
            ($variant:ident { $($field:ident: $value:expr),* $(,)? }) => {{
                let (kernel, argument) = self.names(index);
                return Err(Error::Kernel(KernelError::$variant { kernel, argument, $($field: $value),* }));
            }};
        }
        if view.element != buffer.element {
            refuse!(ElementMismatch { expected: buffer.element, given: view.element });
        }
        let shape = view.extents();
        let mut empty = false;
        let mut fits = shape.len() == buffer.shape.len();
        for (dimension, &extent) in buffer.shape.iter().zip(shape) {
            empty |= extent == 0;
            fits &= match *dimension {
                Dimension::Any => true,
                Dimension::Fixed(expected) => expected == extent,
                Dimension::Named(name) => named.0[name].get_or_insert((extent, index as u8)).0 == extent,
            };
        }
        if !fits {
            refuse!(ShapeMismatch { expected: self.shape_wanted(buffer, index, named), given: shape.to_vec() });
        }
        if let Some(strides) = view.strides {
            if strides.len() != shape.len() {
                refuse!(StridesMismatch { expected: format!("{} of them", shape.len()), given: strides.to_vec() });
            }
            if let Some(dimension) = strides.iter().position(|stride| *stride < 0) {
                refuse!(NegativeStride { dimension: dimension, stride: strides[dimension] });
            }
        }
        if empty {
            return Ok(None);
        }
        let Some(bytes) = span::bytes(shape, view.strides, view.element.size()) else {
            refuse!(BufferTooLarge { shape: shape.to_vec(), strides: view.strides.map(<[_]>::to_vec) });
        };
        let wanted = match (&buffer.strides, view.strides) {
            (Strides::Any, _) | (Strides::Contiguous, None) => true,
            (Strides::Contiguous, Some(strides)) => same_strides(shape, strides, &contiguous(shape)),
            (Strides::Fixed(fixed), None) => same_strides(shape, fixed, &contiguous(shape)),
            (Strides::Fixed(fixed), Some(strides)) => same_strides(shape, fixed, strides),
        };
        if !wanted {
            let expected = match &buffer.strides {
                Strides::Fixed(fixed) => format!("{fixed:?}"),
                _ => format!("{:?} (contiguous)", contiguous(shape)),
            };
            refuse!(StridesMismatch { expected: expected, given: view.layout().to_vec() });
        }
        let address = view.pointer.addr();
        if address == 0 {
            refuse!(NullBuffer {});
        }
        if address & (buffer.alignment - 1) != 0 {
            refuse!(MisalignedBuffer { address: address, alignment: buffer.alignment });
        }
        if bytes > view.bytes as u64 {
            refuse!(BufferTooSmall { needed: bytes, given: view.bytes as u64 });
        }
        match Span::of(view, bytes, buffer.access.writes(), index as u8) {
            None => refuse!(BufferTooLarge { shape: shape.to_vec(), strides: view.strides.map(<[_]>::to_vec) }),
            span => Ok(span),
        }
    }

    /// Passes an extent as a scalar, or checks that the caller has.
    fn pass_extent(
        &self,
        index: usize,
        extent: usize,
        arguments: &[Argument<'_>],
        named: &Named,
        words: &mut Words,
    ) -> Result<()> {
        let (Some((extent, by)), Kind::Scalar(scalar)) = (named.0[extent], &self.parameters[index].kind) else {
            return Ok(());
        };
        let word = scalar.word_of(extent);
        let given = match (&arguments[index].0, word) {
            (Value::Extent, Some(word)) => {
                words[index] = word;
                return Ok(());
            }
            (Value::Scalar(_, given), _) if word.is_some_and(|word| word.addr() == given.addr()) => return Ok(()),
            (Value::Scalar(_, given), _) => Some(scalar.text_of(*given)),
            _ => None,
        };
        let (kernel, argument) = self.names(index);
        let buffer = self.parameters[usize::from(by)].name.clone();
        Err(Error::Kernel(match given {
            Some(given) => KernelError::ExtentMismatch { kernel, argument, buffer, expected: extent, given },
            None => KernelError::ExtentTooLarge { kernel, argument, buffer, extent, scalar: *scalar },
        }))
    }

    /// Returns the names of the kernel and of an argument.
    fn names(&self, index: usize) -> (String, String) {
        (self.name.clone(), self.parameters[index].name.clone())
    }

    /// Checks whether two buffers with meeting ranges may overlap; returns no error if they may.
    #[cold]
    fn judge(&self, one: &Span, other: &Span, arguments: &[Argument<'_>]) -> Option<Error> {
        let (first, second) = (one.argument.min(other.argument), one.argument.max(other.argument));
        let (first, second) = (usize::from(first), usize::from(second));
        let (Value::Buffer(one_view), Value::Buffer(other_view)) = (&arguments[first].0, &arguments[second].0) else {
            return None;
        };
        if !overlap::share_bytes(&one_view.elements(), &other_view.elements()) {
            return None;
        }
        let overlap = match self.is_alias(first, second) {
            false => Overlap::Undeclared,
            true if !self.in_place => Overlap::NotInPlace,
            true if one_view.is_same(other_view) => return None,
            true => Overlap::Partial,
        };
        let (kernel, first) = self.names(first);
        let second = self.parameters[second].name.clone();
        let bytes = one.start.max(other.start)..one.end.min(other.end);
        Some(Error::Kernel(KernelError::BuffersOverlap { kernel, first, second, bytes, overlap }))
    }

    // ---- the words of errors ----

    #[cold]
    fn wrong_count(&self, arguments: &[Argument<'_>]) -> Error {
        let expected = self.parameters.iter().map(|parameter| parameter.name.clone()).collect();
        Error::Kernel(KernelError::ArgumentCount { kernel: self.name.clone(), expected, given: arguments.len() })
    }

    /// Makes the error for an argument of another kind: the arguments in another order, or one that is not expected.
    #[cold]
    fn wrong_kind(&self, index: usize, arguments: &[Argument<'_>]) -> Error {
        let (kernel, argument) = self.names(index);
        let expected = self.parameters[index].kind.to_string();
        let given = kind(&arguments[index]);
        // A written buffer is accepted for a read one, but counts as another kind here.
        let mut wanted: Vec<_> = self.parameters.iter().map(|parameter| parameter.kind.to_string()).collect();
        // An extent that the call finds stands for any of the scalars that are one.
        let mut extents = self.extent_scalars.iter().map(|(index, _)| self.parameters[*index].kind.to_string());
        let there = arguments.iter().map(|argument| match argument.0 {
            Value::Extent => extents.next().unwrap_or_else(|| kind(argument)),
            _ => kind(argument),
        });
        let mut there: Vec<_> = there.collect();
        wanted.sort();
        there.sort();
        if wanted == there {
            return Error::Kernel(KernelError::ArgumentOrder { kernel, argument, position: index, expected, given });
        }
        Error::Kernel(KernelError::ArgumentKind { kernel, argument, position: index, expected, given })
    }

    /// Formats a shape with the values of its names.
    #[cold]
    fn shape_wanted(&self, buffer: &BufferParameter, index: usize, named: &Named) -> String {
        let dimensions = buffer.shape.iter().map(|dimension| match *dimension {
            Dimension::Any => "any".to_owned(),
            Dimension::Fixed(extent) => extent.to_string(),
            Dimension::Named(name) => match named.0[name] {
                Some((extent, by)) if usize::from(by) != index => {
                    format!("{} = {extent} (as of '{}')", self.extents[name], self.parameters[usize::from(by)].name)
                }
                _ => self.extents[name].clone(),
            },
        });
        format!("[{}]", dimensions.collect::<Vec<_>>().join(", "))
    }
}

/// Describes an argument in the words of [`Kind`].
fn kind(argument: &Argument<'_>) -> String {
    match &argument.0 {
        Value::Buffer(view) => buffer_kind(view.element, view.writable),
        Value::Scalar(kind, _) => scalar_kind(*kind),
        Value::Extent => "an extent".to_owned(),
    }
}

fn buffer_kind(element: ElementType, writable: bool) -> String {
    format!("a buffer of {element}, {}", if writable { "to write to" } else { "to read" })
}

fn scalar_kind(kind: ScalarType) -> String {
    format!("a scalar, {kind}")
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self {
            Self::Buffer(buffer) => buffer_kind(buffer.element, buffer.access.writes()),
            Self::Scalar(kind) => scalar_kind(*kind),
        })
    }
}

impl BufferView<'_> {
    /// Returns its strides, explicit or not.
    pub(super) fn layout(&self) -> ArrayVec<isize, MAX_RANK> {
        self.strides.map_or_else(|| contiguous(self.extents()), |strides| strides.iter().copied().collect())
    }

    /// Returns its elements, in bytes.
    pub(super) fn elements(&self) -> Elements {
        let size = self.element.size() as u64;
        let steps = self.extents().iter().zip(self.layout());
        let dimensions =
            steps.filter(|(extent, _)| **extent > 1).map(|(extent, step)| (*extent as u64, step as u64 * size));
        Elements { address: span::address(self.pointer), size, dimensions: dimensions.collect() }
    }

    /// Returns whether both have each element at the same address.
    fn is_same(&self, other: &Self) -> bool {
        span::address(self.pointer) == span::address(other.pointer)
            && self.element == other.element
            && self.extents() == other.extents()
            && same_strides(self.extents(), &self.layout(), &other.layout())
    }
}
