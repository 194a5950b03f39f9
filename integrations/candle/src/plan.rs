//! The plan of an operator: where each argument of the kernel comes from, and the shapes of what it writes.

use slabjit::{Access, Argument, ElementType, Extent, KernelParameter, KernelSignature, ScalarType};

use crate::error::OpError;
use crate::storage;

/// Makes an argument of each call.
pub(crate) type MakeScalar = Box<dyn Fn() -> Argument<'static> + Send + Sync>;

/// The alignment of memory that the system's allocator returns.
const ALIGNMENT: usize = 16;

/// Where an argument comes from.
pub(crate) enum Source {
    /// A tensor, by its place among the tensors.
    Tensor(usize),
    /// The operator's result.
    Output,
    /// Memory that a call makes.
    Scratch {
        element: ElementType,
        alignment: usize,
    },
    Scalar(MakeScalar),
}

/// One parameter of the kernel.
pub(crate) struct Planned {
    pub name: String,
    pub source: Source,
    /// Of a buffer.
    pub shape: Vec<Dimension>,
    /// The alignment of a buffer, if it is more than its elements'.
    aligned: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dimension {
    Fixed(usize),
    /// As the tensor has it.
    Any,
    /// By its place among the named extents.
    Named(usize),
}

/// How the kernel's arguments are made of tensors.
pub(crate) struct Plan {
    pub kernel: String,
    pub parameters: Vec<Planned>,
    /// Names of extents, and what the operator's maker says about them.
    pub extents: Vec<(String, Option<usize>)>,
    /// The type of the result.
    pub output: Option<ElementType>,
    /// How many tensors there are.
    pub tensors: usize,
    pub writes: Writes,
    /// The buffers that are the result.
    written: Vec<String>,
    /// The extent that threads share, and the least number of rows for each.
    pub split: Option<(usize, usize)>,
}

/// Whether an operator makes a new tensor, or changes its first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writes {
    Output,
    First,
}

impl Plan {
    pub fn new(
        signature: &KernelSignature,
        writes: Writes,
        mut scalars: Vec<(String, MakeScalar)>,
        extents: Vec<(String, usize)>,
    ) -> Result<Self, OpError> {
        let mut plan = Self {
            kernel: signature.name().to_owned(),
            parameters: Vec::new(),
            extents: extents.into_iter().map(|(name, extent)| (name, Some(extent))).collect(),
            output: None,
            tensors: 0,
            writes,
            written: Vec::new(),
            split: None,
        };
        let written = plan.written(signature)?;
        // In place, the first tensor is the one that is written, wherever the kernel takes it.
        let first = usize::from(writes == Writes::First);
        plan.tensors = first;
        for parameter in signature.parameters() {
            let name = parameter.name().to_owned();
            let mut aligned = None;
            let (source, shape) = match parameter {
                KernelParameter::Buffer { access, element, shape, alignment, .. } => {
                    aligned = Some(alignment).filter(|alignment| *alignment > element.alignment());
                    let source = match access {
                        _ if written.contains(&name) && first == 1 => Source::Tensor(0),
                        Access::Scratch => Source::Scratch { element, alignment },
                        Access::In => {
                            plan.tensors += 1;
                            Source::Tensor(plan.tensors - 1)
                        }
                        _ => {
                            plan.output = Some(element);
                            Source::Output
                        }
                    };
                    (source, shape.into_iter().map(|extent| plan.dimension(extent)).collect())
                }
                KernelParameter::Scalar { is_extent: true, .. } => {
                    (Source::Scalar(Box::new(Argument::extent)), Vec::new())
                }
                KernelParameter::Scalar { scalar: ScalarType::Pointer, .. } => {
                    let problem = format!("an operator has nothing to give for its pointer '{name}'");
                    return Err(plan.refuse(problem));
                }
                _ => match scalars.iter().position(|(given, _)| *given == name) {
                    Some(index) => (Source::Scalar(scalars.swap_remove(index).1), Vec::new()),
                    None => {
                        let problem = format!("its scalar '{name}' has no value; give it with KernelOpBuilder::scalar");
                        return Err(plan.refuse(problem));
                    }
                },
            };
            plan.parameters.push(Planned { name, source, shape, aligned });
        }
        if let Some((name, _)) = scalars.first() {
            return Err(plan.refuse(format!("its scalar '{name}' was given twice, or it has none of that name")));
        }
        if !(1..=3).contains(&plan.tensors) {
            return Err(
                plan.refuse(format!("candle's operators take one to three tensors, and it has {}", plan.tensors))
            );
        }
        let output = plan.parameters.iter().find(|planned| matches!(planned.source, Source::Output));
        if let Some((output, alignment)) = output.and_then(|output| Some((output, output.aligned?)))
            && alignment > ALIGNMENT
        {
            return Err(plan.refuse(format!(
                "its result '{}' has to be aligned to {alignment} bytes, and candle's memory is to {ALIGNMENT}; let the \
                 contract ask for less, and the kernel store so",
                output.name
            )));
        }
        if let Some(element) = plan.output.filter(|element| storage::zeros(*element, 0).is_none()) {
            return Err(plan.refuse(format!("it writes {element}, of which slabjit-candle makes no tensors")));
        }
        let used = |name: usize| plan.parameters.iter().any(|planned| planned.shape.contains(&Dimension::Named(name)));
        if let Some((name, _)) = (0..plan.extents.len()).find(|name| !used(*name)).map(|name| &plan.extents[name]) {
            return Err(plan.refuse(format!("it has no extent '{name}' to be given")));
        }
        plan.find_unknown_extents()?;
        plan.written = written;
        Ok(plan)
    }

