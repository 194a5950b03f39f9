//! `slabjit::orc`: modules, which are compiled when they are needed.

use inkwell::context::Context;
use slabjit::ir::OptLevel;
use slabjit::orc::Dylib;
use slabjit::{Error, IrError, LibraryError, LinkError};

use crate::case::{take_trace, trace};
use crate::common::{Checked, compile_bytes, tests};
use crate::dylib_calls::{call, find};

tests![
    modules_and_objects_over_two_dylibs,
    what_is_inlined_everywhere_is_there,
    of_two_definitions_one_counts,
    names_that_assemblers_take_otherwise,
    of_two_comdats_one_counts,
    a_module_is_compiled_when_it_is_needed,
    what_is_invalid_is_refused_at_once,
    constructors_and_variables_of_a_module,
    modules_of_inkwell_with_trackers,
    compiled_modules_are_kept_on_disk
];

fn modules_and_objects_over_two_dylibs() {
    let engine = Checked::new();
    let jit = engine.orc().build().unwrap();
    let [main, other] = ["main", "other"].map(|name| jit.dylib(name));
    main.link(&other).unwrap();
    other.link(&main).unwrap();
    let down = "declare i32 @even(i32)
        define i32 @odd(i32 %n) {
          %done = icmp eq i32 %n, 0
          br i1 %done, label %end, label %more
        more: %less = sub i32 %n, 1
          %r = call i32 @even(i32 %less)
          ret i32 %r
        end: ret i32 0
        }";
    main.add_bitcode("odd.ll", down, OptLevel::Default).unwrap();
    let source = "int odd(int); int even(int n) { return n ? odd(n - 1) : 1; }";
    other.add_object(compile_bytes("even.c", source, &[])).unwrap();
    assert_eq!((call(&main, "odd", 7), call(&main, "odd", 8), call(&other, "even", 8)), (1, 0, 1));
    assert!(engine.arena().contains(&find(&main, "odd").unwrap().address().addr()));
    // The names of one are not the other's.
    assert!(matches!(find(&main, "even"), Err(Error::Library(LibraryError::SymbolNotFound { .. }))));
}

/// An optimiser drops such a function once it is inlined.
fn what_is_inlined_everywhere_is_there() {
    let engine = Checked::new();
    let main = engine.orc().build().unwrap().dylib("main");
    let module = "define linkonce_odr i32 @small(i32 %n) { %r = add i32 %n, 1
          ret i32 %r }
        define i32 @uses(i32 %n) { %r = call i32 @small(i32 %n)
          ret i32 %r }
        @alias = alias i32 (i32), ptr @uses
        define hidden i32 @hidden(i32 %n) { ret i32 4 }
        define internal i32 @local(i32 %n) { ret i32 5 }
        define available_externally i32 @elsewhere(i32 %n) { ret i32 6 }
        define i32 @keeps(i32 %n) { %a = call i32 @hidden(i32 %n)
          %b = call i32 @local(i32 %n)
          %r = add i32 %a, %b
          ret i32 %r }";
    main.add_bitcode("small.ll", module, OptLevel::Aggressive).unwrap();
    main.add_object(compile_bytes(
        "h.c",
        "int hidden(int), small(int); int asks(int n) { return hidden(n) + small(n); }",
        &[],
    ))
    .unwrap();
    assert_eq!((call(&main, "uses", 1), call(&main, "small", 2), call(&main, "alias", 3)), (2, 3, 4));
    assert_eq!((call(&main, "keeps", 0), call(&main, "asks", 0)), (9, 5));
    for name in ["hidden", "local", "elsewhere"] {
        assert!(matches!(find(&main, name), Err(Error::Library(LibraryError::SymbolNotFound { .. }))), "{name}");
    }
}

fn of_two_definitions_one_counts() {
    let engine = Checked::new();
    let main = engine.orc().build().unwrap().dylib("main");
    let module = |n: i32, linkage: &str| {
        format!(
            "define {linkage} i32 @value(i32 %n) {{ ret i32 {n} }}
             define i32 @through_{n}(i32 %n) {{ %r = call i32 @value(i32 %n)
               ret i32 %r }}"
        )
    };
    main.add_bitcode("1.ll", module(1, "weak"), OptLevel::Default).unwrap();
    main.add_bitcode("2.ll", module(2, "linkonce"), OptLevel::Default).unwrap();
    assert_eq!((call(&main, "through_1", 0), call(&main, "through_2", 0), call(&main, "value", 0)), (1, 1, 1));
    main.add_bitcode("3.ll", module(3, "weak"), OptLevel::Default).unwrap();
    assert_eq!(call(&main, "through_3", 0), 1);
    let error = main.add_bitcode("4.ll", module(3, "weak"), OptLevel::Default).unwrap_err();
    assert!(matches!(error, Error::Link(LinkError::Failed { .. })) && error.to_string().contains("4.ll"), "{error:?}");
}

