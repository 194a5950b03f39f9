//! For tests: whether JITLink writes the same bytes at the same addresses for a plain object.
#![allow(unsafe_code, reason = "memory for JITLink")]

use std::env;
use std::sync::OnceLock;

use slabjit_llvm_wrap as shim;

use crate::Result;
use crate::elf::relocations::Kind;
use crate::fork_guard::Mutex;
use crate::link::llvm::actions::Actions;
use crate::link::llvm::graph::{Asks, Batch, Graph};
use crate::link::llvm::link_host::{Answer, LinkHost};
use crate::link::plain::Plain;
use crate::link::reach::{Block, Edge};
use crate::live::resolve::linker_sets::Room;
use crate::memory::{Placed, Protection, SegmentRequest, WritableSlab};
use crate::name::Text;
use crate::{Error, LinkError};

/// Returns whether an object of this size is compared: up to `SLABJIT_COMPARE_GRAPHS` bytes are.
pub(in crate::link) fn is_wanted(bytes: usize) -> bool {
    static MOST: OnceLock<usize> = OnceLock::new();
    let most = MOST.get_or_init(|| env::var("SLABJIT_COMPARE_GRAPHS").ok().and_then(|n| n.parse().ok()).unwrap_or(0));
    bytes <= *most
}

/// Links an object once more, with JITLink, for the addresses that it has, and ends the process if anything differs.
/// `job` decides as before, and has linked nothing.
pub(in crate::link) fn compare<H: LinkHost>(job: &H, asks: Asks, plain: &Plain<'_>, slab: &mut WritableSlab) {
    let (requests, apart) = (plain.requests(), plain.apart());
    let longer = !apart.is_empty();
    let twin =
        Twin { job, requests: &requests, placements: slab.placements().to_vec(), longer, written: Mutex::default() };
    let graph = Graph::new(&job.name(), job.bytes()).map(|graph| graph.bind(&twin, asks));
    let batch = Batch::begin();
    let linked = graph.is_ok_and(|graph| batch.link(graph)) && batch.end();
    let written = twin.written.lock();
    let Some(theirs) = written.as_ref().filter(|_| linked) else { fail(&job.name(), "JITLink refuses it") };
    for (segment, request) in requests.iter().enumerate() {
        let size = slab.placements()[segment].size;
        let (Some(ours), Some(theirs)) = (slab.contents_mut(segment), theirs.get(segment)) else { continue };
        let theirs: Vec<u8> = theirs.iter().flat_map(|word| word.to_ne_bytes()).collect();
        // What lies behind contents may be JITLink's.
        let compared = if longer { plain.comparable(segment) } else { size };
        let is_apart = |at: usize| apart.iter().any(|(of, field)| *of == segment && (*field..field + 4).contains(&at));
        let is_padding =
            |at: usize| request.protection == Protection::ReadExecute && plain.is_between_sections(segment, at);
        let differs = |at: &usize| ours.get(*at) != theirs.get(*at) && !is_apart(*at) && !is_padding(*at);
        if let Some(at) = (0..compared).find(differs) {
            let (ours, theirs) = (ours.get(at..(at + 16).min(size)), theirs.get(at..at + 16));
            fail(&job.name(), &format!("{request:?} differs at {at:#x}: {ours:02x?}, JITLink writes {theirs:02x?}"));
        }
    }
}

fn fail(object: &str, what: &str) -> ! {
    eprintln!("{object}: linked without a graph: {what}");
    std::process::abort()
}

/// Has JITLink write elsewhere what belongs to the addresses of a slab.
struct Twin<'a, H> {
    job: &'a H,
    requests: &'a [SegmentRequest],
    placements: Vec<Placed>,
    longer: bool,
    /// The contents of the segments, in words for their alignment.
    written: Mutex<Option<Vec<Vec<u64>>>>,
}

