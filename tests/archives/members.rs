//! Archives, read whole.

use crate::companion;
use object::read::archive::ArchiveFile;

/// An archive's members in their order.
pub struct Archive {
    /// Its file name.
    pub name: String,
    pub members: Vec<Member>,
    /// See [`companion`]; none where no member imports any.
    pub thread_locals: Option<Vec<u8>>,
    /// As well, for images.
    pub hidden: Option<Vec<u8>>,
}

pub struct Member {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// Reads an archive; symbol tables and tables of names are no members.
pub fn read(path: &str) -> Result<Archive, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("cannot read {path}: {e}"))?;
    let file = ArchiveFile::parse(&*bytes).map_err(|e| format!("{path}: {e}"))?;
    let mut members = Vec::new();
    for member in file.members() {
        let member = member.map_err(|e| format!("{path}: {e}"))?;
        let data = member.data(&*bytes).map_err(|e| format!("{path}: {e}"))?;
        members.push(Member { name: String::from_utf8_lossy(member.name()).into_owned(), bytes: data.to_owned() });
    }
    let name = std::path::Path::new(path).file_name().map_or(path.into(), |n| n.to_string_lossy());
    let mut archive = Archive { name: name.into_owned(), members, thread_locals: None, hidden: None };
    archive.thread_locals = companion::thread_locals(&archive)?;
    archive.hidden = companion::hidden(&archive)?;
    Ok(archive)
}
