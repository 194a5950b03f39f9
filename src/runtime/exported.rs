//! Names that shared libraries and `dlsym` find, though the dynamic loader has not loaded what they name: modules that
//! contain nothing else.
//!
//! Shared libraries bind to one module. The loader keeps it, after we have closed it, until those libraries are closed,
//! and then calls its finalisers (glibc, elf/dl-close.c): they let go of what is kept for the libraries. `dlsym` finds
//! the names in a second module, behind the first: glibc never unloads a module in which the program itself has found
//! a name by `dlsym(RTLD_DEFAULT)` (elf/dl-lookup.c, `add_dependency`), and such a look-up binds nothing. The names of
//! a program, which stays, are in one module for both.
#![allow(unsafe_code, reason = "writes the symbol tables of modules that the loader reads")]

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use super::handle::Handle;
use super::open_image::{OpenError, Reach, open_image};
use super::process;
use crate::elf::{Audience, DEFINED, ExportImage, SYMBOL_SECTION, SYMBOL_SIZE, SYMBOL_VALUE, SymbolKind};
use crate::fork_guard::Mutex;

/// Names in the process's global scope. Dropping it withdraws them.
#[derive(Debug)]
pub(crate) struct Exported {
    /// In the order of opening, which is that of look-ups; `dlsym` finds names in the last one.
    modules: Vec<Module>,
    number: u64,
}

#[derive(Debug)]
struct Module {
    handle: Handle,
    /// The load address.
    base: usize,
    image: Layout,
}

/// What is left of an image once it is loaded.
#[derive(Debug)]
struct Layout {
    symbols_at: u64,
    places: Vec<u32>,
    filter: std::ops::Range<u64>,
}

impl Exported {
    /// Opens modules with these distinct names, which nobody finds before they have [addresses](Self::publish). It
    /// takes the loader's lock: no lock of ours may be held, nor a library's claim where that can be avoided.
    /// `of_program`: they stay until the process ends.
    pub(crate) fn open(machine: u16, names: &[(&str, SymbolKind)], of_program: bool) -> Result<Self, OpenError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        keep_crate();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut exported = Self { modules: Vec::new(), number };
        let first = if of_program { Audience::Anyone } else { Audience::Relocations };
        exported.modules.push(Module::open(machine, names, first, &spelling(number))?);
        if !of_program {
            exported.modules.push(Module::open(machine, names, Audience::Anyone, &[])?);
        }
        Ok(exported)
    }

    /// Gives the names their addresses, in the order in which they were given; those without one are not found.
    pub(crate) fn publish(&self, addresses: &[Option<u64>]) {
        self.modules.iter().for_each(|module| module.publish(addresses));
    }

    /// Keeps a value as long as this, and as shared libraries are bound to a name. What was kept last is dropped first,
    /// by the thread that closes the last of those, within the loader.
    pub(crate) fn keep(&self, kept: Box<dyn Any + Send>) {
        KEPT.lock().entry(self.number).or_default().push(kept);
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        self.modules.last().into_iter().for_each(Module::withdraw);
        for module in self.modules.iter().rev() {
            // SAFETY: each is closed once, here. No code belongs to them but finalisers of ours.
            unsafe { module.handle.close() };
        }
    }
}

impl Module {
    fn open(
        machine: u16,
        names: &[(&str, SymbolKind)],
        audience: Audience,
        finalisers: &[u64],
    ) -> Result<Self, OpenError> {
        let too_large = || OpenError::Loader("the names take more than 4 GiB".to_owned());
        let image = ExportImage::new(machine, names, audience, finalisers).ok_or_else(too_large)?;
        let ExportImage { bytes, symbols_at, places, filter } = image;
        let pieces = [(0, &bytes[..])].into_iter();
        let handle = open_image(c"slabjit-names", bytes.len() as u64, pieces, Reach::Global)?;
        let Some(base) = handle.base() else {
            // SAFETY: it is closed once, here.
            unsafe { handle.close() };
            return Err(OpenError::Loader("dlinfo does not know the module".to_owned()));
        };
        Ok(Self { handle, base, image: Layout { symbols_at, places, filter } })
    }

    fn publish(&self, addresses: &[Option<u64>]) {
        for (place, address) in self.image.places.iter().zip(addresses) {
            let Some(address) = address else { continue };
            let symbol = self.base + (self.image.symbols_at + u64::from(*place) * SYMBOL_SIZE) as usize;
            // SAFETY: both words are in the module's one segment, which is writable, and aligned. The loader only reads
            // there: a symbol without a section has no address.
            unsafe {
                AtomicU64::from_ptr((symbol + SYMBOL_VALUE as usize) as *mut u64).store(*address, Ordering::Relaxed);
                AtomicU16::from_ptr((symbol + SYMBOL_SECTION as usize) as *mut u16).store(DEFINED, Ordering::Release);
            }
        }
    }

    /// Hides all names. Who has found one already sees a whole symbol.
    fn withdraw(&self) {
        for at in self.image.filter.clone().step_by(size_of::<u64>()) {
            // SAFETY: as for `publish`; the module is open.
            unsafe { AtomicU64::from_ptr((self.base + at as usize) as *mut u64).store(0, Ordering::Relaxed) };
        }
    }
}

// ---- finalisers ----

type Kept = BTreeMap<u64, Vec<Box<dyn Any + Send>>>;

/// The values that are kept for libraries that are bound to modules, by the modules' numbers.
static KEPT: Mutex<Kept> = Mutex::new(BTreeMap::new());

static PROCESS_ENDS: AtomicBool = AtomicBool::new(false);

/// Lets finalisers keep everything from now on: the loader calls all of them when the process ends, and threads may
/// still run.
pub(crate) fn process_ends() {
    PROCESS_ENDS.store(true, Ordering::Relaxed);
}

thread_local! {
    // It has no destructor, and so lives to the thread's end.
    static SPELLED: Cell<u64> = const { Cell::new(0) };
}

/// Returns the finalisers of the module with a number. The loader calls them from the last to the first, one after the
/// other, and passes no argument: so they spell the number.
fn spelling(number: u64) -> Vec<u64> {
    let bits = (0..u64::BITS - number.leading_zeros()).map(|bit| number >> bit & 1 == 1);
    let digits = bits.map(|bit| if bit { one as *const () } else { zero as *const () });
    [unbound as *const ()].into_iter().chain(digits).map(|function| function as u64).collect()
}

extern "C" fn zero() {
    SPELLED.set(SPELLED.get() << 1);
}

extern "C" fn one() {
    SPELLED.set(SPELLED.get() << 1 | 1);
}

/// Lets go of what is kept for a module to which nobody is bound any more. The loader's lock is this thread's: values
/// are dropped with no lock of ours.
extern "C" fn unbound() {
    let number = SPELLED.take();
    let kept = KEPT.lock().remove(&number);
    if PROCESS_ENDS.load(Ordering::Relaxed) {
        mem::forget(kept);
        return;
    }
    let mut kept = kept.unwrap_or_default();
    while let Some(last) = kept.pop() {
        drop(last);
    }
}

/// Keeps the shared library that contains this crate, if it is in one, since the loader may call finalisers at any time
/// from now on.
fn keep_crate() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, Ordering::Relaxed) {
        mem::forget(process::library_at(unbound as *const ()));
    }
}
