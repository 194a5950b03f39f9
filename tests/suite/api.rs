//! The public surface: what may cross threads, limits, plugins, reports.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::common::{self, Checked, compile_bytes};
use slabjit::{
    EngineStats, Error, JitEngine, Library, LibraryBuilder, LibraryError, Limits, LinkPlan, ObjectError, ObjectInput,
    ObjectPlugin, ObjectReport, Removal, SectionConflicts, Symbol,
};
use static_assertions::{assert_impl_all, assert_not_impl_any};

assert_impl_all!(JitEngine: Clone, Send, Sync);
assert_impl_all!(Library: Clone, Send, Sync);
assert_impl_all!(LibraryBuilder: Send);
assert_impl_all!(Error: std::error::Error, Send, Sync);
assert_impl_all!(Symbol<extern "C" fn(i32) -> i32>: Clone, Send, Sync);
assert_impl_all!(Symbol<unsafe extern "C" fn(*const f32, usize) -> i32>: Clone, Send, Sync);
assert_impl_all!(Symbol<&'static AtomicUsize>: Send, Sync);
assert_impl_all!(Symbol<&'static AtomicPtr<u8>>: Send, Sync);
assert_impl_all!(Symbol<*const f32>: Clone);
assert_not_impl_any!(Symbol<*const f32>: Send, Sync);
assert_not_impl_any!(Symbol<*mut u8>: Send, Sync);
assert_not_impl_any!(Symbol<&'static std::cell::Cell<i32>>: Send, Sync);
assert_impl_all!(EngineStats: Clone, PartialEq, std::fmt::Debug, Send);
assert_impl_all!(LinkPlan: serde::Serialize, serde::de::DeserializeOwned, std::fmt::Debug);
assert_impl_all!(Removal: std::fmt::Debug, PartialEq);
assert_impl_all!(Limits: Default, Clone);

common::tests![
    limit_of_object_bytes,
    limit_of_sections,
    limit_of_relocations,
    limit_of_decompressed_bytes,
    limit_of_mapped_bytes,
    limit_of_working_bytes,
    limit_of_work,
    section_conflicts_rename,
    section_conflicts_harmonize,
    section_conflicts_reject,
    check_runs_nothing_and_keeps_nothing,
    check_reports_the_renamed_section,
    plan_survives_serde,
    plugin_sees_every_object,
    plugin_may_rewrite,
    plugin_may_refuse,
    debug_is_display_and_sources,
    explain_address,
    objects_without_a_name_are_told_apart,
    symbol_address_is_the_function,
    features_are_those_of_the_readme,
];

/// cargo switches a feature on for all that depend on the crate. So each is one that a user may want, as the README
/// lists them; what only tests and fuzzers want is a `--cfg`.
fn features_are_those_of_the_readme() {
    let manifest = include_str!("../../Cargo.toml");
    let features = manifest.split("[features]").nth(1).unwrap().split("\n[").next().unwrap();
    let names = features.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "));
    // Those with `_` are for other features alone.
    let names: Vec<&str> =
        names.map(|(name, _)| name).filter(|name| *name != "default" && !name.starts_with('_')).collect();
    assert!(names.contains(&"llvm19-1") && names.contains(&"cli"), "{names:?}");
    let rows = include_str!("../../README.md").lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: Vec<&str> = rows.flat_map(|row| row.split(" |").next().unwrap().split('`')).collect();
    for name in names {
        let plain = name.trim_end_matches("-prefer-static").trim_end_matches("-no-llvm-linking");
        assert!(listed.contains(&plain), "the README does not list the feature '{name}'");
    }
}

/// One name each, the same wherever it is shown, also from several threads at once and after removal.
fn objects_without_a_name_are_told_apart() {
    let engine = Checked::new();
    let bytes = compile_bytes("nameless.c", "int nameless(void) { return 1; }", &[]);
    let libraries = [engine.add_object(&bytes).unwrap(), engine.add_object(&bytes).unwrap()];
    let names = libraries.each_ref().map(|library| {
        // SAFETY: the function is not called, and nothing is initialised.
        let address = unsafe { library.get::<extern "C" fn() -> i32>("nameless").unwrap().address() };
        let told = engine.explain_address(address).unwrap();
        std::thread::scope(|scope| {
            let asked: Vec<_> = (0..4).map(|_| scope.spawn(|| library.name())).collect();
            asked.into_iter().for_each(|name| assert_eq!(name.join().unwrap(), told.library));
        });
        assert_eq!(told.library, told.object);
        common::freed(library);
        let removed = library.add_object(&bytes).unwrap_err();
        assert!(
            matches!(&removed, Error::Library(LibraryError::Removed { library }) if **library == *told.library),
            "{removed}"
        );
        library.name()
    });
    assert!(names[0] != names[1] && names.iter().all(|name| !name.is_empty()), "{names:?}");
    engine.finish();
}

fn limited(change: impl FnOnce(&mut Limits)) -> Checked {
    let mut limits = Limits::default();
    change(&mut limits);
    Checked::of(JitEngine::builder().limits(limits).build().unwrap())
}

/// The object is refused with this limit, and loads without it.
#[track_caller]
fn limited_by(bytes: &[u8], change: impl FnOnce(&mut Limits), is_expected: fn(&Error) -> bool) {
    let engine = limited(change);
    let error = engine.add_object(bytes).expect_err("beyond the limit");
    assert!(is_expected(&error), "{error:?}");
    assert!(error.to_string().contains("Limits::"), "it says which limit: {error}");
    engine.finish();
    let engine = Checked::new();
    let library = engine.add_object(bytes).unwrap();
    // SAFETY: the objects of this file run nothing.
    unsafe { library.initialize().unwrap() };
    drop(library);
    engine.finish();
}

fn limit_of_object_bytes() {
    let bytes = compile_bytes("bytes.c", "const char bytes[5000] = {1};", &[]);
    limited_by(
        &bytes,
        |l| l.object_bytes = 4000,
        |e| matches!(e, Error::Object(ObjectError::ObjectTooLarge { limit: 4000, bytes: 5001.., .. })),
    );
}

fn limit_of_sections() {
    let source = (0..50).map(|i| format!("int f{i}(void) {{ return {i}; }}")).collect::<String>();
    let bytes = compile_bytes("sections.c", &source, &["-ffunction-sections"]);
    limited_by(
        &bytes,
        |l| l.sections = 40,
        |e| matches!(e, Error::Object(ObjectError::TooManySections { limit: 40, count: 50.., .. })),
    );
}

fn limit_of_relocations() {
    let source = format!("int x; int *const table[] = {{{}}};", "&x, ".repeat(100));
    let bytes = compile_bytes("relocations.c", &source, &[]);
    limited_by(
        &bytes,
        |l| l.relocations = 99,
        |e| matches!(e, Error::Object(ObjectError::TooManyRelocations { limit: 99, count: 100.., .. })),
    );
}

fn limit_of_decompressed_bytes() {
    let source = ".section .debug_info,\"\",@progbits\n.skip 1000000\n.section .note.GNU-stack,\"\",@progbits\n";
    let bytes = compile_bytes("compressed.s", source, &["-Wa,--compress-debug-sections=zlib"]);
    assert!(bytes.len() < 10_000, "the tool did not compress");
    limited_by(
        &bytes,
        |l| l.decompressed_bytes = 999_999,
        |e| matches!(e, Error::Object(ObjectError::DecompressedTooLarge { bytes: 1_000_000.., .. })),
    );
}

fn limit_of_mapped_bytes() {
    let source = "char zeros[1 << 20]; char *f(void) { return zeros; }";
    for common in ["-fcommon", "-fno-common"] {
        let bytes = compile_bytes(&format!("mapped{common}.c"), source, &[common]);
        limited_by(
            &bytes,
            |l| l.mapped_bytes = 1 << 20,
            |e| {
                matches!(
                    e,
                    Error::Object(ObjectError::MappedTooLarge { limit: 0x10_0000, bytes: 0x10_0001..0x10_1000, .. })
                )
            },
        );
    }
}

fn limit_of_working_bytes() {
    let source = format!("int x; int *const table[] = {{{}}};", "&x, ".repeat(1000));
    let bytes = compile_bytes("working.c", &source, &[]);
    limited_by(
        &bytes,
        |l| l.working_bytes = 200_000,
        |e| {
            matches!(
                e,
                Error::Object(ObjectError::WorkingMemoryTooLarge { limit: 200_000, bytes: 256_000..1_000_000, .. })
            )
        },
    );
}

fn limit_of_work() {
    let name = "x".repeat(1000);
    let source =
        format!("extern int {name} __attribute__((weak)); int *table[] = {{{}}};", format!("&{name}, ").repeat(100));
    let bytes = compile_bytes("work.c", &source, &[]);
    limited_by(
        &bytes,
        |l| l.work = 99_999,
        |e| matches!(e, Error::Object(ObjectError::TooMuchWork { limit: 99_999, work: 100_000, .. })),
    );
}

// ---- preparation ----

fn two_text() -> Vec<u8> {
    let code = crate::target::by_arch("mov counter(%rip), %eax", "adrp x0, counter\n ldr w0, [x0, :lo12:counter]");
    let source = format!(
        ".text\n.globl value\n.type value, @function\nvalue: {code}\n ret\n
         .section .text,\"aw\",@progbits,unique,1\n.globl counter\n.type counter, @object\n.size counter, 4\ncounter: .long 42\n
         .section .note.GNU-stack,\"\",@progbits\n"
    );
    compile_bytes("conflict.s", &source, &[])
}

fn with_policy(policy: SectionConflicts) -> Result<(i32, String), Error> {
    let engine = Checked::of(JitEngine::builder().section_conflicts(policy).build().unwrap());
    let result = engine.add_object(two_text()).and_then(|library| {
        // SAFETY: `value` is int(void), `counter` an int.
        unsafe {
            let value = library.get::<extern "C" fn() -> i32>("value")?();
            let counter = *library.get::<*const i32>("counter")? as usize;
            Ok((value, common::mapping_at(counter).permissions[..3].to_owned()))
        }
    });
    engine.finish();
    result
}

fn section_conflicts_rename() {
    assert_eq!(with_policy(SectionConflicts::Rename).unwrap(), (42, "rw-".into()));
}

fn section_conflicts_harmonize() {
    assert_eq!(with_policy(SectionConflicts::Harmonize).unwrap(), (42, common::as_shown("r-x").into()));
}

fn section_conflicts_reject() {
    let error = with_policy(SectionConflicts::Reject).unwrap_err();
    assert!(
        matches!(&error, Error::Object(ObjectError::SectionConflict { section, count: 2, .. }) if section == ".text"),
        "{error:?}"
    );
}

fn check_runs_nothing_and_keeps_nothing() {
    let source =
        "__attribute__((constructor)) static void init(void) { __builtin_trap(); } int value(void) { return 1; }";
    let engine = Checked::new();
    engine.check_object(compile_bytes("traps.c", source, &[])).unwrap();
    engine.finish();
}

fn check_reports_the_renamed_section() {
    let engine = Checked::new();
    let plan = engine.check_object(two_text()).unwrap();
    assert!(format!("{plan:?}").contains(".text"), "{plan:?}");
    assert!(!plan.changes.is_empty());
    let plain = engine.check_object(std::fs::read(common::good_object()).unwrap()).unwrap();
    assert!(plain.changes.is_empty(), "{plain:?}");
    engine.finish();
}

fn plan_survives_serde() {
    let engine = Checked::new();
    let plan = engine.check_object(two_text()).unwrap();
    let json = serde_json::to_string(&plan).unwrap();
    let again: LinkPlan = serde_json::from_str(&json).unwrap();
    assert_eq!(serde_json::to_string(&again).unwrap(), json);
    engine.finish();
}

/// Counts the objects it sees; replaces 41 by 42 in their data; refuses those that hold a word.
struct TestPlugin(Arc<AtomicUsize>);

impl ObjectPlugin for TestPlugin {
    fn name(&self) -> &str {
        "test-plugin"
    }

    fn prepare<'data>(
        &self,
        object: ObjectInput<'data>,
        _: &mut ObjectReport,
    ) -> Result<Cow<'data, [u8]>, Box<dyn std::error::Error + Send + Sync>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let contains = |word: &[u8]| object.bytes().windows(word.len()).position(|w| w == word);
        if contains(b"unwanted_word").is_some() {
            return Err("there is an unwanted word".into());
        }
        let Some(at) = contains(b"value is 41") else { return Ok(Cow::Borrowed(object.bytes())) };
        let mut bytes = object.bytes().to_vec();
        bytes[at + 10] = b'2';
        Ok(Cow::Owned(bytes))
    }
}

fn with_plugin() -> (Checked, Arc<AtomicUsize>) {
    let seen = Arc::<AtomicUsize>::default();
    (Checked::of(JitEngine::builder().plugin(TestPlugin(seen.clone())).build().unwrap()), seen)
}

fn plugin_sees_every_object() {
    let (engine, seen) = with_plugin();
    let member = common::compile("seen_member.c", "int member(void) { return 7; }", &[]);
    let archive = common::once_per(&["archive", "seen"], "a", |path| {
        common::tool("ar", &["rcs".as_ref(), path.as_os_str(), member.as_os_str()]);
    });
    let library = engine.library("seen").build().unwrap();
    library.add_object(compile_bytes("seen.c", "int member(void); int value(void) { return member(); }", &[])).unwrap();
    library.add_archive_file(archive).unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 1);
    // SAFETY: `value` is int(void).
    assert_eq!(unsafe { library.get::<extern "C" fn() -> i32>("value").unwrap()() }, 7);
    assert_eq!(seen.load(Ordering::Relaxed), 2, "the archive's member, too");
    common::freed(&library);
    engine.finish();
}

