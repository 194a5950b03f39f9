//! Dylibs that all threads add to, look up in and take from.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slabjit::ir::OptLevel;
use slabjit::orc::{Dylib, Tracker};
use slabjit::{Error, JitEngine, LibraryError, Symbol};

/// The type of all functions.
pub type Function = unsafe extern "C" fn(i32) -> i32;

/// Functions that all threads see.
const POOL: usize = 200;

/// Dylibs in a circle: each sees the next one's names.
pub struct Dylibs {
    circle: [Dylib; 3],
    nodes: Mutex<Vec<Arc<Node>>>,
    /// No name comes twice.
    next: AtomicU64,
}

/// A function `node_NNNNNNNN(x) == 3 * x + needed(x)`, or `+ 7`.
pub struct Node {
    name: String,
    dylib: usize,
    /// One of this dylib or of the next.
    needs: Option<Arc<Self>>,
    tracker: Mutex<Option<Tracker>>,
    /// Its tracker is being removed, or was.
    removed: AtomicBool,
}

impl Node {
    pub fn answer(&self, x: i32) -> i32 {
        let (mut sum, mut node) = (7_i32, Some(self));
        while let Some(this) = node {
            sum = sum.wrapping_add(x.wrapping_mul(3));
            node = this.needs.as_deref();
        }
        sum
    }

    /// Whether a look-up may fail, now.
    pub fn may_be_missing(&self) -> bool {
        let mut node = Some(self);
        while let Some(this) = node {
            if this.removed.load(Ordering::SeqCst) {
                return true;
            }
            node = this.needs.as_deref();
        }
        false
    }

    fn depth(&self) -> usize {
        std::iter::successors(Some(self), |node| node.needs.as_deref()).count()
    }
}

