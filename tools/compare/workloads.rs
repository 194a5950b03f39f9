//! What is loaded: objects made by `cc`, and what their functions must answer.

use std::ffi::CString;
use std::fmt::Write;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::objects::{Template, compile, sections};
use crate::sides::Object;

/// Objects of one kind.
#[derive(Serialize, Deserialize)]
pub struct Workload {
    /// For `--only`.
    pub name: String,
    /// For the table.
    pub title: String,
    /// How many are loaded, and unloaded, in one repetition.
    pub per_round: usize,
    /// How many are loaded before the first.
    pub live: usize,
    templates: Vec<Template>,
    /// The same for those who load functions of the TVM FFI's convention only; no child process is one of them.
    #[serde(skip)]
    packed: Option<Template>,
    /// `f` in the name of what is called, if it does not come from the template.
    entry: Option<String>,
    has_initialisers: bool,
    question: Vec<(i32, i32)>,
}

impl Workload {
    /// The object of a number; the same names never come again.
    pub fn object(&self, number: usize) -> Object {
        let template = &self.templates[number % self.templates.len()];
        let name = template.name(number);
        let c_string = |text: &str| CString::new(text).expect("a name");
        Object {
            bytes: template.with_name(number),
            initialiser: self.has_initialisers.then(|| c_string(&format!("{name}_starts"))),
            entry: c_string(self.entry.as_ref().unwrap_or(&name)),
            question: self.question[number % self.question.len()],
        }
    }

    /// The same with a function of the TVM FFI's convention, if there are such.
    pub fn packed(&self, number: usize) -> Option<Object> {
        let template = self.packed.as_ref()?;
        Some(Object {
            bytes: template.with_name(number),
            initialiser: None,
            entry: CString::new(template.name(number)).expect("a name"),
            question: self.question[number % self.question.len()],
        })
    }

    fn of(name: &str, title: String, per_round: usize, templates: Vec<Template>) -> Self {
        let question = vec![(0, 42); templates.len()];
        Self {
            name: name.into(),
            title,
            per_round,
            live: 0,
            templates,
            packed: None,
            entry: None,
            has_initialisers: false,
            question,
        }
    }
}

/// Makes one, small if quick.
type Maker = fn(bool) -> Workload;

/// All of them, or the one that is named.
pub fn workloads(quick: bool, only: Option<&str>) -> Vec<Workload> {
    let makers: [(&str, Maker); 6] = [
        ("small", small),
        ("cpp", cpp),
        ("kernels", kernels),
        ("one-section", one_section),
        ("many-sections", many_sections),
        ("merged", merged),
    ];
    let wanted = makers.into_iter().filter(|(name, _)| only.is_none_or(|only| only == *name));
    wanted.map(|(_, make)| make(quick)).collect()
}

/// The small function in the convention of the TVM FFI, without its headers: an integer has type 1.
const PACKED: &str = r#"
    #include <stdint.h>
    typedef struct { int32_t type, padding; int64_t value; } Any;
    int __tvm_ffi_kernel_00000000(void *self, const Any *arguments, int32_t count, Any *result) {
        *result = (Any){1, 0, arguments[0].value + 42};
        return 0;
    }
"#;

fn small(quick: bool) -> Workload {
    let template = Template::small();
    let packed = Template::new("__tvm_ffi_kernel", compile(PACKED, "c", &["-c", "-O2", "-fPIC"]));
    let title = format!("small objects ({} B) one by one", template.len());
    let (per_round, live) = if quick { (50, 100) } else { (200, 1000) };
    Workload { live, packed: Some(packed), ..Workload::of("small", title, per_round, vec![template]) }
}

/// An exception, thrown and caught, and an initialiser that has a name of its own: stock LLJIT and MCJIT run none, so
/// it is looked for.
const CPP: &str = r#"
    static volatile int forty_one = 41;
    static int counter;
    extern "C" __attribute__((constructor)) void cpp_00000000_starts() { counter = forty_one; }
    __attribute__((noinline)) static int throws(int x) { if (x >= 0) throw x + 1; return x; }
    extern "C" int cpp_00000000(int x) { try { return throws(x); } catch (int y) { return y + counter; } }
"#;

fn cpp(quick: bool) -> Workload {
    let object = localize_hidden(compile(CPP, "cc", &["-c", "-O2", "-fPIC"]));
    let template = Template::new("cpp", object);
    let title = format!("C++ objects ({} B) with an exception and an initialiser", template.len());
    let work = Workload::of("cpp", title, if quick { 20 } else { 200 }, vec![template]);
    Workload { has_initialisers: true, ..work }
}

