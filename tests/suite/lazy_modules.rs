//! `slabjit::orc`: modules whose functions are compiled when they are first called.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use slabjit::ir::OptLevel;
use slabjit::orc::{Dylib, Jit};
use slabjit::{Error, LibraryError, LinkError, Removal, Symbol};

use crate::common::{Checked, ChildEnd, child, compile_bytes, compile_with, tests};
use crate::dylib_calls::{Int, call, find};

tests![
    functions_are_compiled_when_they_are_called,
    all_arguments_arrive,
    errno_and_rounding_stay,
    a_function_has_one_address,
    what_cannot_be_alone_goes_with_the_variables,
    of_two_weak_functions_one_counts,
    constructors_call_functions,
    exceptions_pass,
    a_name_that_is_taken_is_refused_whole,
    modules_that_call_each_other_go,
    threads_call_at_once,
    what_is_found_can_be_called,
    threads_compile,
    a_function_is_redirected,
    functions_are_redirected_while_they_are_called,
    a_call_without_code_ends_the_process;
    // When it is looked for what was held depends on what else was removed in the process.
    alone: all_goes_with_its_tracker;
    parts: calls_what_cannot_be_compiled, calls_what_is_missing, calls_behind_the_end, calls_what_was_removed
];

fn jit(engine: &Checked) -> Jit {
    engine.orc().build().unwrap()
}

fn add(dylib: &Dylib, module: &str) {
    dylib.add_bitcode_lazily("module.ll", module, OptLevel::Default).unwrap();
}

const BROKEN: &str = "define i32 @broken(i32 %n) { call void asm sideeffect \"no such instruction\", \"\"()
      ret i32 %n }";

/// Functions that count in a variable of the module's own; `outer` calls `inner`, and `broken` beyond 100.
fn counting() -> String {
    format!(
        "@count = internal global i32 0
        @0 = private unnamed_addr constant [3 x i32] [i32 1, i32 10, i32 100]
        define i32 @outer(i32 %n) {{
          %less = icmp slt i32 %n, 0
          br i1 %less, label %back, label %on
        back: ret i32 %n
        on: %is = icmp sgt i32 %n, 100
          br i1 %is, label %far, label %near
        far: %f = call i32 @broken(i32 %n)
          ret i32 %f
        near: %r = call i32 @inner(i32 %n)
          ret i32 %r
        }}
        define internal i32 @inner(i32 %n) {{
          %c = load i32, ptr @count
          %at = getelementptr [3 x i32], ptr @0, i32 0, i32 %n
          %step = load i32, ptr %at
          %more = add i32 %c, %step
          store i32 %more, ptr @count
          ret i32 %more
        }}
        {BROKEN}"
    )
}

fn functions_are_compiled_when_they_are_called() {
    let engine = Checked::new();
    let jit = jit(&engine);
    let main = jit.dylib("main");
    add(&main, &counting());
    let before = engine.stats().libraries;
    let outer = find(&main, "outer").unwrap();
    // The stubs, and nothing else.
    assert_eq!(engine.stats().libraries, before + 1);
    // SAFETY: of this type.
    unsafe {
        assert_eq!((outer(1), outer(2), outer(0)), (10, 110, 111));
    }
    // Two functions, and the variables.
    assert_eq!(engine.stats().libraries, before + 4);
    assert!(matches!(find(&main, "inner"), Err(Error::Library(LibraryError::SymbolNotFound { .. }))));
    drop((outer, main, jit));
    engine.finish();
}

