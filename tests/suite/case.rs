//! The cases in `tests/cases`: one source file each, which says in comments at its top how to compile it and what it
//! does.
//!
//! Every case is compiled by every tool at every level. Each object is first linked by the system's linker and opened
//! with `dlopen`, which is the oracle, and then loaded by slabjit, in the same process. Both have to give the result
//! that the case names.
//!
//! A directive is a line that starts with `//#` (C, C++), `##` (assembly) or `;#` (LLVM IR):
//!
//! | directive | meaning |
//! |---|---|
//! | `arch: NAME (REASON)` | for `x86_64` or `aarch64` only |
//! | `compile: FLAGS` | flags beyond `-fPIC` (C, C++); `compile[TOOL]:`, `compile[ARCH]:` for one tool or architecture only |
//! | `tools: NAME…` | instead of gcc, clang-19, clang-22 (C, C++, assembly) or llc-19, llc-22 (LLVM IR) |
//! | `levels: -OX…` | instead of -O0 and -O2 (assembly has none) |
//! | `with: FILE…` | further objects of the same library, from `tests/cases/with`, after the case's own |
//! | `libs: SONAME…` | shared libraries that it needs (C++ gets libstdc++ and libgcc_s) |
//! | `call: NAME(INTEGERS) = INTEGER` | calls in order |
//! | `trace: INTEGERS \| INTEGERS` | what `trace(int)` has to see up to the last call, and at removal |
//! | `error: VARIANT /TEXT/` | instead of calls: the error's variant, and a part of its text (optional) |
//! | `oracle: dlopen`, `oracle: none (REASON)` | the default is dlopen; `oracle[aarch64]: none (REASON)` there only |
//! | `image: none (REASON)` | it is no image, and the reason is in the error; `image[TOOL]:`, `image[ARCH]:` |
//! | `link: FLAGS`, `linker: COMMAND` | for the oracle: flags for the linker, another one than gcc |
//! | `turns: (REASON)` | its variants run one after the other |
//! | `needs: FEATURE…` | passes without being run where the CPU lacks one |
//!
//! Assembly says `.include "arch.inc"` for what differs between architectures: `tests/cases/include`.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use libtest_mimic::{Failed, Trial};
use slabjit::{Error, ImageBuilder, JitEngine, Library, ObjectError, Symbol};

use crate::common::{self, Checked, assert_no_rwx, once_per, temporary, tool};
use crate::target;

/// In the file name of everything that the oracle links.
pub const ORACLE: &str = "slabjit-oracle";

type Function = unsafe extern "C-unwind" fn(i64, i64, i64, i64) -> i32;

/// What a source file's directives say.
#[derive(Debug, Clone, Default)]
struct Case {
    path: PathBuf,
    arch: Option<String>,
    compile: Vec<(Option<String>, Vec<String>)>,
    tools: Vec<String>,
    levels: Vec<String>,
    with: Vec<String>,
    libs: Vec<String>,
    calls: Vec<Call>,
    trace: Option<(Vec<i32>, Vec<i32>)>,
    error: Option<(String, String)>,
    no_oracle: bool,
    no_image: Vec<(Option<String>, String)>,
    link: Vec<String>,
    linker: Vec<String>,
    needs: Vec<String>,
    turns: bool,
}

#[derive(Debug, Clone)]
struct Call {
    name: String,
    arguments: Vec<i64>,
    result: i32,
}

/// One case with one tool at one level.
#[derive(Debug, Clone)]
pub struct Variant {
    case: Case,
    tool: String,
    level: String,
}

/// Every variant of every case, in alphabetical order.
pub fn all() -> Vec<Variant> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_file()).collect();
    files.sort();
    let mut variants = Vec::new();
    for path in files {
        let case = Case::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        if case.arch.as_ref().is_some_and(|arch| arch != target::ARCH) {
            continue;
        }
        for tool in &case.tools {
            for level in &case.levels {
                variants.push(Variant { case: case.clone(), tool: tool.clone(), level: level.clone() });
            }
        }
    }
    variants
}

