//! What each thread does.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use slabjit::{
    CacheKey, CallPlan, Error, JitEngine, Library, LibraryError, LinkError, ObjectCache, ObjectError, Removal, Symbol,
};

use crate::dylibs::{Dylibs, Function, Node};
use crate::objects::{Kind, Objects, sum};
use crate::stale;

type Sum = unsafe extern "C" fn(*const i32, i32) -> i32;

/// Libraries that all threads see.
const POOL: usize = 64;
/// Handles and plans that a thread keeps.
const KEPT: usize = 8;

/// What all threads share.
pub struct Shared {
    pub engine: JitEngine,
    objects: Objects,
    cache: ObjectCache,
    pool: Mutex<Vec<Arc<Loaded>>>,
    dylibs: Dylibs,
    /// A child may find libgcc's lock taken if a thread was throwing when it began (before GCC 13; see docs/limits.md).
    throws: RwLock<()>,
}

/// A library, and what it is to answer.
struct Loaded {
    library: Library,
    kind: Kind,
    seed: i32,
}

/// A function, and what it is to answer.
struct Kept {
    sum: Symbol<Sum>,
    seed: i32,
}

/// What initialisers and finalisers work with.
static HOOK: OnceLock<(JitEngine, Vec<u8>)> = OnceLock::new();
static WRONG_IN_HOOK: AtomicU64 = AtomicU64::new(0);

/// Looks up, loads, calls and removes, on whatever thread initialises or finalises.
extern "C" fn hook() {
    let Some((engine, bytes)) = HOOK.get() else { return };
    let right = engine.add_object(bytes).is_ok_and(|library| {
        // SAFETY: `kernel.c` has this function; it reads as many values as it is told.
        let answer = unsafe { library.get::<Sum>("sum") }.map(|f| unsafe { f([5, 6].as_ptr(), 2) });
        matches!(answer, Ok(answer) if answer == sum(&[5, 6], 1)) && library.remove() == Removal::Freed
    });
    if !right {
        WRONG_IN_HOOK.fetch_add(1, Ordering::Relaxed);
    }
}

impl Shared {
    pub fn new(engine: JitEngine, objects: Objects, cache: ObjectCache) -> slabjit::Result<Self> {
        HOOK.get_or_init(|| (engine.clone(), objects.of(Kind::Plain).to_vec()));
        let dylibs = Dylibs::new(&engine)?;
        Ok(Self { engine, objects, cache, pool: Mutex::default(), dylibs, throws: RwLock::default() })
    }

    fn pool(&self) -> MutexGuard<'_, Vec<Arc<Loaded>>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops everything.
    pub fn clear(&self) -> slabjit::Result<()> {
        // Finalisers run: not under the lock.
        let pool = std::mem::take(&mut *self.pool());
        drop(pool);
        self.dylibs.clear()
    }

    /// Ends the session of the dylibs, and makes another: LLVM keeps names that were removed until they are many.
    pub fn end_dylibs(&mut self) -> slabjit::Result<()> {
        self.dylibs = Dylibs::new(&self.engine)?;
        Ok(())
    }

    fn load(&self, kind: Kind, seed: i32, base: Option<&Library>) -> slabjit::Result<Loaded> {
        let mut builder = self.engine.library("soak");
        if kind == Kind::Initialised {
            // SAFETY: `hook` is void(void).
            builder = unsafe { builder.symbol("hook", hook as *const ()) };
        }
        if let Some(base) = base {
            builder = builder.link(base);
        }
        let library = builder.build()?;
        library.add_object(self.objects.of(kind))?;
        // SAFETY: an `int` of the object's, which nobody else knows yet.
        unsafe { *library.get::<*mut i32>("seed")?.as_raw() = seed };
        Ok(Loaded { library, kind, seed })
    }
}

/// What came of it.
#[derive(Default)]
pub struct Tally {
    pub operations: BTreeMap<&'static str, u64>,
    pub answers: u64,
    pub trapped: u64,
    pub wrong: Vec<String>,
    pub failures: BTreeMap<String, u64>,
}

impl Tally {
    /// Of a worker that there is nothing else of.
    pub fn panicked() -> Self {
        Self { wrong: vec!["a thread panicked".to_owned()], ..Self::default() }
    }

    pub fn done(&self) -> u64 {
        self.operations.values().sum()
    }

    pub fn add(&mut self, other: Self) {
        for (name, n) in other.operations {
            *self.operations.entry(name).or_default() += n;
        }
        for (name, n) in other.failures {
            *self.failures.entry(name).or_default() += n;
        }
        self.answers += other.answers;
        self.trapped += other.trapped;
        self.wrong.extend(other.wrong);
        let in_hook = WRONG_IN_HOOK.swap(0, Ordering::Relaxed);
        if in_hook > 0 {
            self.wrong.push(format!("{in_hook} times in an initialiser or finaliser"));
        }
    }

