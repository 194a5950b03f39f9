//! LLVM IR in place of objects: `add_module`, `add_bitcode`, `ir::compile`.

use std::sync::{Mutex, PoisonError};

use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::{AddressSpace, IntPredicate, OptimizationLevel};
use slabjit::ir::{self, OptLevel};
use slabjit::{CacheKey, Error, IrError, JitEngine, Library, LibraryError, LinkError, ObjectCache, Removal, Symbol};

use crate::common::{self, Checked, call, compile_bytes, freed, int, tool};
use crate::target::by_arch;

common::tests![
    modules_at_every_level,
    same_as_the_execution_engine,
    modules_stay_as_they_are,
    handles_outlive_contexts,
    text_and_bitcode,
    modules_and_objects_together,
    loops_are_vectorized,
    compiled_once_for_all_processes,
    constructors_variables_and_imports,
    made_for_an_executable,
    what_llvm_does_not_read,
    what_the_verifier_refuses,
    made_for_something_else,
    assembly_that_is_none,
    compiled_by_threads,
    replaced_under_calls,
];

const LEVELS: [OptLevel; 4] = [OptLevel::None, OptLevel::Less, OptLevel::Default, OptLevel::Aggressive];

type Sum = unsafe extern "C" fn(*const u32, u64) -> u32;

/// `uint32_t sum(const uint32_t *numbers, uint64_t n)`: of their squares.
fn sum_of_squares<'ctx>(context: &'ctx Context, name: &str) -> Module<'ctx> {
    let module = context.create_module(name);
    let (int, long) = (context.i32_type(), context.i64_type());
    let arguments = [context.ptr_type(AddressSpace::default()).into(), long.into()];
    let function = module.add_function("sum", int.fn_type(&arguments, false), None);
    let [entry, body, end] = ["entry", "body", "end"].map(|name| context.append_basic_block(function, name));
    let (numbers, n) =
        (function.get_nth_param(0).unwrap().into_pointer_value(), function.get_nth_param(1).unwrap().into_int_value());
    let builder = context.create_builder();
    builder.position_at_end(entry);
    let none = builder.build_int_compare(IntPredicate::EQ, n, long.const_zero(), "").unwrap();
    builder.build_conditional_branch(none, end, body).unwrap();
    builder.position_at_end(body);
    let (i, sum) = (builder.build_phi(long, "i").unwrap(), builder.build_phi(int, "sum").unwrap());
    // SAFETY: `i` is less than the number of them.
    let place = unsafe { builder.build_gep(int, numbers, &[i.as_basic_value().into_int_value()], "").unwrap() };
    let number = builder.build_load(int, place, "").unwrap().into_int_value();
    let square = builder.build_int_mul(number, number, "").unwrap();
    let next_sum = builder.build_int_add(sum.as_basic_value().into_int_value(), square, "").unwrap();
    let next = builder.build_int_add(i.as_basic_value().into_int_value(), long.const_int(1, false), "").unwrap();
    i.add_incoming(&[(&long.const_zero(), entry), (&next, body)]);
    sum.add_incoming(&[(&int.const_zero(), entry), (&next_sum, body)]);
    let last = builder.build_int_compare(IntPredicate::EQ, next, n, "").unwrap();
    builder.build_conditional_branch(last, end, body).unwrap();
    builder.position_at_end(end);
    let result = builder.build_phi(int, "").unwrap();
    result.add_incoming(&[(&int.const_zero(), entry), (&next_sum, body)]);
    builder.build_return(Some(&result.as_basic_value())).unwrap();
    module
}

fn numbers() -> Vec<u32> {
    (0..1003_u32).map(|i| i.wrapping_mul(2_654_435_761)).collect()
}

/// What a loop makes of the first `n`.
fn expected(numbers: &[u32]) -> u32 {
    numbers.iter().fold(0, |sum, number| sum.wrapping_add(number.wrapping_mul(*number)))
}

fn check_sum(sum: Sum) {
    let numbers = numbers();
    for n in [0, 1, 3, 16, 1003] {
        // SAFETY: there are so many.
        assert_eq!(unsafe { sum(numbers.as_ptr(), n as u64) }, expected(&numbers[..n]), "{n}");
    }
}

