//! As much of an object as has to be known to give it its imports and to look at its memory. A reader of its own: what
//! is looked for here are mistakes of the crate's.

pub const SHT_NOBITS: u32 = 8;
const SHT_SYMTAB: u32 = 2;
const SHT_RELA: u32 = 4;
/// .init_array, .fini_array, .preinit_array.
const ARRAYS: std::ops::RangeInclusive<u32> = 14..=16;
const SHF_ALLOC: u64 = 2;
const SHN_UNDEF: u16 = 0;
const SHN_ABS: u16 = 0xfff1;
const STT_TLS: u8 = 6;
const STT_GNU_IFUNC: u8 = 10;

pub struct Object<'a> {
    pub sections: Vec<Section<'a>>,
    pub symbols: Vec<Symbol>,
}

pub struct Section<'a> {
    pub name: String,
    pub kind: u32,
    pub alloc: bool,
    pub size: u64,
    /// Empty for SHT_NOBITS.
    pub bytes: &'a [u8],
    pub relocations: Vec<Relocation>,
}

#[derive(Clone)]
pub struct Symbol {
    pub name: String,
    pub local: bool,
    pub kind: u8,
    pub weak: bool,
    pub hidden: bool,
    pub section: u16,
    pub value: u64,
}

#[derive(Clone, Copy)]
pub struct Relocation {
    pub offset: u64,
    pub kind: u32,
    pub symbol: u32,
    pub addend: i64,
}

impl Symbol {
    pub fn is_import(&self) -> bool {
        !self.local && self.section == SHN_UNDEF && !self.name.is_empty()
    }

    /// One that others can find.
    pub fn is_export(&self) -> bool {
        !self.local && self.section != SHN_UNDEF && !self.name.is_empty()
    }

    pub fn is_absolute(&self) -> bool {
        self.section == SHN_ABS
    }

    /// Has no address that is the same for every thread, or for every machine.
    pub fn is_special(&self) -> bool {
        matches!(self.kind, STT_TLS | STT_GNU_IFUNC)
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let field: [u8; N] = bytes.get(at..at.checked_add(N)?)?.try_into().ok()?;
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(&field);
    Some(u64::from_le_bytes(wide))
}

fn text(strings: &[u8], at: u64) -> Option<String> {
    let from = strings.get(usize::try_from(at).ok()?..)?;
    let end = from.iter().position(|b| *b == 0)?;
    Some(String::from_utf8_lossy(&from[..end]).into_owned())
}

struct Header {
    name: u64,
    kind: u32,
    flags: u64,
    offset: u64,
    size: u64,
    link: usize,
    info: usize,
}

impl<'a> Object<'a> {
    /// None for what is no well-formed 64-bit little-endian object: both sides get it as it is.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        if !bytes.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let table = usize::try_from(number::<8>(bytes, 0x28)?).ok()?;
        let (count, names) = (number::<2>(bytes, 0x3c)? as usize, number::<2>(bytes, 0x3e)? as usize);
        let header = |i: usize| -> Option<Header> {
            let at = table.checked_add(i.checked_mul(64)?)?;
            Some(Header {
                name: number::<4>(bytes, at)?,
                kind: number::<4>(bytes, at + 4)? as u32,
                flags: number::<8>(bytes, at + 8)?,
                offset: number::<8>(bytes, at + 24)?,
                size: number::<8>(bytes, at + 32)?,
                link: number::<4>(bytes, at + 40)? as usize,
                info: number::<4>(bytes, at + 44)? as usize,
            })
        };
        // More than 65279 sections are counted in the first header.
        let count = if count == 0 { usize::try_from(header(0)?.size).ok()? } else { count };
        let names = if names == 0xffff { header(0)?.link } else { names };
        let headers = (0..count).map(header).collect::<Option<Vec<_>>>()?;
        let contents = |h: &Header| -> Option<&'a [u8]> {
            if h.kind == SHT_NOBITS {
                return Some(&[]);
            }
            let start = usize::try_from(h.offset).ok()?;
            bytes.get(start..start.checked_add(usize::try_from(h.size).ok()?)?)
        };
        let names = contents(headers.get(names)?)?;
        let mut sections = Vec::new();
        for h in &headers {
            sections.push(Section {
                name: text(names, h.name)?,
                kind: h.kind,
                alloc: h.flags & SHF_ALLOC != 0,
                size: h.size,
                bytes: contents(h)?,
                relocations: Vec::new(),
            });
        }
        let mut symbols = Vec::new();
        for h in &headers {
            match h.kind {
                SHT_SYMTAB => symbols = read_symbols(contents(h)?, contents(headers.get(h.link)?)?)?,
                SHT_RELA => sections.get_mut(h.info)?.relocations.extend(read_relocations(contents(h)?)?),
                _ => {}
            }
        }
        Some(Self { sections, symbols })
    }

    /// Names to give. `_GLOBAL_OFFSET_TABLE_` is the linker's.
    pub fn imports(&self) -> impl Iterator<Item = &str> {
        self.symbols.iter().filter(|s| s.is_import() && s.name != "_GLOBAL_OFFSET_TABLE_").map(|s| s.name.as_str())
    }

    /// Those of them that are weak, and that no other module may define.
    pub fn nowhere(&self) -> impl Iterator<Item = &str> {
        self.symbols.iter().filter(|s| s.is_import() && s.hidden && s.weak).map(|s| s.name.as_str())
    }

    /// Those of them that another object of the same module is to define. What linkers define is theirs.
    pub fn hidden_imports(&self) -> impl Iterator<Item = &str> {
        let wanted = |s: &&Symbol| s.is_import() && s.hidden && !s.weak && s.kind != STT_TLS && !is_made(&s.name);
        self.symbols.iter().filter(wanted).map(|s| s.name.as_str())
    }

    /// Those of them that are thread-local variables.
    pub fn thread_local_imports(&self) -> impl Iterator<Item = &str> {
        self.symbols.iter().filter(|s| s.is_import() && s.kind == STT_TLS).map(|s| s.name.as_str())
    }

    /// The symbol to ask for; ORC links an object when one of its symbols is looked up, and never without.
    pub fn export(&self) -> Option<&Symbol> {
        let exports = || self.symbols.iter().filter(|s| s.is_export());
        exports().find(|s| !s.is_absolute()).or_else(|| exports().next())
    }

    /// Whether anything of it would run when it is initialised, or goes.
    pub fn runs_something(&self) -> bool {
        let names = [".ctors", ".dtors", ".init_array", ".fini_array", ".preinit_array"];
        let array = |s: &Section<'_>| ARRAYS.contains(&s.kind) || names.iter().any(|name| s.name.starts_with(name));
        self.sections.iter().any(array)
            || self.symbols.iter().any(|s| s.section != SHN_UNDEF && s.kind == STT_GNU_IFUNC)
    }
}