fn all_arguments_arrive() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    let module = "declare void @llvm.va_start(ptr)
        declare void @llvm.va_end(ptr)
        declare i32 @add_list(i32, ptr)
        declare double @llvm.vector.reduce.fadd.v8f64(double, <8 x double>)
        define double @many(i64 %a, i64 %b, i64 %c, i64 %d, i64 %e, i64 %f, i64 %g, i64 %h, i64 %i,
            double %p, double %q, double %r, double %s, double %t, double %u, double %v, double %w, double %x) {
          %a1 = mul i64 %a, 1
          %b1 = mul i64 %b, 10
          %c1 = mul i64 %c, 100
          %d1 = mul i64 %d, 1000
          %e1 = mul i64 %e, 10000
          %f1 = mul i64 %f, 100000
          %g1 = mul i64 %g, 1000000
          %h1 = mul i64 %h, 10000000
          %i1 = mul i64 %i, 100000000
          %a2 = add i64 %a1, %b1
          %a3 = add i64 %a2, %c1
          %a4 = add i64 %a3, %d1
          %a5 = add i64 %a4, %e1
          %a6 = add i64 %a5, %f1
          %a7 = add i64 %a6, %g1
          %a8 = add i64 %a7, %h1
          %a9 = add i64 %a8, %i1
          %whole = sitofp i64 %a9 to double
          %q1 = fsub double %p, %q
          %r1 = fadd double %q1, %r
          %s1 = fsub double %r1, %s
          %t1 = fadd double %s1, %t
          %u1 = fsub double %t1, %u
          %v1 = fadd double %u1, %v
          %w1 = fsub double %v1, %w
          %x1 = fadd double %w1, %x
          %sum = fadd double %whole, %x1
          ret double %sum
        }
        define i32 @listed(i32 %n, ...) {
          %list = alloca [4 x i64]
          call void @llvm.va_start(ptr %list)
          %r = call i32 @add_list(i32 %n, ptr %list)
          call void @llvm.va_end(ptr %list)
          ret i32 %r
        }
        define double @wide(<8 x double> %a, <8 x double> %b) {
          %d = fmul <8 x double> %a, %b
          %r = call double @llvm.vector.reduce.fadd.v8f64(double 0.0, <8 x double> %d)
          ret double %r
        }
        define double @calls_wide(ptr %a, ptr %b) {
          %x = load <8 x double>, ptr %a, align 8
          %y = load <8 x double>, ptr %b, align 8
          %r = call double @wide(<8 x double> %x, <8 x double> %y)
          ret double %r
        }
        %triple = type { i64, i64, i64 }
        define void @makes(ptr sret(%triple) %out, i64 %n) {
          %p = getelementptr %triple, ptr %out, i32 0, i32 2
          store i64 %n, ptr %p
          ret void
        }
        define i64 @nested(ptr nest %frame, i64 %n) {
          %v = load i64, ptr %frame
          %r = add i64 %v, %n
          ret i64 %r
        }
        define i64 @calls_nested(i64 %n) {
          %frame = alloca i64
          store i64 100, ptr %frame
          %r = call i64 @nested(ptr nest %frame, i64 %n)
          ret i64 %r
        }";
    add(&main, module);
    let source = "#include <stdarg.h>\nint add_list(int n, va_list list) { int sum = 0; while (n--) sum += va_arg(list, int); return sum; }";
    main.add_object(compile_bytes("list.c", source, &[])).unwrap();
    type Many = unsafe extern "C" fn(
        i64,
        i64,
        i64,
        i64,
        i64,
        i64,
        i64,
        i64,
        i64,
        f64,
        f64,
        f64,
        f64,
        f64,
        f64,
        f64,
        f64,
        f64,
    ) -> f64;
    type Listed = unsafe extern "C" fn(i32, ...) -> i32;
    type Wide = unsafe extern "C" fn(*const f64, *const f64) -> f64;
    type Makes = unsafe extern "C" fn(i64) -> [i64; 3];
    // SAFETY: functions of these types.
    unsafe {
        let many = main.get::<Many>("many").unwrap();
        let sums = [(); 2].map(|()| many(1, 2, 3, 4, 5, 6, 7, 8, 9, 0.5, 0.25, 0.125, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0));
        assert_eq!(sums, [987_654_321.0 + 0.5 - 0.25 + 0.125 - 1.0 + 2.0 - 3.0 + 4.0 - 5.0 + 6.0; 2]);
        let listed = main.get::<Listed>("listed").unwrap();
        assert_eq!([(); 2].map(|()| listed(9, 1, 2, 3, 4, 5, 6, 7, 8, 9)), [45; 2]);
        let (a, b) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
        assert_eq!(main.get::<Wide>("calls_wide").unwrap()(a.as_ptr(), b.as_ptr()), 120.0);
        // Its result is in memory, at an address that is an argument of its own (on AArch64, in x8).
        assert_eq!(main.get::<Makes>("makes").unwrap()(77)[2], 77);
        assert_eq!(main.get::<unsafe extern "C" fn(i64) -> i64>("calls_nested").unwrap()(11), 111);
    }
}

