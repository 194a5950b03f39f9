//! Whether every reference of an object reaches its target, and what is done about those that do not.
//!
//! Before addresses are known, `survey` counts the references that may turn out to be too long and could be bridged, and
//! room is made for them. At final addresses `check` looks at every reference: one that is too long is rewritten to go
//! through that room, or refused. Nothing is bridged by copying data, and no instruction changes that reaches anyway.

mod aarch64;
mod room;
mod thread_local;
mod x86_64;

#[cfg(test)]
mod tests;

use std::ops;

use slabjit_llvm_wrap as shim;

use crate::elf::relocations::{Field, Kind, Operation, Range, Table};
use crate::elf::{EM_AARCH64, EM_X86_64, Location, MISALIGNED, in_message};
use crate::error::FarReference;
use room::{Room, Rooms};
pub(super) use thread_local::{Local, Missing};

/// What happens to a reference that does not reach its target; see [`JitEngineBuilder::out_of_range`](crate::JitEngineBuilder::out_of_range).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OutOfRange {
    /// It is made to go through a literal, a slot or a stub near it, where that computes exactly the same: instructions that
    /// take an address (`ADRP`, `ADR`, `lea`) and branches. Everything else is refused.
    #[default]
    Bridge,
    /// It is refused.
    Reject,
}

/// The longest list of failures that is kept.
const MOST_FAILURES: usize = 1000;
/// Where code is larger, a room at its end cannot be reached from its start (`B`: 128 MiB).
const LARGE_CODE: u64 = 100 << 20;
/// What lies between the parts of an object beside their bytes: protections change on pages.
const PADDING: u64 = 8 * (64 << 10);

/// A reference, in the ABI's terms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge<'a> {
    pub relocation: u32,
    /// Of the field, in its block.
    pub offset: usize,
    pub place: Place,
    pub addend: i64,
    pub target: u64,
    pub symbol: &'a str,
}

/// Where a reference leads; the target is an offset in the block, or an address, or not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    SameBlock,
    OtherBlock,
    AtAddress,
    Elsewhere,
}

/// Bytes that bridges may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Need {
    code: u64,
    data: u64,
}

/// A block of the graph at its final address.
pub(super) struct Block<'a> {
    pub section: &'a str,
    pub executable: bool,
    pub address: u64,
    pub content: &'a mut [u8],
    /// File offset of its first byte in the prepared object, if it comes from there.
    pub origin: Option<u64>,
}

/// One object's references.
pub(super) struct Reach {
    machine: u16,
    table: Table,
    policy: OutOfRange,
    arena: ops::Range<u64>,
    /// Of the whole graph, before room is made in it.
    bytes: u64,
    need: Need,
    /// Something refers to another part of the object and reaches less than the arena.
    narrow: bool,
    rooms: Rooms,
    got: u64,
    bridges: u32,
    /// The first thread-local reference that has no value: the relocation and the symbol, and why.
    missing: Option<(&'static str, String, Missing)>,
    failures: Vec<FarReference>,
    more: usize,
}

impl Reach {
    pub(super) fn new(machine: u16, policy: OutOfRange, arena: ops::Range<usize>) -> Self {
        Self {
            machine,
            table: Table::of(machine),
            policy,
            arena: arena.start as u64..arena.end as u64,
            bytes: 0,
            need: Need::default(),
            narrow: false,
            rooms: Rooms::default(),
            got: 0,
            bridges: 0,
            missing: None,
            failures: Vec::new(),
            more: 0,
        }
    }

    /// Counts what the references of one block may need. `content` is the block's, `bytes` the whole graph's.
    pub(super) fn survey(
        &mut self,
        bytes: u64,
        executable: bool,
        content: &[u8],
        edges: impl Iterator<Item = (Edge<'static>, Option<&'static Kind>)>,
    ) {
        self.bytes = bytes;
        for (edge, lifted) in edges {
            let Some(kind) = lifted.or_else(|| Some(self.table.get(edge.relocation)?.1)) else { continue };
            self.need.data = self.need.data.saturating_add(thread_local::cost(kind).data);
            self.narrow |= self.is_narrow(kind, &edge);
            if self.policy == OutOfRange::Reject || !self.may_be_out_of_range(kind, &edge) {
                continue;
            }
            let edge = Edge { relocation: kind.number, ..edge };
            let cost = match self.machine {
                EM_AARCH64 => aarch64::cost(&edge, executable),
                _ if executable => x86_64::cost(&edge, content),
                _ => Need::default(),
            };
            self.need.code = self.need.code.saturating_add(cost.code);
            self.need.data = self.need.data.saturating_add(cost.data);
        }
    }

