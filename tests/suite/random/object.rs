//! Random objects with probes in them, and what each probe has to yield once addresses are known.

use super::arch::{self, CODE_ALIGN, FORMS, MACHINE, NONE, SELF};
use super::elf;
use super::place::{Bench, Island};
use super::probe::{Code, Field, Form, Formula, On, Outcome, Reach, Sign, Value, Wants};
use crate::common::Random;

/// Objects of one library.
pub struct Case {
    pub sections: Vec<Section>,
    pub symbols: Vec<Symbol>,
    pub probes: Vec<Probe>,
    pub objects: usize,
    /// What the order of tables in the files comes from.
    seed: u64,
}

pub struct Section {
    pub name: String,
    pub object: usize,
    flags: u64,
    align: u64,
    bytes: Vec<u8>,
    size: u64,
    /// Offsets of functions that return their addresses.
    functions: Vec<u64>,
    /// Offsets where probes go.
    slots: Vec<u64>,
    /// A global symbol at its start.
    pub anchor: usize,
}

pub struct Symbol {
    pub name: String,
    pub at: At,
    value: u64,
    size: u64,
    binding: u8,
    kind: u8,
    visibility: u8,
}

/// Where a symbol is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Section(usize),
    /// Given to the library by address.
    Host(u64),
    /// In another library, at this address.
    Library(u64),
    /// Nowhere.
    Weak,
    /// An absolute symbol of this object.
    Absolute(usize),
    /// `_GLOBAL_OFFSET_TABLE_`
    Got,
}

pub struct Probe {
    pub form: &'static Form,
    pub section: usize,
    pub start: u64,
    len: u64,
    pub symbol: usize,
    /// From S to what is meant.
    pub a: i64,
    pub fields: Vec<Field>,
    pub outcome: Outcome,
}

/// Sizes of what may be put into one case.
const SLOT: u64 = 64;

impl Case {
    pub fn generate(random: &mut Random, bench: &Bench) -> Self {
        let objects = 1 + usize::from(random.below(5) < 2);
        let mut case = Self { sections: vec![], symbols: vec![], probes: vec![], objects, seed: random.next() };
        case.symbol("_GLOBAL_OFFSET_TABLE_".into(), At::Got, 0, 1, 0, 0);
        for object in 0..objects {
            let (code, data) = if object == 0 { (1 + random.below(6), 1 + random.below(6)) } else { (1, 1) };
            for _ in 0..code {
                case.section(random, bench, object, true);
            }
            for _ in 0..data {
                case.section(random, bench, object, false);
            }
        }
        // In each object, sections in any order.
        random.shuffle(&mut case.sections);
        case.sections.sort_by_key(|s| s.object);
        for i in 0..case.sections.len() {
            let anchor = case.symbol(format!("anchor{i}"), At::Section(i), 0, 1, 0, 0);
            case.sections[i].anchor = anchor;
        }
        let most = if random.below(2) == 0 { 4 } else { 20 };
        for _ in 0..=random.below(most) {
            case.probe(random, bench);
        }
        case
    }

