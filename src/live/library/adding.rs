//! Objects and archives are prepared, and wait to be linked.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::Library;
use super::archive_members::MemberRef;
use super::state::{KeptObject, State};
use crate::Result;
use crate::elf::{Archive, Preparation};
use crate::fork_guard::Guard;
use crate::given_bytes::Given;
use crate::live::images::Source;
use crate::live::resolve::prepared::PreparedObject;
use crate::name::Name;
use crate::read::Contents;
use crate::runtime::SharedLibrary;
use crate::threads::Threads;

impl Library {
    /// Prepares objects and takes them into the library: all, or none. Runs nothing but plugins.
    pub(crate) fn add<B: AsRef<[u8]>>(&self, objects: impl IntoIterator<Item = (Name, B)>) -> Result<()> {
        self.add_with(objects, Vec::new(), &[])
    }

    /// Does the same with archives, and with shared libraries that are opened before the objects are linked.
    pub(crate) fn add_with<B: AsRef<[u8]>>(
        &self,
        objects: impl IntoIterator<Item = (Name, B)>,
        archives: Vec<Archive>,
        libraries: &[PathBuf],
    ) -> Result<()> {
        let objects = objects.into_iter().map(|(name, bytes)| (name, Given::new(bytes)));
        let prepared = if self.context.threads_for(usize::MAX, 0) > 1 {
            let mut objects: Vec<_> = objects.collect();
            let objects = objects.iter_mut().map(|(name, bytes)| (name.clone(), bytes.take())).collect();
            let prepare = |(name, bytes): (Name, Cow<'_, [u8]>)| self.prepare(name, bytes);
            self.prepare_together(objects, |(_, bytes)| bytes.len(), prepare).collect::<Result<_>>()?
        } else {
            objects.map(|(name, mut bytes)| self.prepare(name, bytes.take())).collect::<Result<_>>()?
        };
        let mut state = self.take_in(prepared)?;
        if !archives.is_empty() {
            let work = state.work.get_or_insert_default();
            archives.into_iter().for_each(|archive| work.archives.add(Arc::new(archive)));
        }
        state.need(libraries);
        Ok(())
    }

    /// Reads an object's file.
    pub(crate) fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.context.read(path)
    }

    /// Takes prepared objects into the library: all, or none.
    fn take_in(&self, objects: SmallVec<[Arc<PreparedObject>; 1]>) -> Result<Guard<'_, State>> {
        let mut state = self.state();
        let code = state.code().ok_or_else(|| self.removed())?;
        state.add(&self.name, &code, objects)?;
        Ok(state)
    }

    /// Prepares objects, and ends after the first that is refused. Several threads may do it, all before the first is
    /// returned.
    fn prepare_together<'a, S: Send + 'a>(
        &self,
        sources: Vec<S>,
        size: impl Fn(&S) -> usize,
        prepare: impl Fn(S) -> Result<Arc<PreparedObject>> + Sync + 'a,
    ) -> Box<dyn Iterator<Item = Result<Arc<PreparedObject>>> + 'a> {
        let threads = self.context.threads_for(sources.len(), sources.iter().map(size).sum());
        if threads <= 1 {
            return Box::new(sources.into_iter().map(prepare));
        }
        let mut all: Vec<_> = sources.into_iter().map(|source| (Some(source), None)).collect();
        // What is not there ends the objects.
        let _ = Threads::each(threads, &mut all, |(source, prepared)| {
            *prepared = source.take().map(&prepare);
            let is_error = prepared.as_ref().is_some_and(Result::is_err);
            if is_error { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        Box::new(all.into_iter().map_while(|(_, prepared)| prepared))
    }

    pub(super) fn prepare(&self, name: Name, bytes: Cow<'_, [u8]>) -> Result<Arc<PreparedObject>> {
        self.context.prepare(name, bytes, self.allows_executable_stack())
    }

    /// Reads an image and takes it into the library, which has nothing else.
    pub(crate) fn add_image(&self, name: Name, source: Source<'_>) -> Result<()> {
        let image = self.context.prepare_image(name, source)?;
        self.take_in(smallvec![image]).map(drop)
    }

    /// Returns all objects as they came, those of archives included that others need; `None` if they are not kept.
    pub(crate) fn kept_objects(&self) -> Result<Option<Vec<KeptObject>>> {
        self.add_archive_members()?;
        let state = self.state();
        if state.stage.code().is_none() {
            return Err(self.removed());
        }
        let kept = || state.work.as_ref().map_or_else(Vec::new, |work| work.kept.clone());
        Ok(self.context.images.keep_objects.then(kept))
    }

    /// Returns the shared libraries that it was given.
    pub(crate) fn shared_libraries(&self) -> Arc<[SharedLibrary]> {
        self.remains.shared()
    }

    /// Returns how the library's objects are prepared for an image.
    pub(crate) fn preparation_of_images(&self) -> Preparation {
        self.context.preparation.without_llvm()
    }

    pub(crate) fn add_archive(&self, name: &str, contents: Contents) -> Result<()> {
        let archive = Archive::parse(name, contents)?;
        let mut state = self.state();
        if state.stage.code().is_none() {
            return Err(self.removed());
        }
        state.work.get_or_insert_default().archives.add(Arc::new(archive));
        Ok(())
    }

    /// Takes members of archives for names that nothing else of the library defines, until no more are needed.
    pub(super) fn add_archive_members(&self) -> Result<()> {
        loop {
            let wanted = self.state().wanted_members();
            if wanted.is_empty() {
                return Ok(());
            }
            let prepare = |member: &MemberRef| {
                let (name, bytes) = member.read()?;
                self.prepare(name.into(), bytes)
            };
            let prepared = self.prepare_together(wanted.iter().collect(), |member| member.bytes(), prepare);
            for (member, object) in wanted.iter().zip(prepared) {
                let object = object?;
                let mut state = self.state();
                let code = state.code().ok_or_else(|| self.removed())?;
                // Another thread may have been faster.
                if !state.has_taken(member) {
                    state.add(&self.name, &code, smallvec![object])?;
                    state.take_member(member);
                }
            }
        }
    }
}
