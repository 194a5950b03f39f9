//! A call of an operator: tensors become arguments, and threads share the rows.

use std::ops::Range;

use candle_core::{CpuStorage, Layout, Shape};
use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use slabjit::Argument;

use crate::error::OpError;
use crate::plan::{Dimension, Plan, Planned, Source};
use crate::storage::{self, Elements};
use crate::view::View;

/// The tensors of a call, in their order, and the values of the named extents.
pub(crate) struct Call<'a> {
    plan: &'a Plan,
    tensors: Vec<View>,
    extents: Vec<Option<usize>>,
}

/// Calls the kernel, or a tuner.
type Run<'a> = dyn Fn(&[Argument<'_>]) -> slabjit::Result<()> + 'a;

impl<'a> Call<'a> {
    /// Begins a call with tensors to read.
    pub fn reading(plan: &'a Plan, tensors: &[(&CpuStorage, &Layout)]) -> Result<Self, OpError> {
        let mut call = Self { plan, tensors: Vec::new(), extents: Vec::new() };
        for (storage, layout) in tensors {
            call.push(storage::read(storage), storage, layout)?;
        }
        call.find_extents();
        Ok(call)
    }

    /// Begins a call with a tensor to write, and others to read.
    pub fn writing(
        plan: &'a Plan,
        (storage, layout): (&mut CpuStorage, &Layout),
        others: &[(&CpuStorage, &Layout)],
    ) -> Result<Self, OpError> {
        let mut call = Self { plan, tensors: Vec::new(), extents: Vec::new() };
        let elements = storage::write(storage);
        call.push(elements, storage, layout)?;
        if call.tensors[0].repeats() {
            return Err(
                call.refuse(0, "is written, and some of its elements may lie at one address; use Tensor::contiguous")
            );
        }
        for (storage, layout) in others {
            call.push(storage::read(storage), storage, layout)?;
        }
        call.find_extents();
        Ok(call)
    }

    fn push(&mut self, elements: Option<Elements>, storage: &CpuStorage, layout: &Layout) -> Result<(), OpError> {
        use candle_core::backend::BackendStorage as _;
        let tensor = self.tensors.len();
        let elements = elements.ok_or_else(|| OpError::Type {
            kernel: self.plan.kernel.clone(),
            buffer: self.plan.name_of(tensor).to_owned(),
            dtype: storage.dtype(),
        })?;
        let view = View::new(elements, layout);
        self.tensors.push(view.ok_or_else(|| self.refuse(tensor, "has a layout that leads out of its storage"))?);
        Ok(())
    }

    /// Takes the values of named extents from the tensors. One of another rank says nothing; the contract refuses it.
    fn find_extents(&mut self) {
        self.extents = self.plan.extents.iter().map(|(_, given)| *given).collect();
        for planned in &self.plan.parameters {
            let Source::Tensor(tensor) = planned.source else { continue };
            let shape = &self.tensors[tensor].shape;
            for (dimension, extent) in planned.shape.iter().zip(shape).filter(|_| planned.shape.len() == shape.len()) {
                if let Dimension::Named(name) = *dimension {
                    self.extents[name].get_or_insert(*extent);
                }
            }
        }
    }

    /// Returns the shape of what the call makes.
    fn shape(&self, planned: &Planned) -> Vec<usize> {
        let extent = |dimension: &Dimension| match *dimension {
            Dimension::Fixed(extent) => extent,
            Dimension::Named(name) => self.extents[name].unwrap_or(0),
            Dimension::Any => 0,
        };
        planned.shape.iter().map(extent).collect()
    }

    /// Runs the kernel once, for all rows.
    pub fn once(&self, run: &Run<'_>) -> Result<Option<(CpuStorage, Shape)>, OpError> {
        self.with_output(|output| self.run(output, None, run))
    }

