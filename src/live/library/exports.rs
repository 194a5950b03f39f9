//! The names that a library exports to the process: to `dlsym`, and to shared libraries that are opened later.
//!
//! Objects that are linked together share modules of the dynamic loader. These are opened before the objects are
//! linked, without the library's claim: a thread with the loader's lock may wait for the library. Names get their
//! addresses before the objects' initialisers run.

use std::sync::Arc;

use super::Library;
use super::state::State;
use crate::elf::SymbolKind;
use crate::fork_guard::Mutex;
use crate::live::lifetime::exporting;
use crate::live::lifetime::loaded_library::CodeRef;
use crate::live::linked::image::Image;
use crate::live::resolve::decide::Host;
use crate::live::resolve::symbol::Symbol;
use crate::live::resolve::to_export::{NamesToExport, ToExport};
use crate::runtime::{Exported, OpenError};
use crate::{Error, LinkError, Result};

/// The exports of one library.
#[derive(Debug)]
pub(crate) struct Exports {
    /// Whether it is the process's program: it stays, and may be without exports.
    of_program: bool,
    batches: Mutex<Vec<Batch>>,
}

/// The names of objects that were linked together.
#[derive(Debug)]
struct Batch {
    objects: Vec<u32>,
    exported: Exported,
}

impl Exports {
    pub(crate) fn new(of_program: bool) -> Self {
        Self { of_program, batches: Mutex::default() }
    }

    fn take(&self, is: impl Fn(&Batch) -> bool) -> Vec<Exported> {
        self.batches.lock().extract_if(.., |batch| is(batch)).map(|batch| batch.exported).collect()
    }
}

impl Library {
    fn exports(&self) -> Option<&Exports> {
        self.scope()?.exports.as_ref()
    }

    /// Returns whether there are modules for the names of the objects that wait, or are not to be.
    pub(super) fn can_export(&self, state: &State, host: &Host) -> bool {
        let numbers = state.pending().iter().map(|(number, _)| number);
        self.exports().is_none() || host.to_export.as_ref().is_some_and(|names| numbers.eq(&names.objects))
    }

    /// Opens modules for the names of the objects that wait. No lock is held meanwhile.
    ///
    /// # Errors
    /// [`LinkError::ExportRefused`](crate::LinkError::ExportRefused).
    pub(super) fn open_exports(&self, host: &mut Host) -> Result<()> {
        let Some(exports) = self.exports() else { return Ok(()) };
        let (objects, names, machine) = {
            let state = self.state();
            if self.can_export(&state, host) {
                return Ok(());
            }
            let machine = state.pending().first().map_or(0, |(_, object)| object.index.machine);
            let objects: Vec<u32> = state.pending().iter().map(|(number, _)| *number).collect();
            (objects, state.names_to_export(), machine)
        };
        host.to_export = None;
        let wanted: Vec<_> = names.iter().map(|(name, symbol)| (name, symbol.kind)).collect();
        let opened = (!wanted.is_empty()).then(|| Exported::open(machine, &wanted, exports.of_program)).transpose();
        let exported = opened.or_else(|error| self.without_exports(exports.of_program, error))?;
        host.to_export = Some(ToExport { objects, names, exported });
        Ok(())
    }

    fn without_exports(&self, of_program: bool, error: OpenError) -> Result<Option<Exported>> {
        let (message, source) = error.into_parts();
        let error = Error::Link(LinkError::ExportRefused { library: self.name.to_string(), message, source });
        if !of_program {
            return Err(error);
        }
        tracing::warn!(target: "slabjit", library = &*self.name.text(), %error, "names are not exported");
        Ok(None)
    }

    /// Lets the process find the names of a linked batch.
    pub(super) fn publish_exports(&self, state: &State, code: &CodeRef, host: &mut Host) {
        let Some((exports, names)) = self.exports().zip(host.to_export.take()) else { return };
        let ToExport { objects, names, exported: Some(exported) } = names else { return };
        let addresses: Vec<_> = names.iter().map(|(name, symbol)| state.names.address(name, symbol)).collect();
        exporting::add(code.code());
        exported.keep(Box::new(code.clone()));
        exported.publish(&addresses);
        exports.batches.lock().push(Batch { objects, exported });
    }

    /// Takes the names of objects back that were unloaded. Shared libraries that are bound to them keep the objects.
    pub(super) fn take_exports(&self, numbers: &[u32], gone: Vec<Image>, host: &mut Host) {
        let of_gone = |batch: &Batch| batch.objects.iter().any(|number| numbers.contains(number));
        let exported = self.exports().map_or_else(Vec::new, |exports| exports.take(of_gone));
        if exported.is_empty() {
            host.gone.extend(gone);
            return;
        }
        let gone = Arc::new(gone);
        exported.iter().for_each(|exported| exported.keep(Box::new(Arc::clone(&gone))));
        host.withdrawn.extend(exported);
    }

    /// Withdraws all names. No lock may be held.
    pub(super) fn withdraw_exports(&self) {
        let all = self.exports().map_or_else(Vec::new, |exports| exports.take(|_| true));
        drop(all);
    }
}

impl State {
    /// Returns the names that waiting objects define for others, each once. `f@@VERSION` is exported as `f`, a version
    /// that is not the default is not exported, and neither are thread-local variables: they are in another module.
    fn names_to_export(&self) -> NamesToExport {
        let mut names = NamesToExport::default();
        for (number, object) in self.pending() {
            for (i, definition) in (0_u32..).zip(&object.index.definitions) {
                let name = object.index.name(definition.name);
                let name = name.split_once("@@").map_or(name, |(base, _)| base);
                let counts = self.names.get(name).filter(|symbol| (symbol.object, symbol.definition) == (*number, i));
                let seen = counts.filter(|symbol| !symbol.hidden && symbol.kind != SymbolKind::ThreadLocal);
                names.extend(seen.filter(|_| !name.is_empty() && !name.contains('@')).map(|symbol| (name, symbol)));
            }
            let is_seen =
                |(name, symbol): &(&str, Symbol)| symbol.kind != SymbolKind::ThreadLocal && !name.contains('@');
            // An image has `f` beside `f@@VERSION`.
            names.extend(self.names.of_image(*number).filter(is_seen));
        }
        names
    }
}
