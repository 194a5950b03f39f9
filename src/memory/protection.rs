//! What may be done with a page.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What may be done with the bytes of a segment. Writable and executable at once does not exist.
///
/// The order of the variants is the order of the segments in a slab.
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
