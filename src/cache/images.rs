//! Images in the cache: objects that are linked once for all processes.

use super::record::Kind;
use super::{CacheKey, ObjectCache, Problems};
use crate::image::ImageIdentity;
use crate::{Error, ImageBuilder, Linked, Result};

/// The result of [`ObjectCache::get_or_link`].
#[derive(Debug)]
#[non_exhaustive]
pub struct CachedImage {
    /// The image, or the objects if they cannot be one, for [`JitEngine::add_linked`](crate::JitEngine::add_linked).
    pub linked: Linked,
    /// Whether it is an image that came from the cache, so that nothing was linked.
    pub found: bool,
    /// Errors of the cache, as for objects, and of the link: why the objects are no image.
    pub problems: Vec<Error>,
}

impl ObjectCache {
    /// Returns the image of a key; if there is none, calls `objects`, links what it returns by [`ImageBuilder::link`],
    /// and stores the image. No LLVM takes part.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use slabjit::{CacheKey, ImageBuilder, JitEngine, ObjectCache};
    /// # fn compile(source: &str) -> std::io::Result<Vec<u8>> { Ok(source.into()) }
    ///
    /// let cache = ObjectCache::open("/var/cache/kernels")?;
    /// let source = "int add(int a, int b) { return a + b; }";
    /// let key = CacheKey::new(["cc 12.2.0", "-O2 -fPIC", source]);
    ///
    /// let image = cache.get_or_link(&key, || {
    ///     let object = cache.get_or_compile(&key, || compile(source))?;
    ///     Ok::<_, std::io::Error>(ImageBuilder::new().object("add.o", object.bytes))
    /// })?;
    /// for problem in &image.problems {
    ///     eprintln!("{problem}"); // such as an object that was compiled without -fPIC
    /// }
    /// let library = JitEngine::new()?.add_linked(&image.linked)?;
    /// # drop(library);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The key is made from all inputs of the objects and of the builder: what else it links, shared libraries, the
    /// soname. The cache adds what the caller does not know: the version of this crate and of its images' format, the
    /// machine, and the builds of the system's libraries, from which imports have their versions. An object and an
    /// image may have the same key.
    ///
    /// Objects that cannot be an image are returned as they are ([`Linked::Objects`]), to be linked in the process. The
    /// cache does not remember that: `objects` is called the next time, too. It finds its objects in the cache then, if
    /// it gets them as above.
    ///
    /// Errors of the cache and of the link do not fail the call: they are in [`CachedImage::problems`] and in warning
    /// events of `tracing`.
    ///
    /// # Errors
    /// Those of `objects`.
    pub fn get_or_link<E>(
        &self,
        key: &CacheKey,
        objects: impl FnOnce() -> Result<ImageBuilder, E>,
    ) -> Result<CachedImage, E> {
        let mut problems = Problems::of(key);
        let image_key = key.of_image(&ImageIdentity::current());
        if let Some(bytes) = problems.report(self.find_here(&image_key, Kind::Image)).flatten() {
            return Ok(CachedImage { linked: Linked::Image(bytes), found: true, problems: problems.all });
        }
        let _flight = match self.find_there(&image_key, Kind::Image, Some(self.patience), &mut problems) {
            Ok(bytes) => return Ok(CachedImage { linked: Linked::Image(bytes), found: true, problems: problems.all }),
            Err(flight) => flight,
        };
        let builder = objects()?;
        let linked = match problems.report(builder.link()) {
            Some(bytes) => {
                problems.report(self.keep(&image_key, Kind::Image, &bytes));
                Linked::Image(bytes)
            }
            None => Linked::Objects(builder),
        };
        Ok(CachedImage { linked, found: false, problems: problems.all })
    }
}
