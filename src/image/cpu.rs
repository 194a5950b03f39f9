//! What the functions of objects need of the CPU.

use hashbrown::HashMap;

use super::input::{Input, Inputs, machine_of};
use crate::cpu::list::{List, Record};
use crate::cpu::needs::Needs;
use crate::cpu::{self, CpuFeature, FunctionNeeds, read};
use crate::elf::image_file::{ExportPlace, Unfit, read_image};
use crate::elf::link_tables::{LinkTables, SymbolPlace};
use crate::elf::{EM_AARCH64, HOST_MACHINE, STT_FUNC, STT_GNU_IFUNC};
use crate::{Error, Limits, Result};

/// A function of an object, and what it needs.
pub(super) struct Function<'a> {
    pub(super) name: &'a str,
    pub(super) section: u32,
    pub(super) value: u64,
    pub(super) needs: Needs,
}

/// Reads all functions of an object that have a place in the image.
pub(super) fn functions<'a>(input: &'a Input, tables: &LinkTables<'a>) -> Vec<Function<'a>> {
    let marks = Marks::collect(input, tables);
    let functions = tables.symbols().filter(|(_, symbol)| is_function(symbol.kind));
    let functions = functions.filter_map(|(i, symbol)| {
        let SymbolPlace::Section(section, value) = tables.place(i, &symbol) else { return None };
        if !input.section(section)?.is_executable() || !input.is_placed(section) {
            return None;
        }
        let name = tables.name(&symbol)?;
        Some(Function { name, section, value, needs: marks.read(input, section, value, symbol.size) })
    });
    functions.collect()
}

/// Returns whether an object has a function of this name.
pub(super) fn has_function(tables: &LinkTables<'_>, name: &str) -> bool {
    tables.symbols().any(|(_, symbol)| is_function(symbol.kind) && tables.name(&symbol) == Some(name))
}

fn is_function(kind: u8) -> bool {
    matches!(kind, STT_FUNC | STT_GNU_IFUNC)
}

/// Where instructions and data begin in the code of AArch64 (AAELF64, "Mapping symbols").
struct Marks(HashMap<u32, Vec<(u64, bool)>>);

impl Marks {
    fn collect(input: &Input, tables: &LinkTables<'_>) -> Self {
        let mut marks = HashMap::<u32, Vec<(u64, bool)>>::new();
        if input.index.machine == EM_AARCH64 {
            for (i, symbol) in tables.symbols().filter(|(_, symbol)| symbol.is_local()) {
                let name = tables.name(&symbol).unwrap_or_default();
                let is =
                    |mark: &str| name.strip_prefix(mark).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
                let is_data = is("$d");
                if let SymbolPlace::Section(section, value) = tables.place(i, &symbol)
                    && (is_data || is("$x"))
                {
                    marks.entry(section).or_default().push((value, is_data));
                }
            }
            marks.values_mut().for_each(|marks| marks.sort_unstable());
        }
        Self(marks)
    }

    /// Reads the instructions of a function; what has no size is not known.
    fn read(&self, input: &Input, section: u32, value: u64, size: u64) -> Needs {
        let unknown = Needs { undecoded: true, ..Needs::default() };
        let Some(end) = value.checked_add(size).filter(|end| *end != value) else { return unknown };
        let contents = input.contents(section);
        let mut needs = Needs::default();
        let marks = self.0.get(&section).map_or(&[][..], Vec::as_slice);
        let first = marks.partition_point(|(at, _)| *at <= value);
        let mut is_data = first.checked_sub(1).and_then(|at| marks.get(at)).is_some_and(|(_, is_data)| *is_data);
        let mut at = value;
        let inside = marks.get(first..).unwrap_or_default().iter().take_while(|(at, _)| *at < end);
        for (next, next_is_data) in inside.copied().chain([(end, false)]) {
            let range = usize::try_from(at).ok().zip(usize::try_from(next).ok());
            let Some(code) = range.and_then(|(at, next)| contents.get(at..next)) else { return unknown };
            if !is_data {
                needs.append(&read(input.index.machine, code), at - value);
            }
            (at, is_data) = (next, next_is_data);
        }
        needs
    }
}

