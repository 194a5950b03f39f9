//! The functions of a linked image, whose names its file has.

use crate::elf::image_file::{ImageIndex, NamedFunction};
use crate::functions::{Function, SortedFunctions};

/// Returns the functions of an image whose segments have these addresses.
pub(crate) fn functions<'a>(image: &'a ImageIndex, bytes: &'a [u8], addresses: &[u64]) -> SortedFunctions<'a> {
    let bases: Vec<u64> = image.segments.iter().zip(addresses).map(|(of, at)| at.wrapping_sub(of.address)).collect();
    let moved = |function: NamedFunction<'a>| {
        let NamedFunction { name, address, size, segment } = function;
        let address = address.wrapping_add(*bases.get(segment)?);
        Some(Function { name, address, bytes: size.min(u32::MAX.into()) as u32 })
    };
    let symtab = image.symtab(bytes);
    let mut all = Vec::with_capacity(symtab.len());
    all.extend(symtab.functions().filter_map(moved));
    SortedFunctions::new(all)
}

/// Returns the distance from addresses of an image's code in the file to those in memory.
pub(crate) fn code_distance(image: &ImageIndex, addresses: &[u64]) -> Option<u64> {
    let mut segments = image.segments.iter().zip(addresses);
    segments.find(|(segment, _)| segment.executable).map(|(segment, address)| address.wrapping_sub(segment.address))
}
