//! The layer's objects: who owns them, and what ORC is told of them.
#![allow(unsafe_code, reason = "FFI to LLVM")]

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::sync::OnceCell;
use slabjit_llvm_wrap as shim;

use super::failures::Failures;
use super::given::Given;
use super::later::later;
use super::object::OrcObject;
use super::pool::Pool;
use super::readiness::{Number, Readiness, Settled};
use crate::fork_guard::{self, Guard, Mutex};
use crate::guarded::guarded;
use crate::link::llvm::shim_text::take_text;
use crate::live::context::Context;
use crate::live::lifetime::code_ref::Kept;
use crate::live::lifetime::cycles;
use crate::live::lifetime::init_lock::{Claim, InitLock};
use crate::live::lifetime::loaded_library::{CodeRef, LoadedLibrary};
use crate::live::linked::image::Image;
use crate::live::resolve::found::Found;
use crate::live::unwind::Frames;
use crate::out_of_range::OutOfRange;
use crate::{Error, LinkError, Result};

/// What has become of an object's references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Referred {
    /// What they lead to is held.
    Held,
    /// They are to be looked up again.
    Lost,
    /// They lead to an object that failed.
    Failed,
}

/// An object that ORC waits for. It is ready or fails once.
pub(super) struct Unit(*mut shim::slabjit_unit);

// SAFETY: ORC's responsibilities may be used from any thread.
unsafe impl Send for Unit {}

impl Unit {
    /// # Safety
    /// The unit is the caller's.
    pub(super) unsafe fn new(raw: *mut shim::slabjit_unit) -> Self {
        Self(raw)
    }

    fn waits_for_foreign(&self) -> bool {
        // SAFETY: neither ready nor failed.
        unsafe { shim::slabjit_unit_waits_for_foreign(self.0) != 0 }
    }

    /// Tells ORC that the object is ready, or will be with all that it refers to.
    fn ready(self, wait: bool) -> std::result::Result<(), String> {
        // SAFETY: neither ready nor failed; the text is taken once.
        unsafe { take_text(shim::slabjit_unit_ready(self.0, wait.into())) }.map_or(Ok(()), Err)
    }

    /// Tells its resource key, with the session locked, or that its tracker was removed.
    fn with_key<F: FnOnce(Option<usize>)>(&self, told: F) {
        unsafe extern "C" fn tell<F: FnOnce(Option<usize>)>(told: *mut c_void, key: usize) {
            // SAFETY: lent for this call.
            let told = unsafe { &mut *told.cast::<Option<F>>() };
            guarded((), || told.take().into_iter().for_each(|told| told(Some(key))));
        }
        let mut told = Some(told);
        // SAFETY: neither ready nor failed; the function is lent, as the one that is told it takes it.
        unsafe { shim::slabjit_unit_key(self.0, tell::<F>, (&raw mut told).cast()) };
        if let Some(told) = told {
            told(None);
        }
    }

    fn fail(self, why: &str) {
        // SAFETY: neither ready nor failed; the text is lent.
        unsafe { shim::slabjit_unit_fail(self.0, why.as_ptr().cast(), why.len()) }
    }
}

/// The objects of an LLJIT.
pub(in crate::link) struct Layer {
    pub(super) context: Arc<Context>,
    pub(super) policy: OutOfRange,
    /// Taken under the session's lock by some: nothing of LLVM's is called with it.
    state: Mutex<State>,
    /// What ORC has and has not emitted, by the addresses of their bytes.
    given: Mutex<HashMap<usize, Given>>,
    /// Runs what ORC compiles and links, in place of the thread that needs it.
    pub(super) pool: OnceCell<Arc<Pool>>,
    /// One thread at a time initialises objects. Another lock takes its place if that thread is lost in a fork.
    init_lock: Mutex<Arc<InitLock>>,
    /// Some of its code may be in circles.
    pub(super) has_stubs: AtomicBool,
    /// Its LLJIT is used by LLVM's C API.
    is_raw: bool,
}

