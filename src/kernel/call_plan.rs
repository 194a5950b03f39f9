//! Everything that a call needs, captured together and kept.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::link::Hold;
use crate::{Result, Symbol};

/// Addresses of functions and data, and pointers of the caller's, captured together while all of it is alive, and keeping it alive: to
/// be used later, after a barrier say, without a look-up that might find what has taken its place meanwhile (openucx/ucc#1268).
///
/// `T` is the caller's own, made by the closure that [`capture`](Self::capture) is given; the plan dereferences to it. Using the plan is
/// reading its fields. A plan is `Send` and `Sync` where `T` is. Clones share what is captured; the last one lets go of it.
///
/// ```no_run
/// use slabjit::{CallPlan, JitEngine};
///
/// struct Reduce {
///     run: unsafe extern "C" fn(*const f32, u64),
///     table: usize,
///     output: u64,
/// }
///
/// # fn allocate_on_device() -> std::sync::Arc<u64> { 7.into() }
/// # fn barrier() {}
/// # fn main() -> slabjit::Result<()> {
/// let library = JitEngine::new()?.add_object_file("reduce.o")?;
/// let output = allocate_on_device();
/// let plan = CallPlan::capture(|capture| {
///     Ok(Reduce {
///         // SAFETY: the types are those of the object's symbols; its initialisers may run.
///         run: unsafe { capture.get(&library, "reduce")? },
///         table: unsafe { capture.get::<*const f32>(&library, "table")? }.addr(),
///         output: capture.pointer(*output, output.clone()),
///     })
/// })?;
/// library.remove()?;
/// barrier();
/// // SAFETY: the plan keeps the code, and the owner of the output.
/// unsafe { (plan.run)(plan.table as *const f32, plan.output) };
/// # Ok(())
/// # }
/// ```
pub struct CallPlan<T> {
    inner: Arc<Inner<T>>,
}

struct Inner<T> {
    // Dropped in this order: what was captured may use what is kept.
    captured: T,
    kept: Kept,
}

/// What is being captured; see [`CallPlan::capture`].
#[derive(Default)]
pub struct Capture {
    kept: Kept,
}

#[derive(Default)]
struct Kept {
    /// One for each library.
    libraries: Vec<Hold>,
    owners: Vec<Box<dyn Any + Send + Sync>>,
}

impl<T> CallPlan<T> {
    /// Makes a plan of what the closure captures.
    ///
    /// # Errors
    /// Those of the closure. Nothing is kept then.
    pub fn capture(capture: impl FnOnce(&mut Capture) -> Result<T>) -> Result<Self> {
        let mut all = Capture::default();
        let captured = capture(&mut all)?;
        Ok(Self { inner: Arc::new(Inner { captured, kept: all.kept }) })
    }
}

impl Capture {
    /// Where a symbol is. It may be dropped after that.
    pub fn symbol<S: Copy>(&mut self, symbol: &Symbol<S>) -> S {
        let code = symbol.hold();
        if !self.kept.libraries.iter().any(|kept| kept.is_same(code)) {
            self.kept.libraries.push(code.clone());
        }
        symbol.as_raw()
    }

    /// A pointer of the caller's, to a device's memory for example, and what owns that.
    pub fn pointer<P: Copy>(&mut self, pointer: P, owner: impl Send + Sync + 'static) -> P {
        self.kept.owners.push(Box::new(owner));
        pointer
    }
}

impl<T> Deref for CallPlan<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner.captured
    }
}

impl<T> Clone for CallPlan<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T: fmt::Debug> fmt::Debug for CallPlan<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let libraries: Vec<_> = self.inner.kept.libraries.iter().map(|code| code.library().text()).collect();
        f.debug_struct("CallPlan").field("captured", &self.inner.captured).field("libraries", &libraries).finish()
    }
}