/// Returns what each function of an object or of an image needs of the CPU, in the order of the symbols or of the
/// addresses. Nothing is linked, and the object may be of the other machine. An image says what it was made with; its
/// functions that run on every CPU are not listed.
///
/// A function counts as one that needs what it has anywhere, also behind a question to the CPU. `rep bsf` counts for
/// every x86-64 CPU: compilers write it where it does the same as `tzcnt`.
///
/// ```no_run
/// # fn main() -> slabjit::Result<()> {
/// for function in slabjit::cpu_needs("gemm.o", &std::fs::read("gemm.o").expect("readable"))? {
///     let missing: Vec<_> = function.features.iter().filter(|feature| feature.present == Some(false)).collect();
///     println!("{} {missing:?}", function.function);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Object`] and [`Error::Link`](crate::Error::Link) for an object that cannot be linked, [`Error::Image`] for
/// a shared object that is no image.
pub fn cpu_needs(name: &str, bytes: &[u8]) -> Result<Vec<FunctionNeeds>> {
    let machine = machine_of(bytes).unwrap_or(HOST_MACHINE);
    let is_native = machine == HOST_MACHINE;
    match image_needs(bytes, machine) {
        Ok(functions) => return Ok(functions),
        Err(Unfit::NotElf | Unfit::NotShared) => {}
        Err(unfit) => return Err(Error::Image(unfit.into_error(name))),
    }
    let input = Inputs::new(machine, Limits::default()).prepare(name, bytes)?;
    let tables = input.tables();
    let named = |Function { name: function, needs, .. }: Function<'_>| FunctionNeeds {
        function: function.to_owned(),
        features: needs
            .features
            .iter()
            .map(|(n, at)| CpuFeature::new(cpu::name(machine, *n), *at, is_native))
            .collect(),
        unknown: needs.undecoded,
    };
    Ok(tables.iter().flat_map(|tables| functions(&input, tables)).map(named).collect())
}

/// Returns the features that the functions of an object or of an image need, all together; `None` of what is neither,
/// and of an object that asks the CPU which of its functions to call.
#[cfg(feature = "shared-cache")]
pub(crate) fn needs_of_all(bytes: &[u8]) -> Option<Vec<String>> {
    let machine = machine_of(bytes).unwrap_or(HOST_MACHINE);
    let mut names: Vec<String> = match image_needs(bytes, machine) {
        Ok(functions) => functions.into_iter().flat_map(|of| of.features).map(|feature| feature.name).collect(),
        Err(_) => {
            let input = Inputs::new(machine, Limits::default()).prepare("an entry", bytes).ok()?;
            let tables = input.tables()?;
            let asks = |name: &str| ASKS.contains(&name);
            if tables.symbols().any(|(_, of)| of.kind == STT_GNU_IFUNC || tables.name(&of).is_some_and(asks)) {
                return None;
            }
            let needs = functions(&input, &tables).into_iter().flat_map(|function| function.needs.features);
            needs.map(|(number, _)| cpu::name(machine, number).to_owned()).collect()
        }
    };
    names.sort_unstable();
    names.dedup();
    Some(names)
}

/// What objects refer to that ask which CPU this is: libgcc's and compiler-rt's.
#[cfg(feature = "shared-cache")]
const ASKS: &[&str] = &[
    "__aarch64_cpu_features",
    "__cpu_features2",
    "__cpu_indicator_init",
    "__cpu_model",
    "__init_cpu_features_resolver",
    "getauxval",
];

