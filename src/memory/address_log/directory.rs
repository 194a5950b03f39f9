//! A list of values that any thread reads without a lock, also a signal handler that interrupts the writer.
//!
//! A removed value is kept while anybody reads the list. `models/` checks the orderings.
#![allow(unsafe_code, reason = "reads values through pointers that were published")]

use std::ptr;

use super::record::Readers;
use crate::sync::{AtomicPtr, Box, Ordering, fence};

/// Places in one piece of the list.
const PLACES: usize = 16;

/// The list. It grows by pieces, which stay.
pub(super) struct Directory<T> {
    first: Piece<T>,
    readers: Readers,
}

struct Piece<T> {
    places: [AtomicPtr<T>; PLACES],
    next: AtomicPtr<Piece<T>>,
}

impl<T> Default for Piece<T> {
    fn default() -> Self {
        Self { places: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())), next: AtomicPtr::new(ptr::null_mut()) }
    }
}

impl<T> Default for Directory<T> {
    fn default() -> Self {
        Self { first: Piece::default(), readers: Readers::default() }
    }
}

impl<T> Directory<T> {
    /// Adds a value, which is the list's from now on. One thread at a time calls this and [`remove`](Self::remove).
    pub(super) fn add(&self, value: Box<T>) -> *const T {
        let value = Box::into_raw(value);
        let mut piece = &self.first;
        loop {
            if let Some(place) = piece.places.iter().find(|place| place.load(Ordering::Relaxed).is_null()) {
                place.store(value, Ordering::Release);
                return value;
            }
            let mut next = piece.next.load(Ordering::Relaxed);
            if next.is_null() {
                next = Box::into_raw(Box::new(Piece::default()));
                piece.next.store(next, Ordering::Release);
            }
            // SAFETY: made here, and never freed but with the list.
            piece = unsafe { &*next };
        }
    }

    /// Removes a value. It goes to `removed`, which may be emptied if the result is true: nobody reads the list then,
    /// and later readers do not find the value.
    ///
    /// # Safety
    /// The value was added, and is removed once.
    pub(super) unsafe fn remove(&self, value: *const T, removed: &mut Vec<Box<T>>) -> bool {
        for place in self.pieces().flat_map(|piece| &piece.places) {
            if ptr::eq(place.load(Ordering::Relaxed), value) {
                place.store(ptr::null_mut(), Ordering::Relaxed);
            }
        }
        // Precedes the check for readers.
        fence(Ordering::SeqCst);
        // SAFETY: by the caller, `add` was given it as a box.
        removed.push(unsafe { Box::from_raw(value.cast_mut()) });
        self.readers.none()
    }

    /// Returns the first result for a value of the list. Takes no lock and allocates nothing.
    pub(super) fn find<R>(&self, mut look: impl FnMut(&T) -> Option<R>) -> Option<R> {
        let _reading = self.readers.enter();
        self.pieces().flat_map(|piece| &piece.places).find_map(|place| {
            // SAFETY: null, or a value that was added and that `_reading` keeps.
            unsafe { place.load(Ordering::Acquire).as_ref() }.and_then(&mut look)
        })
    }

    fn pieces(&self) -> impl Iterator<Item = &Piece<T>> {
        let next = |piece: &&Piece<T>| {
            // SAFETY: null, or a piece, which stays.
            unsafe { piece.next.load(Ordering::Acquire).as_ref() }
        };
        std::iter::successors(Some(&self.first), next)
    }
}

impl<T> Drop for Piece<T> {
    fn drop(&mut self) {
        let next = self.next.load(Ordering::Relaxed);
        if !next.is_null() {
            // SAFETY: `add` made it of a box, and nobody uses the list any more.
            drop(unsafe { Box::from_raw(next) });
        }
    }
}
