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

#[cfg(test)]
#[allow(unsafe_code, reason = "makes a file that can be mapped")]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Write as _;

    use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

    use super::*;
    use crate::elf::image_file::read_image;
    use crate::elf::testing;
    use crate::elf::{EM_AARCH64, HOST_MACHINE};
    use crate::read::OpenFile;

    #[test]
    fn debuggers_read_what_the_image_s_symbol_table_has() {
        let function = |i: usize, binding: &str| {
            let (name, bytes) = (format!("f{i}{}", "x".repeat(i % 50)), 1009 - i % 9);
            format!(
                "{binding} {name}\n.type {name},%function\n{name}: .skip {bytes}\n.size {name}, {bytes}\n.skip 20\n"
            )
        };
        let bindings = [".globl", ".local", ".weak"];
        let text = (0..1000).map(|i| function(i, bindings[i % 3])).collect::<String>();
        let source = format!(".text\n{text}.data\n.globl x\n.type x,%object\nx: .quad 1\n.size x, 8\n");
        let object = if HOST_MACHINE == EM_AARCH64 { testing::asm_arm(&source) } else { testing::asm(&source) };
        let mut bytes = crate::ImageBuilder::new().object("many.o", object).link().unwrap();
        let (_, image) = read_image(&bytes, HOST_MACHINE, false).unwrap();
        // What it has in the room does not matter.
        let (part, _) = image.functions_file();
        bytes[part][..FUNCTIONS_ROOM].fill(0xff);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        let (path, status) = (file.path(), file.as_file().metadata().unwrap());
        // SAFETY: it is this test's alone.
        let file = unsafe { LastingFile::new(OpenFile::new(file.reopen().unwrap(), path, &status)) };

        let code = image.code().unwrap();
        let place = 0x7f00_1230_0000..0x7f00_1230_0000 + code.bytes;
        let distance = place.start - code.address;
        let of_image = object::File::parse(&*bytes).unwrap();
        let functions = of_image.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition());
        let named = |symbol: object::Symbol<'_, '_>, by| {
            (symbol.name().unwrap().to_owned(), symbol.address() + by, symbol.size())
        };
        let expected: BTreeSet<_> = functions.map(|symbol| named(symbol, distance)).collect();
        assert_eq!(expected.len(), 1000);
        for file in [Some(&file), None] {
            let names = ImageNames::new(&image, &bytes, file, &place);
            assert_eq!(matches!(names.0.bytes(), Part::Mapped(_)), file.is_some());
            let (shown, null) = (names.0.shown(), SYMBOLS_AT..FUNCTIONS_ROOM);
            // The identification behind the version, the entry, program headers, flags; the null section; the null symbol.
            for zeros in [7..16, 24..40, 48..52, 64..128, null] {
                assert!(shown[zeros.clone()].iter().all(|byte| *byte == 0), "{zeros:?}");
            }
            let shown = object::File::parse(shown).unwrap();
            assert_eq!(shown.kind(), object::ObjectKind::Relocatable);
            let section = shown.section_by_name(".text").unwrap();
            assert_eq!(section.address()..section.address() + section.size(), place);
            let symbols = shown.symbols().inspect(|symbol| assert_eq!(symbol.section_index(), Some(section.index())));
            // Those of a relocatable file count from their section.
            assert_eq!(symbols.map(|symbol| named(symbol, place.start)).collect::<BTreeSet<_>>(), expected);
        }
    }
}
