//! Range checks of an object's references, and bridges for those that do not reach.
//!
//! Before addresses are known, `survey` counts the references that may be out of range and can be bridged, and room is
//! reserved for them. At final addresses `check` looks at every reference: one out of range is rewritten to go through
//! that room, or refused. No data is copied, and no instruction changes that reaches anyway.

mod aarch64_bridges;
mod stub_area;
mod tls_references;
mod x86_64_bridges;

#[cfg(test)]
mod tests;

use std::ops;

use slabjit_llvm_wrap as shim;

use crate::elf::relocations::{Field, Kind, Operation, Range, Table};
use crate::elf::{EM_AARCH64, EM_X86_64, Location, MISALIGNED, in_message};
use crate::live::error::FarReference;
use crate::out_of_range::OutOfRange;
use stub_area::{StubArea, StubAreas};
pub(super) use tls_references::{Local, Missing};

/// The largest number of failures that are kept.
const MOST_FAILURES: usize = 1000;
/// The code size above which a room at the end cannot be reached from the start (`B`: 128 MiB).
const LARGE_CODE: u64 = 100 << 20;
/// The page of `ADRP`.
const PAGE: u64 = 4096;
/// Upper bound of the padding between an object's parts: protections change on pages.
const PADDING: u64 = 8 * (64 << 10);

/// A reference, in the ABI's terms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge<'a> {
    pub relocation: u32,
    /// Offset of the field in its block.
    pub offset: usize,
    pub place: Place,
    pub addend: i64,
    pub target: u64,
    pub symbol: &'a [u8],
}

/// The target of a reference: an offset in the block, an address, or unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    SameBlock,
    OtherBlock,
    AtAddress,
    /// Somewhere in the arena.
    InArena,
    Elsewhere,
}

/// The bytes that bridges may take.
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
    /// File offset of its first byte in the prepared object, if it has one.
    pub origin: Option<u64>,
}