    /// Filler, functions, and room for probes, without relocations yet.
    fn section(&mut self, random: &mut Random, bench: &Bench, object: usize, code: bool) {
        let writable = !code && random.below(2) == 0;
        let zero = writable && random.below(3) == 0;
        let mut flags = elf::SHF_ALLOC;
        flags |= if code { elf::SHF_EXECINSTR } else { 0 } | if writable { elf::SHF_WRITE } else { 0 };
        let kind = ["text", "rodata", "data", "bss"][usize::from(!code) + usize::from(writable) + usize::from(zero)];
        let large = !code && MACHINE == 62 && random.below(20) == 0;
        if large {
            flags |= elf::SHF_X86_64_LARGE;
        }
        let name = format!(".{}{kind}.{}", if large { "l" } else { "" }, self.sections.len());
        let unit = if code { CODE_ALIGN } else { 1 };
        let align = match random.below(40) {
            0 => 65536,
            1 | 2 => 4096,
            n => [unit, 2, 4, 8, 16, 32, 64][n % 7].max(unit),
        };
        let (mut at, mut functions, mut slots) = (0_u64, vec![], vec![]);
        for _ in 0..1 + random.below(9) {
            let gap = match random.below(400) {
                0 => 1 << 20 | random.below(2 << 20),
                1..20 => random.below(16 << 10),
                20..80 => random.below(4096),
                _ => random.below(64),
            };
            at = (at + gap as u64).next_multiple_of(unit);
            if code && (functions.is_empty() || random.below(3) == 0) {
                functions.push(at);
                at += SELF.len() as u64;
            } else {
                slots.push(at);
                at += if code { SLOT } else { 8 };
            }
        }
        let size = (at + random.below(64) as u64).next_multiple_of(unit);
        let mut bytes = if zero { vec![] } else { bench.filler(random, size as usize) };
        for offset in &functions {
            bytes[*offset as usize..][..SELF.len()].copy_from_slice(&SELF);
        }
        if zero {
            slots.clear();
        }
        self.sections.push(Section { name, object, flags, align, bytes, size, functions, slots, anchor: 0 });
    }

    fn symbol(&mut self, name: String, at: At, value: u64, binding: u8, kind: u8, visibility: u8) -> usize {
        self.symbols.push(Symbol { name, at, value, size: 0, binding, kind, visibility });
        self.symbols.len() - 1
    }

    /// One more probe, if there is a place for it.
    fn probe(&mut self, random: &mut Random, bench: &Bench) {
        let mut section = random.below(self.sections.len());
        for _ in 0..4 {
            if self.sections[section].slots.is_empty() {
                section = random.below(self.sections.len());
            }
        }
        if self.sections[section].slots.is_empty() {
            return;
        }
        let slot = random.below(self.sections[section].slots.len());
        let start = self.sections[section].slots[slot];
        let code = self.sections[section].is_code();
        let llvm = slabjit::llvm_version();
        let all: usize = FORMS.iter().filter(|f| f.code == code && f.since <= llvm).map(|f| f.weight).sum();
        let mut chosen = random.below(all);
        let form = FORMS.iter().filter(|f| f.code == code && f.since <= llvm).find(|f| {
            let found = chosen < f.weight;
            chosen = chosen.wrapping_sub(f.weight);
            found
        });
        let form = form.unwrap();
        let Some((symbol, a)) = self.target(random, bench, form, section, start) else { return };
        let Code { bytes, fields, outcome } = (form.make)(random, a);
        assert!(bytes.len() as u64 <= if code { SLOT } else { 8 }, "{}", form.name);
        self.sections[section].slots.swap_remove(slot);
        self.sections[section].bytes[start as usize..][..bytes.len()].copy_from_slice(&bytes);
        if matches!(outcome, Outcome::Size(_) | Outcome::SizeDatum(..)) {
            self.symbols[symbol].binding = self.symbols[symbol].binding.min(1);
            self.symbols[symbol].size = random.below(self.room_behind(symbol) as usize + 1) as u64;
        }
        let len = bytes.len() as u64;
        self.probes.push(Probe { form, section, start, len, symbol, a, fields, outcome });
    }

    fn room_behind(&self, symbol: usize) -> u64 {
        match self.symbols[symbol].at {
            At::Section(i) => self.sections[i].size - self.symbols[symbol].value,
            _ => 0,
        }
    }

