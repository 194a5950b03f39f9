//! Typed handles on linked code and data.
#![allow(unsafe_code, reason = "makes pointers out of addresses")]

use std::any::type_name;
use std::fmt;
use std::ops::Deref;

use crate::elf::SymbolKind;
use crate::live::lifetime::loaded_library::CodeRef;
use crate::live::resolve::found::Found;
use crate::{Error, LibraryError, Result};

/// A function or object of a library, which it keeps alive: also when the library is removed, and past the engine.
///
/// It dereferences to `T`, so a `Symbol<unsafe extern "C" fn(i32) -> i32>` is called like the function. It is `Send`
/// and `Sync` where `T` is, as function pointers are. A `T` copied out of it keeps nothing alive.
pub struct Symbol<T> {
    value: T,
    code: CodeRef,
}

impl<T: Copy> Symbol<T> {
    /// Returns its address.
    pub fn address(&self) -> *const () {
        // SAFETY: only `pointer_from` makes a symbol, and of an address.
        unsafe { std::mem::transmute_copy::<T, *const ()>(&self.value) }
    }

    /// Returns the reference that keeps the code.
    pub(crate) fn hold(&self) -> &CodeRef {
        &self.code
    }

    /// Returns the function or data pointer itself. Using it after the last holder is gone is the caller's own risk.
    pub fn as_raw(&self) -> T {
        self.value
    }
}

/// # Safety
/// `T` has the size of a pointer, and is the symbol's type.
pub(crate) unsafe fn pointer_from<T: Copy + 'static>(found: Found, name: &str) -> Result<Symbol<T>> {
    let Found { address, kind, code } = found;
    if address == 0 {
        return Err(Error::Library(LibraryError::NullSymbol {
            library: code.library().to_string(),
            symbol: name.to_owned(),
        }));
    }
    if kind == SymbolKind::ThreadLocal {
        return Err(Error::Library(LibraryError::ThreadLocalSymbol {
            library: code.library().to_string(),
            symbol: name.to_owned(),
        }));
    }
    if kind == SymbolKind::Data && names_a_function(type_name::<T>()) {
        let (library, symbol) = (code.library().to_string(), name.to_owned());
        return Err(Error::Library(LibraryError::WrongSymbolKind { library, symbol, requested: type_name::<T>() }));
    }
    let pointer: *const () = std::ptr::with_exposed_provenance(address as usize);
    // SAFETY: by the caller; the address is not 0, so it is also valid for types that are never null.
    Ok(Symbol { value: unsafe { std::mem::transmute_copy::<*const (), T>(&pointer) }, code })
}

/// Returns whether a type is a function pointer. Stable Rust has no way to ask; a type's name is good enough for a
/// check that catches mistakes and guards nothing. Types that wrap a function pointer pass unchecked.
fn names_a_function(name: &str) -> bool {
    let name = name.strip_prefix("core::option::Option<").unwrap_or(name);
    let name = match name.strip_prefix("for<") {
        Some(rest) => rest.split_once("> ").map_or(rest, |(_, rest)| rest),
        None => name,
    };
    let name = name.strip_prefix("unsafe ").unwrap_or(name);
    name.starts_with("extern \"") || name.starts_with("fn(")
}

impl<T> Deref for Symbol<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Clone> Clone for Symbol<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), code: self.code.clone() }
    }
}

impl<T: Copy> fmt::Debug for Symbol<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symbol")
            .field("address", &self.address())
            .field("library", &&*self.code.library().text())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_types_are_told_from_data() {
        macro_rules! check {
            ($([$t:ty] $expected:expr),* $(,)?) => { $(
                assert_eq!(names_a_function(type_name::<$t>()), $expected, "{}", type_name::<$t>());
            )* };
        }
        check! {
            [fn()] true,
            [unsafe fn(u8)] true,
            [extern "C" fn(i32) -> i32] true,
            [unsafe extern "C" fn(*const f32, usize)] true,
            [unsafe extern "C-unwind" fn()] true,
            [for<'a> unsafe extern "C" fn(&'a u8) -> &'a u8] true,
            [Option<unsafe extern "C" fn()>] true,
            [*const u8] false,
            [*mut f32] false,
            [*const fn()] false,
            [usize] false,
            [Option<&'static u8>] false,
            [&'static fn()] false,
        }
    }
}