#[derive(Default)]
struct State {
    next: Number,
    readiness: Readiness,
    objects: HashMap<Number, Object>,
    /// The addresses of objects: start, end, and whose they are.
    ranges: BTreeMap<usize, (usize, Number)>,
    /// The objects of each resource key.
    keys: HashMap<usize, Vec<Number>>,
    /// Ready objects of each dylib, in the order in which they became that: behind those that they refer to.
    ready: HashMap<usize, BTreeMap<u64, Number>>,
    /// Those of them that have not been initialised, of all dylibs; and their positions by dylib.
    uninitialised: BTreeMap<u64, Number>,
    uninitialised_of: BTreeSet<(usize, u64)>,
    /// The position of the next one.
    position: u64,
    /// The code at addresses that are not the layer's: it is kept for those that look them up later.
    outside: HashMap<usize, CodeRef>,
    broken: Vec<Broken>,
    /// Objects whose initialisers are running.
    initialising: Vec<(Number, Arc<LoadedLibrary>)>,
    failures: Failures,
    /// The code of objects that went while others that are not ready referred to them, and how many do.
    left: HashMap<Number, (CodeRef, usize)>,
    /// How often an object went.
    lost: u64,
}

/// An object from its materialisation until its tracker is removed.
#[derive(Default)]
struct Object {
    /// While ORC waits for it.
    unit: Option<Unit>,
    code: Option<CodeRef>,
    /// The objects that it refers to and that were not ready then, until it is ready.
    needs: Vec<Number>,
    /// How often others need it.
    needed: usize,
    /// ORC waits for what it refers to elsewhere.
    foreign: bool,
    key: Option<usize>,
    /// The starts of its addresses.
    starts: Vec<usize>,
    /// The address of ORC's dylib.
    dylib: usize,
    /// Its position among the ready objects.
    position: Option<u64>,
    /// It has initialisers, finalisers or exit handlers of its own.
    runs: bool,
    /// Its initialisers have run, or do.
    initialised: bool,
    /// Until it is linked or has failed.
    subject: Option<Given>,
}

/// An object whose initialiser has thrown. It does not keep the code.
#[derive(Clone)]
struct Broken {
    code: Arc<LoadedLibrary>,
    object: String,
    message: String,
}

impl Layer {
    pub(in crate::link) fn new(context: Arc<Context>, policy: OutOfRange, is_raw: bool) -> Arc<Self> {
        let init_lock = Mutex::new(Arc::new(InitLock::default()));
        let (state, given, pool) = (Mutex::default(), Mutex::default(), OnceCell::new());
        Arc::new(Self { context, policy, state, given, pool, init_lock, has_stubs: AtomicBool::new(false), is_raw })
    }

