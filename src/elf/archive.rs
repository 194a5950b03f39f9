//! Static libraries: their symbol index and their members' bytes.

use std::borrow::Cow;
use std::ops::Range;

use hashbrown::HashMap;
use object::read::archive::{ArchiveFile, ArchiveMember};
use object::read::{ReadCache, ReadRef};

use crate::elf::elf_abi::{SHN_UNDEF, SHT_SYMTAB, STB_LOCAL, STT_FILE, STT_SECTION, Symbol};
use crate::elf::elf_view::{View, lossy, string_at};
use crate::read::Contents;
use crate::{Error, ObjectError, Result};

/// A member of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MemberId(u32);

impl MemberId {
    /// Returns its position in the archive.
    pub(crate) fn position(self) -> usize {
        self.0 as usize
    }
}

/// An archive whose members lie in its own bytes.
#[derive(Debug)]
pub(crate) struct Archive {
    contents: Contents,
    members: Vec<Member>,
    /// The names of its index, concatenated.
    names: String,
    /// Each name's range in `names`, and the member that defines it, in the order of the index.
    symbols: Vec<(Range<u32>, MemberId)>,
}

#[derive(Debug)]
struct Member {
    /// `libx.a(foo.o)`
    name: String,
    range: Range<usize>,
}

impl Archive {
    /// Reads the member headers and the symbol index. An archive without an index gets one from its members' symbols.
    pub(crate) fn parse(name: &str, contents: Contents) -> Result<Self> {
        let Ok(len) = usize::try_from(contents.len()) else { return Err(malformed(name, "it is too large".into())) };
        if len == 0 {
            return Err(Error::Object(ObjectError::Empty { object: name.into() }));
        }
        match &*contents.read(0..len.min(8))? {
            b"!<arch>\n" => {}
            b"!<thin>\n" => return Err(Error::Object(ObjectError::ThinArchive { archive: name.into() })),
            _ => return Err(Error::Object(ObjectError::NotAnArchive { archive: name.into() })),
        }
        let mut archive = Self { contents, members: Vec::new(), names: String::new(), symbols: Vec::new() };
        let mut index = Index { archive: name, len, members: Vec::new(), names: String::new(), symbols: Vec::new() };
        let indexed = match &archive.contents {
            Contents::Memory(bytes) => index.read(&**bytes)?,
            Contents::File(file) => index.read(&ReadCache::new(file.file()))?,
        };
        archive.members = std::mem::take(&mut index.members);
        if !indexed {
            index.scan(&archive)?;
        }
        let Index { mut names, mut symbols, .. } = index;
        names.shrink_to_fit();
        symbols.shrink_to_fit();
        Ok(Self { names, symbols, ..archive })
    }

    /// Returns a member's name, such as `libx.a(foo.o)`, and its bytes.
    ///
    /// # Errors
    /// [`Error::Io`] if the member lies in a file that was changed or cannot be read any more.
    pub(crate) fn member(&self, id: MemberId) -> Result<(&str, Cow<'_, [u8]>)> {
        let Some(member) = self.members.get(id.0 as usize) else { return Ok(("", Cow::Borrowed(&[]))) };
        Ok((&member.name, self.contents.read(member.range.clone())?))
    }

    /// Returns how many bytes a member has.
    pub(crate) fn member_bytes(&self, id: MemberId) -> usize {
        self.members.get(id.0 as usize).map_or(0, |member| member.range.len())
    }

    /// Returns the name and a copy of the bytes of each chosen member, as [`member`](Self::member) does.
    #[cfg(feature = "cli")]
    pub(crate) fn copies(&self, chosen: impl Fn(MemberId) -> bool) -> Result<Vec<(String, Vec<u8>)>> {
        let chosen = (0..self.members.len() as u32).map(MemberId).filter(|id| chosen(*id));
        chosen.map(|id| self.member(id).map(|(name, bytes)| (name.to_owned(), bytes.into_owned()))).collect()
    }

    /// Returns the number of members.
    pub(crate) fn members(&self) -> usize {
        self.members.len()
    }

    /// Returns the defined names and their members, in the order of the index. If a name occurs twice, the first entry
    /// counts, as with a linker.
    pub(crate) fn symbols(&self) -> impl ExactSizeIterator<Item = (&str, MemberId)> {
        self.symbols.iter().map(|(range, id)| (self.text(range), *id))
    }

    /// Returns the name at a position in the index.
    pub(crate) fn symbol(&self, position: u32) -> (&str, MemberId) {
        self.symbols.get(position as usize).map_or(("", MemberId(u32::MAX)), |(range, id)| (self.text(range), *id))
    }

    fn text(&self, range: &Range<u32>) -> &str {
        self.names.get(range.start as usize..range.end as usize).unwrap_or_default()
    }

