//! Operators: kernels as candle calls them.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, CustomOp3, InplaceOp1, InplaceOp2, InplaceOp3, Layout, Result, Shape, Tensor,
};
use slabjit::{Argument, Autotuner, Candidate, Kernel, KernelSignature, Scalar, Tuning};

use crate::call::Call;
use crate::error::OpError;
use crate::plan::{MakeScalar, Plan, Writes};

/// An operator of candle that runs a kernel.
///
/// The kernel's read buffers are the operator's tensors, in the contract's order, and the buffer that it writes is the
/// result. Scratch buffers and scalars that are extents are the operator's business; other scalars have one value for
/// all calls. A gradient does not flow through it.
///
/// It serves all threads, and clones share it.
#[derive(Clone)]
pub struct KernelOp {
    inner: Arc<Inner>,
}

struct Inner {
    plan: Plan,
    kernel: ArcSwap<Kernel>,
}

/// The builder of an operator; see [`KernelOp::builder`].
#[must_use]
pub struct KernelOpBuilder {
    kernel: Kernel,
    scalars: Vec<(String, MakeScalar)>,
    extents: Vec<(String, usize)>,
    split: Option<(String, usize)>,
}

impl fmt::Debug for KernelOpBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelOpBuilder").field("kernel", &self.kernel).finish_non_exhaustive()
    }
}

impl KernelOpBuilder {
    /// Gives a scalar its value.
    pub fn scalar<T: Scalar + Send + Sync>(mut self, name: &str, value: T) -> Self {
        self.scalars.push((name.to_owned(), Box::new(move || value.into())));
        self
    }

    /// Gives an extent of the result or of a scratch buffer, where no tensor has it.
    pub fn extent(mut self, name: &str, extent: usize) -> Self {
        self.extents.push((name.to_owned(), extent));
        self
    }

    /// Has the threads of candle's pool share the rows of an extent. Each takes a multiple of `least`, the last one the
    /// rest. The extent is the outermost one of each buffer that has it, and the result has it.
    ///
    /// On a thread of the pool the operator does not split. While it runs elsewhere, its tensors are locked as by
    /// candle's own operators: work in the pool must not wait for a tensor that it writes.
    pub fn split(mut self, extent: &str, least: usize) -> Self {
        self.split = Some((extent.to_owned(), least));
        self
    }

    /// Builds an operator that makes a new tensor.
    ///
    /// # Errors
    /// [`OpError::Contract`] for a contract that no operator has, and for names that are not in it.
    ///
    /// # Safety
    /// As for [`Kernel::call`], for all tensors that fit the contract: the function does what the contract says, on
    /// several threads at once, too. It does not unwind, and accepts the scalars.
    pub unsafe fn build(self) -> std::result::Result<KernelOp, OpError> {
        self.finish(Writes::Output)
    }

    /// Builds an operator that changes its first tensor: a buffer that the kernel changes (`inout`), or an input whose
    /// memory the result may have (`alias` and `in_place`).
    ///
    /// # Errors
    /// As for [`build`](Self::build).
    ///
    /// # Safety
    /// As for [`build`](Self::build).
    pub unsafe fn build_in_place(self) -> std::result::Result<KernelOp, OpError> {
        self.finish(Writes::First)
    }

    fn finish(self, writes: Writes) -> std::result::Result<KernelOp, OpError> {
        let Self { kernel, scalars, extents, split } = self;
        let mut plan = Plan::new(kernel.signature(), writes, scalars, extents)?;
        if let Some((extent, least)) = split {
            plan.split(&extent, least)?;
        }
        Ok(KernelOp { inner: Arc::new(Inner { plan, kernel: ArcSwap::from_pointee(kernel) }) })
    }
}

impl KernelOp {
    /// Begins an operator of a kernel.
    pub fn builder(kernel: &Kernel) -> KernelOpBuilder {
        KernelOpBuilder { kernel: kernel.clone(), scalars: Vec::new(), extents: Vec::new(), split: None }
    }

    /// Runs the kernel on tensors, and returns what it writes.
    ///
    /// # Errors
    /// candle's own, and [`OpError`] as [`candle_core::Error::Wrapped`].
    pub fn apply(&self, tensors: &[&Tensor]) -> Result<Tensor> {
        self.forward(tensors, How::Call(&self.inner.kernel.load_full()))
    }

