//! Whether linked memory is what the object and its ABI say, here and with stock, and that equally much of both was
//! looked at.
//!
//! Segments lie in another order with stock, so bytes cannot be compared with bytes where one refers to another.
//! Instead each side is read back: a section whose address is known (it holds a symbol that was found) must have the
//! object's own bytes wherever no relocation applies, and each field must mean the symbol it is for, by the formulas of
//! the x86-64 psABI and of AAELF64, directly or through a GOT entry or stub. Addresses of sections without such a
//! symbol follow from the fields that refer to them. What stock does not link is read back here alone.

use std::collections::{BTreeMap, VecDeque};

use slabjit::Library;

use crate::elf::{Object, Relocation, SHT_NOBITS};

/// How much was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verified {
    pub sections: usize,
    pub bytes: usize,
    pub fields: usize,
    /// Fields of kinds, or to symbols, that are not understood here.
    pub unread: usize,
}

impl std::ops::Add for Verified {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            sections: self.sections + other.sections,
            bytes: self.bytes + other.bytes,
            fields: self.fields + other.fields,
            unread: self.unread + other.unread,
        }
    }
}

/// Addresses of the symbols that can be asked for.
pub fn exported(object: &Object<'_>, library: &Library) -> BTreeMap<String, u64> {
    let wanted = object.symbols.iter().filter(|s| s.is_export() && !s.is_absolute() && !s.is_special());
    let address = |name: &str| {
        // SAFETY: nothing is read through it as anything but bytes; there are no initialisers.
        unsafe { library.get::<*const u8>(name) }.ok().map(|symbol| symbol.address() as u64)
    };
    wanted.filter_map(|s| Some((s.name.clone(), address(&s.name)?))).collect()
}

/// # Errors
/// What is wrong, in words.
pub fn compare(
    object: &Object<'_>,
    imports: &BTreeMap<String, usize>,
    ours: &BTreeMap<String, u64>,
    stock: &BTreeMap<String, u64>,
) -> Result<Verified, String> {
    let of = |side: &str, symbols| verify(object, imports, symbols).map_err(|e| format!("{side}: {e}"));
    let stock = of("stock", stock)?;
    let ours = of("ours", ours)?;
    if ours == stock { Ok(ours) } else { Err(format!("ours shows {ours:?}, stock {stock:?}")) }
}

/// One side.
///
/// # Errors
/// What is wrong, in words.
pub fn verify(
    object: &Object<'_>,
    imports: &BTreeMap<String, usize>,
    symbols: &BTreeMap<String, u64>,
) -> Result<Verified, String> {
    Side::new(object, imports, symbols).verify()
}

pub fn encode(contents: &Result<Verified, String>) -> String {
    match contents {
        Ok(v) => format!("{} {} {} {}", v.sections, v.bytes, v.fields, v.unread),
        Err(message) => format!("!{}", message.replace('\n', " | ")),
    }
}

/// What [`encode`] wrote; none for nothing.
pub fn decode(text: &str) -> Option<Result<Verified, String>> {
    if let Some(message) = text.strip_prefix('!') {
        return Some(Err(message.to_owned()));
    }
    let numbers: Vec<usize> = text.split(' ').map_while(|n| n.parse().ok()).collect();
    let [sections, bytes, fields, unread] = numbers.try_into().ok()?;
    Some(Ok(Verified { sections, bytes, fields, unread }))
}

/// What a field says.
enum Meaning {
    /// The symbol's address.
    Address(u64),
    /// The symbol's address, or that of a stub that leads to it.
    Branch(u64),
    /// A part of the symbol's address with the addend, or of its GOT entry's address. Instructions with the same symbol
    /// and addend make one address together.
    #[cfg_attr(target_arch = "x86_64", expect(dead_code, reason = "x86-64 has no such relocations"))]
    Half {
        through_got: bool,
        half: Half,
        value: u64,
    },
    Unread,
}