/// As code that sets either and calls expects them.
fn errno_and_rounding_stay() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    add(
        &main,
        "define double @third(double %n) { %r = fdiv double %n, 3.0
          ret double %r }",
    );
    main.add_object(compile_bytes(
        "errno.c",
        "#include <errno.h>\n#include <fenv.h>\ndouble third(double);
         int asks(int n) { fesetround(FE_UPWARD); errno = n; double up = third(1); int kept = errno;
           fesetround(FE_DOWNWARD); double down = third(1); fesetround(FE_TONEAREST);
           return kept == n && up > down; }",
        &["-frounding-math"],
    ))
    .unwrap();
    assert_eq!(call(&main, "asks", 77), 1);
}

fn a_function_has_one_address() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    let module = "@table = global [2 x ptr] [ptr @own, ptr @local]
        define ptr @own() { ret ptr @own }
        define internal i32 @local(i32 %n) { %r = add i32 %n, 3
          ret i32 %r }
        define ptr @other() { %p = load ptr, ptr @table
          ret ptr %p }
        define i32 @through(i32 %n) {
          %at = getelementptr [2 x ptr], ptr @table, i32 0, i32 1
          %f = load ptr, ptr %at
          %r = call i32 %f(i32 %n)
          ret i32 %r
        }
        define i32 @down(i32 %n) {
          %done = icmp eq i32 %n, 0
          br i1 %done, label %end, label %more
        more: %less = sub i32 %n, 1
          %r = call i32 @down(i32 %less)
          %s = add i32 %r, 2
          ret i32 %s
        end: ret i32 0
        }";
    add(&main, module);
    type Pointer = unsafe extern "C" fn() -> *const ();
    // SAFETY: functions of these types.
    unsafe {
        let [own, other] = ["own", "other"].map(|name| main.get::<Pointer>(name).unwrap());
        let (address, first, second, through) = (own.address(), own(), own(), other());
        assert_eq!((first, second, through), (address, address, address));
    }
    assert_eq!((call(&main, "through", 4), call(&main, "down", 1000)), (7, 2000));
}

fn what_cannot_be_alone_goes_with_the_variables() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    let module = "@own = internal thread_local global i32 5
        define i32 @counts(i32 %n) {
          %v = load i32, ptr @own
          %more = add i32 %v, %n
          store i32 %more, ptr @own
          ret i32 %more
        }
        define i32 @aliased(i32 %n) { %r = call i32 @must(i32 %n)
          ret i32 %r }
        @alias = alias i32 (i32), ptr @aliased
        define i32 @calls_alias(i32 %n) { %r = call i32 @alias(i32 %n)
          ret i32 %r }
        define internal i32 @must(i32 %n) alwaysinline { %r = add i32 %n, 20
          ret i32 %r }
        define i32 @inlines(i32 %n) { %r = call i32 @must(i32 %n)
          ret i32 %r }
        @chosen = ifunc i32 (i32), ptr @choose
        define internal ptr @choose() { ret ptr @one }
        define internal i32 @one(i32 %n) { %r = add i32 %n, 1
          ret i32 %r }
        define i32 @calls_chosen(i32 %n) { %r = call i32 @chosen(i32 %n)
          ret i32 %r }
        @places = internal constant [2 x ptr] [ptr blockaddress(@jumps, %a), ptr blockaddress(@jumps, %b)]
        define i32 @jumps(i32 %n) {
          %p = getelementptr [2 x ptr], ptr @places, i32 0, i32 %n
          %t = load ptr, ptr %p
          indirectbr ptr %t, [label %a, label %b]
        a: ret i32 10
        b: ret i32 20
        }
        define available_externally i32 @elsewhere(i32 %n) { ret i32 6 }
        define i32 @calls_elsewhere(i32 %n) { %r = call i32 @elsewhere(i32 %n)
          ret i32 %r }
        define hidden i32 @hidden(i32 %n) { ret i32 8 }
        $group = comdat any
        define linkonce_odr i32 @group(i32 %n) comdat { ret i32 9 }
        @in_group = linkonce_odr constant i32 11, comdat($group)
        define i32 @calls_group(i32 %n) { %r = call i32 @group(i32 %n)
          %v = load i32, ptr @in_group
          %s = add i32 %r, %v
          ret i32 %s }";
    add(&main, module);
    main.add_object(compile_bytes(
        "others.c",
        "int elsewhere(int n) { return n; } int hidden(int); int calls_hidden(int n) { return hidden(n); }",
        &[],
    ))
    .unwrap();
    assert_eq!((call(&main, "counts", 1), call(&main, "counts", 2)), (6, 8));
    assert_eq!(thread::scope(|scope| scope.spawn(|| call(&main, "counts", 1)).join().unwrap()), 6);
    assert_eq!((call(&main, "alias", 1), call(&main, "calls_alias", 2), call(&main, "inlines", 3)), (21, 22, 23));
    assert_eq!((call(&main, "calls_chosen", 4), call(&main, "chosen", 5)), (5, 6));
    assert_eq!((call(&main, "jumps", 0), call(&main, "jumps", 1)), (10, 20));
    assert_eq!((call(&main, "calls_elsewhere", 6), call(&main, "calls_hidden", 0)), (6, 8));
    assert_eq!(call(&main, "calls_group", 0), 20);
    let other = find(&main, "aliased").unwrap();
    assert_eq!(find(&main, "alias").unwrap().address(), other.address());
}