fn plugin_may_rewrite() {
    let (engine, _) = with_plugin();
    let source = "static const char *volatile text = \"value is 41\"; int value(void) { return (text[9] - 48) * 10 + text[10] - 48; }";
    let bytes = compile_bytes("rewritten.c", source, &[]);
    let plan = engine.check_object(&bytes).unwrap();
    assert!(format!("{:?}", plan.changes).contains("test-plugin"), "{plan}");
    let library = engine.add_object(&bytes).unwrap();
    // SAFETY: `value` is int(void).
    assert_eq!(unsafe { library.get::<extern "C" fn() -> i32>("value").unwrap()() }, 42);
    common::freed(&library);
    engine.finish();
}

fn plugin_may_refuse() {
    let (engine, _) = with_plugin();
    let error =
        engine.add_object(compile_bytes("unwanted.c", "const char text[] = \"unwanted_word\";", &[])).unwrap_err();
    assert!(
        matches!(&error, Error::Object(ObjectError::Plugin { plugin, .. }) if plugin == "test-plugin"),
        "{error:?}"
    );
    assert!(error.to_string().contains("there is an unwanted word"), "{error}");
    engine.assert_usable();
    engine.finish();
}

/// A plugin's error, which has a source.
#[derive(Debug)]
struct Unsigned(std::num::ParseIntError);