/// Which bits of an address: those from 12 on, or those below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Half {
    Page,
    InPage,
}

impl Half {
    fn of(self, address: u64) -> u64 {
        match self {
            Self::Page => address & !0xfff,
            Self::InPage => address & 0xfff,
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Page => Self::InPage,
            Self::InPage => Self::Page,
        }
    }
}

/// Where a symbol should be.
#[derive(Clone, Copy)]
enum Place {
    At(u64),
    /// In a section whose address is not known yet, this far from its start.
    Within(usize, u64),
    Unknown,
}

struct Side<'a> {
    object: &'a Object<'a>,
    imports: &'a BTreeMap<String, usize>,
    symbols: &'a BTreeMap<String, u64>,
    bases: Vec<Option<u64>>,
    queue: VecDeque<usize>,
    /// Fields that cannot tell where their section is: (section, relocation).
    later: Vec<(usize, Relocation)>,
    /// Halves of addresses by symbol, addend, whether it is the GOT entry's, and which half.
    halves: BTreeMap<(u32, i64, bool, Half), u64>,
    verified: Verified,
}

impl<'a> Side<'a> {
    fn new(object: &'a Object<'a>, imports: &'a BTreeMap<String, usize>, symbols: &'a BTreeMap<String, u64>) -> Self {
        let bases = vec![None; object.sections.len()];
        Self {
            object,
            imports,
            symbols,
            bases,
            queue: VecDeque::new(),
            later: Vec::new(),
            halves: BTreeMap::new(),
            verified: Verified::default(),
        }
    }

    fn verify(mut self) -> Result<Verified, String> {
        for symbol in self.object.symbols.iter().filter(|s| s.is_export() && !s.is_special()) {
            let Some(address) = self.symbols.get(&symbol.name) else { continue };
            if let Some(section) = self.alloc_section(symbol.section) {
                self.found(section, address.wrapping_sub(symbol.value), &symbol.name)?;
            }
        }
        while let Some(section) = self.queue.pop_front() {
            self.section(section)?;
        }
        for (section, relocation) in std::mem::take(&mut self.later) {
            self.field(section, relocation, true)?;
        }
        // These may have shown more.
        if self.queue.is_empty() { Ok(self.verified) } else { Err("a section was found late".into()) }
    }

    fn alloc_section(&self, index: u16) -> Option<usize> {
        let index = usize::from(index);
        self.object.sections.get(index).filter(|s| s.alloc && index != 0).map(|_| index)
    }

    fn found(&mut self, section: usize, base: u64, by: &str) -> Result<(), String> {
        let name = &self.object.sections[section].name;
        match self.bases[section] {
            Some(known) if known == base => {}
            Some(known) => return Err(format!("{name} is at {known:#x}, and by '{by}' at {base:#x}")),
            None if base == 0 => return Err(format!("{name} is nowhere, by '{by}'")),
            None => {
                self.bases[section] = Some(base);
                self.queue.push_back(section);
            }
        }
        Ok(())
    }

    fn section(&mut self, index: usize) -> Result<(), String> {
        let object = self.object;
        let section = &object.sections[index];
        let Some(base) = self.bases[index] else { return Ok(()) };
        let size = section.size as usize;
        let mut covered = vec![false; size];
        for relocation in &section.relocations {
            let (before, after) = extent(relocation.kind);
            let at = relocation.offset as usize;
            let (from, to) = (at.saturating_sub(before).min(size), at.saturating_add(after).min(size));
            covered[from..to].fill(true);
            self.field(index, *relocation, false)?;
        }
        for (i, _) in covered.iter().enumerate().filter(|(_, covered)| !**covered) {
            let expected = if section.kind == SHT_NOBITS { 0 } else { section.bytes[i] };
            let [found] = read::<1>(base + i as u64);
            if found != expected {
                return Err(format!("{}+{i:#x} is {found:#04x}, the object has {expected:#04x}", section.name));
            }
            self.verified.bytes += 1;
        }
        self.verified.sections += 1;
        Ok(())
    }

