//! The names that a module defines, before it is compiled.
#![allow(unsafe_code, reason = "linkages and aliases, which inkwell does not show")]

use std::ffi::CStr;
use std::slice;

use inkwell::module::Module;
use slabjit_llvm_wrap::llvm_sys::comdat::{LLVMComdatSelectionKind, LLVMGetComdat, LLVMGetComdatSelectionKind};
use slabjit_llvm_wrap::llvm_sys::core::{
    LLVMGetFirstFunction, LLVMGetFirstGlobal, LLVMGetFirstGlobalAlias, LLVMGetFirstGlobalIFunc, LLVMGetLinkage,
    LLVMGetNextFunction, LLVMGetNextGlobal, LLVMGetNextGlobalAlias, LLVMGetNextGlobalIFunc, LLVMGetSection,
    LLVMGetTypeKind, LLVMGetValueName2, LLVMGetVisibility, LLVMGlobalGetValueType, LLVMIsAGlobalObject,
    LLVMIsDeclaration, LLVMIsThreadLocal, LLVMSetLinkage,
};
use slabjit_llvm_wrap::llvm_sys::prelude::LLVMValueRef;
use slabjit_llvm_wrap::llvm_sys::{LLVMLinkage, LLVMTypeKind, LLVMVisibility};

use crate::name::DefinedName;

/// What others have to know of a module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) names: Vec<DefinedName>,
    /// Whether something of it runs when it is loaded or unloaded.
    pub(crate) has_initialisers: bool,
}

/// Calls a function for each global value of a module.
fn each(module: &Module<'_>, mut call: impl FnMut(LLVMValueRef)) {
    type Next = unsafe extern "C" fn(LLVMValueRef) -> LLVMValueRef;
    let raw = module.as_mut_ptr();
    // SAFETY: the module lives.
    let lists: [(LLVMValueRef, Next); 4] = unsafe {
        [
            (LLVMGetFirstFunction(raw), LLVMGetNextFunction),
            (LLVMGetFirstGlobal(raw), LLVMGetNextGlobal),
            (LLVMGetFirstGlobalAlias(raw), LLVMGetNextGlobalAlias),
            (LLVMGetFirstGlobalIFunc(raw), LLVMGetNextGlobalIFunc),
        ]
    };
    for (mut value, next) in lists {
        while !value.is_null() {
            call(value);
            // SAFETY: of this list.
            value = unsafe { next(value) };
        }
    }
}

impl Interface {
    pub(super) fn of(module: &Module<'_>) -> Self {
        Self::of_values(module, |_, defined| Some(defined))
    }

    /// Does the same with those definitions that `keep` returns.
    pub(super) fn of_values(
        module: &Module<'_>,
        mut keep: impl FnMut(LLVMValueRef, DefinedName) -> Option<DefinedName>,
    ) -> Self {
        let mut interface = Self::default();
        each(module, |value| {
            // SAFETY: a global value of a module that lives.
            let (linkage, visibility, name, section, declared) = unsafe {
                let mut len = 0;
                let start = LLVMGetValueName2(value, &mut len);
                let name = slice::from_raw_parts(start.cast::<u8>(), len);
                let section = match LLVMGetSection(value) {
                    section if section.is_null() => String::new(),
                    section => CStr::from_ptr(section).to_string_lossy().into_owned(),
                };
                (LLVMGetLinkage(value), LLVMGetVisibility(value), name, section, LLVMIsDeclaration(value) != 0)
            };
            if declared {
                return;
            }
            let arrays = [".init_array", ".fini_array", ".ctors", ".dtors", ".preinit_array", ".init", ".fini"];
            let runs = arrays.iter().any(|array| section.starts_with(array));
            interface.has_initialisers |= runs || matches!(name, b"llvm.global_ctors" | b"llvm.global_dtors");
            // SAFETY: as above.
            let (is_thread_local, kind) =
                unsafe { (LLVMIsThreadLocal(value) != 0, LLVMGetTypeKind(LLVMGlobalGetValueType(value))) };
            let is_function = kind == LLVMTypeKind::LLVMFunctionTypeKind;
            let is_weak = match linkage {
                LLVMLinkage::LLVMExternalLinkage => is_in_comdat(value),
                LLVMLinkage::LLVMLinkOnceAnyLinkage
                | LLVMLinkage::LLVMLinkOnceODRLinkage
                | LLVMLinkage::LLVMWeakAnyLinkage
                | LLVMLinkage::LLVMWeakODRLinkage
                | LLVMLinkage::LLVMCommonLinkage => true,
                _ => return,
            };
            let is_exported = visibility != LLVMVisibility::LLVMHiddenVisibility;
            // The code generator takes such a name as it is.
            let name = name.strip_prefix(b"\x01").unwrap_or(name);
            // No object can refer to another's name that begins with `.L`.
            let is_nameless = name.is_empty() || name.starts_with(b".L") || name.starts_with(b"llvm.");
            // As for objects: each has its own copy of what is hidden and weak.
            if is_nameless || is_thread_local || (is_weak && !is_exported) {
                return;
            }
            let name = String::from_utf8_lossy(name).into_owned();
            interface.names.extend(keep(value, DefinedName { name, is_function, is_weak, is_exported }));
        });
        interface
    }
}

/// Returns whether another module's definition may take this one's place, though it is strong.
fn is_in_comdat(value: LLVMValueRef) -> bool {
    // SAFETY: a global value of a module that lives; of aliases, LLVM must not be asked.
    unsafe {
        if LLVMIsAGlobalObject(value).is_null() {
            return false;
        }
        let comdat = LLVMGetComdat(value);
        let alone = LLVMComdatSelectionKind::LLVMNoDuplicatesComdatSelectionKind;
        !comdat.is_null() && LLVMGetComdatSelectionKind(comdat) != alone
    }
}

/// Has the optimiser leave everything that [`Interface`] names.
pub(super) fn keep_all(module: &Module<'_>) {
    each(module, |value| {
        // SAFETY: a global value of a module that lives.
        unsafe {
            let kept = match LLVMGetLinkage(value) {
                LLVMLinkage::LLVMLinkOnceAnyLinkage => LLVMLinkage::LLVMWeakAnyLinkage,
                LLVMLinkage::LLVMLinkOnceODRLinkage => LLVMLinkage::LLVMWeakODRLinkage,
                _ => return,
            };
            if LLVMIsDeclaration(value) == 0 {
                LLVMSetLinkage(value, kept);
            }
        }
    });
}