/// No object can refer to another's name that begins with `.L`, and a byte 1 before a name says that nothing is put
/// before it.
fn names_that_assemblers_take_otherwise() {
    let module = "@.LC0 = internal constant [2 x i32] [i32 3, i32 4]
        @.LC1 = constant i32 5
        @\"\\01taken\" = global i32 6
        define private i32 @0(i32 %n) { ret i32 %n }
        define private i32 @hidden(i32 %n) { ret i32 %n }
        define i32 @.Lfunction(i32 %n) { ret i32 %n }
        define i32 @\"\\01L_plain\"(i32 %n) { ret i32 %n }
        define internal i32 @\"\\01.Lboth\"(i32 %n) { ret i32 %n }
        define i32 @sum(i32 %n) {
          %at = getelementptr [2 x i32], ptr @.LC0, i32 0, i32 %n
          %a = load i32, ptr %at
          %b = load i32, ptr @.LC1
          %c = load i32, ptr @\"\\01taken\"
          %d = call i32 @0(i32 1000)
          %e = call i32 @hidden(i32 2000)
          %f = call i32 @.Lfunction(i32 3000)
          %g = call i32 @\"\\01L_plain\"(i32 4000)
          %h = call i32 @\"\\01.Lboth\"(i32 5000)
          %ab = add i32 %a, %b
          %abc = add i32 %ab, %c
          %de = add i32 %d, %e
          %fg = add i32 %f, %g
          %fgh = add i32 %fg, %h
          %all = add i32 %abc, %de
          %r = add i32 %all, %fgh
          ret i32 %r
        }";
    for lazily in [false, true] {
        for level in [OptLevel::None, OptLevel::Default] {
            let engine = Checked::new();
            let main = engine.orc().build().unwrap().dylib("main");
            for _ in 0..2 {
                match lazily {
                    true => main.add_bitcode_lazily("names.ll", module, level).unwrap(),
                    false => main.add_bitcode("names.ll", module, level).unwrap(),
                }
                assert_eq!((call(&main, "sum", 1), call(&main, "L_plain", 7)), (4 + 5 + 6 + 15000, 7));
                main.clear().unwrap();
            }
        }
    }
}

/// A linker keeps one of the groups, though what they define is strong.
fn of_two_comdats_one_counts() {
    let module = |n| {
        format!(
            "$shared = comdat any
            define i32 @shared(i32 %n) comdat {{ ret i32 {n} }}
            define i32 @beside_{n}(i32 %n) comdat($shared) {{ %r = call i32 @shared(i32 %n)
              ret i32 %r }}
            define i32 @uses_{n}(i32 %n) {{ %r = call i32 @shared(i32 %n)
              ret i32 %r }}"
        )
    };
    let object = |n| slabjit::ir::compile("comdat.ll", module(n), OptLevel::None).unwrap();
    type Add<'a> = &'a dyn Fn(&Dylib, u32);
    let eagerly: Add<'_> = &|main, n| main.add_bitcode("m.ll", module(n), OptLevel::None).unwrap();
    let lazily: Add<'_> = &|main, n| main.add_bitcode_lazily("l.ll", module(n), OptLevel::None).unwrap();
    let objects: Add<'_> = &|main, n| main.add_object(object(n)).unwrap();
    for (first, second) in
        [(eagerly, eagerly), (lazily, lazily), (objects, objects), (objects, lazily), (eagerly, objects)]
    {
        let engine = Checked::new();
        let main = engine.orc().build().unwrap().dylib("main");
        first(&main, 1);
        second(&main, 2);
        assert_eq!(["shared", "uses_1", "uses_2"].map(|name| call(&main, name, 0)), [1, 1, 1]);
    }
}

fn a_module_is_compiled_when_it_is_needed() {
    let engine = Checked::new();
    let main = engine.orc().build().unwrap().dylib("main");
    let broken = "define i32 @broken(i32 %n) { call void asm sideeffect \"no such instruction\", \"\"()
          ret i32 %n }";
    let tracker = main.tracker();
    tracker.add_bitcode("broken.ll", broken, OptLevel::None).unwrap();
    main.add_bitcode(
        "uses.ll",
        "declare i32 @broken(i32) define i32 @uses(i32 %n) { %r = call i32 @broken(i32 %n)
          ret i32 %r }",
        OptLevel::None,
    )
    .unwrap();
    main.add_bitcode("fine.ll", "define i32 @fine(i32 %n) { ret i32 3 }", OptLevel::None).unwrap();
    assert_eq!((call(&main, "fine", 0), engine.stats().libraries), (3, 1));
    for name in ["broken", "uses", "broken"] {
        let error = find(&main, name).unwrap_err();
        let Error::Link(LinkError::SymbolFailed { cause, .. }) = &error else { panic!("{error:?}") };
        let cause = cause.downcast_ref::<Error>().unwrap();
        assert!(matches!(cause, Error::Ir(IrError::CodeGeneration { .. })), "{name}: {error:?}");
        assert!(error.to_string().contains("broken.ll"), "{error}");
    }
    tracker.remove().unwrap();
    main.add_bitcode("whole.ll", "define i32 @broken(i32 %n) { ret i32 8 }", OptLevel::None).unwrap();
    assert_eq!(call(&main, "broken", 0), 8);
}

