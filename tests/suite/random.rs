//! Objects at random: every relocation kind that is supported, random sections, random places; what the linked code
//! computes is compared with what the ABI's formula gives for the addresses. An object loads and is right, or is
//! refused for references that cannot be made. The same objects are made into images ([`images`]).
//!
//! `SLABJIT_CASES` sets the number of cases (10 000; of images 600), `SLABJIT_SEED` the seed; `SLABJIT_SEED=…
//! SLABJIT_CASE=…` repeats one, after those that its engine had before it, and `SLABJIT_IMAGES` is a folder that its
//! image is kept in.

#[cfg(target_arch = "aarch64")]
#[path = "random/aarch64.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "random/x86_64.rs"]
mod arch;
mod elf;
mod images;
mod object;
mod place;
mod probe;

use std::os::unix::fs::FileExt;

use slabjit::{Error, FarReference, Library, LinkError};

use crate::common::{self, Random, freed, temporary};
use crate::target::by_qemu;
use object::{At, Case};
use place::{Bench, Memory};
use probe::{Rule, Value, Wants};

use images::random_images_part;

common::tests![random_objects, random_images; parts: random_objects_part, random_images_part];

/// Cases of one engine.
const OF_ENGINE: u64 = 50;
const PROCESSES: u64 = 2;

const SEED: &str = "SLABJIT_SEED";
const CASES: &str = "SLABJIT_CASES";
const CASE: &str = "SLABJIT_CASE";
const PART: &str = "SLABJIT_RANDOM_PART";
const NOTE: &str = "SLABJIT_RANDOM_NOTE";

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|s| s.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn random_objects() {
    in_parts("random_objects_part", if is_shuffled() { 100 } else { 10_000 });
}

fn random_images() {
    in_parts("random_images_part", if is_shuffled() { 50 } else { by_qemu(600, 100) as u64 });
}

fn is_shuffled() -> bool {
    std::env::var_os("SLABJIT_SHUFFLE").is_some()
}

/// In processes of their own, as wrong code may do anything; each notes which case it is at.
fn in_parts(of: &str, cases: u64) {
    let time = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 % 1_000_000_000;
    let seed = variable(SEED).unwrap_or(time);
    println!("{SEED}={seed}");
    let cases = variable(CASES).unwrap_or(cases);
    let run = |part: u64| {
        let note = temporary().join(format!("{of}{part}"));
        let (seed, cases, part) = (seed.to_string(), cases.to_string(), part.to_string());
        let note_text = note.to_str().unwrap();
        let variables = [(SEED, &*seed), (CASES, &*cases), (PART, &*part), (NOTE, note_text)];
        let end = common::child_with(of, &variables);
        print!("{}", end.stdout);
        let at = std::fs::read_to_string(&note).unwrap_or_default();
        assert_eq!(end.code, Some(0), "{SEED}={seed} {CASE}={}\n{end:?}", at.trim());
    };
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..PROCESSES).map(|part| scope.spawn(move || run(part))).collect();
        for part in parts {
            if let Err(panic) = part.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

/// What came of the cases.
#[derive(Debug, Default)]
struct Tally {
    cases: u64,
    objects: u64,
    probes: u64,
    refused: u64,
    edges: u64,
    engines: u64,
    bridges: u64,
}

fn random_objects_part() {
    let seed = variable(SEED).unwrap();
    let (cases, part, only) = (variable(CASES).unwrap(), variable(PART).unwrap(), variable(CASE));
    let note = std::fs::File::create(std::env::var(NOTE).unwrap()).unwrap();
    let mut tally = Tally::default();
    for engine in 0..cases.div_ceil(OF_ENGINE) {
        let numbers = engine * OF_ENGINE..((engine + 1) * OF_ENGINE).min(cases);
        let wanted = only.map_or(engine % PROCESSES == part, |only| numbers.contains(&only) && part == 0);
        if !wanted {
            continue;
        }
        let mut bench = Bench::new(&mut random_of(seed, engine, 1));
        tally.engines += 1;
        for number in numbers.filter(|n| only.is_none_or(|only| *n <= only)) {
            // One that is repeated is told probe by probe: the last is the one that crashed.
            bench.told = only == Some(number);
            note.write_all_at(format!("{number:<12}").as_bytes(), 0).unwrap();
            if let Err(problem) = one(&bench, &mut random_of(seed, number, 2), &mut tally) {
                panic!("case {number}, arena {:#x?}: {problem}", bench.arena);
            }
            tally.cases += 1;
        }
        bench.finish();
    }
    println!("{tally:?}");
}

/// Independent numbers for each use of a seed.
fn random_of(seed: u64, number: u64, what: u64) -> Random {
    let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number << 8 ^ what);
    for _ in 0..8 {
        random.next();
    }
    random
}