    /// Something that a form may refer to from a place: the symbol, and what is to be added.
    fn target(
        &mut self,
        random: &mut Random,
        bench: &Bench,
        form: &Form,
        from: usize,
        place: u64,
    ) -> Option<(usize, i64)> {
        let strays = random.below(30) == 0;
        let sized = form.name.starts_with("SIZE");
        let reach = if strays && !sized { Reach::All } else { form.reach };
        match reach {
            // LLVM knows sizes only in the object itself; another is refused.
            _ if sized => self.in_section(random, form.wants, from, from, None),
            Reach::All => match random.below(12) {
                0..3 => self.in_section(random, form.wants, from, from, None),
                3..6 => self.in_some_section(random, form.wants, from),
                6 => self.in_library(random, bench, form.wants),
                7..10 => self.on_island(random, bench, form.wants, |_| true),
                10 => self.number(random, form.wants, 64),
                _ => self.number(random, form.wants, 33),
            },
            Reach::Arena => match random.below(9) {
                0..3 => self.in_section(random, form.wants, from, from, None),
                3..7 => self.in_some_section(random, form.wants, from),
                7 => self.in_library(random, bench, form.wants),
                _ => self.on_island(random, bench, form.wants, |island| island.in_reach),
            },
            Reach::Section(within) => self.in_section(random, form.wants, from, from, Some((place, within))),
            Reach::Low(bits) => match random.below(4) {
                0 if bits >= 31 => self.on_island(random, bench, form.wants, |island| island.start >> bits == 0),
                1 if bits >= 31 && bench.arena.end >> bits == 0 => self.in_some_section(random, form.wants, from),
                _ => self.number(random, form.wants, bits),
            },
        }
    }

    fn in_some_section(&mut self, random: &mut Random, wants: Wants, from: usize) -> Option<(usize, i64)> {
        let to = random.below(self.sections.len());
        self.in_section(random, wants, from, to, None)
    }

    /// A place in a section, by any of the symbols that may be there; `near`: a place in that section, and how far from
    /// it.
    fn in_section(
        &mut self,
        random: &mut Random,
        wants: Wants,
        from: usize,
        to: usize,
        near: Option<(u64, i64)>,
    ) -> Option<(usize, i64)> {
        let section = &self.sections[to];
        let (low, high) = match near {
            // The place itself is somewhere in the probe.
            Some((place, within)) => (
                place.saturating_sub((within - SLOT as i64).max(1) as u64),
                section.size.min(place + (within - SLOT as i64).max(1) as u64),
            ),
            None => (0, section.size),
        };
        let within = |random: &mut Random| low + random.below((high - low) as usize + 1) as u64;
        let point = match wants {
            Wants::Address | Wants::Exact => within(random),
            Wants::Call | Wants::Function => {
                let all: Vec<u64> = section.functions.iter().copied().filter(|f| (low..=high).contains(f)).collect();
                *all.get(random.below(all.len().max(1)))?
            }
            Wants::Read(bytes, align) => {
                let point = within(random) / align * align;
                let inside = point >= low && point + bytes <= high && !section.bytes.is_empty();
                inside.then_some(point).filter(|_| section.align >= align)?
            }
        };
        let own = self.sections[from].object == self.sections[to].object;
        // A symbol's value is in its section; what is meant need not be.
        let value = match (wants, random.below(3)) {
            (Wants::Exact | Wants::Function, _) | (_, 0) => point,
            (Wants::Call, _) if !own && random.below(8) != 0 => point,
            _ => random.below(self.sections[to].size as usize + 1) as u64,
        };
        let point = match wants {
            Wants::Address => point.wrapping_add_signed(stray(random, near.is_some())),
            _ => point,
        };
        let style = if own { random.below(4) } else { 2 + random.below(2) };
        let number = self.symbols.len();
        let symbol = match style {
            // By the section's symbol, as compilers refer to local things.
            0 if !matches!(wants, Wants::Exact | Wants::Function) => {
                self.symbol(String::new(), At::Section(to), 0, 0, 3, 0)
            }
            1 => self.symbol(format!("local{number}"), At::Section(to), value, 0, 0, 0),
            2 => self.symbol(format!("hidden{number}"), At::Section(to), value, 1, 1, 2),
            _ => self.symbol(
                format!("global{number}"),
                At::Section(to),
                value,
                1 + u8::from(number.is_multiple_of(5)),
                0,
                0,
            ),
        };
        Some((symbol, point.wrapping_sub(self.symbols[symbol].value) as i64))
    }

