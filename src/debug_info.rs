//! What is kept of objects for debuggers and for reports.

/// What is kept of objects for debuggers and for reports; see
/// [`JitEngineBuilder::debug_info`](crate::JitEngineBuilder::debug_info).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum DebugInfo {
    /// Names of functions: [`JitEngine::explain_address`](crate::JitEngine::explain_address) and debuggers have them.
    #[default]
    Names,
    /// Names and source lines: [`JitEngine::symbolize`](crate::JitEngine::symbolize) says files and lines of objects
    /// that were compiled with `-g`. Takes as many bytes as their debug sections have, without places of variables.
    Lines,
    /// All debug sections. Debuggers (GDB, LLDB) get each object with its lines, variables, types and unwind records.
    /// For images it keeps the same as [`Lines`](Self::Lines): debuggers read their files.
    Full,
}
