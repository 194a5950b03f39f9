//! What a slab's pages in the arena are, which decides how they go.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pages {
    /// All have contents: they are worth keeping for another slab.
    Full,
    /// Some are zero-fill that nobody may have touched.
    Sparse,
    /// Some are a file's, which would show again if they were emptied in place.
    OfFile,
    /// They were taken away, together with the neighbours'.
    Away,
}
