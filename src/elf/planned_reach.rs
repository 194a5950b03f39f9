//! Prediction of a reference's reach, before anything has an address.
//!
//! A reference's value lies in an interval: one number inside a section, at most the object's size between its
//! sections, at most the arena's size between objects, and the distance from anywhere in the arena to a target that
//! already has an address. `link::reach` decides at final addresses; this file only predicts.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::elf::relocations::{Kind, Operation, Through};

/// Whether a reference reaches its target, wherever in the arena the linker puts the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// It reaches wherever the object is put: it stays inside the object, goes through the object's own GOT entry or
    /// stub, has all 64 bits, or is a number that fits.
    Always,
    /// It reaches because objects lie in the arena: its target is in the arena too, or has an address in range of the
    /// whole arena. Undefined names that were not found count as defined by another object of the engine.
    ///
    /// The verdict also covers references that depend on final addresses, or on the arena of another machine;
    /// [`PlannedReference::note`](crate::PlannedReference::note) says so.
    InArena,
    /// It does not always reach, and then goes through a literal, a slot or a stub near it; see
    /// [`OutOfRange::Bridge`](crate::OutOfRange::Bridge).
    Bridged,
    /// It does not reach from everywhere in the arena, and cannot be bridged.
    Refused,
}

impl Verdict {
    /// All verdicts, in the order of the declaration.
    pub(crate) const ALL: [Self; 4] = [Self::Always, Self::InArena, Self::Bridged, Self::Refused];

    /// Returns the verdict in words, as `slabjit check` prints it.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Always => "always in range",
            Self::InArena => "in range within the arena",
            Self::Bridged => "bridged",
            Self::Refused => "refused",
        }
    }
}

/// The place to which an undefined name leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    Address(u64),
    /// Somewhere in the arena.
    Arena,
    Unknown,
}

/// The surroundings of an object that is judged.
#[derive(Clone)]
pub(crate) struct Surroundings<'a> {
    /// Whether the linker may bridge.
    pub bridges: bool,
    /// Whether objects may ask for executable stacks.
    pub executable_stack: bool,
    /// The process and its arena, for objects of its machine.
    pub host: Option<Host<'a>>,
}

/// The addresses of this process.
#[derive(Clone)]
pub(crate) struct Host<'a> {
    pub arena: Range<u64>,
    /// Finds an undefined name; the flag says whether the object works without it.
    pub find: &'a dyn Fn(&str, bool) -> Whereabouts,
}

/// Upper bound of every arena's size (`ArenaConfig::MAX`).
pub(crate) const LARGEST_ARENA: u64 = (2 << 30) - (32 << 20);
/// The range of a process's mappings: 47 bits on x86-64, 48 on AArch64 (higher ones must be requested, `mmap(2)`).
const ADDRESSES: Range<u64> = 0..1 << 48;

/// The target of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// This offset of the section that holds the reference.
    SameSection(u64),
    /// Another section of the object, or something that the linker adds to it.
    Object,
    /// A section of the object that may lie outside the arena.
    Outside,
    /// An existing address outside the object.
    Address(u64),
    /// Another object.
    Arena,
}

/// A reference and the known facts about its place.
#[derive(Debug, Clone)]
pub(crate) struct Reference<'a> {
    pub kind: &'a Kind,
    pub addend: i64,
    /// Offset of the field in its section.
    pub offset: u64,
    pub target: Target,
    /// The symbol's size in bytes.
    pub size: u64,
    /// Alignment of its own section's address.
    pub alignment: u64,
    /// Whether its own section may lie outside the arena.
    pub outside: bool,
    /// Upper bound of the bytes that the object takes in the arena.
    pub extent: u64,
    /// Upper bound of the bytes of its GOT.
    pub got: u64,
    /// The arena; none for another machine.
    pub arena: Option<Range<u64>>,
    /// Whether it goes through a stub if the target is in another object.
    pub stub: bool,
    /// Whether the instruction can be bridged.
    pub bridgeable: bool,
    /// Whether the linker may bridge.
    pub bridges: bool,
}

/// The verdict about a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub verdict: Verdict,
    /// The least and the greatest possible value of the field, if known.
    pub value: Option<(i128, i128)>,
    pub note: Option<&'static str>,
}

/// The basis of a value's bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Basis {
    /// The object alone.
    Object,
    /// The arena's addresses or its size.
    Arena,
    /// The width of addresses alone.
    Anywhere,
}

/// The remedy for a target with too small an alignment for the instruction.
pub(crate) const MISALIGNED: &str =
    "the symbol needs the alignment of the instruction's operand; align it where it is defined";

type Interval = (i128, i128);

fn bounds(range: &Range<u64>) -> Interval {
    (range.start.into(), range.end.into())
}

fn around(distance: u64) -> Interval {
    (-i128::from(distance), distance.into())
}

fn minus(a: Interval, b: Interval) -> Interval {
    (a.0 - b.1, a.1 - b.0)
}

