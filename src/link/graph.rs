//! Graphs behind the shim, from an object's bytes to their link.
#![allow(unsafe_code)] // FFI to LLVM

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr;

use slabjit_llvm_wrap as shim;

use super::callbacks::CALLBACKS;
use super::object::ObjectLink;
use super::text::take_text;

/// A LinkGraph, as the shim knows it. It borrows the bytes that it was made of and, once it is bound, the object whose callbacks it calls.
pub(super) struct Graph<'a> {
    raw: *mut shim::slabjit_graph,
    borrows: PhantomData<&'a ObjectLink>,
}

impl<'a> Graph<'a> {
    /// Builds the graph of an object; what LLVM says if it cannot.
    pub(super) fn new(name: &str, bytes: &'a [u8]) -> Result<Self, String> {
        let mut raw = ptr::null_mut();
        // SAFETY: pointers and lengths are those of slices; the graph borrows the bytes.
        let text = unsafe {
            let (bytes, len) = (bytes.as_ptr().cast(), bytes.len());
            shim::slabjit_graph_create(bytes, len, name.as_ptr().cast(), name.len(), &mut raw)
        };
        take_text(text).map_or(Ok(Self { raw, borrows: PhantomData }), Err)
    }

    /// Asks an object's callbacks what becomes of each symbol.
    pub(super) fn bind(self, object: &'a ObjectLink, retain: bool, indirect: bool) -> Self {
        let address = ptr::from_ref(object).cast_mut().cast();
        // SAFETY: the graph is ours; the callbacks expect such an object, use it as shared, and have it for as long as the graph.
        unsafe { shim::slabjit_graph_bind(self.raw, &CALLBACKS, address, retain.into(), indirect.into()) }
        self
    }
}

impl Drop for Graph<'_> {
    fn drop(&mut self) {
        // SAFETY: not linked, hence still ours.
        unsafe { shim::slabjit_graph_dispose(self.raw) }
    }
}

/// Graphs that are linked together. Dropping abandons what was linked.
pub(super) struct Batch<'a> {
    raw: *mut shim::slabjit_batch,
    /// The objects of its graphs.
    borrows: PhantomData<&'a ObjectLink>,
}

impl<'a> Batch<'a> {
    pub(super) fn begin() -> Self {
        // SAFETY: no arguments; the batch is ours.
        Self { raw: unsafe { shim::slabjit_batch_begin() }, borrows: PhantomData }
    }

    /// Links a bound graph as far as it comes; false if it failed, or another one of the batch has, of which its object was told why.
    pub(super) fn link(&mut self, graph: Graph<'a>) -> bool {
        let graph = ManuallyDrop::new(graph);
        // SAFETY: both are ours; the graph was bound, and the shim takes it over. What it borrows lives as long as the batch.
        unsafe { shim::slabjit_batch_link(self.raw, graph.raw) == 0 }
    }

    /// Links the rest; false as above.
    pub(super) fn end(self) -> bool {
        ManuallyDrop::new(self).finish(false)
    }

    fn finish(&mut self, gives_up: bool) -> bool {
        // SAFETY: ours, and ended once: by `end`, or when it is dropped.
        unsafe { shim::slabjit_batch_end(self.raw, gives_up.into()) == 0 }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.finish(true);
    }
}
