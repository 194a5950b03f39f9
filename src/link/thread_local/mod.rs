//! Thread-local variables of linked objects.
//!
//! The dynamic loader makes the storage: objects that are linked together have a module of their own, opened before they are linked.
//! LLVM is not told. It puts the sections into the slab like any others: there they are what threads' blocks are copied from, and the
//! address of a variable in the slab stands for the variable in everything that looks names up. Where a relocation
//! wants something of a variable, [`find`] says which it is, and `reach` computes the value.
#![allow(unsafe_code)] // copies linked contents

mod descriptor;
mod turn;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) use descriptor::Descriptor;
pub(super) use turn::Turn;

use super::prepared::PreparedObject;
use crate::elf::{Section, TlsBlock, TlsImage};
use crate::gate::Mutex;
use crate::runtime::thread_local::{Module, OpenError, Place};
use crate::{Error, Result};

/// What code may need to know of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Variable {
    /// The loader's number of its module.
    pub(super) module: u64,
    /// Its offset in the module's block.
    pub(super) offset: u64,
    /// Its distance from every thread pointer, where that is fixed.
    pub(super) distance: Option<i64>,
}

impl Variable {
    fn moved(self, by: u64) -> Self {
        let distance = self.distance.map(|distance| distance.wrapping_add_unsigned(by));
        Self { offset: self.offset.wrapping_add(by), distance, ..self }
    }
}

/// First and last address, and a number of its own: sections without bytes may share an address.
type Key = (u64, u64, u64);

/// What stands for variables: addresses in slabs, and such as no memory has for variables of the process.
static STANDS_FOR: Mutex<BTreeMap<Key, Variable>> = Mutex::new(BTreeMap::new());

/// The variable that an address stands for. `block`: where what it belongs to begins, 0 if that is not known. (The end of one section may
/// be the beginning of another.)
pub(super) fn find(address: u64, block: u64) -> Option<Variable> {
    let all = STANDS_FOR.lock();
    let start = if block == 0 { address } else { block };
    let (key, variable) = all.range(..=(start, u64::MAX, u64::MAX)).next_back()?;
    // A variable without bytes may be at the end.
    ((block == 0 || block == key.0) && address <= key.1).then(|| variable.moved(address - key.0))
}

/// A range of addresses that stands for variables, until it is dropped.
#[derive(Debug)]
pub(super) struct Stand {
    key: Key,
}

impl Stand {
    fn new(first: u64, bytes: u64, variable: Variable) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let key = (first, first.saturating_add(bytes), NEXT.fetch_add(1, Ordering::Relaxed));
        STANDS_FOR.lock().insert(key, variable);
        Self { key }
    }

    /// For a variable of the process: an address that nothing can have.
    pub(super) fn of_process(variable: Variable) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
        // Not so close that one's end is another's start.
        Self::new(NEXT.fetch_add(16, Ordering::Relaxed), 0, variable)
    }

    pub(super) fn address(&self) -> u64 {
        self.key.0
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        STANDS_FOR.lock().remove(&self.key);
    }
}

/// Storage for the variables of objects that are linked together: one module of the dynamic loader, as they would be of one
/// shared object. (Code finds several variables of a module by one call: the local-dynamic model.)
#[derive(Debug)]
pub(super) struct Storage {
    /// `None` after [`settle`](Self::settle) has failed.
    module: Mutex<Option<Module>>,
    /// The loader's number of the module.
    id: u64,
    /// The block's distance from every thread pointer, where that is fixed.
    distance: Option<i64>,
    /// Where the loader has given threads their copies before the contents are known.
    early: Option<Early>,
    /// Numbers of the objects in their library, ascending, and where their sections are in the block: index and offset.
    objects: Vec<(u32, Vec<(u32, u64)>)>,
    /// What stands for the start of the block.
    base: Stand,
}

/// A block at a fixed distance whose variables are initialised with addresses. Threads that are there have theirs as soon as the
/// module is open, which it must be before code that holds the distance is linked.
#[derive(Debug)]
struct Early {
    /// An object that needs the distance, for errors.
    object: String,
    image: TlsImage,
    /// What threads are to have: as far as objects are linked, linked.
    contents: Mutex<Vec<u8>>,
}