    /// Runs the kernel on candle's threads, each with a part of the rows, if the operator is split. The number of rows
    /// is that of one tensor, so all rows of all tensors are checked first.
    pub fn shared(
        &self,
        check: &Run<'_>,
        run: &(dyn Fn(&[Argument<'_>]) -> slabjit::Result<()> + Sync),
    ) -> Result<Option<(CpuStorage, Shape)>, OpError> {
        let Some((extent, least)) = self.plan.split else { return self.once(run) };
        let rows = self.extents[extent].unwrap_or(0);
        let parts = (rows / least).min(rayon::current_num_threads());
        // One of candle's threads that waited for the others would do their work meanwhile, which may want the storage
        // that it has locked.
        if parts < 2 || rayon::current_thread_index().is_some() {
            return self.once(run);
        }
        let each = rows.div_ceil(parts).next_multiple_of(least);
        self.with_output(|output| {
            self.run(output, None, check)?;
            (0..rows.div_ceil(each)).into_par_iter().try_for_each(|part| {
                let first = part * each;
                self.run(output, Some(first..rows.min(first + each)), &run)
            })
        })
    }

    /// Makes the result, if the kernel does not write a tensor.
    fn with_output(
        &self,
        run: impl FnOnce(Option<&View>) -> Result<(), OpError>,
    ) -> Result<Option<(CpuStorage, Shape)>, OpError> {
        let output = self.plan.parameters.iter().find(|planned| matches!(planned.source, Source::Output));
        let (Some(output), Some(element)) = (output, self.plan.output) else {
            run(None)?;
            return Ok(None);
        };
        let shape = self.shape(output);
        let len = shape.iter().try_fold(1_usize, |len, extent| len.checked_mul(*extent));
        let too_large = || OpError::Layout {
            kernel: self.plan.kernel.clone(),
            buffer: output.name.clone(),
            problem: "has no memory for its elements; use smaller tensors",
        };
        let mut made = len.and_then(|len| storage::zeros(element, len)).ok_or_else(too_large)?;
        let layout = Layout::contiguous(shape.as_slice());
        let view = storage::write(&mut made).and_then(|elements| View::new(elements, &layout));
        run(Some(&view.ok_or_else(too_large)?))?;
        Ok(Some((made, shape.into())))
    }

    /// Runs the kernel, on some of the rows.
    fn run(&self, output: Option<&View>, rows: Option<Range<usize>>, run: &Run<'_>) -> Result<(), OpError> {
        let split = self.plan.split.map(|(extent, _)| Dimension::Named(extent));
        let is_split = |planned: &Planned| split.is_some() && planned.shape.first().copied() == split;
        let part = |view: &'_ View, planned: &Planned| match &rows {
            Some(rows) if is_split(planned) => view.rows(rows.start, rows.len()),
            _ => view.clone(),
        };
        let mut scratch = Vec::new();
        let mut views = Vec::with_capacity(self.plan.parameters.len());
        for planned in &self.plan.parameters {
            views.push(match &planned.source {
                Source::Tensor(tensor) => Some(part(&self.tensors[*tensor], planned)),
                Source::Output => output.map(|output| part(output, planned)),
                Source::Scratch { element, alignment } => {
                    let mut shape = self.shape(planned);
                    if let (Some(rows), Some(first), true) = (&rows, shape.first_mut(), is_split(planned)) {
                        *first = rows.len();
                    }
                    let (memory, view) = View::scratch(*element, *alignment, shape).ok_or_else(|| {
                        self.plan.refuse(format!("its scratch buffer '{}' is too large", planned.name))
                    })?;
                    scratch.push(memory);
                    Some(view)
                }
                Source::Scalar(_) => None,
            });
        }
        let arguments = views.iter().zip(&self.plan.parameters).filter_map(|(view, planned)| match &planned.source {
            Source::Scalar(scalar) => Some(scalar()),
            _ => view.as_ref().map(View::argument),
        });
        let arguments: Vec<_> = arguments.collect();
        run(&arguments)?;
        Ok(())
    }

    fn refuse(&self, tensor: usize, problem: &'static str) -> OpError {
        let buffer = self.plan.name_of(tensor).to_owned();
        OpError::Layout { kernel: self.plan.kernel.clone(), buffer, problem }
    }
}
