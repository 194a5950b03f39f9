//! What holds of preparation whatever the bytes are: for tests, and for the fuzz targets in `fuzz/`.

use super::prepare::{Preparation, Target};
use super::raw::EM_X86_64;
use super::{SectionConflicts, Surroundings, Verdict};
use crate::Limits;

/// Nothing is known of what is around.
pub(crate) const NOWHERE: Surroundings<'static> = Surroundings { bridges: true, executable_stack: true, host: None };

pub(super) const POLICIES: [SectionConflicts; 3] =
    [SectionConflicts::Rename, SectionConflicts::Harmonize, SectionConflicts::Reject];

/// Prepares and checks an object as for the machine that it names; panics where that shows a bug. Whether it loads.
#[cfg(feature = "fuzzing")]
pub fn exercise(bytes: &[u8]) -> bool {
    use super::raw::EM_AARCH64;
    let arm = bytes.get(18..20) == Some(&EM_AARCH64.to_le_bytes());
    let machine = if arm { EM_AARCH64 } else { EM_X86_64 };
    // Each by itself is as good, and takes a third of the time.
    let policy = POLICIES[bytes.len() % POLICIES.len()];
    exercise_under(Target { machine, llvm: crate::llvm_version() }, &[policy], bytes)
}

/// Loading and checking agree, and what was prepared needs nothing more. Whether it loads under all policies.
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
                // Whether references reach is the linker's to say when the object is loaded.
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
        // What stands for relocations that LLVM lacks means something else by itself.
        if prepared.index.lifted.len() == 0 {
            let again = preparation.prepare("random.o", &prepared.bytes).unwrap();
            assert!(again.changes.is_empty(), "{:?}", again.changes);
        }
    }
    loads
}
