//! Whatever an object has many of, twice as many take about twice the time: to be checked, and to be linked.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use crate::common::{self, compile_bytes, thread_time};
use crate::target;
use slabjit::JitEngine;

common::tests![
    instructions_at_twice_as_many;
    alone: checking, linking, linking_what_is_kept;
    parts: counted_part,
];

/// Four times as many: linear growth is 4, quadratic 16. What no longer fits into caches was seen at 10.
const MORE: usize = 4;
const MOST_GROWTH: u32 = 11;
/// Other processes disturb: the least time of so many counts.
const ROUNDS: usize = 5;

/// Objects of a library, in assembly, of so many.
type Shape = (&'static str, usize, fn(usize) -> Vec<String>);
/// What is done with them.
type Work = fn(&JitEngine, &[Vec<u8>]);

fn times(n: usize, line: impl Fn(usize) -> String) -> String {
    (0..n).fold(String::new(), |mut text, i| {
        let _ = writeln!(text, "{}", line(i));
        text
    })
}

fn objects(what: &str, n: usize, sources: fn(usize) -> Vec<String>) -> Vec<Vec<u8>> {
    let compile = |(i, source): (usize, &String)| compile_bytes(&format!("{what}_{n}_{i}.s"), source, &[]);
    sources(n).iter().enumerate().map(compile).collect()
}

/// Fails unless the time grows with the objects.
fn grows_linearly(shapes: &[Shape], work: Work) {
    if target::not_under_qemu("it measures time") || target::under_valgrind() {
        return;
    }
    let engine = JitEngine::new().unwrap();
    for (what, n, sources) in shapes {
        let (few, many) = (objects(what, *n, *sources), objects(what, n * MORE, *sources));
        let time = |objects: &[Vec<u8>]| {
            let before = thread_time();
            work(&engine, objects);
            thread_time() - before
        };
        let (mut least, mut most) = (Duration::MAX, Duration::MAX);
        let linear = (0..ROUNDS).any(|_| {
            (least, most) = (least.min(time(&few)), most.min(time(&many)));
            most < least * MOST_GROWTH
        });
        println!("{what}: {n} in {least:?}, {} in {most:?}", n * MORE);
        assert!(linear, "{what}: {n} in {least:?}, {} in {most:?}", n * MORE);
    }
}

fn check(engine: &JitEngine, objects: &[Vec<u8>]) {
    for object in objects {
        let plan = engine.check_object(object).unwrap();
        assert!(plan.loads(), "{:?}", plan.problems);
    }
}

fn link(engine: &JitEngine, objects: &[Vec<u8>]) {
    let library = engine.library("growth").build().unwrap();
    for object in objects {
        library.add_object(object).unwrap();
    }
    // SAFETY: the initialisers do nothing.
    unsafe { library.initialize().unwrap() };
    common::freed(&library);
}

const FUNCTION: &str = ".text\n.globl f\n.type f, %function\nf: ret\n";

/// A section for each of many names, and a reference to each.
fn sections(n: usize, section: impl Fn(usize) -> String) -> String {
    times(n, |i| format!("{}\nvalue{i}: .quad {i}", section(i))) + ".data\n" + &times(n, |i| format!(".quad value{i}"))
}

fn bounds(n: usize) -> Vec<String> {
    let sets = times(n, |i| format!(".section set{i},\"aw\"\n.quad 1"));
    vec![sets + ".data\n" + &times(n, |i| format!(".quad __start_set{i}"))]
}

fn one_bound(n: usize) -> Vec<String> {
    let sets = times(n, |i| format!(".section set{i},\"aw\"\n.quad 1"));
    vec![sets + ".data\n" + &format!(".rept {n}\n.quad __start_set{}\n.endr\n", n - 1)]
}

fn thread_locals(n: usize) -> Vec<String> {
    vec![times(n, |i| format!(".section .tdata,\"awT\",%progbits,unique,{i}\n.globl value{i}\nvalue{i}: .quad {i}"))]
}

fn thread_locals_of_taken_names(n: usize) -> Vec<String> {
    let taken = times(n, |i| format!(".section .tdata.slabjit.{},\"a\"\n.byte 1", i + 1));
    vec![thread_locals(n).remove(0) + &taken]
}

fn differing_sections(n: usize) -> Vec<String> {
    vec![sections(n, |i| format!(".section .d{},\"a{}\",%progbits,unique,{i}", i / 2, ["", "w"][i % 2]))]
}

fn frames(n: usize) -> Vec<String> {
    vec![".text\n".to_owned() + &times(n, |i| format!("f{i}: .cfi_startproc\nret\n.cfi_endproc"))]
}

fn indirect_functions(n: usize) -> Vec<String> {
    let functions = times(n, |i| format!(".globl f{i}\n.type f{i}, %gnu_indirect_function\n.set f{i}, resolver"));
    let resolver =
        format!(".text\nresolver: {}\nret\n", target::by_arch("lea resolver(%rip), %rax", "adr x0, resolver"));
    vec![resolver + &functions + ".data\n" + &times(n, |i| format!(".quad f{i}"))]
}

fn second_names(n: usize) -> Vec<String> {
    let defined = ".text\n".to_owned() + &times(n, |i| format!(".globl def{i}\ndef{i}: ret\n.symver def{i}, g{i}@@V"));
    let wanted = times(n, |i| format!(".quad g{i}\n.symver want{i}, g{i}@V\n.quad want{i}"));
    vec![defined, ".data\n".to_owned() + &wanted]
}

fn many_symbols(n: usize) -> Vec<String> {
    let symbols = times(n, |i| format!("value{i}: .quad 1"));
    vec![".data\n".to_owned() + &symbols + ".text\n" + &times(n, |i| format!(".globl g{i}\ng{i}: ret"))]
}

fn commons(n: usize) -> Vec<String> {
    vec![times(n, |i| format!(".comm common{i}, 8, 8")) + ".data\n" + &times(n, |i| format!(".quad common{i}"))]
}

fn many_relocations(n: usize) -> Vec<String> {
    vec![format!("{FUNCTION}.data\n.rept {}\n.quad f\n.endr\n", n * 10)]
}

fn large_sections(n: usize) -> Vec<String> {
    // What is no large section elsewhere is one like any other.
    let flags = target::by_arch("awl", "aw");
    vec![sections(n, |i| format!(".section .ldata.{i},\"{flags}\",%progbits"))]
}

fn retained_zeros(n: usize) -> Vec<String> {
    vec![times(n, |i| format!(".section .bss.{i},\"awR\",%nobits\n.skip 8"))]
}

fn groups(n: usize) -> Vec<String> {
    let group =
        |i| format!(".section .data.{i},\"awGR\",%progbits,value{i},comdat\n.weak value{i}\nvalue{i}: .quad {i}");
    vec![times(n, group), times(n, group)]
}

/// Functions that only the tables of others' unwind records refer to: the last leads to the one before it, and so on.
fn functions_of_tables(n: usize) -> Vec<String> {
    let function = |i: usize| {
        let before = i.checked_sub(1).map_or("0".to_owned(), |before| format!("f{before}"));
        format!(
            ".section .text.f{i},\"ax\",%progbits\nf{i}: .cfi_startproc\n.cfi_lsda 0x1b, table{i}\nret\n.cfi_endproc\n\
             .section .table.f{i},\"a\",%progbits\ntable{i}: .quad {before}"
        )
    };
    let unused = ".section .text.unused,\"ax\",%progbits\n.cfi_startproc\nret\n.cfi_endproc\n";
    vec![times(n, function) + unused + &format!(".data\n.globl last\nlast: .quad f{}\n", n - 1)]
}

fn initialisers(n: usize) -> Vec<String> {
    vec![FUNCTION.to_owned() + &times(n, |i| format!(".section .init_array.{i},\"aw\",%init_array\n.quad f"))]
}

const CHECKED: &[Shape] = &[
    ("bounds", 5000, bounds),
    ("one_bound", 5000, one_bound),
    ("thread_locals", 5000, thread_locals),
    ("thread_locals_of_taken_names", 1000, thread_locals_of_taken_names),
    ("differing_sections", 3000, differing_sections),
    ("many_relocations", 5000, many_relocations),
    ("indirect_functions", 10_000, indirect_functions),
    ("groups", 5000, groups),
    ("frames", 10_000, frames),
];

const LINKED: &[Shape] = &[
    ("differing_sections", 3000, differing_sections),
    ("frames", 10_000, frames),
    ("indirect_functions", 10_000, indirect_functions),
    ("second_names", 10_000, second_names),
    ("many_symbols", 5000, many_symbols),
    ("commons", 5000, commons),
    ("many_relocations", 5000, many_relocations),
];

const KEPT: &[Shape] = &[
    ("bounds", 5000, bounds),
    ("large_sections", 4000, large_sections),
    ("retained_zeros", 20_000, retained_zeros),
    ("groups", 5000, groups),
    ("initialisers", 10_000, initialisers),
    ("functions_of_tables", 2000, functions_of_tables),
];

fn checking() {
    grows_linearly(CHECKED, check);
}

fn linking() {
    grows_linearly(LINKED, link);
}

fn linking_what_is_kept() {
    grows_linearly(KEPT, link);
}

// ---- instructions ----

/// Set where valgrind is to count: `ci/callgrind` does.
const COUNTS: &str = "SLABJIT_TEST_CALLGRIND";
/// So many, and twice as many. A search through all of them for each shows.
const COUNTED: usize = 2000;
/// Linear growth is 2, and n log n 2.2.
const MOST_INSTRUCTIONS: f64 = 2.2;

/// Each shape, and what is done with it.
fn counted() -> impl Iterator<Item = (&'static Shape, &'static str, Work)> {
    let of = |shapes: &'static [Shape], what, work: Work| shapes.iter().map(move |shape| (shape, what, work));
    of(CHECKED, "check", check).chain(of(LINKED, "link", link)).chain(of(KEPT, "link", link))
}

/// Callgrind counts in here alone, and writes a file each time it is left.
#[inline(never)]
fn counted_work(engine: &JitEngine, objects: &[Vec<u8>], work: Work) {
    work(engine, objects);
    // No jump into `work`: callgrind has to see a return.
    std::hint::black_box(engine);
}

fn counted_part() {
    let engine = JitEngine::new().unwrap();
    for ((what, _, sources), _, work) in counted() {
        for n in [COUNTED, 2 * COUNTED] {
            counted_work(&engine, &objects(what, n, *sources), work);
        }
    }
}

fn instructions_at_twice_as_many() {
    if std::env::var_os(COUNTS).is_none() {
        println!("not run: ci/callgrind does");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let function = concat!(module_path!(), "::counted_work");
    let child = common::child_command("counted_part");
    let mut valgrind = Command::new("valgrind");
    // Code comes to lie where other code was.
    valgrind.args(["--quiet", "--tool=callgrind", "--smc-check=all-non-file", "--dump-line=no"]);
    valgrind.args([format!("--toggle-collect={function}"), format!("--dump-after={function}")]);
    valgrind.arg(format!("--callgrind-out-file={}/counts", folder.path().display())).arg(child.get_program());
    valgrind.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = valgrind.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let total = |number: usize| -> u64 {
        let text = std::fs::read_to_string(folder.path().join(format!("counts.{number}"))).unwrap();
        let totals = text.lines().find_map(|line| line.strip_prefix("totals: ")).expect("a sum");
        totals.trim().parse().unwrap()
    };
    let mut steep = Vec::new();
    for (at, ((what, ..), verb, _)) in counted().enumerate() {
        let (once, twice) = (total(2 * at + 1), total(2 * at + 2));
        let growth = twice as f64 / once as f64;
        let line =
            format!("{verb} {what}: {once} instructions for {COUNTED}, {growth:.3} times as many for twice as many");
        println!("{line}");
        // Little that is counted would be much that is not seen.
        assert!(once > 1_000_000, "{line}");
        if growth > MOST_INSTRUCTIONS {
            steep.push(line);
        }
    }
    assert!(steep.is_empty(), "{steep:#?}");
}
