//! The ABIs' terms: what a kind computes, which values fit, what may stand between, and what replaces it.
//!
//! S is the symbol's address, A the addend, P the place, G the address of the symbol's GOT entry, GOT that of
//! `_GLOBAL_OFFSET_TABLE_`, Z the symbol's size, Page(x) = x & !0xfff.

/// What a kind computes; 64 bits, wrapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Nothing.
    Nothing,
    /// S + A
    Absolute,
    /// S + A - P, where S may be a stub's address if the kind goes [`Through::Stub`].
    Relative,
    /// Page(S + A) - Page(P)
    PageRelative,
    /// (S + A) & 0xfff
    PageOffset,
    /// S + A - GOT; with [`Through::Stub`] S may be a stub's address.
    FromGot,
    /// GOT + A - P
    GotBaseRelative,
    /// G + A - P. (AArch64's instructions want the entry of S + A itself; they are restricted to A = 0.)
    GotRelative,
    /// Page(G + A) - Page(P)
    GotPageRelative,
    /// (G + A) & 0xfff
    GotPageOffset,
    /// G + A - GOT
    GotFromGot,
    /// G + A - Page(GOT)
    GotFromGotPage,
    /// Z + A
    Size,
    /// What the function at S + A returns.
    Resolver,
    /// S + A, which replaces the instruction; the instruction stays if S is undefined.
    Patch,
    /// As the kind without `AUTH` in its name, with signed pointers (PAuthABI).
    Authenticated,
    /// Something about a thread-local variable.
    ThreadLocal(Tls),
    /// Made by a linker for the dynamic loader: not in objects.
    Dynamic,
}

/// What a kind says of a thread-local variable (ELF Handling For Thread-Local Storage; psABI and AAELF64 for the details).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tls {
    /// The number of its module.
    Module,
    /// DTPREL(S + A): where it is in its module's block.
    InBlock,
    /// TPREL(S + A): where it is, from the thread pointer.
    FromThreadPointer,
    /// The address of an entry of the GOT.
    Entry(Entry, Form),
    /// An instruction that belongs to a sequence, for linkers that rewrite sequences.
    Marker,
    /// Made for the dynamic loader, or counted from the GOT (the large code model of AArch64, which no compiler here has).
    Unlinked,
}

/// What an entry of the GOT holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Two words for `__tls_get_addr`: module, and offset in its block.
    Variable,
    /// The same for the start of the block.
    Block,
    /// The offset from the thread pointer.
    Offset,
    /// Two words: a function, and what it is given.
    Descriptor,
}

/// How a kind writes an entry's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As [`Operation::Relative`].
    Distance,
    /// As [`Operation::PageRelative`].
    Pages,
    /// As [`Operation::PageOffset`].
    InPage,
}

/// Short names for the tables.
pub(super) mod tls {
    use super::Operation::{self, ThreadLocal};
    use super::{Entry, Form, Tls};

    pub(in super::super) const MODULE: Operation = ThreadLocal(Tls::Module);
    pub(in super::super) const IN_BLOCK: Operation = ThreadLocal(Tls::InBlock);
    pub(in super::super) const FROM_THREAD: Operation = ThreadLocal(Tls::FromThreadPointer);
    pub(in super::super) const MARKER: Operation = ThreadLocal(Tls::Marker);
    pub(in super::super) const UNLINKED: Operation = ThreadLocal(Tls::Unlinked);
    pub(in super::super) const GD: Operation = ThreadLocal(Tls::Entry(Entry::Variable, Form::Distance));
    pub(in super::super) const GD_PAGE: Operation = ThreadLocal(Tls::Entry(Entry::Variable, Form::Pages));
    pub(in super::super) const GD_LOW: Operation = ThreadLocal(Tls::Entry(Entry::Variable, Form::InPage));
    pub(in super::super) const LD: Operation = ThreadLocal(Tls::Entry(Entry::Block, Form::Distance));
    pub(in super::super) const LD_PAGE: Operation = ThreadLocal(Tls::Entry(Entry::Block, Form::Pages));
    pub(in super::super) const LD_LOW: Operation = ThreadLocal(Tls::Entry(Entry::Block, Form::InPage));
    pub(in super::super) const IE: Operation = ThreadLocal(Tls::Entry(Entry::Offset, Form::Distance));
    pub(in super::super) const IE_PAGE: Operation = ThreadLocal(Tls::Entry(Entry::Offset, Form::Pages));
    pub(in super::super) const IE_LOW: Operation = ThreadLocal(Tls::Entry(Entry::Offset, Form::InPage));
    pub(in super::super) const DESC: Operation = ThreadLocal(Tls::Entry(Entry::Descriptor, Form::Distance));
    pub(in super::super) const DESC_PAGE: Operation = ThreadLocal(Tls::Entry(Entry::Descriptor, Form::Pages));
    pub(in super::super) const DESC_LOW: Operation = ThreadLocal(Tls::Entry(Entry::Descriptor, Form::InPage));
}

impl Operation {
    /// By what it goes if the ABI says nothing else.
    pub(super) const fn through(self) -> Through {
        match self {
            Self::GotRelative
            | Self::GotPageRelative
            | Self::GotPageOffset
            | Self::GotFromGot
            | Self::GotFromGotPage => Through::Got,
            _ => Through::Direct,
        }
    }
}

/// Which values fit: those that read back unchanged in the way in which the place is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Range {
    /// All: 64 bits, or one part of a value whose other parts are written elsewhere.
    Unchecked,
    /// -2^(n-1) <= X < 2^(n-1)
    Signed(u8),
    /// 0 <= X < 2^n
    Unsigned(u8),
    /// -2^(n-1) <= X < 2^n: the place is read as signed or as unsigned, nobody knows.
    Either(u8),
}

impl Range {
    /// Lowest and highest value.
    pub(super) const fn limit(self) -> (i128, i128) {
        const fn power(bits: u8) -> i128 {
            1 << bits
        }
        match self {
            Self::Unchecked => (i64::MIN as i128, u64::MAX as i128),
            Self::Signed(bits) => (-power(bits - 1), power(bits - 1) - 1),
            Self::Unsigned(bits) => (0, power(bits) - 1),
            Self::Either(bits) => (-power(bits - 1), power(bits) - 1),
        }
    }
}

/// What a linker puts, or may put, between the place and the symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Through {
    /// Nothing.
    Direct,
    /// A PLT entry or a veneer, if need be: only calls and jumps go there.
    Stub,
    /// A GOT entry, always (or none, if the linker also rewrites the instruction).
    Got,
}

/// What to give an LLVM whose JITLink lacks a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repair {
    /// There is nothing.
    None,
    /// Nothing is to be written: leave the relocation out.
    Drop,
    /// The kind of this number means exactly the same, with the same addend.
    Same(u32),
    /// The kind of this number, which leads to the same symbol, or to the same GOT entry for kinds that go
    /// [`Through::Got`] (to the variable for thread-local ones), and is linked by every supported LLVM. We compute the value and
    /// [`encode`](super::Kind::encode) it; the carrier must not be applied, as its field may be wider.
    Lift(u32),
}
