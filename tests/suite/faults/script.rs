//! What is done while calls fail: a library of each kind is loaded, called, removed and loaded again, and some fail to
//! link.
//!
//! Every step that fails is tried once more. After each, everything loaded before has to answer as it did.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};

use slabjit::{ArenaPlacement, Error, JitEngine, Library, LinkError, Removal, SlabLayout, Symbol};

use crate::common::{Int, compile, compile_with, link_shared, once_per, tool};
use crate::target::by_arch;

/// Far from every arena; what its lowest 32 bits say is what each library's `value` returns.
const FAR: usize = 0x0000_0007_0000_002a;
const VALUE: i32 = 42;
/// Where there is room for an arena: neither executables nor libraries are there.
const PLACE: usize = 0x0000_0010_0000_0000;

const PLAIN: &str = "int base = 40; char zero[5 << 20]; int plain(void) { zero[9] = 2; return base + zero[9]; }
    int value(void) { return plain(); }";
const LINKED: &str = "int plain(void); int value(void) { return plain(); }";
const MEMBER: &str = "int member(void) { return 42; }";
const ARCHIVED: &str = "int member(void); int value(void) { return member(); }";
const THREAD_LOCAL: &str = "static __thread int counter = 41; int value(void) { return ++counter, counter--; }";
/// At a fixed distance from the thread pointer, initialised with an address, and a variable of the process.
const FIXED: &str = "int base = 41; __thread int *where = &base;
    extern __thread int process_errno __asm__(\"errno\"); int close(int);
    int value(void) { process_errno = 0; close(-1); return *where + (process_errno == 9); }";
const INDIRECT: &str = "static int fast(void) { return 42; } static int (*resolve(void))(void) { return fast; }
    int pick(void) __attribute__((ifunc(\"resolve\"))); int value(void) { return pick(); }";
const EXITS: &str = "void begins(void); void ends(void); int atexit(void (*)(void));
    __attribute__((constructor)) static void begin(void) { begins(); begins(); atexit(ends); }
    __attribute__((destructor)) static void end(void) { ends(); } int value(void) { return 42; }";
const THROWS: &str = "extern \"C\" int value() { try { throw 42; } catch (int e) { return e; } }";
const SHARED: &str = "int from_shared(void) { return 42; }";
const USES_SHARED: &str = "int from_shared(void); int value(void) { return from_shared(); }";
const BRIDGED: &str = by_arch(
    ".text\n.globl value\nvalue: leaq far(%rip),%rax\n ret\n",
    ".text\n.globl value\nvalue: adrp x0, far\n add x0, x0, :lo12:far\n ret\n",
);
const OUTSIDE: &str = "char weights[5 << 20]; int value(void) { volatile long i = 5; return weights[i] + 42; }";
/// Some of them are more than a unit of what is packed, of each pool.
const KERNEL: &str = "char data[5000] = {1}; const char table[5000] = {41};
    int value(void) { volatile long i = 0; return table[i] + data[i]; }
    __asm__(\".pushsection .text.kernel, \\\"ax\\\"\\n.globl code\\ncode: .fill 5000\\n.popsection\"); extern char code[];
    char *used = code;";
/// So large that another one gets its memory.
const LARGE: &str = "const char table[200000] = {42}; int value(void) { volatile long i = 0; return table[i]; }";
const EXPORTING: &str =
    "int exported_data = 42; int exported(void) { return exported_data; } int value(void) { return exported(); }";
const UNDEFINED: &str = "int nowhere(void); int value(void) { return nowhere(); }";
const NOWHERE: &str = "int nowhere(void) { return 42; }";
const UNREACHABLE: &str = ".globl value\nvalue: ret\n.balign 4\n.long far - .\n";
const FAILS: &str =
    "static int fail() { throw 5; } static int failed = fail(); extern \"C\" int value() { return failed; }";

/// A folder with all files of the script.
pub fn files() -> PathBuf {
    let fixed: &[&str] = &["-ftls-model=initial-exec"];
    let large: &[&str] = by_arch(&["-mcmodel=medium"], &[]);
    let sources: [(&str, &str, &[&str]); 18] = [
        ("plain.c", PLAIN, &[]),
        ("linked.c", LINKED, &[]),
        ("member.c", MEMBER, &[]),
        ("archived.c", ARCHIVED, &[]),
        ("thread_local.c", THREAD_LOCAL, &["-ftls-model=global-dynamic"]),
        ("fixed.c", FIXED, fixed),
        ("indirect.c", INDIRECT, &[]),
        ("exits.c", EXITS, &[]),
        ("shared.c", SHARED, &[]),
        ("uses_shared.c", USES_SHARED, &[]),
        ("bridged.s", BRIDGED, &[]),
        ("outside.c", OUTSIDE, large),
        ("kernel.c", KERNEL, &[]),
        ("large.c", LARGE, &[]),
        ("exporting.c", EXPORTING, &[]),
        ("undefined.c", UNDEFINED, &[]),
        ("nowhere.c", NOWHERE, &[]),
        ("unreachable.s", UNREACHABLE, &[]),
    ];
    once_per(&["faults"], "d", |folder| {
        std::fs::create_dir(folder).unwrap();
        let mut objects: Vec<PathBuf> = sources.map(|(name, source, flags)| compile(name, source, flags)).into();
        objects.extend([("throws.cc", THROWS), ("fails.cc", FAILS)].map(|(n, s)| compile_with("g++", n, s, &[])));
        for object in &objects {
            std::fs::copy(object, folder.join(object.file_name().unwrap())).unwrap();
        }
        let archive = folder.join("member.a");
        tool("ar", &["rcs".as_ref(), archive.as_os_str(), folder.join("member.o").as_os_str()]);
        let library = link_shared("libshared.so", &[&folder.join("shared.o")], &[]);
        std::fs::copy(library, folder.join("libshared.so")).unwrap();
        let image = slabjit::ImageBuilder::new().object_file(folder.join("large.o")).unwrap().link().unwrap();
        std::fs::write(folder.join("large.image"), image).unwrap();
    })
}

/// What became of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What failed, although nothing is wrong with it, at the first or at the second attempt.
    pub errors: Vec<String>,
    /// Steps that failed twice.
    pub missing: Vec<&'static str>,
}

struct Loaded {
    value: Symbol<Int>,
    library: Library,
}

struct Script<'a> {
    files: &'a Path,
    loaded: Vec<Loaded>,
    outcome: Outcome,
}

/// Constructors that ran and destructors that have not.
static BEGUN: AtomicI32 = AtomicI32::new(0);

extern "C" fn begins() {
    BEGUN.fetch_add(1, Ordering::Relaxed);
}

extern "C" fn ends() {
    BEGUN.fetch_sub(1, Ordering::Relaxed);
}

/// Does all of it, with the files of [`files`].
pub fn run(files: &Path) -> Outcome {
    let mut script = Script { files, loaded: Vec::new(), outcome: Outcome::default() };
    for (hardened, kernels) in [(false, 96), (true, 0)] {
        let builder = || JitEngine::builder().arena_size(64 << 20).slab_layout(SlabLayout::Packed).hardened(hardened);
        if let Some(engine) = script.attempt("a packed engine", || builder().quarantine(0).build()) {
            script.load_packed(&engine, kernels);
        }
    }
    let engine = script.attempt("an engine", || JitEngine::builder().arena_size(64 << 20).quarantine(1 << 20).build());
    if let Some(engine) = engine {
        script.load_all(&engine);
    }
    let near = ArenaPlacement::Near { address: PLACE };
    let placed = || JitEngine::builder().arena_size(16 << 20).arena_placement(near).build();
    if let Some(engine) = script.attempt("a placed engine", placed) {
        script.load(&engine, "in a placed engine", &["nowhere.o", "undefined.o"], None);
    }
    script.has_a_signal_stack();
    // The engines are gone; what was loaded is not.
    script.check();
    let Script { outcome, mut loaded, .. } = script;
    while !loaded.is_empty() {
        // Neither in the order of loading nor in the opposite one.
        loaded.swap_remove(loaded.len() / 2);
    }
    assert_eq!(BEGUN.load(Ordering::Relaxed), 0, "destructors");
    outcome
}

impl Script<'_> {
    fn load_all(&mut self, engine: &JitEngine) {
        let plain = self.load(engine, "plain code", &["plain.o"], None);
        self.load(engine, "a library linked against another", &["linked.o"], plain.as_ref());
        self.load(engine, "a large kernel", &["large.o"], None);
        self.load(engine, "a large image", &["large.image"], None);
        self.load(engine, "an archive", &["archived.o", "member.a"], None);
        self.load(engine, "thread-local variables", &["thread_local.o"], None);
        self.load(engine, "thread-local variables at a fixed distance", &["fixed.o"], None);
        self.load(engine, "an indirect function", &["indirect.o"], None);
        self.load(engine, "exit handlers", &["exits.o"], None);
        self.load(engine, "exceptions", &["throws.o"], None);
        self.load(engine, "a shared library", &["libshared.so", "uses_shared.o"], None);
        self.load(engine, "bridges", &["bridged.o"], None);
        self.load(engine, "a section outside the arena", &["outside.o"], None);
        self.load(engine, "exported names", &["exporting.o"], None);
        self.fails_to_link(engine, "unreachable.o", |e| {
            matches!(e, Error::Link(LinkError::ReferencesOutOfRange { .. }))
        });
        self.fails_to_link(engine, "fails.o", |e| matches!(e, Error::Link(LinkError::InitializerFailed { .. })));
        self.lacks_a_symbol_at_first(engine);
        // The first half is removed, while the rest goes on working, and comes again.
        for Loaded { value, library } in self.loaded.drain(..self.loaded.len() / 2) {
            drop(value);
            let removal = library.remove();
            assert!(matches!(removal, Removal::Freed | Removal::Waiting { .. }), "{removal:?}");
        }
        self.check();
        self.load(engine, "a large kernel again", &["large.o"], None);
        drop(plain);
        self.load(engine, "plain code again", &["plain.o"], None);
        self.load(engine, "thread-local variables again", &["thread_local.o"], None);
    }

    /// On a thread that has none.
    fn has_a_signal_stack(&mut self) {
        let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        let mut before = none;
        // SAFETY: no handler runs, and the thread gets its stack back.
        unsafe { libc::sigaltstack(&raw const none, &raw mut before) };
        let own = || {
            let stack = slabjit::crash::AlternateStack::of_this_thread();
            stack.map_err(|source| Error::Io { path: "the signal stack".into(), source })
        };
        drop(self.attempt("a signal stack", own));
        // SAFETY: as above.
        unsafe { libc::sigaltstack(&raw const before, std::ptr::null_mut()) };
    }

    /// All of it goes again; so many kernels go at once, so that memory is returned.
    fn load_packed(&mut self, engine: &JitEngine, kernels: usize) {
        self.load(engine, "packed code", &["nowhere.o", "undefined.o"], None);
        for _ in 0..kernels {
            self.load(engine, "a packed kernel", &["kernel.o"], None);
        }
        while self.loaded.len() > 1 {
            self.loaded.pop();
            self.check();
        }
        // Where others were.
        self.load(engine, "a packed indirect function", &["indirect.o"], None);
        self.loaded.clear();
    }

    /// Twice, if the first attempt fails.
    fn attempt<T>(&mut self, step: &'static str, mut attempt: impl FnMut() -> Result<T, Error>) -> Option<T> {
        for _ in 0..2 {
            let result = attempt();
            self.check();
            match result {
                Ok(done) => return Some(done),
                Err(error) => self.outcome.errors.push(format!("{step}: {error}")),
            }
        }
        self.outcome.missing.push(step);
        None
    }

    /// A library of some files, linked and initialised, and one that answers.
    fn load(
        &mut self,
        engine: &JitEngine,
        step: &'static str,
        files: &[&str],
        link: Option<&Library>,
    ) -> Option<Library> {
        let library = self.prepare(engine, step, files, link)?;
        // SAFETY: `value` is int(void) in each of the files.
        let value = self.attempt(step, || unsafe { library.get::<Int>("value") });
        if let Some(value) = value {
            self.loaded.push(Loaded { value, library: library.clone() });
            self.check();
        }
        Some(library)
    }

    /// The same without linking it.
    fn prepare(
        &mut self,
        engine: &JitEngine,
        step: &'static str,
        files: &[&str],
        link: Option<&Library>,
    ) -> Option<Library> {
        let paths: Vec<PathBuf> = files.iter().map(|file| self.files.join(file)).collect();
        let has = |path: &PathBuf, extension| path.extension().is_some_and(|e| e == extension);
        let library = self.attempt(step, || {
            // SAFETY: the functions are ours; nobody touches what is far away.
            let builder = unsafe {
                let builder = engine.library(step).symbol("far", FAR as *const ());
                builder.symbol("begins", begins as *const ()).symbol("ends", ends as *const ())
            };
            let exports = ["exporting.o", "unreachable.o", "fails.o"].iter().any(|file| files.contains(file));
            let builder = if exports { builder.export() } else { builder };
            let shared = paths.iter().filter(|p| has(p, "so"));
            // SAFETY: the shared libraries are ours.
            let builder = shared.fold(builder, |b, path| unsafe { b.shared_library(path) });
            link.into_iter().fold(builder, |b, link| b.link(link)).build()
        })?;
        for path in &paths {
            if has(path, "o") {
                self.attempt(step, || library.add_object_file(path))?;
            } else if has(path, "a") {
                self.attempt(step, || library.add_archive_file(path))?;
            } else if has(path, "image") {
                self.attempt(step, || library.add_image_file(path))?;
            }
        }
        Some(library)
    }

    /// Something is wrong with the object, and it is said each time, unless it does not get so far.
    fn fails_to_link(&mut self, engine: &JitEngine, file: &'static str, expected: fn(&Error) -> bool) {
        let Some(library) = self.prepare(engine, file, &[file], None) else { return };
        let failed = self.attempt(file, || {
            // SAFETY: as above.
            match unsafe { library.get::<Int>("value") } {
                Ok(_) => panic!("{file} was linked"),
                Err(error) if expected(&error) => Ok(()),
                Err(error) => Err(error),
            }
        });
        if failed.is_some() {
            assert_eq!(library.remove(), Removal::Freed);
        }
    }

    /// It fails, what was missing is added, and it goes.
    fn lacks_a_symbol_at_first(&mut self, engine: &JitEngine) {
        let step = "an undefined symbol";
        let Some(library) = self.prepare(engine, step, &["undefined.o"], None) else { return };
        let missing = self.attempt(step, || {
            // SAFETY: as above.
            match unsafe { library.get::<Int>("value") } {
                Ok(_) => panic!("it was linked"),
                Err(Error::Link(LinkError::UndefinedSymbols { .. })) => Ok(()),
                Err(error) => Err(error),
            }
        });
        let path = self.files.join("nowhere.o");
        if missing.and_then(|()| self.attempt(step, || library.add_object_file(&path))).is_none() {
            return;
        }
        // SAFETY: as above.
        if let Some(value) = self.attempt(step, || unsafe { library.get::<Int>("value") }) {
            self.loaded.push(Loaded { value, library });
        }
    }

    /// What is loaded answers.
    fn check(&self) {
        for Loaded { value, library } in &self.loaded {
            // SAFETY: it is held, and `int (void)`.
            assert_eq!(unsafe { value() }, VALUE, "{}", library.name());
        }
    }
}