impl Case {
    fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
        let extension = extension(path);
        let defaults: (&[&str], &[&str]) = match extension {
            "c" | "cc" => (&["gcc", "clang-19", "clang-22"], &["-O0", "-O2"]),
            "s" => (&["gcc", "clang-19", "clang-22"], &[""]),
            "ll" => (&["llc-19", "llc-22"], &["-O0", "-O2"]),
            _ => return Err("not a .c, .cc, .s or .ll file".into()),
        };
        let owned = |list: &[&str]| list.iter().map(|s| s.to_string()).collect::<Vec<_>>();
        let mut case =
            Self { path: path.into(), tools: owned(defaults.0), levels: owned(defaults.1), ..Self::default() };
        if extension == "cc" {
            case.libs = owned(&["libstdc++.so.6", "libgcc_s.so.1"]);
        }
        for line in text.lines() {
            let Some(directive) = ["//#", "##", ";#"].iter().find_map(|p| line.strip_prefix(p)) else { continue };
            case.directive(directive.trim()).map_err(|e| format!("{line}: {e}"))?;
        }
        if case.calls.is_empty() && case.trace.is_none() && case.error.is_none() {
            return Err("has no call, no trace and no error: it tests nothing".into());
        }
        Ok(case)
    }

    fn directive(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_once(':').ok_or("no colon")?;
        let value = value.trim();
        let words = || value.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        match name {
            "arch" => match value.split_once(" (") {
                Some((arch @ ("x86_64" | "aarch64"), reason)) if reason.ends_with(')') => self.arch = Some(arch.into()),
                _ => return Err("not x86_64 or aarch64, and a reason".into()),
            },
            "compile" => self.compile.push((None, words())),
            "tools" => self.tools = words(),
            "levels" => self.levels = words(),
            "with" => self.with = words(),
            "libs" => self.libs.extend(words()),
            "link" => self.link = words(),
            "linker" => self.linker = words(),
            "needs" => self.needs = words(),
            "turns" if value.starts_with('(') => self.turns = true,
            "call" => self.calls.push(Call::read(value).ok_or("not NAME(INTEGERS) = INTEGER")?),
            "trace" => {
                let (before, after) = value.split_once('|').ok_or("no |")?;
                self.trace = Some((integers(before)?, integers(after)?));
            }
            "error" => {
                let (variant, pattern) = value.split_once(' ').unwrap_or((value, ""));
                self.error = Some((variant.into(), pattern.trim_matches('/').into()));
            }
            _ if name.starts_with("image") => {
                let tool = name.strip_prefix("image[").and_then(|tool| tool.strip_suffix(']')).map(str::to_owned);
                let reason = value.strip_prefix("none (").and_then(|reason| reason.strip_suffix(')'));
                self.no_image.push((tool, reason.ok_or("not none (REASON)")?.to_owned()));
            }
            "oracle" if value == "dlopen" => self.no_oracle = false,
            "oracle" if value.starts_with("none (") => self.no_oracle = true,
            "oracle[aarch64]" if value.starts_with("none (") => self.no_oracle |= target::ARCH == "aarch64",
            _ => match name.strip_prefix("compile[").and_then(|n| n.strip_suffix(']')) {
                Some(tool) => self.compile.push((Some(tool.into()), words())),
                None => return Err("unknown directive".into()),
            },
        }
        Ok(())
    }
}

impl Call {
    fn read(text: &str) -> Option<Self> {
        let (call, result) = text.split_once('=')?;
        let (name, arguments) = call.trim().strip_suffix(')')?.split_once('(')?;
        let arguments = arguments.split(',').map(str::trim).filter(|a| !a.is_empty());
        let arguments = arguments.map(|a| a.parse().ok()).collect::<Option<Vec<_>>>()?;
        Some(Self { name: name.into(), arguments, result: result.trim().parse().ok()? })
    }

    /// # Safety
    /// `function` is a C function that takes at most four integers or pointers and returns int.
    unsafe fn run(&self, function: Function) -> i32 {
        let a = |i| self.arguments.get(i).copied().unwrap_or(0);
        // SAFETY: by the caller; integer arguments beyond those it takes are ignored in the C calling conventions used
        // here.
        unsafe { function(a(0), a(1), a(2), a(3)) }
    }
}

fn integers(text: &str) -> Result<Vec<i32>, String> {
    text.split_whitespace().map(|n| n.parse().map_err(|_| format!("'{n}' is not an integer"))).collect()
}

fn extension(path: &Path) -> &str {
    path.extension().and_then(|e| e.to_str()).unwrap_or("")
}

// ---- the host's side ----

thread_local! {
    static TRACE: RefCell<Vec<i32>> = const { RefCell::new(Vec::new()) };
}

/// What cases call as `trace`.
pub extern "C" fn trace(value: i32) {
    TRACE.with_borrow_mut(|t| t.push(value));
}