fn modules_at_every_level() {
    let engine = Checked::new();
    let context = Context::create();
    let module = sum_of_squares(&context, "squares");
    for level in LEVELS {
        let library = engine.add_module(&module, level).unwrap();
        assert_eq!(library.name(), "squares");
        // SAFETY: that is its type.
        check_sum(*unsafe { library.get::<Sum>("sum").unwrap() });
        freed(&library);
    }
    let library = engine.add_module(&module, OptimizationLevel::Aggressive).unwrap();
    freed(&library);
    // With nothing in it there is nothing to find.
    let library = engine.add_module(&context.create_module("empty"), OptLevel::Default).unwrap();
    // SAFETY: nothing is run.
    assert!(matches!(unsafe { library.get::<Sum>("sum") }, Err(Error::Library(LibraryError::SymbolNotFound { .. }))));
    drop(library);
    engine.finish();
}

/// MCJIT, as inkwell has it.
fn same_as_the_execution_engine() {
    let engine = Checked::new();
    let context = Context::create();
    let module = sum_of_squares(&context, "squares");
    let library = engine.add_module(&module, OptLevel::Default).unwrap();
    // SAFETY: that is its type.
    let ours = unsafe { library.get::<Sum>("sum").unwrap() };
    let theirs = module.create_jit_execution_engine(OptimizationLevel::Default).unwrap();
    // SAFETY: as above.
    let theirs = unsafe { theirs.get_function::<Sum>("sum").unwrap() };
    let numbers = numbers();
    for n in 0..40 {
        // SAFETY: there are more.
        let (ours, theirs) = unsafe { (ours(numbers.as_ptr(), n), theirs.call(numbers.as_ptr(), n)) };
        assert_eq!(ours, theirs);
    }
    drop((ours, theirs));
    freed(&library);
    engine.finish();
}

fn modules_stay_as_they_are() {
    let engine = Checked::new();
    let context = Context::create();
    let module = sum_of_squares(&context, "squares");
    let before = module.print_to_string();
    freed(&engine.add_module(&module, OptLevel::Aggressive).unwrap());
    assert_eq!(module.print_to_string(), before);
    assert!(module.get_triple().as_str().is_empty() && module.get_data_layout().as_str().is_empty());
    engine.finish();
}

fn handles_outlive_contexts() {
    let engine = Checked::new();
    let library = {
        let context = Context::create();
        engine.add_module(&sum_of_squares(&context, "squares"), OptLevel::Default).unwrap()
    };
    // SAFETY: that is its type.
    let sum: Symbol<Sum> = unsafe { library.get("sum").unwrap() };
    assert!(matches!(library.remove(), Removal::Waiting { .. }));
    std::thread::spawn(move || check_sum(*sum)).join().unwrap();
    engine.finish();
}

const ANSWER: &str = "define i32 @answer() { ret i32 42 }\n";

/// A file with bitcode, from LLVM's own assembler.
fn assembled(text: &str) -> Vec<u8> {
    let path = common::once_per(&["bitcode", text], "bc", |path| {
        let input = path.with_extension("ll");
        std::fs::write(&input, text).unwrap();
        let assembler = format!("llvm-as-{}", slabjit::llvm_version());
        tool(&assembler, &[input.as_os_str(), "-o".as_ref(), path.as_os_str()]);
    });
    std::fs::read(path).unwrap()
}

fn text_and_bitcode() {
    let engine = Checked::new();
    let bitcode = assembled(ANSWER);
    assert!(bitcode.starts_with(b"BC\xc0\xde"));
    for ir in [ANSWER.as_bytes(), &bitcode] {
        let library = engine.add_bitcode(ir).unwrap();
        assert_eq!(call(&library, "answer"), 42);
        freed(&library);
        let library = engine.library("both").build().unwrap();
        library.add_bitcode(ir).unwrap();
        assert_eq!(call(&library, "answer"), 42);
        freed(&library);
        for level in LEVELS {
            let library = engine.add_object(ir::compile("answer.ll", ir, level).unwrap()).unwrap();
            assert_eq!(call(&library, "answer"), 42);
            freed(&library);
        }
    }
    // What add_object is given by mistake.
    let error = engine.add_object(&bitcode).unwrap_err();
    assert!(error.to_string().contains("JitEngine::add_bitcode"), "{error}");
    engine.finish();
}