    /// Where the symbol should be, as far as is known.
    fn place(&self, index: u32) -> Place {
        const COMMON: u16 = 0xfff2;
        let Some(symbol) = self.object.symbols.get(index as usize) else { return Place::Unknown };
        if symbol.is_special() {
            return Place::Unknown;
        }
        if symbol.is_import() || symbol.section == COMMON {
            // What JITLink defines itself.
            if symbol.name.starts_with("__start_") || symbol.name.starts_with("__stop_") {
                return Place::Unknown;
            }
            let import = || self.imports.get(&symbol.name).map(|a| *a as u64);
            return self.symbols.get(&symbol.name).copied().or_else(import).map_or(Place::Unknown, Place::At);
        }
        match (self.alloc_section(symbol.section), symbol.is_absolute()) {
            (_, true) => Place::At(symbol.value),
            (None, false) => Place::Unknown,
            (Some(section), false) => match self.bases[section] {
                Some(base) => Place::At(base.wrapping_add(symbol.value)),
                None => Place::Within(section, symbol.value),
            },
        }
    }

    fn field(&mut self, section: usize, r: Relocation, last_chance: bool) -> Result<(), String> {
        let object = self.object;
        let Some(base) = self.bases[section] else { return Ok(()) };
        let (p, a) = (base + r.offset, r.addend.cast_unsigned());
        let of = &object.sections[section];
        let name = object.symbols.get(r.symbol as usize).map_or("", |s| &s.name);
        let wrong = |found: u64, expected: u64| {
            let (name, of) = (if name.is_empty() { "a section" } else { name }, &of.name);
            Err(format!("{of}+{:#x}: relocation {} to {name} means {found:#x}, not {expected:#x}", r.offset, r.kind))
        };
        let meaning = meaning(p, a, r.kind, of.bytes.get(..r.offset as usize).unwrap_or_default())
            .map_err(|e| format!("{}+{:#x}: {e}", of.name, r.offset))?;
        let place = self.place(r.symbol);
        let meaning = match (meaning, place) {
            (Meaning::Half { through_got, half, value }, _) => {
                let key = |half| (r.symbol, r.addend, through_got, half);
                let known = *self.halves.entry(key(half)).or_insert(value);
                if known != value {
                    return wrong(value, known);
                }
                match (self.halves.get(&key(half.other())), place) {
                    (Some(other), _) => {
                        let address = value | other;
                        Meaning::Address(if through_got { u64_at(address) } else { address }.wrapping_sub(a))
                    }
                    (None, Place::At(s)) if !through_got && half.of(s.wrapping_add(a)) != value => {
                        return wrong(value, half.of(s.wrapping_add(a)));
                    }
                    (None, _) => Meaning::Half { through_got, half, value },
                }
            }
            (meaning, _) => meaning,
        };
        match (meaning, place) {
            (Meaning::Unread, _) | (_, Place::Unknown) => {
                self.verified.unread += 1;
                return Ok(());
            }
            (Meaning::Address(s), Place::Within(target, value)) => self.found(target, s.wrapping_sub(value), name)?,
            (Meaning::Half { through_got: false, .. }, Place::At(_)) => {}
            (_, Place::Within(..)) | (Meaning::Half { .. }, _) if last_chance => {
                self.verified.unread += 1;
                return Ok(());
            }
            (_, Place::Within(..)) | (Meaning::Half { .. }, _) => {
                self.later.push((section, r));
                return Ok(());
            }
            (Meaning::Address(s), Place::At(expected)) if s != expected => return wrong(s, expected),
            (Meaning::Branch(s), Place::At(expected)) if s != expected => {
                // The stub is entered at its start, so an addend for the instruction's length is all there can be.
                let through = stub(s);
                if through != Some(expected) {
                    return wrong(through.unwrap_or(s), expected);
                }
            }
            _ => {}
        }
        self.verified.fields += 1;
        Ok(())
    }
}

