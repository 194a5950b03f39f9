//! Thread-local variables of linked objects.
//!
//! The dynamic loader makes the storage: objects that are linked together have a module of their own, opened before
//! they are linked. LLVM is not told. It puts the sections into the slab like any others: there they are the image
//! that threads' blocks are copied from, and the address of a variable in the slab stands for the variable in all
//! lookups of names. For a relocation against a variable, [`find`] returns the variable, and `reach` computes the
//! value.
#![allow(unsafe_code, reason = "copies linked contents")]

mod descriptor;
mod loader_turn;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use descriptor::Descriptor;
pub(crate) use loader_turn::Turn;

use crate::elf::{Section, TlsBlock, TlsImage};
use crate::fork_guard::Mutex;
use crate::live::resolve::prepared::PreparedObject;
use crate::runtime::OpenError;
use crate::runtime::thread_local::{Module, Place};
use crate::{Error, LinkError, Result};

/// A thread-local variable, as code refers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Variable {
    /// The loader's number of its module.
    pub(crate) module: u64,
    /// Its offset in the module's block.
    pub(crate) offset: u64,
    /// Its distance from every thread pointer, where that is fixed.
    pub(crate) distance: Option<i64>,
}

impl Variable {
    pub(crate) fn moved(self, by: u64) -> Self {
        let distance = self.distance.map(|distance| distance.wrapping_add_unsigned(by));
        Self { offset: self.offset.wrapping_add(by), distance, ..self }
    }
}

/// The first and last address, and a number of its own: sections without bytes may share an address.
type Key = (u64, u64, u64);

/// Placeholders of variables: addresses in slabs, and addresses without memory for variables of the process.
static STANDS_FOR: Mutex<BTreeMap<Key, Variable>> = Mutex::new(BTreeMap::new());

/// Returns the variable that an address stands for. `block`: the start of its section, 0 if that is not known. (The
/// end of one section may be the beginning of another.)
pub(crate) fn find(address: u64, block: u64) -> Option<Variable> {
    let all = STANDS_FOR.lock();
    let start = if block == 0 { address } else { block };
    let (key, variable) = all.range(..=(start, u64::MAX, u64::MAX)).next_back()?;
    // A variable without bytes may be at the end.
    ((block == 0 || block == key.0) && address <= key.1).then(|| variable.moved(address - key.0))
}

/// A range of addresses that stands for variables, until it is dropped.
#[derive(Debug)]
pub(crate) struct TlsPlaceholder {
    key: Key,
}

impl TlsPlaceholder {
    fn new(first: u64, bytes: u64, variable: Variable) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let key = (first, first.saturating_add(bytes), NEXT.fetch_add(1, Ordering::Relaxed));
        STANDS_FOR.lock().insert(key, variable);
        Self { key }
    }

    /// Returns a placeholder of a variable of the process: an address that nothing can have.
    pub(crate) fn of_process(variable: Variable) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
        // The gap keeps one's end from being another's start.
        Self::new(NEXT.fetch_add(16, Ordering::Relaxed), 0, variable)
    }

    pub(crate) fn address(&self) -> u64 {
        self.key.0
    }
}

impl Drop for TlsPlaceholder {
    fn drop(&mut self) {
        STANDS_FOR.lock().remove(&self.key);
    }
}

/// Storage for the variables of objects that are linked together: one module of the dynamic loader, as they would be of
/// one shared object. (Code finds several variables of a module by one call: the local-dynamic model.)
#[derive(Debug)]
pub(crate) struct Storage {
    /// `None` after [`settle`](Self::settle) has failed.
    module: Mutex<Option<Module>>,
    /// The loader's number of the module.
    id: u64,
    /// The block's distance from every thread pointer, where that is fixed.
    distance: Option<i64>,
    /// Contents of a block of which the loader has given threads copies before the contents are known.
    early: Option<Early>,
    /// Numbers of the objects in their library, ascending, and their sections in the block: index and offset.
    objects: Vec<(u32, Vec<(u32, u64)>)>,
    /// The placeholder of the start of the block.
    base: TlsPlaceholder,
}

/// A block at a fixed distance whose variables are initialised with addresses. Threads that are there have theirs as
/// soon as the module is open, which it must be before code that holds the distance is linked.
#[derive(Debug)]
struct Early {
    /// An object that needs the distance, for errors.
    object: String,
    image: TlsImage,
    /// The initial contents of threads' blocks: relocated as far as objects are linked.
    contents: Mutex<Vec<u8>>,
}

