//! Images: what an engine's libraries do with them.

mod file;
mod functions;

pub(crate) use file::Source;
pub(crate) use functions::{code_distance, functions};

use std::sync::Arc;

use crate::cpu::list::{Lack, Lacks, List};
use crate::elf::image_file::{ImageIndex, Unfit, read_image};
use crate::elf::{ArrayKind, HOST_MACHINE, ObjectIndex};
use crate::live::linker::Linker;
use crate::{Error, ImageError, Result};

/// How the libraries of an engine read, load and make images.
pub(crate) struct Images {
    pub(crate) loader: Arc<dyn Linker>,
    /// Whether their bytes are hashed.
    pub(crate) verify: bool,
    /// Whether functions are returned that this CPU does not run.
    pub(crate) ignore_cpu_needs: bool,
    /// Whether libraries keep the bytes of their objects.
    pub(crate) keep_objects: bool,
}

impl Images {
    /// Reads an image of this name.
    pub(super) fn read(&self, name: &str, bytes: &[u8]) -> Result<(ObjectIndex, ImageIndex, Lacks)> {
        let read = read_image(bytes, HOST_MACHINE, self.verify);
        let (index, image) = read.map_err(|unfit| Error::Image(unfit.into_error(name)))?;
        let lacks = if self.ignore_cpu_needs { Lacks::default() } else { lacks(name, bytes, &index, &image)? };
        Ok((index, image, lacks))
    }
}

/// Returns the functions of an image that this CPU does not run. An initialiser is an error: it runs with every
/// function.
fn lacks(name: &str, bytes: &[u8], index: &ObjectIndex, image: &ImageIndex) -> Result<Lacks> {
    let damaged = |()| Unfit::CPU_LIST.into_error(name);
    let lacks = List::new(image.cpu(bytes)).ok_or(()).and_then(|list| list.lacks()).map_err(damaged)?;
    if lacks.is_empty() {
        return Ok(lacks);
    }
    let lists = || index.arrays.iter().zip(&image.arrays).filter(|(array, _)| array.kind != ArrayKind::Fini);
    let is_initialiser = |at| lists().any(|(array, start)| (*start..start + array.size).contains(&at));
    let mut lacking = None;
    let check = |lacking: &mut Option<u64>, at, address| {
        // Few places are an initialiser's.
        *lacking = (is_initialiser(at) && lacks.at(address).is_some()).then_some(address);
        lacking.is_none()
    };
    let mut without_addends = image.relr_places(bytes);
    if without_addends.all(|at| check(&mut lacking, at, image.word(bytes, at).unwrap_or(0))) {
        let _ = image.relocations(index.machine, bytes, &mut lacking, check, |_, _| Ok::<(), ()>(()));
    }
    if let Some(lack) = lacking.and_then(|address| lacks.at(address)) {
        let named = image.functions(bytes).iter().find(|function| function.address == lack.address);
        let function = named.map_or("an initialiser", |function| function.name);
        return Err(Error::Image(lack_error(name, function, lack)));
    }
    Ok(lacks)
}

/// Makes the error about a function that this CPU does not run.
pub(crate) fn lack_error(object: &str, function: &str, lack: &Lack) -> ImageError {
    let (object, function, feature) = (object.to_owned(), function.to_owned(), lack.feature.clone().into());
    ImageError::Cpu { object, function, offset: lack.offset, feature }
}