impl std::fmt::Display for Unsigned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it is not signed")
    }
}

impl std::error::Error for Unsigned {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

struct Refuses;

impl ObjectPlugin for Refuses {
    fn name(&self) -> &str {
        "refuses"
    }

    fn prepare<'data>(
        &self,
        _: ObjectInput<'data>,
        _: &mut ObjectReport,
    ) -> Result<Cow<'data, [u8]>, Box<dyn std::error::Error + Send + Sync>> {
        Err(Box::new(Unsigned("x".parse::<u8>().unwrap_err())))
    }
}

/// `fn main() -> slabjit::Result<()>` prints `Debug`.
fn debug_is_display_and_sources() {
    let engine = Checked::new();
    let error = engine.add_object([]).unwrap_err();
    assert!(error.to_string().contains("is empty; expected"), "{error}");
    assert_eq!(format!("{error:?}"), error.to_string());
    // `Display` says what its source says.
    let error = engine.add_object_file("/nowhere/missing.o").unwrap_err();
    assert!(std::error::Error::source(&error).is_some());
    assert_eq!(format!("{error:?}"), error.to_string());
    engine.finish();

    let engine = Checked::of(JitEngine::builder().plugin(Refuses).build().unwrap());
    let bytes = compile_bytes("unsigned.c", "int f(void) { return 1; }", &[]);
    let error = engine.add_object_named("unsigned.o", &bytes).unwrap_err();
    let expected = "plugin 'refuses' refused 'unsigned.o': it is not signed";
    assert_eq!(error.to_string(), expected);
    assert_eq!(format!("{error:?}"), format!("{expected}\ncaused by: invalid digit found in string"));
    engine.finish();
}

fn explain_address() {
    let engine = Checked::new();
    let library = engine.add_object_file(common::good_object()).unwrap();
    // SAFETY: not called.
    let text = unsafe { library.get::<extern "C" fn()>("text").unwrap() };
    let explained = format!("{:?}", engine.explain_address(text.address()));
    assert!(explained.contains("good.o"), "{explained}");
    let outside = format!("{:?}", engine.explain_address(crate::main as *const ()));
    assert!(!outside.contains("good.o"), "{outside}");
    drop((text, library));
    engine.finish();
}

fn symbol_address_is_the_function() {
    let engine = Checked::new();
    let library = engine.add_object_file(common::good_object()).unwrap();
    // SAFETY: not called.
    let text = unsafe { library.get::<extern "C" fn()>("text").unwrap() };
    assert_eq!(text.address() as usize, *text as usize);
    drop((text, library));
    engine.finish();
}