/// Whether a linker defines a name for a bound of the file.
pub fn is_bound(name: &str) -> bool {
    let of_aarch64 = ["__bss_start__", "_bss_end__", "__bss_end__", "__end__"];
    let bounds = ["_etext", "etext", "__etext", "_edata", "edata", "__bss_start", "_end", "end"];
    bounds.contains(&name) || cfg!(target_arch = "aarch64") && of_aarch64.contains(&name)
}

/// Whether the linker, or what it puts into each module, defines a name.
fn is_made(name: &str) -> bool {
    let of_module = [
        "_GLOBAL_OFFSET_TABLE_",
        "_DYNAMIC",
        "__ehdr_start",
        "__executable_start",
        "__dso_handle",
        "atexit",
        "at_quick_exit",
        "pthread_atfork",
    ];
    let of_array = |name: &str| name.ends_with("_array_start") || name.ends_with("_array_end");
    of_module.contains(&name)
        || is_bound(name)
        || name.starts_with("__start_")
        || name.starts_with("__stop_")
        || of_array(name)
}

fn read_symbols(table: &[u8], strings: &[u8]) -> Option<Vec<Symbol>> {
    let symbol = |at: usize| {
        let info = number::<1>(table, at + 4)? as u8;
        Some(Symbol {
            name: text(strings, number::<4>(table, at)?)?,
            local: info >> 4 == 0,
            kind: info & 15,
            weak: info >> 4 == 2,
            // STV_INTERNAL, STV_HIDDEN
            hidden: matches!(number::<1>(table, at + 5)? & 3, 1 | 2),
            section: number::<2>(table, at + 6)? as u16,
            value: number::<8>(table, at + 8)?,
        })
    };
    (0..table.len() / 24).map(|i| symbol(i * 24)).collect()
}

fn read_relocations(table: &[u8]) -> Option<Vec<Relocation>> {
    let relocation = |at: usize| {
        Some(Relocation {
            offset: number::<8>(table, at)?,
            kind: number::<4>(table, at + 8)? as u32,
            symbol: number::<4>(table, at + 12)? as u32,
            addend: number::<8>(table, at + 16)?.cast_signed(),
        })
    };
    (0..table.len() / 24).map(|i| relocation(i * 24)).collect()
}