    /// Whether a relative reference could be too long, for all that is known before the layout.
    fn may_be_out_of_range(&self, kind: &Kind, edge: &Edge<'_>) -> bool {
        if !matches!(kind.operation, Operation::Relative | Operation::PageRelative) {
            return false;
        }
        // Room makes the object larger.
        let most = self.bytes.saturating_mul(4).saturating_add(PADDING).min(i64::MAX as u64);
        let (target, from) = match edge.place {
            Place::SameBlock => (edge.target..edge.target, edge.offset as u64..edge.offset as u64),
            Place::OtherBlock => (0..most, 0..most),
            Place::AtAddress => (edge.target..edge.target, self.arena.clone()),
            // In an object that is linked with this one: on x86-64 in a section outside the arena, for all we know.
            Place::Elsewhere if self.machine == EM_X86_64 => (0..u64::MAX, self.arena.clone()),
            Place::Elsewhere => (self.arena.clone(), self.arena.clone()),
        };
        let page = if kind.operation == Operation::PageRelative { 4096 } else { 0 };
        let least = i128::from(target.start) - i128::from(from.end) + i128::from(edge.addend) - page;
        let greatest = i128::from(target.end) - i128::from(from.start) + i128::from(edge.addend) + page;
        !kind.fits(least) || !kind.fits(greatest)
    }

    /// Whether a reference may lead to another protection of the object, and could be too long if that lay anywhere in the arena.
    fn is_narrow(&self, kind: &Kind, edge: &Edge<'_>) -> bool {
        if !matches!(kind.operation, Operation::Relative | Operation::PageRelative) {
            return false;
        }
        // Code branches to code, of which an object's is in one place.
        let branch = self.machine == EM_AARCH64 && aarch64::is_branch(kind.number);
        let most = i128::from(self.arena.end - self.arena.start);
        edge.place == Place::OtherBlock && !branch && !(kind.fits(most) && kind.fits(-most))
    }

    /// Whether the parts of the object must be near each other, more than all of the arena is.
    pub(super) fn needs_one_slab(&self) -> bool {
        // On AArch64, code loads from the room in read-only data.
        self.narrow || (self.machine == EM_AARCH64 && self.need.data != 0)
    }

    /// Bytes to reserve at the head and the tail of the code, and among read-only data.
    pub(super) fn reserve(&self) -> [u64; 3] {
        let head = if self.machine == EM_AARCH64 && self.bytes > LARGE_CODE { self.need.code } else { 0 };
        [head, self.need.code, self.need.data]
    }

    /// Where the room is (address, bytes) and where the GOT begins, or 0.
    pub(super) fn settle(&mut self, rooms: [(u64, usize); 3], got: u64) {
        // What no bridge uses traps if it is run: int3, or udf.
        let filler = if self.machine == EM_X86_64 { 0xcc } else { 0 };
        self.rooms = Rooms::new(rooms.map(|(address, size)| Room::new(address, size, filler)));
        self.got = got;
    }

