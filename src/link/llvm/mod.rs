//! JITLink behind the shim: graphs, callbacks and sessions.

pub(in crate::link) mod actions;
pub(in crate::link) mod callbacks;
pub(in crate::link) mod graph;
pub(in crate::link) mod link_host;
pub(in crate::link) mod shim_text;
