//! How a shared store is used.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::signing::{ID_DIGITS, SecretKey};
use super::store::Store;
use super::trust::Trust;
use crate::{CacheError, Error, Result};

/// How long a store is waited for.
const WAIT: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub(in crate::cache) struct Options {
    pub(super) store: Option<Arc<dyn Store>>,
    pub(super) trust: Trust,
    pub(super) require_signature: bool,
    pub(super) check_each_load: bool,
    pub(super) read_only: bool,
    pub(super) signer: Option<Arc<SecretKey>>,
    pub(super) wait: Duration,
}

impl Options {
    /// Checks what a mistake in would go unnoticed.
    pub(in crate::cache) fn check(&self) -> Result<()> {
        let is_id = |id: &&String| id.len() == ID_DIGITS && id.bytes().all(|digit| digit.is_ascii_hexdigit());
        match self.trust.revoked.iter().find(|id| !is_id(id)) {
            Some(id) => Err(Error::Cache(CacheError::KeyId { id: id.clone() })),
            None => Ok(()),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            store: None,
            trust: Trust::default(),
            require_signature: true,
            check_each_load: false,
            read_only: false,
            signer: None,
            wait: WAIT,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("store", &self.store.as_ref().map(|store| store.describe()))
            .field("trust", &self.trust)
            .field("require_signature", &self.require_signature)
            .field("check_each_load", &self.check_each_load)
            .field("read_only", &self.read_only)
            .field("signer", &self.signer)
            .field("wait", &self.wait)
            .finish()
    }
}