    /// Looks at one reference at final addresses. True if its field has been written and LLVM must not.
    ///
    /// `locate` finds the place of an offset in the prepared object, for messages.
    ///
    /// `local`: what is known of the target of thread-local kinds.
    pub(super) fn check(
        &mut self,
        edge: &Edge<'_>,
        block: &mut Block<'_>,
        lifted: Option<&'static Kind>,
        local: Local,
        locate: impl FnOnce(u64) -> Option<Location>,
    ) -> bool {
        // JITLink keeps things alive by edges of its own, at the beginning of code: a lifted relocation may be there too.
        let lifted = lifted.filter(|_| edge.relocation != shim::SLABJIT_OTHER_KIND);
        let Some(kind) = lifted.or_else(|| self.kind(edge, block.content)) else { return false };
        let at = block.address.wrapping_add(edge.offset as u64);
        let value = match kind.operation {
            Operation::ThreadLocal(tls) => match self.thread_local(tls, edge, at, local) {
                Ok(value) => Some(value),
                Err(missing) => {
                    self.missing.get_or_insert_with(|| (kind.name, edge.symbol.to_owned(), missing));
                    return false;
                }
            },
            _ => self.value(kind, edge, at),
        };
        let Some(value) = value else {
            if lifted.is_some() {
                self.fail(kind, edge, block, 0, locate);
            }
            return false;
        };
        let fits = kind.fits(value.into());
        let aligned = kind.is_aligned(value.into());
        if fits && aligned {
            // JITLink takes what is read as signed or as unsigned for one of them only.
            let ours = lifted.is_some() || matches!(kind.range, Range::Either(_));
            return self.settle_field(kind, edge, block, ours.then_some(value));
        }
        if aligned && self.bridge(&Edge { relocation: kind.number, ..*edge }, block) {
            self.bridges = self.bridges.saturating_add(1);
            return true;
        }
        self.fail(kind, edge, block, value, locate);
        false
    }