impl Storage {
    /// Makes storage by the loader. `fixed`: the first object that needs it at one distance from every thread pointer.
    ///
    /// No lock of ours may be held, nor a library's claim where that can be avoided.
    ///
    /// # Errors
    /// [`LinkError::StaticThreadLocal`](crate::LinkError::StaticThreadLocal),
    /// [`LinkError::ThreadLocalStorage`](crate::LinkError::ThreadLocalStorage).
    pub(crate) fn open(objects: &[(u32, Arc<PreparedObject>)], fixed: Option<&PreparedObject>) -> Result<Self> {
        let first = || objects.first().map_or_else(String::new, |(_, object)| object.name.to_string());
        let mut all = Vec::new();
        for (number, object) in objects {
            for &i in object.index.thread_local.iter().flat_map(|thread_local| &thread_local.sections) {
                all.extend(object.index.sections.get(i as usize).map(|section| (*number, i, object, *section)));
            }
        }
        let sections: Vec<Section> = all.iter().map(|(.., section)| *section).collect();
        let block = TlsBlock::new(&sections).ok_or_else(|| {
            Error::Link(LinkError::ThreadLocalStorage {
                object: first(),
                message: "the variables take more memory than there can be".to_owned(),
                source: None,
            })
        })?;
        let machine = objects.first().map_or(0, |(_, object)| object.index.machine);
        let image = TlsImage::new(machine, &block, fixed.is_some());
        let contents = || {
            all.iter().zip(&block.offsets).filter_map(|((.., object, section), offset)| {
                let start = usize::try_from(section.offset).ok().filter(|_| section.has_contents)?;
                let end = start.checked_add(usize::try_from(section.size).ok()?)?;
                Some((*offset, object.bytes.get(start..end)?))
            })
        };
        let module = Module::open(&image, contents()).map_err(|error| match (error, fixed) {
            (OpenError::Loader(message), Some(object)) => Error::Link(LinkError::StaticThreadLocal {
                object: object.name.to_string(),
                bytes: block.size,
                alignment: block.alignment,
                message,
            }),
            (error, _) => refused(first(), error),
        })?;
        let mut placed: Vec<(u32, Vec<(u32, u64)>)> = Vec::with_capacity(objects.len());
        for ((number, section, ..), offset) in all.iter().zip(&block.offsets) {
            match placed.last_mut() {
                Some((last, sections)) if last == number => sections.push((*section, *offset)),
                _ => placed.push((*number, vec![(*section, *offset)])),
            }
        }
        let (id, distance) = (module.id, module.distance);
        let early = fixed.filter(|_| objects.iter().any(|(_, object)| is_relocated(object))).map(|fixed| {
            let mut bytes = vec![0; block.content_size as usize];
            contents().for_each(|(offset, contents)| put(&mut bytes, offset, contents));
            Early { object: fixed.name.to_string(), image, contents: Mutex::new(bytes) }
        });
        let base = TlsPlaceholder::of_process(Variable { module: id, offset: 0, distance });
        Ok(Self { module: Mutex::new(Some(module)), id, distance, early, objects: placed, base })
    }

    /// Gives all threads the linked contents, where the loader has given them others, after all its objects were linked
    /// and before any code of theirs runs. That takes a new module in place of the old. False if it came to lie
    /// elsewhere, because another thread had the loader open a module meanwhile: then the linked code is of no use.
    ///
    /// It takes the loader's lock, under the library's claim; nothing else gets there.
    ///
    /// # Errors
    /// [`LinkError::ThreadLocalStorage`](crate::LinkError::ThreadLocalStorage).
    pub(crate) fn settle(&self) -> Result<bool> {
        let Some(early) = &self.early else { return Ok(true) };
        let contents = early.contents.lock().clone();
        let old = self.module.lock().take();
        drop(old);
        let new = Module::open(&early.image, [(0, &contents[..])].into_iter())
            .map_err(|error| refused(early.object.clone(), error))?;
        let same = (new.id, new.distance) == (self.id, self.distance);
        *self.module.lock() = Some(new);
        Ok(same)
    }

    /// Returns whether it is for exactly these objects.
    pub(crate) fn is_for(&self, numbers: impl Iterator<Item = u32>) -> bool {
        self.objects.iter().map(|(number, _)| *number).eq(numbers)
    }

    /// Returns whether it is at one distance from every thread pointer.
    pub(crate) fn is_fixed(&self) -> bool {
        self.distance.is_some()
    }

    /// Returns the loader's number of the module.
    pub(crate) fn module(&self) -> u64 {
        self.id
    }

