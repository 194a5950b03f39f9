//! Random objects as images: `ImageBuilder` links the objects of a case into one file; the dynamic loader and engines
//! of both layouts load it. With each, every probe has to yield what the ABI's formula gives for the addresses there.
//! `ld -shared` refuses what is refused, or it is listed in [`TAKEN_BY_LD`].

use std::collections::HashSet;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use libloading::os::unix as dynamic;
use slabjit::{EngineStats, Error, ImageBuilder, ImageError, JitEngine, LinkError, SlabLayout};

use super::arch::MACHINE;
use super::object::{At, Case, Probe};
use super::place::{self, Bench};
use super::probe::Wants;
use super::{CASES, NOTE, PART, PROCESSES, SEED, elf, random_of, variable};
use crate::common::{Random, freed, temporary};
use crate::target;

/// Cases of one arena: as many as the linker makes one library of addresses for.
const OF_BENCH: u64 = 25;

/// A folder for the image of a case that is repeated.
const KEEP: &str = "SLABJIT_IMAGES";

/// References that `ld -shared -Bsymbolic -z text` takes and an image does not: relocations (with `_` at the end, all
/// that begin so) and targets.
const TAKEN_BY_LD: &[(&[&str], &[&str])] = &[
    // These it leaves to the dynamic loader, which does not know them, or refuses them where the libraries lie 2 GiB
    // apart: R_X86_64_PC32.
    (
        &["R_X86_64_PC8", "R_X86_64_PC16", "R_X86_64_PC32", "R_X86_64_PC64"],
        &["an import from data", "a weak import from data"],
    ),
    // It takes what fits as a signed or as an unsigned number (`complain_overflow_bitfield`).
    (
        &["R_X86_64_PC8", "R_X86_64_PC16"],
        &["its section from code", "its section from data", "its object from code", "its object from data"],
    ),
    // It writes what holds if the library lies at 0.
    (
        &["R_X86_64_PC8", "R_X86_64_PC16", "R_X86_64_PC64", "R_X86_64_GOTOFF64"],
        &["a number from code", "a number from data"],
    ),
    (
        &["R_AARCH64_PREL16", "R_AARCH64_PREL32", "R_AARCH64_PREL64", "R_AARCH64_ADR_PREL_"],
        &["a number from code", "a number from data"],
    ),
    (&["R_AARCH64_MOVW_PREL_"], &["a number from code"]),
    (
        &["R_AARCH64_MOVW_UABS_", "R_AARCH64_MOVW_SABS_"],
        &["its section from code", "its object from code", "another object from code"],
    ),
    // It drops these relocations: a call that leads nowhere, numbers that are 0.
    (&["R_X86_64_PC32_BND"], &["an import from code", "a weak import from code"]),
    (&["R_AARCH64_MOVW_UABS_", "R_AARCH64_MOVW_SABS_"], &["an import from code", "a weak import from code"]),
    (
        &["R_AARCH64_ABS16", "R_AARCH64_ABS32", "R_AARCH64_PREL16", "R_AARCH64_PREL32", "R_AARCH64_PREL64"],
        &["an import from data", "a weak import from data"],
    ),
];

/// What GNU ld was asked, by relocation and target, and what it takes that is not listed.
#[derive(Default)]
struct Judged {
    asked: HashSet<(String, String)>,
    taken: Vec<String>,
}

/// What came of the cases.
#[derive(Debug, Default)]
struct Tally {
    cases: u64,
    probes: u64,
    refused: usize,
    /// Kinds of references that the linker was asked about.
    judged: usize,
    bytes: usize,
    /// Loads whose sections lie as far from each other as with the dynamic loader, and others.
    as_in_file: u64,
    apart: u64,
    /// Loads that were refused for short references between segments that are packed.
    far: u64,
}