/// Stock LLJIT binds hidden symbols (`DW.ref.__gxx_personality_v0`) to those of the object that came first, which may
/// be out of reach of the others. Without this, it fails in some runs.
fn localize_hidden(object: Vec<u8>) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), object).expect("written");
    let status = Command::new("objcopy").arg("--localize-hidden").arg(file.path()).status();
    assert!(status.expect("objcopy, of binutils").success());
    std::fs::read(file.path()).expect("read")
}

/// Bytes of kernels, about.
const SIZES: [usize; 4] = [10_000, 50_000, 100_000, 200_000];
/// Bytes that one function has with its table and its frame, about.
const FUNCTION: usize = 620;

fn kernels(quick: bool) -> Workload {
    let (templates, question) = SIZES.iter().map(|bytes| kernel(bytes / FUNCTION)).unzip();
    let per_round = if quick { 4 } else { 16 };
    Workload { question, ..Workload::of("kernels", "kernels of 10 to 200 KB".into(), per_round, templates) }
}

/// Functions that mix a number with a table of their own, one after the other; and what comes out.
fn kernel(functions: usize) -> (Template, (i32, i32)) {
    const STEPS: u32 = 12;
    let table = |f: usize, i: u32| (f as u32).wrapping_mul(2_654_435_761).wrapping_add(i * 40_503) ^ 0x5bd1_e995;
    let (mut text, mut calls) = (String::new(), String::new());
    let mut x = 7_u32;
    for f in 0..functions {
        let values: Vec<String> = (0..16).map(|i| format!("{}u", table(f, i))).collect();
        writeln!(text, "static const unsigned t{f}[16] = {{{}}};", values.join(",")).expect("text");
        writeln!(text, "__attribute__((noinline)) static unsigned f{f}(unsigned x) {{").expect("text");
        for step in 0..STEPS {
            writeln!(text, "  x = (x ^ t{f}[(x >> {step}) & 15]) * {}u + {f}u;", 2 * step + 3).expect("text");
            x = (x ^ table(f, x >> step & 15)).wrapping_mul(2 * step + 3).wrapping_add(f as u32);
        }
        text.push_str("  return x;\n}\n");
        writeln!(calls, "  x = f{f}(x);").expect("text");
    }
    write!(text, "int mixes_00000000(int n) {{\n  unsigned x = n;\n{calls}  return x;\n}}\n").expect("text");
    // -O1 leaves the steps as they are.
    let object = compile(&text, "c", &["-c", "-O1", "-fPIC"]);
    (Template::new("mixes", object), (7, x as i32))
}

const LARGE: usize = 1_200_000;

fn one_section(_: bool) -> Workload {
    let text = format!(
        ".text\n.globl large_00000000\n.type large_00000000,%function\n.fill {}, 1, 0\nlarge_00000000:\n {}\n ret\n",
        LARGE / 4 * 4,
        if cfg!(target_arch = "x86_64") { "leal 42(%rdi), %eax" } else { "add w0, w0, #42" },
    );
    let template = Template::new("large", compile(&text, "s", &["-c"]));
    Workload::of("one-section", "1.2 MB in one section".into(), 1, vec![template])
}

fn many_sections(quick: bool) -> Workload {
    let count = if quick { 200 } else { 2000 };
    let bytes = sections(count);
    let title = format!("{:.1} MB in {count} sections", bytes.len() as f64 / 1e6);
    // Nothing in it has a name that could be changed; it is loaded again when the last one is gone.
    let work = Workload::of("many-sections", title, 1, vec![Template::fixed(bytes)]);
    Workload { entry: Some("f7".into()), question: vec![(0, 7)], ..work }
}

/// What `ld -r` makes of small objects: one section of each kind, with many functions.
fn merged(quick: bool) -> Workload {
    let count = if quick { 100 } else { 1000 };
    let (small, folder) = (Template::small(), tempfile::tempdir().expect("a folder"));
    let output = folder.path().join("merged.o");
    let inputs: Vec<_> = (0..count).map(|i| folder.path().join(format!("{i}.o"))).collect();
    for (i, input) in inputs.iter().enumerate() {
        std::fs::write(input, small.with_name(i)).expect("written");
    }
    let linked = Command::new("ld").arg("-r").args(&inputs).arg("-o").arg(&output).status();
    assert!(linked.expect("ld, of binutils").success());
    let bytes = std::fs::read(output).expect("read");
    let title = format!("{count} small objects merged by ld -r ({:.1} KB)", bytes.len() as f64 / 1e3);
    let work = Workload::of("merged", title, 1, vec![Template::fixed(bytes)]);
    Workload { entry: Some(small.name(count / 2)), ..work }
}
