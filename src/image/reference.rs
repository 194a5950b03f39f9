//! What a reference becomes in an image that may be loaded anywhere.

use super::symbols::Target;
use crate::elf::relocations::{DynamicKind, Entry, Kind, Operation, Through, Tls};

/// An entry of the GOT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Slot {
    /// The address of a symbol.
    Address(Target),
    /// The word whose address stands for the image, and which has it, as in a linked program.
    Handle,
    /// The result of a resolver.
    Resolved(Target),
    /// Module and offset of a thread-local variable.
    Variable(Target),
    /// Module and start of the image's own thread-local variables.
    Block,
    /// The distance of a thread-local variable from the thread pointer.
    Distance(Target),
    /// The descriptor of a thread-local variable.
    Descriptor(Target),
}

impl Slot {
    pub(super) fn words(self) -> u64 {
        match self {
            Self::Address(_) | Self::Handle | Self::Resolved(_) | Self::Distance(_) => 1,
            Self::Variable(_) | Self::Block | Self::Descriptor(_) => 2,
        }
    }
}

/// The value that goes into a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// None.
    Nothing,
    /// That of the kind's operation for the target's address.
    Address,
    /// The same for the target's stub.
    Stub,
    /// The same for a GOT entry.
    Entry(Slot),
    /// The same for the GOT.
    Got,
    /// The symbol's size.
    Size,
    /// The offset in the image's thread-local block.
    InBlock,
    /// The dynamic loader's.
    Dynamic(DynamicKind),
}

/// Decides about a reference; `None` if it can not be position-independent.
pub(super) fn decide(kind: &Kind, target: Target) -> Option<Use> {
    let is_ours = !matches!(target, Target::Import(_) | Target::Absolute(_));
    let near = |through| match target {
        // A weak function that is nowhere has a stub, too: a call of it ends at address 0.
        Target::Import(_) | Target::Absolute(_) if through == Through::Stub => Some(Use::Stub),
        Target::Import(_) => None,
        Target::Indirect { .. } => Some(Use::Stub),
        // A weak reference to nothing: ld has it lead to the start of the image.
        Target::Absolute(address) => (address == 0).then_some(Use::Address),
        _ => Some(Use::Address),
    };
    Some(match kind.operation {
        Operation::Nothing => Use::Nothing,
        Operation::Absolute => match target {
            Target::Absolute(_) => Use::Address,
            _ if kind.width != 8 => return None,
            Target::Import(_) => Use::Dynamic(DynamicKind::Address),
            _ => Use::Dynamic(DynamicKind::Relative),
        },
        Operation::Relative | Operation::PageRelative => near(kind.through)?,
        Operation::PageOffset => match target {
            Target::Absolute(_) => Use::Address,
            _ => near(kind.through)?,
        },
        Operation::FromGot => near(kind.through)?,
        Operation::GotBaseRelative => Use::Got,
        Operation::GotRelative
        | Operation::GotPageRelative
        | Operation::GotPageOffset
        | Operation::GotFromGot
        | Operation::GotFromGotPage => Use::Entry(Slot::Address(target)),
        Operation::Size => match target {
            Target::Import(_) => return None,
            _ => Use::Size,
        },
        Operation::ThreadLocal(tls) => match tls {
            Tls::Marker => Use::Nothing,
            Tls::Module => Use::Dynamic(DynamicKind::Module),
            Tls::InBlock if is_ours => Use::InBlock,
            Tls::InBlock if kind.width == 8 => Use::Dynamic(DynamicKind::Offset),
            Tls::FromThreadPointer if kind.width == 8 => Use::Dynamic(DynamicKind::Distance),
            Tls::Entry(entry, _) => {
                let slot = match entry {
                    Entry::Variable => Slot::Variable(target),
                    Entry::Block => Slot::Block,
                    Entry::Offset => Slot::Distance(target),
                    Entry::Descriptor => Slot::Descriptor(target),
                };
                Use::Entry(slot)
            }
            Tls::InBlock | Tls::FromThreadPointer | Tls::Unlinked => return None,
        },
        Operation::Resolver | Operation::Patch | Operation::Authenticated | Operation::Dynamic => return None,
    })
}

/// Returns what else than `-fPIC` makes a reference possible.
pub(super) fn advice(kind: &Kind) -> &'static str {
    match kind.operation {
        Operation::ThreadLocal(_) => "with -ftls-model=initial-exec",
        Operation::Relative | Operation::PageRelative | Operation::PageOffset => {
            "add the object that defines the symbol to the image"
        }
        _ => "",
    }
}
