//! The ways to load an object that are compared. One more is one more line of [`SIDES`], with its file.

mod mcjit;
mod orcjit;
mod ours;
mod shared;
mod stock;

use std::ffi::CString;
use std::path::Path;

use crate::lljit::Linker;
use crate::measure::Cost;

/// `int ENTRY(int)`.
pub type Entry = unsafe extern "C" fn(i32) -> i32;

/// What is loaded, and how to see that it works.
pub struct Object {
    /// The object file.
    pub bytes: Vec<u8>,
    /// The function that is called.
    pub entry: CString,
    /// What is called before it by those who run no initialisers (stock LLJIT, MCJIT).
    pub initialiser: Option<CString>,
    /// What the function is given and must answer.
    pub question: (i32, i32),
}

impl Object {
    /// Calls the function.
    ///
    /// # Errors
    /// If it answers something else.
    ///
    /// # Safety
    /// The address is that of the object's entry, and loaded.
    pub unsafe fn ask(&self, address: usize) -> Result<(), String> {
        let (argument, expected) = self.question;
        // SAFETY: by the caller; all entries have this type.
        let answer = unsafe { std::mem::transmute::<usize, Entry>(address)(argument) };
        if answer == expected {
            Ok(())
        } else {
            Err(format!("WRONG ANSWER: {:?} is {answer}, not {expected}", self.entry))
        }
    }
}

/// An object that is loaded.
pub struct Loaded {
    /// Where its entry is, if it is in this process.
    pub address: Option<usize>,
    /// What keeps it.
    pub hold: Box<dyn Hold>,
}

/// Keeps an object loaded. Letting go of it without `unload` need not unload anything.
pub trait Hold: Send {
    /// Unloads it.
    fn unload(self: Box<Self>) -> Result<(), String>;
}

/// A way to load objects, from as many threads as one likes.
pub trait Side: Send + Sync {
    /// From bytes to the first call. The bytes may be taken, so that nobody has to copy them.
    fn load(&self, object: &mut Object) -> Result<Loaded, String>;

    /// The same for several, one by one.
    fn load_each(&self, objects: &mut [Object]) -> Result<Vec<Loaded>, String> {
        objects.iter_mut().map(|object| self.load(object)).collect()
    }

    /// The same for objects that are loaded, and unloaded, together.
    fn load_together(&self, objects: &mut [Object]) -> Result<Vec<Loaded>, String>;

    /// Objects that were loaded since the last `unload` or `keep`.
    fn unload(&self, loaded: Vec<Loaded>) -> Result<(), String> {
        loaded.into_iter().try_for_each(|one| one.hold.unload())
    }

    /// What is loaded by now stays.
    fn keep(&self) {}

    /// What the last call cost, of those who load in a process of their own and measure there.
    fn cost(&self) -> Option<Cost> {
        None
    }
}

/// Makes one, if need be with the Python that is given; the error is why there is none here.
type Maker = fn(Option<&Path>) -> Result<Box<dyn Side>, String>;

/// One of those that are compared.
pub struct Kind {
    /// Its name in the table.
    pub name: &'static str,
    /// How one is made.
    pub make: Maker,
    /// Whether each object takes processes of its own, so that few have to do.
    pub is_slow: bool,
    /// Whether Python loads, in a process of its own, and functions of the TVM FFI's convention only.
    pub is_python: bool,
}

impl Kind {
    const fn new(name: &'static str, make: Maker) -> Self {
        Self { name, make, is_slow: false, is_python: false }
    }
}

/// What the others are compared with.
pub const BASE: &str = "LLJIT, in-process";

/// All of them.
pub const SIDES: &[Kind] = &[
    Kind::new("ours", |_| ours::per_object()),
    Kind::new("ours, packed", |_| ours::packed()),
    Kind::new(BASE, |_| stock::lljit(Linker::InProcess)),
    Kind::new("LLJIT, Mapper", |_| stock::lljit(Linker::Mapper)),
    Kind::new("LLJIT, RuntimeDyld", |_| stock::lljit(Linker::RuntimeDyld)),
    Kind::new("MCJIT", |_| mcjit::mcjit()),
    Kind { is_slow: true, ..Kind::new("ld -shared, dlopen", |_| shared::ld()) },
    Kind { is_slow: true, ..Kind::new("ld.lld -shared, dlopen", |_| shared::lld()) },
    Kind { is_python: true, ..Kind::new("orcjit, from Python", orcjit::orcjit) },
];

/// One of them by its name.
pub fn named(name: &str) -> Option<&'static Kind> {
    SIDES.iter().find(|kind| kind.name == name)
}
