//! The public builder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashSet;

use super::input::{Input, Inputs, machine_of};
use super::link::{Options, link};
#[cfg(doc)]
use crate::Error;
use crate::elf::{Archive, HOST_MACHINE, Preparation};
use crate::name::Name;
use crate::read::{Contents, read_object};
use crate::{KernelSignature, Limits, Result};

/// Links objects into one image: a shared object that `dlopen` opens and [`JitEngine::add_image`] loads, the latter
/// also in a program without LLVM.
///
/// ```no_run
/// # fn main() -> slabjit::Result<()> {
/// use slabjit::{ImageBuilder, JitEngine};
///
/// let bytes = ImageBuilder::new().object_file("rmsnorm.o")?.object_file("rope.o")?.link()?;
/// std::fs::write("kernels.so", &bytes).expect("written");
/// let kernels = JitEngine::new()?.add_image_file("kernels.so")?;
/// # drop(kernels);
/// # Ok(())
/// # }
/// ```
///
/// References inside the image are bound to it, as by `ld -Bsymbolic`; unique data (`STB_GNU_UNIQUE`) is not shared
/// with other images. What the objects do not define is imported, with the version that the given shared libraries, or
/// else the system's, have now. The same objects in the same order make the same bytes.
///
/// No LLVM takes part: the link is the same in every build of this crate.
///
/// [`JitEngine::add_image`]: crate::JitEngine::add_image
#[derive(Debug, Default)]
#[must_use]
pub struct ImageBuilder {
    pub(crate) objects: Vec<(String, Vec<u8>)>,
    pub(crate) archives: Vec<(String, Arc<[u8]>)>,
    pub(crate) libraries: Vec<PathBuf>,
    soname: Option<String>,
    cpu: Vec<(String, Vec<String>)>,
    contracts: Vec<(String, String)>,
    debug: bool,
    relr: bool,
    limits: Limits,
}

impl ImageBuilder {
    /// Creates a builder without objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an object. The name is used in errors.
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

    /// Adds an archive (`ar`): the members are linked that define what the others need. Where nothing else was added,
    /// all are.
    pub fn archive(mut self, name: &str, bytes: impl Into<Arc<[u8]>>) -> Self {
        self.archives.push((name.to_owned(), bytes.into()));
        self
    }

    /// Names a shared library that the image needs, by its file, or by a name (`libz.so.1`) that is looked for in the
    /// system's folders (`DT_NEEDED`). Versions of imports are taken from it; the system's C and C++ libraries need not
    /// be named.
    pub fn shared_library(mut self, path: impl Into<PathBuf>) -> Self {
        self.libraries.push(path.into());
        self
    }

    /// Gives the image a name (`DT_SONAME`).
    pub fn soname(mut self, name: &str) -> Self {
        self.soname = Some(name.to_owned());
        self
    }