    /// Changes the first tensor by the kernel.
    ///
    /// # Errors
    /// As for [`apply`](Self::apply).
    pub fn apply_in_place(&self, tensors: &[&Tensor]) -> Result<()> {
        self.expect(tensors, Writes::First)?;
        for (index, other) in tensors.iter().enumerate().skip(1) {
            if share_storage(tensors[0], other) {
                let plan = &self.inner.plan;
                let (kernel, first, second) = (plan.kernel.clone(), plan.name_of(0), plan.name_of(index));
                Err(OpError::SharedStorage { kernel, first: first.to_owned(), second: second.to_owned() })?;
            }
        }
        let kernel = self.inner.kernel.load_full();
        let forward = Forward { plan: &self.inner.plan, how: How::Call(&kernel) };
        match tensors {
            [one] => one.inplace_op1(&forward),
            [one, two] => one.inplace_op2(two, &forward),
            [one, two, three] => one.inplace_op3(two, three, &forward),
            _ => Ok(()),
        }
    }

    /// Puts another version of the kernel in. Calls that have begun end with the old one, which stays loaded for them;
    /// nobody waits.
    ///
    /// # Errors
    /// [`OpError::Contract`] if the new one has other parameters.
    ///
    /// # Safety
    /// As for [`KernelOpBuilder::build`].
    pub unsafe fn replace(&self, kernel: &Kernel) -> std::result::Result<(), OpError> {
        self.check_same(kernel.signature())?;
        self.inner.kernel.store(Arc::new(kernel.clone()));
        Ok(())
    }

    /// Finds the fastest of several kernels on these tensors, which keep their contents, and puts it in. Returns its
    /// result and the trials; [`Autotuner::run`] says how they are measured. Threads do not share rows meanwhile. An
    /// operator in place cannot be tuned: tune one that makes a new tensor, and [`replace`](Self::replace) the kernel.
    ///
    /// # Errors
    /// As for [`apply`](Self::apply) and [`replace`](Self::replace).
    ///
    /// # Safety
    /// As for [`KernelOpBuilder::build`], for each candidate.
    pub unsafe fn tune(
        &self,
        candidates: &[(&'static str, Kernel)],
        tensors: &[&Tensor],
    ) -> Result<(Tensor, Arc<Tuning>)> {
        if self.inner.plan.writes == Writes::First {
            let problem =
                "it changes its first tensor; tune one that makes a new tensor, and put its kernel in by replace";
            Err(self.inner.plan.refuse(problem))?;
        }
        for (_, kernel) in candidates {
            self.check_same(kernel.signature())?;
        }
        let tried: Vec<_> = candidates.iter().map(|(name, kernel)| Candidate::kernel(*name, kernel)).collect();
        let (tuner, done) = (Autotuner::new(), std::cell::OnceCell::new());
        // SAFETY: by the caller's contract; `Call` makes arguments of tensors that candle has locked.
        let tune = |arguments: &[Argument<'_>]| unsafe {
            let tuning = tuner.run("", &tried, arguments)?;
            let _ = done.set(tuning);
            Ok(())
        };
        let result = self.forward(tensors, How::Tune(&tune))?;
        let tuning = done.into_inner().ok_or_else(|| candle_core::Error::msg("the kernels were not tuned"))?;
        self.inner.kernel.store(Arc::new(candidates[tuning.winner].1.clone()));
        Ok((result, tuning))
    }

    fn forward(&self, tensors: &[&Tensor], how: How<'_>) -> Result<Tensor> {
        self.expect(tensors, Writes::Output)?;
        let forward = Forward { plan: &self.inner.plan, how };
        match tensors {
            [one, two] => one.apply_op2_no_bwd(two, &forward),
            [one, two, three] => one.apply_op3_no_bwd(two, three, &forward),
            _ => tensors[0].apply_op1_no_bwd(&forward),
        }
    }

    fn expect(&self, tensors: &[&Tensor], writes: Writes) -> std::result::Result<(), OpError> {
        let plan = &self.inner.plan;
        if plan.writes != writes {
            let problem = match writes {
                Writes::Output => "it was built to change its first tensor; call apply_in_place",
                Writes::First => "it was built to make a new tensor; call apply, or build it with build_in_place",
            };
            return Err(plan.refuse(problem));
        }
        if tensors.len() != plan.tensors {
            let (kernel, expected) = (plan.kernel.clone(), plan.tensor_names());
            return Err(OpError::Tensors { kernel, expected, given: tensors.len() });
        }
        Ok(())
    }

    fn check_same(&self, other: &KernelSignature) -> std::result::Result<(), OpError> {
        let kernel = self.inner.kernel.load();
        if kernel.signature().parameters().eq(other.parameters()) {
            return self.inner.plan.check_written(other);
        }
        let problem = format!("kernel '{}' has other parameters, and cannot replace it", other.name());
        Err(self.inner.plan.refuse(problem))
    }
}

impl fmt::Debug for KernelOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelOp").field("kernel", &self.inner.kernel.load()).finish_non_exhaustive()
    }
}

