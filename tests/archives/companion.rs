//! What members import that no address could be given for is defined by another object: thread-local variables, and
//! names that are hidden, which an image has to have itself.

use std::collections::BTreeSet;
use std::process::Command;

use crate::elf::Object;
use crate::members::Archive;

/// An object with every thread-local variable that members of an archive import, 16 bytes each: few enough for the room
/// that the dynamic loader has left where code expects them at fixed offsets. Weak, as members define them too. None if
/// there are none.
pub fn thread_locals(archive: &Archive) -> Result<Option<Vec<u8>>, String> {
    let objects: Vec<_> = archive.members.iter().filter_map(|member| Object::parse(&member.bytes)).collect();
    let names: BTreeSet<&str> = objects.iter().flat_map(Object::thread_local_imports).collect();
    if names.is_empty() {
        return Ok(None);
    }
    let mut source = ".section .tbss,\"awT\",%nobits\n.balign 16\n".to_owned();
    for name in names {
        source += &format!(".weak {name}\n.type {name},%object\n.size {name},16\n{name}: .zero 16\n");
    }
    assemble(&source).map(Some)
}

/// Begins the names by which what is hidden can be asked for.
pub const SEEN: &str = "slabjit_seen.";

/// An object with every hidden name that members of an archive import, for images: 16 bytes each, weak, with another
/// name that begins with [`SEEN`]. None if there are none.
pub fn hidden(archive: &Archive) -> Result<Option<Vec<u8>>, String> {
    let objects: Vec<_> = archive.members.iter().filter_map(|member| Object::parse(&member.bytes)).collect();
    let names: BTreeSet<&str> = objects.iter().flat_map(Object::hidden_imports).collect();
    if names.is_empty() {
        return Ok(None);
    }
    let mut source = ".text\n.balign 16\n".to_owned();
    for name in names {
        source += &format!(".weak \"{name}\"\n.globl \"{SEEN}{name}\"\n\"{name}\":\n\"{SEEN}{name}\": .zero 16\n");
    }
    assemble(&source).map(Some)
}

/// An object that defines `small`: code with a call, data with an address, a frame.
pub fn small() -> Result<Vec<u8>, String> {
    let call = if cfg!(target_arch = "x86_64") { "call callee" } else { "bl callee" };
    assemble(&format!(
        ".text\n.globl small\nsmall: .cfi_startproc\n{call}\n.cfi_endproc\ncallee: .quad 0\n.data\n.balign 8\n.quad \
         small\n"
    ))
}

fn assemble(source: &str) -> Result<Vec<u8>, String> {
    let text = |e: std::io::Error| format!("cannot assemble: {e}");
    let folder = tempfile::tempdir().map_err(text)?;
    let (file, object) = (folder.path().join("companion.s"), folder.path().join("companion.o"));
    std::fs::write(&file, source).map_err(text)?;
    let assembler = std::env::var("SLABJIT_TEST_CROSS").map_or("gcc".into(), |cross| format!("{cross}-gcc"));
    let status = Command::new(assembler).arg("-c").arg(&file).arg("-o").arg(&object).status().map_err(text)?;
    if !status.success() {
        return Err(format!("the assembler ended with {status}"));
    }
    std::fs::read(object).map_err(text)
}
