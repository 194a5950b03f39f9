//! The order in which names are looked for.

use hashbrown::HashMap;

use super::imported::By;
use crate::elf::Whereabouts;
use crate::hints;
use crate::live::lifetime::atexit::PerLibrarySymbol;
use crate::live::lifetime::loaded_library::LoadedLibrary;
use crate::runtime::{SearchOrder, helpers, process};

/// The symbols given to a library, and whether it sees the process.
#[derive(Default)]
pub(crate) struct Elsewhere {
    pub(crate) given: HashMap<Box<str>, u64>,
    pub(crate) isolated: bool,
}

/// The result of looking for a name.
pub(crate) enum Walked<O, L> {
    /// The library's own objects define it.
    Own(O),
    /// A linked library has it.
    Linked(L),
    /// Each library has one of its own.
    PerLibrary(PerLibrarySymbol),
    /// The host: [`look_up`] finds it, which may have been asked beforehand.
    Host,
}

/// Looks for a name: in the library's own objects, in linked libraries, among the symbols that each library has of
/// its own unless it was given another, and then in the host.
pub(crate) fn walk<O, L>(
    name: &str,
    elsewhere: Option<&Elsewhere>,
    own: impl FnOnce() -> Option<O>,
    linked: impl FnOnce() -> Option<L>,
) -> Walked<O, L> {
    if let Some(own) = own() {
        return Walked::Own(own);
    }
    if let Some(linked) = linked() {
        return Walked::Linked(linked);
    }
    let given = elsewhere.is_some_and(|elsewhere| elsewhere.given.contains_key(name));
    match PerLibrarySymbol::named(name).filter(|_| !given) {
        Some(own) => Walked::PerLibrary(own),
        None => Walked::Host,
    }
}

/// Looks for a name in shared libraries, given symbols and the process, and among the helpers that compilers expect in
/// any case.
pub(crate) fn look_up(name: &str, elsewhere: Option<&Elsewhere>, code: &LoadedLibrary) -> Option<(u64, By)> {
    let shared = code.shared();
    let shared = |order: SearchOrder| {
        let mut libraries = (0..).zip(shared.iter()).filter(|(_, library)| library.order() == order);
        libraries.find_map(|(at, library)| Some((library.symbol(name)?, By::Shared(at))))
    };
    let given = || Some((*elsewhere?.given.get(name)?, By::Given));
    // The process's bounds are those of another file.
    if hints::is_bound(name) {
        return given();
    }
    let isolated = elsewhere.is_some_and(|elsewhere| elsewhere.isolated);
    let process = || Some((process::symbol(name)?, By::Process));
    let helper = || Some((helpers::of_libc(name)?, By::Here));
    let process = || if isolated { None } else { process().or_else(helper) };
    shared(SearchOrder::First)
        .or_else(given)
        .or_else(|| shared(SearchOrder::AfterGiven))
        .or_else(process)
        .or_else(|| shared(SearchOrder::Last))
        .or_else(|| Some((helpers::of_compilers(name)?, By::Here)))
}

/// Returns the place of a name that each library has of its own, or the process has.
pub(crate) fn in_process(name: &str) -> Whereabouts {
    match PerLibrarySymbol::named(name) {
        Some(own) => own.whereabouts(),
        None if hints::is_bound(name) => Whereabouts::Unknown,
        None => process::symbol(name).map_or(Whereabouts::Unknown, Whereabouts::Address),
    }
}
