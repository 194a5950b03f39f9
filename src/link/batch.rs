//! Objects that are linked together.

use std::sync::Arc;

use super::decided::{Decided, External};
use super::graph::{Batch, Graph};
use super::linked::Linked;
use super::object::ObjectLink;
use super::reach::{OutOfRange, Reach};
use super::sets::{Memory, Plan};
use super::turns::TURNS;
use crate::gate::{Mutex, Pass};
use crate::memory::Arena;
use crate::name::Name;
use crate::{Error, Result};

/// Fewer bytes of a file, on average and at all, are linked in turns: so many that nobody waits long, and that the kernel's part is a large one.
const SMALL: usize = 16 << 10;
const SMALL_TOGETHER: usize = 128 << 10;

/// Links all objects, or none. `plan` is that of the linker sets they have to do with. Returns where those lie that
/// the objects have put together.
pub(super) fn link(
    library: &Name,
    arena: &Arc<Arena>,
    policy: OutOfRange,
    mut objects: Vec<Decided>,
    plan: &Plan,
) -> Result<(Vec<Linked>, Option<Arc<Memory>>)> {
    let bytes: usize = objects.iter().map(|decided| decided.object.bytes.len()).sum();
    let in_turns = !arena.packs() && bytes < SMALL_TOGETHER.min(SMALL.saturating_mul(objects.len()));
    // LLVM is in the middle of things until it is done: a fork waits.
    let (_pass, _turn) = if in_turns { TURNS.wait() } else { (Pass::take(), None) };
    let sets = Memory::reserve(arena, plan, &objects)?.map(Arc::new);
    if let Some(sets) = &sets {
        objects.iter_mut().for_each(|object| bind_bounds(object, sets));
    }
    let in_batch = objects.len() > 1;
    let under_way = |(at, decided)| under_way(decided, at, in_batch, sets.as_ref(), arena, policy);
    let links: Vec<_> = objects.into_iter().enumerate().map(under_way).collect();
    // A graph goes when its object is finished: thousands at a time would push each other out of the caches.
    let mut batch = Batch::begin();
    for link in &links {
        if !batch.link(graph(link)?) {
            break;
        }
    }
    if !batch.end() {
        return Err(failure(&links));
    }
    let mut linked: Vec<Linked> =
        links.into_iter().map(|mut link| std::mem::take(&mut link.state.get_mut().linked)).collect();
    if let Some(sets) = &sets
        && let Some(mut slab) = sets.take_published()
    {
        slab.belong_to(library, &LINKER_SETS.into());
        let slab = Arc::new(slab);
        for (_, linked) in linked.iter_mut().enumerate().filter(|(at, _)| sets.is_used_by(*at)) {
            linked.sets = Some(Arc::clone(&slab));
        }
    }
    Ok((linked, sets))
}

/// What is said to lie where linker sets of several objects do.
const LINKER_SETS: &str = "(linker sets)";

/// Puts addresses in the place of bounds of sets.
fn bind_bounds(decided: &mut Decided, sets: &Memory) {
    for external in &mut decided.externals {
        if let External::Bound(set, bound) = external
            && let Some(range) = sets.bounds(*set)
        {
            *external = External::Absolute(bound.of(&range));
        }
    }
}

fn under_way(
    decided: Decided,
    position: usize,
    in_batch: bool,
    sets: Option<&Arc<Memory>>,
    arena: &Arc<Arena>,
    policy: OutOfRange,
) -> ObjectLink {
    let Decided { object, externals, definitions, dead_sections, number, storage, .. } = decided;
    let (arena, state) = (Arc::clone(arena), Mutex::default());
    let reach = Mutex::new(Reach::new(object.index.machine, policy, arena.range()));
    let sets = sets.cloned();
    ObjectLink {
        object,
        externals,
        definitions,
        dead_sections,
        number,
        position,
        sets,
        storage,
        in_batch,
        arena,
        reach,
        state,
    }
}

fn graph(link: &ObjectLink) -> Result<Graph<'_>> {
    let object = &link.object;
    let graph = Graph::new(&object.name, &object.bytes)
        .map_err(|message| Error::Link { object: object.name.to_string(), message })?;
    let retain = !object.index.arrays.is_empty() || !object.index.retain.is_empty() || link.storage.is_some();
    Ok(graph.bind(link, retain, !object.index.indirect.is_empty()))
}

/// The cause: one object has failed, and the others only because of it.
fn failure(links: &[ObjectLink]) -> Error {
    links.iter().find_map(|link| link.state().failure.take()).unwrap_or_else(|| {
        let object = links.first().map_or_else(String::new, |link| link.object.name.to_string());
        Error::Link { object, message: "LLVM did not say why".to_owned() }
    })
}