impl Storage {
    /// Has the loader make storage. `fixed`: the first object that needs it at one distance from every thread pointer.
    ///
    /// No lock of ours may be held, nor a library's claim where that can be avoided.
    ///
    /// # Errors
    /// [`Error::StaticThreadLocal`], [`Error::ThreadLocalStorage`].
    pub(super) fn open(objects: &[(u32, Arc<PreparedObject>)], fixed: Option<&PreparedObject>) -> Result<Self> {
        let first = || objects.first().map_or_else(String::new, |(_, object)| object.name.to_string());
        let mut all = Vec::new();
        for (number, object) in objects {
            for &i in object.index.thread_local.iter().flat_map(|thread_local| &thread_local.sections) {
                all.extend(object.index.sections.get(i as usize).map(|section| (*number, i, object, *section)));
            }
        }
        let sections: Vec<Section> = all.iter().map(|(.., section)| *section).collect();
        let block = TlsBlock::new(&sections).ok_or_else(|| Error::ThreadLocalStorage {
            object: first(),
            message: "the variables take more memory than there can be".to_owned(),
            source: None,
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
            (OpenError::Loader(message), Some(object)) => Error::StaticThreadLocal {
                object: object.name.to_string(),
                bytes: block.size,
                alignment: block.alignment,
                message,
            },
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
        let base = Stand::of_process(Variable { module: id, offset: 0, distance });
        Ok(Self { module: Mutex::new(Some(module)), id, distance, early, objects: placed, base })
    }

    /// After all objects that it is for were linked and before any code of theirs runs: has the loader give all threads the linked
    /// contents, where it has given them others. That takes a new module in place of the old. False if it came to lie elsewhere,
    /// because somebody else had the loader open something meanwhile: then the code that was linked is of no use.
    ///
    /// It takes the loader's lock, under the library's claim; nothing else gets there.
    ///
    /// # Errors
    /// [`Error::ThreadLocalStorage`].
    pub(super) fn settle(&self) -> Result<bool> {
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

    /// Whether it is for exactly these objects.
    pub(super) fn is_for(&self, numbers: impl Iterator<Item = u32>) -> bool {
        self.objects.iter().map(|(number, _)| *number).eq(numbers)
    }

    /// Whether it is at one distance from every thread pointer.
    pub(super) fn is_fixed(&self) -> bool {
        self.distance.is_some()
    }

    /// The loader's number of the module.
    pub(super) fn module(&self) -> u64 {
        self.id
    }

    /// What stands for the start of the block.
    pub(super) fn base(&self) -> u64 {
        self.base.address()
    }

    /// Changes what threads are given, at once or by [`settle`](Self::settle).
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
    Error::ThreadLocalStorage { object, message, source }
}

/// A linked object's variables.
#[derive(Debug)]
pub(super) struct Variables {
    // Dropped in this order.
    _stands: Vec<Stand>,
    _storage: Arc<Storage>,
}

impl Variables {
    /// Takes note of where the thread-local sections of an object are: index and address of each, sorted.
    pub(super) fn new(object: &PreparedObject, number: u32, storage: &Arc<Storage>, placed: &[(u32, u64)]) -> Self {
        let start = Variable { module: storage.id, offset: 0, distance: storage.distance };
        let stands = storage.sections(number).iter().filter_map(|(section, offset)| {
            let address = &address_of(placed, *section)?;
            let bytes = object.index.sections.get(*section as usize)?.size;
            Some(Stand::new(*address, bytes, start.moved(*offset)))
        });
        Self { _stands: stands.collect(), _storage: Arc::clone(storage) }
    }
}

/// Where a section is, if it was linked.
fn address_of(placed: &[(u32, u64)], section: u32) -> Option<u64> {
    let found = placed.binary_search_by_key(&section, |(section, _)| *section).ok()?;
    placed.get(found).map(|(_, address)| *address)
}

/// Copies an object's linked contents to where the loader copies threads' blocks from. Addresses of sections are as for
/// [`Variables::new`].
///
/// # Safety
/// The sections are there and linked, and nothing of the objects that the storage is for has run.
pub(super) unsafe fn copy_contents(object: &PreparedObject, number: u32, storage: &Storage, placed: &[(u32, u64)]) {
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

/// Whether its variables are initialised with addresses.
fn is_relocated(object: &PreparedObject) -> bool {
    object.index.thread_local.as_ref().is_some_and(|thread_local| thread_local.relocated)
}

/// Writes what fits.
fn put(block: &mut [u8], offset: u64, bytes: &[u8]) {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    if let Some(place) = start.checked_add(bytes.len()).and_then(|end| block.get_mut(start..end)) {
        place.copy_from_slice(bytes);
    }
}

/// A variable of the process that this thread has at an address. `fixed`: its distance from the thread pointer is wanted, too.
///
/// # Errors
/// There can be no second thread, which that takes.
pub(super) fn of_process(address: u64, fixed: bool) -> io::Result<Option<Variable>> {
    let Some(Place { module, offset }) = Place::of(address) else { return Ok(None) };
    let distance = if fixed { Place { module, offset }.distance()? } else { None };
    Ok(Some(Variable { module, offset, distance }))
}

/// Whether this thread has a variable of the process at an address; see [`Place::is_at`].
pub(super) fn is_variable(address: u64) -> bool {
    Place::is_at(address)
}