fn share_storage(one: &Tensor, other: &Tensor) -> bool {
    // One after the other, as a tensor may be locked only once by a thread.
    let address = |tensor: &Tensor| std::ptr::from_ref(&*tensor.storage_and_layout().0).addr();
    address(one) == address(other)
}

#[derive(Clone, Copy)]
enum How<'a> {
    Call(&'a Kernel),
    Tune(&'a dyn Fn(&[Argument<'_>]) -> slabjit::Result<()>),
}

/// A call of an operator, as candle knows it.
struct Forward<'a> {
    plan: &'a Plan,
    how: How<'a>,
}

type Operand<'a> = (&'a CpuStorage, &'a Layout);

impl Forward<'_> {
    fn run(&self, call: std::result::Result<Call<'_>, OpError>) -> Result<Option<(CpuStorage, Shape)>> {
        Ok(match self.how {
            How::Call(kernel) => {
                let check = |arguments: &[Argument<'_>]| kernel.signature().check(arguments);
                // SAFETY: whoever built the operator vouches for the kernel, and `Call` makes arguments of tensors that
                // candle has locked.
                call?.shared(&check, &|arguments| unsafe { kernel.call(arguments) })?
            }
            How::Tune(tune) => call?.once(tune)?,
        })
    }

    fn make(&self, tensors: &[Operand<'_>]) -> Result<(CpuStorage, Shape)> {
        let made = self.run(Call::reading(self.plan, tensors))?;
        made.ok_or_else(|| self.plan.refuse("it makes no tensor").into())
    }

    fn change(&self, first: (&mut CpuStorage, &Layout), others: &[Operand<'_>]) -> Result<()> {
        self.run(Call::writing(self.plan, first, others)).map(drop)
    }
}

/// candle's name for all operators of this crate; errors name the kernel.
const NAME: &str = "a kernel of slabjit";

impl CustomOp1 for Forward<'_> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(&self, s1: &CpuStorage, l1: &Layout) -> Result<(CpuStorage, Shape)> {
        self.make(&[(s1, l1)])
    }
}

impl CustomOp2 for Forward<'_> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(&self, s1: &CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Result<(CpuStorage, Shape)> {
        self.make(&[(s1, l1), (s2, l2)])
    }
}

impl CustomOp3 for Forward<'_> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(
        &self,
        s1: &CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
        s3: &CpuStorage,
        l3: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.make(&[(s1, l1), (s2, l2), (s3, l3)])
    }
}

impl InplaceOp1 for Forward<'_> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(&self, s1: &mut CpuStorage, l1: &Layout) -> Result<()> {
        self.change((s1, l1), &[])
    }
}

impl InplaceOp2 for Forward<'_> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(&self, s1: &mut CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Result<()> {
        self.change((s1, l1), &[(s2, l2)])
    }
}

impl InplaceOp3 for Forward<'_> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(
        &self,
        s1: &mut CpuStorage,
        l1: &Layout,
        s2: &CpuStorage,
        l2: &Layout,
        s3: &CpuStorage,
        l3: &Layout,
    ) -> Result<()> {
        self.change((s1, l1), &[(s2, l2), (s3, l3)])
    }
}
