//! The parameters of a signature, for programs that make calls from it.

use super::element::{ElementType, ScalarType};
use super::signature::{Access, Dimension, Extent, KernelSignature, Kind, Strides};

/// One parameter of a [`KernelSignature`]; see [`KernelSignature::parameters`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KernelParameter<'a> {
    /// A buffer.
    #[non_exhaustive]
    Buffer {
        /// Its name.
        name: &'a str,
        /// The use that the kernel makes of it.
        access: Access,
        /// The type of its elements.
        element: ElementType,
        /// Its extents, outermost dimension first.
        shape: Vec<Extent>,
        /// The strides that it must have.
        strides: &'a Strides,
        /// The alignment that it must have, in bytes.
        alignment: usize,
    },
    /// A scalar.
    #[non_exhaustive]
    Scalar {
        /// Its name.
        name: &'a str,
        /// Its type.
        scalar: ScalarType,
        /// Whether it is [the extent of its name](crate::KernelSignatureBuilder::extent_scalar).
        is_extent: bool,
    },
}

impl<'a> KernelParameter<'a> {
    /// Returns its name.
    pub fn name(&self) -> &'a str {
        match self {
            Self::Buffer { name, .. } | Self::Scalar { name, .. } => name,
        }
    }
}

impl KernelSignature {
    /// Returns the parameters, in the order of the function's, for a program that makes calls from a signature: a
    /// framework's operator knows from them which tensors to give, and the shapes of its results.
    ///
    /// ```
    /// use slabjit::{Access, KernelParameter, KernelSignature};
    ///
    /// # fn main() -> slabjit::Result<()> {
    /// let signature: KernelSignature = "scale(x: in f32[n], y: out f32[n], n: i64 extent, by: f32)".parse()?;
    /// let outputs: Vec<_> = signature
    ///     .parameters()
    ///     .filter(|parameter| matches!(parameter, KernelParameter::Buffer { access: Access::Out, .. }))
    ///     .map(|output| output.name())
    ///     .collect();
    /// assert_eq!(outputs, ["y"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn parameters(&self) -> impl ExactSizeIterator<Item = KernelParameter<'_>> {
        let inner = &*self.inner;
        inner.parameters.iter().enumerate().map(|(index, parameter)| {
            let name = parameter.name.as_str();
            let extent = |dimension: &Dimension| match *dimension {
                Dimension::Fixed(extent) => Extent::Fixed(extent),
                Dimension::Any => Extent::Any,
                Dimension::Named(name) => Extent::Named(inner.extents[name].clone()),
            };
            match &parameter.kind {
                Kind::Buffer(buffer) => KernelParameter::Buffer {
                    name,
                    access: buffer.access,
                    element: buffer.element,
                    shape: buffer.shape.iter().map(extent).collect(),
                    strides: &buffer.strides,
                    alignment: buffer.alignment,
                },
                Kind::Scalar(scalar) => {
                    KernelParameter::Scalar { name, scalar: *scalar, is_extent: inner.is_extent_scalar(index) }
                }
            }
        })
    }
}