    /// A symbol of the library that was linked before.
    fn in_library(&mut self, random: &mut Random, bench: &Bench, wants: Wants) -> Option<(usize, i64)> {
        let (name, address, functions) = &bench.library[random.below(bench.library.len())];
        let a = match wants {
            Wants::Exact => 0,
            Wants::Address => stray(random, false),
            Wants::Call | Wants::Function if *functions => 0,
            Wants::Call | Wants::Function => return None,
            Wants::Read(_, align) => (random.below(64) as u64 * align) as i64,
        };
        // Each name once.
        let known = self.symbols.iter().position(|s| s.name == *name);
        let symbol = known.unwrap_or_else(|| self.symbol(name.clone(), At::Library(*address), 0, 1, 0, 0));
        Some((symbol, a))
    }

    fn on_island(
        &mut self,
        random: &mut Random,
        bench: &Bench,
        wants: Wants,
        which: impl Fn(&Island) -> bool,
    ) -> Option<(usize, i64)> {
        let chosen = match bench.islands.iter().filter(|i: &&Island| which(i)).count() {
            0 => return None,
            n => random.below(n),
        };
        let island = bench.islands.iter().filter(|i: &&Island| which(i)).nth(chosen)?;
        let point = match wants {
            Wants::Call | Wants::Function => island.function(random),
            Wants::Read(_, align) => {
                let askew = if align > 1 && random.below(20) == 0 { random.below(align as usize) as u64 } else { 0 };
                island.data(random, 16) + askew
            }
            Wants::Address | Wants::Exact => island.data(random, 1),
        };
        let a = match wants {
            Wants::Exact | Wants::Function => 0,
            Wants::Call if random.below(8) != 0 => 0,
            Wants::Call => [16, -4, 0x1000][random.below(3)],
            _ => stray(random, false),
        };
        Some((self.host(point.wrapping_add_signed(-a)), a))
    }

    /// An address of so many bits at most, where nothing need be.
    fn number(&mut self, random: &mut Random, wants: Wants, bits: u32) -> Option<(usize, i64)> {
        if matches!(wants, Wants::Call | Wants::Function | Wants::Read(..)) {
            return None;
        }
        let a = if wants == Wants::Exact { 0 } else { random.below(40) as i64 - 20 };
        let weak = random.below(4) == 0;
        if weak {
            let name = format!("slabjit_nowhere{}", self.symbols.len());
            return Some((self.symbol(name, At::Weak, 0, 2, 0, 0), a));
        }
        let address = random.next() >> (64 - bits) >> random.below(bits as usize);
        let address = address.wrapping_add_signed(-a).max(1);
        if random.below(3) == 0 {
            let name = format!("absolute{}", self.symbols.len());
            let object = self.sections.last().unwrap().object;
            return Some((self.symbol(name, At::Absolute(object), address, 1, 0, 0), a));
        }
        Some((self.host(address), a))
    }

    fn host(&mut self, address: u64) -> usize {
        let name = format!("host{}", self.symbols.len());
        self.symbol(name, At::Host(address.max(1)), 0, 1, 0, 0)
    }