    fn state(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    /// Takes an object on.
    pub(super) fn begin(&self, unit: Unit, dylib: usize) -> Number {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.readiness.begin(number);
        state.objects.insert(number, Object { unit: Some(unit), dylib, ..Object::default() });
        number
    }

    /// Takes note of what ORC is about to have.
    pub(super) fn give(&self, given: &Given) {
        self.given.lock().insert(given.bytes().0.addr(), given.clone());
    }

    /// Returns what has these bytes, if ORC was given it.
    pub(super) fn given(&self, bytes: &[u8]) -> Option<Given> {
        self.given.lock().get(&bytes.as_ptr().addr()).cloned()
    }

    /// Forgets what ORC had. The session may be locked.
    pub(super) fn drop_given(&self, bytes: usize) {
        let given = self.given.lock().remove(&bytes);
        drop(given);
    }

    /// Says what an object is.
    pub(super) fn identify(&self, number: Number, subject: Given) {
        if let Some(object) = self.state().objects.get_mut(&number) {
            object.subject = Some(subject);
        }
    }

    /// Keeps the code at an address for all that will refer to it.
    pub(super) fn keep_outside(&self, address: usize, code: CodeRef) {
        let before = self.state().outside.insert(address, code);
        drop(before);
    }

    /// Returns the code at an address that a look-up has found; none if it is not the layer's.
    pub(super) fn owner(&self, address: usize) -> Option<CodeRef> {
        let state = self.state();
        let object = state.at(address).and_then(|number| state.objects.get(&number));
        object.and_then(|object| object.code.clone()).or_else(|| state.outside.get(&address).cloned())
    }

    /// Returns what was found.
    ///
    /// # Errors
    /// [`LinkError::InitializerFailed`](crate::LinkError::InitializerFailed) if an object that it needs could not be
    /// initialised.
    pub(super) fn check(&self, found: Found) -> Result<Found> {
        let broken = self.state().broken.clone();
        match broken.into_iter().find(|broken| found.code.code().keeps(&broken.code)) {
            Some(Broken { object, message, .. }) => Err(Error::Link(LinkError::InitializerFailed { object, message })),
            None => Ok(found),
        }
    }

    /// Returns why a name of a dylib has failed, if an object of the layer did.
    pub(super) fn failure(&self, dylib: usize, name: &str) -> Option<Arc<Error>> {
        self.state().failures.get(name, dylib).cloned()
    }

    /// Takes note of why a name could not be found.
    pub(super) fn note_failure(&self, dylib: usize, name: String, why: Arc<Error>) {
        self.state().failures.note(name, dylib, None, why);
    }

    /// Returns why something that an object refers to has failed.
    pub(super) fn failure_of_import(&self, number: Number) -> Option<Arc<Error>> {
        let state = self.state();
        let object = state.objects.get(&number)?;
        let Given::Prepared(prepared) = object.subject.as_ref()? else { return None };
        let index = &prepared.index;
        let why = |name| state.failures.seen_from(name, object.dylib).cloned();
        index.imports.iter().find_map(|import| why(index.name(import.name)))
    }

    pub(super) fn set_code(&self, number: Number, code: &CodeRef) {
        if let Some(object) = self.state().objects.get_mut(&number) {
            object.code = Some(code.clone());
        }
    }

    /// Takes note of an object's addresses, before ORC tells them to others.
    pub(super) fn place(&self, number: Number, ranges: Vec<Range<usize>>) {
        let mut state = self.state();
        if let Some(object) = state.objects.get_mut(&number) {
            object.starts = ranges.iter().map(|range| range.start).collect();
            state.ranges.extend(ranges.into_iter().map(|range| (range.start, (range.end, number))));
        }
    }

    /// Returns a number that changes when an object goes. Whoever looks up an address, and holds what is there, finds
    /// the same number before and after, or may hold what came later.
    pub(super) fn lost(&self) -> u64 {
        self.state().lost
    }

    /// Has an object's code keep what these addresses are in; `known` says which are in objects that ORC need not wait
    /// for. Does nothing if an object went since they were looked up, when [`lost`](Self::lost) was this.
    pub(super) fn refer(
        &self,
        number: Number,
        code: &CodeRef,
        addresses: &[u64],
        known: &mut [u8],
        lost: u64,
    ) -> Referred {
        let (mut needs, mut keeps) = (Vec::new(), Vec::new());
        let mut state = self.state();
        if state.lost != lost {
            return Referred::Lost;
        }
        for (address, known) in addresses.iter().zip(known) {
            let Some(other) = state.at(*address as usize) else {
                keeps.extend(state.outside.get(&(*address as usize)).cloned());
                continue;
            };
            // ORC is about to be told that it has failed.
            let Some(object) = state.objects.get(&other) else { return Referred::Failed };
            *known = (!object.foreign).into();
            if other == number {
                continue;
            }
            if state.readiness.is_open(other) {
                needs.push(other);
            } else {
                keeps.extend(object.code.clone());
            }
        }
        // Its tracker may have been removed.
        if state.objects.contains_key(&number) {
            state.readiness.need(number, needs.iter().copied());
            for need in &needs {
                state.objects.entry(*need).and_modify(|object| object.needed += 1);
            }
            state.objects.entry(number).and_modify(|object| object.needs = needs);
        }
        drop(state);
        code.keep(keeps);
        Referred::Held
    }

    /// Takes note of an object's resource key. The session is locked.
    pub(super) fn belong(&self, number: Number, key: usize) {
        let mut state = self.state();
        state.keys.entry(key).or_default().push(number);
        if let Some(object) = state.objects.get_mut(&number) {
            object.key = Some(key);
        }
    }

    /// Takes over a linked object, and tells ORC of all that are ready by it.
    pub(super) fn finish(&self, object: OrcObject) {
        let OrcObject { number, code, mut job, .. } = object;
        let stays = job.storage.as_ref().map_or(Ok(true), |storage| storage.settle());
        match stays {
            Ok(true) => {}
            Ok(false) => {
                let message = "another thread opened a shared object with such variables meanwhile".to_owned();
                let object = job.object.name.to_string();
                return self.fail(number, Error::Link(LinkError::ThreadLocalStorage { object, message, source: None }));
            }
            Err(error) => return self.fail(number, error),
        }
        let linked = std::mem::take(&mut job.state.get_mut().linked);
        // SAFETY: by JITLink, the section is terminated and published. The image drops its frames before the memory,
        // and then nobody holds the code.
        let frames = unsafe { Frames::register_all([Image::table(&linked)].into_iter()) }.pop().flatten();
        let (of_object, numbers) = (&job.object, (number, number));
        // SAFETY: it was linked from this object, and the frames are its own.
        let image = unsafe { Image::new(code.library(), of_object, numbers, Box::default(), (linked, frames)) };
        let runs = image.arrays.is_some() || code.code().handlers().is_some();
        code.add(vec![image]);
        let mut state = self.state();
        let foreign = state.objects.get(&number).and_then(|o| o.unit.as_ref()).is_some_and(Unit::waits_for_foreign);
        if let Some(object) = state.objects.get_mut(&number) {
            object.foreign = foreign;
            object.runs = runs;
        }
        let settled = state.readiness.linked(number);
        // Whoever is told that it is ready may remove it, and finds that nothing here holds it.
        self.settle(state, settled, None, (code, job));
    }

    /// Fails an object, and all that wait for it.
    pub(super) fn fail(&self, number: Number, error: impl Into<Arc<Error>>) {
        let mut state = self.state();
        let settled = state.readiness.fail(number);
        self.settle(state, settled, Some((number, error.into())), ());
    }

    /// Tells ORC what has become of objects, of which nobody has been told yet; `cause` is the one that failed, and
    /// why. What is `done` is dropped before that.
    fn settle<T>(&self, mut state: Guard<'_, State>, settled: Settled, cause: Option<(Number, Arc<Error>)>, done: T) {
        let Settled { ready, failed } = settled;
        let mut units = Vec::new();
        // Once one waits for what is not ours, those behind it have to.
        let mut wait = false;
        for (place, group) in ready.iter().enumerate() {
            state.unite(group);
            for number in group {
                let position = state.next_position();
                let Some(object) = state.objects.get_mut(number) else { continue };
                wait |= object.foreign;
                object.foreign |= wait;
                object.position = Some(position);
                object.subject = None;
                // Of many that are one owner, each would be looked for among all.
                object.initialised = !object.runs;
                let (dylib, runs) = (object.dylib, object.runs);
                let code = object.code.clone().filter(|_| runs);
                units.extend(object.unit.take().map(|unit| (place, *number, unit, code, wait)));
                state.ready.entry(dylib).or_default().insert(position, *number);
                if runs {
                    state.uninitialised.insert(position, *number);
                    state.uninitialised_of.insert((dylib, position));
                }
            }
        }
        let mut gone = Vec::new();
        // Until ORC knows, it tells their addresses.
        let mut failing = Vec::new();
        let dead = failed.iter().filter_map(|number| {
            let names = state.names_of(*number);
            let starts = state.objects.get_mut(number).map(|object| std::mem::take(&mut object.starts));
            failing.extend(starts.into_iter().flatten().map(|start| (start, *number)));
            Some((*number, state.forget(*number, &mut gone)?, names))
        });
        let dead: Vec<_> = dead.collect();
        drop(state);
        drop(done);
        // Before anybody is told.
        if let Some((_, why)) = &cause {
            for (_, unit, (dylib, names)) in &dead {
                unit.with_key(|key| {
                    let mut state = self.state();
                    names.iter().for_each(|name| state.failures.note(name.clone(), *dylib, key, Arc::clone(why)));
                });
            }
        }
        for (number, unit, _) in dead {
            match &cause {
                Some((failed, why)) if *failed == number => unit.fail(&why.to_string()),
                _ => unit.fail("an object refers to one that failed"),
            }
        }
        if !failing.is_empty() {
            let mut state = self.state();
            failing.into_iter().for_each(|(start, number)| state.leave(start, number));
        }
        // The resolvers of all run before anybody calls them. Groups lie behind those that they refer to.
        let mut broken = None;
        for (place, number, _, code, _) in &units {
            let resolve = |code: &CodeRef| {
                // SAFETY: all that the object reaches is linked, and nobody was told that it is ready.
                fork_guard::without(|| unsafe { code.resolve_indirect(&[*number]) })
            };
            let resolved = code.as_ref().map_or(Ok(()), resolve);
            if let Err((object, message)) = resolved {
                broken =
                    Some((*place, format!("the resolver of an indirect function in '{object}' failed: {message}")));
                break;
            }
        }
        // As above.
        let units: Vec<_> =
            units.into_iter().map(|(place, number, unit, _, wait)| (place, number, unit, wait)).collect();
        for (place, number, unit, wait) in units {
            let is_ready = match &broken {
                Some((from, message)) if place >= *from => {
                    unit.fail(message);
                    Err(message.clone())
                }
                _ => unit.ready(wait),
            };
            if let Err(message) = is_ready {
                tracing::debug!(target: "slabjit", message, "an object did not become ready");
                self.state().forget(number, &mut gone);
            }
        }
        // Finalisers may run.
        self.later(move || drop(gone));
    }

    /// Lets go of the objects of a resource key.
    pub(super) fn remove(&self, key: usize) {
        let mut gone = Vec::new();
        let mut waiting = Vec::new();
        let mut state = self.state();
        state.failures.remove(key);
        for number in state.keys.remove(&key).unwrap_or_default() {
            if state.readiness.is_open(number) {
                waiting.push(number);
            } else {
                state.forget(number, &mut gone);
            }
        }
        drop(state);
        for number in waiting {
            let message = "its tracker was removed".to_owned();
            self.fail(number, Error::Link(LinkError::Failed { object: "an object".to_owned(), message }));
        }
        // Without stubs, there are no circles.
        let has_stubs = self.has_stubs.load(Ordering::Relaxed);
        let removed = if has_stubs { gone.iter().map(|code| Arc::clone(code.code())).collect() } else { Vec::new() };
        self.later(move || {
            drop(gone);
            if has_stubs {
                cycles::end_removed(removed);
            }
        });
    }

    /// Does something without a lock. Those who have the LLJIT have nobody who would do it later.
    fn later(&self, work: impl FnOnce() + 'static) {
        if self.is_raw { fork_guard::without(work) } else { later(work) }
    }

    /// Runs the initialisers of objects that are ready, of one dylib or of all: behind those of what they refer to.
    ///
    /// # Errors
    /// [`LinkError::InitializerFailed`](crate::LinkError::InitializerFailed) for the first that throws; all others have
    /// run then, too.
    ///
    /// # Safety
    /// They may be run.
    pub(super) unsafe fn initialise(&self, dylib: Option<usize>) -> Result<()> {
        let mut lock;
        let _claim = loop {
            lock = Arc::clone(&self.init_lock.lock());
            lock.wait();
            match lock.claim() {
                Claim::Taken => {}
                // The other thread's initialiser waits for this thread's.
                Claim::Circular => return Ok(()),
                Claim::OursAlready => break None,
                Claim::Ours(claim) => break Some(claim),
                Claim::Lost => self.lose_initialisers(&lock),
            }
        };
        let mut result = Ok(());
        loop {
            let next = self.state().next_uninitialised(dylib);
            let Some((number, code)) = next else { return result };
            self.state().initialising.push((number, Arc::clone(code.code())));
            // SAFETY: by the caller; each is taken once.
            let outcome = unsafe { code.code().initialise(&[number]) };
            let mut state = self.state();
            state.initialising.retain(|(other, _)| *other != number);
            if let Err((object, message)) = outcome {
                let (object, code) = (object.to_string(), Arc::clone(code.code()));
                state.note_broken(Broken { code, object: object.clone(), message: message.clone() });
                result = result.and(Err(Error::Link(LinkError::InitializerFailed { object, message })));
            }
        }
    }

    /// Gives up the initialisers that another thread was running when this process was forked.
    fn lose_initialisers(&self, lock: &Arc<InitLock>) {
        let mut current = self.init_lock.lock();
        if !Arc::ptr_eq(&current, lock) {
            return;
        }
        *current = Arc::new(InitLock::default());
        let mut state = self.state();
        for (number, code) in std::mem::take(&mut state.initialising) {
            let message = "another thread was running it when this process was forked".to_owned();
            let object = code.object_name(number).map_or_else(String::new, |name| name.to_string());
            state.note_broken(Broken { code, object, message });
        }
    }

    /// Runs the finalisers of a dylib's initialised objects, and their exit handlers.
    ///
    /// # Safety
    /// Nobody uses the objects any more.
    pub(super) unsafe fn deinitialise(&self, dylib: usize) {
        let codes: Vec<CodeRef> = {
            let state = self.state();
            let ready = state.ready.get(&dylib).into_iter().flat_map(BTreeMap::values).rev();
            let initialised = ready.filter_map(|number| state.objects.get(number).filter(|object| object.initialised));
            initialised.filter_map(|object| object.code.clone()).collect()
        };
        for code in codes {
            // SAFETY: by the caller.
            unsafe { code.code().finalise() };
        }
    }

    /// Gives the objects of a key to another key. The session is locked.
    pub(super) fn transfer(&self, to: usize, from: usize) {
        let mut state = self.state();
        state.failures.transfer(to, from);
        let moved = state.keys.remove(&from).unwrap_or_default();
        for number in &moved {
            if let Some(object) = state.objects.get_mut(number) {
                object.key = Some(to);
            }
        }
        state.keys.entry(to).or_default().extend(moved);
    }
}

impl State {
    fn at(&self, address: usize) -> Option<Number> {
        let (_, (end, number)) = self.ranges.range(..=address).next_back()?;
        (address < *end).then_some(*number)
    }

