//! How often each relocation kind occurs, and what was found about each.

use crate::elf::planned_reference::PlannedReference;
use crate::elf::reach::Verdict;
use crate::elf::relocations::Table;
use crate::elf::view::View;

/// How often each relocation kind occurs, and what was found about each, for a link plan.
pub(crate) struct Counts {
    /// By position in the table of kinds.
    pub known: Vec<Tally>,
    pub unknown: Vec<(u32, Tally)>,
    /// Relocations that apply to each section.
    pub sections: Vec<u64>,
    /// Up to a bound.
    pub references: Vec<PlannedReference>,
}

/// How often a kind occurs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub all: u64,
    /// Those of mapped sections, by their verdict ([`Verdict::ALL`]).
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
        // Hostile input may hold any number of numbers.
        if known.is_none() && self.unknown.len() < 64 {
            self.unknown.push((number, Tally::default()));
        }
        let at = known
            .or_else(|| self.unknown.last().filter(|(last, _)| *last == number).map(|_| self.unknown.len() - 1))?;
        self.unknown.get_mut(at).map(|(_, tally)| tally)
    }
}
