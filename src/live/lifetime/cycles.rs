//! Code that keeps itself in a circle.
//!
//! Most references lead to what was linked before, or go together with what they lead to, so that counting is enough.
//! A stub that leads to a function's code keeps that code from the first call on; the code may refer to the stub. So
//! removed code is looked through here: what only removed code holds ends, once all of its finalisers have run.
#![allow(unsafe_code, reason = "runs finalisers")]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::code_ref::Kept as _;
use super::loaded_library::{CodeRef, LoadedLibrary};
use crate::fork_guard::Mutex;

/// Removed code that something held when it was looked through.
static REMOVED: Mutex<Removed> = Mutex::new(Removed { all: Vec::new(), looked: 0, ending: Vec::new() });

struct Removed {
    all: Vec<Arc<LoadedLibrary>>,
    /// The number of all when all were looked through.
    looked: usize,
    /// Code whose finalisers a thread is running.
    ending: Vec<Arc<LoadedLibrary>>,
}

/// Takes code that has been removed, and may be in circles, in the order in which it was initialised. No lock may be
/// held: finalisers run.
pub(crate) fn end_removed(removed: Vec<Arc<LoadedLibrary>>) {
    let mut guard = REMOVED.lock();
    let mut unheld = unheld(&removed, &guard.ending);
    guard.all.extend(removed);
    guard.all.retain(|code| !code.life().is_gone());
    // What somebody holds is looked through again when there is as much new.
    if guard.all.len() >= 2 * guard.looked {
        let older = self::unheld(&guard.all, guard.ending.iter().chain(&unheld));
        unheld.splice(..0, older);
        guard.looked = guard.all.len();
    }
    guard.ending.extend(unheld.iter().cloned());
    drop(guard);
    for code in unheld.iter().rev() {
        // SAFETY: nobody uses it any more but the others, which are all there.
        unsafe { code.finalise() };
    }
    let kept: Vec<CodeRef> = unheld.iter().flat_map(|code| code.take_kept()).collect();
    drop(kept);
    let ended: HashSet<_> = unheld.iter().map(Arc::as_ptr).collect();
    let mut guard = REMOVED.lock();
    guard.ending.retain(|code| !ended.contains(&Arc::as_ptr(code)));
    guard.all.retain(|code| !code.life().is_gone());
    guard.looked = guard.all.len().min(guard.looked);
}

struct Node {
    code: Arc<LoadedLibrary>,
    keeps: Vec<usize>,
    /// Holders among the nodes.
    known: usize,
    is_held: bool,
}

/// Returns which of all that this code keeps is held by nothing else, nor by what is ending.
fn unheld<'a>(
    removed: &[Arc<LoadedLibrary>],
    ending: impl IntoIterator<Item = &'a Arc<LoadedLibrary>>,
) -> Vec<Arc<LoadedLibrary>> {
    let ending: HashSet<_> = ending.into_iter().map(Arc::as_ptr).collect();
    loop {
        let mut nodes = graph(removed);
        // Counted behind what they keep: no holder that is known is not counted.
        let is_held =
            |node: &Node| ending.contains(&Arc::as_ptr(&node.code)) || node.code.life().holders() > node.known;
        let mut held: Vec<usize> = (0..nodes.len()).filter(|i| is_held(&nodes[*i])).collect();
        while let Some(i) = held.pop() {
            if !std::mem::replace(&mut nodes[i].is_held, true) {
                held.extend(&nodes[i].keeps);
            }
        }
        nodes.retain(|node| !node.is_held);
        // Otherwise a holder was counted that has gone since, or one has come.
        if nodes.iter().all(|node| node.code.life().is_undisturbed() && node.code.life().holders() != 0) {
            return nodes.into_iter().map(|node| node.code).collect();
        }
    }
}

/// Returns this code and all that it keeps, which is watched from here on.
fn graph(removed: &[Arc<LoadedLibrary>]) -> Vec<Node> {
    let (mut nodes, mut numbers) = (Vec::<Node>::new(), HashMap::new());
    let mut add = |code: &Arc<LoadedLibrary>, nodes: &mut Vec<Node>| {
        *numbers.entry(Arc::as_ptr(code)).or_insert_with(|| {
            code.life().watch();
            nodes.push(Node { code: Arc::clone(code), keeps: Vec::new(), known: 0, is_held: false });
            nodes.len() - 1
        })
    };
    for code in removed.iter().filter(|code| code.life().holders() != 0) {
        add(code, &mut nodes);
    }
    let mut next = 0;
    while let Some(node) = nodes.get(next) {
        let keeps: Vec<usize> = node.code.kept().iter().map(|kept| add(kept, &mut nodes)).collect();
        for kept in &keeps {
            nodes[*kept].known += 1;
        }
        nodes[next].keeps = keeps;
        next += 1;
    }
    nodes
}
