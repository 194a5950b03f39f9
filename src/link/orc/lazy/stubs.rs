//! The functions of a module that is compiled function by function.
#![allow(unsafe_code, reason = "words that linked code reads")]

use std::any::Any;
use std::error::Error as _;
use std::ffi::c_int;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use super::stub_object::{self, Stub};
use crate::fork_guard::Mutex;
use crate::guarded::guarded;
use crate::live::lifetime::loaded_library::{CodeRef, LoadedLibrary, Owned};
use crate::live::resolve::found::Found;
use crate::name::DefinedName;
use crate::{Error, LibraryError, LinkError, Result};

/// A module that is to be compiled function by function.
#[cfg(feature = "inkwell")]
pub(crate) struct Lazy {
    pub(crate) name: String,
    pub(crate) functions: Vec<DefinedName>,
    /// What the object with all the rest defines.
    pub(crate) rest: Vec<DefinedName>,
    pub(crate) has_initialisers: bool,
    pub(crate) make: Arc<MakePart>,
}

/// Makes the object with a function of this name under that name, or, without, that with the rest.
#[cfg(feature = "inkwell")]
type MakePart = dyn Fn(Option<(&str, &str)>) -> Result<Vec<u8>> + Send + Sync;

/// A dylib, as stubs know it.
pub(in crate::link::orc) trait FindBody: Send + Sync {
    /// Links what defines a name, with all that it needs, and initialises what is linked.
    ///
    /// # Safety
    /// The initialisers may be run.
    unsafe fn find(&self, body: &str) -> Result<Found>;
    /// Returns the dylib's name.
    fn dylib(&self) -> String;
}

/// The stubs of a module. Their code keeps this.
pub(in crate::link::orc) struct Stubs {
    dylib: Box<dyn FindBody>,
    functions: Vec<Function>,
    /// Their code, once it is linked.
    code: OnceLock<Weak<LoadedLibrary>>,
}

/// A function with a stub.
struct Function {
    stubs: Weak<Stubs>,
    name: String,
    /// The name of its code, which is made when it is called; none for one that leads somewhere from the start.
    body: Option<String>,
    /// Taken for each change of its word.
    leads: Mutex<Leads>,
}

/// Where a stub leads.
#[derive(Default)]
struct Leads {
    /// 0 until its code is made.
    address: u64,
    /// What the stubs' code keeps for that.
    code: Option<Arc<LoadedLibrary>>,
    /// What this keeps, as long as the stubs have no code.
    until_linked: Option<CodeRef>,
}

/// What a stub jumps by: linked code has it.
#[repr(C)]
pub(super) struct Word {
    target: AtomicU64,
    function: *const Function,
}

impl Stubs {
    fn new(dylib: Box<dyn FindBody>, functions: impl Iterator<Item = (String, Option<String>, Leads)>) -> Arc<Self> {
        Arc::new_cyclic(|stubs| {
            let function = |(name, body, leads): (String, _, _)| {
                let (stubs, leads) = (stubs.clone(), Mutex::new(leads));
                Function { stubs, name, body, leads }
            };
            Self { dylib, functions: functions.map(function).collect(), code: OnceLock::new() }
        })
    }

    /// Returns the stubs of functions of a dylib; each function's code is found by the name that goes with it.
    #[cfg(feature = "inkwell")]
    pub(in crate::link::orc) fn of_functions<'a>(
        dylib: Box<dyn FindBody>,
        functions: impl Iterator<Item = (&'a str, String)>,
    ) -> Arc<Self> {
        Self::new(dylib, functions.map(|(name, body)| (name.to_owned(), Some(body), Leads::default())))
    }

    /// Returns a stub of a dylib that leads to an address.
    pub(in crate::link::orc) fn leading_to(
        dylib: Box<dyn FindBody>,
        name: &str,
        address: u64,
        code: &CodeRef,
    ) -> Arc<Self> {
        let leads = Leads { address, code: Some(Arc::clone(code.code())), until_linked: Some(code.clone()) };
        Self::new(dylib, std::iter::once((name.to_owned(), None, leads)))
    }

    /// Returns their object. `functions` are those that these are for, `handler` the address of what calls through.
    pub(in crate::link::orc) fn object(
        &self,
        module: &str,
        functions: &[DefinedName],
        handler: u64,
    ) -> Result<Vec<u8>> {
        let stub = |(defined, function)| Self::stub(defined, function);
        let stubs: Vec<Stub<'_>> = functions.iter().zip(&self.functions).map(stub).collect();
        stub_object::make(&stubs, handler).map_err(|error| {
            Error::Link(LinkError::Failed { object: module.to_owned(), message: format!("its stubs: {error}") })
        })
    }