    /// Says what a function needs of the CPU, in place of what its instructions need: features by the names that
    /// `slabjit check --cpu` prints, none for one that runs on every CPU because it asks before it uses more.
    pub fn cpu_needs<'a>(mut self, function: &str, features: impl IntoIterator<Item = &'a str>) -> Self {
        self.cpu.push((function.to_owned(), features.into_iter().map(str::to_owned).collect()));
        self
    }

    /// Gives a kernel its signature, which [`Library::signature`](crate::Library::signature) returns once the image is
    /// loaded. A later one of the same kernel replaces it.
    pub fn signature(mut self, signature: &KernelSignature) -> Self {
        self.contracts.retain(|(kernel, _)| kernel != signature.name());
        self.contracts.push((signature.name().to_owned(), signature.to_string()));
        self
    }

    /// Keeps the debug information of objects that were compiled with `-g` (DWARF), for debuggers and
    /// [`JitEngine::symbolize`](crate::JitEngine::symbolize); off by default. It is in the file, and takes no memory
    /// unless [`symbolize`](crate::JitEngine::symbolize) is to have it.
    pub fn debug_info(mut self, keep: bool) -> Self {
        self.debug = keep;
        self
    }

    /// Packs relative relocations (`DT_RELR`), as `ld -z pack-relative-relocs` does; off by default. A pointer into the
    /// image takes a bit or two of the file in place of 24 bytes. Such an image wants a slabjit that knows it, and for
    /// `dlopen` glibc 2.36: it needs the version `GLIBC_ABI_DT_RELR` where it has others of `libc.so.6`.
    pub fn pack_relative_relocations(mut self, pack: bool) -> Self {
        self.relr = pack;
        self
    }

    /// Sets what an object may cost; see [`Limits`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Links the objects; returns the bytes of the file. Nothing runs.
    ///
    /// # Errors
    /// [`Error::Image`] for what cannot be an image, [`Error::Object`] and [`Error::Link`] for what is no object that
    /// this crate loads, [`Error::Io`] for a shared library that cannot be read.
    pub fn link(&self) -> Result<Vec<u8>> {
        let archives =
            self.archives.iter().map(|(name, bytes)| Archive::parse(name, Contents::Memory(Arc::clone(bytes))));
        let archives: Vec<Archive> = archives.collect::<Result<_>>()?;
        let machine = self.objects.iter().find_map(|(_, bytes)| machine_of(bytes));
        let machine = machine.or_else(|| archives.iter().find_map(machine_of_archive)).unwrap_or(HOST_MACHINE);
        let inputs = Inputs::new(machine, self.limits);
        let objects = self.objects.iter().map(|(name, bytes)| inputs.prepare(name, bytes));
        let mut objects: Vec<Input> = objects.collect::<Result<_>>()?;
        add_members(&inputs, &mut objects, &archives)?;
        let options = Options {
            libraries: &self.libraries,
            soname: self.soname.as_deref(),
            cpu: &self.cpu,
            contracts: &self.contracts,
            debug: self.debug,
            relr: self.relr,
        };
        link(objects, &options, machine)
    }
}

/// Links objects of a library, prepared as they were for it, with the shared libraries that it was given.
pub(crate) fn link_kept(
    preparation: Preparation,
    objects: &[(Name, Arc<[u8]>)],
    libraries: &[PathBuf],
) -> Result<Vec<u8>> {
    let inputs = Inputs::of(preparation);
    let objects: Vec<Input> =
        objects.iter().map(|(name, bytes)| inputs.prepare(&name.text(), bytes)).collect::<Result<_>>()?;
    link(objects, &Options { libraries, ..Options::default() }, HOST_MACHINE)
}

fn machine_of_archive(archive: &Archive) -> Option<u16> {
    let (_, member) = archive.symbols().next()?;
    machine_of(&archive.member(member).ok()?.1)
}

/// Adds members that define what is undefined, until nothing more is needed: of each archive in turn, in the order of
/// its index.
fn add_members(inputs: &Inputs, objects: &mut Vec<Input>, archives: &[Archive]) -> Result<()> {
    let all = objects.is_empty();
    let (mut taken, mut seen) = (HashSet::new(), 0);
    let (mut defined, mut wanted) = (HashSet::<String>::new(), HashSet::<String>::new());
    loop {
        for object in objects.iter().skip(seen) {
            let index = &object.index;
            defined.extend(index.definitions.iter().map(|definition| index.name(definition.name).to_owned()));
            let strong = index.imports.iter().filter(|import| !import.weak);
            wanted.extend(strong.map(|import| index.name(import.name).to_owned()));
        }
        seen = objects.len();
        for (number, archive) in archives.iter().enumerate() {
            let needed = |name: &str| all || wanted.contains(name) && !defined.contains(name);
            let members = archive.symbols().filter(|(name, _)| needed(name)).map(|(_, member)| member);
            for member in members {
                if taken.insert((number, member)) {
                    let (name, bytes) = archive.member(member)?;
                    objects.push(inputs.prepare(name, &bytes)?);
                }
            }
        }
        if objects.len() == seen {
            return Ok(());
        }
    }
}
