//! What ORC has of ours until it emits it: an object that was prepared, or one that is yet to be made.

use std::collections::HashSet;
use std::sync::Arc;

use super::lazy::Stubs;
use crate::live::resolve::prepared::PreparedObject;
use crate::name::{DefinedName, Text};
use crate::{Error, LinkError, Result};

/// An object that is made when one of its names is needed.
#[cfg_attr(not(feature = "inkwell"), allow(dead_code, reason = "only modules are made later"))]
pub(crate) struct Deferred {
    pub(crate) name: String,
    /// What it will define.
    pub(crate) names: Vec<DefinedName>,
    pub(crate) has_initialisers: bool,
    /// Makes its bytes; on any thread.
    pub(crate) make: Box<dyn Fn() -> Result<Vec<u8>> + Send + Sync>,
}

impl Deferred {
    /// Makes sure that an object defines what ORC was told it would: transforms and plugins are user code.
    pub(super) fn check(&self, object: &PreparedObject) -> Result<()> {
        let index = &object.index;
        let defined: HashSet<_> = index.definitions.iter().map(|definition| index.name(definition.name)).collect();
        match self.names.iter().find(|name| !defined.contains(name.name.as_str())) {
            None => Ok(()),
            Some(lost) => {
                let (module, symbol) = (self.name.clone(), lost.name.clone());
                Err(Error::Link(LinkError::DefinitionLost { module, symbol }))
            }
        }
    }
}

#[derive(Clone)]
pub(super) enum Given {
    Prepared(Arc<PreparedObject>),
    Deferred(Arc<Deferred>),
    /// The object of stubs, which keeps them.
    Stubs(Arc<PreparedObject>, Arc<Stubs>),
}

impl Given {
    /// Returns what stands for it in ORC: an address that nothing else has, of a byte at least.
    pub(super) fn bytes(&self) -> (*const u8, usize) {
        match self {
            Self::Prepared(object) | Self::Stubs(object, _) => (object.bytes.as_ptr(), object.bytes.len()),
            Self::Deferred(deferred) => (Arc::as_ptr(deferred).cast(), 1),
        }
    }

    pub(super) fn name(&self) -> Text<'_> {
        match self {
            Self::Prepared(object) | Self::Stubs(object, _) => object.name.text(),
            Self::Deferred(deferred) => Text::Given(&deferred.name),
        }
    }

    /// Returns how many names it refers to, as far as that is known.
    pub(super) fn imports(&self) -> usize {
        match self {
            Self::Prepared(object) | Self::Stubs(object, _) => object.index.imports.len(),
            Self::Deferred(_) => 0,
        }
    }

    /// Returns the names that it defines.
    pub(super) fn names(&self) -> Vec<&str> {
        match self {
            Self::Prepared(object) | Self::Stubs(object, _) => {
                let index = &object.index;
                index.definitions.iter().map(|definition| index.name(definition.name)).collect()
            }
            Self::Deferred(deferred) => deferred.names.iter().map(|name| name.name.as_str()).collect(),
        }
    }
}
