//! What a library finds names in, beside its own objects.

use std::cell::RefCell;

use super::name_source::Answers;
use super::{Library, Link};
use crate::live::resolve::found::Found;
use crate::live::resolve::prepared::Pending;
use crate::name::Name;
use crate::{Error, LibraryError, Result};

impl Library {
    fn links(&self) -> &[Link] {
        self.scope().map_or(&[], |scope| &scope.links)
    }

    fn has_sources(&self) -> bool {
        self.links().iter().any(|link| matches!(link, Link::Source(_)))
    }

    /// Returns the symbol of the first link that has a name, and that link's name.
    pub(super) fn linked_export(&self, name: &str, answers: &Answers) -> Option<(Found, Name)> {
        self.links().iter().enumerate().find_map(|(at, link)| match link {
            Link::Library(library) => Some((library.exported(name)?, library.name.clone())),
            Link::Source(source) => match answers.found.get(name)? {
                (of, Found { address, kind, code }) if *of == at => {
                    Some((Found { address: *address, kind: *kind, code: code.clone() }, source.name()))
                }
                _ => None,
            },
        })
    }

    /// Returns whether a link will have a name once it is linked. No lock may be held.
    pub(super) fn will_be_linked(&self, name: &str) -> bool {
        self.links().iter().any(|link| match link {
            Link::Library(library) => library.will_export(name),
            Link::Source(source) => source.defines(name),
        })
    }

    /// Makes the libraries ready that this one is linked against. Runs before the claim: a thread that has one waits
    /// for initialisers only.
    ///
    /// # Safety
    /// As for [`make_ready`](Library::make_ready).
    pub(super) unsafe fn make_links_ready(&self) -> Result<()> {
        for link in self.links() {
            let Link::Library(library) = link else { continue };
            // SAFETY: by the caller.
            match unsafe { library.make_ready() } {
                // Its code is kept; it has no names any more.
                Err(Error::Library(LibraryError::Removed { .. })) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Asks sources for the names that waiting objects import. Runs before the claim, as
    /// [`make_links_ready`](Self::make_links_ready).
    ///
    /// # Safety
    /// As for [`make_ready`](Library::make_ready).
    pub(super) unsafe fn ask_sources(&self) -> Result<Answers> {
        let mut answers = Answers::default();
        if !self.has_sources() {
            return Ok(answers);
        }
        let names = {
            let state = self.state();
            answers.objects = state.pending().iter().map(|(number, _)| *number).collect();
            state.foreign_imports()
        };
        let _asking = Asking::begin(self);
        for (name, _) in names.into_iter().filter(|(_, wanted)| !wanted.thread_local) {
            for (at, link) in self.links().iter().enumerate() {
                match link {
                    Link::Library(library) if library.exported(&name).is_some() => break,
                    Link::Library(_) => {}
                    Link::Source(source) => {
                        // SAFETY: by the caller.
                        if let Some(found) = unsafe { source.find(&name)? } {
                            answers.found.insert(name, (at, found));
                            break;
                        }
                    }
                }
            }
        }
        Ok(answers)
    }

    /// Returns whether sources were asked for what these objects import.
    pub(super) fn were_asked(&self, pending: &[Pending], answers: &Answers) -> bool {
        !self.has_sources() || pending.iter().map(|(number, _)| number).eq(&answers.objects)
    }
}

thread_local! {
    /// The libraries that this thread asks sources for: what these link may look for names in such a library.
    static ASKING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// This thread asks sources for a library.
pub(super) struct Asking;

impl Asking {
    fn begin(library: &Library) -> Self {
        ASKING.with_borrow_mut(|asking| asking.push(std::ptr::from_ref(library).addr()));
        Self
    }

    pub(super) fn is_at(library: &Library) -> bool {
        ASKING.with_borrow(|asking| asking.contains(&std::ptr::from_ref(library).addr()))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        ASKING.with_borrow_mut(Vec::pop);
    }
}