impl Reference<'_> {
    /// Returns the field's address.
    fn place(&self) -> (Interval, Basis) {
        match &self.arena {
            Some(arena) if !self.outside => (bounds(arena), Basis::Arena),
            _ => (bounds(&ADDRESSES), Basis::Anywhere),
        }
    }

    /// Returns the distance between the field, or the object's GOT, and something in the object.
    fn within(&self, outside: bool) -> (Interval, Basis) {
        if outside { (around(ADDRESSES.end), Basis::Anywhere) } else { (around(self.extent), Basis::Object) }
    }

    /// Returns S - P, or S - GOT if `from_got`.
    fn distance(&self, from_got: bool) -> (Interval, Basis) {
        let outside = self.outside && !from_got;
        match self.target {
            Target::SameSection(at) if !from_got => {
                let exact = i128::from(at) - i128::from(self.offset);
                ((exact, exact), Basis::Object)
            }
            Target::SameSection(_) => self.within(self.outside),
            Target::Object => self.within(outside),
            Target::Outside => self.within(true),
            Target::Address(_) | Target::Arena if self.stub => self.within(outside),
            Target::Address(at) => {
                let (place, basis) =
                    if from_got { Self { outside: false, ..self.clone() }.place() } else { self.place() };
                (minus((at.into(), at.into()), place), basis)
            }
            Target::Arena if outside => self.within(true),
            Target::Arena => {
                let size = self.arena.as_ref().map_or(LARGEST_ARENA, |arena| arena.end - arena.start);
                (around(size), Basis::Arena)
            }
        }
    }

    /// Returns S.
    fn address(&self) -> (Interval, Basis) {
        match self.target {
            Target::Address(at) => ((at.into(), at.into()), Basis::Object),
            Target::SameSection(_) => self.place(),
            Target::Outside => (bounds(&ADDRESSES), Basis::Anywhere),
            Target::Object | Target::Arena => Self { outside: false, ..self.clone() }.place(),
        }
    }

    /// Returns the bounds of the field's value; `None` if the field has no value, or only a part of one.
    fn value(&self) -> Option<(Interval, Basis)> {
        // The offset in a page, for either address.
        const PAGE: i128 = 4095;
        let ((least, greatest), basis) = match self.kind.operation {
            Operation::Absolute => self.address(),
            Operation::Relative | Operation::PageRelative => self.distance(false),
            Operation::FromGot => self.distance(true),
            Operation::GotBaseRelative | Operation::GotRelative | Operation::GotPageRelative => {
                self.within(self.outside)
            }
            Operation::GotFromGot | Operation::GotFromGotPage => ((0, self.got.into()), Basis::Object),
            Operation::Size => ((self.size.into(), self.size.into()), Basis::Object),
            _ => return None,
        };
        let page = match self.kind.operation {
            Operation::PageRelative | Operation::GotPageRelative | Operation::GotFromGotPage => PAGE,
            _ => 0,
        };
        let addend = i128::from(self.addend);
        Some(((least + addend - page, greatest + addend + page), basis))
    }

    /// Predicts the linker's decision.
    pub(crate) fn judge(&self) -> Judgement {
        let always = |value| Judgement { verdict: Verdict::Always, value, note: None };
        if let Target::Address(at) = self.target
            && !self.stub
            && misalignment(self.kind, (at, u64::MAX), self.addend, (self.offset, self.alignment)).is_some()
        {
            return Judgement { verdict: Verdict::Refused, value: None, note: Some(MISALIGNED) };
        }
        if !self.kind.is_limited() {
            return always(None);
        }
        let Some((value, basis)) = self.value() else { return always(None) };
        let (least, greatest) = self.kind.limit();
        let told = (basis != Basis::Anywhere).then_some(value);
        let judged = |verdict, note| Judgement { verdict, value: told, note };
        if least <= value.0 && value.1 <= greatest {
            let verdict = if basis == Basis::Arena { Verdict::InArena } else { Verdict::Always };
            return judged(verdict, None);
        }
        let never = value.1 < least || value.0 > greatest;
        if self.bridgeable && self.bridges {
            return judged(Verdict::Bridged, (!never).then_some("if it turns out to be too long"));
        }
        if never {
            let note = self.bridgeable.then_some("it could be bridged, which is turned off");
            return judged(Verdict::Refused, note);
        }
        match (basis, self.target) {
            (Basis::Anywhere, _) if self.arena.is_none() => {
                judged(Verdict::InArena, Some("not judged: it depends on the arena's addresses"))
            }
            (Basis::Anywhere, _) => {
                judged(Verdict::InArena, Some("it leads out of the arena or into it, nobody can tell how far"))
            }
            (Basis::Object, _) if self.kind.through == Through::Got => {
                judged(Verdict::InArena, Some("it depends on how many entries the object's GOT gets"))
            }
            (Basis::Object, _) => {
                judged(Verdict::InArena, Some("it depends on how far apart the object's sections come to lie"))
            }
            (Basis::Arena, Target::Arena) if self.kind.operation != Operation::Absolute => {
                judged(Verdict::InArena, Some("only if the object that defines it comes to lie near enough"))
            }
            (Basis::Arena, _) => {
                judged(Verdict::Refused, Some("in range of a part of the arena only: compile with -fPIC"))
            }
        }
    }
}

/// Returns the known lowest bits of the value, if the field cannot hold them. Target and field are offsets in sections
/// of known alignment (1 if nothing is known), in bytes.
pub(crate) fn misalignment(kind: &Kind, target: (u64, u64), addend: i64, field: (u64, u64)) -> Option<u64> {
    let known = match kind.operation {
        Operation::Relative => target.1.min(field.1),
        Operation::PageOffset => target.1,
        _ => return None,
    };
    // Powers of two; validation has refused others.
    let modulus = u64::from(kind.alignment).min(known.max(1));
    let modulus = i128::from(modulus & modulus.wrapping_neg());
    let from = if kind.operation == Operation::Relative { i128::from(field.0) } else { 0 };
    let rest = (i128::from(target.0) + i128::from(addend) - from) & (modulus - 1);
    u64::try_from(rest).ok().filter(|rest| *rest != 0)
}

#[cfg(test)]
mod tests;
