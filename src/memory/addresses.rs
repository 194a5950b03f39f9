//! The addresses of an arena, and the dynamic loader's module for them: with it, `dladdr` and whoever else asks the
//! loader know the arena and its functions.
//!
//! The loader chooses a module's addresses, and takes those that it is asked for if they are free. So an arena is
//! reserved first, where it is to be, and then given up for the module. Whoever takes the addresses in between gets
//! them, and there is another attempt.
#![allow(unsafe_code, reason = "closes modules")]

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::Duration;

use super::module_names::ModuleNames;
use super::os::{self, Mapping};
use crate::fork_guard::Mutex;
use crate::functions::{SortedFunctions, SymbolRange, SymbolTables};
use crate::runtime::{ArenaModule, NotOpened, may_open};

/// How often the loader is asked for the same addresses, and how often for others.
const ATTEMPTS: usize = 3;
/// How long an engine that begins waits for other threads that are in the loader: one may be in an initialiser that
/// waits for this thread.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long an engine that ends does.
const PATIENCE_AT_END: Duration = Duration::from_millis(100);

/// The addresses of an arena: a reservation of its own, or what a module of the dynamic loader has there. Dropping it
/// unmaps them.
#[derive(Debug)]
pub(super) struct Addresses {
    mapping: Mapping,
    /// The owner of the mapping.
    module: Option<Module>,
}

/// An arena's module, which owns the arena's addresses, and the names in it.
#[derive(Debug)]
struct Module {
    module: ArenaModule,
    names: Mutex<ModuleNames>,
}

/// Modules that could not be closed when their arenas ended.
static LATER: Mutex<Vec<Module>> = Mutex::new(Vec::new());

impl Addresses {
    /// Takes addresses that `find` reserves, with a module for them if possible; a page of them may be the module's,
    /// but they stay as large as `least`. It takes the dynamic loader's lock: no lock of ours may be held.
    pub(super) fn open<E>(least: usize, find: impl Fn() -> Result<Mapping, E>) -> Result<Self, E> {
        for _ in 0..ATTEMPTS {
            if let Some(addresses) = Self::attempt(find()?, least) {
                return Ok(addresses);
            }
        }
        find().map(Self::without_module)
    }

    /// Keeps a reservation, of which the dynamic loader does not know.
    pub(super) fn without_module(mapping: Mapping) -> Self {
        Self { mapping, module: None }
    }

    pub(super) fn known_to_loader(&self) -> bool {
        self.module.is_some()
    }

    /// Returns `None` if somebody else has taken the addresses meanwhile.
    fn attempt(arena: Mapping, least: usize) -> Option<Self> {
        let without = |mapping| Some(Self::without_module(mapping));
        if !ArenaModule::is_possible() || !may_open(PATIENCE) {
            return without(arena);
        }
        close_those_left();
        let page = os::page_size();
        let Range { start, end } = arena.range();
        // The headers come before the arena, or else take its first page.
        let (mut front, headers) = match start.checked_sub(page).map(|at| Mapping::reserve_at(at, page)) {
            Some(Ok(front)) => (Some(front), start - page..start),
            _ if end - start > least => (None, start..start + page),
            _ => return without(arena),
        };
        // Not before, as the kernel likes to place them there.
        let Ok(names) = ModuleNames::reserve(arena.range().len()) else { return without(arena) };
        let mut reserved = arena;
        for _ in 0..ATTEMPTS {
            // What is not given up is unmapped by its drop.
            if front.take().is_some_and(|front| front.give_up().is_err()) {
                break;
            }
            if let Err(arena) = reserved.give_up() {
                return without(arena);
            }
            let again = match ArenaModule::open(headers.clone(), end, names.tables().0) {
                // SAFETY: nobody knows of the module's addresses yet.
                Ok(module) => match unsafe { Mapping::over(&(headers.end..end)) } {
                    Ok(mapping) => {
                        let module = Some(Module { module, names: Mutex::new(names) });
                        return Some(Self { mapping, module });
                    }
                    Err(_) => {
                        // SAFETY: there was nothing in the arena.
                        unsafe { module.close() };
                        false
                    }
                },
                Err(NotOpened::Elsewhere) => true,
                Err(NotOpened::Refused) => false,
            };
            match Mapping::reserve_at(start, end - start) {
                Ok(again) => reserved = again,
                Err(_) => return None,
            }
            let is_in_front = headers.end == start;
            if !again {
                break;
            }
            if is_in_front {
                let Ok(before) = Mapping::reserve_at(headers.start, page) else { break };
                front = Some(before);
            }
        }
        without(reserved)
    }

    /// Returns the tables of symbols and names that the dynamic loader reads, and their memory.
    pub(super) fn tables(&self) -> Option<(SymbolTables, Arc<Mapping>)> {
        Some(self.module.as_ref()?.names.lock().tables())
    }

    /// Tells the dynamic loader of those functions that are in a range of the arena. The symbols stay until they are
    /// [removed](Self::unlist).
    pub(super) fn list(&self, functions: &SortedFunctions<'_>, range: &Range<usize>) -> Option<SymbolRange> {
        let module = self.module.as_ref().filter(|_| self.mapping.range().contains(&range.start))?;
        let functions = functions.within(range);
        if functions.len() == 0 {
            return None;
        }
        module.names.lock().add(&module.module, functions)
    }

    /// Keeps functions that were [listed](Self::list) from the loader.
    pub(super) fn hide(&self, listed: impl Iterator<Item = SymbolRange>) {
        if let Some(module) = &self.module {
            let names = module.names.lock();
            listed.for_each(|listed| names.hide(listed));
        }
    }

    /// Removes functions that were [listed](Self::list), of which nobody knows any more.
    pub(super) fn unlist(&self, listed: SymbolRange) {
        if let Some(module) = &self.module {
            module.names.lock().remove(&module.module, listed);
        }
    }
}

impl Deref for Addresses {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        &self.mapping
    }
}

impl Drop for Addresses {
    /// Closes the module, and so unmaps the arena: now, or when another arena begins or ends.
    fn drop(&mut self) {
        let Some(module) = self.module.take() else { return };
        self.mapping.disown();
        if may_open(PATIENCE_AT_END) {
            // SAFETY: nobody uses an arena that is dropped.
            unsafe { module.close() };
            close_those_left();
        } else {
            LATER.lock().push(module);
        }
    }
}

impl Module {
    /// # Safety
    /// Nobody uses the arena.
    unsafe fn close(self) {
        let Self { module, names } = self;
        // SAFETY: by the caller.
        unsafe { module.close() };
        // Now nobody reads them.
        drop(names);
    }
}

fn close_those_left() {
    // A loop condition would hold the lock during the body.
    loop {
        let last = LATER.lock().pop();
        let Some(last) = last else { return };
        // SAFETY: by whoever ended it.
        unsafe { last.close() };
    }
}
