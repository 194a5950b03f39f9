//! What is at an address of loaded code.

use std::fmt;
use std::time::SystemTime;

use crate::debuggers::{self, Line};
use crate::memory::{Occupant, Owner, owner};
use crate::name::ShortName;

/// The library and object at an address; see [`JitEngine::explain_address`](crate::JitEngine::explain_address).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The library.
    pub library: ShortName,
    /// The object.
    pub object: ShortName,
    /// Counts what the engine has loaded: the same addresses have another generation each time.
    pub generation: u64,
    /// When it was removed; none as long as it lives.
    pub removed: Option<SystemTime>,
    /// Offset of the address in the object's slab, or in its own mapping where the section lies outside the arena.
    pub offset: usize,
    /// The function at the address, if the object's symbol table has one there.
    pub function: Option<FunctionOffset>,
}

/// An address in a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionOffset {
    /// The function's name, as the object has it.
    pub name: ShortName,
    /// Offset of the address from its beginning.
    pub offset: usize,
}

/// What is at an address of loaded code; see [`symbolize`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Symbolized {
    /// The object and the function.
    pub explanation: Explanation,
    /// The source lines: where a function was inlined that of the innermost first, with those that it was inlined into
    /// behind it. Empty if the object has no debug information for the address, or it is not kept.
    pub lines: Vec<SourceLine>,
}

/// A place in source code, as debug information has it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceLine {
    /// The function, by its linkage name if it has one.
    pub function: Option<String>,
    /// The source file, with the folder that it was compiled in.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<u32>,
    /// The column, from 1.
    pub column: Option<u32>,
}

impl fmt::Display for Symbolized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.explanation.fmt(f)?;
        for SourceLine { function, file, line, .. } in &self.lines {
            let (function, file) = (function.as_deref().unwrap_or("?"), file.as_deref().unwrap_or("?"));
            write!(f, "\n  at {file}:{} ({function})", line.unwrap_or_default())?;
        }
        Ok(())
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { library, object, generation, removed, offset, function } = self;
        if let Some(FunctionOffset { name, offset }) = function {
            write!(f, "{name}+{offset:#x} in ")?;
        }
        write!(f, "'{object}' of library '{library}' (generation {generation}), offset {offset:#x} of its slab")?;
        let Some(removed) = removed else { return Ok(()) };
        match removed.elapsed() {
            Ok(ago) => write!(f, ", removed {}.{:03} s ago", ago.as_secs(), ago.subsec_millis()),
            Err(_) => f.write_str(", removed"),
        }
    }
}

impl Explanation {
    pub(crate) fn new(occupant: Occupant, address: usize) -> Self {
        let Occupant { start, library, object, generation, removed, function, .. } = occupant;
        let function = function.map(|(name, offset)| FunctionOffset { name, offset });
        Self { library, object, generation, removed, offset: address - start, function }
    }
}

impl Symbolized {
    pub(crate) fn new(explanation: Explanation, address: usize) -> Self {
        let lines = if explanation.removed.is_some() { Vec::new() } else { debuggers::lines_of(address) };
        let lines =
            lines.into_iter().map(|Line { function, file, line, column }| SourceLine { function, file, line, column });
        Self { lines: lines.collect(), explanation }
    }
}

/// Returns what is at an address of the loaded code of any engine, as
/// [`JitEngine::symbolize`](crate::JitEngine::symbolize) does for one.
pub fn symbolize(address: *const ()) -> Option<Symbolized> {
    match owner(address.addr(), true)? {
        Owner::Arena(occupant) => Some(Symbolized::new(Explanation::new(occupant?, address.addr()), address.addr())),
        Owner::Former(_) => None,
    }
}