fn modules_and_objects_together() {
    let engine = Checked::new();
    let context = Context::create();
    let library = engine.library("together").build().unwrap();
    library.add_module(&sum_of_squares(&context, "squares"), OptLevel::Default).unwrap();
    let source = "unsigned sum(const unsigned *, unsigned long); int two(void) { return 2; }
        int f(void) { unsigned n[] = {1, 2, 3}; return sum(n, 3); }";
    library.add_object(compile_bytes("user.c", source, &[])).unwrap();
    library
        .add_bitcode(
            "declare i32 @two()\n define i32 @g() {\n %a = call i32 @two()\n %b = shl i32 %a, 4\n ret i32 %b }",
        )
        .unwrap();
    assert_eq!((call(&library, "f"), call(&library, "g")), (14, 32));
    let again = library.add_module(&sum_of_squares(&context, "squares again"), OptLevel::None).unwrap_err();
    assert!(
        matches!(&again, Error::Link(LinkError::DuplicateDefinition { .. }))
            && again.to_string().contains("squares again"),
        "{again}"
    );
    freed(&library);
    engine.finish();
}

/// What LLVM's pass manager is for; its disassembler says whether there are vectors.
fn loops_are_vectorized() {
    let context = Context::create();
    let module = sum_of_squares(&context, "squares");
    let instructions = |level: OptLevel| {
        let object = common::once_per(&["vectorized", &format!("{level:?}")], "o", |path| {
            std::fs::write(path, ir::compile_module(&module, level).unwrap()).unwrap();
        });
        tool("llvm-objdump-22", &["-d".as_ref(), object.as_os_str()])
    };
    let has = |text: &str| text.contains(by_arch("padd", ".4s"));
    let (plain, optimized) = (instructions(OptLevel::None), instructions(OptLevel::Default));
    assert!(!has(&plain), "{plain}");
    assert!(has(&optimized), "{optimized}");
}

/// By features of the CPU, not by its name; and a miss says why it is one.
fn compiled_once_for_all_processes() {
    let folder = tempfile::tempdir_in(common::temporary()).unwrap();
    let cache = ObjectCache::open(folder.path().join("cache")).unwrap();
    let context = Context::create();
    let module = sum_of_squares(&context, "squares");
    let first = cache.get_or_compile_ir(&module, OptLevel::Default).unwrap();
    let again = cache.get_or_compile_ir(&sum_of_squares(&Context::create(), "squares"), OptLevel::Default).unwrap();
    assert!(!first.found && again.found && first.bytes == again.bytes);
    assert_eq!(first.bytes, ir::compile_module(&module, OptLevel::Default).unwrap());
    assert!(!cache.get_or_compile_ir(&module, OptLevel::None).unwrap().found);

    let entries = cache.entries().unwrap();
    let part = |name: &str| {
        let parts = &entries[0].parts;
        parts.iter().find_map(|(of, value)| (of == name).then(|| value.clone())).unwrap()
    };
    assert_eq!(part("llvm"), slabjit::llvm_version_string());
    let parts = ["slabjit", "llvm", "target", "cpu", "options", "relocation-model", "source"];
    assert!(entries[0].parts.iter().all(|(name, _)| parts.contains(&name.as_str())), "{:?}", entries[0].parts);
    assert_eq!(entries[0].parts.len(), parts.len());

    // The key of another compiler's object, with what differs.
    let key = |options: &str| CacheKey::builder().part("compiler", "cc").part("options", options).build();
    cache.put(&key("-O2"), b"object").unwrap();
    let why = cache.explain_miss(&key("-O3")).unwrap().unwrap();
    assert_eq!(why.nearest, key("-O2"));
    assert_eq!(
        why.to_string(),
        format!("the nearest entry, {}, differs in options (wanted -O3, found -O2)", key("-O2"))
    );
    assert!(cache.explain_miss(&CacheKey::new(["no parts"])).unwrap().is_none());
    let not_there = cache.explain_miss(&key("-O2").clone()).unwrap().unwrap();
    assert!(not_there.differs.is_empty() && not_there.to_string().contains("has the same parts"), "{not_there}");

    let engine = Checked::new();
    let library = engine.add_object(&again.bytes).unwrap();
    freed(&library);
    engine.finish();
}

