//! The names of a large image's functions: the part of its file that has them, with the headers of a file of its own in
//! front. Debuggers read it where the file is mapped, so that loading copies no names.

use std::fmt;
use std::ops::{Deref, Range};

use object::elf;

use super::jit_interface::Registered;
use super::names_headers::{SYMBOL, SYMBOLS_AT, put_headers};
use crate::elf::image_file::ImageIndex;
use crate::elf::image_note::FUNCTIONS_ROOM;
use crate::memory::FilePart;
use crate::read::LastingFile;

/// The names of an image, which debuggers have until this is dropped.
pub(super) struct ImageNames(#[allow(dead_code, reason = "debuggers read it")] Registered<Part>);

/// A part of an image's file.
enum Part {
    Mapped(FilePart),
    Copied(Vec<u8>),
}

const _: () = assert!(SYMBOLS_AT + SYMBOL == FUNCTIONS_ROOM, "the null symbol is in the room");

impl ImageNames {
    /// Tells debuggers of the functions of an image, whose code is at these addresses. `file`: its bytes, if they can be
    /// mapped.
    pub(super) fn new(image: &ImageIndex, bytes: &[u8], file: Option<&LastingFile>, code: &Range<u64>) -> Self {
        let (part, names_at) = image.functions_file();
        let mapped = file.and_then(|file| FilePart::map(file, &part).ok());
        let copy = || bytes.get(part.clone()).unwrap_or_default().to_vec();
        let mut shown = mapped.map_or_else(|| Part::Copied(copy()), Part::Mapped);
        let file = match &mut shown {
            Part::Mapped(part) => &mut **part,
            Part::Copied(part) => &mut **part,
        };
        // Whatever the image has there: also the parts of the headers that stay empty, and the null symbol.
        file.get_mut(..FUNCTIONS_ROOM).unwrap_or_default().fill(0);
        let sizes = [names_at - SYMBOLS_AT, file.len().saturating_sub(names_at)];
        put_headers(file, elf::ET_REL, sizes, names_at, code);
        Self(Registered::new(shown))
    }

    /// Returns what debuggers read, and whether it is mapped.
    #[cfg(test)]
    pub(super) fn shown(&self) -> (&[u8], bool) {
        (self.0.shown(), matches!(self.0.bytes(), Part::Mapped(_)))
    }
}

impl fmt::Debug for ImageNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageNames").finish_non_exhaustive()
    }
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(part) => part,
            Self::Copied(part) => part,
        }
    }
}
