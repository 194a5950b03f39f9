//! Arguments against a signature, before anything runs.

use std::fmt;

use arrayvec::ArrayVec;

use super::argument::{Argument, BufferView, Value};
use super::element::{ElementType, ScalarType, Word};
use super::overlap::{self, Elements};
use super::signature::{BufferParameter, Dimension, Inner, KernelSignature, Kind, MAX_ARGUMENTS, Strides};
use super::span::{self, MAX_RANK, Span, contiguous, same_strides};
use crate::error::Overlap;
use crate::{Error, Result};

/// What the function is called with.
pub(super) type Words = ArrayVec<Word, MAX_ARGUMENTS>;

impl KernelSignature {
    /// Checks arguments as a call does. Nothing runs, and nothing is read or written.
    ///
    /// Each buffer is checked by itself: its element type, shape and strides, that its pointer is neither null nor misaligned (unless it
    /// has no elements), that it fits into the address space, and into the slice that it was made of. Then the buffers are compared, every
    /// two of which one is [written](crate::Access::writes):
    ///
    /// - Those that share no byte pass, also where their ranges interleave, such as even and odd columns of one matrix. That is exact for
    ///   all strides, also unequal ones, except for shapes for which more than 16 384 combinations have to be tried (strides that
    ///   are no multiples of each other, in many dimensions): then ranges that meet count as overlapping.
    /// - Buffers of different [spaces](crate::MemorySpace) share nothing, [managed](crate::MemorySpace::Managed) memory excepted.
    /// - An output and an input that are declared as aliases pass if the kernel is safe in place and they are the same view: one address, one shape,
    ///   the same strides. Where they overlap in another way, elements are not written in the place they are read from, which an elementwise
    ///   kernel relies on.
    /// - Buffers without elements share nothing.
    ///
    /// That a buffer overlaps itself (a stride of 0) is not looked for.
    ///
    /// # Errors
    /// [`Error::ArgumentCount`], [`Error::ArgumentOrder`] and [`Error::ArgumentKind`]; of one buffer [`Error::ElementMismatch`],
    /// [`Error::ShapeMismatch`], [`Error::StridesMismatch`], [`Error::NegativeStride`], [`Error::BufferTooLarge`], [`Error::NullBuffer`],
    /// [`Error::MisalignedBuffer`] and [`Error::BufferTooSmall`]; of two [`Error::BuffersOverlap`].
    pub fn check(&self, arguments: &[Argument<'_>]) -> Result<()> {
        self.words(arguments).map(drop)
    }

    /// The same, and what the function is to be called with.
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
                _ => return Err(signature.wrong_kind(index, arguments)),
            }
        }
        if signature.writes
            && let Some(error) = overlap::find(&spans, |one, other| signature.judge(one, other, arguments))
        {
            return Err(error);
        }
        Ok(words)
    }
}

/// What the names of extents stand for, and which argument said so.
struct Named(ArrayVec<Option<(usize, u8)>, MAX_ARGUMENTS>);

impl Inner {
    /// The bytes of a buffer that is as it should be; nothing for one without elements.
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
                return Err(Error::$variant { kernel, argument, $($field: $value),* });
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

    /// The kernel's and an argument's.
    fn names(&self, index: usize) -> (String, String) {
        (self.name.clone(), self.parameters[index].name.clone())
    }

    /// Whether two buffers that lie in one range may: nothing if they do.
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
        Some(Error::BuffersOverlap { kernel, first, second, bytes, overlap })
    }

    // ---- the words of errors ----

    #[cold]
    fn wrong_count(&self, arguments: &[Argument<'_>]) -> Error {
        let expected = self.parameters.iter().map(|parameter| parameter.name.clone()).collect();
        Error::ArgumentCount { kernel: self.name.clone(), expected, given: arguments.len() }
    }

    /// Of an argument whose kind is another: the arguments that are wanted in another order, or one that is wanted nowhere.
    #[cold]
    fn wrong_kind(&self, index: usize, arguments: &[Argument<'_>]) -> Error {
        let (kernel, argument) = self.names(index);
        let expected = self.parameters[index].kind.to_string();
        let given = kind(&arguments[index]);
        // What is written may be given where it is read, but is not what was asked for there.
        let mut wanted: Vec<_> = self.parameters.iter().map(|parameter| parameter.kind.to_string()).collect();
        let mut there: Vec<_> = arguments.iter().map(kind).collect();
        wanted.sort();
        there.sort();
        if wanted == there {
            return Error::ArgumentOrder { kernel, argument, position: index, expected, given };
        }
        Error::ArgumentKind { kernel, argument, position: index, expected, given }
    }

    /// A shape with what its names stand for.
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

/// What an argument is, in the words of [`Kind`].
fn kind(argument: &Argument<'_>) -> String {
    match &argument.0 {
        Value::Buffer(view) => buffer_kind(view.element, view.writable),
        Value::Scalar(kind, _) => scalar_kind(*kind),
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
    /// Its strides, also where they are not said.
    pub(super) fn layout(&self) -> ArrayVec<isize, MAX_RANK> {
        self.strides.map_or_else(|| contiguous(self.extents()), |strides| strides.iter().copied().collect())
    }

    /// Its elements, in bytes.
    pub(super) fn elements(&self) -> Elements {
        let size = self.element.size() as u64;
        let steps = self.extents().iter().zip(self.layout());
        let dimensions =
            steps.filter(|(extent, _)| **extent > 1).map(|(extent, step)| (*extent as u64, step as u64 * size));
        Elements { address: span::address(self.pointer), size, dimensions: dimensions.collect() }
    }

    /// Whether both have each element in one place.
    fn is_same(&self, other: &Self) -> bool {
        span::address(self.pointer) == span::address(other.pointer)
            && self.element == other.element
            && self.extents() == other.extents()
            && same_strides(self.extents(), &self.layout(), &other.layout())
    }
}
