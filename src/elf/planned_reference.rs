//! A relocation of a link plan.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::elf::planned_reach::Verdict;
use crate::error_text::signed_hex;

/// A relocation of a [`LinkPlan`](crate::LinkPlan), and whether it reaches its target.
///
/// The references of a plan share their texts. Names of more than 4096 bytes are cut off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlannedReference {
    /// The section that the relocation applies to.
    pub section: Arc<str>,
    /// That section's index.
    pub section_index: u32,
    /// Offset of the field in the section, in bytes.
    pub offset: u64,
    /// The function or datum around the field, if one is named.
    pub function: Option<Arc<str>>,
    /// The kind by its name in the ABI, or its number.
    pub relocation: Arc<str>,
    /// The symbol; for a section symbol the section's name, for another nameless one `#` and its index.
    pub symbol: Arc<str>,
    /// The index of the section that defines the symbol, if this object does.
    pub target_section: Option<u32>,
    /// The addend, in bytes.
    pub addend: i64,
    /// Whether it reaches its target.
    pub verdict: Verdict,
    /// The least and the greatest possible value of the field; equal if the value is known exactly. A relative
    /// reference has a distance in bytes (between pages for AArch64's page-relative ones), another one an address.
    pub distance: Option<(i64, i64)>,
    /// The least and the greatest value that the field can hold, if it is limited.
    pub limit: Option<(i64, i64)>,
    /// A condition of the verdict, or the reason for [`Verdict::Refused`].
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
