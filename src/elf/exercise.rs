//! Invariants of preparation for arbitrary bytes, for tests and for the fuzz targets in `fuzz/`.

use super::prepare::{Preparation, Target};
use super::{SectionConflicts, Surroundings, Verdict};
use crate::Limits;
use crate::elf::elf_abi::EM_X86_64;

/// Surroundings without a process.
pub(crate) const NOWHERE: Surroundings<'static> = Surroundings { bridges: true, executable_stack: true, host: None };

pub(super) const POLICIES: [SectionConflicts; 3] =
    [SectionConflicts::Rename, SectionConflicts::Harmonize, SectionConflicts::Reject];

/// Prepares and checks an object for the machine that it names; panics on a bug. Returns whether it loads.
#[cfg(slabjit_fuzzing)]
pub fn exercise(bytes: &[u8]) -> bool {
    use crate::elf::elf_abi::EM_AARCH64;
    let arm = bytes.get(18..20) == Some(&EM_AARCH64.to_le_bytes());
    let machine = if arm { EM_AARCH64 } else { EM_X86_64 };
    // One policy finds as much as all of them, in a third of the time.
    let policy = POLICIES[bytes.len() % POLICIES.len()];
    exercise_under(Target { machine, llvm: crate::llvm_version() }, &[policy], bytes)
}

/// Asserts that loading and checking agree, and that prepared bytes need no more changes. Returns whether the object
/// loads under all policies.
pub(super) fn exercise_under(target: Target, policies: &[SectionConflicts], bytes: &[u8]) -> bool {
    let native = if target.machine == EM_X86_64 { "x86-64" } else { "AArch64" };
    let mut loads = true;
    for &policy in policies {
        let limits = Limits { decompressed_bytes: 1 << 20, relocations: 1 << 16, ..Limits::default() };
        let preparation = Preparation::new(target, policy, limits, Vec::new());
        let prepared = preparation.prepare("random.o", bytes);
        if let Ok(plan) = preparation.check("random.o", bytes, &NOWHERE) {
            let _ = plan.to_string();
            if plan.machine == native {
                // The linker judges reach when the object is loaded.
                let reaches = plan.references.iter().all(|reference| reference.verdict != Verdict::Refused);
                assert!(!plan.loads() || prepared.is_ok(), "{plan}\n{:?}", prepared.err());
                assert!(plan.loads() || prepared.is_err() || !reaches, "{plan}");
            }
        } else {
            assert!(prepared.is_err());
        }
        let Ok(prepared) = prepared else {
            loads = false;
            continue;
        };
        // A carrier of a lifted relocation means something else in an object of its own.
        if prepared.index.lifted.len() == 0 {
            let again = preparation.prepare("random.o", &*prepared.bytes).unwrap();
            assert!(again.changes.is_empty(), "{:?}", again.changes);
        }
    }
    loads
}