    /// Takes the next object whose initialisers have not run.
    fn next_uninitialised(&mut self, dylib: Option<usize>) -> Option<(Number, CodeRef)> {
        loop {
            let position = match dylib {
                None => *self.uninitialised.first_key_value()?.0,
                Some(dylib) => self.uninitialised_of.range((dylib, 0)..=(dylib, u64::MAX)).next()?.1,
            };
            let number = self.uninitialised.remove(&position)?;
            let Some(object) = self.objects.get_mut(&number) else { continue };
            self.uninitialised_of.remove(&(object.dylib, position));
            object.initialised = true;
            if let Some(code) = object.code.clone() {
                return Some((number, code));
            }
        }
    }

    fn note_broken(&mut self, broken: Broken) {
        // They may be needed after their removal.
        self.broken.retain(|broken| !broken.code.life().is_gone());
        self.broken.push(broken);
    }

    /// Returns the names of an object that is not ready, and its dylib.
    fn names_of(&self, number: Number) -> (usize, Vec<String>) {
        let Some(object) = self.objects.get(&number) else { return (0, Vec::new()) };
        (object.dylib, object.subject.iter().flat_map(Given::names).map(str::to_owned).collect())
    }

    fn next_position(&mut self) -> u64 {
        self.position += 1;
        self.position
    }