fn read<const N: usize>(address: u64) -> [u8; N] {
    let pointer = std::ptr::with_exposed_provenance::<[u8; N]>(address as usize);
    // SAFETY: linked memory, if linking is right; if it is not, this process ends here, and its parent says so.
    unsafe { pointer.read_volatile() }
}

fn u64_at(address: u64) -> u64 {
    u64::from_le_bytes(read(address))
}

fn u32_at(address: u64) -> u64 {
    u64::from(u32::from_le_bytes(read(address)))
}

/// Sign-extended.
fn i32_at(address: u64) -> u64 {
    i64::from(i32::from_le_bytes(read(address))).cast_unsigned()
}

/// Bytes before and from the relocation's offset on that it may change.
#[cfg(target_arch = "x86_64")]
fn extent(kind: u32) -> (usize, usize) {
    match kind {
        2 | 4 | 10 | 11 => (0, 4),
        // The instruction's opcode too.
        9 | 41 | 42 => (2, 4),
        // TLS sequences, and 8 bytes.
        _ => (0, 8),
    }
}

/// x86-64 psABI, "Relocation Types" and "Optimize GOTPCRELX Relocations". `before`: the object's bytes before the
/// field.
#[cfg(target_arch = "x86_64")]
fn meaning(p: u64, a: u64, kind: u32, before: &[u8]) -> Result<Meaning, String> {
    let relative = || p.wrapping_add(i32_at(p)).wrapping_sub(a);
    Ok(match kind {
        1 => Meaning::Address(u64_at(p).wrapping_sub(a)),  // R_X86_64_64
        2 => Meaning::Address(relative()),                 // PC32
        4 => Meaning::Branch(relative()),                  // PLT32
        10 => Meaning::Address(u32_at(p).wrapping_sub(a)), // 32
        11 => Meaning::Address(i32_at(p).wrapping_sub(a)), // 32S
        24 => Meaning::Address(p.wrapping_add(u64_at(p)).wrapping_sub(a)), // PC64
        // GOTPCREL, GOTPCRELX, REX_GOTPCRELX
        9 | 41 | 42 => {
            let [.., opcode, operand] = *before else { return Ok(Meaning::Unread) };
            match (opcode, operand, read::<2>(p - 2)) {
                (_, _, [o, r]) if (o, r) == (opcode, operand) => Meaning::Address(u64_at(relative())),
                // mov → lea, call *x → addr32 call x, jmp *x → jmp x; nop
                (0x8b, r, [0x8d, now]) if r == now => Meaning::Address(relative()),
                (0xff, 0x15, [0x67, 0xe8]) => Meaning::Branch(relative()),
                (0xff, 0x25, [0xe9, _]) => Meaning::Branch((p + 3).wrapping_add(i32_at(p - 1))),
                (_, _, now) => return Err(format!("the instruction {opcode:02x} {operand:02x} became {now:02x?}")),
            }
        }
        _ => Meaning::Unread,
    })
}

/// `jmp *slot(%rip)`, perhaps behind `endbr64`.
#[cfg(target_arch = "x86_64")]
fn stub(address: u64) -> Option<u64> {
    let address = if read(address) == [0xf3, 0x0f, 0x1e, 0xfa] { address + 4 } else { address };
    (read(address) == [0xff, 0x25]).then(|| u64_at((address + 6).wrapping_add(i32_at(address + 2))))
}

#[cfg(target_arch = "aarch64")]
fn extent(kind: u32) -> (usize, usize) {
    match kind {
        257 | 260 => (0, 8),
        _ => (0, 4),
    }
}