/// One object's references.
pub(super) struct Reach {
    machine: u16,
    table: Table,
    policy: OutOfRange,
    arena: ops::Range<u64>,
    /// Bytes of the whole graph, before room is reserved.
    bytes: u64,
    need: Need,
    /// Whether a reference to another part of the object reaches less than the arena.
    narrow: bool,
    rooms: StubAreas,
    got: u64,
    bridges: u32,
    /// The first thread-local reference without a value: the relocation, the symbol, and the reason.
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
            rooms: StubAreas::default(),
            got: 0,
            bridges: 0,
            missing: None,
            failures: Vec::new(),
            more: 0,
        }
    }

    /// Counts the room for the references of one block. `content` is the block's, `bytes` the whole graph's.
    pub(super) fn survey(
        &mut self,
        bytes: u64,
        executable: bool,
        content: &[u8],
        edges: impl Iterator<Item = (Edge<'static>, Option<&'static Kind>)>,
    ) {
        for (edge, lifted) in edges {
            let kind = lifted.or_else(|| Some(self.table.get(edge.relocation)?.1));
            if let Some(kind) = kind {
                self.survey_one(bytes, executable, content, edge, kind);
            }
        }
    }

    /// Counts the room for one reference of this kind, and returns whether it may need some because it is out of range.
    pub(super) fn survey_one(
        &mut self,
        bytes: u64,
        executable: bool,
        content: &[u8],
        edge: Edge<'_>,
        kind: &Kind,
    ) -> bool {
        self.bytes = bytes;
        self.need.data = self.need.data.saturating_add(tls_references::cost(kind).data);
        self.narrow |= self.is_narrow(kind, &edge);
        if self.policy == OutOfRange::Reject || !self.may_be_out_of_range(kind, &edge) {
            return false;
        }
        let edge = Edge { relocation: kind.number, ..edge };
        let cost = match self.machine {
            EM_AARCH64 => aarch64_bridges::cost(&edge, executable),
            _ if executable => x86_64_bridges::cost(&edge, content),
            _ => Need::default(),
        };
        self.need.code = self.need.code.saturating_add(cost.code);
        self.need.data = self.need.data.saturating_add(cost.data);
        cost != Need::default()
    }

    /// Returns whether every value of a reference fits that it may have, before the layout.
    pub(super) fn always_fits(&self, kind: &Kind, edge: &Edge<'_>) -> bool {
        !kind.is_limited() || kind.operation == Operation::Relative && !self.may_be_out_of_range(kind, edge)
    }

    /// Forgets what was surveyed and checked.
    pub(super) fn restart(&mut self) {
        *self = Self { table: self.table, arena: self.arena.clone(), ..Self::new(self.machine, self.policy, 0..0) };
    }

    /// Returns whether a relative reference may be out of range, before the layout.
    fn may_be_out_of_range(&self, kind: &Kind, edge: &Edge<'_>) -> bool {
        if !matches!(kind.operation, Operation::Relative | Operation::PageRelative) {
            return false;
        }
        // The reserved room makes the object larger.
        let most = self.bytes.saturating_mul(4).saturating_add(PADDING).min(i64::MAX as u64);
        // Within an object, sizes tell it as a rule.
        let apart = match edge.place {
            Place::SameBlock => edge.target.saturating_add(edge.offset as u64),
            Place::OtherBlock => most,
            _ => u64::MAX,
        };
        if kind.reaches(apart.saturating_add(edge.addend.unsigned_abs()).saturating_add(PAGE)) {
            return false;
        }
        let (target, from) = match edge.place {
            Place::SameBlock => (edge.target..edge.target, edge.offset as u64..edge.offset as u64),
            Place::OtherBlock => (0..most, 0..most),
            Place::AtAddress => (edge.target..edge.target, self.arena.clone()),
            // In another object of the batch: on x86-64 possibly in a section outside the arena.
            Place::Elsewhere if self.machine == EM_X86_64 => (0..u64::MAX, self.arena.clone()),
            Place::InArena | Place::Elsewhere => (self.arena.clone(), self.arena.clone()),
        };
        let page = if kind.operation == Operation::PageRelative { i128::from(PAGE) } else { 0 };
        let least = i128::from(target.start) - i128::from(from.end) + i128::from(edge.addend) - page;
        let greatest = i128::from(target.end) - i128::from(from.start) + i128::from(edge.addend) + page;
        !kind.fits(least) || !kind.fits(greatest)
    }

    /// Returns whether a reference may lead to another protection of the object, and may be out of range if that is
    /// elsewhere in the arena.
    fn is_narrow(&self, kind: &Kind, edge: &Edge<'_>) -> bool {
        if !matches!(kind.operation, Operation::Relative | Operation::PageRelative) {
            return false;
        }
        // An object's code is contiguous, so branches between code are short.
        let branch = self.machine == EM_AARCH64 && aarch64_bridges::is_branch(kind.number);
        edge.place == Place::OtherBlock && !branch && !kind.reaches(self.arena.end - self.arena.start)
    }

    /// Returns whether the parts of the object must be nearer to each other than the arena's size.
    pub(super) fn needs_one_slab(&self) -> bool {
        // On AArch64, code loads from the room in read-only data.
        self.narrow || (self.machine == EM_AARCH64 && self.need.data != 0)
    }

    /// Returns the bytes to reserve at the head and the tail of the code, and in read-only data.
    pub(super) fn reserve(&self) -> [u64; 3] {
        let head = if self.machine == EM_AARCH64 && self.bytes > LARGE_CODE { self.need.code } else { 0 };
        [head, self.need.code, self.need.data]
    }

    /// Sets the rooms (address, bytes) and the start of the GOT, or 0.
    pub(super) fn settle(&mut self, rooms: [(u64, usize); 3], got: u64) {
        // Unused room traps if it is run: int3, or udf.
        let filler = if self.machine == EM_X86_64 { 0xcc } else { 0 };
        self.rooms = StubAreas::new(rooms.map(|(address, size)| StubArea::new(address, size, filler)));
        self.got = got;
    }

    /// Checks one reference at final addresses. Returns true if its field was written and LLVM must not write it.
    ///
    /// `locate` finds the place of an offset in the prepared object, for messages; `local` describes the target of
    /// thread-local kinds.
    pub(super) fn check(
        &mut self,
        edge: &Edge<'_>,
        block: &mut Block<'_>,
        lifted: Option<&'static Kind>,
        local: Local,
        locate: impl FnOnce(u64) -> Option<Location>,
    ) -> bool {
        // JITLink has keep-alive edges of its own at the start of code, where a lifted relocation may be too.
        let lifted = lifted.filter(|_| edge.relocation != shim::SLABJIT_OTHER_KIND);
        let Some(kind) = lifted.or_else(|| self.kind(edge, block.content)) else { return false };
        let at = block.address.wrapping_add(edge.offset as u64);
        let value = match kind.operation {
            Operation::ThreadLocal(tls) => match self.thread_local(tls, edge, at, local) {
                Ok(value) => Some(value),
                Err(missing) => {
                    self.missing
                        .get_or_insert_with(|| (kind.name, String::from_utf8_lossy(edge.symbol).into_owned(), missing));
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
            // JITLink treats these fields as signed, or as unsigned, only.
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

    /// Returns the relocation that an edge stands for, derived from the instruction as JITLink derives it.
    fn kind(&self, edge: &Edge<'_>, content: &[u8]) -> Option<&'static Kind> {
        let kind = |number: u32| Some(self.table.get(number)?.1);
        let alternatives: &[u32] = match (self.machine, edge.relocation) {
            // In unwind tables: the same field with the opposite sign.
            (EM_AARCH64, shim::SLABJIT_NEGATIVE_DELTA32) => return kind(aarch64_bridges::PREL32),
            (_, shim::SLABJIT_NEGATIVE_DELTA32) => return kind(x86_64_bridges::PC32),
            (EM_AARCH64, aarch64_bridges::ADD_ABS_LO12_NC) => &aarch64_bridges::PAGE_OFFSETS,
            (EM_AARCH64, aarch64_bridges::MOVW_UABS_G0_NC) => &aarch64_bridges::WIDE_MOVES,
            (_, number) => return kind(number),
        };
        let word = word_at(content, edge.offset)?;
        alternatives.iter().filter_map(|number| kind(*number)).find(|kind| kind.applies_to(word))
    }

    /// Returns the value of the field; `None` if it cannot be out of range.
    ///
    /// JITLink's edges have passed the GOT: a lifted relocation to a GOT entry has that entry as its target.
    fn value(&self, kind: &Kind, edge: &Edge<'_>, at: u64) -> Option<i64> {
        if edge.relocation == shim::SLABJIT_NEGATIVE_DELTA32 {
            return Some(at.wrapping_sub(edge.target).wrapping_add_signed(edge.addend) as i64);
        }
        kind.value(edge.target.wrapping_add_signed(edge.addend), at, (self.got != 0).then_some(self.got))
    }

    /// Clears a field that fits: JITLink ORs bits into AArch64 instructions that the ABI replaces.
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
            EM_AARCH64 => aarch64_bridges::bridge(edge, block, &mut self.rooms),
            _ if block.executable => x86_64_bridges::bridge(edge, block.address, block.content, &mut self.rooms),
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
            symbol: in_message(edge.symbol),
            target: Some(edge.target.wrapping_add_signed(edge.addend)),
            value,
            limit: (clamp(least), clamp(greatest)),
            alignment: kind.alignment.into(),
            remedy: remedy(self.machine, kind, self.policy, kind.fits(value.into())),
        });
    }

    /// Names the instruction of a field, for messages.
    fn instruction(&self, kind: &Kind, content: &[u8], offset: usize) -> Option<String> {
        if self.machine == EM_AARCH64 {
            if matches!(kind.field, Field::Data(_)) {
                return None;
            }
            let word = word_at(content, offset)?;
            return Some(format!("{} {word:#010x}", aarch64_bridges::mnemonic(word)));
        }
        if kind.operation != Operation::Relative || kind.width != 4 {
            return None;
        }
        let before = content.get(offset.checked_sub(3)?..offset)?;
        Some(format!("after bytes {:02x} {:02x} {:02x}", before[0], before[1], before[2]))
    }

    /// Returns the number of bridged references.
    pub(super) fn bridges(&self) -> u32 {
        self.bridges
    }

    /// Returns the contents of the rooms, in the order of `settle`.
    pub(super) fn rooms(&self) -> impl Iterator<Item = &[u8]> {
        self.rooms.rooms.iter().map(|room| &*room.bytes)
    }

    /// Takes the first thread-local reference without a value.
    pub(super) fn take_missing(&mut self) -> Option<(&'static str, String, Missing)> {
        self.missing.take()
    }

    /// Takes the failures, and the number beyond the bound.
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
            "compile with -fPIC, so that what is far away is reached through the GOT, or let the engine bridge it \
             (OutOfRange::Bridge)"
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

/// Converts the shim's value.
pub(super) fn place_of(place: u32) -> Place {
    match place {
        shim::SLABJIT_SAME_BLOCK => Place::SameBlock,
        shim::SLABJIT_OTHER_BLOCK => Place::OtherBlock,
        shim::SLABJIT_AT_ADDRESS => Place::AtAddress,
        _ => Place::Elsewhere,
    }
}
