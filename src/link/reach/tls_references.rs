//! Values of thread-local relocations, and their GOT entries.
//!
//! Entries lie in the object's read-only data: the loader's numbers are known before the link.

use crate::elf::EM_X86_64;
use crate::elf::relocations::{Entry, Form, Kind, Operation, Tls};
use crate::link::reach::stub_area::{DATA, Shared};
use crate::link::reach::{Edge, Need, Reach};
use crate::live::tls::{Descriptor, Variable};

/// The reason why a relocation has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::link) enum Missing {
    /// The target is not a thread-local variable.
    Variable,
    /// The target is not at a fixed distance from the thread pointer.
    Distance,
    /// The target is not in the object's own module.
    Module,
    /// The room is used up, which is a bug of ours.
    StubArea,
}

/// The known facts about the target of a thread-local relocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::link) struct Local {
    /// The variable of the symbol.
    pub(in crate::link) variable: Option<Variable>,
    /// The object's own module, if it has one.
    pub(in crate::link) module: Option<u64>,
}

/// Returns the room for the entries of a relocation.
pub(super) fn cost(kind: &Kind) -> Need {
    let data = match kind.operation {
        Operation::ThreadLocal(Tls::Entry(Entry::Descriptor, _)) => 32,
        Operation::ThreadLocal(Tls::Entry(..)) => 16,
        _ => 0,
    };
    Need { code: 0, data }
}

impl Reach {
    /// Returns the value of the field at address `at`.
    pub(super) fn thread_local(&mut self, tls: Tls, edge: &Edge<'_>, at: u64, local: Local) -> Result<i64, Missing> {
        // On x86-64, addends of references to entries are part of the distance: they are relative to the end of the
        // instruction.
        let of_distance = self.machine == EM_X86_64 && matches!(tls, Tls::Entry(..));
        let (addend, displacement) = if of_distance { (0, edge.addend) } else { (edge.addend, 0) };
        let variable = || {
            let variable = local.variable.ok_or(Missing::Variable)?;
            let distance = variable.distance.map(|distance| distance.wrapping_add(addend));
            Ok(Variable { offset: variable.offset.wrapping_add_signed(addend), distance, ..variable })
        };
        let own = || variable().and_then(|v| if local.module == Some(v.module) { Ok(v) } else { Err(Missing::Module) });
        Ok(match tls {
            Tls::Marker => 0,
            Tls::Unlinked => return Err(Missing::Variable),
            Tls::Module => variable()?.module as i64,
            // Code adds it to the start of the block, which it has found for all variables of the module.
            Tls::InBlock => own()?.offset as i64,
            Tls::FromThreadPointer => variable()?.distance.ok_or(Missing::Distance)?,
            Tls::Entry(entry, form) => {
                let variable = if entry == Entry::Block { own()? } else { variable()? };
                let entry = self.entry(entry, variable).ok_or(Missing::StubArea)?;
                let entry = entry?.wrapping_add_signed(displacement);
                const PAGE: u64 = !0xfff;
                match form {
                    Form::Distance => entry.wrapping_sub(at) as i64,
                    Form::Pages => (entry & PAGE).wrapping_sub(at & PAGE) as i64,
                    Form::InPage => (entry & !PAGE) as i64,
                }
            }
        })
    }

    /// Returns the address of an entry, which is added if missing; `None` if there is no room.
    fn entry(&mut self, entry: Entry, variable: Variable) -> Option<Result<u64, Missing>> {
        let Variable { module, offset, .. } = variable;
        let anywhere = |_| true;
        let pair = |rooms: &mut crate::link::reach::StubAreas, offset: u64| {
            rooms.share((Shared::Pair { module }, offset), &DATA, 16, anywhere, |_, piece| {
                words(piece, [module, offset])
            })
        };
        let address = match entry {
            Entry::Variable => pair(&mut self.rooms, offset)?,
            Entry::Block => pair(&mut self.rooms, 0)?,
            Entry::Offset => {
                let Some(distance) = variable.distance else { return Some(Err(Missing::Distance)) };
                let distance = distance as u64;
                let what = (Shared::Distance, distance);
                // 16 bytes keep pairs aligned.
                self.rooms.share(what, &DATA, 16, anywhere, |_, piece| words(piece, [distance, 0]))?
            }
            Entry::Descriptor => {
                let contents = match Descriptor::of(variable) {
                    Descriptor::Fixed { function, distance } => [function, distance as u64],
                    Descriptor::Dynamic { function } => [function, pair(&mut self.rooms, offset)?],
                };
                let what = (Shared::Descriptor { module }, offset);
                self.rooms.share(what, &DATA, 16, anywhere, |_, piece| words(piece, contents))?
            }
        };
        Some(Ok(address))
    }
}

fn words(piece: &mut [u8], words: [u64; 2]) {
    for (place, word) in piece.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}