fn of_two_weak_functions_one_counts() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    for n in 1..3 {
        let module = format!(
            "define weak i32 @value(i32 %n) {{ ret i32 {n} }}
             define i32 @through_{n}(i32 %n) {{ %r = call i32 @value(i32 %n)
               ret i32 %r }}"
        );
        add(&main, &module);
    }
    assert_eq!((call(&main, "through_2", 0), call(&main, "through_1", 0), call(&main, "value", 0)), (1, 1, 1));
    let error = main.add_bitcode_lazily("3.ll", "define i32 @through_1(i32 %n) { ret i32 3 }", OptLevel::None);
    assert!(matches!(error, Err(Error::Link(LinkError::Failed { .. }))), "{error:?}");
}

fn constructors_call_functions() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    let module = "@started = global i32 0
        @llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @start, ptr null }]
        define internal void @start() { call void @set(i32 42)
          ret void }
        define void @set(i32 %n) { store i32 %n, ptr @started
          ret void }
        define i32 @asks(i32 %n) { %r = load i32, ptr @started
          ret i32 %r }";
    add(&main, module);
    // The function's first call links the variables, whose constructors run before it does.
    assert_eq!(call(&main, "asks", 0), 42);
    let other = jit(&engine).dylib("main");
    add(&other, module);
    // SAFETY: the constructors may run; an `int`.
    unsafe {
        other.initialize().unwrap();
        assert_eq!(**other.get::<*const i32>("started").unwrap(), 42);
    }
}

fn exceptions_pass() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    let source = "extern \"C\" int middle(int);
        extern \"C\" void throws(int n) { throw n; }
        extern \"C\" int catches(int n) { try { return middle(n); } catch (int caught) { return -caught; } }";
    let object = compile_with("g++", "throws.cc", source, &[]);
    main.add_object_file(object).unwrap();
    add(
        &main,
        "declare void @throws(i32)
         define i32 @middle(i32 %n) uwtable { call void @last(i32 %n)
           ret i32 0 }
         define void @last(i32 %n) uwtable { call void @throws(i32 %n)
           ret void }",
    );
    assert_eq!((call(&main, "catches", 3), call(&main, "catches", 4)), (-3, -4));
}

fn a_name_that_is_taken_is_refused_whole() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    main.add_object(compile_bytes("taken.c", "int taken = 3;", &[])).unwrap();
    let module = "@taken = global i32 4
        define i32 @first(i32 %n) { %r = load i32, ptr @taken
          ret i32 %r }";
    let error = main.add_bitcode_lazily("second.ll", module, OptLevel::None).unwrap_err();
    assert!(error.to_string().contains("second.ll") && error.to_string().contains("taken"), "{error}");
    assert!(matches!(find(&main, "first"), Err(Error::Library(LibraryError::SymbolNotFound { .. }))));
    add(&main, &module.replace("@taken = global i32 4", "@taken = external global i32"));
    assert_eq!(call(&main, "first", 0), 3);
    let error = main.add_bitcode_lazily("wrong.ll", "define i32 @f(i32 %n) { ret i64 0 }", OptLevel::None);
    assert!(matches!(error, Err(Error::Ir(_))), "{error:?}");
}

