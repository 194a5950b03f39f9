//! What debuggers and profilers see of loaded code. For debuggers these are files in this process's memory, in the list
//! of GDB's "JIT Compilation Interface".
//!
//! ```text
//! jit_interface.rs   the list, and how a debugger is told of a change
//! names_file.rs      a file with the names of a region of addresses
//! image_names.rs     the part of a large image's file that has its names
//! names_headers.rs   the headers of both
//! names.rs           the names of an object, in such files
//! debug_images.rs    objects' debug information, and the lines of an address
//! jitdump.rs         a file for perf
//! ```

mod debug_images;
mod image_names;
mod jit_interface;
pub(crate) mod jitdump;
mod names;
mod names_file;
mod names_headers;

pub(crate) use debug_images::{DebugImage, Line, lines_of};
pub(crate) use jit_interface::debugger_waits;
pub(crate) use names::{Names, announce};
#[cfg(test)]
pub(crate) use names_file::region_bits;
