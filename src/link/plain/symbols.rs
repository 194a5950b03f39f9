//! Where references to symbols lead.

use smallvec::SmallVec;

use crate::elf::ObjectIndex;
use crate::elf::link_tables::{LinkTables, SymbolPlace};
use crate::live::resolve::decided::{Defined, External};

/// What a reference to a symbol leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// An offset in a section.
    Section(u32, u64),
    Address(u64),
    /// The export of this number, of another object of the batch.
    Export(u32),
    /// Something that only JITLink knows, or nothing.
    Unknown,
}

/// The targets of an object's symbols, by index.
pub(super) struct Symbols {
    targets: SmallVec<[Target; 8]>,
    /// Whether other objects of the batch refer to it, or it refers to them.
    pub(super) is_together: bool,
}

impl Symbols {
    /// Reads the symbols; `None` if they are not those that were decided about.
    pub(super) fn new(
        index: &ObjectIndex,
        tables: &LinkTables<'_>,
        externals: &[External],
        decided: &[Defined],
    ) -> Option<Self> {
        let mut targets = SmallVec::from_elem(Target::Unknown, tables.symbol_count());
        let (mut externals, mut definitions) = (externals.iter(), index.definitions.iter().zip(decided));
        let mut is_together = false;
        for (i, symbol) in tables.symbols() {
            let target = match symbol.place() {
                SymbolPlace::Undefined => Self::external(externals.next()?),
                SymbolPlace::Section(section, value) if symbol.is_local() => Target::Section(section, value),
                SymbolPlace::Section(section, value) => {
                    let (definition, decided) = definitions.next()?;
                    if (definition.section, definition.value) != (section, value) {
                        return None;
                    }
                    is_together |= matches!(decided, Defined::Export(_));
                    match decided {
                        Defined::Keep | Defined::Export(_) => Target::Section(section, value),
                        Defined::Discard(instead) => Self::external(instead),
                    }
                }
                SymbolPlace::Other => continue,
            };
            is_together |= matches!(target, Target::Export(_));
            *targets.get_mut(i as usize)? = target;
        }
        (externals.next().is_none() && definitions.next().is_none()).then_some(Self { targets, is_together })
    }

    fn external(external: &External) -> Target {
        match external {
            External::Absolute(address) => Target::Address(*address),
            External::Batch(export) => Target::Export(*export),
            External::Bound(..) | External::Leave => Target::Unknown,
        }
    }

    /// Returns what a symbol leads to; `None` if only JITLink knows.
    pub(super) fn target(&self, symbol: u32) -> Option<Target> {
        self.targets.get(symbol as usize).copied().filter(|target| *target != Target::Unknown)
    }
}
