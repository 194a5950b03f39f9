//! Debug information of loaded objects: kept for reports, or shown to debuggers, too.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use addr2line::Context;
use gimli::{Dwarf, EndianArcSlice, RunTimeEndian, SectionId};
use object::{Object as _, ObjectSection as _};

use super::jit_interface::Registered;
use crate::fork_guard::Mutex;

type Bytes = EndianArcSlice<RunTimeEndian>;

/// Images of all engines, by the start of their code.
static IMAGES: Mutex<BTreeMap<usize, Arc<Kept>>> = Mutex::new(BTreeMap::new());

/// An object's debug information, which is found until this is dropped.
pub(crate) struct DebugImage {
    code: Range<usize>,
    _shown: Option<Registered<Arc<[u8]>>>,
}

struct Kept {
    code: Range<usize>,
    image: Arc<[u8]>,
    /// Made when a line is asked for: parsing takes milliseconds.
    context: Mutex<Option<Context<Bytes>>>,
}

/// A place in source code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) function: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
}

impl DebugImage {
    /// Keeps an image of an object with this code. With `shown`, debuggers have it, too.
    pub(crate) fn new(code: Range<usize>, image: Vec<u8>, shown: bool) -> Self {
        let image: Arc<[u8]> = image.into();
        let kept = Kept { code: code.clone(), image: Arc::clone(&image), context: Mutex::new(None) };
        IMAGES.lock().insert(code.start, Arc::new(kept));
        Self { code, _shown: shown.then(|| Registered::new(image)) }
    }
}

impl Drop for DebugImage {
    fn drop(&mut self) {
        IMAGES.lock().remove(&self.code.start);
    }
}

impl fmt::Debug for DebugImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DebugImage").field("code", &self.code).finish_non_exhaustive()
    }
}

/// Returns the lines of an address: that of the innermost inlined function first. None where it has none.
pub(crate) fn lines_of(address: usize) -> Vec<Line> {
    let kept = IMAGES.lock().range(..=address).next_back().map(|(_, kept)| Arc::clone(kept));
    kept.filter(|kept| kept.code.contains(&address)).and_then(|kept| kept.lines(address as u64)).unwrap_or_default()
}

impl Kept {
    fn lines(&self, address: u64) -> Option<Vec<Line>> {
        let mut context = self.context.lock();
        if context.is_none() {
            *context = Some(Context::from_dwarf(self.dwarf().ok()?).ok()?);
        }
        let mut frames = context.as_ref()?.find_frames(address).skip_all_loads().ok()?;
        let mut lines = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref().and_then(|function| function.raw_name().ok());
            let place = frame.location.as_ref();
            lines.push(Line {
                function: name.map(|name| name.into_owned()),
                file: place.and_then(|place| place.file).map(str::to_owned),
                line: place.and_then(|place| place.line),
                column: place.and_then(|place| place.column),
            });
        }
        Some(lines)
    }

    fn dwarf(&self) -> gimli::Result<Dwarf<Bytes>> {
        let file = object::File::parse(&*self.image).ok();
        let all = Bytes::new(Arc::clone(&self.image), RunTimeEndian::Little);
        Dwarf::load(|section: SectionId| {
            let range = file.as_ref().and_then(|file| file.section_by_name(section.name())?.file_range());
            let (start, size) = range.unwrap_or_default();
            Ok(all.range(start as usize..start.saturating_add(size) as usize))
        })
    }
}
