//! The link of an image.

use std::path::PathBuf;

use hashbrown::{HashMap, HashSet};

use super::arrays::Arrays;
use super::cpu::has_function;
use super::dynamic::Tables;
use super::file::{HEADERS, NOTES};
use super::frames::Frames;
use super::input::Input;
use super::layout::Parts;
use super::machine::Machine;
use super::providers::Providers;
use super::relr;
use super::scan::Scan;
use super::symbols::{Symbols, discard_groups};
use super::write::Writer;
use crate::cpu::needs::Needs;
use crate::elf::link_tables::LinkTables;
use crate::{Error, ImageError, Result, cpu};

/// Distances in an image have 32 bits.
const MOST: u64 = 1 << 31;

/// What an image is besides its objects.
#[derive(Default)]
pub(super) struct Options<'a> {
    /// Shared libraries that it needs.
    pub(super) libraries: &'a [PathBuf],
    pub(super) soname: Option<&'a str>,
    /// Names of features that functions need of the CPU, in place of what their instructions need.
    pub(super) cpu: &'a [(String, Vec<String>)],
    /// Kernels and their signatures.
    pub(super) contracts: &'a [(String, String)],
    /// Whether debug information is kept.
    pub(super) debug: bool,
    /// Whether relative relocations go into a table of their own.
    pub(super) relr: bool,
}

/// Links objects into a shared object.
pub(super) fn link(mut inputs: Vec<Input>, options: &Options<'_>, machine: u16) -> Result<Vec<u8>> {
    if inputs.is_empty() {
        return Err(Error::Image(ImageError::Empty));
    }
    discard_groups(&mut inputs);
    let inputs = &inputs[..];
    let machine = Machine::of(machine);
    let symbols = Symbols::resolve(inputs)?;
    let frames = Frames::collect(inputs, &symbols);
    let arrays = Arrays::collect(inputs, symbols.finaliser);
    let tables_of: Vec<_> = inputs.iter().map(Input::tables).collect();
    let mut scan = Scan::new((inputs, &tables_of), &symbols, &frames, &arrays)?;
    if options.relr {
        relr::choose(&mut scan, inputs, &frames);
    }
    let imports: Vec<&str> = scan.imports().map(|id| symbols.globals.get(id as usize).map_or("", |g| g.name)).collect();
    let providers = Providers::find_all(machine.number, options.libraries, &imports)?;
    let tables = Tables::new(&symbols, &scan, &providers, options.soname);
    let cpu = &overrides(options.cpu, machine.number, &tables_of)?;
    let contracts = &contracts(options.contracts, &symbols)?;
    let lists = (!arrays.initialisers.is_empty(), !arrays.finalisers.is_empty());
    let sizes = tables.sizes(lists, NOTES);
    let (symbols, scan, frames, arrays) = (&symbols, &scan, &frames, &arrays);
    let mut parts = Parts {
        inputs,
        tables: &tables_of,
        symbols,
        scan,
        frames,
        arrays,
        sizes,
        machine,
        cpu,
        contracts,
        debug: options.debug,
        headers: HEADERS,
    };
    let too_large = |bytes| Error::Image(ImageError::TooLarge { bytes });
    let layout = relr::lay_out(&mut parts).ok_or_else(|| too_large(u64::MAX))?;
    let end = layout.segments.iter().map(|segment| segment.address.saturating_add(segment.memory_bytes)).max();
    if end.is_some_and(|end| end >= MOST) {
        return Err(too_large(end.unwrap_or(u64::MAX)));
    }
    Writer::new(&parts, &layout, &tables).write()
}

/// Returns the needs of functions that the builder has named.
fn overrides(
    named: &[(String, Vec<String>)],
    machine: u16,
    tables: &[Option<LinkTables<'_>>],
) -> Result<HashMap<String, Needs>> {
    let mut overrides = HashMap::new();
    for (function, features) in named {
        if !tables.iter().flatten().any(|tables| has_function(tables, function)) {
            return Err(Error::Image(ImageError::UnknownFunction { function: function.clone() }));
        }
        let mut needs = Needs::default();
        for feature in features {
            let number = cpu::number(machine, feature).ok_or_else(|| {
                let (function, feature) = (function.clone(), feature.clone());
                Error::Image(ImageError::UnknownFeature { function, feature, known: cpu::names(machine).collect() })
            })?;
            needs.add(number, 0);
        }
        overrides.insert(function.clone(), needs);
    }
    Ok(overrides)
}

/// Returns the signatures as an image has them, each of a function that others can find.
fn contracts(given: &[(String, String)], symbols: &Symbols<'_>) -> Result<String> {
    let exported: HashSet<&str> = match given.is_empty() {
        true => HashSet::new(),
        false => symbols.globals.iter().filter(|global| global.is_exported()).map(|global| global.name).collect(),
    };
    let mut lines: Vec<&str> = Vec::with_capacity(given.len());
    for (kernel, signature) in given {
        if !exported.contains(kernel.as_str()) {
            return Err(Error::Image(ImageError::UnknownKernel { kernel: kernel.clone() }));
        }
        lines.push(signature);
    }
    lines.sort_unstable();
    Ok(lines.into_iter().flat_map(|line| [line, "\n"]).collect())
}
