//! Page protections.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The protection of a segment. There is none that is both writable and executable.
///
/// The order of the variants is the order of the segments in a slab. There will be no others: matches need no `_`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Protection {
    /// Code: `R-X`.
    #[serde(rename = "R-X")]
    ReadExecute,
    /// Constants: `R--`.
    #[serde(rename = "R--")]
    Read,
    /// Data: `RW-`.
    #[serde(rename = "RW-")]
    ReadWrite,
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ReadExecute => "R-X",
            Self::Read => "R--",
            Self::ReadWrite => "RW-",
        })
    }
}