    /// Returns the buffers that are the result: one, and in place the input whose memory it has, if there is one.
    fn written(&self, signature: &KernelSignature) -> Result<Vec<String>, OpError> {
        let buffers = |wanted: fn(Access) -> bool| -> Vec<String> {
            let buffers = signature.parameters().filter_map(|parameter| match parameter {
                KernelParameter::Buffer { name, access, .. } if wanted(access) => Some(name.to_owned()),
                _ => None,
            });
            buffers.collect()
        };
        let changed = buffers(|access| matches!(access, Access::Out | Access::InOut));
        let [only] = &changed[..] else {
            return Err(self.refuse(format!("it writes {} buffers, and an operator has one result", changed.len())));
        };
        let is_changed = buffers(|access| access == Access::InOut).contains(only);
        match self.writes {
            Writes::Output if is_changed => {
                Err(self.refuse(format!("it changes '{only}'; build it with KernelOpBuilder::build_in_place")))
            }
            Writes::Output => Ok(changed),
            Writes::First if is_changed => Ok(changed),
            Writes::First => {
                let read = buffers(|access| access == Access::In);
                let alias = read.into_iter().find(|input| signature.may_share(only, input));
                let problem = "its contract does not let the result have an input's memory (alias and in_place)";
                Ok(vec![only.clone(), alias.ok_or_else(|| self.refuse(problem))?])
            }
        }
    }

    /// Checks that the result of a kernel with the same parameters has the same memory.
    pub fn check_written(&self, signature: &KernelSignature) -> Result<(), OpError> {
        if self.written(signature)? == self.written {
            return Ok(());
        }
        Err(self.refuse(format!("kernel '{}' has its result in the memory of another tensor", signature.name())))
    }

    /// Checks that the shapes of what a call makes follow from the tensors.
    fn find_unknown_extents(&self) -> Result<(), OpError> {
        let has = |wanted: &Dimension| {
            let tensors = self.parameters.iter().filter(|planned| matches!(planned.source, Source::Tensor(_)));
            tensors.flat_map(|tensor| &tensor.shape).any(|dimension| dimension == wanted)
        };
        for made in &self.parameters {
            if !matches!(made.source, Source::Output | Source::Scratch { .. }) {
                continue;
            }
            for dimension in &made.shape {
                let unknown = match *dimension {
                    Dimension::Fixed(_) => continue,
                    Dimension::Named(index) if self.extents[index].1.is_some() || has(dimension) => continue,
                    Dimension::Named(index) => format!("extent '{}'", self.extents[index].0),
                    Dimension::Any => "an extent without a name".to_owned(),
                };
                return Err(self.refuse(format!(
                    "buffer '{}' has {unknown}, which no tensor has; name it in the contract, and give it with \
                     KernelOpBuilder::extent",
                    made.name
                )));
            }
        }
        Ok(())
    }

    /// Has threads share the rows of an extent.
    pub fn split(&mut self, name: &str, least: usize) -> Result<(), OpError> {
        let named = self.extents.iter().position(|(extent, _)| extent == name);
        let extent = named.ok_or_else(|| self.refuse(format!("it has no extent '{name}' to be split")))?;
        let dimension = Dimension::Named(extent);
        for planned in &self.parameters {
            let is_inside = planned.shape.iter().skip(1).any(|inner| *inner == dimension);
            let is_written = match planned.source {
                Source::Output => true,
                Source::Tensor(0) => self.writes == Writes::First,
                _ => false,
            };
            if let (Some(alignment), true) = (planned.aligned, planned.shape.first() == Some(&dimension)) {
                return Err(self.refuse(format!(
                    "threads cannot share '{}', whose rows need not be aligned to {alignment} bytes as its contract wants",
                    planned.name
                )));
            }
            if is_inside || is_written && planned.shape.first() != Some(&dimension) {
                let buffer = &planned.name;
                return Err(self.refuse(format!(
                    "'{name}' is not the outermost extent of '{buffer}', so threads cannot share it"
                )));
            }
        }
        self.split = Some((extent, least.max(1)));
        Ok(())
    }

    /// Returns the names of the buffers that are tensors, in the tensors' order.
    pub fn tensor_names(&self) -> Vec<String> {
        (0..self.tensors).map(|tensor| self.name_of(tensor).to_owned()).collect()
    }

    /// Returns the name of the first buffer that is this tensor.
    pub fn name_of(&self, tensor: usize) -> &str {
        let named = self.parameters.iter().find(|planned| matches!(planned.source, Source::Tensor(at) if at == tensor));
        named.map_or("", |planned| planned.name.as_str())
    }

    fn dimension(&mut self, extent: Extent) -> Dimension {
        match extent {
            Extent::Fixed(extent) => Dimension::Fixed(extent),
            Extent::Named(name) => {
                let known = self.extents.iter().position(|(known, _)| *known == name);
                Dimension::Named(known.unwrap_or_else(|| {
                    self.extents.push((name, None));
                    self.extents.len() - 1
                }))
            }
            _ => Dimension::Any,
        }
    }

    pub fn refuse(&self, problem: impl Into<String>) -> OpError {
        OpError::Contract { kernel: self.kernel.clone(), problem: problem.into() }
    }
}