    /// Has a group's code be kept together, and keep what the group refers to.
    fn unite(&mut self, group: &[Number]) {
        let Some(leader) = group.first().and_then(|first| self.objects.get(first)?.code.clone()) else { return };
        let members: HashSet<Number> = group.iter().copied().collect();
        for member in group {
            let Some(object) = self.objects.get_mut(member) else { continue };
            let needs = std::mem::take(&mut object.needs);
            if let Some(code) = object.code.replace(leader.clone()) {
                leader.adopt(code);
            }
            let keeps = needs.into_iter().filter_map(|need| Some((need, self.take_need(need)?)));
            leader.keep(keeps.filter(|(need, _)| !members.contains(need)).map(|(_, code)| code).collect());
        }
    }

    /// Returns the code of an object for one that needs it, which does that no longer.
    fn take_need(&mut self, number: Number) -> Option<CodeRef> {
        if let Some(object) = self.objects.get_mut(&number) {
            object.needed -= 1;
            return object.code.clone();
        }
        let (code, needed) = self.left.get_mut(&number)?;
        *needed -= 1;
        let (code, needed) = (code.clone(), *needed);
        if needed == 0 {
            self.left.remove(&number);
        }
        Some(code)
    }

    /// Forgets an object: `gone` gets its code, which is to be dropped without a lock.
    fn forget(&mut self, number: Number, gone: &mut Vec<CodeRef>) -> Option<Unit> {
        let object = self.objects.remove(&number)?;
        self.lost += 1;
        for need in object.needs {
            gone.extend(self.take_need(need));
        }
        if let Some(code) = object.code.clone().filter(|_| object.needed != 0) {
            self.left.insert(number, (code, object.needed));
        }
        gone.extend(object.code);
        if let Some(key) = object.key.and_then(|key| self.keys.get_mut(&key)) {
            key.retain(|other| *other != number);
        }
        if let Some(position) = object.position {
            self.uninitialised.remove(&position);
            self.uninitialised_of.remove(&(object.dylib, position));
        }
        if let (Some(position), Some(ready)) = (object.position, self.ready.get_mut(&object.dylib)) {
            ready.remove(&position);
            if ready.is_empty() {
                self.ready.remove(&object.dylib);
            }
        }
        for start in object.starts {
            self.leave(start, number);
        }
        object.unit
    }

    /// Forgets that an object has an address, which may be another's by now.
    fn leave(&mut self, start: usize, number: Number) {
        if self.ranges.get(&start).is_some_and(|(_, other)| *other == number) {
            self.ranges.remove(&start);
        }
    }
}