/// One library of random objects.
fn one(bench: &Bench, random: &mut Random, tally: &mut Tally) -> Result<(), String> {
    let mut case = Case::generate(random, bench);
    tally.objects += case.objects as u64;
    tally.probes += case.probes.len() as u64;
    // Some are moved to the edge of what reaches: for that it must be known where the sections come to lie.
    let mut memory = Vec::new();
    if random.below(3) == 0 {
        let (sections, _) = link_and_check(bench, &case)?;
        memory = to_the_edge(&mut case, random, &sections);
        tally.edges += memory.len() as u64;
    }
    let (sections, refused) = link_and_check(bench, &case)?;
    tally.bridges += bench.bridges.take();
    tally.refused += refused.len() as u64;
    // What is packed comes to lie elsewhere each time: where it was when it was refused is not known.
    for (probe, reference) in refused.iter().filter(|_| !common::packed()) {
        judge(bench, &case, *probe, reference, &sections)?;
    }
    drop(memory);
    Ok(())
}

/// Positions of probes, and what was said of them.
type Refused = Vec<(usize, FarReference)>;

/// Links, without what is refused, and checks every probe that is left. Returns where the sections came to lie.
fn link_and_check(bench: &Bench, case: &Case) -> Result<(Vec<u64>, Refused), String> {
    let mut left_out = vec![false; case.probes.len()];
    let mut refused = Vec::new();
    loop {
        match link(bench, case, &left_out)? {
            Ok((library, sections)) => {
                for (i, probe) in case.probes.iter().enumerate().filter(|(i, _)| !left_out[*i]) {
                    if bench.told {
                        eprintln!("{i}: {}", case.show(probe, &sections));
                    }
                    // SAFETY: it was linked, to addresses where there is what targets promise.
                    unsafe { case.check(probe, &sections) }.map_err(|e| format!("probe {i}: {e}"))?;
                }
                bench.bridges.set(bench.engine.stats().bridges);
                freed(&library);
                return Ok((sections, refused));
            }
            Err(references) => {
                for (object, reference) in references {
                    if bench.told {
                        eprintln!("refused: {reference}");
                    }
                    let Some(probe) = case.probe_at(object, &reference.section, reference.offset) else {
                        return Err(format!("nothing is at {reference}"));
                    };
                    if std::mem::replace(&mut left_out[probe], true) && !refused.iter().any(|(p, _)| *p == probe) {
                        return Err(format!("refused although it was left out: {reference}"));
                    }
                    refused.push((probe, reference));
                }
            }
        }
    }
}

/// Of what is refused, the numbers of objects.
type Linked = Result<(Library, Vec<u64>), Refused>;

/// Links once: where the sections are, or what is refused, by object.
fn link(bench: &Bench, case: &Case, left_out: &[bool]) -> Result<Linked, String> {
    let mut builder = bench.engine.library("random").link(&bench.base);
    for symbol in &case.symbols {
        if let At::Host(address) = symbol.at {
            // SAFETY: nothing runs but the probes, which follow no address.
            builder = unsafe { builder.symbol(&symbol.name, std::ptr::with_exposed_provenance(address as usize)) };
        }
    }
    let library = builder.build().map_err(|e| e.to_string())?;
    for object in 0..case.objects {
        let bytes = case.file(object, left_out);
        match library.add_object_named(&format!("{object}"), &bytes) {
            Ok(()) => {}
            // What can never reach is known at once.
            Err(Error::Link(LinkError::ReferencesOutOfRange { references, more: 0, .. })) => {
                freed(&library);
                return Ok(Err(references.into_iter().map(|r| (object, r)).collect()));
            }
            Err(other) => return Err(other.to_string()),
        }
    }
    let mut sections = Vec::with_capacity(case.sections.len());
    for section in &case.sections {
        // SAFETY: only its address is wanted; there are no initialisers.
        match unsafe { library.get::<*const u8>(&case.symbols[section.anchor].name) } {
            Ok(found) => sections.push(found.address() as u64),
            Err(Error::Link(LinkError::ReferencesOutOfRange { object, references, more: 0 })) => {
                let object = object.parse().map_err(|_| format!("there is no object '{object}'"))?;
                freed(&library);
                return Ok(Err(references.into_iter().map(|r| (object, r)).collect()));
            }
            Err(other) => return Err(other.to_string()),
        }
    }
    Ok(Ok((library, sections)))
}