    /// The file of one object, without the relocations of some probes.
    pub fn file(&self, object: usize, left_out: &[bool]) -> Vec<u8> {
        let mut random = Random::new(self.seed ^ object as u64);
        let mine: Vec<usize> = (0..self.sections.len()).filter(|i| self.sections[*i].object == object).collect();
        let own = |section: usize| mine.iter().position(|i| *i == section);
        let probes = || self.probes.iter().enumerate().filter(|(_, p)| self.sections[p.section].object == object);
        // Symbols that are defined here, and those that are referred to.
        let mut used: Vec<bool> =
            self.symbols.iter().map(|s| matches!(s.at, At::Section(i) if own(i).is_some())).collect();
        for (_, probe) in probes() {
            used[probe.symbol] = true;
            used[0] |= probe.fields.iter().any(|f| f.on == On::Got);
        }
        for (used, symbol) in used.iter_mut().zip(&self.symbols) {
            *used |= symbol.at == At::Absolute(object);
        }
        let numbers: Vec<usize> = (0..self.symbols.len()).filter(|i| used[*i]).collect();
        let number = |symbol: usize| numbers.binary_search(&symbol).unwrap();
        let symbols: Vec<elf::Symbol<'_>> = numbers
            .iter()
            .map(|i| {
                let s = &self.symbols[*i];
                let place = match s.at {
                    At::Section(i) => own(i).map_or(elf::Place::Undefined, elf::Place::Section),
                    At::Absolute(of) if of == object => elf::Place::Absolute,
                    _ => elf::Place::Undefined,
                };
                let undefined = matches!(place, elf::Place::Undefined);
                let (value, size) = if undefined { (0, 0) } else { (s.value, s.size) };
                // A weak definition is no weak reference.
                let binding = if undefined && s.at != At::Weak { 1 } else { s.binding };
                elf::Symbol { name: &s.name, place, value, size, binding, kind: s.kind, visibility: s.visibility }
            })
            .collect();
        let mut sections: Vec<elf::Section<'_>> = mine
            .iter()
            .map(|i| {
                let s = &self.sections[*i];
                let (name, bytes) = (&*s.name, &*s.bytes);
                elf::Section { name, flags: s.flags, align: s.align, bytes, size: s.size, relocations: vec![] }
            })
            .collect();
        for (i, probe) in probes() {
            let relocations = &mut sections[own(probe.section).unwrap()].relocations;
            if left_out[i] {
                continue;
            }
            for field in &probe.fields {
                let symbol = number(if field.on == On::Got { 0 } else { probe.symbol });
                let offset = probe.start + field.offset as u64;
                relocations.push(elf::Relocation { offset, kind: field.kind, symbol, addend: field.addend });
            }
            if i % 16 == 3 {
                relocations.push(elf::Relocation { offset: 0, kind: NONE, symbol: number(probe.symbol), addend: 0 });
            }
        }
        // Assemblers need not sort relocations.
        for section in &mut sections {
            random.shuffle(&mut section.relocations);
        }
        elf::write(MACHINE, &sections, &symbols, &mut random)
    }

    /// S, given where sections are.
    pub fn address(&self, symbol: usize, sections: &[u64]) -> u64 {
        let symbol = &self.symbols[symbol];
        match symbol.at {
            At::Section(i) => sections[i] + symbol.value,
            At::Host(address) | At::Library(address) => address,
            At::Absolute(_) => symbol.value,
            At::Weak => 0,
            At::Got => panic!("it has no one address"),
        }
    }

    /// The value of a relocation by the ABI, given where sections are.
    pub fn value(&self, probe: &Probe, field: &Field, formula: Value, sections: &[u64]) -> i64 {
        const PAGE: u64 = !0xfff;
        let target = self.address(probe.symbol, sections).wrapping_add_signed(field.addend);
        let place = sections[probe.section] + probe.start + field.offset as u64;
        match formula {
            Value::Absolute => target as i64,
            Value::PageOffset => (target & !PAGE) as i64,
            Value::Relative | Value::Got => target.wrapping_sub(place) as i64,
            Value::Page => (target & PAGE).wrapping_sub(place & PAGE) as i64,
        }
    }

    /// Whether the sections of a field and of its symbol are aligned where the field has this address, and the symbol with
    /// the addend this one.
    pub fn would_be_aligned(&self, probe: &Probe, field: &Field, place: u64, target: u64, sections: &[u64]) -> bool {
        let at = |section: usize, address: u64| address.is_multiple_of(self.sections[section].align.max(1));
        let start = place.wrapping_sub(probe.start + field.offset as u64);
        at(probe.section, start)
            && match self.symbols[probe.symbol].at {
                At::Section(section) => {
                    let now = self.address(probe.symbol, sections).wrapping_add_signed(field.addend);
                    at(section, target.wrapping_sub(now.wrapping_sub(sections[section])))
                }
                _ => true,
            }
    }

