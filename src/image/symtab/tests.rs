//! Functions of images, as debuggers read them.
#![allow(unsafe_code, reason = "makes a file that can be mapped")]

use std::collections::BTreeSet;
use std::io::Write as _;

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

use crate::ImageBuilder;
use crate::debuggers::{Names, region_bits};
use crate::elf::image_file::read_image;
use crate::elf::image_note::FUNCTIONS_ROOM;
use crate::elf::{EM_AARCH64, HOST_MACHINE, testing};
use crate::read::{LastingFile, OpenFile};

/// No other test has code there.
const SOMEWHERE: u64 = 1 << 46;

fn image(source: &str) -> Vec<u8> {
    let object = if HOST_MACHINE == EM_AARCH64 { testing::asm_arm(source) } else { testing::asm(source) };
    ImageBuilder::new().object("test.o", object).link().unwrap()
}

#[test]
fn debuggers_read_what_the_symbol_table_has() {
    let function = |i: usize, binding: &str| {
        let (name, bytes) = (format!("f{i}{}", "x".repeat(i % 50)), 4009 - i % 9);
        format!("{binding} {name}\n.type {name},%function\n{name}: .skip {bytes}\n.size {name}, {bytes}\n.skip 20\n")
    };
    let bindings = [".globl", ".local", ".weak"];
    let text = (0..1000).map(|i| function(i, bindings[i % 3])).collect::<String>();
    let mut bytes = image(&format!(".text\n{text}.data\n.globl x\n.type x,%object\nx: .quad 1\n.size x, 8\n"));
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
    let place = SOMEWHERE..SOMEWHERE + code.bytes;
    let distance = place.start - code.address;
    let of_image = object::File::parse(&*bytes).unwrap();
    let functions = of_image.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition());
    let named =
        |symbol: object::Symbol<'_, '_>, by| (symbol.name().unwrap().to_owned(), symbol.address() + by, symbol.size());
    let expected: BTreeSet<_> = functions.map(|symbol| named(symbol, distance)).collect();
    assert_eq!(expected.len(), 1000);
    for file in [Some(&file), None] {
        let names = Names::of_image(&image, &bytes, file, distance);
        let (shown, is_mapped) = names.own_file().unwrap();
        assert_eq!(is_mapped, file.is_some());
        // The identification behind the version, the entry, program headers, flags; the null section; the null symbol.
        for zeros in [7..16, 24..40, 48..52, 64..128, 320..FUNCTIONS_ROOM] {
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

#[test]
fn only_an_image_that_fills_a_region_has_a_file_of_its_own() {
    let region = 1_u64 << region_bits();
    let start = SOMEWHERE / 2;
    let regions = || Names::regions(&(start..start + 4 * region));
    // Two functions, at the start and at the end of the code.
    for (at, bytes, own, files) in [
        (start + region - 64, region + 128, true, 0),
        (start + region - 64, region + 32, false, 2),
        (start, 2 * region - 64, false, 2),
        (start, region - 64, false, 1),
    ] {
        let function = |name| format!(".globl {name}\n.type {name},%function\n{name}: .skip 16\n.size {name}, 16\n");
        let file = image(&format!(".text\n{}.skip {}\n{}", function("f"), bytes - 32, function("g")));
        let (_, image) = read_image(&file, HOST_MACHINE, false).unwrap();
        let names = Names::of_image(&image, &file, None, at - image.code().unwrap().address);
        assert_eq!(names.own_file().is_some(), own, "{at:x}");
        assert_eq!(regions(), files, "{at:x}");
        drop(names);
        assert_eq!(regions(), 0);
    }
}