fn what_is_invalid_is_refused_at_once() {
    let engine = Checked::new();
    let main = engine.orc().build().unwrap().dylib("main");
    for text in ["define i32 @f(", "define i32 @f(i32 %n) { ret i64 0 }"] {
        let error = main.add_bitcode("invalid.ll", text, OptLevel::Default).unwrap_err();
        assert!(matches!(error, Error::Ir(IrError::Invalid { .. })), "{error:?}");
    }
    let other = "target triple = \"sparc-unknown-linux-gnu\"\ndefine i32 @f(i32 %n) { ret i32 0 }";
    let error = main.add_bitcode("other.ll", other, OptLevel::Default).unwrap_err();
    assert!(matches!(error, Error::Ir(IrError::OtherTarget { .. })), "{error:?}");
    main.add_bitcode("right.ll", "define i32 @f(i32 %n) { ret i32 1 }", OptLevel::Default).unwrap();
    assert_eq!(call(&main, "f", 0), 1);
}

fn constructors_and_variables_of_a_module() {
    take_trace();
    let engine = Checked::new();
    let main = engine.orc().build().unwrap().dylib("main");
    // SAFETY: `trace` takes an int.
    unsafe { main.define("trace", trace as *const ()).unwrap() };
    let module = "declare void @trace(i32)
        @llvm.global_ctors = appending global [1 x { i32, ptr, ptr }]
          [{ i32, ptr, ptr } { i32 65535, ptr @begin, ptr null }]
        @counter = global i32 40
        @own = thread_local global i32 2
        define internal void @begin() { call void @trace(i32 7)
          store i32 41, ptr @counter
          ret void }
        define i32 @sum(i32 %n) { %a = load i32, ptr @counter
          %b = load i32, ptr @own
          %r = add i32 %a, %b
          ret i32 %r }";
    main.add_bitcode("ctors.ll", module, OptLevel::Default).unwrap();
    assert!(take_trace().is_empty());
    // SAFETY: the constructor may run.
    unsafe { main.initialize().unwrap() };
    assert_eq!(take_trace(), [7]);
    assert_eq!((call(&main, "sum", 0), take_trace()), (43, vec![]));
    // SAFETY: an int.
    assert_eq!(unsafe { **main.get::<*const i32>("counter").unwrap() }, 41);
    assert!(matches!(find(&main, "counter"), Err(Error::Library(LibraryError::WrongSymbolKind { .. }))));
}

fn modules_of_inkwell_with_trackers() {
    let engine = Checked::new();
    let main = engine.orc().build().unwrap().dylib("main");
    for round in 1..4_u64 {
        let tracker = main.tracker();
        {
            let context = Context::create();
            let module = context.create_module("times");
            let int = context.i32_type();
            let function = module.add_function("times", int.fn_type(&[int.into()], false), None);
            let builder = context.create_builder();
            builder.position_at_end(context.append_basic_block(function, ""));
            let n = function.get_nth_param(0).unwrap().into_int_value();
            let product = builder.build_int_mul(n, int.const_int(round, false), "").unwrap();
            builder.build_return(Some(&product)).unwrap();
            tracker.add_module(&module, OptLevel::Less).unwrap();
        }
        assert_eq!(call(&main, "times", 10), 10 * round as i32);
        tracker.remove().unwrap();
        assert_eq!(engine.stats().arena.slabs, 0);
    }
}

fn compiled_modules_are_kept_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("modules");
    let objects = || {
        let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
        let mut objects: Vec<_> = files.filter(|file| file.extension().is_some_and(|end| end == "o")).collect();
        objects.sort();
        objects
    };
    let module = |n: i32| format!("define i32 @value(i32 %x) {{ %r = add i32 %x, {n}\n ret i32 %r }}");
    let run = |n: i32, level: OptLevel| {
        let engine = Checked::new();
        let cache = slabjit::ObjectCache::open(&folder).unwrap();
        let jit = engine.orc().object_cache(cache).compile_threads(1).build().unwrap();
        let main = jit.dylib("main");
        main.add_bitcode("value", module(n), level).unwrap();
        assert_eq!(call(&main, "value", 1), n + 1);
        objects()
    };
    let first = run(1, OptLevel::Default);
    assert_eq!(first.len(), 1);
    let written = std::fs::metadata(&first[0]).unwrap().modified().unwrap();
    assert_eq!(run(1, OptLevel::Default), first);
    assert_eq!(std::fs::metadata(&first[0]).unwrap().modified().unwrap(), written);
    assert_eq!(run(2, OptLevel::Default).len(), 2);
    // It is what is there that is linked.
    let other = std::fs::read(run(2, OptLevel::Default).iter().find(|file| **file != first[0]).unwrap()).unwrap();
    assert!(other.starts_with(b"\x7fELF"));
    run(1, OptLevel::None);
    let keys = std::fs::read_dir(&folder)
        .unwrap()
        .filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|end| end == "key"));
    assert_eq!(keys.count(), 3);
}