impl Dylibs {
    pub fn new(engine: &JitEngine) -> slabjit::Result<Self> {
        let jit = engine.orc().compile_threads(2).build()?;
        let circle = ["one", "two", "three"].map(|name| jit.dylib(name));
        for (i, dylib) in circle.iter().enumerate() {
            dylib.link(&circle[(i + 1) % circle.len()])?;
        }
        Ok(Self { circle, nodes: Mutex::default(), next: AtomicU64::new(0) })
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<Arc<Node>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of the pool.
    pub fn any(&self, at: usize) -> Option<Arc<Node>> {
        let nodes = self.nodes();
        (!nodes.is_empty()).then(|| Arc::clone(&nodes[at % nodes.len()]))
    }

    /// Takes one out of the pool.
    pub fn take(&self, at: usize) -> Option<Arc<Node>> {
        let mut nodes = self.nodes();
        let at = (!nodes.is_empty()).then(|| at % nodes.len())?;
        Some(nodes.swap_remove(at))
    }

    /// Adds a function: an object, which needs another function if that is given; or IR that is compiled when it is
    /// called, which has to be before anybody may remove it.
    pub fn add(&self, object: &Objects, needs: Option<Arc<Node>>, lazily: bool) -> slabjit::Result<Arc<Node>> {
        let needs = needs.filter(|node| !lazily && node.depth() < 20);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("node_{number:08}");
        // The dylib before sees it, too.
        let dylib = match &needs {
            None => number as usize % self.circle.len(),
            Some(node) => (node.dylib + self.circle.len() - number as usize % 2) % self.circle.len(),
        };
        let tracker = self.circle[dylib].tracker();
        if lazily {
            let text =
                format!("define i32 @{name}(i32 %x) {{\n %a = mul i32 %x, 3\n %b = add i32 %a, 7\n ret i32 %b\n}}");
            tracker.add_bitcode_lazily(&name, text, OptLevel::None)?;
        } else {
            tracker.add_object(object.named(&name, needs.as_ref().map(|node| node.name.as_str())))?;
        }
        let tracker = Mutex::new(Some(tracker));
        Ok(Arc::new(Node { name, dylib, needs, tracker, removed: AtomicBool::new(false) }))
    }

    /// Lets all threads see a function, and returns one that they are not to see any more.
    pub fn share(&self, node: Arc<Node>) -> Option<Arc<Node>> {
        let mut nodes = self.nodes();
        nodes.push(node);
        (nodes.len() > POOL).then(|| nodes.swap_remove(0))
    }

    /// Looks a function up; none where it, or what it needs, was removed meanwhile.
    pub fn get(&self, node: &Node) -> slabjit::Result<Option<Symbol<Function>>> {
        // SAFETY: of this type; there are no initialisers.
        let found = unsafe { self.circle[node.dylib].get::<Function>(&node.name) };
        found.map(Some).or_else(|error| if node.may_be_missing() { Ok(None) } else { Err(error) })
    }

    /// Does the same by a thread of the JIT's; none where it does not answer.
    pub fn request(&self, node: &Node) -> Option<slabjit::Result<Option<Symbol<Function>>>> {
        let (send, receive) = channel();
        // SAFETY: as above.
        unsafe {
            self.circle[node.dylib].request::<Function>(&node.name, move |found| {
                let _ = send.send(found);
            });
        }
        let found = receive.recv_timeout(Duration::from_secs(60)).ok()?;
        Some(found.map(Some).or_else(|error| if node.may_be_missing() { Ok(None) } else { Err(error) }))
    }

    /// Removes a function. Whether nobody finds it any more.
    pub fn remove(&self, node: &Node) -> slabjit::Result<bool> {
        node.removed.store(true, Ordering::SeqCst);
        let tracker = node.tracker.lock().unwrap_or_else(PoisonError::into_inner).take();
        tracker.map_or(Ok(()), Tracker::remove)?;
        // SAFETY: as above.
        let found = unsafe { self.circle[node.dylib].get::<Function>(&node.name) };
        Ok(matches!(found, Err(Error::Library(LibraryError::SymbolNotFound { .. }))))
    }

    /// An error that has to be: a function that needs what is nowhere.
    pub fn fail(&self, object: &Objects) -> slabjit::Result<Symbol<Function>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (name, dylib) = (format!("node_{number:08}"), &self.circle[number as usize % self.circle.len()]);
        let tracker = dylib.tracker();
        tracker.add_object(object.named(&name, Some("nowhere_00000")))?;
        // SAFETY: as above.
        let found = unsafe { dylib.get::<Function>(&name) };
        tracker.remove()?;
        found
    }

    /// Removes everything.
    pub fn clear(&self) -> slabjit::Result<()> {
        let nodes = std::mem::take(&mut *self.nodes());
        for node in nodes {
            self.remove(&node)?;
        }
        self.circle.iter().try_for_each(Dylib::clear)
    }
}

/// An object with a function, and one with a function that needs another.
pub struct Objects {
    alone: Vec<u8>,
    needs: Vec<u8>,
}

/// The names in them, of one length, as those in their place have.
const NAME: &str = "node_name____";
const NEEDED: &str = "node_needed__";

impl Objects {
    pub fn compile(
        compile: impl Fn(&str) -> Result<Vec<u8>, Box<dyn std::error::Error>>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let alone = compile(&format!("int {NAME}(int x) {{ return 3 * x + 7; }}"))?;
        let needs = compile(&format!("int {NEEDED}(int); int {NAME}(int x) {{ return 3 * x + {NEEDED}(x); }}"))?;
        Ok(Self { alone, needs })
    }

    fn named(&self, name: &str, needed: Option<&str>) -> Vec<u8> {
        let mut bytes = if needed.is_some() { self.needs.clone() } else { self.alone.clone() };
        let mut rename = |old: &str, new: &str| {
            let at: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(old.as_bytes())).collect();
            at.into_iter().for_each(|at| bytes[at..at + old.len()].copy_from_slice(new.as_bytes()));
        };
        rename(NAME, name);
        needed.into_iter().for_each(|needed| rename(NEEDED, needed));
        bytes
    }
}