    /// Whether a field must be made to reach, however far its target is.
    pub fn is_bridged(&self, probe: &Probe, field: &Field) -> bool {
        let defined_here = match self.symbols[probe.symbol].at {
            At::Section(i) => self.sections[i].object == self.sections[probe.section].object,
            _ => false,
        };
        let takes_address = matches!(probe.form.wants, Wants::Address | Wants::Read(..));
        field.bridged && (takes_address || probe.a == 0 || MACHINE == 183)
            || arch::has_stub(field.kind) && !defined_here && probe.a == 0
    }

    /// Whether it is in a section that need not be near, or its target is.
    pub fn has_large_end(&self, probe: &Probe) -> bool {
        let large = |i: usize| self.sections[i].flags & elf::SHF_X86_64_LARGE != 0;
        large(probe.section) || matches!(self.symbols[probe.symbol].at, At::Section(i) if large(i))
    }

    /// The position of the probe that a message means.
    pub fn probe_at(&self, object: usize, section: &str, offset: u64) -> Option<usize> {
        self.probes.iter().position(|probe| {
            let of = &self.sections[probe.section];
            of.object == object && of.name == section && probe.range().contains(&offset)
        })
    }

    /// Takes other probes out, by their target, what they want of it, and their distance from it.
    pub fn keep_probes(&mut self, keep: impl Fn(&Symbol, Wants, i64) -> bool) {
        let symbols = &self.symbols;
        self.probes.retain(|probe| keep(&symbols[probe.symbol], probe.form.wants, probe.a));
    }

    /// One more section, of filler or of zeros, which no probe is in.
    pub fn pad(&mut self, random: &mut Random, bench: &Bench, size: u64) {
        let zero = random.below(2) == 0;
        let flags = elf::SHF_ALLOC | if zero { elf::SHF_WRITE } else { 0 };
        let bytes = if zero { vec![] } else { bench.filler(random, size as usize) };
        let (at, object) = (self.sections.len(), self.objects - 1);
        let anchor = self.symbol(format!("anchor{at}"), At::Section(at), 0, 1, 0, 0);
        let name = format!(".{}.padding", if zero { "bss" } else { "rodata" });
        let (functions, slots) = (vec![], vec![]);
        self.sections.push(Section { name, object, flags, align: 16, bytes, size, functions, slots, anchor });
    }

    /// Whether an object may be as small as those that prepared pages are for: four pages.
    pub fn has_small_object(&self) -> bool {
        let bytes = |object| self.sections.iter().filter(|s| s.object == object).map(|s| s.size).sum::<u64>();
        (0..self.objects).any(|object| bytes(object) <= 4 * rustix::param::page_size() as u64)
    }

    /// Bytes of all sections.
    pub fn bytes(&self) -> u64 {
        self.sections.iter().map(|s| s.size + s.align).sum()
    }

