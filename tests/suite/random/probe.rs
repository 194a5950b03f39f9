//! Probes: a relocation on an instruction or datum, and what running or reading it has to yield by the ABI's formulas.
//!
//! S is the symbol's address, A the relocation's addend, P the place; `a` is the distance from S that the code means.

#![allow(dead_code, reason = "some of it is for one architecture only")]

use crate::common::Random;

/// What a form needs of its target, beside an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    /// Nothing: the address is only computed. Any `a`.
    Address,
    /// The address is only computed; `a` is 0, because it cannot be said or means something else.
    Exact,
    /// A function that returns its own address, at S + a.
    Call,
    /// A function that returns its own address, at S; `a` is 0.
    Function,
    /// So many bytes of memory at S + a, aligned to so many.
    Read(u64, u64),
}

/// Where targets are that the form reaches mostly: most objects are to load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Anywhere.
    All,
    /// In the same section, within so many bytes.
    Section(i64),
    /// In the arena: within 2 GiB.
    Arena,
    /// Below 2^n.
    Low(u32),
}

/// The bytes of a probe, and what they yield.
pub struct Code {
    pub bytes: Vec<u8>,
    pub fields: Vec<Field>,
    pub outcome: Outcome,
}

/// A relocation of a probe.
pub struct Field {
    /// From the probe's start.
    pub offset: usize,
    pub kind: u32,
    pub on: On,
    pub addend: i64,
    /// Out of range it is bridged: it belongs to an instruction for which this is promised.
    pub bridged: bool,
}

/// What a relocation refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    Target,
    /// `_GLOBAL_OFFSET_TABLE_`
    Got,
}

/// What a probe yields. The first group is called as `uint64_t (void)`, the second is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// S + a
    Address,
    /// The low 32 bits of that.
    Low32,
    /// S + a - (start + this)
    Distance(usize),
    /// S + a as an `ADRP` without a check makes it: what the page is away from that of start + this, in 33 bits.
    PageUnchecked(usize),
    /// So many bytes at S + a, extended as signed or not.
    Memory(usize, bool),
    /// 1 if S is 0, else 0.
    IsZero,
    /// A constant.
    Equal(u64),
    /// Z + A
    Size(i64),

    /// The field itself, of so many bytes.
    Datum(usize, Sign, Formula),
    /// A field of so many bytes that leads from P to a GOT entry, with this addend; S is in the entry.
    GotDatum(usize, i64),
    /// A field of so many bytes that leads from P to the function or to what jumps to it.
    CallDatum(usize),
    /// Z + A, in so many bytes.
    SizeDatum(usize, i64),
}

/// How a field is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    Signed,
    Unsigned,
    /// Either reading may be the right one.
    Either,
}

/// What a datum holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Formula {
    /// S + A
    Absolute,
    /// S + A - P
    Relative,
}

/// A kind of probe.
pub struct Form {
    pub name: &'static str,
    pub wants: Wants,
    pub reach: Reach,
    /// For sections of code; else for data.
    pub code: bool,
    /// How often, relative to others.
    pub weight: usize,
    /// The first LLVM that has it.
    pub since: u32,
    pub make: fn(&mut Random, i64) -> Code,
}

/// What the ABI says of a relocation kind's field: limits of the value, and what it is a multiple of.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub value: Value,
    pub low: i128,
    pub high: i128,
    pub align: i128,
}

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// S + A
    Absolute,
    /// S + A - P
    Relative,
    /// Page(S + A) - Page(P)
    Page,
    /// (S + A) & 0xfff
    PageOffset,
    /// Something that depends on where the GOT is: near P.
    Got,
}

impl Rule {
    pub const fn signed(value: Value, bits: u32) -> Self {
        Self { value, low: -(1 << (bits - 1)), high: (1 << (bits - 1)) - 1, align: 1 }
    }

    pub const fn unsigned(value: Value, bits: u32) -> Self {
        Self { value, low: 0, high: (1 << bits) - 1, align: 1 }
    }

    pub const fn either(value: Value, bits: u32) -> Self {
        Self { value, low: -(1 << (bits - 1)), high: (1 << bits) - 1, align: 1 }
    }

    pub const fn aligned(mut self, align: i128) -> Self {
        self.align = align;
        self
    }

    pub fn holds(&self, value: i128) -> bool {
        (self.low..=self.high).contains(&value) && value % self.align == 0
    }
}

impl Code {
    pub fn new(outcome: Outcome) -> Self {
        Self { bytes: Vec::with_capacity(64), fields: Vec::new(), outcome }
    }

    pub fn put(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// A relocation at the end of the bytes so far; `width` bytes of its field hold anything, as with RELA they may.
    pub fn field(mut self, random: &mut Random, width: usize, kind: u32, on: On, addend: i64) -> Self {
        self.fields.push(Field { offset: self.bytes.len(), kind, on, addend, bridged: false });
        let anything = random.next().to_le_bytes();
        self.bytes.extend_from_slice(&anything[..width]);
        self
    }

    /// The last relocation is one that is bridged.
    pub fn bridged(mut self) -> Self {
        self.fields.last_mut().unwrap().bridged = true;
        self
    }

    /// A datum that is one field.
    pub fn datum(random: &mut Random, kind: u32, addend: i64, outcome: Outcome) -> Self {
        let (Outcome::Datum(width, ..)
        | Outcome::GotDatum(width, _)
        | Outcome::CallDatum(width)
        | Outcome::SizeDatum(width, _)) = outcome
        else {
            panic!("{outcome:?} is not read")
        };
        Self::new(outcome).field(random, width, kind, On::Target, addend)
    }
}
