//! State that the libraries of one engine share.

use std::borrow::Cow;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::elf::{Host, LARGEST_ARENA, LinkPlan, Preparation, Surroundings, Whereabouts};
use crate::live::images::{Images, Source};
use crate::live::lifetime::atexit;
use crate::live::lifetime::loaded_library::LoadedLibrary;
use crate::live::lifetime::registry::Registry;
use crate::live::linker::Linker;
use crate::live::resolve::decided::Decided;
use crate::live::resolve::object_bytes::{ObjectBytes, SpareBuffer};
use crate::live::resolve::prepared::PreparedObject;
use crate::live::resolve::walk;
use crate::memory::{Arena, ArenaConfig};
use crate::name::Name;
use crate::out_of_range::OutOfRange;
use crate::read::read_object_into;
use crate::threads::Threads;
use crate::{Error, LinkError, Result};

const _: () = assert!(ArenaConfig::MAX as u64 == LARGEST_ARENA);

/// The state that the libraries of one engine share.
pub(crate) struct Context {
    linker: Option<Arc<dyn Linker>>,
    pub(crate) images: Images,
    pub(crate) arena: Arc<Arena>,
    pub(crate) preparation: Preparation,
    pub(crate) out_of_range: OutOfRange,
    pub(crate) registry: Arc<Registry<LoadedLibrary>>,
    spare: Arc<SpareBuffer>,
    threads: Threads,
    unnamed: AtomicU32,
}

impl Context {
    pub(crate) fn new(
        arena: &ArenaConfig,
        preparation: Preparation,
        out_of_range: OutOfRange,
        threads: Threads,
        linker: Option<Arc<dyn Linker>>,
        images: Images,
    ) -> Result<Arc<Self>> {
        atexit::hook_process();
        let (spare, unnamed) = (SpareBuffer::new(arena.warm), AtomicU32::new(0));
        let registry = Arc::<Registry<LoadedLibrary>>::default();
        let arena = Arena::open(arena)?;
        let of_arena = Arc::downgrade(&registry);
        arena.free_some_by(move || of_arena.upgrade().into_iter().for_each(|registry| registry.leaving.end_now()));
        Ok(Arc::new(Self { linker, images, arena, preparation, out_of_range, registry, spare, threads, unnamed }))
    }

    /// Returns the linker of these objects, which are images or not.
    ///
    /// # Errors
    /// [`LinkError::NoLinker`](crate::LinkError::NoLinker) in a build without LLVM.
    pub(crate) fn linker(&self, of: &[Decided]) -> Result<&dyn Linker> {
        if of.iter().any(|decided| decided.object.image.is_some()) {
            return Ok(&*self.images.loader);
        }
        self.linker.as_deref().ok_or(Error::Link(LinkError::NoLinker))
    }

    /// Returns a copy of an object's bytes, if they are kept.
    fn original(&self, bytes: &[u8]) -> Option<Arc<[u8]>> {
        self.images.keep_objects.then(|| bytes.into())
    }

    /// Reads an image, which is to be loaded.
    pub(crate) fn prepare_image(&self, name: Name, source: Source<'_>) -> Result<Arc<PreparedObject>> {
        let text = name.text();
        let text = &*text;
        let (bytes, file) = match source {
            Source::Bytes(bytes) => (self.spare.own(bytes), None),
            Source::File(file, pages) => (ObjectBytes::of_file(pages), Some(file)),
        };
        let (mut index, image, lacks) = self.images.read(text, &bytes)?;
        index.debug = self.preparation.kept();
        let original = self.original(&bytes);
        let mut object = PreparedObject::new(name, bytes, index);
        object.file = file.map(Box::new);
        object.lacks = (!lacks.is_empty()).then(|| Arc::new(lacks));
        object.original = original;
        object.image = Some(Arc::new(image));
        Ok(Arc::new(object))
    }

    /// Returns whether preparing an object runs code of the engine's user.
    pub(crate) fn has_plugins(&self) -> bool {
        self.preparation.has_plugins()
    }

    /// Returns how many threads prepare so many objects that have so many bytes. Plugins see one after the other.
    pub(crate) fn threads_for(&self, objects: usize, bytes: usize) -> usize {
        if self.has_plugins() { 1 } else { self.threads.for_work(objects, bytes) }
    }

    /// Reads an object, into memory that an earlier one has left.
    pub(crate) fn read(&self, path: &Path) -> Result<Vec<u8>> {
        let size = |file: &File| file.metadata().ok().and_then(|data| usize::try_from(data.len()).ok());
        let spare = |file: &File| if self.spare.is_empty() { None } else { self.spare.take(size(file)?) };
        read_object_into(path, |file| spare(file).unwrap_or_default())
    }

    /// Prepares an object to be linked.
    pub(crate) fn prepare(
        &self,
        name: Name,
        bytes: Cow<'_, [u8]>,
        executable_stack: bool,
    ) -> Result<Arc<PreparedObject>> {
        let text = name.text();
        let text = &*text;
        let span = tracing::debug_span!(target: "slabjit", "slabjit::prepare", object = text, bytes = bytes.len());
        let _entered = span.enter();
        let original = self.original(&bytes);
        let prepared = self.preparation.prepare(text, bytes)?;
        prepared.index.check_stack(text, executable_stack)?;
        for change in &prepared.changes {
            tracing::info!(target: "slabjit", object = text, %change, "preparation changed the object");
        }
        let (bytes, index) = prepared.into_linkable(|bytes| self.spare.own(bytes));
        let mut object = PreparedObject::new(name, bytes, index);
        object.original = original;
        Ok(Arc::new(object))
    }

    /// Returns preparation's findings for an object; `find` resolves its undefined names.
    pub(crate) fn check(
        &self,
        name: &str,
        bytes: &[u8],
        executable_stack: bool,
        find: &dyn Fn(&str, bool) -> Whereabouts,
    ) -> Result<LinkPlan> {
        let arena = self.arena.range();
        let host = Host { arena: arena.start as u64..arena.end as u64, find };
        let bridges = self.out_of_range == OutOfRange::Bridge;
        self.preparation.check(name, bytes, &Surroundings { bridges, executable_stack, host: Some(host) })
    }

    /// Does the same as [`check`](Self::check) for an object that has nothing around it but the process.
    pub(crate) fn check_alone(&self, name: &str, bytes: &[u8]) -> Result<LinkPlan> {
        self.check(name, bytes, false, &|name, _| walk::in_process(name))
    }

    /// Returns a name for an object without one.
    pub(crate) fn next_object_name(&self) -> Name {
        Name::Number(self.unnamed.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the libraries whose code is not gone. The result does not keep the code.
    pub(crate) fn live(&self) -> Vec<Arc<LoadedLibrary>> {
        self.registry.live()
    }
}
