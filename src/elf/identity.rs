//! Recognition of the file format: accepts relocatable ELF objects for a supported machine, and names other formats.

use crate::elf::elf_abi::{EM_386, EM_AARCH64, EM_X86_64, HEADER_SIZE, SHT_SYMTAB, STT_COMMON, Symbol};
use crate::elf::elf_view::{View, string_at, truncated};
use crate::{Error, ObjectError, Result};

const BOTH: &str = "x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu";

/// Returns the name of a supported machine.
pub(crate) fn machine_name(machine: u16) -> &'static str {
    match machine {
        EM_X86_64 => "x86-64",
        EM_AARCH64 => "AArch64",
        _ => "x86-64 or AArch64",
    }
}

fn triple(machine: Option<u16>) -> &'static str {
    match machine {
        Some(EM_X86_64) => "x86_64-unknown-linux-gnu",
        Some(EM_AARCH64) => "aarch64-unknown-linux-gnu",
        _ => BOTH,
    }
}

/// File formats other than ELF, by their first bytes.
const MAGICS: [(&[u8], &str); 11] = [
    (b"MZ", "PE/COFF"),
    (b"\xfe\xed\xfa\xce", "Mach-O"),
    (b"\xfe\xed\xfa\xcf", "Mach-O"),
    (b"\xce\xfa\xed\xfe", "Mach-O"),
    (b"\xcf\xfa\xed\xfe", "Mach-O"),
    (b"\xca\xfe\xba\xbe", "Mach-O"),
    (b"\xca\xfe\xba\xbf", "Mach-O"),
    (b"\0asm", "WebAssembly"),
    (b"\x01\xdf", "XCOFF"),
    (b"\x01\xf7", "XCOFF"),
    (b"\0\0\xff\xff", "COFF"),
];

/// Names of machines that objects may plausibly be for.
const MACHINES: [(u16, &str); 22] = [
    (2, "SPARC"),
    (3, "i386"),
    (8, "MIPS"),
    (20, "PowerPC"),
    (21, "PowerPC64"),
    (22, "IBM S/390"),
    (40, "Arm"),
    (43, "SPARC64"),
    (50, "IA-64"),
    (62, "x86-64"),
    (83, "AVR"),
    (94, "Xtensa"),
    (164, "Hexagon"),
    (183, "AArch64"),
    (190, "NVIDIA CUDA"),
    (220, "Z80"),
    (224, "AMD GPU"),
    (243, "RISC-V"),
    (247, "BPF"),
    (251, "NEC VE"),
    (252, "C-SKY"),
    (258, "LoongArch"),
];

/// Returns the name of any machine.
pub(crate) fn machine_text(machine: u16) -> &'static str {
    MACHINES.iter().find(|(m, _)| *m == machine).map_or("an unknown machine", |(_, name)| name)
}

