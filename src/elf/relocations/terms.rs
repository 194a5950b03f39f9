//! The terms of the ABIs: a kind's operation, its range, its way through a stub or GOT entry, and its replacement.
//!
//! S is the symbol's address, A the addend, P the place, G the address of the symbol's GOT entry, GOT that of
//! `_GLOBAL_OFFSET_TABLE_`, Z the symbol's size, Page(x) = x & !0xfff.

/// The operation of a kind; 64 bits, wrapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Nothing.
    Nothing,
    /// S + A
    Absolute,
    /// S + A - P; with [`Through::Stub`] S may be a stub's address.
    Relative,
    /// Page(S + A) - Page(P)
    PageRelative,
    /// (S + A) & 0xfff
    PageOffset,
    /// S + A - GOT; with [`Through::Stub`] S may be a stub's address.
    FromGot,
    /// GOT + A - P
    GotBaseRelative,
    /// G + A - P. (AArch64's instructions use the entry of S + A; they are restricted to A = 0.)
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
    /// The result of the function at S + A.
    Resolver,
    /// S + A, which replaces the instruction; the instruction stays if S is undefined.
    Patch,
    /// The operation of the kind without `AUTH` in its name, with signed pointers (PAuthABI).
    Authenticated,
    /// An operation on a thread-local variable.
    ThreadLocal(Tls),
    /// An operation of the dynamic loader, which objects do not contain.
    Dynamic,
}

/// The operation of a kind on a thread-local variable (ELF Handling For Thread-Local Storage; psABI and AAELF64 for the
/// details).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tls {
    /// The number of the variable's module.
    Module,
    /// DTPREL(S + A): the offset in its module's block.
    InBlock,
    /// TPREL(S + A): the offset from the thread pointer.
    FromThreadPointer,
    /// The address of a GOT entry.
    Entry(Entry, Form),
    /// A mark on an instruction of a sequence, for linkers that relax it.
    Marker,
    /// An operation for the dynamic loader, or an offset from the GOT (AArch64's large code model, which no compiler
    /// here supports).
    Unlinked,
}

/// The contents of a GOT entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Two words for `__tls_get_addr`: module, and offset in its block.
    Variable,
    /// Two words for `__tls_get_addr`: module, and the start of its block.
    Block,
    /// The offset from the thread pointer.
    Offset,
    /// Two words: a function and its argument.
    Descriptor,
}

/// The form in which a kind writes an entry's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Like [`Operation::Relative`].
    Distance,
    /// Like [`Operation::PageRelative`].
    Pages,
    /// Like [`Operation::PageOffset`].
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
    /// Returns the way of the operation, unless the ABI says otherwise.
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

/// The range of a kind: the values that read back unchanged as the field is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Range {
    /// Every value: 64 bits, or a part of a value whose other parts are written elsewhere.
    Unchecked,
    /// -2^(n-1) <= X < 2^(n-1)
    Signed(u8),
    /// 0 <= X < 2^n
    Unsigned(u8),
    /// -2^(n-1) <= X < 2^n: the field may be read as signed or as unsigned.
    Either(u8),
}

impl Range {
    /// Returns the lowest and the highest value.
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

/// The element that a linker puts, or may put, between the field and the symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Through {
    /// Nothing.
    Direct,
    /// A PLT entry or a veneer, if needed; only for calls and jumps.
    Stub,
    /// A GOT entry, always (or none, if the linker also relaxes the instruction).
    Got,
}

/// The replacement of a kind that JITLink lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repair {
    /// No replacement.
    None,
    /// The relocation is removed, as it writes nothing.
    Drop,
    /// The kind of this number has the same meaning with the same addend.
    Same(u32),
    /// The kind of this number carries the relocation. Every supported LLVM links it, and it leads to the same symbol,
    /// to the same GOT entry for kinds that go [`Through::Got`], or to the variable for thread-local ones. We compute
    /// the value and [`encode`](super::Kind::encode) it; the carrier must not be applied, as its field may be wider.
    Lift(u32),
}