/// What was traced on this thread since the last call.
pub fn take_trace() -> Vec<i32> {
    TRACE.with_borrow_mut(std::mem::take)
}

/// An object that defines `trace` for the oracle: a jump to ours, since a test executable exports nothing.
fn trampoline() -> PathBuf {
    let source = format!("void trace(int v) {{ ((void (*)(int)){}ul)(v); }}", trace as *const () as usize);
    common::compile("trace.c", &source, &["-fvisibility=hidden"])
}

// ---- running ----

/// What happened in one loading.
#[derive(Debug, PartialEq)]
struct Outcome {
    results: Vec<i32>,
    before: Vec<i32>,
    after: Vec<i32>,
}

impl Variant {
    /// Such as `arithmetic.c::gcc::O2`.
    pub fn name(&self) -> String {
        let file = self.case.path.file_name().unwrap().to_string_lossy();
        let level = self.level.trim_start_matches('-');
        format!("{file}::{}{}{level}", self.tool, if level.is_empty() { "" } else { "::" })
    }

    /// As a test, with an engine of its own.
    pub fn trial(self) -> Trial {
        Trial::test(self.name(), move || {
            let engine = Checked::for_a_case();
            self.run(&engine)?;
            engine.finish();
            Ok(())
        })
    }

    /// Compiles, asks the oracle, loads, compares.
    pub fn run(&self, engine: &JitEngine) -> Result<(), Failed> {
        let missing: Vec<_> = self.case.needs.iter().filter(|f| !cpu_has(f)).collect();
        if !missing.is_empty() {
            eprintln!("{}: not run, this CPU lacks {missing:?}", self.name());
            return Ok(());
        }
        static TURNS: Mutex<()> = Mutex::new(());
        let _turn = self.case.turns.then(|| TURNS.lock().unwrap_or_else(PoisonError::into_inner));
        let objects = self.objects();
        if let Some((variant, pattern)) = &self.case.error {
            return self.expect_error(engine, &objects, variant, pattern);
        }
        let named = self.case.trace.as_ref();
        let expected = Outcome {
            results: self.case.calls.iter().map(|c| c.result).collect(),
            before: named.map(|t| t.0.clone()).unwrap_or_default(),
            after: named.map(|t| t.1.clone()).unwrap_or_default(),
        };
        if !self.case.no_oracle {
            let oracle = self.with_dlopen(&objects);
            if oracle != expected {
                return Err(format!("the oracle (dlopen) gives {oracle:?}, the case says {expected:?}").into());
            }
        }
        let ours = self.with_slabjit(engine, &objects)?;
        if ours != expected {
            return Err(format!(
                "slabjit gives {ours:?}, {} {expected:?}",
                if self.case.no_oracle { "the case says" } else { "case and dlopen say" }
            )
            .into());
        }
        assert_no_rwx();
        self.as_image(engine, &objects, &expected)
    }

    /// The objects as one image, opened by the dynamic loader and by slabjit.
    fn as_image(&self, engine: &JitEngine, objects: &[PathBuf], expected: &Outcome) -> Result<(), Failed> {
        // Some pack, where the oracle knows that.
        let mut builder = ImageBuilder::new().pack_relative_relocations(self.packs() && common::glibc() >= (2, 36));
        for object in objects.iter().chain([&trampoline()]) {
            builder = builder.object_file(object)?;
        }
        for library in self.libraries() {
            builder = builder.shared_library(library);
        }
        let applies = |only: &String| *only == self.tool || only == target::ARCH;
        let refused = self.case.no_image.iter().find(|(only, _)| only.as_ref().is_none_or(applies));
        let bytes = match (builder.link(), refused.map(|(_, reason)| reason)) {
            (Ok(_), Some(reason)) => return Err(format!("is an image, although not said to be: {reason}").into()),
            (Err(error), Some(reason)) if error.to_string().contains(reason) => return Ok(()),
            (bytes, _) => bytes?,
        };
        let path = temporary().join(format!("{ORACLE}-image-{}.so", self.name().replace("::", "-")));
        std::fs::write(&path, bytes)?;
        let image = self.opened(&path);
        if image != *expected {
            return Err(format!("the image gives {image:?}, the case says {expected:?}").into());
        }
        let ours = self.called(|| {
            let library = self.library(engine)?;
            library.add_image_file(&path)?;
            Ok(library)
        })?;
        if ours != *expected {
            return Err(format!("the image gives {ours:?} when slabjit loads it, the case says {expected:?}").into());
        }
        assert_no_rwx();
        Ok(())
    }

