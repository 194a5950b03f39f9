//! What code needs of the CPU, function by function, read from its instructions.
//!
//! What compilers say of a whole file refuses too much, as with functions in several versions, or too little.

mod aarch64;
mod function_needs;
pub(crate) mod list;
pub(crate) mod needs;
mod x86_64;

pub use function_needs::{CpuFeature, FunctionNeeds};

use once_cell::race::OnceBox;

use crate::elf::{EM_AARCH64, EM_X86_64, HOST_MACHINE};
use needs::Needs;

/// Reads a function's instructions.
pub(crate) fn read(machine: u16, code: &[u8]) -> Needs {
    let mut needs = Needs::default();
    match machine {
        EM_X86_64 => x86_64::read(code, &mut needs),
        EM_AARCH64 => aarch64::read(code, &mut needs),
        _ => needs.undecoded = true,
    }
    needs
}

/// Returns a feature's name by its number in the machine's table.
pub(crate) fn name(machine: u16, number: u8) -> &'static str {
    let name = if machine == EM_AARCH64 { aarch64::name(number) } else { x86_64::name(number) };
    name.unwrap_or_default()
}

/// Returns a feature's number by its name.
pub(crate) fn number(machine: u16, name: &str) -> Option<u8> {
    if machine == EM_AARCH64 { aarch64::number(name) } else { x86_64::number(name) }
}

/// Returns all names of a machine's features.
pub(crate) fn names(machine: u16) -> impl Iterator<Item = &'static str> {
    (0..u8::MAX).map(move |number| name(machine, number)).take_while(|name| !name.is_empty())
}

/// Returns whether this CPU has a feature, and the system lets programs use it. A name that this version does not know
/// is one that it has not.
pub(crate) fn has(name: &str) -> bool {
    static FOUND: OnceBox<u128> = OnceBox::new();
    #[cfg(target_arch = "x86_64")]
    let find = x86_64::find;
    #[cfg(target_arch = "aarch64")]
    let find = aarch64::find;
    let found = *FOUND.get_or_init(|| Box::new(find()));
    number(HOST_MACHINE, name).is_some_and(|number| found >> number & 1 == 1)
}