pub fn random_images_part() {
    let seed = variable(SEED).unwrap();
    let (cases, part, only) = (variable(CASES).unwrap(), variable(PART).unwrap(), variable(super::CASE));
    let note = std::fs::File::create(std::env::var(NOTE).unwrap()).unwrap();
    let (mut tally, mut judged) = (Tally::default(), Judged::default());
    for batch in 0..cases.div_ceil(OF_BENCH) {
        let numbers = batch * OF_BENCH..((batch + 1) * OF_BENCH).min(cases);
        let wanted = only.map_or(batch % PROCESSES == part, |only| numbers.contains(&only) && part == 0);
        if !wanted {
            continue;
        }
        let mut random = random_of(seed, batch, 3);
        let bench = Bench::new(&mut random);
        let mut all: Vec<(u64, Case, Random)> = numbers.map(|number| generate(seed, number, &bench)).collect();
        let hosts = Hosts::new(&mut random, &all);
        let engines = [SlabLayout::PerObject, SlabLayout::Packed].map(|layout| Engine::new(&mut random, layout));
        for (number, case, random) in &mut all {
            if only.is_some_and(|only| only != *number) {
                continue;
            }
            note.write_all_at(format!("{number:<12}").as_bytes(), 0).unwrap();
            let mut one = One { case, number: *number, told: only.is_some(), tally: &mut tally };
            if let Err(problem) = one.check(random, &engines, &mut judged) {
                panic!("case {number}, arena {:#x?}: {problem}", bench.arena);
            }
            tally.cases += 1;
        }
        drop(hosts);
        for engine in engines {
            assert_eq!(engine.engine.stats(), engine.start);
        }
        bench.finish();
    }
    tally.judged = judged.asked.len();
    println!("{tally:?}");
    assert!(judged.taken.is_empty(), "ld -shared takes what is refused: {:#?}", judged.taken);
    // Small images and large ones have been loaded.
    assert!(tally.cases < 20 || tally.as_in_file > 0 && tally.apart > 0, "{tally:?}");
}

/// A case whose imports have names that no other case has.
fn generate(seed: u64, number: u64, bench: &Bench) -> (u64, Case, Random) {
    let mut random = random_of(seed, number, 4);
    let mut case = Case::generate(&mut random, bench);
    // From 64 KiB on, the segments of an image keep their distances.
    let padding = [0, 0, 0, 0, 50 << 10, 60 << 10, 70 << 10, 1 << 20][random.below(8)];
    if padding != 0 {
        case.pad(&mut random, bench, padding);
    }
    // A call of what is imported leads to its stub, and with an addend past that, as the ABI has it (L + A).
    case.keep_probes(|symbol, wants, a| wants != Wants::Call || a == 0 || matches!(symbol.at, At::Section(_)));
    for symbol in &mut case.symbols {
        if let At::Host(_) | At::Library(_) | At::Weak = symbol.at {
            symbol.name = format!("case{number}_{}", symbol.name);
        }
    }
    (number, case, random)
}

/// What the process has of a case's names, and where.
fn given(case: &Case) -> impl Iterator<Item = (&str, u64)> {
    case.symbols.iter().filter_map(|symbol| match symbol.at {
        At::Host(address) | At::Library(address) => Some((symbol.name.as_str(), address)),
        _ => None,
    })
}

struct Engine {
    engine: JitEngine,
    layout: SlabLayout,
    start: EngineStats,
}

impl Engine {
    fn new(random: &mut Random, layout: SlabLayout) -> Self {
        let engine = place::engine(random, || JitEngine::builder().slab_layout(layout));
        let start = engine.stats();
        Self { engine, layout, start }
    }
}

/// A shared library that gives names to addresses, in the global scope: `ld` has made it.
struct Hosts {
    _library: dynamic::Library,
}

impl Hosts {
    fn new(random: &mut Random, cases: &[(u64, Case, Random)]) -> Self {
        let given = cases.iter().flat_map(|(_, case, _)| given(case));
        let symbol = |(name, value)| elf::Symbol {
            name,
            place: elf::Place::Absolute,
            value,
            size: 0,
            binding: 1,
            kind: 0,
            visibility: 0,
        };
        let symbols: Vec<_> = given.map(symbol).collect();
        let object = write("hosts.o", &elf::write(MACHINE, &[], &symbols, random));
        // The dynamic loader may know the last one by its file.
        let library = temporary().join(format!("hosts{}.so", cases[0].0));
        let output = ld(&[&object], &library);
        assert!(output.is_ok(), "{output:?}");
        // SAFETY: it has no code.
        let opened = unsafe { dynamic::Library::open(Some(&library), dynamic::RTLD_NOW | dynamic::RTLD_GLOBAL) };
        Self { _library: opened.unwrap() }
    }
}

