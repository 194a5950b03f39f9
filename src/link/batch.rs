//! Objects that are linked together.

use std::ffi::CString;
use std::sync::{Arc, Mutex};

use super::object::{Defined, External, Linked, ObjectLink, PreparedObject, Progress};
use super::session::{Session, Tracker};
use crate::memory::Arena;
use crate::{Error, Result};

/// An object whose symbols have been decided about.
pub(super) struct Decided {
    pub(super) object: Arc<PreparedObject>,
    pub(super) externals: Vec<External>,
    pub(super) definitions: Vec<Defined>,
}

/// Numbers that are in use while a batch is under way, for names that are unique in ORC.
pub(super) struct Slots<'s> {
    session: &'s Session,
    taken: Vec<u32>,
}

impl<'s> Slots<'s> {
    pub(super) fn new(session: &'s Session) -> Self {
        Self { session, taken: Vec::new() }
    }

    pub(super) fn take(&mut self) -> u32 {
        let slot = self.session.slot();
        self.taken.push(slot);
        slot
    }
}

impl Drop for Slots<'_> {
    fn drop(&mut self) {
        self.session.release_slots(self.taken.drain(..));
    }
}

/// Links all objects, or none. `slots` must outlive the call: ORC knows the batch by them.
pub(super) fn link(
    session: &Session,
    arena: &Arc<Arena>,
    objects: Vec<Decided>,
    slots: &mut Slots<'_>,
) -> Result<Vec<Linked>> {
    let progress = Arc::new(Progress::default());
    let links: Vec<_> = objects.into_iter().map(|object| under_way(object, arena, &progress)).collect();
    let result = materialize(session, &links, slots);
    // The tracker is gone: what was not begun has ended. What another thread has begun ends here.
    progress.wait();

    if let Err(message) = result {
        return Err(failure(&links, message));
    }
    Ok(links.iter().map(|link| std::mem::take(&mut link.state().linked)).collect())
}

fn under_way(decided: Decided, arena: &Arc<Arena>, progress: &Arc<Progress>) -> Arc<ObjectLink> {
    let Decided { object, externals, definitions } = decided;
    let (arena, progress, state) = (Arc::clone(arena), Arc::clone(progress), Mutex::default());
    Arc::new(ObjectLink { object, externals, definitions, arena, progress, state })
}

fn materialize(session: &Session, links: &[Arc<ObjectLink>], slots: &mut Slots<'_>) -> Result<(), String> {
    let tracker = session.tracker();
    let mut keys = Vec::with_capacity(links.len());
    for link in links {
        let key = CString::new(format!("k{}", slots.take())).unwrap_or_default();
        if let Err(message) = define(session, &tracker, link, &key) {
            link.state().failure = Some(Error::Link { object: link.object.name.to_string(), message: message.clone() });
            return Err(message);
        }
        keys.push(key);
    }
    session.materialize(&keys)
}

fn define(session: &Session, tracker: &Tracker<'_>, link: &Arc<ObjectLink>, key: &CString) -> Result<(), String> {
    let graph = session.graph(&link.object.name, &link.object.bytes)?;
    let index = &link.object.index;
    let retain = !index.arrays.is_empty() || !index.retain.is_empty();
    graph.bind(Arc::clone(link).into_shim(), retain);
    graph.define(tracker, key)
}

/// The cause: the first object that failed for a reason of its own.
fn failure(links: &[Arc<ObjectLink>], message: String) -> Error {
    links.iter().find_map(|link| link.state().failure.take()).unwrap_or_else(|| {
        let link = links.iter().find(|link| link.state().secondary.is_some()).or(links.first());
        let object = link.map_or_else(String::new, |link| link.object.name.to_string());
        let words = link.and_then(|link| link.state().secondary.take());
        Error::Link { object, message: words.unwrap_or(message) }
    })
}