    fn expect(&mut self, right: bool, what: impl FnOnce() -> String) {
        self.answers += 1;
        if !right && self.wrong.len() < 100 {
            self.wrong.push(what());
        }
    }

    /// A failure that has to be.
    fn fails<T>(&mut self, result: slabjit::Result<T>, expected: fn(&Error) -> bool, what: &str) {
        match result {
            Ok(_) => self.expect(false, || format!("{what}: no error")),
            Err(error) => {
                self.expect(expected(&error), || format!("{what}: {error}"));
                *self.failures.entry(what.to_owned()).or_default() += 1;
            }
        }
    }
}

/// One thread's work.
pub struct Worker<'a> {
    shared: &'a Shared,
    random: StdRng,
    kept: Vec<Kept>,
    plans: Vec<(CallPlan<[Sum; 2]>, [i32; 2])>,
    pub tally: Tally,
}

type Step<'a> = fn(&mut Worker<'a>) -> slabjit::Result<()>;

impl<'a> Worker<'a> {
    /// Operations, and how often they are among all.
    const STEPS: [(&'static str, u32, Step<'a>); 18] = [
        ("call", 300, Self::call),
        ("call_kept", 150, Self::call_kept),
        ("load", 150, Self::load),
        ("keep", 80, Self::keep),
        ("remove", 80, Self::remove),
        ("stale_call", 60, Self::call_stale),
        ("plan", 50, Self::plan),
        ("fail", 40, Self::fail),
        ("wait", 25, Self::wait),
        ("drain", 25, Self::drain),
        ("thread", 20, Self::thread),
        ("cache", 12, Self::cache),
        ("fork", 8, Self::fork),
        ("dylib_call", 120, Self::call_in_dylib),
        ("dylib_add", 80, Self::add_to_dylib),
        ("dylib_remove", 60, Self::remove_from_dylib),
        ("dylib_request", 20, Self::request),
        ("dylib_fail", 10, Self::fail_in_dylib),
    ];

    pub fn new(shared: &'a Shared, seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed);
        Self { shared, random, kept: Vec::new(), plans: Vec::new(), tally: Tally::default() }
    }

    /// Does one thing at random.
    pub fn step(&mut self) {
        let mut at = self.random.random_range(0..Self::STEPS.iter().map(|(_, weight, _)| weight).sum::<u32>());
        for (name, weight, step) in Self::STEPS {
            if at < weight {
                *self.tally.operations.entry(name).or_default() += 1;
                if let Err(error) = step(self) {
                    self.tally.expect(false, || format!("{name}: {error:?}"));
                }
                return;
            }
            at -= weight;
        }
    }

    fn seed(&mut self) -> i32 {
        self.random.random()
    }

    /// One of the pool.
    fn any(&mut self) -> Option<Arc<Loaded>> {
        let pool = self.shared.pool();
        (!pool.is_empty()).then(|| Arc::clone(&pool[self.random.random_range(0..pool.len())]))
    }

