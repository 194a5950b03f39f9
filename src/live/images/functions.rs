//! The functions of a linked image, whose names its file has.

use crate::elf::image_file::ImageIndex;
use crate::functions::{Function, SortedFunctions};

/// Returns the functions of an image whose segments have these addresses.
pub(crate) fn functions<'a>(image: &'a ImageIndex, bytes: &'a [u8], addresses: &[u64]) -> SortedFunctions<'a> {
    let symtab = image.symtab(bytes);
    // Addresses in files are below 2³¹: with the number of what has them, they are one number. They come as one sorted
    // list of local symbols, and another one of the others.
    let mut sorted: Vec<u64> = symtab.functions().map(|(number, address)| address << 32 | u64::from(number)).collect();
    sorted.sort();
    let mut left = symtab.name_bytes();
    let function = |key: &u64| {
        let function = symtab.get(*key as u32, &mut left)?;
        let segment = image.segment_at(function.address)?;
        let address = addresses.get(segment)? + (function.address - image.segments.get(segment)?.address);
        Some(Function { name: function.name, address, bytes: function.size.min(u32::MAX.into()) as u32 })
    };
    SortedFunctions::new(sorted.iter().filter_map(function))
}