    /// Returns the start of the block.
    pub(crate) fn start(&self) -> Variable {
        Variable { module: self.id, offset: 0, distance: self.distance }
    }

    /// Returns the placeholder of the start of the block.
    pub(crate) fn base(&self) -> u64 {
        self.base.address()
    }

    /// Changes the initial contents of threads' blocks, at once or by [`settle`](Self::settle).
    ///
    /// # Safety
    /// No thread has a block yet if the block is not at a fixed distance, and none gets one meanwhile.
    unsafe fn write(&self, offset: u64, bytes: &[u8]) {
        match (&self.early, &*self.module.lock()) {
            (Some(early), _) => put(&mut early.contents.lock(), offset, bytes),
            // SAFETY: by the caller; objects without addresses in a block at a fixed distance do not get here.
            (None, Some(module)) => unsafe { module.write(offset, bytes) },
            (None, None) => {}
        }
    }

    fn sections(&self, number: u32) -> &[(u32, u64)] {
        let found = self.objects.iter().find(|(object, _)| *object == number);
        found.map_or(&[], |(_, sections)| sections)
    }
}

fn refused(object: String, error: OpenError) -> Error {
    let (message, source) = error.into_parts();
    Error::Link(LinkError::ThreadLocalStorage { object, message, source })
}

/// A linked object's variables.
#[derive(Debug)]
pub(crate) struct Variables {
    // The fields are dropped in this order.
    _stands: Vec<TlsPlaceholder>,
    _storage: Arc<Storage>,
}

impl Variables {
    /// Records the places of an object's thread-local sections: index and address of each, sorted. Nothing is read
    /// there.
    pub(crate) fn new(object: &PreparedObject, number: u32, storage: &Arc<Storage>, placed: &[(u32, u64)]) -> Self {
        let start = storage.start();
        let stands = storage.sections(number).iter().filter_map(|(section, offset)| {
            let address = &address_of(placed, *section)?;
            let bytes = object.index.sections.get(*section as usize)?.size;
            Some(TlsPlaceholder::new(*address, bytes, start.moved(*offset)))
        });
        Self { _stands: stands.collect(), _storage: Arc::clone(storage) }
    }
}

/// Returns the address of a section, if it was linked.
fn address_of(placed: &[(u32, u64)], section: u32) -> Option<u64> {
    let found = placed.binary_search_by_key(&section, |(section, _)| *section).ok()?;
    placed.get(found).map(|(_, address)| *address)
}

/// Copies an object's linked contents to the image of the loader's module. Addresses of sections are as for
/// [`Variables::new`].
///
/// # Safety
/// The sections are there and linked, and nothing of the objects that the storage is for has run.
pub(crate) unsafe fn copy_contents(object: &PreparedObject, number: u32, storage: &Storage, placed: &[(u32, u64)]) {
    let index = &object.index;
    if !is_relocated(object) {
        return;
    }
    for (section, offset) in storage.sections(number) {
        let Some((address, section)) = address_of(placed, *section).zip(index.sections.get(*section as usize)) else {
            continue;
        };
        if section.has_contents {
            // SAFETY: by the caller the section is there, with all its bytes; and nobody has a block of the module yet.
            unsafe {
                let linked = std::slice::from_raw_parts(address as *const u8, section.size as usize);
                storage.write(*offset, linked);
            }
        }
    }
}

/// Returns whether its variables are initialised with addresses.
fn is_relocated(object: &PreparedObject) -> bool {
    object.index.thread_local.as_ref().is_some_and(|thread_local| thread_local.relocated)
}

/// Writes the bytes that fit.
fn put(block: &mut [u8], offset: u64, bytes: &[u8]) {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    if let Some(place) = start.checked_add(bytes.len()).and_then(|end| block.get_mut(start..end)) {
        place.copy_from_slice(bytes);
    }
}

/// Returns the variable of the process that this thread has at an address. `fixed`: its distance from the thread
/// pointer is wanted, too.
///
/// # Errors
/// There can be no second thread, which that takes.
pub(crate) fn of_process(address: u64, fixed: bool) -> io::Result<Option<Variable>> {
    let Some(place) = Place::of(address) else { return Ok(None) };
    // SAFETY: the loader has just said so of a variable that this thread has.
    let distance = if fixed { unsafe { place.distance()? } } else { None };
    Ok(Some(Variable { module: place.module, offset: place.offset, distance }))
}

/// Returns whether this thread has a variable of the process at an address; see [`Place::is_at`].
pub(crate) fn is_variable(address: u64) -> bool {
    Place::is_at(address)
}