    /// Returns the member that defines a name.
    #[cfg(test)]
    pub(crate) fn find(&self, symbol: &str) -> Option<MemberId> {
        self.symbols().find(|(name, _)| *name == symbol).map(|(_, id)| id)
    }
}

fn malformed(archive: &str, problem: String) -> Error {
    Error::Object(ObjectError::Malformed { object: archive.into(), section: None, offset: None, problem })
}

/// The most bytes of names that are read for each byte of the archive.
const MOST_SHARED: usize = 4;

/// The members and the index of an archive that is being read.
struct Index<'a> {
    archive: &'a str,
    len: usize,
    members: Vec<Member>,
    names: String,
    symbols: Vec<(Range<u32>, MemberId)>,
}

impl Index<'_> {
    /// Reads the member headers and the index; returns false if there is no index.
    fn read<'data>(&mut self, bytes: impl ReadRef<'data>) -> Result<bool> {
        let archive = self.archive;
        let malformed = |problem: String| malformed(archive, problem);
        let file =
            ArchiveFile::parse(bytes).map_err(|error| malformed(format!("the archive cannot be read: {error}")))?;
        let mut starts = HashMap::new();
        for member in file.members() {
            let member = member.map_err(|error| malformed(format!("an archive member cannot be read: {error}")))?;
            let id = u32::try_from(self.members.len()).map_err(|_| malformed("too many archive members".into()))?;
            let member = locate(archive, &member, self.len)?;
            starts.insert(member.range.start, MemberId(id));
            self.members.push(member);
        }
        let unreadable = |error| malformed(format!("the archive's symbol index cannot be read: {error}"));
        let Some(symbols) = file.symbols().map_err(unreadable)? else { return Ok(false) };
        // A member's names come one after the other.
        let mut last = None;
        for symbol in symbols {
            let symbol =
                symbol.map_err(|error| malformed(format!("the archive's symbol index is damaged: {error}")))?;
            let id = match last {
                Some((offset, id)) if offset == symbol.offset().0 => id,
                _ => {
                    let member = file.member(symbol.offset()).map_err(|error| {
                        malformed(format!("the archive's symbol index points to no member: {error}"))
                    })?;
                    let start = usize::try_from(member.file_range().0).unwrap_or(usize::MAX);
                    let inside = || malformed("the archive's symbol index points into a member".into());
                    starts.get(&start).copied().ok_or_else(inside)?
                }
            };
            last = Some((symbol.offset().0, id));
            self.note(symbol.name(), id)?;
        }
        Ok(true)
    }

    fn note(&mut self, name: &[u8], id: MemberId) -> Result<()> {
        // No accepted object has other names.
        let Ok(name) = std::str::from_utf8(name) else { return Ok(()) };
        let end = self.names.len().saturating_add(name.len());
        // Names may share their ends, but only so far.
        let end = u32::try_from(end).ok().filter(|_| end <= self.len.saturating_mul(MOST_SHARED));
        let end = end.ok_or_else(|| malformed(self.archive, "the names in its index overlap without end".into()))?;
        let range = self.names.len() as u32..end;
        self.names.push_str(name);
        self.symbols.push((range, id));
        Ok(())
    }

    /// Makes the index from the members. Members that are no ELF objects are skipped, as by a linker.
    fn scan(&mut self, archive: &Archive) -> Result<()> {
        for id in (0..archive.members.len() as u32).map(MemberId) {
            let (_, object) = archive.member(id)?;
            if !object.starts_with(b"\x7fELF") {
                continue;
            }
            let Ok(view) = View::parse("", &object, u64::MAX) else { continue };
            for (index, header) in view.sections().filter(|(_, header)| header.kind == SHT_SYMTAB) {
                let Some(strings) = view.header(header.link) else { continue };
                let Ok(strings) = view.contents(header.link, &strings) else { continue };
                let Ok(Some(symbols)) = view.symbols(index, &header) else { continue };
                for symbol in symbols.iter().map(Symbol::decode) {
                    let skip = symbol.binding == STB_LOCAL || symbol.shndx == SHN_UNDEF;
                    if skip || matches!(symbol.kind, STT_FILE | STT_SECTION) {
                        continue;
                    }
                    if let Some(name) = string_at(strings, symbol.name).filter(|name| !name.is_empty()) {
                        self.note(name, id)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn locate(archive: &str, member: &ArchiveMember<'_>, len: usize) -> Result<Member> {
    let (offset, size) = member.file_range();
    let name = format!("{archive}({})", lossy(member.name()));
    let end = offset.saturating_add(size);
    match (usize::try_from(offset), usize::try_from(end)) {
        (Ok(start), Ok(end)) if end <= len => Ok(Member { name, range: start..end }),
        _ => Err(Error::Object(ObjectError::Truncated {
            object: archive.into(),
            what: format!("member '{name}'"),
            offset,
            end,
            len: len as u64,
        })),
    }
}
