//! The result of linking an object, and its resolvers, initialisers and finalisers.

pub(crate) mod catching;
mod foreign_exceptions;
pub(crate) mod ifunc;
pub(crate) mod image;
pub(crate) mod init_fini;
pub(crate) mod initialise;
pub(crate) mod linked_object;
