//! `slabjit::orc`: functions that change modules before they are compiled.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use inkwell::module::Module;
use slabjit::ir::OptLevel;

use crate::common::{Checked, tests};
use crate::dylib_calls::{call, cause, find};

tests![
    modules_and_functions_are_transformed,
    transforms_run_in_order,
    what_a_transform_breaks_is_an_error,
    a_cache_knows_transforms_by_their_keys
];

type Changed = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Has each function that a module defines, and whose name begins so, return its argument times `by`.
fn multiply(module: &Module<'_>, begins: &str, by: u64) {
    let context = module.get_context();
    let builder = context.create_builder();
    for function in module.get_functions().filter(|f| f.get_name().to_string_lossy().starts_with(begins)) {
        if function.count_basic_blocks() == 0 {
            continue;
        }
        for block in function.get_basic_blocks() {
            // SAFETY: nobody uses it any more.
            unsafe { block.delete().unwrap() };
        }
        builder.position_at_end(context.append_basic_block(function, "all"));
        let by = context.i32_type().const_int(by, false);
        let product = builder.build_int_mul(function.get_nth_param(0).unwrap().into_int_value(), by, "r").unwrap();
        builder.build_return(Some(&product)).unwrap();
    }
}

const MODULE: &str = "define i32 @times(i32 %n) { %r = call i32 @times_of(i32 %n)
      ret i32 %r }
    define i32 @times_of(i32 %n) { ret i32 %n }
    define i32 @plain(i32 %n) { %a = call i32 @times_of(i32 %n)
      %r = add i32 %a, 1
      ret i32 %r }";

fn modules_and_functions_are_transformed() {
    for lazily in [false, true] {
        for threads in [0, 2] {
            let engine = Checked::new();
            let modules = Arc::new(AtomicUsize::new(0));
            let seen = Arc::clone(&modules);
            let builder = engine.orc().compile_threads(threads).transform("times 3", move |module| {
                seen.fetch_add(1, Ordering::Relaxed);
                multiply(module, "times", 3);
                Ok(())
            });
            let main = builder.build().unwrap().dylib("main");
            match lazily {
                true => main.add_bitcode_lazily("m.ll", MODULE, OptLevel::Default).unwrap(),
                false => main.add_bitcode("m.ll", MODULE, OptLevel::Default).unwrap(),
            }
            assert_eq!(modules.load(Ordering::Relaxed), 0);
            let results = ["times", "times_of", "plain"].map(|name| call(&main, name, 7));
            // Lazily, a function's own code has another name, which begins with its own.
            assert_eq!(results, [21, 21, 22]);
            assert_eq!(modules.load(Ordering::Relaxed), if lazily { 3 } else { 1 });
        }
    }
}

fn transforms_run_in_order() {
    let engine = Checked::new();
    let builder = engine.orc().transform("first", |module| {
        multiply(module, "times", 2);
        Ok(())
    });
    let builder = builder.transform("second", |module| {
        multiply(module, "times_of", 5);
        Ok(())
    });
    let main = builder.build().unwrap().dylib("main");
    main.add_bitcode("m.ll", MODULE, OptLevel::None).unwrap();
    assert_eq!(["times", "times_of", "plain"].map(|name| call(&main, name, 1)), [2, 5, 6]);
}

fn what_a_transform_breaks_is_an_error() {
    fn refuses(_: &Module<'_>) -> Changed {
        Err("not this one".into())
    }
    fn panics(_: &Module<'_>) -> Changed {
        panic!("no idea")
    }
    /// A block without an end.
    fn invalid(module: &Module<'_>) -> Changed {
        let function = module.get_functions().find(|f| f.count_basic_blocks() > 0).ok_or("none")?;
        module.get_context().append_basic_block(function, "endless");
        Ok(())
    }
    fn renames(module: &Module<'_>) -> Changed {
        let defined = module.get_functions().filter(|f| f.count_basic_blocks() > 0);
        defined.for_each(|function| function.as_global_value().set_name("other"));
        Ok(())
    }
    type Case = (fn(&Module<'_>) -> Changed, &'static str);
    let cases: [Case; 4] = [
        (refuses, "transform 'key' of 'm.ll' failed: not this one"),
        (panics, "transform 'key' of 'm.ll' failed: panic: no idea"),
        (invalid, "'m.ll' is not valid LLVM IR"),
        (renames, "'m.ll' does not define 'f' any more"),
    ];
    for (change, text) in cases {
        let engine = Checked::new();
        let main = engine.orc().transform("key", change).build().unwrap().dylib("main");
        main.add_bitcode("m.ll", "define i32 @f(i32 %n) { ret i32 %n }", OptLevel::None).unwrap();
        main.add_bitcode_lazily("l.ll", "define i32 @g(i32 %n) { ret i32 %n }", OptLevel::None).unwrap();
        for _ in 0..2 {
            let error = find(&main, "f").unwrap_err();
            assert!(cause(&error).to_string().contains(text), "{error}");
        }
        main.clear().unwrap();
        // The dylib is as good as new.
        main.add_object(crate::common::compile_bytes("f.c", "int f(int n) { return n + 1; }", &[])).unwrap();
        assert_eq!(call(&main, "f", 1), 2);
    }
}

fn a_cache_knows_transforms_by_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("modules");
    let run = |transforms: &[(&str, u64)]| {
        let engine = Checked::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let mut builder = engine.orc().object_cache(slabjit::ObjectCache::open(&folder).unwrap());
        for (key, by) in transforms {
            let (calls, by) = (Arc::clone(&calls), *by);
            builder = builder.transform(key, move |module| {
                calls.fetch_add(1, Ordering::Relaxed);
                multiply(module, "times", by);
                Ok(())
            });
        }
        let main = builder.build().unwrap().dylib("main");
        main.add_bitcode("m.ll", MODULE, OptLevel::Default).unwrap();
        (call(&main, "times", 1), calls.load(Ordering::Relaxed))
    };
    assert_eq!(run(&[]), (1, 0));
    assert_eq!(run(&[("a", 2)]), (2, 1));
    assert_eq!(run(&[("a", 2)]), (2, 0));
    // As was said: the key stands for the function.
    assert_eq!(run(&[("a", 9)]), (2, 0));
    assert_eq!(run(&[("b", 9)]), (9, 1));
    assert_eq!(run(&[("a", 2), ("b", 9)]), (9, 2));
    assert_eq!(run(&[]), (1, 0));
}