/// Whether a reference was refused rightly.
fn judge(bench: &Bench, case: &Case, probe: usize, found: &FarReference, sections: &[u64]) -> Result<(), String> {
    let probe = &case.probes[probe];
    let wrong = |what: String| Err(format!("{what}: {found}\n{}", case.show(probe, sections)));
    let Some(field) = probe.field_at(found.offset) else { return wrong("no relocation is there".into()) };
    let Some(rule) = arch::rule(field.kind) else { return wrong("this kind has no limits".into()) };
    if rule.holds(found.value.into()) {
        return wrong("the value fits".into());
    }
    // Local symbols have no names, or names that others have too; a GOT entry has none.
    let name = &case.symbols[probe.symbol].name;
    if !name.starts_with("local") && !name.is_empty() && rule.value != Value::Got && found.symbol != *name {
        return wrong(format!("the symbol is called '{name}'"));
    }
    let far = !(rule.low..=rule.high).contains(&found.value.into());
    if far && case.is_bridged(probe, field) {
        return wrong("this is one that can be made to reach".into());
    }
    // Its value, by our own arithmetic: for other places than those of the refused link, if what was left out changed
    // them.
    let value = case.value(probe, field, rule.value, sections);
    let slack = match rule.value {
        // Without the reference it may lie outside the arena.
        _ if case.has_large_end(probe) => return Ok(()),
        Value::Absolute | Value::PageOffset if !matches!(case.symbols[probe.symbol].at, At::Section(_)) => 0,
        // Small ones come from pages that lie anywhere in the arena: where others were, with those that are used up.
        Value::Absolute | Value::Relative | Value::Page | Value::PageOffset if case.has_small_object() => {
            bench.arena.end - bench.arena.start
        }
        // Slabs change places, each with its alignment before it, and make room for the pages of small ones.
        Value::Absolute | Value::Relative | Value::Page | Value::PageOffset => 2 * case.bytes() + (4 << 20),
        Value::Got => return judge_got(case, field.kind, rule, found).or_else(wrong),
    };
    if value.abs_diff(found.value) > slack {
        return wrong(format!("the value is {value:#x} by our arithmetic"));
    }
    // Wherever the sections were then, they were aligned.
    if let Some(target) = found.target.filter(|_| rule.value == Value::Relative)
        && !case.would_be_aligned(probe, field, target.wrapping_sub(found.value as u64), target, sections)
    {
        return wrong("the section of the reference or of the symbol would not be aligned".into());
    }
    Ok(())
}

/// Of what goes through the GOT only the size of the object can be to blame.
fn judge_got(case: &Case, kind: u32, rule: Rule, found: &FarReference) -> Result<(), String> {
    // R_AARCH64_GOTREL32 goes to the symbol itself.
    if kind == 308 && arch::MACHINE == 183 || i128::from(case.bytes()) + (256 << 10) > rule.high {
        return Ok(());
    }
    Err(format!("no GOT is {:#x} away in an object of {:#x} bytes", found.value, case.bytes()))
}

/// Moves symbols of the host to where references just reach, or just not. Returns what has to stay mapped.
fn to_the_edge(case: &mut Case, random: &mut Random, sections: &[u64]) -> Vec<Option<Memory>> {
    let mut moved = Vec::new();
    for i in 0..case.probes.len() {
        let probe = &case.probes[i];
        if !matches!(case.symbols[probe.symbol].at, At::Host(_)) || random.below(2) == 0 {
            continue;
        }
        let limited = |f: &&probe::Field| {
            arch::rule(f.kind)
                .is_some_and(|r| !matches!(r.value, Value::Got | Value::PageOffset) && r.high < i64::MAX.into())
        };
        let Some(field) = probe.fields.iter().find(limited) else { continue };
        let rule = arch::rule(field.kind).unwrap();
        let step = if rule.value == Value::Page { 4096 } else { rule.align };
        let end = if random.below(2) == 0 { rule.low } else { rule.high } / step * step;
        let wanted = end + (random.below(25) as i128 - 12) * step;
        // What the value depends on besides S.
        let old = case.address(probe.symbol, sections);
        let value = i128::from(case.value(probe, field, rule.value, sections));
        let address = i128::from(old) + wanted - value;
        let Ok(mut address) = u64::try_from(address) else { continue };
        let mut point = address.wrapping_add_signed(probe.a);
        if matches!(probe.form.wants, Wants::Call | Wants::Function) {
            let askew = point & (arch::CODE_ALIGN - 1);
            (address, point) = (address.wrapping_sub(askew), point - askew);
        }
        let page = point & !0xfff;
        let needed = match probe.form.wants {
            Wants::Address | Wants::Exact => None,
            // As far as there may be pages of 16 KiB, ask for whole ones.
            Wants::Call | Wants::Function | Wants::Read(..) => {
                let Some(memory) = Memory::map(page & !0x3fff, 32 << 10) else { continue };
                match probe.form.wants {
                    Wants::Call | Wants::Function => memory.write(point, &arch::SELF),
                    _ => memory.write(point, &random.next().to_le_bytes()),
                }
                memory.make_executable();
                Some(memory)
            }
        };
        if address == 0 {
            continue;
        }
        let symbol = probe.symbol;
        case.symbols[symbol].at = At::Host(address);
        moved.push(needed);
    }
    moved
}
