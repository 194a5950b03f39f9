//! Whatever an object has many of, twice as many take about twice the time: to be checked, and to be linked.

use std::fmt::Write as _;
use std::time::Duration;

use crate::common::{self, compile_bytes, thread_time};
use crate::target;
use slabjit::JitEngine;

common::tests![
    ;
    alone: checking, linking, linking_what_is_kept,
];

/// Four times as many: linear growth is 4, quadratic 16. What no longer fits into caches was seen at 10.
const MORE: usize = 4;
const MOST_GROWTH: u32 = 11;
/// Other processes disturb: the least time of so many counts.
const ROUNDS: usize = 5;

/// Objects of a library, in assembly.
type Shape = (&'static str, usize, fn(usize) -> Vec<String>);

fn times(n: usize, line: impl Fn(usize) -> String) -> String {
    (0..n).fold(String::new(), |mut text, i| {
        let _ = writeln!(text, "{}", line(i));
        text
    })
}

/// Fails unless the time grows with the objects.
fn grows_linearly(shapes: &[Shape], work: fn(&JitEngine, &[Vec<u8>])) {
    if target::not_under_qemu("it measures time") || target::under_valgrind() {
        return;
    }
    let engine = JitEngine::new().unwrap();
    for (what, n, sources) in shapes {
        let objects = |n: usize| {
            let compile = |(i, source): (usize, &String)| compile_bytes(&format!("{what}_{n}_{i}.s"), source, &[]);
            sources(n).iter().enumerate().map(compile).collect::<Vec<_>>()
        };
        let (few, many) = (objects(*n), objects(n * MORE));
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
    // SAFETY: no shared libraries.
    let library = unsafe { engine.library("growth").build().unwrap() };
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

fn initialisers(n: usize) -> Vec<String> {
    vec![FUNCTION.to_owned() + &times(n, |i| format!(".section .init_array.{i},\"aw\",%init_array\n.quad f"))]
}

fn checking() {
    let shapes: &[Shape] = &[
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
    grows_linearly(shapes, check);
}

fn linking() {
    let shapes: &[Shape] = &[
        ("differing_sections", 3000, differing_sections),
        ("frames", 10_000, frames),
        ("indirect_functions", 10_000, indirect_functions),
        ("second_names", 10_000, second_names),
        ("many_symbols", 5000, many_symbols),
        ("commons", 5000, commons),
        ("many_relocations", 5000, many_relocations),
    ];
    grows_linearly(shapes, link);
}

fn linking_what_is_kept() {
    let shapes: &[Shape] = &[
        ("bounds", 5000, bounds),
        ("large_sections", 4000, large_sections),
        ("retained_zeros", 20_000, retained_zeros),
        ("groups", 5000, groups),
        ("initialisers", 10_000, initialisers),
    ];
    grows_linearly(shapes, link);
}
