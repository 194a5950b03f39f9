//! The result of a link that may fall back to the objects.

use std::fmt;

use super::ImageBuilder;

/// Objects that are linked into an image, or that cannot be one: see
/// [`ObjectCache::get_or_link`](crate::ObjectCache::get_or_link). Either is loaded by
/// [`JitEngine::add_linked`](crate::JitEngine::add_linked).
pub enum Linked {
    /// An image, also for [`JitEngine::add_image`](crate::JitEngine::add_image) or a file.
    Image(Vec<u8>),
    /// Objects that are to be linked in the process.
    Objects(ImageBuilder),
}

impl fmt::Debug for Linked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(bytes) => write!(f, "Image({} bytes)", bytes.len()),
            Self::Objects(builder) => f.debug_tuple("Objects").field(builder).finish(),
        }
    }
}
