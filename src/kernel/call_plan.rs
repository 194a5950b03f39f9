//! Call plans: addresses and pointers for a later call, captured together and kept alive.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::live::lifetime::loaded_library::CodeRef;
use crate::{Result, Symbol};

/// Addresses of functions and data, and the caller's pointers, captured together and kept alive for later use, for
/// example after a barrier. The use needs no look-up, which might find a replacement (openucx/ucc#1268).
///
/// `T` is the caller's type, made by the closure given to [`capture`](Self::capture); the plan dereferences to it. A
/// use of the plan only reads its fields. A plan is `Send` and `Sync` if `T` is. Clones share the captured values; the
/// last one releases them.
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
/// library.remove();
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
    // Dropped in this order: the captured value may use the kept ones.
    captured: T,
    kept: Kept,
}

/// The capture in progress; see [`CallPlan::capture`].
#[derive(Default)]
pub struct Capture {
    kept: Kept,
}

#[derive(Default)]
struct Kept {
    /// One for each library.
    libraries: Vec<CodeRef>,
    owners: Vec<Box<dyn Any + Send + Sync>>,
}

impl<T> CallPlan<T> {
    /// Makes a plan from the closure's captures.
    ///
    /// # Errors
    /// Those of the closure; then nothing is kept.
    pub fn capture(capture: impl FnOnce(&mut Capture) -> Result<T>) -> Result<Self> {
        let mut all = Capture::default();
        let captured = capture(&mut all)?;
        Ok(Self { inner: Arc::new(Inner { captured, kept: all.kept }) })
    }
}

impl Kept {
    fn names(&self) -> Vec<String> {
        self.libraries.iter().map(|code| code.library().to_string()).collect()
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owners = self.kept.owners.len();
        f.debug_struct("Capture").field("libraries", &self.kept.names()).field("owners", &owners).finish()
    }
}

impl Capture {
    /// Captures the address of a symbol, which may be dropped afterwards.
    pub fn symbol<S: Copy>(&mut self, symbol: &Symbol<S>) -> S {
        let code = symbol.hold();
        if !self.kept.libraries.iter().any(|kept| kept.is_same(code)) {
            self.kept.libraries.push(code.clone());
        }
        symbol.as_raw()
    }

    /// Captures a pointer of the caller's, for example to device memory, with its owner.
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
        let Inner { captured, kept } = &*self.inner;
        f.debug_struct("CallPlan").field("captured", captured).field("libraries", &kept.names()).finish()
    }
}
