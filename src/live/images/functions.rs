//! The functions of a linked image, whose names its file has.

use crate::elf::image_file::ImageIndex;
use crate::functions::SortedFunctions;

/// Returns the functions of an image whose segments have these addresses.
pub(crate) fn functions<'a>(image: &ImageIndex, bytes: &'a [u8], addresses: &[u64]) -> SortedFunctions<'a> {
    let distance = code_distance(image, addresses).unwrap_or(0);
    SortedFunctions::of_image(image.functions(bytes).moved(distance))
}

/// Returns the distance from addresses of an image's code in the file to those in memory.
pub(crate) fn code_distance(image: &ImageIndex, addresses: &[u64]) -> Option<u64> {
    let mut segments = image.segments.iter().zip(addresses);
    segments.find(|(segment, _)| segment.executable).map(|(segment, address)| address.wrapping_sub(segment.address))
}
