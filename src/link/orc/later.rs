//! What is done once a thread has left LLVM: user code, and the end of code that has finalisers. A fork waits for a
//! thread in LLVM, but not for user code; from within LLVM, a child would lose what the thread was about to do next.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::fork_guard;

type Work = Box<dyn FnOnce()>;

thread_local! {
    static LATER: RefCell<VecDeque<Work>> = const { RefCell::new(VecDeque::new()) };
}

/// Takes something to be done by this thread when it [leaves](leave) LLVM; now, if it is about to end.
pub(super) fn later(work: impl FnOnce() + 'static) {
    let mut work = Some(Box::new(work) as Work);
    let _ = LATER.try_with(|later| later.borrow_mut().extend(work.take()));
    work.into_iter().for_each(fork_guard::without);
}

/// Does what this thread is to do, unless it is in LLVM still. Whoever calls LLVM for a dylib calls this afterwards.
pub(super) fn leave() {
    while !fork_guard::has_pass()
        && let Ok(Some(work)) = LATER.try_with(|later| later.borrow_mut().pop_front())
    {
        work();
    }
}
