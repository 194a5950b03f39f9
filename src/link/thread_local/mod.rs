//! Thread-local variables of linked objects.
//!
//! The dynamic loader makes the storage: each object with such variables has a module of its own, opened before the object is linked.
//! LLVM is not told. It puts the sections into the slab like any others: there they are what threads' blocks are copied from, and the
//! address of a variable in the slab stands for the variable in everything that looks names up. Where a relocation
//! wants something of a variable, [`find`] says which it is, and `reach` computes the value.
#![allow(unsafe_code)] // copies linked contents

mod descriptor;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

pub(super) use descriptor::Descriptor;

use super::object::PreparedObject;
use crate::elf::TlsImage;
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
static STANDS_FOR: RwLock<BTreeMap<Key, Variable>> = RwLock::new(BTreeMap::new());

/// The variable that an address stands for.
pub(super) fn find(address: u64) -> Option<Variable> {
    let all = STANDS_FOR.read().unwrap_or_else(PoisonError::into_inner);
    let (key, variable) = all.range(..=(address, u64::MAX, u64::MAX)).next_back()?;
    // A variable without bytes may be at the end.
    (address <= key.1).then(|| variable.moved(address - key.0))
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
        STANDS_FOR.write().unwrap_or_else(PoisonError::into_inner).insert(key, variable);
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
        STANDS_FOR.write().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// A linked object's variables.
#[derive(Debug)]
pub(super) struct Storage {
    // Dropped in this order.
    _stands: Vec<Stand>,
    _module: Arc<Module>,
}

impl Storage {
    /// Takes note of where the object's thread-local sections are: index and address of each.
    pub(super) fn new(object: &PreparedObject, module: &Arc<Module>, placed: &[(u32, u64)]) -> Self {
        let index = &object.index;
        let block = index.thread_local.iter().flat_map(|block| &block.sections);
        let stands = block.filter_map(|(section, offset)| {
            let (_, address) = placed.iter().find(|(placed, _)| placed == section)?;
            let start = Variable { module: module.id, offset: 0, distance: module.distance };
            let bytes = index.sections.get(*section as usize)?.size;
            Some(Stand::new(*address, bytes, start.moved(*offset)))
        });
        Self { _stands: stands.collect(), _module: Arc::clone(module) }
    }
}

/// Has the loader make storage for an object's variables; `fixed`: at one distance from every thread pointer. `None` if it has none.
///
/// # Errors
/// [`Error::StaticThreadLocal`], [`Error::ThreadLocalStorage`], [`Error::ThreadLocal`].
pub(super) fn open(object: &PreparedObject, fixed: bool) -> Result<Option<Arc<Module>>> {
    let index = &object.index;
    let Some(block) = index.thread_local.as_ref().filter(|block| !block.sections.is_empty()) else { return Ok(None) };
    let object_name = || object.name.to_string();
    if fixed && block.relocated {
        let what = "its variables are initialised with addresses, which are not known when threads that are there already \
                    get their copies, but code needs them at a fixed distance from the thread pointer \
                    (initial-exec, local-exec); compile with -fPIC -ftls-model=global-dynamic";
        return Err(Error::ThreadLocal { object: object_name(), what: what.to_owned() });
    }
    let image = TlsImage::new(index.machine, block, fixed);
    let contents = block.sections.iter().filter_map(|(section, offset)| {
        let section = index.sections.get(*section as usize).filter(|section| section.has_contents)?;
        let start = usize::try_from(section.offset).ok()?;
        let end = start.checked_add(usize::try_from(section.size).ok()?)?;
        Some((*offset, object.bytes.get(start..end)?))
    });
    match Module::open(&image, contents) {
        Ok(module) => Ok(Some(Arc::new(module))),
        Err(OpenError::Loader(message)) if fixed => Err(Error::StaticThreadLocal {
            object: object_name(),
            bytes: block.size,
            alignment: block.alignment,
            message,
        }),
        Err(error) => Err(Error::ThreadLocalStorage { object: object_name(), message: error.into() }),
    }
}

/// Copies an object's linked contents to where the loader copies threads' blocks from. Addresses of sections are as for
/// [`Storage::new`].
///
/// # Safety
/// The sections are there and linked, nothing of the object has run, and nobody else was given the module.
pub(super) unsafe fn copy_contents(object: &PreparedObject, module: &Module, placed: &[(u32, u64)]) {
    let index = &object.index;
    let Some(block) = index.thread_local.as_ref().filter(|block| block.relocated) else { return };
    for (section, offset) in &block.sections {
        let address = placed.iter().find(|(placed, _)| placed == section).map(|(_, address)| *address);
        let Some((address, section)) = address.zip(index.sections.get(*section as usize)) else { continue };
        if section.has_contents {
            // SAFETY: by the caller the section is there, with all its bytes; and nobody has a block of the module yet.
            unsafe {
                let linked = std::slice::from_raw_parts(address as *const u8, section.size as usize);
                module.write(*offset, linked);
            }
        }
    }
}

/// A variable of the process that this thread has at an address. `fixed`: its distance from the thread pointer is wanted, too.
pub(super) fn of_process(address: u64, fixed: bool) -> Option<Variable> {
    let Place { module, offset } = Place::of(address)?;
    let distance = if fixed { Place { module, offset }.distance().ok().flatten() } else { None };
    Some(Variable { module, offset, distance })
}
