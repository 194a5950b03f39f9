//! Memory that is reserved for bridges, and its contents.

use std::collections::HashMap;

/// A piece that several references may share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Shared {
    /// An address in read-only data.
    Slot,
    /// An address among code.
    Literal,
    /// A jump.
    Stub,
    /// A pair of a module's number and an offset in its block.
    Pair { module: u64 },
    /// A distance from the thread pointer.
    Distance,
    /// A descriptor of the variable at this offset of a module.
    Descriptor { module: u64 },
}

/// Bytes at a final address, which the shim's caller writes after all references are checked.
#[derive(Debug, Default)]
pub(crate) struct StubArea {
    address: u64,
    pub(crate) bytes: Vec<u8>,
    pub(super) used: usize,
}

impl StubArea {
    pub(super) fn new(address: u64, size: usize, filler: u8) -> Self {
        Self { address, bytes: vec![filler; size], used: 0 }
    }

    /// Returns the address of the next piece.
    fn next(&self) -> u64 {
        self.address + self.used as u64
    }

    fn take(&mut self, size: usize) -> Option<(u64, &mut [u8])> {
        let address = self.next();
        let end = self.used.checked_add(size)?;
        let piece = self.bytes.get_mut(self.used..end)?;
        self.used = end;
        Some((address, piece))
    }
}

/// The head of the code, its tail, and read-only data.
#[derive(Debug, Default)]
pub(crate) struct StubAreas {
    pub(crate) rooms: [StubArea; 3],
    /// The addresses of pieces that several references may use.
    shared: HashMap<(Shared, u64), Vec<u64>>,
}

/// Indices of `StubAreas::rooms`, in the shim's order.
pub(super) const CODE: [usize; 2] = [1, 0];
pub(super) const DATA: [usize; 1] = [2];

impl StubAreas {
    pub(crate) fn new(rooms: [StubArea; 3]) -> Self {
        Self { rooms, shared: HashMap::new() }
    }

    /// Adds a piece of `size` bytes, a multiple of 8, to the first of these rooms whose next address is `reachable`.
    pub(super) fn put(
        &mut self,
        rooms: &[usize],
        size: usize,
        reachable: impl Fn(u64) -> bool,
        write: impl FnOnce(u64, &mut [u8]),
    ) -> Option<u64> {
        let room = rooms.iter().copied().find(|i| {
            let room = &self.rooms[*i];
            room.bytes.len() - room.used >= size && reachable(room.next())
        })?;
        let (address, piece) = self.rooms[room].take(size)?;
        write(address, piece);
        Some(address)
    }

    /// Returns a `reachable` piece with the same `what` and `value`, or adds one as [`put`](Self::put) does.
    pub(super) fn share(
        &mut self,
        (what, value): (Shared, u64),
        rooms: &[usize],
        size: usize,
        reachable: impl Fn(u64) -> bool,
        write: impl FnOnce(u64, &mut [u8]),
    ) -> Option<u64> {
        let known = self.shared.get(&(what, value)).into_iter().flatten();
        if let Some(address) = known.copied().find(|a| reachable(*a)) {
            return Some(address);
        }
        let address = self.put(rooms, size, reachable, write)?;
        self.shared.entry((what, value)).or_default().push(address);
        Some(address)
    }

    /// Returns the bytes from a piece's address to the end of its room.
    pub(super) fn at(&mut self, address: u64) -> Option<&mut [u8]> {
        self.rooms.iter_mut().find_map(|room| {
            let offset = usize::try_from(address.checked_sub(room.address)?).ok()?;
            room.bytes.get_mut(offset..room.used)
        })
    }
}
