//! Static libraries: which member defines a name, and the members' bytes.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use object::read::archive::{ArchiveFile, ArchiveMember};

use super::raw::{SHN_UNDEF, SHT_SYMTAB, STB_LOCAL, STT_FILE, STT_SECTION, Symbol};
use super::view::{View, lossy, string_at};
use crate::{Error, Result};

/// A member of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MemberId(u32);

/// An archive whose members lie in its own bytes.
#[derive(Debug)]
pub(crate) struct Archive {
    bytes: Arc<[u8]>,
    members: Vec<Member>,
    symbols: HashMap<Box<str>, MemberId>,
}

#[derive(Debug)]
struct Member {
    /// `libx.a(foo.o)`
    name: String,
    range: Range<usize>,
}

impl Archive {
    /// Reads the member headers and the symbol index; where there is no index, the members' own symbols.
    pub(crate) fn parse(name: &str, bytes: impl Into<Arc<[u8]>>) -> Result<Self> {
        let bytes: Arc<[u8]> = bytes.into();
        let malformed =
            |problem: String| Error::Malformed { object: name.into(), section: None, offset: None, problem };
        if bytes.is_empty() {
            return Err(Error::EmptyObject { object: name.into() });
        }
        if bytes.starts_with(b"!<thin>\n") {
            return Err(Error::ThinArchive { archive: name.into() });
        }
        if !bytes.starts_with(b"!<arch>\n") {
            return Err(Error::NotAnArchive { archive: name.into() });
        }
        let file =
            ArchiveFile::parse(&*bytes).map_err(|error| malformed(format!("the archive cannot be read: {error}")))?;
        let mut members = Vec::new();
        let mut offsets = HashMap::new();
        for member in file.members() {
            let member = member.map_err(|error| malformed(format!("an archive member cannot be read: {error}")))?;
            let id = MemberId(u32::try_from(members.len()).map_err(|_| malformed("too many archive members".into()))?);
            let member = locate(name, &member, bytes.len())?;
            offsets.insert(member.range.start, id);
            members.push(member);
        }
        let mut archive = Self { bytes: Arc::clone(&bytes), members, symbols: HashMap::new() };
        match file
            .symbols()
            .map_err(|error| malformed(format!("the archive's symbol index cannot be read: {error}")))?
        {
            Some(symbols) => {
                for symbol in symbols {
                    let symbol =
                        symbol.map_err(|error| malformed(format!("the archive's symbol index is damaged: {error}")))?;
                    let member = file.member(symbol.offset()).map_err(|error| {
                        malformed(format!("the archive's symbol index points to no member: {error}"))
                    })?;
                    let start = usize::try_from(member.file_range().0).unwrap_or(usize::MAX);
                    let Some(id) = offsets.get(&start) else {
                        return Err(malformed("the archive's symbol index points into a member".into()));
                    };
                    archive.note(symbol.name(), *id);
                }
            }
            None => archive.scan()?,
        }
        Ok(archive)
    }

    /// The member that defines a name. As with a linker, the first one in the index counts.
    pub(crate) fn find(&self, symbol: &str) -> Option<MemberId> {
        self.symbols.get(symbol).copied()
    }

    /// A member's name, such as `libx.a(foo.o)`, and bytes.
    pub(crate) fn member(&self, id: MemberId) -> (String, &[u8]) {
        let Some(member) = self.members.get(id.0 as usize) else { return (String::new(), &[]) };
        (member.name.clone(), self.bytes.get(member.range.clone()).unwrap_or_default())
    }

    /// All members: what [`member`](Self::member) has for each.
    #[cfg(feature = "cli")]
    pub(crate) fn into_members(self) -> Vec<(String, Vec<u8>)> {
        let bytes = |range: Range<usize>| self.bytes.get(range).unwrap_or_default().to_vec();
        self.members.into_iter().map(|member| (member.name, bytes(member.range))).collect()
    }

    /// All names that members define, in no order.
    #[cfg(test)]
    pub(crate) fn symbols(&self) -> impl Iterator<Item = (&str, MemberId)> {
        self.symbols.iter().map(|(name, id)| (&**name, *id))
    }

    fn note(&mut self, name: &[u8], id: MemberId) {
        // No object that is accepted has other names.
        let Ok(name) = std::str::from_utf8(name) else { return };
        if !self.symbols.contains_key(name) {
            self.symbols.insert(name.into(), id);
        }
    }

    /// Makes the index from the members; what is no ELF object is passed over, as a linker does.
    fn scan(&mut self) -> Result<()> {
        let bytes = Arc::clone(&self.bytes);
        let ranges: Vec<_> = self.members.iter().map(|member| member.range.clone()).collect();
        for (id, range) in (0..).zip(ranges) {
            let Some(object) = bytes.get(range).filter(|object| object.starts_with(b"\x7fELF")) else { continue };
            let Ok(view) = View::parse("", object, u64::MAX) else { continue };
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
                        self.note(name, MemberId(id));
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
        _ => Err(Error::Truncated {
            object: archive.into(),
            what: format!("member '{name}'"),
            offset,
            end,
            len: len as u64,
        }),
    }
}