    /// Checks what a linked probe yields.
    ///
    /// # Safety
    /// The objects are linked at these addresses, and what targets promise is there.
    pub unsafe fn check(&self, probe: &Probe, sections: &[u64]) -> Result<(), String> {
        let start = sections[probe.section] + probe.start;
        let s = self.address(probe.symbol, sections);
        let meant = s.wrapping_add_signed(probe.a);
        let wanted = match probe.outcome {
            Outcome::Address => meant,
            Outcome::Low32 => meant & 0xffff_ffff,
            Outcome::Distance(from) => meant.wrapping_sub(start + from as u64),
            Outcome::PageUnchecked(from) => {
                let page = (start + from as u64) & !0xfff;
                let distance = (meant & !0xfff).wrapping_sub(page) as i64;
                page.wrapping_add_signed(distance << 31 >> 31) | meant & 0xfff
            }
            // SAFETY: such targets are readable.
            Outcome::Memory(bytes, signed) => unsafe { read(meant, bytes, signed) },
            Outcome::IsZero => u64::from(s == 0),
            Outcome::Equal(value) => value,
            Outcome::Size(a) | Outcome::SizeDatum(_, a) => self.symbols[probe.symbol].size.wrapping_add_signed(a),
            Outcome::Datum(_, _, Formula::Absolute) => meant,
            Outcome::Datum(_, _, Formula::Relative) => meant.wrapping_sub(start),
            Outcome::GotDatum(..) => s,
            Outcome::CallDatum(_) => meant,
        };
        // SAFETY: by the caller, and because that is how the forms are made.
        let (found, other): (u64, Option<u64>) = unsafe {
            match probe.outcome {
                Outcome::Datum(bytes, sign, _) => {
                    let (signed, unsigned) = (read(start, bytes, true), read(start, bytes, false));
                    match sign {
                        Sign::Signed => (signed, None),
                        Sign::Unsigned => (unsigned, None),
                        Sign::Either => (signed, Some(unsigned)),
                    }
                }
                Outcome::SizeDatum(bytes, _) => (read(start, bytes, false), None),
                Outcome::GotDatum(bytes, a) => {
                    let entry = start.wrapping_add(read(start, bytes, true)).wrapping_add_signed(-a);
                    (read(entry, 8, false), None)
                }
                Outcome::CallDatum(bytes) => (call(start.wrapping_add(read(start, bytes, true))), None),
                // Bridged, it is what it would be with a check.
                Outcome::PageUnchecked(_) => (call(start), Some(meant)),
                _ => (call(start), None),
            }
        };
        if found == wanted || other == Some(wanted) {
            return Ok(());
        }
        Err(format!("{} yields {found:#x} instead of {wanted:#x}; {}", probe.form.name, self.show(probe, sections)))
    }

    /// A probe in words.
    pub fn show(&self, probe: &Probe, sections: &[u64]) -> String {
        let section = &self.sections[probe.section];
        let symbol = &self.symbols[probe.symbol];
        format!(
            "'{}' at {:#x} in {} of object {}{}, to {} ({:?} + {:#x}) + {:#x}, S = {:x?}",
            probe.form.name,
            probe.start,
            section.name,
            section.object,
            sections.get(probe.section).map_or_else(String::new, |at| format!(" ({at:#x})")),
            symbol.name,
            symbol.at,
            symbol.value,
            probe.a,
            sections.get(probe.section).map(|_| self.address(probe.symbol, sections)),
        )
    }
}

impl Section {
    pub fn is_code(&self) -> bool {
        self.flags & elf::SHF_EXECINSTR != 0
    }
}

impl Probe {
    /// The field that a message means.
    pub fn field_at(&self, offset: u64) -> Option<&Field> {
        self.fields.iter().find(|f| self.start + f.offset as u64 == offset)
    }

    pub fn range(&self) -> std::ops::Range<u64> {
        self.start..self.start + self.len
    }
}

/// A distance from what is there.
fn stray(random: &mut Random, near: bool) -> i64 {
    let sign = 1 - 2 * random.below(2) as i64;
    match random.below(12) {
        _ if near => 0,
        0 => sign * (random.below(1 << 30) as i64),
        1 => sign * (random.below(1 << 20) as i64),
        2 | 3 => sign * (random.below(1 << 13) as i64),
        4..7 => sign * (random.below(64) as i64),
        _ => 0,
    }
}

/// # Safety
/// The bytes are readable.
unsafe fn read(address: u64, bytes: usize, signed: bool) -> u64 {
    let mut value = [0_u8; 8];
    let from = std::ptr::with_exposed_provenance::<u8>(address as usize);
    // SAFETY: by the caller.
    unsafe { std::ptr::copy_nonoverlapping(from, value.as_mut_ptr(), bytes) };
    let unused = 64 - 8 * bytes as u32;
    let value = u64::from_le_bytes(value) << unused;
    if signed { (value as i64 >> unused) as u64 } else { value >> unused }
}

/// # Safety
/// A function `uint64_t (void)` is there.
unsafe fn call(address: u64) -> u64 {
    let at = std::ptr::with_exposed_provenance::<u8>(address as usize);
    // SAFETY: by the caller.
    unsafe { std::mem::transmute::<*const u8, unsafe extern "C" fn() -> u64>(at)() }
}
