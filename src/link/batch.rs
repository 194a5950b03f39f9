//! Objects that are linked together.

use std::ffi::CString;
use std::sync::Arc;

use super::object::{Defined, External, Linked, ObjectLink, PreparedObject, Progress};
use super::reach::{OutOfRange, Reach};
use super::session::{Graph, Session, Tracker};
use super::thread_local::Storage;
use crate::gate::{Mutex, Pass};
use crate::memory::Arena;
use crate::{Error, Result};

/// An object whose symbols have been decided about.
pub(super) struct Decided {
    pub(super) object: Arc<PreparedObject>,
    pub(super) externals: Vec<External>,
    pub(super) definitions: Vec<Defined>,
    /// Sections of COMDAT groups that are linked from another object.
    pub(super) dead_sections: Vec<u32>,
    /// Its number in its library.
    pub(super) number: u32,
    /// Storage for thread-local variables of all of them.
    pub(super) storage: Option<Arc<Storage>>,
}

/// Links all objects, or none. Names that objects need of each other were made with slots of `tracker`.
pub(super) fn link(
    session: &Session,
    arena: &Arc<Arena>,
    policy: OutOfRange,
    objects: Vec<Decided>,
    tracker: Arc<Tracker>,
) -> Result<Vec<Linked>> {
    // LLVM is in the middle of things until it is done.
    let _pass = Pass::take();
    let progress = Arc::new(Progress::default());
    let links: Vec<_> = objects.into_iter().map(|object| under_way(object, arena, policy, &progress)).collect();
    let result = materialize(session, &links, &tracker);
    if result.is_err() {
        // ORC is to forget what failed, so that it is not found under way by `wait`.
        session.retire(&tracker);
    }
    let taken = tracker.taken();
    drop(tracker);
    // ORC hands work out to whoever looks something up: what another thread has begun ends here.
    progress.wait();
    drop(taken);

    if let Err(message) = result {
        return Err(failure(&links, message));
    }
    Ok(links.iter().map(|link| std::mem::take(&mut link.state().linked)).collect())
}

fn under_way(decided: Decided, arena: &Arc<Arena>, policy: OutOfRange, progress: &Arc<Progress>) -> Arc<ObjectLink> {
    let Decided { object, externals, definitions, dead_sections, number, storage } = decided;
    let (arena, progress, state) = (Arc::clone(arena), Arc::clone(progress), Mutex::default());
    let reach = Mutex::new(Reach::new(object.index.machine, policy, arena.range()));
    Arc::new(ObjectLink {
        object,
        externals,
        definitions,
        dead_sections,
        number,
        storage,
        arena,
        progress,
        reach,
        state,
    })
}

fn materialize(session: &Session, links: &[Arc<ObjectLink>], tracker: &Tracker) -> Result<(), String> {
    // All graphs before the first is defined: most of what fails, fails here.
    let graphs = links.iter().map(|link| graph(session, link)).collect::<Result<Vec<_>, _>>()?;
    let mut names = Vec::with_capacity(links.len());
    for graph in graphs {
        let key = CString::new(format!("k{}", tracker.slot())).unwrap_or_default();
        graph.define(tracker, &key)?;
        names.push(key);
    }
    // A key would do for each object. But of symbols that were removed while they waited for others, LLVM 22 forgets only those that depend
    // on one that somebody has asked for: else it writes where they were, once the name they waited for comes again (Core.cpp,
    // `IL_removeTracker` and `IL_collectQueries`).
    names.extend(links.iter().flat_map(|link| link.exports()).filter_map(|name| CString::new(name).ok()));
    session.materialize(&names)
}

fn graph(session: &Session, link: &Arc<ObjectLink>) -> Result<Graph, String> {
    let object = &link.object;
    let graph = session.graph(&object.name, &object.bytes).inspect_err(|message| {
        link.state().failure = Some(Error::Link { object: object.name.to_string(), message: message.clone() });
    })?;
    let retain = !object.index.arrays.is_empty() || !object.index.retain.is_empty() || link.storage.is_some();
    graph.bind(Arc::clone(link).into_shim(), retain, !object.index.indirect.is_empty());
    Ok(graph)
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