fn all_goes_with_its_tracker() {
    let engine = Checked::new();
    let jit = jit(&engine);
    let main = jit.dylib("main");
    for round in 0..3 {
        let tracker = main.tracker();
        tracker.add_bitcode_lazily("count.ll", counting(), OptLevel::Default).unwrap();
        let outer = find(&main, "outer").unwrap();
        // SAFETY: of this type.
        unsafe { assert_eq!(outer(1), 10) };
        tracker.remove().unwrap();
        assert!(matches!(find(&main, "outer"), Err(Error::Library(LibraryError::SymbolNotFound { .. }))));
        // What is held works on, as far as it has been made.
        // SAFETY: as above.
        unsafe { assert_eq!(outer(2), 110) };
        drop(outer);
        if round == 1 {
            // What nobody has called goes, too.
            main.tracker().add_bitcode_lazily("count.ll", counting(), OptLevel::Default).unwrap();
            main.clear().unwrap();
        }
    }
    // The last that was held is looked for when something else goes.
    let tracker = main.tracker();
    tracker.add_bitcode_lazily("count.ll", counting(), OptLevel::Default).unwrap();
    assert_eq!(call(&main, "outer", 1), 10);
    tracker.remove().unwrap();
    assert_eq!(engine.stats().arena.slabs, 0);
}

/// Each keeps the other, over stubs and variables.
fn modules_that_call_each_other_go() {
    let engine = Checked::new();
    let jit = jit(&engine);
    let [main, other] = ["main", "other"].map(|name| jit.dylib(name));
    main.link(&other).unwrap();
    other.link(&main).unwrap();
    let [first, second] = [main.tracker(), other.tracker()];
    let module = |name: &str, calls: &str| {
        format!(
            "@at_{name} = global ptr @at_{calls}
             @at_{calls} = external global ptr
             declare i32 @{calls}(i32)
             define i32 @{name}(i32 %n) {{
               %done = icmp eq i32 %n, 0
               br i1 %done, label %end, label %more
             more: %less = sub i32 %n, 1
               %r = call i32 @{calls}(i32 %less)
               %p = load ptr, ptr @at_{name}
               %is = icmp eq ptr %p, @at_{calls}
               %one = zext i1 %is to i32
               %s = add i32 %r, %one
               ret i32 %s
             end: ret i32 0
             }}
             @llvm.global_dtors = appending global [1 x {{ i32, ptr, ptr }}] [{{ i32, ptr, ptr }} {{ i32 65535, ptr @end_{name}, ptr null }}]
             define internal void @end_{name}() {{ call i32 @{calls}(i32 3)
               ret void }}"
        )
    };
    first.add_bitcode_lazily("even.ll", module("even", "odd"), OptLevel::Default).unwrap();
    second.add_bitcode_lazily("odd.ll", module("odd", "even"), OptLevel::Default).unwrap();
    let even = find(&main, "even").unwrap();
    // SAFETY: of this type.
    unsafe { assert_eq!(even(10), 10) };
    first.remove().unwrap();
    // SAFETY: as above.
    unsafe { assert_eq!(even(10), 10) };
    drop(even);
    // Its finaliser calls the other module.
    second.remove().unwrap();
    assert_eq!(engine.stats().arena.slabs, 0);
    drop((main, other, jit));
    engine.finish();
}

