//! Kernel signatures: parameters, and the buffers that may share memory.

use std::fmt;
use std::sync::Arc;

use super::element::{ElementType, ScalarType};
use super::span::{self, Extents, MAX_RANK};
use crate::{Error, KernelError, Result};

/// The largest number of a kernel's arguments.
pub(super) const MAX_ARGUMENTS: usize = 32;

/// The use that a kernel makes of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Access {
    /// The kernel reads it.
    In,
    /// The kernel writes it, and reads only elements that it has written.
    Out,
    /// The kernel reads and writes it.
    InOut,
    /// The kernel uses it freely, and its contents are meaningless afterwards.
    Scratch,
}

impl Access {
    /// Returns whether the kernel may write to it.
    pub fn writes(self) -> bool {
        self != Self::In
    }
}

/// One extent of a buffer's shape.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Extent {
    /// This many elements.
    Fixed(usize),
    /// Any number.
    Any,
    /// Any number, but the same for each occurrence of the name in the signature.
    Named(String),
}

impl From<usize> for Extent {
    fn from(extent: usize) -> Self {
        Self::Fixed(extent)
    }
}

impl From<&str> for Extent {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

/// The required strides of a buffer, in elements, outermost dimension first.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strides {
    /// Without gaps, and the last dimension is the densest.
    Contiguous,
    /// Any that are not negative.
    Any,
    /// Exactly these.
    Fixed(Vec<isize>),
}

/// The result of a kernel's function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Returns {
    /// None: `void`.
    Nothing,
    /// An `int` that is 0 for success. Any other value is an error of the call
    /// ([`KernelError::Failed`](crate::KernelError::Failed)).
    Status,
}

/// The parameters of a kernel, and the buffers that may share memory.
///
/// It records facts that the kernel's author knows and compilers do not check. [`bind`](Self::bind) compares a function
/// with it, and each call of the [`Kernel`](crate::Kernel) compares the buffers: see [`check`](Self::check). Clones
/// share one description.
///
/// By default no output shares memory with another buffer. Some kernels write each element only after reading all of
/// its inputs, and never read those again; their output may have the memory of an input.
/// [`alias`](KernelSignatureBuilder::alias) declares the pair, and [`in_place`](KernelSignatureBuilder::in_place) that
/// the kernel is of this kind.
///
/// A signature is built, or read from a text ([`parse_all`](Self::parse_all) has the grammar).
///
/// ```
/// use slabjit::{ElementType, KernelSignature};
///
/// # fn main() -> slabjit::Result<()> {
/// // void rmsnorm(const float *x, const float *weight, float *y, long rows, long columns, float eps)
/// let signature = KernelSignature::builder("rmsnorm")
///     .input("x", ElementType::F32, ["rows", "columns"])
///     .input("weight", ElementType::F32, ["columns"])
///     .output("y", ElementType::F32, ["rows", "columns"])
///     .extent_scalar::<i64>("rows")
///     .extent_scalar::<i64>("columns")
///     .scalar::<f32>("eps")
///     .build()?;
///
/// let text = "rmsnorm(
///     x: in f32[rows, columns], weight: in f32[columns], y: out f32[rows, columns],
///     rows: i64 extent, columns: i64 extent, eps: f32,
/// )";
/// assert_eq!(text.parse::<KernelSignature>()?, signature);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct KernelSignature {
    pub(super) inner: Arc<Inner>,
}

#[derive(PartialEq, Eq)]
pub(super) struct Inner {
    pub name: String,
    pub parameters: Vec<Parameter>,
    /// Names of extents; a [`Dimension`] refers to a position here.
    pub extents: Vec<String>,
    /// Scalars, by position, and the extent that each is.
    pub extent_scalars: Vec<(usize, usize)>,
    /// Pairs of output and input, by position, each once, in order.
    pub aliases: Vec<(usize, usize)>,
    pub in_place: bool,
    pub returns: Returns,
    /// Whether any buffer is written; otherwise no overlap matters.
    pub writes: bool,
}

#[derive(PartialEq, Eq)]
pub(super) struct Parameter {
    pub name: String,
    pub kind: Kind,
}

#[derive(PartialEq, Eq)]
pub(super) enum Kind {
    Buffer(BufferParameter),
    Scalar(ScalarType),
}

#[derive(PartialEq, Eq)]
pub(super) struct BufferParameter {
    pub access: Access,
    pub element: ElementType,
    pub shape: Vec<Dimension>,
    pub strides: Strides,
    /// The alignment in bytes.
    pub alignment: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dimension {
    Fixed(usize),
    Any,
    Named(usize),
}

impl KernelSignature {
    /// Begins the signature of a kernel; errors use the name.
    pub fn builder(name: impl Into<String>) -> KernelSignatureBuilder {
        KernelSignatureBuilder {
            name: name.into(),
            arguments: Vec::new(),
            strides: Vec::new(),
            alignments: Vec::new(),
            aliases: Vec::new(),
            in_place: false,
            returns: Returns::Nothing,
        }
    }