    /// The function of one of the pool; none where another thread has removed it.
    fn found(&mut self) -> slabjit::Result<Option<Kept>> {
        let Some(loaded) = self.any() else { return Ok(None) };
        // SAFETY: `kernel.c` has this function.
        match unsafe { loaded.library.get::<Sum>("sum") } {
            Ok(sum) => Ok(Some(Kept { sum, seed: loaded.seed })),
            Err(Error::Library(LibraryError::Removed { .. })) => {
                *self.tally.failures.entry("what was removed meanwhile".to_owned()).or_default() += 1;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn check(&mut self, function: Sum, seed: i32, what: &str) {
        let values: Vec<i32> = (0..self.random.random_range(0..40)).map(|_| self.random.random()).collect();
        // SAFETY: it reads so many values; the caller keeps the code.
        let answer = unsafe { function(values.as_ptr(), values.len() as i32) };
        let expected = sum(&values, seed);
        self.tally.expect(answer == expected, || format!("{what}: {answer} instead of {expected}"));
    }

    fn call(&mut self) -> slabjit::Result<()> {
        if let Some(Kept { sum, seed }) = self.found()? {
            self.check(*sum, seed, "a call");
        }
        Ok(())
    }

    fn keep(&mut self) -> slabjit::Result<()> {
        if let Some(kept) = self.found()? {
            self.kept.push(kept);
        }
        if self.kept.len() > KEPT {
            let at = self.random.random_range(0..self.kept.len());
            drop(self.kept.swap_remove(at));
        }
        Ok(())
    }

    fn call_kept(&mut self) -> slabjit::Result<()> {
        if !self.kept.is_empty() {
            let kept = &self.kept[self.random.random_range(0..self.kept.len())];
            let (function, seed) = (*kept.sum, kept.seed);
            let address = kept.sum.address();
            let alive = self.shared.engine.explain_address(address).is_some_and(|found| found.removed.is_none());
            self.tally.expect(alive, || format!("{address:?} is not known to be alive"));
            self.check(function, seed, "a call of what was kept");
        }
        if !self.plans.is_empty() {
            let (plan, seeds) = self.plans[self.random.random_range(0..self.plans.len())].clone();
            for (function, seed) in plan.iter().zip(seeds) {
                self.check(*function, seed, "a call of a plan");
            }
        }
        Ok(())
    }

    fn load(&mut self) -> slabjit::Result<()> {
        let kind = Kind::ALL[self.random.random_range(0..Kind::ALL.len())];
        let seed = self.seed();
        let base = match kind {
            Kind::Dependent => match self.any().filter(|loaded| loaded.kind == Kind::Base) {
                Some(known) => Some((known, true)),
                None => Some((Arc::new(self.shared.load(Kind::Base, seed, None)?), false)),
            },
            _ => None,
        };
        let loaded = match self.shared.load(kind, seed, base.as_ref().map(|(base, _)| &base.library)) {
            Ok(loaded) => Arc::new(loaded),
            // Another thread has removed what it needs.
            Err(Error::Link(LinkError::UndefinedSymbols { .. }) | Error::Library(LibraryError::Removed { .. }))
                if base.as_ref().is_some_and(|(_, shared)| *shared) =>
            {
                *self.tally.failures.entry("what was removed meanwhile".to_owned()).or_default() += 1;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let old = {
            let mut pool = self.shared.pool();
            if pool.len() < POOL {
                pool.push(loaded);
                None
            } else {
                let at = self.random.random_range(0..pool.len());
                Some(std::mem::replace(&mut pool[at], loaded))
            }
        };
        // Finalisers may run: not under the lock.
        drop(old);
        Ok(())
    }

    fn remove(&mut self) -> slabjit::Result<()> {
        let taken = {
            let mut pool = self.shared.pool();
            if pool.is_empty() {
                return Ok(());
            }
            let at = self.random.random_range(0..pool.len());
            pool.swap_remove(at)
        };
        let first = taken.library.remove();
        let again = taken.library.remove();
        // Holders may go between the two, and do not come.
        self.tally.expect(first != Removal::Freed || again == Removal::Freed, || format!("{first:?}, then {again:?}"));
        // SAFETY: nothing is called.
        let found = unsafe { taken.library.get::<Sum>("sum") };
        self.tally.fails(
            found,
            |error| matches!(error, Error::Library(LibraryError::Removed { .. })),
            "a name of what was removed",
        );
        Ok(())
    }

    fn call_stale(&mut self) -> slabjit::Result<()> {
        let seed = self.seed();
        let loaded = self.shared.load(Kind::Plain, seed, None)?;
        // SAFETY: `kernel.c` has this function.
        let function = unsafe { loaded.library.get::<Sum>("sum")? };
        let address = function.address();
        let engine = &self.shared.engine;
        let generation = engine.explain_address(address).map(|found| found.generation);
        self.check(*function, seed, "a call before removal");
        drop(function);
        let removal = loaded.library.remove();
        self.tally.expect(removal == Removal::Freed, || format!("{removal:?}"));
        // If this thread had to wait for long, the addresses have rested enough.
        let rests = engine.explain_address(address).is_some_and(|found| Some(found.generation) == generation);
        if rests {
            // SAFETY: should it be there all the same, it would read no values: the first two arguments are what they
            // happen to be, but then the answer is wrong anyway.
            let trapped = unsafe { stale::traps(address.addr()) };
            self.tally.trapped += u64::from(trapped);
            self.tally.expect(trapped, || format!("{address:?} was called after its end"));
        }
        Ok(())
    }

    fn plan(&mut self) -> slabjit::Result<()> {
        if let (Some(one), Some(two)) = (self.found()?, self.found()?) {
            let plan = CallPlan::capture(|capture| Ok([capture.symbol(&one.sum), capture.symbol(&two.sum)]))?;
            self.plans.push((plan, [one.seed, two.seed]));
        }
        if self.plans.len() > KEPT {
            let at = self.random.random_range(0..self.plans.len());
            drop(self.plans.swap_remove(at));
        }
        Ok(())
    }

    fn fail(&mut self) -> slabjit::Result<()> {
        let shared = self.shared;
        let which = self.random.random_range(0..shared.objects.failing.len());
        let _throws = shared.throws.read().unwrap_or_else(PoisonError::into_inner);
        let result = shared.engine.add_object(&shared.objects.failing[which]).and_then(|library| {
            // SAFETY: nothing is called but an initialiser that throws.
            unsafe { library.initialize() }
        });
        let (expected, what): (fn(&Error) -> bool, _) = match which {
            0 => (
                |error| matches!(error, Error::Link(LinkError::UndefinedSymbols { .. })),
                "an object that lacks a symbol",
            ),
            1 => (
                |error| matches!(error, Error::Link(LinkError::InitializerFailed { .. })),
                "an initialiser that throws",
            ),
            _ => (|error| matches!(error, Error::Object(ObjectError::Truncated { .. })), "an object that is cut off"),
        };
        self.tally.fails(result, expected, what);
        Ok(())
    }

    fn wait(&mut self) -> slabjit::Result<()> {
        let seed = self.seed();
        let loaded = self.shared.load(Kind::Initialised, seed, None)?;
        // SAFETY: `kernel.c` has this function.
        let function = unsafe { loaded.library.get::<Sum>("sum")? };
        let waited = loaded.library.remove_and_wait(Duration::from_micros(50));
        self.tally.fails(
            waited,
            |error| matches!(error, Error::Library(LibraryError::RemovalTimedOut { .. })),
            "waiting for oneself",
        );
        self.check(*function, seed, "a call of what waits for its end");
        std::thread::scope(|scope| {
            let library = &loaded.library;
            let waits = scope.spawn(|| library.remove_and_wait(Duration::from_secs(60)));
            drop(function);
            waits.join().unwrap_or(Ok(()))
        })
    }

    fn drain(&mut self) -> slabjit::Result<()> {
        let seed = self.seed();
        let loaded = self.shared.load(Kind::Plain, seed, None)?;
        // SAFETY: `kernel.c` has this function.
        let function = unsafe { loaded.library.get::<Sum>("sum")?.as_raw() };
        let done = Arc::new(AtomicBool::new(false));
        let drain = Arc::clone(&done);
        loaded.library.drain(move || drain.load(Ordering::Acquire))?;
        let removal = loaded.library.remove();
        self.tally.expect(removal == Removal::Waiting { holders: 1 }, || format!("{removal:?} while it drains"));
        // The drain keeps it.
        self.check(function, seed, "a call of what drains");
        done.store(true, Ordering::Release);
        loaded.library.remove_and_wait(Duration::from_secs(60))
    }

    /// A thread that lives for a call.
    fn thread(&mut self) -> slabjit::Result<()> {
        let Some(Kept { sum: function, seed }) = self.found()? else { return Ok(()) };
        let values = [self.seed(), self.seed()];
        // SAFETY: it reads two values.
        let answer = std::thread::scope(|scope| scope.spawn(|| unsafe { function(values.as_ptr(), 2) }).join());
        let right = matches!(answer, Ok(answer) if answer == sum(&values, seed));
        self.tally.expect(right, || format!("on a new thread: {answer:?}"));
        Ok(())
    }

    fn cache(&mut self) -> slabjit::Result<()> {
        let shared = self.shared;
        let kind = Kind::ALL[self.random.random_range(0..Kind::ALL.len())];
        let (version, bytes) = (self.random.random_range(0..4), shared.objects.of(kind));
        let key = CacheKey::new([format!("{kind:?} {version}")]);
        let cached = shared.cache.get_or_compile(&key, || Ok::<_, Infallible>(bytes.to_vec()));
        let Ok(cached) = cached;
        let right = cached.bytes == bytes && cached.problems.is_empty();
        self.tally.expect(right, || format!("the cache has something else for {kind:?}: {:?}", cached.problems));
        Ok(())
    }

    /// Calls a function of a dylib with any number.
    fn check_node(&mut self, node: &Node, function: &Symbol<Function>, what: &str) {
        let x = self.seed();
        // SAFETY: of this type; the symbol keeps the code.
        let answer = unsafe { function(x) };
        self.tally.expect(answer == node.answer(x), || format!("{what}: {answer} instead of {}", node.answer(x)));
    }

    /// One of the dylibs' functions.
    fn any_node(&mut self) -> Option<Arc<Node>> {
        let at = self.random.random::<u32>() as usize;
        self.shared.dylibs.any(at)
    }

    fn call_in_dylib(&mut self) -> slabjit::Result<()> {
        let Some(node) = self.any_node() else { return Ok(()) };
        if let Some(function) = self.shared.dylibs.get(&node)? {
            self.check_node(&node, &function, "a call in a dylib");
        }
        Ok(())
    }

    fn request(&mut self) -> slabjit::Result<()> {
        let Some(node) = self.any_node() else { return Ok(()) };
        let Some(answer) = self.shared.dylibs.request(&node) else {
            self.tally.expect(false, || "a request was not answered".to_owned());
            return Ok(());
        };
        if let Some(function) = answer? {
            self.check_node(&node, &function, "a call of what was requested");
        }
        Ok(())
    }

    fn add_to_dylib(&mut self) -> slabjit::Result<()> {
        let needs = if self.random.random_bool(0.7) { self.any_node() } else { None };
        let (shared, lazily) = (self.shared, self.random.random_bool(0.1));
        let node = shared.dylibs.add(&shared.objects.for_dylibs, needs, lazily)?;
        if lazily && let Some(function) = shared.dylibs.get(&node)? {
            // Two threads are the first at once.
            let x = self.seed();
            // SAFETY: of this type; the symbol keeps the code.
            let call = || unsafe { function(x) };
            let (answer, here) = std::thread::scope(|scope| {
                let other = scope.spawn(call);
                let here = call();
                (other.join(), here)
            });
            let right = here == node.answer(x) && answer.is_ok_and(|answer| answer == here);
            self.tally.expect(right, || format!("the first calls of {}", node.answer(x)));
        }
        if let Some(old) = shared.dylibs.share(node) {
            shared.dylibs.remove(&old)?;
        }
        Ok(())
    }

    fn remove_from_dylib(&mut self) -> slabjit::Result<()> {
        let shared = self.shared;
        let Some(node) = shared.dylibs.take(self.random.random::<u32>() as usize) else { return Ok(()) };
        let found = if self.random.random_bool(0.5) { shared.dylibs.get(&node)? } else { None };
        let gone = shared.dylibs.remove(&node)?;
        self.tally.expect(gone, || "what was removed from a dylib is found".to_owned());
        if let Some(function) = found {
            self.check_node(&node, &function, "a call of what was removed from a dylib");
        }
        Ok(())
    }

    fn fail_in_dylib(&mut self) -> slabjit::Result<()> {
        let result = self.shared.dylibs.fail(&self.shared.objects.for_dylibs);
        let expected: fn(&Error) -> bool = |error| {
            let Error::Link(LinkError::SymbolFailed { cause, .. }) = error else { return false };
            matches!(cause.downcast_ref(), Some(Error::Link(LinkError::UndefinedSymbols { .. })))
        };
        self.tally.fails(result, expected, "a function of a dylib that lacks a symbol");
        Ok(())
    }

    /// A child calls what it inherited, loads, removes, and calls what is gone.
    fn fork(&mut self) -> slabjit::Result<()> {
        // Not in the child, where another thread may have a lock of this program.
        let (kept, node) = (self.found()?, self.any_node());
        let seed = self.seed();
        let child = {
            let _nobody_throws = self.shared.throws.write().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the child runs what follows, and ends without running anything of the parent's.
            unsafe { libc::fork() }
        };
        if child == 0 {
            // SAFETY: ends a child that hangs.
            unsafe { libc::alarm(60) };
            let right = catch_unwind(AssertUnwindSafe(|| {
                self.tally = Tally::default();
                if let Some(kept) = &kept {
                    self.check(*kept.sum, kept.seed, "a call in a child");
                }
                let loaded = self.shared.load(Kind::ThreadLocal, seed, None)?;
                // SAFETY: `kernel.c` has this function.
                let function = unsafe { loaded.library.get::<Sum>("sum")? };
                self.check(*function, seed, "a call of what a child loaded");
                drop(function);
                let removal = loaded.library.remove();
                self.tally.expect(removal == Removal::Freed, || format!("{removal:?} in a child"));
                self.call_stale()?;
                let own = self.shared.dylibs.add(&self.shared.objects.for_dylibs, None, false)?;
                for node in [Some(own), node].into_iter().flatten() {
                    if let Some(function) = self.shared.dylibs.get(&node)? {
                        self.check_node(&node, &function, "a call in a child's dylib");
                    }
                }
                Ok::<_, Error>(self.tally.wrong.is_empty())
            }));
            // SAFETY: the child's end.
            unsafe { libc::_exit(if matches!(right, Ok(Ok(true))) { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: a place for the status of our own child.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        self.tally
            .expect(child > 0 && waited == child && status == 0, || format!("a child ended with status {status:#x}"));
        Ok(())
    }
}
