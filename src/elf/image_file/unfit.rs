//! Why a file is refused.

use crate::elf::identity::machine_text;
use crate::elf::image_error::{ImageError, NoImage};
use crate::elf::image_note::FORMAT;

/// The reason why bytes are no image, or none that can be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// It is no ELF file.
    NotElf,
    /// An ELF file of another kind: an object, a program.
    NotShared,
    /// A shared object of another linker.
    Foreign,
    Machine(u16),
    Format(u32),
    /// The hash is another.
    Changed,
    Malformed(&'static str),
}

impl Unfit {
    pub(super) const TOO_SHORT: Self = Self::Malformed("it is cut short");
    pub(crate) const REFERENCE: Self = Self::Malformed("a reference between its segments lies outside");
    pub(crate) const CPU_LIST: Self = Self::Malformed("its list of what functions need of the CPU cannot be read");

    /// Makes the error about an image of this name.
    pub(crate) fn into_error(self, object: &str) -> ImageError {
        let object = object.to_owned();
        let no_image = |kind| ImageError::NotAnImage { object: object.clone(), kind };
        match self {
            Self::NotElf => no_image(NoImage::NotElf),
            Self::NotShared => no_image(NoImage::NotShared),
            Self::Foreign => no_image(NoImage::Foreign),
            Self::Machine(machine) => ImageError::ForeignMachine { object, machine: machine_text(machine).to_owned() },
            Self::Format(format) => ImageError::UnknownFormat { object, format, known: FORMAT },
            Self::Changed => ImageError::Changed { object },
            Self::Malformed(problem) => ImageError::Damaged { object, problem },
        }
    }
}