    /// Returns the kernel's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns whether a call accepts one and the same view for two arguments, given by name. A memory planner can then
    /// give an output the memory of an input that is not needed afterwards. Two read-only buffers may share if their
    /// descriptions fit; otherwise only a declared pair of a kernel that is safe in place may. Returns `false` for
    /// names that are no buffers of this signature.
    pub fn may_share(&self, one: &str, other: &str) -> bool {
        let find = |name: &str| self.inner.parameters.iter().position(|parameter| parameter.name == name);
        let (Some(one), Some(other)) = (find(one), find(other)) else { return false };
        let (Some(first), Some(second)) = (self.inner.buffer(one), self.inner.buffer(other)) else { return false };
        let only_read = !first.access.writes() && !second.access.writes();
        first.may_be_view_of(second) && (only_read || (self.inner.in_place && self.inner.is_alias(one, other)))
    }
}

impl Inner {
    pub(super) fn buffer(&self, index: usize) -> Option<&BufferParameter> {
        match &self.parameters[index].kind {
            Kind::Buffer(buffer) => Some(buffer),
            Kind::Scalar(_) => None,
        }
    }

    /// Returns whether a scalar is an extent.
    pub(super) fn is_extent_scalar(&self, index: usize) -> bool {
        self.extent_scalars.iter().any(|(scalar, _)| *scalar == index)
    }

    /// Returns whether these two, in any order, are a declared pair of output and input.
    pub(super) fn is_alias(&self, one: usize, other: usize) -> bool {
        self.aliases.iter().any(|&pair| pair == (one, other) || pair == (other, one))
    }
}

impl fmt::Debug for KernelSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.inner.parameters.iter().map(|parameter| &parameter.name).collect();
        f.debug_struct("KernelSignature").field("name", &self.inner.name).field("arguments", &names).finish()
    }
}

/// The builder of a signature; see [`KernelSignature::builder`]. Arguments come in the order of the function's.
#[derive(Debug)]
#[must_use]
pub struct KernelSignatureBuilder {
    name: String,
    arguments: Vec<(String, Declared)>,
    strides: Vec<(String, Strides)>,
    alignments: Vec<(String, usize)>,
    aliases: Vec<(String, String)>,
    in_place: bool,
    returns: Returns,
}

#[derive(Debug)]
enum Declared {
    Buffer(Access, ElementType, Vec<Extent>),
    Scalar(ScalarType),
    ExtentScalar(ScalarType),
}

impl KernelSignatureBuilder {
    /// Adds a buffer. [`input`](Self::input) and the others are shorter.
    pub fn buffer<E: Into<Extent>>(
        mut self,
        name: impl Into<String>,
        access: Access,
        element: ElementType,
        shape: impl IntoIterator<Item = E>,
    ) -> Self {
        let shape = shape.into_iter().map(Into::into).collect();
        self.arguments.push((name.into(), Declared::Buffer(access, element, shape)));
        self
    }

    /// Adds a buffer that is read ([`Access::In`]).
    pub fn input<E: Into<Extent>>(
        self,
        name: impl Into<String>,
        element: ElementType,
        shape: impl IntoIterator<Item = E>,
    ) -> Self {
        self.buffer(name, Access::In, element, shape)
    }

    /// Adds a buffer that is written ([`Access::Out`]).
    pub fn output<E: Into<Extent>>(
        self,
        name: impl Into<String>,
        element: ElementType,
        shape: impl IntoIterator<Item = E>,
    ) -> Self {
        self.buffer(name, Access::Out, element, shape)
    }

    /// Adds a buffer that is read and written ([`Access::InOut`]).
    pub fn in_out<E: Into<Extent>>(
        self,
        name: impl Into<String>,
        element: ElementType,
        shape: impl IntoIterator<Item = E>,
    ) -> Self {
        self.buffer(name, Access::InOut, element, shape)
    }

    /// Adds a scratch buffer ([`Access::Scratch`]).
    pub fn scratch<E: Into<Extent>>(
        self,
        name: impl Into<String>,
        element: ElementType,
        shape: impl IntoIterator<Item = E>,
    ) -> Self {
        self.buffer(name, Access::Scratch, element, shape)
    }

    /// Adds a scalar.
    pub fn scalar<T: super::element::Scalar>(self, name: impl Into<String>) -> Self {
        self.scalar_of(name, T::TYPE)
    }

    /// Adds an integer that is the extent of its name in the buffers' shapes. A call refuses any other value
    /// ([`KernelError::ExtentMismatch`](crate::KernelError::ExtentMismatch));
    /// [`Argument::extent`](crate::Argument::extent) has the call take it from the buffers.
    pub fn extent_scalar<T: super::element::Scalar>(self, name: impl Into<String>) -> Self {
        self.extent_scalar_of(name, T::TYPE)
    }

