//! Libraries: one namespace of objects, linked and initialised from their bytes.
#![allow(unsafe_code, reason = "runs initialisers")]

mod adding;
mod archive_members;
mod bindings;
pub(crate) mod error;
mod exports;
mod finding;
mod linking;
mod links;
pub(crate) mod name_source;
mod stage;
mod state;
mod unloading;

use std::path::PathBuf;
use std::sync::Arc;

use once_cell::race::OnceBox;

pub(crate) use exports::Exports;
use name_source::NameSource;
use state::State;

use crate::fork_guard::{Guard, Mutex};
use crate::live::context::Context;
use crate::live::lifetime::code_ref;
#[cfg(feature = "cuda")]
use crate::live::lifetime::devices::Devices;
use crate::live::lifetime::exporting;
use crate::live::lifetime::init_lock::InitLock;
use crate::live::lifetime::loaded_library::{CodeRef, LoadedLibrary};
use crate::live::resolve::walk::Elsewhere;
use crate::name::Name;
use crate::runtime::SharedLibrary;
#[cfg(feature = "cuda")]
use crate::runtime::cuda_driver::Device;
use crate::{Error, LibraryError, Result};

/// One of the providers that a library was linked against, in the order given.
#[derive(Clone)]
pub(crate) enum Link {
    Library(Arc<Library>),
    Source(Arc<dyn NameSource>),
}

impl Link {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Library(library) => library.name().to_owned(),
            Self::Source(source) => source.name().to_string(),
        }
    }

    /// Returns the library if it was removed.
    pub(crate) fn removed(&self) -> Option<&Library> {
        match self {
            Self::Library(library) => library.is_removed().then_some(library),
            Self::Source(_) => None,
        }
    }

    fn into_library(self) -> Option<Arc<Library>> {
        match self {
            Self::Library(library) => Some(library),
            Self::Source(_) => None,
        }
    }
}

/// The places to look for imports beside the library's own objects.
#[derive(Default)]
pub(crate) struct Scope {
    pub(crate) links: Vec<Link>,
    pub(crate) elsewhere: Elsewhere,
    /// True if objects may ask for executable stacks.
    pub(crate) executable_stack: bool,
    /// The names in the process's scope, if the library exports any.
    pub(crate) exports: Option<Exports>,
    /// The folders to look for shared libraries in.
    pub(crate) folders: Vec<PathBuf>,
    /// The device that the library is loaded for.
    #[cfg(feature = "cuda")]
    pub(crate) device: Option<Device>,
}

/// A library, to which `crate::Library` is a handle.
pub(crate) struct Library {
    name: Name,
    context: Arc<Context>,
    /// `None` for a library that has the process's symbols and nothing else.
    scope: Option<Box<Scope>>,
    /// The text of a numbered name, once it was asked for.
    text: OnceBox<String>,
    /// The library's code, held by `state` until it is removed.
    remains: Arc<LoadedLibrary>,
    /// The lock of the thread that links and initialises it.
    init_lock: InitLock,
    state: Mutex<State>,
}

impl Library {
    pub(crate) fn new(
        context: Arc<Context>,
        name: Name,
        #[cfg_attr(not(feature = "cuda"), expect(unused_mut, reason = "devices take a part of it"))] mut scope: Scope,
        shared: Vec<SharedLibrary>,
    ) -> Arc<Self> {
        code_ref::end_what_has_drained();
        let code = CodeRef::first(LoadedLibrary::new(name.clone(), !scope.links.is_empty(), shared, &context.registry));
        // Only the code keeps the device.
        #[cfg(feature = "cuda")]
        if let Some(device) = scope.device.take() {
            code.devices_or(|| Devices::loaded_for(device));
        }
        context.registry.add(code.code());
        let remains = Arc::clone(code.code());
        let alone = scope.links.is_empty() && scope.elsewhere.given.is_empty() && scope.folders.is_empty();
        let plain = alone && !scope.elsewhere.isolated && !scope.executable_stack && scope.exports.is_none();
        let scope = (!plain).then(|| Box::new(scope));
        let (text, init_lock) = (OnceBox::new(), InitLock::default());
        Arc::new(Self { name, context, scope, text, remains, init_lock, state: Mutex::new(State::new(code)) })
    }

    pub(crate) fn name(&self) -> &str {
        match &self.name {
            Name::Given(text) => text,
            Name::Number(_) => self.text.get_or_init(|| Box::new(self.name.to_string())),
        }
    }

    fn scope(&self) -> Option<&Scope> {
        self.scope.as_deref()
    }

    fn allows_executable_stack(&self) -> bool {
        self.scope().is_some_and(|scope| scope.executable_stack)
    }

    fn elsewhere(&self) -> Option<&Elsewhere> {
        self.scope().map(|scope| &scope.elsewhere)
    }

    /// Returns a name for an object without one.
    pub(crate) fn next_object_name(&self) -> Name {
        self.context.next_object_name()
    }

    fn state(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    /// Returns the library's code, unless it was removed.
    pub(crate) fn code(&self) -> Result<CodeRef> {
        self.state().code().ok_or_else(|| self.removed())
    }

    fn removed(&self) -> Error {
        Error::Library(LibraryError::Removed { library: self.name.to_string() })
    }

    /// Returns the device it was loaded for, as long as its code is there.
    #[cfg(feature = "cuda")]
    pub(crate) fn device(&self) -> Option<Device> {
        self.remains.devices().and_then(Devices::device)
    }

    /// Runs a function once for a device, with its context current.
    #[cfg(feature = "cuda")]
    pub(crate) fn initialise_on(&self, device: &Device, initialise: impl FnOnce() -> Result<()>) -> Result<()> {
        // The held code keeps its devices.
        let code = self.code()?;
        code.devices_or(Devices::default).initialise(&self.name, device, initialise)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        if exporting::any() {
            self.withdraw_exports();
            let code = self.state().remove();
            drop(code);
            self.end_circles();
        }
        // The loop avoids recursion: chains may be long.
        let libraries = |scope: Option<Box<Scope>>| {
            let links = scope.map(|scope| scope.links).unwrap_or_default();
            links.into_iter().filter_map(Link::into_library)
        };
        let mut next: Vec<_> = libraries(self.scope.take()).collect();
        while let Some(library) = next.pop() {
            if let Some(mut library) = Arc::into_inner(library) {
                next.extend(libraries(library.scope.take()));
            }
        }
    }
}
