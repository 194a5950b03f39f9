//! The public builder.

use std::path::{Path, PathBuf};

use super::input::{Input, Inputs, machine_of};
use super::link::link;
use super::providers::Providers;
use crate::elf::HOST_MACHINE;
use crate::read::read_object;
use crate::{Error, Limits, Result};

/// Links objects into one image: a shared object that `dlopen` and [`JitEngine::add_image`](crate::JitEngine) load.
///
/// References inside the image are bound to it, as by `ld -Bsymbolic`. The same objects in the same order make the same
/// bytes.
#[derive(Debug)]
pub struct ImageBuilder {
    objects: Vec<(String, Vec<u8>)>,
    libraries: Vec<PathBuf>,
    soname: Option<String>,
    limits: Limits,
}

impl Default for ImageBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl ImageBuilder {
    /// Creates a builder without objects.
    pub fn new() -> Self {
        Self { objects: Vec::new(), libraries: Vec::new(), soname: None, limits: Limits::default() }
    }

    /// Adds an object. `name` stands in errors.
    #[must_use]
    pub fn object(mut self, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.objects.push((name.to_owned(), bytes.into()));
        self
    }

    /// Adds an object file.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be read.
    pub fn object_file(self, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = read_object(path)?;
        Ok(self.object(&path.display().to_string(), bytes))
    }

    /// Names a shared library that the image needs, by its file. Versions of imports are taken from it.
    #[must_use]
    pub fn shared_library(mut self, path: impl Into<PathBuf>) -> Self {
        self.libraries.push(path.into());
        self
    }

    /// Gives the image a name (`DT_SONAME`).
    #[must_use]
    pub fn soname(mut self, name: &str) -> Self {
        self.soname = Some(name.to_owned());
        self
    }

    /// Links the objects; returns the bytes of the file.
    ///
    /// # Errors
    /// [`Error::Image`] for what cannot be an image, [`Error::Object`] for what is no object, [`Error::Io`] for a shared
    /// library that cannot be read.
    pub fn link(&self) -> Result<Vec<u8>> {
        let machine = self.objects.iter().find_map(|(_, bytes)| machine_of(bytes)).unwrap_or(HOST_MACHINE);
        let inputs = Inputs::new(machine, self.limits.clone());
        let objects = self.objects.iter().map(|(name, bytes)| inputs.prepare(name, bytes));
        let objects: Vec<Input> = objects.collect::<Result<_>>()?;
        let mut providers = Providers::default();
        for path in &self.libraries {
            let bytes = std::fs::read(path).map_err(|source| Error::Io { path: path.clone(), source })?;
            providers.add(path, &bytes, machine, true)?;
        }
        link(objects, providers, self.soname.as_deref(), machine)
    }
}