fn constructors_variables_and_imports() {
    let engine = Checked::new();
    let text = "
        @count = internal global i32 0
        @own = internal thread_local global i32 5
        @llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @first, ptr null }]
        define internal void @first() { store i32 30, ptr @count ret void }
        declare double @cbrt(double)
        define i32 @f() {
            %a = load i32, ptr @count
            %b = load i32, ptr @own
            %c = call double @cbrt(double 2.700000e+01)
            %d = fptosi double %c to i32
            %e = add i32 %a, %b
            %g = mul i32 %e, %d
            ret i32 %g
        }";
    for level in LEVELS {
        let library = engine.add_object(ir::compile("f.ll", text, level).unwrap()).unwrap();
        assert_eq!(call(&library, "f"), 105, "{level:?}");
        freed(&library);
    }
    let library = engine
        .add_bitcode("declare i32 @nobody_has_this()\n define i32 @f() { %a = call i32 @nobody_has_this() ret i32 %a }")
        .unwrap();
    // SAFETY: nothing is run.
    let error = unsafe { library.initialize().unwrap_err() };
    assert!(
        matches!(error, Error::Link(LinkError::UndefinedSymbols { .. }))
            && error.to_string().contains("nobody_has_this"),
        "{error}"
    );
    drop(library);
    engine.finish();
}