    /// Whether the image packs relative relocations.
    fn packs(&self) -> bool {
        self.level == "-O2"
    }

    /// The shared libraries of the case.
    fn libraries(&self) -> Vec<PathBuf> {
        let path = |lib| tool("gcc", &[format!("-print-file-name={lib}")]).trim().into();
        self.case.libs.iter().map(path).collect()
    }

    /// The case's object and those it comes with, in order.
    fn objects(&self) -> Vec<PathBuf> {
        let with = self.case.path.parent().unwrap().join("with");
        let helpers = self.case.with.iter().map(|f| self.compile(&with.join(f)));
        std::iter::once(self.compile(&self.case.path)).chain(helpers).collect()
    }

    /// Writes them into a folder, under names of their own, and an image of them, if they can be one.
    pub fn write_objects(&self, folder: &Path) {
        for (i, object) in self.objects().iter().enumerate() {
            std::fs::copy(object, folder.join(format!("{}.{i}.o", self.name().replace("::", "-")))).unwrap();
        }
        let builder =
            self.objects().iter().try_fold(ImageBuilder::new(), |builder, object| builder.object_file(object));
        let builder = builder.map(|builder| builder.pack_relative_relocations(self.packs()));
        if let Ok(image) = builder.and_then(|builder| builder.link()) {
            std::fs::write(folder.join(format!("{}.so", self.name().replace("::", "-"))), image).unwrap();
        }
    }

    fn compile(&self, source: &Path) -> PathBuf {
        let stem = source.file_stem().unwrap().to_string_lossy();
        let of_case = extension(source) == extension(&self.case.path);
        let applies = |only: &String| *only == self.tool || only == target::ARCH;
        let flags = self.case.compile.iter().filter(|(only, _)| of_case && only.as_ref().is_none_or(applies));
        let flags: Vec<&str> = flags.flat_map(|(_, f)| f).map(String::as_str).collect();
        let mut arguments: Vec<OsString> = Vec::new();
        let program = match (extension(source), self.tool.strip_prefix("llc-")) {
            ("ll", _) => {
                arguments.push("-filetype=obj".into());
                self.tool.clone()
            }
            (_, Some(version)) => format!("clang-{version}"),
            _ => self.tool.clone(),
        };
        match extension(source) {
            "c" => arguments.extend(["-c", "-fPIC", "-Wall"].map(OsString::from)),
            "cc" => arguments.extend(["-c", "-fPIC", "-Wall", "-x", "c++", "-std=c++17"].map(OsString::from)),
            "s" => {
                let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/include").join(target::ARCH);
                arguments.extend(["-c".into(), format!("-Wa,-I,{}", include.display()).into()]);
            }
            _ => {}
        }
        if !self.level.is_empty() {
            arguments.push(self.level.clone().into());
        }
        arguments.extend(flags.iter().map(OsString::from));
        let folder = once_per(&[&program, &source.to_string_lossy(), &self.level, &flags.join(" ")], "d", |folder| {
            std::fs::create_dir(folder).unwrap();
            arguments.extend([source.into(), "-o".into(), folder.join(&*stem).with_extension("o").into()]);
            tool(&program, &arguments);
        });
        folder.join(&*stem).with_extension("o")
    }

    /// The oracle.
    fn with_dlopen(&self, objects: &[PathBuf]) -> Outcome {
        let path = temporary().join(format!("{ORACLE}-{}.so", self.name().replace("::", "-")));
        let trampoline = trampoline();
        let inputs = objects.iter().chain([&trampoline]).map(|o| o.as_os_str().to_owned());
        let mut arguments: Vec<OsString> = vec!["-shared".into(), "-o".into(), path.clone().into()];
        arguments.extend(inputs);
        arguments.extend(self.libraries().into_iter().map(OsString::from));
        arguments.extend(self.case.link.iter().map(OsString::from));
        let linker = self.case.linker.first().map_or("gcc", String::as_str);
        arguments.extend(self.case.linker.iter().skip(1).map(OsString::from));
        tool(linker, &arguments);
        self.opened(&path)
    }

