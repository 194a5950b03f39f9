//! Which records are used: the policy of a cache.

use std::collections::BTreeSet;

use super::refusal::Refusal;
use super::signing::PublicKey;
use crate::cache::key::CacheKey;
use crate::cache::record::{Kind, Record};
use crate::cpu;

/// The keys that may sign.
#[derive(Debug, Clone, Default)]
pub(super) struct Trust {
    pub(super) keys: Vec<PublicKey>,
    pub(super) revoked: BTreeSet<String>,
}

impl Trust {
    /// Reads a record that comes from elsewhere. `required`: only if a trusted key has signed it.
    pub(super) fn read(
        &self,
        text: &[u8],
        key: &CacheKey,
        kind: Option<Kind>,
        required: bool,
    ) -> Result<Record, Refusal> {
        let Some(record) = Record::read(text, key) else {
            let of = |line: &str| line.strip_prefix("key ").and_then(CacheKey::from_text);
            let of = std::str::from_utf8(text).ok().and_then(|text| text.lines().find_map(of));
            let is_others = of.is_some_and(|of| of != *key && Record::read(text, &of).is_some());
            return Err(if is_others { Refusal::OtherKey } else { Refusal::Malformed });
        };
        if required {
            self.check(key, &record)?;
        }
        if kind.is_some_and(|kind| kind != record.kind) {
            return Err(Refusal::OtherKind);
        }
        Ok(record)
    }

    /// Returns whether a key that was revoked is among those that have signed a record.
    pub(super) fn names_revoked(&self, record: &Record) -> bool {
        record.signatures.iter().any(|signed| self.revoked.contains(&signed.by))
    }

    /// Checks that a trusted key has signed a record.
    pub(super) fn check(&self, key: &CacheKey, record: &Record) -> Result<(), Refusal> {
        let statement = record.statement(key);
        let mut refusal = None;
        for signed in &record.signatures {
            let id = &signed.by;
            let worse = if self.revoked.contains(id) {
                Refusal::RevokedKey { id: id.clone() }
            } else {
                match self.keys.iter().find(|key| key.id() == *id) {
                    Some(key) if key.has_signed(statement.as_bytes(), &signed.signature) => return Ok(()),
                    Some(_) => Refusal::BadSignature { id: id.clone() },
                    None => continue,
                }
            };
            refusal.get_or_insert(worse);
        }
        let ids: Vec<_> = record.signatures.iter().map(|signed| signed.by.clone()).collect();
        Err(refusal.unwrap_or(if ids.is_empty() { Refusal::Unsigned } else { Refusal::UntrustedKey { ids } }))
    }
}

/// Checks that this CPU can run an object. An image's functions are checked one by one when they are asked for.
pub(super) fn check_cpu(record: &Record) -> Result<(), Refusal> {
    let needs = record.cpu.iter().flatten().filter(|_| record.kind == Kind::Object);
    let lacks: Vec<_> = needs.filter(|name| !cpu::has(name)).cloned().collect();
    if lacks.is_empty() { Ok(()) } else { Err(Refusal::Cpu { lacks }) }
}