fn image_needs(bytes: &[u8], machine: u16) -> std::result::Result<Vec<FunctionNeeds>, Unfit> {
    let (_, image) = read_image(bytes, machine, false)?;
    let mut names: HashMap<u64, &str> = image.functions(bytes).iter().map(|of| (of.address, of.name)).collect();
    names.extend(image.exports(bytes).iter().filter_map(|export| match export.place {
        ExportPlace::Segment(_, address) => Some((address, export.name)),
        _ => None,
    }));
    let list = List::new(image.cpu(bytes)).ok_or(Unfit::CPU_LIST)?;
    let named = |record: std::result::Result<Record<'_>, ()>| {
        let Record { address, features, undecoded } = record.map_err(|()| Unfit::CPU_LIST)?;
        let feature = |(name, at): &(&str, u64)| CpuFeature::new(name, *at, machine == HOST_MACHINE);
        Ok(FunctionNeeds {
            function: names.get(&address).map_or_else(|| format!("{address:#x}"), |name| (*name).to_owned()),
            features: features.iter().map(feature).collect(),
            unknown: undecoded,
        })
    };
    list.records().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::testing;

    /// A function, its features with their offsets, and whether there may be more.
    type Told<'a> = (&'a str, Vec<(&'a str, u64)>, bool);

    fn told(functions: &[FunctionNeeds]) -> Vec<Told<'_>> {
        fn features(of: &FunctionNeeds) -> Vec<(&str, u64)> {
            of.features.iter().map(|feature| (&*feature.name, feature.offset)).collect()
        }
        functions.iter().map(|of| (&*of.function, features(of), of.unknown)).collect()
    }

    /// Data between instructions is not read as such; an instruction of the same bits is.
    #[test]
    fn literals_of_aarch64_are_no_instructions() {
        let object = testing::asm_arm(
            ".arch_extension sve\n .arch_extension lse
             .globl literal, vector, between, unsized
             .type literal, %function
             literal: ldr x0, 1f\n ret\n 1: .quad 0x04a0e3e004a0e3e0\n .size literal, . - literal
             .type vector, %function
             vector: nop\n cntw x0\n ret\n .size vector, . - vector
             .type between, %function
             between: b 2f\n .word 0x04a0e3e0\n 2: ldaddal w1, w2, [x3]\n ret\n .size between, . - between
             .type unsized, %function
             unsized: ret",
        );
        let functions = cpu_needs("a.o", &object).unwrap();
        let mut told = told(&functions);
        told.sort_unstable();
        assert_eq!(
            told,
            [
                ("between", vec![("LSE", 8)], false),
                ("literal", vec![], false),
                ("unsized", vec![], true),
                ("vector", vec![("SVE", 4)], false),
            ]
        );
    }

    /// Each function of an object counts, and of an image those that need something.
    #[test]
    fn objects_and_images_say_the_same() {
        let object = testing::asm(
            ".globl plain, wide\n .type plain, @function\n plain: nop\n ret\n .size plain, . - plain
             .type wide, @function\n wide: nop\n vpaddd %ymm0, %ymm1, %ymm2\n ret\n .size wide, . - wide
             .type hidden, @function\n hidden: lzcnt %eax, %ecx\n ret\n .size hidden, . - hidden",
        );
        let functions = cpu_needs("a.o", &object).unwrap();
        let mut of_object = told(&functions);
        of_object.sort_unstable();
        let [hidden, wide] = [("hidden", vec![("LZCNT", 0)], false), ("wide", vec![("AVX2", 1)], false)];
        assert_eq!(of_object, [hidden.clone(), ("plain", vec![], false), wide.clone()]);
        let image = crate::ImageBuilder::new().object("a.o", object).link().unwrap();
        let functions = cpu_needs("a.so", &image).unwrap();
        let mut of_image = told(&functions);
        of_image.sort_unstable();
        assert_eq!(of_image, [hidden, wide]);
        let error = cpu_needs("a.txt", b"text").unwrap_err().to_string();
        assert!(error.contains("a.txt"), "{error}");
    }
}
