//! A relocation of a link plan.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::reach::Verdict;
use crate::error::signed_hex;

/// A relocation of a [`LinkPlan`](crate::LinkPlan), and whether it reaches its target.
///
/// Texts are shared between the references of a plan. Names of more than 4096 bytes are cut off there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlannedReference {
    /// The section that it applies to.
    pub section: Arc<str>,
    /// That section's index.
    pub section_index: u32,
    /// Offset of the field in the section, in bytes.
    pub offset: u64,
    /// The function or datum that it lies in, where one is named.
    pub function: Option<Arc<str>>,
    /// The kind, as the ABI names it, or its number.
    pub relocation: Arc<str>,
    /// The symbol that it refers to; of a section symbol the section's name, of another without a name `#` and its
    /// number.
    pub symbol: Arc<str>,
    /// The index of the section that defines the symbol, if the object does.
    pub target_section: Option<u32>,
    /// Added to the symbol's address, in bytes.
    pub addend: i64,
    /// Whether it reaches.
    pub verdict: Verdict,
    /// The least and the greatest value that its field may have to hold, for all that is known; the same twice if it
    /// is known exactly. For a relative reference a distance in bytes (between pages for AArch64's page-relative ones),
    /// else an address.
    pub distance: Option<(i64, i64)>,
    /// The least and the greatest value that the field can hold, where there are such.
    pub limit: Option<(i64, i64)>,
    /// What the verdict depends on, or why it is [`Verdict::Refused`].
    pub note: Option<Arc<str>>,
}

impl fmt::Display for PlannedReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}+{:#x}", self.verdict.describe(), self.section, self.offset)?;
        if let Some(function) = &self.function {
            write!(f, " in '{function}'")?;
        }
        write!(f, ": {} to '{}'", self.relocation, self.symbol)?;
        if self.addend != 0 {
            write!(f, "{:+}", self.addend)?;
        }
        if let (Some((least, greatest)), Some(limit)) = (self.distance, self.limit) {
            write!(f, ", {}", signed_hex(least))?;
            if greatest != least {
                write!(f, "..={}", signed_hex(greatest))?;
            }
            write!(f, " of {}..={}", signed_hex(limit.0), signed_hex(limit.1))?;
        }
        match &self.note {
            Some(note) => write!(f, "; {note}"),
            None => Ok(()),
        }
    }
}