    pub(super) fn extent_scalar_of(mut self, name: impl Into<String>, kind: ScalarType) -> Self {
        self.arguments.push((name.into(), Declared::ExtentScalar(kind)));
        self
    }

    /// Adds a pointer that is no buffer of the contract ([`ScalarType::Pointer`]).
    pub fn pointer(self, name: impl Into<String>) -> Self {
        self.scalar_of(name, ScalarType::Pointer)
    }

    pub(super) fn scalar_of(mut self, name: impl Into<String>, kind: ScalarType) -> Self {
        self.arguments.push((name.into(), Declared::Scalar(kind)));
        self
    }

    /// Sets a buffer's required strides; [`Strides::Contiguous`] by default.
    pub fn strides(mut self, buffer: impl Into<String>, strides: Strides) -> Self {
        self.strides.push((buffer.into(), strides));
        self
    }

    /// Sets a buffer's required alignment in bytes, if it is more than [its element's
    /// alignment](ElementType::alignment): for kernels that load vectors.
    pub fn aligned(mut self, buffer: impl Into<String>, bytes: usize) -> Self {
        self.alignments.push((buffer.into(), bytes));
        self
    }

    /// Allows an output to be exactly an input's view, if the kernel is safe [in place](Self::in_place).
    pub fn alias(mut self, output: impl Into<String>, input: impl Into<String>) -> Self {
        self.aliases.push((output.into(), input.into()));
        self
    }

    /// Declares the kernel safe in place: with outputs in the memory of their [declared](Self::alias) inputs it gives
    /// the same result, because each element is written after all reads of its inputs, in any order of execution.
    /// Elementwise kernels are safe in place; permutations, stencils and products are not.
    pub fn in_place(mut self) -> Self {
        self.in_place = true;
        self
    }

    /// Declares that the function returns an `int` that is 0 for success; otherwise it returns nothing ([`Returns`]).
    pub fn status(mut self) -> Self {
        self.returns = Returns::Status;
        self
    }

