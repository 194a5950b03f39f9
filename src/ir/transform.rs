//! Changes of modules before they are optimised, by the user's functions.

use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use inkwell::module::Module;

use super::{IrError, invalid};
use crate::fork_guard;
use crate::guarded::panic_message;
use crate::{Error, Result};

type Change = dyn Fn(&Module<'_>) -> Result<(), Box<dyn StdError + Send + Sync>> + Send + Sync;

#[derive(Clone)]
pub(crate) struct Transform {
    /// What stands for the function in caches.
    pub(crate) key: String,
    pub(crate) change: Arc<Change>,
}

impl Transform {
    pub(super) fn apply(&self, name: &str, module: &Module<'_>) -> Result<()> {
        // Where it panics, the module is given up. It may fork.
        let change = AssertUnwindSafe(|| fork_guard::without(|| (self.change)(module)));
        let changed = catch_unwind(change).unwrap_or_else(|panic| Err(panic_message(&*panic).into()));
        changed.map_err(|source| {
            Error::Ir(IrError::Transform { module: name.to_owned(), transform: self.key.clone(), source })
        })?;
        // Safe code can make invalid modules, which LLVM does not expect.
        module.verify().map_err(|message| invalid(name, message.to_bytes()))
    }
}