fn write(name: &str, bytes: &[u8]) -> PathBuf {
    let path = temporary().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Links a shared library whose code is not changed at load, or returns the linker's words.
fn ld(objects: &[&Path], to: &Path) -> Result<(), String> {
    let output =
        target::tool_command("ld").args(["-shared", "-Bsymbolic", "-z", "text", "-o"]).arg(to).args(objects).output();
    let output = output.expect("GNU ld");
    output.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A probe that an image cannot have.
struct Refused {
    probe: usize,
    relocation: String,
    message: String,
    /// It does not reach.
    is_far: bool,
}

/// An image, which probes are left out of it, and why.
type Linked = (Vec<u8>, Vec<bool>, Vec<Refused>);

struct One<'a> {
    case: &'a Case,
    number: u64,
    told: bool,
    tally: &'a mut Tally,
}

impl One<'_> {
    fn check(&mut self, random: &mut Random, engines: &[Engine], judged: &mut Judged) -> Result<(), String> {
        let (bytes, left_out, refused) = self.link()?;
        self.tally.bytes += bytes.len();
        self.tally.refused += refused.len();
        self.tally.probes += left_out.iter().filter(|left_out| !**left_out).count() as u64;
        let name = format!("random{}.so", self.number);
        if let Some(folder) = std::env::var_os(KEEP).filter(|_| self.told) {
            std::fs::write(Path::new(&folder).join(&name), &bytes).unwrap();
        }
        let path = write(&name, &bytes);
        let theirs = self.opened(&path, &left_out)?;
        for engine in engines {
            let Some(ours) = self.loaded(random, engine, &path, &bytes, &left_out)? else {
                self.tally.far += 1;
                continue;
            };
            let distances =
                |sections: &[u64]| -> Vec<u64> { sections.iter().map(|s| s.wrapping_sub(sections[0])).collect() };
            let are_equal = distances(&ours) == distances(&theirs);
            *if are_equal { &mut self.tally.as_in_file } else { &mut self.tally.apart } += 1;
        }
        std::fs::remove_file(&path).unwrap();
        refused.iter().for_each(|refused| self.judge(refused, judged));
        Ok(())
    }

    /// Links an image without what is refused.
    fn link(&self) -> Result<Linked, String> {
        let (mut left_out, mut refused) = (vec![false; self.case.probes.len()], Vec::new());
        loop {
            let add = |image: ImageBuilder, object: usize| {
                image.object(&object.to_string(), self.case.file(object, &left_out))
            };
            let image = (0..self.case.objects).fold(ImageBuilder::new(), add);
            let error = match image.link() {
                Ok(bytes) => return Ok((bytes, left_out, refused)),
                Err(error) => error,
            };
            let message = error.to_string();
            if self.told {
                eprintln!("refused: {message}");
            }
            let is_far = matches!(error, Error::Image(ImageError::OutOfRange { .. }));
            let places = match error {
                Error::Image(
                    ImageError::NotPositionIndependent { object, section, offset, relocation, .. }
                    | ImageError::OutOfRange { object, section, offset, relocation, .. },
                ) => vec![(object, section, offset, relocation.to_owned())],
                // What can never reach is known at once.
                Error::Link(LinkError::ReferencesOutOfRange { object, references, more: 0 }) => {
                    let place = |r: slabjit::FarReference| (object.clone(), r.section, r.offset, r.relocation);
                    references.into_iter().map(place).collect()
                }
                _ => return Err(message),
            };
            for (object, section, offset, relocation) in places {
                let object = object.parse().map_err(|_| format!("there is no object '{object}': {message}"))?;
                let probe = self.case.probe_at(object, &section, offset);
                let probe = probe.ok_or_else(|| format!("nothing is there: {message}"))?;
                if std::mem::replace(&mut left_out[probe], true) {
                    return Err(format!("refused although it was left out: {message}"));
                }
                refused.push(Refused { probe, relocation, message: message.clone(), is_far });
            }
        }
    }

    /// Checks what the probes yield.
    fn probe(&self, by: &str, sections: &[u64], left_out: &[bool]) -> Result<(), String> {
        for (i, probe) in self.case.probes.iter().enumerate().filter(|(i, _)| !left_out[*i]) {
            if self.told {
                eprintln!("{by}: {i}: {}", self.case.show(probe, sections));
            }
            // SAFETY: it was linked, to addresses where there is what targets promise.
            unsafe { self.case.check(probe, sections) }.map_err(|e| format!("loaded by {by}: probe {i}: {e}"))?;
        }
        Ok(())
    }

    /// By the dynamic loader. Returns where the sections lay.
    fn opened(&self, path: &Path, left_out: &[bool]) -> Result<Vec<u64>, String> {
        // SAFETY: there are no initialisers.
        let opened = unsafe { dynamic::Library::open(Some(path), dynamic::RTLD_NOW | dynamic::RTLD_LOCAL) };
        let opened = opened.map_err(|e| format!("dlopen: {e:?}"))?;
        let address = |section: &super::object::Section| {
            let name = &self.case.symbols[section.anchor].name;
            // SAFETY: only its address is wanted.
            unsafe { opened.get::<*const u8>(name.as_bytes()) }
                .map(|found| found.addr() as u64)
                .map_err(|e| e.to_string())
        };
        let sections = self.case.sections.iter().map(address).collect::<Result<Vec<_>, _>>()?;
        self.probe("ld.so", &sections, left_out)?;
        Ok(sections)
    }

    /// By an engine. Returns where the sections lay; `None` if a reference is too short for packed memory.
    fn loaded(
        &self,
        random: &mut Random,
        engine: &Engine,
        path: &Path,
        bytes: &[u8],
        left_out: &[bool],
    ) -> Result<Option<Vec<u64>>, String> {
        let mut builder = engine.engine.library("random");
        // Or they are found as the dynamic loader finds them.
        if random.below(2) == 0 {
            for (name, address) in given(self.case) {
                let address = std::ptr::with_exposed_provenance(address as usize);
                // SAFETY: nothing runs but the probes, which follow no address.
                builder = unsafe { builder.symbol(name, address) };
            }
        }
        let library = builder.build().map_err(|e| e.to_string())?;
        let added = if random.below(2) == 0 { library.add_image(bytes) } else { library.add_image_file(path) };
        added.map_err(|e| format!("adding: {e}"))?;
        let address = |section: &super::object::Section| {
            // SAFETY: only its address is wanted; there are no initialisers.
            let found = unsafe { library.get::<*const u8>(&self.case.symbols[section.anchor].name) };
            found.map(|found| found.address() as u64)
        };
        let sections = match self.case.sections.iter().map(address).collect::<Result<Vec<_>, _>>() {
            Ok(sections) => sections,
            // Of 32 bits, all reach.
            Err(Error::Image(ImageError::Far { relocation, .. }))
                if engine.layout == SlabLayout::Packed && !relocation.ends_with("32") =>
            {
                freed(&library);
                return Ok(None);
            }
            Err(error) => return Err(format!("{:?}: {error}", engine.layout)),
        };
        self.probe("slabjit", &sections, left_out)?;
        freed(&library);
        Ok(Some(sections))
    }

    /// Whether it was refused rightly. Each kind of reference to each kind of target is asked about once.
    fn judge(&self, refused: &Refused, judged: &mut Judged) {
        let probe = &self.case.probes[refused.probe];
        let target = self.target(probe);
        // The linker may have put the sections nearer to each other.
        if refused.is_far && matches!(self.case.symbols[probe.symbol].at, At::Section(i) if i != probe.section) {
            return;
        }
        if !judged.asked.insert((refused.relocation.clone(), target.clone())) {
            return;
        }
        let is_listed = TAKEN_BY_LD.iter().any(|(relocations, targets)| {
            let found = refused.relocation.as_str();
            let is_one = |of: &&str| found == *of || of.ends_with('_') && found.starts_with(of);
            relocations.iter().any(is_one) && targets.contains(&target.as_str())
        });
        let left_out: Vec<bool> = (0..self.case.probes.len()).map(|i| i != refused.probe).collect();
        let name = |object: usize| format!("refused{object}.o");
        let objects = (0..self.case.objects).map(|object| write(&name(object), &self.case.file(object, &left_out)));
        let objects: Vec<PathBuf> = objects.collect();
        let objects: Vec<&Path> = objects.iter().map(PathBuf::as_path).collect();
        match ld(&objects, &temporary().join("refused.so")) {
            Ok(()) if is_listed => {}
            Ok(()) => {
                let Refused { relocation, message, .. } = refused;
                let shown = self.case.show(probe, &[]);
                judged.taken.push(format!("case {}: {relocation} to {target}: {message}; {shown}", self.number));
            }
            Err(words) if self.told => eprintln!("ld: {words}"),
            Err(_) => {}
        }
    }

    /// A probe's target in words, as far as a linker cares.
    fn target(&self, probe: &Probe) -> String {
        let from = &self.case.sections[probe.section];
        let from = if from.is_code() { "code" } else { "data" };
        let symbol = &self.case.symbols[probe.symbol];
        let to = match symbol.at {
            At::Section(i) if i == probe.section => "its section",
            At::Section(i) if self.case.sections[i].object == self.case.sections[probe.section].object => "its object",
            At::Section(_) => "another object",
            At::Host(_) | At::Library(_) => "an import",
            At::Weak => "a weak import",
            At::Absolute(_) => "a number",
            At::Got => "the GOT",
        };
        format!("{to} from {from}")
    }
}
