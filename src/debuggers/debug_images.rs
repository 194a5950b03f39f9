//! Debug information of loaded objects: kept for reports, or shown to debuggers, too.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use addr2line::Context;
use gimli::{Dwarf, EndianArcSlice, RunTimeEndian, SectionId};
use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, SectionHeader as _};

use super::jit_interface::Registered;
use crate::fork_guard::Mutex;

const LITTLE: LittleEndian = LittleEndian;

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
    /// The distance from addresses of the information to those in memory.
    distance: u64,
    bytes: Arc<[u8]>,
    /// Where the sections are in the bytes.
    sections: Vec<(SectionId, Range<usize>)>,
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
        let sections = sections_of(&image).unwrap_or_default();
        keep(Kept { code: code.clone(), distance: 0, bytes: Arc::clone(&image), sections, context: Mutex::new(None) });
        Self { code, _shown: shown.then(|| Registered::new(image)) }
    }

    /// Keeps what lines of a linked image need of its file. `distance`: from addresses of its code to those in memory.
    /// `None` if it has no debug information.
    pub(crate) fn of_image(code: Range<usize>, file: &[u8], distance: u64) -> Option<Self> {
        let (mut bytes, mut sections) = (Vec::new(), Vec::new());
        for (id, range) in sections_of(file)? {
            let start = bytes.len();
            // Sections that share bytes are no linker's.
            if start + range.len() <= file.len() {
                bytes.extend_from_slice(file.get(range).unwrap_or_default());
            }
            sections.push((id, start..bytes.len()));
        }
        if bytes.is_empty() {
            return None;
        }
        keep(Kept { code: code.clone(), distance, bytes: bytes.into(), sections, context: Mutex::new(None) });
        Some(Self { code, _shown: None })
    }
}

/// What lines need.
const FOR_LINES: [SectionId; 11] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugTypes,
];

/// Returns where a file has the sections that lines need, the first of each name. Names are compared where they begin:
/// none is looked through for its end.
fn sections_of(file: &[u8]) -> Option<Vec<(SectionId, Range<usize>)>> {
    let header = FileHeader64::<LittleEndian>::parse(file).ok()?;
    let headers = header.section_headers(LITTLE, file).ok()?;
    let names = headers.get(header.shstrndx(LITTLE, file).ok()? as usize)?.data(LITTLE, file).ok()?;
    let mut sections = Vec::with_capacity(FOR_LINES.len());
    for section in headers {
        let name = names.get(section.sh_name(LITTLE) as usize..).unwrap_or_default();
        let is_it = |id: &SectionId| name.strip_prefix(id.name().as_bytes()).is_some_and(|end| end.first() == Some(&0));
        let Some(id) = FOR_LINES.into_iter().find(is_it) else { continue };
        let (start, size) = section.file_range(LITTLE).unwrap_or_default();
        let range = start as usize..start.saturating_add(size) as usize;
        if file.get(range.clone()).is_some() && sections.iter().all(|(of, _)| *of != id) {
            sections.push((id, range));
        }
    }
    Some(sections)
}

fn keep(kept: Kept) {
    IMAGES.lock().insert(kept.code.start, Arc::new(kept));
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
        let mut frames = context.as_ref()?.find_frames(address.wrapping_sub(self.distance)).skip_all_loads().ok()?;
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
        let all = Bytes::new(Arc::clone(&self.bytes), RunTimeEndian::Little);
        Dwarf::load(|id: SectionId| {
            let section = self.sections.iter().find(|(section, _)| *section == id);
            Ok(all.range(section.map(|(_, range)| range.clone()).unwrap_or_default()))
        })
    }
}
