//! Counts of relocation kinds and of verdicts, for a link plan.

use crate::elf::elf_view::View;
use crate::elf::planned_reach::Verdict;
use crate::elf::planned_reference::PlannedReference;
use crate::elf::relocations::Table;

pub(crate) struct Counts {
    /// Tallies by position in the table of kinds.
    pub known: Vec<Tally>,
    pub unknown: Vec<(u32, Tally)>,
    /// Number of relocations that apply to each section.
    pub sections: Vec<u64>,
    /// The first references, up to a bound.
    pub references: Vec<PlannedReference>,
}

/// The number of relocations of a kind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub all: u64,
    /// Relocations of mapped sections, by verdict ([`Verdict::ALL`]).
    pub verdicts: [u64; 4],
}

impl Counts {
    pub(crate) fn new(view: &View<'_>) -> Self {
        Self {
            known: vec![Tally::default(); Table::of(view.machine).kinds().len()],
            unknown: Vec::new(),
            sections: vec![0; view.count() as usize],
            references: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, number: u32, position: Option<usize>) {
        if let Some(tally) = self.tally(number, position) {
            tally.all += 1;
        }
    }

    pub(super) fn judged(&mut self, position: Option<usize>, number: u32, verdict: Verdict) {
        let verdict = Verdict::ALL.iter().position(|v| *v == verdict);
        if let Some(count) = self.tally(number, position).zip(verdict).and_then(|(t, v)| t.verdicts.get_mut(v)) {
            *count += 1;
        }
    }

    fn tally(&mut self, number: u32, position: Option<usize>) -> Option<&mut Tally> {
        if let Some(position) = position {
            return self.known.get_mut(position).map(|tally| &mut *tally);
        }
        let known = self.unknown.iter().position(|(known, _)| *known == number);
        // Hostile input may hold any number of unknown kinds.
        if known.is_none() && self.unknown.len() < 64 {
            self.unknown.push((number, Tally::default()));
        }
        let at = known
            .or_else(|| self.unknown.last().filter(|(last, _)| *last == number).map(|_| self.unknown.len() - 1))?;
        self.unknown.get_mut(at).map(|(_, tally)| tally)
    }
}
