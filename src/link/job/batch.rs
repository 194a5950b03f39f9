//! Linking of a batch: objects that are linked together.

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use crate::fork_guard::ForkGuard;
use crate::functions::SortedFunctions;
use crate::link::job::exports::Exports;
use crate::link::job::link_job::{LinkJob, PlainLink, Shared};
use crate::link::job::link_throttle::THROTTLE;
use crate::link::llvm::graph::Batch;
use crate::link::llvm::link_host::LinkHost as _;
use crate::live::linked::linked_object::Linked;
use crate::live::linker::{self, LinkedBatch};
use crate::live::resolve::decided::{Decided, Defined, External};
use crate::live::resolve::linker_sets::Memory;
use crate::out_of_range::OutOfRange;
use crate::threads::Threads;
use crate::{Error, LinkError, Result};

/// The size, average and total, below which objects are linked in turns: such links are short, and the kernel's part in
/// them is large.
const SMALL: usize = 16 << 10;
const SMALL_TOGETHER: usize = 128 << 10;

/// Links all objects, or none.
pub(in crate::link) fn link(batch: linker::Batch<'_>, policy: OutOfRange, threads: Threads) -> Result<LinkedBatch> {
    let linker::Batch { library, arena, mut objects, sets: plan } = batch;
    let bytes: usize = objects.iter().map(|decided| decided.object.bytes.len()).sum();
    let in_turns = !arena.packs() && bytes < SMALL_TOGETHER.min(SMALL.saturating_mul(objects.len()));
    // A fork waits until LLVM is done.
    let (_pass, _turn) = if in_turns { THROTTLE.wait() } else { (ForkGuard::take(), None) };
    let sets = Memory::reserve(arena, plan, &objects)?.map(Arc::new);
    if let Some(sets) = &sets {
        objects.iter_mut().for_each(|object| bind_bounds(object, sets));
    }
    let in_batch = objects.len() > 1;
    let exports = exports(&objects).map(Arc::new);
    let shared = Shared { sets: sets.clone(), exports };
    let job = |(position, decided)| LinkJob::of_batch(decided, arena, policy, (position, in_batch), shared.clone());
    // Jobs are large: one by itself stays where it is made.
    let (mut one, mut many);
    let links = if in_batch {
        many = objects.into_iter().enumerate().map(job).collect::<Vec<_>>();
        &mut many[..]
    } else {
        one = objects.pop().map(|decided| job((0, decided)));
        one.as_mut_slice()
    };
    link_all(links, threads.for_work(links.len(), bytes))?;
    let take = |link: &mut LinkJob| std::mem::take(&mut link.state.get_mut().linked);
    let mut linked: SmallVec<[Linked; 1]> = links.iter_mut().map(take).collect();
    if let Some(sets) = &sets
        && let Some(mut slab) = sets.take_published()
    {
        slab.belong_to(library, &LINKER_SETS.into(), &SortedFunctions::default());
        let slab = Arc::new(slab);
        for (_, linked) in linked.iter_mut().enumerate().filter(|(at, _)| sets.is_used_by(*at)) {
            linked.sets = Some(Arc::clone(&slab));
        }
    }
    Ok(LinkedBatch { objects: linked, sets })
}

/// Links and publishes all, or none: objects that want no graph first, so that graphs find their addresses; those that
/// refer to other objects are written when all have theirs.
fn link_all(links: &[LinkJob], threads: usize) -> Result<()> {
    let mut all: SmallVec<[(&LinkJob, PlainLink<'_>); 1]> =
        links.iter().map(|link| (link, PlainLink::default())).collect();
    let graphs = OnceLock::new();
    if link_each(threads, &mut all, &graphs).is_break() {
        drop(graphs);
        return Err(failure(links));
    }
    let plain = all.into_iter().filter_map(|(link, plain)| (!plain.wants_graph()).then_some(link));
    let Some(graphs) = graphs.into_inner() else { return publish(&plain.collect::<SmallVec<[_; 1]>>()) };
    plain.for_each(|link| graphs.add(link));
    if graphs.end() { Ok(()) } else { Err(failure(links)) }
}

/// Links each up to its publication.
fn link_each<'a>(
    threads: usize,
    all: &mut [(&'a LinkJob, PlainLink<'a>)],
    graphs: &OnceLock<Batch<'a>>,
) -> ControlFlow<()> {
    let done = |link: &LinkJob, linked: Result<bool>| match linked {
        Ok(true) => ControlFlow::Continue(()),
        Ok(false) => ControlFlow::Break(()),
        Err(error) => {
            link.state().failure = Some(error);
            ControlFlow::Break(())
        }
    };
    Threads::each(threads, all, |(link, plain)| {
        done(link, link.link_plain().map(|linked| *plain = linked).map(|()| true))
    })?;
    if all.iter().any(|(_, plain)| plain.wants_graph()) {
        // A graph is freed when its object is finished: thousands would push each other out of the caches.
        let graphs = graphs.get_or_init(Batch::begin);
        let mut wanted: SmallVec<[&LinkJob; 1]> =
            all.iter().filter(|(_, plain)| plain.wants_graph()).map(|(link, _)| *link).collect();
        Threads::each(threads, &mut wanted, |link| done(link, link.graph().map(|graph| graphs.link(graph))))?;
    }
    if all.iter().any(|(_, plain)| matches!(plain, PlainLink::Waits(_))) {
        Threads::each(threads, all, |(link, plain)| match plain {
            PlainLink::Waits(waits) => {
                let written = link.write_together(waits);
                *plain = PlainLink::Written;
                done(link, written.map(|()| true))
            }
            _ => ControlFlow::Continue(()),
        })?;
    }
    ControlFlow::Continue(())
}

/// Publishes plain objects.
#[allow(unsafe_code, reason = "memory is published")]
fn publish(plain: &[&LinkJob]) -> Result<()> {
    // SAFETY: they are written, and nothing else refers to their memory.
    unsafe { LinkJob::publish(plain)? };
    plain.iter().for_each(|link| link.commit(None));
    Ok(())
}

/// Returns room for what objects refer to in each other; `None` if there is nothing.
fn exports(objects: &[Decided]) -> Option<Exports> {
    let all = objects.iter().flat_map(|decided| &decided.definitions);
    let count = all.filter(|definition| matches!(definition, Defined::Export(_))).count();
    let are_near = || objects.iter().all(|decided| decided.object.index.large_sections.is_empty());
    (count != 0).then(|| Exports::new(count, are_near()))
}

/// The object's name in errors for linker sets of several objects.
const LINKER_SETS: &str = "(linker sets)";

/// Replaces bounds of linker sets by addresses.
fn bind_bounds(decided: &mut Decided, sets: &Memory) {
    for external in &mut decided.externals {
        if let External::Bound(set, bound) = external
            && let Some(range) = sets.bounds(*set)
        {
            *external = External::Absolute(bound.of(&range));
        }
    }
}

/// Returns the error of the failed object, which made the others fail.
fn failure(links: &[LinkJob]) -> Error {
    links.iter().find_map(|link| link.state().failure.take()).unwrap_or_else(|| {
        let object = links.first().map_or_else(String::new, |link| link.object.name.to_string());
        Error::Link(LinkError::Failed { object, message: "LLVM did not say why".to_owned() })
    })
}
