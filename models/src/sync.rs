//! What `src/sync.rs` has, of loom's making, and memory whose use after it was freed is seen.

use std::ops::Deref;

use loom::cell::UnsafeCell;
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// A text that nobody may read once it is dropped, nor while. It is not shared in the models.
pub(crate) struct Arc<T: ?Sized + 'static> {
    text: &'static T,
    /// Whether it is freed.
    freed: UnsafeCell<bool>,
}

impl From<String> for Arc<str> {
    fn from(text: String) -> Self {
        Self { text: text.leak(), freed: UnsafeCell::new(false) }
    }
}

impl<T: ?Sized> Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: loom panics where another writes it.
        assert!(!self.freed.with(|freed| unsafe { *freed }), "read after it was freed");
        self.text
    }
}

impl<T: ?Sized> Drop for Arc<T> {
    fn drop(&mut self) {
        // SAFETY: loom panics where another reads or writes it.
        assert!(!self.freed.with_mut(|freed| unsafe { std::mem::replace(&mut *freed, true) }), "freed twice");
    }
}

/// A box that drops what is in it, and keeps the memory, so that whoever reads it later is seen.
pub(crate) struct Box<T>(*mut T);

impl<T> Box<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::boxed::Box::into_raw(std::boxed::Box::new(value)))
    }

    pub(crate) fn into_raw(this: Self) -> *mut T {
        std::mem::ManuallyDrop::new(this).0
    }

    /// # Safety
    /// As the standard library's.
    pub(crate) unsafe fn from_raw(pointer: *mut T) -> Self {
        Self(pointer)
    }
}

impl<T> Drop for Box<T> {
    fn drop(&mut self) {
        // SAFETY: it is made of a value that nobody else drops, by the caller of `from_raw`.
        unsafe { std::ptr::drop_in_place(self.0) };
    }
}
