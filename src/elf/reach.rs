//! Whether a reference reaches its target, for all that is known before anything has an address.
//!
//! A reference's field holds a value that lies in an interval: one number inside a section, at most the object's size between
//! its sections, at most the arena's between objects, and the distance from anywhere in the arena to what has an address
//! already. What the linker does at final addresses is in `link::reach`; this only foretells it.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::relocations::{Kind, Operation, Through};

/// Whether a reference reaches its target, wherever in the arena the linker puts the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// It reaches wherever the object is put: it stays inside the object, goes through an entry or a stub of the object's own,
    /// has all 64 bits, or is a number that fits.
    Always,
    /// It reaches because objects lie in the arena: its target is in the arena too, or has an address that is in range of all
    /// the arena. Undefined names that were not found count as defined by another object of the engine.
    ///
    /// Also what nobody can tell before addresses are given out, and what depends on an arena that is not here (objects for
    /// another machine): [`PlannedReference::note`](crate::PlannedReference::note) says so then.
    InArena,
    /// It does not reach, or may turn out not to, and goes through a literal, a slot or a stub near it then; see
    /// [`OutOfRange::Bridge`](crate::OutOfRange::Bridge).
    Bridged,
    /// It does not reach from everywhere in the arena, and nothing can be put between.
    Refused,
}

impl Verdict {
    /// All of them, in the order of the declaration.
    pub(crate) const ALL: [Self; 4] = [Self::Always, Self::InArena, Self::Bridged, Self::Refused];

    /// In words, as `slabjit check` prints it.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Always => "always in range",
            Self::InArena => "in range within the arena",
            Self::Bridged => "bridged",
            Self::Refused => "refused",
        }
    }
}

/// Where an undefined name leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    Address(u64),
    /// Somewhere in the arena.
    Arena,
    Unknown,
}

/// What surrounds an object that is judged.
#[derive(Clone)]
pub(crate) struct Surroundings<'a> {
    /// Whether the linker may bridge.
    pub bridges: bool,
    /// Whether objects may ask for executable stacks.
    pub executable_stack: bool,
    /// The process and its arena, for objects that are for it.
    pub host: Option<Host<'a>>,
}

/// Where this process has things.
#[derive(Clone)]
pub(crate) struct Host<'a> {
    pub arena: Range<u64>,
    /// Finds an undefined name; the flag says whether the object can do without.
    pub find: &'a dyn Fn(&str, bool) -> Whereabouts,
}

/// No arena is larger; `memory` is asked to agree where both are known.
pub(crate) const LARGEST_ARENA: u64 = (2 << 30) - (32 << 20);
/// No mapping of a process is above: 47 bits on x86-64, 48 on AArch64 (what lies higher has to be asked for, `mmap(2)`).
const ADDRESSES: Range<u64> = 0..1 << 48;

/// What a reference refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// This offset of the section that holds the reference.
    SameSection(u64),
    /// Another section of the object, or something that the linker makes in it.
    Object,
    /// A section of the object that may lie outside the arena.
    Outside,
    /// Not of this object, and there already.
    Address(u64),
    /// Another object.
    Arena,
}

/// A reference, and what is known of where it is.
#[derive(Debug, Clone)]
pub(crate) struct Reference<'a> {
    pub kind: &'a Kind,
    pub addend: i64,
    /// Of the field in its section.
    pub offset: u64,
    pub target: Target,
    /// The symbol's size in bytes.
    pub size: u64,
    /// What its own section's address is a multiple of.
    pub alignment: u64,
    /// Whether its own section may lie outside the arena.
    pub outside: bool,
    /// More bytes than the object takes in the arena.
    pub extent: u64,
    /// More bytes than its GOT takes.
    pub got: u64,
    /// None if it is another machine's.
    pub arena: Option<Range<u64>>,
    /// Whether it goes through a stub as soon as the target is not the object's own.
    pub stub: bool,
    /// Whether the instruction is one that can be bridged.
    pub bridgeable: bool,
    /// Whether the linker may bridge.
    pub bridges: bool,
}

/// What was found about a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub verdict: Verdict,
    /// The least and the greatest value that the field may have to hold, where anything is known.
    pub value: Option<(i128, i128)>,
    pub note: Option<&'static str>,
}

/// What the bounds of a value come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Basis {
    /// Nothing but the object.
    Object,
    /// The arena's addresses or its size.
    Arena,
    /// No more than how many bits addresses have.
    Anywhere,
}

/// What to do about a target that is not aligned as the instruction needs it.
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
    /// Where the field is.
    fn place(&self) -> (Interval, Basis) {
        match &self.arena {
            Some(arena) if !self.outside => (bounds(arena), Basis::Arena),
            _ => (bounds(&ADDRESSES), Basis::Anywhere),
        }
    }

    /// The distance between the field, or the object's GOT, and something in the object.
    fn within(&self, outside: bool) -> (Interval, Basis) {
        if outside { (around(ADDRESSES.end), Basis::Anywhere) } else { (around(self.extent), Basis::Object) }
    }

    /// S - P; of `from_got` S - GOT.
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

    /// S
    fn address(&self) -> (Interval, Basis) {
        match self.target {
            Target::Address(at) => ((at.into(), at.into()), Basis::Object),
            Target::SameSection(_) => self.place(),
            Target::Outside => (bounds(&ADDRESSES), Basis::Anywhere),
            Target::Object | Target::Arena => Self { outside: false, ..self.clone() }.place(),
        }
    }

    /// The bounds of what the field has to hold; `None` for what only a part of a value is written of, or no value at all.
    fn value(&self) -> Option<(Interval, Basis)> {
        // What lies below a page in either address.
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

    /// What the linker will do about it.
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

/// What the value's lowest bits are known to be, if the field has no place for them: where the target and the field are
/// known by their offsets in sections of known alignment (1 if nothing is known), in bytes.
pub(crate) fn misalignment(kind: &Kind, target: (u64, u64), addend: i64, field: (u64, u64)) -> Option<u64> {
    let known = match kind.operation {
        Operation::Relative => target.1.min(field.1),
        Operation::PageOffset => target.1,
        _ => return None,
    };
    // Powers of two; what is none was refused before.
    let modulus = u64::from(kind.alignment).min(known.max(1));
    let modulus = i128::from(modulus & modulus.wrapping_neg());
    let from = if kind.operation == Operation::Relative { i128::from(field.0) } else { 0 };
    let rest = (i128::from(target.0) + i128::from(addend) - from) & (modulus - 1);
    u64::try_from(rest).ok().filter(|rest| *rest != 0)
}

#[cfg(test)]
mod tests;
