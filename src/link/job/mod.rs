//! Link jobs: single objects, and batches.

pub(in crate::link) mod batch;
pub(in crate::link) mod exports;
pub(in crate::link) mod link_job;
pub(in crate::link) mod link_throttle;