    /// Builds the signature.
    ///
    /// # Errors
    /// [`KernelError::InvalidSignature`](crate::KernelError::InvalidSignature) for more than 32 arguments or 16
    /// dimensions, duplicate or unknown names, an alias that is not a pair of output and input or whose two views
    /// cannot be equal, strides that are negative or not one for each dimension, an alignment that is no power of two,
    /// a buffer too large for every address space, or an extent scalar that is no integer or whose name is no extent.
    pub fn build(self) -> Result<KernelSignature> {
        let Self { name, arguments, strides, alignments, aliases, in_place, returns } = self;
        let invalid = |argument: &str, problem: &str| {
            Error::Kernel(KernelError::InvalidSignature {
                kernel: name.clone(),
                argument: (!argument.is_empty()).then(|| argument.to_owned()),
                problem: problem.to_owned(),
            })
        };
        if arguments.len() > MAX_ARGUMENTS {
            return Err(invalid("", "it has more than 32 arguments; pass some of them in a struct, as a pointer"));
        }
        let mut extents: Vec<String> = Vec::new();
        let mut parameters: Vec<Parameter> = Vec::new();
        let mut extent_scalars = Vec::new();
        for (argument, declared) in arguments {
            if argument.is_empty() {
                return Err(invalid("", "an argument has no name"));
            }
            if parameters.iter().any(|parameter| parameter.name == argument) {
                return Err(invalid(&argument, "there are two of that name"));
            }
            let kind = match declared {
                Declared::Scalar(kind) => Kind::Scalar(kind),
                Declared::ExtentScalar(kind) => {
                    if !kind.is_integer() {
                        return Err(invalid(&argument, "an extent is passed as an integer"));
                    }
                    extent_scalars.push(parameters.len());
                    Kind::Scalar(kind)
                }
                Declared::Buffer(access, element, shape) => {
                    if shape.len() > MAX_RANK {
                        return Err(invalid(&argument, "it has more than 16 dimensions"));
                    }
                    let shape = shape.into_iter().map(|extent| dimension(extent, &mut extents)).collect();
                    let (strides, alignment) = (Strides::Contiguous, element.alignment());
                    Kind::Buffer(BufferParameter { access, element, shape, strides, alignment })
                }
            };
            parameters.push(Parameter { name: argument, kind });
        }
        if extents.len() > MAX_ARGUMENTS {
            return Err(invalid("", "it names more than 32 extents"));
        }
        let extent_scalars = extent_scalars.into_iter().map(|index: usize| {
            let name = &parameters[index].name;
            let extent = extents.iter().position(|extent| extent == name);
            Ok((index, extent.ok_or_else(|| invalid(name, "it is an extent, and no buffer's shape has that name"))?))
        });
        let extent_scalars = extent_scalars.collect::<Result<Vec<_>>>()?;
        let buffer = |parameters: &mut Vec<Parameter>, wanted: &str| {
            let found = parameters.iter().position(|parameter| parameter.name == wanted);
            let index = found.ok_or_else(|| invalid(wanted, "there is no argument of that name"))?;
            match &parameters[index].kind {
                Kind::Buffer(_) => Ok(index),
                Kind::Scalar(_) => Err(invalid(wanted, "it is a scalar, not a buffer")),
            }
        };
        for (wanted, strides) in strides {
            let index = buffer(&mut parameters, &wanted)?;
            let Kind::Buffer(parameter) = &mut parameters[index].kind else { continue };
            if let Strides::Fixed(fixed) = &strides {
                if fixed.len() != parameter.shape.len() {
                    return Err(invalid(&wanted, "its strides are not one for each dimension"));
                }
                if fixed.iter().any(|stride| *stride < 0) {
                    return Err(invalid(&wanted, "a stride is negative; let the buffer begin at its lowest address"));
                }
            }
            parameter.strides = strides;
        }
        for (wanted, bytes) in alignments {
            let index = buffer(&mut parameters, &wanted)?;
            let Kind::Buffer(parameter) = &mut parameters[index].kind else { continue };
            if !bytes.is_power_of_two() || bytes < parameter.alignment {
                return Err(invalid(&wanted, "its alignment is no power of two, or less than that of its elements"));
            }
            parameter.alignment = bytes;
        }
        for parameter in &parameters {
            if let Kind::Buffer(buffer) = &parameter.kind
                && buffer.is_too_large()
            {
                return Err(invalid(&parameter.name, "with its shape and strides it fits into no address space"));
            }
        }
        let mut pairs = Vec::new();
        for (output, input) in aliases {
            let pair = (buffer(&mut parameters, &output)?, buffer(&mut parameters, &input)?);
            let (Kind::Buffer(written), Kind::Buffer(read)) = (&parameters[pair.0].kind, &parameters[pair.1].kind)
            else {
                continue;
            };
            if written.access != Access::Out {
                return Err(invalid(&output, "it is declared as an alias, and is no output"));
            }
            if read.access != Access::In {
                return Err(invalid(&input, "an output is declared as its alias, and it is no input"));
            }
            if !written.may_be_view_of(read) {
                return Err(invalid(&output, "it can never be the view that it is declared as an alias of"));
            }
            pairs.push(pair);
        }
        pairs.sort_unstable();
        pairs.dedup();
        if in_place && pairs.is_empty() {
            return Err(invalid("", "it may run in place, but no output is declared as an alias of an input"));
        }
        let writes = parameters
            .iter()
            .any(|parameter| matches!(&parameter.kind, Kind::Buffer(buffer) if buffer.access.writes()));
        let inner = Inner { name, parameters, extents, extent_scalars, aliases: pairs, in_place, returns, writes };
        Ok(KernelSignature { inner: Arc::new(inner) })
    }
}

fn dimension(extent: Extent, names: &mut Vec<String>) -> Dimension {
    match extent {
        Extent::Fixed(extent) => Dimension::Fixed(extent),
        Extent::Any => Dimension::Any,
        Extent::Named(name) => {
            let known = names.iter().position(|known| *known == name);
            Dimension::Named(known.unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            }))
        }
    }
}

impl BufferParameter {
    /// Returns whether one view can satisfy both descriptions.
    fn may_be_view_of(&self, other: &Self) -> bool {
        let same = |(one, other): (&Dimension, &Dimension)| match (*one, *other) {
            (Dimension::Fixed(one), Dimension::Fixed(other)) => one == other,
            _ => true,
        };
        let strides = match (&self.strides, &other.strides) {
            (Strides::Fixed(one), Strides::Fixed(other)) => {
                // One element has no neighbour.
                let single = |dimension: &Dimension| matches!(dimension, Dimension::Fixed(1));
                self.shape.iter().zip(one.iter().zip(other)).all(|(d, (one, other))| single(d) || one == other)
            }
            _ => true,
        };
        let shapes = self.shape.len() == other.shape.len() && self.shape.iter().zip(&other.shape).all(same);
        self.element == other.element && shapes && strides
    }

    /// Returns whether the buffer is too large even if all other extents are 1.
    fn is_too_large(&self) -> bool {
        let shape: Extents = self.shape.iter().map(|d| if let Dimension::Fixed(n) = d { *n } else { 1 }).collect();
        let strides = match &self.strides {
            Strides::Fixed(strides) => Some(&strides[..]),
            Strides::Contiguous | Strides::Any => None,
        };
        !shape.contains(&0) && span::bytes(&shape, strides, self.element.size()).is_none()
    }
}