    fn stub<'a>(defined: &DefinedName, function: &'a Function) -> Stub<'a> {
        Stub {
            name: &function.name,
            is_weak: defined.is_weak,
            is_exported: defined.is_exported,
            record: std::ptr::from_ref(function).expose_provenance() as u64,
        }
    }

    /// Takes note of their code, which is to keep this, and what they lead to.
    pub(in crate::link::orc) fn set_code(&self, code: &Arc<LoadedLibrary>) {
        let _ = self.code.set(Arc::downgrade(code));
        for function in &self.functions {
            let kept = function.leads.lock().until_linked.take();
            kept.into_iter().for_each(|kept| code.keep_one_more(kept));
        }
    }

    /// Has a stub lead to another address, for all that call it from now on. Returns what kept the code that it led to.
    ///
    /// # Safety
    /// The stubs are linked, and not removed; `stub` is the address of one.
    pub(in crate::link::orc) unsafe fn redirect(
        &self,
        stub: u64,
        name: &str,
        address: u64,
        code: &CodeRef,
    ) -> Option<Option<CodeRef>> {
        let function = self.functions.iter().find(|function| function.name == name)?;
        let own = self.code.get()?.upgrade()?;
        // SAFETY: by the caller.
        let word = unsafe { &*stub_object::word_of(stub).cast::<Word>() };
        let mut leads = function.leads.lock();
        let before = leads.code.replace(Arc::clone(code.code()));
        let kept = own.keep_in_place_of(before.as_ref(), code.clone());
        leads.address = address;
        word.target.store(address, Ordering::Release);
        Some(kept)
    }

    fn make(&self, function: &Function, body: &str) -> Result<Found> {
        // SAFETY: whoever calls a function that is compiled lazily says that initialisers may be run.
        unsafe { self.dylib.find(body) }.map_err(|error| match error {
            Error::Library(LibraryError::SymbolNotFound { .. }) => {
                let message = "it was removed before it was compiled".to_owned();
                Error::Link(LinkError::Failed { object: function.name.clone(), message })
            }
            error => error,
        })
    }

    /// Returns where a function's stub leads, and has it do so.
    fn lead(&self, function: &Function, word: &Word) -> Result<u64> {
        let made = match &function.body {
            Some(body) if function.leads.lock().address == 0 => Some(self.make(function, body)?),
            _ => None,
        };
        let mut leads = function.leads.lock();
        // Another thread may have been faster.
        if let (0, Some(Found { address, code, .. })) = (leads.address, made) {
            leads.address = address;
            leads.code = Some(Arc::clone(code.code()));
            if let Some(own) = self.code.get().and_then(Weak::upgrade) {
                own.keep_one_more(code);
            }
        }
        word.target.store(leads.address, Ordering::Release);
        Ok(leads.address)
    }
}

impl Owned for Stubs {
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl fmt::Debug for Stubs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stubs").field("functions", &self.functions.len()).finish_non_exhaustive()
    }
}

/// Returns the address of the code of the function that a word is for, and has its stub lead there.
pub(super) extern "C" fn resolve(word: *const Word) -> u64 {
    unsafe extern "C" {
        fn __errno_location() -> *mut c_int;
    }
    // SAFETY: this thread's.
    let errno = unsafe { *__errno_location() };
    // SAFETY: a word of linked code, which is called, and keeps the record and what that refers to.
    let (word, function) = unsafe { (&*word, &*(*word).function) };
    let made = guarded(None, || {
        let stubs = function.stubs.upgrade()?;
        Some(stubs.lead(function, word).map_err(|error| (stubs.dylib.dylib(), error)))
    });
    let address = match made {
        Some(Ok(address)) => address,
        Some(Err((dylib, error))) => refuse(function, &dylib, &error),
        None => std::process::abort(),
    };
    // SAFETY: as above.
    unsafe { *__errno_location() = errno };
    address
}

/// Ends the process: there is nobody to return an error to.
fn refuse(function: &Function, dylib: &str, error: &Error) -> ! {
    let mut text = format!("slabjit: '{}' of dylib '{dylib}' was called, and cannot be made: {error}", function.name);
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!("\n  {cause}"));
        source = cause.source();
    }
    eprintln!("{text}");
    std::process::abort();
}