    /// The relocation that an edge means: what JITLink derives from the instruction, we do too.
    fn kind(&self, edge: &Edge<'_>, content: &[u8]) -> Option<&'static Kind> {
        let kind = |number: u32| Some(self.table.get(number)?.1);
        let alternatives: &[u32] = match (self.machine, edge.relocation) {
            // In unwind tables: the same field, counted the other way round.
            (EM_AARCH64, shim::SLABJIT_NEGATIVE_DELTA32) => return kind(aarch64::PREL32),
            (_, shim::SLABJIT_NEGATIVE_DELTA32) => return kind(x86_64::PC32),
            (EM_AARCH64, aarch64::ADD_ABS_LO12_NC) => &aarch64::PAGE_OFFSETS,
            (EM_AARCH64, aarch64::MOVW_UABS_G0_NC) => &aarch64::WIDE_MOVES,
            (_, number) => return kind(number),
        };
        let word = word_at(content, edge.offset)?;
        alternatives.iter().filter_map(|number| kind(*number)).find(|kind| kind.applies_to(word))
    }

    /// What the field is to hold; `None` for what cannot be out of range.
    ///
    /// JITLink's edges are past the GOT: where a lifted relocation wants its entry, the target is that entry.
    fn value(&self, kind: &Kind, edge: &Edge<'_>, at: u64) -> Option<i64> {
        const PAGE: u64 = !0xfff;
        let got = || (self.got != 0).then_some(self.got);
        if edge.relocation == shim::SLABJIT_NEGATIVE_DELTA32 {
            return Some(at.wrapping_sub(edge.target).wrapping_add_signed(edge.addend) as i64);
        }
        let target = edge.target.wrapping_add_signed(edge.addend);
        Some(match kind.operation {
            Operation::Nothing => 0,
            Operation::Absolute => target,
            Operation::Relative | Operation::GotRelative => target.wrapping_sub(at),
            Operation::PageRelative | Operation::GotPageRelative => (target & PAGE).wrapping_sub(at & PAGE),
            Operation::PageOffset | Operation::GotPageOffset => target & !PAGE,
            Operation::FromGot | Operation::GotFromGot => target.wrapping_sub(got()?),
            Operation::GotFromGotPage => target.wrapping_sub(got()? & PAGE),
            _ => return None,
        } as i64)
    }

    /// A field that fits: JITLink adds bits to AArch64 instructions where the ABI replaces them, so there must be none.
    fn settle_field(&self, kind: &Kind, edge: &Edge<'_>, block: &mut Block<'_>, ours: Option<i64>) -> bool {
        let Some(place) = block.content.get_mut(edge.offset..) else { return false };
        if let Some(value) = ours {
            return kind.encode(place, value).is_ok();
        }
        if self.machine == EM_AARCH64 && !matches!(kind.field, Field::Data(_)) {
            let _ = kind.encode(place, 0);
        }
        false
    }

    fn bridge(&mut self, edge: &Edge<'_>, block: &mut Block<'_>) -> bool {
        if self.policy == OutOfRange::Reject {
            return false;
        }
        let bridged = match self.machine {
            EM_AARCH64 => aarch64::bridge(edge, block, &mut self.rooms),
            _ if block.executable => x86_64::bridge(edge, block.address, block.content, &mut self.rooms),
            _ => None,
        };
        bridged.is_some()
    }

    fn fail(
        &mut self,
        kind: &Kind,
        edge: &Edge<'_>,
        block: &Block<'_>,
        value: i64,
        locate: impl FnOnce(u64) -> Option<Location>,
    ) {
        if self.failures.len() >= MOST_FAILURES {
            self.more += 1;
            return;
        }
        let location = block.origin.and_then(|origin| locate(origin.checked_add(edge.offset as u64)?));
        let location = location.unwrap_or_else(|| Location {
            section: block.section.to_owned(),
            offset: edge.offset as u64,
            function: None,
        });
        let (least, greatest) = kind.limit();
        let clamp = |v: i128| v.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        self.failures.push(FarReference {
            section: location.section,
            offset: location.offset,
            function: location.function,
            instruction: self.instruction(kind, block.content, edge.offset),
            relocation: kind.name.to_owned(),
            symbol: in_message(edge.symbol.as_bytes()),
            target: Some(edge.target.wrapping_add_signed(edge.addend)),
            value,
            limit: (clamp(least), clamp(greatest)),
            alignment: kind.alignment.into(),
            remedy: remedy(self.machine, kind, self.policy, kind.fits(value.into())),
        });
    }

    /// What the field belongs to, for people.
    fn instruction(&self, kind: &Kind, content: &[u8], offset: usize) -> Option<String> {
        if self.machine == EM_AARCH64 {
            if matches!(kind.field, Field::Data(_)) {
                return None;
            }
            let word = word_at(content, offset)?;
            return Some(format!("{} {word:#010x}", aarch64::mnemonic(word)));
        }
        if kind.operation != Operation::Relative || kind.width != 4 {
            return None;
        }
        let before = content.get(offset.checked_sub(3)?..offset)?;
        Some(format!("after bytes {:02x} {:02x} {:02x}", before[0], before[1], before[2]))
    }

    /// How many references were bridged.
    pub(super) fn bridges(&self) -> u32 {
        self.bridges
    }

    /// What has to be written into the room, in the order of `settle`.
    pub(super) fn rooms(&self) -> impl Iterator<Item = &[u8]> {
        self.rooms.rooms.iter().map(|room| &*room.bytes)
    }

    /// The first thread-local reference that has no value.
    pub(super) fn take_missing(&mut self) -> Option<(&'static str, String, Missing)> {
        self.missing.take()
    }

    /// What failed, and how many more.
    pub(super) fn take_failures(&mut self) -> Option<(Vec<FarReference>, usize)> {
        (!self.failures.is_empty()).then(|| (std::mem::take(&mut self.failures), self.more))
    }
}

fn word_at(content: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(content.get(offset..offset.checked_add(4)?)?.try_into().ok()?))
}

fn fits_i32(value: i64) -> bool {
    i32::try_from(value).is_ok()
}

fn remedy(machine: u16, kind: &Kind, policy: OutOfRange, misaligned: bool) -> &'static str {
    if misaligned {
        return MISALIGNED;
    }
    match (machine, kind.operation, policy) {
        (_, _, OutOfRange::Reject) => {
            "compile with -fPIC, so that what is far away is reached through the GOT, or let the engine bridge it (OutOfRange::Bridge)"
        }
        (_, Operation::Absolute, _) => {
            "a field of this width holds low addresses only: compile with -fPIC (-fPIE is not enough for code outside the object), \
             or put the arena into the low 2 GiB (ArenaPlacement) if the target is in the object"
        }
        (EM_AARCH64, ..) => {
            "it is no instruction that takes an address, nor a branch, so nothing can be put between: compile with -fPIC, or \
             put the arena near the target (ArenaPlacement)"
        }
        _ => {
            "the instruction uses the memory itself, or it is data, so nothing can be put between: compile with -fPIC, or put \
             the arena near the target (ArenaPlacement)"
        }
    }
}

/// From the shim's record.
pub(super) fn place_of(place: u32) -> Place {
    match place {
        shim::SLABJIT_SAME_BLOCK => Place::SameBlock,
        shim::SLABJIT_OTHER_BLOCK => Place::OtherBlock,
        shim::SLABJIT_AT_ADDRESS => Place::AtAddress,
        _ => Place::Elsewhere,
    }
}
