//! The changes that preparation made, as text and as data.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One change that preparation made to an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Change {
    /// The plugin that made it.
    pub plugin: String,
    /// The section concerned, if any.
    pub section: Option<ChangedSection>,
    /// The kind of change.
    pub what: ChangeKind,
}

/// The section that a [`Change`] concerns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChangedSection {
    /// Its index.
    pub index: u32,
    /// Its name before the change.
    pub name: String,
}

/// The kind of a [`Change`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ChangeKind {
    /// The section was renamed.
    Renamed {
        /// The new name.
        to: String,
    },
    /// The section's flags were changed.
    Flags {
        /// Before, as the letters of `readelf`.
        from: String,
        /// After.
        to: String,
    },
    /// A compressed section was expanded.
    Decompressed {
        /// `zlib` or `zstd`.
        format: String,
        /// Bytes before.
        from: u64,
        /// Bytes after.
        to: u64,
    },
    /// Compact relocations (`SHT_CREL`) were decoded.
    CrelDecoded {
        /// The number of relocations.
        count: u64,
    },
    /// Relocations that patch nothing were removed.
    Dropped {
        /// The number of relocations.
        count: u64,
    },
    /// Zeros that ended an unwind table became padding of the record before them.
    EndsPadded {
        /// The number of bytes.
        bytes: u64,
    },
    /// CIEs of version 3 became equivalent ones of version 1.
    CieVersions {
        /// The number of CIEs.
        count: u64,
    },
    /// A fragment of code in `.init` or `.fini` became a function, as crti.o and crtn.o make one of all fragments.
    MadeFunction {
        /// Bytes before.
        from: u64,
        /// Bytes after.
        to: u64,
    },
    /// A symbol's entry was rewritten so that LLVM links it.
    Symbol {
        /// The symbol.
        name: String,
        /// The change.
        to: String,
    },
    /// A caller's plugin returned other bytes.
    Rewritten {
        /// Bytes before.
        from: u64,
        /// Bytes after.
        to: u64,
    },
    /// A caller's plugin described its change in its own words.
    Other(String),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.plugin)?;
        if let Some(section) = &self.section {
            write!(f, "section {} '{}' ", section.index, section.name)?;
        }
        write!(f, "{}", self.what)
    }
}

impl fmt::Display for ChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Renamed { to } => write!(f, "renamed to '{to}'"),
            Self::Flags { from, to } => write!(f, "flags {from} -> {to}"),
            Self::Decompressed { format, from, to } => write!(f, "decompressed ({format}), {from} -> {to} bytes"),
            Self::CrelDecoded { count } => write!(f, "{count} compact relocations decoded"),
            Self::Dropped { count } => write!(f, "{count} relocations left out that patch nothing"),
            Self::EndsPadded { bytes } => write!(f, "{bytes} bytes that end an unwind table made padding"),
            Self::CieVersions { count } => write!(f, "{count} CIEs of version 3 given the version 1"),
            Self::MadeFunction { from, to } => write!(f, "made a function, {from} -> {to} bytes"),
            Self::Symbol { name, to } => write!(f, "symbol '{name}' {to}"),
            Self::Rewritten { from, to } => write!(f, "rewritten, {from} -> {to} bytes"),
            Self::Other(text) => f.write_str(text),
        }
    }
}
