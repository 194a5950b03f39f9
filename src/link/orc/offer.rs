//! An object, as it is added to a dylib: with the names that others see of it.

use std::sync::Arc;

use slabjit_llvm_wrap as shim;

use super::finder;
use super::given::{Deferred, Given};
use super::lazy::Stubs;
use super::lookup::kind_for_orc;
use super::session::Session;
use crate::elf::{Binding, Definition, SymbolKind, Visibility};
use crate::live::resolve::prepared::PreparedObject;
use crate::name::DefinedName;

pub(super) struct Offer {
    pub(super) given: Given,
    name: String,
    /// Their texts are those of what is given.
    names: Vec<shim::slabjit_named>,
    /// The name that stands for its initialisers, or nothing.
    initialiser: String,
}

impl Offer {
    pub(super) fn object(session: &Session, object: Arc<PreparedObject>) -> Self {
        let (names, has_initialisers) = (names_of(&object), !object.index.arrays.is_empty());
        Self::new(session, Given::Prepared(object), names, has_initialisers)
    }

    pub(super) fn stubs(session: &Session, object: Arc<PreparedObject>, stubs: Arc<Stubs>) -> Self {
        let names = names_of(&object);
        Self::new(session, Given::Stubs(object, stubs), names, false)
    }

    #[cfg_attr(not(feature = "inkwell"), allow(dead_code, reason = "only modules are made later"))]
    pub(super) fn deferred(session: &Session, deferred: Deferred) -> Self {
        let deferred = Arc::new(deferred);
        let name = |name: &DefinedName| shim::slabjit_named {
            name: name.name.as_ptr().cast(),
            name_len: name.name.len(),
            exported: name.is_exported.into(),
            weak: name.is_weak.into(),
            kind: kind_for_orc(if name.is_function { SymbolKind::Function } else { SymbolKind::Data }),
        };
        let names = deferred.names.iter().map(name).collect();
        let has_initialisers = deferred.has_initialisers;
        Self::new(session, Given::Deferred(deferred), names, has_initialisers)
    }

    fn new(session: &Session, given: Given, names: Vec<shim::slabjit_named>, has_initialisers: bool) -> Self {
        let initialiser = match has_initialisers {
            false => String::new(),
            // No name of an object's has a NUL byte.
            true => format!("initialisers\0{}", session.next_number()),
        };
        Self { name: given.name().to_owned(), given, names, initialiser }
    }

    /// Returns how many names LLVM keeps for it, as far as that is known.
    pub(super) fn name_count(&self) -> usize {
        self.names.len() + usize::from(!self.initialiser.is_empty()) + self.given.imports()
    }

    /// Tells the session's layer of it, and returns it for the shim, which is to be given it once, while this is there.
    pub(super) fn for_shim(&self, session: &Session) -> shim::slabjit_object {
        session.layer.give(&self.given);
        let (bytes, len) = self.given.bytes();
        shim::slabjit_object {
            bytes: bytes.cast(),
            len,
            name: self.name.as_ptr().cast(),
            name_len: self.name.len(),
            names: self.names.as_ptr(),
            n: self.names.len(),
            initialiser: self.initialiser.as_ptr().cast(),
            initialiser_len: self.initialiser.len(),
            dropped: finder::dropped,
            object: finder::keep_given(&session.layer, &self.given),
        }
    }
}

/// Returns what others see of an object's definitions.
fn names_of(object: &PreparedObject) -> Vec<shim::slabjit_named> {
    object.index.definitions.iter().filter_map(|definition| named(object, definition)).collect()
}

fn named(object: &PreparedObject, definition: &Definition) -> Option<shim::slabjit_named> {
    let exported = definition.visibility == Visibility::Default;
    let weak = definition.binding != Binding::Strong || definition.common.is_some() || definition.comdat.is_some();
    // Each object has its own copy of what is hidden and weak, and nobody else reaches its thread-local variables.
    let is_own = (weak && !exported) || definition.kind == SymbolKind::ThreadLocal;
    let name = object.index.name(definition.name);
    (!is_own).then(|| shim::slabjit_named {
        name: name.as_ptr().cast(),
        name_len: name.len(),
        exported: exported.into(),
        weak: weak.into(),
        kind: kind_for_orc(definition.kind),
    })
}