/// Checks the first bytes and the ELF identification. `machine` is the only accepted one; `None` accepts every
/// supported one.
pub(crate) fn identify(object: &str, bytes: &[u8], machine: Option<u16>) -> Result<()> {
    let name = || object.to_owned();
    if bytes.is_empty() {
        return Err(Error::Object(ObjectError::Empty { object: name() }));
    }
    if !bytes.starts_with(b"\x7fELF") {
        return Err(foreign(object, bytes, machine));
    }
    let (Some(ident), Some(fields)) = (bytes.get(..16), bytes.get(16..24)) else {
        return Err(truncated(object, "the ELF header", 0, HEADER_SIZE, bytes.len() as u64));
    };
    let (class, encoding) = (ident[4], ident[5]);
    let half = |at: usize| {
        let pair = [fields[at], fields[at + 1]];
        if encoding == 2 { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) }
    };
    let (kind, found) = (half(0), half(2));

    let malformed = |offset, problem: String| {
        Error::Object(ObjectError::Malformed { object: name(), section: None, offset: Some(offset), problem })
    };
    if !matches!(encoding, 1 | 2) {
        return Err(malformed(5, format!("data encoding {encoding} is unknown")));
    }
    if !matches!(class, 1 | 2) {
        return Err(malformed(4, format!("ELF class {class} is unknown")));
    }
    let supported = matches!(found, EM_X86_64 | EM_AARCH64) && machine.is_none_or(|m| m == found);
    // i386 is the 32-bit form of a supported machine, so the error is about the class.
    let narrow = found == EM_386 && machine.is_none_or(|m| m == EM_X86_64);
    if !supported && !narrow {
        let mut text = machine_text(found).to_owned();
        if encoding == 2 {
            text.push_str(" (big-endian)");
        }
        let expected = machine_name(machine.unwrap_or(0));
        return Err(Error::Object(ObjectError::WrongMachine { object: name(), found: text, machine: found, expected }));
    }
    if class == 1 {
        let machine = match found {
            EM_386 => "i386",
            EM_X86_64 => "x86-64 (x32)",
            _ => "AArch64 (ILP32)",
        };
        return Err(Error::Object(ObjectError::WrongClass { object: name(), machine: machine.into() }));
    }
    if encoding == 2 {
        let expected = if machine.is_some() { triple(machine) } else { triple(Some(found)) };
        return Err(Error::Object(ObjectError::WrongEncoding { object: name(), expected }));
    }
    if bytes.len() < HEADER_SIZE as usize {
        return Err(truncated(object, "the ELF header", 0, HEADER_SIZE, bytes.len() as u64));
    }
    if ident[6] != 1 {
        return Err(malformed(6, format!("ELF version {} is unknown", ident[6])));
    }
    // 0 is System V, 3 GNU/Linux (objects with unique symbols, indirect functions or retained sections).
    if !matches!(ident[7], 0 | 3) || ident[8] != 0 {
        return Err(Error::Object(ObjectError::WrongOsAbi { object: name(), abi: ident[7], version: ident[8] }));
    }
    let linked = |kind| Err(Error::Object(ObjectError::LinkedFileNotObject { object: name(), kind }));
    match kind {
        1 => Ok(()),
        2 => linked("executable"),
        3 => linked("shared object"),
        4 => linked("core file"),
        _ => Err(malformed(16, format!("file type {kind} is unknown"))),
    }
}

/// Names the format of a file that is not ELF.
fn foreign(object: &str, bytes: &[u8], machine: Option<u16>) -> Error {
    let name = object.to_owned();
    if bytes.starts_with(b"!<arch>\n") || bytes.starts_with(b"!<thin>\n") || bytes.starts_with(b"<bigaf>\n") {
        return Error::Object(ObjectError::ArchiveNotObject { object: name });
    }
    if bytes.starts_with(b"BC\xc0\xde") || bytes.starts_with(&0x0b17_c0de_u32.to_le_bytes()) {
        return Error::Object(ObjectError::BitcodeNotObject { object: name });
    }
    let format = if is_coff(bytes) {
        Some("COFF")
    } else {
        MAGICS.iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, format)| *format)
    };
    match format {
        Some(format) => Error::Object(ObjectError::ForeignFormat { object: name, format, expected: triple(machine) }),
        None => {
            Error::Object(ObjectError::NotAnObject { object: name, magic: bytes.iter().take(16).copied().collect() })
        }
    }
}

/// Recognises COFF, which has a machine but no magic number, by a plausible header.
fn is_coff(bytes: &[u8]) -> bool {
    let Some(header) = bytes.get(..20) else { return false };
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let symbols = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    matches!(half(0), 0x8664 | 0x014c | 0xaa64 | 0x01c4) && half(16) == 0 && symbols as usize <= bytes.len()
}

/// Refuses an object that holds GCC's intermediate code and no machine code.
pub(crate) fn refuse_slim_lto(view: &View<'_>) -> Result<()> {
    if view.has.lto && (!view.has.contents || has_slim_mark(view)?) {
        return Err(Error::Object(ObjectError::SlimLtoObject { object: view.object.into() }));
    }
    Ok(())
}

/// Returns whether the object has the common symbol with which GCC marks such objects.
fn has_slim_mark(view: &View<'_>) -> Result<bool> {
    let Some((index, header)) = view.sections().find(|(_, h)| h.kind == SHT_SYMTAB) else { return Ok(false) };
    let Some(strings) = view.header(header.link) else { return Ok(false) };
    let strings = view.contents(header.link, &strings)?;
    let symbols = view.symbols(index, &header)?.unwrap_or_default();
    Ok(symbols.iter().map(Symbol::decode).any(|symbol| {
        (symbol.is_common() || symbol.kind == STT_COMMON) && string_at(strings, symbol.name) == Some(b"__gnu_lto_slim")
    }))
}
