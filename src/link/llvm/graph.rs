//! Graphs behind the shim, from an object's bytes to their link.
#![allow(unsafe_code, reason = "FFI to LLVM")]

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr;

use slabjit_llvm_wrap as shim;

use crate::link::llvm::callbacks::callbacks;
use crate::link::llvm::link_host::LinkHost;
use crate::link::llvm::shim_text::take_text;

/// A LinkGraph behind the shim. It borrows the object's bytes and, once it is bound, the host that it asks.
pub(in crate::link) struct Graph<'a> {
    raw: *mut shim::slabjit_graph,
    borrows: PhantomData<&'a ()>,
}

/// What a host is asked, beside its symbols.
#[derive(Debug, Clone, Copy)]
pub(in crate::link) struct Asks {
    /// Whether blocks are retained.
    pub(in crate::link) retain: bool,
    /// Whether symbols are indirect functions.
    pub(in crate::link) indirect: bool,
    /// Whether it is told of blocks.
    pub(in crate::link) locate: bool,
}

/// A graph that calls an object's callbacks, and borrows the object: what can be linked.
pub(in crate::link) struct BoundGraph<'a>(Graph<'a>);

impl<'a> Graph<'a> {
    /// Builds the graph of an object; returns LLVM's message if that fails.
    pub(in crate::link) fn new(name: &str, bytes: &'a [u8]) -> Result<Self, String> {
        let mut raw = ptr::null_mut();
        // SAFETY: pointers and lengths are those of slices; the graph borrows the bytes; the text is taken once.
        let text = unsafe {
            let (bytes, len) = (bytes.as_ptr().cast(), bytes.len());
            take_text(shim::slabjit_graph_create(bytes, len, name.as_ptr().cast(), name.len(), &mut raw))
        };
        text.map_or(Ok(Self { raw, borrows: PhantomData }), Err)
    }

    /// Binds the graph to a host, which decides each symbol.
    pub(in crate::link) fn bind<H: LinkHost>(self, object: &'a H, asks: Asks) -> BoundGraph<'a> {
        let address = ptr::from_ref(object).cast_mut().cast();
        let [retain, indirect, locate] = [asks.retain, asks.indirect, asks.locate].map(i32::from);
        // SAFETY: the graph is ours; the callbacks expect such an object, use it as shared, and have it for as long as
        // the graph.
        unsafe { shim::slabjit_graph_bind(self.raw, const { &callbacks::<H>() }, address, retain, indirect, locate) }
        BoundGraph(self)
    }
}

impl BoundGraph<'_> {
    /// Hands the graph over, to be linked or disposed of by the shim, while what it borrows is there.
    pub(in crate::link) fn into_raw(self) -> *mut shim::slabjit_graph {
        ManuallyDrop::new(self.0).raw
    }
}

impl Drop for Graph<'_> {
    fn drop(&mut self) {
        // SAFETY: not linked, hence still ours.
        unsafe { shim::slabjit_graph_dispose(self.raw) }
    }
}

/// Graphs that are linked together. Dropping abandons the link.
pub(in crate::link) struct Batch<'a> {
    raw: *mut shim::slabjit_batch,
    /// The objects of its graphs.
    borrows: PhantomData<&'a ()>,
}

// SAFETY: the shim guards what graphs of a batch share, and calls `Sync` hosts (`LinkHost`) from any of the threads.
unsafe impl Sync for Batch<'_> {}
// SAFETY: as above; no thread owns it.
unsafe impl Send for Batch<'_> {}

impl<'a> Batch<'a> {
    pub(in crate::link) fn begin() -> Self {
        // SAFETY: no arguments; the batch is ours.
        Self { raw: unsafe { shim::slabjit_batch_begin() }, borrows: PhantomData }
    }

    /// Links a graph as far as it comes; false if it failed, or another one of the batch has, of which its object
    /// was told why.
    pub(in crate::link) fn link(&self, graph: BoundGraph<'a>) -> bool {
        let graph = ManuallyDrop::new(graph.0);
        // SAFETY: both are ours; the graph is bound, and the shim takes it over. What it borrows lives as long as the
        // batch.
        unsafe { shim::slabjit_batch_link(self.raw, graph.raw) == 0 }
    }

    /// Adds an object that was linked without a graph: it is published and committed with the others.
    pub(in crate::link) fn add<H: LinkHost>(&self, object: &'a H) {
        let memory = ptr::from_ref(object).cast_mut().cast();
        // SAFETY: the batch is ours; the callbacks expect such an object, which lives as long as the batch.
        unsafe { shim::slabjit_batch_add(self.raw, const { &callbacks::<H>() }, memory) }
    }

    /// Links the rest; returns false like `link`.
    pub(in crate::link) fn end(self) -> bool {
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
