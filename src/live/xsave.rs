//! What `xsave` keeps of a caller's registers, for code of ours that is called where no function is expected.
#![allow(unsafe_code, reason = "CPUID")]

use std::sync::atomic::{AtomicU64, Ordering};

/// The components that `xsave` is to keep: what a function may change of SSE, AVX, MPX, AVX-512 and APX (Intel SDM 1,
/// 13.1). The processor leaves out what the system has not turned on. (Not AMX's tiles: they take 8 KiB, and no
/// function has them as arguments.)
pub(crate) const COMPONENTS: u32 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 19;

/// The number of bytes that `xsave` writes; 0 where the system has none. Asked here, and not in each call: virtual
/// machines leave the guest for it.
pub(crate) static STATE_BYTES: AtomicU64 = AtomicU64::new(0);

/// Asks the processor: bit 27 of ECX of CPUID leaf 1 is OSXSAVE; leaf 13 has the components in EAX, and its
/// sub-leaf of a component that one's size in EAX and its offset in EBX, where `xsave` has it, whatever else it leaves
/// out.
#[allow(unused_unsafe, reason = "CPUID is safe in newer versions of Rust")]
fn state_bytes() -> u64 {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    /// The legacy region, which has SSE, and the header.
    const LEAST: u32 = 512 + 64;
    static ONCE: once_cell::race::OnceBox<u64> = once_cell::race::OnceBox::new();
    let ask = || {
        // SAFETY: every x86-64 processor has the instruction.
        let leaf = |component| unsafe { __cpuid_count(13, component) };
        // SAFETY: as above.
        if unsafe { __cpuid(1).ecx } & 1 << 27 == 0 {
            return 0;
        }
        let kept = leaf(0).eax & COMPONENTS;
        let ends = (2..u32::BITS).filter(|component| kept >> component & 1 == 1).map(|component| {
            let component = leaf(component);
            component.ebx + component.eax
        });
        ends.fold(LEAST, u32::max).into()
    };
    *ONCE.get_or_init(|| Box::new(ask()))
}

/// Makes [`STATE_BYTES`] known. To be called before code that uses it.
pub(crate) fn ask() {
    STATE_BYTES.store(state_bytes(), Ordering::Relaxed);
}