/// AAELF64, "Relocation types".
#[cfg(target_arch = "aarch64")]
fn meaning(p: u64, a: u64, kind: u32, _before: &[u8]) -> Result<Meaning, String> {
    let half = |through_got, half, value| Meaning::Half { through_got, half, value };
    // The field has no room for bits below the scale; the ABI wants them to be 0.
    let in_page = |scale: u32| half(false, Half::InPage, (u32_at(p) >> 10 & 0xfff) << scale);
    let is = |mask: u64, instruction: u64, what: Meaning| {
        let found = u32_at(p);
        if found & mask == instruction { Ok(what) } else { Err(format!("the instruction became {found:08x}")) }
    };
    let adrp = |through_got| is(0x9f00_0000, 0x9000_0000, half(through_got, Half::Page, page(p)));
    let relative = |at: u64, bits: u32| {
        let words = (u32_at(p) << (64 - bits - at as u32)).cast_signed() >> (64 - bits);
        p.wrapping_add((words * 4).cast_unsigned()).wrapping_sub(a)
    };
    Ok(match kind {
        257 => Meaning::Address(u64_at(p).wrapping_sub(a)), // R_AARCH64_ABS64
        258 => Meaning::Address(u32_at(p).wrapping_sub(a)), // ABS32
        260 => Meaning::Address(p.wrapping_add(u64_at(p)).wrapping_sub(a)), // PREL64
        261 => Meaning::Address(p.wrapping_add(i32_at(p)).wrapping_sub(a)), // PREL32
        273 => Meaning::Address(relative(5, 19)),           // LD_PREL_LO19
        274 => Meaning::Address(p.wrapping_add(adr(p).cast_unsigned()).wrapping_sub(a)), // ADR_PREL_LO21
        275 | 276 => adrp(false)?,                          // ADR_PREL_PG_HI21(_NC)
        277 | 278 => in_page(0),                            // ADD_ABS_LO12_NC, LDST8_ABS_LO12_NC
        279 => Meaning::Branch(relative(5, 14)),            // TSTBR14
        280 => Meaning::Branch(relative(5, 19)),            // CONDBR19
        282 | 283 => Meaning::Branch(relative(0, 26)),      // JUMP26, CALL26
        284 => in_page(1),                                  // LDST16
        285 => in_page(2),                                  // LDST32
        286 => in_page(3),                                  // LDST64
        299 => in_page(4),                                  // LDST128
        311 => adrp(true)?,                                 // ADR_GOT_PAGE
        // LD64_GOT_LO12_NC
        312 => is(0xffc0_0000, 0xf940_0000, half(true, Half::InPage, (u32_at(p) >> 10 & 0xfff) << 3))?,
        _ => Meaning::Unread,
    })
}

/// The number in `adr` or `adrp` at an address.
#[cfg(target_arch = "aarch64")]
fn adr(p: u64) -> i64 {
    let word = u32_at(p);
    (((word >> 5 & 0x7ffff) << 2 | word >> 29 & 3) << 43).cast_signed() >> 43
}

/// The page that `adrp` at an address takes.
#[cfg(target_arch = "aarch64")]
fn page(p: u64) -> u64 {
    (p & !0xfff).wrapping_add((adr(p) << 12).cast_unsigned())
}

/// `adrp x16, slot; ldr x16, [x16, :lo12:slot]; br x16`, or the same by x17 behind `bti c`, or `ldr x16, slot; br x16`.
#[cfg(target_arch = "aarch64")]
fn stub(address: u64) -> Option<u64> {
    let address = if u32_at(address) == 0xd503_245f { address + 4 } else { address };
    let (first, second) = (u32_at(address), u32_at(address + 4));
    if first & 0x9f00_001f == 0x9000_0010 && second & 0xffc0_03fe == 0xf940_0210 {
        return Some(u64_at(page(address).wrapping_add((second >> 10 & 0xfff) * 8)));
    }
    let words = (first << 40).cast_signed() >> 45;
    (first & 0xff00_001f == 0x5800_0010).then(|| u64_at(address.wrapping_add((words * 4).cast_unsigned())))
}
