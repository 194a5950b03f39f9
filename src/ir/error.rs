//! Errors of LLVM IR.

use std::fmt;

use crate::error_text::debug;

/// An error of compiling LLVM IR to an object.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum IrError {
    /// LLVM cannot read the bitcode or text of IR, or its verifier refuses the module.
    #[error(
        "'{module}' is not valid LLVM IR: {message}; `opt-{} -passes=verify` says more (LLVM reads what older \
         versions wrote, not what newer ones did)",
        crate::llvm_version()
    )]
    Invalid {
        /// The module's name.
        module: String,
        /// LLVM's message.
        message: String,
    },

    /// The IR was made for another machine or system.
    #[error(
        "'{module}' has the {what} '{found}', this process '{expected}'; compile it for this machine, or leave it out \
         of the module"
    )]
    OtherTarget {
        /// The module's name.
        module: String,
        /// `target triple` or `data layout`.
        what: &'static str,
        /// The module's value.
        found: String,
        /// The process's value.
        expected: String,
    },

    /// LLVM could not compile a valid module, for example because of inline assembly for another machine.
    #[error("LLVM cannot compile '{module}' for this machine: {message}")]
    CodeGeneration {
        /// The module's name.
        module: String,
        /// LLVM's message.
        message: String,
    },

    /// A [transform](crate::orc::JitBuilder::transform) of a module failed, or panicked.
    #[error("transform '{transform}' of '{module}' failed: {source}")]
    Transform {
        /// The module's name.
        module: String,
        /// The transform's key.
        transform: String,
        /// Its error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl fmt::Debug for IrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug(self, f)
    }
}

/// Returns a text of LLVM's.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}