/// clang's default: its thread-local variables would take more of glibc's surplus than there is.
fn made_for_an_executable() {
    let engine = Checked::new();
    let text = "
        @own = internal thread_local global [65536 x i8] zeroinitializer
        define i32 @f(i32 %i) {
            %a = getelementptr i8, ptr @own, i32 %i
            %b = load i8, ptr %a
            %c = add i8 %b, 3
            store i8 %c, ptr %a
            %d = zext i8 %c to i32
            ret i32 %d
        }
        !llvm.module.flags = !{!0, !1}
        !0 = !{i32 8, !\"PIC Level\", i32 2}
        !1 = !{i32 7, !\"PIE Level\", i32 2}";
    let library = engine.add_bitcode(text).unwrap();
    // SAFETY: that is its type.
    let f = unsafe { library.get::<unsafe extern "C" fn(i32) -> i32>("f").unwrap() };
    // SAFETY: within the variable.
    assert_eq!(unsafe { (f(0), f(60_000), f(60_000)) }, (3, 3, 6));
    drop(f);
    freed(&library);
    engine.finish();
}

fn refused(name: &str, ir: impl AsRef<[u8]>) -> (Error, String) {
    let error = ir::compile(name, ir, OptLevel::Default).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(name), "{text}");
    (error, text)
}

fn what_llvm_does_not_read() {
    let (error, text) = refused("typo.ll", "define i32 @f() {\n  retrun i32 1\n}\n");
    assert!(
        matches!(error, Error::Ir(IrError::Invalid { .. })) && text.contains("2:3") && text.contains("retrun"),
        "{text}"
    );
    let bitcode = assembled(ANSWER);
    // Cut off anywhere it is refused, and nothing is printed.
    for end in [4, 5, 8, 100, bitcode.len() / 2, bitcode.len() - 4] {
        let (error, _) = refused("cut.bc", &bitcode[..end]);
        assert!(matches!(error, Error::Ir(IrError::Invalid { .. })), "{end}: {error}");
    }
    let (error, _) = refused("not.ll", b"\x7fELF\0\0");
    assert!(matches!(error, Error::Ir(IrError::Invalid { .. })), "{error}");
    let engine = Checked::new();
    let error = engine.add_bitcode("nonsense").unwrap_err();
    assert!(matches!(error, Error::Ir(IrError::Invalid { .. })), "{error}");
    engine.assert_usable();
    engine.finish();
}

fn what_the_verifier_refuses() {
    let engine = Checked::new();
    let context = Context::create();
    let module = context.create_module("unfinished");
    let function = module.add_function("f", context.void_type().fn_type(&[], false), None);
    context.append_basic_block(function, "entry");
    let error = engine.add_module(&module, OptLevel::Default).unwrap_err();
    assert!(matches!(error, Error::Ir(IrError::Invalid { .. })), "{error}");
    assert!(error.to_string().contains("'unfinished'") && error.to_string().contains("terminator"), "{error}");
    // It can be mended, and added then.
    let builder = context.create_builder();
    builder.position_at_end(function.get_first_basic_block().unwrap());
    builder.build_return(None).unwrap();
    freed(&engine.add_module(&module, OptLevel::Default).unwrap());
    engine.finish();
}

fn made_for_something_else() {
    let other = by_arch("aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu");
    let own = by_arch("x86_64", "aarch64");
    for triple in
        [other, "nvptx64-nvidia-cuda", &format!("{own}-pc-windows-msvc"), &format!("{own}-apple-macosx14.0.0")]
    {
        let (error, text) = refused("far.ll", format!("target triple = \"{triple}\"\n{ANSWER}"));
        assert!(
            matches!(error, Error::Ir(IrError::OtherTarget { what: "target triple", .. })) && text.contains(triple),
            "{text}"
        );
    }
    let (error, text) = refused("far.ll", format!("target datalayout = \"E-p:32:32\"\n{ANSWER}"));
    assert!(
        matches!(error, Error::Ir(IrError::OtherTarget { what: "data layout", .. })) && text.contains("E-p:32:32"),
        "{text}"
    );
    for triple in [own.to_owned(), format!("{own}-pc-linux-gnu"), format!("{own}-unknown-unknown")] {
        ir::compile("near.ll", format!("target triple = \"{triple}\"\n{ANSWER}"), OptLevel::None).unwrap();
    }
}

/// LLVM prints what it finds wrong with assembly and ends the process, if it is not told otherwise.
fn assembly_that_is_none() {
    let inline = "define void @f() { call void asm sideeffect \"no_such_instruction\", \"\"() ret void }";
    for ir in [inline, "module asm \"no_such_directive everywhere\"\ndefine void @f() { ret void }"] {
        let (error, text) = refused("assembly.ll", ir);
        assert!(matches!(error, Error::Ir(IrError::CodeGeneration { .. })) && text.contains("no_such"), "{text}");
    }
    let assembly = by_arch("mov $$7, $0", "mov ${0:w}, #7");
    let good = format!("define i32 @f() {{ %a = call i32 asm \"{assembly}\", \"=r\"() ret i32 %a }}");
    let engine = Checked::new();
    let library = engine.add_bitcode(good).unwrap();
    assert_eq!(call(&library, "f"), 7);
    freed(&library);
    engine.finish();
}

fn compiled_by_threads() {
    let engine = Checked::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let engine = &*engine;
            scope.spawn(move || {
                for i in 0..10 {
                    let number = thread * 100 + i;
                    let library = engine.add_bitcode(format!("define i32 @answer() {{ ret i32 {number} }}")).unwrap();
                    assert_eq!(call(&library, "answer"), number);
                    freed(&library);
                }
            });
        }
    });
    engine.finish();
}

/// Callers never see anything but one version or the next, and each version goes when its last call has ended.
fn replaced_under_calls() {
    fn version(engine: &JitEngine, number: i32) -> (Library, Symbol<unsafe extern "C" fn() -> i32>) {
        let library = engine.add_bitcode(format!("define i32 @version() {{ ret i32 {number} }}")).unwrap();
        let function = int(&library, "version");
        (library, function)
    }
    let engine = Checked::new();
    let (mut library, function) = version(&engine, 0);
    let current = Mutex::new(function);
    let last = 60;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = 0;
                while seen < last {
                    let function = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    // SAFETY: it takes nothing.
                    let number = unsafe { function() };
                    assert!((seen..=last).contains(&number), "{number} after {seen}");
                    seen = number;
                }
            });
        }
        for number in 1..=last {
            let (next, function) = version(&engine, number);
            *current.lock().unwrap_or_else(PoisonError::into_inner) = function;
            std::mem::replace(&mut library, next).remove();
        }
    });
    drop(current);
    freed(&library);
    engine.finish();
}
