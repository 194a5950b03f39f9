//! The interface between JITLink and what an object is linked for.
#![allow(unsafe_code, reason = "unsafe methods: they trust JITLink")]

use slabjit_llvm_wrap as shim;

use crate::elf::relocations::Kind;
use crate::link::llvm::actions::Actions;
use crate::link::reach::{Block, Edge};
use crate::live::resolve::linker_sets::Room;
use crate::name::Text;
use crate::{Error, Result};

/// The decision about a symbol.
pub(in crate::link) enum Answer<'a> {
    /// It stays as it is.
    Keep,
    /// It has this address.
    Absolute(u64),
    /// It gets another name: what other graphs of the batch call it.
    Rename(&'a str),
    /// Its definition goes; references lead to the other object's.
    Discard,
}

/// Answers what JITLink asks while it links one object, and takes the results. A graph is bound to a host. Hosts are
/// asked on any of the threads that link, and share nothing that is not behind a lock.
pub(in crate::link) trait LinkHost: Sized + Sync {
    /// Returns the object's name, for messages.
    fn name(&self) -> Text<'_>;

    /// Returns the bytes that the graph was made from.
    fn bytes(&self) -> &[u8];

    // ---- symbols and sections, before anything is pruned ----

    /// Decides an undefined symbol; `None` leaves it.
    fn external(&self, name: &str) -> Option<Answer<'_>>;

    /// Decides a definition, with its index; `None` drops the name.
    fn defined(&self, name: &str) -> Option<(usize, Option<Answer<'_>>)>;

    /// Returns the cookie of a block that stays although nothing refers to it; 0 for others. `offset`: in the bytes.
    fn retain(&self, section: &str, offset: Option<u64>) -> u64;

    /// Returns whether a symbol is an indirect function.
    fn is_indirect(&self, name: &str, offset: u64) -> bool;

    /// Returns whether a section may lie outside the slab.
    fn may_leave(&self, section: &str) -> bool;

    // ---- memory ----

    /// Returns the place of a section that lies with those of other objects.
    fn place(&self, section: &str, offset: Option<u64>, size: u64, alignment: u64) -> Result<Room>;

    /// Allocates segments: sets the final address of each, and the address at which it is written.
    fn allocate(&self, segments: &[shim::slabjit_segment], addresses: &mut [u64], written: &mut [u64]) -> Result<()>;

    /// Returns the address at which the byte for a final address is written.
    fn written(&self, address: u64) -> Option<usize>;

    /// Publishes the memory of a batch.
    ///
    /// # Safety
    /// LLVM has written everything, and writes there no more.
    unsafe fn publish(all: &[&Self]) -> Result<()>;

    /// The link has succeeded.
    fn commit(&self, actions: Option<Actions>);

    /// Frees the memory of a link that failed.
    ///
    /// # Safety
    /// LLVM uses it no more.
    unsafe fn abandon(&self);

    // ---- references ----

    /// Returns the kind of a reference that another kind carries, in a block from `origin` of the bytes.
    fn lifted(&self, origin: Option<u64>, edge: &shim::slabjit_edge) -> Option<&'static Kind>;

    /// Looks at a block's references before layout.
    fn survey(
        &self,
        bytes: u64,
        executable: bool,
        content: &[u8],
        edges: impl Iterator<Item = (Edge<'static>, Option<&'static Kind>)>,
    );

    /// Returns the bytes wanted for stubs before the code, behind it, and for data.
    fn reserve(&self) -> [u64; 3];

    /// The memory for stubs has addresses and sizes; `contents` says where it is written, 0 for absent memory.
    fn settle(&self, stubs: [(u64, usize); 3], contents: [usize; 3], got: u64);

    /// Looks at a block's references at final addresses, and bridges them.
    fn check(
        &self,
        block: Block<'_>,
        edges: &mut [shim::slabjit_edge],
        edge: impl Fn(&shim::slabjit_edge) -> Edge<'static>,
    );

    /// Calls `write` with each written stub's memory and bytes, and returns the error of the check, if any.
    fn checked(&self, write: impl Fn(usize, &[u8])) -> Result<()>;

    // ---- the end ----

    /// Returns whether signal frames were marked in the bytes, and have to be restored in the linked table.
    fn has_signal_frames(&self) -> bool;

    /// Takes note of where symbols, retained blocks and `.eh_frame` are.
    ///
    /// # Safety
    /// They are what the graph bound to this host has.
    unsafe fn placed(&self, symbols: &[shim::slabjit_placed], blocks: &[shim::slabjit_placed], frames: u64);

    /// Tells the names, addresses and sizes of functions, as the object has them.
    fn functions(&self, functions: &mut dyn Iterator<Item = (&str, u64, u64)>);

    /// Tells the blocks: their sections, offsets in the object's bytes, and addresses. The host has asked for it.
    fn located(&self, blocks: &mut dyn Iterator<Item = (&str, Option<u64>, u64)>);

    /// Takes the error that ended the link.
    fn fail(&self, error: Error);
}
