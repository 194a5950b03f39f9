//! Memory with two views: one in the arena, to run code and read constants, and a writable one at a secret address.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::super::Protection;
use super::super::os::{Mapping, SharedMemory};
use super::UNIT;
use crate::fork_guard;

/// The memory of one engine's packed code and constants. An arena address has the same offset in the writable view.
///
/// No descriptor is kept: growth takes new memory, and memory is freed through the writable view.
#[derive(Debug)]
pub(super) struct Views {
    /// The memory of the pools' first growths, and how much of it is in use, while the first object is placed.
    first: Option<(SharedMemory, usize)>,
    writable: Arc<WritableView>,
    arena: Range<usize>,
    /// Whether the view is writable only while there are writers.
    hardened: bool,
    /// Their number.
    writers: usize,
}

/// The writable view. It stays mapped as long as an object is written there: after a fork, the pools begin anew, and
/// that object is not ready.
#[derive(Debug)]
pub(in super::super) struct WritableView {
    /// `None` only while it is dropped.
    mapping: Option<Mapping>,
    /// The generation of the process that made it.
    generation: u32,
}

/// The number of tries of a random address, each in half of the space.
const TRIES: u32 = 16;
/// The bits of user addresses: x86-64 and AArch64 have at least 47, unless the kernel was configured for fewer.
const ADDRESS_BITS: u32 = 47;

impl Views {
    /// Creates views with so much memory for the first growths.
    pub(super) fn new(arena: Range<usize>, hardened: bool, first: usize) -> io::Result<Self> {
        let first = Some((create(first, hardened)?, 0));
        let (mapping, generation) = (Some(somewhere(arena.len())?), fork_guard::generation());
        Ok(Self { first, writable: Arc::new(WritableView { mapping, generation }), arena, hardened, writers: 0 })
    }

    /// Returns what keeps the writable view.
    pub(super) fn kept(&self) -> Arc<WritableView> {
        Arc::clone(&self.writable)
    }

    fn view(&self) -> Option<&Mapping> {
        self.writable.mapping.as_ref()
    }

    /// Returns whether the writable view is closed while nobody writes.
    pub(super) fn closes(&self) -> bool {
        self.hardened
    }

    /// Closes the memory of the first growths: what they did not take is not needed.
    pub(super) fn close(&mut self) {
        self.first = None;
    }

    /// Returns the writable range for a range of the arena.
    pub(super) fn writable(&self, range: &Range<usize>) -> Range<usize> {
        let base = self.view().map_or(0, |view| view.range().start);
        let at = |address: usize| base + (address - self.arena.start);
        at(range.start)..at(range.end)
    }

    /// Maps new memory at a range of the arena, and at its offset in the writable view.
    pub(super) fn grow(&mut self, arena: &Mapping, range: &Range<usize>, protection: Protection) -> io::Result<()> {
        let Some(view) = &self.writable.mapping else { return Err(io::ErrorKind::NotFound.into()) };
        let (new, writable) = (range.len(), self.writable(range));
        let created;
        let (memory, offset) = match &mut self.first {
            Some((memory, used)) if memory.len() - *used >= new => {
                *used += new;
                (&*memory, *used - new)
            }
            _ => {
                created = create(new, self.hardened)?;
                (&created, 0)
            }
        };
        view.show(&writable, memory, offset as u64, Protection::ReadWrite)?;
        view.keep_from_children(&writable)?;
        if self.hardened && self.writers == 0 {
            view.deny(&writable)?;
        }
        arena.show(range, memory, offset as u64, protection)
    }

    /// Brings the pages of a range of the arena in, in both views. A hint.
    pub(super) fn populate(&self, arena: &Mapping, pages: &Range<usize>) {
        if let Some(view) = self.view().filter(|_| !self.hardened) {
            let _ = view.populate(&self.writable(pages)).and_then(|()| arena.populate_to_read(pages));
        }
    }

    /// Makes the mapped ranges writable until [`end_write`](Self::end_write), if they are not.
    pub(super) fn begin_write(&mut self, mapped: impl Iterator<Item = Range<usize>>) -> io::Result<()> {
        if !self.hardened {
            return Ok(());
        }
        if self.writers == 0 {
            self.each(mapped, |view, range| view.protect(range, Protection::ReadWrite))?;
        }
        self.writers += 1;
        Ok(())
    }

    pub(super) fn end_write(&mut self, mapped: impl Iterator<Item = Range<usize>>) {
        if !self.hardened {
            return;
        }
        self.writers -= 1;
        if self.writers == 0 {
            // A refusal is due to the limit on mappings; the view then stays writable until the next time.
            let _ = self.each(mapped, Mapping::deny);
        }
    }

    fn each(
        &self,
        mapped: impl Iterator<Item = Range<usize>>,
        call: impl Fn(&Mapping, &Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(view) = self.view() else { return Ok(()) };
        mapped.map(|range| self.writable(&range)).try_for_each(|range| call(view, &range))
    }

    /// Fills a range of the arena with a repeated word.
    pub(super) fn fill(&self, range: &Range<usize>, word: [u8; 4]) -> io::Result<()> {
        let Some(view) = self.view() else { return Ok(()) };
        view.fill(&self.writable(range), word)
    }

    /// Frees the memory of a range of the arena, between `begin_write` and `end_write`.
    pub(super) fn discard(&self, range: &Range<usize>) -> io::Result<()> {
        let Some(view) = self.view() else { return Ok(()) };
        view.discard_shared(&self.writable(range))
    }
}

impl Drop for WritableView {
    fn drop(&mut self) {
        if self.generation != fork_guard::generation()
            && let Some(view) = self.mapping.take()
        {
            // A child of `fork` did not inherit it.
            view.forget();
        }
    }
}

/// Creates memory that can be shown twice.
fn create(bytes: usize, hardened: bool) -> io::Result<SharedMemory> {
    let memory = SharedMemory::create(bytes)?;
    if hardened && !memory.has_lasting_rights() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(memory)
}

/// Reserves addresses that cannot be guessed from others.
fn somewhere(len: usize) -> io::Result<Mapping> {
    for attempt in 0..TRIES {
        let mut random = [0; 8];
        if rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::NONBLOCK) != Ok(random.len()) {
            break;
        }
        let address = usize::from_ne_bytes(random) & ((1 << (ADDRESS_BITS - attempt / 2)) - 1) & !(UNIT - 1);
        if let Ok(view) = Mapping::reserve_at(address, len) {
            return Ok(view);
        }
    }
    // Falls back to the kernel's choice, which is random too, but near other mappings.
    Mapping::reserve(len)
}
