//! One object that ORC has emitted, while it is linked.

use std::sync::Arc;

use slabjit_llvm_wrap as shim;

use super::readiness::Number;
use crate::elf::{Definition, Import, SymbolKind, Visibility};
use crate::fork_guard::Mutex;
use crate::link::job::link_job::LinkJob;
use crate::link::llvm::graph::BoundGraph;
use crate::live::context::Context;
use crate::live::lifetime::atexit::PerLibrarySymbol;
use crate::live::lifetime::loaded_library::{CodeRef, LoadedLibrary};
use crate::live::resolve::decide::MODULE_BASE;
use crate::live::resolve::decided::{Decided, Defined, External};
use crate::live::resolve::prepared::PreparedObject;
use crate::live::tls::Storage;
use crate::name::Name;
use crate::out_of_range::OutOfRange;
use crate::{Error, LinkError, Result, UndefinedSymbol};

/// An object that is being linked. JITLink has the job's address until it is linked or has failed.
pub(super) struct OrcObject {
    pub(super) number: Number,
    /// Its code, which is to own it.
    pub(super) code: CodeRef,
    pub(super) job: LinkJob,
    /// For ORC; they have the texts of the object's names.
    pub(super) definitions: Vec<shim::slabjit_definition>,
    /// Names that ORC has not found.
    pub(super) missing: Mutex<Vec<String>>,
}

/// Prepares an object that ORC has emitted.
pub(super) fn prepare(context: &Context, name: &str, bytes: &[u8]) -> Result<Arc<PreparedObject>> {
    let name = if name.is_empty() { context.next_object_name() } else { Name::Given(name.into()) };
    context.prepare(name, bytes.into(), false)
}

impl OrcObject {
    /// Makes a prepared object of a dylib ready to be linked.
    pub(super) fn new(
        context: &Context,
        policy: OutOfRange,
        number: Number,
        dylib: &str,
        object: Arc<PreparedObject>,
    ) -> Result<Self> {
        let code = LoadedLibrary::new(Name::Given(dylib.into()), true, Vec::new(), &context.registry);
        let code = CodeRef::first(code);
        context.registry.add(code.code());
        let index = &object.index;
        let storage = index.thread_local.as_ref().filter(|thread_local| !thread_local.sections.is_empty());
        let storage = storage.map(|thread_local| {
            let fixed = thread_local.own_static.then_some(&*object);
            Storage::open(&[(0, Arc::clone(&object))], fixed)
        });
        let storage = storage.transpose()?.map(Arc::new);
        let external = |import: &Import| {
            let name = index.name(import.name);
            if import.thread_local && name != MODULE_BASE {
                let what = format!(
                    "it refers to the thread-local variable '{name}', which it does not define; link it as an object \
                     of a library (JitEngine::library) together with the one that does"
                );
                return Err(Error::Link(LinkError::ThreadLocal { object: object.name.to_string(), what }));
            }
            Ok(match PerLibrarySymbol::named(name) {
                Some(own) => External::Absolute(code.own_function(own, &context.arena)?),
                None if name == MODULE_BASE => External::Absolute(storage.as_ref().map_or(0, |storage| storage.base())),
                // ORC is asked.
                None => External::Leave,
            })
        };
        let externals = index.imports.iter().map(external).collect::<Result<_>>()?;
        let definition = |definition: &Definition| {
            let name = index.name(definition.name);
            shim::slabjit_definition {
                name: name.as_ptr().cast(),
                name_len: name.len(),
                address: definition.value,
                absolute: definition.absolute.into(),
                // Others reach no thread-local variables.
                exported: (definition.visibility == Visibility::Default && definition.kind != SymbolKind::ThreadLocal)
                    .into(),
                callable: (definition.kind == SymbolKind::Function).into(),
                counts: 1,
            }
        };
        let definitions = index.definitions.iter().map(definition).collect();
        // What becomes of the definitions is said later.
        let decided = Decided {
            object: Arc::clone(&object),
            externals,
            definitions: Vec::new(),
            imports: Box::default(),
            dead_sections: Vec::new(),
            number: 0,
            storage,
        };
        let job = LinkJob::new(decided, &context.arena, policy);
        Ok(Self { number, code, job, definitions, missing: Mutex::default() })
    }

    /// Takes note of the definitions that count, and makes the graph.
    pub(super) fn bind(&mut self) -> Result<*mut shim::slabjit_graph> {
        let index = &self.job.object.index;
        let mut lost = vec![false; index.groups.len()];
        let decided = index.definitions.iter().zip(&self.definitions).map(|(definition, decided)| {
            match (decided.counts != 0, definition.absolute) {
                (true, false) => Defined::Keep,
                (true, true) => Defined::Discard(External::Absolute(definition.value)),
                (false, _) => {
                    if let Some(lost) = definition.comdat.and_then(|group| lost.get_mut(group as usize)) {
                        *lost = true;
                    }
                    Defined::Discard(External::Leave)
                }
            }
        });
        let decided: Vec<Defined> = decided.collect();
        let dead = index.groups.iter().zip(&lost).filter(|(_, lost)| **lost);
        let mut dead: Vec<u32> = dead.flat_map(|(group, _)| group.members.iter().copied()).collect();
        dead.sort_unstable();
        (self.job.definitions, self.job.dead_sections) = (decided, dead);
        self.job.graph().map(BoundGraph::into_raw)
    }

    /// Returns why it was not linked, if that is known better than by LLVM's text.
    pub(super) fn why_failed(&self) -> Option<Error> {
        if let Some(error) = self.job.state().failure.take() {
            return Some(error);
        }
        let missing = std::mem::take(&mut *self.missing.lock());
        let (library, object) = (self.code.library().to_string(), self.job.object.name.to_string());
        let symbol = |name| UndefinedSymbol::new(name, vec![object.clone()]);
        let symbols: Vec<_> = missing.into_iter().map(symbol).collect();
        (!symbols.is_empty()).then(|| Error::Link(LinkError::UndefinedSymbols { library, symbols }))
    }
}
