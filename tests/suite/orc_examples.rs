//! What LLVM's examples of ORC's C API do (llvm/examples/OrcV2Examples), with the engine's LLJIT: transforms of IR and of
//! objects, functions that are made when they are called, generators, host functions.

use std::ffi::{CStr, CString, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use slabjit::llvm_sys::core::{
    LLVMConstInt, LLVMGetBufferSize, LLVMGetBufferStart, LLVMGetNamedGlobal, LLVMGlobalGetValueType, LLVMSetInitializer,
};
use slabjit::llvm_sys::error::LLVMErrorRef;
use slabjit::llvm_sys::orc2::lljit::{
    LLVMOrcLLJITAddLLVMIRModule, LLVMOrcLLJITAddObjectFile, LLVMOrcLLJITGetExecutionSession,
    LLVMOrcLLJITGetIRTransformLayer, LLVMOrcLLJITGetMainJITDylib, LLVMOrcLLJITGetObjTransformLayer,
    LLVMOrcLLJITGetTripleString, LLVMOrcLLJITMangleAndIntern, LLVMOrcLLJITRef,
};
use slabjit::llvm_sys::orc2::*;
use slabjit::llvm_sys::prelude::{LLVMMemoryBufferRef, LLVMModuleRef};

use crate::common::{Checked, compile_bytes, tests};
use crate::lljit::check;
use crate::orc::{Jit, module};

tests![
    modules_are_transformed,
    objects_are_dumped_and_replaced,
    functions_are_made_when_they_are_called,
    a_generator_adds_objects,
    host_functions_are_called
];

const EXPORTED_CALLABLE: LLVMJITSymbolFlags = LLVMJITSymbolFlags { GenericFlags: 1 | 4, TargetFlags: 0 };

fn intern(jit: Jit, name: &str) -> LLVMOrcSymbolStringPoolEntryRef {
    let name = CString::new(name).unwrap();
    // SAFETY: the engine lives.
    unsafe { LLVMOrcLLJITMangleAndIntern(jit.0, name.as_ptr()) }
}

fn add_module(jit: Jit, text: &CStr) {
    // SAFETY: the engine lives; the module is given on.
    unsafe { check(LLVMOrcLLJITAddLLVMIRModule(jit.0, LLVMOrcLLJITGetMainJITDylib(jit.0), module(text))).unwrap() }
}

/// OrcV2CBindingsIRTransforms.
fn modules_are_transformed() {
    extern "C" fn change(count: *mut c_void, module: LLVMModuleRef) -> LLVMErrorRef {
        // SAFETY: the counter outlives the engine; the module has such a variable.
        unsafe {
            (*count.cast::<AtomicUsize>()).fetch_add(1, Ordering::Relaxed);
            let global = LLVMGetNamedGlobal(module, c"addend".as_ptr());
            LLVMSetInitializer(global, LLVMConstInt(LLVMGlobalGetValueType(global), 40, 0));
        }
        ptr::null_mut()
    }
    extern "C" fn transform(
        count: *mut c_void,
        module: *mut LLVMOrcThreadSafeModuleRef,
        _: LLVMOrcMaterializationResponsibilityRef,
    ) -> LLVMErrorRef {
        // SAFETY: LLVM's module.
        unsafe { LLVMOrcThreadSafeModuleWithModuleDo(*module, change, count) }
    }
    let count = AtomicUsize::new(0);
    let engine = Checked::new();
    let jit = Jit::of(&engine);
    // SAFETY: the counter outlives the engine.
    unsafe {
        let layer = LLVMOrcLLJITGetIRTransformLayer(jit.0);
        LLVMOrcIRTransformLayerSetTransform(layer, transform, (&raw const count).cast_mut().cast());
    }
    let text = c"@addend = internal constant i32 1
        define i32 @sum(i32 %n) { %a = load i32, ptr @addend
          %r = add i32 %n, %a
          ret i32 %r }";
    add_module(jit, text);
    assert_eq!((count.load(Ordering::Relaxed), jit.call("sum", 2), count.load(Ordering::Relaxed)), (0, 42, 1));
}

/// OrcV2CBindingsDumpObjects, and a transform that puts another object in the place of one.
fn objects_are_dumped_and_replaced() {
    struct Seen {
        dump: LLVMOrcDumpObjectsRef,
        bytes: Mutex<Vec<Vec<u8>>>,
    }
    extern "C" fn transform(seen: *mut c_void, object: *mut LLVMMemoryBufferRef) -> LLVMErrorRef {
        // SAFETY: it outlives the engine; the buffer is LLVM's.
        unsafe {
            let seen = &*seen.cast::<Seen>();
            let bytes =
                std::slice::from_raw_parts(LLVMGetBufferStart(*object).cast::<u8>(), LLVMGetBufferSize(*object));
            seen.bytes.lock().unwrap().push(bytes.to_vec());
            LLVMOrcDumpObjects_CallOperator(seen.dump, object)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = CString::new(folder.path().to_str().unwrap()).unwrap();
    // SAFETY: the texts are lent.
    let dump = unsafe { LLVMOrcCreateDumpObjects(path.as_ptr(), c"dumped".as_ptr()) };
    let seen = Seen { dump, bytes: Mutex::default() };
    let engine = Checked::new();
    let jit = Jit::of(&engine);
    // SAFETY: what is given outlives the engine.
    unsafe {
        let layer = LLVMOrcLLJITGetObjTransformLayer(jit.0);
        LLVMOrcObjectTransformLayerSetTransform(layer, transform, (&raw const seen).cast_mut().cast());
    }
    add_module(jit, c"define i32 @same(i32 %n) { ret i32 %n }");
    jit.add(None, "twice.c", "int twice(int n) { return 2 * n; }");
    assert_eq!((jit.call("same", 3), jit.call("twice", 3)), (3, 6));
    let bytes = std::mem::take(&mut *seen.bytes.lock().unwrap());
    let files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert_eq!((bytes.len(), files.len()), (2, 2));
    assert!(files.iter().all(|file| file.starts_with(b"\x7fELF") && bytes.contains(file)));
    drop(engine);
    // SAFETY: nobody has it any more.
    unsafe { LLVMOrcDisposeDumpObjects(dump) };
}

/// OrcV2CBindingsLazy.
fn functions_are_made_when_they_are_called() {
    let engine = Checked::new();
    let jit = Jit::of(&engine);
    add_module(jit, c"define i32 @first_body(i32 %n) { %r = add i32 %n, 1\n ret i32 %r }");
    add_module(jit, c"define i32 @second_body(i32 %n) { %r = add i32 %n, 2\n ret i32 %r }");
    add_module(
        jit,
        c"declare i32 @first(i32) declare i32 @second(i32)
        define i32 @entry(i32 %n) { %wants = icmp eq i32 %n, 0
          br i1 %wants, label %one, label %other
        one: %a = call i32 @first(i32 %n)
          ret i32 %a
        other: %b = call i32 @second(i32 %n)
          ret i32 %b }",
    );
    let (mut manager, mut aliases) = (ptr::null_mut(), Vec::new());
    for name in ["first", "second"] {
        let body = intern(jit, &format!("{name}_body"));
        let entry = LLVMOrcCSymbolAliasMapEntry { Name: body, Flags: EXPORTED_CALLABLE };
        aliases.push(LLVMOrcCSymbolAliasMapPair { Name: intern(jit, name), Entry: entry });
    }
    // SAFETY: the managers are there as long as functions are to be made; the unit is given on.
    unsafe {
        let (triple, dylib) = (LLVMOrcLLJITGetTripleString(jit.0), LLVMOrcLLJITGetMainJITDylib(jit.0));
        let stubs = LLVMOrcCreateLocalIndirectStubsManager(triple);
        let session = LLVMOrcLLJITGetExecutionSession(jit.0);
        check(LLVMOrcCreateLocalLazyCallThroughManager(triple, session, 0, &mut manager)).unwrap();
        let unit = LLVMOrcLazyReexports(manager, stubs, dylib, aliases.as_mut_ptr(), aliases.len());
        check(LLVMOrcJITDylibDefine(dylib, unit)).unwrap();
        assert_eq!((jit.call("entry", 0), engine.stats().libraries), (1, 2));
        assert_eq!((jit.call("entry", 1), jit.call("entry", 0), engine.stats().libraries), (3, 1, 3));
        // Both functions were made: nothing uses the managers any more. One has names of the session's pool, and must
        // not outlive it, as it does in LLVM's own example.
        LLVMOrcDisposeLazyCallThroughManager(manager);
        LLVMOrcDisposeIndirectStubsManager(stubs);
        drop(engine);
    }
}

/// OrcV2CBindingsReflectSymbols and OrcV2CBindingsVeryLazy: what is looked for nowhere else is made by a function.
fn a_generator_adds_objects() {
    struct Asked {
        jit: LLVMOrcLLJITRef,
        names: Mutex<Vec<String>>,
        object: Vec<u8>,
    }
    #[allow(clippy::too_many_arguments, reason = "LLVM's")]
    extern "C" fn generate(
        _: LLVMOrcDefinitionGeneratorRef,
        asked: *mut c_void,
        _: *mut LLVMOrcLookupStateRef,
        _: LLVMOrcLookupKind,
        dylib: LLVMOrcJITDylibRef,
        _: LLVMOrcJITDylibLookupFlags,
        set: LLVMOrcCLookupSet,
        n: usize,
    ) -> LLVMErrorRef {
        // SAFETY: it outlives the engine; the set is LLVM's, for this call.
        unsafe {
            let asked = &*asked.cast::<Asked>();
            for element in std::slice::from_raw_parts(set, n) {
                let name = CStr::from_ptr(LLVMOrcSymbolStringPoolEntryStr(element.Name)).to_str().unwrap().to_owned();
                if name.starts_with("made_") {
                    let bytes = crate::orc::renamed(&asked.object, &[("made_00000", name.clone())]);
                    let buffer = slabjit::llvm_sys::core::LLVMCreateMemoryBufferWithMemoryRangeCopy(
                        bytes.as_ptr().cast(),
                        bytes.len(),
                        c"made.o".as_ptr(),
                    );
                    let error = LLVMOrcLLJITAddObjectFile(asked.jit, dylib, buffer);
                    if !error.is_null() {
                        return error;
                    }
                }
                asked.names.lock().unwrap().push(name);
            }
        }
        ptr::null_mut()
    }
    extern "C" fn dispose(_: *mut c_void) {}
    let object = compile_bytes("made.c", "int made_00000(int n) { return n + 7; }", &[]);
    let engine = Checked::new();
    let jit = Jit::of(&engine);
    let asked = Asked { jit: jit.0, names: Mutex::default(), object };
    // SAFETY: what is given outlives the engine.
    unsafe {
        let context = (&raw const asked).cast_mut().cast();
        let generator = LLVMOrcCreateCustomCAPIDefinitionGenerator(generate, context, dispose);
        LLVMOrcJITDylibAddGenerator(LLVMOrcLLJITGetMainJITDylib(jit.0), generator);
    }
    jit.add(None, "start.c", "int made_00003(int); int start(int n) { return made_00003(n) * 2; }");
    assert_eq!((jit.call("start", 1), jit.call("made_00009", 0)), (16, 7));
    assert!(jit.find("nowhere").unwrap_err().contains("nowhere"));
    let names = std::mem::take(&mut *asked.names.lock().unwrap());
    assert_eq!(names, ["made_00003", "made_00009", "nowhere"]);
    drop(engine);
}

/// OrcV2CBindingsAddObjectFile's and BasicUsage's are what `orc::` begins with; here the host is called.
fn host_functions_are_called() {
    extern "C" fn host(n: i32) -> i32 {
        n + 1000
    }
    let engine = Checked::new();
    let jit = Jit::of(&engine);
    let address = host as *const () as usize as u64;
    let symbol = LLVMJITEvaluatedSymbol { Address: address, Flags: EXPORTED_CALLABLE };
    let mut pairs = [LLVMOrcCSymbolMapPair { Name: intern(jit, "host"), Sym: symbol }];
    // SAFETY: the function stays; the unit is given on.
    unsafe {
        let unit = LLVMOrcAbsoluteSymbols(pairs.as_mut_ptr(), pairs.len());
        check(LLVMOrcJITDylibDefine(LLVMOrcLLJITGetMainJITDylib(jit.0), unit)).unwrap();
    }
    jit.add(None, "calls.c", "int host(int); int calls(int n) { return host(n) + 1; }");
    assert_eq!(jit.call("calls", 1), 1002);
}