impl<H: LinkHost> LinkHost for Twin<'_, H> {
    fn name(&self) -> Text<'_> {
        self.job.name()
    }

    fn bytes(&self) -> &[u8] {
        self.job.bytes()
    }

    fn external(&self, name: &str) -> Option<Answer<'_>> {
        self.job.external(name)
    }

    fn defined(&self, name: &str) -> Option<(usize, Option<Answer<'_>>)> {
        self.job.defined(name)
    }

    fn retain(&self, section: &str, offset: Option<u64>) -> u64 {
        self.job.retain(section, offset)
    }

    fn is_indirect(&self, name: &str, offset: u64) -> bool {
        self.job.is_indirect(name, offset)
    }

    fn may_leave(&self, section: &str) -> bool {
        self.job.may_leave(section)
    }

    fn place(&self, section: &str, offset: Option<u64>, size: u64, alignment: u64) -> Result<Room> {
        self.job.place(section, offset, size, alignment)
    }

    fn allocate(&self, segments: &[shim::slabjit_segment], addresses: &mut [u64], written: &mut [u64]) -> Result<()> {
        let told = |s: &shim::slabjit_segment| {
            (s.writable != 0, s.executable != 0, s.alignment, s.content_bytes, s.zero_fill_bytes)
        };
        let mut memory: Vec<Vec<u64>> = Vec::new();
        for (request, placed) in self.requests.iter().zip(&self.placements) {
            use crate::memory::Protection::{ReadExecute, ReadWrite};
            let (writable, executable) = (request.protection == ReadWrite, request.protection == ReadExecute);
            let wanted = (writable, executable, request.alignment, request.content_bytes, request.zero_fill_bytes);
            let same = segments.iter().position(|s| (s.writable != 0, s.executable != 0) == (writable, executable));
            let Some(same) = same.filter(|same| self.longer || told(&segments[*same]) == wanted) else {
                let theirs: Vec<_> = segments.iter().map(told).collect();
                fail(&self.name(), &format!("it has {wanted:?}, for JITLink {theirs:?}"));
            };
            let bytes = (segments[same].content_bytes + segments[same].zero_fill_bytes) as usize + 16;
            let mut words = vec![0_u64; bytes.max(placed.size + 16).div_ceil(8)];
            (addresses[same], written[same]) = (placed.address as u64, words.as_mut_ptr() as u64);
            memory.push(words);
        }
        if segments.len() != self.requests.len() && !self.longer {
            fail(&self.name(), &format!("it has {} segments, for JITLink {}", self.requests.len(), segments.len()));
        }
        // GOT entries, near the rest.
        for (address, written) in addresses.iter_mut().zip(written).filter(|(_, written)| **written == 0) {
            let mut words = vec![0_u64; 1 << 16];
            (*address, *written) =
                (self.placements.iter().map(|p| p.address as u64).max().unwrap_or(0), words.as_mut_ptr() as u64);
            memory.push(words);
        }
        *self.written.lock() = Some(memory);
        Ok(())
    }

    fn written(&self, _: u64) -> Option<usize> {
        None
    }

    unsafe fn publish(_: &[&Self]) -> Result<()> {
        Ok(())
    }

    fn commit(&self, _: Option<Actions>) {}

    unsafe fn abandon(&self) {}

    fn lifted(&self, origin: Option<u64>, edge: &shim::slabjit_edge) -> Option<&'static Kind> {
        self.job.lifted(origin, edge)
    }

    fn survey(
        &self,
        bytes: u64,
        executable: bool,
        content: &[u8],
        edges: impl Iterator<Item = (Edge<'static>, Option<&'static Kind>)>,
    ) {
        self.job.survey(bytes, executable, content, edges);
    }

    fn reserve(&self) -> [u64; 3] {
        self.job.reserve()
    }

    fn settle(&self, stubs: [(u64, usize); 3], contents: [usize; 3], got: u64) {
        self.job.settle(stubs, contents, got);
    }

    fn check(
        &self,
        block: Block<'_>,
        edges: &mut [shim::slabjit_edge],
        edge: impl Fn(&shim::slabjit_edge) -> Edge<'static>,
    ) {
        self.job.check(block, edges, edge);
    }

    fn checked(&self, write: impl Fn(usize, &[u8])) -> Result<()> {
        self.job.checked(write)
    }

    fn has_signal_frames(&self) -> bool {
        false
    }

    unsafe fn placed(&self, symbols: &[shim::slabjit_placed], blocks: &[shim::slabjit_placed], frames: u64) {
        // SAFETY: by the caller.
        unsafe { self.job.placed(symbols, blocks, frames) }
    }

    fn functions(&self, functions: &mut dyn Iterator<Item = (&str, u64, u64)>) {
        self.job.functions(functions);
    }

    fn located(&self, _: &mut dyn Iterator<Item = (&str, Option<u64>, u64)>) {}

    fn fail(&self, error: Error) {
        let message = match &error {
            Error::Link(LinkError::Failed { message, .. }) => message.clone(),
            other => other.to_string(),
        };
        fail(&self.name(), &message);
    }
}
