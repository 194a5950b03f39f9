//! Reads images that this crate has made: shared objects with its note.
//!
//! Everything that a link will use is checked here: what lies outside its segment is refused before any memory is
//! taken.

mod exports;
mod functions;
mod headers;
mod index;
mod names;
mod relocations;
mod sections;
mod symbols;
mod unfit;

pub(crate) use exports::{Export, ExportPlace, Exports};
pub(crate) use functions::ImageFunctions;
pub(crate) use index::{ImageIndex, ImageRelocation, ImageSegment, LARGE};
pub(crate) use unfit::Unfit;

use headers::File;

use super::index::ObjectIndex;

/// Reads an image for a machine. `verify`: its bytes are hashed.
pub(crate) fn read_image(bytes: &[u8], machine: u16, verify: bool) -> Result<(ObjectIndex, ImageIndex), Unfit> {
    let file = File::open(bytes, machine)?;
    let note = file.note()?;
    if verify {
        file.verify(&note)?;
    }
    let segments = file.segments(&note)?;
    let range = |(at, bytes)| file.range(at, bytes);
    let (references, addresses) = (range(note.references)?, range(note.addresses)?);
    let (functions, names, cpu) = (range(note.functions)?, range(note.names)?, range(note.cpu)?);
    let mut image = ImageIndex {
        segments,
        note,
        relocations: 0..0,
        relr: 0..0,
        references,
        addresses,
        functions,
        names,
        cpu,
        contracts: range(note.contracts)?,
        frames: 0,
        thread_local: None,
        arrays: Vec::new(),
        descriptors: 0,
        dso_handle: None,
        needed: Vec::new(),
        export_tables: Default::default(),
    };
    image.check_functions(bytes)?;
    let tables = file.tables(&image)?;
    let mut index = ObjectIndex { machine, ..ObjectIndex::default() };
    sections::read(&file, &mut image, &mut index, &tables)?;
    symbols::read(&file, &mut image, &mut index, &tables)?;
    relocations::check(&file, &mut image, &mut index, &tables)?;
    let are_sound = if image.keeps_distances() {
        image.has_sound(image.addresses(machine, bytes))
    } else {
        image.has_sound_references(machine, bytes)
    };
    if !are_sound {
        return Err(Unfit::REFERENCE);
    }
    Ok((index, image))
}