fn what_is_found_can_be_called() {
    const FUNCTIONS: usize = 200;
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    for round in 0..20 {
        let last = format!("f_{round}_{}", FUNCTIONS - 1);
        let function = |i| {
            format!(
                "define i32 @f_{round}_{i}(i32 %n) {{
                   %c = load i32, ptr @count
                   %m = add i32 %n, %c
                   ret i32 %m
                 }}\n"
            )
        };
        let module = "@count = internal global i32 5\n".to_owned() + &(0..FUNCTIONS).map(function).collect::<String>();
        thread::scope(|scope| {
            // While it is added.
            scope.spawn(|| {
                let function = loop {
                    match find(&main, &last) {
                        Ok(function) => break function,
                        Err(Error::Library(LibraryError::SymbolNotFound { .. })) => {}
                        Err(error) => panic!("{error}"),
                    }
                };
                // SAFETY: of this type.
                assert_eq!(unsafe { function(round) }, round + 5);
            });
            add(&main, &module);
        });
    }
    drop(main);
    engine.finish();
}

fn threads_call_at_once() {
    let engine = Checked::new();
    let jit = jit(&engine);
    let main = jit.dylib("main");
    for round in 0..20 {
        let tracker = main.tracker();
        let functions: String = (0..4)
            .map(|i| {
                let next = (i + 1) % 4;
                format!(
                    "define i32 @f{i}(i32 %n) {{
                       %done = icmp eq i32 %n, 0
                       br i1 %done, label %end, label %more
                     more: %less = sub i32 %n, 1
                       %r = call i32 @f{next}(i32 %less)
                       %s = add i32 %r, 1
                       ret i32 %s
                     end: ret i32 {round}
                     }}\n"
                )
            })
            .collect();
        tracker.add_bitcode_lazily("ring.ll", functions, OptLevel::None).unwrap();
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for i in 0..4 {
                let (main, start) = (&main, &start);
                scope.spawn(move || {
                    let function = find(main, &format!("f{i}")).unwrap();
                    start.wait();
                    // SAFETY: of this type.
                    unsafe { assert_eq!(function(10), 10 + round) };
                });
            }
        });
        tracker.remove().unwrap();
        assert_eq!(engine.stats().arena.slabs, 0);
    }
}

fn threads_compile() {
    let engine = Checked::new();
    let jit = engine.orc().compile_threads(2).build().unwrap();
    let main = jit.dylib("main");
    add(&main, &counting());
    assert_eq!((call(&main, "outer", 0), call(&main, "outer", 1)), (1, 11));
    drop((main, jit));
}

fn a_function_is_redirected() {
    let engine = Checked::new();
    let jit = jit(&engine);
    let main = jit.dylib("main");
    let version = |n: i32| {
        let library =
            engine.add_object(compile_bytes("version.c", &format!("int version(int n) {{ return n + {n}; }}"), &[]));
        let library = library.unwrap();
        // SAFETY: of this type.
        let version = unsafe { library.get::<Int>("version").unwrap() };
        (library, version)
    };
    let ((first, one), (second, two)) = (version(1), version(2));
    // SAFETY: all functions are of one type, and no thread is in one.
    unsafe {
        main.define_stub("stub", &one).unwrap();
        main.add_object(compile_bytes("asks.c", "int stub(int); int asks(int n) { return stub(n) * 10; }", &[]))
            .unwrap();
        drop(one);
        assert_eq!((call(&main, "stub", 0), call(&main, "asks", 0)), (1, 10));
        assert!(matches!(first.remove(), Removal::Waiting { holders: 1 }));
        let replaced = main.redirect("stub", &two).unwrap();
        assert_eq!((call(&main, "stub", 0), call(&main, "asks", 0)), (2, 20));
        assert!(matches!(first.remove(), Removal::Waiting { holders: 1 }));
        drop(replaced);
        assert_eq!(first.remove(), Removal::Freed);
        drop(two);
        assert!(matches!(second.remove(), Removal::Waiting { holders: 1 }));

        // What is not compiled yet need not be.
        let tracker = main.tracker();
        tracker.add_bitcode_lazily("count.ll", counting(), OptLevel::Default).unwrap();
        let outer = find(&main, "outer").unwrap();
        let stub = find(&main, "stub").unwrap();
        drop(main.redirect("broken", &stub).unwrap());
        assert_eq!(outer(101), 103);
        // What was compiled goes on where it was.
        drop(main.redirect("outer", &stub).unwrap());
        assert_eq!(outer(1), 3);

        for (name, why) in [("asks", "no stub"), ("stub", "itself")] {
            let error = main.redirect(name, &stub).unwrap_err();
            assert!(matches!(error, Error::Link(LinkError::NoStub { .. })), "{error:?}");
            assert!(error.to_string().contains(why), "{error}");
        }
        assert!(matches!(main.redirect("none", &stub), Err(Error::Library(LibraryError::SymbolNotFound { .. }))));
        assert!(main.define_stub("stub", &stub).is_err());
        drop((outer, stub));
        tracker.remove().unwrap();
    }
    main.clear().unwrap();
    assert_eq!(second.remove(), Removal::Freed);
    drop((first, second, main, jit));
    engine.finish();
}