    /// Calls what a shared object has.
    fn opened(&self, path: &Path) -> Outcome {
        take_trace();
        // SAFETY: the cases' initialisers, functions and finalisers are ours and keep to their directives.
        unsafe {
            use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
            // Opened before, and so not bound to the oracle's copies of inline functions, which would keep it from
            // being closed.
            let libs: Vec<_> =
                self.case.libs.iter().map(|l| Library::open(Some(l), RTLD_NOW | RTLD_LOCAL).unwrap()).collect();
            let library = Library::open(Some(path), RTLD_NOW | RTLD_LOCAL).unwrap();
            let call = |c: &Call| c.run(*library.get::<Function>(c.name.as_bytes()).unwrap());
            let results = self.case.calls.iter().map(call).collect();
            let before = take_trace();
            library.close().unwrap();
            drop(libs);
            Outcome { results, before, after: take_trace() }
        }
    }

    fn library(&self, engine: &JitEngine) -> Result<Library, slabjit::Error> {
        // SAFETY: `trace` takes an int.
        let builder = unsafe { engine.library(&self.name()).symbol("trace", trace as *const ()) };
        // SAFETY: the shared libraries named in cases are those of the compilers.
        self.case.libs.iter().fold(builder, |b, l| unsafe { b.shared_library(l) }).build()
    }

    fn with_slabjit(&self, engine: &JitEngine, objects: &[PathBuf]) -> Result<Outcome, Failed> {
        self.called(|| {
            let library = self.library(engine)?;
            for object in objects {
                library.add_object_file(object)?;
            }
            check(&library, objects)?;
            Ok(library)
        })
    }

    /// Calls what a library has.
    fn called(&self, load: impl FnOnce() -> Result<Library, Failed>) -> Result<Outcome, Failed> {
        take_trace();
        let library = load()?;
        // SAFETY: the cases' initialisers and finalisers are ours and keep to their directives.
        unsafe { library.initialize()? };
        let mut results = Vec::new();
        for call in &self.case.calls {
            // SAFETY: the functions named in `call:` directives take integers or pointers and return int.
            let function: Symbol<Function> = unsafe { library.get(&call.name)? };
            // SAFETY: as above.
            results.push(unsafe { call.run(*function) });
        }
        let before = take_trace();
        let removal = library.remove();
        if !matches!(removal, slabjit::Removal::Freed) {
            return Err(format!("remove() gave {removal:?}").into());
        }
        Ok(Outcome { results, before, after: take_trace() })
    }

    fn expect_error(
        &self,
        engine: &JitEngine,
        objects: &[PathBuf],
        variant: &str,
        pattern: &str,
    ) -> Result<(), Failed> {
        let library = self.library(engine)?;
        let added = objects.iter().try_for_each(|o| library.add_object_file(o).map(drop));
        if check(&library, objects).is_ok() {
            return Err("is said to load, although an error is expected".into());
        }
        // SAFETY: as in with_slabjit.
        let Err(error) = added.and_then(|()| unsafe { library.initialize() }) else {
            return Err("loaded, although an error was expected".into());
        };
        let text = error.to_string();
        let object = objects[0].file_name().unwrap().to_string_lossy().into_owned();
        let as_expected = is_variant(&error, variant)? && text.contains(pattern) && text.contains(&object);
        library.remove();
        if !as_expected {
            return Err(format!("expected {variant} naming {object} and /{pattern}/, got {text}").into());
        }
        Ok(())
    }
}

/// Whether an error is the variant that a case names.
fn is_variant(error: &Error, name: &str) -> Result<bool, Failed> {
    match name {
        "WritableAndExecutable" => Ok(matches!(error, Error::Object(ObjectError::WritableAndExecutable { .. }))),
        _ => Err(format!("no case has named the variant {name} yet: add it to is_variant").into()),
    }
}

/// What `check` says of objects of a library.
fn check(library: &Library, objects: &[PathBuf]) -> Result<(), Failed> {
    for object in objects {
        let plan = library.check_object_named(&object.display().to_string(), std::fs::read(object)?)?;
        if !plan.loads() {
            return Err(format!("is said not to load: {plan}").into());
        }
    }
    match &library.undefined_symbols()?[..] {
        [] => Ok(()),
        missing => Err(format!("is said to lack {missing:?}").into()),
    }
}

#[cfg(target_arch = "x86_64")]
fn cpu_has(feature: &str) -> bool {
    match feature {
        "avx2" => is_x86_feature_detected!("avx2"),
        "fma" => is_x86_feature_detected!("fma"),
        _ => panic!("unknown CPU feature '{feature}'"),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu_has(_: &str) -> bool {
    false
}