fn functions_are_redirected_while_they_are_called() {
    let engine = Checked::new();
    let jit = jit(&engine);
    let [main, versions] = ["main", "versions"].map(|name| jit.dylib(name));
    let version = |n: i32| {
        let tracker = versions.tracker();
        tracker.add_object(compile_bytes("version.c", "int version(int n) { return n * 1234567; }", &[])).unwrap();
        let version = find(&versions, "version").unwrap();
        assert_eq!(unsafe_call(&version, n), n * 1_234_567);
        tracker.remove().unwrap();
        version
    };
    // SAFETY: of one type; what is replaced is kept until no thread calls.
    unsafe { main.define_stub("stub", &version(0)).unwrap() };
    main.add_object(compile_bytes("asks.c", "int stub(int); int asks(int n) { return stub(n) + stub(n); }", &[]))
        .unwrap();
    let asks = find(&main, "asks").unwrap();
    let end = AtomicBool::new(false);
    let mut replaced = Vec::new();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    assert_eq!(unsafe_call(&asks, 3), 6 * 1_234_567);
                }
            });
        }
        for n in 1..100 {
            // SAFETY: as above.
            replaced.push(unsafe { main.redirect("stub", &version(n)).unwrap() });
        }
        end.store(true, Ordering::Relaxed);
    });
    // `asks`, the stub and where that leads, and what is kept here.
    assert_eq!(engine.stats().libraries, 3 + replaced.len());
    drop(replaced);
    assert_eq!(engine.stats().libraries, 3);
}

fn unsafe_call(function: &Symbol<Int>, n: i32) -> i32 {
    // SAFETY: of this type.
    unsafe { function(n) }
}

fn calls_what_cannot_be_compiled() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    add(&main, &counting());
    assert_eq!(call(&main, "outer", 1), 10);
    call(&main, "outer", 101);
}

fn calls_what_is_missing() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    add(
        &main,
        "declare i32 @nowhere(i32)
        define i32 @asks(i32 %n) { %r = call i32 @nowhere(i32 %n)
          ret i32 %r }",
    );
    call(&main, "asks", 1);
}

fn calls_behind_the_end() {
    let engine = Checked::new();
    let jit = jit(&engine);
    let main = jit.dylib("main");
    add(&main, &counting());
    let outer = find(&main, "outer").unwrap();
    drop((jit, main));
    // SAFETY: of this type.
    unsafe { outer(1) };
}

fn calls_what_was_removed() {
    let engine = Checked::new();
    let main = jit(&engine).dylib("main");
    let tracker = main.tracker();
    tracker.add_bitcode_lazily("count.ll", counting(), OptLevel::None).unwrap();
    let outer = find(&main, "outer").unwrap();
    // SAFETY: of this type; `outer` is compiled, and ends before it calls another.
    unsafe { assert_eq!(outer(-1), -1) };
    tracker.remove().unwrap();
    // SAFETY: as above.
    unsafe { outer(1) };
}

fn a_call_without_code_ends_the_process() {
    for (part, words) in [
        ("calls_what_cannot_be_compiled", ["'broken' of dylib 'main'", "no such instruction"]),
        ("calls_what_is_missing", ["'asks' of dylib 'main'", "nowhere"]),
        ("calls_behind_the_end", ["'outer'", "has ended"]),
        ("calls_what_was_removed", ["'inner.lazy0'", "was removed before it was compiled"]),
    ] {
        let end @ ChildEnd { signal, stderr, .. } = &child(part);
        assert_eq!(*signal, Some(libc::SIGABRT), "{end:?}");
        assert!(words.iter().all(|word| stderr.contains(word)), "{stderr}");
    }
}
